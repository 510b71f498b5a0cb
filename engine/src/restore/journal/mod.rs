//! The journal of a restore: the facts for finishing it, or for reverting it, after a crash.
//!
//! It lies in the session's directory from before the first staging directory is made until the
//! last one is gone, and is only ever replaced as a whole. Without work in it, there are staging
//! directories to clear away and nothing else to do: it says whether no path has changed yet or all
//! have. With work, the commit has begun: the steps are all listed. The disk shows how far it came,
//! so that carrying out a step twice is the same as once. `docs/format.md` has the bytes. The
//! decoder is total: any bytes give a journal or an error.

mod codec;
mod storage;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::plan::Skipped;
use crate::byte_path;
use crate::diff::{ChangeType, Comparison, Difference, EntryState, Lost, Told, is_refreshed};
use crate::object::FileTime;
use crate::snapshot::{RestoreCommand, RestoreRecord};
use crate::store::ObjectSource;
pub(super) use crate::walk::STAGING_PREFIX as AREA_PREFIX;
pub(super) use storage::JournalError;

const AREA_DIGITS: usize = 16;

/// Everything about one restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Journal {
    /// The snapshot that is brought back.
    pub(super) snapshot: u64,
    /// The snapshot of the state before, unless none was taken.
    pub(super) safety: Option<u64>,
    pub(super) areas: Vec<AreaRecord>,
    /// The steps, from when the first path may have changed until the last has.
    pub(super) work: Option<Work>,
    /// The end of the steps, from then on; none while there are steps, and before them.
    pub(super) end: Option<End>,
    /// The part of the report that is known before the first step.
    pub(super) facts: Facts,
}

/// The state of every path once no step is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The paths have the state of the snapshot.
    Finished,
    /// The paths have the state before the restore.
    TakenBack,
}

/// The part of a report that whoever ends the restore after a crash cannot find out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Facts {
    /// Whether only a part was asked for.
    pub(super) is_partial: bool,
    /// The command.
    #[serde(default, skip_serializing_if = "RestoreCommand::is_restore")]
    pub(super) command: RestoreCommand,
    /// Whether single steps of a session are taken back.
    pub(super) undoes_steps: bool,
    /// Whether paths that were asked for stay as they are.
    pub(super) left_some: bool,
    /// Whether files with later changes were merged.
    pub(super) has_merged: bool,
    /// Whether the session itself changed the paths and restored nothing: it has no record of that.
    pub(super) is_own_work: bool,
    /// Left-out paths of the snapshot that are gone or different.
    pub(super) lost: Vec<Lost>,
    /// With [`End::Finished`]: the paths that differ from the snapshot.
    pub(super) skipped: Vec<Skipped>,
}

impl Facts {
    /// The facts that a session will tell of it; `None`: it will say nothing.
    pub(super) fn of(record: Option<&RestoreRecord>) -> Self {
        let Some(record) = record else {
            return Self { is_partial: true, is_own_work: true, ..Self::default() };
        };
        Self {
            is_partial: record.is_partial,
            command: record.command,
            undoes_steps: record.undoes_steps,
            left_some: record.left_some,
            has_merged: record.has_merged,
            ..Self::default()
        }
    }
}

/// A staging directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AreaRecord {
    /// The directory it is in: absolute.
    pub(super) parent: Vec<u8>,
    pub(super) name: Vec<u8>,
    /// The time that the parent gets when the staging directory is gone.
    pub(super) mtime: FileTime,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Work {
    /// The kernel's time before the safety snapshot: a file with an older ctime is as captured.
    pub(super) started: FileTime,
    /// In the order in which they are taken.
    pub(super) steps: Vec<Step>,
    /// The paths that stay as they are on purpose, for the report.
    pub(super) skipped: Vec<Skipped>,
}

/// A name in a staging directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Staged {
    pub(super) area: usize,
    pub(super) number: u64,
}

impl Staged {
    pub(super) fn name(self) -> Vec<u8> {
        self.number.to_string().into_bytes()
    }
}

/// One step of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The file at the path, no directory, is moved into the staging directory.
    Remove {
        path: Vec<u8>,
        current: Arc<EntryState>,
        staged: Staged,
    },
    /// An empty directory goes.
    RemoveDirectory {
        path: Vec<u8>,
        current: Arc<EntryState>,
    },
    MakeDirectory {
        path: Vec<u8>,
    },
    /// A directory that is staged with everything in it gets a path that is free. `steps` would
    /// make the same piece by piece, which is how it is finished when the user took a part of it
    /// away; taking it back is always done so.
    PlaceTree {
        path: Vec<u8>,
        staged: Staged,
        steps: Vec<Step>,
    },
    /// The staged inode with this number gets a path that is free.
    Place {
        path: Vec<u8>,
        target: Arc<EntryState>,
        staged: Staged,
        ino: u64,
    },
    /// The staged file and the file at the path change places.
    Exchange {
        path: Vec<u8>,
        current: Arc<EntryState>,
        target: Arc<EntryState>,
        staged: Staged,
        ino: u64,
        /// Whether it was linked to other names than it will be.
        is_relinked: bool,
    },
    /// An inode that stays gets other attributes; without a current state it is a directory that an
    /// earlier step makes.
    Attributes {
        path: Vec<u8>,
        current: Option<Arc<EntryState>>,
        target: Arc<EntryState>,
    },
}

