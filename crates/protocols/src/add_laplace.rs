//! Laplace noise whose scale is encrypted, added to cells.
//!
//! ```text
//!  P1: Z, discrete Laplace;  D_k, the limbs of D = upper - lower, encrypted;  B_k > |D_k Z|
//!      rho_k uniform in [0, t - 2 B_k),  u uniform modulo 2^48
//!                 lower, upper,  D_k Z + B_k + rho_k,  seeds, indices, bodies + 2^16 u  -->
//!                                  V uniform, D numbers around zero
//!                                  W = sum_k 2^(16k) (D_k Z + B_k + rho_k)
//!                                                                                       <--  fresh cells of x + u + floor((W + V) / 2^5)      P2
//!  P1: R = sum_k 2^(16k) (B_k + rho_k);   bodies - 2^16 (u + floor(R / 2^5))
//! ```
//! What is added to `x` is `N = floor((D Z + V + (R mod 2^5)) / 2^5)`, exactly, as `floor((X + R) / 2^5) - floor(R / 2^5)` is
//! `floor((X + R mod 2^5) / 2^5)`. A step of `Z` is `D / 2^5`; `V` spreads it evenly over the units between one step and the next,
//! and `R mod 2^5` rounds the last of them up as often as its remainder says.
//!
//! A value is moved by at most `D`, which is `2^5` steps: with `P(Z) ~ exp(-eps |Z| / (2^5 + 1))` the sum is `eps`-private with one step
//! to spare, but for the tail beyond the bound of `Z`. P1 alone knows `Z`, P2 alone knows `D` and `V`.
//!
//! P2 decrypts uniform values: everything there is linear modulo `2^48`. Of a step of at most `s` what it decrypts is within `s / 2^30` of
//! uniform. Cells that combine several samples or carry a factor stay with P1: P2 returns cells of the noise alone, and P1 adds
//! them.

mod column;

use arrow::array::BinaryArray;
use rand::{CryptoRng, RngCore};
use veil_cells::{KeyId, Lanes, POLYNOMIAL_SIZE, message_of_phase, phase_of_message};
use veil_slots::{DEGREE, Factor, Inbound, KeyHolder, Outbound, PLAIN_MODULUS, Sample, plain};

use crate::fresh_cells::{self, Fresh};
use crate::laplace_scale::{EncryptedScale, LIMB_BITS, distance, limb_bits, limb_count};
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Workload, samples};

pub use column::add_laplace;

/// The protocol.
#[derive(Debug)]
pub struct AddLaplace;

/// A step is the distance between the bounds, divided by two to this power.
pub const GRID_BITS: u32 = 5;

/// The largest bound of steps: what P2 sees is then within `2^-8` of uniform.
pub const MAX_STEP_BOUND: u64 = 1 << 22;

message! {
    /// Masked noise steps, and masked values or none.
    Query<C: Outbound => Inbound> {
        /// The seeds of lower and upper, 16 bytes each.
        bound_seeds: Vec<u8>,
        /// For both the number of their seed and their index, `u16` each.
        bound_places: Vec<u8>,
        /// Their bodies.
        bound_bodies: Vec<u64>,
        /// The column's bits: `D` is below `2^width`.
        width: u32,
        /// `D_k Z + B_k + rho_k`, one ciphertext a limb, lowest first.
        steps: Vec<C>,
        /// How many slots are rows.
        rows: u32,
        /// Lanes of a row: the value, and what hides its NULL.
        lanes: u32,
        /// The seeds of the values, 16 bytes each; empty for the noise alone.
        seeds: Vec<u8>,
        /// For every row the number of its seed and the index of its first lane, `u16` each.
        places: Vec<u8>,
        /// Each row's lanes side by side.
        bodies: Vec<u64>,
    }
}

message! {
    /// Fresh chunks of cells, each row's lanes side by side.
    Answer {
        /// One seed a chunk, 16 bytes each.
        seeds: Vec<u8>,
        /// The bodies of all rows.
        bodies: Vec<u64>,
    }
}

