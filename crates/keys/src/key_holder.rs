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

    fn seal_samples(&self, messages: &[u64], rng: &mut dyn CryptoRng) -> (Seed, Vec<u64>) {
        let seeds = ChunkSeeds::draw(rng);
        let phases = messages.iter().map(|message| phase_of_message(*message as i64));
        let phases = Zeroizing::new(phases.collect::<Vec<u64>>());
        (seeds.mask, chunk_bodies(&self.cell, &phases, &seeds))
    }
}
