//! Fresh cells of messages that P1 chose: P2 makes encrypted zeros, P1 adds its messages.
//!
//! ```text
//!  P1:                           how many rows, how many lanes  -->
//!                                                               <--  fresh cells of zero: seeds and bodies          P2
//!  P1: bodies + 2^16 messages
//! ```
//! P1 holds no key that encrypts a cell. Each zero takes one message only, so equal messages do not show.

use arrow::array::BinaryArray;
use rand::CryptoRng;
use veil_cells::{KeyId, Lanes, MAX_LANES, phase_of_message};
use veil_slots::{DEGREE, KeyHolder, SEEDED_BYTES};

use crate::fresh_cells::{self, Fresh};
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Zeros;

/// The most rows of a message.
pub const MAX_ROWS: usize = DEGREE;

message! {
    /// How many zeros.
    Query {
        /// Cells.
        rows: u32,
        /// Lanes of each.
        lanes: u32,
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

/// Bodies take eight bytes each.
fn ciphertexts(rows: usize, lanes: usize) -> usize {
    (8 * rows * lanes).div_ceil(SEEDED_BYTES).max(1)
}

impl Workload for Query {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let (rows, lanes) = (self.rows as usize, self.lanes as usize);
        if rows > MAX_ROWS || !(1..=MAX_LANES).contains(&lanes) {
            return Err(ProtocolError::Malformed(format!("{rows} zeros of {lanes} lanes")));
        }
        Ok(ciphertexts(rows, lanes))
    }
}

impl Protocol for Zeros {
    const NAME: &'static str = "zeros";
    const VERSION: u16 = 2;
    const SUMMARY: &'static str = "fresh cells of messages that P1 chose";
    const LEAKAGE: Leakage = Leakage { p1: "nothing", p2: "how many cells of how many lanes are made" };
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query;
    type Received = Query;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(query: Query, holder: &dyn KeyHolder, rng: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        let (rows, lanes) = (query.rows as usize, query.lanes as usize);
        let (seeds, bodies) = fresh_cells::seal(&vec![0; rows * lanes], lanes, holder, rng);
        Ok(Answer { seeds, bodies })
    }
}

/// Up to 8192 rows of messages. It does not print: what P1 drew is its secret.
#[derive(Clone)]
pub struct Rows {
    /// All lanes of a row side by side.
    pub messages: Vec<i64>,
    /// What the lanes are.
    pub shape: Lanes,
    /// The largest absolute value of a number; `None` for text and categories.
    pub magnitude: Option<u64>,
}

/// P1 asks for as many zeros as it has messages.
pub fn ask(rows: Rows, _: &mut Asker<'_>) -> Result<(Rows, Query), ProtocolError> {
    let (lanes, messages) = (rows.shape.total(), rows.messages.len());
    if !rows.shape.is_valid() || !messages.is_multiple_of(lanes) || messages / lanes > MAX_ROWS {
        let text = format!("{messages} messages cannot be encrypted at once in cells of {lanes} lanes");
        return Err(ProtocolError::Misuse(text));
    }
    let beyond = |magnitude: u64| rows.messages.iter().step_by(lanes).any(|number| number.unsigned_abs() > magnitude);
    if rows.magnitude.is_some_and(beyond) {
        let text = "a number lies beyond the magnitude that was given for its column".to_owned();
        return Err(ProtocolError::Misuse(text));
    }
    let query = Query { rows: (messages / lanes) as u32, lanes: lanes as u32 };
    Ok((rows, query))
}

/// P1 adds its messages.
pub fn finish(rows: Rows, key_id: KeyId, answer: Answer) -> Result<BinaryArray, ProtocolError> {
    let Rows { messages, shape, magnitude } = rows;
    let lanes = shape.total();
    let count = messages.len() / lanes;
    let cells = Fresh { seeds: &answer.seeds, bodies: &answer.bodies, rows: count, key_id, shape, magnitude };
    cells.write(None, |row, lane| phase_of_message(messages[row * lanes + lane].wrapping_neg()))
}

/// One round for many chunks of rows: fresh cells of the session's key set.
pub async fn fresh_cells(session: &Session, chunks: Vec<Rows>) -> Result<Vec<BinaryArray>, ProtocolError> {
    let weight = |rows: &Rows| (8 * rows.messages.len()).div_ceil(SEEDED_BYTES);
    let weight = chunks.iter().map(weight).max().unwrap_or(1);
    let key_id = session.key_id();
    session.round::<Zeros, _, _, _>(chunks, weight, ask, move |rows, answer| finish(rows, key_id, answer)).await
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;
    use veil_cells::{CellArray, CellType, CellView, ColumnId, Kind, Nulls, Width};
    use veil_keys::decrypt_column;

    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn messages_of_p1_become_cells() {
        let parties = Parties::new(30);
        let width = Width::of_range(-3000, 3000).unwrap();
        let number = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([1; 8]));
        let hiding = CellType { nulls: Nulls::Hidden, ..number.clone() };
        let text = CellType::new(Kind::Text, Width::FULL, 3, parties.owner.key_id(), ColumnId([1; 8]));
        let chunks =
            [(&number, 5000, Some(3000)), (&hiding, 8192, Some(3000)), (&text, 100, None), (&number, 0, Some(1))].map(
                |(cell_type, rows, magnitude)| {
                    let shape = cell_type.cell_lanes();
                    let message = |at: i64| match cell_type.kind {
                        Kind::Text => at * 2_718_281_828_459 % (1 << 47),
                        _ => at * 7 % 6001 - 3000,
                    };
                    (
                        cell_type,
                        Rows { messages: (0..rows * shape.total() as i64).map(message).collect(), shape, magnitude },
                    )
                },
            );
        let asked = chunks.iter().map(|(_, rows)| rows.clone()).collect();
        let made = fresh_cells(&parties.session, asked).await.unwrap();
        assert_eq!(parties.session.traffic().rounds(), 1);
        for ((cell_type, rows), cells) in chunks.iter().zip(&made) {
            let array = CellArray::Binary(cells);
            let opened = decrypt_column(parties.owner.cell(), parties.owner.key_id(), cell_type, array).unwrap();
            assert_eq!(opened.messages, rows.messages);
            assert!(cells.iter().flatten().all(|cell| CellView::parse(cell).unwrap().magnitude() == rows.magnitude));
        }
        assert_eq!(made[3].len(), 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_shapes_and_numbers_beyond_their_magnitude_are_refused() {
        let parties = Parties::new(31);
        let shape = Lanes { nulls: true, ..Lanes::NUMBER };
        for (messages, expected) in [
            (vec![1; 5], "5 messages cannot be encrypted at once in cells of 2 lanes"),
            (vec![1; 2 * DEGREE + 2], "16386 messages cannot be encrypted at once in cells of 2 lanes"),
            (vec![10, 1, -11, 1], "a number lies beyond the magnitude that was given for its column"),
        ] {
            let rows = Rows { messages, shape, magnitude: Some(10) };
            let error = fresh_cells(&parties.session, vec![rows]).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        for (rows, lanes) in [(8193, 1), (1, 0), (1, 256), (u32::MAX, u32::MAX)] {
            assert!(Query { rows, lanes }.answer_ciphertexts().is_err(), "{rows} rows of {lanes} lanes");
        }
    }
}
