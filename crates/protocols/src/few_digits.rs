//! The digits of few numbers, each in a slot of its own.
//!
//! ```text
//!  P1: rho uniform              x + rho, f  -->  w
//!                                           <--  [digit < v] of the low f bits of w and of w',  v = 1, 2, 3;   w_hi,  w'_hi          P2
//!  P1: of w' where rho is large, else of w:  lt and eq of every digit, and w_hi - rho_hi, with rho less 2^(f-1) to round to the nearest
//!
//!  zero tests
//!  P1: rho uniform              x + rho     -->  w
//!                                           <--  [digit < v] of w                                                                    P2
//!  P1: eq of every digit
//! ```
//! `w'` is `w + t` where `w` is below a bound, else `w`. With `x` up to `X`, a mask below `t - X` does not wrap.
//!
//! * If `X` is `t / 2`, a larger mask wraps exactly where `w <= t / 2`: one bound, and P1 takes `w'` where `rho > t / 2`.
//! * If `X` is up to `2 t / 3`, masks from `t - X` to `X` wrap exactly where `w < t - X`, and those from `X` on where `w < X`: two bounds, so that P1
//!   chooses among three numbers.
//!
//! What P2 opens is uniform.

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{
    DEGREE, Factor, Fresh, Inbound, KeyHolder, L1, Offset, Outbound, PLAIN_MODULUS, SeededSlots, Slots, plain,
};
use zeroize::Zeroizing;

use crate::few::{Orders, Units};
use crate::less_than::BITS;
use crate::message::message;
use crate::truncate::{Dividend, Rounding};
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct FewDigits;

/// Bits of a digit.
const DIGIT_BITS: u32 = 2;

/// Bounds of a thermometer: from one to the largest digit.
const BOUNDS: u64 = (1 << DIGIT_BITS) - 1;

/// The largest dividend that is not wide: `t / 2`, rounded down.
pub(crate) const HALF: u64 = PLAIN_MODULUS / 2;

/// The largest wide dividend.
pub(crate) const WIDE: u64 = (1 << 47) + (1 << 42);

message! {
    /// The masked numbers.
    Query<C: Outbound => Inbound> {
        /// `x + rho`.
        masked: C,
        /// How many slots hold a number, from the first.
        used: u32,
        /// `f`: the bits that a quotient drops; all of them for a zero test.
        shift: u32,
        /// One if dividends are wide, else zero.
        wide: u32,
    }
}

message! {
    /// Their digits.
    Answer<C: SeededSlots => Fresh> {
        /// For `w` and every `w'`, for every `v`, the vectors of all digits.
        digits: Vec<C>,
        /// `w_hi` and every `w'_hi`; nothing for a zero test.
        high: Vec<C>,
    }
}

/// What is asked about numbers.
#[derive(Clone, Copy, Debug)]
struct Shape {
    units: Units,
    shift: u32,
    wide: bool,
}

impl Shape {
    /// Of numbers from outside. Says what is wrong with them.
    fn checked(used: u32, shift: u32, wide: u32) -> Result<Self, String> {
        if !(1..=BITS).contains(&shift) || wide > u32::from(shift < BITS) {
            return Err(format!("no digits of {shift} bits of {BITS}, wide or not ({wide})"));
        }
        Ok(Self { units: Units::checked(used, shift.div_ceil(DIGIT_BITS))?, shift, wide: wide == 1 })
    }

    fn is_test(self) -> bool {
        self.shift == BITS
    }

    /// For each `w'`, the bound of what `t` is added to.
    fn bounds(self) -> &'static [u64] {
        match (self.is_test(), self.wide) {
            (true, _) => &[],
            (false, false) => &[HALF + 1],
            (false, true) => &[PLAIN_MODULUS - WIDE, WIDE],
        }
    }

    /// Which number P1 takes behind a mask.
    fn set(self, mask: u64) -> usize {
        self.bounds().iter().filter(|bound| mask >= **bound).count()
    }

    /// Numbers whose digits are shown.
    fn sets(self) -> usize {
        1 + self.bounds().len()
    }

    /// Ciphertexts of quotients.
    fn highs(self) -> usize {
        if self.is_test() { 0 } else { self.sets() }
    }

    /// Ciphertexts of digits.
    fn ciphertexts(self) -> usize {
        self.sets() * BOUNDS as usize * self.units.vectors()
    }

    /// The digit in a slot, counted through the vectors.
    fn digit(self, numbers: &[u64], slot: usize) -> Option<u64> {
        let (place, number) = (slot / self.units.used, slot % self.units.used);
        let from_lowest = self.units.digits.checked_sub(place + 1)? as u32;
        numbers.get(number).map(|number| low(*number, self.shift) >> (DIGIT_BITS * from_lowest) & BOUNDS)
    }
}

