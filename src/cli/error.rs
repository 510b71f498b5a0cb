//! Errors as a person sees them: the failure, its remedy, and the exit code.

use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use jiff::Zoned;

use super::render::{RenderError, absolute_time, relative_time};
use super::shell_word::shell_word;
use super::surroundings::named_project;
use super::when::WhenError;
use crate::agent::SpoolError;
use crate::cli::offer::NONO;
use crate::config::ConfigError;
use crate::config::nearest::is_like;
use crate::sandbox::NamespaceError;
#[cfg(feature = "archive")]
use nono_archive::remote::{AddressError, RemoteError};
use nono_engine::events::EventError;
use nono_engine::fork::ForkError;
use nono_engine::history::HistoryError;
use nono_engine::import::ImportSessionError;
use nono_engine::layout::LATEST;
use nono_engine::path_text::Shown;
use nono_engine::repair::RepairError;
use nono_engine::restore::RestoreError;
use nono_engine::session::{Catalog, CatalogError, Moved, NameOwner, RecordError, SessionSummary};
use nono_engine::snapshot::{CaptureError, ManifestError, SnapshotError, TrackedPathError};
use nono_engine::store::StoreError;
use nono_engine::sys::{self, Dir};
use nono_engine::verify::VerifyError;

/// Maximum number of sessions that an ambiguous name is said to mean.
const MAX_NAME_OWNERS: usize = 8;

/// Exit code of a program that Ctrl-C ended.
const STOPPED: u8 = 130;

/// The result of a command: the exit code.
pub(super) type Outcome = Result<u8, CliError>;

/// A failed command.
#[derive(Debug)]
pub struct CliError {
    message: String,
    hint: Option<String>,
    exit_code: u8,
    is_about_selection: bool,
}