impl Query<Inbound> {
    /// All lanes of all rows; nothing if the noise alone is wanted.
    fn values(&self) -> Result<Vec<Sample>, ProtocolError> {
        let lanes = self.lanes as usize;
        let first: Vec<u64> = self.bodies.iter().step_by(lanes).copied().collect();
        let rows = samples::decode(&self.seeds, &self.places, &first)?;
        if rows.iter().any(|row| usize::from(row.index) + lanes > POLYNOMIAL_SIZE) {
            return Err(ProtocolError::Malformed("a row reaches beyond its chunk".to_owned()));
        }
        let lane = |(at, body): (usize, &u64)| {
            let row = rows[at / lanes];
            Sample { seed: row.seed, index: row.index + (at % lanes) as u16, body: *body }
        };
        Ok(self.bodies.iter().enumerate().map(lane).collect())
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let (limbs, rows, lanes) = (limb_count(self.width)?, self.rows as usize, self.lanes as usize);
        let malformed = |why: String| Err(ProtocolError::Malformed(why));
        if self.steps.len() != limbs {
            return malformed(format!("{} limbs of steps for {} bits", self.steps.len(), self.width));
        }
        if rows > DEGREE || !(1..=2).contains(&lanes) {
            return malformed(format!("{rows} rows of {lanes} lanes"));
        }
        if !self.bodies.is_empty() && self.bodies.len() != rows * lanes {
            return malformed(format!("{} bodies for {rows} rows of {lanes} lanes", self.bodies.len()));
        }
        samples::check(&self.bound_seeds, &self.bound_places, &self.bound_bodies)?;
        let first: Vec<u64> = self.bodies.iter().step_by(lanes).copied().collect();
        samples::check(&self.seeds, &self.places, &first)?;
        Ok(limbs.max(lanes))
    }
}

impl Protocol for AddLaplace {
    const NAME: &'static str = "add_laplace";
    const VERSION: u16 = 2;
    const SUMMARY: &'static str = "Laplace noise of an encrypted scale, added to cells";
    const LEAKAGE: Leakage = Leakage {
        p1: "nothing",
        p2: "the column's bounds, which samples of a file take part and which rows are NULL; values are masked uniformly, steps of at most s to within s/2^30 of uniform",
    };
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(query: Query<Inbound>, holder: &dyn KeyHolder, rng: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        query.answer_ciphertexts()?;
        let bounds = samples::decode(&query.bound_seeds, &query.bound_places, &query.bound_bodies)?;
        let values = query.values()?;
        let (rows, lanes) = (query.rows as usize, query.lanes as usize);
        let distance = distance(&bounds, query.width, holder)?;
        let steps: Vec<_> = query.steps.into_iter().map(|limb| holder.open(limb)).collect();
        let phases = holder.open_samples(&values);
        let mut messages = Vec::with_capacity(rows * lanes);
        for row in 0..rows {
            let limbs = steps.iter().map(|limb| limb.get(row).copied().unwrap_or_default());
            let noise = (joined(limbs) + between(distance, rng)) >> GRID_BITS;
            for lane in 0..lanes {
                let message = phases.get(row * lanes + lane).map_or(0, |phase| message_of_phase(*phase));
                // Modulo 2^64, so modulo 2^48 too.
                messages.push(message.wrapping_add(if lane == 0 { noise as i64 } else { 0 }) as u64);
            }
        }
        let (seeds, bodies) = fresh_cells::seal(&messages, lanes, holder, rng);
        Ok(Answer { seeds, bodies })
    }
}

/// `sum_k 2^(16k) x_k`.
fn joined(limbs: impl Iterator<Item = u64>) -> i128 {
    limbs.enumerate().map(|(at, limb)| i128::from(limb) << (LIMB_BITS as usize * at)).sum()
}

/// `V`: uniform among `distance` numbers around zero. Exact (Lemire 2019), and it is a rare number that is drawn again, so that the time
/// says nothing about the distance.
fn between(distance: u64, rng: &mut dyn CryptoRng) -> i128 {
    if distance == 0 {
        return 0;
    }
    let short = distance.wrapping_neg() % distance;
    loop {
        let product = u128::from(rng.next_u64()) * u128::from(distance);
        if product as u64 >= short {
            return (product >> 64) as i128 - i128::from(distance / 2);
        }
    }
}

/// The largest absolute noise of a column of so many bits, at most 32.
pub fn noise_bound(width: u32, step_bound: u64) -> u64 {
    // |D Z + V + r| is below 2^width (step_bound + 1/2) + 2^5, and rounding down adds one.
    step_bound.saturating_add(1).saturating_mul(1 << width) / (1 << GRID_BITS) + 2
}

