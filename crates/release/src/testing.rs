//! Desks for tests.

use veil_cells::KeyId;

use crate::{DeskKeys, Ledger, Policy, ReleaseDesk};

/// A desk under a policy that lets anybody ask anything about any table, of one row already, and releases nothing. It takes every census as another
/// desk does.
pub fn permissive_desk<K: DeskKeys>(key_set: KeyId, keys: K) -> ReleaseDesk<K> {
    let text = format!("[policy]\nkey_set = \"{key_set}\"\n{PERMISSIVE_ASK}");
    ReleaseDesk::new(Policy::parse(&text).ok(), Ledger::in_memory(), keys)
}

/// What a policy of a test says about questions.
pub const PERMISSIVE_ASK: &str = "[ask]\nmin_rows = 1\nnumbers = 1000000000\n";
