//! Long sums, collapsed into one sample.
//!
//! A sum over rows of a chunk combines samples that share one mask polynomial `A(X)`. Sample extraction
//! at coefficient `i` has the mask of `X^i * A(X^-1)`, so the mask of `sum_i c_i * Sample(i)` is
//! `C(X) * A(X^-1)` with `C(X) = sum_i c_i X^i`: one ring product a chunk, however many rows it gave.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use tfhe_ntt::native64::Plan32;

use crate::cell::{Mask, RowsOf, Term};
use crate::parameters::{POLYNOMIAL_SIZE, checked_magnitude};
use crate::sample::{add_extracted_mask, expand_mask};
use crate::{Cell, CellError, MAX_TERMS, Noise, Provenance, Seed};

/// Beyond this many rows of one chunk the ring product is faster than adding rotated masks.
const RING_PRODUCT_PAYS: usize = 64;

/// More rows than any sum within the noise budget can have, unless they cancel: it bounds memory.
const MAX_ROWS: usize = 1 << 20;

/// Adds up numbers of many rows.
#[derive(Default)]
pub struct DenseSum {
    /// Everything but the affine masks, which `rows` collects.
    total: Option<Cell>,
    /// Samples, their factors, and whether they tell of whose rows the sum is made.
    rows: BTreeMap<Seed, Vec<(u16, i64, bool)>>,
    row_count: usize,
    /// The rows of cells that list them.
    listed: Option<Provenance>,
    /// Whether a cell does not say of which rows it is.
    unknown: bool,
}

impl DenseSum {
    /// An empty sum.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one cell. A cell that is refused leaves the sum as it was.
    pub fn add(&mut self, cell: &Cell) -> Result<(), CellError> {
        let magnitude = cell.number_magnitude()?;
        require_positive(cell)?;
        if self.row_count + cell.terms().len() > MAX_ROWS {
            return Err(CellError::Unsupported(format!("a sum takes at most {MAX_ROWS} rows; split it into parts")));
        }
        match &mut self.total {
            None => {
                let mut first = cell.clone();
                first.drop_tag();
                if let Mask::Affine(terms) = &mut first.mask {
                    terms.clear();
                }
                self.total = Some(first);
            }
            Some(total) => {
                if total.key_id != cell.key_id {
                    return Err(CellError::WrongKey { expected: total.key_id, found: cell.key_id });
                }
                if total.lanes.nulls != cell.lanes.nulls {
                    return Err(CellError::Unsupported(
                        "a sum cannot mix cells that hide NULLs with cells that do not".to_owned(),
                    ));
                }
                let magnitude = checked_magnitude(total.number_magnitude()?.checked_add(magnitude))?;
                if let Mask::Dense { .. } = cell.mask {
                    total.add_dense_mask(cell)?;
                }
                total.magnitude = Some(magnitude);
                for (ours, theirs) in total.bodies.iter_mut().zip(&cell.bodies) {
                    *ours = ours.wrapping_add(*theirs);
                }
            }
        }
        match &cell.rows {
            RowsOf::Unknown => self.unknown = true,
            RowsOf::Samples => {}
            RowsOf::Listed(rows) => match &mut self.listed {
                Some(listed) => listed.join(rows),
                none => *none = Some(rows.clone()),
            },
        }
        let tells = cell.rows == RowsOf::Samples;
        for term in cell.terms() {
            self.rows.entry(term.seed).or_default().push((term.index, term.coefficient.into(), tells));
        }
        self.row_count += cell.terms().len();
        Ok(())
    }

