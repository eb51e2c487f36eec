//! What an anonymised table lost, column by column.

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use veil_privacy::ClassSizes;
use veil_privacy::utility::{information_loss as in_percent, ratio_value};
use veil_protocols::assess::{
    Classes, Frequencies, Loss, MAX_ROWS, Numbers, Published, Suppressed, ancestors, entropy, generalisation,
    information_loss, ranges, width_bits,
};
use veil_protocols::identifiers::Column;
use veil_protocols::size_histogram::Sizes;
use veil_protocols::{ProtocolError, Session};

use super::measures::Measure;
use super::pairs::{Categories, Measured, Pairs};

/// How far a run is: so many steps more.
pub(super) type Done<'a> = &'a (dyn Fn(usize) + Send + Sync);

/// The columns of a table by how they are measured.
#[derive(Default)]
pub(super) struct Losses {
    /// How many columns there are, measured or not.
    columns: usize,
    numbers: (Vec<String>, Vec<Numbers>),
    categories: Vec<(String, Categories)>,
}

/// What was not measured, and why.
pub(super) type LeftOut = Vec<(String, String)>;

impl Losses {
    /// Of two tables whose rows belong together; and what is left out of it, and why.
    pub(super) fn of(
        pairs: &Pairs,
        original: &RecordBatch,
        anonymised: &RecordBatch,
        left_out: &mut LeftOut,
    ) -> Result<Self> {
        let mut losses = Self { columns: pairs.columns.len(), ..Self::default() };
        for pair in &pairs.columns {
            if pair.is_of_numbers() && anonymised.num_rows() > MAX_ROWS {
                let why =
                    format!("is of numbers, whose losses are told for up to {MAX_ROWS} rows, and was not measured");
                left_out.push((pair.name.clone(), why));
                continue;
            }
            match pair.measured(original, anonymised)? {
                Measured::Numbers(numbers) => {
                    losses.numbers.0.push(pair.name.clone());
                    losses.numbers.1.push(numbers);
                }
                Measured::Categories(categories) => {
                    if categories.published.shape.is_none() {
                        let why = "has a hierarchy that is hidden or has more than a thousand leaves, and was measured by its levels alone";
                        left_out.push((pair.name.clone(), why.to_owned()));
                    }
                    losses.categories.push((pair.name.clone(), categories));
                }
                Measured::Nothing(why) => left_out.push((pair.name.clone(), format!("{why} and was not measured"))),
            }
        }
        Ok(losses)
    }

    /// What is to be done.
    pub(super) fn steps(&self, ranges: bool) -> usize {
        let turns = if ranges { 2 } else { 1 };
        let counted = self.categories.iter().filter(|(_, column)| column.is_counted).count();
        turns * self.numbers.1.len() + self.categories.len() + counted
    }

    /// The measures. With the quasi-identifiers as they are published, and the sizes of their classes, also how wide these are.
    pub(super) async fn measure(
        &self,
        session: &Session,
        rows: usize,
        suppressed: Option<&Suppressed>,
        widths: Option<(Vec<Column>, &ClassSizes)>,
        left_out: &mut LeftOut,
        done: Done<'_>,
    ) -> Result<Vec<Measure>, ProtocolError> {
        let mut listed = Vec::new();
        let categories = self.in_order(session, left_out, done).await?;
        let published: Vec<Published> = categories.iter().map(|(_, column)| column.published.clone()).collect();
        let found = generalisation(session, &published, done).await?;
        let (mut precision, mut leaves) = (Vec::new(), Vec::new());
        for (((name, _), column), found) in categories.iter().zip(&published).zip(found) {
            let steps = rows as f64 * column.levels.saturating_sub(1) as f64;
            precision.push((name.as_str(), share(found.levels as f64, steps)));
            if let Some((shape, beneath)) = column.shape.as_ref().zip(found.leaves) {
                let others = rows as f64 * shape.len().saturating_sub(1) as f64;
                leaves.push((name.as_str(), share(beneath as f64 - rows as f64, others)));
            }
        }
        add_mean(&mut listed, "precision_loss", &precision);
        add_mean(&mut listed, "generalised_loss", &leaves);
        let (names, counted): (Vec<&str>, Vec<Frequencies>) = categories
            .iter()
            .filter(|(_, column)| column.is_counted)
            .filter_map(|(name, column)| Some((name.as_str(), column.both.clone()?)))
            .unzip();
        let found = entropy(session, &counted, done).await?;
        let bits: Vec<(&str, f64)> = names.into_iter().zip(found.into_iter().map(ratio_value)).collect();
        add_mean(&mut listed, "entropy_loss", &bits);
        let found = information_loss(session, rows, &self.numbers.1, suppressed, done).await?;
        let names = || self.numbers.0.iter().map(String::as_str);
        for (name, _) in names().zip(&found).filter(|(_, found)| found.is_none()) {
            let why =
                "varies by less than a step of its declared range (a part in 32768), so that its loss is not known";
            left_out.push((name.to_owned(), why.to_owned()));
        }
        let of = |loss: fn(&Loss) -> u64| -> Vec<(&str, Option<f64>)> {
            let percent = |found: &Option<Loss>| found.as_ref().map(|found| in_percent(&[loss(found)]));
            names().zip(found.iter().map(percent)).collect()
        };
        add_known_mean(&mut listed, "information_loss", &of(|found| found.all));
        add_known_mean(&mut listed, "information_loss_retained", &of(|found| found.retained));
        if let Some((columns, sizes)) = widths {
            let widths = self.widths(session, rows, columns, suppressed, sizes, done).await?;
            // On the grid a column that does not vary there has no width either.
            let is_known =
                |(column, found): (&Numbers, &Option<Loss>)| found.is_some() || !width_bits(&column.original, rows).1;
            let is_known = self.numbers.1.iter().zip(&found).map(is_known);
            let widths: Vec<(&str, Option<f64>)> = widths
                .into_iter()
                .zip(is_known)
                .map(|((name, loss), is_known)| (name, Some(loss).filter(|_| is_known)))
                .collect();
            add_known_mean(&mut listed, "range_loss", &widths);
            let known = widths.iter().filter_map(|(_, loss)| *loss);
            let all: Vec<f64> = leaves.iter().map(|(_, loss)| *loss).chain(known).collect();
            // Of all quasi-identifiers, or of none.
            if all.len() == self.columns && self.columns > 0 {
                listed.push(Measure::of_table("certainty_penalty", all.iter().sum::<f64>() / all.len() as f64));
            }
        }
        Ok(listed)
    }

