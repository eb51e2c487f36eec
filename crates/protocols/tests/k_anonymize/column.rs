//! Columns in the clear, encrypted, and as they should be published.

use std::sync::Arc;

use arrow::array::ArrayRef;
use veil_cells::{CellType, ColumnId, Kind, Width};
use veil_keys::{encrypt_column, encrypt_constants};
use veil_privacy::clusters::{coordinate, value_of_coordinate};
use veil_protocols::k_anonymize::{Bounds, Values};

use crate::Parties;

/// A column in the clear.
#[derive(Clone, Debug)]
pub(crate) enum Column {
    /// Numbers and their declared bounds; encrypted, with public bounds or not.
    Numbers { values: Vec<i64>, bounds: (i64, i64), public: bool },
    /// For every row its codes, leaf first.
    Categories { codes: Vec<Vec<i64>>, generalised: bool },
    /// P1 sees it.
    Seen(Vec<i64>),
}

/// Of a tree of up to 32 leaves and three levels: the codes from a leaf up. Those below `level` are gone already.
pub(crate) fn path(leaf: i64, level: usize) -> Vec<i64> {
    let mut codes = vec![leaf << 10, (leaf / 3 * 3 + 1) << 10, 1 << 14];
    codes[..level].fill(-1);
    codes
}

impl Column {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Numbers { values, .. } | Self::Seen(values) => values.len(),
            Self::Categories { codes, .. } => codes.len(),
        }
    }

    /// The ends of its scale.
    fn bounds(&self) -> (i64, i64) {
        match self {
            Self::Numbers { bounds, .. } => *bounds,
            Self::Seen(values) => (*values.iter().min().unwrap(), *values.iter().max().unwrap()),
            Self::Categories { .. } => (0, (1 << 15) - 1),
        }
    }

    pub(crate) fn coordinates(&self) -> Vec<i64> {
        let (lower, upper) = self.bounds();
        match self {
            Self::Numbers { values, .. } | Self::Seen(values) => {
                values.iter().map(|value| coordinate(*value, lower, upper)).collect()
            }
            Self::Categories { codes, .. } => {
                codes.iter().map(|codes| *codes.iter().find(|code| **code >= 0).unwrap()).collect()
            }
        }
    }

    pub(crate) fn cell_type(&self, parties: &Parties) -> CellType {
        let (key, (lower, upper)) = (parties.owner.key_id(), self.bounds());
        match self {
            Self::Categories { codes, .. } => {
                let width = Width::of_range(-1, (1 << 15) - 1).unwrap();
                CellType::new(Kind::Category, width, codes[0].len() as u8, key, ColumnId([2; 8]))
            }
            _ => CellType::new(Kind::Integer, Width::of_range(lower, upper).unwrap(), 1, key, ColumnId([1; 8])),
        }
    }

    pub(crate) fn values(&self, parties: &mut Parties) -> Values {
        let cell_type = self.cell_type(parties);
        let bits = cell_type.width.bits();
        let mut encrypt = |messages: &[i64]| -> ArrayRef {
            Arc::new(encrypt_column(&parties.owner, &cell_type, messages, None, &mut parties.rng).unwrap())
        };
        match self {
            Self::Numbers { values, bounds: (lower, upper), public } => {
                let cells = encrypt(values);
                let bounds = match public {
                    true => Bounds::Public(*lower, *upper),
                    false => Bounds::Encrypted(Arc::new(
                        encrypt_constants(&parties.owner, &cell_type, *lower, *upper).unwrap(),
                    )),
                };
                Values::Numbers { cells, bits, bounds }
            }
            Self::Categories { codes, generalised } => {
                let (cells, levels) = (encrypt(&codes.concat()), codes[0].len());
                Values::Categories { cells, levels, bits, generalised: *generalised }
            }
            Self::Seen(values) => Values::Clear(values.as_slice().into()),
        }
    }

    /// What is published of every row, lane by lane; of the class with these rows and this centre.
    pub(crate) fn published(&self, rows: &[usize], centre: i64) -> Vec<i64> {
        let (lower, upper) = self.bounds();
        match self {
            Self::Categories { codes, .. } => {
                let shared = |level: usize| {
                    let first = codes[rows[0]][level];
                    if rows.iter().all(|row| codes[*row][level] == first) { first } else { -1 }
                };
                (0..codes[0].len()).map(shared).collect()
            }
            _ => vec![value_of_coordinate(centre, lower, upper)],
        }
    }

    /// What is published of a suppressed row.
    pub(crate) fn suppressed(&self, row: usize) -> Vec<i64> {
        match self {
            Self::Categories { codes, .. } => {
                let (root, below) = codes[row].split_last().unwrap();
                below.iter().map(|_| -1).chain([*root]).collect()
            }
            _ => vec![0],
        }
    }
}
