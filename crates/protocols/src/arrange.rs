//! Slots in another order of the same vector, which P1 picks in secret.
//!
//! ```text
//!  P1: a uniform          y = x + a, up to three bits  -->
//!                                                      <--  y_v[i] = y[i xor v]  for every v of these bits           P2
//!  P1: out[i] = x[i xor v(i)] = sum_v [v(i) = v] y_v[i]  -  a[i xor v(i)]
//! ```
//! `x` itself may be picked slot by slot from several vectors: P1 multiplies and adds on the way to P2. P2 arranges in every way
//! that the bits span, whichever P1 takes, and sees a uniform vector.

use std::fmt;

use rand::CryptoRng;
use veil_slots::{DEGREE, Factor, Fresh, Inbound, KeyHolder, L1, L2, Offset, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Arrange;

/// The most bits of one question.
pub const MAX_BITS: usize = 3;

/// Bits of a place in a vector.
pub(crate) const PLACE_BITS: u8 = DEGREE.ilog2() as u8;

message! {
    /// The masked vector.
    Query<C: Outbound => Inbound> {
        /// `x + a`.
        masked: C,
        /// One to three different bits of a place, a byte each.
        bits: Vec<u8>,
    }
}

message! {
    /// The vector in every arrangement.
    Answer<C: SeededSlots => Fresh> {
        /// In order of numbers from zero, in which bit `r` stands for `bits[r]` of the place: the first one is in place.
        arranged: Vec<C>,
    }
}

/// How many arrangements these bits span.
fn arrangements(bits: &[u8]) -> Result<usize, String> {
    if !(1..=MAX_BITS).contains(&bits.len()) {
        return Err(format!("a vector is arranged by one to three bits, and there are {}", bits.len()));
    }
    for (at, bit) in bits.iter().enumerate() {
        if *bit >= PLACE_BITS {
            return Err(format!("a place has {PLACE_BITS} bits, and none is number {bit}"));
        }
        if bits.iter().take(at).any(|before| before == bit) {
            return Err(format!("a vector is arranged by different bits, and {bit} is there twice"));
        }
    }
    Ok(1 << bits.len())
}

/// How far an arrangement moves: `v`, from its number.
pub(crate) fn offset(bits: &[u8], number: usize) -> usize {
    bits.iter().enumerate().fold(0, |offset, (at, bit)| offset | (number >> at & 1) << bit)
}

/// The number of the arrangement that moves so far.
pub(crate) fn number(bits: &[u8], offset: usize) -> u8 {
    bits.iter().enumerate().fold(0, |number, (at, bit)| number | ((offset >> bit & 1) as u8) << at)
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        arrangements(&self.bits).map_err(ProtocolError::Malformed)
    }
}

impl Protocol for Arrange {
    const NAME: &'static str = "arrange";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "a vector in several public orders, of which P1 picks in secret";
    const LEAKAGE: Leakage = Leakage { p1: "nothing", p2: "the power of two that lists of rows are filled up to" };
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
        let count = query.answer_ciphertexts()?;
        let values = holder.open(query.masked);
        let mut arranged = Zeroizing::new(vec![0; DEGREE]);
        let arrange = |number: usize| {
            let offset = offset(&query.bits, number);
            for (place, value) in arranged.iter_mut().enumerate() {
                *value = values.get(place ^ offset).copied().unwrap_or_default();
            }
            holder.seal(&arranged, rng)
        };
        Ok(Answer { arranged: (0..count).map(arrange).collect() })
    }
}

/// A vector to be made of others.
#[derive(Clone)]
pub struct Picks {
    /// What it is made of.
    pub vectors: Vec<Slots<L1>>,
    /// For every slot, before it moves: which vector it is of.
    pub vector: Vec<u8>,
    /// By which bits of their places slots move.
    pub bits: Vec<u8>,
    /// For every slot, after it moved: the number of its arrangement.
    pub arrangement: Vec<u8>,
}

impl fmt::Debug for Picks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Picks(secret)")
    }
}

impl Picks {
    fn check(&self) -> Result<(), String> {
        let count = arrangements(&self.bits)?;
        let below = |picks: &[u8], bound: usize| {
            picks.len() == DEGREE && picks.iter().all(|number| usize::from(*number) < bound)
        };
        if !below(&self.vector, self.vectors.len()) || !below(&self.arrangement, count) {
            return Err(format!("a pick for each of {DEGREE} slots is needed, among what there is"));
        }
        Ok(())
    }
}

/// What P1 remembers: what it picks, and the mask as it lies then.
pub struct Asked {
    arrangement: Vec<u8>,
    count: usize,
    mask: Vec<u64>,
}

/// One where `number` is picked, zero elsewhere.
fn factor(picks: &[u8], number: usize, buffer: &mut Vec<u64>) -> Factor {
    buffer.clear();
    buffer.extend(picks.iter().map(|picked| u64::from(usize::from(*picked) == number)));
    Factor::new(buffer)
}

