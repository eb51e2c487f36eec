//! The masks of a parcel: drawn from a seed, which P1 seals to the recipient instead of the masks.
//!
//! They are taken column by column, lane by lane and value by value from the stream of ChaCha20 (`rand_chacha`, whose streams are the same
//! in all versions): the upper 48 bits of each 64-bit word, and of those, modulo `t`, the first that is below it.

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use veil_cells::MESSAGE_BITS;
use veil_slots::{PLAIN_MODULUS, plain};

/// What a masked message wraps at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modulus {
    /// `2^48`: it comes straight from a cell.
    Cells,
    /// `t`: it comes from slots.
    Slots,
}

const MESSAGE_MASK: u64 = (1 << MESSAGE_BITS) - 1;

impl Modulus {
    /// On the wire.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Cells => 0,
            Self::Slots => 1,
        }
    }

    /// From the wire.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Cells, Self::Slots].into_iter().find(|modulus| modulus.to_byte() == byte)
    }

    /// The sum of a masked message and a number.
    pub fn add(self, word: u64, number: i64) -> u64 {
        match self {
            Self::Cells => word.wrapping_add(number as u64) & MESSAGE_MASK,
            Self::Slots => plain::add(word, plain::from_signed(number)),
        }
    }

    /// Takes a mask off.
    pub fn unmask(self, word: u64, mask: u64) -> i64 {
        match self {
            // Bit 47 is the sign.
            Self::Cells => ((word.wrapping_sub(mask) << (64 - MESSAGE_BITS)) as i64) >> (64 - MESSAGE_BITS),
            Self::Slots => plain::centred(plain::sub(word, mask)),
        }
    }

    /// Takes a mask off a lane of text. Modulo `t` the 16383 largest messages meet the smallest. Lanes with at most one byte of text, padded with
    /// 0xFF, are among the largest, as numbers from 16127 on; small ones would be four NULs behind `>` or `?`.
    pub fn unmask_text(self, word: u64, mask: u64) -> i64 {
        match self {
            Self::Cells => self.unmask(word, mask),
            Self::Slots => match plain::sub(word, mask) {
                padded @ 16127..16383 => (padded + PLAIN_MODULUS) as i64,
                other => other as i64,
            },
        }
    }

    /// Whether a masked message can be one.
    pub fn contains(self, word: u64) -> bool {
        match self {
            Self::Cells => word <= MESSAGE_MASK,
            Self::Slots => word < PLAIN_MODULUS,
        }
    }
}

/// The stream of masks.
pub struct Masks {
    /// Words that were drawn together, and how many of them are used.
    drawn: Vec<u8>,
    used: usize,
    /// What comes after them.
    rest: ChaCha20Rng,
}

impl Masks {
    /// From a seed.
    pub fn new(seed: [u8; 32]) -> Self {
        Self { drawn: Vec::new(), used: 0, rest: ChaCha20Rng::from_seed(seed) }
    }

    /// From a seed, for about so many: drawn together they take little more than half the time. It is the same stream.
    pub fn for_many(seed: [u8; 32], words: usize) -> Self {
        let mut rest = ChaCha20Rng::from_seed(seed);
        let drawn = stretch(seed, words, &mut rest).unwrap_or_default();
        rest.set_word_pos((drawn.len() / HALF_WORD) as u128);
        Self { drawn, used: 0, rest }
    }

    /// The next.
    pub fn next(&mut self, modulus: Modulus) -> u64 {
        loop {
            let mask = self.word() >> (64 - MESSAGE_BITS);
            if modulus.contains(mask) {
                return mask;
            }
        }
    }

    /// The next so many for messages from cells, if they are among those that were drawn together.
    pub fn next_of_cells(&mut self, count: usize) -> Option<impl ExactSizeIterator<Item = u64>> {
        let words = self.drawn.as_chunks::<WORD>().0.get(self.used..self.used.checked_add(count)?)?;
        self.used += count;
        Some(words.iter().map(|word| u64::from_le_bytes(*word) >> (64 - MESSAGE_BITS)))
    }

