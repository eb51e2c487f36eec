//! The smallest of few numbers, and which it is: a contest of pairs, a round a stage.
//!
//! ```text
//!  ranges of a vector, each as long as there are pairs, of one side and of the other
//!                               | place u | place v |  y  |  u  |  v  |    | place u | place v |  y  |  u  |  v  |
//!  P1: sigma, r, r' as in `compare_and_select`; (u, v) = (A, B) or, where sigma is -1, (B, A); all else uniform
//!                               A's part and B's part of  y = r sigma (2 (A - B) - 1) + r',  u + a,  v + b,  and their places  -->
//!                                            <--  s = [y < 0],  m = u + a or v + b by s,  places alike, both laid out for the next pairs   P2
//!  P1: m - b - s (a - b)
//! ```
//! P2 adds both parts, which alone are uniform. Of places 2 p and 2 p + 1 the lower wins a tie. A last number without a partner passes: it
//! is `u` and `v`, and its `y` is random. For `n` numbers `log2 n` rounds, rounded up, of one ciphertext up and two down for up to 1638 numbers.
//!
//! P2 sees what it sees in [`compare_and_select`](crate::compare_and_select): each difference is compared in one slot, and from many
//! together P2 can work out the numbers.

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{
    DEGREE, Factor, Fresh, Inbound, KeyHolder, L1, Offset, Outbound, PLAIN_MODULUS, SeededSlots, Slots, plain,
};
use zeroize::Zeroizing;

use crate::compare_and_select::Blind;
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct FewSelect;

/// The most numbers.
pub const MAX_NUMBERS: usize = DEGREE;

message! {
    /// The masked pairs.
    Query<C: Outbound => Inbound> {
        /// All ranges.
        ranges: Vec<C>,
        /// How many numbers there are.
        numbers: u32,
    }
}

message! {
    /// Those who won.
    Answer<C: SeededSlots => Fresh> {
        /// The winners in all ranges of the next pairs.
        winners: Vec<C>,
        /// And which of the pair they were.
        signs: Vec<C>,
    }
}

/// Where pairs lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pairs: usize,
}

impl Field {
    /// Kinds of ranges.
    const KINDS: usize = 5;
    const PLACE_U: usize = 0;
    const PLACE_V: usize = 1;
    const Y: usize = 2;
    const U: usize = 3;
    const V: usize = 4;

    /// Of so many numbers.
    pub(crate) fn of(numbers: usize) -> Self {
        Self { pairs: numbers.div_ceil(2).max(1) }
    }

    fn slots(self) -> usize {
        2 * Self::KINDS * self.pairs
    }

    fn slot(self, side: usize, kind: usize, pair: usize) -> usize {
        (side * Self::KINDS + kind) * self.pairs + pair
    }

    /// Vectors of all ranges.
    pub(crate) fn vectors(self) -> usize {
        self.slots().div_ceil(DEGREE)
    }

    /// A number for every side, kind and pair.
    pub(crate) fn laid_out(self, number: impl Fn(usize, usize, usize) -> u64) -> Zeroizing<Vec<u64>> {
        let at = |slot: usize| {
            let (range, pair) = (slot / self.pairs, slot % self.pairs);
            number(range / Self::KINDS, range % Self::KINDS, pair)
        };
        Zeroizing::new((0..self.slots()).map(at).collect())
    }

    /// Whether a range holds places, and not numbers.
    pub(crate) fn is_place(kind: usize) -> bool {
        kind <= Self::PLACE_V
    }

    /// What a range of winners is picked from.
    fn sources(kind: usize) -> (usize, usize) {
        if Self::is_place(kind) { (Self::PLACE_U, Self::PLACE_V) } else { (Self::U, Self::V) }
    }
}

/// Checks numbers from outside.
fn checked(numbers: u32, vectors: usize) -> Result<Field, String> {
    if !(2..=MAX_NUMBERS as u32).contains(&numbers) {
        return Err(format!("the smallest is found of 2 to {MAX_NUMBERS} numbers, not of {numbers}"));
    }
    let field = Field::of(numbers as usize);
    match field.vectors() == vectors {
        true => Ok(field),
        false => Err(format!("{numbers} numbers take {} vectors, and there are {vectors}", field.vectors())),
    }
}

impl Query<Inbound> {
    fn field(&self) -> Result<Field, ProtocolError> {
        checked(self.numbers, self.ranges.len()).map_err(ProtocolError::Malformed)
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        self.field().map(|field| 2 * Field::of(field.pairs).vectors())
    }
}

