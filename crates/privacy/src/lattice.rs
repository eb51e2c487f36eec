//! Which sets of columns identify people: a search of the lattice of all sets, from single columns upwards.
//!
//! A set identifies if fewer than k rows share some combination of its values. Adding a column only splits classes, so
//!
//! - every superset of a set that identifies identifies too, and
//! - no subset of a set that does not identify does.
//!
//! The first rule makes the search levelwise: a set is asked about only if all its subsets are known not to identify, so what is
//! found is minimal (Agrawal and Srikant 1994, "Apriori"). The second one lets a single question from the top end the search:
//! with the first level the whole set of columns is asked about, and with the second one all columns that are no identifiers by
//! themselves. Such a probe travels with a level that is asked anyway. It pays where little identifies, as in a table that was
//! anonymised already, and costs one question where much does.

use std::collections::HashSet;

/// The most columns.
pub const MAX_COLUMNS: usize = 64;

/// The most sets of one size.
pub const MAX_SETS: usize = 1 << 22;

/// Why a search cannot begin, or go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LatticeError {
    /// A set is a machine word.
    #[error("{0} columns are too many to search their sets: name at most {MAX_COLUMNS}")]
    TooManyColumns(usize),
    /// Nothing would be asked.
    #[error("sets of at most 0 columns are none: ask for at least 1")]
    NothingToAsk,
    /// Memory and patience end.
    #[error(
        "more than {MAX_SETS} sets of {0} columns would have to be searched: name fewer columns, or a smaller max_size"
    )]
    TooManySets(usize),
}

/// A set of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ColumnSet(u64);

impl ColumnSet {
    /// Of these columns; those beyond the 64th are left out.
    pub fn of(columns: impl IntoIterator<Item = usize>) -> Self {
        Self(columns.into_iter().filter(|column| *column < MAX_COLUMNS).fold(0, |set, column| set | 1 << column))
    }

    /// One bit a column.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all columns of the other are among these.
    pub fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The columns, in order.
    pub fn columns(self) -> impl Iterator<Item = usize> {
        (0..MAX_COLUMNS).filter(move |column| self.0 >> column & 1 == 1)
    }

    fn without(self, column: usize) -> Self {
        Self(self.0 & !(1 << column))
    }

    fn highest(self) -> usize {
        MAX_COLUMNS - 1 - self.0.leading_zeros() as usize
    }
}

/// A minimal set that identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identifier {
    /// Its columns: one makes a direct identifier, several a quasi-identifier.
    pub columns: ColumnSet,
    /// What was answered: how many rows lie in small classes, or 1.
    pub found: u64,
}

/// A search. Ask for [`next_level`](Self::next_level), [`answer`](Self::answer) it, until there is none.
#[derive(Clone, Debug)]
pub struct LatticeSearch {
    columns: usize,
    max_size: usize,
    /// The size of the sets that are asked about; the probe comes behind them.
    size: usize,
    asked: Vec<ColumnSet>,
    probe: Option<ColumnSet>,
    /// The last probe, which identifies.
    probed: Option<Identifier>,
    identifiers: Vec<Identifier>,
    checked: u64,
    /// Probes larger than the sets that are searched for.
    beyond: u64,
    cut: bool,
}

impl LatticeSearch {
    /// Over so many columns, up to sets of so many.
    pub fn new(columns: usize, max_size: usize) -> Result<Self, LatticeError> {
        if columns > MAX_COLUMNS {
            return Err(LatticeError::TooManyColumns(columns));
        }
        if max_size == 0 {
            return Err(LatticeError::NothingToAsk);
        }
        let mut search = Self {
            columns,
            max_size,
            size: 1,
            asked: (0..columns).map(|column| ColumnSet::of([column])).collect(),
            probe: None,
            probed: None,
            identifiers: Vec::new(),
            checked: 0,
            beyond: 0,
            cut: false,
        };
        search.probe = search.worth_probing(ColumnSet::of(0..columns));
        Ok(search)
    }

