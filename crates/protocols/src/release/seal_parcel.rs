//! Values to a recipient, behind masks.
//!
//! ```text
//!  P1: rho from a seed            cells: samples with bodies + 2^16 rho                     -->
//!                                 dense: masks of 4096 words, bodies + 2^16 rho             -->
//!                                 slots: x + f u + rho, f whether suppressed, u uniform     -->  opens, adds its noise
//!                                                                                           <--  sealed to the recipient        P2
//!  P1: seals the seed to the recipient, who subtracts
//! ```
//! Masks are uniform, of 48 bits or modulo `t`: a one-time pad. Values of suppressed rows reach the recipient as noise, since nobody tells `u`.
//! P2 sees which samples take part; a NULL that P1 can see sends nothing from cells.
//!
//! A dense value is a sum `sum_j c_j Sample_j`, whose mask P1 has added up. P2 opens `2^16 (x + rho) + e` with `e = sum_j c_j e_j`: rho hides `x` exactly, and `e`, the
//! noises of the encryptions, has nothing to do with values, so nothing is flooded. But from the mask, and the seeds that it knows, P2 can find
//! out the samples and the factors `c_j`, by a division in the ring where all are of one chunk. So factors that are secrets must not come here: those have places
//! below the unit, and go through slots to be rounded.

use rand::CryptoRng;
use veil_cells::{MESSAGE_BITS, NOISE_BITS, POLYNOMIAL_SIZE, phase_of_message};
use veil_slots::{DEGREE, Factor, Inbound, KeyHolder, L1, L2, Outbound, SEEDED_BYTES, Sample, Slots, plain};
use zeroize::Zeroizing;

use super::masks::{Masks, Modulus};
use super::{OpenedColumn, OpenedParcel, SealedParcel, required, short_enough};
use crate::anchors::Anchors;
use crate::context::Context;
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload, samples};

/// The protocol.
#[derive(Debug)]
pub struct SealParcel;

/// The most lanes of a parcel.
pub const MAX_LANES: usize = 256;

/// The most values of a parcel.
const MAX_VALUES: usize = MAX_LANES * DEGREE;

/// The most dense values of a parcel, 32 KiB each: 16 MiB.
pub const MAX_DENSE: usize = DEGREE / 16;

/// The most chunks that its samples come from.
const MAX_SEEDS: usize = 1 << 16;

message! {
    /// The rows of a parcel.
    Query<C: Outbound => Inbound> {
        /// P1's permit.
        permit: Vec<u8>,
        /// Its number in the release.
        number: u32,
        /// Rows, at most 8192.
        rows: u32,
        /// For every encrypted column, whether it comes from cells (0) or slots (1), or is dense (2).
        forms: Vec<u8>,
        /// For every column from cells and every dense one, how many rows have a value.
        counts: Vec<u64>,
        /// The seeds of all samples, 16 bytes each.
        seeds: Vec<u8>,
        /// For every sample the number of its seed and its index, `u16` each.
        places: Vec<u8>,
        /// For every sample its masked body.
        bodies: Vec<u64>,
        /// For every dense value its mask, 4096 words.
        masks: Vec<u64>,
        /// For every dense value its masked body.
        sums: Vec<u64>,
        /// The masked lanes of columns from slots.
        slots: Vec<C>,
        /// The rows of files that its rows are made of.
        anchors: Vec<u8>,
    }
}

message! {
    /// What goes to the recipient.
    Answer {
        /// Sealed.
        sealed: Vec<u8>,
        /// What P2 will know it by.
        receipt: Vec<u8>,
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        short_enough(&self.permit)?;
        Anchors::check_size(&self.anchors)?;
        let values = self.bodies.len().saturating_add(self.slots.len().saturating_mul(DEGREE));
        if self.rows as usize > DEGREE || values > MAX_VALUES {
            let found = values.max(self.rows as usize);
            return Err(ProtocolError::TooLarge { what: "a number of samples", found, limit: MAX_VALUES });
        }
        let dense = self.sums.len();
        if dense > MAX_DENSE {
            return Err(ProtocolError::TooLarge { what: "a number of sums", found: dense, limit: MAX_DENSE });
        }
        if self.masks.len() != dense * POLYNOMIAL_SIZE {
            let found = self.masks.len();
            return Err(ProtocolError::Malformed(format!("{found} words are not the masks of {dense} sums")));
        }
        Ok(((values + dense) * 8).div_ceil(SEEDED_BYTES).max(1))
    }
}

