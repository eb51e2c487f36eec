//! The same again: downloads that break, tickets that are shown twice.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use arrow::array::RecordBatch;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{Action, Ticket};
use futures::TryStreamExt;
use tonic::transport::{Channel, Endpoint};

use super::{Place, address};

const NOISY: &str = "columns = [\"age\", \"region\"]\nepsilon = { age = 10.0 }";
const SQL: &str = "SELECT dp_laplace(age, 1.0) AS age, region FROM people";

impl Place {
    /// Releases that the ledger knows.
    fn spends(&self) -> usize {
        self.read("state/ledger.jsonl").lines().filter(|line| line.contains("\"spend\"")).count()
    }
}

/// A wire of which the first connections break after so many bytes of answers.
fn breaking(to: SocketAddr, after: &'static [usize]) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = connections.clone();
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let limit = after.get(counted.fetch_add(1, Ordering::SeqCst)).copied().unwrap_or(usize::MAX);
            let Ok(far) = TcpStream::connect(to) else { continue };
            let ways = [(near.try_clone().unwrap(), far.try_clone().unwrap(), usize::MAX), (far, near, limit)];
            for (mut from, mut into, mut left) in ways {
                thread::spawn(move || {
                    let mut buffer = vec![0; 512];
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        let passed = count.min(left);
                        left -= passed;
                        if into.write_all(&buffer[..passed]).is_err() || left == 0 {
                            break;
                        }
                    }
                    let _ = (into.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
                });
            }
        }
    });
    (address, connections)
}

/// A download that breaks goes on, as the program that fetches does it: all rows come, and the release has run once.
#[test]
fn a_broken_fetch_goes_on() {
    let place = Place::new(NOISY);
    let p2 = place.p2("127.0.0.1:0", &[]);
    let p1 = place.p1(&p2.url, &[]);
    let (wire, connections) = breaking(address(&p1.url), &[1500, 3000, 4500]);
    let from = format!("http://{wire}");
    let fetch = ["fetch", "--from", &from, "--key", "alice/recipient.key", "--owner", "keys/owner.pub", "--sql", SQL];
    place.succeed(&[&fetch[..], &["-o", "out.csv", "--keep-sealed", "out.sealed"]].concat());
    assert!(connections.load(Ordering::SeqCst) > 1, "the wire never broke");
    assert_eq!((place.read("out.csv").lines().count(), place.spends()), (25, 1));
    let files = ["--file", "out.csv", "--sealed", "out.sealed", "--key", "alice/recipient.key"];
    let found = place.succeed(&[&["verify", "out.manifest.json", "--owner", "keys/owner.pub"], &files[..]].concat());
    assert!(found.contains("out.csv is what was released: 24 rows, value for value"), "{found}");
}

/// A ticket that is shown again gives the same sealed rows and spends nothing; once they are acknowledged it gives none.
#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_shown_again_is_no_second_release() {
    let place = Place::new(NOISY);
    let p2 = place.p2("127.0.0.1:0", &[]);
    let p1 = place.p1(&p2.url, &[]);
    let endpoint = Endpoint::from_shared(p1.url.clone()).unwrap();
    let mut client: FlightSqlServiceClient<Channel> = FlightSqlServiceClient::new(endpoint.connect().await.unwrap());
    let sql = format!("SELECT * FROM release(({SQL}), recipient => 'alice')");
    let info = client.execute(sql, None).await.unwrap();
    let ticket = info.endpoint.into_iter().next().unwrap().ticket.unwrap();
    let mut rows = async |ticket: Ticket| -> Result<Vec<RecordBatch>, String> {
        let rows = client.do_get(ticket).await.map_err(|error| error.to_string())?;
        rows.try_collect().await.map_err(|error| error.to_string())
    };
    let first = rows(ticket.clone()).await.unwrap();
    assert_eq!(rows(ticket.clone()).await.unwrap(), first);
    assert_eq!((first.iter().map(RecordBatch::num_rows).sum::<usize>(), place.spends()), (3, 1));
    let done = Action { r#type: "veil.done".to_owned(), body: ticket.ticket.clone() };
    let channel = Endpoint::from_shared(p1.url.clone()).unwrap().connect().await.unwrap();
    let mut other = arrow_flight::flight_service_client::FlightServiceClient::new(channel);
    other.do_action(done).await.unwrap();
    let replayed = rows(ticket).await.unwrap_err();
    assert!(replayed.contains("this ticket is done"), "{replayed}");
    assert_eq!(place.spends(), 1);
}
