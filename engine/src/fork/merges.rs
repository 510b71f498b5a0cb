//! The merges of a fork that still stand: which of its changes are in the project already.
//!
//! All of it follows from the sessions of the merges. One that was undone counts as never done, and
//! of one that was undone in part, those paths do, also where a later merge built on it. So nothing
//! can contradict an undo or a redo.

use std::path::PathBuf;

use jiff::Timestamp;

use super::ForkError;
use super::store::Fork;
use crate::diff;
use crate::path_text::to_path;
use crate::restore::PastMerge;
use crate::snapshot::{
    ManifestError, MergeRecord, SessionDir, SessionMetadata, SnapshotManager, standing,
};

impl Fork {
    /// The merges of this fork that still stand, oldest first.
    ///
    /// # Errors
    /// The session of the fork, or that of a merge, cannot be read.
    pub fn past_merges(&self) -> Result<Vec<PastMerge>, ForkError> {
        let own = self.session()?;
        let mut merges: Vec<(SessionDir, SessionMetadata)> = Vec::new();
        for session in own.siblings()? {
            let metadata = match session.metadata() {
                // One that begins, or is no session of ours: it merged nothing.
                Err(ManifestError::Missing { .. }) => continue,
                metadata => metadata?,
            };
            let is_it = |it: &MergeRecord| it.fork == own.id() && it.is_done;
            if metadata.merge.as_ref().is_some_and(is_it) && !metadata.received {
                merges.push((session, metadata));
            }
        }
        merges.sort_by_key(|(session, metadata)| (metadata.started, session.id()));
        let mut past = Vec::new();
        let mut taken_back: Vec<(Timestamp, Vec<PathBuf>)> = Vec::new();
        for (session, metadata) in merges {
            let Some(merge) = metadata.merge else { continue };
            let mut taken = merge.taken;
            for (at, paths) in &taken_back {
                if metadata.started < *at {
                    taken.leave(paths.iter().cloned());
                }
            }
            let mut stands = true;
            for record in standing(&metadata.restores) {
                if record.snapshot != 0 || record.undoes_steps {
                    continue;
                }
                let paths = match (record.is_partial, record.safety_snapshot) {
                    (true, None) => continue,
                    (true, Some(safety)) => session.manifest(safety)?.manifest.restores_only,
                    (false, _) => {
                        stands = false;
                        merged_paths(&session)?
                    }
                };
                taken.leave(paths.iter().cloned());
                taken_back.push((record.at, paths));
            }
            if stands {
                let theirs = own.manifest(merge.theirs)?.manifest;
                past.push(PastMerge { theirs, taken });
            }
        }
        Ok(past)
    }
}

/// The paths that a merge changed.
fn merged_paths(session: &SessionDir) -> Result<Vec<PathBuf>, ForkError> {
    let manager = SnapshotManager::open(session.path())?;
    let (before, after) = (manager.load_manifest(0)?, manager.load_manifest(1)?);
    let changed = diff::compare(manager.store(), &before.merkle_root, &after.merkle_root)?;
    Ok(changed.into_iter().map(|it| to_path(&it.path).to_owned()).collect())
}
