//! An encrypted category replaced by one that was drawn for it: the exponential mechanism, or randomised response.
//!
//! ```text
//!  P1: draws, for every row and EVERY leaf d that the row may have, the leaf o_d to answer
//!  `lift`:    x, the code of the row's leaf, encrypted
//!  `lookup`:  for every level, the code of o_x there
//!  `lower`:   cells again, one lane a level
//! ```
//! P1 never learns which of its draws counts, and all slots are in the domain, so that P2 learns nothing from the lookup. A generalised
//! value, -1 in its first lane, is not drawn for: it becomes the root.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::BinaryArray;
use veil_cells::{CellArray, CellArrayBuilder, CellError, CellView, Lanes};
use veil_slots::{DEGREE, L1, Slots, plain};

use crate::channel::blocking;
use crate::lift::{MAX_WIDTH, lift_column};
use crate::lookup::{MAX_DOMAIN, Question, Table, lookup};
use crate::lower::{self, lower};
use crate::{ProtocolError, Session};

/// Vectors of 8192 rows that are under way at the same time.
const AT_ONCE: usize = 4;

/// The lane of a level that a value has been generalised beyond.
const GENERALISED: i64 = -1;

/// The codes of a hierarchy, which P1 must know to answer with them.
#[derive(Clone, Debug)]
pub struct Categories(Arc<Codes>);

#[derive(Debug)]
struct Codes {
    /// Codes of the leaves, `-1`, and zero, which NULLs and slots beyond the rows hold.
    domain: Arc<[u64]>,
    /// Which leaf a number of the domain is, if it is one.
    leaf: Vec<Option<usize>>,
    /// For every level the code of each leaf's ancestor.
    levels: Vec<Vec<u64>>,
    /// For every level the lane of a value that is not drawn for.
    root: Vec<u64>,
    width: u32,
}

impl Categories {
    /// From `codes[leaf][level]`, leaf level first, for lanes of so many bits.
    pub fn new(codes: &[Vec<i64>], width: u32) -> Result<Self, ProtocolError> {
        let misuse = |text: String| Err(ProtocolError::Misuse(text));
        let level_count = codes.first().map_or(0, Vec::len);
        // One lane is left for hidden NULLs.
        if !(1..lower::MAX_LANES).contains(&level_count) || codes.iter().any(|leaf| leaf.len() != level_count) {
            return misuse(format!("every leaf needs the same number of levels, 1 to {}", lower::MAX_LANES - 1));
        }
        if !(2..=MAX_WIDTH).contains(&width) || codes.iter().flatten().any(|code| *code < 0 || code >> (width - 1) != 0)
        {
            return misuse(format!("a code of the hierarchy does not fit {width} bits"));
        }
        let mut places = BTreeMap::from([(GENERALISED, None), (0, None)]);
        for (leaf, code) in codes.iter().map(|leaf| leaf[0]).enumerate() {
            if places.insert(code, Some(leaf)).flatten().is_some() {
                return misuse(format!("two leaves of the hierarchy have the code {code}"));
            }
        }
        if places.len() > MAX_DOMAIN {
            let most = MAX_DOMAIN - 2;
            return misuse(format!("a hierarchy of {} leaves is too large to draw from; {most} are fine", codes.len()));
        }
        let level = |level: usize| codes.iter().map(|leaf| plain::from_signed(leaf[level])).collect::<Vec<_>>();
        let levels: Vec<Vec<u64>> = (0..level_count).map(level).collect();
        let mut root = vec![plain::from_signed(GENERALISED); level_count];
        // The last level is a root if all leaves meet there.
        if let (Some(last), Some(codes)) = (root.last_mut(), levels.last())
            && codes.array_windows().all(|[a, b]| a == b)
        {
            *last = codes[0];
        }
        Ok(Self(Arc::new(Codes {
            // In order, so that neighbouring codes make a range, which is cheaper to look up.
            domain: places.keys().map(|code| plain::from_signed(*code)).collect(),
            leaf: places.into_values().collect(),
            levels,
            root,
            width,
        })))
    }

    /// How many leaves there are.
    pub fn leaf_count(&self) -> usize {
        self.0.levels.first().map_or(0, Vec::len)
    }

    /// Bits of a lane.
    pub(crate) fn width(&self) -> u32 {
        self.0.width
    }

