//! One relation: which columns tell people apart, and which rows are suppressed.

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use veil_cells::{CellType, KeyId, Role};
use veil_privacy::lattice::MAX_COLUMNS;
use veil_udfs::EncryptedField;

use crate::identifiers::Source;

/// A relation as it is assessed.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Whose keys it is encrypted with, if it is.
    pub(super) key: Option<KeyId>,
    /// The quasi-identifiers: where they are, and how they are compared.
    pub(super) quasi: Vec<(usize, Source)>,
    /// Where it says which rows are suppressed.
    pub(super) flag: Option<usize>,
}

impl Table {
    /// Of a relation with these fields.
    pub(super) fn of(function: &str, fields: &[FieldRef], quasi: &[String]) -> Result<Self> {
        if quasi.len() > MAX_COLUMNS {
            return plan_err!("{} columns are too many for {function}: name at most {MAX_COLUMNS}", quasi.len());
        }
        let (mut columns, mut withheld) = (Vec::with_capacity(quasi.len()), 0);
        for name in quasi {
            let place = place(function, fields, name)?;
            let Some(field) = fields.get(place) else { continue };
            let source = Source::published(field)?;
            if let Some(column) = EncryptedField::of(field)? {
                withheld = CellType::withheld_in(withheld, column.cell_type.withheld);
            }
            columns.push((place, source));
        }
        let mut keys = columns.iter().filter_map(|(_, source)| source.key());
        let key = keys.next();
        if let Some((first, other)) = key.and_then(|first| Some((first, keys.find(|key| *key != first)?))) {
            return plan_err!(
                "columns of different key sets ({first} and {other}) cannot be assessed together: name those of one"
            );
        }
        let flag = match (withheld, key) {
            // Clear columns do not know of it.
            (0, None) => only_flag(function, fields)?,
            (0, Some(_)) => None,
            (run, _) => Some((flag(function, fields, run)?, key)),
        };
        let key = key.or_else(|| flag.and_then(|(_, key)| key));
        Ok(Self { key, quasi: columns, flag: flag.map(|(place, _)| place) })
    }
}

/// The only column of a name.
pub(super) fn place(function: &str, fields: &[FieldRef], name: &str) -> Result<usize> {
    let mut places = fields.iter().enumerate().filter(|(_, field)| field.name() == name).map(|(place, _)| place);
    match (places.next(), places.next()) {
        (Some(place), None) => Ok(place),
        (Some(_), Some(_)) => plan_err!("{function} finds two columns {name}: rename one in a subquery"),
        (None, _) => {
            let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
            plan_err!("{function} finds no column {name} among {}: name others with quasi => (..)", names.join(", "))
        }
    }
}

/// The column that tells which rows this run has suppressed.
fn flag(function: &str, fields: &[FieldRef], run: u64) -> Result<usize> {
    for (place, field) in fields.iter().enumerate() {
        if let Some(column) = EncryptedField::of(field)?
            && column.cell_type.role == Role::Suppressed
            && column.cell_type.withheld == run
        {
            return Ok(place);
        }
    }
    plan_err!(
        "some rows of the table are suppressed, and the column that tells which is missing, so that {function} would count them as people: select \
         `suppressed` along with the others"
    )
}

/// The only column that tells which rows are suppressed, and whose keys it is encrypted with, if there is one.
fn only_flag(function: &str, fields: &[FieldRef]) -> Result<Option<(usize, Option<KeyId>)>> {
    let mut found = None;
    for (place, field) in fields.iter().enumerate() {
        let Some(column) = EncryptedField::of(field)?.filter(|column| column.cell_type.role == Role::Suppressed) else {
            continue;
        };
        if found.is_some() {
            return plan_err!(
                "two columns tell which rows are suppressed, and {function} does not know which of them to heed: leave one out in a subquery"
            );
        }
        found = Some((place, Some(column.cell_type.key)));
    }
    Ok(found)
}

/// The columns that people are recognised by, where the query names none: what k_anonymize has published, or all that can be compared.
pub(super) fn default_quasi(function: &str, inputs: &[LogicalPlan]) -> Result<Vec<String>> {
    let Some(last) = inputs.last() else { return Ok(Vec::new()) };
    let (mut published, mut comparable) = (Vec::new(), Vec::new());
    for field in last.schema().fields() {
        let is_shared = inputs.iter().all(|input| input.schema().has_column_with_unqualified_name(field.name()));
        if !is_shared {
            continue;
        }
        match EncryptedField::of(field)? {
            Some(column) if column.cell_type.role == Role::Suppressed => {}
            Some(column) if column.cell_type.tag && column.cell_type.computed => published.push(field.name().clone()),
            Some(column) if column.cell_type.tag => comparable.push(field.name().clone()),
            Some(_) => {}
            None if CellType::is_only_named_in(field) => {}
            None => comparable.push(field.name().clone()),
        }
    }
    let found = if published.is_empty() { comparable } else { published };
    match found.is_empty() {
        true => {
            plan_err!("{function} found no column with an equality tag and none that is clear: name quasi => (a, b)")
        }
        false => Ok(found),
    }
}
