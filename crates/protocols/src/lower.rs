//! Slots into cells.
//!
//! ```text
//!  P1: rho uniform in [0, t - 2^w)        x + 2^(w-1) + rho  -->
//!                                                            <--  fresh cells of it: seeds and bodies          P2
//!  P1: bodies - 2^16 (rho + 2^(w-1))
//! ```
//! `w` is the width of the numbers, so nothing wraps, and what P2 decrypts is within `2^(w-48)` of uniform. Several vectors become the
//! lanes of one column.

use arrow::array::BinaryArray;
use rand::CryptoRng;
use veil_cells::{KeyId, Lanes};
use veil_slots::{DEGREE, Inbound, KeyHolder, L1, Outbound, PLAIN_MODULUS, Slots, plain};

use crate::fresh_cells::{self, Fresh};
use crate::lift::MAX_WIDTH;
use crate::message::message;
use crate::{Asker, Leakage, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Lower;

/// The most lanes of a cell that come from slots.
pub const MAX_LANES: usize = 32;

message! {
    /// The masked lanes.
    Query<C: Outbound => Inbound> {
        /// `x + rho`, one ciphertext a lane.
        lanes: Vec<C>,
        /// How many slots are rows.
        rows: u32,
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
        if !(1..=MAX_LANES).contains(&self.lanes.len()) || self.rows as usize > DEGREE {
            return Err(ProtocolError::Malformed(format!("{} rows of {} lanes", self.rows, self.lanes.len())));
        }
        Ok(self.lanes.len())
    }
}

impl Protocol for Lower {
    const NAME: &'static str = "lower";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "slots into cells";
    const LEAKAGE: Leakage =
        Leakage { p1: "nothing", p2: "how many rows there are; their values are masked to within 2^(w-48) of uniform" };
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(query: Query<Inbound>, holder: &dyn KeyHolder, rng: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        let lanes: Vec<_> = query.lanes.into_iter().map(|lane| holder.open(lane)).collect();
        let row = |row: usize| lanes.iter().map(move |lane| lane.get(row).copied().unwrap_or_default());
        let messages: Vec<u64> = (0..query.rows as usize).flat_map(row).collect();
        let (seeds, bodies) = fresh_cells::seal(&messages, lanes.len(), holder, rng);
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
    /// What the lanes of the cells are.
    pub shape: Lanes,
    /// Numbers are in `[-2^(width-1), 2^(width-1))`.
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
    for lane in &lanes {
        let room = PLAIN_MODULUS - (1 << width);
        let mask: Vec<u64> =
            (0..DEGREE).map(|_| plain::uniform_below(room, &mut asker.rng) + (1 << (width - 1))).collect();
        sent.push(asker.send(lane, &mask)?);
        masks.push(mask);
    }
    Ok((Asked { masks, count, shape, magnitude, key_id }, Query { lanes: sent, rows: count as u32 }))
}

/// P1 takes the masks off the bodies.
pub fn finish(asked: Asked, answer: Answer) -> Result<BinaryArray, ProtocolError> {
    let Asked { masks, count, shape, magnitude, key_id } = asked;
    let cells = Fresh { seeds: &answer.seeds, bodies: &answer.bodies, rows: count, key_id, shape, magnitude };
    cells.write(None, |row, lane| masks[lane][row] as i64)
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
}
