//! The readers of Arrow IPC and Parquet panic on some damaged files. A damaged file is an error, not a crash.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::OwnerError;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a reader; a panic becomes an error about the file.
pub(crate) fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, OwnerError>) -> Result<T, OwnerError> {
    let before = GUARDED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(before);
    outcome.unwrap_or_else(|panic| {
        let why = format!("it is damaged: {}", text_of(&*panic));
        Err(OwnerError::Unreadable { file: path.to_owned(), why })
    })
}

/// Keeps caught panics off standard error, for programs that report errors themselves.
pub fn hide_caught_panics() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !GUARDED.get() {
            previous(info);
        }
    }));
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("its reader gave up")
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