impl CliError {
    /// The command could not do its work.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, exit_code: 1, is_about_selection: false }
    }

    /// The command was called in a wrong way.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self { exit_code: 2, ..Self::failed(message) }
    }

    /// The user asked to stop.
    pub(super) fn stopped(message: impl Into<String>) -> Self {
        Self::failed(message).with_exit_code(STOPPED)
    }

    /// Whether the user asked to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.exit_code == STOPPED
    }

    /// Adds what to do about it.
    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds another way to go on.
    pub(super) fn or_hint(mut self, other: &str) -> Self {
        self.hint = Some(match self.hint {
            Some(hint) => format!("{hint}; {other}"),
            None => other.to_owned(),
        });
        self
    }

    /// Adds in what state it leaves things.
    pub(super) fn leaving(mut self, state: &str) -> Self {
        self.message = format!("{}; {state}", self.message);
        self
    }

    /// Says this instead.
    pub(super) fn saying(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    /// Ends with this exit code instead.
    pub(super) fn with_exit_code(mut self, exit_code: u8) -> Self {
        self.exit_code = exit_code;
        self
    }

    /// Whether the selected paths mean nothing of the state.
    pub(super) fn is_about_selection(&self) -> bool {
        self.is_about_selection
    }

    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// The remedy.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

impl From<NamespaceError> for CliError {
    fn from(error: NamespaceError) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<CatalogError> for CliError {
    fn from(error: CatalogError) -> Self {
        let failed = Self::failed(error.to_string());
        match &error {
            CatalogError::NotFound { id, .. } if is_like(id, LATEST) => {
                failed.with_hint(format!("did you mean {LATEST}?"))
            }
            CatalogError::NotFound { .. } => {
                failed.with_hint(format!("`{NONO} list --all` shows all sessions"))
            }
            CatalogError::Empty { .. } => {
                failed.with_hint(format!("record one: {NONO} run COMMAND"))
            }
            CatalogError::OnlyReceived { .. } => failed
                .with_hint(format!("only its id means a session of an archive: {NONO} list --all")),
            CatalogError::NoneHere { elsewhere, moved: Some(moved), .. } => {
                let hint = moved_hint(moved, &elsewhere.session_id);
                failed.with_hint(hint)
            }
            CatalogError::NoneHere { elsewhere, .. } if elsewhere.received => {
                let SessionSummary { session_id, tracked_paths, .. } = &**elsewhere;
                let project = named_project(tracked_paths);
                Self::failed(format!("{error} or a directory above it")).with_hint(format!(
                    "session {session_id} ({project}) came in an archive, so only its id means \
                     it: {NONO} show {session_id}"
                ))
            }
            CatalogError::NoneHere { elsewhere, .. } => {
                let SessionSummary { session_id, started, tracked_paths, .. } = &**elsewhere;
                let when = relative_time(*started, &Zoned::now());
                let project = named_project(tracked_paths);
                Self::failed(format!("{error} or a directory above it")).with_hint(format!(
                    "the newest session elsewhere is {session_id} ({project}, {when}); its id \
                     works from anywhere: {NONO} show {session_id}"
                ))
            }
            CatalogError::SeveralBelow { .. } => failed
                .with_hint(format!("go to one of them, or name a session by its id ({NONO} list)")),
            CatalogError::Ambiguous { .. } => failed.with_hint("give more of the id"),
            CatalogError::AmbiguousLabel { label, candidates } => {
                let now = Zoned::now();
                let owner = |owner: &NameOwner| {
                    let when = absolute_time(owner.started, &now);
                    format!("\n  {} ({when}, {})", owner.id, named_project(&owner.tracked_paths))
                };
                let shown: String = candidates.iter().take(MAX_NAME_OWNERS).map(owner).collect();
                let more = match candidates.len().saturating_sub(MAX_NAME_OWNERS) {
                    0 => String::new(),
                    more => format!("\n  and {more} more"),
                };
                Self::failed(format!("{label:?} is the name of{shown}{more}"))
                    .with_hint("give one of these ids")
            }
            CatalogError::LatestUnknown { session, source } => {
                let mend = opening_command(source).map_or_else(
                    || format!("`{NONO} verify {session} --repair` says what can be mended"),
                    |opening| format!("{opening} gives this one back"),
                );
                failed.with_hint(format!("name a session by its id ({NONO} list); {mend}"))
            }
            CatalogError::NoSnapshot { session, .. } => {
                failed.with_hint(format!("`{NONO} show {session}` lists its snapshots"))
            }
            _ => failed,
        }
    }
}

/// The ways to the past of a project that was moved.
/// The command that opens a session to the owner of its store, where a file of it is denied.
pub(super) fn opening_command(error: &ManifestError) -> Option<String> {
    let ManifestError::Io(error) = error else { return None };
    let is_session = |path: &&Path| path.parent().is_some_and(Catalog::is_store);
    let path = error.path.ancestors().find(is_session).filter(|_| error.is_denied())?;
    let stat =
        |path: &Path| Dir::open(path.parent()?).ok()?.stat(path.file_name()?.as_bytes()).ok();
    let owner = Dir::open(path.parent()?).and_then(|store| store.stat_self()).ok()?;
    let denied = stat(&error.path).or_else(|| stat(path))?;
    let shown = shell_word(path)?;
    Some(if denied.uid == owner.uid && denied.uid == sys::effective_uid() {
        format!("chmod -R u+rwX {shown}")
    } else {
        format!("sudo chown -R {}:{} {shown}", owner.uid, owner.gid)
    })
}

pub(super) fn moved_hint(moved: &Moved, session: &str) -> String {
    let [from, to] = [&moved.from, &moved.to].map(|path| Shown::path(path).to_string());
    let words = [&moved.to, &moved.from].map(|path| shell_word(path));
    let back = match words {
        [Some(to), Some(from)] => format!("to undo it, move it back (mv {to} {from}), or copy"),
        _ => "to undo it, move it back, or copy".to_owned(),
    };
    format!(
        "{to} was {from} when session {session} recorded it: {NONO} show {session}; \
         {back} its old state: {NONO} restore {session} --to DIR"
    )
}

impl From<SnapshotError> for CliError {
    fn from(error: SnapshotError) -> Self {
        let failed = Self::failed(error.to_string());
        match &error {
            SnapshotError::TrackedPath(TrackedPathError::Pattern(_)) => {
                Self::usage(error.to_string())
            }
            SnapshotError::Capture(CaptureError::Cancelled) => Self::stopped(error.to_string()),
            SnapshotError::NoBaseline { session } => Self::failed(format!(
                "session {} has no snapshot: its first one was never completed",
                nono_engine::path_text::Shown::path(session)
            )),
            SnapshotError::TrackedPath(TrackedPathError::ContainsStore { .. }) => failed
                .with_hint("track the project alone, or keep the store elsewhere with --root DIR"),
            SnapshotError::Capture(CaptureError::OverBudget(over)) => {
                let first = over.largest.first().and_then(|large| large.path.file_name());
                let name = first.map_or("DIR".into(), |name| name.to_string_lossy());
                failed.with_hint(format!(
                    "leave something out (--rollback-exclude {name}), or raise the limit \
                     (--max-entries N, --max-bytes N; 0 is none)"
                ))
            }
            SnapshotError::RestoreInterrupted { session } => {
                let name = session.file_name().unwrap_or_default().to_string_lossy();
                failed.with_hint(format!(
                    "to finish it: {NONO} resume {name}; to take it back: {NONO} resume {name} --abort"
                ))
            }
            SnapshotError::Store(error) if error.is_damage() => {
                failed.with_hint(format!("`{NONO} verify --all` says what is damaged"))
            }
            SnapshotError::Manifest(ManifestError::Corrupt { .. }) => {
                failed.with_hint(format!("`{NONO} verify` says what is damaged"))
            }
            SnapshotError::Manifest(error) => match opening_command(error) {
                Some(opening) => failed.with_hint(format!("{opening} gives it back")),
                None => failed,
            },
            _ => failed,
        }
    }
}

#[cfg(feature = "archive")]
impl From<nono_archive::ArchiveError> for CliError {
    fn from(error: nono_archive::ArchiveError) -> Self {
        match error {
            nono_archive::ArchiveError::Cancelled => Self::stopped("stopped"),
            nono_archive::ArchiveError::Snapshot(error) => error.into(),
            other => Self::failed(other.to_string()),
        }
    }
}

impl From<ForkError> for CliError {
    fn from(error: ForkError) -> Self {
        let message = error.to_string();
        match error {
            ForkError::Snapshot(error) => error.into(),
            ForkError::Record(error) => error.into(),
            ForkError::Store(error) => error.into(),
            ForkError::Io(error) => error.into(),
            ForkError::Name { .. } => Self::usage(message),
            ForkError::NotFound { .. } => {
                Self::failed(message).with_hint(format!("`{NONO} forks` lists them"))
            }
            ForkError::Elsewhere { projects, .. } | ForkError::Ambiguous { projects, .. } => {
                let project = projects.first().map(|path| Shown::path(path).to_string());
                let project = project.unwrap_or_default();
                Self::failed(message).with_hint(format!(
                    "a name means the fork of the project here: cd {project}; {NONO} forks lists all"
                ))
            }
            ForkError::Above { project, .. } => Self::failed(message).with_hint(format!(
                "nothing was removed; to remove it, go there: cd {}",
                Shown::path(&project)
            )),
            ForkError::Exists { name } => {
                Self::failed(message).with_hint(format!("enter it: {NONO} fork enter {name}"))
            }
            ForkError::InUse { .. } => {
                Self::failed(message).with_hint("end the commands in it first")
            }
            _ => Self::failed(message),
        }
    }
}

impl From<RecordError> for CliError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Snapshot(error) => error.into(),
            RecordError::NoSymlinks { .. } => {
                Self::failed(error.to_string()).with_hint("keep the store elsewhere: --root DIR")
            }
            other => Self::failed(other.to_string()),
        }
    }
}