impl Protocol for SealParcel {
    const NAME: &'static str = "seal_parcel";
    const VERSION: u16 = 3;
    const SUMMARY: &'static str = "masked values, sealed to a recipient";
    const LEAKAGE: Leakage = Leakage {
        p1: "nothing",
        p2: "which rows and samples of a file take part, of sums also with which factors, how many rows there are and how many of them are NULL; values are masked uniformly",
    };
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(query: Query<Inbound>, holder: &dyn KeyHolder, rng: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        Self::answer_at(query, holder, rng, &Context::default())
    }

    fn answer_at(
        query: Query<Inbound>,
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
        context: &Context<'_>,
    ) -> Result<Answer, ProtocolError> {
        let desk = required(context)?;
        // Before anything is decrypted.
        let lanes = desk.lanes(&query.permit)?;
        let Query { permit, number, rows, forms, counts, seeds, places, bodies, masks, sums, slots, anchors } = query;
        let samples = samples::decode_many(&seeds, &places, &bodies, MAX_VALUES)?;
        let anchors = Anchors::from_bytes(&anchors)?;
        anchors.occur_once()?;
        are_named(&samples, &anchors)?;
        let (mut samples, mut masks, mut sums) = (samples.as_slice(), masks.as_slice(), sums.as_slice());
        let (mut counts, mut slots) = (counts.into_iter(), slots.into_iter());
        let malformed = |why: &str| ProtocolError::Malformed(why.to_owned());
        if forms.len() != lanes.len() {
            return Err(malformed("a parcel has other columns than its permit"));
        }
        let (mut columns, mut dense_lanes) = (Vec::with_capacity(lanes.len()), 0);
        for (form, lanes) in forms.into_iter().zip(lanes) {
            let form = Form::from_byte(form).ok_or_else(|| malformed("a column comes from nowhere"))?;
            let mut values = || {
                let count = counts.next().and_then(|count| usize::try_from(count).ok());
                let count = count.filter(|count| *count <= rows as usize).and_then(|count| count.checked_mul(lanes));
                count.ok_or_else(|| malformed("a column does not say how many rows have a value"))
            };
            let short = || malformed("a column has fewer samples than it says");
            let (modulus, words) = match form {
                Form::Cells => {
                    let (own, rest) = samples.split_at_checked(values()?).ok_or_else(short)?;
                    samples = rest;
                    (Modulus::Cells, rounded(holder.open_samples(own)))
                }
                Form::Dense => {
                    let count = values()?;
                    let (own, rest) = sums.split_at_checked(count).ok_or_else(short)?;
                    let (of, others) = masks.split_at_checked(count * POLYNOMIAL_SIZE).ok_or_else(short)?;
                    (sums, masks, dense_lanes) = (rest, others, dense_lanes + lanes);
                    (Modulus::Cells, rounded(holder.open_dense(of, own)))
                }
                Form::Slots => {
                    let mut words = Zeroizing::new(Vec::with_capacity(lanes * rows as usize));
                    for _ in 0..lanes {
                        let lane = slots.next().ok_or_else(|| malformed("a column has fewer lanes than its permit"))?;
                        words.extend(holder.open(lane).iter().take(rows as usize));
                    }
                    (Modulus::Slots, words)
                }
            };
            columns.push(OpenedColumn { modulus, words });
        }
        if !samples.is_empty() || !sums.is_empty() || counts.next().is_some() || slots.next().is_some() {
            return Err(malformed("a parcel has more columns than its permit"));
        }
        let SealedParcel { sealed, receipt } =
            desk.seal(OpenedParcel { permit: &permit, number, rows, anchors: &anchors, columns }, rng)?;
        Ok(Answer { sealed, receipt })
    }
}

