//! A directory for the temporary files of one run.
//!
//! The system's own is shared with everybody, so a command within its grants does not get it. A run
//! has `nono-UID/NAME` in there: `nono-UID` belongs to this user alone and holds nothing else, so
//! every file in it is ours, and no other user can put anything there. The command gets one part of
//! it, the *room*, which it sees at `/tmp` where it has a mount namespace; files that the command
//! must not reach lie beside the room.
//!
//! The files that a command leaves in its room stay for a day, because the user may look for them.
//! A killed run removes nothing. So each directory is locked (`flock`) by its users: the
//! supervisor, and the keeper, which lives as long as a process of the command does. The kernel
//! releases the lock when the last of them has ended, in whatever way, and a later run removes old
//! directories without a lock. A lock on `nono-UID` protects a directory that is made, and not
//! locked yet, from removal.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::CliError;
use nono_engine::byte_path;
use nono_engine::path_text::Shown;
use nono_engine::sys::{self, Dir, FileKind, FileLock};

/// A name has so many random bytes, in hexadecimal digits.
const NAME_BYTES: usize = 6;
/// The command's part of the directory.
const ROOM: &str = "room";
/// So long stays what a command left behind.
const KEPT_SECONDS: i64 = 24 * 60 * 60;

/// A directory of this run alone. Dropped, it goes, unless something is in its room or a process
/// lives there.
#[derive(Debug)]
pub(super) struct Scratch {
    parent: Dir,
    name: String,
    path: PathBuf,
    room: Dir,
    /// Places in the room at which something else is shown, the deepest last; of each, its path.
    places: Vec<Vec<u8>>,
    lock: Option<FileLock>,
}

/// The files that a command left in its room.
#[derive(Debug)]
pub(super) struct LeftBehind {
    pub(super) path: PathBuf,
    /// Entries of the room itself.
    pub(super) count: usize,
}

impl Scratch {
    /// Makes one in the system's directory of temporary files.
    ///
    /// # Errors
    /// When that is no directory, or cannot be written.
    pub(super) fn temporary() -> Result<Self, CliError> {
        let hint = "temporary files lie in the directory that TMPDIR names, or else in /tmp: name \
                    one that you can write, or unset TMPDIR";
        let made = sys::open_temporary_dir().map_err(CliError::from).and_then(Self::within);
        made.map_err(|error| error.with_hint(hint))
    }

    /// Makes one in a directory of temporary files, and begins to remove old ones of other runs.
    pub(super) fn new(temporary: &Path) -> Result<Self, CliError> {
        Self::within(Dir::open(&sys::real_path(temporary)?)?)
    }

    fn within(temporary: Dir) -> Result<Self, CliError> {
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
        let furnished = (|| {
            let lock = FileLock::shared_dir(&path)?;
            let dir = parent.open_dir(name.as_bytes())?;
            dir.make_dir(ROOM.as_bytes(), 0o700)?;
            // Programs that share `/tmp` with others look whether they do it right.
            dir.inode(ROOM.as_bytes())?.set_mode(0o1777)?;
            Ok::<_, sys::Error>((lock, dir.open_dir(ROOM.as_bytes())?))
        })();
        match furnished {
            Ok((lock, room)) => {
                Ok(Self { parent, name, path, room, places: Vec::new(), lock: Some(lock) })
            }
            Err(error) => {
                let _ = parent.remove_dir_all(name.as_bytes());
                Err(error.into())
            }
        }
    }

    /// The directory, which the command does not reach.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The command's part of it.
    pub(super) fn room(&self) -> &Path {
        self.room.path()
    }

    /// Makes a place in the room at which something else can be shown: a directory, or an empty
    /// file.
    pub(super) fn make_place(&mut self, relative: &Path, is_dir: bool) -> Result<(), CliError> {
        let relative = relative.as_os_str().as_bytes();
        for dir in byte_path::ancestors(relative).filter(|dir| !dir.is_empty()) {
            self.make_place_at(dir, true)?;
        }
        Ok(self.make_place_at(relative, is_dir)?)
    }

    fn make_place_at(&mut self, relative: &[u8], is_dir: bool) -> sys::Result<()> {
        let (parent, name) = byte_path::split(relative);
        let parent = self.room.open_beneath(parent)?;
        if parent.try_stat(name)?.is_some() {
            return Ok(());
        }
        match is_dir {
            true => parent.make_dir(name, 0o755)?,
            false => drop(parent.create_file(name, 0o600)?),
        }
        self.places.push(relative.to_owned());
        Ok(())
    }

