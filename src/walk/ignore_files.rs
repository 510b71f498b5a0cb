//! `.gitignore` files, nested: the deepest one that has an opinion decides.

use std::io;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::path_text::{Shown, to_path};
use crate::sys::Dir;

/// Name of the files that are read.
pub(super) const IGNORE_FILE: &[u8] = b".gitignore";
/// A larger `.gitignore` is not read; more is captured then, never less.
const MAX_IGNORE_BYTES: u64 = 1 << 20;

/// The rules of one directory, and through `parent` those above it.
#[derive(Debug)]
pub struct IgnoreLevel {
    /// Directory of the file, relative to the tracked path; empty at the top.
    base: Box<[u8]>,
    rules: Gitignore,
    parent: Option<Arc<IgnoreLevel>>,
}

impl IgnoreLevel {
    /// Adds the `.gitignore` of a directory to the rules above it. A file that is missing, a
    /// symlink (git does not follow one either), or not readable adds nothing.
    pub fn descend(dir: &Dir, relative: &[u8], parent: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let Ok(bytes) = dir.read(IGNORE_FILE, MAX_IGNORE_BYTES) else { return parent };
        let mut builder = GitignoreBuilder::new("");
        let text = String::from_utf8_lossy(&bytes);
        for line in text.trim_start_matches('\u{feff}').lines() {
            // A line that is no valid glob ignores nothing, as in git.
            let _ = builder.add_line(None, line);
        }
        match builder.build() {
            Ok(rules) if !rules.is_empty() => {
                Some(Arc::new(Self { base: relative.into(), rules, parent }))
            }
            _ => parent,
        }
    }

    /// The rule that ignores a path (relative to the tracked path), if one does.
    pub(super) fn judge(&self, relative: &[u8], is_dir: bool) -> Option<String> {
        let mut level = Some(self);
        while let Some(current) = level {
            let inner = match current.base.len() {
                0 => relative,
                len => &relative[len + 1..],
            };
            match current.rules.matched(to_path(inner), is_dir) {
                Match::None => level = current.parent.as_deref(),
                Match::Whitelist(_) => return None,
                Match::Ignore(rule) => {
                    let slash = if current.base.is_empty() { "" } else { "/" };
                    let base = Shown::bytes(&current.base);
                    return Some(format!("{base}{slash}.gitignore: {}", rule.original()));
                }
            }
        }
        None
    }
}

/// Whether an error means that a directory's list ended early because it is being removed.
pub(super) fn is_vanishing(error: &crate::sys::Error) -> bool {
    error.is_gone() || error.kind() == io::ErrorKind::StaleNetworkFileHandle
}
