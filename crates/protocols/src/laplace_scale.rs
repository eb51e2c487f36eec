//! The distance between a column's encrypted bounds, in slots: the scale of its Laplace noise.
//!
//! ```text
//!  P1:                     samples of lower and upper, width  -->  D = upper - lower
//!                                                             <--  D mod 2^16 in every slot,  D >> 16 in every slot          P2
//! ```
//! Once a column and session, for [`add_laplace`](crate::add_laplace). A column of up to 16 bits has one limb, a wider one two. The
//! bounds are not masked: P2 needs `D` in the clear to fill the gaps between noise steps.

use rand::CryptoRng;
use veil_cells::{Cell, CellError, ColumnConstants, KeyId, message_of_phase};
use veil_slots::{DEGREE, Fresh, KeyHolder, L0, Sample, SeededSlots, Slots};

use crate::lift::MAX_WIDTH;
use crate::message::message;
use crate::{Leakage, Opens, Protocol, ProtocolError, Session, Workload, samples};

/// The protocol.
#[derive(Debug)]
pub struct LaplaceScale;

/// Bits of a limb.
pub(crate) const LIMB_BITS: u32 = 16;

message! {
    /// The bounds of a column.
    Query {
        /// The seeds, 16 bytes each.
        seeds: Vec<u8>,
        /// For each of the two samples the number of its seed and its index, `u16` each.
        places: Vec<u8>,
        /// The bodies of lower and upper.
        bodies: Vec<u64>,
        /// The column's bits: `D` is below `2^width`.
        width: u32,
    }
}

message! {
    /// Their distance.
    Answer<C: SeededSlots => Fresh> {
        /// One ciphertext a limb, lowest first, with the limb in every slot.
        limbs: Vec<C>,
    }
}

/// The bits of each limb, lowest first.
pub(crate) fn limb_bits(width: u32) -> impl Iterator<Item = u32> {
    (0..width).step_by(LIMB_BITS as usize).map(move |below| LIMB_BITS.min(width - below))
}

/// How many limbs a width has, if there is such a width.
pub(crate) fn limb_count(width: u32) -> Result<usize, ProtocolError> {
    match width {
        1..=MAX_WIDTH => Ok(limb_bits(width).count()),
        _ => Err(ProtocolError::Malformed(format!("bounds of {width} bits"))),
    }
}

/// P2: `upper - lower`. What is wrong with wrong bounds is not said, as the answer would depend on them.
pub(crate) fn distance(samples: &[Sample], width: u32, holder: &dyn KeyHolder) -> Result<u64, ProtocolError> {
    let phases = holder.open_samples(samples);
    let distance = match phases.as_slice() {
        [lower, upper] => message_of_phase(*upper) - message_of_phase(*lower),
        other => return Err(ProtocolError::Malformed(format!("{} bounds of a column", other.len()))),
    };
    u64::try_from(distance).ok().filter(|distance| distance >> width == 0).ok_or_else(|| {
        ProtocolError::Malformed(format!("the column's bounds are not a lower and an upper one of {width} bits"))
    })
}

impl Workload for Query {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        samples::check(&self.seeds, &self.places, &self.bodies)?;
        limb_count(self.width)
    }
}

impl Protocol for LaplaceScale {
    const NAME: &'static str = "laplace_scale";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "the distance between a column's encrypted bounds, in every slot";
    const LEAKAGE: Leakage = Leakage { p1: "nothing", p2: "the column's bounds" };
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query;
    type Received = Query;
    type Answer = Answer<SeededSlots>;
    type Reply = Answer<Fresh>;

    fn answer(
        query: Query,
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
    ) -> Result<Answer<SeededSlots>, ProtocolError> {
        let limbs = limb_count(query.width)?;
        let bounds = samples::decode(&query.seeds, &query.places, &query.bodies)?;
        let distance = distance(&bounds, query.width, holder)?;
        let limb = |limb: usize| distance >> (LIMB_BITS as usize * limb) & ((1 << LIMB_BITS) - 1);
        Ok(Answer { limbs: (0..limbs).map(|at| holder.seal(&[limb(at); DEGREE], rng)).collect() })
    }
}

/// `upper - lower` of a column, which P1 cannot read.
#[derive(Clone, Debug)]
pub struct EncryptedScale {
    /// Lowest first.
    pub(crate) limbs: Vec<Slots<L0>>,
    /// Lower and upper.
    pub(crate) bounds: [Sample; 2],
    pub(crate) width: u32,
}

impl EncryptedScale {
    /// The column's bits.
    pub fn width(&self) -> u32 {
        self.width
    }
}

/// The sample of a fresh constant.
pub(crate) fn sample_of(cell: &Cell, key_id: KeyId) -> Result<Sample, ProtocolError> {
    if cell.key_id() != key_id {
        return Err(CellError::WrongKey { expected: key_id, found: cell.key_id() }.into());
    }
    match (cell.terms(), cell.bodies()) {
        ([term], [body]) if term.coefficient == 1 => Ok(Sample { seed: term.seed, index: term.index, body: *body }),
        _ => Err(ProtocolError::Misuse("the column's bounds are not as they were encrypted".to_owned())),
    }
}

