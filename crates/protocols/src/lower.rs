//! Slots into cells.
//!
//! ```text
//!  P1: rho uniform in [0, t - 2^w)        x + 2^(w-1) + rho  -->
//!                                                            <--  fresh cells of it: seeds and bodies          P2
//!  P1: bodies - 2^16 (rho + 2^(w-1))
//!
//!  of an equality tag
//!  P1: rho uniform modulo t               x + rho mod t  -->
//!                                                        <--  fresh cells, bodies + (x + rho mod t) 2^64/t     P2
//!  P1: bodies - rho 2^64/t
//! ```
//! `w` is the width of the numbers, so nothing wraps, and what P2 decrypts is within `2^(w-48)` of uniform. Several vectors become the
//! lanes of one column. Behind the rows masks are uniform: a vector may repeat its rows there, which P2 must not see many times.
//!
//! A tag is a number modulo `t` in its lane as it is in a slot, so it wraps where its mask does, and P2 decrypts a uniform number. Both
//! phases are rounded, each by less than a unit: what is left of that is at most two units, where half a step of a tag has 32770.

use arrow::array::BinaryArray;
use rand::CryptoRng;
use rand::rngs::StdRng;
use veil_cells::{KeyId, Lanes, phase_of_message, phase_of_tag};
use veil_slots::{DEGREE, Inbound, KeyHolder, L1, Outbound, PLAIN_MODULUS, Slots, plain};
use zeroize::Zeroizing;

use crate::fresh_cells::{self, Fresh};
use crate::lift::MAX_WIDTH;
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Lower;

/// The most lanes of a cell that come from slots.
pub const MAX_LANES: usize = 32;

/// Stands for no lane.
const NO_TAG: u32 = u32::MAX;

message! {
    /// The masked lanes.
    Query<C: Outbound => Inbound> {
        /// `x + rho`, one ciphertext a lane.
        lanes: Vec<C>,
        /// How many slots are rows.
        rows: u32,
        /// The lane of the equality tag; the largest number for none.
        tag_lane: u32,
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

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let lanes = self.lanes.len();
        if !(1..=MAX_LANES).contains(&lanes) || self.rows as usize > DEGREE {
            return Err(ProtocolError::Malformed(format!("{} rows of {lanes} lanes", self.rows)));
        }
        if self.tag_lane != NO_TAG && self.tag_lane as usize >= lanes {
            return Err(ProtocolError::Malformed(format!("no tag in lane {} of {lanes}", self.tag_lane)));
        }
        Ok(lanes)
    }
}

impl Protocol for Lower {
    const NAME: &'static str = "lower";
    const VERSION: u16 = 3;
    const SUMMARY: &'static str = "slots into cells";
    const LEAKAGE: Leakage = Leakage {
        p1: "nothing",
        p2: "how many rows there are and whether they have tags; values are masked to within 2^(w-48) of uniform, tags uniformly",
    };
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(query: Query<Inbound>, holder: &dyn KeyHolder, rng: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        let count = query.answer_ciphertexts()?;
        let (rows, tag_lane) = (query.rows as usize, (query.tag_lane != NO_TAG).then_some(query.tag_lane as usize));
        let mut lanes: Vec<_> = query.lanes.into_iter().map(|lane| holder.open(lane)).collect();
        // In the place of a tag there is a zero, to which its phase is added.
        let tags = tag_lane.and_then(|lane| lanes.get_mut(lane)).map(std::mem::take).unwrap_or_default();
        let row = |row: usize| lanes.iter().map(move |lane| lane.get(row).copied().unwrap_or_default());
        let messages: Zeroizing<Vec<u64>> = Zeroizing::new((0..rows).flat_map(row).collect());
        let (seeds, mut bodies) = fresh_cells::seal(&messages, count, holder, rng);
        let tagged = bodies.iter_mut().skip(tag_lane.unwrap_or_default()).step_by(count);
        tagged.zip(tags.iter()).for_each(|(body, tag)| *body = body.wrapping_add(phase_of_tag(*tag)));
        Ok(Answer { seeds, bodies })
    }
}

/// Rows to lower.
#[derive(Clone, Debug)]
pub struct Rows {
    /// One vector a lane, in the cell's order.
    pub lanes: Vec<Slots<L1>>,
    /// How many slots are rows.
    pub count: usize,
    /// What the lanes of the cells are. A tag is any number modulo `t`.
    pub shape: Lanes,
    /// Numbers of all other lanes are in `[-2^(width-1), 2^(width-1))`.
    pub width: u32,
    /// The largest absolute value of a number; `None` for text and categories.
    pub magnitude: Option<u64>,
    /// The key set.
    pub key_id: KeyId,
}

