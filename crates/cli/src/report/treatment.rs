//! What was done to each column, as the types of both tables tell it.
//!
//! A type says whether a column was computed, whether the rows of a class share their tags, and what epsilon was spent. It does not say
//! which mask made a column, nor which other columns went into it: masking and arithmetic look alike, and a sum is named after its first
//! column.

use arrow::datatypes::{Field, Schema};
use veil_cells::{CellError, CellType, Kind, Mechanism, Role};

use super::findings::{ColumnFinding, Treatment};

/// The columns of the anonymised table in their order, then those of the original that are not among them.
pub(super) fn treatments(original: &Schema, anonymised: &Schema) -> Result<Vec<ColumnFinding>, CellError> {
    let (before, after) = (columns_of(original)?, columns_of(anonymised)?);
    let mut columns: Vec<ColumnFinding> = after.iter().map(|column| kept(column, &before)).collect();
    for column in &before {
        let lives_on = after.iter().any(|other| column.is_same_as(other) || column.field.name() == other.field.name());
        if !lives_on {
            columns.push(dropped(column, &after));
        }
    }
    Ok(columns)
}

/// A column of a table; without a type of cells it is clear.
struct Column<'a> {
    field: &'a Field,
    cells: Option<CellType>,
}

fn columns_of(schema: &Schema) -> Result<Vec<Column<'_>>, CellError> {
    schema.fields().iter().map(|field| Ok(Column { field, cells: CellType::of_field(field)? })).collect()
}

impl Column<'_> {
    fn kind(&self) -> String {
        self.cells.as_ref().map_or_else(|| self.field.data_type().to_string(), |of| of.kind.to_string())
    }

    /// Whether both are the owner's one column, whatever became of it.
    fn is_same_as(&self, other: &Self) -> bool {
        let of = |cells: &CellType| (cells.column, cells.key);
        self.cells.is_some() && self.cells.as_ref().map(of) == other.cells.as_ref().map(of)
    }

    /// Whether values of this column may stand in the other one, whose type does not tell: it can be a term of a sum, or a branch of a CASE.
    fn may_be_in(&self, other: &Self) -> bool {
        let (ours, theirs) = match (&self.cells, &other.cells) {
            (Some(ours), Some(theirs)) => (ours, theirs),
            // Clear columns have no mark of where they come from.
            (ours, theirs) => return ours.is_none() && theirs.is_none(),
        };
        let is_term = theirs.computed && is_added(ours.kind) && is_added(theirs.kind);
        let form = |of: &CellType| (of.kind, of.scale, of.unit, of.fraction_bits, of.lanes, of.nulls, of.places);
        // The labels of these are known by their column, so they are not mixed with others.
        let is_labelled = matches!(ours.kind, Kind::Binary | Kind::Category);
        theirs.role == Role::Data && ours.key == theirs.key && (is_term || !is_labelled && form(ours) == form(theirs))
    }
}

/// Kinds that are added and subtracted.
fn is_added(kind: Kind) -> bool {
    matches!(kind, Kind::Integer | Kind::Decimal | Kind::Date | Kind::Timestamp)
}

/// A column of the anonymised table.
fn kept(column: &Column<'_>, before: &[Column<'_>]) -> ColumnFinding {
    let finding = ColumnFinding {
        name: column.field.name().clone(),
        kind: column.kind(),
        encrypted: column.cells.is_some(),
        treatment: column.cells.as_ref().map_or(Treatment::Clear, treatment),
        was: before.iter().find(|other| column.is_same_as(other)).map(|other| other.field.name().clone()),
        perhaps_in: Vec::new(),
        epsilon: None,
        awaits: Vec::new(),
    };
    let Some(cells) = &column.cells else { return finding };
    ColumnFinding {
        epsilon: (cells.spent > 0).then(|| cells.spent as f64 / 1e6),
        awaits: cells.awaits.iter().map(|noise| mechanism(noise.mechanism).to_owned()).collect(),
        ..finding
    }
}

/// A column of the original that is not in the anonymised table, neither by itself nor by its name.
fn dropped(column: &Column<'_>, after: &[Column<'_>]) -> ColumnFinding {
    let perhaps = after.iter().filter(|other| column.may_be_in(other)).map(|other| other.field.name().clone());
    ColumnFinding {
        name: column.field.name().clone(),
        kind: column.kind(),
        encrypted: column.cells.is_some(),
        treatment: Treatment::Dropped,
        was: None,
        perhaps_in: perhaps.collect(),
        epsilon: None,
        awaits: Vec::new(),
    }
}

