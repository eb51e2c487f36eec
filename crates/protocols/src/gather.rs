//! Slots of vectors, taken from public places: where to find them follows from what both parties know.
//!
//! ```text
//!  P1: a uniform                x + a, places  -->  w
//!                                              <--  w[place] for every place                P2
//!  P1: minus a[place]
//! ```
//! Places count through all vectors. What is behind the last of them is zero.

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{DEGREE, Fresh, Inbound, KeyHolder, L0, L1, Offset, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Gather;

message! {
    /// Masked vectors, and what is taken of them.
    Query<C: Outbound => Inbound> {
        /// `x + a`.
        masked: Vec<C>,
        /// Where each slot of the result is found.
        places: Vec<u64>,
    }
}

message! {
    /// The masked slots.
    Answer<C: SeededSlots => Fresh> {
        /// 8192 of them a vector.
        gathered: Vec<C>,
    }
}

/// Refuses places that there are not.
fn check(vectors: usize, places: &[u64]) -> Result<(), String> {
    let slots = (vectors * DEGREE) as u64;
    match places.iter().find(|place| **place >= slots) {
        Some(place) => Err(format!("no place {place} in {vectors} vectors")),
        None if places.is_empty() => Err("no place is asked for".to_owned()),
        None => Ok(()),
    }
}

/// What lies at these places, a vector after the other.
fn taken(values: &[u64], places: &[u64]) -> Vec<Zeroizing<Vec<u64>>> {
    let take = |place: &u64| values.get(*place as usize).copied().unwrap_or_default();
    places.chunks(DEGREE).map(|places| Zeroizing::new(places.iter().map(take).collect())).collect()
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        check(self.masked.len(), &self.places).map_err(ProtocolError::Malformed)?;
        Ok(self.places.len().div_ceil(DEGREE))
    }
}

impl Protocol for Gather {
    const NAME: &'static str = "gather";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "slots of several vectors, from public places";
    const LEAKAGE: Leakage = Leakage { p1: "nothing", p2: "the places, which follow from the sizes of classes" };
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
        query.answer_ciphertexts()?;
        let opened: Vec<_> = query.masked.into_par_iter().map(|masked| holder.open(masked)).collect();
        let mut values = Zeroizing::new(Vec::with_capacity(opened.len() * DEGREE));
        opened.iter().for_each(|opened| values.extend_from_slice(opened));
        let work: Vec<_> =
            taken(&values, &query.places).into_iter().map(|values| (values, StdRng::from_rng(&mut rng))).collect();
        let seal = |(values, mut rng): (Zeroizing<Vec<u64>>, StdRng)| holder.seal(&values, &mut rng);
        Ok(Answer { gathered: work.into_par_iter().map(seal).collect() })
    }
}

/// What is wanted of some vectors.
#[derive(Clone, Debug)]
pub struct Places {
    /// `x`.
    pub vectors: Vec<Slots<L1>>,
    /// Where each slot of the result is found.
    pub places: Vec<u64>,
}

/// What P1 remembers: the masks as they lie then.
pub struct Asked(Vec<Zeroizing<Vec<u64>>>);

/// P1 masks every slot.
pub fn ask(wanted: Places, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Places { vectors, places } = wanted;
    check(vectors.len(), &places).map_err(ProtocolError::Misuse)?;
    let mask = plain::uniform_vec(vectors.len() * DEGREE, &mut asker.rng);
    let send = |(slots, mask): (&Slots<L1>, &[u64])| asker.send(slots, mask);
    let masked = vectors.iter().zip(mask.chunks(DEGREE)).map(send).collect::<Result<_, _>>()?;
    Ok((Asked(taken(&mask, &places)), Query { masked, places }))
}

/// P1 takes the masks off.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let (found, expected) = (answer.gathered.len(), asked.0.len());
    if found != expected {
        return Err(ProtocolError::Malformed(format!("{found} gathered vectors instead of {expected}")));
    }
    let unmask = |(gathered, mask): (Fresh, Zeroizing<Vec<u64>>)| {
        let mut slots: Slots<L0> = gathered.into();
        slots.sub_clear(&Offset::new(&mask));
        slots.raised()
    };
    Ok(answer.gathered.into_iter().zip(asked.0).map(unmask).collect())
}

/// One round for many lists of places.
pub async fn gather(session: &Session, wanted: Vec<Places>) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let weight = |wanted: &Places| wanted.vectors.len().saturating_mul(2).max(wanted.places.len().div_ceil(DEGREE));
    let weight = wanted.iter().map(weight).max().unwrap_or(1);
    session.round::<Gather, _, _, _>(wanted, weight, ask, finish).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn slots_come_from_their_places() {
        let mut parties = Parties::new(660);
        let values: Vec<Vec<u64>> = (0..3).map(|_| parties.numbers()).collect();
        let vectors: Vec<Slots<L1>> = values.iter().map(|values| parties.encrypt(values)).collect();
        let all = values.concat();
        for count in [1usize, 9, 8192, 8193] {
            // Some twice, some never.
            let places: Vec<u64> = (0..count as u64).map(|at| at * 7919 % (2 * DEGREE as u64 + 77)).collect();
            let wanted = Places { vectors: vectors.clone(), places: places.clone() };
            let found = gather(&parties.session, vec![wanted]).await.unwrap().remove(0);
            let found: Vec<u64> = found.iter().flat_map(|slots| parties.open(slots)).collect();
            let (found, behind) = found.split_at(count);
            assert!(found.iter().zip(&places).all(|(found, place)| *found == all[*place as usize]), "{count} places");
            assert!(behind.iter().all(|slot| *slot == 0));
        }
        for places in [vec![], vec![3 * DEGREE as u64]] {
            let wanted = Places { vectors: vectors.clone(), places };
            assert!(matches!(gather(&parties.session, vec![wanted]).await, Err(ProtocolError::Misuse(_))));
        }
    }
}
