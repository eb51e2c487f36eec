//! Columns of messages into cells.
//!
//! Rows are taken in chunks that fill one GLWE ciphertext each. A chunk's mask comes from a public seed, which names the rows (see
//! [`Origin`](veil_cells::Origin)) and is never used twice; its noise `TUniform(2^3)` comes from a secret one, which is drawn from the
//! caller's generator before the chunks are encrypted in parallel, so a test can repeat a run.

use arrow::array::BinaryArray;
use arrow::buffer::NullBuffer;
use rand::CryptoRng;
use rayon::prelude::*;
use tfhe::core_crypto::commons::math::random::{DefaultRandomGenerator, RandomGenerator, TUniform};
use veil_cells::{
    Cell, CellArrayBuilder, CellError, CellType, ChunkRows, ColumnConstants, FRESH_NOISE_LOG2, FileId, FreshCells,
    Lanes, RECIPROCAL_BITS, Seed, Width, phase_of_message, phase_of_tag, tfhe_seed,
};
use zeroize::Zeroizing;

use crate::cell_key::MaskProduct;
use crate::{CellKey, KeyError, OwnerKeys};

/// The randomness of one chunk.
pub(crate) struct ChunkSeeds {
    pub(crate) mask: Seed,
    noise: Zeroizing<[u8; 16]>,
}

/// Which cells are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Rows of a file: its name, the number of the column and of the first row. No two calls may have rows of a column in common.
    Rows(FileId, u16, usize),
    /// Constants, which are of no row.
    Constants,
}

/// Draws the name of a new file.
pub fn new_file(rng: &mut impl CryptoRng) -> FileId {
    let mut name = [0; 9];
    rng.fill_bytes(&mut name);
    FileId::of_random(name)
}

/// Encrypts a column of a file of its own: see [`encrypt_rows`].
pub fn encrypt_column(
    keys: &OwnerKeys,
    cell_type: &CellType,
    messages: &[i64],
    nulls: Option<&NullBuffer>,
    rng: &mut impl CryptoRng,
) -> Result<BinaryArray, KeyError> {
    let place = Place::Rows(new_file(rng), cell_type.column.number(), 0);
    encrypt_rows(keys, cell_type, messages, nulls, place, rng)
}

/// Encrypts rows of messages, `lanes` a row: the value's, then the hidden-NULL lane, then the tag (below its modulus). Rows that `nulls`
/// marks have messages too (any), and become Arrow nulls.
pub fn encrypt_rows(
    keys: &OwnerKeys,
    cell_type: &CellType,
    messages: &[i64],
    nulls: Option<&NullBuffer>,
    place: Place,
    rng: &mut impl CryptoRng,
) -> Result<BinaryArray, KeyError> {
    let lanes = cell_type.cell_lanes();
    let rows = messages.len() / lanes.total().max(1);
    if !lanes.is_valid()
        || !messages.len().is_multiple_of(lanes.total())
        || nulls.is_some_and(|nulls| nulls.len() != rows)
    {
        let text = format!("{} messages do not fill rows of {} lanes", messages.len(), lanes.total());
        return Err(CellError::Unsupported(text).into());
    }
    let starts = (0..rows).step_by(lanes.rows_per_chunk());
    let seeds = starts.map(|start| ChunkSeeds::of(place, lanes, start, rng)).collect::<Result<Vec<_>, _>>()?;
    let magnitude = cell_type.kind.is_number().then(|| cell_type.width.magnitude());
    let chunks: Vec<Vec<u8>> = messages
        .par_chunks(lanes.rows_per_chunk() * lanes.total())
        .zip(&seeds)
        .map(|(messages, seeds)| encrypt_chunk(keys, lanes, magnitude, messages, seeds))
        .collect::<Result<_, _>>()?;

    let cell_bytes = chunks.first().map_or(0, |chunk| chunk.len() / lanes.rows_per_chunk().min(rows));
    let mut builder = CellArrayBuilder::with_capacity(rows, cell_bytes);
    let cells = chunks.iter().flat_map(|chunk| chunk.chunks_exact(cell_bytes.max(1)));
    for (row, cell) in cells.enumerate() {
        match nulls {
            Some(nulls) if nulls.is_null(row) => builder.push_null()?,
            _ => builder.push_bytes(cell)?,
        }
    }
    Ok(builder.finish()?)
}

