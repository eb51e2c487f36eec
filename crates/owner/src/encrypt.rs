//! Clear file in, encrypted file out.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_cells::{CellType, Kind, SideTables, Width};
use veil_keys::{OwnerKeys, Place, encrypt_rows, new_file};

use crate::codec::BadValue;
use crate::declaration::{ColumnDeclaration, ColumnKind, Declaration};
use crate::dictionary::encode_dictionary;
use crate::table_file::{TableReader, TableWriter, transform};
use crate::{ColumnCodec, Output, OwnerError, Watch};

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncryptSummary {
    /// Rows written.
    pub rows: u64,
    /// Encrypted columns.
    pub encrypted: usize,
    /// Columns left clear.
    pub clear: usize,
}

/// What becomes of one column.
enum Plan {
    Encrypt(Box<ColumnCodec>),
    /// Read as this type, if the input has none of its own.
    Keep(DataType),
}

/// What seeds call the columns of a file: no two are alike, or masks would repeat. Files of one table have the same, whatever the order of their
/// columns, and other tables others, so that a value tells which column it is made of.
fn column_numbers(plans: &[Plan]) -> Vec<u16> {
    let mut taken = HashSet::with_capacity(plans.len());
    let mut number = |plan: &Plan| match plan {
        Plan::Keep(_) => 0,
        Plan::Encrypt(codec) => {
            let mut number = codec.cell_type().column.number();
            // There are at most as many columns as numbers.
            while !taken.insert(number) {
                number = number.wrapping_add(1);
            }
            number
        }
    };
    plans.iter().map(&mut number).collect()
}

/// Encrypts `input` as `declaration` says.
pub fn encrypt_file(
    input: &Path,
    declaration: &Declaration,
    keys: &OwnerKeys,
    output: &Output,
    rng: &mut impl CryptoRng,
    watch: Watch<'_>,
) -> Result<EncryptSummary, OwnerError> {
    let reader = TableReader::open(input)?;
    if reader.schema.fields().len() > usize::from(u16::MAX) {
        let what = format!("{} columns are too many; split the table", reader.schema.fields().len());
        return Err(OwnerError::Mismatch { file: input.to_owned(), what });
    }
    check_names(input, &reader, declaration)?;
    let mut plans = Vec::new();
    let mut fields = Vec::new();
    for field in reader.schema.fields() {
        let plan = plan_column(input, keys, declaration, field, reader.is_typed())?;
        fields.push(match &plan {
            Plan::Encrypt(codec) => {
                codec.encrypted_field(keys.seal(), field.name()).map_err(OwnerError::column(input, field.name()))?
            }
            Plan::Keep(data_type) => field.as_ref().clone().with_data_type(data_type.clone()),
        });
        plans.push(plan);
    }
    let numbers = column_numbers(&plans);
    let schema = Arc::new(Schema::new(fields));
    let side = side_tables(input, declaration, keys, rng)?;
    let writer = TableWriter::encrypted(output, schema.clone(), &side)?;
    // What tells rows apart is this name and their numbers.
    let file = new_file(rng);
    let encrypted = plans.iter().filter(|plan| matches!(plan, Plan::Encrypt(_))).count();
    let step = |batch: RecordBatch, before: usize| {
        let seeded: Vec<StdRng> = plans.iter().map(|_| StdRng::from_rng(rng)).collect();
        let columns =
            plans.par_iter().zip(&numbers).zip(batch.columns()).zip(seeded).zip(schema.fields().par_iter()).map(
                |((((plan, number), array), mut rng), field)| {
                    let bad = |fault: BadValue| OwnerError::Value {
                        file: input.to_owned(),
                        row: before + fault.row + 1,
                        column: field.name().clone(),
                        value: shortened(fault.value),
                        why: fault.why,
                    };
                    match plan {
                        Plan::Keep(data_type) => keep(array, data_type).map_err(bad),
                        Plan::Encrypt(codec) => {
                            let encoded = codec.encode(array).map_err(bad)?;
                            let place = Place::Rows(file, *number, before);
                            let (messages, nulls) = (&encoded.messages, encoded.nulls.as_ref());
                            encrypt_rows(keys, codec.cell_type(), messages, nulls, place, &mut rng)
                                .map(|cells| Arc::new(cells) as ArrayRef)
                                .map_err(OwnerError::column(input, field.name()))
                        }
                    }
                },
            );
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(OwnerError::arrow(input))
    };
    let rows = transform(reader, writer, step, watch)?;
    Ok(EncryptSummary { rows, encrypted, clear: plans.len() - encrypted })
}

