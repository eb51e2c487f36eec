//! A value at rest.
//!
//! A **cell** is one encrypted value: a few dozen bytes in an Arrow binary array that any Arrow tool
//! can carry. Cells of one chunk share a seeded GLWE ciphertext, and a cell is an *affine form* over
//! such samples: adding a constant, adding two cells and multiplying by a small integer need no key
//! and no second party.
//!
//! This crate knows no secret key and cannot decrypt. `veil-keys` can; the crates that run inside the
//! untrusted engine depend on this one only.
//!
//! ```text
//!  cell            one encrypted value
//!  wire            its bytes
//!  view            its bytes, checked where they lie
//!  affine          add, negate, scale, add a constant
//!  dense           long sums, collapsed into one sample
//!  anchor          whose row a value is of
//!  provenance      the rows that a value is made of, and their weights
//!  carried         rows that values keep when they are made anew
//!  noise           how far from corruption a cell is
//!  column          the same operations on Arrow arrays
//!  shift           constants added to a whole column in place
//!  cell_type       the Arrow extension type `veil.cell`
//!  constants       encrypted bounds that travel with a column
//!  shape           the shape of a category's hierarchy
//!  text            text in lanes
//!  side_tables     zero pools and dictionaries that travel with a file
//!  caught          readers that panic on damaged bytes
//! ```

mod affine;
mod anchor;
mod carried;
mod caught;
mod cell;
mod cell_type;
mod column;
mod constants;
mod dense;
mod error;
mod ids;
mod noise;
mod parameters;
mod pattern;
mod provenance;
mod sample;
mod shape;
mod shift;
mod side_tables;
mod text;
mod view;
mod wire;

pub use anchor::{Anchor, AnchorSet, ChunkRows, FileId, Origin};
pub use carried::{carry_rows, set_rows};
pub use caught::{caught, hide_caught_panics};
pub use cell::{Cell, Lanes, MAX_TERMS, Term};
pub use cell_type::{
    CellType, JointNoise, Kind, Mechanism, Nulls, Role, SEALED_METADATA_KEY, TYPE_VERSION, TimeUnit, Width,
};
pub use column::{
    CellArray, CellArrayBuilder, add_cells, add_constant, add_constants_within, negate_cells, scale_cells,
};
pub use constants::{CONSTANTS_METADATA_KEY, ColumnConstants, RECIPROCAL_BITS};
pub use dense::DenseSum;
pub use error::CellError;
pub use ids::{ColumnId, KeyId, Seed};
pub use noise::Noise;
pub use parameters::{
    FRESH_NOISE, FRESH_NOISE_LOG2, MAX_LANES, MESSAGE_BITS, NOISE_BITS, POLYNOMIAL_SIZE, TAG_MODULUS,
    TEXT_BYTES_PER_LANE, message_of_phase, phase_of_message, phase_of_tag, tag_of_phase,
};
pub use pattern::Pattern;
pub use provenance::Provenance;
pub use sample::{expand_mask, tfhe_seed};
pub use shape::{CategoryShape, SHAPE_METADATA_KEY};
pub use side_tables::SideTables;
pub use text::{push_text, text_of_lanes};
pub use view::CellView;
pub use wire::{CELL_VERSION, FreshCells};
