//! The anchors of rows.

use std::collections::{BTreeMap, HashMap};

use datafusion::error::Result;
use veil_cells::{Anchor, AnchorSet, FileId, Pattern, Provenance};

use super::refuse;

/// Who takes part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// The rows of every file, ascending; none is there twice.
    pub(crate) files: BTreeMap<FileId, Vec<u32>>,
    /// How many rows of the input are of rows of files.
    pub(crate) people: u64,
    /// How many of them have a value that was not drawn at random.
    pub(crate) somebody: u64,
    /// How many rows the input has.
    pub(crate) rows: u64,
    /// The fewest people that a value counts as.
    pub(crate) least: u64,
    /// The fewest people of a sum, if there are sums.
    pub(crate) least_sum: Option<u64>,
}

/// The anchors of every row of an input.
#[derive(Debug)]
pub(crate) struct RowAnchors {
    /// Most rows have one.
    first: Vec<Option<Anchor>>,
    /// All others, with that one.
    more: HashMap<usize, AnchorSet>,
    /// Which rows have a value that was not drawn at random.
    somebody: Vec<bool>,
    /// The sums of a row, by what is in them.
    sums: HashMap<usize, Vec<(Pattern, AnchorSet)>>,
    /// Whether there is a value of a single row.
    has_single: bool,
    /// The fewest rows that a sum counts as.
    least_sum: Option<u64>,
}

impl RowAnchors {
    pub(super) fn new(rows: usize) -> Self {
        Self {
            first: vec![None; rows],
            more: HashMap::new(),
            somebody: vec![false; rows],
            sums: HashMap::new(),
            has_single: false,
            least_sum: None,
        }
    }

    /// A value of one row, which has something of that row in it or was drawn for it.
    #[inline]
    pub(super) fn add(&mut self, row: usize, anchor: Anchor, is_somebody: bool) {
        self.has_single = true;
        self.note(row, anchor);
        self.is_somebody(row, is_somebody);
    }

    #[inline]
    fn is_somebody(&mut self, row: usize, is_somebody: bool) {
        if let Some(known) = self.somebody.get_mut(row) {
            *known |= is_somebody;
        }
    }

    #[inline]
    fn note(&mut self, row: usize, anchor: Anchor) {
        match self.first.get_mut(row) {
            Some(Some(first)) if *first == anchor => {}
            Some(none @ None) => *none = Some(anchor),
            Some(Some(first)) => {
                self.more.entry(row).or_insert_with(|| [*first].into_iter().collect()).insert(anchor);
            }
            None => {}
        }
    }

    /// A value of several rows, of none, or with unlike weights. `false` says that it is a sum that has rows in common with another of the same
    /// column in this row, and not all.
    pub(super) fn add_all(&mut self, row: usize, provenance: &Provenance) -> bool {
        let anchors = provenance.anchors();
        if anchors.is_empty() {
            return true;
        }
        self.is_somebody(row, !provenance.is_drawn());
        let mut stands_alone = true;
        if provenance.is_sum() || is_sum(&anchors) {
            let people = provenance.people();
            self.least_sum = Some(self.least_sum.map_or(people, |least| least.min(people)));
            let (sums, pattern) = (self.sums.entry(row).or_default(), provenance.pattern().unweighted());
            let others = sums.iter().filter(|(other, _)| *other == pattern);
            stands_alone = others.clone().all(|(_, rows)| *rows == anchors || !rows.meets(&anchors));
            if others.clone().all(|(_, rows)| *rows != anchors) {
                sums.push((pattern, anchors.clone()));
            }
        } else {
            self.has_single = true;
        }
        let mut first = anchors.iter();
        if let Some(anchor) = first.next() {
            self.note(row, anchor);
        }
        if anchors.len() > 1 {
            let known = self.first.get(row).copied().flatten();
            self.more.entry(row).or_insert_with(|| known.into_iter().collect()).union(&anchors);
        }
        stands_alone
    }

    /// Adds the rows behind these.
    pub(super) fn append(&mut self, other: Self) {
        let before = self.first.len();
        self.first.extend(other.first);
        self.somebody.extend(other.somebody);
        self.more.extend(other.more.into_iter().map(|(row, anchors)| (before + row, anchors)));
        self.sums.extend(other.sums.into_iter().map(|(row, sums)| (before + row, sums)));
        self.has_single |= other.has_single;
        self.least_sum = [self.least_sum, other.least_sum].into_iter().flatten().min();
    }

    /// The rows of files that a row is made of.
    pub(crate) fn of_row(&self, row: usize) -> AnchorSet {
        match self.more.get(&row) {
            Some(all) => all.clone(),
            None => self.first.get(row).copied().flatten().into_iter().collect(),
        }
    }

