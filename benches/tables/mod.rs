//! Tables to k-anonymise, in the clear and encrypted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray};
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_cells::{CellArray, CellType, ColumnId, Kind, Width};
use veil_keys::{OwnerKeys, decrypt_column, encrypt_column, encrypt_constants};
use veil_privacy::clusters::{Classes, Points, class_centres, coordinate, value_of_coordinate};
use veil_privacy::{Hierarchy, Spacing};
use veil_protocols::k_anonymize::{Anonymised, Bounds, Quasi, Values};
use veil_slots::plain;

/// Where the adult census and its hierarchies are, if anywhere.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");

/// A column in the clear.
pub(crate) enum Column {
    /// Numbers and their bounds.
    Numbers { values: Vec<i64>, bounds: (i64, i64) },
    /// For every row its codes, leaf first.
    Categories(Vec<Vec<i64>>),
}

/// Columns of as many rows each.
pub(crate) struct Table(pub(crate) Vec<Column>);

impl Column {
    fn coordinates(&self) -> Vec<i64> {
        match self {
            Self::Numbers { values, bounds: (lower, upper) } => {
                values.iter().map(|value| coordinate(*value, *lower, *upper)).collect()
            }
            Self::Categories(codes) => codes.iter().map(|codes| codes[0]).collect(),
        }
    }

    fn cell_type(&self, owner: &OwnerKeys) -> CellType {
        let (kind, width, lanes) = match self {
            Self::Numbers { bounds: (lower, upper), .. } => (Kind::Integer, Width::of_range(*lower, *upper), 1),
            Self::Categories(codes) => (Kind::Category, Width::of_range(-1, (1 << 15) - 1), codes[0].len()),
        };
        CellType::new(kind, width.unwrap(), lanes as u8, owner.key_id(), ColumnId([1; 8]))
    }

    fn encrypt(&self, owner: &OwnerKeys, rng: &mut StdRng) -> Values {
        let cell_type = self.cell_type(owner);
        let bits = cell_type.width.bits();
        let mut encrypt = |messages: &[i64]| -> ArrayRef {
            Arc::new(encrypt_column(owner, &cell_type, messages, None, rng).unwrap())
        };
        match self {
            Self::Numbers { values, bounds: (lower, upper) } => {
                let constants = encrypt_constants(owner, &cell_type, *lower, *upper).unwrap();
                Values::Numbers { cells: encrypt(values), bits, bounds: Bounds::Encrypted(Arc::new(constants)) }
            }
            Self::Categories(codes) => {
                let levels = codes[0].len();
                Values::Categories { cells: encrypt(&codes.concat()), levels, bits, generalised: false }
            }
        }
    }

    /// What a class of these rows and with this centre publishes.
    fn published(&self, rows: &[usize], centre: i64) -> Vec<i64> {
        match self {
            Self::Numbers { bounds: (lower, upper), .. } => vec![value_of_coordinate(centre, *lower, *upper)],
            Self::Categories(codes) => {
                let shared = |level: usize| {
                    let first = codes[rows[0]][level];
                    if rows.iter().all(|row| codes[*row][level] == first) { first } else { -1 }
                };
                (0..codes[0].len()).map(shared).collect()
            }
        }
    }
}

impl Table {
    /// Numbers in clouds of different sizes, as the generator's seed has them.
    pub(crate) fn generated(rows: usize, columns: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(7);
        let mut below = |bound: u64| plain::uniform_below(bound, &mut rng) as i64;
        let clouds: Vec<Vec<i64>> = (0..24).map(|_| (0..columns).map(|_| 10_000 + below(80_000)).collect()).collect();
        let mut values = vec![Vec::with_capacity(rows); columns];
        for _ in 0..rows {
            let cloud = &clouds[below(24).min(below(24)) as usize];
            for (values, middle) in values.iter_mut().zip(cloud) {
                values.push(middle + (0..4).map(|_| below(4_000)).sum::<i64>() - 8_000);
            }
        }
        Self(values.into_iter().map(|values| Column::Numbers { values, bounds: (0, 100_000) }).collect())
    }

    /// Whether the adult census lies beside the project.
    pub(crate) fn has_adult() -> bool {
        Path::new(DATA).join("adult.csv").exists()
    }

    /// Age and seven categories of the adult census, if it lies beside the project; else something like it.
    pub(crate) fn adult(rows: usize) -> Self {
        let folder = Path::new(DATA);
        match std::fs::read_to_string(folder.join("adult.csv")) {
            Ok(text) => Self::census(&text, folder, rows),
            Err(_) => Self::lookalike(rows),
        }
    }

