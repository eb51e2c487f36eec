//! The clear mathematics of privacy, free of ciphertexts and of I/O.
//!
//! ```text
//! generalisation        hierarchy            trees of categories and the numbers that stand for their nodes
//!
//! k-anonymity           clusters             rows in classes of at least k, on integers, every tie decided
//!
//! who is identified     lattice              which sets of columns have small classes
//!                       class_sizes          how many classes of which size a table has
//!                       risk                 how likely people are found again, and how many are unique in a population
//!
//! what is lost          utility              precision, generalised loss, entropy, squared errors, ranges
//!
//! what privacy costs    epsilon              an epsilon that exists is valid; what was spent adds up
//!
//! exact samplers        bernoulli            coins and counts with rational and exponential odds
//!                       discrete_laplace     noise on the integers
//!
//! mechanisms            laplace              numbers in units of their column, public range
//!                       geometric            whole numbers, public range
//!                       grid_laplace         numbers whose range stays encrypted
//!                       binary               one of two values
//!                       randomized_response  categories, all mistakes alike
//!                       exponential          categories, near mistakes likelier (losses)
//!
//! for tests             statistics           chi-square, and the epsilon that samples prove
//! ```
//!
//! Every mechanism is local: it protects one value against whoever sees the answer, whatever else they know. Nothing
//! is sampled in floating point. Floating point appears only where probabilities are told to people and to tests.

mod bernoulli;
mod binary;
pub mod class_sizes;
pub mod clusters;
mod discrete_laplace;
mod epsilon;
mod exponential;
mod geometric;
mod grid_laplace;
mod hierarchy;
mod laplace;
pub mod lattice;
mod losses;
mod randomized_response;
pub mod risk;
#[cfg(feature = "testing")]
pub mod statistics;
pub mod utility;

pub use bernoulli::{bernoulli, bernoulli_exp, geometric_exp, uniform_below};
pub use binary::BinaryMechanism;
pub use class_sizes::ClassSizes;
pub use discrete_laplace::{DiscreteLaplace, NoiseError};
pub use epsilon::{Epsilon, EpsilonError, SpentEpsilon};
pub use exponential::ExponentialMechanism;
pub use geometric::GeometricMechanism;
pub use grid_laplace::GridLaplace;
pub use hierarchy::{Hierarchy, HierarchyError, NodeId, Representatives, Spacing};
pub use laplace::LaplaceMechanism;
pub use losses::{CategoryError, Losses};
pub use randomized_response::{RandomizedResponse, Response};
