//! Cells into slots.
//!
//! ```text
//!  P1: rho uniform in [0, 2^48 - 2^w)     seeds, indices, bodies + 2^16 (rho + 2^(w-1))  -->
//!                                                                                        <--  x + 2^(w-1) + rho mod t        P2
//!  P1: minus rho + 2^(w-1)
//! ```
//! `w` is the column's declared width, so `x + 2^(w-1)` is in `[0, 2^w)` and nothing wraps. What P2 decrypts is within `2^(w-48)` of
//! uniform: `2^-40` for bytes, `2^-16` for 32-bit numbers. P2 sees the samples' public places, so it sees which rows of a file
//! take part, and which rows are NULL: these send a random body in the place of the first cell, and become zero.
//!
//! Cells that combine several samples or carry a factor go through [`lift_affine`](crate::lift_affine).

use rand::{CryptoRng, RngCore};
use veil_cells::{CellArray, CellView, KeyId, MESSAGE_BITS, NOISE_BITS, phase_of_message};
use veil_slots::{DEGREE, Factor, Fresh, KeyHolder, L1, Offset, PLAIN_MODULUS, Sample, SeededSlots, Slots, plain};

use crate::message::message;
use crate::{Asker, ColumnVectors, Leakage, Opens, Protocol, ProtocolError, Session, Workload, lift_affine, samples};

/// The protocol.
#[derive(Debug)]
pub struct Lift;

/// The widest column.
pub const MAX_WIDTH: u32 = 32;

message! {
    /// Up to 8192 samples with masked bodies.
    Query {
        /// The seeds, 16 bytes each.
        seeds: Vec<u8>,
        /// For every sample the number of its seed and its index, `u16` each.
        places: Vec<u8>,
        /// For every sample its body.
        bodies: Vec<u64>,
    }
}

message! {
    /// The same numbers in slots.
    Answer<C: SeededSlots => Fresh> {
        /// `x + rho`.
        masked: C,
    }
}

impl Workload for Query {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        samples::check(&self.seeds, &self.places, &self.bodies).map(|()| 1)
    }
}

impl Protocol for Lift {
    const NAME: &'static str = "lift";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "cells into slots";
    const LEAKAGE: Leakage = Leakage {
        p1: "nothing",
        p2: "which samples of a file take part and which rows are NULL; values are masked to within 2^(w-48) of uniform",
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
        let mut values = holder.open_samples(&samples);
        for value in values.iter_mut() {
            let message = value.wrapping_add(1 << (NOISE_BITS - 1)) >> NOISE_BITS;
            *value = if message >= PLAIN_MODULUS { message - PLAIN_MODULUS } else { message };
        }
        Ok(Answer { masked: holder.seal(&values, rng) })
    }
}

/// Up to 8192 rows of one lane of a column.
#[derive(Clone, Debug)]
pub struct Rows {
    /// One sample a row.
    pub samples: Vec<Sample>,
    /// Which rows have a value, if not all.
    pub present: Option<Vec<bool>>,
    /// Numbers are in `[-2^(width-1), 2^(width-1))`.
    pub width: u32,
}

/// What P1 remembers: its masks.
pub struct Asked {
    pub(crate) mask: Vec<u64>,
    pub(crate) present: Option<Vec<bool>>,
}

/// P1 masks every body.
pub fn ask(rows: Rows, asker: &mut Asker<'_>) -> Result<(Asked, Query), ProtocolError> {
    let Rows { mut samples, present, width } = rows;
    if !(1..=MAX_WIDTH).contains(&width) || samples.len() > DEGREE {
        return Err(ProtocolError::Misuse(format!(
            "{} numbers of {width} bits cannot be lifted at once",
            samples.len()
        )));
    }
    let mut mask = Vec::with_capacity(samples.len());
    for (row, sample) in samples.iter_mut().enumerate() {
        let shift = plain::uniform_below((1 << MESSAGE_BITS) - (1 << width), &mut asker.rng) + (1 << (width - 1));
        if present.as_ref().is_some_and(|present| !present.get(row).copied().unwrap_or_default()) {
            sample.body = asker.rng.next_u64();
        }
        sample.body = sample.body.wrapping_add(phase_of_message(shift as i64));
        mask.push(if shift >= PLAIN_MODULUS { shift - PLAIN_MODULUS } else { shift });
    }
    let (seeds, places, bodies) = samples::encode(&samples);
    Ok((Asked { mask, present }, Query { seeds, places, bodies }))
}

