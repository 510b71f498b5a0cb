//! Snapshots of virtual paths: their state comes from elsewhere, and not from those paths.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::take::{Why, captured};
use super::{SnapshotError, SnapshotManager, SnapshotRequest};
use crate::manifest::{NotCaptured, SnapshotManifest, Totals, TrackedRoot};
use crate::object::ContentHash;
use crate::progress::Progress;
use crate::snapshot::budget::Budget;
use crate::snapshot::capture::{CacheLocation, Capture, CaptureRequest, InodeId, NewCaches};
use crate::snapshot::ignore_rules::RootRules;
use crate::snapshot::manifests::LoadedManifest;
use crate::snapshot::roots::TrackedPathError;
use crate::snapshot::session_dir::SessionDir;
use crate::snapshot::session_objects::store_paths;
use crate::store::{ObjectStore, Packer, StoreLock};
use crate::sys::{self, Dir, FileTime};
use crate::walk::ExclusionConfig;

/// A state of virtual paths that is in the store.
#[derive(Debug)]
pub struct Built {
    /// When the capture began.
    pub timestamp: Timestamp,
    /// The hash of the root tree.
    pub merkle_root: ContentHash,
    /// Numbers and bytes of everything captured.
    pub totals: Totals,
    /// Left-out paths, with the reasons.
    pub not_captured: Vec<NotCaptured>,
    /// Files that kept changing while they were read.
    pub unstable: Vec<PathBuf>,
    /// The caches of the captured directories; saved when the snapshot is durable.
    pub caches: NewCaches,
    /// The name that a person gave.
    pub label: Option<String>,
}

/// Nothing is left out.
fn everything() -> ExclusionConfig {
    ExclusionConfig { use_gitignore: false, ..ExclusionConfig::default() }
}

/// Paths that are tracked with everything in them.
pub fn whole_roots(paths: &[&Path]) -> Vec<TrackedRoot> {
    paths
        .iter()
        .map(|path| TrackedRoot { path: (*path).to_owned(), exclusion: everything() })
        .collect()
}

/// Captures directories of this disk whole, but for nono's own.
pub fn capture_whole(
    store: &dyn ObjectStore,
    paths: &[&Path],
    own: &[InodeId],
    cache: Option<CacheLocation<'_>>,
    progress: &dyn Progress,
    threads: usize,
) -> Result<Capture, SnapshotError> {
    capture_since(None, store, paths, own, cache, progress, threads)
}

fn capture_since(
    racy_from: Option<FileTime>,
    store: &dyn ObjectStore,
    paths: &[&Path],
    own: &[InodeId],
    cache: Option<CacheLocation<'_>>,
    progress: &dyn Progress,
    threads: usize,
) -> Result<Capture, SnapshotError> {
    captured(CaptureRequest {
        store,
        flushed: None,
        roots: &whole_roots(paths),
        own,
        budget: Budget::UNLIMITED,
        is_baseline: true,
        rules: vec![RootRules::Recorded(None); paths.len()],
        known: Vec::new(),
        cache,
        progress,
        expected: None,
        racy_from,
        threads,
    })
}

impl SnapshotManager {
    /// The manager of a session whose tracked paths are virtual: nothing is ever looked for there.
    /// The paths are sorted.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub fn of_virtual_paths(session: SessionDir, paths: &[&Path]) -> Result<Self, SnapshotError> {
        Self::assemble(session, whole_roots(paths), Budget::UNLIMITED)
    }

    /// Captures directories of this disk whole, with their stat caches, for a snapshot of virtual
    /// paths. The paths are sorted, real and none inside another. The store is left out.
    ///
    /// # Errors
    /// A path in the store, a store that cannot be written, or a stop.
    pub fn capture_elsewhere(
        &self,
        store: &dyn ObjectStore,
        paths: &[&Path],
    ) -> Result<Capture, SnapshotError> {
        self.capture_elsewhere_since(None, store, paths)
    }

    /// Stores the contents of such directories while programs write there, and saves their stat
    /// caches. [`capture_elsewhere`](Self::capture_elsewhere) then reads only what changed since.
    ///
    /// `flushed_from`: a moment before their file systems were flushed. A program may write again,
    /// without a new time, to a page that it changed through a mapping after that moment.
    ///
    /// The lock is held until a snapshot is published: no manifest names the objects before.
    ///
    /// # Errors
    /// As [`capture_elsewhere`](Self::capture_elsewhere).
    pub fn fill_from_elsewhere(
        &self,
        lock: &StoreLock,
        flushed_from: FileTime,
        paths: &[&Path],
    ) -> Result<Totals, SnapshotError> {
        let packer = Packer::new(&self.store, lock);
        let captured = self.capture_elsewhere_since(Some(flushed_from), &packer, paths)?;
        let bytes_written = packer.finish()?;
        self.store.sync()?;
        self.save_caches(captured.caches);
        Ok(Totals { bytes_written, ..captured.totals })
    }

    fn capture_elsewhere_since(
        &self,
        racy_from: Option<FileTime>,
        store: &dyn ObjectStore,
        paths: &[&Path],
    ) -> Result<Capture, SnapshotError> {
        let own = self.own_places();
        for path in paths {
            let stat = Dir::open(path)?.stat_self()?;
            let stores = store_paths(self.session.path());
            let store = stores.into_iter().find(|store| path.starts_with(store));
            if own.contains(&(stat.dev, stat.ino)) || store.is_some() {
                let path = (*path).to_owned();
                let store = store.unwrap_or_else(|| path.clone());
                return Err(TrackedPathError::InStore { path, store }.into());
            }
        }
        let cache = self.cache_location(true)?;
        capture_since(racy_from, store, paths, &own, cache, &*self.progress, self.threads)
    }

    /// Publishes and lists a state of the virtual paths after the snapshot `parent`, which may be
    /// removed, under the locks of the session and of the store.
    ///
    /// # Errors
    /// A store that cannot be written: there is no snapshot then.
    pub fn publish_built(
        &self,
        built: Built,
        parent: Option<&LoadedManifest>,
    ) -> Result<SnapshotManifest, SnapshotError> {
        let Built { timestamp, merkle_root, totals, not_captured, unstable, caches, label } = built;
        let capture = Capture {
            started: sys::coarse_now(),
            timestamp,
            merkle_root,
            ignore_files: None,
            totals,
            not_captured,
            unstable,
            caches,
        };
        let request = SnapshotRequest { label, ..SnapshotRequest::default() };
        let why = Why::Asked(Box::new(request));
        let published = self.publish(capture, parent, why, &self.roots)?;
        let number = published.manifest.number;
        if let Err(error) = self.record(None) {
            let listed = self.session.metadata().map(|metadata| metadata.snapshot_count);
            if !listed.is_ok_and(|count| count > number) {
                self.session.unpublish(number)?;
                return Err(error);
            }
            // Its own manifest is durable. After a power failure the list is made again from it.
            tracing::warn!("the session's manifest may not be durable: {error}");
        }
        Ok(published.manifest)
    }
}
