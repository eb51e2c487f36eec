//! Fresh cells in a message: P2 seals messages as chunks, P1 corrects the bodies and writes the cells down.

use arrow::array::BinaryArray;
use rand::CryptoRng;
use veil_cells::{Cell, CellArrayBuilder, FreshCells, KeyId, Lanes, POLYNOMIAL_SIZE, Seed};
use veil_slots::KeyHolder;

use crate::ProtocolError;

/// P2: seals rows of `lanes` messages each. One seed of 16 bytes a chunk, and one body a message.
pub(crate) fn seal(
    messages: &[u64],
    lanes: usize,
    holder: &dyn KeyHolder,
    rng: &mut dyn CryptoRng,
) -> (Vec<u8>, Vec<u64>) {
    let (mut seeds, mut bodies) = (Vec::new(), Vec::with_capacity(messages.len()));
    for chunk in messages.chunks(POLYNOMIAL_SIZE - POLYNOMIAL_SIZE % lanes.max(1)) {
        let (seed, chunk_bodies) = holder.seal_samples(chunk, rng);
        seeds.extend_from_slice(&seed.0);
        bodies.extend(chunk_bodies);
    }
    (seeds, bodies)
}

/// P1: what came back, and what it is to become.
pub(crate) struct Fresh<'a> {
    pub(crate) seeds: &'a [u8],
    pub(crate) bodies: &'a [u64],
    pub(crate) rows: usize,
    pub(crate) key_id: KeyId,
    pub(crate) shape: Lanes,
    pub(crate) magnitude: Option<u64>,
}

impl Fresh<'_> {
    /// The cells, minus the phase that `mask` says for a row and lane. Rows that are not present are NULL.
    pub(crate) fn write(
        &self,
        present: Option<&[bool]>,
        mask: impl Fn(usize, usize) -> u64,
    ) -> Result<BinaryArray, ProtocolError> {
        let (lanes, per_chunk) = (self.shape.total(), self.shape.rows_per_chunk());
        let (seeds, rest) = self.seeds.as_chunks::<16>();
        let complete = self.bodies.len() == self.rows * lanes && seeds.len() == self.rows.div_ceil(per_chunk);
        if !complete || !rest.is_empty() {
            return Err(ProtocolError::Malformed(format!("{} bodies for {} rows", self.bodies.len(), self.rows)));
        }
        let mut builder = CellArrayBuilder::with_capacity(self.rows, 50 + 8 * lanes);
        let (mut bytes, mut bodies) = (Vec::new(), vec![0; lanes]);
        for (at, (chunk, seed)) in self.bodies.chunks(per_chunk * lanes).zip(seeds).enumerate() {
            let first = chunk.get(..lanes).unwrap_or_default();
            let mut like = Cell::fresh(self.key_id, self.shape, self.magnitude, Seed(*seed), 0, first)?;
            // Whose rows they are of is for those to say who sent the values.
            like.set_provenance(None);
            let cells = FreshCells::like(&like)?;
            for (place, sealed) in chunk.chunks_exact(lanes).enumerate() {
                let row = at * per_chunk + place;
                if present.is_some_and(|present| !present.get(row).copied().unwrap_or_default()) {
                    builder.push_null()?;
                    continue;
                }
                for (lane, body) in bodies.iter_mut().enumerate() {
                    *body = sealed[lane].wrapping_sub(mask(row, lane));
                }
                bytes.clear();
                cells.write(place * lanes, &bodies, &mut bytes)?;
                builder.push_bytes(&bytes)?;
            }
        }
        Ok(builder.finish()?)
    }
}