/// Refuses samples of rows that the parcel does not name.
fn are_named(samples: &[Sample], anchors: &Anchors) -> Result<(), ProtocolError> {
    let named = |sample: &Sample| {
        let Some(anchor) = sample.seed.anchor(sample.index) else { return true };
        anchors.0.get(&anchor.file).is_some_and(|file| file.rows.contains(anchor.row))
    };
    match samples.iter().all(named) {
        true => Ok(()),
        false => Err(ProtocolError::Denied("a parcel has a value of a row that it does not name".to_owned())),
    }
}

/// Message and mask of every phase.
fn rounded(mut phases: Zeroizing<Vec<u64>>) -> Zeroizing<Vec<u64>> {
    phases.iter_mut().for_each(|phase| *phase = phase.wrapping_add(1 << (NOISE_BITS - 1)) >> NOISE_BITS);
    phases
}

/// The most rows of a parcel that has so many lanes of dense values.
pub fn most_rows(dense_lanes: usize) -> usize {
    // A power of two, so that parcels divide the 8192 rows that P1 takes at a time.
    MAX_DENSE.checked_div(dense_lanes).map_or(DEGREE, |rows| 1 << rows.max(1).ilog2())
}

/// Where a column comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Cells,
    Slots,
    Dense,
}

impl Form {
    fn to_byte(self) -> u8 {
        match self {
            Self::Cells => 0,
            Self::Slots => 1,
            Self::Dense => 2,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Cells, Self::Slots, Self::Dense].into_iter().find(|form| form.to_byte() == byte)
    }
}

/// Up to 8192 rows, and up to 512 dense values.
pub struct Parcel {
    /// What P2 has given.
    pub permit: Vec<u8>,
    /// Its number in the release.
    pub number: u32,
    /// Rows.
    pub rows: usize,
    /// The rows of files that its rows are made of.
    pub anchors: Anchors,
    /// The encrypted columns.
    pub columns: Vec<Column>,
    /// What masks are drawn from.
    pub seed: [u8; 32],
}

/// An encrypted column of a parcel.
pub enum Column {
    /// Plain cells: for every lane the samples of the rows that are not NULL.
    Cells(Vec<Vec<Sample>>),
    /// For every lane its numbers; and whether each row is suppressed, if any can be.
    Slots(Vec<Slots<L1>>, Option<Slots<L1>>),
    /// Sums of samples: for every lane those of the rows that are not NULL.
    Dense(Vec<Vec<DenseSample>>),
}

/// A sum of samples with the sum of their masks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenseSample {
    /// 4096 words.
    pub mask: Vec<u64>,
    /// The body.
    pub body: u64,
}

impl Column {
    fn weight(&self) -> usize {
        match self {
            Self::Cells(lanes) => lanes.len().div_ceil(2),
            Self::Slots(lanes, _) => lanes.len(),
            Self::Dense(lanes) => {
                let values: usize = lanes.iter().map(Vec::len).sum();
                (values * POLYNOMIAL_SIZE * 8).div_ceil(SEEDED_BYTES)
            }
        }
    }
}