    /// The sum, or `None` if nothing was added.
    pub fn finish(self) -> Result<Option<Cell>, CellError> {
        let Some(mut total) = self.total else { return Ok(None) };
        let (mut terms, mut telling) = (Vec::with_capacity(self.row_count), Vec::with_capacity(self.row_count));
        for (seed, mut rows) in self.rows {
            rows.sort_unstable_by_key(|(index, ..)| *index);
            for same in rows.chunk_by(|a, b| a.0 == b.0) {
                let coefficient = same.iter().map(|(_, c, _)| c).sum::<i64>();
                if coefficient != 0 {
                    terms.push((seed, same[0].0, coefficient));
                    telling.push(same.iter().any(|(_, _, tells)| *tells));
                }
            }
        }
        let noise = Noise::of_coefficients(terms.iter().map(|(_, _, c)| *c)).checked()?;
        // The noise just checked allows no coefficient beyond 4095.
        let term =
            |&(seed, index, coefficient): &(Seed, u16, i64)| Term { seed, index, coefficient: coefficient as i16 };
        total.rows = match self.unknown {
            true => RowsOf::Unknown,
            false => {
                let telling = terms.iter().zip(&telling).filter(|(_, tells)| **tells).map(|(term, _)| term);
                let mut rows = Provenance::of_terms(telling.map(term));
                self.listed.iter().for_each(|listed| rows.join(listed));
                RowsOf::Listed(rows.summed())
            }
        };
        match &mut total.mask {
            Mask::Affine(few) if terms.len() <= MAX_TERMS => {
                few.extend(terms.iter().map(term));
            }
            Mask::Affine(_) => {
                total.mask = Mask::Dense { noise, words: collapse(&terms, total.lanes.total()) };
            }
            Mask::Dense { noise: ours, words } => {
                *ours = ours.plus(noise).checked()?;
                add_words(words, &collapse(&terms, total.lanes.total()));
            }
        }
        Ok(Some(total))
    }
}

impl Cell {
    /// The LWE mask of every lane but the tag's, laid end to end: a dense cell has it, an affine one stands for it.
    pub fn lwe_masks(&self) -> Cow<'_, [u64]> {
        let lanes = self.lanes.total() - usize::from(self.lanes.tag);
        match &self.mask {
            Mask::Affine(terms) => {
                let terms: Vec<_> = terms.iter().map(|t| (t.seed, t.index, i64::from(t.coefficient))).collect();
                Cow::Owned(collapse(&terms, lanes))
            }
            Mask::Dense { words, .. } => Cow::Borrowed(&words[..POLYNOMIAL_SIZE * lanes]),
        }
    }

    /// Turns an affine cell into a dense one.
    pub(crate) fn make_dense(&mut self) -> Result<(), CellError> {
        require_positive(self)?;
        if self.rows == RowsOf::Samples {
            self.rows = RowsOf::Listed(Provenance::of_terms(self.terms().iter().copied()));
        }
        if let Mask::Affine(terms) = &self.mask {
            let terms: Vec<_> = terms.iter().map(|t| (t.seed, t.index, i64::from(t.coefficient))).collect();
            self.mask = Mask::Dense { noise: self.noise(), words: collapse(&terms, self.lanes.total()) };
        }
        Ok(())
    }

    /// Adds the mask alone, where at least one of the two is dense.
    pub(crate) fn add_dense_mask(&mut self, other: &Self) -> Result<(), CellError> {
        let noise = self.noise().plus(other.noise()).checked()?;
        self.make_dense()?;
        let mut other = other.clone();
        other.drop_tag();
        other.make_dense()?;
        if let (Mask::Dense { noise: ours, words }, Mask::Dense { words: theirs, .. }) = (&mut self.mask, &other.mask) {
            *ours = noise;
            add_words(words, theirs);
        }
        Ok(())
    }
}

/// A dense mask no longer shows the signs of its terms, so hidden NULLs must not be able to cancel in it.
fn require_positive(cell: &Cell) -> Result<(), CellError> {
    if cell.lanes.nulls && cell.terms().iter().any(|term| term.coefficient < 0) {
        return Err(CellError::Unsupported(
            "a long sum of negated cells that hide NULLs would lose which rows are NULL; negate the sum instead"
                .to_owned(),
        ));
    }
    Ok(())
}

fn add_words(ours: &mut [u64], theirs: &[u64]) {
    for (ours, theirs) in ours.iter_mut().zip(theirs) {
        *ours = ours.wrapping_add(*theirs);
    }
}

