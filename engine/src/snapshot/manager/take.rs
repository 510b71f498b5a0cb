//! Taking a snapshot: captured, made durable, published, named in the session.
//!
//! A baseline can be announced between the first two, so that a command need not wait for the disk.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::path::PathBuf;

use jiff::Timestamp;

use super::listing::Counted;
use super::{CacheUse, CaptureMeans, SnapshotError, SnapshotManager, SnapshotRequest, Taken};
use crate::diff::{self, Comparison, LostAs};
use crate::manifest::{
    MANIFEST_VERSION, NotCaptured, NotCapturedSet, SnapshotKind, SnapshotManifest, Step, Totals,
    TrackedRoot,
};
use crate::object::ContentHash;
use crate::progress::Stage;
use crate::snapshot::budget::Budget;
use crate::snapshot::capture::{CacheLocation, Capture, CaptureRequest, NewCaches, capture};
use crate::snapshot::ignore_rules::RootRules;
use crate::snapshot::known::KnownState;
use crate::snapshot::manifests::{LoadedManifest, ManifestError};
use crate::snapshot::pending::PendingBaseline;
use crate::snapshot::reserve;
use crate::stat_cache::{CountedOn, StoreState, has_cache};
use crate::store::{LocalStore, LongFiles, ObjectStore, Packer, StoreLock};
use crate::sys::{self, Dir};

/// The purpose of a snapshot.
pub(super) enum Why {
    /// The caller asked for it, maybe under a name, maybe as a step.
    Asked(Box<SnapshotRequest>),
    /// A restore to the snapshot of this number is about to change what is there; of a part, these
    /// paths.
    BeforeRestoring(u64, Vec<PathBuf>),
}

impl SnapshotManager {
    /// Takes a snapshot under the session's lock.
    pub(super) fn take(
        &self,
        parent: Option<&LoadedManifest>,
        request: SnapshotRequest,
    ) -> Result<(SnapshotManifest, Comparison), SnapshotError> {
        // Held until the manifest is published: the collector sees all of the snapshot or nothing.
        let store_lock = self.lock_store()?;
        let capture =
            self.capture_next(parent, Some(&self.store), LongFiles::Packed, &store_lock)?;
        let taken = self.finish_taking(capture, parent, request, None)?;
        self.store.drop_doubles(&store_lock);
        Ok(taken)
    }

    /// Takes a snapshot, unless nothing changed since `parent`, under the session's lock. A step
    /// also counts that names changes outside of what is tracked, or after which a left-out path is
    /// gone: no comparison of trees shows either.
    pub(super) fn take_if_changed(
        &self,
        parent: LoadedManifest,
        mut request: SnapshotRequest,
        settle: &dyn Fn(&mut Step),
    ) -> Result<Taken, SnapshotError> {
        let store_lock = self.lock_store()?;
        let capture =
            self.capture_next(Some(&parent), Some(&self.store), LongFiles::Packed, &store_lock)?;
        let differences = match capture.merkle_root == parent.manifest.merkle_root {
            true => Vec::new(),
            false => {
                let (old, new) = (&parent.manifest.merkle_root, &capture.merkle_root);
                diff::compare(&*self.store, old, new)?
            }
        };
        let left_out = NotCapturedSet::of(&self.roots, &capture.not_captured);
        let comparison =
            Comparison::of(&differences, &NotCapturedSet::new(&parent.manifest), &left_out);
        let gone = match &request.step {
            Some(_) => gone(&parent.manifest.not_captured, &capture.not_captured),
            None => Vec::new(),
        };
        let names_more =
            !gone.is_empty() || request.step.as_ref().is_some_and(|step| !step.outside.is_empty());
        if comparison.changes.is_empty() && !names_more {
            // All that the cache vouches for is in the store: contents are those of the parent.
            self.save_caches(capture.caches);
            self.store.drop_doubles(&store_lock);
            return Ok(Taken::Unchanged(Box::new(parent.manifest)));
        }
        if let Some(step) = &mut request.step {
            step.gone = gone;
            settle(step);
        }
        let (manifest, comparison) =
            self.finish_taking(capture, Some(&parent), request, Some(comparison))?;
        self.store.drop_doubles(&store_lock);
        Ok(Taken::Snapshot(Box::new(manifest), comparison))
    }

