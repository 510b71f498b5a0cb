//! The archives of a place, and the chains between them, by their names alone.
//!
//! A delta names its parent: an earlier snapshot of its session, or one of another session. So a
//! chain goes over sessions, and an archive is needed as long as any chain of a kept snapshot goes
//! through it. Names come from places: a chain is followed with a limit, and may be a circle.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::rules::MAX_CHAIN_DEPTH;
use crate::{ArchiveId, ArchiveKind, ArchiveName, FullReason, NameError, Parent};

/// Why a snapshot cannot be had from the archives that there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// There is no archive of it.
    #[error("there is no archive of {id}")]
    Missing {
        /// The snapshot.
        id: ArchiveId,
    },
    /// An archive on which it depends is not there.
    #[error("{wanted} cannot be had: it needs the archive of {missing}, which is not there")]
    MissingParent {
        /// The snapshot that was asked for.
        wanted: ArchiveId,
        /// The snapshot whose archive is missing.
        missing: ArchiveId,
    },
    /// The chain is deeper than any that nono makes.
    #[error("{wanted} cannot be had: its chain has more than {MAX_CHAIN_DEPTH} deltas")]
    TooDeep {
        /// The snapshot that was asked for.
        wanted: ArchiveId,
    },
}

/// Archives of sessions, with their lengths in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archives {
    /// By snapshot. None of the lists is empty.
    held: BTreeMap<ArchiveId, BTreeMap<ArchiveName, u64>>,
}

impl Archives {
    /// Adds an archive.
    pub fn insert(&mut self, name: ArchiveName, size_bytes: u64) {
        self.held.entry(name.id.clone()).or_default().insert(name, size_bytes);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// All archives with their lengths in bytes, by session and number.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = (&ArchiveName, u64)> {
        self.held.values().flatten().map(|(name, size_bytes)| (name, *size_bytes))
    }

    /// The archives of a session with their lengths in bytes, by number.
    pub fn of_session(
        &self,
        session: &str,
    ) -> impl DoubleEndedIterator<Item = (&ArchiveName, u64)> {
        let found = self.held.range(ArchiveId::all_of(session));
        found.flat_map(|(_, names)| names).map(|(name, size_bytes)| (name, *size_bytes))
    }

    /// The archives of a snapshot.
    pub fn of_snapshot(&self, id: &ArchiveId) -> impl DoubleEndedIterator<Item = &ArchiveName> {
        self.held.get(id).into_iter().flat_map(BTreeMap::keys)
    }

    /// The ids of all sessions, sorted.
    pub fn sessions(&self) -> BTreeSet<&str> {
        self.held.keys().map(ArchiveId::session).collect()
    }

    /// Bytes of all archives of a session.
    pub fn size_bytes_of(&self, session: &str) -> u64 {
        self.of_session(session).map(|(_, size_bytes)| size_bytes).sum()
    }

    /// Numbers of the snapshots of a session that have an archive, ascending.
    pub fn numbers(&self, session: &str) -> BTreeSet<u64> {
        self.of_session(session).map(|(name, _)| name.id.number()).collect()
    }

    /// Keeps the archives for which `keeps` says so.
    pub fn retain(&mut self, mut keeps: impl FnMut(&ArchiveName) -> bool) {
        self.held.retain(|_, names| {
            names.retain(|name, _| keeps(name));
            !names.is_empty()
        });
    }

    /// Forgets an archive that is of no use.
    pub fn forget(&mut self, name: &ArchiveName) {
        if let Some(names) = self.held.get_mut(&name.id) {
            names.remove(name);
            if names.is_empty() {
                self.held.remove(&name.id);
            }
        }
    }

    /// Forgets all archives of a snapshot, because they are gone.
    pub fn forget_all(&mut self, id: &ArchiveId) {
        self.held.remove(id);
    }

    /// Takes the archives of a session as they were listed just now.
    pub fn replace(&mut self, session: &str, listed: Self) {
        self.held.retain(|id, _| id.session() != session);
        let of_it = listed.held.into_iter().filter(|(id, _)| id.session() == session);
        self.held.extend(of_it);
    }

