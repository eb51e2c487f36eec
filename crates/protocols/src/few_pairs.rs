//! Sums of few numbers, in pairs: the first round of [`few_select`](crate::few_select).
//!
//! ```text
//!  P1: rho uniform              x_jl + rho, packed  -->
//!                                                   <--  the sums over l, as contenders lie          P2
//!  P1: minus the sums of rho
//! ```

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{DEGREE, Fresh, Inbound, KeyHolder, L1, Offset, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::block_sums::mask;
use crate::few_pick::Packing;
use crate::few_select::{Field, Ring};
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct FewPairs;

message! {
    /// The masked numbers.
    Query<C: Outbound => Inbound> {
        /// `x + rho`.
        masked: Vec<C>,
        /// How many sums there are.
        centres: u32,
        /// How many numbers each is of.
        columns: u32,
    }
}

message! {
    /// The sums.
    Answer<C: SeededSlots => Fresh> {
        /// In all ranges of a contest that hold numbers.
        sums: Vec<C>,
    }
}

impl Query<Inbound> {
    fn packing(&self) -> Result<Packing, ProtocolError> {
        Packing::checked(self.centres, self.columns, self.masked.len()).map_err(ProtocolError::Malformed)
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        self.packing().map(|packing| Field::of(packing.centres).vectors())
    }
}

impl Protocol for FewPairs {
    const NAME: &'static str = "few_pairs";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "sums of few numbers, in pairs";
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
        let packing = query.packing()?;
        let opened: Vec<_> = query.masked.into_par_iter().map(|masked| holder.open(masked)).collect();
        let sums = paired(packing, &opened);
        let work: Vec<(&[u64], StdRng)> =
            sums.chunks(DEGREE).map(|vector| (vector, StdRng::from_rng(&mut rng))).collect();
        let seal = |(vector, mut rng): (&[u64], StdRng)| holder.seal(vector, &mut rng);
        Ok(Answer { sums: work.into_par_iter().map(seal).collect() })
    }
}

/// Sums of numbers, in the ranges of a contest. P2 takes them of what it opens, P1 of its masks.
fn paired<V: AsRef<[u64]>>(packing: Packing, vectors: &[V]) -> Zeroizing<Vec<u64>> {
    let mut sums = Zeroizing::new(vec![0; packing.centres]);
    let numbers = vectors.iter().flat_map(|vector| vector.as_ref()).take(packing.numbers());
    for (at, number) in numbers.enumerate() {
        let sum = &mut sums[at / packing.columns];
        *sum = plain::add(*sum, *number);
    }
    let own = |place: usize| sums.get(place).copied().unwrap_or_default();
    Field::of(packing.centres).laid_out(|side, kind, pair| if Field::is_place(kind) { 0 } else { own(2 * pair + side) })
}

/// Packed numbers whose sums are compared.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// Packed: summand `l` of number `j` is in slot `j d + l`.
    pub vectors: Vec<Slots<L1>>,
    /// How many sums there are.
    pub centres: usize,
    /// Summands of each.
    pub columns: usize,
}

/// What P1 remembers: the sums of its masks.
pub struct Asked(Zeroizing<Vec<u64>>);

/// P1 masks every slot.
pub fn ask(numbers: Numbers, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Numbers { vectors, centres, columns } = numbers;
    let [centres, columns] = [centres, columns].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let packing = Packing::checked(centres, columns, vectors.len()).map_err(ProtocolError::Misuse)?;
    let (masked, masks) = mask(vectors, asker)?;
    Ok((Asked(paired(packing, &masks)), Query { masked, centres, columns }))
}

/// P1 takes the masks off.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Ring, ProtocolError> {
    let (found, expected) = (answer.sums.len(), asked.0.len().div_ceil(DEGREE));
    if found != expected {
        return Err(ProtocolError::Malformed(format!("{found} vectors of sums instead of {expected}")));
    }
    let unmask = |(reply, mask): (Fresh, &[u64])| {
        let mut slots = reply.raised();
        slots.sub_clear(&Offset::new(mask));
        slots
    };
    Ok(Ring(answer.sums.into_iter().zip(asked.0.chunks(DEGREE)).map(unmask).collect()))
}

/// The first pairs.
pub async fn few_pairs(session: &Session, numbers: Numbers) -> Result<Ring, ProtocolError> {
    let weight = numbers.vectors.len().max(Field::of(numbers.centres).vectors());
    let made = session.round::<FewPairs, _, _, _>(vec![numbers], weight, ask, finish).await?;
    made.into_iter().next().ok_or(ProtocolError::Cancelled)
}
