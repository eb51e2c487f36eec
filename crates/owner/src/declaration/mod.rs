//! The owner's declaration: what the columns of a table are.
//!
//! ```toml
//! [table]
//! name = "patients"
//!
//! [column.age]
//! kind = "integer"
//! range = [0, 120]
//! identifier = true
//! ```

mod column;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::DataType;
use serde::Deserialize;
use toml::Spanned;
use veil_cells::{MAX_LANES, TEXT_BYTES_PER_LANE};
use veil_privacy::{Hierarchy, Spacing};

use self::column::{Fault, RawColumn};
use crate::OwnerError;
use crate::codec::NumberFormat;

/// Zeros that a file carries unless the owner asks for more.
const DEFAULT_ZERO_POOL: usize = veil_cells::POLYNOMIAL_SIZE;

/// The most zeros or dictionary entries of a file.
const MAX_POOL: usize = 1 << 24;

/// The most bytes of a text: two lanes are left for hidden NULLs and the tag.
pub(crate) const MAX_TEXT: usize = (MAX_LANES - 2) * TEXT_BYTES_PER_LANE;

/// A checked declaration.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// The table's name.
    pub table: String,
    /// Encrypted zeros that travel with the file.
    pub zero_pool: usize,
    /// Columns by name.
    pub columns: BTreeMap<String, ColumnDeclaration>,
    /// Dictionaries by name.
    pub dictionaries: BTreeMap<String, DictionaryDeclaration>,
}

/// One column.
#[derive(Clone, Debug)]
pub struct ColumnDeclaration {
    /// What its values are.
    pub kind: ColumnKind,
    /// Whether cells carry an equality tag.
    pub identifier: bool,
    /// Whether NULLs look like any other value.
    pub hide_nulls: bool,
    /// Whether the bounds of a number are public.
    pub public_range: bool,
    /// Whether the shape of a category's hierarchy stays sealed with its labels.
    pub hide_shape: bool,
    /// Weight in distances, in thousandths.
    pub weight: u32,
}

/// What a column's values are.
#[derive(Clone, Debug)]
pub enum ColumnKind {
    /// Not encrypted. A CSV column is read as this type.
    Clear(DataType),
    /// A number within bounds, both in steps of the column's unit.
    Number {
        /// How it is written.
        format: NumberFormat,
        /// The smallest value.
        low: i64,
        /// The largest value.
        high: i64,
    },
    /// One of two labels.
    Binary([String; 2]),
    /// UTF-8 of at most so many bytes.
    Text(usize),
    /// A leaf of a hierarchy.
    Category(Arc<Hierarchy>, Spacing),
}

/// A dictionary of replacements for masking.
#[derive(Clone, Debug)]
pub struct DictionaryDeclaration {
    /// One entry a line.
    pub file: PathBuf,
    /// Entries after padding with copies, so that the true number stays hidden.
    pub pad_to: usize,
    /// Bytes of the longest entry that the lanes must hold; the longest entry's own if not given.
    pub max_length: Option<usize>,
}

impl Declaration {
    /// Reads and checks a declaration and the hierarchies that it names.
    pub fn load(file: &Path) -> Result<Self, OwnerError> {
        let text = fs::read_to_string(file).map_err(OwnerError::io(file))?;
        Self::parse(&text, file)
    }

