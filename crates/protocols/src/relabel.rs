//! Labels in the place of values: equal values have equal labels, and nothing else about a value is in its label.
//!
//! ```text
//!  P1: m uniform, not zero      z = m (x + k)  -->  w = z^E
//!                                              <--  w, w^2, w^3                                                      P2
//!  P1: y = c + sum_j (f_j m^(-jE)) w^j  =  c + f_1 v + f_2 v^2 + f_3 v^3   with   v = (x + k)^E
//! ```
//! `E` is public; `k`, `c` and the `f_j` are P1's secret, the [`Label`], and new for every list. Who opens the labels later learns which
//! rows are equal and no more:
//! * `y` depends on `x` and the label's secrets alone, so equal inputs give equal outputs.
//! * `E` has no divisor in common with `t - 1`, so different `x` have different `v`. A cubic with uniform coefficients takes
//!   independent uniform values at any four places (Vandermonde), so four different inputs give four independent uniform outputs (to
//!   within `1/t`, since `f_1` is not zero). Two collide where `f_1 + f_2 (v + v') + f_3 (v^2 + v v' + v'^2) = 0`, with probability
//!   `1/t`: the factors of `f_2` and `f_3` are not both zero.
//! * More than four labels are values of a polynomial in `x` of degree `3E mod (t - 1)`, some `2^47`, at a secret shift. There is no
//!   relation `v^a = (x + k)^b` with `a` and `b` below twelve million, so neither does `v` have a low degree in `x`, nor `x` in `v`:
//!   sums of tags, which are structured, become labels that are not.
//!
//! P2 sees `z`, uniform and not zero; unless `x = -k`, which a uniform `k` meets with probability `2^-48` a value. Then P2 returns
//! zeros, and all rows with that value get the label `c`.

use std::fmt;
use std::sync::Arc;

use rand::CryptoRng;
use veil_slots::{DEGREE, Factor, Fresh, Inbound, KeyHolder, L1, L2, Offset, Outbound, SeededSlots, Slots, plain};

use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

mod blinds;

/// `E`: eight bits set, so that P2 raises with few products.
pub const EXPONENT: u64 = 71_605_703_675_921;

/// The protocol.
#[derive(Debug)]
pub struct Relabel;

message! {
    /// The blinded vector.
    Query<C: Outbound => Inbound> {
        /// `z = m (x + k)`.
        blinded: C,
        /// The first slots, which are repeated to the end; 8192 of them where nothing is.
        block: u32,
    }
}

message! {
    /// Powers of the blinded vector.
    Answer<C: SeededSlots => Fresh> {
        /// `w = z^E`.
        power: C,
        /// `w^2`.
        square: C,
        /// `w^3`.
        cube: C,
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        match self.block {
            block if block.is_power_of_two() && block as usize <= DEGREE => Ok(3),
            block => Err(ProtocolError::Malformed(format!("blocks of {block} slots do not fill a vector"))),
        }
    }
}

impl Protocol for Relabel {
    const NAME: &'static str = "relabel";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "secret labels of encrypted numbers, equal for equal ones";
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
        let mut power = holder.open(query.blinded);
        let (first, repeated) = power.split_at_mut((query.block as usize).clamp(1, DEGREE));
        first.iter_mut().for_each(|z| *z = plain::pow(*z, EXPONENT));
        repeated.chunks_exact_mut(first.len()).for_each(|block| block.copy_from_slice(first));
        let square: Vec<u64> = power.iter().map(|w| plain::mul(*w, *w)).collect();
        let cube: Vec<u64> = power.iter().zip(&square).map(|(w, square)| plain::mul(*w, *square)).collect();
        Ok(Answer { power: holder.seal(&power, rng), square: holder.seal(&square, rng), cube: holder.seal(&cube, rng) })
    }
}

/// The secret function of one list. It never prints.
#[derive(Clone)]
pub struct Label {
    /// `k`.
    shift: u64,
    /// `c`.
    constant: u64,
    /// `f_1`, `f_2`, `f_3`.
    factors: [u64; 3],
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Label(secret)")
    }
}

impl Label {
    /// Draws a function.
    pub fn draw(rng: &mut impl CryptoRng) -> Self {
        let (shift, constant) = (plain::uniform(rng), plain::uniform(rng));
        Self { shift, constant, factors: [plain::uniform_non_zero(rng), plain::uniform(rng), plain::uniform(rng)] }
    }

    /// The label of a clear number.
    pub fn of(&self, x: u64) -> u64 {
        let v = plain::pow(plain::add(x, self.shift), EXPONENT);
        let horner = |sum: u64, factor: &u64| plain::mul(plain::add(sum, *factor), v);
        plain::add(self.constant, self.factors.iter().rev().fold(0, horner))
    }
}

