//! A word of a command line that names a recorded state, or a path.
//!
//! A word is a state if it is a session or a snapshot of one. What is on the disk is a path all the
//! same, unless the word is a whole id, or `latest`. A path by itself means its
//! [earlier version](Earlier).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::context::Context;
use super::error::CliError;
use super::offer::NONO;
use super::past::{Past, name_damaged};
use super::shell_word::shell_word;
use nono_engine::history::{Damaged, Now, Place, Version, forms_of, history_of, now_of};
use nono_engine::layout::LATEST;
use nono_engine::object::Node;
use nono_engine::path_text::Shown;
use nono_engine::session::{Catalog, CatalogError, Purpose, SnapshotId};
use nono_engine::snapshot::SessionDir;
use nono_engine::sys;

/// The meaning of a word.
#[derive(Debug)]
pub(super) enum Argument {
    /// A session, and maybe one snapshot of it.
    State {
        session: SessionDir,
        number: Option<u64>,
        /// Whether it is written as a step: `ID#N`.
        is_step: bool,
    },
    /// A path, as typed.
    Path {
        path: PathBuf,
        /// Why it is no state, where nothing has that path on the disk either.
        doubt: Option<CatalogError>,
    },
}

impl Argument {
    /// Finds out what a word means. The id of a session and `latest` come first, then what is on
    /// the disk, then beginnings of ids and names.
    ///
    /// # Errors
    /// When the sessions cannot be looked at, or several could be meant.
    pub(super) fn of(word: &OsStr, purpose: Purpose, catalog: &Catalog) -> Result<Self, CliError> {
        if word.is_empty() {
            return Err(CliError::usage("an empty word is neither a session nor a path"));
        }
        let is_there = is_there(Path::new(word));
        let path = |doubt| Self::Path { path: PathBuf::from(word), doubt };
        let Some(text) = word.to_str() else { return Ok(path(None)) };
        let Ok(id) = text.parse::<SnapshotId>();
        let found = catalog.find_snapshot_from(&id, purpose);
        let is_certain = match &found {
            Ok((session, _)) => session.id() == id.session || id.is_relative(),
            Err(_) => false,
        };
        let is_number = |part: &String| part == LATEST || part.parse::<u64>().is_ok();
        match found {
            Ok(_) if is_there && (text.contains('/') || !is_certain) => Ok(path(None)),
            Ok((session, number)) => Ok(Self::State { session, number, is_step: id.is_step }),
            Err(_) if is_there => Ok(path(None)),
            // It may be the name of something that only snapshots have.
            Err(
                error @ (CatalogError::NotFound { .. }
                | CatalogError::Empty { .. }
                | CatalogError::OnlyReceived { .. }),
            ) => Ok(path(Some(error))),
            Err(error @ CatalogError::NoSnapshot { .. })
                if !id.snapshot.as_ref().is_some_and(is_number) =>
            {
                Ok(path(Some(error)))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the disk has a path.
pub(super) fn is_there(path: &Path) -> bool {
    let Ok(current_dir) = sys::current_or_former_dir() else { return false };
    let path = sys::plain_absolute(path, &current_dir);
    matches!(sys::kind_of(&path), Ok(Some(_)))
}

/// The record of a path.
pub(super) enum Recorded {
    /// A version that differs from what is there now.
    Other(Box<Earlier>),
    /// No earlier version that differs.
    Same {
        /// The recorded version that is there now, if one is.
        now: Option<Box<Earlier>>,
        /// The newest one that differs and was taken back.
        taken_back: Option<Place>,
    },
    /// No session holds the path.
    Nothing,
}

/// The version of a path that stood before what is there now, or that is there now.
pub(super) struct Earlier {
    pub(super) past: Past,
    pub(super) path: PathBuf,
    pub(super) version: Version,
    /// The newest snapshot that has it.
    place: Place,
    /// Whether an undo or a restore kept what is there now on purpose.
    pub(super) keeps_now: bool,
    /// Sessions that cannot be asked: they may have a newer one.
    pub(super) damaged: Vec<Damaged>,
}

impl Earlier {
    /// Finds it.
    ///
    /// # Errors
    /// When what is recorded, or there now, cannot be looked at.
    pub(super) fn find(typed: &Path, catalog: &Catalog) -> Result<Recorded, CliError> {
        let forms = forms_of(&sys::plain_absolute(typed, &sys::current_or_former_dir()?));
        let mut past = Past::of_path(&forms, catalog)?;
        let mut history = history_of(&forms, &past.sessions, &past.objects);
        let mut damaged = std::mem::take(&mut past.damaged);
        damaged.append(&mut history.damaged);
        let newest = past.newest().or(past.sessions.last());
        let (Some(newest), false) = (newest, history.versions.is_empty()) else {
            return match damaged.pop() {
                Some(damaged) => Err(damaged.error.into()),
                None => Ok(Recorded::Nothing),
            };
        };
        let now = now_of(&history, newest)?;
        let owned = |(version, place): (&Version, &Place)| (version.clone(), place.clone());
        let keeps_now = history.is_kept(&now);
        let earlier = history.earlier(&now, &past.objects).map(owned);
        let taken_back = history.taken_back(&now, &past.objects).map(|(_, place)| place.clone());
        let same = match now {
            Now::Version(index) => history.versions.get(index),
            Now::Gone | Now::Unrecorded { .. } => None,
        };
        let newest = |version: &Version| version.places.last().unwrap_or(version.first()).clone();
        let same = same.map(|version| (version.clone(), newest(version)));
        let path = history.path;
        let of =
            |(version, place)| Box::new(Self { path, version, place, keeps_now, past, damaged });
        Ok(match earlier {
            Some(earlier) => Recorded::Other(of(earlier)),
            None => Recorded::Same { now: same.map(of), taken_back },
        })
    }

    /// As [`find`](Self::find), where a version is needed. `doubt`: why the path is no state.
    ///
    /// # Errors
    /// As there, and when no version differs.
    pub(super) fn require(
        typed: &Path,
        doubt: Option<CatalogError>,
        catalog: &Catalog,
    ) -> Result<Self, CliError> {
        let path = Shown::path(typed);
        match Self::find(typed, catalog)? {
            Recorded::Other(earlier) => Ok(*earlier),
            Recorded::Nothing => Err(match doubt {
                Some(doubt) => {
                    let message = format!("{doubt}, and nothing is recorded at {path}");
                    CliError::from(doubt).saying(message)
                }
                None => not_held(typed),
            }),
            Recorded::Same { taken_back, .. } => Err(none_earlier(typed, taken_back.as_ref())),
        }
    }

    /// As [`require`](Self::require); where no version differs, the one that is there now.
    ///
    /// # Errors
    /// As there, but for that.
    pub(super) fn require_any(
        typed: &Path,
        doubt: Option<CatalogError>,
        catalog: &Catalog,
    ) -> Result<Self, CliError> {
        match Self::find(typed, catalog)? {
            Recorded::Same { now: Some(same), .. } => Ok(*same),
            _ => Self::require(typed, doubt, catalog),
        }
    }

    /// Names the sessions that may have a newer version. Whether there are none.
    pub(super) fn name_damaged(&self, context: &Context) -> bool {
        name_damaged(&self.damaged, context)
    }

    /// The session of [the snapshot](Self::number) that has it.
    ///
    /// # Errors
    /// When it was removed meanwhile.
    pub(super) fn session(&self) -> Result<&SessionDir, CliError> {
        let id = &self.place.session_id;
        let found = self.past.sessions.iter().find(|session| session.id() == *id);
        found.ok_or_else(|| CliError::failed(format!("session {id} is gone")))
    }

    /// Whether it is a directory.
    pub(super) fn is_directory(&self) -> bool {
        let state = self.version.state.as_deref();
        state.is_some_and(|state| matches!(state.node, Node::Directory { .. }))
    }

    /// The number of the newest snapshot that has it.
    pub(super) fn number(&self) -> u64 {
        self.place.number
    }
}

/// The error for a path of which no earlier version differs. `taken_back`: one that an undo or a
/// restore went back over.
fn none_earlier(typed: &Path, taken_back: Option<&Place>) -> CliError {
    let path = Shown::path(typed);
    let word = shell_word(typed);
    let Some(place) = taken_back else {
        let message = format!("no version of {path} that was recorded here differs from now");
        let error = CliError::failed(message);
        return match word {
            Some(word) => error.with_hint(format!("all versions: {NONO} log {word}")),
            None => error,
        };
    };
    let message = format!("no version of {path} from before what is there now differs");
    let error = CliError::failed(message);
    match word {
        Some(word) => {
            error.with_hint(format!("what was taken back: {NONO} restore {place} --force {word}"))
        }
        None => error,
    }
}

/// The error for a path that nothing recorded.
pub(super) fn not_held(path: &Path) -> CliError {
    let path = Shown::path(path);
    CliError::failed(format!("no session holds {path}"))
        .with_hint(format!("`{NONO} show ID` says what a session left out"))
}

impl Past {
    /// The sessions that may hold a path, given in its forms.
    pub(super) fn of_path(forms: &[PathBuf], catalog: &Catalog) -> Result<Self, CliError> {
        Self::of(catalog, |summary| forms.iter().any(|form| summary.holds(form)))
    }
}
