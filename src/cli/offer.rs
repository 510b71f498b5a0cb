//! The program in commands that are offered: as it has to be typed to mean this store.
//!
//! A store that a flag names is meant by the same flag alone. So each offered command begins with
//! [`NONO`], wherever it is printed: `format!("{NONO} undo {id}")`.

use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

use super::shell_word::shell_word;

/// The store of this command, in a form for a shell; unset where no flag names it.
static STORE: OnceLock<String> = OnceLock::new();

/// `nono`, with the flag for the store where one is needed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nono;

/// See [`Nono`].
pub(super) const NONO: Nono = Nono;

impl fmt::Display for Nono {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match STORE.get() {
            Some(store) => write!(f, "nono --root {store}"),
            None => f.write_str("nono"),
        }
    }
}

/// Names a store in all commands that are offered from here on. The first call counts.
pub(super) fn name_store(root: &Path) {
    if let Some(root) = shell_word(root) {
        let _ = STORE.set(root);
    }
}
