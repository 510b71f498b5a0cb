//! Why a restore did not happen.
//!
//! The same failure can end a restore, which then changed nothing, a recovery, which is then still
//! to be made, or a copy, which stays as far as it came. So the messages do not name the changes;
//! the caller knows them, or asks [`RestoreError::is_before_any_change`].

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use super::RestoreReport;
use super::conflicts::Conflict;
use super::journal::JournalError;
use super::plan::Skipped;
use crate::counted::counted;
use crate::path_text::{Shown, to_path};
use crate::snapshot::{ManifestError, NotCapturedReason, RemovedSnapshot, SnapshotError};
use crate::store::StoreError;
use crate::sys;

/// When something was at a path, as a part of a sentence.
fn when_there(is_now: bool, first: Option<u64>) -> String {
    match (is_now, first) {
        (true, Some(first)) => format!("it is there now, and first in snapshot {first}"),
        (true, None) => "it is there now, and in no snapshot".to_owned(),
        (false, Some(first)) => format!("it is first in snapshot {first}, and not there now"),
        (false, None) => "it is in no snapshot, and not there now".to_owned(),
    }
}

/// Maximum number of blocked paths that a message names.
const MAX_NAMED: usize = 10;

/// The files of a copy that did not come to its end.
fn files_were(count: u64) -> String {
    counted(count, "file was", "files were")
}

/// The removed paths of a restore that failed on a full disk.
fn going(count: usize) -> String {
    counted(count, "path that goes anyway is", "paths that go anyway are")
}

fn blocked_text(blocked: &[Skipped]) -> String {
    let mut text = counted(blocked.len(), "path cannot be changed", "paths cannot be changed");
    for Skipped { path, reason } in blocked.iter().take(MAX_NAMED) {
        text.push_str(&format!("\n  {}: {reason}", Shown::path(path)));
    }
    if let Some(more) = blocked.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        text.push_str(&format!("\n  and {more} more"));
    }
    text
}

