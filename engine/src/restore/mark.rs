//! Restores at work, as a run that begins sees them.
//!
//! The changes of a restore beside a command are recorded as the command's work. So no run begins
//! beside a restore, and no restore beside a run, whatever program asks for it. A restore marks its
//! paths first and looks for runs then. A run has its session first, and waits then until no mark
//! concerns it. Whoever comes second sees the other, in whatever order the two go on. Files that
//! are not recorded are no obstacle.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{RestoreError, RestoreOptions};
use crate::byte_path;
use crate::layout;
use crate::progress::{Progress, Stage, wait_for};
use crate::snapshot::{ManifestError, SessionDir, SessionOrigin, SnapshotError, SnapshotManager};
use crate::sys::{self, Dir, FileLock};

/// Longer marks are not read; no command line names so many paths.
const MAX_BYTES: u64 = 64 << 20;

/// Keeps runs on some paths from beginning, for as long as the value lives. A mark whose process
/// died keeps no run: the lock is gone with it.
#[derive(Debug)]
pub struct RestoreMark {
    dir: Dir,
    name: String,
    _lock: FileLock,
}

impl RestoreMark {
    /// Marks paths as being restored: runs on them, above them or below them wait.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn set(root: &Path, paths: &[PathBuf]) -> sys::Result<Self> {
        let dir = Dir::open(root)?;
        let hidden = layout::new_name()?;
        let name = hidden.replacen(layout::NEW_PREFIX, layout::RESTORING_PREFIX, 1);
        let made = (|| {
            let mut file = dir.create_file(hidden.as_bytes(), 0o600)?;
            // The lock goes along with the rename, so no process sees the mark without it.
            let lock = FileLock::exclusive(&dir.path_of(hidden.as_bytes()))?;
            let mut bytes = Vec::new();
            for path in paths {
                bytes.extend_from_slice(path.as_os_str().as_bytes());
                bytes.push(0);
            }
            let written = file.write_all(&bytes);
            sys::IoContext::at(written, "write", &dir.path_of(hidden.as_bytes()))?;
            dir.rename_new(hidden.as_bytes(), &dir, name.as_bytes())?;
            Ok(lock)
        })();
        match made {
            Ok(lock) => Ok(Self { dir, name, _lock: lock }),
            Err(error) => {
                let _ = dir.remove_file(hidden.as_bytes());
                Err(error)
            }
        }
    }
}

impl Drop for RestoreMark {
    fn drop(&mut self) {
        // The lock goes last.
        let _ = self.dir.remove_file(self.name.as_bytes());
    }
}

/// The treatment of runs that are at work on the paths of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunsAtWork {
    /// Beside these, by their ids, the restore is done. Beside any other one it is refused.
    Allow(Vec<String>),
    /// The restore is done beside any of them.
    Ignore,
}

impl Default for RunsAtWork {
    fn default() -> Self {
        Self::Allow(Vec::new())
    }
}

impl SnapshotManager {
    /// Marks the paths of a restore, and then looks for runs at work on them. Without a mark, as on
    /// a full disk, a restore is done all the same. A session outside of a store has no runs beside
    /// it.
    pub(super) fn begin_restore(
        &self,
        number: u64,
        options: &RestoreOptions,
    ) -> Result<Option<RestoreMark>, RestoreError> {
        let session = self.session();
        let is_store = |path: &&Path| Dir::open(&path.join(layout::OBJECTS)).is_ok();
        let Some(store) = session.path().parent().filter(is_store) else { return Ok(None) };
        let roots = match session.manifest(number) {
            Ok(loaded) => loaded.manifest.roots,
            Err(_) => self.roots().to_vec(),
        };
        let roots: Vec<PathBuf> = roots.into_iter().map(|root| root.path).collect();
        let paths = options.selection.contained_in(&roots);
        let mark = RestoreMark::set(store, &paths)
            .inspect_err(|error| tracing::warn!("a run may begin during the restore: {error}"))
            .ok();
        let RunsAtWork::Allow(allowed) = &options.runs_at_work else { return Ok(mark) };
        let running = runs_on(store, &paths).map_err(SnapshotError::from)?;
        // A program may restore the session that it records itself.
        let is_other = |id: &String| *id != session.id() && !allowed.contains(id);
        match running.into_iter().find(|other| is_other(&other.id())) {
            None => Ok(mark),
            Some(other) => {
                let metadata = other.metadata().map_err(SnapshotError::from)?;
                let (command, tracked) = (metadata.command, metadata.tracked_paths);
                Err(RestoreError::RunAtWork { session: other.id(), command, tracked })
            }
        }
    }
}

