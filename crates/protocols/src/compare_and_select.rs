//! The smaller of two numbers, and which it was: fast, because P2 sees a blurred magnitude.
//!
//! ```text
//!  P1: odd = 2 (A - B) - 1, never zero; a tie goes to A
//!      sigma = +1 or -1, r in octaves, r' uniform in (-r, r), all fresh for every slot
//!                               y = r sigma odd + r'  -->
//!                                                     <--  s = [y < 0],  y,  s y             P2
//!  P1: odd = sigma (y - r') / r,  s odd = sigma (s y - r' s) / r,  delta = (odd + 1) / 2,  s delta = (s odd + s) / 2
//!      min = B + s delta  where sigma = +1,  B + delta - s delta  where sigma = -1
//! ```
//! `|r'| < r <= |r odd|` keeps the sign; without `r'` the divisors of `y` would give `odd` away. `r` takes each octave from 3 up to the free
//! bits of `t` with the same probability, so `|y|` tells the magnitude of `odd` only as well as a fresh random shift by up to so many
//! octaves lets it. One multiplier for many values would give ratios away: each slot has its own.
//!
//! The blur hides one difference, not a table. Slots are places: where a run compares each of its rows with many others, P2 sees which
//! magnitudes are of which row, and can work out the rows from all of them together. docs/protocols has what that is worth. So this is for
//! numbers that P2 may know; for all others there is [`compare_exact`](crate::compare_exact).

use rand::CryptoRng;
use veil_slots::{
    DEGREE, Factor, Fresh, Inbound, KeyHolder, L1, Offset, Outbound, PLAIN_MODULUS, SeededSlots, Slots, plain,
};

use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct CompareAndSelect;

/// The widest difference: it leaves five octaves of blur.
pub const MAX_BITS: u32 = 37;

/// Multipliers begin at `2^3`: with `r = 1`, `y` would be the difference itself as often as any octave comes up.
const LOWEST_OCTAVE: u64 = 3;

message! {
    /// The blinded differences.
    Query<C: Outbound => Inbound> {
        /// `y = r sigma odd + r'`.
        y: C,
    }
}

message! {
    /// Signs and products.
    Answer<C: SeededSlots => Fresh> {
        /// `s = [y < 0]`.
        sign: C,
        /// `y`.
        y: C,
        /// `s y`.
        product: C,
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        Ok(3)
    }
}

impl Protocol for CompareAndSelect {
    const NAME: &'static str = "compare_and_select";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "the smaller of two encrypted numbers, and which it was";
    const LEAKAGE: Leakage = Leakage {
        p1: "nothing",
        p2: "a blurred magnitude of the difference of two numbers in known places, with a uniform sign: from the many differences of a run P2 can work out the numbers",
    };
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer<SeededSlots>;
    type Reply = Answer<Fresh>;

    fn answer(
        query: Query<Inbound>,
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
    ) -> Result<Answer<SeededSlots>, ProtocolError> {
        let y = holder.open(query.y);
        let sign: Vec<u64> = y.iter().map(|y| u64::from(*y > PLAIN_MODULUS / 2)).collect();
        let product: Vec<u64> = y.iter().zip(&sign).map(|(y, sign)| y * sign).collect();
        Ok(Answer { sign: holder.seal(&sign, rng), y: holder.seal(&y, rng), product: holder.seal(&product, rng) })
    }
}

/// Two numbers to compare.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The first; it wins a tie.
    pub a: Slots<L1>,
    /// The second.
    pub b: Slots<L1>,
    /// `|A - B| < 2^bits`.
    pub bits: u32,
}

/// The smaller number, and whether it is the first.
#[derive(Clone, Debug)]
pub struct Selected {
    /// `min(A, B)`.
    pub min: Slots<L1>,
    /// `[A <= B]`.
    pub first: Slots<L1>,
}

/// What P1 remembers.
pub struct Asked {
    b: Slots<L1>,
    /// Whether the sign was flipped.
    flipped: Vec<bool>,
    /// `sigma r`.
    multiplier: Vec<u64>,
    /// `r'`.
    addend: Vec<u64>,
}

/// What hides a difference.
pub(crate) struct Blind {
    /// Whether the sign was flipped.
    pub(crate) flipped: bool,
    /// `sigma r`.
    pub(crate) multiplier: u64,
    /// `r'`.
    pub(crate) addend: u64,
}

impl Blind {
    /// One for each of so many differences of so many bits.
    pub(crate) fn draw(bits: u32, count: usize, rng: &mut impl CryptoRng) -> Result<Vec<Self>, ProtocolError> {
        if bits > MAX_BITS {
            return Err(ProtocolError::Misuse(format!(
                "a blinded comparison takes differences of up to {MAX_BITS} bits, not {bits}; use an exact one"
            )));
        }
        // |y| < r (2^(bits + 1) + 2) must stay below t / 2.
        let octaves = u64::from((PLAIN_MODULUS / 2 / ((2 << bits) + 2)).ilog2()) - LOWEST_OCTAVE;
        let draw = |_| {
            let random = rng.next_u64();
            let octave = LOWEST_OCTAVE + plain::uniform_below(octaves, rng);
            let r = 1 << octave | random & ((1 << octave) - 1);
            let flipped = random >> 63 == 1;
            // Uniform in -(r - 1) ..= r - 1.
            let small = plain::uniform_below(2 * r - 1, rng) as i64 - (r as i64 - 1);
            let multiplier = if flipped { plain::neg(r) } else { r };
            Self { flipped, multiplier, addend: plain::from_signed(small) }
        };
        Ok((0..count).map(draw).collect())
    }
}

