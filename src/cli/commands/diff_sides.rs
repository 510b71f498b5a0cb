//! The two states that `nono diff` compares: which words name them, and what they are.
//!
//! A word is a state if it is `now`, a session, or a snapshot of one ([`Argument`]). Everything
//! after `--` is a path.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::cli::argument::{Argument, Earlier, Recorded};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::state_at::{self, Meant};
use crate::cli::when::When;
use nono_engine::history::{forms_of, recorded_form};
use nono_engine::layout::LATEST;
use nono_engine::session::{Catalog, CatalogError, Purpose, SessionStatus, SessionSummary};
use nono_engine::snapshot::{
    LiveState, SessionDir, SnapshotKind, SnapshotManager, SnapshotManifest,
};
use nono_engine::store::{LocalStore, ObjectSource};
use nono_engine::sys::{self, FileKind};

/// The word for the state on the disk.
const NOW: &str = "now";
/// A state, as it was named.
#[derive(Debug)]
pub(super) enum Named {
    Now,
    Snapshot { session: SessionDir, number: Option<u64>, is_step: bool },
}

/// The meaning of the words of a command line.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) states: Vec<Named>,
    /// As typed.
    pub(super) paths: Vec<PathBuf>,
    /// Why the first path is no state, if it is not on the disk either.
    pub(super) doubt: Option<CatalogError>,
}

impl Words {
    /// Takes words apart: at most two states, then paths.
    pub(super) fn of(
        words: &[OsString],
        behind_dashes: &[PathBuf],
        catalog: &Catalog,
    ) -> Result<Self, CliError> {
        let mut found = Self { states: Vec::new(), paths: Vec::new(), doubt: None };
        for word in words {
            let state = match found.paths.is_empty() && found.states.len() < 2 {
                true => found.state(word, catalog)?,
                false => None,
            };
            match state {
                Some(state) => found.states.push(state),
                None => found.paths.push(PathBuf::from(word)),
            }
        }
        found.paths.extend_from_slice(behind_dashes);
        Ok(found)
    }

    /// Puts the state at a time first. Alone it is compared with now.
    pub(super) fn begin_at(
        &mut self,
        at: &When,
        catalog: &Catalog,
        context: &Context,
    ) -> Result<(), CliError> {
        if self.states.len() > 1 {
            return Err(CliError::usage("--at names the older state: name one other at most"));
        }
        let Meant { session, number } = match &self.paths[..] {
            [] => state_at::here(at, Purpose::Looking, catalog, context)?,
            paths => state_at::of_paths(paths, at, catalog, context)?,
        };
        self.states.insert(0, Named::Snapshot { session, number: Some(number), is_step: false });
        if self.states.len() == 1 {
            self.states.push(Named::Now);
        }
        Ok(())
    }

    /// The state that a file by itself is compared with. `None`: states are named, or several paths
    /// or a directory, or all versions of the file are as now.
    pub(super) fn earlier(&mut self, catalog: &Catalog) -> Result<Option<Earlier>, CliError> {
        let ([path], []) = (&self.paths[..], &self.states[..]) else { return Ok(None) };
        let place = sys::plain_absolute(path, &sys::current_or_former_dir()?);
        match sys::kind_of(&place) {
            Ok(Some(FileKind::Directory)) => Ok(None),
            Ok(None) => Earlier::require(path, self.doubt.take(), catalog).map(Some),
            _ => match Earlier::find(path, catalog)? {
                Recorded::Other(earlier) => Ok(Some(*earlier)),
                Recorded::Same { .. } | Recorded::Nothing => Ok(None),
            },
        }
    }

    fn state(&mut self, word: &OsStr, catalog: &Catalog) -> Result<Option<Named>, CliError> {
        if word == NOW {
            return Ok(Some(Named::Now));
        }
        match Argument::of(word, Purpose::Looking, catalog)? {
            Argument::State { session, number, is_step } => {
                Ok(Some(Named::Snapshot { session, number, is_step }))
            }
            Argument::Path { doubt, .. } => {
                self.doubt = self.doubt.take().or(doubt);
                Ok(None)
            }
        }
    }
}

/// Both states, older one first.
#[derive(Debug)]
pub(super) struct Sides {
    pub(super) old: State,
    pub(super) new: State,
    /// The reason why the other side of a session without a last state is the present.
    pub(super) note: Option<String>,
}

/// A state that can be compared.
#[derive(Debug)]
pub(super) enum State {
    /// The present state, seen with the filters of a session's baseline.
    Now { manager: Box<SnapshotManager>, baseline: Box<SnapshotManifest> },
    /// A snapshot.
    Snapshot { session_id: String, manifest: Box<SnapshotManifest>, store: Box<LocalStore> },
}

