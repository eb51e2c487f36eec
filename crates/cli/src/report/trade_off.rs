//! The chart of a sweep: what each k costs, and what it is good for.

use super::curve::{Curve, Point};
use super::svg::{Anchor, Canvas, FONT, Layout, figure, text_width, tick_label, ticks};
use super::words::percent;

/// The chart.
pub(super) fn chart(curve: &Curve) -> String {
    let told = |point: &Point| {
        let of = |value: f64| percent(value / 100.0);
        let (label, loss) = (&point.label, of(point.loss));
        format!("{label}: loss {loss}, highest risk {}, average risk {}", of(point.highest), of(point.average))
    };
    let each: Vec<String> = curve.points.iter().chain(&curve.this).map(told).collect();
    let description = format!("Risk against {}. {}.", curve.axis, each.join("; "));
    figure(curve.title, &description, |layout| draw(layout, curve))
}

const LEFT: f64 = 56.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 66.0;

fn draw(layout: Layout, curve: &Curve) -> Canvas {
    let plot = if layout == Layout::Wide { 270.0 } else { 230.0 };
    let (bottom, width) = (TOP + plot, layout.width() - LEFT - RIGHT);
    let mut canvas = Canvas::new(curve.id, layout, bottom + 52.0);
    legend(&mut canvas, curve.this.is_some());
    canvas.text(0.0, 44.0, Anchor::Start, "tick", "risk of a person to be found");
    let all = || curve.points.iter().chain(&curve.this);
    let across = ticks(all().map(|point| point.loss).fold(1.0, f64::max), if layout == Layout::Wide { 6 } else { 3 });
    let up = ticks(all().map(|point| point.highest).fold(1.0, f64::max), 4);
    let end = |ticks: &[f64]| ticks.last().copied().unwrap_or(1.0).max(f64::MIN_POSITIVE);
    let (right, top) = (end(&across), end(&up));
    let place = |loss: f64, risk: f64| (LEFT + width * (loss / right).min(1.0), bottom - plot * (risk / top).min(1.0));
    for tick in &up {
        let (_, y) = place(0.0, *tick);
        canvas.line((LEFT, y), (LEFT + width, y), if *tick == 0.0 { "axis" } else { "grid" });
        canvas.text(LEFT - 8.0, y + 4.5, Anchor::End, "tick", &tick_label(*tick));
    }
    for (at, tick) in across.iter().enumerate() {
        let (x, _) = place(*tick, 0.0);
        canvas.line((x, bottom), (x, bottom + 4.0), "axis");
        let anchor = if at + 1 == across.len() { Anchor::End } else { Anchor::Middle };
        let x = if anchor == Anchor::End { layout.width() } else { x };
        canvas.text(x, bottom + 20.0, anchor, "tick", &tick_label(*tick));
    }
    canvas.text(layout.width(), bottom + 43.0, Anchor::End, "tick", curve.axis);

    let line = |risk: fn(&Point) -> f64| {
        let at = |point: &Point| place(point.loss, risk(point));
        let steps = curve.points.iter().map(at).map(|(x, y)| format!("{x:.1} {y:.1}")).collect::<Vec<_>>();
        format!("M{}", steps.join(" L"))
    };
    canvas.path(&line(|point| point.average), "curve average");
    canvas.path(&line(|point| point.highest), "curve highest");
    let mut taken = Vec::new();
    for point in &curve.points {
        let (x, y) = place(point.loss, point.average);
        canvas.path(&diamond(x, y, 5.5), "dot average");
        taken.push(Area::around(x, y, 6.0));
        let (x, y) = place(point.loss, point.highest);
        canvas.circle(x, y, 5.0, "dot highest");
        taken.push(Area::around(x, y, 6.0));
    }
    if let Some(this) = &curve.this {
        let (x, y) = place(this.loss, this.highest);
        canvas.circle(x, y, 9.0, "ring");
        taken.push(Area::around(x, y, 10.0));
    }
    let within = Area { left: LEFT + 2.0, top: TOP - 10.0, right: layout.width(), bottom: bottom - 2.0 };
    for point in &curve.points {
        let (x, y) = place(point.loss, point.highest);
        if let Some(area) = free(&point.label, (x, y), &within, &taken) {
            canvas.text(area.left, area.bottom - 4.0, Anchor::Start, "label", &point.label);
            taken.push(area);
        }
    }
    canvas
}

fn legend(canvas: &mut Canvas, with_this: bool) {
    let mut x = 7.0;
    let mut entry = |canvas: &mut Canvas, text: &str| {
        canvas.text(x + 12.0, 14.0, Anchor::Start, "", text);
        let at = x;
        x += 12.0 + text_width(text, FONT) + 18.0;
        at
    };
    let at = entry(canvas, "highest risk");
    canvas.circle(at, 9.5, 5.0, "dot highest");
    let at = entry(canvas, "average");
    canvas.path(&diamond(at, 9.5, 5.5), "dot average");
    if with_this {
        let at = entry(canvas, "this table");
        canvas.circle(at, 9.5, 6.5, "ring");
    }
}

fn diamond(x: f64, y: f64, radius: f64) -> String {
    let (left, right, top, bottom) = (x - radius, x + radius, y - radius, y + radius);
    format!("M{x:.1} {top:.1} L{right:.1} {y:.1} L{x:.1} {bottom:.1} L{left:.1} {y:.1} Z")
}

/// What is drawn already.
#[derive(Clone, Copy, Debug)]
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Area {
    fn around(x: f64, y: f64, radius: f64) -> Self {
        Self { left: x - radius, top: y - radius, right: x + radius, bottom: y + radius }
    }

    fn meets(&self, other: &Self) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    fn is_within(&self, other: &Self) -> bool {
        self.left >= other.left && self.right <= other.right && self.top >= other.top && self.bottom <= other.bottom
    }
}

/// A place for a label beside a point, or none: the table below has them all.
fn free(label: &str, (x, y): (f64, f64), within: &Area, taken: &[Area]) -> Option<Area> {
    let (width, height) = (text_width(label, FONT), FONT + 4.0);
    let gap = 9.0;
    let right = (x + gap, y - height - 1.0);
    let ways = [
        right,
        (x + gap, y - height / 2.0),
        (x - width / 2.0, y - gap - height),
        (x + gap, y + 3.0),
        (x - gap - width, y - height / 2.0),
        (x - width / 2.0, y + gap),
        (x - gap - width, y + 3.0),
    ];
    let area = |(left, top): (f64, f64)| Area { left, top, right: left + width, bottom: top + height };
    ways.map(area).into_iter().find(|area| area.is_within(within) && !taken.iter().any(|other| area.meets(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_find_free_places_or_give_way() {
        let within = Area { left: 0.0, top: 0.0, right: 200.0, bottom: 100.0 };
        let first = free("k = 2", (100.0, 50.0), &within, &[]).unwrap();
        assert!(first.left > 100.0 && first.bottom < 50.0);
        let second = free("k = 3", (100.0, 50.0), &within, &[first]).unwrap();
        assert!(!second.meets(&first) && second.is_within(&within));
        // At the right border they go to the left.
        let at_border = free("k = 4", (195.0, 50.0), &within, &[]).unwrap();
        assert!(at_border.right <= 200.0);
        assert!(free("k = 5", (100.0, 50.0), &within, &[within]).is_none());
    }
}
