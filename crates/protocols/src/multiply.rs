//! `x y`, slot by slot.
//!
//! ```text
//!  P1: a, b uniform             x + a, y + b  -->
//!                                             <--  x' = x + a,  y' = y + b,  x'y'              P2
//!  P1: xy = x'y' - a y' - b x' + a b
//! ```

use rand::CryptoRng;
use veil_slots::{DEGREE, Factor, Fresh, Inbound, KeyHolder, L1, Offset, Outbound, SeededSlots, Slots, plain};

use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Multiply;

message! {
    /// `x + a` and `y + b`.
    Query<C: Outbound => Inbound> {
        /// The first factor, masked.
        x: C,
        /// The second factor, masked.
        y: C,
    }
}

message! {
    /// Both, fresh, and their product.
    Answer<C: SeededSlots => Fresh> {
        /// `x + a`.
        x: C,
        /// `y + b`.
        y: C,
        /// `(x + a)(y + b)`.
        product: C,
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        Ok(3)
    }
}

impl Protocol for Multiply {
    const NAME: &'static str = "multiply";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "the product of two encrypted vectors, slot by slot";
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
        let (x, y) = (holder.open(query.x), holder.open(query.y));
        let product: Vec<u64> = x.iter().zip(y.iter()).map(|(x, y)| plain::mul(*x, *y)).collect();
        Ok(Answer { x: holder.seal(&x, rng), y: holder.seal(&y, rng), product: holder.seal(&product, rng) })
    }
}

/// What P1 remembers: its masks.
pub struct Asked {
    a: Vec<u64>,
    b: Vec<u64>,
}

/// P1 masks both factors.
pub fn ask((x, y): (Slots<L1>, Slots<L1>), asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let (a, b) = (plain::uniform_vec(DEGREE, &mut asker.rng), plain::uniform_vec(DEGREE, &mut asker.rng));
    let query = Query { x: asker.send(&x, &a)?, y: asker.send(&y, &b)? };
    Ok((Asked { a, b }, query))
}

/// P1 takes the masks off, once:
///
/// ```
/// use veil_protocols::multiply::{Answer, Asked, finish};
/// fn once(asked: Asked, answer: Answer<veil_slots::Fresh>) {
///     let _ = finish(asked, answer);
/// }
/// ```
/// ```compile_fail,E0382
/// # use veil_protocols::multiply::{Answer, Asked, finish};
/// fn twice(asked: Asked, first: Answer<veil_slots::Fresh>, second: Answer<veil_slots::Fresh>) {
///     let _ = finish(asked, first);
///     let _ = finish(asked, second); // use of moved value: `asked`
/// }
/// ```
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Slots<L1>, ProtocolError> {
    let Asked { a, b } = asked;
    let (x, y) = (answer.x, answer.y);
    let minus = |values: &[u64]| Factor::new(&values.iter().map(|value| plain::neg(*value)).collect::<Vec<_>>());
    let ab: Vec<u64> = a.iter().zip(&b).map(|(a, b)| plain::mul(*a, *b)).collect();
    let mut product = answer.product.raised();
    product.add_clear(&Offset::new(&ab));
    if let Some(cross) = Slots::dot([(&x, &minus(&b)), (&y, &minus(&a))]) {
        product.add(&cross);
    }
    Ok(product)
}

/// One round for many pairs.
pub async fn multiply(session: &Session, pairs: Vec<(Slots<L1>, Slots<L1>)>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    session.round::<Multiply, _, _, _>(pairs, 3, ask, finish).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn products_are_exact_and_can_be_multiplied_again() {
        let mut parties = Parties::new(1);
        let (x, y) = (parties.numbers(), parties.numbers());
        let pairs = vec![(parties.encrypt(&x), parties.encrypt(&y)); 7];
        let products = multiply(&parties.session, pairs).await.unwrap();
        assert_eq!(products.len(), 7);
        let squares = multiply(&parties.session, vec![(products[6].clone(), products[0].clone())]).await.unwrap();
        let expected: Vec<u64> = x.iter().zip(&y).map(|(x, y)| plain::mul(*x, *y)).collect();
        assert_eq!(parties.open(&products[3]), expected);
        let expected: Vec<u64> = expected.iter().map(|product| plain::mul(*product, *product)).collect();
        assert_eq!(parties.open(&squares[0]), expected);
        assert_eq!(parties.session.traffic().rounds(), 2);
        assert!(multiply(&parties.session, Vec::new()).await.unwrap().is_empty());
    }
}
