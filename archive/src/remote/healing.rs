//! Archives that were lost are stored again, where archives of others depend on them.
//!
//! One lost archive breaks each chain that goes through it, over sessions. A push meets broken
//! chains in the sessions that it lists. Where the store here holds what is missing, and the
//! history is the same, the push stores it: every chain that needed it can be had again.

use std::collections::{BTreeMap, BTreeSet};

use super::archives::ChainError;
use super::error::RemoteError;
use super::push::{PushOutcome, PushedSnapshot, Pushing};
use crate::ArchiveId;

impl Pushing<'_> {
    /// Stores archives again that were lost, and on which chains of a session depend: whatever else
    /// depends on them can be had again, too. Archives of the pushed session follow in their turn.
    pub(super) fn heal(&mut self, session: &str) -> Result<(), RemoteError> {
        self.refer_again(session)?;
        while let Some(missing) = self.missing_link(session) {
            self.healing.insert(missing.clone());
            if !self.is_of_here(missing.session())? {
                continue;
            }
            match self.push(&missing) {
                Ok(archive) => self.healed.push(PushedSnapshot {
                    session_id: missing.session().to_owned(),
                    snapshot: missing.number(),
                    outcome: match &archive {
                        Some(_) => PushOutcome::Stored,
                        None => PushOutcome::AlreadyThere,
                    },
                    archive,
                }),
                Err(error) if error.is_cancelled() => return Err(error),
                // Another machine went on with that session, or it is damaged here. Neither keeps
                // the pushed session back.
                Err(
                    RemoteError::Diverged { .. }
                    | RemoteError::Unusable { .. }
                    | RemoteError::Archive(_),
                ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the references again that archives of a session need and that were lost: a cleanup of
    /// the other session would not find these archives.
    fn refer_again(&mut self, session: &str) -> Result<(), RemoteError> {
        let Self { inventory, listed, .. } = self;
        let is_lost = |parent: &ArchiveId| {
            let known = inventory.needed_by.get(parent.session());
            parent.session() != session
                && listed.contains(parent.session())
                && !known.is_some_and(|children| children.contains(session))
        };
        let archives = inventory.archives.of_session(session);
        let links = archives.filter_map(|(name, _)| Some((name.kind.parent()?, &name.id)));
        let lost = links.filter(|(parent, _)| is_lost(parent));
        let lost: BTreeMap<&str, _> = lost.map(|link| (link.0.session(), link)).collect();
        let lost: Vec<(ArchiveId, ArchiveId)> =
            lost.into_values().map(|(parent, child)| (parent.clone(), child.clone())).collect();
        for (parent, child) in lost {
            self.refer(&parent, &child)?;
        }
        Ok(())
    }

    /// A snapshot that is here and is none of the pushed session. Chains of `session` lack its
    /// archive.
    fn missing_link(&mut self, session: &str) -> Option<ArchiveId> {
        let Self { inventory, histories, request, healing, .. } = self;
        let own = request.session.id();
        let archives = &inventory.archives;
        let lost =
            archives.of_session(session).filter_map(|(name, _)| match archives.chain(&name.id) {
                Err(ChainError::MissingParent { missing, .. }) => Some(missing),
                _ => None,
            });
        let lost: BTreeSet<ArchiveId> = lost.collect();
        let mut lost = lost.into_iter().filter(|id| id.session() != own);
        lost.find(|id| !healing.contains(id) && histories.holds(id))
    }

    /// Whether the archives of a session at the place are of its history here, as far as its newest
    /// common one tells.
    fn is_of_here(&mut self, session: &str) -> Result<bool, RemoteError> {
        if !self.listed.contains(session) {
            self.list_with_parents(session)?;
        }
        let Some(newest) = self.newest_common(session) else { return Ok(true) };
        let is_same = self.is_same(&newest)?;
        if is_same {
            // Its manifest names all before it.
            let names = self.inventory.archives.of_session(session).map(|(name, _)| name);
            self.known.extend(names.cloned());
        }
        Ok(is_same)
    }
}
