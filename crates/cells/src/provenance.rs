//! Of whose rows a value is made, and with which weights.
//!
//! A sum may leave only if it is of many rows, and one that is `1000 a_1 + b_2 + .. + b_99` tells `a_1`. So rows are grouped by their
//! *pattern*, which columns of theirs are in the value with which factors, and what counts is the smallest group: all rows of a sum of
//! one column are one group, however many files they come from.
//!
//! ```text
//!  a_7                      {a: 7}                      one row
//!  a_7 + 2 b_7              {a + 2 b: 7}                one row
//!  sum of a_i, i < 500      {a: 0 .. 499}               500 rows
//!  the same + 9 b_7         {a: .. } and {a + 9 b: 7}   counts as one row
//! ```
//! Samples that cancel vanish from a short form, where they can be seen. Where they cannot, in long sums and in values that were drawn
//! anew, a row that is added twice might have been taken away again: such a value counts as one row, whatever else is in it.

use crate::anchor::{ANCHOR, MAX_LISTED, anchor_of};
use crate::cell::Term;
use crate::pattern::{PATTERN, Pattern};
use crate::{Anchor, AnchorSet, CellError, Origin};

/// Bits of the first byte.
const DRAWN: u8 = 1;
const UNEVEN: u8 = 2;
const SUMMED: u8 = 4;
const MADE: u8 = 8;
const MIXED: u8 = 16;

/// Says that bitmaps follow, and no list.
const BITMAPS: u8 = 0xff;

/// The most groups; a value of more counts as one row.
const MAX_GROUPS: usize = 64;

/// Of whose rows a value is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// By their patterns, which ascend.
    groups: Vec<(Pattern, AnchorSet)>,
    drawn: bool,
    uneven: bool,
    summed: bool,
    /// Whether a part of it was made anew.
    made: bool,
    /// Whether such a part came together with others of the same row.
    mixed: bool,
}

impl Provenance {
    /// A value that was made anew for a row, or for a joined row of several files. What makes it has a name, so that values are alike if the
    /// same made them. Of a joined row every file's is a group of its own.
    pub fn of_row(anchors: &AnchorSet, made_by: &str) -> Self {
        if anchors.len() > MAX_GROUPS as u64 {
            let groups = vec![(Pattern::of_row(u16::MAX).made(made_by), anchors.clone())];
            return Self { groups, made: true, uneven: true, ..Self::default() };
        }
        let anchors = anchors.iter().zip(0u16..);
        let mut groups: Vec<(Pattern, AnchorSet)> =
            anchors.map(|(anchor, at)| (Pattern::of_row(at).made(made_by), AnchorSet::Few(vec![anchor]))).collect();
        groups.sort_unstable_by_key(|(pattern, _)| *pattern);
        Self { groups, made: true, ..Self::default() }
    }

    /// The same rows, of a value that was made anew of this one.
    #[must_use]
    pub fn made_anew(mut self, made_by: &str) -> Self {
        self.each_pattern(|pattern| pattern.made(made_by));
        Self { made: true, ..self }
    }

    /// The same rows, of which the value has nothing.
    #[must_use]
    pub fn drawn(self) -> Self {
        Self { drawn: true, ..self }
    }

    /// What samples lead to.
    pub(crate) fn of_terms(terms: impl Iterator<Item = Term>) -> Self {
        let mut rows: Vec<(Anchor, Pattern)> = terms
            .filter_map(|term| match term.seed.origin() {
                Origin::Rows(rows) => Some((rows.anchor(term.index), Pattern::of_sample(&rows, &term))),
                Origin::Constant | Origin::Made => None,
            })
            .collect();
        rows.sort_unstable();
        let mut joined: Vec<(Pattern, Anchor)> = Vec::with_capacity(rows.len());
        for same in rows.chunk_by(|a, b| a.0 == b.0) {
            let mut patterns = same.iter().map(|(_, pattern)| *pattern);
            let Some((anchor, first)) = same.first().zip(patterns.next()).map(|((anchor, _), first)| (*anchor, first))
            else {
                continue;
            };
            joined.push((patterns.fold(first, Pattern::and), anchor));
        }
        joined.sort_unstable();
        let mut provenance = Self::default();
        for group in joined.chunk_by(|a, b| a.0 == b.0) {
            let anchors = AnchorSet::of_sorted(group.iter().map(|(_, anchor)| *anchor));
            provenance.groups.extend(group.first().map(|(pattern, _)| (*pattern, anchors)));
        }
        provenance.bounded()
    }

