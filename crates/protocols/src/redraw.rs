//! A category or truth value drawn again, by P2: the noise that neither party alone can take off.
//!
//! ```text
//!  P1: rho uniform below M = leaves + 1      x + rho + M R, M R without wrapping  -->  w = x + rho mod M
//!                                                              P2: draws, for EVERY leaf d, an answer o_d
//!                                                                                 <--  o_(w - r mod M) for every r                P2
//!  P1: picks r = rho
//! ```
//! `x` is the number of a leaf, or `leaves` for a value that is not drawn for and stays. P2 sees a number within `M / t` of uniform, and never learns which of
//! its draws counts; P1 gets one encrypted answer of `M`. Up to sixteen shifts are asked for in a row; rows of one vector draw anew, and P1 picks
//! from one of them.

use std::sync::Arc;

use rand::{CryptoRng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use veil_cells::{CellArray, Mechanism};
use veil_privacy::{BinaryMechanism, Epsilon, ExponentialMechanism, Losses, RandomizedResponse};
use veil_slots::{DEGREE, Factor, Fresh, Inbound, KeyHolder, L1, Outbound, PLAIN_MODULUS, SeededSlots, Slots, plain};

use crate::choose::Categories;
use crate::lift::lift_column;
use crate::lists::together;
use crate::lookup::{GROUP, MAX_DOMAIN, Question, lookup};
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Redraw;

message! {
    /// The masked vector, and what to draw.
    Query<C: Outbound => Inbound> {
        /// `x + rho + M R`.
        masked: C,
        /// The mechanism, by its number.
        mechanism: u32,
        /// Its epsilon in millionths.
        epsilon: Vec<u64>,
        /// How many leaves there are.
        leaves: u32,
        /// For every leaf its codes, leaf first, root last; none where all leaves are alike.
        codes: Vec<u64>,
        /// The first shift that is asked for.
        first: u32,
        /// How many are.
        count: u32,
    }
}

message! {
    /// The answers.
    Answer<C: SeededSlots => Fresh> {
        /// One ciphertext a shift.
        shifted: Vec<C>,
    }
}

/// Mechanisms by their numbers on the wire.
const MECHANISMS: [Mechanism; 5] = [
    Mechanism::Binary,
    Mechanism::RandomizedResponse,
    Mechanism::ExponentialHierarchy,
    Mechanism::ExponentialOrder,
    Mechanism::ExponentialEquality,
];

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let Self { leaves, first, count, .. } = *self;
        if !(2..MAX_DOMAIN as u32).contains(&leaves) || first.saturating_add(count) > leaves + 1 {
            return Err(ProtocolError::Malformed(format!("no {count} shifts from {first} of {leaves} leaves")));
        }
        match count as usize {
            count @ ..=GROUP => Ok(count),
            found => Err(ProtocolError::TooLarge { what: "a group of candidates", found, limit: GROUP }),
        }
    }
}

impl Protocol for Redraw {
    const NAME: &'static str = "redraw";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "a category or truth value, drawn again by P2";
    const LEAKAGE: Leakage = Leakage {
        p1: "nothing",
        p2: "the mechanism, its epsilon and the shape of the hierarchy; values are masked to within 2^-38 of uniform",
    };
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer<SeededSlots>;
    type Reply = Answer<Fresh>;

    fn answer(
        query: Query<Inbound>,
        holder: &dyn KeyHolder,
        mut rng: &mut dyn CryptoRng,
    ) -> Result<Answer<SeededSlots>, ProtocolError> {
        let sampler = Sampler::of(&query)?;
        let (leaves, shifts) = (query.leaves as usize, query.first as usize..(query.first + query.count) as usize);
        let size = leaves + 1;
        let opened = holder.open(query.masked);
        let mut shifted = vec![vec![0u64; DEGREE]; shifts.len()];
        let mut drawn = vec![0; size];
        // A generator of one type: samplers are compiled for it once.
        let mut draws = ChaCha20Rng::from_rng(&mut rng);
        for (slot, word) in opened.iter().enumerate() {
            sampler.draw_all(&mut drawn, &mut draws);
            let residue = (word % size as u64) as usize;
            for (shifted, shift) in shifted.iter_mut().zip(shifts.clone()) {
                shifted[slot] = u64::from(drawn[(residue + size - shift) % size]);
            }
        }
        Ok(Answer { shifted: shifted.iter().map(|values| holder.seal(values, rng)).collect() })
    }
}

