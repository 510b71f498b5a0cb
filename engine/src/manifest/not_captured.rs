//! The left-out paths of a snapshot, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{LeftOutState, SnapshotManifest, TrackedRoot};
use crate::byte_path;
use crate::path_text::serde_path;
use crate::walk::Filter;

/// A path that is not in a snapshot. Nothing below it is either, unless it is force-included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCaptured {
    /// The absolute path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// Why.
    #[serde(flatten)]
    pub reason: NotCapturedReason,
    /// How it was, if a change of it is worth a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<LeftOutState>,
}

impl NotCaptured {
    /// Whether it is a directory that was proved to be made again by a program.
    pub fn is_rebuildable(&self) -> bool {
        self.state.as_ref().is_some_and(LeftOutState::is_rebuildable)
    }
}

/// Why a path is not in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum NotCapturedReason {
    /// The filter leaves it out.
    Excluded {
        /// The rule: `pattern node_modules`, `glob *.pyc`, `.gitignore: /target`.
        rule: String,
    },
    /// It could not be read.
    Unreadable {
        /// The answer of the system.
        error: String,
        /// Whether its permissions are the reason.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_denied: bool,
    },
    /// A socket or device: its entry is recorded, and it has no contents to read.
    Special,
    /// The snapshot was full.
    OverBudget,
    /// Another file system is mounted there that has no files of its own (FUSE, proc, …).
    OtherFileSystem,
}

impl NotCapturedReason {
    /// Whether something is missing that the user did not ask to leave out.
    pub fn is_problem(&self) -> bool {
        !matches!(self, Self::Excluded { .. } | Self::Special)
    }
}

impl std::fmt::Display for NotCapturedReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Excluded { rule } => write!(f, "excluded by {rule}"),
            Self::Unreadable { error, .. } => f.write_str(error),
            Self::Special => f.write_str("a socket or a device has no contents"),
            Self::OverBudget => f.write_str("over the budget"),
            Self::OtherFileSystem => f.write_str("another file system is mounted there"),
        }
    }
}

/// The paths that a capture left out, for looking up.
#[derive(Debug)]
pub struct NotCapturedSet<'a> {
    paths: BTreeMap<&'a [u8], &'a NotCaptured>,
    /// Paths in left-out directories that are known not to have existed.
    absent: BTreeSet<&'a [u8]>,
    filters: Vec<(&'a [u8], Filter)>,
}

impl<'a> NotCapturedSet<'a> {
    /// The set of one manifest.
    pub fn new(manifest: &'a SnapshotManifest) -> Self {
        let absent = manifest.known_absent.iter().map(|path| path.as_os_str().as_bytes());
        Self { absent: absent.collect(), ..Self::of(&manifest.roots, &manifest.not_captured) }
    }

    /// The set of a capture of `roots`.
    pub fn of(roots: &'a [TrackedRoot], not_captured: &'a [NotCaptured]) -> Self {
        let paths = not_captured
            .iter()
            // A socket or device is in the tree; only contents that it does not have are missing.
            .filter(|left| left.reason != NotCapturedReason::Special)
            .map(|left| (left.path.as_os_str().as_bytes(), left))
            .collect();
        let filters = roots
            .iter()
            .filter_map(|root| {
                let filter = Filter::new(&root.exclusion).ok()?;
                Some((root.path.as_os_str().as_bytes(), filter))
            })
            .collect();
        Self { paths, absent: BTreeSet::new(), filters }
    }

    /// Whether this very path was left out.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        self.paths.contains_key(path)
    }

    /// Whether this very path is there, and its permissions do not let it be read.
    pub(crate) fn is_denied(&self, path: &[u8]) -> bool {
        use NotCapturedReason::Unreadable;
        let left = self.paths.get(path);
        left.is_some_and(|left| matches!(left.reason, Unreadable { is_denied: true, .. }))
    }

    /// Whether something below `path` is known not to have existed, though `path` was left out.
    pub(crate) fn knows_absence_below(&self, path: &[u8]) -> bool {
        let below = [path, b"/"].concat();
        self.absent.range(&*below..).next().is_some_and(|found| found.starts_with(&below))
    }

    /// Whether something below `path` was left out.
    pub fn is_above(&self, path: &[u8]) -> bool {
        let below = [path, b"/"].concat();
        self.paths.range(&*below..).next().is_some_and(|(found, _)| found.starts_with(&below))
    }

    /// Why something right in the directory `path` could not be captured; `None` if nothing was
    /// missed.
    pub fn problem_in(&self, path: &[u8]) -> Option<&'a NotCapturedReason> {
        let below = [path, b"/"].concat();
        self.paths
            .range(&*below..)
            .take_while(|(found, _)| found.starts_with(&below))
            .find(|(found, left)| left.reason.is_problem() && !found[below.len()..].contains(&b'/'))
            .map(|(_, left)| &left.reason)
    }

    /// Why the state of `path` is unknown: it, or a directory above it, was not captured.
    pub fn reason(&self, path: &[u8]) -> Option<&'a NotCapturedReason> {
        if self.absent.contains(path) {
            return None;
        }
        byte_path::ancestors(path)
            .chain([path])
            .filter_map(|prefix| Some((prefix, *self.paths.get(prefix)?)))
            // Force-included names were looked for below an excluded directory too.
            .find(|(prefix, left)| {
                let is_excluded = matches!(left.reason, NotCapturedReason::Excluded { .. });
                // In what is made again, not for what merely has the right name.
                let pruned = left.is_rebuildable().then_some(*prefix);
                !(is_excluded && *prefix != path && self.is_forced(path, pruned))
            })
            .map(|(_, left)| &left.reason)
    }

    /// Whether the snapshot says of `path` that it is there or is not: it was tracked and captured.
    pub fn knows(&self, path: &[u8]) -> bool {
        let is_tracked = self.filters.iter().any(|(root, _)| byte_path::is_in(path, root));
        is_tracked && self.reason(path).is_none()
    }

    fn is_forced(&self, path: &[u8], pruned: Option<&[u8]>) -> bool {
        self.filters.iter().any(|(root, filter)| {
            let depth = pruned.and_then(|dir| byte_path::relative_to(dir, root));
            let depth = depth.and_then(|dir| byte_path::components(dir).count().checked_sub(1));
            byte_path::relative_to(path, root)
                .is_some_and(|inside| !inside.is_empty() && filter.is_forced(inside, false, depth))
        })
    }
}
