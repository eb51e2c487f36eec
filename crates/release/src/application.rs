//! What the engine asks the key holder to release: to whom, from which query, which columns of which types.

use serde::{Deserialize, Serialize};
use veil_cells::{CellType, KeyId};

use crate::{ReleaseError, ReleaseId};

/// The most columns of a release.
pub const MAX_COLUMNS: usize = 1024;

/// The most bytes of an application.
pub const MAX_APPLICATION_BYTES: usize = 4 << 20;

/// An application for a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// The release. A retry keeps the name.
    pub release: ReleaseId,
    /// The key set of every encrypted column.
    pub key_set: KeyId,
    /// Who is to receive it, by the name in the policy.
    pub recipient: String,
    /// The query, for the manifest.
    pub query: String,
    /// The engine's software, for the manifest.
    pub software: String,
    /// The columns, in their order.
    pub columns: Vec<AskedColumn>,
}

/// A column of the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedColumn {
    /// Its name in the result.
    pub name: String,
    /// What it is.
    pub content: Content,
}

/// What a column is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Content {
    /// Cells.
    Encrypted {
        /// Their type.
        cell_type: CellType,
        /// The field's sealed note.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sealed: Option<String>,
        /// The field's encrypted bounds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        constants: Option<String>,
        /// The shape of the field's hierarchy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<String>,
    },
    /// Values that the engine sees.
    Clear {
        /// Their Arrow type, as Arrow prints it.
        data_type: String,
    },
}

impl Application {
    /// Reads an application and checks its size, its columns' types and their key set.
    pub fn parse(json: &[u8]) -> Result<Self, ReleaseError> {
        if json.len() > MAX_APPLICATION_BYTES {
            return Err(ReleaseError::TooLarge { what: "the application", limit: "4 MiB" });
        }
        let wrong = |why: String| ReleaseError::Malformed { what: "the application", why };
        let read: Self = serde_json::from_slice(json).map_err(|error| wrong(error.to_string()))?;
        if read.columns.len() > MAX_COLUMNS {
            return Err(ReleaseError::TooLarge { what: "the application", limit: "1024 columns" });
        }
        for AskedColumn { name, content } in &read.columns {
            let Content::Encrypted { cell_type, .. } = content else { continue };
            if cell_type.key != read.key_set {
                let (found, expected) = (cell_type.key, read.key_set);
                return Err(ReleaseError::WrongKeySet { what: "a column of the application", found, expected });
            }
            // As a field, the type is checked as a file's is.
            cell_type
                .field(name)
                .and_then(|field| CellType::of_field(&field))
                .map_err(|error| ReleaseError::Column { column: name.clone(), why: error.to_string() })?;
        }
        Ok(read)
    }

    /// The application's bytes.
    pub fn to_json(&self) -> Result<Vec<u8>, ReleaseError> {
        serde_json::to_vec(self)
            .map_err(|error| ReleaseError::Malformed { what: "the application", why: error.to_string() })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use veil_cells::{ColumnId, Kind, Role, Width};

    use super::*;

    pub(crate) const KEY: KeyId = KeyId([7; 8]);

    pub(crate) fn encrypted(table: &str, name: &str, spent: u64) -> AskedColumn {
        let column = ColumnId::of(KEY, table, name);
        let cell_type = CellType { spent, ..CellType::new(Kind::Integer, Width::NARROWEST, 1, KEY, column) };
        let content = Content::Encrypted { cell_type, sealed: None, constants: None, shape: None };
        AskedColumn { name: name.to_owned(), content }
    }

    pub(crate) fn suppressed() -> AskedColumn {
        let mut flag = encrypted("anon", "suppressed", 0);
        if let Content::Encrypted { cell_type, .. } = &mut flag.content {
            (cell_type.kind, cell_type.role) = (Kind::Boolean, Role::Suppressed);
        }
        flag
    }

    pub(crate) fn clear(name: &str) -> AskedColumn {
        AskedColumn { name: name.to_owned(), content: Content::Clear { data_type: "Utf8".to_owned() } }
    }

    pub(crate) fn asking(columns: Vec<AskedColumn>) -> Application {
        Application {
            release: ReleaseId([9; 16]),
            key_set: KEY,
            recipient: "alice".to_owned(),
            query: "SELECT 1".to_owned(),
            software: "veil 0.1.0".to_owned(),
            columns,
        }
    }

    #[test]
    fn the_text_is_pinned_and_round_trips() {
        let application = asking(vec![encrypted("patients", "born", 0), clear("region")]);
        let json = application.to_json().unwrap();
        assert_eq!(Application::parse(&json).unwrap(), application);
        let column = ColumnId::of(KEY, "patients", "born");
        assert_eq!(
            String::from_utf8(json).unwrap(),
            format!(
                r#"{{"release":"09090909090909090909090909090909","key_set":"0707070707070707","recipient":"alice","query":"SELECT 1","software":"veil 0.1.0","columns":[{{"name":"born","content":{{"encrypted":{{"cell_type":{{"version":2,"kind":"integer","width":8,"lanes":1,"key":"0707070707070707","column":"{column}"}}}}}}}},{{"name":"region","content":{{"clear":{{"data_type":"Utf8"}}}}}}]}}"#
            )
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let json = String::from_utf8(asking(vec![encrypted("t", "c", 0), clear("r")]).to_json().unwrap()).unwrap();
        for (good, bad, says) in [
            ("\"query\"", "\"quarry\"", "unknown field"),
            ("\"data_type\"", "\"more\":1,\"data_type\"", "unknown field"),
            ("\"lanes\":1", "\"lanes\":9", "column c: "),
            ("\"version\":2", "\"version\":3", "use a newer veil"),
            ("\"key\":\"07", "\"key\":\"08", "a column of the application is for key set 08"),
            ("{\"release\"", "[{\"release\"", "the application cannot be read"),
        ] {
            let text = json.replacen(good, bad, 1);
            assert_ne!(text, json);
            let error = Application::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let many = asking((0..=MAX_COLUMNS).map(|_| clear("c")).collect()).to_json().unwrap();
        assert!(Application::parse(&many).unwrap_err().to_string().contains("1024 columns"));
        let mut long = asking(vec![clear("c")]);
        long.query = "x".repeat(MAX_APPLICATION_BYTES);
        assert!(Application::parse(&long.to_json().unwrap()).unwrap_err().to_string().contains("4 MiB"));
    }
}