impl From<RestoreError> for CliError {
    fn from(error: RestoreError) -> Self {
        let message = error.to_string();
        match error {
            RestoreError::Snapshot(error) => error.into(),
            RestoreError::Blocked { .. } => {
                Self::failed(message).with_hint("--skip-blocked leaves them and restores the rest")
            }
            RestoreError::HalfDone { .. } | RestoreError::NotTakenBack { .. } => {
                Self::failed(error.to_string()).with_hint(format!(
                    "`{NONO} resume` tries to finish it, `{NONO} resume \
                         --abort` to take it back"
                ))
            }
            RestoreError::StagingLeft { cause, .. } => {
                Self::from(*cause).saying(message).with_hint(format!(
                    "`{NONO} resume --abort` clears it away, when that is possible again"
                ))
            }
            RestoreError::Cancelled | RestoreError::CopyCancelled { .. } => {
                Self::stopped(error.to_string())
            }
            RestoreError::Pattern { .. } => Self::usage(error.to_string()),
            RestoreError::CopyOverProject { .. } => Self::failed(message).with_hint(
                "without --to the files themselves are restored, after a safety snapshot; without \
                 --force a copy overwrites nothing",
            ),
            RestoreError::DamagedJournal { .. } | RestoreError::ForeignJournal { .. } => {
                Self::failed(error.to_string()).with_hint(format!(
                    "`{NONO} resume ID --discard` gives the journal up; `{NONO} \
                         show ID` lists the snapshots that a restore can bring back then"
                ))
            }
            RestoreError::ProjectFull { .. } => {
                Self::failed(message).with_hint("make space on that disk, and repeat this")
            }
            RestoreError::OnlyRemoved { safety, .. } => {
                let back = match safety {
                    Some(_) => format!("; {NONO} redo brings back what is removed"),
                    None => String::new(),
                };
                Self::failed(message)
                    .with_hint(format!("make space on that disk and repeat this{back}"))
            }
            RestoreError::Content { ref source, .. } if source.is_damage() => {
                Self::failed(error.to_string())
                    .with_hint(format!("`{NONO} verify` says what else is damaged"))
            }
            RestoreError::StepNotApart { ref session, .. } => {
                let id = session.file_name().unwrap_or_default().to_string_lossy().into_owned();
                Self::failed(error.to_string()).with_hint(format!(
                    "{NONO} undo --prompt takes back all steps of a prompt, --to-step goes back \
                     to a state; {NONO} steps {id} says which are there"
                ))
            }
            RestoreError::ChangedNothing { .. } => Self::failed("the last undo changed nothing"),
            RestoreError::RunAtWork { .. } => Self::failed(message).with_hint(
                "wait until it has ended; --force restores while it works, and it may write on",
            ),
            RestoreError::RestoredMeanwhile { .. } => Self::failed(message)
                .leaving("nothing was changed")
                .with_hint("the same command again begins with what is there now"),
            RestoreError::ParentMissing { .. } => Self::failed(message).with_hint(format!(
                "put a copy of the state elsewhere: {NONO} restore ID --to DIR"
            )),
            RestoreError::NoSuchPath { .. }
            | RestoreError::NotInSnapshot { .. }
            | RestoreError::NotTracked { .. }
            | RestoreError::PathLeftOut { .. }
            | RestoreError::NothingMatches { .. } => {
                Self { is_about_selection: true, ..Self::failed(message) }
            }
            other => Self::failed(other.to_string()),
        }
    }
}