/// What P2 draws with.
enum Sampler {
    Binary(BinaryMechanism),
    Response(RandomizedResponse),
    Exponential(ExponentialMechanism),
}

impl Sampler {
    fn of(query: &Query<Inbound>) -> Result<Self, ProtocolError> {
        let malformed = |why: String| ProtocolError::Malformed(why);
        let mechanism = MECHANISMS.get(query.mechanism as usize);
        let mechanism = mechanism.ok_or_else(|| malformed(format!("no mechanism {}", query.mechanism)))?;
        let epsilon = match query.epsilon.as_slice() {
            [millionths] => Epsilon::from_millionths(*millionths).map_err(|error| malformed(error.to_string()))?,
            _ => return Err(malformed("a draw has one epsilon".to_owned())),
        };
        let leaves = query.leaves as usize;
        let exponential = |losses: Result<Losses, veil_privacy::CategoryError>| {
            let losses = losses.map_err(|error| malformed(error.to_string()))?;
            Ok(Self::Exponential(ExponentialMechanism::new(losses, epsilon)))
        };
        match mechanism {
            Mechanism::Binary if leaves == 2 => Ok(Self::Binary(BinaryMechanism::new(epsilon))),
            Mechanism::RandomizedResponse => {
                let response = RandomizedResponse::new(leaves, epsilon);
                response.map(Self::Response).map_err(|error| malformed(error.to_string()))
            }
            Mechanism::ExponentialHierarchy => {
                let levels = query.codes.len() / leaves;
                if levels == 0 || levels * leaves != query.codes.len() {
                    return Err(malformed("the leaves of a hierarchy have different numbers of levels".to_owned()));
                }
                let code = |code: &u64| i64::try_from(*code).unwrap_or(i64::MAX);
                let codes: Vec<Vec<i64>> =
                    query.codes.chunks(levels).map(|leaf| leaf.iter().map(code).collect()).collect();
                exponential(Losses::hierarchy(&codes))
            }
            Mechanism::ExponentialOrder => exponential(Losses::order(leaves)),
            Mechanism::ExponentialEquality => exponential(Losses::equality(leaves)),
            other => Err(malformed(format!("{other:?} of {leaves} leaves is not drawn"))),
        }
    }

    /// An answer for every leaf, and at the end what stays.
    fn draw_all(&self, drawn: &mut [u32], rng: &mut ChaCha20Rng) {
        let Some((stays, leaves)) = drawn.split_last_mut() else { return };
        *stays = leaves.len() as u32;
        match self {
            Self::Binary(mechanism) => {
                let flip = u32::from(mechanism.flips(rng));
                leaves.iter_mut().zip(0..).for_each(|(drawn, leaf)| *drawn = leaf ^ flip);
            }
            Self::Response(mechanism) => {
                let response = mechanism.draw(rng);
                leaves.iter_mut().enumerate().for_each(|(leaf, drawn)| *drawn = response.answer(leaf) as u32);
            }
            Self::Exponential(mechanism) => mechanism.draw_all(leaves, rng),
        }
    }
}

/// What is to be drawn.
#[derive(Clone, Debug)]
pub struct Draw {
    /// How.
    pub mechanism: Mechanism,
    /// Its epsilon in millionths.
    pub epsilon: u64,
    /// `codes[leaf][level]`, leaf level first.
    pub codes: Arc<Vec<Vec<i64>>>,
}

/// Some shifts of one vector.
pub struct Part {
    slots: Slots<L1>,
    rho: Arc<Vec<u32>>,
    draw: Draw,
    first: u32,
    count: u32,
}

/// What P1 remembers: where it picks from.
pub struct Asked {
    rho: Arc<Vec<u32>>,
    first: u32,
    count: u32,
}

/// P1 masks.
pub fn ask(part: Part, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Part { slots, rho, draw, first, count } = part;
    let size = draw.codes.len() as u64 + 1;
    let multiples = (PLAIN_MODULUS - size) / size;
    let mask = rho.iter().map(|rho| u64::from(*rho) + size * plain::uniform_below(multiples, &mut asker.rng));
    let mask: Vec<u64> = mask.collect();
    let mechanism = MECHANISMS.iter().position(|mechanism| *mechanism == draw.mechanism);
    let mechanism =
        mechanism.ok_or_else(|| ProtocolError::Misuse(format!("{:?} is not drawn again", draw.mechanism)))?;
    let codes = match draw.mechanism {
        Mechanism::ExponentialHierarchy => draw.codes.iter().flatten().map(|code| code.unsigned_abs()).collect(),
        _ => Vec::new(),
    };
    let query = Query {
        masked: asker.send(&slots, &mask)?,
        mechanism: mechanism as u32,
        epsilon: vec![draw.epsilon],
        leaves: draw.codes.len() as u32,
        codes,
        first,
        count,
    };
    Ok((Asked { rho, first, count }, query))
}