/// Encrypts the bounds of a column and their reciprocal distance. The randomness is derived from the seal key, the
/// column and the bounds, so that files of one table carry the same metadata; it tells an observer no more than that
/// two files were declared alike.
pub fn encrypt_constants(
    keys: &OwnerKeys,
    cell_type: &CellType,
    lower: i64,
    upper: i64,
) -> Result<ColumnConstants, KeyError> {
    let distance = upper.abs_diff(lower) as i64;
    let reciprocal = if distance == 0 { 0 } else { (1 << RECIPROCAL_BITS) / distance };
    let mut context = cell_type.column.0.to_vec();
    [lower, upper].iter().for_each(|bound| context.extend_from_slice(&bound.to_le_bytes()));
    let derived = keys.seal().derive(b"veil column constants v1", &context);
    let (derived, noise) = derived.split_at(16);
    let mut mask = [0; 16];
    mask.copy_from_slice(derived);
    let mut seeds = ChunkSeeds { mask: Seed::of_constants(mask), noise: Zeroizing::new([0; 16]) };
    seeds.noise.copy_from_slice(noise);

    let bytes = encrypt_chunk(keys, Lanes::NUMBER, Some(Width::FULL.magnitude()), &[lower, upper, reciprocal], &seeds)?;
    let cell = |at: usize, magnitude: u64| {
        let fresh = Cell::from_bytes(&bytes[at * bytes.len() / 3..(at + 1) * bytes.len() / 3])?;
        let [term] = fresh.terms() else {
            return Err(CellError::Unsupported("not a fresh cell".to_owned()));
        };
        Cell::fresh(keys.key_id(), Lanes::NUMBER, Some(magnitude), term.seed, term.index, fresh.bodies())
    };
    let magnitude = cell_type.width.magnitude();
    Ok(ColumnConstants {
        lower: cell(0, magnitude)?,
        upper: cell(1, magnitude)?,
        reciprocal: cell(2, 1 << RECIPROCAL_BITS)?,
    })
}

impl ChunkSeeds {
    /// Of the chunk of a column that begins `start` rows behind its place.
    fn of(place: Place, lanes: Lanes, start: usize, rng: &mut impl CryptoRng) -> Result<Self, CellError> {
        let mask = match place {
            Place::Rows(file, column, first_row) => {
                let room = first_row.checked_add(start).and_then(|row| row.checked_add(lanes.rows_per_chunk()));
                let too_many = || {
                    let text = format!("a file has at most {} rows: split it into several", u32::MAX);
                    CellError::Unsupported(text)
                };
                room.filter(|end| u32::try_from(*end).is_ok()).ok_or_else(too_many)?;
                let first_row = (first_row + start) as u32;
                Seed::of_rows(ChunkRows { file, column, samples: lanes.total() as u8, first_row })
            }
            Place::Constants => Seed::of_constants(random(rng)),
        };
        Ok(Self { mask, noise: Zeroizing::new(random(rng)) })
    }

    /// Of values that P2 encrypts.
    pub(crate) fn made(rng: &mut (impl CryptoRng + ?Sized)) -> Self {
        Self { mask: Seed::of_made(random(rng)), noise: Zeroizing::new(random(rng)) }
    }
}

fn random(rng: &mut (impl CryptoRng + ?Sized)) -> [u8; 16] {
    let mut bytes = [0; 16];
    rng.fill_bytes(&mut bytes);
    bytes
}