    /// Refuses anchors that are in two rows.
    pub(super) fn census(&self, function: &str) -> Result<Census> {
        let mut files: BTreeMap<FileId, Vec<(u32, u32)>> = BTreeMap::new();
        let least_sum = self.least_sum;
        let least = if self.has_single { 1 } else { least_sum.unwrap_or(0) };
        let mut census = Census { rows: self.first.len() as u64, least, least_sum, ..Census::default() };
        for (row, first) in self.first.iter().enumerate() {
            let Some(first) = first else { continue };
            let mut note = |anchor: Anchor| files.entry(anchor.file).or_default().push((anchor.row, row as u32));
            match self.more.get(&row) {
                Some(all) => all.iter().for_each(&mut note),
                None => note(*first),
            }
            census.people += 1;
            census.somebody += u64::from(self.somebody.get(row) == Some(&true));
        }
        for (file, mut rows) in files {
            rows.sort_unstable();
            let twice = rows.windows(2).find(|pair| pair[0].0 == pair[1].0);
            if let Some([(_, one), (_, other)]) = twice {
                let (one, other) = (one.min(other) + 1, one.max(other) + 1);
                return refuse(format!(
                    "{function}: rows {one} and {other} of its input hold the same row of an encrypted file, after a join, a union or a repetition. \
                     A row is a person, and counts once: anonymise before joining, or leave out what repeats it"
                ));
            }
            census.files.insert(file, rows.into_iter().map(|(row, _)| row).collect());
        }
        Ok(census)
    }
}

/// Whether several rows of one file are in a value.
fn is_sum(anchors: &AnchorSet) -> bool {
    let mut before: Option<FileId> = None;
    anchors.iter().any(|anchor| before.replace(anchor.file) == Some(anchor.file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor(file: u8, row: u32) -> Anchor {
        Anchor { file: FileId([file; 9]), row }
    }

    fn of(anchors: &[Anchor]) -> Provenance {
        Provenance::of_row(&anchors.iter().copied().collect(), "a test")
    }

    #[test]
    fn rows_are_counted_once_by_all_of_their_columns() {
        for count in [0usize, 1, 2, 100] {
            let mut rows = RowAnchors::new(count);
            for row in 0..count {
                rows.add(row, anchor(1, row as u32), true);
                rows.add(row, anchor(1, row as u32), true);
            }
            let census = rows.census("risk").unwrap();
            assert_eq!((census.rows, census.people, census.least_sum), (count as u64, count as u64, None));
            assert_eq!(census.files.values().map(Vec::len).sum::<usize>(), count);
        }
        // A joined row is of two files, and each of its rows counts once.
        let mut joined = RowAnchors::new(2);
        (0..2).for_each(|row| assert!(joined.add_all(row, &of(&[anchor(1, row as u32), anchor(2, 7 - row as u32)]))));
        let census = joined.census("risk").unwrap();
        assert_eq!((census.people, census.least, census.least_sum, census.files.len()), (2, 1, None, 2));
    }

    #[test]
    fn rows_that_are_there_twice_are_refused() {
        let twice = |add: fn(&mut RowAnchors)| {
            let mut rows = RowAnchors::new(5);
            (0..5).for_each(|row| rows.add(row, anchor(1, row as u32), true));
            add(&mut rows);
            rows.census("risk").unwrap_err().to_string()
        };
        for sentence in [
            twice(|rows| rows.add(4, anchor(1, 2), true)),
            twice(|rows| assert!(rows.add_all(4, &of(&[anchor(1, 2), anchor(2, 9)])))),
            twice(|rows| assert!(rows.add_all(4, &of(&[anchor(1, 4), anchor(1, 2)])))),
        ] {
            assert!(sentence.contains("risk: rows 3 and 5 of its input hold the same row"), "{sentence}");
        }
    }

    /// Parts of any length, one behind the other, are the rows at once.
    #[test]
    fn parts_are_the_whole() {
        let whole = |rows: std::ops::Range<u32>| {
            let mut part = RowAnchors::new(rows.len());
            for (at, row) in rows.enumerate() {
                part.add(at, anchor(1, row), row % 2 == 0);
                if row % 3 == 0 {
                    assert!(part.add_all(at, &of(&[anchor(1, row), anchor(2, row)])));
                }
            }
            part
        };
        for (middle, end) in [(0, 0), (0, 1), (1, 2), (7, 7), (7, 20)] {
            let mut parts = RowAnchors::new(0);
            [0..middle, middle..end].map(whole).into_iter().for_each(|part| parts.append(part));
            let all = whole(0..end);
            assert_eq!(parts.census("risk").unwrap(), all.census("risk").unwrap());
            assert!((0..end as usize).all(|row| parts.of_row(row) == all.of_row(row)));
        }
    }

    #[test]
    fn constants_are_nobody() {
        let mut rows = RowAnchors::new(3);
        rows.add(1, anchor(1, 0), true);
        assert!(rows.add_all(0, &Provenance::default()));
        rows.add(2, anchor(1, 1), false);
        let census = rows.census("risk").unwrap();
        assert_eq!((census.people, census.somebody), (2, 1), "what was drawn for a row has nothing of it");
    }
}