fn low(number: u64, bits: u32) -> u64 {
    number & ((1 << bits) - 1)
}

impl Query<Inbound> {
    fn shape(&self) -> Result<Shape, ProtocolError> {
        Shape::checked(self.used, self.shift, self.wide).map_err(ProtocolError::Malformed)
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        self.shape().map(|shape| shape.ciphertexts() + shape.highs())
    }
}

impl Protocol for FewDigits {
    const NAME: &'static str = "few_digits";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "the digits of few numbers, side by side";
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
        let mut w = holder.open(query.masked);
        w.truncate(shape.units.used);
        let lifted = |bound: &u64| {
            Zeroizing::new(w.iter().map(|w| w + PLAIN_MODULUS * u64::from(w < bound)).collect::<Vec<_>>())
        };
        let lifted: Vec<_> = shape.bounds().iter().map(lifted).collect();
        let sets: Vec<_> = std::iter::once(w).chain(lifted).collect();
        let mut work: Vec<((usize, u64, usize), StdRng)> = Vec::with_capacity(shape.ciphertexts());
        for set in 0..sets.len() {
            for bound in 1..=BOUNDS {
                let vectors = (0..shape.units.vectors()).map(|vector| (set, bound, vector));
                work.extend(vectors.map(|at| (at, StdRng::from_rng(&mut rng))));
            }
        }
        let seal = |((set, bound, vector), mut rng): ((usize, u64, usize), StdRng)| {
            let below = |slot| shape.digit(&sets[set], slot).is_some_and(|digit| digit < bound);
            let bits =
                (vector * DEGREE..shape.units.slots().min((vector + 1) * DEGREE)).map(|slot| u64::from(below(slot)));
            holder.seal(&Zeroizing::new(bits.collect::<Vec<_>>()), &mut rng)
        };
        let digits = work.into_par_iter().map(seal).collect();
        let quotients =
            |w: &Zeroizing<Vec<u64>>| Zeroizing::new(w.iter().map(|w| w >> shape.shift).collect::<Vec<_>>());
        let high = sets.iter().take(shape.highs()).map(|w| holder.seal(&quotients(w), rng)).collect();
        Ok(Answer { digits, high })
    }
}

/// Numbers to divide or to test.
#[derive(Clone, Debug)]
pub struct Number {
    slots: Slots<L1>,
    used: usize,
    shift: u32,
    /// Added before the division.
    half: u64,
    /// Whether dividends may be above `t / 2`, up to 2^47 + 2^42.
    wide: bool,
}

impl Number {
    /// To be divided.
    pub(crate) fn quotient(used: usize, wide: bool, dividend: Dividend) -> Self {
        let Dividend { slots, shift, rounding } = dividend;
        // All bits are those of a test.
        let shift = if shift < BITS { shift } else { 0 };
        let half = if rounding == Rounding::Nearest { (1 << shift) >> 1 } else { 0 };
        Self { slots, used, shift, half, wide }
    }

    /// To be compared with zero.
    pub(crate) fn test(used: usize, slots: Slots<L1>) -> Self {
        Self { slots, used, shift: BITS, half: 0, wide: false }
    }
}

/// What P1 remembers.
pub struct Asked {
    /// Of every number `rho`, less what is added before the division.
    mask: Vec<i64>,
    /// Of every number, which of those that P2 shows P1 takes.
    sets: Vec<usize>,
    shape: Shape,
}

