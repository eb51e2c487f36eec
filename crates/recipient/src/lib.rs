//! The recipient's side: sealed parcels in, clear Arrow batches out.
//!
//! ```text
//!  P1, Flight SQL     fetch            opener                              the recipient
//!  sealed rows   -->  resumes,    -->  header, parcels, manifest      -->  batches; the manifest, compared with what came
//!                     ends             opened with the recipient's key
//! ```
//!
//! ```text
//!  sealed_table   the rows that a release travels in
//!  columns        what the header says about columns: codecs and schema
//!  parcel         two sealed parts into one clear batch
//!  opener         the order of it all, and whether everything came
//!  papers         the manifest against what came
//!  sealed_file    the sealed rows as a file, to prove later what a clear file is
//!  statement      a query as the statement that releases its rows
//!  server         how P1 is reached
//!  fetch          rows of a statement, in spite of lost connections
//!  incoming       received and opened at the same time
//!  read_ahead     room for rows that nobody has asked for yet
//!  gateway        a local Flight SQL endpoint that gives clear rows
//!  error          what can go wrong
//! ```

mod columns;
mod error;
mod fetch;
mod gateway;
mod incoming;
mod opener;
mod papers;
mod parcel;
mod read_ahead;
mod sealed_file;
mod sealed_table;
mod server;
mod statement;

pub use error::RecipientError;
pub use fetch::{Fetch, Patience};
pub use gateway::{Gateway, READ_AHEAD};
pub use incoming::Incoming;
pub use opener::{Opener, Received};
pub use sealed_file::{SealedReader, SealedWriter, check_seals};
pub use sealed_table::{RELEASE_METADATA_KEY, SealedPart, SealedRow, sealed_schema};
pub use server::{FetchTls, Token};
pub use statement::release_statement;
