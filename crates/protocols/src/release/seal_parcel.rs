//! Values to a recipient, behind masks.
//!
//! ```text
//!  P1: rho from a seed            cells: samples with bodies + 2^16 rho                     -->
//!                                 slots: x + f u + rho, f whether suppressed, u uniform     -->  opens, adds its noise
//!                                                                                           <--  sealed to the recipient        P2
//!  P1: seals the seed to the recipient, who subtracts
//! ```
//! Masks are uniform, of 48 bits or modulo `t`: a one-time pad. Values of suppressed rows reach the recipient as noise, since nobody tells `u`.
//! P2 sees which samples take part; a NULL that P1 can see sends nothing from cells.

use rand::CryptoRng;
use veil_cells::{MESSAGE_BITS, NOISE_BITS, phase_of_message};
use veil_slots::{DEGREE, Factor, Inbound, KeyHolder, L1, L2, Outbound, SEEDED_BYTES, Sample, Slots, plain};
use zeroize::Zeroizing;

use super::masks::{Masks, Modulus};
use super::{Desk, OpenedColumn, OpenedParcel, SealedParcel, required, short_enough};
use crate::message::message;
use crate::{Asker, Leakage, Protocol, ProtocolError, Session, Workload, samples};

/// The protocol.
#[derive(Debug)]
pub struct SealParcel;

/// The most lanes of a parcel.
pub const MAX_LANES: usize = 256;

/// The most values of a parcel.
const MAX_VALUES: usize = MAX_LANES * DEGREE;

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
        /// For every encrypted column, whether it comes from cells (0) or slots (1).
        forms: Vec<u8>,
        /// For every column from cells, how many rows have a value.
        counts: Vec<u64>,
        /// The seeds of all samples, 16 bytes each.
        seeds: Vec<u8>,
        /// For every sample the number of its seed and its index, `u16` each.
        places: Vec<u8>,
        /// For every sample its masked body.
        bodies: Vec<u64>,
        /// The masked lanes of columns from slots.
        slots: Vec<C>,
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
        let values = self.bodies.len().saturating_add(self.slots.len().saturating_mul(DEGREE));
        if self.rows as usize > DEGREE || values > MAX_VALUES {
            let found = values.max(self.rows as usize);
            return Err(ProtocolError::TooLarge { what: "a number of samples", found, limit: MAX_VALUES });
        }
        Ok((values * 8).div_ceil(SEEDED_BYTES).max(1))
    }
}

impl Protocol for SealParcel {
    const NAME: &'static str = "seal_parcel";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "masked values, sealed to a recipient";
    const LEAKAGE: Leakage = Leakage {
        p1: "nothing",
        p2: "which samples of a file take part, how many rows there are and how many of them are NULL; values are masked uniformly",
    };
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(query: Query<Inbound>, holder: &dyn KeyHolder, rng: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        Self::answer_at(query, holder, rng, None)
    }

    fn answer_at(
        query: Query<Inbound>,
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
        desk: Option<&dyn Desk>,
    ) -> Result<Answer, ProtocolError> {
        let desk = required(desk)?;
        // Before anything is decrypted.
        let lanes = desk.lanes(&query.permit)?;
        let Query { permit, number, rows, forms, counts, seeds, places, bodies, slots } = query;
        let samples = samples::decode_many(&seeds, &places, &bodies, MAX_VALUES)?;
        let (mut samples, mut counts, mut slots) = (samples.as_slice(), counts.into_iter(), slots.into_iter());
        let malformed = |why: &str| ProtocolError::Malformed(why.to_owned());
        if forms.len() != lanes.len() {
            return Err(malformed("a parcel has other columns than its permit"));
        }
        let mut columns = Vec::with_capacity(lanes.len());
        for (form, lanes) in forms.into_iter().zip(lanes) {
            let modulus = Modulus::from_byte(form).ok_or_else(|| malformed("a column comes from nowhere"))?;
            let words = match modulus {
                Modulus::Cells => {
                    let count = counts.next().and_then(|count| usize::try_from(count).ok());
                    let count = count.filter(|count| *count <= rows as usize);
                    let own = count.and_then(|count| samples.split_at_checked(count * lanes));
                    let (own, rest) = own.ok_or_else(|| malformed("a column has fewer samples than it says"))?;
                    samples = rest;
                    let mut words = holder.open_samples(own);
                    words.iter_mut().for_each(|word| *word = word.wrapping_add(1 << (NOISE_BITS - 1)) >> NOISE_BITS);
                    words
                }
                Modulus::Slots => {
                    let mut words = Zeroizing::new(Vec::with_capacity(lanes * rows as usize));
                    for _ in 0..lanes {
                        let lane = slots.next().ok_or_else(|| malformed("a column has fewer lanes than its permit"))?;
                        words.extend(holder.open(lane).iter().take(rows as usize));
                    }
                    words
                }
            };
            columns.push(OpenedColumn { modulus, words });
        }
        if !samples.is_empty() || counts.next().is_some() || slots.next().is_some() {
            return Err(malformed("a parcel has more columns than its permit"));
        }
        let SealedParcel { sealed, receipt } =
            desk.seal(OpenedParcel { permit: &permit, number, rows, columns }, rng)?;
        Ok(Answer { sealed, receipt })
    }
}

/// Up to 8192 rows.
pub struct Parcel {
    /// What P2 has given.
    pub permit: Vec<u8>,
    /// Its number in the release.
    pub number: u32,
    /// Rows.
    pub rows: usize,
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
}

impl Column {
    fn weight(&self) -> usize {
        match self {
            Self::Cells(lanes) => lanes.len().div_ceil(2),
            Self::Slots(lanes, _) => lanes.len(),
        }
    }
}

/// P1 masks every value.
pub fn ask(parcel: Parcel, asker: &mut Asker<'_>) -> Result<((), Query<Outbound>), ProtocolError> {
    let Parcel { permit, number, rows, columns, seed } = parcel;
    let count = |column: &Column| match column {
        Column::Cells(lanes) => lanes.iter().map(Vec::len).sum(),
        Column::Slots(lanes, _) => lanes.len() * rows,
    };
    let mut masks = Masks::for_many(seed, columns.iter().map(count).sum());
    let (mut forms, mut counts, mut taking_part, mut slots) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for column in columns {
        match column {
            Column::Cells(lanes) => {
                forms.push(Modulus::Cells.to_byte());
                counts.push(lanes.first().map_or(0, Vec::len) as u64);
                for mut sample in lanes.into_iter().flatten() {
                    let mask = masks.next(Modulus::Cells);
                    sample.body = sample.body.wrapping_add(phase_of_message(signed(mask)));
                    taking_part.push(sample);
                }
            }
            Column::Slots(lanes, suppressed) => {
                forms.push(Modulus::Slots.to_byte());
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
    Ok(((), Query { permit, number, rows: rows as u32, forms, counts, seeds, places, bodies, slots }))
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
