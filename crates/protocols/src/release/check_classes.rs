//! P2 counts the classes of what it is asked to open.
//!
//! ```text
//!  P1: labels of classes, in a secret order, zero for rows that are suppressed  -->  sorts them, counts equal ones
//!                                       <--  the permit with the sizes in it, if no class is smaller than it allows           P2
//! ```
//! As in [`count_classes`](crate::count_classes) labels go to P2 sanitised but not blinded: that it sees which are equal is the point. So they are of a secret
//! function, new for every release, and shuffled. That proves k of the rows that P1 sent, to a P2 that believes P1 to send the labels of the rows that
//! it will ask to seal: a P1 that follows the protocol does.

use rand::CryptoRng;
use rayon::prelude::*;
use veil_slots::{DEGREE, Inbound, KeyHolder, L1, Outbound, Slots, plain};
use zeroize::Zeroizing;

use super::{ClassSizes, required, short_enough};
use crate::context::Context;
use crate::count_classes::MAX_BLOCK;
use crate::message::message;
use crate::open::Purpose;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct CheckClasses;

message! {
    /// The labels.
    Query<C: Outbound => Inbound> {
        /// P1's permit.
        permit: Vec<u8>,
        /// One label a row.
        labels: Vec<C>,
        /// Rows.
        rows: u32,
    }
}

message! {
    /// What was found.
    Answer {
        /// The permit, with it.
        permit: Vec<u8>,
        /// Rows that are suppressed.
        suppressed: u32,
        /// Rows of the smallest class.
        smallest: u32,
        /// Classes.
        classes: u32,
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        short_enough(&self.permit)?;
        let (rows, vectors) = (self.rows as usize, self.labels.len());
        match rows <= MAX_BLOCK && rows <= vectors * DEGREE {
            true => Ok(1),
            false => Err(ProtocolError::Malformed(format!("{rows} labels do not lie in {vectors} vectors"))),
        }
    }

    fn opens(&self) -> Option<(Purpose, u32)> {
        // How many classes, the smallest, and how many rows are suppressed.
        Some((Purpose::ClassCheck, 3))
    }
}

impl Protocol for CheckClasses {
    const NAME: &'static str = "check_classes";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "whether what is to be released has classes of at least k rows";
    const LEAKAGE: Leakage = Leakage {
        p1: "how many classes there are, the size of the smallest, and how many rows are suppressed",
        p2: "the sizes of the classes and how many rows are suppressed, in no order",
    };
    const OPENS: Opens = Opens(&[Purpose::ClassCheck]);
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
        let (desk, rows) = (required(context)?, query.rows as usize);
        let opened: Vec<_> = query.labels.into_par_iter().map(|labels| holder.open(labels)).collect();
        let mut labels = Zeroizing::new(Vec::with_capacity(opened.len() * DEGREE));
        opened.iter().for_each(|opened| labels.extend_from_slice(opened));
        let sizes = class_sizes(labels.get_mut(..rows).unwrap_or_default());
        let permit = desk.classes(&query.permit, &sizes, rng)?;
        let ClassSizes { suppressed, smallest, classes, .. } = sizes;
        Ok(Answer { permit, suppressed, smallest, classes })
    }
}

/// Counts equal labels; zero is that of suppressed rows.
fn class_sizes(labels: &mut [u64]) -> ClassSizes {
    labels.sort_unstable();
    let suppressed = labels.partition_point(|label| *label == 0);
    let classes = labels.get(suppressed..).unwrap_or_default().chunk_by(|a, b| a == b).map(<[u64]>::len);
    ClassSizes {
        rows: labels.len() as u32,
        suppressed: suppressed as u32,
        classes: classes.clone().count() as u32,
        smallest: classes.min().unwrap_or_default() as u32,
    }
}

/// Labels of all rows, in a secret order.
pub struct Labelled {
    /// What P2 has given.
    pub permit: Vec<u8>,
    /// One label a row, 8192 a vector.
    pub vectors: Vec<Slots<L1>>,
    /// Rows.
    pub rows: usize,
}

/// P1 sanitises, and hides what is no row.
pub fn ask(labelled: Labelled, asker: &mut Asker<'_>) -> Result<(usize, Query<Outbound>), ProtocolError> {
    let Labelled { permit, vectors, rows } = labelled;
    let labels = vectors.iter().enumerate().map(|(vector, labels)| {
        let blind = |slot: usize| if vector * DEGREE + slot < rows { 0 } else { plain::uniform(&mut asker.rng) };
        let blind: Vec<u64> = (0..DEGREE).map(blind).collect();
        asker.send(labels, &blind)
    });
    let labels = labels.collect::<Result<_, _>>()?;
    Ok((rows, Query { permit, labels, rows: rows as u32 }))
}

/// P1 takes the new permit.
pub fn finish(rows: usize, answer: Answer) -> Result<(Vec<u8>, ClassSizes), ProtocolError> {
    let Answer { permit, suppressed, smallest, classes } = answer;
    let sizes = ClassSizes { rows: rows as u32, suppressed, classes, smallest };
    match (suppressed as usize).saturating_add(classes as usize) <= rows && smallest as usize <= rows {
        true => Ok((permit, sizes)),
        false => Err(ProtocolError::Malformed(format!("{classes} classes were found among {rows} rows"))),
    }
}

/// One round.
pub async fn check_classes(session: &Session, labelled: Labelled) -> Result<(Vec<u8>, ClassSizes), ProtocolError> {
    let weight = labelled.vectors.len();
    let mut checked = session.round::<CheckClasses, _, _, _>(vec![labelled], weight, ask, finish).await?;
    checked.pop().ok_or(ProtocolError::Cancelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_rows_are_no_class() {
        let sizes = |mut labels: Vec<u64>| class_sizes(&mut labels);
        let found = ClassSizes { rows: 7, suppressed: 2, classes: 2, smallest: 2 };
        assert_eq!(sizes(vec![9, 0, 4, 9, 4, 0, 9]), found);
        assert_eq!(sizes(vec![0]), ClassSizes { rows: 1, suppressed: 1, classes: 0, smallest: 0 });
        assert_eq!(sizes(Vec::new()), ClassSizes { rows: 0, suppressed: 0, classes: 0, smallest: 0 });
    }
}
