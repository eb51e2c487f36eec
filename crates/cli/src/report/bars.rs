//! Rows of one or two bars, with a label each: beside them where there is room, above them where there is not.

use super::svg::{Anchor, Canvas, FONT, Layout, Series, shortened, text_width, tick_label, ticks};
use super::words::percent;

/// One label and its bars, in percent.
pub(super) struct Row {
    pub(super) label: String,
    /// What is said behind the label.
    pub(super) aside: String,
    pub(super) bars: Vec<(Series, Option<f64>)>,
}

impl Row {
    fn text(&self) -> String {
        if self.aside.is_empty() { self.label.clone() } else { format!("{}, {}", self.label, self.aside) }
    }
}

const BAR: f64 = 14.0;
const BETWEEN_BARS: f64 = 3.0;
const BETWEEN_ROWS: f64 = 16.0;
/// What stands at the end of a bar.
const VALUE: f64 = 64.0;
/// Room for labels beside bars.
const LABELS: (f64, f64) = (150.0, 300.0);

/// Draws rows on an axis from zero to at least `max` percent.
pub(super) fn draw(id: &str, layout: Layout, rows: &[Row], max: f64) -> Canvas {
    let has_before = rows.iter().any(|row| row.bars.iter().any(|(series, _)| *series == Series::Before));
    let top = if has_before { 34.0 } else { 6.0 };
    let longest = rows.iter().map(|row| text_width(&row.text(), FONT) + 16.0).fold(LABELS.0, f64::max);
    let (left, above) = match layout {
        Layout::Wide => (longest.min(LABELS.1), 0.0),
        Layout::Narrow => (1.0, FONT + 7.0),
    };
    let height_of = |row: &Row| above + row.bars.len() as f64 * (BAR + BETWEEN_BARS) - BETWEEN_BARS;
    let all: f64 = rows.iter().map(|row| height_of(row) + BETWEEN_ROWS).sum();
    let bottom = top + all;
    let mut canvas = Canvas::new(id, layout, bottom + 26.0);
    if has_before {
        canvas.legend(14.0);
    }
    let ticks = ticks(max, if layout == Layout::Wide { 4 } else { 2 });
    let end = ticks.last().copied().unwrap_or(100.0).max(f64::MIN_POSITIVE);
    let width = layout.width() - left - VALUE;
    let lines = |canvas: &mut Canvas, from: f64, to: f64| {
        for tick in &ticks {
            let x = left + width * tick / end;
            canvas.line((x, from), (x, to), if *tick == 0.0 { "axis" } else { "grid" });
        }
    };
    if layout == Layout::Wide {
        lines(&mut canvas, top - 2.0, bottom - 4.0);
    }
    for tick in &ticks {
        let x = left + width * tick / end;
        let anchor = if left < 10.0 && *tick == 0.0 { Anchor::Start } else { Anchor::Middle };
        canvas.text(x, bottom + 14.0, anchor, "tick", &tick_label(*tick));
    }
    let mut y = top + BETWEEN_ROWS / 2.0 - 4.0;
    for row in rows {
        let room = if layout == Layout::Wide { left - 16.0 } else { layout.width() - 2.0 };
        let text = shortened(&row.text(), room, FONT);
        let bars = height_of(row) - above;
        let (x, at, anchor) = match layout {
            Layout::Wide => (left - 12.0, y + bars / 2.0 + FONT * 0.35, Anchor::End),
            Layout::Narrow => (1.0, y + FONT - 1.0, Anchor::Start),
        };
        canvas.text(x, at, anchor, "label", &text);
        let mut at = y + above;
        if layout == Layout::Narrow {
            // Not through the labels.
            lines(&mut canvas, at - 2.0, at + bars + 2.0);
        }
        for (series, value) in &row.bars {
            let shown = value.unwrap_or(0.0).clamp(0.0, end);
            // What is there can be seen.
            let length = if shown > 0.0 { (width * shown / end).max(1.5) } else { 0.0 };
            canvas.bar((left, at), (length, BAR), *series);
            let text = value.map_or_else(|| "not known".to_owned(), |value| percent(value / 100.0));
            canvas.text(left + length + 6.0, at + BAR - 3.0, Anchor::Start, "value", &text);
            at += BAR + BETWEEN_BARS;
        }
        y += height_of(row) + BETWEEN_ROWS;
    }
    canvas
}