    /// Checks the text of a declaration; `file` gives errors a name and attachments a folder.
    pub fn parse(text: &str, file: &Path) -> Result<Self, OwnerError> {
        let at = |offset: usize| text.get(..offset).map_or(1, |before| before.matches('\n').count() + 1);
        let error =
            |offset: usize, what: String| OwnerError::Declaration { file: file.to_owned(), line: at(offset), what };
        let raw: RawDeclaration = toml::from_str(text).map_err(|fault| {
            let what = fault.message().split_whitespace().collect::<Vec<_>>().join(" ");
            error(fault.span().map_or(0, |span| span.start), what)
        })?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let offset = raw.table.span().start;
        let table = raw.table.into_inner();
        let zero_pool = table.zero_pool.unwrap_or(DEFAULT_ZERO_POOL);
        if table.name.is_empty() || zero_pool > MAX_POOL {
            return Err(error(offset, format!("the table needs a name, and a zero_pool of at most {MAX_POOL}")));
        }
        let mut columns = BTreeMap::new();
        for (name, column) in raw.column {
            let offset = column.span().start;
            let checked = column.into_inner().check(folder, table.hide_nulls);
            let checked = checked.map_err(|fault| match fault {
                Fault::Here(what) => error(offset, format!("column {name}: {what}")),
                Fault::Attachment(other) => other,
            })?;
            columns.insert(name, checked);
        }
        if columns.is_empty() {
            return Err(error(0, "no column is declared; write a section [column.NAME] for each".to_owned()));
        }
        let mut dictionaries = BTreeMap::new();
        for (name, dictionary) in raw.dictionary {
            let offset = dictionary.span().start;
            let dictionary = dictionary.into_inner();
            if dictionary.pad_to > MAX_POOL
                || dictionary.max_length.is_some_and(|length| length == 0 || length > MAX_TEXT)
            {
                let what = format!("pad_to is at most {MAX_POOL}, max_length from 1 to {MAX_TEXT}");
                return Err(error(offset, format!("dictionary {name}: {what}")));
            }
            let (file, pad_to) = (folder.join(dictionary.file), dictionary.pad_to);
            dictionaries.insert(name, DictionaryDeclaration { file, pad_to, max_length: dictionary.max_length });
        }
        Ok(Self { table: table.name, zero_pool, columns, dictionaries })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDeclaration {
    table: Spanned<RawTable>,
    #[serde(default)]
    column: BTreeMap<String, Spanned<RawColumn>>,
    #[serde(default)]
    dictionary: BTreeMap<String, Spanned<RawDictionary>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    name: String,
    #[serde(default)]
    hide_nulls: bool,
    zero_pool: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDictionary {
    file: PathBuf,
    #[serde(default)]
    pad_to: usize,
    max_length: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Declaration, OwnerError> {
        Declaration::parse(text, Path::new("data.toml"))
    }

    fn refused(column: &str) -> String {
        parse(&format!("[table]\nname = \"t\"\n\n[column.c]\n{column}\n")).unwrap_err().to_string()
    }

    #[test]
    fn the_documented_example_is_understood() {
        let declaration = parse(
            r#"
            [table]
            name = "patients"
            hide_nulls = true
            [column.name]
            kind = "text"
            max_length = 24
            identifier = true
            [column.age]
            kind = "integer"
            range = [0, 120]
            hide_nulls = false
            [column.salary]
            kind = "decimal"
            scale = 2
            range = [0, 250000]
            weight = 2.5
            [column.born]
            kind = "date"
            range = [1900-01-01, "2030-12-31"]
            [column.seen]
            kind = "timestamp"
            range = [2000-01-01T00:00:00Z, 2030-01-01T00:00:00Z]
            [column.smoker]
            kind = "binary"
            values = ["no", "yes"]
            [column.region]
            kind = "clear"
            [dictionary.names]
            file = "names.txt"
            pad_to = 4096
            "#,
        )
        .unwrap();
        let range = |name: &str| match &declaration.columns[name].kind {
            ColumnKind::Number { low, high, .. } => (*low, *high),
            other => panic!("{other:?}"),
        };
        assert_eq!(range("age"), (0, 120));
        assert_eq!(range("salary"), (0, 25_000_000));
        assert_eq!(range("born"), (-25_567, 22_279));
        assert_eq!(range("seen"), (946_684_800, 1_893_456_000));
        assert!(declaration.columns["name"].identifier && declaration.columns["name"].hide_nulls);
        assert!(!declaration.columns["age"].hide_nulls);
        assert_eq!(declaration.columns["salary"].weight, 2500);
        assert_eq!(declaration.dictionaries["names"].pad_to, 4096);
    }

    #[test]
    fn errors_name_the_line_and_the_remedy() {
        let error = parse("[table]\nname = \"t\"\n[column.age]\nkind = \"integer\"\nrnage = [0, 1]\n").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("data.toml, line 5: unknown field `rnage`, expected one of `kind`"), "{text}");
        for (column, expected) in [
            ("kind = \"int\"", "line 5: unknown variant `int`"),
            ("kind = \"integer\"", "line 4: column c: it needs range"),
            ("kind = \"integer\"\nrange = [5, 1]", "range: 5 lies above 1"),
            ("kind = \"integer\"\nrange = [0, 5000000000]", "beyond 32 bits"),
            ("kind = \"integer\"\nrange = [0, 1.5]", "`1.5` is not a whole number"),
            (
                "kind = \"integer\"\nrange = [0, 1]\nscale = 2",
                "`scale` means nothing for kind integer; it belongs to decimal",
            ),
            ("kind = \"decimal\"\nrange = [0, 1]", "needs scale"),
            ("kind = \"text\"", "needs max_length"),
            ("kind = \"text\"\nmax_length = 9999", "from 1 to 1518"),
            ("kind = \"binary\"\nvalues = [\"a\"]", "two different labels"),
            ("kind = \"category\"", "either hierarchy"),
            ("kind = \"category\"\nvalues = [\"a\", \"a\"]", "repeats the leaf `a`"),
            ("kind = \"clear\"\ntype = \"Int65\"", "not an Arrow type"),
            ("kind = \"clear\"\nidentifier = true", "`identifier` means nothing for kind clear"),
            ("kind = \"boolean\"\nweight = 0.0", "weight is 0"),
            ("kind = \"date\"\nrange = [\"1900-01-01\", \"tomorrow\"]", "`tomorrow` is not a date"),
        ] {
            let text = refused(column);
            assert!(text.contains(expected), "{column}\n gave: {text}\n not:  {expected}");
        }
        assert!(parse("[table]\nname = \"t\"").unwrap_err().to_string().contains("no column"));
        assert!(parse("").unwrap_err().to_string().contains("missing field `table`"));
        assert!(refused("kind = \"category\"\nhierarchy = \"absent.csv\"").starts_with("absent.csv: "));
    }
}