impl Sides {
    /// The meaning of these names: none is the last session, one session its baseline and its last
    /// snapshot, `now` alone the last snapshot and now. An open session with one snapshot is
    /// compared with now.
    pub(super) fn of(states: Vec<Named>, catalog: &Catalog) -> Result<Self, CliError> {
        let mut states = states.into_iter();
        let latest = || catalog.find_from(LATEST, Purpose::Looking);
        let (old, new) = match (states.next(), states.next()) {
            (None, _) => {
                let session = latest()?;
                match has_one_state(&session)? {
                    true => (State::first(&session)?, State::now(&session)?),
                    false => return Self::of_session(&session),
                }
            }
            // A session with one state so far is compared with now.
            (Some(Named::Snapshot { session, is_step: false, .. }), None)
                if has_one_state(&session)? =>
            {
                (State::first(&session)?, State::now(&session)?)
            }
            (Some(Named::Snapshot { session, number: None, .. }), None) => {
                return Self::of_session(&session);
            }
            (Some(Named::Snapshot { session, number: Some(step), is_step: true }), None) => {
                let before = session.held_before(step)?.unwrap_or(step);
                (State::snapshot(&session, before)?, State::snapshot(&session, step)?)
            }
            (Some(Named::Snapshot { session, number, .. }), None) => {
                (State::numbered_or_first(&session, number)?, State::last(&session)?)
            }
            (Some(Named::Now), None) => {
                let session = latest()?;
                (State::last(&session)?, State::now(&session)?)
            }
            (Some(Named::Now), Some(Named::Now)) => {
                return Err(CliError::usage("now and now are the same state"));
            }
            (Some(Named::Snapshot { session, number, .. }), Some(Named::Now)) => {
                (State::numbered_or_first(&session, number)?, State::now(&session)?)
            }
            (Some(Named::Now), Some(Named::Snapshot { session, number, .. })) => {
                (State::now(&session)?, State::numbered_or_last(&session, number)?)
            }
            (
                Some(Named::Snapshot { session, number, .. }),
                Some(Named::Snapshot { session: other, number: other_number, .. }),
            ) => (
                State::numbered_or_first(&session, number)?,
                State::numbered_or_last(&other, other_number)?,
            ),
        };
        Ok(Self { old, new, note: None })
    }

    /// The version of a file that stood before what is there now, and that.
    pub(super) fn of_file(earlier: &Earlier) -> Result<Self, CliError> {
        let session = earlier.session()?;
        let old = State::snapshot(session, earlier.number())?;
        Ok(Self { old, new: State::now(session)?, note: None })
    }

    /// The first state of a session and its last one: the present, where the last is not recorded.
    fn of_session(session: &SessionDir) -> Result<Self, CliError> {
        let old = State::first(session)?;
        let summary = SessionSummary::of(session)?;
        if !summary.lacks_end() {
            return Ok(Self { old, new: State::last(session)?, note: None });
        }
        let id = session.id();
        let note = if summary.status == SessionStatus::Running {
            format!("session {id} is at work: compared with now")
        } else {
            format!("session {id} was interrupted, without its last state: compared with now")
        };
        Ok(Self { old, new: State::now(session)?, note: Some(note) })
    }
}

/// Whether a session of snapshots has one so far, beside those that restores took.
fn has_one_state(session: &SessionDir) -> Result<bool, CliError> {
    let is_open = SessionStatus::of(session, &session.metadata()?)? == SessionStatus::Open;
    let first = session.first_number()?;
    Ok(is_open
        && matches!(State::last(session)?, State::Snapshot { manifest, .. } if manifest.number == first))
}

impl State {
    /// The present state, captured in memory; `None` for a snapshot.
    pub(super) fn capture(&self) -> Result<Option<LiveState<'_>>, CliError> {
        match self {
            Self::Now { manager, baseline } => Ok(Some(manager.live_state(baseline)?)),
            Self::Snapshot { .. } => Ok(None),
        }
    }

    /// Its manifest and its objects; of now, those that were captured.
    pub(super) fn seen<'a>(
        &'a self,
        live: Option<&'a LiveState<'a>>,
    ) -> Result<(&'a SnapshotManifest, &'a dyn ObjectSource), CliError> {
        match (self, live) {
            (Self::Snapshot { manifest, store, .. }, _) => Ok((manifest, &**store)),
            (Self::Now { .. }, Some(live)) => Ok((live.manifest(), live)),
            (Self::Now { .. }, None) => Err(CliError::failed("what is there now was not captured")),
        }
    }

    fn snapshot(session: &SessionDir, number: u64) -> Result<Self, CliError> {
        let manifest = Box::new(session.manifest(number)?.manifest);
        let store = Box::new(Catalog::store_of(session)?);
        Ok(Self::Snapshot { session_id: session.id(), manifest, store })
    }

    /// The first state that the session holds.
    fn first(session: &SessionDir) -> Result<Self, CliError> {
        Self::snapshot(session, session.first_number()?)
    }

    fn numbered_or_first(session: &SessionDir, number: Option<u64>) -> Result<Self, CliError> {
        number.map_or_else(|| Self::first(session), |number| Self::snapshot(session, number))
    }

    /// The session's last state. A safety snapshot is no state of the session.
    fn last(session: &SessionDir) -> Result<Self, CliError> {
        let numbers = session.recorded_numbers()?;
        for number in numbers.iter().rev() {
            if session.manifest(*number)?.manifest.kind == SnapshotKind::Ordinary {
                return Self::snapshot(session, *number);
            }
        }
        Err(CliError::failed(format!("session {} has no snapshot", session.id())))
    }

    fn numbered_or_last(session: &SessionDir, number: Option<u64>) -> Result<Self, CliError> {
        number.map_or_else(|| Self::last(session), |number| Self::snapshot(session, number))
    }

    fn now(session: &SessionDir) -> Result<Self, CliError> {
        let manager = Box::new(SnapshotManager::open(session.path())?);
        let baseline = Box::new(manager.load_manifest(session.first_number()?)?);
        Ok(Self::Now { manager, baseline })
    }
}

/// The paths in the form in which these tracked paths have them.
pub(super) fn recorded_paths(
    typed: &[PathBuf],
    roots: &[PathBuf],
) -> Result<Vec<Vec<PathBuf>>, CliError> {
    let current_dir = sys::current_dir()?;
    let forms = typed.iter().map(|path| {
        let here = forms_of(&sys::plain_absolute(path, &current_dir));
        if recorded_form(&here, roots).is_some() || path.is_absolute() {
            return here;
        }
        // As for a restore: in any of the tracked paths.
        roots.iter().map(|root| sys::plain_absolute(path, root)).collect()
    });
    Ok(forms.collect())
}