    /// The sets to ask about, all of one round; nothing if the search is over.
    pub fn next_level(&self) -> Option<Vec<ColumnSet>> {
        let sets: Vec<ColumnSet> = self.asked.iter().copied().chain(self.probe).collect();
        (!sets.is_empty()).then_some(sets)
    }

    /// Takes what was found for the sets of [`next_level`](Self::next_level), in their order: zero for a set that does not identify.
    /// Missing answers count as zero.
    pub fn answer(&mut self, found: &[u64]) -> Result<(), LatticeError> {
        let sets = std::mem::take(&mut self.asked);
        let mut answers = found.iter().copied().chain(std::iter::repeat(0));
        let mut kept = Vec::with_capacity(sets.len());
        for (columns, found) in sets.into_iter().zip(answers.by_ref()) {
            self.checked += 1;
            match found {
                0 => kept.push(columns),
                _ => self.identifiers.push(Identifier { columns, found }),
            }
        }
        if let Some(probe) = self.probe.take() {
            self.checked += 1;
            self.beyond += u64::from(probe.len() > self.max_size);
            match answers.next() {
                // It covers everything that could still be asked: nothing of it identifies.
                Some(0) | None => return Ok(()),
                Some(found) => self.probed = Some(Identifier { columns: probe, found }),
            }
        }
        if self.size == self.max_size {
            self.cut = joined(&kept, 1).is_none_or(|next| !next.is_empty());
            return Ok(());
        }
        let next = joined(&kept, MAX_SETS).ok_or(LatticeError::TooManySets(self.size + 1))?;
        // A probe is the only set of its size that can be left, and has been answered.
        if let Some(probed) = self.probed.filter(|probed| next == [probed.columns]) {
            self.identifiers.push(probed);
            return Ok(());
        }
        if self.size == 1 {
            self.probe = self.worth_probing(kept.iter().fold(ColumnSet(0), |all, set| ColumnSet(all.0 | set.0)));
        }
        self.size += 1;
        self.asked = next;
        Ok(())
    }

    /// A set from the top, unless it was asked about before or is about to be.
    fn worth_probing(&self, set: ColumnSet) -> Option<ColumnSet> {
        let known = self.checked > 0 && set.len() == self.columns;
        (!known && set.len() > 2).then_some(set)
    }

    /// What was found so far: sets of few columns first.
    pub fn identifiers(&self) -> &[Identifier] {
        &self.identifiers
    }

    /// Sets that were asked about, probes among them.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// Sets within the size that were never asked about, because others answered for them.
    pub fn pruned(&self) -> u64 {
        sets_up_to(self.columns, self.max_size).saturating_sub(self.checked - self.beyond)
    }

    /// Whether larger sets could identify that were not asked about.
    pub fn is_cut(&self) -> bool {
        self.cut
    }
}

/// How many sets of one to `size` columns there are: the most that a search asks about, but for two probes.
pub fn sets_up_to(columns: usize, size: usize) -> u64 {
    let (mut total, mut of_size) = (0u64, 1u128);
    for chosen in 1..=size.min(columns) {
        of_size = of_size * (columns - chosen + 1) as u128 / chosen as u128;
        total = total.saturating_add(u64::try_from(of_size).unwrap_or(u64::MAX));
    }
    total
}