    fn census(text: &str, folder: &Path, rows: usize) -> Self {
        let mut lines = text.lines().map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
        let names = lines.next().unwrap();
        let lines: Vec<Vec<&str>> = lines.filter(|line| line.len() == names.len()).take(rows).collect();
        let column = |name: &str| {
            let at = names.iter().position(|found| *found == name).unwrap();
            lines.iter().map(|line| line[at]).collect::<Vec<_>>()
        };
        let ages = column("age").iter().map(|age| age.parse().unwrap()).collect();
        let mut columns = vec![Column::Numbers { values: ages, bounds: (17, 90) }];
        for name in ["workclass", "education", "marital-status", "occupation", "race", "sex", "native-country"] {
            let file = folder.join(PathBuf::from(format!("hierarchies/adult_hierarchy_{name}.csv")));
            let rows: Vec<Vec<String>> = std::fs::read_to_string(file)
                .unwrap()
                .lines()
                .map(|line| line.split([',', ';']).map(|label| label.trim().to_owned()).collect())
                .collect();
            let tree = Hierarchy::from_rows(&rows).unwrap();
            columns.push(Column::of_tree(&tree, column(name).iter().map(|label| tree.leaf(label).unwrap())));
        }
        Self(columns)
    }

    fn lookalike(rows: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(1);
        let mut skewed = |bound: u64| {
            let share = plain::uniform_below(1 << 20, &mut rng) as f64 / f64::from(1 << 20);
            (share.powi(3) * bound as f64) as usize
        };
        let ages = (0..rows).map(|_| 17 + skewed(74) as i64).collect();
        let mut columns = vec![Column::Numbers { values: ages, bounds: (17, 90) }];
        // Leaves, and how many of them share a parent; one means that the root is the parent.
        for (leaves, siblings) in [(7, 3), (16, 4), (7, 3), (14, 5), (5, 1), (2, 1), (41, 10)] {
            let path = |leaf: u64| match siblings {
                1 => vec![format!("{leaf}"), "*".to_owned()],
                _ => vec![format!("{leaf}"), format!("group {}", leaf / siblings), "*".to_owned()],
            };
            let tree = Hierarchy::from_rows(&(0..leaves).map(path).collect::<Vec<_>>()).unwrap();
            let of_rows: Vec<usize> = (0..rows).map(|_| skewed(leaves)).collect();
            columns.push(Column::of_tree(&tree, of_rows.into_iter()));
        }
        Self(columns)
    }

    /// Rows as points of the grid.
    pub(crate) fn points(&self) -> Points {
        let coordinates: Vec<Vec<i64>> = self.0.iter().map(Column::coordinates).collect();
        let values = (0..coordinates[0].len()).flat_map(|row| coordinates.iter().map(move |column| column[row]));
        Points::new(values.collect(), vec![1; self.0.len()]).unwrap()
    }

    pub(crate) fn encrypt(&self, owner: &OwnerKeys) -> Vec<Quasi> {
        let mut rng = StdRng::seed_from_u64(2);
        self.0.iter().map(|column| Quasi { values: column.encrypt(owner, &mut rng), weight: 1 }).collect()
    }

    /// Value lanes of categories.
    pub(crate) fn lanes(&self) -> usize {
        let lanes = |column: &Column| match column {
            Column::Numbers { .. } => 0,
            Column::Categories(codes) => codes[0].len(),
        };
        self.0.iter().map(lanes).sum()
    }

    /// Opens what was published and compares all of it with the classes in the clear. No row is suppressed.
    pub(crate) fn check(&self, found: &Anonymised, classes: &Classes, points: &Points, owner: &OwnerKeys) {
        let mut members = vec![Vec::new(); classes.classes.len()];
        for (row, class) in classes.of_rows.iter().enumerate() {
            members[class.unwrap()].push(row);
        }
        let centres = class_centres(classes, points).unwrap();
        for (place, (column, cells)) in self.0.iter().zip(&found.columns).enumerate() {
            let cell_type = CellType { tag: true, ..column.cell_type(owner) };
            let opened = decrypt_column(owner.cell(), owner.key_id(), &cell_type, array(cells)).unwrap();
            // Tags are not opened.
            let lanes = cell_type.cell_lanes().total() - 1;
            for (class, rows) in members.iter().enumerate() {
                let expected = column.published(rows, centres[class * self.0.len() + place]);
                let differs = |row: &&usize| opened.messages[*row * lanes..(*row + 1) * lanes] != expected;
                let wrong: Vec<usize> = rows.iter().filter(differs).copied().collect();
                assert!(wrong.is_empty(), "rows {wrong:?} of class {class}, column {place}, are not {expected:?}");
            }
        }
    }
}

fn array(cells: &BinaryArray) -> CellArray<'_> {
    CellArray::Binary(cells)
}

impl Column {
    fn of_tree(tree: &Hierarchy, leaves: impl Iterator<Item = usize>) -> Self {
        let numbers = tree.representatives(Spacing::Even).unwrap();
        let code = |leaf: usize, level: usize| numbers.of(tree.ancestor(leaf, level).unwrap()).unwrap();
        let path = |leaf: usize| (0..tree.level_count()).map(|level| code(leaf, level)).collect();
        Self::Categories(leaves.map(path).collect())
    }
}