/// One vector to relabel: `x = sum_i coefficient_i column_i + clear`. It may hold several lists, side by side in blocks of slots.
#[derive(Clone)]
pub struct Combination {
    /// Columns with their coefficients modulo `t`: one for each block, or one for all.
    pub terms: Vec<(Slots<L1>, Vec<u64>)>,
    /// Numbers modulo `t`, added slot by slot; missing ones are zero.
    pub clear: Option<Arc<Vec<u64>>>,
    /// The function of every block; what lies behind the last block is labelled as that is.
    pub labels: Vec<Arc<Label>>,
    /// Slots of a block. One list alone may have more than there are.
    pub block: usize,
    /// Whether the first block of the result is repeated in all others.
    pub repeated: bool,
}

impl fmt::Debug for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Combination({} terms, secret)", self.terms.len())
    }
}

impl Combination {
    /// Refuses what cannot be relabelled.
    fn check(&self) -> Result<(), ProtocolError> {
        let (blocks, block) = (self.labels.len(), self.block);
        if blocks == 0 || block == 0 || blocks > DEGREE.div_ceil(block) {
            return Err(ProtocolError::Misuse(format!("{blocks} lists of {block} slots do not make a vector")));
        }
        if self.repeated && !(blocks == 1 && block.is_power_of_two() && block <= DEGREE) {
            return Err(ProtocolError::Misuse(format!("{blocks} lists of {block} slots cannot be repeated")));
        }
        for (_, coefficients) in &self.terms {
            if coefficients.len() != 1 && coefficients.len() != blocks {
                let found = coefficients.len();
                return Err(ProtocolError::Misuse(format!("{found} coefficients do not fit {blocks} lists")));
            }
            plain::checked(coefficients)?;
        }
        let clear = self.clear.as_ref().map(|clear| clear.as_slice()).unwrap_or_default();
        if clear.len() > DEGREE {
            return Err(ProtocolError::Misuse(format!("{} clear numbers do not fit a vector", clear.len())));
        }
        Ok(plain::checked(clear)?)
    }

    /// The terms, those with the same coefficients added up, so that each sum is multiplied once.
    fn sums(&self) -> Vec<(Slots<L1>, &[u64])> {
        let mut sums: Vec<(Slots<L1>, &[u64])> = Vec::new();
        for (slots, coefficients) in &self.terms {
            match sums.iter_mut().find(|(_, known)| known == coefficients) {
                Some((sum, _)) => sum.add(slots),
                None => sums.push((slots.clone(), coefficients)),
            }
        }
        sums
    }
}

/// For every slot what belongs to its block; the last one for all that follow.
fn spread<T>(values: &[T], block: usize) -> impl Iterator<Item = &T> {
    let last = values.len().saturating_sub(1);
    (0..DEGREE).filter_map(move |slot| values.get((slot / block).min(last)))
}

/// What P1 remembers: `m^-E` of its blinds, and the functions.
pub struct Asked {
    inverse: Vec<u64>,
    labels: Vec<Arc<Label>>,
    block: usize,
    /// The slots that are repeated.
    repeated: usize,
}

/// P1 forms the combination as it blinds it.
pub fn ask(input: Combination, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    input.check()?;
    let (m, inverse) = blinds::draw(DEGREE, &mut asker.rng);
    let products = input.sums().into_iter().map(|(slots, coefficients)| {
        let factor = m.iter().zip(spread(coefficients, input.block)).map(|(m, factor)| plain::mul(*m, *factor));
        slots.times(&Factor::new(&factor.collect::<Vec<_>>()))
    });
    let sum: Option<Slots<L2>> = products.reduce(|mut sum, product| {
        sum.add(&product);
        sum
    });
    let clear = input.clear.iter().flat_map(|clear| clear.iter().copied()).chain(std::iter::repeat(0));
    let shifted = spread(&input.labels, input.block).zip(clear).map(|(label, clear)| plain::add(clear, label.shift));
    let blind: Vec<u64> = m.iter().zip(shifted).map(|(m, shifted)| plain::mul(*m, shifted)).collect();
    let blinded = match sum {
        Some(sum) => asker.send(&sum, &blind)?,
        None => asker.send(&Slots::<L1>::clear(&[]), &blind)?,
    };
    let repeated = if input.repeated { input.block } else { DEGREE };
    let asked = Asked { inverse, labels: input.labels, block: input.block, repeated };
    Ok((asked, Query { blinded, block: repeated as u32 }))
}

