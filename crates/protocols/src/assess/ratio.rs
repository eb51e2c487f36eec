//! `A / B` of few encrypted numbers, in steps of `2^-20`, opened to nobody: long division, a hexadecimal digit at a time.
//!
//! ```text
//!  a = 2 A,  b = 2 B + 1                                     so that nothing is divided by zero
//!  [r >= m b]  for m = 1 .. 16, one m a block                `few`
//!  their sum is the digit d, in every block                  `fold`
//!  r := 16 (r - d b)                                         `multiply`
//! ```
//! A quotient of 16 and more is 16; one by a denominator that is too small to say anything is -1, as if there were none. Copies of a number lie in the blocks of a vector, so that a digit takes one comparison with all multiples; six
//! digits take some fifty rounds, however many numbers there are.

use veil_privacy::utility::{DENOMINATOR_BITS, RATIO_BITS};
use veil_slots::{DEGREE, Factor, L0, L1, Offset, Slots, plain};

use crate::few::{truncate_half, truncate_wide};
use crate::fold::in_blocks;
use crate::multiply::multiply;
use crate::truncate::{Dividend, Rounding};
use crate::{ProtocolError, Session};

/// Digits behind the point.
const DIGITS: u32 = RATIO_BITS / 4;

/// Multiples of the denominator that a digit is compared with.
const MULTIPLES: usize = 16;

/// The most quotients: all multiples must lie in a vector, and best in less than half of one, where comparisons are cheaper.
pub(super) const MAX_NUMBERS: usize = if DEGREE < 128 { 2 } else { DEGREE / 64 };

/// Bits of the largest denominator.
const MOST_BITS: u32 = 46;

/// What is compared differs by less than this power of two.
const DIFFERENCE_BITS: u32 = 45;

/// Numerators and denominators, in the first slots; zero in all others.
pub(super) struct Fractions {
    /// Slots of a block.
    pub(super) block: usize,
    /// `A`, not negative, and at most `2^(bits+4)` or a little above `2^47`.
    pub(super) numerators: Slots<L1>,
    /// `B`, not negative.
    pub(super) denominators: Slots<L1>,
    /// `B <= 2^bits`, at most 46.
    pub(super) bits: u32,
    /// Nothing is divided by less than this; zero if by anything.
    pub(super) least: u64,
}

/// Slots of a block of so many numbers.
pub(super) fn block_of(numbers: usize) -> usize {
    numbers.next_power_of_two()
}

/// The quotients, in the first block.
pub(super) async fn ratio(session: &Session, fractions: Fractions) -> Result<Slots<L1>, ProtocolError> {
    let Fractions { block, numerators, denominators, bits, least } = fractions;
    if block > MAX_NUMBERS || bits > MOST_BITS || least >> MOST_BITS > 0 {
        return Err(ProtocolError::Misuse(format!("no {block} quotients of {bits} bits are divided at once")));
    }
    let enough = match least {
        0 => None,
        least => Some(at_least(session, block, denominators.clone(), least).await?),
    };
    let (mut vectors, shift) = (vec![numerators, denominators], bits.saturating_sub(DENOMINATOR_BITS));
    if shift > 0 {
        let dividend = |slots| Dividend { slots, shift, rounding: Rounding::Floor };
        vectors = truncate_wide(session, block, vectors.into_iter().map(dividend).collect()).await?;
    }
    let repeated = in_blocks(session, block, vectors).await?;
    let [mut a, mut b] = <[Slots<L0>; 2]>::try_from(repeated).map_err(|_| ProtocolError::Cancelled)?;
    a.scale(2);
    b.scale(2);
    b.add_constant(1);
    let division = Division::new(session, block, b);
    let (mut quotient, mut rest) = division.first_digit(&a).await?;
    for _ in 0..DIGITS {
        rest.scale(16);
        let (digit, next) = division.digit(rest).await?;
        rest = next;
        quotient.scale(16);
        quotient.add(&digit);
    }
    let Some(enough) = enough else { return Ok(quotient) };
    // (q + 1) [B >= least] - 1.
    quotient.add_constant(1);
    let mut told = multiply(session, vec![(quotient, enough)]).await?.pop().ok_or(ProtocolError::Cancelled)?;
    told.add_constant(plain::neg(1));
    Ok(told)
}

/// One where a denominator is not less than this, zero elsewhere.
async fn at_least(
    session: &Session,
    block: usize,
    mut denominators: Slots<L1>,
    least: u64,
) -> Result<Slots<L1>, ProtocolError> {
    denominators.add_constant(plain::sub(1 << MOST_BITS, least));
    let dividend = Dividend { slots: denominators, shift: MOST_BITS, rounding: Rounding::Floor };
    truncate_half(session, block, vec![dividend]).await?.pop().ok_or(ProtocolError::Cancelled)
}

struct Division<'a> {
    session: &'a Session,
    block: usize,
    b: Slots<L0>,
    /// `m b` in block `m`.
    multiples: Slots<L1>,
}

