//! `f(x)` for `x` in a range `a .. a + m`: as [`lookup`](crate::lookup), with one ciphertext up.
//!
//! ```text
//!  P1: rho uniform below t - m            x - a + rho, m, which residues  -->  w, without wrapping
//!                                                                         <--  [w mod m = p]  for these p          P2
//!  P1: f(x) = sum_p [..] f(a + (p - rho mod m))
//! ```
//! `w` is within `m / t`, at most `2^-38`, of uniform. Up to sixteen residues are asked for in a row; the rows of one question share
//! `rho` modulo `m`, and draw the rest of it anew.

use rand::CryptoRng;
use veil_slots::{DEGREE, Fresh, Inbound, KeyHolder, L1, Outbound, PLAIN_MODULUS, SeededSlots, Slots, plain};

use crate::lookup::{GROUP, Group, MAX_DOMAIN};
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Workload};

/// The protocol.
#[derive(Debug)]
pub struct LookupRange;

message! {
    /// The masked vector.
    Query<C: Outbound => Inbound> {
        /// `x - a + rho`.
        masked: C,
        /// `m`.
        modulus: u32,
        /// The first residue that is asked for.
        first: u32,
        /// How many are.
        count: u32,
    }
}

message! {
    /// Which residue it is.
    Answer<C: SeededSlots => Fresh> {
        /// One ciphertext of bits a residue.
        hits: Vec<C>,
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let Self { modulus, first, count, .. } = *self;
        if !(1..=MAX_DOMAIN as u32).contains(&modulus) || first.saturating_add(count) > modulus {
            return Err(ProtocolError::Malformed(format!("no {count} residues from {first} modulo {modulus}")));
        }
        match count as usize {
            count @ ..=GROUP => Ok(count),
            found => Err(ProtocolError::TooLarge { what: "a group of candidates", found, limit: GROUP }),
        }
    }
}

impl Protocol for LookupRange {
    const NAME: &'static str = "lookup_range";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "a function over a small public range";
    const LEAKAGE: Leakage = Leakage { p1: "nothing", p2: "nothing: values are masked to within 2^-38 of uniform" };
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
        let modulus = u64::from(query.modulus.max(1));
        let residues: Vec<u64> = holder.open(query.masked).iter().map(|w| w % modulus).collect();
        let hits = (u64::from(query.first)..).take(query.count as usize).map(|residue| {
            holder.seal(&residues.iter().map(|found| u64::from(*found == residue)).collect::<Vec<_>>(), rng)
        });
        Ok(Answer { hits: hits.collect() })
    }
}

/// P1 masks. The group's first candidate in a slot says what `rho` is modulo `m` there; the rest of it is drawn for each group.
pub fn ask(group: Group, asker: &mut Asker<'_>) -> Result<(Group, Query<Outbound>), ProtocolError> {
    let size = group.question.domain.len() as u64;
    let lowest = group.question.domain.first().copied().unwrap_or_default();
    let multiples = (PLAIN_MODULUS - size) / size;
    let first = group.places.first().map(Vec::as_slice).unwrap_or_default();
    let mask = first.iter().map(|place| {
        // Residue p stands for place p - rho, so rho = first - place modulo m.
        let rho = (group.first as u64 + size - u64::from(*place)) % size;
        plain::sub(rho + size * plain::uniform_below(multiples, &mut asker.rng), lowest)
    });
    let mask: Vec<u64> = mask.collect();
    debug_assert_eq!(mask.len(), DEGREE);
    let query = Query {
        masked: asker.send(&group.question.slots, &mask)?,
        modulus: size as u32,
        first: group.first as u32,
        count: group.places.len() as u32,
    };
    Ok((group, query))
}

/// P1 sums what the group contributes to each table.
pub fn finish(group: Group, answer: Answer<Fresh>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    group.contributions(&answer.hits)
}
