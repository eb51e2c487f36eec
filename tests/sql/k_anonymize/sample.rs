//! Tables in clear, and what the clear algorithm publishes of them.

use std::collections::HashMap;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use veil_privacy::clusters::{
    Classes, Points, Settings, Summary, anonymise, class_ancestors, class_centres, coordinate, value_of_coordinate,
};
use veil_privacy::{Hierarchy, Spacing};

use crate::sql::world::World;

/// A column of a table.
pub(super) enum Column {
    /// Numbers with so many decimal places, between declared bounds.
    Number { values: Vec<i64>, places: u32, bounds: (i64, i64), public: bool },
    /// Leaves of a hierarchy.
    Category { leaves: Vec<usize>, hierarchy: Hierarchy },
    /// Numbers that the engine sees.
    Clear(Vec<i64>),
}

impl Column {
    fn coordinate(&self, row: usize) -> i64 {
        match self {
            Self::Number { values, bounds: (lower, upper), .. } => coordinate(values[row], *lower, *upper),
            Self::Clear(values) => {
                let (lower, upper) = ends(values);
                coordinate(values[row], lower, upper)
            }
            Self::Category { leaves, hierarchy } => {
                let node = hierarchy.ancestor(leaves[row], 0).unwrap();
                hierarchy.representatives(Spacing::Even).unwrap().of(node).unwrap()
            }
        }
    }

    fn text(&self, row: usize) -> String {
        match self {
            Self::Number { values, places, .. } => decimal(values[row], *places),
            Self::Clear(values) => values[row].to_string(),
            Self::Category { leaves, hierarchy } => {
                hierarchy.label(hierarchy.ancestor(leaves[row], 0).unwrap()).unwrap().to_owned()
            }
        }
    }

    fn declaration(&self, name: &str) -> String {
        match self {
            Self::Number { places, bounds: (lower, upper), public, .. } => {
                let kind = if *places > 0 {
                    format!("kind = \"decimal\"\nscale = {places}")
                } else {
                    "kind = \"integer\"".into()
                };
                let range = format!("range = [{}, {}]", decimal(*lower, *places), decimal(*upper, *places));
                format!("{kind}\n{range}\npublic_range = {public}\n")
            }
            Self::Category { .. } => format!("kind = \"category\"\nhierarchy = \"{name}.csv\"\n"),
            Self::Clear(_) => "kind = \"clear\"\ntype = \"Int32\"\n".to_owned(),
        }
    }

    /// What each class publishes of it.
    fn published(&self, classes: &Classes, centres: &[i64]) -> Vec<String> {
        let value = |lower: i64, upper: i64, places: u32| {
            centres.iter().map(|centre| decimal(value_of_coordinate(*centre, lower, upper), places)).collect()
        };
        match self {
            Self::Number { bounds: (lower, upper), places, .. } => value(*lower, *upper, *places),
            Self::Clear(values) => value(ends(values).0, ends(values).1, 0),
            Self::Category { leaves, hierarchy } => {
                let nodes = class_ancestors(classes, leaves, hierarchy).unwrap();
                nodes.into_iter().map(|node| hierarchy.label(node).unwrap().to_owned()).collect()
            }
        }
    }
}

fn ends(values: &[i64]) -> (i64, i64) {
    (*values.iter().min().unwrap(), *values.iter().max().unwrap())
}

fn decimal(value: i64, places: u32) -> String {
    if places == 0 {
        return value.to_string();
    }
    let (sign, one) = (if value < 0 { "-" } else { "" }, 10u64.pow(places));
    let (whole, part) = (value.unsigned_abs() / one, value.unsigned_abs() % one);
    format!("{sign}{whole}.{part:0width$}", width = places as usize)
}

/// A table: `id`, counted from zero, and quasi-identifiers.
pub(super) struct Sample {
    pub(super) columns: Vec<(String, Column)>,
    pub(super) rows: usize,
}

impl Sample {
    /// Encrypts it.
    pub(super) async fn add_to(&self, world: &World, table: &str) {
        let mut declaration = format!("[table]\nname = \"{table}\"\n[column.id]\nkind = \"clear\"\ntype = \"Int64\"\n");
        for (name, column) in &self.columns {
            declaration += &format!("[column.\"{name}\"]\n{}", column.declaration(name));
            if let Column::Category { hierarchy, .. } = column {
                let lines: Vec<String> = hierarchy.rows().map(|row| row.join(",")).collect();
                world.write(&format!("{name}.csv"), &lines.join("\n"));
            }
        }
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        let mut csv = format!("id,{}\n", names.join(","));
        for row in 0..self.rows {
            let texts: Vec<String> = self.columns.iter().map(|(_, column)| column.text(row)).collect();
            csv += &format!("{row},{}\n", texts.join(","));
        }
        world.table(table, &csv, &declaration).await;
    }

    /// The names of the quasi-identifiers, for SQL.
    pub(super) fn quasi(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        names.join(", ")
    }

    pub(super) fn classes(
        &self,
        weights: &[u32],
        initial: &[usize],
        settings: &Settings,
    ) -> (Points, Classes, Summary) {
        let values = (0..self.rows).flat_map(|row| self.columns.iter().map(move |(_, column)| column.coordinate(row)));
        let points = Points::new(values.collect(), weights.to_vec()).unwrap();
        let (classes, summary) = anonymise(&points, initial, settings).unwrap();
        (points, classes, summary)
    }

    /// What the clear algorithm publishes: the texts of every row that is not suppressed, by its id.
    pub(super) fn published(
        &self,
        weights: &[u32],
        initial: &[usize],
        settings: &Settings,
    ) -> (HashMap<i64, Vec<String>>, Summary) {
        let (points, classes, summary) = self.classes(weights, initial, settings);
        let centres = class_centres(&classes, &points).unwrap();
        let of_column = |(place, (_, column)): (usize, &(String, Column))| {
            let own: Vec<i64> = centres.iter().skip(place).step_by(self.columns.len()).copied().collect();
            column.published(&classes, &own)
        };
        let columns: Vec<Vec<String>> = self.columns.iter().enumerate().map(of_column).collect();
        let row = |(row, class): (usize, &Option<usize>)| {
            let class = (*class)?;
            Some((row as i64, columns.iter().map(|column| column[class].clone()).collect()))
        };
        (classes.of_rows.iter().enumerate().filter_map(row).collect(), summary)
    }

    /// The same of what the owner decrypted.
    pub(super) fn found(&self, batch: &RecordBatch) -> HashMap<i64, Vec<String>> {
        let ids = cast(batch.column_by_name("id").unwrap(), &DataType::Int64).unwrap();
        let text = |row: usize, (name, _): &(String, Column)| {
            let column = batch.column_by_name(name).unwrap();
            assert!(column.is_valid(row));
            array_value_to_string(column, row).unwrap()
        };
        let row = |row: usize| {
            let texts = self.columns.iter().map(|column| text(row, column)).collect();
            (ids.as_primitive::<Int64Type>().value(row), texts)
        };
        (0..batch.num_rows()).map(row).collect()
    }
}

/// Whatever should come out: how many rows share the values of the loneliest.
pub(super) fn smallest_class(rows: &HashMap<i64, Vec<String>>) -> usize {
    let mut counts: HashMap<&Vec<String>, usize> = HashMap::new();
    rows.values().for_each(|values| *counts.entry(values).or_default() += 1);
    counts.into_values().min().unwrap_or(0)
}