/// One round: the scale of a column of so many bits.
pub async fn scale(
    session: &Session,
    constants: &ColumnConstants,
    width: u32,
) -> Result<EncryptedScale, ProtocolError> {
    let expected = limb_count(width).map_err(|error| ProtocolError::Misuse(error.to_string()))?;
    let key_id = session.key_id();
    let bounds = [sample_of(&constants.lower, key_id)?, sample_of(&constants.upper, key_id)?];
    let ask = move |bounds: [Sample; 2], _: &mut crate::Asker<'_>| {
        let (seeds, places, bodies) = samples::encode(&bounds);
        Ok((bounds, Query { seeds, places, bodies, width }))
    };
    let finish = move |bounds, answer: Answer<Fresh>| match answer.limbs.len() == expected {
        true => Ok(EncryptedScale { limbs: answer.limbs.into_iter().map(Slots::from).collect(), bounds, width }),
        false => Err(ProtocolError::Malformed(format!("{} limbs of {expected}", answer.limbs.len()))),
    };
    let mut scales = session.round::<LaplaceScale, _, _, _>(vec![bounds], expected, ask, finish).await?;
    scales.pop().ok_or(ProtocolError::Cancelled)
}

#[cfg(test)]
mod tests {
    use veil_cells::{CellType, ColumnId, Kind, Width, phase_of_message};
    use veil_keys::encrypt_constants;

    use super::*;
    use crate::testing::Parties;

    fn constants(parties: &Parties, lower: i64, upper: i64) -> (ColumnConstants, u32) {
        let width = Width::of_range(lower, upper).unwrap();
        let cell_type = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([1; 8]));
        (encrypt_constants(&parties.owner, &cell_type, lower, upper).unwrap(), width.bits())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_slot_holds_the_distance() {
        let parties = Parties::new(32);
        for (lower, upper, limbs) in
            [(7, 7, 1), (-128, 127, 1), (-32768, 32767, 1), (0, 65536, 2), (i32::MIN.into(), i32::MAX.into(), 2)]
        {
            let (constants, width) = constants(&parties, lower, upper);
            let scale = scale(&parties.session, &constants, width).await.unwrap();
            assert_eq!(scale.limbs.len(), limbs);
            let opened: Vec<Vec<u64>> = scale.limbs.iter().map(|limb| parties.open(&limb.raised())).collect();
            let expected = (upper - lower) as u64;
            for slot in 0..DEGREE {
                let distance: u64 = opened.iter().enumerate().map(|(at, limb)| limb[slot] << (16 * at)).sum();
                assert_eq!(distance, expected);
            }
        }
    }

    /// Bounds in the wrong order, or too far apart: one answer for both, and none that shows them.
    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_bounds_are_refused() {
        let parties = Parties::new(33);
        let (good, width) = constants(&parties, -10, 100);
        let swapped = ColumnConstants { lower: good.upper.clone(), upper: good.lower.clone(), ..good.clone() };
        let error = scale(&parties.session, &swapped, width).await.unwrap_err();
        assert!(matches!(&error, ProtocolError::Malformed(why) if why.contains("lower and an upper one")), "{error}");
        let narrow = scale(&parties.session, &good, 6).await.unwrap_err();
        assert_eq!(narrow.to_string(), error.to_string().replace("of 8 bits", "of 6 bits"));
        assert!(matches!(scale(&parties.session, &good, 33).await.unwrap_err(), ProtocolError::Misuse(_)));
        assert!(matches!(scale(&parties.session, &good, 0).await.unwrap_err(), ProtocolError::Misuse(_)));

        let mut scaled = good.clone();
        scaled.upper.scale(2).unwrap();
        let error = scale(&parties.session, &scaled, width).await.unwrap_err();
        assert_eq!(error.to_string(), "the column's bounds are not as they were encrypted");
        let other = Parties::new(34);
        let error = scale(&other.session, &good, width).await.unwrap_err();
        assert!(error.to_string().starts_with("wrong key"), "{error}");
    }

    #[test]
    fn forged_queries_are_refused() {
        let mut parties = Parties::new(35);
        let (constants, width) = constants(&parties, -10, 100);
        let bound = |cell: &Cell| sample_of(cell, parties.owner.key_id()).unwrap();
        let (lower, upper) = (bound(&constants.lower), bound(&constants.upper));
        let query = |bounds: &[Sample], width| {
            let (seeds, places, bodies) = samples::encode(bounds);
            Query { seeds, places, bodies, width }
        };
        let mut answer = |query| LaplaceScale::answer(query, &parties.keys, &mut parties.rng);
        assert_eq!(answer(query(&[lower, upper], width)).unwrap().limbs.len(), 1);
        // The top of the message space does not wrap around.
        let far = |sample: Sample, by: i64| Sample { body: sample.body.wrapping_add(phase_of_message(by)), ..sample };
        for bounds in [
            &[lower][..],
            &[lower, upper, upper],
            &[upper, lower],
            &[lower, far(upper, 1 << 40)],
            &[far(lower, 1 << 46), far(upper, -(1 << 46))],
        ] {
            assert!(matches!(answer(query(bounds, width)), Err(ProtocolError::Malformed(_))));
        }
        for width in [0, 33, u32::MAX] {
            assert!(query(&[lower, upper], width).answer_ciphertexts().is_err());
        }
    }
}
