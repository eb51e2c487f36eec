//! The layers of a network, fused into rounds.
//!
//! ```text
//!  two bits | between | two bits | between | .. | three bits, there and back | .. | between | two bits | between | two bits
//! ```
//! P2 rearranges within a vector by two bits at once, since four arrangements and one upload cost less than twice two and two.
//! In the middle the layers of three bits reach eight arrangements in all, so five layers take one round. Between
//! vectors P1 exchanges by itself, on the way to P2, so such a layer is never the last; nor, as layers are mirrored, the first.

use std::ops::Range;

use crate::arrange::{MAX_BITS, PLACE_BITS};

/// Bits of a stage but the middle one.
const PAIR: usize = 2;

/// The layers of a network, by the bit of a place that each may flip: towards the middle, and the same way back.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// The bits on the way to the middle.
    pub(crate) order: Vec<u8>,
    /// The rounds.
    pub(crate) stages: Vec<Stage>,
}

/// The layers of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    /// Layers between vectors, which come first.
    pub(crate) between: Range<usize>,
    /// Layers within a vector.
    pub(crate) within: Range<usize>,
    /// The bits of the former, as bits of a vector's number.
    pub(crate) vector_bits: Vec<u8>,
    /// The bits of the latter.
    pub(crate) bits: Vec<u8>,
}

impl Network {
    /// For places of so many bits.
    pub(crate) fn new(bits: u32) -> Self {
        let bits = bits as u8;
        let inner = bits.min(PLACE_BITS);
        // What pairs leave over, and never nothing.
        let middle = match inner {
            0 => return Self { order: Vec::new(), stages: Vec::new() },
            1 => 1,
            even if even % 2 == 0 => PAIR,
            _ => MAX_BITS,
        };
        let pairs = (usize::from(inner) - middle) / PAIR;
        let mut order = Vec::with_capacity(bits.into());
        let (mut within, mut outer) = (0..inner, inner..bits);
        let gaps: Vec<usize> = (0..pairs).map(|gap| outer.len().saturating_sub(gap).div_ceil(pairs)).collect();
        for gap in &gaps {
            order.extend(within.by_ref().take(PAIR));
            order.extend(outer.by_ref().take(*gap));
        }
        order.extend(within);
        Self { stages: stages(&order, &gaps, middle), order }
    }

    /// How many layers there are.
    #[cfg(test)]
    fn layers(&self) -> usize {
        (2 * self.order.len()).saturating_sub(1)
    }
}

/// The bit of a layer.
pub(crate) fn bit_of_layer(order: &[u8], layer: usize) -> u8 {
    let mirrored = (2 * order.len()).saturating_sub(2).saturating_sub(layer);
    order.get(layer.min(mirrored)).copied().unwrap_or_default()
}

/// Cuts the layers: in `gaps` stand the layers between vectors after each pair on the way to the middle.
fn stages(order: &[u8], gaps: &[usize], middle: usize) -> Vec<Stage> {
    let before = std::iter::once(&0).chain(gaps).chain(gaps.iter().rev());
    let (outside, inside) = (std::iter::repeat_n(PAIR, gaps.len()), 2 * middle - 1);
    let lengths = outside.clone().chain(std::iter::once(inside)).chain(outside);
    let mut layer = 0;
    let stage = |(between, within): (&usize, usize)| {
        let (start, turn) = (layer, layer + between);
        layer = turn + within;
        let bits = |layers: Range<usize>, base: u8| {
            let mut bits: Vec<u8> = layers.map(|layer| bit_of_layer(order, layer) - base).collect();
            bits.sort_unstable();
            bits.dedup();
            bits
        };
        Stage {
            between: start..turn,
            within: turn..layer,
            vector_bits: bits(start..turn, PLACE_BITS),
            bits: bits(turn..layer, 0),
        }
    };
    before.zip(lengths).map(stage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_is_in_one_stage_and_every_bit_where_it_belongs() {
        for bits in 0..=28 {
            let network = Network::new(bits);
            let mut order = network.order.clone();
            order.sort_unstable();
            assert_eq!(order, (0..bits as u8).collect::<Vec<_>>());
            let mut layer = 0;
            for stage in &network.stages {
                assert_eq!((stage.between.start, stage.between.end), (layer, stage.within.start));
                layer = stage.within.end;
                let is_between = |layer: usize| bit_of_layer(&network.order, layer) >= PLACE_BITS;
                assert!(stage.between.clone().all(is_between) && !stage.within.clone().any(is_between));
                assert!((1..=MAX_BITS).contains(&stage.bits.len()), "{stage:?}");
                assert!(stage.vector_bits.len() <= 3, "{stage:?}");
            }
            assert_eq!(layer, network.layers());
        }
    }

    #[test]
    fn the_stages_of_a_list_in_four_vectors() {
        let network = Network::new(15);
        assert_eq!(network.order, [0, 1, 13, 2, 3, 14, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let shape: Vec<_> = network.stages.iter().map(|stage| (stage.vector_bits.len(), stage.bits.len())).collect();
        let (plain, exchanging) = ((0, 2), (1, 2));
        assert_eq!(shape[..6], [plain, exchanging, exchanging, plain, plain, (0, 3)]);
        assert_eq!(shape[6..], [plain, plain, plain, exchanging, exchanging]);
    }
}
