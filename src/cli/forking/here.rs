//! Forks as arguments name them, and new ones.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;

use super::refusal;
use crate::cli::args::{CaptureArgs, StoreArgs, ThreadArgs, surroundings};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::inside::fork_around;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use crate::config::{FlagSettings, Profile, Settings};
use nono_engine::counted::counted;
use nono_engine::fork::{Fork, Forks, NewFork, begin_now, begin_recorded};
use nono_engine::gc::withdraw;
use nono_engine::path_text::Shown;
use nono_engine::session::{Catalog, Purpose, RecordRequest, SnapshotId};
use nono_engine::snapshot::{SessionDir, SessionOrigin, SnapshotManifest};
use nono_engine::sys::{self, Dir, FileKind};

/// The word for the present state.
const NOW: &str = "now";

/// The forks of the store that is meant. A name means one of the project here. What killed
/// processes left of forks goes first.
pub(in crate::cli) fn forks_of(store: &StoreArgs) -> Result<Forks, CliError> {
    let root = real_root(&store.catalog()?)?;
    let forks = match sys::current_dir() {
        Ok(here) => Forks::new(&root).here(&here),
        // A directory that was removed is in no project.
        Err(_) => Forks::new(&root),
    };
    let may_write = fork_around().is_none() && sys::refuse_to_write_as_root(&root).is_ok();
    if may_write && let Err(error) = forks.clear_up() {
        tracing::debug!("what killed processes left of forks stays: {error}");
    }
    Ok(forks)
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
    pub(in crate::cli) copy: CopyArgs,
}

/// A copy in place of a layer.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(in crate::cli) struct CopyArgs {
    /// Copy the state in place of a layer over it, where the kernel mounts no layers. Blocks are
    /// shared where the file system of the store can (XFS, btrfs); else the size is named first
    #[arg(long)]
    copy: bool,
    /// Copy without a question
    #[arg(long, short, requires = "copy")]
    yes: bool,
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
        let is_from_now = self.from.is_none_or(|from| from == NOW);
        let paths = if is_from_now { self.real_tracked() } else { Vec::new() };
        forks.check_new_name(self.name, &paths)?;
        refuse_git_elsewhere(&self.tracked)?;
        let settings = Settings::load(&surroundings()?, &FlagSettings::default())?;
        refuse_too_many(&forks, &settings)?;
        match self.copy.copy {
            true => refusal::probe_copy(&root)?,
            false => refusal::probe(&root)?,
        }
        let from = self.from.unwrap_or(NOW);
        // Before the session: a kill leaves a trace of it.
        let birth = forks.expect()?;
        let (session, from) = match from {
            NOW => (self.record(root.clone(), &settings, context)?, NOW.to_owned()),
            word => {
                let (manifest, named) = recorded(&catalog, word)?;
                let bar = Bar::new(context, "looking for the state");
                let begun = begin_recorded(&root, &manifest, &*bar);
                bar.finish();
                (begun?, named)
            }
        };
        if self.copy.copy {
            let agreed = self.copy.is_agreed(&session, context);
            if !matches!(agreed, Ok(true)) {
                withdraw(&root, &[session])?;
                agreed?;
                return Err(CliError::failed("nothing was copied, and there is no fork"));
            }
        }
        let (name, session, from) = (self.name, &session, &*from);
        let new = NewFork { name, session, from, throw_away: false, copied: self.copy.copy };
        Ok(birth.make(new)?.0)
    }

    /// The directories of a fork from now, as a manifest names them.
    fn real_tracked(&self) -> Vec<PathBuf> {
        self.tracked.iter().map(|path| sys::real_or_future_path(path)).collect()
    }

    fn record(
        &self,
        root: PathBuf,
        settings: &Settings,
        context: &Context,
    ) -> Result<SessionDir, CliError> {
        let request = RecordRequest {
            root,
            command: Vec::new(),
            tracked_paths: self.tracked.clone(),
            exclusion: CaptureArgs::default().exclusion(settings, self.profile)?,
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

impl CopyArgs {
    /// Says what a copy takes, and asks where it is not next to nothing.
    fn is_agreed(self, session: &SessionDir, context: &Context) -> Result<bool, CliError> {
        let totals = session.manifest(0)?.manifest.totals;
        let store = Catalog::store_of(session)?;
        let size = byte_size(totals.total_bytes);
        let files = counted(totals.file_count, "file", "files");
        if store.shares_blocks()? {
            context.say(format_args!(
                "a copy of {files}, {size}: the blocks of large files are shared"
            ));
            return Ok(true);
        }
        let price = format!("a copy of {files} takes {size}");
        if self.yes {
            context.say(&price);
            return Ok(true);
        }
        if !context.stdin_is_terminal || !context.stderr_is_terminal {
            return Err(CliError::usage(format!("{price}, and no terminal is there to ask"))
                .with_hint("--yes copies"));
        }
        context.confirm(&format!("{price}: make it?"))
    }
}

/// Refuses one more fork than the settings allow. Throw-away forks do not count.
///
/// # Errors
/// That, or the forks cannot be read.
fn refuse_too_many(forks: &Forks, settings: &Settings) -> Result<(), CliError> {
    let (max_forks, max_bytes) = (settings.max_forks.value, settings.max_fork_bytes.value);
    if max_forks == 0 && max_bytes == 0 {
        return Ok(());
    }
    let forks: Vec<Fork> = forks.list()?.into_iter().flatten().collect();
    let forks = forks.iter().filter(|fork| !fork.document().throw_away);
    let refused = |message: String| {
        let hint = format!("discard one: {NONO} fork discard NAME; {NONO} forks lists them");
        Err(CliError::failed(message).with_hint(hint))
    };
    let count = forks.clone().count() as u64;
    if max_forks > 0 && count >= max_forks {
        return refused(format!(
            "the setting max_forks allows no more than {max_forks}, and there are {}",
            counted(count, "fork", "forks")
        ));
    }
    if max_bytes > 0 {
        let bytes = forks.map(Fork::disk_bytes).sum::<Result<u64, _>>()?;
        if bytes >= max_bytes {
            return refused(format!(
                "the forks take {}, and the setting max_fork_bytes allows {}",
                byte_size(bytes),
                byte_size(max_bytes)
            ));
        }
    }
    Ok(())
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
