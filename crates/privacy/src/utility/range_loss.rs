//! Loss of numbers by the width of their classes (NCP of Xu et al. 2006), and of all quasi-identifiers together (GCP, Ghinita et al. 2007).
//!
//! ```text
//! NCP = (max - min of the original values in the class) / (max - min over all rows)
//! GCP = (sum over published rows and columns of NCP + S m) / (N m)          m columns, S suppressed rows
//! ```

use std::collections::HashMap;
use std::hash::Hash;

use super::ratio::{lengthened, ratio_of};

/// Widths of the classes of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeLoss {
    /// The widths of their classes, summed over published rows.
    pub widths: u128,
    /// The width of the whole column, suppressed rows included.
    pub range: u64,
    /// Published rows.
    pub published: u64,
    /// Suppressed rows.
    pub suppressed: u64,
}

impl RangeLoss {
    /// From original values and the class of every row, none if it is suppressed. Nothing if they are not of the same rows.
    pub fn of<T: Eq + Hash>(values: &[i64], classes: &[Option<T>]) -> Option<Self> {
        if values.len() != classes.len() {
            return None;
        }
        let mut ends: HashMap<&T, Ends> = HashMap::new();
        let mut all: Option<Ends> = None;
        for (value, class) in values.iter().zip(classes) {
            all = Some(all.unwrap_or(Ends::of(*value)).with(*value));
            if let Some(class) = class {
                let ends = ends.entry(class).or_insert(Ends::of(*value));
                *ends = ends.with(*value).counted();
            }
        }
        let published = ends.values().map(|ends| ends.rows).sum();
        Some(Self {
            widths: ends.values().map(|ends| u128::from(ends.width()) * u128::from(ends.rows)).sum(),
            range: all.map_or(0, Ends::width),
            published,
            suppressed: values.len() as u64 - published,
        })
    }

    /// The mean NCP of published rows in steps of 2^-20, where differences of the column have so many bits by what is public about it: as it is
    /// divided over ciphertexts. Zero if none is published.
    pub fn steps(&self, bits: u32) -> u64 {
        let bits = bits.saturating_add(self.published.max(1).next_power_of_two().ilog2());
        let (whole, by) = (u128::from(self.range).saturating_mul(self.published.into()), lengthened(bits));
        if self.published == 0 { 0 } else { ratio_of(self.widths << by, whole << by, bits.saturating_add(by)) }
    }

    /// NCP summed over published rows. A column of one value loses nothing.
    pub fn published_loss(&self) -> f64 {
        if self.range == 0 { 0.0 } else { self.widths as f64 / self.range as f64 }
    }

    /// The mean NCP of all rows, suppressed ones at 1; zero for no rows.
    pub fn mean(&self) -> f64 {
        total_loss(&[self.published_loss()], self.published, self.suppressed)
    }
}

/// GCP, from each column's NCP summed over published rows. Zero for no rows or columns.
pub fn total_loss(published_losses: &[f64], published: u64, suppressed: u64) -> f64 {
    let columns = published_losses.len() as f64;
    let cells = (published as f64 + suppressed as f64) * columns;
    let lost = published_losses.iter().sum::<f64>() + suppressed as f64 * columns;
    if cells > 0.0 { lost / cells } else { 0.0 }
}

#[derive(Clone, Copy)]
struct Ends {
    lower: i64,
    upper: i64,
    rows: u64,
}

impl Ends {
    fn of(value: i64) -> Self {
        Self { lower: value, upper: value, rows: 0 }
    }

    fn with(self, value: i64) -> Self {
        Self { lower: self.lower.min(value), upper: self.upper.max(value), ..self }
    }

    fn counted(self) -> Self {
        Self { rows: self.rows + 1, ..self }
    }

    fn width(self) -> u64 {
        self.upper.abs_diff(self.lower)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn by_hand() {
        // Ages 20, 30 in one class, 40, 40, 45 in another, 60 suppressed: (2 * 10 + 3 * 5) / 40 and 1, of 6 rows.
        let classes = [Some("a"), Some("b"), Some("a"), Some("b"), None, Some("b")];
        let loss = RangeLoss::of(&[20, 40, 30, 45, 60, 40], &classes).unwrap();
        assert_eq!(loss, RangeLoss { widths: 35, range: 40, published: 5, suppressed: 1 });
        assert_eq!((loss.published_loss(), loss.mean()), (0.875, 1.875 / 6.0));
        // 35 of 5 * 40, in 2^20 steps; half a unit more below takes a part of one.
        assert_eq!(loss.steps(8), (35 << 20) / 200);
        // With a second column that is published as it is.
        assert_eq!(total_loss(&[loss.published_loss(), 0.0], 5, 1), 2.875 / 12.0);
    }

    #[test]
    fn ends() {
        assert_eq!(RangeLoss::of::<u8>(&[], &[]), Some(RangeLoss::default()));
        assert_eq!(RangeLoss::of(&[1], &[Some(1), None]), None);
        assert_eq!(RangeLoss::of(&[i64::MIN, i64::MAX], &[Some(1); 2]).unwrap().mean(), 1.0);
        assert_eq!(RangeLoss::of(&[3, 3], &[Some(1); 2]).unwrap().mean(), 0.0);
        assert_eq!((RangeLoss::of::<u8>(&[3, 4], &[None; 2]).unwrap().mean(), total_loss(&[], 4, 4)), (1.0, 0.0));
    }

    proptest! {
        /// Row by row, as the definition is written.
        #[test]
        fn rows_lose_the_width_of_their_class(rows in proptest::collection::vec((-50i64..50, proptest::option::of(0u8..5)), 1..40)) {
            let (values, classes): (Vec<i64>, Vec<Option<u8>>) = rows.iter().copied().unzip();
            let width = |values: Vec<i64>| (values.iter().max().unwrap() - values.iter().min().unwrap()) as f64;
            let all = width(values.clone()).max(1.0);
            let ncp = |class: u8| width(rows.iter().filter(|(_, of)| *of == Some(class)).map(|(value, _)| *value).collect()) / all;
            let expected = classes.iter().map(|class| class.map_or(1.0, ncp)).sum::<f64>() / rows.len() as f64;
            prop_assert!((RangeLoss::of(&values, &classes).unwrap().mean() - expected).abs() < 1e-12);
        }
    }
}