    /// The sessions on whose archives those of a session depend, itself excluded.
    pub fn parents_of(&self, session: &str) -> BTreeSet<&str> {
        let parents = self.of_session(session).filter_map(|(name, _)| name.kind.parent());
        parents.map(ArchiveId::session).filter(|parent| *parent != session).collect()
    }

    /// The snapshots whose archives depend on that of another one.
    pub fn deltas_on(&self, id: &ArchiveId) -> BTreeSet<&ArchiveId> {
        let depends = |name: &&ArchiveName| name.kind.parent() == Some(id);
        self.held.values().flat_map(BTreeMap::keys).filter(depends).map(|name| &name.id).collect()
    }

    /// The best archive of a snapshot: a full one, else a delta to the latest parent of its
    /// session, else one to a parent of another session.
    fn best(&self, id: &ArchiveId) -> Option<&ArchiveName> {
        // The last of equal ones is taken.
        self.of_snapshot(id).rev().max_by_key(|name| match &name.kind {
            ArchiveKind::Full => (2, None),
            ArchiveKind::Delta { parent } => {
                (u8::from(parent.session() == id.session()), Some(parent))
            }
        })
    }

    /// The archives that give a snapshot back: its own first, the full one last.
    ///
    /// # Errors
    /// The missing archive.
    pub fn chain(&self, id: &ArchiveId) -> Result<Vec<&ArchiveName>, ChainError> {
        let first = self.best(id).ok_or_else(|| ChainError::Missing { id: id.clone() })?;
        let mut chain = vec![first];
        while let Some(parent) = chain[chain.len() - 1].kind.parent() {
            if chain.len() > MAX_CHAIN_DEPTH as usize {
                return Err(ChainError::TooDeep { wanted: id.clone() });
            }
            let Some(next) = self.best(parent) else {
                let (wanted, missing) = (id.clone(), parent.clone());
                return Err(ChainError::MissingParent { wanted, missing });
            };
            chain.push(next);
        }
        Ok(chain)
    }

    /// Numbers of the snapshots of a session that can be had, ascending, with the lengths of their
    /// chains.
    ///
    /// # Errors
    /// When the session's id cannot be a name.
    pub fn available(&self, session: &str) -> Result<Vec<(u64, usize)>, NameError> {
        let mut available = Vec::new();
        for number in self.numbers(session) {
            if let Ok(chain) = self.chain(&ArchiveId::new(session, number)?) {
                available.push((number, chain.len()));
            }
        }
        Ok(available)
    }

    /// A snapshot as the parent of a delta; `None` if it cannot be had.
    pub fn as_parent(&self, id: &ArchiveId) -> Option<Parent> {
        let chain = self.chain(id).ok()?;
        let base = chain.last()?.id.clone();
        Some(Parent { id: id.clone(), base, depth: (chain.len() - 1) as u32 })
    }

    /// The archive of the session on which a delta of a snapshot can depend: that of the newest
    /// older snapshot that can be had and is `here`, in the store that knows its hashes.
    ///
    /// # Errors
    /// Why there is none.
    pub fn parent_for(&self, id: &ArchiveId, here: &[u64]) -> Result<Parent, FullReason> {
        let available = self.available(id.session()).map_err(|_| FullReason::NoParent)?;
        let older = available.iter().map(|(number, _)| *number).rev();
        let mut older = older.filter(|older| *older < id.number()).peekable();
        if older.peek().is_none() {
            return Err(FullReason::NoParent);
        }
        let newest = older.find(|older| here.contains(older)).ok_or(FullReason::ParentNotHere)?;
        let newest = ArchiveId::new(id.session(), newest).ok();
        newest.and_then(|newest| self.as_parent(&newest)).ok_or(FullReason::NoParent)
    }