impl<'a> Division<'a> {
    fn new(session: &'a Session, block: usize, b: Slots<L0>) -> Self {
        let multiple = |slot: usize| ((slot / block) as u64).min(MULTIPLES as u64);
        let multiples = b.times(&Factor::new(&(0..DEGREE).map(multiple).collect::<Vec<_>>()));
        Self { session, block, b, multiples }
    }

    /// For each of these vectors, one where it is not negative, in the first seventeen blocks. In others it must be negative: comparisons of few numbers have zeros there
    /// by themselves, comparisons of whole vectors do not.
    async fn signs(&self, vectors: Vec<Slots<L1>>) -> Result<Vec<Slots<L1>>, ProtocolError> {
        let dividend = |mut slots: Slots<L1>| {
            slots.add_constant(1 << DIFFERENCE_BITS);
            Dividend { slots, shift: DIFFERENCE_BITS, rounding: Rounding::Floor }
        };
        truncate_half(self.session, (MULTIPLES + 1) * self.block, vectors.into_iter().map(dividend).collect()).await
    }

    /// How often `b` goes into `r`, and what is left.
    async fn digit(&self, r: Slots<L1>) -> Result<(Slots<L1>, Slots<L1>), ProtocolError> {
        let mut above = r.clone();
        above.sub(&self.multiples);
        let signs = self.signs(vec![above]).await?;
        self.without(r, signs).await
    }

    /// The same for the number before the point, where all of what is left is dropped from 16 on.
    async fn first_digit(&self, a: &Slots<L0>) -> Result<(Slots<L1>, Slots<L1>), ProtocolError> {
        // Behind the multiples -16 b, whatever a is, so that nothing there counts.
        let mut above = a.times(&Factor::new(&vec![1; (MULTIPLES + 1) * self.block]));
        above.sub(&self.multiples);
        // a - 16 b in the first block, and -1 in all others, so that the sum of the signs is that of the first.
        let (one, sixteen) = (Factor::new(&vec![1; self.block]), Factor::new(&vec![MULTIPLES as u64; self.block]));
        let mut beyond = a.times(&one);
        beyond.sub(&self.b.times(&sixteen));
        let others: Vec<u64> = (0..DEGREE).map(|slot| u64::from(slot >= self.block)).collect();
        beyond.sub_clear(&Offset::new(&others));
        let mut signs = self.signs(vec![above, beyond]).await?;
        let beyond = signs.split_off(1);
        let (digit, rest) = self.without(a.raised(), signs).await?;
        let beyond = in_blocks(self.session, self.block, beyond).await?.pop().ok_or(ProtocolError::Cancelled)?;
        let mut within = Slots::clear(&[1; DEGREE]);
        within.sub(&beyond.raised());
        let rest = multiply(self.session, vec![(within, rest)]).await?.pop().ok_or(ProtocolError::Cancelled)?;
        Ok((digit, rest))
    }

    /// The digit that signs tell, and `r` without so many `b`.
    async fn without(&self, mut r: Slots<L1>, signs: Vec<Slots<L1>>) -> Result<(Slots<L1>, Slots<L1>), ProtocolError> {
        let mut digit = in_blocks(self.session, self.block, signs).await?.pop().ok_or(ProtocolError::Cancelled)?;
        // Nothing is below zero times b.
        digit.add_constant(plain::neg(1));
        let taken = multiply(self.session, vec![(digit.raised(), self.b.raised())]).await?;
        r.sub(taken.first().ok_or(ProtocolError::Cancelled)?);
        Ok((digit.raised(), r))
    }
}

#[cfg(test)]
mod tests {
    use veil_privacy::utility::ratio_of;
    use veil_slots::PLAIN_MODULUS;

    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn quotients_are_exact_and_end_at_sixteen() {
        let mut parties = Parties::new(620);
        for (count, bits) in [(1usize, 39), (5, 30), (20, 42), (9, 46)] {
            let most = 1u64 << bits;
            let mut a: Vec<u64> = parties.numbers_below((most << 2).min(1 << 47))[..count].to_vec();
            let mut b: Vec<u64> = parties.numbers_below(most + 1)[..count].to_vec();
            let ends = [
                (0, 0),
                (7, 7),
                (most, most),
                (16 << bits.min(42), 1 << bits.min(42)),
                (5, 0),
                (most - 1, most),
                (15, 1),
                (3, most),
            ];
            for ((a, b), end) in a.iter_mut().zip(&mut b).zip(ends).skip(usize::from(count > 1)) {
                (*a, *b) = end;
            }
            let block = block_of(count);
            let (numerators, denominators) = (parties.encrypt(&a), parties.encrypt(&b));
            for least in [0, b[0], b[0] + 1] {
                let (numerators, denominators) = (numerators.clone(), denominators.clone());
                let fractions = Fractions { block, numerators, denominators, bits, least };
                let found = parties.open(&ratio(&parties.session, fractions).await.unwrap());
                for (slot, (a, b)) in a.iter().zip(&b).enumerate() {
                    let expected = match *b >= least {
                        true => ratio_of((*a).into(), (*b).into(), bits),
                        false => PLAIN_MODULUS - 1,
                    };
                    assert_eq!(found[slot], expected, "{a} / {b}");
                }
            }
        }
    }
}
