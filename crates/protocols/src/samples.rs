//! Samples of the cell scheme in a message: each seed once, then for every sample its seed's number and its index.

use std::collections::HashMap;

use veil_cells::{POLYNOMIAL_SIZE, Seed};
use veil_slots::{DEGREE, Sample};

use crate::ProtocolError;

/// The columns of samples: seeds, places (seed number and index, both `u16`), bodies.
pub(crate) fn encode(samples: &[Sample]) -> (Vec<u8>, Vec<u8>, Vec<u64>) {
    let mut numbers: HashMap<Seed, u16> = HashMap::new();
    let (mut seeds, mut places) = (Vec::new(), Vec::with_capacity(4 * samples.len()));
    let mut bodies = Vec::with_capacity(samples.len());
    for sample in samples {
        let next = numbers.len() as u16;
        let number = *numbers.entry(sample.seed).or_insert_with(|| {
            seeds.extend_from_slice(&sample.seed.0);
            next
        });
        places.extend_from_slice(&number.to_le_bytes());
        places.extend_from_slice(&sample.index.to_le_bytes());
        bodies.push(sample.body);
    }
    (seeds, places, bodies)
}

/// Checks the columns' lengths.
pub(crate) fn check(seeds: &[u8], places: &[u8], bodies: &[u64]) -> Result<(), ProtocolError> {
    check_many(seeds, places, bodies, DEGREE)
}

fn check_many(seeds: &[u8], places: &[u8], bodies: &[u64], limit: usize) -> Result<(), ProtocolError> {
    let malformed = |why: &str| Err(ProtocolError::Malformed(why.to_owned()));
    if bodies.len() > limit {
        return Err(ProtocolError::TooLarge { what: "a number of samples", found: bodies.len(), limit });
    }
    if places.len() != 4 * bodies.len() || !seeds.len().is_multiple_of(16) || seeds.len() / 16 > bodies.len() {
        return malformed("its samples have places, seeds and bodies of different numbers");
    }
    Ok(())
}

/// Checks and reads samples.
pub(crate) fn decode(seeds: &[u8], places: &[u8], bodies: &[u64]) -> Result<Vec<Sample>, ProtocolError> {
    decode_many(seeds, places, bodies, DEGREE)
}

/// The same, of more than a vector's worth.
pub(crate) fn decode_many(
    seeds: &[u8],
    places: &[u8],
    bodies: &[u64],
    limit: usize,
) -> Result<Vec<Sample>, ProtocolError> {
    check_many(seeds, places, bodies, limit)?;
    let seeds = seeds.as_chunks::<16>().0;
    let sample = |([s0, s1, i0, i1], body): (&[u8; 4], &u64)| {
        let (number, index) = (u16::from_le_bytes([*s0, *s1]), u16::from_le_bytes([*i0, *i1]));
        let seed = seeds.get(usize::from(number)).filter(|_| usize::from(index) < POLYNOMIAL_SIZE);
        let seed =
            seed.ok_or_else(|| ProtocolError::Malformed("a sample points beyond its seeds or chunk".to_owned()))?;
        Ok(Sample { seed: Seed(*seed), index, body: *body })
    };
    places.as_chunks::<4>().0.iter().zip(bodies).map(sample).collect()
}