/// Why a restore did not happen. Unless it is [`RestoreError::HalfDone`], or
/// [`RestoreError::Incomplete`] with what was done, nothing has changed; a recovery
/// ([`SnapshotManager::recover_restore`](crate::snapshot::SnapshotManager::recover_restore)) that
/// fails leaves the restore interrupted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The session or its snapshots cannot be used, or the current state could not be captured.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The contents of a file are missing from the store or damaged there.
    #[error("cannot restore {}: {source}", Shown::path(path))]
    Content {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: StoreError,
    },
    /// Paths cannot be changed, by this user or at all. Nothing was changed;
    /// [`RestoreOptions::skip_blocked`](super::RestoreOptions::skip_blocked) restores the rest.
    #[error("{}", blocked_text(blocked))]
    Blocked {
        /// The paths, each with the reason.
        blocked: Vec<Skipped>,
    },
    /// The path was changed after the safety snapshot was taken.
    #[error(
        "{} was changed by another process while it was restored; all was put back as it was",
        Shown::path(path)
    )]
    ChangedMeanwhile {
        /// The path.
        path: PathBuf,
    },
    /// The path was changed after the restore was interrupted.
    #[error(
        "{} was changed after the restore was interrupted: move it away and resume again, or take \
         the restore back",
        Shown::path(path)
    )]
    ChangedSince {
        /// The path.
        path: PathBuf,
    },
    /// A file that an interrupted restore had removed was changed since, by a process with an open
    /// descriptor: its new bytes are nowhere else.
    #[error(
        "what was at {} was changed after the restore was interrupted, and is in no snapshot: move \
         {} away and resume again, or take the restore back",
        Shown::path(path),
        Shown::path(staged)
    )]
    ChangedInStaging {
        /// The path.
        path: PathBuf,
        /// Where it is now.
        staged: PathBuf,
    },
    /// The new contents do not fit on the disk.
    #[error(
        "not enough space in {}: {needed} bytes are needed, {free} are free",
        Shown::path(path)
    )]
    NoSpace {
        /// A directory on the file system that is too full.
        path: PathBuf,
        /// Bytes that are needed there.
        needed: u64,
        /// Bytes that are free there.
        free: u64,
    },
    /// The project's disk has no room for what is restored, or this user may have no more of it.
    #[error(
        "no space on the disk of the project, mounted at {}: {cause}",
        Shown::path(mount_point)
    )]
    ProjectFull {
        /// Where the disk is mounted.
        mount_point: PathBuf,
        /// Paths that the restore removes, the longest contents first, each with all that is in
        /// it. A restore of them alone makes space. Nothing of a git directory is among them.
        removed: Vec<PathBuf>,
        /// The call that failed.
        cause: Box<RestoreError>,
    },
    /// On a full disk, what goes anyway was removed first, and then the rest failed. No path of the
    /// rest has changed.
    #[error("{} removed, and the rest is not restored: {cause}", going(*removed))]
    OnlyRemoved {
        /// The number of removed paths.
        removed: usize,
        /// The snapshot that holds them, unless there was no room for one.
        safety: Option<u64>,
        /// Why the rest failed.
        cause: Box<RestoreError>,
    },
    /// The journal of an interrupted restore cannot be read.
    #[error("the journal of a restore, {}, cannot be used: {reason}", Shown::path(path))]
    DamagedJournal {
        /// Where it is.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// The journal names a snapshot that the session does not have.
    #[error("the journal in {} does not belong to this session", Shown::path(session))]
    ForeignJournal {
        /// The session's directory.
        session: PathBuf,
    },
    /// An interrupted restore could not be taken back completely.
    #[error(
        "not everything could be put back: {}. What was replaced is in {}",
        rollback.join("; "),
        kept_in(staging, *safety)
    )]
    NotTakenBack {
        /// The paths that could not be put back.
        rollback: Vec<String>,
        /// Where the replaced files are.
        staging: Vec<PathBuf>,
        /// The snapshot that holds the state before, if there is one.
        safety: Option<u64>,
    },
    /// Another command undid or restored the session after this was decided on.
    #[error("session {session} was undone or restored meanwhile by another command")]
    RestoredMeanwhile {
        /// Its id.
        session: String,
    },
    /// The restore before which a snapshot was taken changed nothing, or is not known any more.
    #[error("the restore before snapshot {snapshot} of session {session} changed nothing")]
    ChangedNothing {
        /// The id of the session.
        session: String,
        /// The number that was named as its safety snapshot.
        snapshot: u64,
    },
    /// A command is at work on the paths.
    /// [`RestoreOptions::runs_at_work`](super::RestoreOptions::runs_at_work) allows that.
    #[error(
        "session {session} is running in {}: {}",
        tracked.first().map_or(String::new(), |path| Shown::path(path).to_string()),
        Shown::bytes(command.join(" ").as_bytes())
    )]
    RunAtWork {
        /// Its id.
        session: String,
        /// Its command.
        command: Vec<String>,
        /// The paths that it may write to.
        tracked: Vec<PathBuf>,
    },
    /// Paths were changed after the session, and the caller did not say what to do about them.
    #[error(
        "{} {} changed after the session, {} for one; nothing was changed",
        conflicts.len(),
        if conflicts.len() == 1 { "path was" } else { "paths were" },
        conflicts.first().map_or(String::new(), |first| Shown::path(&first.path).to_string())
    )]
    Conflicts {
        /// The paths.
        conflicts: Vec<Conflict>,
    },
    /// It was done, and some paths are not as they were in the snapshot.
    #[error("{}", incomplete(report))]
    Incomplete {
        /// The changes, and the skipped paths with their reasons.
        report: Box<RestoreReport>,
    },
    /// The state before a step was removed, and what the step did cannot be told from what the
    /// removed step did.
    #[error(
        "what step {step} of session {} did cannot be told from what came before it, because step \
         {} was {removed}",
        Shown::path(session),
        removed.number
    )]
    StepNotApart {
        /// The session's directory.
        session: PathBuf,
        /// The step that was to be taken back.
        step: u64,
        /// The step before it, when and why it was removed.
        removed: RemovedSnapshot,
    },
    /// A selected path is in none of the tracked paths.
    #[error(
        "the session has recorded nothing at {}: it records {}",
        Shown::path(path),
        Shown::path(tracked)
    )]
    NotTracked {
        /// The path as it was understood.
        path: PathBuf,
        /// The first of the tracked paths.
        tracked: PathBuf,
    },
    /// The snapshot left a selected path out.
    #[error("snapshot {snapshot} left {} out: {reason}", Shown::path(path))]
    PathLeftOut {
        /// The path as it was understood.
        path: PathBuf,
        /// The snapshot.
        snapshot: u64,
        /// Why.
        reason: NotCapturedReason,
    },
    /// A selected path is neither in the snapshot nor on the disk.
    #[error("there is nothing at {}, neither in snapshot {snapshot} nor now", Shown::path(path))]
    NoSuchPath {
        /// The path as it was understood.
        path: PathBuf,
        /// The snapshot.
        snapshot: u64,
    },
    /// The snapshot does not have a path that is or was there at another time.
    #[error(
        "there is nothing at {} in snapshot {snapshot}: {}",
        Shown::path(path),
        when_there(*is_now, *first)
    )]
    NotInSnapshot {
        /// The path as it was understood.
        path: PathBuf,
        /// The snapshot.
        snapshot: u64,
        /// Whether something is there now.
        is_now: bool,
        /// The first snapshot of the session that has it.
        first: Option<u64>,
    },
    /// Nothing that is or was there matches a glob.
    #[error(
        "nothing in snapshot {snapshot} or, as far as it is tracked, on the disk matches {}",
        Shown::path(pattern)
    )]
    NothingMatches {
        /// The glob as given.
        pattern: PathBuf,
        /// The snapshot.
        snapshot: u64,
    },
    /// A copy would be written into the store.
    #[error("cannot copy to {}: it lies in the store {}", Shown::path(to), Shown::path(store))]
    CopyIntoStore {
        /// Where the copy was to be.
        to: PathBuf,
        /// The store, or the session.
        store: PathBuf,
    },
    /// A copy would overwrite files of the project, and nothing of them would be kept.
    #[error(
        "cannot copy over files in {}: it lies in {}, and a copy keeps nothing that it overwrites",
        Shown::path(to),
        Shown::path(tracked)
    )]
    CopyOverProject {
        /// Where the copy was to be.
        to: PathBuf,
        /// The tracked path.
        tracked: PathBuf,
    },
    /// A copy came to a part of its end.
    #[error("{cause}; {} copied to {} before that", files_were(*written_count), Shown::path(to))]
    CopyUnfinished {
        /// Why it went no further.
        cause: Box<RestoreError>,
        /// Where the copy is.
        to: PathBuf,
        /// Files, links and pipes that are in it.
        written_count: u64,
    },
    /// A path of the snapshot is not a file.
    #[error("{} is a {kind}, and has no contents to print", Shown::path(path))]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// The kind of the node.
        kind: &'static str,
    },
    /// A glob cannot be understood.
    #[error("invalid glob {}: {reason}", Shown::path(pattern))]
    Pattern {
        /// The glob as given.
        pattern: PathBuf,
        /// The defect.
        reason: String,
    },
    /// A path is in no tracked path, or on a file system that cannot be reached from there.
    #[error("cannot restore {}: it is outside the tracked paths", Shown::path(path))]
    Outside {
        /// The path.
        path: PathBuf,
    },
    /// A file system call failed.
    #[error(transparent)]
    Io(#[from] sys::Error),
    /// The directory that held a tracked path is gone, and is outside of what a restore touches.
    #[error("cannot restore {}: the directory that held it is gone", Shown::path(path))]
    ParentMissing {
        /// The tracked path.
        path: PathBuf,
    },
    /// Files that would be replaced kept changing.
    #[error("files that would be replaced keep changing")]
    NeverStill,
    /// Files of the project are not as they were when the merged state was checked.
    #[error("the project changed while the merged state was checked")]
    ChangedSinceCheck,
    /// The caller asked to stop.
    #[error("stopped")]
    Cancelled,
    /// The caller asked to stop while a copy was written.
    #[error("stopped; {} copied to {} by then", files_were(*written), Shown::path(to))]
    CopyCancelled {
        /// Where the copy is.
        to: PathBuf,
        /// How many files are in it.
        written: u64,
    },
    /// The caller asked to stop the recovery from an interrupted restore, which stays interrupted.
    #[error("stopped; the restore is still interrupted, and can be finished or taken back")]
    RecoveryStopped,
    /// The worker threads could not be started.
    #[error("cannot start worker threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// It did not happen, and what it had staged could not be removed. The journal names it.
    #[error(
        "{cause}; {} {} left of it: {error}",
        left(staging),
        if staging.len() > 1 { "are" } else { "is" }
    )]
    StagingLeft {
        /// Why it did not happen.
        cause: Box<RestoreError>,
        /// Why it could not be removed.
        error: sys::Error,
        /// Staging directories that are still there.
        staging: Vec<PathBuf>,
    },
    /// A step failed, and so did taking back the steps before it.
    #[error(
        "{}; and not everything could be put back: {}. What was replaced is in {}",
        what_failed(cause),
        rollback.join("; "),
        kept_in(staging, *safety)
    )]
    HalfDone {
        /// The step that failed.
        cause: Box<RestoreError>,
        /// The paths that could not be put back.
        rollback: Vec<String>,
        /// Where the replaced files are.
        staging: Vec<PathBuf>,
        /// The snapshot that holds the state before, if there is one.
        safety: Option<u64>,
    },
}

