//! The list of a session's snapshots in its manifest, and what follows from it.

use super::{SnapshotError, SnapshotManager};
use crate::diff::{ChangeSummary, Comparison, count_changes};
use crate::manifest::{SnapshotKind, SnapshotManifest};
use crate::snapshot::manifests::ManifestError;
use crate::snapshot::merge_record::MergeRecord;
use crate::snapshot::metadata::SessionMetadata;
use crate::snapshot::restore_log::RestoreRecord;
use crate::snapshot::steps::{StepEntry, push as push_step};

/// The changes between a snapshot and the one before it, counted already.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    number: u64,
    since_parent: ChangeSummary,
}

impl Counted {
    pub(super) fn of(number: u64, comparison: Option<&Comparison>) -> Option<Self> {
        Some(Self { number, since_parent: comparison?.summary() })
    }
}

impl SnapshotManager {
    /// `None` where a damaged object hides what changed: the snapshot counts more than the number
    /// of its changes.
    fn changes_since_baseline(&self, manifest: &SnapshotManifest) -> Option<ChangeSummary> {
        let counted = self
            .load_manifest(self.session.first_number().unwrap_or(0))
            .and_then(|old| Ok(count_changes(self.store(), &old, manifest, || true)?));
        let warn = |error: &_| tracing::warn!("changes since the baseline not counted: {error}");
        counted.inspect_err(warn).ok().flatten()
    }

    /// Notes a restore in the session's manifest, under the session's lock.
    pub(crate) fn note_restores(
        &self,
        change: impl FnOnce(&mut Vec<RestoreRecord>),
    ) -> Result<(), SnapshotError> {
        let mut metadata = self.session.metadata()?;
        let before = metadata.restores.clone();
        change(&mut metadata.restores);
        if metadata.restores == before {
            return Ok(());
        }
        Ok(self.session.save_metadata(&metadata)?)
    }

    /// Changes what the session says of its merge, under the session's lock. A session that is no
    /// merge says nothing.
    pub(crate) fn note_merge(
        &self,
        change: impl FnOnce(&mut MergeRecord),
    ) -> Result<(), SnapshotError> {
        let mut metadata = self.session.metadata()?;
        let before = metadata.merge.clone();
        metadata.merge.as_mut().map(change);
        if metadata.merge == before {
            return Ok(());
        }
        Ok(self.session.save_metadata(&metadata)?)
    }

    /// Names published snapshots in the session's manifest.
    pub(super) fn record(&self, counted: Option<Counted>) -> Result<(), SnapshotError> {
        let mut metadata = match self.session.metadata() {
            Ok(metadata) => metadata,
            Err(ManifestError::Missing { .. }) => SessionMetadata::new(
                self.session.id(),
                Vec::new(),
                self.roots.iter().map(|root| root.path.clone()).collect(),
            ),
            Err(error) => return Err(error.into()),
        };
        self.list_snapshots(&mut metadata, counted)?;
        Ok(self.session.save_metadata(&metadata)?)
    }

    /// Adds the snapshots that the session does not list yet, and the facts that follow from them.
    /// Listed ones are not read again: a manifest that was edited since must not be vouched for.
    pub(super) fn list_snapshots(
        &self,
        metadata: &mut SessionMetadata,
        counted: Option<Counted>,
    ) -> Result<(), SnapshotError> {
        let mut last_ordinary = None;
        let listed = metadata.manifest_hashes.len() as u64;
        for number in self.session.manifest_numbers()?.into_iter().filter(|n| *n >= listed) {
            let loaded = self.session.manifest(number)?;
            metadata.merkle_roots.push(loaded.manifest.merkle_root);
            metadata.manifest_hashes.push(loaded.hash);
            metadata.describe(&loaded.manifest);
            metadata.track(loaded.manifest.roots.iter().map(|root| root.path.clone()));
            self.list_step(metadata, &loaded.manifest, counted);
            metadata.bytes_written =
                metadata.bytes_written.saturating_add(loaded.manifest.totals.bytes_written);
            if loaded.manifest.kind == SnapshotKind::Ordinary && number > 0 {
                last_ordinary = Some(loaded.manifest);
            }
        }
        if let Some(last) = last_ordinary {
            metadata.changes = match counted {
                // Compared once where the one before is the baseline.
                Some(counted)
                    if counted.number == last.number
                        && last.parent == Some(0)
                        && metadata.removal(0).is_none() =>
                {
                    Some(counted.since_parent)
                }
                _ => self.changes_since_baseline(&last),
            };
        }
        metadata.snapshot_count = metadata.manifest_hashes.len() as u64;
        Ok(())
    }

    /// Adds a snapshot to the session's list of steps, if it is one.
    fn list_step(
        &self,
        metadata: &mut SessionMetadata,
        manifest: &SnapshotManifest,
        counted: Option<Counted>,
    ) {
        if manifest.step.is_none() {
            return;
        }
        let changes = match (counted, manifest.parent) {
            (Some(counted), _) if counted.number == manifest.number => Some(counted.since_parent),
            (_, Some(parent)) => self
                .load_manifest(parent)
                .and_then(|parent| Ok(count_changes(self.store(), &parent, manifest, || true)?))
                .inspect_err(|error| tracing::warn!("changes of a step not counted: {error}"))
                .ok()
                .flatten(),
            (_, None) => Some(ChangeSummary::default()),
        };
        if let Some(entry) = StepEntry::of(manifest, changes) {
            push_step(&mut metadata.steps, entry);
        }
    }
}