/// P1 blinds the difference.
pub fn ask(pair: Pair, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let mut multiplier = Vec::with_capacity(DEGREE);
    let mut addend = Vec::with_capacity(DEGREE);
    let mut flipped = Vec::with_capacity(DEGREE);
    for blind in Blind::draw(pair.bits, DEGREE, &mut asker.rng)? {
        multiplier.push(blind.multiplier);
        addend.push(blind.addend);
        flipped.push(blind.flipped);
    }
    let mut delta = pair.a;
    delta.sub(&pair.b);
    let doubled: Vec<u64> = multiplier.iter().map(|r| plain::add(*r, *r)).collect();
    let blind: Vec<u64> = multiplier.iter().zip(&addend).map(|(r, addend)| plain::sub(*addend, *r)).collect();
    let y = asker.send(&delta.times(&Factor::new(&doubled)), &blind)?;
    Ok((Asked { b: pair.b, flipped, multiplier, addend }, Query { y }))
}

/// P1 takes the blinds off.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Selected, ProtocolError> {
    let (sign, y, product) = (answer.sign, answer.y, answer.product);
    let half = plain::inverse(2);
    let mut inverse = asked.multiplier;
    plain::invert_all(&mut inverse);
    let (mut of_product, mut of_sign, mut of_y) = (vec![0; DEGREE], vec![0; DEGREE], vec![0; DEGREE]);
    let (mut constant, mut of_sign_for_first, mut first_constant) = (vec![0; DEGREE], vec![1; DEGREE], vec![0; DEGREE]);
    for slot in 0..DEGREE {
        // s delta = p (s y) + c s  and  delta = p y + c.
        let p = plain::mul(inverse[slot], half);
        let c = plain::sub(half, plain::mul(p, asked.addend[slot]));
        if asked.flipped[slot] {
            (of_product[slot], of_sign[slot], of_y[slot], constant[slot]) = (plain::neg(p), plain::neg(c), p, c);
            (of_sign_for_first[slot], first_constant[slot]) = (plain::neg(1), 1);
        } else {
            (of_product[slot], of_sign[slot]) = (p, c);
        }
    }
    let factors = [Factor::new(&of_product), Factor::new(&of_sign), Factor::new(&of_y)];
    let mut min = asked.b;
    if let Some(chosen) = Slots::dot([(&product, &factors[0]), (&sign, &factors[1]), (&y, &factors[2])]) {
        min.add(&chosen);
    }
    min.add_clear(&Offset::new(&constant));
    let mut first = sign.times(&Factor::new(&of_sign_for_first));
    first.add_clear(&Offset::new(&first_constant));
    Ok(Selected { min, first })
}

/// One round for many pairs.
pub async fn compare_and_select(session: &Session, pairs: Vec<Pair>) -> Result<Vec<Selected>, ProtocolError> {
    session.round::<CompareAndSelect, _, _, _>(pairs, 3, ask, finish).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_smaller_wins_and_a_tie_goes_to_the_first() {
        let mut parties = Parties::new(5);
        for bits in [1, 20, MAX_BITS] {
            let (mut a, mut b) = (parties.numbers_below(1 << bits), parties.numbers_below(1 << bits));
            (a[2], b[2]) = (0, (1 << bits) - 1);
            (a[3], b[3]) = ((1 << bits) - 1, 0);
            a[4..100].copy_from_slice(&b.clone()[4..100]);
            (a[100], b[100]) = (1, 0);
            (a[101], b[101]) = (0, 1);
            let pair = Pair { a: parties.encrypt(&a), b: parties.encrypt(&b), bits };
            let selected = compare_and_select(&parties.session, vec![pair]).await.unwrap().remove(0);
            let min: Vec<u64> = a.iter().zip(&b).map(|(a, b)| *a.min(b)).collect();
            let first: Vec<u64> = a.iter().zip(&b).map(|(a, b)| u64::from(a <= b)).collect();
            assert_eq!(parties.open(&selected.min), min, "{bits} bits");
            assert_eq!(parties.open(&selected.first), first, "{bits} bits");
        }
    }

    /// A tournament over 1024 candidates: ten rounds on results of earlier ones, as k-anonymisation plays it.
    #[tokio::test(flavor = "multi_thread")]
    async fn results_can_be_compared_again() {
        let mut parties = Parties::new(6);
        let values: Vec<Vec<u64>> = (0..4).map(|_| parties.numbers_below(1 << 34)).collect();
        let mut round: Vec<Slots<L1>> = values.iter().map(|values| parties.encrypt(values)).collect();
        for _ in 0..10 {
            let first = round[0].clone();
            round.push(first);
            let pairs = round.as_chunks::<2>().0.iter().map(|[a, b]| Pair { a: a.clone(), b: b.clone(), bits: 34 });
            let rest = if round.len() % 2 == 1 { round.last().cloned() } else { None };
            let selected = compare_and_select(&parties.session, pairs.collect()).await.unwrap();
            round = selected.into_iter().map(|selected| selected.min).chain(rest).collect();
        }
        let min: Vec<u64> = (0..DEGREE).map(|slot| values.iter().map(|values| values[slot]).min().unwrap()).collect();
        assert_eq!(parties.open(&round[0]), min);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn differences_that_leave_no_room_for_blur_are_refused() {
        let mut parties = Parties::new(7);
        let a = parties.encrypt(&[1]);
        let error =
            compare_and_select(&parties.session, vec![Pair { a: a.clone(), b: a, bits: 38 }]).await.unwrap_err();
        assert!(error.to_string().contains("up to 37 bits, not 38"), "{error}");
    }
}