    /// Every row.
    pub fn anchors(&self) -> AnchorSet {
        let mut all = AnchorSet::default();
        self.groups.iter().for_each(|(_, anchors)| all.union(anchors));
        all
    }

    /// How many rows it counts as: those of the smallest group, since these could outweigh all others. None is a constant.
    pub fn people(&self) -> u64 {
        let smallest = self.groups.iter().map(|(_, anchors)| anchors.len()).min().unwrap_or(0);
        if self.uneven { smallest.min(1) } else { smallest }
    }

    /// Whether it is made of no row.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether the value was drawn for its rows and has nothing of theirs in it.
    pub fn is_drawn(&self) -> bool {
        self.drawn
    }

    /// Whether parts of it may cancel in ways that nobody sees: what was added twice, or made anew and added to what its row has besides. Such a
    /// value can be a constant that looks like a person's.
    pub fn is_opaque(&self) -> bool {
        self.uneven || self.mixed
    }

    /// Whether it is a sum over rows, of however few.
    pub fn is_sum(&self) -> bool {
        self.summed
    }

    /// The same rows, added up.
    #[must_use]
    pub(crate) fn summed(self) -> Self {
        Self { summed: true, ..self }
    }

    /// One pattern for all that it is made of.
    pub fn pattern(&self) -> Pattern {
        let mut patterns = self.groups.iter().map(|(pattern, _)| *pattern);
        let first = patterns.next().unwrap_or_default();
        patterns.fold(first, Pattern::and)
    }

    /// Adds what another value is made of.
    pub(crate) fn join(&mut self, other: &Self) {
        let summed = self.summed || other.summed;
        self.join_groups(other);
        self.summed = summed;
    }

