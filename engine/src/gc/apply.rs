//! Doing what a plan says, under the store's lock.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

use super::plan::CleanupPlan;
use super::store_root::{StoreRoot, identity};
use super::survey::Survey;
use super::withdraw::{Claim, claim};
use super::{CleanupError, CleanupOptions, CleanupReport, SkippedSession, usage};
use crate::progress::{Amount, Stage};
use crate::snapshot::SessionDir;
use crate::store::{BadDisk, LocalStore, StoreError, StoreLock};
use crate::sys::FileLock;

/// A session that is removed, with its lock.
struct Removed {
    name: Box<[u8]>,
    session: SessionDir,
    _lock: FileLock,
}

impl CleanupPlan {
    /// Removes the sessions of the plan and all garbage. Waits until no snapshot is being written
    /// and keeps new ones waiting.
    ///
    /// `list` gives all sessions whose objects are in the store. It is called while the lock is
    /// held (so it must not take it), because a session that was made after the plan must keep its
    /// objects. Garbage is determined then, so the numbers may differ from those foreseen. A
    /// session that is gone by now is left out, one that is running or busy by now is skipped.
    ///
    /// # Errors
    /// As [`CleanupError`] says. An error of a file system call while things are removed leaves a
    /// store in which every session that is listed is complete; the next cleanup does the rest.
    pub fn apply<E>(
        &self,
        list: impl Fn() -> Result<Vec<SessionDir>, E>,
        options: &CleanupOptions<'_>,
    ) -> Result<CleanupReport, CleanupError>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        crate::sys::refuse_to_write_as_root(&self.root)?;
        let root = StoreRoot::open(&self.root)?;
        if let Some((store, _)) = &root.store {
            store.set_compression(options.compression);
        }
        let pool = options.pool()?;
        let store = match &root.store {
            Some((store, _)) => Some((store, store.lock_exclusive()?)),
            None => None,
        };
        let mut report =
            CleanupReport { sessions_skipped: self.skipped.clone(), ..CleanupReport::default() };
        let mut kept = Vec::new();
        let mut removed = Vec::new();
        let mut known = HashSet::new();
        for name in &self.names {
            let Some(session) = root.open_session(name)? else { continue };
            known.extend(identity(&session)?);
            let session_id = session.id();
            match claim(&session, options.spare_pinned)? {
                Claim::Granted(lock) => {
                    report.sessions_removed.push(session_id);
                    removed.push(Removed { name: name.clone(), session, _lock: lock });
                }
                Claim::Refused(reason) => {
                    report.sessions_skipped.push(SkippedSession { session_id, reason });
                    kept.push(session);
                }
                Claim::Gone => {}
            }
        }
        for session in list().map_err(|error| CleanupError::List(error.into()))? {
            if identity(&session)?.is_some_and(|id| known.insert(id)) {
                kept.push(session);
            }
        }
        if let Some((store, lock)) = &store {
            // The contents of damaged packs are unknown, so nothing in them could ever go. Before
            // anything is planned: what counts on a copy in a pack must not lose it.
            match store.salvage_packs(BadDisk::Refuse, options.progress, lock) {
                Err(StoreError::Cancelled) => return Err(CleanupError::Cancelled),
                salvaged => salvaged?,
            };
        }
        let leftovers = root.leftovers()?;
        let gone = removed.iter().map(|removed| &removed.session);
        let gone: Vec<_> = gone.chain(&leftovers).collect();
        let kept: Vec<_> = kept.iter().collect();
        let surveying = options.when_alone(&kept);
        let survey = pool.install(|| Survey::new(&root, &gone, &kept, &surveying))?;

        let mut shrunk = survey.file_bytes();
        let mut packs_before = 0;
        if let Some((store, _)) = &store {
            packs_before = pack_bytes(store)?;
        }
        // From here on things change.
        let mut hidden: Vec<Box<[u8]>> = Vec::new();
        for leftover in &leftovers {
            hidden.extend(leftover.path().file_name().map(|name| name.as_bytes().into()));
        }
        for removed in &removed {
            hidden.extend(root.hide(&removed.name)?);
        }
        if !hidden.is_empty() {
            // A power failure must not bring a session back whose objects are gone.
            root.dir.sync()?;
        }
        if let Some((store, lock)) = &store {
            remove_garbage(&root, store, lock, &survey, options)?;
        }
        root.remove_unfinished(options.grace)?;
        // Last, so that what is left to do after a crash can still be seen from the manifests.
        for name in &hidden {
            root.dir.remove_dir_all(name)?;
        }
        if store.is_some() {
            usage::note(&root, survey.remaining_bytes());
        }
        if let (true, Some((store, lock))) = (options.compact, store) {
            // Others may use the store meanwhile.
            drop(lock);
            shrunk += store.pack_long_files(options.progress)?.bytes;
        }
        let packs_after = root.store.as_ref().map_or(Ok(0), |(store, _)| pack_bytes(store))?;
        report.bytes_shrunk = shrunk.saturating_add(packs_before).saturating_sub(packs_after);
        Ok(survey.report(report))
    }
}

/// Bytes of all packs.
fn pack_bytes(store: &LocalStore) -> Result<u64, StoreError> {
    Ok(store.all_packs()?.iter().map(|pack| pack.bytes()).sum())
}

fn remove_garbage(
    root: &StoreRoot,
    store: &LocalStore,
    lock: &StoreLock,
    survey: &Survey,
    options: &CleanupOptions<'_>,
) -> Result<(), CleanupError> {
    let bytes = survey.removed().map(|found| found.size).fold(0, u64::saturating_add);
    let expected = Amount { entries: survey.removed().count() as u64, bytes };
    options.progress.begin(Stage::Remove, Some(expected));
    let old = store.generation()?;
    let vanishing = || survey.garbage.iter().chain(&survey.packs.garbage);
    let new = if vanishing().next().is_none() { None } else { store.outdate_generation()? };
    for found in &survey.garbage {
        store.remove(&found.hash, lock)?;
        options.progress.advance(1, found.size);
    }
    store.rewrite_packs(&survey.packs.rewrites, lock)?;
    for found in &survey.packs.garbage {
        options.progress.advance(1, found.size);
    }
    for quarantined in &survey.quarantined {
        store.remove_quarantined(quarantined, lock)?;
        options.progress.advance(1, quarantined.object.size);
    }
    // Without a new one there is no cache to carry over: none is valid.
    if let (Some(old), Some(new)) = (old, new) {
        let gone: HashSet<_> = vanishing().map(|found| found.hash).collect();
        root.carry_stat_caches([&old, &new], |hash| gone.contains(hash));
    }
    store.remove_temporary_files(lock)?;
    Ok(())
}