/// How much a restore left as it is, and one of it with the reason.
fn incomplete(report: &RestoreReport) -> String {
    let count = report.skipped.len() + report.lost_for_good().count();
    let what = if count == 1 { "path is not as it was" } else { "paths are not as they were" };
    let skipped = report.skipped.first();
    let skipped = skipped.map(|first| (&first.path, first.reason.clone()));
    let lost = || {
        let lost = report.lost_for_good().next()?;
        Some((&lost.path, format!("it was not recorded ({}) and is {}", lost.reason, lost.what)))
    };
    let first = skipped.or_else(lost).map_or(String::new(), |(path, reason)| {
        format!(", {} for one: {reason}", Shown::path(path))
    });
    format!("{count} {what} in snapshot {}{first}", report.snapshot)
}

/// Where everything is that was replaced.
fn kept_in(staging: &[PathBuf], safety: Option<u64>) -> String {
    match (staging, safety) {
        ([], Some(number)) => format!("the safety snapshot {number}"),
        ([], None) => "no place that is known".to_owned(),
        (staging, Some(number)) => {
            format!("{}, and in the safety snapshot {number}", shown_list(staging))
        }
        (staging, None) => shown_list(staging),
    }
}

/// A cause, without what it says of a restore that was taken back.
fn what_failed(cause: &RestoreError) -> String {
    match cause {
        RestoreError::ChangedMeanwhile { path } => {
            format!("{} was changed by another process while it was restored", Shown::path(path))
        }
        cause => cause.to_string(),
    }
}

