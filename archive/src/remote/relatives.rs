//! Parents of other sessions: the first archive of a session depends on one of its project.
//!
//! Sessions are of one project when they track a path in common. Their trees are in this store, so
//! a push knows what a delta to each of their snapshots would hold, and needs no key. Two costs are
//! weighed, in bytes:
//!
//! - the delta itself. It repeats the changes since its parent, and the sessions before it have
//!   done so, too: their references are counted.
//! - a level of the chain. The tenth level ends in a full archive, so each is worth a tenth of one.
//!
//! So many short sessions depend on one full archive side by side, until their common changes are
//! worth a level.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::error::RemoteError;
use super::push::Pushing;
use crate::rules::MAX_CHAIN_DEPTH;
use crate::write::{delta_bytes, sibling};
use crate::{ArchiveError, ArchiveId, Parent};
use nono_engine::layout;
use nono_engine::object::ContentHash;
use nono_engine::snapshot::{ManifestError, SessionDir, SessionMetadata};
use nono_engine::store::LocalStore;
use nono_engine::sys::Dir;

/// Most sessions of the store whose manifests are read to find those of the project.
const MAX_LOOKED_AT: usize = 300;
/// Most sessions of the project that are looked for at the place, one request each, and as many
/// again of which no push is noted.
const MAX_RELATIVES: usize = 3;
/// Most states that are compared.
const MAX_COMPARED: usize = 24;

/// A session of this store, as a push compares it with a place.
pub(super) struct History {
    pub(super) session: SessionDir,
    /// The snapshots in this store.
    pub(super) here: Vec<u64>,
    /// The hashes of their manifests, and of those of removed ones.
    pub(super) chain: Vec<ContentHash>,
}

impl History {
    fn open(session: SessionDir) -> Result<Self, ManifestError> {
        let here = session.snapshot_numbers()?;
        let chain = session.chain()?.iter().map(|one| one.hash).collect();
        Ok(Self { session, here, chain })
    }
}

/// The sessions of a store, each opened once.
pub(super) struct Histories {
    own: SessionDir,
    /// By id; `None` of a session that is not here, or cannot be read.
    opened: BTreeMap<String, Option<History>>,
}

impl Histories {
    pub(super) fn new(own: &SessionDir) -> Result<Self, ManifestError> {
        let history = History::open(own.clone())?;
        Ok(Self { own: own.clone(), opened: [(own.id(), Some(history))].into() })
    }

    pub(super) fn get(&mut self, session: &str) -> Option<&History> {
        let Self { own, opened } = self;
        let history = opened
            .entry(session.to_owned())
            .or_insert_with(|| History::open(sibling(own, session)?).ok());
        history.as_ref()
    }

    /// Whether a snapshot is in this store.
    pub(super) fn holds(&mut self, id: &ArchiveId) -> bool {
        self.get(id.session()).is_some_and(|history| history.here.contains(&id.number()))
    }
}

