//! The chart of class sizes: how many rows look like how many others.

use super::bars::{self, Row};
use super::findings::{Both, Findings, SizeCount};
use super::svg::{Anchor, Canvas, Layout, Series, figure, tick_label, ticks};
use super::words::{percent, percent_digits};

/// Where bins begin.
const EDGES: [u64; 8] = [1, 2, 5, 10, 20, 50, 100, 200];

/// Classes of similar sizes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bin {
    /// Their sizes, for people.
    pub(super) label: String,
    /// Classes of these sizes.
    pub(super) classes: Both<u64>,
    /// Share of all published rows.
    pub(super) share: Both<f64>,
}

/// Bins up to the largest class of both tables.
pub(super) fn bins(sizes: &Both<Vec<SizeCount>>) -> Vec<Bin> {
    let largest = sizes.before.iter().chain(&sizes.after).map(|of| of.size).max().unwrap_or(1);
    let used: Vec<u64> = EDGES.into_iter().filter(|edge| *edge <= largest).collect();
    let rows = |counts: &[SizeCount]| counts.iter().map(|of| of.size as f64 * of.classes as f64).sum::<f64>();
    let of = |counts: &[SizeCount], from: u64, to: Option<u64>| {
        let within: Vec<SizeCount> =
            counts.iter().filter(|of| of.size >= from && to.is_none_or(|to| of.size < to)).copied().collect();
        (within.iter().map(|of| of.classes).sum(), rows(&within) / rows(counts).max(1.0))
    };
    let bin = |(at, from): (usize, &u64)| {
        let to = EDGES.get(at + 1).copied();
        let label = match to {
            None => format!("{from} or more"),
            Some(to) if to - from == 1 => from.to_string(),
            Some(to) => format!("{from}–{}", to - 1),
        };
        let (before, after) = (of(&sizes.before, *from, to), of(&sizes.after, *from, to));
        Bin {
            label,
            classes: Both { before: before.0, after: after.0 },
            share: Both { before: before.1, after: after.1 },
        }
    };
    used.iter().enumerate().map(bin).collect()
}

/// The chart.
pub(super) fn chart(findings: &Findings) -> String {
    let bins = bins(&findings.class_sizes);
    let told = |bin: &Bin| {
        format!("classes of {}: {} before, {} after", bin.label, percent(bin.share.before), percent(bin.share.after))
    };
    let each: Vec<String> = bins.iter().map(told).collect();
    let description = format!("Share of rows by the size of their class. {}.", each.join("; "));
    figure("Class sizes before and after", &description, |layout| match layout {
        Layout::Wide => columns(&bins),
        Layout::Narrow => {
            let row = |bin: &Bin| Row {
                label: if bin.label == "1" { "1 row: unique".to_owned() } else { format!("{} rows", bin.label) },
                aside: String::new(),
                bars: vec![
                    (Series::Before, Some(100.0 * bin.share.before)),
                    (Series::After, Some(100.0 * bin.share.after)),
                ],
            };
            bars::draw("classes", layout, &bins.iter().map(row).collect::<Vec<_>>(), largest(&bins))
        }
    })
}

fn largest(bins: &[Bin]) -> f64 {
    100.0 * bins.iter().flat_map(|bin| [bin.share.before, bin.share.after]).fold(0.0, f64::max)
}

/// Upright, side by side.
fn columns(bins: &[Bin]) -> Canvas {
    const LEFT: f64 = 52.0;
    const TOP: f64 = 62.0;
    const PLOT: f64 = 220.0;
    let layout = Layout::Wide;
    let bottom = TOP + PLOT;
    let mut canvas = Canvas::new("classes", layout, bottom + 48.0);
    canvas.legend(14.0);
    canvas.text(0.0, 40.0, Anchor::Start, "tick", "share of rows");
    let ticks = ticks(largest(bins), 4);
    let end = ticks.last().copied().unwrap_or(100.0).max(f64::MIN_POSITIVE);
    for tick in &ticks {
        let y = bottom - PLOT * tick / end;
        canvas.line((LEFT, y), (layout.width(), y), if *tick == 0.0 { "axis" } else { "grid" });
        canvas.text(LEFT - 8.0, y + 4.5, Anchor::End, "tick", &tick_label(*tick));
    }
    let pitch = (layout.width() - LEFT) / bins.len().max(1) as f64;
    let bar = (pitch * 0.36).min(44.0);
    for (at, bin) in bins.iter().enumerate() {
        let middle = LEFT + pitch * (at as f64 + 0.5);
        for (series, share, x) in
            [(Series::Before, bin.share.before, middle - bar - 1.5), (Series::After, bin.share.after, middle + 1.5)]
        {
            if share > 0.0 {
                let height = (PLOT * 100.0 * share / end).max(1.5);
                canvas.bar((x, bottom - height), (bar, height), series);
                canvas.text(x + bar / 2.0, bottom - height - 5.0, Anchor::Middle, "small", &percent_digits(share));
            }
        }
        canvas.text(middle, bottom + 18.0, Anchor::Middle, "tick", &bin.label);
    }
    canvas.text(layout.width(), bottom + 40.0, Anchor::End, "tick", "rows that look alike");
    canvas
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(counts: &[(u64, u64)]) -> Vec<SizeCount> {
        counts.iter().map(|(size, classes)| SizeCount { size: *size, classes: *classes }).collect()
    }

    #[test]
    fn every_row_is_in_one_bin() {
        let both = Both {
            before: sizes(&[(1, 30), (2, 10), (4, 5), (30, 1)]),
            after: sizes(&[(10, 2), (19, 1), (20, 1), (41, 1)]),
        };
        let bins = bins(&both);
        let labels: Vec<&str> = bins.iter().map(|bin| bin.label.as_str()).collect();
        assert_eq!(labels, ["1", "2–4", "5–9", "10–19", "20–49"]);
        let before: Vec<f64> = bins.iter().map(|bin| bin.share.before).collect();
        assert_eq!(before, [0.3, 0.4, 0.0, 0.0, 0.3]);
        let after: Vec<f64> = bins.iter().map(|bin| bin.share.after).collect();
        assert_eq!(after, [0.0, 0.0, 0.0, 0.39, 0.61]);
        assert_eq!(bins[3].classes, Both { before: 0, after: 3 });
    }

    #[test]
    fn large_classes_are_one_bin_and_empty_tables_are_drawn() {
        let bins_of = |counts: &[(u64, u64)]| bins(&Both { before: sizes(counts), after: Vec::new() });
        let large = bins_of(&[(199, 1), (200, 1), (100_000, 1)]);
        assert_eq!(large.last().unwrap().label, "200 or more");
        assert_eq!(large.last().unwrap().classes.before, 2);
        let empty = bins_of(&[]);
        assert_eq!((empty.len(), empty[0].share.clone()), (1, Both { before: 0.0, after: 0.0 }));
    }
}
