//! A damaged file is an error, not a crash.

use std::path::Path;

use veil_cells::caught;

use crate::OwnerError;

/// Runs a reader; a panic becomes an error about the file.
pub(crate) fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, OwnerError>) -> Result<T, OwnerError> {
    caught(read).unwrap_or_else(|why| {
        Err(OwnerError::Unreadable { file: path.to_owned(), why: format!("it is damaged: {why}") })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_about_the_file() {
        let error = guarded::<()>(Path::new("x.arrow"), || panic!("no such {}", "type")).unwrap_err();
        assert_eq!(error.to_string(), "x.arrow: it is damaged: no such type");
    }
}
