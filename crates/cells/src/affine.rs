//! Arithmetic on cells without a key.
//!
//! Only the number is meant: an equality tag would no longer match the new value, so every operation
//! drops it. The lane of hidden NULLs is carried along and stays non-zero where an operand was NULL,
//! which holds as long as all coefficients have the same sign; an operation that would mix them is refused.

use crate::cell::{Mask, RowsOf, Term};
use crate::parameters::{checked_magnitude, phase_of_message};
use crate::{Cell, CellError, MAX_TERMS};

impl Cell {
    /// Adds a clear constant. The cell's header shows by how much its magnitude grew, and so the constant's size: a constant
    /// that is a secret of its own, such as noise, is added [within a bound](Self::add_constant_within).
    pub fn add_constant(&mut self, constant: i64) -> Result<(), CellError> {
        self.add_constant_within(constant, constant.unsigned_abs())
    }

    /// Adds a clear constant of which the header shall show only a bound.
    pub fn add_constant_within(&mut self, constant: i64, bound: u64) -> Result<(), CellError> {
        let magnitude = checked_magnitude(self.number_magnitude()?.checked_add(bound))?;
        if constant.unsigned_abs() > bound {
            return Err(CellError::Unsupported("a constant lies beyond the bound that was given for it".to_owned()));
        }
        self.drop_tag();
        self.magnitude = Some(magnitude);
        self.bodies[0] = self.bodies[0].wrapping_add(phase_of_message(constant));
        Ok(())
    }

    /// Adds another cell's number. After an error this cell's content is unspecified.
    pub fn add(&mut self, other: &Self) -> Result<(), CellError> {
        let magnitude = checked_magnitude(self.number_magnitude()?.checked_add(other.number_magnitude()?))?;
        if self.key_id != other.key_id {
            return Err(CellError::WrongKey { expected: self.key_id, found: other.key_id });
        }
        if self.lanes.nulls != other.lanes.nulls {
            return Err(CellError::Unsupported(
                "a column that hides its NULLs cannot be added to one that does not; encrypt both alike".to_owned(),
            ));
        }
        self.drop_tag();
        if self.lanes.nulls && mixes_signs(self.terms(), other.terms()) {
            return Err(CellError::Unsupported(
                "subtracting columns that hide their NULLs would lose which rows are NULL".to_owned(),
            ));
        }
        self.join_rows(other);
        match (&mut self.mask, &other.mask) {
            (Mask::Affine(ours), Mask::Affine(theirs)) => {
                merge(ours, theirs);
                self.noise().checked()?;
                if self.terms().len() > MAX_TERMS {
                    self.make_dense()?;
                }
            }
            _ => self.add_dense_mask(other)?,
        }
        self.magnitude = Some(magnitude);
        for (ours, theirs) in self.bodies.iter_mut().zip(&other.bodies) {
            *ours = ours.wrapping_add(*theirs);
        }
        Ok(())
    }

    /// Multiplies by a small integer.
    pub fn scale(&mut self, factor: i64) -> Result<(), CellError> {
        let magnitude = checked_magnitude(self.number_magnitude()?.checked_mul(factor.unsigned_abs()))?;
        let noise = self.noise().times(factor).checked()?;
        let dense = matches!(self.mask, Mask::Dense { .. });
        if self.lanes.nulls && (factor == 0 || dense && factor < 0) {
            return Err(CellError::Unsupported(format!(
                "multiplying by {factor} would lose which rows of a column that hides its NULLs are NULL"
            )));
        }
        self.drop_tag();
        self.magnitude = Some(magnitude);
        if let RowsOf::Listed(provenance) = &mut self.rows {
            provenance.scale(factor);
        }
        match &mut self.mask {
            // A constant, and no longer of any row.
            mask if factor == 0 => *mask = Mask::Affine(Vec::new()),
            Mask::Affine(terms) => {
                // The noise just checked allows no coefficient beyond 4095.
                terms.iter_mut().for_each(|term| term.coefficient *= factor as i16);
            }
            Mask::Dense { noise: ours, words } => {
                *ours = noise;
                words.iter_mut().for_each(|word| *word = word.wrapping_mul(factor as u64));
            }
        }
        for body in &mut self.bodies {
            *body = body.wrapping_mul(factor as u64);
        }
        Ok(())
    }

    /// Changes the sign.
    pub fn negate(&mut self) -> Result<(), CellError> {
        self.scale(-1)
    }

