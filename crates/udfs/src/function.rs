//! What a function on encrypted columns is, and its place in DataFusion.

use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BinaryArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, ScalarValue, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use futures::future::BoxFuture;
use veil_cells::{Cell, CellArray, CellError};
use veil_protocols::{ProtocolError, Session};

use crate::{Arguments, EncryptedField, VeilOptions};

/// A function whose first argument and result are encrypted.
pub trait CellFunction: std::fmt::Debug + Send + Sync + 'static {
    /// Its name in SQL.
    fn name(&self) -> &'static str;

    /// Whether two calls with the same arguments differ.
    fn volatility(&self) -> Volatility;

    /// How many arguments it takes.
    fn arity(&self) -> RangeInclusive<usize>;

    /// For docs/sql.md and `veil_functions()`.
    fn documentation(&self) -> &Documentation;

    /// The result's type: every check that needs no data.
    fn result(&self, arguments: &Arguments<'_>) -> Result<EncryptedField>;

    /// The result, where it needs no rounds.
    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray>;

    /// How to get the result in rounds with P2; `None` if it needs none.
    fn rounds(&self, arguments: &Arguments<'_>) -> Result<Option<Box<dyn Rounds>>> {
        let _ = arguments;
        Ok(None)
    }
}

/// A call that runs in rounds with P2.
pub trait Rounds: std::fmt::Debug + Send + Sync {
    /// The protocols that it runs, for EXPLAIN.
    fn protocols(&self) -> &'static [&'static str];

    /// Whether the new values have nothing of the old ones in them.
    fn draws_anew(&self) -> bool {
        false
    }

    /// Memory that a row takes on its way, in bytes: masks, ciphertexts, answers.
    fn row_bytes(&self) -> usize {
        200
    }

    /// Batch by batch.
    fn evaluate<'a>(
        &'a self,
        session: &'a Session,
        column: ArrayRef,
    ) -> BoxFuture<'a, Result<BinaryArray, ProtocolError>>;
}

/// A call on a batch.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// What it is called with.
    pub arguments: Arguments<'a>,
    /// The first argument's rows.
    pub column: &'a ArrayRef,
    /// The second argument's rows, if they are encrypted.
    pub second: Option<&'a ArrayRef>,
}

impl<'a> Evaluation<'a> {
    /// The cells of the first argument.
    pub fn cells(&self) -> Result<CellArray<'a>> {
        CellArray::try_new(self.column).map_err(external)
    }
}

/// Cells' errors as DataFusion's.
pub(crate) fn external(error: CellError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// A damaged cell of a batch, if there is one, and where it is: what finds the damage sees a cell without its surroundings.
pub fn damaged_cell(column: &str, cells: CellArray<'_>) -> Option<CellError> {
    (0..cells.len()).find_map(|row| match Cell::from_bytes(cells.bytes(row)?) {
        Err(CellError::Malformed(what)) => {
            Some(CellError::Malformed(format!("{what}, in column {column}, row {} of {}", row + 1, cells.len())))
        }
        _ => None,
    })
}

/// The error of a batch; a damaged cell with its place.
fn located(error: DataFusionError, fields: &[FieldRef], columns: &[Option<&ArrayRef>]) -> DataFusionError {
    let damaged = fields
        .iter()
        .zip(columns)
        .find_map(|(field, column)| damaged_cell(field.name(), CellArray::try_new(column.as_ref()?).ok()?));
    match (&error, damaged) {
        (DataFusionError::External(_), Some(damaged)) => external(damaged),
        _ => error,
    }
}

/// A function of ours as DataFusion's.
#[derive(Debug)]
pub struct CellUdf {
    function: Arc<dyn CellFunction>,
    signature: Signature,
    options: VeilOptions,
}

impl CellUdf {
    /// Wraps a function.
    pub fn new(function: Arc<dyn CellFunction>) -> Self {
        let signature = Signature::user_defined(function.volatility());
        Self { function, signature, options: VeilOptions::default() }
    }

    /// What a call is given.
    pub fn arguments<'a>(&'a self, fields: &'a [FieldRef], scalars: Vec<Option<&'a ScalarValue>>) -> Arguments<'a> {
        Arguments::new(self.function.name(), fields, scalars, &self.options)
    }

    /// The function.
    pub fn function(&self) -> &Arc<dyn CellFunction> {
        &self.function
    }
}

