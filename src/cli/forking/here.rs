//! Forks as arguments name them, and new ones.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::refusal;
use crate::cli::args::{CaptureArgs, StoreArgs, ThreadArgs, surroundings};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::config::{FlagSettings, Profile, Settings};
use nono_engine::fork::{Fork, Forks, begin_now, begin_recorded};
use nono_engine::path_text::Shown;
use nono_engine::session::{Catalog, Purpose, RecordRequest, SnapshotId};
use nono_engine::snapshot::{SessionDir, SessionOrigin, SnapshotManifest};
use nono_engine::sys::{self, Dir, FileKind};

/// The word for the present state.
const NOW: &str = "now";

/// The forks of the store that is meant.
pub(in crate::cli) fn forks_of(store: &StoreArgs) -> Result<Forks, CliError> {
    Ok(Forks::new(&real_root(&store.catalog()?)?))
}

/// A layer is named to the kernel without symlinks.
fn real_root(catalog: &Catalog) -> Result<PathBuf, CliError> {
    let root = sys::plain_absolute(catalog.root(), &sys::current_dir()?);
    Ok(sys::real_or_future_path(&root))
}

/// A file in the place of a git directory is one line.
const MAX_GITFILE_BYTES: u64 = 64 << 10;

/// A fork that is to be made.
#[derive(Debug)]
pub(in crate::cli) struct Newborn<'a> {
    pub(in crate::cli) name: &'a str,
    /// `now`, or a recorded state.
    pub(in crate::cli) from: Option<&'a str>,
    /// The directories of a fork from now.
    pub(in crate::cli) tracked: Vec<PathBuf>,
    pub(in crate::cli) profile: Option<&'a Profile>,
}

impl Newborn<'_> {
    /// Makes it. Where forks cannot be, nothing is made.
    pub(in crate::cli) fn make(
        &self,
        store: &StoreArgs,
        context: &Context,
    ) -> Result<Fork, CliError> {
        let catalog = store.catalog()?;
        let root = real_root(&catalog)?;
        let forks = Forks::new(&root);
        forks.check_new_name(self.name)?;
        refuse_git_elsewhere(&self.tracked)?;
        refusal::probe(&root)?;
        let from = self.from.unwrap_or(NOW);
        let (session, from) = match from {
            NOW => (self.record(root, context)?, NOW.to_owned()),
            word => {
                let (manifest, named) = recorded(&catalog, word)?;
                let bar = Bar::new(context, "looking for the state");
                let begun = begin_recorded(&root, &manifest, &*bar);
                bar.finish();
                (begun?, named)
            }
        };
        Ok(forks.make(self.name, &session, &from)?)
    }

    fn record(&self, root: PathBuf, context: &Context) -> Result<SessionDir, CliError> {
        let settings = Settings::load(&surroundings()?, &FlagSettings::default())?;
        let request = RecordRequest {
            root,
            command: Vec::new(),
            tracked_paths: self.tracked.clone(),
            exclusion: CaptureArgs::default().exclusion(&settings, self.profile)?,
            budget: settings.budget(),
            compression: settings.compression.value,
            threads: ThreadArgs::default().count(context)?,
            origin: SessionOrigin::Fork,
            label: None,
        };
        let bar = Bar::new(context, "recording the state below the fork");
        let begun = begin_now(&request, bar.clone());
        bar.finish();
        Ok(begun?)
    }
}

/// Refuses a project whose git directory lies elsewhere, as in a linked worktree or a submodule.
/// The commits of a command would be those of the real repository.
///
/// # Errors
/// That, or a directory that cannot be read.
pub(super) fn refuse_git_elsewhere(paths: &[PathBuf]) -> Result<(), CliError> {
    for path in paths {
        let git = path.join(".git");
        let place = match sys::kind_of(&git)? {
            None => continue,
            Some(FileKind::File) => {
                let text = Dir::open(path)?.read(b".git", MAX_GITFILE_BYTES)?;
                let place = text.trim_ascii_end().strip_prefix(b"gitdir: ").unwrap_or_default();
                sys::real_or_future_path(&path.join(OsStr::from_bytes(place)))
            }
            Some(_) => sys::real_or_future_path(&git),
        };
        if !paths.iter().any(|path| place.starts_with(sys::real_or_future_path(path))) {
            let message = format!(
                "the git directory of {} lies outside of it: {}",
                Shown::path(path),
                Shown::path(&place)
            );
            return Err(CliError::failed(message).with_hint(
                "what git does in a fork would not stay in it; fork the main worktree",
            ));
        }
    }
    Ok(())
}

/// A recorded state by its name.
fn recorded(catalog: &Catalog, word: &str) -> Result<(SnapshotManifest, String), CliError> {
    let Ok(id) = word.parse::<SnapshotId>();
    let (session, number) = catalog.find_snapshot_from(&id, Purpose::Looking)?;
    if session.path().parent().map(sys::real_or_future_path) != Some(real_root(catalog)?) {
        return Err(CliError::failed(format!("session {} lies in another store", session.id())));
    }
    let metadata = session.metadata()?;
    if metadata.origin == SessionOrigin::Container {
        return Err(CliError::failed(format!(
            "session {} is the history of a container, and its paths are none of this machine",
            session.id()
        )));
    }
    let number = match number {
        Some(number) => number,
        None => session
            .recorded_numbers()?
            .pop()
            .ok_or_else(|| CliError::failed(format!("session {} has no snapshot", session.id())))?,
    };
    session.refuse_removed(number)?;
    Ok((session.manifest(number)?.manifest, format!("{}/{number}", session.id())))
}