/// P1 masks every slot.
pub fn ask(number: Number, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Number { slots, used, shift, half, wide } = number;
    let (used, wide) = (u32::try_from(used).unwrap_or(u32::MAX), u32::from(wide));
    let shape = Shape::checked(used, shift, wide).map_err(ProtocolError::Misuse)?;
    let mask = plain::uniform_vec(DEGREE, &mut asker.rng);
    let masked = asker.send(&slots, &mask)?;
    let own = || mask.iter().take(shape.units.used);
    let sets = own().map(|mask| shape.set(*mask)).collect();
    let mask = own().map(|mask| *mask as i64 - half as i64).collect();
    Ok((Asked { mask, sets, shape }, Query { masked, used, shift, wide }))
}

/// P1 picks from the digits: the quotient but for a borrow, and how the digits compare.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<(Option<Slots<L1>>, Orders), ProtocolError> {
    let Asked { mask, sets: set_of, shape } = asked;
    let (found, highs, sets) = (answer.digits.len(), answer.high.len(), shape.sets());
    if found != shape.ciphertexts() || highs != shape.highs() {
        return Err(ProtocolError::Malformed(format!("{found} digits and {highs} quotients")));
    }
    // The low bits of a number that may be negative are those of its complement.
    let low_mask: Vec<u64> = mask.iter().map(|mask| *mask as u64).collect();
    let vectors = shape.units.vectors();
    let of_vector = |vector: usize| {
        let slots = vector * DEGREE..shape.units.slots().min((vector + 1) * DEGREE);
        let own: Vec<(usize, u64)> = slots
            .map(|slot| (set_of[slot % shape.units.used], shape.digit(&low_mask, slot).unwrap_or_default()))
            .collect();
        let (mut of_less, mut of_equal, mut replies) = (Vec::new(), Vec::new(), Vec::new());
        for set in 0..sets {
            for bound in 1..=BOUNDS {
                replies.extend(answer.digits.get((set * BOUNDS as usize + bound as usize - 1) * vectors + vector));
                // lt is the bit at the own digit, and eq the next one minus it.
                let less = |(of, digit): &(usize, u64)| u64::from(*of == set && *digit == bound);
                let equal = |(of, digit): &(usize, u64)| match *of == set {
                    true if *digit == bound => plain::neg(1),
                    true if *digit + 1 == bound => 1,
                    _ => 0,
                };
                of_less.push(own.iter().map(less).collect::<Vec<_>>());
                of_equal.push(own.iter().map(equal).collect::<Vec<_>>());
            }
        }
        let dot = |factors: Vec<Vec<u64>>| {
            let factors: Vec<Factor> = factors.par_iter().map(|factor| Factor::new(factor)).collect();
            Slots::dot(replies.iter().copied().zip(&factors)).ok_or(ProtocolError::Cancelled)
        };
        let less = if shape.is_test() { None } else { Some(dot(of_less)?) };
        let mut equal = dot(of_equal)?;
        let largest: Vec<u64> = own.iter().map(|(_, digit)| u64::from(*digit == BOUNDS)).collect();
        equal.add_clear(&Offset::new(&largest));
        Ok((less, equal))
    };
    let picked: Vec<_> = (0..vectors).into_par_iter().map(of_vector).collect::<Result<_, ProtocolError>>()?;
    let (less, equal): (Vec<_>, Vec<_>) = picked.into_iter().unzip();
    let orders = Orders { units: shape.units, less: less.into_iter().flatten().collect(), equal };
    let takes = |set: usize| Factor::new(&set_of.iter().map(|of| u64::from(*of == set)).collect::<Vec<_>>());
    let factors: Vec<Factor> = (0..shape.highs()).map(takes).collect();
    let quotient = Slots::dot(answer.high.iter().zip(&factors)).map(|mut quotient| {
        quotient.sub_clear(&Offset::new(
            &mask.iter().map(|mask| plain::from_signed(mask >> shape.shift)).collect::<Vec<_>>(),
        ));
        quotient
    });
    Ok((quotient, orders))
}

/// One round for many vectors.
pub(crate) async fn few_digits(
    session: &Session,
    numbers: Vec<Number>,
) -> Result<Vec<(Option<Slots<L1>>, Orders)>, ProtocolError> {
    let weight = |number: &Number| {
        Some(Shape::checked(u32::try_from(number.used).ok()?, number.shift, number.wide.into()).ok()?.ciphertexts())
    };
    let weight = numbers.first().and_then(weight).unwrap_or(1);
    session.round::<FewDigits, _, _, _>(numbers, weight, ask, finish).await
}
