//! Received snapshots become visible: a new session under its name, or more snapshots of one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::{ReceiveReport, Receiver};
use crate::ArchiveError;
use nono_engine::diff::{ChangeSummary, count_changes};
use nono_engine::layout;
use nono_engine::manifest::{RemovalReason, RemovedSnapshot, SnapshotKind, SnapshotManifest};
use nono_engine::progress::wait_for;
use nono_engine::repair::set_manifest_aside;
use nono_engine::snapshot::{LoadedManifest, SessionDir, SessionMetadata, parse_manifest};
use nono_engine::sys::Dir;

impl Receiver<'_> {
    pub(super) fn appear(self) -> Result<ReceiveReport, ArchiveError> {
        let is_new = self.here.is_empty();
        let targets = self.targets.iter().map(|head| head.id.number());
        let (mut already_here, mut snapshots): (Vec<u64>, Vec<u64>) =
            targets.partition(|number| self.held.contains(number));
        already_here.sort_unstable();
        snapshots.sort_unstable();
        if !self.lost.is_empty() {
            self.replace_lost()?;
        }
        if let Some(last) = snapshots.last().copied() {
            // Before anything is written, because it can be stopped.
            let changes = self.count_changes(last)?;
            match is_new {
                true => self.make(last, changes)?,
                false => self.complete(last, changes)?,
            }
        }
        Ok(ReceiveReport {
            session_id: self.session,
            is_new_session: is_new && !snapshots.is_empty(),
            snapshots,
            already_here,
            objects_written: self.objects_written,
            bytes_written: self.bytes_written,
            uses_unread: self.needs.here() > 0,
        })
    }

    /// Makes the session from manifests alone, with the snapshots in `held`. Their objects are not
    /// there: the store has an origin that gives them.
    pub(crate) fn show(
        mut self,
        facts: SessionMetadata,
        manifests: &BTreeMap<u64, Vec<u8>>,
        held: &[u64],
    ) -> Result<(), ArchiveError> {
        let last = held.last().copied().unwrap_or(0);
        for (number, bytes) in manifests {
            self.add_manifest(*number, bytes, *number)?;
        }
        if let Some(number) = (0..=last).find(|number| !self.manifests.has(*number)) {
            return Err(ArchiveError::corrupt(format!("no manifest of snapshot {number}")));
        }
        (self.facts, self.held) = (Some(facts), held.to_vec());
        self.make(last, None)
    }

    /// Puts manifests that came in the place of lost ones. Their hashes are those that the session
    /// lists, or they had been refused.
    fn replace_lost(&self) -> Result<(), ArchiveError> {
        let session = SessionDir::open(&self.root.join(&self.session))?;
        let lock = wait_for(self.progress, || session.try_lock())?;
        let _lock = lock.ok_or(ArchiveError::Cancelled)?;
        for number in &self.lost {
            if let Some(bytes) = self.manifests.get(*number)? {
                set_manifest_aside(&session, *number)?;
                session.publish_bytes(*number, &bytes, true)?;
            }
        }
        Ok(())
    }

    /// The changes from the baseline to the last ordinary snapshot that will be held. They are
    /// counted, and no archive is believed. Where what is here is damaged, the count of the session
    /// here stands.
    fn count_changes(&self, last: u64) -> Result<Option<ChangeSummary>, ArchiveError> {
        let manifest = |number: u64| -> Result<SnapshotManifest, ArchiveError> {
            match self.manifests.get(number)? {
                Some(bytes) => Ok(parse_manifest(&bytes, Path::new("meta/snapshots"))?),
                None => {
                    Ok(SessionDir::open(&self.root.join(&self.session))?.manifest(number)?.manifest)
                }
            }
        };
        let targets = self.targets.iter().map(|head| head.id.number());
        let mut held: BTreeSet<u64> = self.held.iter().copied().chain(targets).collect();
        if !held.remove(&0) {
            return Ok(None);
        }
        for number in held.into_iter().rev() {
            let newest = manifest(number)?;
            if newest.kind == SnapshotKind::Ordinary {
                let goes_on = || !self.progress.is_cancelled();
                return match count_changes(&self.store, &manifest(0)?, &newest, goes_on) {
                    Ok(counted) => counted.map(Some).ok_or(ArchiveError::Cancelled),
                    Err(error) if error.is_damage() && !self.here.is_empty() => {
                        Ok(SessionDir::open(&self.root.join(&self.session))?.metadata()?.changes)
                    }
                    Err(error) => Err(error.into()),
                };
            }
        }
        let is_only_one = last == 0 && self.here.len() <= 1;
        Ok(is_only_one.then(ChangeSummary::default))
    }

    /// Makes the session under a hidden name, and gives it its own when it is complete. Its
    /// manifests may be many, so one flush makes all of them durable.
    fn make(&self, last: u64, changes: Option<ChangeSummary>) -> Result<(), ArchiveError> {
        let parent = Dir::open(&self.root)?;
        let hidden = layout::new_name()?;
        let made = (|| {
            let session = SessionDir::create(&self.root.join(&hidden))?;
            let own = parent.open_dir(hidden.as_bytes())?;
            own.make_symlink(layout::OBJECTS.as_bytes(), layout::SHARED_OBJECTS)?;
            self.publish(&session, ..=last)?;
            let facts = self.facts.clone().ok_or_else(|| ArchiveError::corrupt("no session"))?;
            let mut metadata = SessionMetadata { pinned: true, received: true, changes, ..facts };
            let removed = std::mem::take(&mut metadata.removed);
            metadata.restores.clear();
            metadata.received_snapshots.clear();
            self.list(&session, &mut metadata, removed)?;
            session.save_metadata(&metadata)?;
            own.sync_file_system()?;
            parent.rename_new(hidden.as_bytes(), &parent, self.session.as_bytes())?;
            Ok(parent.sync()?)
        })();
        if made.is_err() {
            // Nothing names it.
            let _ = parent.remove_dir_all(hidden.as_bytes());
        }
        made
    }

    /// Adds snapshots to a session that is there.
    fn complete(&self, last: u64, changes: Option<ChangeSummary>) -> Result<(), ArchiveError> {
        let session = SessionDir::open(&self.root.join(&self.session))?;
        let lock = wait_for(self.progress, || session.try_lock())?;
        let _lock = lock.ok_or(ArchiveError::Cancelled)?;
        let diverged = |reason: &str| {
            let (session, reason) = (self.session.clone(), reason.to_owned());
            Err(ArchiveError::Diverged { session, reason })
        };
        let chain = session.chain()?;
        if chain.iter().map(|it| it.hash).ne(self.here.iter().copied()) {
            return diverged("it was changed meanwhile");
        }
        let mut here = session.metadata()?;
        if here.altered.is_some() {
            return diverged("another program changed its manifest");
        }
        if session.has_restore_journal()? {
            return diverged("a restore of it was interrupted: finish it first (nono resume)");
        }
        if session.is_running()? {
            return diverged("its command is still running here: pull when it has ended");
        }
        let count = self.here.len() as u64;
        let mut metadata = match self.facts.clone().filter(|_| last >= count) {
            // The archive knows how it went on.
            Some(facts) => {
                if let Some(other) = other_fact(&here, &facts) {
                    return diverged(&format!("{other} in the archive"));
                }
                let SessionMetadata { pinned, received, .. } = here;
                SessionMetadata { pinned, received, restores: here.restores.clone(), ..facts }
            }
            None => here.clone(),
        };
        if count <= last {
            self.check_added(&metadata, count..=last)?;
            if !here.received {
                // First, so that no crash leaves a snapshot without its mark.
                here.received_snapshots.retain(|number| *number < count);
                here.received_snapshots.extend(count..=last);
                session.save_metadata(&here)?;
            }
            self.publish(&session, count..=last)?;
        }
        metadata.received_snapshots = here.received_snapshots;
        // The added snapshots are no work of a session that was recorded here.
        metadata.changes = if here.received { changes } else { here.changes };
        let mut removed = here.removed;
        removed.extend(metadata.removed.drain(..).filter(|it| it.number >= count));
        self.list(&session, &mut metadata, removed)?;
        Ok(session.save_metadata(&metadata)?)
    }

    /// Whether the session can list what is to be published. What is published is never taken back.
    fn check_added(
        &self,
        metadata: &SessionMetadata,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<(), ArchiveError> {
        let mut before = range.start().checked_sub(1).and_then(|it| self.here.get(it as usize));
        let mut hash;
        for number in range {
            let (Some(bytes), Some(link)) =
                (self.manifests.get(number)?, self.manifests.link(number))
            else {
                return Err(ArchiveError::corrupt(format!("no manifest of snapshot {number}")));
            };
            if link.parent_hash.as_ref() != before {
                let reason = format!("snapshot {number} follows another one");
                return Err(ArchiveError::Diverged { session: self.session.clone(), reason });
            }
            check_roots(metadata, &parse_manifest(&bytes, Path::new("meta/snapshots"))?)?;
            hash = link.hash;
            before = Some(&hash);
        }
        Ok(())
    }

    /// Whether others see the session while it is written. Then each of its manifests is durable
    /// before the next one, so that a crash leaves a chain.
    fn is_visible(&self) -> bool {
        !self.here.is_empty()
    }

    /// Gives a session manifests that came.
    fn publish(
        &self,
        session: &SessionDir,
        range: impl RangeBounds<u64>,
    ) -> Result<(), ArchiveError> {
        for number in self.manifests.numbers(range) {
            // There may be many. Of a session that is there, half of them would be no chain.
            if !self.is_visible() && self.progress.is_cancelled() {
                return Err(ArchiveError::Cancelled);
            }
            let bytes = self.manifests.get(number)?.unwrap_or_default();
            session.publish_bytes(number, &bytes, self.is_visible())?;
        }
        Ok(())
    }

    /// Lists all snapshots that have a manifest. Of those that are new here, only the targets are
    /// held.
    fn list(
        &self,
        session: &SessionDir,
        metadata: &mut SessionMetadata,
        removed: Vec<RemovedSnapshot>,
    ) -> Result<(), ArchiveError> {
        metadata.session_id = self.session.clone();
        metadata.altered = None;
        metadata.merkle_roots.clear();
        metadata.manifest_hashes.clear();
        metadata.labels.clear();
        metadata.safety_snapshots.clear();
        metadata.bytes_written = 0;
        let mut removed_now = Vec::new();
        let mut before: Option<LoadedManifest> = None;
        for number in session.manifest_numbers()? {
            let loaded = session.manifest(number)?;
            session.check_link(before.as_ref(), &loaded, metadata)?;
            check_roots(metadata, &loaded.manifest)?;
            let written = loaded.manifest.totals.bytes_written;
            metadata.bytes_written = metadata.bytes_written.saturating_add(written);
            metadata.merkle_roots.push(loaded.manifest.merkle_root);
            metadata.manifest_hashes.push(loaded.hash);
            metadata.describe(&loaded.manifest);
            let is_target = self.targets.iter().any(|head| head.id.number() == number);
            let is_held = is_target || self.held.contains(&number);
            if is_target {
                session.forget_removal(number)?;
            }
            if !is_held {
                let known = removed.iter().find(|it| it.number == number).cloned();
                removed_now.push(known.unwrap_or_else(|| RemovedSnapshot {
                    number,
                    removed_at: Timestamp::now(),
                    reason: RemovalReason::NotReceived,
                }));
            }
            before = Some(loaded);
        }
        metadata.removed = removed_now;
        session.mark_removed(&metadata.removed, self.is_visible())?;
        metadata.snapshot_count = metadata.manifest_hashes.len() as u64;
        metadata.steps.retain(|step| step.number < metadata.snapshot_count);
        Ok(())
    }
}

