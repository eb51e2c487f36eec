//! The reader of Arrow IPC panics on some damaged messages. A damaged message is an error, not a crash.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use veil_protocols::ProtocolError;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a reader; a panic becomes an error about the message. Its text stays here: it may quote what was sent.
pub(crate) fn guarded<T>(read: impl FnOnce() -> Result<T, ProtocolError>) -> Result<T, ProtocolError> {
    let before = GUARDED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(before);
    outcome.unwrap_or_else(|_| Err(ProtocolError::Malformed("its Arrow encoding is damaged".to_owned())))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_about_the_message() {
        let error = guarded::<()>(|| panic!("what was sent")).unwrap_err();
        assert_eq!(error.to_string(), "malformed message: its Arrow encoding is damaged");
    }
}