/// All sets of one column more whose subsets are all among these, which are sorted as they were made: by their lower columns. `None` if
/// there are more than so many.
fn joined(sets: &[ColumnSet], most: usize) -> Option<Vec<ColumnSet>> {
    let known: HashSet<ColumnSet> = sets.iter().copied().collect();
    let mut larger = Vec::new();
    for (at, first) in sets.iter().enumerate() {
        let prefix = first.without(first.highest());
        for second in sets.iter().skip(at + 1) {
            // Sets with the same lower columns stand together.
            if second.without(second.highest()) != prefix {
                break;
            }
            let set = ColumnSet(first.0 | second.0);
            if set.columns().all(|column| known.contains(&set.without(column))) {
                larger.push(set);
                if larger.len() > most {
                    return None;
                }
            }
        }
    }
    Some(larger)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// Rows of a set of columns that lie in classes smaller than k.
    fn small(table: &[Vec<u8>], set: ColumnSet, k: u64) -> u64 {
        let mut classes: HashMap<Vec<u8>, u64> = HashMap::new();
        for row in table {
            *classes.entry(set.columns().map(|column| row[column]).collect()).or_default() += 1;
        }
        classes.values().filter(|size| **size < k).sum()
    }

    fn search(table: &[Vec<u8>], columns: usize, max_size: usize, k: u64) -> LatticeSearch {
        let mut search = LatticeSearch::new(columns, max_size).unwrap();
        while let Some(sets) = search.next_level() {
            search.answer(&sets.iter().map(|set| small(table, *set, k)).collect::<Vec<_>>()).unwrap();
        }
        search
    }

    /// Every set asked about, none pruned.
    fn brute_force(table: &[Vec<u8>], columns: usize, max_size: usize, k: u64) -> Vec<ColumnSet> {
        let identifies: Vec<ColumnSet> =
            (1..1u64 << columns).map(ColumnSet).filter(|set| small(table, *set, k) > 0).collect();
        let minimal = |set: &ColumnSet| !identifies.iter().any(|other| other != set && set.includes(*other));
        let mut minimal: Vec<ColumnSet> = identifies.iter().copied().filter(minimal).collect();
        minimal.retain(|set| set.len() <= max_size);
        minimal.sort_by_key(|set| (set.len(), set.columns().collect::<Vec<_>>()));
        minimal
    }

    fn found(search: &LatticeSearch) -> Vec<Vec<usize>> {
        search.identifiers().iter().map(|found| found.columns.columns().collect()).collect()
    }

    /// Name, age, gender and ZIP code of seven people: the example table of the paper.
    fn example() -> Vec<Vec<u8>> {
        let (a, b) = (122, 121);
        let rows =
            [[1, 18, 0, a], [2, 18, 0, a], [3, 19, 0, a], [4, 19, 0, a], [5, 18, 0, b], [6, 20, 0, b], [7, 20, 0, b]];
        rows.map(|row| row.to_vec()).to_vec()
    }

    #[test]
    fn the_papers_example() {
        let two = search(&example(), 4, 4, 2);
        // Names are unique; Jack alone is 18 in 13121.
        assert_eq!(found(&two), [vec![0], vec![1, 3]]);
        assert_eq!((two.identifiers()[0].found, two.identifiers()[1].found), (7, 1));
        let three = search(&example(), 4, 4, 3);
        assert_eq!(found(&three), [[0], [1]]);
        assert!(search(&example(), 4, 4, 1).identifiers().is_empty());
    }

    /// {M} identifies, so nothing with M is asked about: the paper's first figure of a pruned lattice.
    #[test]
    fn supersets_of_identifiers_are_not_asked_about() {
        let mut search = LatticeSearch::new(4, 4).unwrap();
        let mut asked = Vec::new();
        while let Some(sets) = search.next_level() {
            let answers: Vec<u64> = sets.iter().map(|set| u64::from(set.includes(ColumnSet::of([3])))).collect();
            search.answer(&answers).unwrap();
            asked.extend(sets);
        }
        assert_eq!(found(&search), [[3]]);
        // Four columns, the probe of all, then the pairs of the others with a probe of these, which ends it.
        assert_eq!((asked.len(), search.checked(), search.pruned()), (9, 9, 6));
        assert!(
            asked.iter().filter(|set| set.len() < 4).all(|set| set.len() == 1 || !set.includes(ColumnSet::of([3])))
        );
    }

    #[test]
    fn one_probe_ends_a_search_in_which_nothing_identifies() {
        let mut search = LatticeSearch::new(20, 4).unwrap();
        let level = search.next_level().unwrap();
        assert_eq!((level.len(), level[20].len()), (21, 20));
        search.answer(&[0; 21]).unwrap();
        assert_eq!(search.next_level(), None);
        assert_eq!((search.identifiers().len(), search.is_cut()), (0, false));
        assert_eq!((search.checked(), search.pruned()), (21, 20 * 19 / 2 + 1140 + 4845));
    }

    #[test]
    fn a_search_that_was_cut_says_so() {
        // Only all four together identify.
        let answers = |sets: &[ColumnSet]| sets.iter().map(|set| u64::from(set.len() == 4)).collect::<Vec<_>>();
        for (max_size, cut, identifiers) in [(1, true, 0), (2, true, 0), (3, true, 0), (4, false, 1), (9, false, 1)] {
            let mut search = LatticeSearch::new(4, max_size).unwrap();
            while let Some(sets) = search.next_level() {
                search.answer(&answers(&sets)).unwrap();
            }
            assert_eq!((search.is_cut(), search.identifiers().len()), (cut, identifiers), "{max_size}");
        }
    }

    /// No set is asked about twice, even if only all columns together identify.
    #[test]
    fn a_probe_is_an_answer() {
        let mut search = LatticeSearch::new(3, 3).unwrap();
        let mut asked = Vec::new();
        while let Some(sets) = search.next_level() {
            search.answer(&sets.iter().map(|set| 9 * u64::from(set.len() == 3)).collect::<Vec<_>>()).unwrap();
            asked.extend(sets);
        }
        assert_eq!((asked.len(), asked.iter().collect::<HashSet<_>>().len()), (7, 7));
        assert_eq!((found(&search), search.identifiers()[0].found), (vec![vec![0, 1, 2]], 9));
        assert_eq!((search.checked(), search.pruned(), search.is_cut()), (7, 0, false));
    }

    #[test]
    fn limits_are_told() {
        let mut wide = LatticeSearch::new(64, 9).unwrap();
        let error = loop {
            let sets = wide.next_level().unwrap();
            // Only nearly all columns together identify.
            if let Err(error) = wide.answer(&sets.iter().map(|set| u64::from(set.len() > 60)).collect::<Vec<_>>()) {
                break error;
            }
        };
        assert_eq!(error, LatticeError::TooManySets(5));
        assert_eq!(LatticeSearch::new(64, 1).unwrap().next_level().unwrap().len(), 65);
        let error = LatticeSearch::new(65, 1).unwrap_err();
        assert_eq!(error.to_string(), "65 columns are too many to search their sets: name at most 64");
        assert_eq!(LatticeSearch::new(3, 0).unwrap_err(), LatticeError::NothingToAsk);
        assert_eq!(LatticeSearch::new(0, 1).unwrap().next_level(), None);
        assert_eq!((sets_up_to(8, 8), sets_up_to(8, 2), sets_up_to(64, 64)), (255, 36, u64::MAX));
    }

    proptest! {
        /// Pruning never changes the answer.
        #[test]
        fn the_search_finds_what_asking_everything_finds(
            table in proptest::collection::vec(proptest::collection::vec(0u8..4, 6), 0..40), k in 1u64..8, max_size in 1usize..7,
        ) {
            let search = search(&table, 6, max_size, k);
            let found: Vec<ColumnSet> = search.identifiers().iter().map(|found| found.columns).collect();
            let expected = brute_force(&table, 6, max_size, k);
            prop_assert_eq!(&found, &expected);
            for identifier in search.identifiers() {
                prop_assert_eq!(identifier.found, small(&table, identifier.columns, k));
            }
            let larger = brute_force(&table, 6, 6, k);
            // A search that was not cut has found everything there is.
            prop_assert!(search.is_cut() || larger == expected);
            prop_assert!(search.checked() <= sets_up_to(6, max_size) + 2);
        }
    }
}