fn left(staging: &[PathBuf]) -> String {
    if staging.is_empty() { "the journal".to_owned() } else { shown_list(staging) }
}

fn shown_list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| Shown::path(path).to_string()).collect::<Vec<_>>().join(", ")
}

impl RestoreError {
    /// Whether a *restore* that fails like this has changed no path, or has put all of them back.
    pub fn is_before_any_change(&self) -> bool {
        if let Self::StagingLeft { cause, .. } = self {
            return cause.is_before_any_change();
        }
        matches!(
            self,
            Self::Content { .. }
                | Self::Blocked { .. }
                | Self::NoSpace { .. }
                | Self::RunAtWork { .. }
                | Self::ProjectFull { .. }
                | Self::Io(_)
                | Self::ParentMissing { .. }
                | Self::NeverStill
                | Self::ChangedSinceCheck
                | Self::Cancelled
                | Self::Threads(_)
        )
    }

    /// Whether a disk, or what this user may have of it, is full.
    pub(super) fn is_disk_full(&self) -> bool {
        self.has_kind(io::ErrorKind::StorageFull)
            || self.is_quota()
            || matches!(self, Self::NoSpace { .. })
    }

    /// Whether it is the user's share of a disk that is used up.
    pub(super) fn is_quota(&self) -> bool {
        self.has_kind(io::ErrorKind::QuotaExceeded)
    }