/// The fact of a session here that an archive of it contradicts. A session goes on: it ends, and
/// tracks more paths. What is past stays as it was recorded.
fn other_fact(here: &SessionMetadata, facts: &SessionMetadata) -> Option<&'static str> {
    // A client resumes the session of an agent after its end.
    let has_ended = here.ended.is_some() && here.agent.is_none();
    if facts.started != here.started || facts.command != here.command {
        return Some("its command or its begin is another one");
    }
    if facts.label != here.label || facts.origin != here.origin || facts.agent != here.agent {
        return Some("its name or its maker is another one");
    }
    if facts.home != here.home {
        return Some("its home directory is another one");
    }
    if has_ended && (facts.ended != here.ended || facts.exit_code != here.exit_code) {
        return Some("its end is another one");
    }
    if has_ended && facts.network_events != here.network_events {
        return Some("its network events are others");
    }
    let tracks = |path| facts.tracked_paths.contains(path);
    (!here.tracked_paths.iter().all(tracks)).then_some("its tracked paths are others")
}

/// An undo changes what the manifests track, and is asked for where the session tracks: they have
/// to agree.
pub(crate) fn check_roots(
    metadata: &SessionMetadata,
    manifest: &SnapshotManifest,
) -> Result<(), ArchiveError> {
    let is_foreign = |path: &PathBuf| !metadata.tracked_paths.contains(path);
    match manifest.roots.iter().map(|root| &root.path).find(|path| is_foreign(path)) {
        Some(path) => Err(ArchiveError::corrupt(format!(
            "snapshot {} tracks {}, which the session does not",
            manifest.number,
            path.display()
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nono_engine::snapshot::SessionOrigin;

    #[test]
    fn a_session_may_end_and_track_more_and_no_fact_of_it_becomes_another() {
        let command = vec!["make".to_owned()];
        let here = SessionMetadata::new("s".to_owned(), command, vec!["/a".into()]);
        let ended =
            SessionMetadata { ended: Some(here.started), exit_code: Some(0), ..here.clone() };
        let more = vec!["/a".into(), "/b".into()];
        let grown = SessionMetadata { tracked_paths: more, ..ended.clone() };
        for (here, facts) in [(&here, &here), (&here, &ended), (&ended, &grown)] {
            assert_eq!(other_fact(here, facts), None);
        }
        let later = here.started + jiff::SignedDuration::from_secs(1);
        let others = [
            (SessionMetadata { started: later, ..ended.clone() }, "its command or its begin"),
            (SessionMetadata { command: vec![], ..ended.clone() }, "its command or its begin"),
            (SessionMetadata { label: Some("x".into()), ..ended.clone() }, "its name or its maker"),
            (
                SessionMetadata { origin: SessionOrigin::AgentState, ..ended.clone() },
                "its name or its maker",
            ),
            (SessionMetadata { home: Some("/h".into()), ..ended.clone() }, "its home"),
            (SessionMetadata { ended: Some(later), ..ended.clone() }, "its end"),
            (SessionMetadata { exit_code: Some(1), ..ended.clone() }, "its end"),
            (SessionMetadata { network_events: vec![1.into()], ..ended.clone() }, "its network"),
            (SessionMetadata { tracked_paths: vec!["/b".into()], ..ended.clone() }, "its tracked"),
        ];
        for (facts, words) in others {
            let told = other_fact(&ended, &facts);
            assert!(told.is_some_and(|told| told.starts_with(words)), "{words}: {told:?}");
        }
    }
}
