//! Neighbouring digits of few numbers become one.
//!
//! ```text
//!  P1: f, g uniform bits        (lt xor f) + 2 (eq xor g)  of all digits  -->
//!                                                <--  of every pair: lt'_h, eq'_h, lt'_l, eq'_h lt'_l, eq'_l, eq'_h eq'_l          P2
//!  P1: lt = lt_h + eq_h lt_l,  eq = eq_h eq_l
//! ```
//! A last digit without a neighbour stays. P2 sees uniform bits.

use rand::rngs::StdRng;
use rand::{CryptoRng, RngCore, SeedableRng};
use rayon::prelude::*;
use veil_slots::{DEGREE, Factor, Fresh, Inbound, KeyHolder, Offset, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::few::{Orders, Units};
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct FewFold;

/// `lt` is wanted.
const LESS: u32 = 1;

/// `eq` is wanted.
const EQUAL: u32 = 2;

message! {
    /// The masked bits.
    Query<C: Outbound => Inbound> {
        /// `(lt xor f) + 2 (eq xor g)`, vectors of all digits.
        bits: Vec<C>,
        /// How many numbers there are.
        used: u32,
        /// How many digits each has.
        digits: u32,
        /// One for `lt`, two for `eq`, three for both.
        wanted: u32,
    }
}

message! {
    /// What both follow from.
    Answer<C: SeededSlots => Fresh> {
        /// For every part, the vectors of all pairs.
        parts: Vec<C>,
    }
}

/// A product over masked bits of a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    LessHigh,
    EqualHigh,
    LessLow,
    EqualHighLessLow,
    EqualLow,
    EqualBoth,
}

/// What is asked about digits.
#[derive(Clone, Copy)]
struct Shape {
    units: Units,
    wanted: u32,
}

impl Shape {
    /// Of numbers from outside. Says what is wrong with them.
    fn checked(used: u32, digits: u32, wanted: u32) -> Result<Self, String> {
        if !(2..=crate::few::MAX_DIGITS as u32).contains(&digits) || !(1..=LESS | EQUAL).contains(&wanted) {
            return Err(format!("{digits} digits are not folded for {wanted}"));
        }
        Ok(Self { units: Units::checked(used, digits)?, wanted })
    }

    fn parts(self) -> Vec<Part> {
        let mut parts = vec![Part::EqualHigh];
        if self.wanted & LESS != 0 {
            parts.extend([Part::LessHigh, Part::LessLow, Part::EqualHighLessLow]);
        }
        if self.wanted & EQUAL != 0 {
            parts.extend([Part::EqualLow, Part::EqualBoth]);
        }
        parts
    }

    /// Slots of both digits of the pair in a slot, counted through the vectors; the second may be missing.
    fn pair(self, slot: usize) -> (usize, Option<usize>) {
        let Units { used, digits } = self.units;
        let (place, number) = (2 * (slot / used), slot % used);
        (place * used + number, (place + 1 < digits).then_some((place + 1) * used + number))
    }

    /// Slots of a vector of pairs.
    fn slots(self, vector: usize) -> std::ops::Range<usize> {
        vector * DEGREE..self.units.folded().slots().min((vector + 1) * DEGREE)
    }
}

impl Query<Inbound> {
    fn shape(&self) -> Result<Shape, ProtocolError> {
        let shape = Shape::checked(self.used, self.digits, self.wanted).map_err(ProtocolError::Malformed)?;
        let (found, expected) = (self.bits.len(), shape.units.vectors());
        match found == expected {
            true => Ok(shape),
            false => Err(ProtocolError::Malformed(format!("{found} vectors of digits instead of {expected}"))),
        }
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        self.shape().map(|shape| shape.parts().len() * shape.units.folded().vectors())
    }
}

impl Protocol for FewFold {
    const NAME: &'static str = "few_fold";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "neighbouring digits of few numbers become one";
    const LEAKAGE: Leakage = Leakage::NOTHING;
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer<SeededSlots>;
    type Reply = Answer<Fresh>;

