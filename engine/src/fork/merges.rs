//! The merges of a fork that still stand: which of its changes are in the project already.
//!
//! All of it follows from the sessions of the merges. One that was undone counts as never done, and
//! of one that was undone in part, those paths do. So nothing can contradict an undo or a redo.

use super::ForkError;
use super::store::Fork;
use crate::restore::PastMerge;
use crate::snapshot::{ManifestError, MergeRecord, SessionDir, SessionMetadata, standing};

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
        for (session, metadata) in merges {
            let Some(merge) = metadata.merge else { continue };
            let mut taken = merge.taken;
            let undone = standing(&metadata.restores);
            let mut undone = undone.iter().filter(|it| it.snapshot == 0 && !it.undoes_steps);
            if undone.clone().any(|record| !record.is_partial) {
                continue;
            }
            undone.try_for_each(|record| {
                let Some(safety) = record.safety_snapshot else { return Ok(()) };
                taken.leave(session.manifest(safety)?.manifest.restores_only);
                Ok::<_, ForkError>(())
            })?;
            let theirs = own.manifest(merge.theirs)?.manifest;
            past.push(PastMerge { theirs, taken });
        }
        Ok(past)
    }
}
