//! The leftovers of an interrupted restore in its staging directories, when nothing has to be
//! finished or reverted any more.
//!
//! A journal without steps says that no path has changed yet, or that every one has. No one has
//! to decide anything then, and whoever comes next clears up.
//!
//! A journal that is given up may be damaged, so that its names are unknown. A staging directory is
//! this restore's if its random name stands anywhere in the bytes of the journal. It is only
//! removed if everything in it is in the store: a file that was changed in the last moment may
//! be nowhere else. Entries that stay are named.

use std::path::PathBuf;

use jiff::Timestamp;

use super::RestoreError;
use super::journal::{Journal, is_area_name};
use super::recover::{Recovery, RecoveryReport};
use crate::byte_path;
use crate::object::ContentHash;
use crate::path_text::Shown;
use crate::progress::{Progress, Uncounted};
use crate::snapshot::{OpenPath, SnapshotError, SnapshotManager, TrackedRoot};
use crate::store::{LocalStore, StoreError, Transfer, hash_file};
use crate::sys::{Dir, FileKind};

/// The result of giving up a restore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiscardReport {
    /// Staging directories that were removed: everything in them is in the store.
    pub removed: Vec<PathBuf>,
    /// Staging directories that were found and left, each with the reason.
    pub left: Vec<(PathBuf, String)>,
}

impl SnapshotManager {
    /// Removes what a restore left of its staging directories if it was interrupted before its
    /// first change or after its last, without waiting for a lock. `Some`: that was done, and
    /// nothing of the restore is left. The report is that of [`Recovery::Finish`].
    ///
    /// # Errors
    /// [`RestoreError`]; the journal is then still there.
    pub fn clear_staging(&self) -> Result<Option<RecoveryReport>, RestoreError> {
        let Some(_session_lock) = self.session().try_lock()? else { return Ok(None) };
        self.clear_staging_under_lock()
    }

