//! What is refused before the first round, in a sentence each.

use arrow::array::Array;
use veil_privacy::clusters::{self, ClusterError, GRID_BITS, MILLION, Reassignment};

use super::assign::Metric;
use super::publish::width_of;
use super::{Bounds, Comparison, MAX_CENTRES, Quasi, Settings, Values, move_rows};
use crate::block_sums::MAX_PACKED;
use crate::broadcast::MAX_COLUMNS;
use crate::centres::MAX_ROWS;
use crate::lift::MAX_WIDTH;
use crate::lower::MAX_LANES;
use crate::{ProtocolError, compare_and_select, compare_exact};

/// Refuses what cannot be done.
pub(super) fn check(
    rows: usize,
    quasi: &[Quasi],
    initial: &[usize],
    settings: &Settings,
    metric: Metric<'_>,
) -> Result<(), ProtocolError> {
    let refused = |error: ClusterError| ProtocolError::Misuse(error.to_string());
    clusters::cluster_count(rows, settings.clusters.k).map_err(refused)?;
    clusters::check_initial(rows, initial).map_err(refused)?;
    if settings.clusters.rounds == 0 {
        return Err(refused(ClusterError::NoRounds));
    }
    if settings.clusters.suppress > MILLION {
        return Err(refused(ClusterError::ShareTooLarge(settings.clusters.suppress)));
    }
    if rows > MAX_ROWS {
        return misuse(format!("{rows} rows are too many to k-anonymise at once: at most {MAX_ROWS}"));
    }
    if initial.len() > MAX_CENTRES {
        let text = format!("{} centres are too many: at most {MAX_CENTRES}", initial.len());
        return misuse(format!("{text}; ask for a larger k or fewer centres"));
    }
    check_columns(rows, quasi, initial.len())?;
    check_weights(settings, metric)?;
    match settings.clusters.strategy {
        Reassignment::PointToPoint => move_rows::check(rows),
        _ => Ok(()),
    }
}

fn misuse<T>(text: String) -> Result<T, ProtocolError> {
    Err(ProtocolError::Misuse(text))
}

fn check_columns(rows: usize, quasi: &[Quasi], centres: usize) -> Result<(), ProtocolError> {
    if quasi.is_empty() {
        return misuse("k-anonymity needs a quasi-identifier".to_owned());
    }
    for (column, quasi) in quasi.iter().enumerate() {
        check_column(rows, &quasi.values).or_else(|why| misuse(format!("column {column}: {why}")))?;
        if quasi.weight == 0 {
            return misuse(format!("column {column}: of weight 0 it counts for nothing: leave it out"));
        }
    }
    // What is published of classes is packed as their centres are: numbers, and the levels of all categories below their roots.
    let of_categories = quasi.iter().map(|quasi| match quasi.values {
        Values::Categories { levels, .. } => levels.saturating_sub(1),
        _ => 0,
    });
    let (columns, lanes) = (quasi.len(), of_categories.sum::<usize>());
    if columns > MAX_COLUMNS || lanes > MAX_COLUMNS {
        return misuse(format!(
            "{columns} columns and {lanes} levels of categories below their roots are too many: at most {MAX_COLUMNS} of each"
        ));
    }
    let (numbers, most) = (centres.saturating_mul(columns.max(lanes)), MAX_PACKED * veil_slots::DEGREE);
    if numbers > most {
        let text = format!("{centres} centres of {} numbers are too many: at most {most}", columns.max(lanes));
        return misuse(format!("{text} numbers; ask for a larger k, fewer centres or fewer columns"));
    }
    Ok(())
}

/// Says what is wrong with a column.
fn check_column(rows: usize, values: &Values) -> Result<(), String> {
    let (length, nulls) = match values {
        Values::Numbers { cells, .. } | Values::Categories { cells, .. } => (cells.len(), cells.null_count()),
        Values::Clear(numbers) => (numbers.len(), 0),
    };
    if length != rows {
        return Err(format!("it has {length} rows, and the table {rows}"));
    }
    if nulls > 0 {
        return Err(format!("{nulls} rows are NULL: leave them out, or give them a value"));
    }
    match values {
        Values::Numbers { bits, .. } | Values::Categories { bits, .. } if !(1..=MAX_WIDTH).contains(bits) => {
            Err(format!("numbers have 1 to {MAX_WIDTH} bits, and not {bits}"))
        }
        Values::Numbers { bits, bounds: Bounds::Public(lower, upper), .. } => {
            let half = 1i64 << (bits - 1);
            match -half <= *lower && lower <= upper && *upper < half {
                true => Ok(()),
                false => Err(format!("{lower} and {upper} are no bounds of numbers of {bits} bits")),
            }
        }
        // Codes are coordinates as they are.
        Values::Categories { bits, .. } if *bits > GRID_BITS + 1 => {
            Err(format!("its hierarchy has more than {} leaves, too many for distances", 1 << GRID_BITS))
        }
        // Beside the levels there is a tag.
        Values::Categories { levels, .. } if !(1..MAX_LANES).contains(levels) => {
            Err(format!("a category has 1 to {} levels, and not {levels}", MAX_LANES - 1))
        }
        Values::Clear(numbers) => width_of(numbers).map(|_| ()).map_err(|error| error.to_string()),
        _ => Ok(()),
    }
}

fn check_weights(settings: &Settings, metric: Metric<'_>) -> Result<(), ProtocolError> {
    let most = match settings.comparison {
        Comparison::Blinded => compare_and_select::MAX_BITS,
        Comparison::Exact => compare_exact::MAX_BITS,
    };
    let needed = match settings.clusters.strategy {
        Reassignment::PointToPoint => move_rows::bits(metric),
        _ => metric.bits(),
    };
    if needed <= most {
        return Ok(());
    }
    misuse(match settings.comparison {
        Comparison::Blinded => {
            "the columns weigh too much for blinded comparisons: use smaller weights, fewer columns, or exact ones"
                .to_owned()
        }
        Comparison::Exact => "the columns weigh too much: use smaller weights or fewer columns".to_owned(),
    })
}