    /// The magnitude, which only numbers have.
    pub(crate) fn number_magnitude(&self) -> Result<u64, CellError> {
        if self.divisor != 1 {
            return Err(CellError::Unsupported(
                "an average cannot be computed with; compute before averaging".to_owned(),
            ));
        }
        self.magnitude
            .ok_or_else(|| CellError::Unsupported("arithmetic needs a number, not text or a category".to_owned()))
    }

    /// Divides by a public number: what decrypts the cell rounds the quotient.
    pub fn divide(&mut self, divisor: u32) -> Result<(), CellError> {
        self.number_magnitude()?;
        if divisor == 0 {
            return Err(CellError::Unsupported("a cell cannot be divided by zero".to_owned()));
        }
        self.drop_tag();
        self.divisor = divisor;
        Ok(())
    }

    /// Forgets which rows are hidden NULLs, whose number is zero: for sums, which leave NULLs out.
    pub fn forget_nulls(&mut self) {
        self.drop_tag();
        if let Some(lane) = self.lanes.null_lane() {
            self.bodies.truncate(lane);
            if let Mask::Dense { words, .. } = &mut self.mask {
                words.truncate(lane * crate::POLYNOMIAL_SIZE);
            }
            self.lanes.nulls = false;
        }
    }

    /// Adds the rows of another cell, before its samples are added.
    pub(crate) fn join_rows(&mut self, other: &Self) {
        self.rows = match (&self.rows, &other.rows) {
            (RowsOf::Samples, RowsOf::Samples) => return,
            _ => match (self.provenance(), other.provenance()) {
                (Some(mut ours), Some(theirs)) => {
                    ours.join(&theirs);
                    RowsOf::Listed(ours)
                }
                _ => RowsOf::Unknown,
            },
        };
    }

    /// Forgets the equality tag.
    pub fn drop_tag(&mut self) {
        if let Some(lane) = self.lanes.tag_lane() {
            self.bodies.truncate(lane);
            if let Mask::Dense { words, .. } = &mut self.mask {
                words.truncate(lane * crate::POLYNOMIAL_SIZE);
            }
            self.lanes.tag = false;
        }
    }
}

/// Adds `theirs` to `ours`, both sorted by place; terms that cancel vanish. No coefficient exceeds the
/// noise budget's 4095 in absolute value, so a sum of two fits.
fn merge(ours: &mut Vec<Term>, theirs: &[Term]) {
    for term in theirs {
        match ours.binary_search_by_key(&term.place(), Term::place) {
            Err(at) => ours.insert(at, *term),
            Ok(at) if ours[at].coefficient == -term.coefficient => {
                ours.remove(at);
            }
            Ok(at) => ours[at].coefficient += term.coefficient,
        }
    }
}