impl Pushing<'_> {
    /// The best parent of another session for a delta of a snapshot; `None` if there is none.
    pub(super) fn relative(&mut self, id: &ArchiveId) -> Result<Option<Parent>, RemoteError> {
        for session in self.relatives_at_place(id.session())? {
            // Chains of the project may lack what is here.
            self.heal(&session)?;
        }
        for parent in self.ranked(id)? {
            if self.is_same(&parent.id)? {
                return Ok(Some(parent));
            }
        }
        Ok(None)
    }

    /// Sessions of the project that have archives at the place. They are listed.
    fn relatives_at_place(&mut self, session: &str) -> Result<Vec<String>, RemoteError> {
        let Some(history) = self.histories.get(session) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for relative in relatives(&history.session) {
            self.list_with_parents(&relative)?;
            if self.inventory.archives.of_session(&relative).next().is_some() {
                found.push(relative);
            }
            if found.len() == MAX_RELATIVES {
                break;
            }
        }
        Ok(found)
    }

    /// The possible parents of a delta, the best first.
    fn ranked(&mut self, id: &ArchiveId) -> Result<Vec<Parent>, RemoteError> {
        let Some(history) = self.histories.get(id.session()) else { return Ok(Vec::new()) };
        let store =
            LocalStore::open(&history.session.objects_path()).map_err(ArchiveError::from)?;
        let manifest = history.session.manifest(id.number()).map_err(ArchiveError::from)?.manifest;
        let (root, total) = (manifest.merkle_root, manifest.totals.total_bytes);
        let mut ranked = Vec::new();
        for (from, parent) in self.candidates(id) {
            let changed = match delta_bytes(&store, &from, &root, total, self.progress) {
                Ok(changed) => changed,
                Err(ArchiveError::Cancelled) => return Err(RemoteError::Cancelled),
                // A state that cannot be read here can be no parent.
                Err(_) => continue,
            };
            let references = self.inventory.needed_by.get(parent.id.session());
            let references = references.map_or(0, BTreeSet::len);
            ranked.push((cost(changed, references, parent.depth, total), parent));
        }
        ranked.sort_by(|(a, first), (b, second)| a.cmp(b).then(second.id.cmp(&first.id)));
        Ok(ranked.into_iter().map(|(_, parent)| parent).collect())
    }

    /// States of other sessions that can be had and are here, with the archive of the least depth
    /// of each, the newest first.
    fn candidates(&mut self, id: &ArchiveId) -> Vec<(ContentHash, Parent)> {
        let Self { inventory, histories, .. } = self;
        let archives = &inventory.archives;
        let mut found: Vec<(ContentHash, Parent)> = Vec::new();
        let is_sure = |it: &&str| *it != id.session() && !inventory.being_cleaned.contains(*it);
        for session in archives.sessions().into_iter().rev().filter(is_sure) {
            let Some(history) = histories.get(session) else { continue };
            let numbers = archives.numbers(session);
            // The newest state, and the oldest ones: these have the shortest chains.
            let newest = numbers.iter().rev().take(1);
            for number in newest.chain(numbers.iter().take(2)) {
                let Ok(other) = ArchiveId::new(session, *number) else { continue };
                let Ok(chain) = archives.chain(&other) else { continue };
                let Some(parent) = archives.as_parent(&other) else { continue };
                if parent.depth >= MAX_CHAIN_DEPTH
                    || !history.here.contains(number)
                    // It would depend on itself.
                    || chain.iter().any(|link| link.id == *id)
                {
                    continue;
                }
                let Ok(loaded) = history.session.manifest(*number) else { continue };
                let root = loaded.manifest.merkle_root;
                match found.iter().position(|(known, _)| *known == root) {
                    Some(at) if found[at].1.depth > parent.depth => found[at].1 = parent,
                    Some(_) => {}
                    None if found.len() < MAX_COMPARED => found.push((root, parent)),
                    None => return found,
                }
            }
        }
        found
    }
}

/// The cost of a delta in bytes, weighed as the top of this file says.
fn cost(changed: u64, references: usize, depth: u32, total: u64) -> u128 {
    let repeated = u128::from(changed) * (2 + references as u128) / 2;
    repeated + u128::from(total) * u128::from(depth + 1) / u128::from(MAX_CHAIN_DEPTH)
}

/// Other sessions of the store that track a path of this one: those of which a push is noted come
/// first.
fn relatives(session: &SessionDir) -> Vec<String> {
    let Ok(own) = session.metadata() else { return Vec::new() };
    let Some(root) = session.path().parent() else { return Vec::new() };
    let (mut pushed, mut others) = (Vec::new(), Vec::new());
    let tracks = |metadata: SessionMetadata| {
        metadata.tracked_paths.iter().any(|path| own.tracked_paths.contains(path))
    };
    for id in others_of(root, &session.id()).into_iter().take(MAX_LOOKED_AT) {
        let Some(other) = sibling(session, &id) else { continue };
        if !other.metadata().is_ok_and(tracks) {
            continue;
        }
        match other.push_notes() {
            Ok(notes) if !notes.is_empty() => pushed.push(other.id()),
            _ => others.push(other.id()),
        }
        if pushed.len() == MAX_RELATIVES {
            break;
        }
    }
    others.truncate(MAX_RELATIVES);
    pushed.into_iter().chain(others).collect()
}

/// The ids of the other sessions in a store: the newest older ones first, then the younger ones.
fn others_of(root: &Path, own: &str) -> Vec<String> {
    let names = Dir::open(root).and_then(|dir| dir.names()).unwrap_or_default();
    let is_session = |name: &[u8]| layout::may_be_session(name);
    let names = names.into_iter().filter(|entry| is_session(&entry.name));
    let names = names.filter_map(|entry| String::from_utf8(entry.name.into()).ok());
    let mut names: Vec<String> = names.filter(|name| name != own).collect();
    names.sort_by(|a, b| {
        let is_younger = |name: &String| name.as_str() > own;
        is_younger(a).cmp(&is_younger(b)).then_with(|| b.cmp(a))
    });
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_lie_side_by_side_until_their_changes_are_worth_a_level() {
        const MIB: u64 = 1 << 20;
        // The state before it is one level deeper, and has all but nothing to tell.
        let deeper = cost(1 << 10, 0, 1, 100 * MIB);
        assert!(cost(MIB, 1, 0, 100 * MIB) < deeper);
        assert!(cost(6 * MIB, 2, 0, 100 * MIB) > deeper);
        assert!(cost(11 * MIB, 0, 0, 100 * MIB) > deeper);
        assert!(cost(u64::MAX, usize::MAX, u32::MAX - 1, u64::MAX) > deeper);
    }
}
