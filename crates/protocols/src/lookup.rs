//! `f(x)` for `x` in a small public domain: nobody learns anything.
//!
//! ```text
//!  P1: pi, a secret permutation of the domain for every slot;  r_p uniform, not zero
//!                               r_p (x - pi(p))  for every p  -->
//!                                                             <--  [r_p (x - pi(p)) = 0]  for every p          P2
//!  P1: f(x) = sum_p [..] f(pi(p))
//! ```
//! In every slot P2 sees exactly one zero, at a uniform place, and uniform numbers elsewhere. Candidates are clear vectors, so a
//! permutation for each slot costs nothing; and `f` may differ from slot to slot. A row carries up to sixteen candidates.
//!
//! Where the domain is a range of neighbours, [`lookup_range`](crate::lookup_range) does the same for less than half.

use std::sync::Arc;

use rand::CryptoRng;
use rand::seq::SliceRandom;
use veil_slots::{DEGREE, Factor, Fresh, Inbound, KeyHolder, L1, Outbound, SeededSlots, Slots, plain};

use crate::channel::blocking;
use crate::lookup_range::{self, LookupRange};
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Lookup;

/// Candidates of one row.
pub(crate) const GROUP: usize = 16;

/// The largest domain.
pub const MAX_DOMAIN: usize = 1024;

message! {
    /// Candidates, blinded.
    Query<C: Outbound => Inbound> {
        /// `r_p (x - pi(p))`, one ciphertext a candidate.
        candidates: Vec<C>,
    }
}

message! {
    /// Which candidates are zero.
    Answer<C: SeededSlots => Fresh> {
        /// One ciphertext of bits a candidate.
        zeros: Vec<C>,
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        if self.candidates.len() > GROUP {
            let found = self.candidates.len();
            return Err(ProtocolError::TooLarge { what: "a group of candidates", found, limit: GROUP });
        }
        Ok(self.candidates.len())
    }
}

impl Protocol for Lookup {
    const NAME: &'static str = "lookup";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "a function over a small public domain";
    const LEAKAGE: Leakage =
        Leakage { p1: "nothing", p2: "nothing if every slot is in the domain; otherwise, which slots are not" };
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
        let zeros = query.candidates.into_iter().map(|candidate| {
            let values = holder.open(candidate);
            holder.seal(&values.iter().map(|value| u64::from(*value == 0)).collect::<Vec<_>>(), rng)
        });
        Ok(Answer { zeros: zeros.collect() })
    }
}

/// The values of a function.
#[derive(Clone)]
pub enum Table {
    /// The same in every slot: one number below `t` a candidate.
    Shared(Arc<[u64]>),
    /// One number below `t` a slot, for every candidate.
    PerSlot(Arc<[Vec<u64>]>),
    /// The same, computed for a candidate's place in the domain and a slot when it is needed: large tables of a kind.
    Computed(Arc<dyn Fn(usize, usize) -> u64 + Send + Sync>),
}

impl Table {
    /// For how many candidates there is a value, if not for any number of them.
    fn len(&self) -> Option<usize> {
        match self {
            Self::Shared(values) => Some(values.len()),
            Self::PerSlot(values) => Some(values.len()),
            Self::Computed(_) => None,
        }
    }

    fn at(&self, candidate: usize, slot: usize) -> u64 {
        match self {
            Self::Shared(values) => values[candidate],
            Self::PerSlot(values) => values[candidate].get(slot).copied().unwrap_or_default(),
            Self::Computed(value) => value(candidate, slot),
        }
    }
}

/// What to look up.
#[derive(Clone)]
pub struct Question {
    /// `x`; every slot must be in the domain, unused ones too (which are zero, unless a clear vector was added).
    pub slots: Slots<L1>,
    /// The domain: different numbers below `t`.
    pub domain: Arc<[u64]>,
    /// The functions: all are answered by the same round.
    pub tables: Vec<Table>,
}

impl Question {
    /// Refuses what cannot be looked up.
    fn check(&self) -> Result<(), ProtocolError> {
        let size = self.domain.len();
        if !(1..=MAX_DOMAIN).contains(&size) {
            let text = format!("a lookup takes a domain of 1 to {MAX_DOMAIN} numbers, not {size}");
            return Err(ProtocolError::Misuse(text));
        }
        plain::checked(&self.domain)?;
        let mut sorted = self.domain.to_vec();
        sorted.sort_unstable();
        if let Some([twice, _]) = sorted.array_windows().find(|[a, b]| a == b) {
            return Err(ProtocolError::Misuse(format!("the domain of a lookup has {twice} twice")));
        }
        match self.tables.iter().filter_map(Table::len).find(|values| *values != size) {
            Some(values) => {
                let text = format!("a table of {values} values does not fit a domain of {size} numbers");
                Err(ProtocolError::Misuse(text))
            }
            None => Ok(()),
        }
    }

