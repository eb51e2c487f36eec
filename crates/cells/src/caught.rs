//! The readers of Arrow IPC and Parquet panic on some damaged bytes. Damaged bytes are an error, not a crash.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a reader; a panic becomes an error with its text, which may quote what was read.
pub fn caught<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    let before = GUARDED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(before);
    outcome.map_err(|panic| text_of(&*panic).to_owned())
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
    fn a_panic_is_an_error_with_its_text() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught(|| panic!("no such {}", "type")), Err::<(), _>("no such type".to_owned()));
        assert_eq!(caught(|| panic!("damaged")), Err::<(), _>("damaged".to_owned()));
    }
}
