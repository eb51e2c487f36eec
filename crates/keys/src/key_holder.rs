//! P2's keys at work.

use std::collections::HashMap;

use rand::CryptoRng;
use veil_cells::{KeyId, POLYNOMIAL_SIZE, Seed, phase_of_message};
use veil_slots::{Inbound, KeyHolder, Sample, SeededSlots};
use zeroize::Zeroizing;

use crate::P2Keys;
use crate::cell_key::MaskProduct;
use crate::encrypt::{ChunkSeeds, chunk_bodies};

impl KeyHolder for P2Keys {
    fn key_id(&self) -> KeyId {
        self.key_id
    }

    fn open(&self, ciphertext: Inbound) -> Zeroizing<Vec<u64>> {
        self.slot.open(ciphertext)
    }

    fn seal(&self, values: &[u64], rng: &mut dyn CryptoRng) -> SeededSlots {
        self.slot.seal(values, rng)
    }

    fn open_samples(&self, samples: &[Sample]) -> Zeroizing<Vec<u64>> {
        let mut chunks: HashMap<Seed, Vec<usize>> = HashMap::new();
        for (at, sample) in samples.iter().enumerate() {
            chunks.entry(sample.seed).or_default().push(at);
        }
        let mut phases = Zeroizing::new(vec![0; samples.len()]);
        for (seed, places) in chunks {
            let product = MaskProduct::new(&self.cell, seed, places.len());
            for at in places {
                let Sample { index, body, .. } = samples[at];
                if usize::from(index) < POLYNOMIAL_SIZE {
                    phases[at] = body.wrapping_sub(product.at(index.into()));
                }
            }
        }
        phases
    }

    fn open_dense(&self, masks: &[u64], bodies: &[u64]) -> Zeroizing<Vec<u64>> {
        let masks = masks.chunks(POLYNOMIAL_SIZE).map(|mask| self.cell.inner_product(mask.iter().copied()));
        let masks = masks.chain(std::iter::repeat(0));
        let mut phases = Zeroizing::new(Vec::with_capacity(bodies.len()));
        phases.extend(bodies.iter().zip(masks).map(|(body, mask)| body.wrapping_sub(mask)));
        phases
    }

    fn seal_samples(&self, messages: &[u64], rng: &mut dyn CryptoRng) -> (Seed, Vec<u64>) {
        let seeds = ChunkSeeds::made(rng);
        let phases = messages.iter().map(|message| phase_of_message(*message as i64));
        let phases = Zeroizing::new(phases.collect::<Vec<u64>>());
        (seeds.mask, chunk_bodies(&self.cell, &phases, &seeds))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use veil_cells::{Cell, CellType, ColumnId, DenseSum, Kind, Width, message_of_phase};

    use super::*;
    use crate::{OwnerKeys, encrypt_column};

    /// A sum over chunks opens to what its rows add up to.
    #[test]
    fn dense_samples_open() {
        let mut rng = StdRng::seed_from_u64(61);
        let keys = OwnerKeys::generate(&mut rng);
        let width = Width::of_range(-1000, 1000).unwrap();
        let cell_type = CellType::new(Kind::Integer, width, 1, keys.key_id(), ColumnId::default());
        let values: Vec<i64> = (0..5000).map(|row| row % 1999 - 999).collect();
        let cells = encrypt_column(&keys, &cell_type, &values, None, &mut rng).unwrap();
        let sum = |rows: std::ops::Range<usize>| {
            let mut sum = DenseSum::new();
            rows.for_each(|row| sum.add(&Cell::from_bytes(cells.value(row)).unwrap()).unwrap());
            sum.finish().unwrap().unwrap()
        };
        let (all, two) = (sum(0..5000), sum(7..9));
        let masks = [all.lwe_masks(), two.lwe_masks()].concat();
        let phases = keys.p2().open_dense(&masks, &[all.bodies()[0], two.bodies()[0]]);
        let opened: Vec<i64> = phases.iter().map(|phase| message_of_phase(*phase)).collect();
        assert_eq!(opened, [values.iter().sum::<i64>(), values[7..9].iter().sum()]);
        // Nothing is beyond the masks that came.
        assert_eq!(keys.p2().open_dense(&[], &[5])[..], [5]);
    }
}