/// Enough of a value to find it.
fn shortened(mut value: String) -> String {
    const MOST: usize = 60;
    if let Some((at, _)) = value.char_indices().nth(MOST) {
        value.truncate(at);
        value.push('…');
    }
    value
}

fn check_names(input: &Path, reader: &TableReader, declaration: &Declaration) -> Result<(), OwnerError> {
    let mismatch = |what: String| OwnerError::Mismatch { file: input.to_owned(), what };
    let declared: &BTreeMap<String, ColumnDeclaration> = &declaration.columns;
    if let Some(name) = declared.keys().find(|name| reader.schema.field_with_name(name).is_err()) {
        return Err(mismatch(format!("the declared column `{name}` is missing; correct or remove [column.{name}]")));
    }
    match reader.schema.fields().iter().find(|field| !declared.contains_key(field.name())) {
        Some(field) => Err(mismatch(format!(
            "the column `{0}` is not declared; add [column.{0}], with kind = \"clear\" if it may stay readable",
            field.name()
        ))),
        None => Ok(()),
    }
}

fn plan_column(
    input: &Path,
    keys: &OwnerKeys,
    declaration: &Declaration,
    field: &Field,
    typed: bool,
) -> Result<Plan, OwnerError> {
    let name = field.name();
    let column = declaration.columns.get(name).ok_or_else(|| OwnerError::Mismatch {
        file: input.to_owned(),
        what: format!("the column `{name}` is not declared"),
    })?;
    if matches!(CellType::of_field(field), Ok(Some(_))) && !matches!(column.kind, ColumnKind::Clear(_)) {
        let what =
            format!("the column `{name}` is encrypted already; declare it as kind = \"clear\" to keep it as it is");
        return Err(OwnerError::Mismatch { file: input.to_owned(), what });
    }
    let source = typed.then_some(field.data_type());
    let codec = ColumnCodec::declared(keys, &declaration.table, name, column, source);
    let codec = codec.map_err(OwnerError::column(input, name))?;
    Ok(match (codec, &column.kind) {
        (Some(codec), _) => Plan::Encrypt(Box::new(codec)),
        (None, ColumnKind::Clear(data_type)) if !typed => Plan::Keep(data_type.clone()),
        (None, _) => Plan::Keep(field.data_type().clone()),
    })
}

/// A clear column in its declared type.
fn keep(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, BadValue> {
    if array.data_type() == data_type {
        return Ok(array.clone());
    }
    let unfit = |row: usize| BadValue {
        row,
        value: array
            .as_string_opt::<i32>()
            .filter(|texts| row < texts.len())
            .map_or(String::new(), |texts| texts.value(row).to_owned()),
        why: format!("is not of the declared type {data_type}; correct it or `type`"),
    };
    let typed = cast(array, data_type).map_err(|_| unfit(0))?;
    match (0..array.len()).find(|row| typed.is_null(*row) && array.is_valid(*row)) {
        Some(row) => Err(unfit(row)),
        None => Ok(typed),
    }
}

/// The zero pool and the dictionaries.
fn side_tables(
    input: &Path,
    declaration: &Declaration,
    keys: &OwnerKeys,
    rng: &mut impl CryptoRng,
) -> Result<SideTables, OwnerError> {
    let mut side = SideTables::default();
    let pool = keys.column_id(&declaration.table, SideTables::ZEROS);
    let zero = CellType::new(Kind::Integer, Width::NARROWEST, 1, keys.key_id(), pool);
    let add = |side: &mut SideTables, name: String, cell_type: &CellType, messages: &[i64], rng: &mut _| {
        let fault = OwnerError::column(input, &name);
        let cells = encrypt_rows(keys, cell_type, messages, None, Place::Constants, rng).map_err(&fault)?;
        let schema = Arc::new(Schema::new(vec![cell_type.field("cell").map_err(|error| fault(error.into()))?]));
        let table = RecordBatch::try_new(schema, vec![Arc::new(cells)]).map_err(OwnerError::arrow(input))?;
        drop(fault);
        side.insert(name, table);
        Ok::<_, OwnerError>(())
    };
    if declaration.zero_pool > 0 {
        add(&mut side, SideTables::ZEROS.to_owned(), &zero, &vec![0; declaration.zero_pool], rng)?;
    }
    for (name, dictionary) in &declaration.dictionaries {
        let table = SideTables::dictionary(name);
        let (lanes, messages) = encode_dictionary(dictionary, rng)?;
        let column = keys.column_id(&declaration.table, &table);
        let cell_type = CellType::new(Kind::Text, Width::FULL, lanes, keys.key_id(), column);
        add(&mut side, table, &cell_type, &messages, rng)?;
    }
    Ok(side)
}