    fn word(&mut self) -> u64 {
        match self.drawn.as_chunks::<WORD>().0.get(self.used) {
            Some(word) => {
                self.used += 1;
                u64::from_le_bytes(*word)
            }
            None => self.rest.next_u64(),
        }
    }
}

const WORD: usize = 8;
/// What `rand_chacha` counts in.
const HALF_WORD: usize = 4;
const BLOCK: usize = 64;

/// The beginning of the stream. The first block is that of the generator; for the others, zeros are sealed, of which ring has the fastest cipher: what
/// RFC 8439 seals by begins at the second block, since it takes the tag's key from the first.
fn stretch(seed: [u8; 32], words: usize, first: &mut ChaCha20Rng) -> Option<Vec<u8>> {
    let mut bytes = vec![0; words.checked_mul(WORD)?.checked_next_multiple_of(BLOCK)?];
    let (block, others) = bytes.split_at_mut_checked(BLOCK)?;
    first.fill_bytes(block);
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &seed).ok()?);
    let _tag = key.seal_in_place_separate_tag(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), others).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_come_off_again() {
        let mut masks = Masks::new([7; 32]);
        for number in [0, 1, -1, 12345, -(1 << 46), (1 << 46) - 1] {
            for modulus in [Modulus::Cells, Modulus::Slots] {
                let (mask, noise) = (masks.next(modulus), -77);
                let word = modulus.add(modulus.add(mask, number), noise);
                assert!(modulus.contains(mask) && modulus.contains(word));
                assert_eq!(modulus.unmask(word, mask), number + noise, "{modulus:?}");
            }
        }
    }

    #[test]
    fn lanes_of_text_come_back_from_slots() {
        let lane = |text: &[u8]| {
            let mut bytes = [0xff; 8];
            bytes[..text.len()].copy_from_slice(text);
            (bytes[6], bytes[7]) = (0, 0);
            u64::from_le_bytes(bytes)
        };
        let texts: [&[u8]; 9] =
            [b"", b"a", b"~", b"ab", b"abcde", b"abcdef", "é".as_bytes(), "\u{7f}".as_bytes(), b"\0\0\0\0\0\0"];
        for text in texts {
            let (message, mask) = (lane(text), 1 << 40);
            let word = plain::add(message % PLAIN_MODULUS, mask);
            assert_eq!(Modulus::Slots.unmask_text(word, mask) as u64, message, "{text:?}");
        }
    }

    /// However they are drawn, and however many more are taken than were drawn together.
    #[test]
    fn masks_that_are_drawn_together_are_the_same() {
        for words in [0, 1, 7, 8, 9, 63, 64, 65, 1000] {
            let (mut one, mut many) = (Masks::new([5; 32]), Masks::for_many([5; 32], words));
            for at in 0..words + 20 {
                let modulus = if at % 3 == 0 { Modulus::Slots } else { Modulus::Cells };
                assert_eq!(one.next(modulus), many.next(modulus), "word {at} of {words}");
            }
            let (mut one, mut many) = (Masks::new([5; 32]), Masks::for_many([5; 32], words));
            let some: Vec<u64> = many.next_of_cells(words).map(Iterator::collect).unwrap_or_default();
            assert_eq!(some.len(), words);
            assert!(some.iter().all(|mask| *mask == one.next(Modulus::Cells)));
            assert_eq!(one.next(Modulus::Cells), many.next(Modulus::Cells), "after {words}");
            assert!(many.next_of_cells(words + 64).is_none());
        }
    }

    /// Recipients have older and newer programs than servers: the stream must not change. The key stream of ChaCha20 for a key of zeros,
    /// nonce and counter zero (RFC 8439, appendix A.1, test vector 1) begins 76 b8 e0 ad a0 f1 3d 90.
    #[test]
    fn the_stream_is_that_of_chacha20() {
        let first = u64::from_le_bytes([0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
        assert_eq!(Masks::new([0; 32]).next(Modulus::Cells), first >> 16);
    }
}