fn treatment(cells: &CellType) -> Treatment {
    match cells {
        CellType { role: Role::Suppressed, .. } => Treatment::Flag,
        CellType { spent: 1.., mixed: true, .. } => Treatment::PartlyNoised,
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
    use arrow::datatypes::DataType;
    use veil_cells::{ColumnId, JointNoise, KeyId, Width};

    use super::*;

    fn cells(number: u8, change: impl Fn(&mut CellType)) -> CellType {
        let mut cell_type =
            CellType::new(Kind::Integer, Width::of_range(0, 120).unwrap(), 1, KeyId([1; 8]), ColumnId([number; 8]));
        change(&mut cell_type);
        cell_type
    }

    fn text(number: u8) -> CellType {
        CellType::new(Kind::Text, Width::FULL, 2, KeyId([1; 8]), ColumnId([number; 8]))
    }

    fn schema(columns: Vec<(&str, CellType)>, clear: &[&str]) -> Schema {
        let clear = clear.iter().map(|name| Field::new(*name, DataType::Utf8, true));
        let encrypted = columns.iter().map(|(name, of)| of.field(name).unwrap());
        Schema::new(encrypted.chain(clear).collect::<Vec<_>>())
    }

    fn told(found: &[ColumnFinding]) -> Vec<(&str, Treatment)> {
        found.iter().map(|of| (of.name.as_str(), of.treatment)).collect()
    }

    #[test]
    fn types_tell_what_was_done() {
        let original = schema(
            vec![
                ("age", cells(1, |of| of.tag = true)),
                ("wage", cells(2, |_| {})),
                ("name", text(3)),
                ("visits", cells(4, |_| {})),
                ("rate", cells(5, |_| {})),
            ],
            &["region"],
        );
        let anonymised = schema(
            vec![
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
            ],
            &["region"],
        );
        let found = treatments(&original, &anonymised).unwrap();
        assert_eq!(
            told(&found),
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
        let was: Vec<Option<&str>> = found.iter().map(|of| of.was.as_deref()).collect();
        assert_eq!(was, [Some("age"), Some("wage"), Some("visits"), Some("rate"), None, None, None]);
        assert_eq!((found[3].epsilon, found[3].awaits.as_slice()), (Some(0.5), &["Laplace".to_owned()][..]));
        assert!(found[6].encrypted && !found[5].encrypted);
        // No other text is there that it could be in.
        assert!(found[6].perhaps_in.is_empty());
    }

    #[test]
    fn noise_in_some_rows_is_not_noise_in_all() {
        let original = schema(vec![("cost", cells(1, |_| {})), ("rate", cells(2, |_| {}))], &[]);
        let noised = |number, mixed| cells(number, move |of| (of.computed, of.spent, of.mixed) = (true, 5, mixed));
        let found = treatments(&original, &schema(vec![("cost", noised(1, true)), ("rate", noised(2, false))], &[]));
        let found = found.unwrap();
        assert_eq!(told(&found), [("cost", Treatment::PartlyNoised), ("rate", Treatment::Noised)]);
        assert!(found.iter().all(ColumnFinding::has_noise_of_engine_alone));
    }

    #[test]
    fn a_dropped_column_may_have_gone_into_others() {
        let original = schema(
            vec![
                ("base", cells(1, |_| {})),
                ("bonus", cells(2, |_| {})),
                ("name", text(3)),
                ("alias", text(4)),
                ("illness", CellType::new(Kind::Category, Width::NARROWEST, 2, KeyId([1; 8]), ColumnId([5; 8]))),
            ],
            &["street"],
        );
        // A sum is named after its first column, and a CASE after its first branch; a clear column can be renamed.
        let anonymised = schema(vec![("pay", cells(1, |of| of.computed = true)), ("alias", text(4))], &["address"]);
        let found = treatments(&original, &anonymised).unwrap();
        let dropped = |name: &str| {
            let found = found.iter().find(|of| of.name == name && of.treatment == Treatment::Dropped);
            found.map(|of| of.perhaps_in.join(" "))
        };
        assert_eq!(dropped("base"), None);
        assert_eq!(dropped("bonus").as_deref(), Some("pay"));
        assert_eq!(dropped("name").as_deref(), Some("alias"));
        assert_eq!(dropped("street").as_deref(), Some("address"));
        assert_eq!(dropped("illness").as_deref(), Some(""));
    }
}
