//! Products of encrypted bits.
//!
//! ```text
//!  P1: f_i uniform bits         v = sum_i 2^i (b_i xor f_i)  -->
//!                                                            <--  products of the b'_i = b_i xor f_i over subsets     P2
//!  P1: prod_S b_i = sum over U in S of  prod_(S-U) f_i  prod_U (1 - 2 f_i)  prod_U b'_i
//! ```
//! Up to three bits ride in one ciphertext. P2 sees a uniform number below `2^bits`.

use rand::{CryptoRng, RngCore};
use veil_slots::{DEGREE, Factor, Fresh, Inbound, KeyHolder, L1, L2, Offset, Outbound, SeededSlots, Slots, plain};

use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct And;

/// The most bits of one ciphertext.
pub const MAX_BITS: usize = 3;

message! {
    /// The masked bits, and which products are wanted.
    Query<C: Outbound => Inbound> {
        /// `sum_i 2^i (b_i xor f_i)`.
        bits: C,
        /// How many bits there are.
        count: u32,
        /// Bit `U` is set where the product over the subset with bit mask `U` is wanted.
        subsets: u32,
    }
}

message! {
    /// Products over the wanted subsets, in order of their bit masks.
    Answer<C: SeededSlots => Fresh> {
        /// One ciphertext a subset.
        products: Vec<C>,
    }
}

/// The wanted subsets of `count` bits.
fn subsets(count: u32, wanted: u32) -> impl Iterator<Item = u32> {
    (1..1 << count).filter(move |subset| wanted >> subset & 1 == 1)
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let Self { count, subsets: wanted, .. } = self;
        if *count == 0 || *count as usize > MAX_BITS || *wanted & 1 == 1 || wanted >> (1 << count) != 0 {
            return Err(ProtocolError::Malformed(format!("no products {wanted:#x} of {count} bits")));
        }
        Ok(wanted.count_ones() as usize)
    }
}

impl Protocol for And {
    const NAME: &'static str = "and";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "products of up to three encrypted bits, slot by slot";
    const LEAKAGE: Leakage = Leakage::NOTHING;
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer<SeededSlots>;
    type Reply = Answer<Fresh>;

    fn answer(
        query: Query<Inbound>,
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
    ) -> Result<Answer<SeededSlots>, ProtocolError> {
        let bits = holder.open(query.bits);
        let product =
            |subset: u32| -> Vec<u64> { bits.iter().map(|bits| u64::from(*bits as u32 & subset == subset)).collect() };
        let products = subsets(query.count, query.subsets).map(|subset| holder.seal(&product(subset), rng)).collect();
        Ok(Answer { products })
    }
}

/// Bits of one ciphertext, and the products that P1 wants of them.
#[derive(Clone, Debug)]
pub struct Products {
    /// Two or three encrypted bits.
    pub bits: Vec<Slots<L1>>,
    /// Each a set of places in `bits`.
    pub wanted: Vec<Vec<usize>>,
}

/// What P1 remembers.
pub struct Asked {
    /// The flips, all bits of a slot in one byte.
    flips: Vec<u8>,
    asked: u32,
    count: u32,
    wanted: Vec<u32>,
}

/// P1 flips bits at random and packs them.
pub fn ask(input: Products, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let count = input.bits.len();
    if !(1..=MAX_BITS).contains(&count) || input.wanted.iter().flatten().any(|at| *at >= count) {
        return Err(ProtocolError::Misuse(format!("a product needs one to three bits, and there are {count}")));
    }
    let wanted: Vec<u32> = input.wanted.iter().map(|set| set.iter().fold(0, |mask, at| mask | 1 << at)).collect();
    // Every non-empty subset of a wanted set is needed to undo the flips.
    let asked = (1u32..1 << count)
        .filter(|subset| wanted.iter().any(|set| set & subset == *subset))
        .fold(0, |all, s| all | 1 << s);
    let mut flips = vec![0u8; DEGREE];
    asker.rng.fill_bytes(&mut flips);
    flips.iter_mut().for_each(|flip| *flip &= (1 << count) - 1);

    let mut packed: Option<Slots<L2>> = None;
    for (at, bit) in input.bits.iter().enumerate() {
        let sign = |flip: &u8| plain::from_signed(if flip >> at & 1 == 1 { -(1 << at) } else { 1 << at });
        let part = bit.times(&Factor::new(&flips.iter().map(sign).collect::<Vec<_>>()));
        match &mut packed {
            Some(packed) => packed.add(&part),
            None => packed = Some(part),
        }
    }
    let packed = packed.ok_or(ProtocolError::Cancelled)?;
    let blind: Vec<u64> = flips.iter().map(|flip| u64::from(*flip)).collect();
    let query = Query { bits: asker.send(&packed, &blind)?, count: count as u32, subsets: asked };
    Ok((Asked { flips, asked, count: count as u32, wanted }, query))
}