impl From<VerifyError> for CliError {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::Cancelled => Self::stopped(error.to_string()),
            _ => Self::failed(error.to_string()),
        }
    }
}

impl From<RepairError> for CliError {
    fn from(error: RepairError) -> Self {
        match error {
            RepairError::Verify(VerifyError::Cancelled)
            | RepairError::Capture(CaptureError::Cancelled) => {
                Self::stopped("stopped; what was repaired by then stays repaired")
            }
            _ => Self::failed(error.to_string()),
        }
    }
}

impl From<SpoolError> for CliError {
    fn from(error: SpoolError) -> Self {
        match error {
            SpoolError::Io(error) => error.into(),
            other => Self::failed(other.to_string()),
        }
    }
}

impl From<ManifestError> for CliError {
    fn from(error: ManifestError) -> Self {
        SnapshotError::from(error).into()
    }
}

impl From<ImportSessionError> for CliError {
    fn from(error: ImportSessionError) -> Self {
        let is_nothing = matches!(error, ImportSessionError::NothingThere { .. });
        let failed = Self::failed(error.to_string());
        if is_nothing {
            failed.with_hint(format!("name its directory: {NONO} import DIR"))
        } else {
            failed
        }
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        SnapshotError::from(error).into()
    }
}

impl From<WhenError> for CliError {
    fn from(error: WhenError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<EventError> for CliError {
    fn from(error: EventError) -> Self {
        match error {
            EventError::Io(error) => error.into(),
            EventError::Manifest(error) => error.into(),
            EventError::Cursor { .. } => Self::usage(error.to_string()),
        }
    }
}

impl From<HistoryError> for CliError {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Manifest(error) => error.into(),
            HistoryError::Store(StoreError::Cancelled) => Self::stopped("stopped"),
            HistoryError::Store(error) => error.into(),
            HistoryError::Snapshot(error) => error.into(),
            HistoryError::Io(error) => error.into(),
            HistoryError::Glob { .. } | HistoryError::Pattern { .. } => {
                Self::usage(error.to_string())
            }
            HistoryError::Search { .. }
            | HistoryError::Threads { .. }
            | HistoryError::NoText { .. } => Self::failed(error.to_string()),
        }
    }
}

