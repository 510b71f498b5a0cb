//! The manifests of a session's snapshots: read, published, removed, and checked as a chain.

use std::path::PathBuf;

use super::documents::{encode, read, write};
use super::metadata::SessionMetadata;
use super::session_dir::SessionDir;
use crate::layout;
use crate::manifest::{MANIFEST_VERSION, RemovedSnapshot, SnapshotManifest};
use crate::object::ContentHash;
use crate::path_text::Shown;
use crate::sys::{self, Dir};

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// There is none.
    #[error("there is no manifest at {}", Shown::path(path))]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// It is not what nono wrote.
    #[error("the manifest {} is damaged: {reason}", Shown::path(path))]
    Corrupt {
        /// Where it is.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// A newer nono wrote it.
    #[error(
        "the manifest {} has format version {found}; this nono knows up to {MANIFEST_VERSION}: \
         use a newer nono",
        Shown::path(path)
    )]
    Newer {
        /// Where it is.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The snapshot was removed from its session; its manifest is there.
    #[error("snapshot {} of session {} was {removed}", removed.number, Shown::path(session))]
    Removed {
        /// The session's directory.
        session: PathBuf,
        /// When and why.
        removed: RemovedSnapshot,
    },
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] sys::Error),
}

/// A snapshot's manifest with the hash of its file.
#[derive(Debug, Clone)]
pub struct LoadedManifest {
    /// The document.
    pub manifest: SnapshotManifest,
    /// SHA-256 of the file, which the next manifest and the session name.
    pub hash: ContentHash,
}

/// Longer notes of a removal are not read.
const MAX_NOTE_BYTES: u64 = 4096;

