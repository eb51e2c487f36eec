//! `mask_dictionary(column, 'name')`: every value replaced by a random entry of an encrypted dictionary.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::array::{Array, BinaryArray, UInt32Array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::take;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use rand::{CryptoRng, Rng};
use veil_cells::{CellError, Kind, Nulls};

use crate::function::{RANDOM, document, external};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation, VeilContext};

/// As many random entries of a dictionary as there are rows; NULL stays NULL.
pub fn mask_dictionary<R: CryptoRng + ?Sized>(
    rows: usize,
    nulls: Option<&NullBuffer>,
    dictionary: &BinaryArray,
    rng: &mut R,
) -> Result<BinaryArray, CellError> {
    let entries = dictionary.len() as u32;
    if entries == 0 {
        return Err(CellError::Unsupported("an empty dictionary has nothing to replace values by".to_owned()));
    }
    let chosen: Vec<u32> = (0..rows).map(|_| rng.random_range(0..entries)).collect();
    let chosen = UInt32Array::try_new(chosen.into(), nulls.cloned())?;
    Ok(take(dictionary, &chosen, None)?.as_binary::<i32>().clone())
}

#[derive(Debug)]
pub(crate) struct MaskDictionary(VeilContext);

impl MaskDictionary {
    pub(crate) fn new(context: &VeilContext) -> Self {
        Self(context.clone())
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Replaces every value by a random entry of a dictionary that the owner encrypted with the table (section \
         [dictionary.NAME] of the declaration). Entries are encrypted: the engine does not know which text it chose.",
        "mask_dictionary(column, 'dictionary')",
        "SELECT mask_dictionary(name, 'names') AS name FROM patients;",
        &[
            ("column", "An encrypted text; its values do not matter, only which are NULL."),
            ("dictionary", "Its name, or table and name: 'names' or 'patients.names'."),
        ],
    )
});

impl CellFunction for MaskDictionary {
    fn name(&self) -> &'static str {
        "mask_dictionary"
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
        column.expect(self.name(), &[Kind::Text], "dictionaries hold texts; use mask_random or mask_redact")?;
        if column.cell_type.nulls == Nulls::Hidden {
            return plan_err!(
                "mask_dictionary: this column hides its NULLs, and the dictionary's entries cannot: use mask_redact, or \
                 encrypt the column without hide_nulls"
            );
        }
        let dictionary = self.0.dictionary(column.cell_type.key, arguments.text(1, "the dictionary's name")?)?;
        Ok(EncryptedField::new(dictionary.cell_type.clone(), column.nullable))
    }

    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray> {
        let arguments = &evaluation.arguments;
        let key = arguments.encrypted(0)?.cell_type.key;
        let dictionary = self.0.dictionary(key, arguments.text(1, "the dictionary's name")?)?;
        let mut rng = self.0.randomness(arguments.options()).fork();
        let column = evaluation.column;
        mask_dictionary(column.len(), column.nulls(), &dictionary.entries, &mut rng).map_err(external)
    }
}