// A session registers each function once, so that name and settings tell all.
impl PartialEq for CellUdf {
    fn eq(&self, other: &Self) -> bool {
        self.function.name() == other.function.name() && self.options.noise == other.options.noise
    }
}

impl Eq for CellUdf {}

impl Hash for CellUdf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name().hash(state);
    }
}

impl ScalarUDFImpl for CellUdf {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    // What is wrong with the arguments is said where the result's type is asked for, in one sentence.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(match types {
            [DataType::Null, rest @ ..] => [&[DataType::Binary], rest].concat(),
            types => types.to_vec(),
        })
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let name = self.name();
        if !self.function.arity().contains(&args.arg_fields.len()) {
            return plan_err!("{name} takes other arguments: {}", self.function.documentation().syntax_example);
        }
        let arguments = self.arguments(args.arg_fields, args.scalar_arguments.to_vec());
        if let Some(field) = args.arg_fields.first()
            && !arguments.is_encrypted(0)
        {
            return plan_err!(
                "{name} works on an encrypted column, and its first argument is clear ({}): mask clear columns with SQL expressions, or \
                 encrypt the column",
                field.data_type()
            );
        }
        // CASE, coalesce and casts drop the type; the planner restores it and asks again.
        if arguments.lost_its_type() {
            return Ok(Arc::new(Field::new(self.name(), DataType::Binary, true)));
        }
        Ok(Arc::new(self.function.result(&arguments)?.field(self.name())?))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalars: Vec<Option<&ScalarValue>> = args
            .args
            .iter()
            .map(|argument| match argument {
                ColumnarValue::Scalar(scalar) => Some(scalar),
                ColumnarValue::Array(_) => None,
            })
            .collect();
        let arguments = self.arguments(&args.arg_fields, scalars);
        if self.function.rounds(&arguments)?.is_some() {
            return plan_err!(
                "{} needs rounds with P2 here, and this session does not plan them: build its state with \
                 SessionStateBuilder::with_veil",
                self.name()
            );
        }
        let encrypted = |at: usize| match args.arg_fields.get(at).map(|field| field.data_type()) {
            Some(DataType::Binary | DataType::LargeBinary | DataType::BinaryView) => {
                args.args.get(at).map(|argument| argument.to_array(args.number_rows)).transpose()
            }
            _ => Ok(None),
        };
        let Some(column) = encrypted(0)? else {
            return plan_err!("{} needs an encrypted column", self.name());
        };
        let second = encrypted(1)?;
        let evaluation = Evaluation { arguments, column: &column, second: second.as_ref() };
        let result = self.function.evaluate(&evaluation);
        let result = result.map_err(|error| located(error, &args.arg_fields, &[Some(&column), second.as_ref()]));
        Ok(ColumnarValue::Array(Arc::new(result?)))
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let (function, signature) = (self.function.clone(), self.signature.clone());
        Some(ScalarUDF::from(Self { function, signature, options: VeilOptions::of(config) }))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(self.function.documentation())
    }
}

/// One function's documentation.
pub fn document(
    section: &'static str,
    description: &str,
    syntax: &str,
    example: &str,
    arguments: &[(&str, &str)],
) -> Documentation {
    let section = datafusion::logical_expr::DocSection { include: true, label: section, description: None };
    let builder = Documentation::builder(section, description, syntax).with_sql_example(example);
    arguments.iter().fold(builder, |builder, (name, text)| builder.with_argument(*name, *text)).build()
}

pub(crate) const RANDOM: Volatility = Volatility::Volatile;
pub(crate) const DETERMINISTIC: Volatility = Volatility::Immutable;