    /// The numbers of the leaves: a domain of codes, and for each the number of its leaf, or how many leaves there are if it is none's.
    pub(crate) fn numbers(&self) -> (Arc<[u64]>, Table) {
        let leaves = self.leaf_count();
        let numbers = self.0.leaf.iter().map(|leaf| leaf.unwrap_or(leaves) as u64);
        (self.0.domain.clone(), Table::Shared(numbers.collect()))
    }

    /// The other way round: for every level the codes of leaves by their numbers, and of what is no leaf.
    pub(crate) fn codes_of_numbers(&self) -> (Arc<[u64]>, Vec<Table>) {
        let domain = (0..=self.leaf_count() as u64).collect();
        let levels = self.0.levels.iter().zip(&self.0.root);
        let table = |(codes, root): (&Vec<u64>, &u64)| Table::Shared(codes.iter().chain([root]).copied().collect());
        (domain, levels.map(table).collect())
    }

    /// One table a level: the code of the leaf that was drawn for the slot and the candidate.
    fn tables(&self, drawn: &Arc<Vec<u32>>) -> Vec<Table> {
        let table = |level: usize| {
            let (codes, drawn, leaves) = (self.0.clone(), drawn.clone(), self.leaf_count());
            let value = move |place: usize, slot: usize| match codes.leaf[place] {
                Some(leaf) => drawn.get(slot * leaves + leaf).map_or(0, |drawn| codes.levels[level][*drawn as usize]),
                None => codes.root[level],
            };
            Table::Computed(Arc::new(value))
        };
        (0..self.0.levels.len()).map(table).collect()
    }
}

/// Replaces every category of a column. `answers` draws for some rows of it: for each row, and each leaf that it may have, the number
/// of the leaf to answer; rows one behind the other. NULLs stay NULL, public and hidden ones; tags are dropped.
pub async fn choose(
    session: &Session,
    column: CellArray<'_>,
    categories: &Categories,
    mut answers: impl FnMut(Range<usize>) -> Vec<u32> + Send + 'static,
) -> Result<BinaryArray, ProtocolError> {
    let Codes { domain, levels, width, .. } = &*categories.0;
    let shape = shape_of(&column, levels.len())?;
    let leaves = lift_column(session, column, 0, *width).await?;
    let hidden = match shape.null_lane() {
        Some(lane) => lift_column(session, column, lane, *width).await?.into_vectors(),
        None => Vec::new(),
    };
    let mut builder = CellArrayBuilder::with_capacity(column.len(), 50 + 8 * shape.total());
    for first in (0..leaves.len()).step_by(AT_ONCE) {
        let chunks = first..leaves.len().min(first + AT_ONCE);
        let rows: Vec<Range<usize>> =
            chunks.clone().map(|chunk| chunk * DEGREE..column.len().min((chunk + 1) * DEGREE)).collect();
        let (drawn, back) = draw(answers, rows.clone(), categories.leaf_count()).await?;
        answers = back;
        let question = |(slots, drawn): (&Slots<L1>, Vec<u32>)| Question {
            slots: slots.clone(),
            domain: domain.clone(),
            tables: categories.tables(&Arc::new(drawn)),
        };
        let questions = leaves[chunks.clone()].iter().zip(drawn).map(question).collect();
        let chosen = lookup(session, questions).await?;
        let lowered = chosen.into_iter().zip(chunks).zip(&rows).map(|((mut lanes, chunk), rows)| {
            lanes.extend(hidden.get(chunk).cloned());
            let key_id = session.key_id();
            lower::Rows { lanes, count: rows.len(), shape, width: *width, magnitude: None, key_id }
        });
        let lowered = lower(session, lowered.collect()).await?;
        for (cells, rows) in lowered.iter().zip(rows) {
            for (at, row) in rows.enumerate() {
                match column.bytes(row) {
                    Some(_) => builder.push_bytes(cells.value(at))?,
                    None => builder.push_null()?,
                }
            }
        }
    }
    Ok(builder.finish()?)
}

/// Draws, where it may take long, and hands the generator back.
async fn draw<A: FnMut(Range<usize>) -> Vec<u32> + Send + 'static>(
    mut answers: A,
    rows: Vec<Range<usize>>,
    leaves: usize,
) -> Result<(Vec<Vec<u32>>, A), ProtocolError> {
    blocking(move || {
        let mut drawn = Vec::with_capacity(rows.len());
        for rows in rows {
            let answers = answers(rows.clone());
            if answers.len() != rows.len() * leaves || answers.iter().any(|leaf| *leaf as usize >= leaves) {
                let text =
                    format!("{} rows need one answer for each of {leaves} leaves, and a leaf of these", rows.len());
                return Err(ProtocolError::Misuse(text));
            }
            drawn.push(answers);
        }
        Ok((drawn, answers))
    })
    .await?
}

