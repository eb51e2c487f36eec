//! Arithmetic and aggregates on encrypted numbers, without rounds.

mod enc_add;
mod enc_avg;
mod enc_count;
mod enc_scale;
mod enc_sub;
mod enc_sum;
mod sum;

pub(crate) use enc_add::EncAdd;
pub use enc_add::enc_add;
pub use enc_avg::EncAvg;
pub use enc_count::EncCount;
pub(crate) use enc_scale::EncScale;
pub use enc_scale::enc_scale;
pub(crate) use enc_sub::EncSub;
pub use enc_sub::enc_sub;
pub use enc_sum::EncSum;

/// The section of docs/sql.md.
pub(crate) const SECTION: &str = "Arithmetic";

/// The section of docs/sql.md on aggregates.
pub(crate) const AGGREGATES: &str = "Aggregates";