/// P1 undoes the flips.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let sets: Vec<u32> = subsets(asked.count, asked.asked).collect();
    if sets.len() != answer.products.len() {
        return Err(ProtocolError::Malformed(format!("{} products instead of {}", answer.products.len(), sets.len())));
    }
    let products = answer.products;
    let combine = |set: &u32| {
        // The coefficient of the product over `subset`: the others' flips, and the signs of its own.
        let coefficient = |subset: u32| -> Vec<u64> {
            let of = |flip: &u8| {
                let flip = u32::from(*flip);
                match (set & !subset & !flip == 0, (flip & subset).count_ones() % 2) {
                    (false, _) => 0,
                    (true, 0) => 1,
                    (true, _) => plain::neg(1),
                }
            };
            asked.flips.iter().map(of).collect()
        };
        let terms: Vec<_> = (sets.iter().zip(&products))
            .filter(|(subset, _)| set & *subset == **subset)
            .map(|(subset, product)| (product, Factor::new(&coefficient(*subset))))
            .collect();
        let mut sum = Slots::dot(terms.iter().map(|(product, factor)| (*product, factor)))
            .ok_or_else(|| ProtocolError::Misuse("the product of no bits is one".to_owned()))?;
        sum.add_clear(&Offset::new(&coefficient(0)));
        Ok(sum)
    };
    asked.wanted.iter().map(combine).collect()
}

/// One round for many groups of bits.
pub async fn products(session: &Session, groups: Vec<Products>) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let most = groups.iter().map(|group| (1 << group.bits.len().min(MAX_BITS)) - 1).max().unwrap_or(1);
    session.round::<And, _, _, _>(groups, most, ask, finish).await
}

/// The product of all bits of each group, of two or three.
pub async fn and(session: &Session, groups: Vec<Vec<Slots<L1>>>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let whole = |bits: Vec<Slots<L1>>| Products { wanted: vec![(0..bits.len()).collect()], bits };
    let results = products(session, groups.into_iter().map(whole).collect()).await?;
    results.into_iter().map(|mut group| group.pop().ok_or(ProtocolError::Cancelled)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn two_and_three_bits_multiply() {
        let mut parties = Parties::new(2);
        let bits: Vec<Vec<u64>> = (0..3).map(|_| parties.bits()).collect();
        let sealed: Vec<Slots<L1>> = bits.iter().map(|bits| parties.encrypt(bits)).collect();
        let results = and(&parties.session, vec![sealed[..2].to_vec(), sealed.clone()]).await.unwrap();
        let two: Vec<u64> = bits[0].iter().zip(&bits[1]).map(|(a, b)| a * b).collect();
        let three: Vec<u64> = two.iter().zip(&bits[2]).map(|(ab, c)| ab * c).collect();
        assert_eq!(parties.open(&results[0]), two);
        assert_eq!(parties.open(&results[1]), three);
        // Products of products: the level stays one.
        let again = and(&parties.session, vec![results]).await.unwrap();
        assert_eq!(parties.open(&again[0]), three);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn several_products_share_a_ciphertext() {
        let mut parties = Parties::new(3);
        let bits: Vec<Vec<u64>> = (0..3).map(|_| parties.bits()).collect();
        let sealed = bits.iter().map(|bits| parties.encrypt(bits)).collect();
        let group = Products { bits: sealed, wanted: vec![vec![0, 1], vec![2, 0], vec![1]] };
        let results = products(&parties.session, vec![group]).await.unwrap();
        for (result, (a, b)) in results[0].iter().zip([(0, 1), (0, 2), (1, 1)]) {
            let expected: Vec<u64> = bits[a].iter().zip(&bits[b]).map(|(a, b)| a * b).collect();
            assert_eq!(parties.open(result), expected);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn four_bits_are_too_many() {
        let mut parties = Parties::new(4);
        let bit = parties.encrypt(&[1]);
        let error = and(&parties.session, vec![vec![bit; 4]]).await.unwrap_err();
        assert_eq!(error.to_string(), "a product needs one to three bits, and there are 4");
    }
}