    pub(super) fn clear_staging_under_lock(&self) -> Result<Option<RecoveryReport>, RestoreError> {
        match Journal::load(self.session())? {
            Some(journal) if journal.work.is_none() => {
                self.clear_without_steps(journal, Recovery::Finish).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Sets aside a journal that can be neither finished nor taken back, because it is damaged or
    /// what it needs is gone. The tracked paths stay as they are, maybe between two states, and
    /// snapshots of the session can be restored again. `None`: there is no journal.
    ///
    /// # Errors
    /// When it cannot be renamed, or the tracked paths cannot be looked through.
    pub fn discard_restore(&self) -> Result<Option<DiscardReport>, RestoreError> {
        let _session_lock = self.lock_interrupted_session()?;
        let _store_lock = self.lock_store()?;
        let Some(journal) = Journal::bytes(self.session())? else { return Ok(None) };
        let mut report = DiscardReport::default();
        for (parent, name) in staging_directories(&self.known_roots()) {
            let path = parent.path_of(&name);
            let is_ours = journal.windows(name.len()).any(|window| window == &*name);
            let kept = if is_ours {
                match what_is_not_stored(self.store(), &parent, &name, self.progress()) {
                    Err(StoreError::Cancelled) => return Err(RestoreError::Cancelled),
                    Ok(None) => parent.remove_dir_all(&name).err().map(|error| error.to_string()),
                    Ok(Some(what)) => Some(format!("{what} in it is in no snapshot")),
                    Err(error) => Some(error.to_string()),
                }
            } else {
                Some("it is not known which restore made it".to_owned())
            };
            match kept {
                None => report.removed.push(path),
                Some(reason) => report.left.push((path, reason)),
            }
        }
        // How far a merge came is not known. It stands, so that an undo has the state before it,
        // and counts no change as merged. A session that cannot be read is given up all the same.
        if let Ok(mut metadata) = self.session().metadata()
            && let Some(merge) = metadata.merge.as_mut().filter(|merge| !merge.is_done)
        {
            merge.give_up();
            (metadata.ended, metadata.exit_code) = (Some(Timestamp::now()), Some(1));
            self.session().save_metadata(&metadata).map_err(SnapshotError::from)?;
        }
        // Last, so that whoever is interrupted here can do it again.
        Journal::set_aside(self.session())?;
        Ok(Some(report))
    }

    /// Tracked paths of all snapshots that can be read.
    fn known_roots(&self) -> Vec<TrackedRoot> {
        let numbers = self.session().manifest_numbers().unwrap_or_default();
        let manifests = numbers.iter().filter_map(|number| self.session().manifest(*number).ok());
        let mut roots = self.roots().to_vec();
        roots.extend(manifests.flat_map(|loaded| loaded.manifest.roots));
        roots.sort_by(|a, b| a.path.cmp(&b.path));
        roots.dedup_by(|a, b| a.path == b.path);
        roots
    }
}

/// All directories with the name of a staging directory beside and inside some tracked paths.
fn staging_directories(roots: &[TrackedRoot]) -> Vec<(Dir, Box<[u8]>)> {
    let mut found: Vec<(Dir, Box<[u8]>)> = Vec::new();
    for root in roots {
        let Ok(place) = OpenPath::new(&root.path) else { continue };
        let top = place.parent.open_dir(place.name()).ok();
        look_in(&place.parent, b"", &mut found, &mut Vec::new());
        let mut pending = vec![Vec::new()];
        while let (Some(top), Some(relative)) = (&top, pending.pop()) {
            let Ok(dir) = top.open_beneath(&relative) else { continue };
            look_in(&dir, &relative, &mut found, &mut pending);
        }
    }
    found.sort_by(|a, b| (a.0.path(), &a.1).cmp(&(b.0.path(), &b.1)));
    found.dedup_by(|a, b| a.0.path() == b.0.path() && a.1 == b.1);
    found
}

fn look_in(
    dir: &Dir,
    relative: &[u8],
    found: &mut Vec<(Dir, Box<[u8]>)>,
    pending: &mut Vec<Vec<u8>>,
) {
    // An unreadable directory cannot be searched either.
    for listed in dir.names().unwrap_or_default() {
        let is_dir = listed.kind.is_none_or(|kind| kind == FileKind::Directory)
            && dir.stat(&listed.name).is_ok_and(|stat| stat.kind == FileKind::Directory);
        if !is_dir {
            continue;
        }
        if !is_area_name(&listed.name) {
            pending.push(byte_path::join(relative, &listed.name));
        } else if let Ok(parent) = Dir::open_no_symlinks(dir.path()) {
            found.push((parent, listed.name));
        }
    }
}

/// Something in a staging directory that the store does not have.
fn what_is_not_stored(
    store: &LocalStore,
    parent: &Dir,
    name: &[u8],
    progress: &dyn Progress,
) -> Result<Option<String>, StoreError> {
    let top = parent.open_dir(name)?;
    let (mut buffer, progress) = (Vec::new(), Uncounted(progress));
    let mut pending = vec![Vec::new()];
    while let Some(relative) = pending.pop() {
        let dir = top.open_beneath(&relative)?;
        for listed in dir.names()? {
            let mut transfer = Transfer::new(&mut buffer, &progress);
            let inside = byte_path::join(&relative, &listed.name);
            let stat = dir.stat(&listed.name)?;
            let is_stored = match stat.kind {
                FileKind::Directory => {
                    pending.push(inside);
                    continue;
                }
                FileKind::File => match hash_file(&dir, &listed.name, &mut transfer)? {
                    Some(hash) => is_intact(store, &hash, stat.size, &mut transfer)?,
                    None => false,
                },
                // Links and the like are recorded in trees only, and small enough to be looked at.
                _ => false,
            };
            if !is_stored {
                return Ok(Some(Shown::bytes(&inside).to_string()));
            }
        }
    }
    Ok(None)
}

fn is_intact(
    store: &LocalStore,
    hash: &ContentHash,
    size: u64,
    transfer: &mut Transfer<'_>,
) -> Result<bool, StoreError> {
    match store.open_intact(hash, size, transfer) {
        Err(StoreError::Cancelled) => Err(StoreError::Cancelled),
        verified => Ok(verified.is_ok()),
    }
}