    fn answer(
        query: Query<Inbound>,
        holder: &dyn KeyHolder,
        mut rng: &mut dyn CryptoRng,
    ) -> Result<Answer<SeededSlots>, ProtocolError> {
        let shape = query.shape()?;
        let opened: Vec<_> = query.bits.into_par_iter().map(|bits| holder.open(bits)).collect();
        let bits = |slot: usize| opened.get(slot / DEGREE).and_then(|bits| bits.get(slot % DEGREE)).copied();
        let mut work: Vec<((Part, usize), StdRng)> = Vec::new();
        for part in shape.parts() {
            let vectors = 0..shape.units.folded().vectors();
            work.extend(vectors.map(|vector| ((part, vector), StdRng::from_rng(&mut rng))));
        }
        let seal = |((part, vector), mut rng): ((Part, usize), StdRng)| {
            let product = |slot: usize| {
                let (high, low) = shape.pair(slot);
                let (high, low) = (bits(high).unwrap_or_default(), low.and_then(bits).unwrap_or_default());
                match part {
                    Part::LessHigh => high & 1,
                    Part::EqualHigh => high >> 1 & 1,
                    Part::LessLow => low & 1,
                    Part::EqualHighLessLow => high >> 1 & low & 1,
                    Part::EqualLow => low >> 1 & 1,
                    Part::EqualBoth => (high & low) >> 1 & 1,
                }
            };
            holder.seal(&Zeroizing::new(shape.slots(vector).map(product).collect::<Vec<_>>()), &mut rng)
        };
        Ok(Answer { parts: work.into_par_iter().map(seal).collect() })
    }
}

/// Digits to fold, and what is wanted of them.
struct Folding {
    orders: Orders,
    wanted: u32,
}

/// A number that follows from the flips of a pair of digits.
type OfFlips<'a> = dyn Fn(u8, Option<u8>) -> i64 + 'a;

/// What P1 remembers: its flips, two bits a slot.
pub struct Asked {
    flips: Vec<u8>,
    shape: Shape,
}