    fn join_groups(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other.clone();
            return;
        }
        self.drawn &= other.drawn;
        self.uneven |= other.uneven;
        self.mixed |= other.mixed;
        self.made |= other.made;
        let anew = self.made;
        if let ([(ours, anchors)], [(theirs, others)]) = (self.groups.as_mut_slice(), other.groups.as_slice())
            && anchors.len() == 1
            && anchors == others
        {
            *ours = ours.and(*theirs);
            self.mixed |= anew;
            return;
        }
        let meets = self.groups.iter().any(|(_, ours)| other.groups.iter().any(|(_, theirs)| ours.meets(theirs)));
        self.uneven |= meets;
        self.mixed |= meets && anew;
        for (pattern, anchors) in &other.groups {
            match self.groups.binary_search_by_key(pattern, |(known, _)| *known) {
                Ok(at) => self.groups[at].1.union(anchors),
                Err(at) => self.groups.insert(at, (*pattern, anchors.clone())),
            }
        }
        *self = std::mem::take(self).bounded();
    }

    /// All of it times a factor.
    pub(crate) fn scale(&mut self, factor: i64) {
        self.each_pattern(|pattern| pattern.times(factor));
    }

    /// The lane of hidden NULLs of a value: another number than the value.
    #[must_use]
    pub(crate) fn null_lane(mut self) -> Self {
        self.each_pattern(|pattern| pattern.made("hidden NULLs"));
        self
    }

    /// Other patterns, which stay apart as they were.
    fn each_pattern(&mut self, change: impl Fn(Pattern) -> Pattern) {
        self.groups.iter_mut().for_each(|(pattern, _)| *pattern = change(*pattern));
        self.groups.sort_unstable_by_key(|(pattern, _)| *pattern);
    }

    /// Not more groups than are worth telling apart.
    fn bounded(mut self) -> Self {
        if self.groups.len() > MAX_GROUPS {
            let all = self.anchors();
            (self.groups, self.uneven) = (vec![(Pattern::default(), all)], true);
        }
        self
    }

    /// Appends its bytes.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let bit = |bit: u8, on: bool| if on { bit } else { 0 };
        out.extend_from_slice(&[
            bit(DRAWN, self.drawn)
                | bit(UNEVEN, self.uneven)
                | bit(SUMMED, self.summed)
                | bit(MADE, self.made)
                | bit(MIXED, self.mixed),
            self.groups.len() as u8,
        ]);
        for (pattern, anchors) in &self.groups {
            out.extend_from_slice(&pattern.to_bytes());
            match anchors {
                AnchorSet::Few(few) => {
                    out.push(few.len() as u8);
                    anchors.write(out);
                }
                AnchorSet::Many(_) => {
                    out.push(BITMAPS);
                    let length = out.len();
                    out.extend_from_slice(&[0; 4]);
                    anchors.write(out);
                    let written = (out.len() - length - 4) as u32;
                    out[length..length + 4].copy_from_slice(&written.to_le_bytes());
                }
            }
        }
    }

    /// Where it ends, among bytes that begin with it.
    pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let [_, groups, rest @ ..] = bytes else { return None };
        let mut rest = rest;
        for _ in 0..*groups {
            let (_, behind) = rest.split_first_chunk::<PATTERN>()?;
            let (kind, behind) = behind.split_first()?;
            let (length, behind) = match *kind {
                BITMAPS => {
                    let (length, behind) = behind.split_first_chunk::<4>()?;
                    (u32::from_le_bytes(*length) as usize, behind)
                }
                count if usize::from(count) <= MAX_LISTED => (usize::from(count) * ANCHOR, behind),
                _ => return None,
            };
            rest = behind.get(length..)?;
        }
        Some(bytes.split_at(bytes.len() - rest.len()))
    }

    /// Reads what [`split`](Self::split) has found. Each has one form.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, CellError> {
        let malformed = || CellError::Malformed("the rows that it is of are not understood".to_owned());
        let [flags, count, rest @ ..] = bytes else { return Err(malformed()) };
        let has = |bit: u8| flags & bit != 0;
        let mut read = Self {
            groups: Vec::new(),
            drawn: has(DRAWN),
            uneven: has(UNEVEN),
            summed: has(SUMMED),
            made: has(MADE),
            mixed: has(MIXED),
        };
        let mut rest = rest;
        for _ in 0..*count {
            let (pattern, behind) = rest.split_first_chunk::<PATTERN>().ok_or_else(malformed)?;
            let (kind, behind) = behind.split_first().ok_or_else(malformed)?;
            let (anchors, behind) = match *kind {
                BITMAPS => {
                    let (length, behind) = behind.split_first_chunk::<4>().ok_or_else(malformed)?;
                    let bitmaps =
                        behind.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(malformed)?;
                    (AnchorSet::read_bitmaps(bitmaps.0)?, bitmaps.1)
                }
                count => {
                    let list = behind.split_at_checked(usize::from(count) * ANCHOR).ok_or_else(malformed)?;
                    (AnchorSet::read_list(list.0)?, list.1)
                }
            };
            if anchors.is_empty() {
                return Err(malformed());
            }
            read.groups.push((Pattern::from_bytes(pattern)?, anchors));
            rest = behind;
        }
        let is_one_form = read.groups.is_sorted_by(|a, b| a.0 < b.0) && read.groups.len() <= MAX_GROUPS;
        match rest.is_empty() && flags & !(DRAWN | UNEVEN | SUMMED | MADE | MIXED) == 0 && is_one_form {
            true => Ok(read),
            false => Err(malformed()),
        }
    }

    /// The only row, if a value that was made for one is all there is: without reading sets.
    #[inline]
    pub(crate) fn only_row(bytes: &[u8]) -> Option<(Anchor, Pattern, bool)> {
        let [flags, 1, rest @ ..] = bytes else { return None };
        let (pattern, rest) = rest.split_first_chunk::<PATTERN>()?;
        let [1, anchor @ ..] = rest else { return None };
        let anchor = <&[u8; ANCHOR]>::try_from(anchor).ok()?;
        let pattern = Pattern::from_bytes(pattern).ok()?;
        (flags & !(DRAWN | MADE) == 0).then(|| (anchor_of(anchor), pattern, flags & DRAWN != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, ChunkRows, DenseSum, FileId, KeyId, Lanes, MAX_TERMS, Seed};

    const KEY: KeyId = KeyId([1; 8]);

    fn cell(column: u16, row: u32) -> Cell {
        let (first_row, index) = (row / 4096 * 4096, row % 4096);
        let chunk = ChunkRows { file: FileId([3; 9]), column, samples: 1, first_row };
        Cell::fresh(KEY, Lanes::NUMBER, Some(9), Seed::of_rows(chunk), index as u16, &[u64::from(row)]).unwrap()
    }

    /// As P2 makes them: a sample of its own, and the row as it is told.
    fn made(index: u16, row: u32) -> Cell {
        let mut cell = Cell::fresh(KEY, Lanes::NUMBER, Some(9), Seed::of_made([7; 16]), index, &[6]).unwrap();
        cell.set_provenance(Some(Provenance::of_row(&[anchor(row)].into_iter().collect(), "a test")));
        cell
    }

    fn anchor(row: u32) -> Anchor {
        Anchor { file: FileId([3; 9]), row }
    }

    fn sum(cells: impl IntoIterator<Item = Cell>) -> Provenance {
        let mut sum = DenseSum::new();
        cells.into_iter().for_each(|cell| sum.add(&cell).unwrap());
        let sum = sum.finish().unwrap().unwrap();
        let read = Cell::from_bytes(&sum.to_bytes()).unwrap();
        assert_eq!(read, sum);
        read.provenance().unwrap()
    }

    fn times(mut cell: Cell, factor: i64) -> Cell {
        cell.scale(factor).unwrap();
        cell
    }

    fn plus(mut cell: Cell, other: &Cell) -> Cell {
        cell.add(other).unwrap();
        cell
    }

    /// At both sides of the border between short forms and long sums, from samples, from values that were made anew, and merged from parts.
    #[test]
    fn a_sum_counts_its_rows_whatever_its_form() {
        let sizes = [1, 2, MAX_TERMS - 1, MAX_TERMS, MAX_TERMS + 1, 2 * MAX_TERMS + 1, 5000];
        for rows in sizes.map(|size| size as u32) {
            let all: AnchorSet = (0..rows).map(anchor).collect();
            let encrypted = sum((0..rows).map(|row| cell(0, row)));
            let made_anew = sum((0..rows).map(|row| made((row % 4096) as u16, row)));
            let half = |from: u32, to: u32| {
                let mut half = DenseSum::new();
                (from..to).for_each(|row| half.add(&cell(0, row)).unwrap());
                half.finish().unwrap()
            };
            let merged = sum([half(0, rows / 2), half(rows / 2, rows)].into_iter().flatten());
            for provenance in [encrypted, made_anew, merged] {
                assert_eq!((provenance.people(), provenance.anchors()), (u64::from(rows), all.clone()), "{rows} rows");
            }
        }
    }

    /// Copies of one row are one row, in every form.
    #[test]
    fn copies_are_one_row() {
        for copies in [1, 2, 33, 4000] {
            let of_one = sum((0..copies).map(|_| cell(0, 7)));
            assert_eq!((of_one.people(), of_one.anchors().len()), (1, 1), "{copies} copies");
            let columns = sum((0..copies as u16).map(|column| cell(column, 7)));
            assert_eq!((columns.people(), columns.anchors().len()), (1, 1), "{copies} columns");
            assert_eq!(sum((0..copies).map(|_| made(3, 7))).anchors().len(), 1);
        }
    }

    /// A row that outweighs the others is what the sum tells.
    #[test]
    fn weights_that_differ_count_as_one_row() {
        let others = || (1..500).map(|row| cell(0, row));
        assert_eq!(sum(others().chain([times(cell(0, 0), 1000)])).people(), 1);
        assert_eq!(sum(others().chain([cell(1, 0)])).people(), 1, "another column");
        assert_eq!(sum(others().chain([plus(cell(0, 0), &cell(1, 0))])).people(), 1, "another expression");
        assert_eq!(sum(others().chain([cell(0, 3)])).people(), 1, "a row that is there twice");
        // The same weights in all rows are a factor of the sum.
        assert_eq!(sum((0..500).map(|row| times(cell(0, row), 12))).people(), 500);
        assert_eq!(sum((0..500).map(|row| plus(times(cell(0, row), 2), &cell(1, row)))).people(), 500);
        let (mut short, long) = (cell(0, 0), times(sum_cell(1..40), 50));
        short.add(&long).unwrap();
        assert_eq!(short.provenance().unwrap().people(), 1);
    }

    fn sum_cell(rows: std::ops::Range<u32>) -> Cell {
        let mut sum = DenseSum::new();
        rows.for_each(|row| sum.add(&cell(0, row)).unwrap());
        sum.finish().unwrap().unwrap()
    }

    /// What is taken away again does not count, whether samples show it or not.
    #[test]
    fn differences_do_not_count_what_they_take_away() {
        let all = sum_cell(0..300);
        let minus = |rows: std::ops::Range<u32>| times(sum_cell(rows), -1);
        assert_eq!(plus(all.clone(), &minus(1..300)).provenance().unwrap().people(), 1);
        let nothing = plus(times(cell(0, 1), -1), &cell(0, 1));
        assert!(nothing.provenance().unwrap().is_empty());
        let hidden = (1..200).flat_map(|row| [cell(0, row), times(cell(0, row), -1)]);
        assert_eq!(sum(hidden.chain([cell(0, 0)])).people(), 1);
        let drawn = (1..200u16).flat_map(|row| [made(row, row.into()), times(made(row, row.into()), -1)]);
        assert_eq!(sum(drawn.chain([cell(0, 0)])).people(), 1);
        assert_eq!(plus(all, &minus(300..700)).provenance().unwrap().people(), 300);
    }

    /// Constants are of no row, and what is unknown stays unknown.
    #[test]
    fn constants_and_unknown_rows() {
        let zero = Cell::fresh(KEY, Lanes::NUMBER, Some(9), Seed::of_constants([7; 16]), 0, &[5]).unwrap();
        assert!(zero.provenance().unwrap().is_empty());
        assert!(times(made(0, 1), 0).provenance().unwrap().is_empty());
        assert!(times(sum_cell(0..100), 0).provenance().unwrap().is_empty());
        assert_eq!(sum((0..100).map(|_| zero.clone()).chain([cell(0, 4)])).people(), 1);
        let mut unknown = made(1, 1);
        unknown.set_provenance(None);
        assert_eq!(Cell::from_bytes(&unknown.to_bytes()).unwrap().provenance(), None);
        assert_eq!(plus(cell(0, 1), &unknown).provenance(), None);
        assert_eq!(plus(unknown.clone(), &cell(0, 1)).provenance(), None);
        let mut sum = DenseSum::new();
        (0..100).map(|row| cell(0, row)).chain([unknown]).for_each(|cell| sum.add(&cell).unwrap());
        assert_eq!(sum.finish().unwrap().unwrap().provenance(), None);
    }

    /// A value that was drawn has nothing of its row, until something of a row is added.
    #[test]
    fn drawn_values_are_told_apart() {
        let mut drawn = made(0, 1);
        drawn.set_provenance(drawn.provenance().map(Provenance::drawn));
        assert!(Cell::from_bytes(&drawn.to_bytes()).unwrap().provenance().unwrap().is_drawn());
        assert!(plus(drawn.clone(), &drawn).provenance().unwrap().is_drawn());
        assert!(!plus(drawn.clone(), &cell(0, 1)).provenance().unwrap().is_drawn());
        assert!(!plus(cell(0, 1), &drawn).provenance().unwrap().is_drawn());
    }

    /// A joined row is of a row of each file, and many of them count as the fewer.
    #[test]
    fn joined_rows_are_of_both_files() {
        let other = |row: u16| {
            let chunk = ChunkRows { file: FileId([4; 9]), column: 0, samples: 1, first_row: 0 };
            Cell::fresh(KEY, Lanes::NUMBER, Some(9), Seed::of_rows(chunk), row, &[1]).unwrap()
        };
        let joined = |row: u16, with: u16| plus(cell(1, row.into()), &other(with));
        assert_eq!(joined(1, 2).provenance().unwrap().anchors().len(), 2);
        let all = sum((0..100).map(|row| joined(row, row)));
        assert_eq!((all.people(), all.anchors().len()), (100, 200));
        assert_eq!(sum((0..100).map(|row| joined(row, 7))).people(), 1);
    }
}