    /// Whether each number of the domain is one more than the one before.
    fn is_range(&self) -> bool {
        self.domain.is_sorted_by(|a, b| plain::add(*a, 1) == *b)
    }
}

/// Some candidates of a question.
pub struct Group {
    pub(crate) question: Arc<Question>,
    /// For every candidate of the group, and every slot, its place in the domain.
    pub(crate) places: Vec<Vec<u16>>,
    /// Which candidates they are.
    pub(crate) first: usize,
}

/// Draws, for every slot, a permutation of the domain (of a range: a rotation), and cuts the question into groups.
fn groups(question: Question, is_range: bool, rng: &mut impl CryptoRng) -> impl Iterator<Item = Group> {
    let size = question.domain.len();
    let mut order: Vec<u16> = (0..size as u16).collect();
    let mut places = vec![vec![0; DEGREE]; size];
    for slot in 0..DEGREE {
        match is_range {
            true => order.rotate_left(plain::uniform_below(size as u64, rng) as usize),
            // Any permutation shuffled uniformly is uniform, so the last one serves as the start.
            false => order.shuffle(rng),
        }
        places.iter_mut().zip(&order).for_each(|(places, place)| places[slot] = *place);
    }
    let question = Arc::new(question);
    let mut places = places.into_iter();
    (0..size).step_by(GROUP).map(move |first| Group {
        question: question.clone(),
        places: places.by_ref().take(GROUP).collect(),
        first,
    })
}

/// P1 blinds the candidates of a group.
pub fn ask(group: Group, asker: &mut Asker<'_>) -> Result<(Group, Query<Outbound>), ProtocolError> {
    let candidates = group.places.iter().map(|places| {
        let r: Vec<u64> = (0..DEGREE).map(|_| plain::uniform_non_zero(&mut asker.rng)).collect();
        let minus = |(r, place): (&u64, &u16)| plain::neg(plain::mul(*r, group.question.domain[usize::from(*place)]));
        let blind: Vec<u64> = r.iter().zip(places).map(minus).collect();
        asker.send(&group.question.slots.times(&Factor::new(&r)), &blind)
    });
    let candidates = candidates.collect::<Result<_, _>>()?;
    Ok((group, Query { candidates }))
}

/// P1 sums what the group contributes to each table.
pub fn finish(group: Group, answer: Answer<Fresh>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    group.contributions(&answer.zeros)
}

impl Group {
    /// The sum of each table's values over the candidates, given which candidate is the right one.
    pub(crate) fn contributions(&self, hits: &[Fresh]) -> Result<Vec<Slots<L1>>, ProtocolError> {
        if hits.len() != self.places.len() {
            return Err(ProtocolError::Malformed(format!("{} of {} candidates", hits.len(), self.places.len())));
        }
        let sum = |table: &Table| {
            let values = |places: &Vec<u16>| -> Vec<u64> {
                places.iter().enumerate().map(|(slot, place)| table.at((*place).into(), slot)).collect()
            };
            let factors: Vec<Factor> = self.places.iter().map(|places| Factor::new(&values(places))).collect();
            Slots::dot(hits.iter().zip(&factors)).ok_or(ProtocolError::Cancelled)
        };
        self.question.tables.iter().map(sum).collect()
    }
}