/// P1 picks.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Slots<L1>, ProtocolError> {
    let Asked { rho, first, count } = asked;
    if answer.shifted.len() != count as usize {
        return Err(ProtocolError::Malformed(format!("{} shifts instead of {count}", answer.shifted.len())));
    }
    let own = |shift: u32| Factor::new(&rho.iter().map(|rho| u64::from(*rho == shift)).collect::<Vec<_>>());
    let own: Vec<Factor> = (first..first + count).map(own).collect();
    Slots::dot(answer.shifted.iter().zip(&own)).ok_or(ProtocolError::Cancelled)
}

/// Draws again for every vector of numbers of leaves; `leaves` stays what it is.
pub async fn redraw(session: &Session, vectors: Vec<Slots<L1>>, draw: &Draw) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let leaves = draw.codes.len() as u32;
    if !(2..MAX_DOMAIN as u32).contains(&leaves) {
        return Err(ProtocolError::Misuse(format!(
            "{leaves} leaves cannot be drawn from: 2 to {} are fine",
            MAX_DOMAIN - 1
        )));
    }
    let mut rng = session.randomness().fork();
    let mut parts_of = |slots: Slots<L1>| -> Vec<Part> {
        let rho = (0..DEGREE).map(|_| plain::uniform_below(u64::from(leaves) + 1, &mut rng) as u32);
        let rho = Arc::new(rho.collect::<Vec<u32>>());
        let part = |first: u32| Part {
            slots: slots.clone(),
            rho: rho.clone(),
            draw: draw.clone(),
            first,
            count: (leaves + 1 - first).min(GROUP as u32),
        };
        (0..=leaves).step_by(GROUP).map(part).collect()
    };
    let (parts, lengths) = together(vectors.into_iter().map(&mut parts_of));
    let picked = lengths.apart(session.round::<Redraw, _, _, _>(parts, GROUP, ask, finish).await?)?;
    let add = |mut sum: Slots<L1>, picked: Slots<L1>| {
        sum.add(&picked);
        sum
    };
    let sum = |picked: Vec<Slots<L1>>| picked.into_iter().reduce(add);
    picked.into_iter().map(sum).collect::<Option<Vec<_>>>().ok_or(ProtocolError::Cancelled)
}

/// Draws again for a column of truth values: its numbers in slots.
pub async fn redraw_bits(
    session: &Session,
    column: CellArray<'_>,
    width: u32,
    draws: &[(Mechanism, u64)],
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let mut vectors = lift_column(session, column, 0, width).await?.into_vectors();
    for (mechanism, epsilon) in draws {
        let codes = Arc::new(vec![vec![0], vec![1]]);
        vectors = redraw(session, vectors, &Draw { mechanism: *mechanism, epsilon: *epsilon, codes }).await?;
    }
    Ok(vectors)
}