impl Protocol for FewSelect {
    const NAME: &'static str = "few_select";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "the smaller of each pair of few numbers, and its place";
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
        mut rng: &mut dyn CryptoRng,
    ) -> Result<Answer<SeededSlots>, ProtocolError> {
        let field = query.field()?;
        let opened: Vec<_> = query.ranges.into_par_iter().map(|masked| holder.open(masked)).collect();
        let part = |slot: usize| {
            opened.get(slot / DEGREE).and_then(|vector| vector.get(slot % DEGREE)).copied().unwrap_or_default()
        };
        let at =
            |kind: usize, pair: usize| plain::add(part(field.slot(0, kind, pair)), part(field.slot(1, kind, pair)));
        let won: Zeroizing<Vec<bool>> =
            Zeroizing::new((0..field.pairs).map(|pair| at(Field::Y, pair) > PLAIN_MODULUS / 2).collect());
        let next = Field::of(field.pairs);
        let winners = next.laid_out(|side, kind, place| {
            let (pair, (u, v)) = (2 * place + side, Field::sources(kind));
            won.get(pair).map_or(0, |won| at(if *won { u } else { v }, pair))
        });
        let signs = next.laid_out(|side, _, place| won.get(2 * place + side).copied().map_or(0, u64::from));
        let work: Vec<(&[u64], StdRng)> = winners
            .chunks(DEGREE)
            .chain(signs.chunks(DEGREE))
            .map(|vector| (vector, StdRng::from_rng(&mut rng)))
            .collect();
        let seal = |(vector, mut rng): (&[u64], StdRng)| holder.seal(vector, &mut rng);
        let mut winners: Vec<SeededSlots> = work.into_par_iter().map(seal).collect();
        let signs = winners.split_off(next.vectors());
        Ok(Answer { winners, signs })
    }
}

/// All pairs, in all ranges.
#[derive(Clone, Debug)]
pub struct Ring(pub(crate) Vec<Slots<L1>>);

/// A stage of the contest.
struct Stage {
    ring: Ring,
    numbers: usize,
    /// Numbers differ by less than `2^bits`.
    bits: u32,
}

/// What P1 remembers: its masks.
pub struct Asked {
    mask: Zeroizing<Vec<u64>>,
    field: Field,
}

/// P1 blinds differences and masks all else.
fn ask(stage: Stage, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Stage { ring: Ring(ring), numbers, bits } = stage;
    let numbers = u32::try_from(numbers).unwrap_or(u32::MAX);
    let field = checked(numbers, ring.len()).map_err(ProtocolError::Misuse)?;
    let passes = |pair: usize| 2 * pair + 1 == numbers as usize;
    let blinds = Blind::draw(bits, field.pairs, &mut asker.rng)?;
    let factors = field.laid_out(|side, kind, pair| {
        let (blind, is_first) = (&blinds[pair], side == 0);
        if passes(pair) {
            return u64::from(kind != Field::Y && is_first);
        }
        match kind {
            Field::Y => {
                let doubled = plain::add(blind.multiplier, blind.multiplier);
                if is_first { doubled } else { plain::neg(doubled) }
            }
            Field::U | Field::PLACE_U => u64::from(blind.flipped != is_first),
            _ => u64::from(blind.flipped == is_first),
        }
    });
    let mut mask = Zeroizing::new(plain::uniform_vec(field.vectors() * DEGREE, &mut asker.rng));
    for (pair, blind) in blinds.iter().enumerate().filter(|(pair, _)| !passes(*pair)) {
        // Each part of y is uniform, and their sum is y.
        let first = mask[field.slot(0, Field::Y, pair)];
        mask[field.slot(1, Field::Y, pair)] = plain::sub(plain::sub(blind.addend, blind.multiplier), first);
    }
    let vectors = ring.iter().zip(factors.chunks(DEGREE)).zip(mask.chunks_exact(DEGREE));
    let work: Vec<_> = vectors.map(|((slots, factor), mask)| (slots, factor, mask, asker.fork())).collect();
    let send = |(slots, factor, mask, mut asker): (&Slots<L1>, &[u64], &[u64], Asker<'_>)| {
        Ok(asker.send(&slots.times(&Factor::new(factor)), mask)?)
    };
    let ranges = work.into_par_iter().map(send).collect::<Result<_, ProtocolError>>()?;
    Ok((Asked { mask, field }, Query { ranges, numbers }))
}