    /// Publishes and lists what was captured. `compared`: with the parent, if that was done.
    pub(super) fn finish_taking(
        &self,
        capture: Capture,
        parent: Option<&LoadedManifest>,
        request: SnapshotRequest,
        compared: Option<Comparison>,
    ) -> Result<(SnapshotManifest, Comparison), SnapshotError> {
        let published =
            self.publish(capture, parent, Why::Asked(Box::new(request)), &self.roots)?;
        let comparison = match (parent, compared) {
            (_, Some(compared)) => Ok(compared),
            (None, None) => Ok(Comparison::default()),
            (Some(parent), None) => self.compare(&parent.manifest, &published.manifest),
        };
        let number = published.manifest.number;
        self.record(Counted::of(number, comparison.as_ref().ok()))?;
        let comparison = comparison.map_err(|error| unknown_changes(number, error))?;
        Ok((published.manifest, comparison))
    }

    /// Captures what is tracked. `flushed`: the store, if the caller waits until all of it is
    /// durable.
    fn capture_next(
        &self,
        parent: Option<&LoadedManifest>,
        flushed: Option<&LocalStore>,
        long_files: LongFiles,
        lock: &StoreLock,
    ) -> Result<Capture, SnapshotError> {
        let packer = Packer::new(&self.store, lock).storing_long_files(long_files);
        if let Some(source) = &self.source {
            let mut captured = source.capture(CaptureMeans {
                baseline: &self.load_manifest(0)?,
                store: &packer,
                cache: self.cache_location(true)?,
                progress: &*self.progress,
                threads: self.threads,
            })?;
            captured.totals.bytes_written = packer.finish()?;
            return Ok(captured);
        }
        let mut captured = captured(CaptureRequest {
            store: &packer,
            flushed,
            roots: &self.roots,
            own: &self.own_places(),
            budget: self.budget,
            is_baseline: parent.is_none(),
            rules: self.rules(&self.roots, parent, true)?,
            known: parent.map(|parent| KnownState::of(&parent.manifest)).into_iter().collect(),
            expected: parent.map(|parent| parent.manifest.totals.expected()),
            cache: self.cache_location(true)?,
            progress: &*self.progress,
            racy_from: None,
            threads: self.threads,
        })?;
        captured.totals.bytes_written = packer.finish()?;
        Ok(captured)
    }

    /// Captures the first state and announces it: it is in the store, and found again even if this
    /// process is killed, but it is no snapshot before [`PendingBaseline::publish`].
    ///
    /// # Errors
    /// As [`create_baseline`](Self::create_baseline).
    pub fn begin_baseline(&self) -> Result<PendingBaseline, SnapshotError> {
        let session_lock = self.lock_session()?;
        self.refuse_second_baseline()?;
        let store_lock = self.lock_store()?;
        // Most of a known project is stored already, or differs a little from what is.
        let long_files = if self.is_known() { LongFiles::Packed } else { LongFiles::Plain };
        let capture = self.capture_next(None, None, long_files, &store_lock)?;
        let (manifest, caches) = described(capture, None, Why::Asked(Box::default()), &self.roots);
        self.session.announce(&manifest)?;
        Ok(PendingBaseline::new(self.clone(), manifest, caches, session_lock, store_lock))
    }

    /// Makes an announced baseline a snapshot, under the session's lock.
    pub(crate) fn publish_pending(
        &self,
        manifest: SnapshotManifest,
        caches: NewCaches,
    ) -> Result<(), SnapshotError> {
        self.make_durable(manifest, caches, true)?;
        self.list_published()
    }