/// P1 takes the masks off.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Slots<L1>, ProtocolError> {
    let Some(present) = asked.present else {
        let mut slots = answer.masked.raised();
        slots.sub_clear(&Offset::new(&asked.mask));
        return Ok(slots);
    };
    // Zero where there is no value.
    let bits: Vec<u64> = present.iter().map(|present| u64::from(*present)).collect();
    let kept: Vec<u64> = asked.mask.iter().zip(&bits).map(|(mask, bit)| mask * bit).collect();
    let mut slots = answer.masked.times(&Factor::new(&bits));
    slots.sub_clear(&Offset::new(&kept));
    Ok(slots)
}

/// One round for many chunks of rows.
pub async fn lift(session: &Session, chunks: Vec<Rows>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    session.round::<Lift, _, _, _>(chunks, 1, ask, finish).await
}

/// Lifts one lane of an encrypted column, 8192 rows a vector. Rows whose cells are more than one plain sample go the longer way.
pub async fn lift_column(
    session: &Session,
    column: CellArray<'_>,
    lane: usize,
    width: u32,
) -> Result<ColumnVectors, ProtocolError> {
    let (mut plain_chunks, mut affine_chunks, mut order) = (Vec::new(), Vec::new(), Vec::new());
    for start in (0..column.len()).step_by(DEGREE) {
        match rows_of(&column, start, lane, width, session.key_id())? {
            Chunk::Plain(rows) => {
                order.push(true);
                plain_chunks.push(rows);
            }
            Chunk::Affine(rows) => {
                order.push(false);
                affine_chunks.push(rows);
            }
        }
    }
    let mut plain = lift(session, plain_chunks).await?.into_iter();
    let mut affine = lift_affine::lift_affine(session, affine_chunks).await?.into_iter();
    let next = |is_plain: bool| if is_plain { plain.next() } else { affine.next() };
    let vectors = order.into_iter().map(next).collect::<Option<Vec<_>>>().ok_or(ProtocolError::Cancelled)?;
    ColumnVectors::new(column.len(), vectors)
}

/// The rows of a vector.
pub(crate) enum Chunk {
    /// One sample each.
    Plain(Rows),
    /// Several, or with factors.
    Affine(lift_affine::Rows),
}

