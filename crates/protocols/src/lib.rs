//! The two-party protocols.
//!
//! One protocol a file: its rounds drawn, its leakage declared, its messages written down once, P1's half and P2's half side by
//! side, without input or output. P1's half of a round is a pair of functions: `ask` turns an input into what P1 remembers and
//! a query, `finish` consumes what was remembered and the answer, so that a wrong order does not compile. P2's half is
//! [`Protocol::answer`].
//!
//! ```text
//!   Session (P1)  -- rounds of batches -->  Channel  -->  Responder (P2)  -->  catalog  -->  one protocol's half
//!     |                                      in process, or Arrow Flight (veil-flight-p2)
//!     sanitizes all that leaves
//! ```
//!
//! ```text
//!  lift                  cells into slots                      lookup, _range    f(x) over a small domain
//!  lift_affine           combinations of cells into slots      zero_test         [x = 0]
//!  lower                 slots into cells                      slot_sum          the sum of all slots
//!  zeros                 messages of P1 into cells             open              a declared aggregate, to P1
//!  multiply              x y                                   laplace_scale     the scale of noise, encrypted
//!  and                   products of bits                      add_laplace       cells plus noise of that scale
//!  less_than             [w < rho], w with P2, rho with P1     choose            a category, drawn for the true one
//!  truncate              floor or round of x / 2^f
//!  lift_tags             equality tags into slots              count_classes     rows in small classes, to P1
//!  relabel               equal to equal, all else secret       count_tags        the same straight from cells
//!  lift_wide             cells of 48 bits into slots           match_pairs       how many others share a row's value
//!  rotate                a list of rows, rotated               count_small       how many rows share it with fewer than k
//!  pairwise              all pairs of a list's rows
//!  broadcast             centres into the slots of their rows  distances         of rows to centres
//!  nearest               the nearest centre of every row
//!  compare_exact         [A < B], nothing leaks                catalog           all of these, once
//!  compare_and_select    min(A, B), fast, blinded              message, header   what crosses the wire
//!  shuffle               rows in a secret order of P1          arrange           its rounds
//!  tiles                 rows and centres in vectors           cluster_sums      sums and sizes of clusters
//!  block_sums            sums of a vector's blocks, packed     centres           means of clusters
//!  lookup_long           f(x) over a long domain, for few x    blend             the values of a row's centre
//!  fold                  sums over a vector's blocks           merge             clusters into classes
//!  few, _digits, _fold   quotients and zeros of few numbers    few_pick          one of few centres, to all
//!  few_pairs, _select    the smallest of few numbers
//!  redraw                a category, drawn again by P2         release           rows to a recipient
//!  assess                risk and utility of a table           size_histogram    class sizes, to P1
//!  group                 rows of a class together, by P2       gather            slots from public places
//!  census, anchors       which rows take part                  context           what P2 knows of a batch besides its rows
//!  column_vectors        a column that knows its rows          lists             lists that share a round
//!  session               P1 runs rounds                        responder         P2 answers
//! ```

pub mod add_laplace;
pub mod anchors;
pub mod and;
pub mod arrange;
pub mod assess;
pub mod blend;
pub mod block_sums;
pub mod broadcast;
pub mod catalog;
pub mod census;
pub mod centres;
mod channel;
pub mod choose;
pub mod cluster_sums;
mod column_vectors;
pub mod compare_and_select;
pub mod compare_exact;
mod context;
pub mod count_classes;
pub mod count_small;
pub mod count_tags;
mod counters;
mod digits;
pub mod distances;
mod error;
pub mod few;
pub mod few_digits;
pub mod few_fold;
pub mod few_pairs;
pub mod few_pick;
pub mod few_select;
pub mod fold;
mod fresh_cells;
pub mod gather;
pub mod group;
mod header;
pub mod identifiers;
pub mod k_anonymize;
pub mod laplace_scale;
mod layout;
mod leakage;
pub mod less_than;
pub mod lift;
pub mod lift_affine;
pub mod lift_tags;
pub mod lift_wide;
mod limits;
mod lists;
pub mod lookup;
pub mod lookup_long;
pub mod lookup_range;
pub mod lower;
pub mod match_pairs;
pub mod merge;
pub mod message;
pub mod multiply;
pub mod nearest;
pub mod open;
pub mod pairwise;
mod protocol;
mod randomness;
pub mod redraw;
pub mod relabel;
pub mod release;
mod responder;
pub mod rotate;
mod samples;
mod session;
pub mod shuffle;
pub mod size_histogram;
pub mod slot_sum;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tiles;
pub mod truncate;
pub mod zero_test;
pub mod zeros;

pub use channel::{Channel, Frames, InProcess};
pub use column_vectors::ColumnVectors;
pub use context::Context;
pub use counters::{Counted, Counters};
pub use error::ProtocolError;
pub use header::{Header, WIRE_VERSION};
pub use layout::Layout;
pub use leakage::{Leakage, Opens};
pub use limits::Limits;
pub use protocol::{Protocol, Workload};
pub use randomness::Randomness;
pub use responder::{Frame, Responder};
pub use session::{Asker, Session, Traffic};
pub use tiles::Tiles;
