//! What a run may cost.

use veil_protocols::assess::Shape;

use super::Question;
use super::pairs::Pairs;
use super::table::Table;
use crate::identifiers::Source;

/// What the cost of assessing one table of so many rows follows from.
pub(super) fn shape(table: &Table, pairs: Option<&Pairs>, question: &Question, rows: usize) -> Shape {
    let sets = match question {
        Question::Risk { contributions: true, .. } if table.quasi.len() > 1 => 1 + table.quasi.len(),
        _ => 1,
    };
    let mut shape =
        Shape { rows, sets, suppressed: table.flag.is_some(), ranges: question.ranges(), ..Shape::default() };
    for (_, source) in &table.quasi {
        match source {
            Source::Tags(..) => shape.tagged += 1,
            Source::Values(..) => shape.valued.push(source.lanes()),
            Source::Clear(_) => {}
        }
    }
    pairs.into_iter().flat_map(|pairs| &pairs.columns).for_each(|pair| pair.add_to(&mut shape));
    shape
}
