//! The owner's steward: asks P1 over Arrow Flight SQL, as any client could.

use arrow::array::RecordBatch;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::TryStreamExt;
use tonic::transport::{Channel, Endpoint};

type Failure = Box<dyn std::error::Error>;

/// A client of P1 that may also change something.
pub(super) struct Steward(FlightSqlServiceClient<Channel>);

impl Steward {
    pub(super) async fn connect(url: &str, token: &str) -> Result<Self, Failure> {
        let channel = Endpoint::from_shared(url.to_owned())?.connect().await;
        let mut client = FlightSqlServiceClient::new(channel.map_err(|error| format!("{url}: {error}"))?);
        client.set_token(token.to_owned());
        Ok(Self(client))
    }

    /// Runs a statement to its end.
    pub(super) async fn ask(&mut self, sql: &str) -> Result<Vec<RecordBatch>, Failure> {
        let info = self.0.execute(sql.to_owned(), None).await.map_err(|error| refusal(&error.to_string()))?;
        let ticket = info.endpoint.into_iter().next().and_then(|endpoint| endpoint.ticket);
        let rows =
            self.0.do_get(ticket.ok_or("P1 gave no ticket")?).await.map_err(|error| refusal(&error.to_string()))?;
        rows.try_collect().await.map_err(|error| match error {
            FlightError::Tonic(status) => refusal(status.message()),
            other => refusal(&other.to_string()),
        })
    }
}

/// What P1 said, without what clients put around it.
fn refusal(text: &str) -> Failure {
    let inner = text.split_once("message: \"").and_then(|(_, rest)| rest.split_once("\", details"));
    format!("P1 refuses: {}", inner.map_or(text, |(message, _)| message)).into()
}
