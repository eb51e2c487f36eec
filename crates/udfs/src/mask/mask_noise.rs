//! `mask_noise(column, fraction)`: every value off by up to a fraction of itself.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use datafusion::arrow::array::BinaryArray;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use rand::{CryptoRng, Rng};
use veil_cells::{Cell, CellArray, CellArrayBuilder, CellError, Kind};

use crate::encrypted::width_of;
use crate::function::{RANDOM, document, external};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation, VeilContext};

/// Binary places of a factor.
const FACTOR_BITS: u8 = 7;

/// Multiplies every cell by a random integer in `factors`, of 128. The result has seven binary places more, which a decryption
/// or release rounds away: an unrounded product would give the factor away.
pub fn mask_noise<R: CryptoRng + ?Sized>(
    column: CellArray<'_>,
    factors: RangeInclusive<i64>,
    rng: &mut R,
) -> Result<BinaryArray, CellError> {
    let mut cell = Cell::scratch();
    let mut builder = CellArrayBuilder::with_capacity(column.len(), 58);
    for row in 0..column.len() {
        match column.bytes(row) {
            Some(bytes) => {
                cell.read(bytes)?;
                cell.scale(rng.random_range(factors.clone()))?;
                builder.push(&cell)?;
            }
            None => builder.push_null()?,
        }
    }
    builder.finish()
}

#[derive(Debug)]
pub(crate) struct MaskNoise(VeilContext);

impl MaskNoise {
    pub(crate) fn new(context: &VeilContext) -> Self {
        Self(context.clone())
    }

    fn factors(&self, arguments: &Arguments<'_>) -> Result<RangeInclusive<i64>> {
        let fraction = arguments.fraction(1, "fraction")?;
        let (low, high) = ((128.0 * (1.0 - fraction)).ceil() as i64, (128.0 * (1.0 + fraction)).floor() as i64);
        if low >= high {
            return plan_err!("mask_noise: a fraction of {fraction} is below the smallest step: use 0.008 or more");
        }
        Ok(low.max(1)..=high)
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Multiplies every value by a random factor between 1 - fraction and 1 + fraction, in steps of 1/128. The engine knows \
         the factors, so this blurs and does not protect: for protection use dp_laplace.",
        "mask_noise(column, fraction)",
        "SELECT mask_noise(salary, 0.1) AS salary FROM staff;",
        &[
            ("column", "An encrypted integer or decimal."),
            ("fraction", "A constant between 0 and 1: 0.1 is ten percent either way."),
        ],
    )
});

impl CellFunction for MaskNoise {
    fn name(&self) -> &'static str {
        "mask_noise"
    }

    fn volatility(&self) -> Volatility {
        RANDOM
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn documentation(&self) -> &Documentation {
        &DOCUMENTATION
    }

    fn result(&self, arguments: &Arguments<'_>) -> Result<EncryptedField> {
        let column = arguments.encrypted(0)?;
        column.expect(self.name(), &[Kind::Integer, Kind::Decimal], "shift dates with mask_shift")?;
        let factors = self.factors(arguments)?;
        let mut column = column.unbounded();
        if column.cell_type.fraction_bits > 0 {
            return plan_err!("mask_noise: this column has been multiplied by random factors before: do it once");
        }
        column.cell_type.fraction_bits += FACTOR_BITS;
        let reach = (1 << (column.cell_type.width.bits() - 1)) * factors.end().unsigned_abs();
        if reach >= 1 << 47 {
            return plan_err!("mask_noise: the result could exceed 48 bits: it needs a column of at most 32 bits");
        }
        column.cell_type.width = width_of(reach);
        Ok(column)
    }

    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray> {
        let factors = self.factors(&evaluation.arguments)?;
        let mut rng = self.0.randomness(evaluation.arguments.options()).fork();
        mask_noise(evaluation.cells()?, factors, &mut rng).map_err(external)
    }
}