/// The sessions of a store whose command is running now and may write to one of these paths, by
/// id.
///
/// # Errors
/// When the store cannot be listed.
pub(crate) fn runs_on(store: &Path, paths: &[PathBuf]) -> Result<Vec<SessionDir>, ManifestError> {
    let mut running = SessionDir::all_below(store)?;
    running.retain(|session| works_on(session, paths));
    running.sort_by_key(SessionDir::id);
    Ok(running)
}

/// Whether the command of a session is running now, and may write to one of these paths. One that
/// cannot be looked at is no obstacle.
fn works_on(session: &SessionDir, paths: &[PathBuf]) -> bool {
    if !session.is_running().unwrap_or(false) {
        return false;
    }
    let Ok(metadata) = session.metadata() else { return false };
    let mut tracked = metadata.tracked_paths.iter();
    metadata.origin == SessionOrigin::Run
        && metadata.ended.is_none()
        && tracked.any(|tracked| {
            paths.iter().any(|path| tracked.starts_with(path) || path.starts_with(tracked))
        })
}

/// Waits until nothing is restored on these paths, above them or below them. `false`: the wait was
/// cancelled.
pub(crate) fn wait_for_restores(
    root: &Path,
    paths: &[PathBuf],
    progress: &dyn Progress,
) -> sys::Result<bool> {
    let dir = Dir::open(root)?;
    for listed in dir.names()? {
        if !listed.name.starts_with(layout::RESTORING_PREFIX.as_bytes()) {
            continue;
        }
        let path = dir.path_of(&listed.name);
        let attempt = || {
            if dir.try_stat(&listed.name)?.is_none() {
                return Ok(Some(()));
            }
            let lock = FileLock::try_shared(&path)?;
            if lock.is_some() {
                // Its process has ended; what a crash leaves of it goes here.
                let _ = dir.remove_file(&listed.name);
            }
            Ok(lock.map(drop))
        };
        if attempt()?.is_some() || !concerns(&dir, &listed.name, paths) {
            continue;
        }
        progress.begin(Stage::Wait, None);
        if wait_for(progress, attempt)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a mark has a path that contains one of these, or lies in one. What cannot be read
/// concerns everybody, and the lock says for how long.
fn concerns(dir: &Dir, name: &[u8], paths: &[PathBuf]) -> bool {
    let Ok(bytes) = dir.read(name, MAX_BYTES) else { return true };
    let mut marked = bytes.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    marked.any(|marked| {
        paths.iter().any(|path| {
            let path = path.as_os_str().as_bytes();
            byte_path::is_in(path, marked) || byte_path::is_in(marked, path)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::NoProgress;

    /// Gives up as soon as there is something to wait for.
    struct NoPatience;

    impl Progress for NoPatience {
        fn advance(&self, _entries: u64, _bytes: u64) {}

        fn is_cancelled(&self) -> bool {
            true
        }
    }

    fn waits(root: &Path, path: &str) -> bool {
        !wait_for_restores(root, &[path.into()], &NoPatience).unwrap()
    }

    #[test]
    fn a_run_waits_for_a_restore_of_its_paths_and_for_no_other() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let mark = RestoreMark::set(root, &["/p/a".into(), "/q".into()]).unwrap();
        for path in ["/p/a", "/p", "/p/a/b", "/q", "/q/x", "/"] {
            assert!(waits(root, path), "{path}");
        }
        for path in ["/p/b", "/p/ab", "/r"] {
            assert!(!waits(root, path), "{path}");
        }
        drop(mark);
        assert!(!waits(root, "/p/a"));
        assert!(Dir::open(root).unwrap().names().unwrap().is_empty());
    }

    #[test]
    fn a_mark_whose_process_died_keeps_nobody_and_goes() {
        let root = tempfile::tempdir().unwrap();
        let name = format!("{}0", layout::RESTORING_PREFIX);
        let dir = Dir::open(root.path()).unwrap();
        dir.create_file(name.as_bytes(), 0o600).unwrap().write_all(b"/p\0").unwrap();
        assert!(wait_for_restores(root.path(), &["/p".into()], &NoProgress).unwrap());
        assert!(dir.names().unwrap().is_empty());
    }
}