/// Up to 8192 rows. It does not print: noise steps are P1's secret.
pub struct Rows {
    scale: EncryptedScale,
    steps: Vec<i64>,
    step_bound: u64,
    shape: Lanes,
    /// Of the result.
    magnitude: u64,
    key_id: KeyId,
    /// Which rows have a value, if not all.
    present: Option<Vec<bool>>,
    /// The values; `None` for the noise alone.
    values: Option<Values>,
}

/// Plain cells.
struct Values {
    /// The first lane of each row.
    first: Vec<Sample>,
    /// Each row's lanes side by side.
    bodies: Vec<u64>,
}

/// What P1 remembers: what it will take off each body, and the cells' shape.
pub struct Asked {
    masks: Vec<u64>,
    shape: Lanes,
    magnitude: u64,
    key_id: KeyId,
    present: Option<Vec<bool>>,
}

/// P1 multiplies and masks.
pub fn ask(rows: Rows, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Rows { scale, steps, step_bound, shape, magnitude, key_id, present, values } = rows;
    let (count, lanes) = (steps.len(), shape.total());
    let factor = Factor::new(&steps.iter().map(|step| plain::from_signed(*step)).collect::<Vec<_>>());
    let (mut sent, mut blinds) = (Vec::new(), Vec::new());
    for (limb, bits) in scale.limbs.iter().zip(limb_bits(scale.width)) {
        let bound = step_bound << bits;
        let room = PLAIN_MODULUS - 2 * bound;
        let blind: Vec<u64> = (0..DEGREE).map(|_| bound + plain::uniform_below(room, &mut asker.rng)).collect();
        sent.push(asker.send(&limb.times(&factor), &blind)?);
        blinds.push(blind);
    }
    let rounded = |row: usize| (joined(blinds.iter().map(|blind| blind[row])) >> GRID_BITS) as u64;
    let noise = (0..count).flat_map(|row| (0..lanes).map(move |lane| if lane == 0 { rounded(row) } else { 0 }));
    let mut masks: Vec<u64> = noise.collect();
    let (mut seeds, mut places, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    if let Some(values) = values {
        (seeds, places, _) = samples::encode(&values.first);
        bodies = values.bodies;
        for (at, (body, mask)) in bodies.iter_mut().zip(&mut masks).enumerate() {
            if present.as_ref().is_some_and(|present| !present[at / lanes]) {
                *body = asker.rng.next_u64();
            }
            let uniform = asker.rng.next_u64();
            *body = body.wrapping_add(phase_of_message(uniform as i64));
            *mask = mask.wrapping_add(uniform);
        }
    }
    let (bound_seeds, bound_places, bound_bodies) = samples::encode(&scale.bounds);
    let (width, rows, lanes) = (scale.width, count as u32, lanes as u32);
    let query =
        Query { bound_seeds, bound_places, bound_bodies, width, steps: sent, rows, lanes, seeds, places, bodies };
    Ok((Asked { masks, shape, magnitude, key_id, present }, query))
}

/// P1 takes the masks off the bodies.
pub fn finish(asked: Asked, answer: Answer) -> Result<BinaryArray, ProtocolError> {
    let Asked { masks, shape, magnitude, key_id, present } = asked;
    let (lanes, magnitude) = (shape.total(), Some(magnitude));
    let rows = masks.len() / lanes;
    let cells = Fresh { seeds: &answer.seeds, bodies: &answer.bodies, rows, key_id, shape, magnitude };
    cells.write(present.as_deref(), |row, lane| phase_of_message(masks[row * lanes + lane] as i64))
}

#[cfg(test)]
mod tests {
    use veil_cells::{CellArray, CellType, CellView, ColumnConstants, ColumnId, Kind, Nulls, Width};
    use veil_keys::{decrypt_column, encrypt_column, encrypt_constants};
    use veil_slots::Sanitizer;

    use super::*;
    use crate::laplace_scale::scale;
    use crate::message::{Receive, Sendable};
    use crate::testing::Parties;

    pub(super) fn column_type(parties: &Parties, lower: i64, upper: i64) -> CellType {
        let width = Width::of_range(lower, upper).unwrap();
        CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([1; 8]))
    }

    pub(super) fn constants(parties: &Parties, lower: i64, upper: i64) -> (ColumnConstants, u32) {
        let cell_type = column_type(parties, lower, upper);
        (encrypt_constants(&parties.owner, &cell_type, lower, upper).unwrap(), cell_type.width.bits())
    }

    pub(super) fn opened(parties: &Parties, cell_type: &CellType, cells: &BinaryArray) -> Vec<i64> {
        let array = CellArray::Binary(cells);
        decrypt_column(parties.owner.cell(), parties.owner.key_id(), cell_type, array).unwrap().messages
    }

    /// The noise that each of these rows got.
    async fn noise(parties: &mut Parties, (lower, upper): (i64, i64), steps: Vec<i64>, step_bound: u64) -> Vec<i64> {
        let (constants, width) = constants(parties, lower, upper);
        let scale = scale(&parties.session, &constants, width).await.unwrap();
        let distance = (upper - lower + 1) as usize;
        let values: Vec<i64> =
            (0..steps.len()).map(|row| [lower, upper, lower + (row * 7919 % distance) as i64][row % 3]).collect();
        let cell_type = column_type(parties, lower, upper);
        let cells = encrypt_column(&parties.owner, &cell_type, &values, None, &mut parties.rng).unwrap();
        let noisy = add_laplace(&parties.session, &scale, CellArray::Binary(&cells), steps, step_bound).await.unwrap();
        let noise: Vec<i64> =
            opened(parties, &cell_type, &noisy).iter().zip(&values).map(|(noisy, value)| noisy - value).collect();
        let bound = noise_bound(width, step_bound);
        assert!(noise.iter().all(|noise| noise.unsigned_abs() <= bound));
        let magnitude = CellView::parse(noisy.value(0)).unwrap().magnitude();
        assert_eq!(magnitude, Some(bound + cell_type.width.magnitude()));
        noise
    }

    /// The smallest and largest `floor((D Z + V + r) / 32)`.
    pub(super) fn support(distance: i64, step: i64) -> std::ops::RangeInclusive<i64> {
        if distance == 0 {
            return 0..=0;
        }
        let (distance, step) = (i128::from(distance), i128::from(step));
        let (low, high) = (distance * step - distance / 2, distance * step - distance / 2 + distance - 1);
        (low >> GRID_BITS) as i64..=((high + 31) >> GRID_BITS) as i64
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn noise_is_exact_at_every_edge() {
        let mut parties = Parties::new(40);
        for (lower, upper, step_bound) in [
            (5, 5, 1000),
            (-3, -2, MAX_STEP_BOUND),
            (-128, 127, MAX_STEP_BOUND),
            (-32768, 32767, MAX_STEP_BOUND),
            (-32768, 32768, MAX_STEP_BOUND),
            (0, i64::from(i32::MAX), (1 << 20) - 64),
            (i32::MIN.into(), i32::MAX.into(), (1 << 20) - 64),
        ] {
            let largest = step_bound as i64;
            let steps: Vec<i64> =
                (0..90).map(|row| [0, 1, -1, largest, -largest, row * 37 % largest][row as usize % 6]).collect();
            let noise = noise(&mut parties, (lower, upper), steps.clone(), step_bound).await;
            for (noise, step) in noise.iter().zip(&steps) {
                let support = support(upper - lower, *step);
                assert!(support.contains(noise), "{upper} - {lower}, {step} steps: {noise} in {support:?}");
            }
        }
    }

    /// Counts against those of all `V` and `r`: chi-square at 10^-6, in the approximation of Wilson and Hilferty (1931).
    #[tokio::test(flavor = "multi_thread")]
    async fn noise_is_spread_evenly_between_steps() {
        let mut parties = Parties::new(41);
        for (distance, step) in [(1, 0), (5, 0), (64, -3), (255, 1), (255, -1), (100, 7)] {
            let count = 2 * DEGREE;
            let noise = noise(&mut parties, (-100, distance - 100), vec![step; count], 10).await;
            let support = support(distance, step);
            let mut expected = vec![0f64; support.clone().count()];
            for (v, r) in (0..distance).flat_map(|v| (0..32).map(move |r| (v, r))) {
                let noise = (distance * step + v - distance / 2 + r) >> GRID_BITS;
                expected[(noise - support.start()) as usize] += count as f64 / (32 * distance) as f64;
            }
            let mut found = vec![0f64; expected.len()];
            noise.iter().for_each(|noise| found[(noise - support.start()) as usize] += 1.0);
            let freedom = (expected.len() - 1) as f64;
            if freedom == 0.0 {
                continue;
            }
            let chi_square: f64 = found.iter().zip(&expected).map(|(f, e)| (f - e).powi(2) / e).sum();
            let z = ((chi_square / freedom).cbrt() - (1.0 - 2.0 / (9.0 * freedom))) / (2.0 / (9.0 * freedom)).sqrt();
            assert!(z < 4.75, "D = {distance}, Z = {step}: {found:?}, expected {expected:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn forged_queries_are_refused() {
        let mut parties = Parties::new(46);
        let (constants, width) = constants(&parties, 0, 100);
        let scale = scale(&parties.session, &constants, width).await.unwrap();
        let cell_type = CellType { nulls: Nulls::Hidden, ..column_type(&parties, 0, 100) };
        let cells = encrypt_column(&parties.owner, &cell_type, &[1, 0, 2, 1], None, &mut parties.rng).unwrap();
        let sanitizer = Sanitizer::new(parties.owner.p1().public_key().clone());
        let rows = column::rows_of(&CellArray::Binary(&cells), 0, &[1, 2], 5, &scale, parties.owner.key_id()).unwrap();
        let (_, query) = ask(rows, &mut Asker::new(&sanitizer, parties.rng.clone())).unwrap();
        let batch = Query::to_batch(&[query]).unwrap();
        let mut answer = |change: &dyn Fn(&mut Query<Inbound>)| {
            let mut query = Query::<Inbound>::read(&batch, 0).unwrap();
            change(&mut query);
            AddLaplace::answer(query, &parties.keys, &mut parties.rng)
        };
        assert_eq!(answer(&|_| ()).unwrap().bodies.len(), 4);
        let noise_alone = |query: &mut Query<Inbound>| {
            (query.seeds, query.places, query.bodies) = (Vec::new(), Vec::new(), Vec::new());
        };
        assert_eq!(answer(&noise_alone).unwrap().bodies.len(), 4);
        type Forgery<'a> = (&'a dyn Fn(&mut Query<Inbound>), &'a str);
        let forgeries: [Forgery<'_>; 12] = [
            (&|query| query.bound_places.rotate_left(4), "not a lower and an upper one of 8 bits"),
            (&|query| query.bound_bodies[0] ^= 1 << 60, "not a lower and an upper one of 8 bits"),
            (&|query| query.width = 6, "not a lower and an upper one of 6 bits"),
            (&|query| query.width = 17, "1 limbs of steps for 17 bits"),
            (&|query| query.width = 33, "bounds of 33 bits"),
            (&|query| query.steps.clear(), "0 limbs of steps for 8 bits"),
            (&|query| query.lanes = 1, "4 bodies for 2 rows of 1 lanes"),
            (&|query| query.lanes = 0, "2 rows of 0 lanes"),
            (&|query| query.lanes = 3, "2 rows of 3 lanes"),
            (&|query| query.rows = 8193, "8193 rows of 2 lanes"),
            (&|query| query.places.truncate(4), "places, seeds and bodies of different numbers"),
            (&|query| query.places[2..4].copy_from_slice(&4095u16.to_le_bytes()), "a row reaches beyond its chunk"),
        ];
        for (forge, expected) in forgeries {
            let error = answer(forge).unwrap_err();
            let right = matches!(&error, ProtocolError::Malformed(why) if why.contains(expected));
            assert!(right, "{error}, expected {expected}");
        }
    }

    #[test]
    fn what_lies_between_steps_is_uniform_around_zero() {
        let mut rng = Parties::new(47).rng;
        for distance in [1u64, 2, 3, 5, 8] {
            let mut counts = vec![0f64; distance as usize];
            (0..10_000).for_each(|_| counts[(between(distance, &mut rng) + i128::from(distance / 2)) as usize] += 1.0);
            let expected = 10_000.0 / distance as f64;
            let largest = counts.iter().map(|count| (count - expected).abs()).fold(0.0, f64::max);
            assert!(largest < 5.0 * expected.sqrt() + 1e-9, "{counts:?}");
        }
        assert_eq!(between(0, &mut rng), 0);
    }
}