    /// Whether one of its causes is an error of this kind.
    fn has_kind(&self, kind: io::ErrorKind) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if error.downcast_ref::<io::Error>().map(io::Error::kind) == Some(kind) {
                return true;
            }
            cause = error.source();
        }
        false
    }

    /// Names the disk of the project, if this says that it is full. `dirs`: its directories that
    /// were written to.
    pub(super) fn of_project(
        self,
        dirs: &[PathBuf],
        removed: impl FnOnce() -> Vec<PathBuf>,
    ) -> Self {
        if !self.is_disk_full() {
            return self;
        }
        let failed = match &self {
            Self::NoSpace { path, .. } => Some(path),
            Self::Io(error) => Some(&error.path),
            _ => None,
        };
        let is_on = |dir: &&PathBuf| failed.is_none_or(|failed| failed.starts_with(dir));
        let Some(dir) = dirs.iter().find(is_on) else { return self };
        let mount_point = sys::mount_point(dir);
        Self::ProjectFull { mount_point, removed: removed(), cause: Box::new(self) }
    }

    pub(super) fn changed(path: &[u8]) -> Self {
        Self::ChangedMeanwhile { path: to_path(path).to_owned() }
    }

    pub(super) fn changed_since(path: &[u8]) -> Self {
        Self::ChangedSince { path: to_path(path).to_owned() }
    }

    pub(super) fn changed_in_staging(path: &[u8], staged: PathBuf) -> Self {
        Self::ChangedInStaging { path: to_path(path).to_owned(), staged }
    }

    pub(super) fn pattern(pattern: &Path, reason: &str) -> Self {
        Self::Pattern { pattern: pattern.to_owned(), reason: reason.to_owned() }
    }

    pub(super) fn from_place(error: sys::Error, path: &[u8]) -> Self {
        if error.is_gone() {
            Self::ParentMissing { path: to_path(path).to_owned() }
        } else {
            error.into()
        }
    }

    /// The contents of a file cannot be had from the store.
    pub(super) fn content(error: StoreError, path: &[u8]) -> Self {
        match error {
            StoreError::Cancelled => Self::Cancelled,
            source => Self::Content { path: to_path(path).to_owned(), source },
        }
    }

    pub(super) fn outside(path: &[u8]) -> Self {
        Self::Outside { path: to_path(path).to_owned() }
    }
}

impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cancelled => Self::Cancelled,
            StoreError::Io(error) => Self::Io(error),
            error => Self::Snapshot(error.into()),
        }
    }
}

impl From<JournalError> for RestoreError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Io(error) => Self::Io(error),
            JournalError::Undecodable { path, source } => {
                Self::DamagedJournal { path, reason: source.to_string() }
            }
        }
    }
}

impl From<ManifestError> for RestoreError {
    fn from(error: ManifestError) -> Self {
        Self::Snapshot(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_put_back_is_not_said_to_be() {
        let half_done = RestoreError::HalfDone {
            cause: Box::new(RestoreError::changed(b"/a")),
            rollback: vec!["something new is at /b".to_owned()],
            staging: vec!["/.nono-restore-1".into()],
            safety: Some(2),
        };
        assert_eq!(
            half_done.to_string(),
            "/a was changed by another process while it was restored; and not everything could \
             be put back: something new is at /b. What was replaced is in /.nono-restore-1, and in \
             the safety snapshot 2"
        );
    }
}