    /// The archives of sessions that `may_go` when only these snapshots of them are wanted: what no
    /// chain of a wanted one needs, nor any chain of another session. A delta comes before what it
    /// depends on, so that a removal that is cut off breaks nothing. Archives that cannot be had
    /// stay, with all that is left of their chains.
    ///
    /// A name does not tell which of several archives of one snapshot is sound: all of a wanted
    /// snapshot stay, and of what it needs those that differ in their encryption alone.
    pub fn removable(
        &self,
        wanted: &BTreeSet<ArchiveId>,
        may_go: impl Fn(&str) -> bool,
    ) -> Vec<&ArchiveName> {
        let mut needed: BTreeSet<&ArchiveName> = BTreeSet::new();
        let names = || self.held.values().flat_map(BTreeMap::keys);
        for name in names() {
            match self.chain(&name.id) {
                Ok(chain) if wanted.contains(&name.id) || !may_go(name.id.session()) => {
                    needed.insert(name);
                    let of_link = chain.iter().flat_map(|link| {
                        self.of_snapshot(&link.id).filter(|other| other.kind == link.kind)
                    });
                    needed.extend(of_link);
                    if let Some(below) = name.kind.parent() {
                        needed.extend(self.chain(below).unwrap_or_default());
                    }
                }
                Ok(_) => {}
                Err(_) => needed.extend(self.rest_of_chain(name)),
            }
        }
        let going: Vec<_> = names().rev().filter(|name| !needed.contains(name)).collect();
        let mut above: HashMap<&ArchiveId, Vec<&ArchiveName>> = HashMap::new();
        for name in &going {
            if let Some(parent) = name.kind.parent() {
                above.entry(parent).or_default().push(name);
            }
        }
        ordered(going, |name| above.get(&name.id).cloned().unwrap_or_default())
    }

    /// The archives of sessions, and those of others on which theirs depend: parents first.
    pub fn with_links(&self, sessions: &BTreeSet<String>) -> Vec<&ArchiveName> {
        let of_sessions = sessions.iter().flat_map(|session| self.of_session(session));
        let mut names: BTreeSet<&ArchiveName> = of_sessions.map(|(name, _)| name).collect();
        for name in names.clone() {
            names.extend(self.rest_of_chain(name));
        }
        ordered(names.into_iter().collect(), |name| {
            let parent = name.kind.parent().into_iter();
            parent.flat_map(|parent| self.of_snapshot(parent)).collect()
        })
    }

    /// The archives of a session, and all of those sessions on which it depends.
    #[must_use]
    pub fn with_parents(&self, session: &str) -> Self {
        let (mut seen, mut open) = (BTreeSet::new(), vec![session]);
        let mut found = Self::default();
        while let Some(session) = open.pop() {
            if !seen.insert(session) {
                continue;
            }
            for (name, size_bytes) in self.of_session(session) {
                found.insert(name.clone(), size_bytes);
            }
            open.extend(self.parents_of(session));
        }
        found
    }

    /// The archives of a broken chain that are there.
    fn rest_of_chain<'a>(&'a self, first: &'a ArchiveName) -> BTreeSet<&'a ArchiveName> {
        let mut rest = BTreeSet::from([first]);
        let mut open = vec![first];
        while let Some(name) = open.pop() {
            let Some(parent) = name.kind.parent() else { continue };
            open.extend(self.of_snapshot(parent).filter(|below| rest.insert(below)));
        }
        rest
    }
}

/// Puts each archive behind those that have to come `before` it; else the order stays.
fn ordered<'a>(
    names: Vec<&'a ArchiveName>,
    before: impl Fn(&'a ArchiveName) -> Vec<&'a ArchiveName>,
) -> Vec<&'a ArchiveName> {
    let (mut seen, mut ordered) = (HashSet::new(), Vec::with_capacity(names.len()));
    for first in names {
        let mut open = vec![(first, false)];
        while let Some((name, is_entered)) = open.pop() {
            if is_entered {
                ordered.push(name);
            } else if seen.insert(name) {
                open.push((name, true));
                open.extend(before(name).into_iter().map(|name| (name, false)));
            }
        }
    }
    ordered
}
