//! Equality tags into slots.
//!
//! ```text
//!  P1: rho uniform modulo t     seeds, indices, bodies + rho 2^64/t + u  -->
//!      u in [-2^14, 2^14)                                                <--  tag + rho mod t                        P2
//!  P1: minus rho
//! ```
//! A tag is a number modulo `t` in its lane as it is in a slot, so its mask wraps where the tag does, and P2 sees a uniform number.
//! What lies below a step of the phase (65540 units) is the noise of the cell, at most 8, and what rounding `tag 2^64/t` and
//! `rho 2^64/t` left, which depends on the tag by a unit. The flood `u` hides that to within `2^-15`, and stays far below half a step.
//!
//! The messages are those of [`lift`](crate::lift). Rows that are NULL send a random body in the place of the first cell, and become
//! zero.

use rand::{CryptoRng, RngCore};
use veil_cells::{CellArray, CellError, CellView, KeyId, Seed, phase_of_tag, tag_of_phase};
use veil_slots::{DEGREE, Fresh, KeyHolder, L1, Sample, SeededSlots, Slots, plain};

use crate::channel::blocking;
pub use crate::lift::{Answer, Asked, Query, finish};
use crate::lists::together;
use crate::{Asker, ColumnVectors, Leakage, Opens, Protocol, ProtocolError, Session, samples};

/// The protocol.
#[derive(Debug)]
pub struct LiftTags;

impl Protocol for LiftTags {
    const NAME: &'static str = "lift_tags";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "equality tags of cells into slots";
    const LEAKAGE: Leakage = Leakage {
        p1: "nothing",
        p2: "which samples of a file take part and which rows are NULL; tags are masked uniformly, what is left below them to within 2^-15",
    };
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
        let samples = samples::decode(&query.seeds, &query.places, &query.bodies)?;
        let mut tags = holder.open_samples(&samples);
        tags.iter_mut().for_each(|tag| *tag = tag_of_phase(*tag));
        Ok(Answer { masked: holder.seal(&tags, rng) })
    }
}

/// The tags of a column, parsed once: a table's tags are lifted, or counted, many times.
#[derive(Clone, Debug)]
pub struct TagColumn {
    /// The tag lane's sample of every row; none where there is no cell.
    pub samples: Vec<Option<Sample>>,
}

impl TagColumn {
    /// Reads the tag lanes of fresh cells.
    pub fn read(column: CellArray<'_>, key_id: KeyId) -> Result<Self, ProtocolError> {
        let mut known = None;
        let mut sample = |row: usize| {
            let Some(bytes) = column.bytes(row) else { return Ok(None) };
            let at = |error: CellError| ProtocolError::Misuse(format!("row {row}: {error}"));
            let cell = CellView::parse_next(&mut known, bytes).map_err(at)?;
            if cell.key_id() != key_id {
                return Err(at(CellError::WrongKey { expected: key_id, found: cell.key_id() }));
            }
            tag_sample(&cell).map(Some).map_err(|why| ProtocolError::Misuse(format!("row {row} {why}")))
        };
        Ok(Self { samples: (0..column.len()).map(&mut sample).collect::<Result<_, _>>()? })
    }
}