/// What P1 remembers: its masks and the cells' shape.
pub struct Asked {
    masks: Vec<Vec<u64>>,
    count: usize,
    shape: Lanes,
    magnitude: Option<u64>,
    key_id: KeyId,
}

/// P1 masks every lane.
pub fn ask(rows: Rows, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Rows { lanes, count, shape, width, magnitude, key_id } = rows;
    if !(1..=MAX_WIDTH).contains(&width)
        || count > DEGREE
        || lanes.len() != shape.total()
        || !(1..=MAX_LANES).contains(&lanes.len())
    {
        let text = format!("{count} rows of {} lanes of {width} bits cannot be lowered at once", lanes.len());
        return Err(ProtocolError::Misuse(text));
    }
    let (mut masks, mut sent) = (Vec::with_capacity(lanes.len()), Vec::with_capacity(lanes.len()));
    let tag_lane = shape.tag_lane();
    for (at, lane) in lanes.iter().enumerate() {
        let room = PLAIN_MODULUS - (1 << width);
        let of_row = |rng: &mut StdRng| plain::uniform_below(room, rng) + (1 << (width - 1));
        let mut mask = plain::uniform_vec(DEGREE, &mut asker.rng);
        if tag_lane != Some(at) {
            mask.iter_mut().take(count).for_each(|mask| *mask = of_row(&mut asker.rng));
        }
        sent.push(asker.send(lane, &mask)?);
        masks.push(mask);
    }
    let query = Query { lanes: sent, rows: count as u32, tag_lane: tag_lane.map_or(NO_TAG, |lane| lane as u32) };
    Ok((Asked { masks, count, shape, magnitude, key_id }, query))
}

/// P1 takes the masks off the bodies.
pub fn finish(asked: Asked, answer: Answer) -> Result<BinaryArray, ProtocolError> {
    let Asked { masks, count, shape, magnitude, key_id } = asked;
    let cells = Fresh { seeds: &answer.seeds, bodies: &answer.bodies, rows: count, key_id, shape, magnitude };
    let phase = |lane: usize, mask: u64| match shape.tag_lane() == Some(lane) {
        true => phase_of_tag(mask),
        false => phase_of_message(mask as i64),
    };
    // Every lane has a mask for each of its rows.
    cells.write(None, |row, lane| phase(lane, masks[lane][row]))
}

/// One round for many chunks of rows.
pub async fn lower(session: &Session, chunks: Vec<Rows>) -> Result<Vec<BinaryArray>, ProtocolError> {
    let weight = chunks.iter().map(|rows| rows.lanes.len()).max().unwrap_or(1);
    session.round::<Lower, _, _, _>(chunks, weight, ask, finish).await
}

#[cfg(test)]
mod tests {
    use veil_cells::{CellArray, CellType, ColumnId, Kind, Width};
    use veil_keys::decrypt_column;

