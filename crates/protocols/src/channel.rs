//! How batches reach P2.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;

use crate::limits::BATCHES_IN_FLIGHT;
use crate::{Frame, Limits, ProtocolError, Responder};

/// Batches on their way, in order.
pub type Frames = BoxStream<'static, Result<Frame, ProtocolError>>;

/// A way to P2. One answer comes back for every request, in order; a lost connection is the channel's business, and so is
/// sending requests again.
pub trait Channel: Send + Sync + std::fmt::Debug {
    /// Sends the requests of one round and returns the answers as they come. Requests are drawn as the other side takes them.
    fn exchange(&self, requests: Frames) -> Frames;

    /// What the other side does at once.
    fn limits(&self) -> Limits;
}

/// P2 in the same process: for trying out, for tests, and for nothing that must stay secret, since whoever runs P1 then holds
/// the keys.
#[derive(Clone, Debug)]
pub struct InProcess(Arc<Responder>);

impl InProcess {
    /// Asks this responder.
    pub fn new(responder: Arc<Responder>) -> Self {
        Self(responder)
    }
}

impl Channel for InProcess {
    fn exchange(&self, requests: Frames) -> Frames {
        let responder = self.0.clone();
        let answer = move |request: Result<Frame, ProtocolError>| {
            let responder = responder.clone();
            async move {
                let request = request?;
                blocking(move || responder.answer(request)).await?
            }
        };
        requests.map(answer).buffered(BATCHES_IN_FLIGHT).boxed()
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }
}

/// Runs what takes long on a thread where it may, from now on.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, ProtocolError>> {
    let task = tokio::task::spawn_blocking(work);
    async move {
        task.await.map_err(|error| match error.is_cancelled() {
            true => ProtocolError::Cancelled,
            false => ProtocolError::Internal("a worker thread failed".to_owned()),
        })
    }
}