impl From<RenderError> for CliError {
    fn from(error: RenderError) -> Self {
        match error {
            RenderError::Store(error) => error.into(),
            RenderError::Output(error) => error.into(),
        }
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        let wrong = Self::usage(error.to_string());
        match error {
            ConfigError::NoProfile { name, serving: Some(serving), .. } => wrong.with_hint(
                format!("the profile {serving} has what {name} needs: --profile {serving}"),
            ),
            ConfigError::NoProfile { nearest: Some(name), wanted_by: None, .. } => {
                wrong.with_hint(format!("did you mean --profile {name}?"))
            }
            ConfigError::NoProfile { nearest: Some(name), wanted_by: Some(by), .. } => {
                wrong.with_hint(format!("profile {by} extends it; did it mean {name}?"))
            }
            ConfigError::NoProfile { nearest: None, .. } => {
                wrong.with_hint("`nono profile list` shows what there is")
            }
            ConfigError::NoRemote { nearest: Some(name), .. } => {
                wrong.with_hint(format!("did you mean {name}?"))
            }
            ConfigError::NoRemote { nearest: None, .. } => wrong
                .with_hint("`nono remote list` shows what there is; a path begins with / or ./"),
            ConfigError::Io(error) => Self::failed(error.to_string()),
            _ => wrong,
        }
    }
}

#[cfg(feature = "archive")]
impl From<AddressError> for CliError {
    fn from(error: AddressError) -> Self {
        Self::usage(error.to_string())
    }
}

#[cfg(feature = "archive")]
impl From<RemoteError> for CliError {
    fn from(error: RemoteError) -> Self {
        let failed = Self::failed(error.to_string());
        match error {
            RemoteError::Address(error) => error.into(),
            error if error.is_cancelled() => Self::stopped("stopped"),
            RemoteError::NoDirectory { .. } => failed.with_hint(
                "attach its disk, or make the directory; `nono remote add` makes one that has a \
                 parent",
            ),
            _ => failed,
        }
    }
}

impl From<sys::Error> for CliError {
    fn from(error: sys::Error) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        // A reader that has seen enough (`| head`) is no failure of ours.
        let code = if error.kind() == io::ErrorKind::BrokenPipe { 0 } else { 1 };
        Self::failed(format!("cannot write the output: {error}")).with_exit_code(code)
    }
}

impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(kind) => io::Error::from(kind).into(),
            None => Self::failed(format!("cannot write the output: {error}")),
        }
    }
}