/// Draws again for a column of categories: the codes of every level, in slots.
pub async fn redraw_categories(
    session: &Session,
    column: CellArray<'_>,
    categories: &Categories,
    codes: Arc<Vec<Vec<i64>>>,
    draws: &[(Mechanism, u64)],
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let lifted = lift_column(session, column, 0, categories.width()).await?.into_vectors();
    let (domain, table) = categories.numbers();
    let question = |slots| Question { slots, domain: domain.clone(), tables: vec![table.clone()] };
    let mut numbers: Vec<Slots<L1>> =
        lookup(session, lifted.into_iter().map(question).collect()).await?.into_iter().flatten().collect();
    for (mechanism, epsilon) in draws {
        let draw = Draw { mechanism: *mechanism, epsilon: *epsilon, codes: codes.clone() };
        numbers = redraw(session, numbers, &draw).await?;
    }
    let (domain, tables) = categories.codes_of_numbers();
    let question = |slots| Question { slots, domain: domain.clone(), tables: tables.clone() };
    let found = lookup(session, numbers.into_iter().map(question).collect()).await?;
    let level = |level: usize| found.iter().map(|lanes| lanes.get(level).cloned()).collect::<Option<Vec<_>>>();
    (0..tables.len()).map(level).collect::<Option<Vec<_>>>().ok_or(ProtocolError::Cancelled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    const CERTAIN: u64 = 1_000_000_000;

    fn codes(leaves: i64) -> Arc<Vec<Vec<i64>>> {
        Arc::new((0..leaves).map(|leaf| vec![leaf * 7, leaf / 3 * 21, 0]).collect())
    }

    /// With an epsilon so large that no draw ever differs, everything stays: every mechanism, one group of shifts and several.
    #[tokio::test(flavor = "multi_thread")]
    async fn certain_draws_change_nothing() {
        let mut parties = Parties::new(700);
        for (leaves, mechanisms) in [(2, &MECHANISMS[..]), (5, &MECHANISMS[1..]), (40, &MECHANISMS[1..])] {
            let numbers: Vec<u64> = (0..DEGREE as u64).map(|slot| slot % (leaves + 1)).collect();
            let slots = parties.encrypt(&numbers);
            for mechanism in mechanisms {
                let draw = Draw { mechanism: *mechanism, epsilon: CERTAIN, codes: codes(leaves as i64) };
                let found = redraw(&parties.session, vec![slots.clone()], &draw).await.unwrap();
                assert_eq!(parties.open(&found[0]), numbers, "{mechanism:?} of {leaves}");
            }
        }
    }

    /// Draws are those of the mechanism, whatever the value, and what is not drawn for stays.
    #[tokio::test(flavor = "multi_thread")]
    async fn draws_are_those_of_the_mechanism() {
        let mut parties = Parties::new(701);
        let epsilon = Epsilon::from_millionths(1_000_000).unwrap();
        let flips = BinaryMechanism::new(epsilon).flip_probability();
        let response = RandomizedResponse::new(20, epsilon).unwrap();
        let losses = Losses::hierarchy(&codes(20)).unwrap();
        let exponential = ExponentialMechanism::new(losses, epsilon);
        for truth in [0usize, 1, 19, 20] {
            for (mechanism, leaves) in
                [(Mechanism::Binary, 2), (Mechanism::RandomizedResponse, 20), (Mechanism::ExponentialHierarchy, 20)]
            {
                if truth > leaves {
                    continue;
                }
                let slots = parties.encrypt(&[truth as u64; DEGREE]);
                let draw = Draw { mechanism, epsilon: epsilon.millionths(), codes: codes(leaves as i64) };
                let found = parties.open(&redraw(&parties.session, vec![slots], &draw).await.unwrap()[0]);
                if truth == leaves {
                    assert!(found.iter().all(|answer| *answer == truth as u64), "{mechanism:?}");
                    continue;
                }
                for answer in 0..leaves {
                    let expected = match mechanism {
                        Mechanism::Binary if answer != truth => flips,
                        Mechanism::Binary => 1.0 - flips,
                        Mechanism::RandomizedResponse => response.probability(truth, answer),
                        _ => exponential.probability(truth, answer),
                    };
                    let count = found.iter().filter(|found| **found == answer as u64).count() as f64;
                    let (mean, spread) =
                        (expected * DEGREE as f64, (expected * (1.0 - expected) * DEGREE as f64).sqrt());
                    // Five standard deviations, and a few of small numbers.
                    assert!(
                        (count - mean).abs() < 5.0 * spread + 5.0,
                        "{mechanism:?}: {truth} -> {answer}: {count}, not {mean}"
                    );
                }
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_cannot_be_drawn_is_refused() {
        let mut parties = Parties::new(702);
        let slots = parties.encrypt(&[0; DEGREE]);
        for (mechanism, leaves, epsilon, text) in [
            (Mechanism::Laplace, 3, 1, "Laplace is not drawn again"),
            (Mechanism::Binary, 3, 1, "malformed message: Binary of 3 leaves is not drawn"),
            (Mechanism::RandomizedResponse, 3, 0, "malformed message: "),
            (Mechanism::RandomizedResponse, 1, 1, "1 leaves cannot be drawn from"),
        ] {
            let draw = Draw { mechanism, epsilon, codes: codes(leaves) };
            let error = redraw(&parties.session, vec![slots.clone()], &draw).await.unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }
}