fn mixes_signs(ours: &[Term], theirs: &[Term]) -> bool {
    let mut signs = ours.iter().chain(theirs).map(|term| term.coefficient > 0);
    signs.next().is_some_and(|first| signs.any(|sign| sign != first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyId, Lanes, Seed};

    fn number(seed: u8, index: u16) -> Cell {
        Cell::fresh(KeyId([1; 8]), Lanes::NUMBER, Some(100), Seed([seed; 16]), index, &[u64::from(seed)]).unwrap()
    }

    fn hiding_nulls(seed: u8) -> Cell {
        let lanes = Lanes { nulls: true, ..Lanes::NUMBER };
        Cell::fresh(KeyId([1; 8]), lanes, Some(100), Seed([seed; 16]), 0, &[1, 2]).unwrap()
    }

    #[test]
    fn like_terms_join_and_cancel() {
        let mut sum = number(3, 0);
        sum.add(&number(1, 0)).unwrap();
        sum.add(&number(3, 0)).unwrap();
        let terms: Vec<_> = sum.terms().iter().map(|t| (t.seed.0[0], t.coefficient)).collect();
        assert_eq!(terms, [(1, 1), (3, 2)]);
        let mut minus = number(1, 0);
        minus.negate().unwrap();
        sum.add(&minus).unwrap();
        assert_eq!(sum.terms().len(), 1);
        assert_eq!(sum.magnitude(), Some(400));
    }

    #[test]
    fn the_noise_budget_is_guarded() {
        let mut cell = number(1, 0);
        cell.scale(4095).unwrap();
        assert!(matches!(cell.add(&number(1, 0)), Err(CellError::NoiseBudget { .. })));
        assert!(matches!(number(1, 0).scale(4096), Err(CellError::NoiseBudget { .. })));
        assert!(number(1, 0).scale(i64::MIN).is_err());
    }

    #[test]
    fn the_message_space_is_guarded() {
        let mut cell = number(1, 0);
        assert!(matches!(cell.add_constant(1 << 47), Err(CellError::MessageOverflow)));
        assert!(matches!(cell.add_constant(i64::MIN), Err(CellError::MessageOverflow)));
        cell.add_constant((1 << 47) - 101).unwrap();
        assert!(matches!(cell.add_constant(1), Err(CellError::MessageOverflow)));
        assert!(matches!(cell.add(&number(2, 0)), Err(CellError::MessageOverflow)));
    }

    #[test]
    fn secret_constants_show_their_bound_only() {
        let (mut one, mut other) = (number(1, 0), number(1, 0));
        one.add_constant_within(3, 50).unwrap();
        other.add_constant_within(-49, 50).unwrap();
        assert_eq!((one.magnitude(), other.magnitude()), (Some(150), Some(150)));
        assert!(one.add_constant_within(51, 50).is_err());
    }

    /// Short text has one lane as a number has, and is none.
    #[test]
    fn short_text_is_no_number() {
        let mut text = Cell::fresh(KeyId([1; 8]), Lanes::NUMBER, None, Seed([1; 16]), 0, &[7]).unwrap();
        assert!(text.negate().is_err() && text.scale(0).is_err() && text.add_constant(0).is_err());
        assert_eq!(Cell::from_bytes(&text.to_bytes()).unwrap().magnitude(), None);
    }

    #[test]
    fn keys_do_not_mix() {
        let mut other = number(2, 0);
        other.key_id = KeyId([2; 8]);
        assert!(matches!(number(1, 0).add(&other), Err(CellError::WrongKey { .. })));
    }

    #[test]
    fn text_and_categories_do_not_add() {
        let lanes = Lanes { value: 4, nulls: false, tag: false };
        let mut text = Cell::fresh(KeyId([1; 8]), lanes, None, Seed([1; 16]), 0, &[0; 4]).unwrap();
        assert!(matches!(text.add_constant(1), Err(CellError::Unsupported(_))));
        assert!(matches!(number(1, 0).add(&text), Err(CellError::Unsupported(_))));
    }

    #[test]
    fn hidden_nulls_cannot_be_cancelled() {
        let mut minus = hiding_nulls(2);
        minus.negate().unwrap();
        assert!(matches!(hiding_nulls(1).add(&minus), Err(CellError::Unsupported(_))));
        assert!(matches!(hiding_nulls(1).add(&number(2, 0)), Err(CellError::Unsupported(_))));
        assert!(matches!(hiding_nulls(1).scale(0), Err(CellError::Unsupported(_))));
        minus.add(&minus.clone()).unwrap();
        assert_eq!(minus.terms()[0].coefficient, -2);
    }

    #[test]
    fn arithmetic_drops_the_tag() {
        let lanes = Lanes { tag: true, ..Lanes::NUMBER };
        let mut cell = Cell::fresh(KeyId([1; 8]), lanes, Some(1), Seed([1; 16]), 0, &[5, 6]).unwrap();
        cell.add_constant(0).unwrap();
        assert_eq!((cell.lanes(), cell.bodies()), (Lanes::NUMBER, &[5][..]));
    }

    #[test]
    fn a_quotient_is_written_and_not_computed_with() {
        let mut average = number(1, 0);
        average.divide(3).unwrap();
        assert_eq!((average.divisor(), Cell::from_bytes(&average.to_bytes()).unwrap()), (3, average.clone()));
        assert_eq!(average.to_bytes().len(), number(1, 0).to_bytes().len() + 4);
        assert!(average.add_constant(1).is_err() && average.scale(2).is_err() && average.divide(2).is_err());
        assert!(average.add(&number(2, 0)).is_err() && number(2, 0).add(&average).is_err());
        assert!(number(1, 0).divide(0).is_err());
        let mut whole = number(1, 0);
        whole.divide(1).unwrap();
        assert_eq!(whole, number(1, 0));
    }

    #[test]
    fn hidden_nulls_can_be_counted_and_forgotten() {
        let mut cell = hiding_nulls(1);
        let count = cell.null_count().unwrap();
        assert_eq!((count.bodies(), count.terms()[0].index, count.magnitude()), (&[2][..], 1, Some(1)));
        cell.forget_nulls();
        assert_eq!((cell.lanes(), cell.bodies()), (Lanes::NUMBER, &[1][..]));
        assert!(cell.null_count().is_none());
    }
}
