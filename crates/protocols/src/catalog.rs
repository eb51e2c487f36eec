//! Every protocol, once. Dispatch, Flight descriptors, documentation, test vectors and fuzzing derive from this list.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use rand::rngs::StdRng;
use rayon::prelude::*;
use veil_slots::{KeyHolder, SEEDED_BYTES};

use crate::context::Context;
use crate::message::{Message, Receive, Sendable};
use crate::open::{MAX_OPENED, Purpose};
use crate::protocol::{Protocol, Workload};
use crate::{Leakage, Limits, Opens, ProtocolError};

/// P2's half on a batch.
pub type Run = fn(&RecordBatch, &dyn KeyHolder, &Context<'_>, &Limits, Vec<StdRng>) -> Result<Ran, ProtocolError>;

/// An answered batch.
#[derive(Debug)]
pub struct Ran {
    /// The answers.
    pub batch: RecordBatch,
    /// What was opened to P1, and why.
    pub opened: Vec<(Purpose, u32)>,
}

/// What is known about a protocol without its types.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name on the wire.
    pub name: &'static str,
    /// Its version.
    pub version: u16,
    /// One line for people.
    pub summary: &'static str,
    /// What it tells whom.
    pub leakage: Leakage,
    /// What numbers of data it shows P1.
    pub opens: Opens,
    /// Columns of a query.
    pub query: fn() -> SchemaRef,
    /// Columns of an answer.
    pub answer: fn() -> SchemaRef,
    /// P2's half on a whole batch: rows in parallel, with one generator each.
    pub run: Run,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} v{}", self.name, self.version)
    }
}

impl Entry {
    const fn of<P: Protocol>() -> Self {
        Self {
            name: P::NAME,
            version: P::VERSION,
            summary: P::SUMMARY,
            leakage: P::LEAKAGE,
            opens: P::OPENS,
            query: <P::Query as Message>::schema,
            answer: <P::Answer as Message>::schema,
            run: run::<P>,
        }
    }
}

/// All protocols.
pub static CATALOG: &[Entry] = &[
    Entry::of::<crate::lift::Lift>(),
    Entry::of::<crate::lift_affine::LiftAffine>(),
    Entry::of::<crate::lower::Lower>(),
    Entry::of::<crate::zeros::Zeros>(),
    Entry::of::<crate::multiply::Multiply>(),
    Entry::of::<crate::and::And>(),
    Entry::of::<crate::less_than::LessThan>(),
    Entry::of::<crate::truncate::Truncate>(),
    Entry::of::<crate::compare_and_select::CompareAndSelect>(),
    Entry::of::<crate::lookup::Lookup>(),
    Entry::of::<crate::lookup_range::LookupRange>(),
    Entry::of::<crate::zero_test::ZeroTest>(),
    Entry::of::<crate::slot_sum::SlotSum>(),
    Entry::of::<crate::arrange::Arrange>(),
    Entry::of::<crate::open::Open>(),
    Entry::of::<crate::laplace_scale::LaplaceScale>(),
    Entry::of::<crate::add_laplace::AddLaplace>(),
    Entry::of::<crate::lift_tags::LiftTags>(),
    Entry::of::<crate::relabel::Relabel>(),
    Entry::of::<crate::count_classes::CountClasses>(),
    Entry::of::<crate::count_tags::CountTags>(),
    Entry::of::<crate::lift_wide::LiftWide>(),
    Entry::of::<crate::rotate::Rotate>(),
    Entry::of::<crate::match_pairs::MatchPairs>(),
    Entry::of::<crate::count_small::CountSmall>(),
    Entry::of::<crate::broadcast::Broadcast>(),
    Entry::of::<crate::distances::Distances>(),
    Entry::of::<crate::block_sums::BlockSums>(),
    Entry::of::<crate::cluster_sums::ClusterSums>(),
    Entry::of::<crate::lookup_long::LookupLong>(),
    Entry::of::<crate::blend::Blend>(),
    Entry::of::<crate::fold::Fold>(),
    Entry::of::<crate::few_digits::FewDigits>(),
    Entry::of::<crate::few_fold::FewFold>(),
    Entry::of::<crate::few_pick::FewPick>(),
    Entry::of::<crate::few_pairs::FewPairs>(),
    Entry::of::<crate::few_select::FewSelect>(),
    Entry::of::<crate::release::apply::Apply>(),
    Entry::of::<crate::redraw::Redraw>(),
    Entry::of::<crate::release::check_classes::CheckClasses>(),
    Entry::of::<crate::release::seal_parcel::SealParcel>(),
    Entry::of::<crate::release::attest::Attest>(),
    Entry::of::<crate::size_histogram::SizeHistogram>(),
    Entry::of::<crate::group::Group>(),
    Entry::of::<crate::gather::Gather>(),
    Entry::of::<crate::census::TakeCensus>(),
];

/// The protocol of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    CATALOG.iter().find(|entry| entry.name == name)
}

fn run<P: Protocol>(
    batch: &RecordBatch,
    holder: &dyn KeyHolder,
    context: &Context<'_>,
    limits: &Limits,
    rngs: Vec<StdRng>,
) -> Result<Ran, ProtocolError> {
    P::Received::check(batch)?;
    let queries: Vec<P::Received> =
        (0..batch.num_rows()).into_par_iter().map(|row| P::Received::read(batch, row)).collect::<Result<_, _>>()?;
    let mut ciphertexts = 0usize;
    for query in &queries {
        ciphertexts = ciphertexts.saturating_add(query.answer_ciphertexts()?);
    }
    let bytes = ciphertexts.saturating_mul(SEEDED_BYTES);
    if bytes > limits.bytes {
        return Err(ProtocolError::TooLarge { what: "an answer", found: bytes, limit: limits.bytes });
    }
    let opened: Vec<(Purpose, u32)> = queries.iter().filter_map(Workload::opens).collect();
    let declared = |(purpose, _): &(Purpose, u32)| P::OPENS.0.contains(purpose);
    if !opened.iter().all(declared) || (!P::OPENS.0.is_empty() && opened.len() != queries.len()) {
        return Err(ProtocolError::Internal(format!("{} opens what it does not declare", P::NAME)));
    }
    // Histograms are as long as their rows make them.
    let slots = opened.iter().filter(|(purpose, _)| *purpose != Purpose::SizeHistogram);
    let found = slots.fold(0, |sum: usize, (_, count)| sum.saturating_add(*count as usize));
    if found > MAX_OPENED as usize {
        let what = "a number of opened slots in one batch";
        return Err(ProtocolError::TooLarge { what, found, limit: MAX_OPENED as usize });
    }
    // Before anything is decrypted: a refusal that came later would depend on data, and be an answer.
    context.may_open(&opened, batch)?;
    let work: Vec<_> = queries.into_iter().zip(rngs).collect();
    let answers: Vec<P::Answer> = work
        .into_par_iter()
        .map(|(query, mut rng)| P::answer_at(query, holder, &mut rng, context))
        .collect::<Result<_, _>>()?;
    Ok(Ran { batch: P::Answer::to_batch(&answers)?, opened })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who shows P1 something of data says so twice: in words and to P2's desk. These two tell of rules and not of data.
    #[test]
    fn what_p1_learns_is_opened() {
        for entry in CATALOG {
            let tells_rules = ["apply", "census"].contains(&entry.name);
            let tells_data = entry.leakage.p1 != "nothing" && !tells_rules;
            assert_eq!(tells_data, !entry.opens.0.is_empty(), "{entry:?}: {}", entry.leakage.p1);
        }
    }
}
