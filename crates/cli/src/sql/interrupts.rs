//! Ctrl-C: ends the statement that runs, not the shell; a program that runs none ends.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot::{Receiver, Sender, channel};

/// Who waits for Ctrl-C.
#[derive(Clone)]
pub(crate) struct Interrupts(Arc<Mutex<Option<Sender<()>>>>);

impl Interrupts {
    /// From now on. The prompt sees Ctrl-C as a key; without one, the program is to end.
    pub(crate) async fn watch(end_when_idle: bool) -> Self {
        let waiting = Self(Arc::default());
        let watched = waiting.clone();
        // Heard from here on: the prompt puts back whatever handler it finds when it first reads.
        let mut press = Box::pin(tokio::signal::ctrl_c());
        let _ = futures::poll!(&mut press);
        tokio::spawn(async move {
            while press.as_mut().await.is_ok() {
                press.set(tokio::signal::ctrl_c());
                let statement = watched.lock().take();
                let heard = statement.is_some_and(|statement| statement.send(()).is_ok());
                if !heard && end_when_idle {
                    std::process::exit(1);
                }
            }
        });
        waiting
    }

    /// The next Ctrl-C, for whoever asked last.
    pub(crate) fn next(&self) -> Receiver<()> {
        let (sender, receiver) = channel();
        *self.lock() = Some(sender);
        receiver
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
