//! What a published table has lost, in clear: what the encrypted computations must agree with.
//!
//! ```text
//! precision          how far up their hierarchies categories went
//! generalised_loss   how many leaves a published category stands for
//! entropy            how many bits are missing to tell the original category
//! information_loss   squared errors of numbers, of the squared errors of their mean
//! ratio              shares of secrets, in whole steps
//! range_loss         how wide the classes of a number are; and all columns together
//! ```
//! A suppressed row has lost everything. What is computed over ciphertexts is integers here as well, and floating point
//! appears only in the last division.

pub mod entropy;
pub mod generalised_loss;
pub mod information_loss;
pub mod precision;
pub mod range_loss;
pub mod ratio;

pub use entropy::{EntropyLoss, LOG_BITS, log2_fixed, most_bits};
pub use generalised_loss::{NodeTables, ShapeError};
pub use information_loss::{MEAN_FRACTION, SquaredErrors, grid_mean, information_loss, least_variation, total_bits};
pub use precision::precision_loss;
pub use range_loss::{RangeLoss, total_loss};
pub use ratio::{DENOMINATOR_BITS, LARGEST_RATIO, RATIO_BITS, lengthened, ratio_of, ratio_value};
