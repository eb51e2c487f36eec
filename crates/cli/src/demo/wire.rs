//! A wire between two processes that counts what passes and looks for words that must not.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::canaries::Canaries;

const BUFFER: usize = 256 << 10;

/// An address of its own in front of a server. It listens until the runtime ends.
#[derive(Clone)]
pub(super) struct Wire {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    /// Bytes to the server, and back.
    passed: [AtomicU64; 2],
    canaries: Arc<Canaries>,
    heard: Mutex<BTreeSet<String>>,
}

impl Wire {
    /// In front of a server on this machine.
    pub(super) async fn to(target: SocketAddr, canaries: Arc<Canaries>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let shared =
            Shared { target: Mutex::new(target), passed: Default::default(), canaries, heard: Mutex::default() };
        let wire = Self { address: listener.local_addr()?, shared: Arc::new(shared) };
        let shared = wire.shared.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(connect(near, shared.clone()));
            }
        });
        Ok(wire)
    }

    /// Where to ask instead of the server itself.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on to another server.
    pub(super) fn turn_to(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// Bytes to the server, and back.
    pub(super) fn passed(&self) -> [u64; 2] {
        [0, 1].map(|way| self.shared.passed.get(way).map_or(0, |count| count.load(Ordering::Relaxed)))
    }

    /// Words that passed and must not have.
    pub(super) fn heard(&self) -> BTreeSet<String> {
        self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Both ways, until both have ended. What goes wrong ends the connection, and those at its ends tell it.
async fn connect(near: TcpStream, shared: Arc<Shared>) {
    let target = *shared.target.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(far) = TcpStream::connect(target).await else { return };
    // Rounds are many and small: nothing waits for more.
    if near.set_nodelay(true).and_then(|()| far.set_nodelay(true)).is_err() {
        return;
    }
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::join!(pass(near_in, far_out, 0, &shared), pass(far_in, near_out, 1, &shared));
}

/// One way. The end of a buffer stays in front of the next, so that words between the two are found.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: usize, shared: &Shared) {
    let overlap = shared.canaries.longest().saturating_sub(1);
    let (mut buffer, mut kept) = (vec![0; overlap + BUFFER], 0);
    while let Some(free) = buffer.get_mut(kept..)
        && let Ok(count @ 1..) = from.read(free).await
    {
        let end = kept + count;
        // Before they are passed on: whoever has them asks for a count that has them too.
        if let Some(passed) = shared.passed.get(way) {
            passed.fetch_add(count as u64, Ordering::Relaxed);
        }
        for word in buffer.get(..end).map(|bytes| shared.canaries.find(bytes)).into_iter().flatten() {
            let mut heard = shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.insert(String::from_utf8_lossy(word).into_owned());
        }
        let Some(fresh) = buffer.get(kept..end) else { break };
        if to.write_all(fresh).await.is_err() {
            break;
        }
        let start = end.saturating_sub(overlap);
        buffer.copy_within(start..end, 0);
        kept = end - start;
    }
    // The other end may be gone already.
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All arrives as it was sent, is counted, and words are heard also where two buffers meet.
    #[tokio::test]
    async fn bytes_pass_and_words_are_heard() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let canaries = Canaries::new(["Ada Berg", "Zoë Ivanova"].map(str::to_owned).into());
        let wire = Wire::to(server.local_addr().unwrap(), Arc::new(canaries)).await.unwrap();
        let mut sent = vec![b'x'; 3 * BUFFER];
        let name = "Zoë Ivanova".as_bytes();
        sent[BUFFER - 3..][..name.len()].copy_from_slice(name);
        let mut client = TcpStream::connect(wire.address).await.unwrap();
        let (mut connection, _) = server.accept().await.unwrap();
        let expected = sent.clone();
        let sending = tokio::spawn(async move {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            answer
        });
        let mut received = Vec::new();
        connection.read_to_end(&mut received).await.unwrap();
        assert!(received == expected);
        connection.write_all(b"answer").await.unwrap();
        drop(connection);
        assert_eq!(sending.await.unwrap(), b"answer");
        assert_eq!(wire.passed(), [expected.len() as u64, 6]);
        assert_eq!(wire.heard(), BTreeSet::from(["Zoë Ivanova".to_owned()]));
    }
}