/// P1 takes the masks off the winners.
fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Ring, ProtocolError> {
    let Asked { mask, field } = asked;
    let next = Field::of(field.pairs);
    let (found, expected) = ((answer.winners.len(), answer.signs.len()), next.vectors());
    if found != (expected, expected) {
        return Err(ProtocolError::Malformed(format!("{found:?} winners and signs instead of {expected}")));
    }
    // What both parts of a number were masked with.
    let masks = |side: usize, kind: usize, place: usize| {
        let (pair, (u, v)) = (2 * place + side, Field::sources(kind));
        let own = |kind: usize| match pair < field.pairs {
            true => plain::add(mask[field.slot(0, kind, pair)], mask[field.slot(1, kind, pair)]),
            false => 0,
        };
        (own(u), own(v))
    };
    let of_v = next.laid_out(|side, kind, place| masks(side, kind, place).1);
    let of_sign = next.laid_out(|side, kind, place| {
        let (u, v) = masks(side, kind, place);
        plain::sub(v, u)
    });
    let (mut of_v, mut of_sign) = (of_v.chunks(DEGREE), of_sign.chunks(DEGREE));
    let mut unmasked = Vec::with_capacity(expected);
    for (winners, signs) in answer.winners.iter().zip(&answer.signs) {
        let (of_v, of_sign) = (of_v.next().unwrap_or_default(), of_sign.next().unwrap_or_default());
        let (factor, offset) = rayon::join(|| Factor::new(of_sign), || Offset::new(of_v));
        let mut slots = signs.times(&factor);
        slots.add(&winners.raised());
        slots.sub_clear(&offset);
        unmasked.push(slots);
    }
    Ok(Ring(unmasked))
}

/// The place of the smallest number, in the first slot; of equal ones the lowest. The ring is that of [`few_pairs`](crate::few_pairs), of so many
/// numbers. Those that are `out` count as `2^(bits - 1)`; others are below that, either way.
pub async fn few_select(
    session: &Session,
    ring: Ring,
    numbers: usize,
    bits: u32,
    out: impl Fn(usize) -> bool,
) -> Result<Slots<L1>, ProtocolError> {
    let (mut ring, mut left) = (ring, numbers);
    let clear = Field::of(numbers).laid_out(|side, kind, pair| {
        let place = 2 * pair + side;
        match Field::is_place(kind) {
            true => place as u64,
            false => u64::from(place < numbers && out(place)) << (bits - 1),
        }
    });
    ring.0.iter_mut().zip(clear.chunks(DEGREE)).for_each(|(slots, clear)| slots.add_clear(&Offset::new(clear)));
    while left > 1 {
        let weight = 2 * Field::of(left).vectors();
        let stage = Stage { ring, numbers: left, bits };
        let made = session.round::<FewSelect, _, _, _>(vec![stage], weight, ask, finish).await?;
        ring = made.into_iter().next().ok_or(ProtocolError::Cancelled)?;
        left = left.div_ceil(2);
    }
    ring.0.into_iter().next().ok_or(ProtocolError::Cancelled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few_pairs::{Numbers, few_pairs};
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_smallest_is_found_and_the_lowest_wins_a_tie() {
        let mut parties = Parties::new(520);
        for (centres, columns, bound) in [(1, 2, 5), (2, 1, 2), (3, 2, 2), (45, 3, 4), (180, 2, 9), (4000, 1, 900)] {
            let numbers: Vec<u64> =
                (0..centres * columns).map(|_| plain::uniform_below(bound, &mut parties.rng)).collect();
            let sums: Vec<i64> = numbers.chunks(columns).map(|sum| sum.iter().sum::<u64>() as i64).collect();
            let is_out = |place: usize| place % 3 == 2;
            let vectors = numbers.chunks(DEGREE).map(|vector| parties.encrypt(vector)).collect();
            let ring = few_pairs(&parties.session, Numbers { vectors, centres, columns }).await.unwrap();
            let found = few_select(&parties.session, ring, centres, 37, is_out).await.unwrap();
            let live = (0..centres).filter(|place| !is_out(*place));
            let expected = live.min_by_key(|place| (sums[*place], *place)).unwrap();
            assert_eq!(parties.open(&found)[0], expected as u64, "{centres} of {columns}");
        }
    }
}