    /// Whether no run told of this for a day. It counts as told from now on.
    pub(super) fn is_news(&self, topic: &str) -> bool {
        let name = format!("told-{topic}");
        let now = sys::coarse_now().seconds;
        let is_told = |stat: sys::Stat| now.abs_diff(stat.mtime.seconds) < KEPT_SECONDS as u64;
        let is_old =
            self.parent.try_stat(name.as_bytes()).ok().flatten().is_none_or(|s| !is_told(s));
        // Where others write, the mark of a message proves nothing.
        let is_ours = self.parent.stat_self().is_ok_and(|stat| stat.mode & 0o077 == 0);
        if is_old && is_ours {
            let _ = self.parent.remove_file(name.as_bytes());
            let _ = self.parent.create_file(name.as_bytes(), 0o600);
        }
        is_old
    }

    /// Takes the places away, and says what the command left. `ours` is a name in the room that is
    /// not the command's.
    pub(super) fn left_behind(&mut self, ours: &str) -> Option<LeftBehind> {
        let _ = self.room.remove_file(ours.as_bytes());
        for place in self.places.drain(..).rev() {
            let (parent, name) = byte_path::split(&place);
            let Ok(parent) = self.room.open_beneath(parent) else { continue };
            // The command's own files stay; no other user's file has one of these names.
            let _ = match parent.try_stat(name) {
                Ok(Some(stat)) if stat.kind == FileKind::Directory => parent.remove_dir(name),
                Ok(Some(stat)) if stat.kind == FileKind::File && stat.size == 0 => {
                    parent.remove_file(name)
                }
                _ => Ok(()),
            };
        }
        // From a run inside this one, which left nothing either.
        let _ = self.room.remove_dir(format!("nono-{}", sys::effective_uid()).as_bytes());
        let count = self.room.names().map_or(0, |names| names.len());
        (count > 0).then(|| LeftBehind { path: self.room().to_owned(), count })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.lock.take());
        let is_empty = self.room.names().is_ok_and(|names| names.is_empty());
        let is_free = || {
            let dir = self.parent.open_own_dir(self.name.as_bytes());
            dir.and_then(|dir| FileLock::try_exclusive_of(&dir))
        };
        if !is_empty {
            return;
        }
        match is_free() {
            // A process lives there, and a later run removes it.
            Ok(None) => {}
            Ok(Some(_lock)) => {
                if let Err(error) = self.parent.remove_dir_all(self.name.as_bytes()) {
                    tracing::warn!("temporary files stay behind: {error}");
                }
            }
            Err(error) => tracing::warn!("temporary files stay behind: {error}"),
        }
    }
}

/// The directory of this user; `None` when another user has its name.
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
                "{} is not a directory of yours alone: temporary files are kept beside it, and \
                 stay if this run is killed",
                Shown::path(&path)
            );
            Ok(None)
        }
    }
}

/// A directory in which no process lives any more, and its lock.
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
        let Ok(dir) = parent.open_own_dir(&listed.name) else { continue };
        if let Ok(Some(lock)) = FileLock::try_exclusive_of(&dir)
            && !is_kept(&dir)
        {
            found.push((listed.name, lock));
        }
    }
    Ok(found)
}

/// Whether a command left something here less than a day ago.
fn is_kept(dir: &Dir) -> bool {
    let Ok(room) = dir.open_dir(ROOM.as_bytes()) else { return false };
    let is_empty = room.names().is_ok_and(|names| names.is_empty());
    let now = sys::coarse_now().seconds;
    let is_young = |dir: &Dir| {
        dir.stat_self().is_ok_and(|stat| now.abs_diff(stat.mtime.seconds) < KEPT_SECONDS as u64)
    };
    !is_empty && (is_young(dir) || is_young(&room))
}

/// Removes them beside the command. The next run removes the rest when this process ends first.
fn remove_later(parent: &Dir, abandoned: Vec<Abandoned>) -> sys::Result<()> {
    if abandoned.is_empty() {
        return Ok(());
    }
    let parent = parent.open_beneath(b"")?;
    let remove = move || {
        sys::lower_priority();
        for (name, _lock) in &abandoned {
            if let Err(error) = parent.remove_dir_all(name) {
                tracing::debug!("temporary files of an older run stay: {error}");
            }
        }
    };
    // Without a thread, the next run does it.
    let _ = sys::spawn("scratch", remove);
    Ok(())
}
