//! What was done to each column, as the types of both tables tell it.
//!
//! A type says whether a column was computed, whether the rows of a class share their tags, and what epsilon was spent. It does not say
//! which mask made a column: masking and arithmetic look alike.

use arrow::datatypes::{Fields, Schema};
use veil_cells::{CellError, CellType, Mechanism, Role};

use super::findings::{ColumnFinding, Treatment};

/// The columns of the anonymised table in their order, then those that were dropped.
pub(super) fn treatments(original: &Schema, anonymised: &Schema) -> Result<Vec<ColumnFinding>, CellError> {
    let mut columns = Vec::with_capacity(anonymised.fields().len());
    for field in anonymised.fields() {
        let Some(cell_type) = CellType::of_field(field)? else {
            columns.push(clear(field.name(), field.data_type().to_string(), Treatment::Clear));
            continue;
        };
        columns.push(ColumnFinding {
            name: field.name().clone(),
            kind: cell_type.kind.to_string(),
            encrypted: true,
            treatment: treatment(&cell_type),
            epsilon: (cell_type.spent > 0).then(|| cell_type.spent as f64 / 1e6),
            awaits: cell_type.awaits.iter().map(|noise| mechanism(noise.mechanism).to_owned()).collect(),
        });
    }
    for field in original.fields() {
        let cell_type = CellType::of_field(field)?;
        let kept = match &cell_type {
            Some(cell_type) => is_made_of(anonymised.fields(), cell_type)?,
            None => false,
        };
        if kept || anonymised.field_with_name(field.name()).is_ok() {
            continue;
        }
        let kind = cell_type.as_ref().map_or_else(|| field.data_type().to_string(), |of| of.kind.to_string());
        let dropped = clear(field.name(), kind, Treatment::Dropped);
        columns.push(ColumnFinding { encrypted: cell_type.is_some(), ..dropped });
    }
    Ok(columns)
}

fn clear(name: &str, kind: String, treatment: Treatment) -> ColumnFinding {
    ColumnFinding { name: name.to_owned(), kind, encrypted: false, treatment, epsilon: None, awaits: Vec::new() }
}

/// Whether a column lives on under another name.
fn is_made_of(fields: &Fields, cell_type: &CellType) -> Result<bool, CellError> {
    for field in fields {
        if CellType::of_field(field)?.is_some_and(|of| (of.column, of.key) == (cell_type.column, cell_type.key)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn treatment(cell_type: &CellType) -> Treatment {
    match cell_type {
        CellType { role: Role::Suppressed, .. } => Treatment::Flag,
        CellType { spent: 1.., .. } => Treatment::Noised,
        // Only classes have tags after a computation.
        CellType { computed: true, tag: true, .. } => Treatment::KAnonymised,
        CellType { computed: true, .. } => Treatment::Computed,
        _ => Treatment::Unchanged,
    }
}

fn mechanism(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Laplace => "Laplace",
        Mechanism::Geometric => "geometric",
        Mechanism::Binary => "flips",
        Mechanism::ExponentialHierarchy | Mechanism::ExponentialOrder | Mechanism::ExponentialEquality => "exponential",
        Mechanism::RandomizedResponse => "randomised response",
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use veil_cells::{ColumnId, JointNoise, KeyId, Kind, Width};

    use super::*;

    fn cells(number: u8, change: impl Fn(&mut CellType)) -> CellType {
        let mut cell_type =
            CellType::new(Kind::Integer, Width::of_range(0, 120).unwrap(), 1, KeyId([1; 8]), ColumnId([number; 8]));
        change(&mut cell_type);
        cell_type
    }

    fn schema(columns: Vec<(&str, CellType)>) -> Schema {
        let clear = Field::new("region", DataType::Utf8, true);
        let mut fields: Vec<Field> = columns.iter().map(|(name, of)| of.field(name).unwrap()).collect();
        fields.push(clear);
        Schema::new(fields)
    }

    #[test]
    fn types_tell_what_was_done() {
        let original = schema(vec![
            ("age", cells(1, |of| of.tag = true)),
            ("wage", cells(2, |_| {})),
            ("name", cells(3, |of| of.tag = true)),
            ("visits", cells(4, |_| {})),
            ("rate", cells(5, |_| {})),
        ]);
        let anonymised = schema(vec![
            ("age", cells(1, |of| (of.tag, of.computed, of.withheld) = (true, true, 9))),
            ("pay", cells(2, |of| of.computed = true)),
            ("visits", cells(4, |of| of.withheld = 9)),
            (
                "rate",
                cells(5, |of| {
                    (of.computed, of.spent) = (true, 500_000);
                    of.awaits = vec![JointNoise { mechanism: Mechanism::Laplace, epsilon: 500_000 }];
                }),
            ),
            ("suppressed", cells(9, |of| (of.role, of.computed, of.withheld) = (Role::Suppressed, true, 9))),
        ]);
        let found = treatments(&original, &anonymised).unwrap();
        let told: Vec<(&str, Treatment)> = found.iter().map(|of| (of.name.as_str(), of.treatment)).collect();
        assert_eq!(
            told,
            [
                ("age", Treatment::KAnonymised),
                ("pay", Treatment::Computed),
                ("visits", Treatment::Unchanged),
                ("rate", Treatment::Noised),
                ("suppressed", Treatment::Flag),
                ("region", Treatment::Clear),
                ("name", Treatment::Dropped),
            ]
        );
        assert_eq!((found[3].epsilon, found[3].awaits.as_slice()), (Some(0.5), &["Laplace".to_owned()][..]));
        assert!(found[6].encrypted && !found[5].encrypted);
    }
}
