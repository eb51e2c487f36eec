//! What an anonymised table lost, column by column.

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use veil_privacy::ClassSizes;
use veil_privacy::utility::{information_loss as in_percent, ratio_value};
use veil_protocols::assess::{
    Classes, Frequencies, Loss, Numbers, Published, Suppressed, entropy, generalisation, information_loss, ranges,
};
use veil_protocols::identifiers::Column;
use veil_protocols::size_histogram::Sizes;
use veil_protocols::{ProtocolError, Session};

use super::measures::Measure;
use super::pairs::{Measured, Pairs};

/// How far a run is: so many steps more.
pub(super) type Done<'a> = &'a (dyn Fn(usize) + Send + Sync);

/// The columns of a table by how they are measured.
#[derive(Default)]
pub(super) struct Losses {
    /// How many columns there are, measured or not.
    columns: usize,
    numbers: (Vec<String>, Vec<Numbers>),
    categories: (Vec<String>, Vec<Published>),
    frequencies: (Vec<String>, Vec<Frequencies>),
}

impl Losses {
    /// Of two tables whose rows belong together; and what is left out of it, and why.
    pub(super) fn of(
        pairs: &Pairs,
        original: &RecordBatch,
        anonymised: &RecordBatch,
        left_out: &mut Vec<(String, String)>,
    ) -> Result<Self> {
        let mut losses = Self { columns: pairs.columns.len(), ..Self::default() };
        let add = |name: &String, names: &mut Vec<String>| names.push(name.clone());
        for pair in &pairs.columns {
            match pair.measured(original, anonymised)? {
                Measured::Numbers(numbers) => {
                    add(&pair.name, &mut losses.numbers.0);
                    losses.numbers.1.push(numbers);
                }
                Measured::Categories(published, frequencies) => {
                    if published.shape.is_none() {
                        let why = "has a hierarchy that is hidden or has more than a thousand leaves, and was measured by its levels alone";
                        left_out.push((pair.name.clone(), why.to_owned()));
                    }
                    add(&pair.name, &mut losses.categories.0);
                    losses.categories.1.push(published);
                    if let Some(frequencies) = frequencies {
                        add(&pair.name, &mut losses.frequencies.0);
                        losses.frequencies.1.push(frequencies);
                    }
                }
                Measured::Nothing(why) => left_out.push((pair.name.clone(), format!("{why} and was not measured"))),
            }
        }
        Ok(losses)
    }

    /// What is to be done.
    pub(super) fn steps(&self, ranges: bool) -> usize {
        let turns = if ranges { 2 } else { 1 };
        turns * self.numbers.1.len() + self.categories.1.len() + self.frequencies.1.len()
    }

    /// The measures. With the quasi-identifiers as they are published, and the sizes of their classes, also how wide these are.
    pub(super) async fn measure(
        &self,
        session: &Session,
        rows: usize,
        suppressed: Option<&Suppressed>,
        widths: Option<(Vec<Column>, &ClassSizes)>,
        done: Done<'_>,
    ) -> Result<Vec<Measure>, ProtocolError> {
        let mut listed = Vec::new();
        let found = generalisation(session, &self.categories.1, done).await?;
        let (mut precision, mut leaves) = (Vec::new(), Vec::new());
        for ((name, column), found) in self.categories.0.iter().zip(&self.categories.1).zip(found) {
            let steps = rows as f64 * column.levels.saturating_sub(1) as f64;
            precision.push((name.as_str(), share(found.levels as f64, steps)));
            if let Some((shape, beneath)) = column.shape.as_ref().zip(found.leaves) {
                let others = rows as f64 * shape.len().saturating_sub(1) as f64;
                leaves.push((name.as_str(), share(beneath as f64 - rows as f64, others)));
            }
        }
        add_mean(&mut listed, "precision_loss", &precision);
        add_mean(&mut listed, "generalised_loss", &leaves);
        let found = entropy(session, &self.frequencies.1, done).await?;
        let bits: Vec<(&str, f64)> =
            self.frequencies.0.iter().map(String::as_str).zip(found.into_iter().map(ratio_value)).collect();
        add_mean(&mut listed, "entropy_loss", &bits);
        let found = information_loss(session, rows, &self.numbers.1, suppressed, done).await?;
        let of = |loss: fn(&Loss) -> u64| -> Vec<(&str, f64)> {
            let names = self.numbers.0.iter().map(String::as_str);
            names.zip(found.iter().map(|found| in_percent(&[loss(found)]))).collect()
        };
        add_mean(&mut listed, "information_loss", &of(|found| found.all));
        add_mean(&mut listed, "information_loss_retained", &of(|found| found.retained));
        if let Some((columns, sizes)) = widths {
            let widths = self.widths(session, rows, columns, suppressed, sizes, done).await?;
            add_mean(&mut listed, "range_loss", &widths);
            let all: Vec<f64> = leaves.iter().chain(&widths).map(|(_, loss)| *loss).collect();
            // Of all quasi-identifiers, or of none.
            if all.len() == self.columns && self.columns > 0 {
                listed.push(Measure::of_table("certainty_penalty", all.iter().sum::<f64>() / all.len() as f64));
            }
        }
        Ok(listed)
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
    let mean = columns.iter().map(|(_, value)| value).sum::<f64>() / columns.len() as f64;
    listed.push(Measure::of_table(name, mean));
    listed.extend(columns.iter().map(|(column, value)| Measure::of_column(name, column, *value)));
}