/// The LWE masks, one a lane, of a combination sorted by seed.
fn collapse(terms: &[(Seed, u16, i64)], lanes: usize) -> Vec<u64> {
    static PLAN: LazyLock<Option<Plan32>> = LazyLock::new(|| Plan32::try_new(POLYNOMIAL_SIZE));
    let mut words = vec![0; POLYNOMIAL_SIZE * lanes];
    let (first, others) = words.split_at_mut(POLYNOMIAL_SIZE);
    let mut mask = vec![0; POLYNOMIAL_SIZE];
    for chunk in terms.chunk_by(|a, b| a.0 == b.0) {
        expand_mask(chunk[0].0, &mut mask);
        match PLAN.as_ref() {
            Some(plan) if chunk.len() > RING_PRODUCT_PAYS => {
                let mut coefficients = vec![0; POLYNOMIAL_SIZE];
                chunk.iter().for_each(|&(_, index, c)| coefficients[usize::from(index)] = c as u64);
                let mut product = vec![0; POLYNOMIAL_SIZE];
                plan.negacyclic_polymul(&mut product, &coefficients, &reflected(&mask));
                add_words(first, &product);
            }
            _ => {
                for &(_, index, c) in chunk {
                    add_extracted_mask(&mask, usize::from(index), c, first);
                }
            }
        }
    }
    // Lane l reads the samples l places further on: its mask is lane 0's times X^l.
    for (lane, words) in others.chunks_exact_mut(POLYNOMIAL_SIZE).enumerate() {
        let (kept, wrapped) = first.split_at(POLYNOMIAL_SIZE - (lane + 1));
        words[lane + 1..].copy_from_slice(kept);
        words.iter_mut().zip(wrapped).for_each(|(word, from)| *word = from.wrapping_neg());
    }
    words
}

/// `A(X^-1) = A_0 - sum_m A_m X^(N-m)`.
fn reflected(mask: &[u64]) -> Vec<u64> {
    let mut reflected: Vec<u64> = mask.iter().map(|word| word.wrapping_neg()).collect();
    reflected[1..].reverse();
    reflected[0] = mask[0];
    reflected
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ring product and the rotated additions are two ways to the same mask.
    #[test]
    fn both_ways_to_collapse_agree() {
        let seed = Seed([5; 16]);
        let many: Vec<_> = (0..200u16).map(|i| (seed, i * 20, i64::from(i) - 100)).collect();
        let at_once = collapse(&many, 1);
        let mut one_by_one = vec![0; POLYNOMIAL_SIZE];
        for part in many.chunks(10) {
            add_words(&mut one_by_one, &collapse(part, 1));
        }
        assert_eq!(at_once, one_by_one);
    }

    /// Whatever form a cell has, its masks are the same.
    #[test]
    fn masks_do_not_depend_on_the_form() {
        let lanes = crate::Lanes { value: 1, nulls: true, tag: true };
        let cell = |index| Cell::fresh(crate::KeyId([1; 8]), lanes, Some(9), Seed([7; 16]), index, &[1, 2, 3]);
        let mut cell_of_two = cell(9).unwrap();
        let tagged = cell_of_two.lwe_masks().into_owned();
        cell_of_two.add(&cell(4000).unwrap()).unwrap();
        let affine = cell_of_two.lwe_masks().into_owned();
        cell_of_two.make_dense().unwrap();
        assert_eq!((cell_of_two.lwe_masks().as_ref(), affine.len()), (affine.as_slice(), 2 * POLYNOMIAL_SIZE));
        let mut other = cell(4000).unwrap().lwe_masks().into_owned();
        add_words(&mut other, &tagged);
        assert_eq!(affine, other);
    }

    /// Lane l of a row is sample index + l.
    #[test]
    fn lanes_are_neighbouring_samples() {
        let seed = Seed([6; 16]);
        let lanes = collapse(&[(seed, 17, 3), (seed, 4000, -2)], 3);
        let third = collapse(&[(seed, 19, 3), (seed, 4002, -2)], 1);
        assert_eq!(lanes[2 * POLYNOMIAL_SIZE..], third[..]);
    }
}