/// The lanes of the result: those of the column, which must all be alike, without the tag.
fn shape_of(column: &CellArray<'_>, levels: usize) -> Result<Lanes, ProtocolError> {
    let (mut known, mut shape) = (None, None);
    for (row, bytes) in (0..column.len()).filter_map(|row| Some((row, column.bytes(row)?))) {
        let at = |error: CellError| ProtocolError::Misuse(format!("row {row}: {error}"));
        let lanes = CellView::parse_next(&mut known, bytes).map_err(at)?.lanes();
        if usize::from(lanes.value) != levels {
            let text = format!("row {row} has {} levels, the hierarchy has {levels}", lanes.value);
            return Err(ProtocolError::Misuse(text));
        }
        let lanes = Lanes { tag: false, ..lanes };
        if *shape.get_or_insert(lanes) != lanes {
            return Err(at(CellError::Unsupported("some cells of the column hide NULLs and some do not".to_owned())));
        }
    }
    Ok(shape.unwrap_or(Lanes { value: levels as u8, nulls: false, tag: false }))
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;
    use arrow::buffer::NullBuffer;
    use veil_cells::{CellType, ColumnId, Kind, Nulls, Width};
    use veil_keys::{decrypt_column, encrypt_column};

    use super::*;
    use crate::testing::Parties;

    fn cities() -> Vec<Vec<i64>> {
        [[0, 0, 0], [8191, 0, 0], [16383, 16383, 0], [24575, 16383, 0], [32767, 32767, 0]].map(Vec::from).to_vec()
    }

    /// What P1 draws in these tests: something else for every row and leaf.
    fn drawn(row: usize, leaf: usize, leaves: usize) -> usize {
        (row * 7 + leaf * leaf * 3 + row / leaves) % leaves
    }

    fn drawing(leaves: usize) -> impl FnMut(Range<usize>) -> Vec<u32> + Send + 'static {
        move |rows| rows.flat_map(|row| (0..leaves).map(move |leaf| drawn(row, leaf, leaves) as u32)).collect()
    }

    /// Chooses for rows of lanes (`None` is a NULL) and compares with what was drawn for the true leaf.
    async fn check(
        parties: &mut Parties,
        codes: Vec<Vec<i64>>,
        width: Width,
        rows: &[Option<Vec<i64>>],
        (hidden, tag): (bool, bool),
    ) {
        let (leaves, levels) = (codes.len(), codes[0].len());
        let cell_type = CellType {
            nulls: if hidden { Nulls::Hidden } else { Nulls::Public },
            tag,
            ..CellType::new(Kind::Category, width, levels as u8, parties.owner.key_id(), ColumnId([4; 8]))
        };
        let messages: Vec<i64> = rows
            .iter()
            .flat_map(|row| {
                let mut lanes = row.clone().unwrap_or(vec![0; levels]);
                lanes.extend(hidden.then_some(i64::from(row.is_none())));
                lanes.extend(tag.then_some(12345));
                lanes
            })
            .collect();
        let nulls = (!hidden).then(|| NullBuffer::from_iter(rows.iter().map(Option::is_some)));
        let cells = encrypt_column(&parties.owner, &cell_type, &messages, nulls.as_ref(), &mut parties.rng).unwrap();
        let categories = Categories::new(&codes, width.bits()).unwrap();
        let array = CellArray::Binary(&cells);
        let chosen = choose(&parties.session, array, &categories, drawing(leaves)).await.unwrap();
        assert_eq!((chosen.len(), chosen.null_count()), (rows.len(), cells.null_count()));
        let array = CellArray::Binary(&chosen);
        let opened = decrypt_column(parties.owner.cell(), parties.owner.key_id(), &cell_type, array).unwrap();
        let root = |level: usize| match level == levels - 1 && codes.iter().all(|leaf| leaf[level] == codes[0][level]) {
            true => codes[0][level],
            false => -1,
        };
        for (row, (lanes, found)) in rows.iter().zip(opened.messages.chunks(opened.lanes)).enumerate() {
            assert!(!hidden || found[levels] == i64::from(lanes.is_none()), "row {row}");
            let Some(lanes) = lanes else { continue };
            let expected = match codes.iter().position(|leaf| leaf[0] == lanes[0]) {
                Some(leaf) => codes[drawn(row, leaf, leaves)].clone(),
                None => (0..levels).map(root).collect(),
            };
            assert_eq!(found[..levels], expected, "row {row}");
        }
        let shape = CellView::parse(chosen.value(0)).unwrap().lanes();
        assert_eq!(shape, Lanes { value: levels as u8, nulls: hidden, tag: false });
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_answer_for_the_true_leaf_counts() {
        let mut parties = Parties::new(50);
        let width = Width::try_from(16).unwrap();
        let row = |row: usize| match row % 11 {
            3 => None,
            5 => Some(vec![-1, 16383, 0]),
            8 => Some(vec![-1, -1, 0]),
            _ => Some(cities()[row * 13 % 5].clone()),
        };
        for (rows, hidden, tag) in [(DEGREE + 60, false, true), (40, true, false), (40, true, true)] {
            let rows: Vec<_> = (0..rows).map(row).collect();
            check(&mut parties, cities(), width, &rows, (hidden, tag)).await;
        }
    }

    /// Neighbouring codes, one level without a root, and codes that leave zero to NULLs.
    #[tokio::test(flavor = "multi_thread")]
    async fn other_hierarchies_choose_too() {
        let mut parties = Parties::new(51);
        for (codes, bits) in [
            ((0..20).map(|code| vec![code, code / 5, 0]).collect(), 16),
            (vec![vec![0], vec![100], vec![(1 << 23) - 1]], 24),
            (vec![vec![7, 7], vec![9, 7]], 16),
            (vec![vec![3]], 16),
        ] {
            let codes: Vec<Vec<i64>> = codes;
            let row = |row: usize| match row % 7 {
                3 => None,
                5 => Some(vec![-1; codes[0].len()]),
                _ => Some(codes[row % codes.len()].clone()),
            };
            let rows: Vec<_> = (0..50).map(row).collect();
            check(&mut parties, codes.clone(), Width::try_from(bits).unwrap(), &rows, (false, false)).await;
        }
        let empty = CellArrayBuilder::default().finish().unwrap();
        let categories = Categories::new(&cities(), 16).unwrap();
        let chosen = choose(&parties.session, CellArray::Binary(&empty), &categories, drawing(5)).await.unwrap();
        assert_eq!(chosen.len(), 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_hierarchies_and_answers_are_refused() {
        let many: Vec<Vec<i64>> = (0..1024).map(|code| vec![code]).collect();
        for (codes, width, expected) in [
            (&[][..], 16, "every leaf needs the same number of levels, 1 to 31"),
            (&[vec![1, 0], vec![2]], 16, "every leaf needs the same number of levels, 1 to 31"),
            (&[vec![1, -1]], 16, "a code of the hierarchy does not fit 16 bits"),
            (&[vec![1 << 15]], 16, "a code of the hierarchy does not fit 16 bits"),
            (&[vec![5, 0], vec![5, 0]], 16, "two leaves of the hierarchy have the code 5"),
            (&many, 16, "a hierarchy of 1024 leaves is too large to draw from; 1022 are fine"),
        ] {
            let error = Categories::new(codes, width).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let mut parties = Parties::new(52);
        let width = Width::try_from(16).unwrap();
        let cell_type = CellType::new(Kind::Category, width, 3, parties.owner.key_id(), ColumnId([4; 8]));
        let cells = encrypt_column(&parties.owner, &cell_type, &cities().concat(), None, &mut parties.rng).unwrap();
        let column = CellArray::Binary(&cells);
        let categories = Categories::new(&cities(), 16).unwrap();
        for answers in [vec![0; 24], vec![5; 25]] {
            let error = choose(&parties.session, column, &categories, move |_| answers.clone()).await.unwrap_err();
            assert_eq!(error.to_string(), "5 rows need one answer for each of 5 leaves, and a leaf of these");
        }
        let flat = Categories::new(&[vec![0, 0], vec![1, 0]], 16).unwrap();
        let error = choose(&parties.session, column, &flat, drawing(2)).await.unwrap_err();
        assert_eq!(error.to_string(), "row 0 has 3 levels, the hierarchy has 2");
    }
}