/// The rows of a chunk, in the simplest form that fits all of them.
pub(crate) fn rows_of(
    column: &CellArray<'_>,
    start: usize,
    lane: usize,
    width: u32,
    key_id: KeyId,
) -> Result<Chunk, ProtocolError> {
    let end = column.len().min(start + DEGREE);
    let mut cells = Vec::with_capacity(end - start);
    let mut known = None;
    for row in start..end {
        let Some(bytes) = column.bytes(row) else {
            cells.push(None);
            continue;
        };
        let at = |error: veil_cells::CellError| ProtocolError::Misuse(format!("row {row}: {error}"));
        let cell = CellView::parse_next(&mut known, bytes).map_err(at)?;
        if cell.key_id() != key_id {
            return Err(at(veil_cells::CellError::WrongKey { expected: key_id, found: cell.key_id() }));
        }
        if cell.divisor() != 1 {
            let text = "an average cannot go into a round; compute before averaging".to_owned();
            return Err(at(veil_cells::CellError::Unsupported(text)));
        }
        let body = cell.bodies().nth(lane);
        let body = body.ok_or_else(|| ProtocolError::Misuse(format!("row {row} has no lane {lane}")))?;
        cells.push(Some((cell, body)));
    }
    let plain = cells.iter().flatten().all(|(cell, _)| {
        let mut terms = cell.terms();
        terms.next().is_some_and(|term| term.coefficient == 1) && terms.next().is_none()
    });
    if !plain {
        return lift_affine::Rows::from_cells(cells.into_iter(), lane, width).map(Chunk::Affine);
    }
    let present: Vec<bool> = cells.iter().map(Option::is_some).collect();
    // A NULL borrows the place of the first cell; a chunk of NULLs alone any place.
    let sample = |cell: &CellView<'_>, body: u64| {
        cell.terms().next().map(|term| Sample { seed: term.seed, index: term.index + lane as u16, body })
    };
    let spare = cells.iter().flatten().find_map(|(cell, body)| sample(cell, *body));
    let spare = spare.unwrap_or(Sample { seed: veil_cells::Seed([0; 16]), index: 0, body: 0 });
    let samples = cells.iter().map(|cell| cell.as_ref().and_then(|(cell, body)| sample(cell, *body)).unwrap_or(spare));
    let samples = samples.collect();
    let all = present.iter().all(|present| *present);
    Ok(Chunk::Plain(Rows { samples, present: (!all).then_some(present), width }))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, BinaryArray};
    use arrow::buffer::NullBuffer;
    use veil_cells::{CellType, ColumnId, Kind, Width, add_cells, add_constant, scale_cells};
    use veil_keys::encrypt_column;

    use super::*;
    use crate::testing::Parties;

    /// Numbers of the whole width, with both ends among them.
    fn column(parties: &mut Parties, bits: u32, rows: i64) -> (Vec<i64>, BinaryArray) {
        let half = 1i64 << (bits - 1);
        let mut numbers: Vec<i64> = (0..rows).map(|row| (row * 0x9e37_79b9) % (2 * half) - half).collect();
        numbers[..2].copy_from_slice(&[-half, half - 1]);
        let width = Width::of_range(-half, half - 1).unwrap();
        let cell_type = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([1; 8]));
        let cells = encrypt_column(&parties.owner, &cell_type, &numbers, None, &mut parties.rng).unwrap();
        (numbers, cells)
    }

    fn expect(parties: &Parties, lifted: &[Slots<L1>], numbers: &[i64]) {
        let opened: Vec<i64> = lifted.iter().flat_map(|slots| parties.open(slots)).map(plain::centred).collect();
        assert_eq!(opened[..numbers.len()], *numbers);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_width_lifts_over_several_vectors() {
        let mut parties = Parties::new(20);
        for (bits, rows) in [(8, 9000), (32, 8192), (24, 1)] {
            let (numbers, cells) = column(&mut parties, bits, rows.max(2));
            let lifted = lift_column(&parties.session, CellArray::Binary(&cells), 0, bits).await.unwrap();
            assert_eq!(lifted.len(), cells.len().div_ceil(DEGREE));
            expect(&parties, &lifted, &numbers);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nulls_become_zero_and_constants_come_along() {
        let mut parties = Parties::new(21);
        let (numbers, cells) = column(&mut parties, 16, 300);
        let nulls: Vec<bool> = (0..300).map(|row| row % 7 != 3).collect();
        let (offsets, values, _) = cells.into_parts();
        let cells = BinaryArray::new(offsets, values, Some(NullBuffer::from(nulls.clone())));
        let shifted = add_constant(CellArray::Binary(&cells), 1000).unwrap();
        let lifted = lift_column(&parties.session, CellArray::Binary(&shifted), 0, 18).await.unwrap();
        let expected: Vec<i64> =
            numbers.iter().zip(&nulls).map(|(number, present)| if *present { number + 1000 } else { 0 }).collect();
        expect(&parties, &lifted, &expected);
    }

    /// Sums, differences and factors, odd and even, with and without constants.
    #[tokio::test(flavor = "multi_thread")]
    async fn affine_cells_lift_exactly() {
        let mut parties = Parties::new(22);
        let (a, a_cells) = column(&mut parties, 12, 200);
        let (b, b_cells) = column(&mut parties, 12, 200);
        let scaled = |cells: &BinaryArray, factor| scale_cells(CellArray::Binary(cells), factor).unwrap();
        let sum = |x: &BinaryArray, y: &BinaryArray| add_cells(CellArray::Binary(x), CellArray::Binary(y)).unwrap();
        for (fa, fb, constant) in [(1, 1, 5), (1, -1, 0), (121, 0, -77), (128, 0, 3), (-1, 0, 0), (96, -160, 12)] {
            let cells = match fb {
                0 => scaled(&a_cells, fa),
                _ => sum(&scaled(&a_cells, fa), &scaled(&b_cells, fb)),
            };
            let cells = add_constant(CellArray::Binary(&cells), constant).unwrap();
            let lifted = lift_column(&parties.session, CellArray::Binary(&cells), 0, 24).await.unwrap();
            let expected: Vec<i64> = a.iter().zip(&b).map(|(a, b)| fa * a + fb * b + constant).collect();
            expect(&parties, &lifted, &expected);
            assert!(parties.open(&lifted[0])[200..].iter().all(|slot| *slot == 0));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn cells_of_another_key_are_refused() {
        let (parties, mut other) = (Parties::new(23), Parties::new(24));
        let (_, cells) = column(&mut other, 8, 10);
        let error = lift_column(&parties.session, CellArray::Binary(&cells), 0, 8).await.unwrap_err();
        assert!(error.to_string().starts_with("row 0: wrong key"), "{error}");
    }
}