/// One round for many questions: for each, its tables' values. Domains that are ranges take the shorter way.
pub async fn lookup(session: &Session, questions: Vec<Question>) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    questions.iter().try_for_each(Question::check)?;
    let mut rng = session.randomness().fork();
    let cut = blocking(move || {
        let (mut scattered, mut ranges, mut order) = (Vec::new(), Vec::new(), Vec::new());
        for question in questions {
            let is_range = question.is_range();
            let cut = if is_range { &mut ranges } else { &mut scattered };
            let before = cut.len();
            cut.extend(groups(question, is_range, &mut rng));
            order.push((is_range, cut.len() - before));
        }
        (scattered, ranges, order)
    });
    let (scattered, ranges, order) = cut.await?;
    let mut ranges = session
        .round::<LookupRange, _, _, _>(ranges, GROUP, lookup_range::ask, lookup_range::finish)
        .await?
        .into_iter();
    let mut scattered = session.round::<Lookup, _, _, _>(scattered, GROUP, ask, finish).await?.into_iter();
    let mut answers = Vec::with_capacity(order.len());
    for (is_range, groups) in order {
        let partial = if is_range { &mut ranges } else { &mut scattered };
        let add = |mut total: Vec<Slots<L1>>, partial: Vec<Slots<L1>>| {
            total.iter_mut().zip(&partial).for_each(|(total, partial)| total.add(partial));
            total
        };
        answers.push(partial.by_ref().take(groups).reduce(add).ok_or(ProtocolError::Cancelled)?);
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn shared_and_per_slot_tables_are_answered_together() {
        let mut parties = Parties::new(16);
        let places = parties.numbers_below(40);
        let domain: Arc<[u64]> = (0..40).map(|place| plain::from_signed(place * place - 20)).collect();
        let values: Vec<u64> = places.iter().map(|place| domain[*place as usize]).collect();
        let reciprocal: Arc<[u64]> = (0..40).map(|place| (1 << 40) / (place + 1)).collect();
        let own: Arc<[Vec<u64>]> =
            (0..40).map(|place| (0..DEGREE as u64).map(|slot| slot * 40 + place).collect()).collect();
        let question = Question {
            slots: parties.encrypt(&values),
            domain,
            tables: vec![
                Table::Shared(reciprocal.clone()),
                Table::PerSlot(own),
                Table::Computed(Arc::new(|place, slot| (slot * 40 + place) as u64)),
            ],
        };
        let answers = lookup(&parties.session, vec![question.clone(), question]).await.unwrap();
        let shared: Vec<u64> = places.iter().map(|place| reciprocal[*place as usize]).collect();
        let per_slot: Vec<u64> = places.iter().enumerate().map(|(slot, place)| slot as u64 * 40 + place).collect();
        for answer in answers {
            assert_eq!(parties.open(&answer[0]), shared);
            assert_eq!(parties.open(&answer[1]), per_slot);
            assert_eq!(parties.open(&answer[2]), per_slot);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn ranges_take_the_shorter_way_beside_others() {
        let mut parties = Parties::new(25);
        for (lowest, size) in [(0, 64), (-5, 11), (100, 1), (0, 17)] {
            let places = parties.numbers_below(size.max(2)).into_iter().map(|place| place % size).collect::<Vec<_>>();
            let domain: Arc<[u64]> = (0..size as i64).map(|place| plain::from_signed(lowest + place)).collect();
            let values: Vec<u64> = places.iter().map(|place| domain[*place as usize]).collect();
            let table: Arc<[u64]> = (0..size).map(|place| plain::mul(place + 1, 1 << 40)).collect();
            let question =
                Question { slots: parties.encrypt(&values), domain, tables: vec![Table::Shared(table.clone())] };
            let mut scattered = question.clone();
            scattered.domain = question.domain.iter().rev().copied().collect();
            scattered.tables = vec![Table::Shared(table.iter().rev().copied().collect())];
            assert!(question.is_range() && (size == 1 || !scattered.is_range()));
            let answers = lookup(&parties.session, vec![scattered, question]).await.unwrap();
            let expected: Vec<u64> = places.iter().map(|place| table[*place as usize]).collect();
            answers.iter().for_each(|answer| assert_eq!(parties.open(&answer[0]), expected, "{size} from {lowest}"));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn impossible_questions_are_refused() {
        let mut parties = Parties::new(17);
        let slots = parties.encrypt(&[0; DEGREE]);
        let ask = |domain: Vec<u64>, table: Vec<u64>| {
            vec![Question { slots: slots.clone(), domain: domain.into(), tables: vec![Table::Shared(table.into())] }]
        };
        let session = &parties.session;
        assert!(lookup(session, ask(vec![], vec![])).await.is_err());
        assert!(lookup(session, ask(vec![1, 2], vec![1])).await.is_err());
        let error = lookup(session, ask(vec![9, 2, 9], vec![1, 2, 3])).await.unwrap_err();
        assert_eq!(error.to_string(), "the domain of a lookup has 9 twice");
        assert!(lookup(session, ask(vec![veil_slots::PLAIN_MODULUS], vec![1])).await.is_err());
        assert!(lookup(session, ask((0..1025).collect(), (0..1025).collect())).await.is_err());
    }
}
