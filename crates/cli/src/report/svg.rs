//! Drawing: canvases, axes with round numbers, labels that fit.
//!
//! A chart is drawn twice, wide and narrow, and the page shows the one that fits: scaling one down would make its text too small to read.

use std::fmt::Write;

use super::words::escape;

/// Height of letters, in units of the canvas; the style sheet says the same.
pub(super) const FONT: f64 = 13.0;

/// Which of the two drawings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// For screens and paper.
    Wide,
    /// For telephones.
    Narrow,
}

impl Layout {
    /// Units from left to right.
    pub(super) fn width(self) -> f64 {
        match self {
            Self::Wide => 800.0,
            Self::Narrow => 340.0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }
}

/// Where a text is tied to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The two series that charts compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Series {
    Before,
    After,
}

impl Series {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// What a chart is drawn on.
pub(super) struct Canvas {
    id: String,
    layout: Layout,
    pub(super) height: f64,
    body: String,
}

impl Canvas {
    pub(super) fn new(id: &str, layout: Layout, height: f64) -> Self {
        Self { id: format!("{id}-{}", layout.class()), layout, height, body: String::new() }
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        let _ =
            write!(self.body, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#);
    }

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let _ = write!(self.body, r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#);
    }

    /// A bar of a series: striped before, solid after.
    pub(super) fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), series: Series) {
        let name = series.name();
        let fill = match series {
            Series::Before => format!(r#" fill="url(#{}-stripes)""#, self.id),
            Series::After => String::new(),
        };
        let _ = write!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="1.5" class="bar {name}"{fill}/>"#
        );
    }

    pub(super) fn path(&mut self, path: &str, class: &str) {
        let _ = write!(self.body, r#"<path d="{path}" class="{class}"/>"#);
    }

    pub(super) fn circle(&mut self, x: f64, y: f64, radius: f64, class: &str) {
        let _ = write!(self.body, r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius:.1}" class="{class}"/>"#);
    }

    /// What stripes and solid bars mean; from the left, at this height.
    pub(super) fn legend(&mut self, y: f64) {
        let mut x = 0.5;
        for series in [Series::Before, Series::After] {
            self.bar((x, y - 10.5), (22.0, 12.0), series);
            self.text(x + 28.0, y, Anchor::Start, "", series.name());
            x += 28.0 + text_width(series.name(), FONT) + 18.0;
        }
    }

    fn finish(self, title: &str, description: &str) -> String {
        let Self { id, layout, height, body } = self;
        let (width, class, title, description) = (layout.width(), layout.class(), escape(title), escape(description));
        format!(
            r#"<svg class="{class}" role="img" aria-labelledby="{id}-title {id}-text" viewBox="0 0 {width} {height:.0}"><title id="{id}-title">{title}</title><desc id="{id}-text">{description}</desc><defs><pattern id="{id}-stripes" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" class="stripe-ground"/><rect width="2.6" height="6" class="stripe"/></pattern></defs>{body}</svg>"#
        )
    }
}

/// Both drawings of a chart. The description is for those who cannot see it.
pub(super) fn figure(title: &str, description: &str, draw: impl Fn(Layout) -> Canvas) -> String {
    let drawn = [Layout::Wide, Layout::Narrow].map(|layout| draw(layout).finish(title, description));
    format!(r#"<figure class="chart">{}</figure>"#, drawn.concat())
}

/// Round numbers from zero to at least `max`, about so many.
pub(super) fn ticks(max: f64, about: usize) -> Vec<f64> {
    let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
    let raw = max / about.max(1) as f64;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|of| of * power).into_iter().find(|step| *step >= raw * (1.0 - 1e-9));
    let step = step.unwrap_or(10.0 * power);
    let last = (max / step - 1e-9).ceil().max(1.0) as usize;
    (0..=last).map(|at| at as f64 * step).collect()
}

/// A tick of a percentage.
pub(super) fn tick_label(percent: f64) -> String {
    let text = format!("{percent:.2}");
    format!("{}\u{a0}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// How wide a text is at most, in the widest of the usual fonts.
pub(super) fn text_width(text: &str, font: f64) -> f64 {
    let width = |letter: char| match letter {
        'i' | 'j' | 'l' | '\'' | '|' | '.' | ',' | ':' | ';' | ' ' | '\u{a0}' | '!' | 'I' => 0.36,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 1.0,
        'A'..='Z' => 0.74,
        '\u{1100}'.. if !letter.is_ascii_punctuation() && letter >= '\u{2e80}' => 1.1,
        _ => 0.65,
    };
    text.chars().map(width).sum::<f64>() * font
}

/// A text cut to a width, with an ellipsis.
pub(super) fn shortened(text: &str, width: f64, font: f64) -> String {
    if text_width(text, font) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        if text_width(&kept, font) + text_width(&format!("{letter}…"), font) > width {
            break;
        }
        kept.push(letter);
    }
    kept.truncate(kept.trim_end().len());
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_end() {
        assert_eq!(ticks(100.0, 4), [0.0, 25.0, 50.0, 75.0, 100.0]);
        assert_eq!(ticks(37.0, 4), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!(ticks(1.0, 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(0.0, 4).first(), Some(&0.0));
        assert_eq!(ticks(f64::NAN, 4), ticks(1.0, 4));
        for (max, about) in [(3.0, 4), (0.07, 5), (99.0, 3), (101.0, 4), (1e6, 6), (12.5, 1)] {
            let found = ticks(max, about);
            assert!(found.last().unwrap() >= &max && found.len() <= about + 2, "{max}: {found:?}");
            assert!(found.len() < 3 || found[found.len() - 2] < max, "{max}: {found:?}");
        }
        assert_eq!([25.0, 2.5, 0.6000000000000001].map(tick_label), ["25\u{a0}%", "2.5\u{a0}%", "0.6\u{a0}%"]);
    }

    #[test]
    fn labels_are_cut_where_they_do_not_fit() {
        assert_eq!(shortened("age", 100.0, FONT), "age");
        let long = "a column whose name goes on and on";
        let cut = shortened(long, 100.0, FONT);
        assert!(cut.ends_with('…') && long.starts_with(cut.trim_end_matches('…')) && cut.chars().count() > 5, "{cut}");
        assert!(text_width(&cut, FONT) <= 100.0);
        assert!(text_width("名前", FONT) > text_width("ab", FONT));
    }

    #[test]
    fn what_is_drawn_has_names_and_no_markup_of_others() {
        let draw = |layout| {
            let mut canvas = Canvas::new("risk", layout, 50.0);
            canvas.legend(20.0);
            canvas.text(0.0, 40.0, Anchor::Start, "", "<b>&");
            canvas
        };
        let drawn = figure("<i>", "a & b", draw);
        assert_eq!(drawn.matches("<svg").count(), 2);
        assert!(drawn.contains(r#"role="img" aria-labelledby="risk-wide-title risk-wide-text" viewBox="0 0 800 50""#));
        assert!(drawn.contains(r#"<title id="risk-narrow-title">&lt;i&gt;</title>"#) && drawn.contains("a &amp; b"));
        assert!(drawn.contains("&lt;b&gt;&amp;</text>") && !drawn.contains("<b>") && !drawn.contains("<i>"));
        // Stripes are those of the same drawing: the other one is not shown.
        assert!(drawn.contains("url(#risk-wide-stripes)") && drawn.contains("url(#risk-narrow-stripes)"));
    }
}