    /// Names a published baseline in the session, unless that is done, and takes its announcement
    /// back, under the session's lock.
    pub(crate) fn list_published(&self) -> Result<(), SnapshotError> {
        let is_listed = match self.session.metadata() {
            Ok(metadata) => metadata.snapshot_count > 0,
            Err(ManifestError::Missing { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        if !is_listed {
            self.record(None)?;
        }
        Ok(self.session.withdraw(false)?)
    }

    /// Captures the current state before a restore to `target`, whatever its size.
    pub(crate) fn capture_current(
        &self,
        store: &dyn ObjectStore,
        target: &SnapshotManifest,
        latest: &LoadedManifest,
        cache: CacheUse,
    ) -> Result<Capture, SnapshotError> {
        let location = match cache {
            CacheUse::Nothing => None,
            CacheUse::Read => self.cache_location(false)?,
            CacheUse::ReadAndWrite => self.cache_location(true)?,
        };
        if let Some(source) = &self.source {
            return source.capture(CaptureMeans {
                baseline: &self.load_manifest(0)?,
                store,
                cache: location,
                progress: &*self.progress,
                threads: self.threads,
            });
        }
        captured(CaptureRequest {
            store,
            flushed: None,
            roots: &target.roots,
            own: &self.own_places(),
            budget: Budget::UNLIMITED,
            is_baseline: false,
            rules: self.rules(&target.roots, Some(latest), false)?,
            known: vec![KnownState::of(target), KnownState::of(&latest.manifest)],
            expected: Some(latest.manifest.totals.expected()),
            cache: location,
            progress: &*self.progress,
            racy_from: None,
            threads: self.threads,
        })
    }

    /// Which ignore files count in tracked paths. `latest`: the last snapshot, which is often the
    /// first.
    fn rules(
        &self,
        roots: &[TrackedRoot],
        latest: Option<&LoadedManifest>,
        follows_disk: bool,
    ) -> Result<Vec<RootRules>, SnapshotError> {
        let Some(latest) = latest else { return Ok(vec![RootRules::OnDisk; roots.len()]) };
        let last = latest.manifest.number;
        let listed = match self.session.metadata() {
            Ok(metadata) => metadata.manifest_hashes,
            Err(ManifestError::Missing { .. }) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let earlier = (0..=last).map(|number| {
            if number == last {
                return Cow::Borrowed(&latest.manifest);
            }
            let loaded = self.session.listed_manifest(number, &listed);
            let loaded = loaded.inspect_err(|error| tracing::warn!("no ignore rules: {error}"));
            Cow::Owned(loaded.map_or_else(
                // Its tracked paths are unknown, so no rule counts anywhere.
                |_| SnapshotManifest {
                    ignore_files: None,
                    roots: roots.to_vec(),
                    ..latest.manifest.clone()
                },
                |loaded| loaded.manifest,
            ))
        });
        Ok(RootRules::of(roots, &*self.store, earlier, follows_disk))
    }

    /// Makes the state before a restore a snapshot. `only`: the paths that the restore of a part is
    /// about to change.
    pub(crate) fn publish_safety(
        &self,
        capture: Capture,
        latest: &LoadedManifest,
        target: &SnapshotManifest,
        only: Vec<PathBuf>,
    ) -> Result<SnapshotManifest, SnapshotError> {
        let why = Why::BeforeRestoring(target.number, only);
        let published = self.publish(capture, Some(latest), why, &target.roots)?;
        self.record(None)?;
        Ok(published.manifest)
    }

    pub(super) fn cache_location(
        &self,
        is_written: bool,
    ) -> Result<Option<CacheLocation<'_>>, SnapshotError> {
        let Some(index) = &self.index else { return Ok(None) };
        let generation = if is_written {
            // Without a generation there is no cache, and all is read: slower, and right.
            let generation = self.store.ensure_generation();
            generation.inspect_err(|error| tracing::warn!("no stat cache: {error}")).ok()
        } else {
            self.store.generation()?
        };
        let Some(generation) = generation else { return Ok(None) };
        let account = is_written.then(|| self.store.begin_account());
        let fan_outs = account
            .as_ref()
            .map_or_else(|| self.store.fan_outs(), |account| account.begun().clone());
        // Others may have stored some since, which would be called missing.
        self.store.forget_own();
        let counted_on = CountedOn { packs: self.store.pack_states()?, fan_outs };
        let holds = Box::new(|hash: &ContentHash, size: u64| self.holds(hash, size));
        let store = StoreState { generation, counted_on, holds };
        Ok(Some(CacheLocation { index, store, account }))
    }

    /// Whether a stat cache tells of earlier snapshots of what is tracked.
    fn is_known(&self) -> bool {
        let Some(index) = &self.index else { return false };
        self.roots.iter().any(|root| has_cache(index, &root.path))
    }

    /// Makes room on the disk of the store for what cannot wait. `false`: there is nothing to give.
    pub(crate) fn make_room(&self) -> bool {
        self.index.as_ref().is_some_and(|index| reserve::give_back(index))
    }

    /// Whether an object is in the store, of this length.
    fn holds(&self, hash: &ContentHash, size: u64) -> bool {
        self.store.note_found(hash);
        match self.store.open_object(hash) {
            Ok(object) => object.size() == size,
            Err(error) if error.is_damage() => false,
            Err(error) => {
                tracing::warn!("what may be stored is read again: {error}");
                false
            }
        }
    }

    /// Makes everything captured durable, then lets the manifest appear.
    pub(super) fn publish(
        &self,
        capture: Capture,
        parent: Option<&LoadedManifest>,
        why: Why,
        roots: &[TrackedRoot],
    ) -> Result<LoadedManifest, SnapshotError> {
        let (manifest, caches) = described(capture, parent, why, roots);
        // The same root reaches the same objects, and a published one is durable.
        let is_durable = manifest.totals.objects_written == 0
            && parent.is_some_and(|parent| parent.manifest.merkle_root == manifest.merkle_root);
        self.make_durable(manifest, caches, !is_durable)
    }

    /// Publishes and lists a state that nono made of the newest one: what is tracked and left out
    /// is as there. Under the locks of the session and of the store.
    pub(crate) fn publish_made(
        &self,
        merkle_root: ContentHash,
        totals: Totals,
        parent: &LoadedManifest,
    ) -> Result<SnapshotManifest, SnapshotError> {
        let before = &parent.manifest;
        let capture = Capture {
            started: sys::coarse_now(),
            timestamp: Timestamp::now(),
            merkle_root,
            ignore_files: before.ignore_files,
            totals,
            not_captured: before.not_captured.clone(),
            unstable: before.unstable.clone(),
            caches: NewCaches::default(),
        };
        let why = Why::Asked(Box::default());
        let published = self.publish(capture, Some(parent), why, &before.roots)?;
        self.record(None)?;
        Ok(published.manifest)
    }

    fn make_durable(
        &self,
        manifest: SnapshotManifest,
        caches: NewCaches,
        flush: bool,
    ) -> Result<LoadedManifest, SnapshotError> {
        if flush {
            self.progress.begin(Stage::Flush, None);
            self.store.sync()?;
            self.flush_tracked(&manifest);
        }
        let hash = self.session.publish(&manifest)?;
        let (session, number, totals) = (self.session.id(), manifest.number, &manifest.totals);
        tracing::debug!(
            "{session}/{number}: {} files, {} of them read, {} objects and {} bytes written",
            totals.file_count,
            totals.files_read,
            totals.objects_written,
            totals.bytes_written,
        );
        self.save_caches(caches);
        Ok(LoadedManifest { manifest, hash })
    }

    /// Writes back what programs changed through mappings of tracked files, where the flush of the
    /// store did not: the next snapshot sees the next such change by its time. The snapshot does
    /// not depend on it.
    fn flush_tracked(&self, manifest: &SnapshotManifest) {
        let store = Dir::open(self.store.path()).and_then(|dir| dir.stat_self());
        let mut flushed: Vec<u64> = store.iter().map(|stat| stat.dev).collect();
        for root in &manifest.roots {
            // A tracked file lies in its parent's file system. One that is gone has no mapping.
            let place = Dir::open(&root.path).or_else(|error| match root.path.parent() {
                Some(parent) if error.kind() == ErrorKind::NotADirectory => Dir::open(parent),
                _ => Err(error),
            });
            if let Err(error) = place.and_then(|dir| dir.sync_file_system_once(&mut flushed)) {
                tracing::debug!("a tracked path is not flushed: {error}");
            }
        }
    }

    /// After the snapshot is published, which does not depend on it.
    pub(super) fn save_caches(&self, caches: NewCaches) {
        let saved = |caches: NewCaches| -> Result<(), SnapshotError> {
            let NewCaches { writers, account } = caches;
            // A snapshot that writes no cache keeps no account.
            let Some(account) = account else { return Ok(()) };
            let (fan_outs, packs) = account.end(&self.store)?;
            let now = CountedOn { packs, fan_outs };
            writers.into_iter().try_for_each(|cache| Ok(cache.commit(&now)?))
        };
        if let Err(error) = saved(caches) {
            tracing::warn!("stat cache not saved: {error}");
        }
        if let Some(index) = &self.index {
            reserve::keep(index);
        }
    }
}

/// The left-out paths of an earlier snapshot that are gone, and that no program makes again.
fn gone(then: &[NotCaptured], now: &[NotCaptured]) -> Vec<PathBuf> {
    let lost = diff::lost(then, now).into_iter();
    let gone = lost.filter(|lost| lost.what == LostAs::Gone && !lost.is_rebuildable);
    gone.map(|lost| lost.path).collect()
}

/// Captures, and hands on the account of what was added.
pub(crate) fn captured(request: CaptureRequest<'_>) -> Result<Capture, SnapshotError> {
    let mut captured = capture(&request)?;
    captured.caches.account = request.cache.and_then(|location| location.account);
    Ok(captured)
}

/// The manifest of what was captured, and the caches that may be saved once it is durable.
pub(super) fn described(
    capture: Capture,
    parent: Option<&LoadedManifest>,
    why: Why,
    roots: &[TrackedRoot],
) -> (SnapshotManifest, NewCaches) {
    let (kind, request, restores, restores_only) = match why {
        Why::Asked(request) => (SnapshotKind::Ordinary, *request, None, Vec::new()),
        Why::BeforeRestoring(number, only) => {
            (SnapshotKind::Safety, SnapshotRequest::default(), Some(number), only)
        }
    };
    let manifest = SnapshotManifest {
        format_version: MANIFEST_VERSION,
        number: parent.map_or(0, |parent| parent.manifest.number + 1),
        timestamp: capture.timestamp,
        parent: parent.map(|parent| parent.manifest.number),
        parent_hash: parent.map(|parent| parent.hash),
        merkle_root: capture.merkle_root,
        ignore_files: capture.ignore_files,
        kind,
        label: request.label,
        step: request.step.map(Step::bounded),
        restores,
        restores_only,
        roots: roots.to_vec(),
        totals: capture.totals,
        not_captured: capture.not_captured,
        known_absent: Vec::new(),
        unstable: capture.unstable,
    };
    (manifest, capture.caches)
}

fn unknown_changes(number: u64, error: SnapshotError) -> SnapshotError {
    match error {
        SnapshotError::Store(source) => SnapshotError::ChangesUnknown { number, source },
        other => other,
    }
}