/// P1 flips bits at random.
fn ask(folding: Folding, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Folding { orders: Orders { units, less, equal }, wanted } = folding;
    let [used, digits] = [units.used, units.digits].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let shape = Shape::checked(used, digits, wanted).map_err(ProtocolError::Misuse)?;
    let mut flips = vec![0; units.vectors() * DEGREE];
    asker.rng.fill_bytes(&mut flips);
    flips.iter_mut().for_each(|flip| *flip &= 3);
    let work: Vec<(usize, &[u8], Asker<'_>)> =
        flips.chunks_exact(DEGREE).enumerate().map(|(vector, flips)| (vector, flips, asker.fork())).collect();
    let send = |(vector, flips, mut asker): (usize, &[u8], Asker<'_>)| {
        let mut sum = None;
        for (at, bits) in [&less, &equal].into_iter().enumerate() {
            let Some(bits) = bits.get(vector) else { continue };
            let sign = |flip: &u8| plain::from_signed(if flip >> at & 1 == 1 { -(1 << at) } else { 1 << at });
            let part = bits.times(&Factor::new(&flips.iter().map(sign).collect::<Vec<_>>()));
            match &mut sum {
                None => sum = Some(part),
                Some(sum) => Slots::add(sum, &part),
            }
        }
        let sum = sum.ok_or_else(|| ProtocolError::Misuse("there are no digits to fold".to_owned()))?;
        let blind: Vec<u64> = flips.iter().map(|flip| u64::from(*flip)).collect();
        Ok(asker.send(&sum, &blind)?)
    };
    let bits = work.into_par_iter().map(send).collect::<Result<_, ProtocolError>>()?;
    Ok((Asked { flips, shape }, Query { bits, used, digits, wanted }))
}

/// P1 undoes the flips.
fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Orders, ProtocolError> {
    let Asked { flips, shape } = asked;
    let (parts, units) = (shape.parts(), shape.units.folded());
    let (found, expected) = (answer.parts.len(), parts.len() * units.vectors());
    if found != expected {
        return Err(ProtocolError::Malformed(format!("{found} products of digits instead of {expected}")));
    }
    let flips_of = |vector: usize| -> Vec<[Option<u8>; 2]> {
        let pair = |slot| shape.pair(slot);
        let flip = |slot: usize| flips.get(slot).copied();
        shape.slots(vector).map(pair).map(|(high, low)| [flip(high), low.and_then(flip)]).collect()
    };
    // `x_h y_l` of bits that are flipped by `f` and `g`: `f g + g (1 - 2 f) x' + f (1 - 2 g) y' + (1 - 2 f)(1 - 2 g) x'y'`.
    let sum = |vector: usize, flips: &[[Option<u8>; 2]], of: &[(Part, &OfFlips<'_>)], clear: &OfFlips<'_>| {
        let values = |number: &OfFlips<'_>| -> Vec<u64> {
            flips.iter().map(|[high, low]| plain::from_signed(number(high.unwrap_or_default(), *low))).collect()
        };
        let factors: Vec<Factor> = of.iter().map(|(_, number)| Factor::new(&values(number))).collect();
        let replies = of.iter().filter_map(|(part, _)| {
            let at = parts.iter().position(|other| other == part)?;
            answer.parts.get(at * units.vectors() + vector)
        });
        let mut sum = Slots::dot(replies.zip(&factors)).ok_or(ProtocolError::Cancelled)?;
        sum.add_clear(&Offset::new(&values(clear)));
        Ok::<_, ProtocolError>(sum)
    };
    let bit = |flips: u8, at: u8| i64::from(flips >> at & 1);
    let sign = |flips: u8, at: u8| 1 - 2 * bit(flips, at);
    let less_of = |vector: usize, flips: &[[Option<u8>; 2]]| {
        sum(
            vector,
            flips,
            &[
                (Part::LessHigh, &|high, _| sign(high, 0)),
                (Part::EqualHigh, &|high, low| low.map_or(0, |low| bit(low, 0) * sign(high, 1))),
                (Part::LessLow, &|high, low| low.map_or(0, |low| bit(high, 1) * sign(low, 0))),
                (Part::EqualHighLessLow, &|high, low| low.map_or(0, |low| sign(high, 1) * sign(low, 0))),
            ],
            &|high, low| bit(high, 0) + low.map_or(0, |low| bit(high, 1) * bit(low, 0)),
        )
    };
    let equal_of = |vector: usize, flips: &[[Option<u8>; 2]]| {
        sum(
            vector,
            flips,
            &[
                (Part::EqualHigh, &|high, low| low.map_or(sign(high, 1), |low| bit(low, 1) * sign(high, 1))),
                (Part::EqualLow, &|high, low| low.map_or(0, |low| bit(high, 1) * sign(low, 1))),
                (Part::EqualBoth, &|high, low| low.map_or(0, |low| sign(high, 1) * sign(low, 1))),
            ],
            &|high, low| bit(high, 1) * low.map_or(1, |low| bit(low, 1)),
        )
    };
    let of_vector = |vector: usize| {
        let flips = flips_of(vector);
        let (less, equal) = rayon::join(
            || (shape.wanted & LESS != 0).then(|| less_of(vector, &flips)).transpose(),
            || (shape.wanted & EQUAL != 0).then(|| equal_of(vector, &flips)).transpose(),
        );
        Ok((less?, equal?))
    };
    let folded = (0..units.vectors()).into_par_iter().map(of_vector).collect::<Result<Vec<_>, ProtocolError>>()?;
    let (less, equal): (Vec<_>, Vec<_>) = folded.into_iter().unzip();
    Ok(Orders { units, less: less.into_iter().flatten().collect(), equal: equal.into_iter().flatten().collect() })
}

/// Folds until one digit is left: `lt` if there is one, else `eq`. All have as many digits.
pub(crate) async fn few_fold(session: &Session, mut all: Vec<Orders>) -> Result<Vec<Orders>, ProtocolError> {
    while let Some(Orders { units, less, .. }) = all.first().filter(|orders| orders.units.digits > 1) {
        let wanted = match (less.is_empty(), units.digits) {
            (true, _) => EQUAL,
            (false, 2) => LESS,
            (false, _) => LESS | EQUAL,
        };
        let weight = units.vectors().max(6 * units.folded().vectors());
        let foldings = all.into_iter().map(|orders| Folding { orders, wanted }).collect();
        all = session.round::<FewFold, _, _, _>(foldings, weight, ask, finish).await?;
    }
    Ok(all)
}