    /// The categories that stand above the original ones, as k_anonymize publishes them. What was masked at random or comes from elsewhere looks as if
    /// nothing of it were lost.
    async fn in_order(
        &self,
        session: &Session,
        left_out: &mut LeftOut,
        done: Done<'_>,
    ) -> Result<Vec<&(String, Categories)>, ProtocolError> {
        let held: Vec<Frequencies> = self.categories.iter().filter_map(|(_, column)| column.both.clone()).collect();
        let mut found = ancestors(session, &held).await?.into_iter();
        let mut in_order = Vec::with_capacity(self.categories.len());
        for of in &self.categories {
            let (name, column) = of;
            if column.both.is_none() || found.next().ok_or(ProtocolError::Cancelled)? {
                in_order.push(of);
                continue;
            }
            left_out.retain(|(other, _)| other != name);
            let why = "was left out: published categories are not ancestors of the original ones";
            left_out.push((name.clone(), why.to_owned()));
            done(1 + usize::from(column.is_counted));
        }
        Ok(in_order)
    }

    /// For every column of numbers how wide its classes are; suppressed rows have lost everything.
    async fn widths(
        &self,
        session: &Session,
        rows: usize,
        columns: Vec<Column>,
        suppressed: Option<&Suppressed>,
        sizes: &ClassSizes,
        done: Done<'_>,
    ) -> Result<Vec<(&str, f64)>, ProtocolError> {
        let found = Sizes { suppressed: sizes.suppressed(), classes: sizes.counts().collect() };
        let classes = Classes { columns, suppressed, sizes: &found };
        let found = ranges(session, rows, classes, &self.numbers.1, done).await?;
        let loss = |steps: u64| {
            share(ratio_value(steps) * sizes.rows() as f64 + sizes.suppressed() as f64, sizes.total() as f64)
        };
        Ok(self.numbers.0.iter().map(String::as_str).zip(found.into_iter().map(loss)).collect())
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The mean of columns, then each of them; nothing if there is none.
fn add_mean(listed: &mut Vec<Measure>, name: &'static str, columns: &[(&str, f64)]) {
    if columns.is_empty() {
        return;
    }
    let known: Vec<(&str, Option<f64>)> = columns.iter().map(|(column, value)| (*column, Some(*value))).collect();
    add_known_mean(listed, name, &known);
}

/// The same, where some columns have no value: the mean is of those that have.
fn add_known_mean(listed: &mut Vec<Measure>, name: &'static str, columns: &[(&str, Option<f64>)]) {
    if columns.is_empty() {
        return;
    }
    let known: Vec<f64> = columns.iter().filter_map(|(_, value)| *value).collect();
    let mean = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
    listed.push(Measure::of_table(name, mean));
    listed.extend(columns.iter().map(|(column, value)| Measure::of_column(name, column, *value)));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, BinaryArray};
    use datafusion::arrow::datatypes::{FieldRef, Schema};
    use veil_cells::{CellType, ColumnId, KeyId, Kind, Width};

    use super::*;

    /// Nothing is asked about numbers of more rows than can be added up, and categories are measured all the same.
    #[test]
    fn numbers_of_too_many_rows_are_left_out_before_anything_runs() {
        let cells = |kind: Kind, lanes: u8, column: u8| {
            let mut cell_type = CellType::new(kind, Width::NARROWEST, lanes, KeyId([1; 8]), ColumnId([column; 8]));
            cell_type.bounds = kind.is_number().then_some((0, 100));
            cell_type
        };
        let (age, illness) = (cells(Kind::Integer, 1, 2), cells(Kind::Category, 3, 3));
        let fields: Vec<FieldRef> = [age.field("age"), illness.field("illness")]
            .map(|field| Arc::new(field.unwrap().with_nullable(false)))
            .into();
        let quasi = ["age".to_owned(), "illness".to_owned()];
        let pairs = Pairs::of("utility", &fields, &fields, &quasi).unwrap();
        for (rows, numbers) in [(MAX_ROWS, 1), (MAX_ROWS + 1, 0)] {
            let column: ArrayRef = Arc::new(BinaryArray::from_iter_values(std::iter::repeat_n(b"", rows)));
            let schema = Arc::new(Schema::new(fields.clone()));
            let batch = RecordBatch::try_new(schema, vec![column.clone(), column]).unwrap();
            let mut left_out = Vec::new();
            let losses = Losses::of(&pairs, &batch, &batch, &mut left_out).unwrap();
            assert_eq!((losses.numbers.1.len(), losses.categories.len()), (numbers, 1));
            let of_numbers = (
                "age".to_owned(),
                "is of numbers, whose losses are told for up to 131072 rows, and was not measured".to_owned(),
            );
            assert_eq!(left_out.contains(&of_numbers), numbers == 0, "{left_out:?}");
        }
    }
}
