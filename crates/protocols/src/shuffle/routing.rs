//! Which switches of a network are set for a permutation (Waksman 1968).
//!
//! The outermost layers of a bit lead into two halves: where the bit is zero, and where it is one. Two places that differ in this
//! bit alone share a switch, so one of them passes through each half, at the entrance as at the exit. Following the rows from
//! exit to entrance to the next exit goes round in cycles, which are coloured in turn. What is left is a smaller
//! permutation in each half; all halves of a level are done in one pass over all places, in place.

use std::ops::Range;

use super::stages::bit_of_layer;

/// The switches of a network: in a layer of bit `b`, place `i` takes from place `i xor 2^b` where its switch is set.
pub(crate) struct Routes {
    order: Vec<u8>,
    /// One bit a place, one layer after the other.
    switches: Vec<u64>,
    /// Words of a layer.
    words: usize,
}

impl Routes {
    /// Routes a permutation through a network of the bits in `order`, towards the middle and the same way back. `source[i]` is the place
    /// of the row that ends at place `i`, and differs from `i` in these bits alone.
    pub(crate) fn new(mut source: Vec<u32>, order: Vec<u8>) -> Self {
        let (words, layers) = (source.len().div_ceil(64), (2 * order.len()).saturating_sub(1));
        let mut routes = Self { switches: vec![0; layers * words], order, words };
        let (mut target, mut done) = (vec![0; source.len()], vec![0; words]);
        for level in 0..layers / 2 {
            routes.split(level, layers - 1 - level, &mut source, &mut target, &mut done);
        }
        // The middle layer is all that is left of the permutation.
        for (place, from) in source.iter().enumerate() {
            if *from as usize != place {
                routes.set(layers / 2, place);
            }
        }
        routes
    }

    /// Sets the switches of two layers, and leaves the permutations of the halves between them in `source`.
    fn split(&mut self, entrance: usize, exit: usize, source: &mut [u32], target: &mut [u32], done: &mut [u64]) {
        let flip = 1u32 << bit_of_layer(&self.order, entrance);
        for (place, from) in source.iter().enumerate() {
            target[*from as usize] = place as u32;
        }
        done.fill(0);
        for start in 0..source.len() as u32 {
            let mut place = start;
            while !mark(done, place as usize) {
                let partner = place ^ flip;
                mark(done, partner as usize);
                // The row that ends here passes through the half of zeros, its partner's through that of ones.
                let (from, partner_from) = (source[place as usize], source[partner as usize]);
                if place & flip != 0 {
                    self.set(exit, place as usize);
                    self.set(exit, partner as usize);
                }
                if from & flip != 0 {
                    self.set(entrance, from as usize);
                    self.set(entrance, (from ^ flip) as usize);
                }
                source[(place & !flip) as usize] = from & !flip;
                source[(place | flip) as usize] = partner_from | flip;
                // So whatever enters beside the partner's row passes through the half of zeros again.
                place = target[(partner_from ^ flip) as usize];
            }
        }
    }

    fn set(&mut self, layer: usize, place: usize) {
        self.switches[layer * self.words + place / 64] |= 1 << (place % 64);
    }

    fn is_set(&self, layer: usize, place: usize) -> bool {
        self.switches[layer * self.words + place / 64] >> (place % 64) & 1 == 1
    }

    /// Where the row at this place was before these layers.
    pub(crate) fn source(&self, layers: &Range<usize>, place: usize) -> usize {
        let back = |place: usize, layer: usize| match self.is_set(layer, place) {
            true => place ^ 1 << bit_of_layer(&self.order, layer),
            false => place,
        };
        layers.clone().rev().fold(place, back)
    }
}

/// Marks a place; whether it was marked before.
fn mark(done: &mut [u64], place: usize) -> bool {
    let (word, bit) = (&mut done[place / 64], 1 << (place % 64));
    let before = *word & bit != 0;
    *word |= bit;
    before
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The permutation that the switches make.
    fn made(source: &[u32], order: &[u8]) -> Vec<u32> {
        let routes = Routes::new(source.to_vec(), order.to_vec());
        let layers = 0..(2 * order.len()).saturating_sub(1);
        (0..source.len()).map(|place| routes.source(&layers, place) as u32).collect()
    }

    #[test]
    fn every_permutation_of_eight_places_is_routed() {
        fn all(rest: &mut Vec<u32>, chosen: &mut Vec<u32>, found: &mut usize) {
            if rest.is_empty() {
                assert_eq!(made(chosen, &[1, 2, 0]), *chosen);
                *found += 1;
            }
            for at in 0..rest.len() {
                chosen.push(rest.remove(at));
                all(rest, chosen, found);
                rest.extend(chosen.pop());
                rest[at..].rotate_right(1);
            }
        }
        let mut found = 0;
        all(&mut (0..8).collect(), &mut Vec::new(), &mut found);
        assert_eq!(found, 40320);
    }

    /// A permutation of so many bits, and an order of these.
    fn permutation() -> impl Strategy<Value = (Vec<u32>, Vec<u8>)> {
        (1u32..11).prop_flat_map(|bits| {
            let places = Just((0..1 << bits).collect::<Vec<u32>>()).prop_shuffle();
            (places, Just((0..bits as u8).collect::<Vec<u8>>()).prop_shuffle())
        })
    }

    proptest! {
        #[test]
        fn any_permutation_is_routed_in_any_order_of_bits((source, order) in permutation()) {
            prop_assert_eq!(made(&source, &order), source);
        }

        /// Lists side by side: bits above theirs stay, and need no layers.
        #[test]
        fn lists_side_by_side_are_routed_at_once(lists in prop::collection::vec(Just((0..16).collect::<Vec<u32>>()).prop_shuffle(), 8)) {
            let moved = |(list, source): (usize, &Vec<u32>)| source.iter().map(move |from| 16 * list as u32 + from).collect::<Vec<_>>();
            let source: Vec<u32> = lists.iter().enumerate().flat_map(moved).collect();
            prop_assert_eq!(made(&source, &[3, 0, 2, 1]), source);
        }
    }

    #[test]
    fn one_place_needs_no_layer() {
        assert_eq!(made(&[0], &[]), [0]);
    }
}
