//! Numbers for people, and text that cannot be anything but text.

use indicatif::{HumanBytes, HumanCount};

/// Text for HTML and SVG, in elements and in attributes. Names come from outside: no markup, no control characters, and nothing that turns
/// the direction of what follows.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(' '),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => escaped.push('\u{fffd}'),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// A share as a percentage, as text: it may be < 0.01 %. What is not all is not 100 %, and what is not nothing is not 0 %.
pub(super) fn percent(share: f64) -> String {
    format!("{}\u{a0}%", percent_digits(share))
}

/// The same without its sign.
pub(super) fn percent_digits(share: f64) -> String {
    let percent = 100.0 * share;
    let size = percent.abs();
    let rounded = |places: usize| {
        let text = format!("{percent:.places$}");
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        }
    };
    match size {
        0.0 => "0".to_owned(),
        _ if size < 0.01 => "<\u{a0}0.01".to_owned(),
        _ if size < 1.0 => rounded(2),
        _ if size < 10.0 => rounded(1),
        _ if (99.0..100.0).contains(&size) && format!("{percent:.1}") == "100.0" => ">\u{a0}99.9".to_owned(),
        _ if (99.0..100.0).contains(&size) => rounded(1),
        _ => rounded(0),
    }
}

/// A whole number, with commas.
pub(super) fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// A number of objects: one row, two rows.
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{}\u{a0}{}", count(number), if number == 1 { one } else { many })
}

/// Bytes.
pub(super) fn bytes(number: u64) -> String {
    HumanBytes(number).to_string().replace(' ', "\u{a0}")
}

/// Any number, as short as it can be told.
pub(super) fn number(value: f64) -> String {
    match value {
        _ if value.fract() == 0.0 && (0.0..9e15).contains(&value) => count(value as u64),
        _ if value.abs() >= 100.0 => format!("{value:.0}"),
        _ if value.abs() >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Names in a sentence: a, b and c.
pub(super) fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_is_markup() {
        assert_eq!(
            escape("<script>alert('a' & \"b\")</script>"),
            "&lt;script&gt;alert(&#39;a&#39; &amp; &quot;b&quot;)&lt;/script&gt;"
        );
        assert_eq!(escape("a\u{202e}b\u{7}c\nd"), "a\u{fffd}b\u{fffd}c d");
        assert_eq!(escape("Größe ✓"), "Größe ✓");
    }

    #[test]
    fn percentages_do_not_round_to_all_or_nothing() {
        let told = |share: f64| percent(share).replace('\u{a0}', " ");
        for (share, text) in [
            (0.0, "0 %"),
            (0.00001, "< 0.01 %"),
            (0.001, "0.1 %"),
            (0.0314, "3.1 %"),
            (0.1, "10 %"),
            (0.4567, "46 %"),
            (0.994, "99.4 %"),
            (0.99999, "> 99.9 %"),
            (1.0, "100 %"),
            (1.5, "150 %"),
        ] {
            assert_eq!(told(share), text);
        }
    }

    #[test]
    fn lists_and_counts_read_well() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(
            (listed(&names), listed(&names[..2]), listed(&names[..1])),
            ("a, b and c".to_owned(), "a and b".to_owned(), "a".to_owned())
        );
        assert_eq!(
            (counted(1, "row", "rows"), counted(1200, "row", "rows")),
            ("1\u{a0}row".into(), "1,200\u{a0}rows".into())
        );
        assert_eq!((number(1234.0), number(16.9), number(0.25)), ("1,234".into(), "16.90".into(), "0.2500".into()));
    }
}