fn encrypt_chunk(
    keys: &OwnerKeys,
    lanes: Lanes,
    magnitude: Option<u64>,
    messages: &[i64],
    seeds: &ChunkSeeds,
) -> Result<Vec<u8>, CellError> {
    let tag = lanes.tag_lane();
    let phase = |lane: usize, message: i64| match Some(lane) == tag {
        true => phase_of_tag(message as u64),
        false => phase_of_message(message),
    };
    let rows = messages.chunks_exact(lanes.total());
    let phases = rows.flat_map(|row| row.iter().enumerate().map(|(lane, message)| phase(lane, *message)));
    let bodies = chunk_bodies(keys.cell(), &Zeroizing::new(phases.collect::<Vec<u64>>()), seeds);
    let first = bodies.get(..lanes.total()).unwrap_or(&[]);
    let cells = FreshCells::like(&Cell::fresh(keys.key_id(), lanes, magnitude, seeds.mask, 0, first)?)?;
    let mut bytes = Vec::new();
    for (row, bodies) in bodies.chunks_exact(lanes.total()).enumerate() {
        cells.write(row * lanes.total(), bodies, &mut bytes)?;
    }
    Ok(bytes)
}

/// `A(X) * S(X) + phase + noise`, coefficient by coefficient.
pub(crate) fn chunk_bodies(key: &CellKey, phases: &[u64], seeds: &ChunkSeeds) -> Vec<u64> {
    let product = MaskProduct::new(key, seeds.mask, phases.len());
    let noise_seed = tfhe_seed(Seed(*seeds.noise));
    let mut noise = Zeroizing::new(vec![0u64; phases.len()]);
    RandomGenerator::<DefaultRandomGenerator>::new(noise_seed)
        .fill_slice_with_random_from_distribution(&mut noise, TUniform::<u64>::new(FRESH_NOISE_LOG2));
    let bodies = phases.iter().zip(noise.iter()).enumerate();
    bodies.map(|(index, (phase, noise))| product.at(index).wrapping_add(*phase).wrapping_add(*noise)).collect()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use tfhe::core_crypto::prelude::*;
    use veil_cells::{FRESH_NOISE, POLYNOMIAL_SIZE};

    use super::*;

    /// tfhe decompresses and decrypts what we encrypt: the same mask, the same product, noise within its bound.
    #[test]
    fn tfhe_decrypts_a_chunk() {
        let mut rng = StdRng::seed_from_u64(11);
        let key = CellKey::generate(&mut rng);
        let messages: Vec<i64> = (0..POLYNOMIAL_SIZE as i64).map(|i| (i - 2048) * 68_719_476_735).collect();
        let seeds = ChunkSeeds::made(&mut rng);
        let phases: Vec<u64> = messages.iter().map(|message| phase_of_message(*message)).collect();
        let bodies = chunk_bodies(&key, &phases, &seeds);

        let modulus = CiphertextModulus::new_native();
        let seeded = SeededGlweCiphertext::from_container(
            bodies,
            GlweDimension(1).to_glwe_size(),
            tfhe_seed(seeds.mask).into(),
            modulus,
        );
        let ciphertext = seeded.decompress_into_glwe_ciphertext();
        let tfhe_key = GlweSecretKey::from_container(key.bits().to_vec(), PolynomialSize(POLYNOMIAL_SIZE));
        let mut phases = PlaintextList::new(0, PlaintextCount(POLYNOMIAL_SIZE));
        decrypt_glwe_ciphertext(&tfhe_key, &ciphertext, &mut phases);

        let mut largest = 0;
        for (phase, message) in phases.as_ref().iter().zip(&messages) {
            let noise = phase.wrapping_sub(phase_of_message(*message)) as i64;
            largest = largest.max(noise.unsigned_abs());
        }
        assert!(largest <= FRESH_NOISE, "noise {largest}");
        assert!(largest >= FRESH_NOISE / 2, "noise {largest} is suspiciously small");
    }
}