impl SessionDir {
    /// Numbers of the snapshots that the session holds, ascending: those that have a manifest,
    /// without the removed ones. Where the session's manifest cannot be used, none counts as
    /// removed.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn snapshot_numbers(&self) -> Result<Vec<u64>, ManifestError> {
        let mut numbers = self.manifest_numbers()?;
        if let Ok(metadata) = self.metadata() {
            numbers.retain(|number| metadata.removal(*number).is_none());
        }
        Ok(numbers)
    }

    /// The snapshots that were recorded in the session itself, ascending. One that an archive added
    /// to a session of this store is no state that the session left.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn recorded_numbers(&self) -> Result<Vec<u64>, ManifestError> {
        let mut numbers = self.snapshot_numbers()?;
        if let Ok(metadata) = self.metadata() {
            numbers.retain(|number| !metadata.was_added(*number));
        }
        Ok(numbers)
    }

    /// The first snapshot that the session holds: 0, unless it was removed.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn first_number(&self) -> Result<u64, ManifestError> {
        Ok(self.snapshot_numbers()?.first().copied().unwrap_or(0))
    }

    /// The snapshot before this one that the session still holds.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn held_before(&self, number: u64) -> Result<Option<u64>, ManifestError> {
        Ok(self.snapshot_numbers()?.into_iter().rfind(|held| *held < number))
    }

    /// Refuses a snapshot that was removed.
    ///
    /// # Errors
    /// [`ManifestError::Removed`]. A session's manifest that cannot be used removes nothing.
    pub fn refuse_removed(&self, number: u64) -> Result<(), ManifestError> {
        match self.metadata().ok().and_then(|metadata| metadata.removal(number).cloned()) {
            Some(removed) => {
                let session = self.path().to_owned();
                Err(ManifestError::Removed { session, removed })
            }
            None => Ok(()),
        }
    }

    /// Numbers of the snapshots that have a manifest, removed ones included, ascending.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn manifest_numbers(&self) -> Result<Vec<u64>, ManifestError> {
        let snapshots = match self.dir()?.open_dir(layout::SNAPSHOTS.as_bytes()) {
            Ok(dir) => dir,
            Err(error) if error.is_gone() => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut numbers = Vec::new();
        for listed in snapshots.names()? {
            let Some(number) = parse_number(&listed.name) else { continue };
            // Without a manifest it is what a crash left of a snapshot that never was.
            let path = [&*listed.name, b"/", layout::MANIFEST.as_bytes()].concat();
            if snapshots.try_stat(&path)?.is_some() {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// A snapshot's manifest, checked for form but not against the chain.
    ///
    /// # Errors
    /// As [`ManifestError`] says.
    pub fn manifest(&self, number: u64) -> Result<LoadedManifest, ManifestError> {
        let name = layout::snapshot_manifest(number).into_bytes();
        let (manifest, hash) = read::<SnapshotManifest>(&self.dir()?, &name)?;
        match manifest.validate(number) {
            Ok(()) => Ok(LoadedManifest { manifest, hash }),
            Err(reason) => Err(ManifestError::Corrupt { path: self.manifest_path(number), reason }),
        }
    }

    /// A snapshot's manifest, checked against the session's list of hashes and against the snapshot
    /// after it, where those are. Damage of other snapshots does not matter.
    ///
    /// # Errors
    /// As [`ManifestError`] says.
    pub fn listed_manifest(
        &self,
        number: u64,
        listed: &[ContentHash],
    ) -> Result<LoadedManifest, ManifestError> {
        let loaded = self.manifest(number)?;
        let corrupt = |reason: &str| {
            let path = self.manifest_path(number);
            Err(ManifestError::Corrupt { path, reason: reason.to_owned() })
        };
        if listed.get(number as usize).is_some_and(|hash| *hash != loaded.hash) {
            return corrupt("its hash is not the one that the session lists");
        }
        match self.manifest(number + 1) {
            Ok(next) if next.manifest.parent_hash != Some(loaded.hash) => {
                corrupt("its hash is not the one that the snapshot after it names")
            }
            _ => Ok(loaded),
        }
    }

    /// The manifests of all snapshots that the session recorded and holds, in order.
    ///
    /// # Errors
    /// The first that is missing or damaged.
    pub(crate) fn recorded_chain(
        &self,
        metadata: &SessionMetadata,
    ) -> Result<Vec<LoadedManifest>, ManifestError> {
        (0..metadata.snapshot_count)
            .filter(|it| !metadata.was_added(*it) && metadata.removal(*it).is_none())
            .map(|number| self.listed_manifest(number, &metadata.manifest_hashes))
            .collect()
    }

    /// Notes beside the manifests of snapshots that they are about to be removed. Only a repair
    /// reads that, when it makes the session's manifest again. With `durable` the notes are on the
    /// disk when this returns.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn mark_removed(
        &self,
        removed: &[RemovedSnapshot],
        durable: bool,
    ) -> Result<(), ManifestError> {
        let snapshots = self.dir()?.open_dir(layout::SNAPSHOTS.as_bytes())?;
        for removed in removed {
            let dir = snapshots.open_dir(removed.number.to_string().as_bytes())?;
            let bytes = encode(&dir, removed)?;
            dir.replace_file(layout::REMOVED_NOTE.as_bytes(), &bytes, 0o600, durable)?;
        }
        Ok(())
    }

    /// The note of [`mark_removed`](Self::mark_removed) for a snapshot.
    pub(crate) fn removed_note(&self, number: u64) -> Option<RemovedSnapshot> {
        let name = format!("{}/{number}/{}", layout::SNAPSHOTS, layout::REMOVED_NOTE);
        let bytes = self.dir().ok()?.read(name.as_bytes(), MAX_NOTE_BYTES).ok()?;
        let removed: RemovedSnapshot = serde_json::from_slice(&bytes).ok()?;
        (removed.number == number).then_some(removed)
    }

    /// Publishes a snapshot: from here on it exists. Everything it names must be durable.
    ///
    /// # Errors
    /// When it cannot be written; the snapshot then does not exist.
    pub(crate) fn publish(
        &self,
        manifest: &SnapshotManifest,
    ) -> Result<ContentHash, ManifestError> {
        let snapshots = self.dir()?.open_dir(layout::SNAPSHOTS.as_bytes())?;
        let dir = make_snapshot_dir(&snapshots, manifest.number)?;
        let written = write(&dir, manifest);
        dir.remove_unfinished(layout::MANIFEST.as_bytes());
        let published = written.and_then(|hash| {
            snapshots.sync()?;
            Ok(hash)
        });
        if published.is_err() {
            // The name may be there, and nothing promises that it stays.
            let _ = dir.remove_file(layout::MANIFEST.as_bytes());
        }
        published
    }

    /// Takes back a snapshot that was published and is not listed.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub(super) fn unpublish(&self, number: u64) -> Result<(), ManifestError> {
        let dir = self.dir()?.open_beneath(format!("{}/{number}", layout::SNAPSHOTS).as_bytes())?;
        dir.remove_file(layout::MANIFEST.as_bytes())?;
        Ok(dir.sync()?)
    }

    /// Publishes a snapshot whose manifest came from elsewhere, byte for byte. Without `durable`
    /// the caller flushes it before any other process sees the session.
    ///
    /// # Errors
    /// As `publish`.
    pub fn publish_bytes(
        &self,
        number: u64,
        bytes: &[u8],
        durable: bool,
    ) -> Result<(), ManifestError> {
        let snapshots = self.dir()?.open_dir(layout::SNAPSHOTS.as_bytes())?;
        let dir = make_snapshot_dir(&snapshots, number)?;
        dir.replace_file(layout::MANIFEST.as_bytes(), bytes, 0o600, durable)?;
        if durable {
            snapshots.sync()?;
        }
        Ok(())
    }

    /// Removes the note that a snapshot was removed, if there is one.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn forget_removal(&self, number: u64) -> Result<(), ManifestError> {
        let name = format!("{}/{number}/{}", layout::SNAPSHOTS, layout::REMOVED_NOTE);
        match self.dir()?.try_stat(name.as_bytes())? {
            Some(_) => {
                let dir = self
                    .dir()?
                    .open_beneath(format!("{}/{number}", layout::SNAPSHOTS).as_bytes())?;
                Ok(dir.remove_file(layout::REMOVED_NOTE.as_bytes())?)
            }
            None => Ok(()),
        }
    }

    /// Says that the objects of a baseline are in the store, though not yet durable. Neither is
    /// this.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn announce(&self, manifest: &SnapshotManifest) -> Result<(), ManifestError> {
        let snapshots = self.dir()?.open_dir(layout::SNAPSHOTS.as_bytes())?;
        let dir = make_snapshot_dir(&snapshots, manifest.number)?;
        let bytes = encode(&dir, manifest)?;
        dir.replace_file(layout::PENDING_MANIFEST.as_bytes(), &bytes, 0o600, false)?;
        Ok(())
    }

    /// Takes back what [`announce`](Self::announce) said, or sets it aside as `lost`.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub(super) fn withdraw(&self, lost: bool) -> Result<(), ManifestError> {
        let dir = self.dir()?.open_beneath(format!("{}/0", layout::SNAPSHOTS).as_bytes())?;
        let pending = layout::PENDING_MANIFEST.as_bytes();
        match lost {
            true => dir.rename(pending, &dir, layout::LOST_MANIFEST.as_bytes())?,
            false => dir.remove_file(pending)?,
        }
        Ok(())
    }

    /// Whether there is an announcement of a baseline.
    ///
    /// # Errors
    /// When the directory cannot be looked at.
    pub(super) fn has_announcement(&self) -> Result<bool, ManifestError> {
        self.has(&layout::pending_manifest())
    }

    /// Whether it lost its baseline, so that its command may have run.
    ///
    /// # Errors
    /// When the directory cannot be looked at.
    pub(super) fn has_lost_baseline(&self) -> Result<bool, ManifestError> {
        self.has(&layout::lost_manifest())
    }

    fn has(&self, path: &str) -> Result<bool, ManifestError> {
        match self.dir()?.try_stat(path.as_bytes()) {
            Ok(found) => Ok(found.is_some()),
            Err(error) if error.is_gone() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The manifest of a baseline that is in the store and not yet durable. `None` when there is no
    /// such, or it has become a snapshot.
    ///
    /// # Errors
    /// As [`ManifestError`] says; after a power failure, it may be cut short.
    pub fn pending_baseline(&self) -> Result<Option<SnapshotManifest>, ManifestError> {
        let dir = self.dir()?;
        // In this order: it is taken back after the snapshot appeared.
        let name = layout::pending_manifest().into_bytes();
        let is_there = |name: &[u8]| match dir.try_stat(name) {
            Ok(found) => Ok(found.is_some()),
            Err(error) if error.is_gone() => Ok(false),
            Err(error) => Err(error),
        };
        if !is_there(&name)? || is_there(layout::snapshot_manifest(0).as_bytes())? {
            return Ok(None);
        }
        let manifest = match read::<SnapshotManifest>(&dir, &name) {
            Ok((manifest, _)) => manifest,
            Err(ManifestError::Missing { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        match manifest.validate(0) {
            Ok(()) => Ok(Some(manifest)),
            Err(reason) => Err(ManifestError::Corrupt { path: dir.path_of(&name), reason }),
        }
    }

    /// All manifests in order, those of removed snapshots included, each checked against the one
    /// before it and against the session's own list of them. Only one snapshot may be unlisted: it
    /// was published when a crash kept the session's manifest from naming it.
    ///
    /// # Errors
    /// The first manifest that is missing, damaged or does not fit.
    pub fn chain(&self) -> Result<Vec<LoadedManifest>, ManifestError> {
        let metadata = self.metadata()?;
        let numbers = self.manifest_numbers()?;
        let mut chain: Vec<LoadedManifest> = Vec::with_capacity(numbers.len());
        for (expected, number) in (0..).zip(numbers) {
            if number != expected {
                return Err(ManifestError::Missing { path: self.manifest_path(expected) });
            }
            let loaded = self.manifest(number)?;
            self.check_link(chain.last(), &loaded, &metadata)?;
            chain.push(loaded);
        }
        if chain.len() < metadata.manifest_hashes.len() {
            let missing = self.manifest_path(chain.len() as u64);
            return Err(ManifestError::Missing { path: missing });
        }
        Ok(chain)
    }

    /// Checks one manifest against its predecessor and the session.
    ///
    /// # Errors
    /// [`ManifestError::Corrupt`] that says what does not fit.
    pub fn check_link(
        &self,
        previous: Option<&LoadedManifest>,
        loaded: &LoadedManifest,
        metadata: &SessionMetadata,
    ) -> Result<(), ManifestError> {
        let number = loaded.manifest.number;
        let corrupt = |reason: &str| {
            let path = self.manifest_path(number);
            Err(ManifestError::Corrupt { path, reason: reason.to_owned() })
        };
        if loaded.manifest.parent != previous.map(|previous| previous.manifest.number)
            || loaded.manifest.parent_hash != previous.map(|previous| previous.hash)
        {
            return corrupt("the hash of the manifest before it is not the one it names");
        }
        let listed = metadata.manifest_hashes.get(number as usize);
        if listed.is_some_and(|hash| *hash != loaded.hash) {
            return corrupt("its hash is not the one that the session lists");
        }
        Ok(())
    }
}

/// A snapshot's number in its one form: digits without leading zeros.
fn parse_number(name: &[u8]) -> Option<u64> {
    // Far beyond what a session holds, and far below where adding one overflows.
    let number = u64::from(std::str::from_utf8(name).ok()?.parse::<u32>().ok()?);
    (number.to_string().as_bytes() == name).then_some(number)
}

fn make_snapshot_dir(snapshots: &Dir, number: u64) -> sys::Result<Dir> {
    let name = number.to_string().into_bytes();
    match snapshots.make_dir(&name, 0o700) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => snapshots.open_dir(&name),
    }
}
