//! `.gitignore` files, nested: the deepest one that has an opinion decides.

use std::io;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::exclusion::Verdict;
use crate::path_text::{Shown, to_path};
use crate::sys::{self, Dir, FileKind};

/// Name of the files that are read.
pub(super) const IGNORE_FILE: &[u8] = b".gitignore";
/// A larger `.gitignore` is not read; more is captured then, never less.
const MAX_IGNORE_BYTES: u64 = 1 << 20;

/// The rules of one directory, and through `parent` those above it.
#[derive(Debug)]
pub struct IgnoreLevel {
    /// Directory of the file, relative to the tracked path; empty at the top.
    base: Box<[u8]>,
    rules: Rules,
    parent: Option<Arc<IgnoreLevel>>,
}

#[derive(Debug)]
enum Rules {
    Read(Gitignore),
    /// There are some, and this is why they are not known.
    Unreadable(String),
}

impl IgnoreLevel {
    /// Adds the `.gitignore` of a directory to the rules above it. What is no regular file (git does
    /// not follow a symlink either) or too large adds nothing. One that cannot be read makes everything below
    /// unknown of which no deeper file says something.
    pub fn descend(dir: &Dir, relative: &[u8], parent: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let bytes = match dir.read(IGNORE_FILE, MAX_IGNORE_BYTES) {
            Ok(bytes) => bytes,
            // Most directories have none, and are not asked twice.
            Err(error) if error.is_gone() || !has_rules(dir) => return parent,
            Err(error) => {
                let rules = Rules::Unreadable(error.to_string());
                return Some(Arc::new(Self { base: relative.into(), rules, parent }));
            }
        };
        let mut builder = GitignoreBuilder::new("");
        let text = String::from_utf8_lossy(&bytes);
        for line in text.trim_start_matches('\u{feff}').lines() {
            // A line that is no valid glob ignores nothing, as in git.
            let _ = builder.add_line(None, line);
        }
        match builder.build() {
            Ok(rules) if !rules.is_empty() => {
                let rules = Rules::Read(rules);
                Some(Arc::new(Self { base: relative.into(), rules, parent }))
            }
            _ => parent,
        }
    }

    /// What the rules say of a path (relative to the tracked path).
    pub(super) fn judge(&self, relative: &[u8], is_dir: bool) -> Verdict {
        let mut level = Some(self);
        while let Some(current) = level {
            let inner = match current.base.len() {
                0 => relative,
                len => &relative[len + 1..],
            };
            let rules = match &current.rules {
                Rules::Read(rules) => rules,
                Rules::Unreadable(error) => {
                    return Verdict::Unknown(format!("it may be ignored: {error}"));
                }
            };
            match rules.matched(to_path(inner), is_dir) {
                Match::None => level = current.parent.as_deref(),
                Match::Whitelist(_) => return Verdict::Included,
                Match::Ignore(rule) => {
                    let slash = if current.base.is_empty() { "" } else { "/" };
                    let base = Shown::bytes(&current.base);
                    let rule = rule.original();
                    return Verdict::Ignored(format!("{base}{slash}.gitignore: {rule}"));
                }
            }
        }
        Verdict::Included
    }
}

/// Whether there is an ignore file that counts, read or not.
fn has_rules(dir: &Dir) -> bool {
    let counts = |stat: &sys::Stat| stat.kind == FileKind::File && stat.size <= MAX_IGNORE_BYTES;
    dir.try_stat(IGNORE_FILE).map_or(true, |stat| stat.is_some_and(|stat| counts(&stat)))
}

/// Whether an error means that a directory's list ended early because it is being removed.
pub(super) fn is_vanishing(error: &crate::sys::Error) -> bool {
    error.is_gone() || error.kind() == io::ErrorKind::StaleNetworkFileHandle
}
