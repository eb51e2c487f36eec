//! SQL over Arrow Flight, for whoever answers statements: the engine, or a recipient's gateway.
//!
//! ```text
//!  ADBC, JDBC, pyarrow                                           this crate                      an Answers
//!  GetFlightInfo(SQL)      ---------------------------------->   Tickets  <--- prepare(SQL) ---  plans, refuses
//!  ticket                  <----------------------------------
//!  DoGet(ticket)           ---------------------------------->   run, once                 ---   rows
//!  DoGet(ticket, row 9000) ---------------------------------->   Spool: run once, read often
//!  DoAction(veil.done)     ---------------------------------->   forgets ticket and spool
//! ```
//!
//! ```text
//!  answers      the trait, what it gives                   tickets      names of statements: owner, expiry, use
//!  error        refusals as gRPC codes                     spool        results on disk, followed while they grow
//!  caller       who comes: token or certificate            delivery     rows as Flight messages, and their log
//!  role         what a caller may do                       catalog      GetTables and its relatives
//!  tokens       the token file                             sql_info     what the server says of itself
//!  certificate  the name in a certificate                  server       listening and stopping
//!  request      what a descriptor or ticket asks for       statements   what each command does
//!  service      the Flight methods
//! ```
//! A client may give SQL as a Flight SQL command or, as pyarrow does, as the plain text of a command descriptor.
//!
//! # Broken downloads
//! A statement that its answerer marks [`keep`](Prepared::keep) runs once, in the background, into a spool. Its endpoint says so
//! ([`KEPT`] as `app_metadata`). A `DoGet` with the gRPC metadata [`FROM_HEADER`]: N leaves out the first N *rows*, since batches
//! are cut anew on their way. The action [`DONE_ACTION`] with the ticket as its body ends it.

mod answers;
mod caller;
mod catalog;
mod certificate;
mod delivery;
mod error;
mod request;
mod role;
mod server;
mod service;
mod spool;
mod sql_info;
mod statements;
mod tickets;
mod tokens;

pub use answers::{Answers, Batches, Prepared, Rows, Run, TableEntry};
pub use caller::Caller;
pub use error::{AnswerError, Kind};
pub use role::Role;
pub use server::{BoundServer, ServerConfig, ServerError, ServerTls, bind};
pub use tickets::Clock;
pub use tokens::{TokenError, Tokens};

/// The gRPC metadata of a `DoGet` that leaves out so many rows.
pub const FROM_HEADER: &str = "veil-from";

/// The action that ends a kept statement; its body is the ticket.
pub const DONE_ACTION: &str = "veil.done";

/// The `app_metadata` of an endpoint whose ticket can be used again.
pub const KEPT: &[u8] = b"veil.keep";
