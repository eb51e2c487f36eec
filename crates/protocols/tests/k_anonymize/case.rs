//! A run, and what it should come to.

use std::collections::BTreeMap;
use std::sync::Mutex;

use arrow::array::BinaryArray;
use veil_cells::{CellArray, CellType, ColumnId, Kind, Width};
use veil_keys::decrypt_column;
use veil_privacy::clusters::{Classes, Points, Summary, anonymise, class_centres};
use veil_protocols::ProtocolError;
use veil_protocols::k_anonymize::{Anonymised, Outcome, Phase, Quasi, Settings, k_anonymize};
use veil_protocols::lift_tags::{Rows, TagColumn, lift_tags};
use veil_slots::DEGREE;

use crate::Parties;
use crate::column::Column;

/// A table, and what is asked of it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) columns: Vec<Column>,
    pub(crate) weights: Vec<u32>,
    pub(crate) initial: Vec<usize>,
    pub(crate) settings: Settings,
}

impl Case {
    fn rows(&self) -> usize {
        self.columns[0].rows()
    }

    /// The same algorithm in the clear: classes, their centres class by class, and what became of the clusters.
    fn in_the_clear(&self) -> (Classes, Vec<i64>, Summary) {
        let coordinates: Vec<Vec<i64>> = self.columns.iter().map(Column::coordinates).collect();
        let values = (0..self.rows()).flat_map(|row| coordinates.iter().map(move |column| column[row])).collect();
        let points = Points::new(values, self.weights.clone()).unwrap();
        let (classes, summary) = anonymise(&points, &self.initial, &self.settings.clusters).unwrap();
        let centres = class_centres(&classes, &points).unwrap();
        (classes, centres, summary)
    }

    pub(crate) async fn run(
        &self,
        parties: &mut Parties,
        phases: &Mutex<Vec<Phase>>,
    ) -> Result<Anonymised, ProtocolError> {
        let weighted = self.columns.iter().zip(&self.weights);
        let quasi =
            weighted.map(|(column, weight)| Quasi { values: column.values(parties), weight: *weight }).collect();
        let progress = |phase| phases.lock().unwrap().push(phase);
        k_anonymize(&parties.session, self.rows(), quasi, &self.initial, &self.settings, &progress).await
    }

    /// Runs it, compares everything that comes out, and checks k on what is published.
    pub(crate) async fn check(&self, parties: &mut Parties) -> Outcome {
        let (classes, centres, summary) = self.in_the_clear();
        let phases = Mutex::new(Vec::new());
        let found = self.run(parties, &phases).await.unwrap();
        let known = Outcome {
            rounds_run: summary.rounds_run,
            clusters: summary.clusters,
            small_clusters: summary.small_clusters,
            small_rows: summary.small_rows,
            suppressed_clusters: summary.suppressed_clusters,
            suppressed_rows: summary.suppressed_rows,
            classes: classes.classes.len(),
        };
        assert_eq!(found.outcome, known, "{:?}", self.settings);
        let sizes = (found.small_sizes.len(), found.small_sizes.iter().sum::<usize>());
        assert_eq!(sizes, (known.small_clusters, known.small_rows), "{:?}", self.settings);
        let suppressed = self.suppressed(parties, &found.suppressed);
        let expected: Vec<bool> = classes.of_rows.iter().map(Option::is_none).collect();
        assert_eq!(suppressed, expected, "suppressed rows, {:?}", self.settings);

        let mut members = vec![Vec::new(); classes.classes.len()];
        for (row, class) in classes.of_rows.iter().enumerate() {
            class.iter().for_each(|class| members[*class].push(row));
        }
        let mut published = vec![Vec::new(); self.rows()];
        for (place, (column, cells)) in self.columns.iter().zip(&found.columns).enumerate() {
            let opened = self.opened(parties, column, cells);
            for (row, lanes) in opened.into_iter().enumerate() {
                let expected = match classes.of_rows[row] {
                    Some(class) => column.published(&members[class], centres[class * self.columns.len() + place]),
                    None => column.suppressed(row),
                };
                assert_eq!(lanes, expected, "row {row} of column {place}, {:?}", self.settings);
                published[row].extend(lanes);
            }
            self.check_tags(parties, cells, &classes.of_rows).await;
        }
        self.check_k(&published, &suppressed);
        let phases = phases.into_inner().unwrap();
        assert_eq!((phases.first(), phases.last()), (Some(&Phase::Prepare), Some(&Phase::Publish)));
        found.outcome
    }

    /// Whatever should come out: of what is published, every row is like k - 1 others.
    fn check_k(&self, published: &[Vec<i64>], suppressed: &[bool]) {
        let mut alike: BTreeMap<&Vec<i64>, usize> = BTreeMap::new();
        let rows = published.iter().zip(suppressed).filter(|(_, suppressed)| !**suppressed);
        rows.for_each(|(row, _)| *alike.entry(row).or_default() += 1);
        assert!(!alike.is_empty() && alike.values().all(|rows| *rows >= self.settings.clusters.k), "{alike:?}");
    }

    fn suppressed(&self, parties: &Parties, cells: &BinaryArray) -> Vec<bool> {
        let key_id = parties.owner.key_id();
        let flags = CellType::new(Kind::Boolean, Width::NARROWEST, 1, key_id, ColumnId([9; 8]));
        let opened = decrypt_column(parties.owner.cell(), key_id, &flags, CellArray::Binary(cells)).unwrap();
        assert!(opened.messages.iter().all(|bit| (0..=1).contains(bit)));
        opened.messages.into_iter().map(|bit| bit == 1).collect()
    }

    /// The value lanes of every row.
    fn opened(&self, parties: &Parties, column: &Column, cells: &BinaryArray) -> Vec<Vec<i64>> {
        let cell_type = CellType { tag: true, ..column.cell_type(parties) };
        let array = CellArray::Binary(cells);
        let opened = decrypt_column(parties.owner.cell(), parties.owner.key_id(), &cell_type, array).unwrap();
        let lanes = cell_type.cell_lanes().value.into();
        assert_eq!(opened.messages.len(), self.rows() * lanes);
        opened.messages.chunks(lanes).map(<[_]>::to_vec).collect()
    }

    /// Rows have the same tag exactly if they are of the same class, and suppressed rows have one of their own.
    async fn check_tags(&self, parties: &Parties, cells: &BinaryArray, of_rows: &[Option<usize>]) {
        let column = TagColumn::read(CellArray::Binary(cells), parties.owner.key_id()).unwrap();
        let chunks = column.samples.chunks(DEGREE).map(|rows| Rows::new(rows.iter().copied())).collect();
        let lifted = lift_tags(&parties.session, chunks).await.unwrap();
        let keys = parties.owner.p2();
        let tags: Vec<u64> = lifted.iter().flat_map(|slots| keys.slot().open_slots(slots)).take(self.rows()).collect();
        let (mut of_tag, mut of_class) = (BTreeMap::new(), BTreeMap::new());
        for (tag, class) in tags.iter().zip(of_rows) {
            assert_eq!(of_tag.entry(*tag).or_insert(*class), class, "{:?}", self.settings);
            assert_eq!(of_class.entry(*class).or_insert(*tag), tag, "{:?}", self.settings);
        }
    }
}