    use super::*;
    use crate::lift::lift_column;
    use crate::lift_tags::{self, TagColumn, lift_tags};
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn numbers_go_down_and_up_again() {
        let mut parties = Parties::new(18);
        let numbers: Vec<i64> = (0..5000).map(|row| (row * 7919) % 65536 - 32768).collect();
        let rows = Rows {
            lanes: vec![parties.encrypt_signed(&numbers)],
            count: numbers.len(),
            shape: Lanes::NUMBER,
            width: 16,
            magnitude: Some(32768),
            key_id: parties.owner.key_id(),
        };
        let cells = lower(&parties.session, vec![rows]).await.unwrap().remove(0);
        let cell_type = CellType::new(
            Kind::Integer,
            Width::of_range(-32768, 32767).unwrap(),
            1,
            parties.owner.key_id(),
            ColumnId([0; 8]),
        );
        let array = CellArray::Binary(&cells);
        let opened = decrypt_column(parties.owner.cell(), parties.owner.key_id(), &cell_type, array).unwrap();
        assert_eq!(opened.messages, numbers);
        let lifted = lift_column(&parties.session, array, 0, 16).await.unwrap();
        let expected: Vec<u64> = numbers.iter().map(|number| plain::from_signed(*number)).collect();
        assert_eq!(parties.open(&lifted[0])[..5000], expected);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn several_vectors_become_the_lanes_of_one_column() {
        let mut parties = Parties::new(19);
        let lanes: Vec<Vec<i64>> = (0..3).map(|lane| (0..3000).map(|row| row * 3 + lane - 1).collect()).collect();
        let rows = Rows {
            lanes: lanes.iter().map(|lane| parties.encrypt_signed(lane)).collect(),
            count: 3000,
            shape: Lanes { value: 3, nulls: false, tag: false },
            width: 16,
            magnitude: None,
            key_id: parties.owner.key_id(),
        };
        let cells = lower(&parties.session, vec![rows]).await.unwrap().remove(0);
        for (lane, expected) in lanes.iter().enumerate() {
            let lifted = lift_column(&parties.session, CellArray::Binary(&cells), lane, 16).await.unwrap();
            let expected: Vec<u64> = expected.iter().map(|number| plain::from_signed(*number)).collect();
            assert_eq!(parties.open(&lifted[0])[..3000], expected, "lane {lane}");
        }
    }

    /// Tags are numbers modulo t, value lanes are what they were.
    #[tokio::test(flavor = "multi_thread")]
    async fn tags_go_down_and_up_again() {
        let mut parties = Parties::new(23);
        let key_id = parties.owner.key_id();
        for (value, nulls) in [(1, false), (2, true)] {
            let mut tags = parties.numbers();
            let shared = tags[17];
            tags[4000..].fill(shared);
            let shape = Lanes { value, nulls, tag: true };
            let numbers: Vec<i64> = (0..DEGREE as i64).map(|row| row - 4096).collect();
            let lanes = (1..shape.total()).map(|_| parties.encrypt_signed(&numbers)).collect::<Vec<_>>();
            let lanes = lanes.into_iter().chain([parties.encrypt(&tags)]).collect();
            let magnitude = (value == 1).then_some(32768);
            let rows = Rows { lanes, count: 5000, shape, width: 16, magnitude, key_id };
            let cells = lower(&parties.session, vec![rows]).await.unwrap().remove(0);
            let array = CellArray::Binary(&cells);
            let column = TagColumn::read(array, key_id).unwrap();
            assert_eq!(column.samples.len(), 5000);
            let lifted = lift_tags(&parties.session, vec![lift_tags::Rows::new(column.samples.iter().copied())]).await;
            assert_eq!(parties.open(&lifted.unwrap()[0])[..5000], tags[..5000]);
            // Below the steps: noise of cells, at most 8, and two units of rounding.
            let samples: Vec<_> = column.samples.into_iter().flatten().collect();
            for (phase, tag) in parties.keys.open_samples(&samples).iter().zip(&tags) {
                let rest = phase.wrapping_sub(phase_of_tag(*tag)) as i64;
                assert!(rest.abs() <= 8 + 2 + 1, "{rest} units beside a tag");
            }
            for lane in 0..shape.total() - 1 {
                let lifted = lift_column(&parties.session, array, lane, 16).await.unwrap();
                let lifted = parties.open(&lifted[0]).into_iter().map(plain::centred).collect::<Vec<_>>();
                assert_eq!(lifted[..5000], numbers[..5000], "lane {lane}");
            }
        }
    }

    /// What lies behind the rows is nobody's: P1 masks it uniformly, whatever the width, so that copies of rows tell nothing.
    #[test]
    fn masks_behind_the_rows_are_uniform() {
        let mut parties = Parties::new(25);
        let sanitizer = veil_slots::Sanitizer::new(parties.owner.p1().public_key().clone());
        let (lanes, key_id) = (vec![parties.encrypt(&[1])], parties.owner.key_id());
        let rows = Rows { lanes, count: 8, shape: Lanes::NUMBER, width: 32, magnitude: None, key_id };
        let mut asker = Asker::new(&sanitizer, rand::SeedableRng::seed_from_u64(1));
        let (asked, query) = ask(rows, &mut asker).unwrap();
        assert_eq!((query.rows, asked.masks.len(), asked.masks[0].len()), (8, 1, DEGREE));
        // A shortfall of 2^-16 would not show in so few numbers: these are the draws themselves.
        let mut rng = <StdRng as rand::SeedableRng>::seed_from_u64(1);
        assert_eq!(asked.masks[0][8..], plain::uniform_vec(DEGREE, &mut rng)[8..]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tags_in_lanes_that_do_not_exist_are_refused() {
        let mut parties = Parties::new(24);
        let lanes = vec![parties.encrypt(&[1]), parties.encrypt(&[2])];
        let (shape, key_id) = (Lanes { tag: true, ..Lanes::NUMBER }, parties.owner.key_id());
        let rows = Rows { lanes, count: 2, shape, width: 8, magnitude: None, key_id };
        let forge = |rows, asker: &mut Asker<'_>| {
            let (asked, query) = ask(rows, asker)?;
            Ok((asked, Query { tag_lane: 2, ..query }))
        };
        let outcome = parties.session.round::<Lower, _, _, _>(vec![rows], 2, forge, finish).await;
        assert_eq!(outcome.unwrap_err().to_string(), "malformed message: no tag in lane 2 of 2");
    }
}
