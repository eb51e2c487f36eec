//! Words that must stand nowhere but with the owner and the recipient, and a search for all of them at once.

use std::collections::{BTreeSet, HashMap};

/// Shorter words stand everywhere by chance.
pub(super) const SHORTEST: usize = 8;

/// Many words, ready to be searched for in one pass: the algorithm of Wu and Manber, which looks at pairs of bytes and
/// jumps where no word can end.
pub(super) struct Canaries {
    words: Vec<Vec<u8>>,
    /// By the last two bytes of a window: how far the next word can be.
    jumps: Vec<u8>,
    /// The words of which a window may be the beginning, by the same two bytes.
    ends: HashMap<usize, Vec<usize>>,
    /// Bytes of the window: the shortest word's.
    window: usize,
    longest: usize,
}

impl Canaries {
    /// Words that are long enough.
    pub(super) fn new(words: BTreeSet<String>) -> Self {
        let words: Vec<Vec<u8>> =
            words.into_iter().filter(|word| word.len() >= SHORTEST).map(String::into_bytes).collect();
        let window = words.iter().map(Vec::len).min().unwrap_or(SHORTEST).min(usize::from(u8::MAX));
        let mut jumps = vec![(window - 1) as u8; 1 << 16];
        let mut ends: HashMap<usize, Vec<usize>> = HashMap::new();
        for (at, word) in words.iter().enumerate() {
            if let Some(pair) = word.get(window - 2..window) {
                ends.entry(place(pair)).or_default().push(at);
            }
            for end in 2..=window {
                if let Some(jump) = word.get(end - 2..end).and_then(|pair| jumps.get_mut(place(pair))) {
                    *jump = (*jump).min((window - end) as u8);
                }
            }
        }
        let longest = words.iter().map(Vec::len).max().unwrap_or(0);
        Self { words, jumps, ends, window, longest }
    }

    /// How many words there are.
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// Bytes of the longest word.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The words that stand among bytes, with how often each does.
    pub(super) fn find<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut end = self.window;
        std::iter::from_fn(move || {
            while let Some(pair) = (!self.words.is_empty()).then(|| bytes.get(end - 2..end)).flatten() {
                let jump = self.jumps.get(place(pair)).copied().unwrap_or(1);
                end += usize::from(jump).max(1);
                if jump == 0
                    && let Some(rest) = bytes.get(end - 1 - self.window..)
                    && let Some(word) = self.candidates(pair).find(|word| rest.starts_with(word))
                {
                    return Some(word);
                }
            }
            None
        })
    }

    fn candidates(&self, pair: &[u8]) -> impl Iterator<Item = &[u8]> {
        let places = self.ends.get(&place(pair)).map(Vec::as_slice).unwrap_or_default();
        places.iter().filter_map(|at| self.words.get(*at).map(Vec::as_slice))
    }
}

fn place(pair: &[u8]) -> usize {
    match pair {
        [first, second] => usize::from(u16::from_le_bytes([*first, *second])),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canaries(words: &[&str]) -> Canaries {
        Canaries::new(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn every_word_is_found_wherever_it_stands() {
        let canaries = canaries(&["Ada Berg", "Zoë Ivanova", "hypertension", "short"]);
        assert_eq!((canaries.len(), canaries.longest()), (3, 12));
        for word in ["Ada Berg", "Zoë Ivanova", "hypertension"] {
            for before in 0..20 {
                for after in 0..20 {
                    let text = format!("{}{word}{}", "e".repeat(before), "B".repeat(after));
                    assert_eq!(canaries.find(text.as_bytes()).collect::<Vec<_>>(), [word.as_bytes()], "{text}");
                    let cut = &text.as_bytes()[..before + word.len() - 1];
                    assert_eq!(canaries.find(cut).count(), 0, "{text}");
                }
            }
        }
        assert_eq!(canaries.find("Ada BergAda Berg Zoë Ivanova Ada Ber".as_bytes()).count(), 3);
    }

    /// The same as a search that is as simple as can be, on bytes that nearly match everywhere.
    #[test]
    fn nothing_is_jumped_over() {
        let words = ["abababab", "babababa", "aabbaabb", "abababaab"];
        let canaries = canaries(&words);
        let text: Vec<u8> =
            (0..20_000u32).map(|at| b"ab"[(at.wrapping_mul(2_654_435_761) >> 29 & 1) as usize]).collect();
        let simple =
            (0..text.len()).filter(|at| words.iter().any(|word| text[*at..].starts_with(word.as_bytes()))).count();
        assert!(simple > 10);
        assert_eq!(canaries.find(&text).count(), simple);
        assert_eq!(Canaries::new(BTreeSet::new()).find(&text).count(), 0);
    }
}
