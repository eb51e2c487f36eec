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
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                escaped.push('\u{fffd}');
            }
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

/// Any number, as short as it can be told, as text: it may be < 0.0001. What is not nothing is not 0, and what is less than 1 is not 1.
pub(super) fn number(value: f64) -> String {
    let (size, sign) = (value.abs(), if value < 0.0 { "-" } else { "" });
    let told = match size {
        _ if size.fract() == 0.0 || size >= 100.0 => grouped(&format!("{size:.0}")),
        _ if size >= 1.0 => format!("{size:.2}"),
        _ if size < 0.0001 => return format!("{}\u{a0}{sign}0.0001", if value < 0.0 { ">" } else { "<" }),
        _ if size >= 0.99995 => return format!("{}\u{a0}{sign}0.9999", if value < 0.0 { "<" } else { ">" }),
        _ => format!("{size:.4}"),
    };
    format!("{sign}{told}")
}

/// Digits with commas between thousands.
fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
        // The mark of Arabic letters turns what stands beside it, too.
        assert_eq!(escape("a\u{61c}b"), "a\u{fffd}b");
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
    }

    #[test]
    fn numbers_have_commas_and_do_not_round_to_nothing() {
        let told = |value: f64| number(value).replace('\u{a0}', " ");
        for (value, text) in [
            (0.0, "0"),
            (1234.0, "1,234"),
            (999.6, "1,000"),
            (100.5, "100"),
            (1_234_567.8, "1,234,568"),
            (-1234.5, "-1,234"),
            (2e16, "20,000,000,000,000,000"),
            (16.9, "16.90"),
            (-16.9, "-16.90"),
            (0.25, "0.2500"),
            (0.00001, "< 0.0001"),
            (-0.00001, "> -0.0001"),
            (0.99999, "> 0.9999"),
        ] {
            assert_eq!(told(value), text);
        }
    }
}