/// P1 takes the blinds off as it applies its functions.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Slots<L1>, ProtocolError> {
    let Asked { inverse, labels, block, repeated } = asked;
    let mut factors: [Vec<u64>; 3] = std::array::from_fn(|_| Vec::with_capacity(DEGREE));
    let inverse = inverse.get(..repeated).unwrap_or_default().iter().cycle();
    for (inverse, label) in inverse.zip(spread(&labels, block)) {
        let mut power = 1;
        for (factors, factor) in factors.iter_mut().zip(label.factors) {
            power = plain::mul(power, *inverse);
            factors.push(plain::mul(factor, power));
        }
    }
    let [f1, f2, f3] = factors.map(|values| Factor::new(&values));
    let terms = [(&answer.power, &f1), (&answer.square, &f2), (&answer.cube, &f3)];
    let mut labelled = Slots::dot(terms).ok_or(ProtocolError::Cancelled)?;
    match labels.as_slice() {
        [single] => labelled.add_constant(single.constant),
        several => {
            let constants: Vec<u64> = spread(several, block).map(|label| label.constant).collect();
            labelled.add_clear(&Offset::new(&constants));
        }
    }
    Ok(labelled)
}

/// One round for many vectors.
pub async fn relabel(session: &Session, inputs: Vec<Combination>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    session.round::<Relabel, _, _, _>(inputs, 3, ask, finish).await
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use veil_slots::PLAIN_MODULUS;

    use super::*;
    use crate::testing::Parties;

    fn draw(parties: &mut Parties, count: usize) -> Vec<Arc<Label>> {
        (0..count).map(|_| Arc::new(Label::draw(&mut parties.rng))).collect()
    }

    /// Directly in the field, from the same secrets.
    fn expected(label: &Label, x: u64) -> u64 {
        let v = plain::pow(plain::add(x, label.shift), EXPONENT);
        let powers = [v, plain::mul(v, v), plain::mul(plain::mul(v, v), v)];
        let terms = powers.iter().zip(label.factors).map(|(power, factor)| plain::mul(*power, factor));
        terms.fold(label.constant, plain::add)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn labels_are_the_function_of_the_combination() {
        let mut parties = Parties::new(63);
        let (a, b, c, clear) = (parties.numbers(), parties.numbers(), parties.numbers(), parties.numbers());
        let (sealed_a, sealed_b, sealed_c) = (parties.encrypt(&a), parties.encrypt(&b), parties.encrypt(&c));
        let (labels, block) = (draw(&mut parties, 3), 2048);
        let coefficients: Vec<u64> = plain::uniform_vec(3, &mut parties.rng);
        // The third list has no clear numbers, and what is behind it goes with it.
        let input = Combination {
            terms: vec![(sealed_a, vec![5]), (sealed_b, coefficients.clone()), (sealed_c, vec![5])],
            clear: Some(Arc::new(clear[..2 * block].to_vec())),
            labels: labels.clone(),
            block,
            repeated: false,
        };
        let single =
            Combination { terms: Vec::new(), labels: labels[..1].to_vec(), block: 4 * DEGREE, ..input.clone() };
        let labelled = relabel(&parties.session, vec![input, single]).await.unwrap();
        let (found, found_single) = (parties.open(&labelled[0]), parties.open(&labelled[1]));
        for slot in 0..DEGREE {
            let list = (slot / block).min(2);
            let sum = plain::add(plain::mul(plain::add(a[slot], c[slot]), 5), plain::mul(b[slot], coefficients[list]));
            let clear = if slot < 2 * block { clear[slot] } else { 0 };
            assert_eq!(found[slot], expected(&labels[list], plain::add(sum, clear)), "slot {slot}");
            assert_eq!(found_single[slot], expected(&labels[0], clear));
            assert_eq!(labels[0].of(a[slot]), expected(&labels[0], a[slot]));
        }
        assert_eq!(format!("{:?}", labels[0]), "Label(secret)");
    }

    /// The first block, in all of them, whatever else the vector holds.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_block_can_be_repeated() {
        let mut parties = Parties::new(66);
        let (a, labels) = (parties.numbers(), draw(&mut parties, 1));
        let sealed = parties.encrypt(&a);
        for block in [1, 16, 4096] {
            let terms = vec![(sealed.clone(), vec![3])];
            let input =
                Combination { terms, clear: Some(Arc::new(vec![7; 5])), labels: labels.clone(), block, repeated: true };
            let labelled = relabel(&parties.session, vec![input]).await.unwrap();
            let clear = |slot: usize| if slot < 5 { 7 } else { 0 };
            let first = a[..block].iter().enumerate().map(|(slot, a)| plain::add(plain::mul(3, *a), clear(slot)));
            let first: Vec<u64> = first.map(|x| expected(&labels[0], x)).collect();
            assert_eq!(parties.open(&labelled[0]), first.repeat(DEGREE / block), "{block}");
        }
        let labels = draw(&mut parties, 2);
        let input = Combination { terms: Vec::new(), clear: None, labels, block: 16, repeated: true };
        let error = relabel(&parties.session, vec![input]).await.unwrap_err();
        assert_eq!(error.to_string(), "2 lists of 16 slots cannot be repeated");
    }

    /// Equal numbers have equal labels, different ones different labels, lists nothing in common; the value that meets the shift
    /// is a value as any other.
    #[tokio::test(flavor = "multi_thread")]
    async fn labels_are_equal_where_values_are() {
        let mut parties = Parties::new(64);
        let labels = draw(&mut parties, 2);
        let mut values: Vec<u64> = (0..DEGREE as u64).map(|row| row % 4096 % 1000).collect();
        values[7] = plain::neg(labels[0].shift);
        values[8] = values[7];
        let terms = vec![(parties.encrypt(&values), vec![1])];
        let input = Combination { terms, clear: None, labels, block: 4096, repeated: false };
        // Blinds are drawn anew, labels are not.
        let labelled = relabel(&parties.session, vec![input.clone(), input]).await.unwrap();
        let found = parties.open(&labelled[0]);
        assert_eq!(parties.open(&labelled[1]), found);
        let mut known: HashMap<(usize, u64), u64> = HashMap::new();
        for (slot, (value, label)) in values.iter().zip(&found).enumerate() {
            assert_eq!(known.entry((slot / 4096, *value)).or_insert(*label), label);
        }
        let different: std::collections::HashSet<u64> = known.values().copied().collect();
        assert_eq!((known.len(), different.len()), (2001, 2001));
    }

    /// Sums `a_i + b_j` satisfy `x_ij - x_il - x_kj + x_kl = 0` always, products of them the like; their labels never do.
    #[tokio::test(flavor = "multi_thread")]
    async fn labels_of_sums_are_no_sums() {
        let mut parties = Parties::new(65);
        let (a, b) = (parties.numbers(), parties.numbers());
        let at = |i: usize, j: usize| i * 128 + j;
        let values: Vec<u64> = (0..DEGREE).map(|slot| plain::add(a[slot / 128], b[slot % 128])).collect();
        let terms = vec![(parties.encrypt(&values), vec![1])];
        let input = Combination { terms, clear: None, labels: draw(&mut parties, 1), block: DEGREE, repeated: false };
        let labelled = relabel(&parties.session, vec![input]).await.unwrap();
        let structured = |numbers: &[u64]| {
            let corner = |i, j, k, l| {
                let [ij, il, kj, kl] = [at(i, j), at(i, l), at(k, j), at(k, l)].map(|slot| numbers[slot]);
                let sums = plain::add(ij, kl) == plain::add(il, kj);
                (sums, sums || plain::mul(ij, kl) == plain::mul(il, kj))
            };
            let corners = (1..64).flat_map(|k| (1..128).map(move |l| corner(0, 0, k, l)));
            corners.fold((0, 0), |(sums, any), found| (sums + usize::from(found.0), any + usize::from(found.1)))
        };
        assert_eq!(structured(&values).0, 63 * 127);
        assert_eq!(structured(&parties.open(&labelled[0])), (0, 0));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_does_not_fit_is_refused() {
        let mut parties = Parties::new(66);
        let (slots, labels) = (parties.encrypt(&[1]), draw(&mut parties, 3));
        let ask = async |terms: Vec<u64>, clear: Vec<u64>, labels: &[Arc<Label>], block: usize| {
            let terms = vec![(slots.clone(), terms)];
            let input =
                Combination { terms, clear: Some(Arc::new(clear)), labels: labels.to_vec(), block, repeated: false };
            relabel(&parties.session, vec![input]).await.unwrap_err().to_string()
        };
        let sentence = "3 lists of 4096 slots do not make a vector";
        assert_eq!(ask(vec![1], vec![], &labels, 4096).await, sentence);
        assert!(ask(vec![1], vec![], &[], 4096).await.starts_with("0 lists"));
        assert!(ask(vec![1], vec![], &labels, 0).await.ends_with("do not make a vector"));
        assert_eq!(ask(vec![1, 2], vec![], &labels, 1024).await, "2 coefficients do not fit 3 lists");
        assert!(ask(vec![PLAIN_MODULUS], vec![], &labels, 1024).await.contains(&PLAIN_MODULUS.to_string()));
        assert!(ask(vec![1], vec![PLAIN_MODULUS], &labels, 1024).await.contains(&PLAIN_MODULUS.to_string()));
        assert!(ask(vec![1], vec![0; DEGREE + 1], &labels, 1024).await.starts_with("8193 clear numbers"));
    }
}
