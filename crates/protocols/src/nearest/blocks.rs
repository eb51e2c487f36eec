//! Block against block, within a vector, and who won in all blocks.
//!
//! ```text
//!  up:    `arrange`: the lower block of a pair gets the upper one;  `compare_and_select`
//!  down:  `arrange`, three bits at a time: who won, to all blocks that took part
//! ```

use veil_slots::{DEGREE, Factor, Fresh, L1, Offset, Outbound, Slots, plain};

use super::{Comparison, select};
use crate::arrange::{self, Arrange};
use crate::{Asker, ProtocolError, Session};

/// One stage between blocks. The blocks that stand are those whose first bits, one a stage so far, are zero; of these the lower ones,
/// by the next bit, get the smaller numbers, and whether these were their own. All other slots compare zero with zero.
pub(super) async fn between_blocks(
    session: &Session,
    comparison: Comparison,
    bits: u32,
    (stage, bit): (usize, u8),
    vectors: Vec<Slots<L1>>,
) -> Result<(Vec<Slots<L1>>, Vec<Slots<L1>>), ProtocolError> {
    let (upper, lowest) = (1 << bit, usize::from(bit).saturating_sub(stage));
    // The bits of this stage and of all before.
    let gone = 2 * upper - (1 << lowest);
    let ask = move |slots: Slots<L1>, asker: &mut Asker<'_>| {
        let mask = plain::uniform_vec(DEGREE, &mut asker.rng);
        let query = arrange::Query { masked: asker.send(&slots, &mask)?, bits: vec![bit] };
        Ok((mask, query))
    };
    let finish = move |mask: Vec<u64>, answer| finish_pair(&mask, upper, gone, answer);
    let pairs = session.round::<Arrange, _, _, _>(vectors, 2, ask, finish).await?;
    let selected = select(session, comparison, bits, pairs).await?;
    Ok(selected.into_iter().map(|made| (made.min, made.first)).unzip())
}

/// P1 takes the mask off both arrangements, in the slots without any of the bits `gone`; the others become zero.
fn finish_pair(
    mask: &[u64],
    upper: usize,
    gone: usize,
    answer: arrange::Answer<Fresh>,
) -> Result<(Slots<L1>, Slots<L1>), ProtocolError> {
    let [in_place, exchanged] = answer.arranged.as_slice() else {
        let found = answer.arranged.len();
        return Err(ProtocolError::Malformed(format!("{found} arrangements instead of 2")));
    };
    let standing = Factor::new(&(0..DEGREE).map(|slot| u64::from(slot & gone == 0)).collect::<Vec<_>>());
    let unmask = |slots: &Fresh, offset: usize| {
        // The mask has a number for every slot, and the offset stays within a vector.
        let mask = (0..DEGREE).map(|slot| if slot & gone == 0 { mask[slot ^ offset] } else { 0 });
        let mut slots = slots.times(&standing);
        slots.sub_clear(&Offset::new(&mask.collect::<Vec<_>>()));
        slots
    };
    Ok((unmask(in_place, 0), unmask(exchanged, upper)))
}

/// Bits of blocks, to be copied to the blocks that differ from them in some bits of their places.
struct Copies {
    slots: Slots<L1>,
    /// One to three of them.
    bits: Vec<u8>,
    /// In slots with this bit of their place, a copy is one where the other was zero.
    negated: usize,
}

/// What P1 remembers: its mask, and what it asked for.
struct Copied {
    mask: Vec<u64>,
    bits: Vec<u8>,
    negated: usize,
}

/// P1 masks bits.
fn ask_copies(copies: Copies, asker: &mut Asker<'_>) -> Result<(Copied, arrange::Query<Outbound>), ProtocolError> {
    let Copies { slots, bits, negated } = copies;
    let mask = plain::uniform_vec(DEGREE, &mut asker.rng);
    let masked = asker.send(&slots, &mask)?;
    Ok((Copied { mask, bits: bits.clone(), negated }, arrange::Query { masked, bits }))
}

/// P1 takes from every arrangement the slots that came from where all the bits are zero.
fn finish_copies(asked: Copied, answer: arrange::Answer<Fresh>) -> Result<Slots<L1>, ProtocolError> {
    let Copied { mask, bits, negated } = asked;
    let (found, expected) = (answer.arranged.len(), 1 << bits.len());
    if found != expected {
        return Err(ProtocolError::Malformed(format!("{found} arrangements instead of {expected}")));
    }
    let sign = |slot: usize| if slot & negated == 0 { 1 } else { plain::neg(1) };
    let factor = |number: usize| {
        let picked = |slot| usize::from(arrange::number(&bits, slot)) == number;
        Factor::new(&(0..DEGREE).map(|slot| if picked(slot) { sign(slot) } else { 0 }).collect::<Vec<_>>())
    };
    let factors: Vec<Factor> = (0..expected).map(factor).collect();
    let mut copies = Slots::dot(answer.arranged.iter().zip(&factors)).ok_or(ProtocolError::Cancelled)?;
    let moved = bits.iter().fold(0, |moved, bit| moved | 1 << bit);
    // Minus the mask, or one plus the mask. It has a number for every slot.
    let clear = |slot: usize| {
        let mask = mask[slot & !moved];
        if slot & negated == 0 { plain::neg(mask) } else { plain::add(mask, 1) }
    };
    copies.add_clear(&Offset::new(&(0..DEGREE).map(clear).collect::<Vec<_>>()));
    Ok(copies)
}

/// For every stage between blocks, whether a block was on the side that won it: in all blocks that took part, also in those that had
/// lost before, by the result of the block that they lost to.
pub(super) async fn everywhere(
    session: &Session,
    lowest: u8,
    mut won: Vec<Slots<L1>>,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    // A stage is copied by its own bit and all before; its last copy says whether it is the lower side or the upper one that won.
    for first in (0..won.len()).step_by(arrange::MAX_BITS) {
        let end = first + arrange::MAX_BITS;
        let copies = |(stage, slots): (usize, Slots<L1>)| Copies {
            slots,
            bits: (first..end.min(stage + 1)).map(|bit| lowest + bit as u8).collect(),
            negated: if stage < end { 1 << (usize::from(lowest) + stage) } else { 0 },
        };
        let copies = (first..).zip(won.split_off(first)).map(copies).collect();
        won.extend(session.round::<Arrange, _, _, _>(copies, 1 << arrange::MAX_BITS, ask_copies, finish_copies).await?);
    }
    Ok(won)
}
