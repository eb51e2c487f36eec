//! The data owner's side: from a clear file to an encrypted one and back.
//!
//! ```text
//!  declaration     the owner's TOML file: what the columns are
//!  draft           a first declaration, from looking at the data
//!  codec           between a column's values and the messages in its cells
//!  column_note     what only key holders may read about a column
//!  table_file      CSV, Parquet and Arrow IPC, read and written in batches
//!  encrypt         clear file in, encrypted file out
//!  decrypt         encrypted file in, clear file out
//!  suppressed      rows that a decryption leaves out
//!  inspect         what anyone may know about an encrypted file
//! ```

mod codec;
mod column_note;
mod declaration;
mod decrypt;
mod dictionary;
mod draft;
mod encrypt;
mod error;
mod hierarchy_file;
mod inspect;
pub mod suppressed;
mod table_file;

pub use codec::{ColumnCodec, NumberFormat, NumberKind};
pub use column_note::ColumnNote;
pub use declaration::{ColumnDeclaration, ColumnKind, Declaration, DictionaryDeclaration};
pub use decrypt::{DecryptSummary, decrypt_batch, decrypt_file};
pub use draft::{DraftOptions, draft_declaration};
pub use encrypt::{EncryptSummary, encrypt_file};
pub use error::OwnerError;
pub use inspect::{ColumnInspection, Inspection, SideTableInspection, inspect_file};
pub use table_file::{FileFormat, Output, Progress, TableReader, TableWriter, Watch, unwatched};
pub use veil_cells::hide_caught_panics;