/// The sample of a cell's tag, or why there is none.
fn tag_sample(cell: &CellView<'_>) -> Result<Sample, &'static str> {
    let lane = cell.lanes().tag_lane();
    let lane =
        lane.ok_or("has no equality tag: declare its column an identifier, and use it before computing with it")?;
    let mut terms = cell.terms();
    match (terms.next(), terms.next(), cell.bodies().nth(lane)) {
        (Some(term), None, Some(body)) if term.coefficient == 1 => {
            Ok(Sample { seed: term.seed, index: term.index + lane as u16, body })
        }
        _ => Err("was computed with: its tag is not that of a value any more"),
    }
}

/// Up to 8192 tags, in the order of their slots.
#[derive(Clone, Debug)]
pub struct Rows {
    /// One sample a slot.
    pub samples: Vec<Sample>,
    /// Which slots have a tag, if not all.
    pub present: Option<Vec<bool>>,
}

impl Rows {
    /// Tags one behind the other; where there is none, the place of the first is borrowed.
    pub fn new(samples: impl IntoIterator<Item = Option<Sample>>) -> Self {
        let samples: Vec<Option<Sample>> = samples.into_iter().collect();
        let spare = samples.iter().flatten().next().copied();
        let spare = spare.unwrap_or(Sample { seed: Seed([0; 16]), index: 0, body: 0 });
        let present = samples.iter().any(Option::is_none).then(|| samples.iter().map(Option::is_some).collect());
        Self { samples: samples.into_iter().map(|sample| sample.unwrap_or(spare)).collect(), present }
    }
}

/// Uniform in `[-2^14, 2^14)`, as a phase: a quarter of a step to either side.
#[inline]
pub(crate) fn flood(rng: &mut impl RngCore) -> u64 {
    (i64::from(rng.next_u32() & 0x7fff) - (1 << 14)) as u64
}

/// P1 masks and floods every body.
pub fn ask(rows: Rows, asker: &mut Asker<'_>) -> Result<(Asked, Query), ProtocolError> {
    let Rows { mut samples, present } = rows;
    if samples.len() > DEGREE || present.as_ref().is_some_and(|present| present.len() != samples.len()) {
        return Err(ProtocolError::Misuse(format!("{} tags cannot be lifted at once", samples.len())));
    }
    if let Some(present) = &present {
        let absent = samples.iter_mut().zip(present).filter(|(_, present)| !**present);
        absent.for_each(|(sample, _)| sample.body = asker.rng.next_u64());
    }
    let mask = plain::uniform_vec(samples.len(), &mut asker.rng);
    for (sample, mask) in samples.iter_mut().zip(&mask) {
        sample.body = sample.body.wrapping_add(phase_of_tag(*mask)).wrapping_add(flood(&mut asker.rng));
    }
    let (seeds, places, bodies) = samples::encode(&samples);
    Ok((Asked { mask, present }, Query { seeds, places, bodies }))
}

/// One round for many chunks of rows.
pub async fn lift_tags(session: &Session, chunks: Vec<Rows>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    session.round::<LiftTags, _, _, _>(chunks, 1, ask, finish).await
}

/// One round for the tags of many columns, whose rows need not be as many.
pub async fn lift_tag_columns(session: &Session, columns: Vec<TagColumn>) -> Result<Vec<ColumnVectors>, ProtocolError> {
    let rows: Vec<usize> = columns.iter().map(|column| column.samples.len()).collect();
    let chunks = |column: TagColumn| -> Vec<Rows> {
        column.samples.chunks(DEGREE).map(|rows| Rows::new(rows.iter().copied())).collect()
    };
    let chunks: Vec<Vec<Rows>> = blocking(move || columns.into_iter().map(chunks).collect()).await?;
    let (chunks, lengths) = together(chunks);
    let lifted = lengths.apart(lift_tags(session, chunks).await?)?;
    rows.into_iter().zip(lifted).map(|(rows, vectors)| ColumnVectors::new(rows, vectors)).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::BinaryArray;
    use arrow::buffer::NullBuffer;
    use veil_cells::{Nulls, add_cells, add_constant};

    use super::*;
    use crate::testing::Parties;

    /// Tags, the extremes among them, in cells of which every `gap`th is missing.
    fn column(parties: &mut Parties, nulls: Nulls, gap: usize) -> (Vec<u64>, BinaryArray) {
        let mut tags = parties.numbers();
        let present = NullBuffer::from_iter((0..tags.len()).map(|row| row % gap != gap - 1));
        let cells = parties.tagged_cells(nulls, &tags, Some(&present));
        tags.iter_mut().skip(gap - 1).step_by(gap).for_each(|tag| *tag = 0);
        (tags, cells)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tags_lift_exactly_and_nulls_become_zero() {
        let mut parties = Parties::new(60);
        let key_id = parties.owner.key_id();
        for (nulls, gap) in [(Nulls::Public, DEGREE + 1), (Nulls::Hidden, 7), (Nulls::Public, 1)] {
            let (tags, cells) = column(&mut parties, nulls, gap);
            let read = TagColumn::read(CellArray::Binary(&cells), key_id).unwrap();
            // The rows as they are; then backwards, and one of them again and again.
            let rows = vec![
                Rows::new(read.samples.iter().copied()),
                Rows::new(read.samples.iter().rev().copied()),
                Rows::new([read.samples[0]; 5]),
            ];
            assert_eq!(rows[0].present.is_some(), gap <= DEGREE);
            let lifted = lift_tags(&parties.session, rows).await.unwrap();
            assert_eq!(parties.open(&lifted[0]), tags);
            assert!(parties.open(&lifted[1]).iter().eq(tags.iter().rev()));
            let again = parties.open(&lifted[2]);
            assert_eq!(again[..5], [tags[0]; 5]);
            assert!(again[5..].iter().all(|slot| *slot == 0));
        }
        assert!(lift_tags(&parties.session, Vec::new()).await.unwrap().is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn cells_without_a_tag_of_their_own_are_refused() {
        let (mut parties, mut other) = (Parties::new(61), Parties::new(62));
        let cells = parties.tagged_cells(Nulls::Public, &[1, 2, 3, 4], None);
        let read = |cells: &BinaryArray, parties: &Parties| {
            let read = TagColumn::read(CellArray::Binary(cells), parties.owner.key_id());
            read.map(|column| column.samples.len()).map_err(|error| error.to_string())
        };
        assert_eq!(read(&cells, &parties), Ok(4));
        let computed = add_constant(CellArray::Binary(&cells), 1).unwrap();
        assert!(read(&computed, &parties).unwrap_err().starts_with("row 0 has no equality tag: "));
        let sum = add_cells(CellArray::Binary(&cells), CellArray::Binary(&cells)).unwrap();
        assert!(read(&sum, &parties).is_err());
        let foreign = other.tagged_cells(Nulls::Public, &[1], None);
        assert!(read(&foreign, &parties).unwrap_err().starts_with("row 0: wrong key"));
        let damaged = BinaryArray::from_iter_values([cells.value(0), &cells.value(1)[1..]]);
        assert!(read(&damaged, &parties).unwrap_err().starts_with("row 1: "));
        let sample = Sample { seed: Seed([0; 16]), index: 0, body: 0 };
        let many = Rows::new(vec![Some(sample); DEGREE + 1]);
        let error = lift_tags(&parties.session, vec![many]).await.unwrap_err();
        assert_eq!(error.to_string(), "8193 tags cannot be lifted at once");
    }
}