impl Step {
    pub(super) fn path(&self) -> &[u8] {
        match self {
            Self::Remove { path, .. }
            | Self::RemoveDirectory { path, .. }
            | Self::MakeDirectory { path }
            | Self::PlaceTree { path, .. }
            | Self::Place { path, .. }
            | Self::Exchange { path, .. }
            | Self::Attributes { path, .. } => path,
        }
    }

    /// The steps of a tree; of any other, itself.
    pub(super) fn pieces(&self) -> &[Self] {
        match self {
            Self::PlaceTree { steps, .. } => steps,
            other => std::slice::from_ref(other),
        }
    }

    fn into_told(self, source: &dyn ObjectSource) -> Option<(Vec<u8>, Told)> {
        let (old, new) = self.states();
        let (old, new) = (old.cloned(), new.cloned());
        let is_relinked = matches!(self, Self::Exchange { is_relinked: true, .. });
        let path = match self {
            Self::Remove { path, .. }
            | Self::RemoveDirectory { path, .. }
            | Self::MakeDirectory { path }
            | Self::PlaceTree { path, .. }
            | Self::Place { path, .. }
            | Self::Exchange { path, .. }
            | Self::Attributes { path, .. } => path,
        };
        let (was, is) = (old.as_deref().map(|it| &it.node), new.as_deref().map(|it| &it.node));
        let is_refreshed = is_refreshed(source, &path, was, is);
        let difference = Difference { path, old, new, is_relinked, is_refreshed };
        let told = difference.told()?;
        Some((difference.path, told))
    }

    /// The state of its path before, and the one after, as far as it is about that.
    pub(super) fn states(&self) -> (Option<&Arc<EntryState>>, Option<&Arc<EntryState>>) {
        match self {
            Self::Remove { current, .. } | Self::RemoveDirectory { current, .. } => {
                (Some(current), None)
            }
            Self::MakeDirectory { .. } | Self::PlaceTree { .. } => (None, None),
            Self::Place { target, .. } => (None, Some(target)),
            Self::Exchange { current, target, .. } => (Some(current), Some(target)),
            Self::Attributes { current, target, .. } => (current.as_ref(), Some(target)),
        }
    }
}

impl Work {
    /// The changes of the steps, sorted by path; directories before their contents. The steps
    /// become it: there may be millions. `source` has the contents of git's indexes.
    pub(super) fn into_comparison(self, source: &dyn ObjectSource) -> Comparison {
        let mut all = Vec::with_capacity(self.steps.iter().map(|s| s.pieces().len()).sum());
        let by_path = |(a, _): &(Vec<u8>, Told), (b, _): &(Vec<u8>, Told)| byte_path::order(a, b);
        for step in self.steps {
            match step {
                Step::PlaceTree { steps, .. } => {
                    let start = all.len();
                    all.extend(steps.into_iter().filter_map(|step| step.into_told(source)));
                    all[start..].sort_by(by_path);
                }
                step => all.extend(step.into_told(source)),
            }
        }
        // Each tree is one sorted run now; an unstable sort would make nothing of that.
        all.sort_by(by_path);
        let mut comparison = Comparison::default();
        for (path, told) in all {
            comparison.push(PathBuf::from(OsString::from_vec(path)), told);
        }
        // A directory that becomes a file is two steps and one change.
        comparison.changes.dedup_by(|second, first| {
            let is_one = second.path == first.path;
            if is_one {
                first.change_type = ChangeType::Modified;
                let sizes = [first.size_delta, second.size_delta];
                first.size_delta = sizes.into_iter().flatten().reduce(|a, b| a + b);
                // The obstacle goes first.
                first.is_directory = second.is_directory;
            }
            is_one
        });
        comparison
    }
}

/// Whether a name is that of a staging directory.
pub(super) fn is_area_name(name: &[u8]) -> bool {
    name.strip_prefix(AREA_PREFIX).is_some_and(|digits| {
        digits.len() == AREA_DIGITS && digits.iter().all(u8::is_ascii_hexdigit)
    })
}