/// `x`: the first vector, and where another is picked the difference from it, which saves a product.
fn picked(vectors: &[Slots<L1>], picks: &[u8]) -> Option<Slots<L2>> {
    let (first, others) = vectors.split_first()?;
    let (mut sum, mut buffer) = (first.raised(), Vec::with_capacity(DEGREE));
    for (number, other) in (1..).zip(others) {
        let mut difference = other.clone();
        difference.sub(first);
        sum.add(&difference.times(&factor(picks, number, &mut buffer)));
    }
    Some(sum)
}

/// P1 picks among vectors and masks.
pub fn ask(picks: Picks, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    picks.check().map_err(ProtocolError::Misuse)?;
    let Picks { vectors, vector, bits, arrangement } = picks;
    let x = picked(&vectors, &vector).ok_or(ProtocolError::Cancelled)?;
    let mask = plain::uniform_vec(DEGREE, &mut asker.rng);
    let masked = asker.send(&x, &mask)?;
    let count = 1 << bits.len();
    let offsets: Vec<usize> = (0..count).map(|number| offset(&bits, number)).collect();
    // Every pick was checked to be among the offsets, which stay within a vector.
    let moved = arrangement.iter().enumerate().map(|(place, number)| mask[place ^ offsets[usize::from(*number)]]);
    let mask = moved.collect();
    Ok((Asked { arrangement, count, mask }, Query { masked, bits }))
}

/// P1 picks among arrangements and takes the mask off.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Slots<L1>, ProtocolError> {
    let Asked { arrangement, count, mask } = asked;
    let (found, mut buffer) = (answer.arranged.len(), Vec::with_capacity(DEGREE));
    let factors: Vec<Factor> = (0..count).map(|number| factor(&arrangement, number, &mut buffer)).collect();
    let sum = Slots::dot(answer.arranged.iter().zip(&factors)).filter(|_| found == count);
    let mut sum = sum.ok_or_else(|| ProtocolError::Malformed(format!("{found} arrangements instead of {count}")))?;
    sum.sub_clear(&Offset::new(&mask));
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_slot_comes_from_where_p1_picks_it() {
        let mut parties = Parties::new(60);
        for (bits, vectors) in [(vec![12], 1), (vec![3, 0], 2), (vec![0, 12, 5], 4)] {
            let values: Vec<Vec<u64>> = (0..vectors).map(|_| parties.numbers()).collect();
            let sealed = values.iter().map(|values| parties.encrypt(values)).collect();
            let mut draw = |bound: u8| (0..DEGREE).map(|_| parties.rng.random_range(0..bound)).collect::<Vec<u8>>();
            let (vector, arrangement) = (draw(vectors), draw(1 << bits.len()));
            let expected: Vec<u64> = (0..DEGREE)
                .map(|place| {
                    let from = place ^ offset(&bits, arrangement[place].into());
                    values[usize::from(vector[from])][from]
                })
                .collect();
            let picks = Picks { vectors: sealed, vector, bits, arrangement };
            let made = parties.session.round::<Arrange, _, _, _>(vec![picks], 8, ask, finish).await.unwrap();
            assert_eq!(parties.open(&made[0]), expected);
        }
    }

    /// P1 asks for something else than it should.
    async fn refusal(bits: &[u8]) -> String {
        let mut parties = Parties::new(61);
        let (vectors, bits) = (vec![parties.encrypt(&[1])], bits.to_vec());
        let picks = Picks { vectors, vector: vec![0; DEGREE], bits: vec![0], arrangement: vec![0; DEGREE] };
        let forge = move |picks: Picks, asker: &mut Asker<'_>| {
            let (asked, query) = ask(picks, asker)?;
            Ok((asked, Query { bits: bits.clone(), ..query }))
        };
        let outcome = parties.session.round::<Arrange, _, _, _>(vec![picks], 8, forge, finish).await;
        outcome.unwrap_err().to_string()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn impossible_questions_are_refused() {
        let start = "malformed message: a vector is arranged by";
        assert_eq!(refusal(&[]).await, format!("{start} one to three bits, and there are 0"));
        assert_eq!(refusal(&[0, 1, 2, 3]).await, format!("{start} one to three bits, and there are 4"));
        assert_eq!(refusal(&[4, 5, 4]).await, format!("{start} different bits, and 4 is there twice"));
        assert_eq!(refusal(&[0, 13]).await, "malformed message: a place has 13 bits, and none is number 13");
        // An answer that does not fit the question.
        assert_eq!(refusal(&[0, 1]).await, "malformed message: 4 arrangements instead of 2");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn impossible_picks_are_refused() {
        let mut parties = Parties::new(62);
        let vectors = vec![parties.encrypt(&[1])];
        let picks = Picks { vectors, vector: vec![0; DEGREE], bits: vec![0], arrangement: vec![0; DEGREE] };
        let wrong = [
            Picks { vectors: Vec::new(), ..picks.clone() },
            Picks { vector: vec![1; DEGREE], ..picks.clone() },
            Picks { arrangement: vec![2; DEGREE], ..picks.clone() },
            Picks { arrangement: vec![0; 7], ..picks },
        ];
        for picks in wrong {
            let outcome = parties.session.round::<Arrange, _, _, _>(vec![picks], 8, ask, finish).await;
            let error = outcome.unwrap_err().to_string();
            assert_eq!(error, "a pick for each of 8192 slots is needed, among what there is");
        }
    }
}