/// P1 masks every value.
pub fn ask(parcel: Parcel, asker: &mut Asker<'_>) -> Result<((), Query<Outbound>), ProtocolError> {
    let Parcel { permit, number, rows, anchors, columns, seed } = parcel;
    let count = |column: &Column| match column {
        Column::Cells(lanes) => lanes.iter().map(Vec::len).sum(),
        Column::Dense(lanes) => lanes.iter().map(Vec::len).sum(),
        Column::Slots(lanes, _) => lanes.len() * rows,
    };
    let mut masks = Masks::for_many(seed, columns.iter().map(count).sum());
    let (mut forms, mut counts, mut taking_part, mut slots) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut dense_masks, mut sums) = (Vec::new(), Vec::new());
    let masked = |body: u64, masks: &mut Masks| body.wrapping_add(phase_of_message(signed(masks.next(Modulus::Cells))));
    for column in columns {
        match column {
            Column::Cells(lanes) => {
                forms.push(Form::Cells.to_byte());
                counts.push(lanes.first().map_or(0, Vec::len) as u64);
                for sample in lanes.into_iter().flatten() {
                    taking_part.push(Sample { body: masked(sample.body, &mut masks), ..sample });
                }
            }
            Column::Dense(lanes) => {
                forms.push(Form::Dense.to_byte());
                counts.push(lanes.first().map_or(0, Vec::len) as u64);
                for DenseSample { mask, body } in lanes.into_iter().flatten() {
                    if mask.len() != POLYNOMIAL_SIZE {
                        return Err(ProtocolError::Misuse(format!("a mask has {} words", mask.len())));
                    }
                    dense_masks.extend_from_slice(&mask);
                    sums.push(masked(body, &mut masks));
                }
            }
            Column::Slots(lanes, suppressed) => {
                forms.push(Form::Slots.to_byte());
                for lane in lanes {
                    let mut masked: Slots<L2> = lane.raised();
                    if let Some(suppressed) = &suppressed {
                        let scramble = plain::uniform_vec(DEGREE, &mut asker.rng);
                        masked.add(&suppressed.times(&Factor::new(&scramble)));
                    }
                    let mut blind = plain::uniform_vec(DEGREE, &mut asker.rng);
                    blind.iter_mut().take(rows).for_each(|blind| *blind = masks.next(Modulus::Slots));
                    slots.push(asker.send(&masked, &blind)?);
                }
            }
        }
    }
    let (seeds, places, bodies) = samples::encode(&taking_part);
    if seeds.len() / 16 > MAX_SEEDS {
        let text = "the rows of a parcel come from too many places of their files: release fewer columns at once";
        return Err(ProtocolError::Misuse(text.to_owned()));
    }
    if sums.len() > MAX_DENSE {
        return Err(ProtocolError::Misuse(format!(
            "a parcel would have {} sums of many rows, and {MAX_DENSE} are the most: release fewer columns at once",
            sums.len()
        )));
    }
    let (rows, masks, anchors) = (rows as u32, dense_masks, anchors.to_bytes());
    Ok(((), Query { permit, number, rows, forms, counts, seeds, places, bodies, masks, sums, slots, anchors }))
}

/// A number of 48 bits as a message.
fn signed(mask: u64) -> i64 {
    ((mask << (64 - MESSAGE_BITS)) as i64) >> (64 - MESSAGE_BITS)
}

/// P1 passes it on.
pub fn finish((): (), answer: Answer) -> Result<SealedParcel, ProtocolError> {
    Ok(SealedParcel { sealed: answer.sealed, receipt: answer.receipt })
}

/// One round for some parcels.
pub async fn seal_parcels(session: &Session, parcels: Vec<Parcel>) -> Result<Vec<SealedParcel>, ProtocolError> {
    let weight = |parcel: &Parcel| parcel.columns.iter().map(Column::weight).sum::<usize>();
    let weight = parcels.iter().map(weight).max().unwrap_or(1).max(1);
    session.round::<SealParcel, _, _, _>(parcels, weight, ask, finish).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What cannot be is refused before P2 touches a key.
    #[test]
    fn masks_and_sums_must_fit() {
        let query = |sums: usize, words: usize| Query::<Inbound> {
            permit: Vec::new(),
            number: 1,
            rows: 1,
            forms: vec![2],
            counts: vec![sums as u64],
            seeds: Vec::new(),
            places: Vec::new(),
            bodies: Vec::new(),
            masks: vec![0; words],
            sums: vec![0; sums],
            slots: Vec::new(),
            anchors: Vec::new(),
        };
        let work = |sums, words| query(sums, words).answer_ciphertexts();
        assert_eq!(work(0, 0).unwrap(), 1);
        assert_eq!(work(MAX_DENSE, MAX_DENSE * POLYNOMIAL_SIZE).unwrap(), 1);
        for (sums, words) in [(1, 0), (1, POLYNOMIAL_SIZE - 1), (1, 2 * POLYNOMIAL_SIZE), (0, 1)] {
            assert!(matches!(work(sums, words), Err(ProtocolError::Malformed(_))), "{sums} sums, {words} words");
        }
        let many = work(MAX_DENSE + 1, 0);
        assert!(matches!(many, Err(ProtocolError::TooLarge { found: 513, limit: 512, .. })), "{many:?}");
    }

    #[test]
    fn parcels_with_sums_have_fewer_rows() {
        assert_eq!([0, 1, 3, 512, 600].map(most_rows), [8192, 512, 128, 1, 1]);
    }
}
