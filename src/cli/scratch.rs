//! A directory for the temporary files of one run, which does not outlive it.
//!
//! The system's own is shared with everybody, so a command within its grants does not get it. A run has
//! `nono-UID/NAME` in there: `nono-UID` belongs to this user alone and holds nothing else, so whatever is
//! in it is ours, and nobody else can put anything there.
//!
//! A run that is killed removes nothing. So each directory is locked (`flock`) by whoever lives in it: the
//! supervisor, and the command, which inherits the descriptor. The kernel releases the lock when the last
//! of them has ended, in whatever way, and the next run removes what is not locked. A lock on `nono-UID`
//! keeps a directory that is made, and not locked yet, from being taken for one.

use std::path::{Path, PathBuf};

use super::error::CliError;
use crate::path_text::Shown;
use crate::sys::{self, Dir, FileKind, FileLock};

/// A name has so many random bytes, in hexadecimal digits.
const NAME_BYTES: usize = 6;

/// A directory of this run alone, removed when dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    parent: Dir,
    name: String,
    path: PathBuf,
    _lock: FileLock,
}

impl Scratch {
    /// Makes one in the system's directory of temporary files, and begins to remove those of runs that
    /// were killed.
    pub(super) fn new() -> Result<Self, CliError> {
        let temporary = Dir::open(&sys::real_path(&std::env::temp_dir())?)?;
        let name = hex::encode(&sys::random_bytes()?[..NAME_BYTES]);
        let Some(parent) = open_private(&temporary)? else {
            return Self::make(temporary, format!("nono-{name}"));
        };
        let _sweeping = FileLock::exclusive_of(&parent)?;
        remove_later(&parent, abandoned(&parent)?)?;
        Self::make(parent, name)
    }

    fn make(parent: Dir, name: String) -> Result<Self, CliError> {
        parent.make_dir(name.as_bytes(), 0o700)?;
        let path = parent.path_of(name.as_bytes());
        let locked = parent
            .open_dir(name.as_bytes())
            .and_then(|dir| FileLock::exclusive_of(&dir))
            .and_then(|lock| lock.inherited());
        match locked {
            Ok(lock) => Ok(Self { parent, name, path, _lock: lock }),
            Err(error) => {
                let _ = parent.remove_dir(name.as_bytes());
                Err(error.into())
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = self.parent.remove_dir_all(self.name.as_bytes()) {
            tracing::warn!("temporary files stay behind: {error}");
        }
    }
}

/// The directory of this user; `None` when somebody else has its name.
fn open_private(temporary: &Dir) -> Result<Option<Dir>, CliError> {
    let name = format!("nono-{}", sys::effective_uid());
    let name = name.as_bytes();
    match temporary.make_dir(name, 0o700) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    let is_ours = |dir: &Dir| -> sys::Result<bool> {
        let stat = dir.stat_self()?;
        Ok(stat.uid == sys::effective_uid() && stat.mode & 0o077 == 0)
    };
    match temporary.open_dir(name) {
        Ok(dir) if is_ours(&dir)? => Ok(Some(dir)),
        _ => {
            let path = temporary.path_of(name);
            tracing::warn!(
                "{} is not a directory of yours alone: temporary files are kept beside it, and stay \
                 if this run is killed",
                Shown::path(&path)
            );
            Ok(None)
        }
    }
}

/// A directory in which nobody lives any more, and its lock.
type Abandoned = (Box<[u8]>, FileLock);

fn abandoned(parent: &Dir) -> sys::Result<Vec<Abandoned>> {
    let mut found = Vec::new();
    for listed in parent.names()? {
        let is_a_name = listed.name.len() == 2 * NAME_BYTES
            && listed.name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_dir = || parent.stat(&listed.name).is_ok_and(|s| s.kind == FileKind::Directory);
        if !is_a_name || !is_dir() {
            continue;
        }
        // One that cannot be opened, or that went just now, is nothing to fail for.
        let lock =
            parent.open_own_dir(&listed.name).and_then(|dir| FileLock::try_exclusive_of(&dir));
        if let Ok(Some(lock)) = lock {
            found.push((listed.name, lock));
        }
    }
    Ok(found)
}

/// Removes them beside the command. What is left when this process ends, the next run removes.
fn remove_later(parent: &Dir, abandoned: Vec<Abandoned>) -> sys::Result<()> {
    if abandoned.is_empty() {
        return Ok(());
    }
    let parent = parent.open_beneath(b"")?;
    let remove = move || {
        sys::lower_priority();
        for (name, _lock) in &abandoned {
            if let Err(error) = parent.remove_dir_all(name) {
                tracing::debug!("temporary files of a run that was killed stay: {error}");
            }
        }
    };
    // Without a thread, the next run does it.
    let _ = sys::spawn("scratch", remove);
    Ok(())
}
