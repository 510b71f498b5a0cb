//! The contents of a remote, by the names of its archives alone: sessions, snapshots, chains.
//!
//! Pure values: nothing here asks a remote. Names come from there; each was checked when it was
//! parsed.

use std::collections::{BTreeMap, BTreeSet};

use super::key::KEY_NAME;
use super::place::Stored;
use crate::{
    ArchiveId, ArchiveKind, ArchiveName, ChainError, FullReason, NameError, Parent, chain_of,
};

/// Minimum length of an archive, in bytes: a shorter file is an upload that was cut off.
const LEAST_BYTES: u64 = 64;

/// The archives of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionArchives {
    session: String,
    /// Lengths in bytes by name, by number of the snapshot first.
    archives: BTreeMap<ArchiveName, u64>,
}

/// The archives of a remote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// By session id.
    pub sessions: BTreeMap<String, SessionArchives>,
    /// Names that are no archives.
    pub foreign: Vec<String>,
    /// Names of archives that are too short to be some. They count as missing.
    pub cut_off: Vec<ArchiveName>,
    /// Archives that are not encrypted, where all of them have to be.
    pub unencrypted: Vec<String>,
    /// Folders of sessions that are symlinks, which no command follows.
    pub linked: Vec<String>,
}

impl Inventory {
    /// Sorts what a remote lists.
    pub fn of(stored: Vec<Stored>) -> Self {
        let mut inventory = Self::default();
        for Stored { key, size_bytes } in stored {
            if key == KEY_NAME {
                continue;
            }
            match key.parse::<ArchiveName>() {
                Ok(name) if size_bytes >= LEAST_BYTES => {
                    let id = name.id.session().to_owned();
                    let session = inventory.sessions.entry(id.clone());
                    let session = session.or_insert_with(|| SessionArchives::none(id));
                    session.archives.insert(name, size_bytes);
                }
                Ok(name) => inventory.cut_off.push(name),
                Err(_) => inventory.foreign.push(key),
            }
        }
        inventory
    }

    /// Ids of all sessions, also of those of which no whole archive is left.
    pub fn session_ids(&self) -> BTreeSet<&str> {
        let cut_off = self.cut_off.iter().map(|name| name.id.session());
        self.sessions.keys().map(String::as_str).chain(cut_off).collect()
    }

    /// The archives of a session that are too short to be some.
    pub fn cut_off_of(&self, session: &str) -> Vec<ArchiveName> {
        let of_it = self.cut_off.iter().filter(|name| name.id.session() == session);
        of_it.cloned().collect()
    }

    /// Takes the archives out that are not encrypted: at a place whose archives all are, another
    /// user has put them there.
    #[must_use]
    pub fn encrypted_only(mut self) -> Self {
        for held in self.sessions.values_mut() {
            held.archives.retain(|name, _| {
                if !name.is_encrypted {
                    self.unencrypted.push(name.to_string());
                }
                name.is_encrypted
            });
        }
        self.sessions.retain(|_, held| !held.archives.is_empty());
        self
    }
}

impl SessionArchives {
    /// No archive of a session.
    pub fn none(session: String) -> Self {
        Self { session, archives: BTreeMap::new() }
    }

    /// All archives with their lengths in bytes, by number.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = (&ArchiveName, u64)> {
        self.archives.iter().map(|(name, size_bytes)| (name, *size_bytes))
    }

    /// All archives but the one of a name.
    #[must_use]
    pub fn without(&self, name: Option<&str>) -> Self {
        let mut rest = self.clone();
        rest.archives.retain(|known, _| name.is_none_or(|name| known.to_string() != name));
        rest
    }

    /// The deltas that depend on a snapshot.
    #[must_use]
    pub fn deltas_on(&self, number: u64) -> Self {
        let mut deltas = self.clone();
        deltas.archives.retain(|name, _| name.kind == ArchiveKind::Delta { parent: number });
        deltas
    }

    /// Forgets an archive that is of no use.
    pub fn forget(&mut self, name: &ArchiveName) {
        self.archives.remove(name);
    }

    /// Forgets all archives of a snapshot, because they are gone.
    pub fn forget_all(&mut self, number: u64) {
        self.archives.retain(|name, _| name.id.number() != number);
    }

    /// Bytes of all archives.
    pub fn size_bytes(&self) -> u64 {
        self.archives.values().sum()
    }

    /// Numbers of the snapshots that have an archive, ascending.
    pub fn numbers(&self) -> BTreeSet<u64> {
        self.archives.keys().map(|name| name.id.number()).collect()
    }

    /// The id of a snapshot of the session.
    ///
    /// # Errors
    /// When the session's id cannot be a name.
    pub fn id(&self, number: u64) -> Result<ArchiveId, NameError> {
        ArchiveId::new(&self.session, number)
    }

    /// The archives that give a snapshot back: its own first, the full one last.
    ///
    /// # Errors
    /// The missing archive.
    pub fn chain(&self, id: &ArchiveId) -> Result<Vec<&ArchiveName>, ChainError> {
        chain_of(self.archives.keys(), id)
    }

    /// Numbers of the snapshots that can be had, ascending, with the lengths of their chains.
    pub fn available(&self) -> Vec<(u64, usize)> {
        let chain = |number: u64| Some((number, self.chain(&self.id(number).ok()?).ok()?.len()));
        self.numbers().into_iter().filter_map(chain).collect()
    }

    /// The archive on which a delta of `number` can depend: that of the newest older snapshot that
    /// can be had and is `here`, in the store that knows its hashes.
    ///
    /// # Errors
    /// Why the archive has to be full.
    pub fn parent_for(&self, number: u64, here: &[u64]) -> Result<Parent, FullReason> {
        let available = self.available();
        let mut older = available.iter().rev().filter(|(older, _)| *older < number).peekable();
        if older.peek().is_none() {
            return Err(FullReason::NoParent);
        }
        let newest = older.find(|(older, _)| here.contains(older));
        let (parent, len) = *newest.ok_or(FullReason::ParentNotHere)?;
        let chain = self.id(parent).ok().and_then(|id| self.chain(&id).ok());
        let base = chain.and_then(|chain| Some(chain.last()?.id.number()));
        let base = base.ok_or(FullReason::NoParent)?;
        Ok(Parent { number: parent, base, depth: (len - 1) as u32 })
    }

    /// The archives that can go when only these snapshots are wanted: what no chain of a wanted one
    /// needs. A delta comes before what it depends on, so that a removal that is cut off breaks
    /// nothing. Archives that cannot be had stay, with all that is left of their chains.
    ///
    /// A name does not tell which of several archives of one snapshot is sound: all of a wanted
    /// snapshot stay, and of what it needs those that differ in their encryption alone.
    pub fn removable(&self, wanted: &BTreeSet<u64>) -> Vec<&ArchiveName> {
        let mut needed: BTreeSet<&ArchiveName> = BTreeSet::new();
        for name in self.archives.keys() {
            let number = name.id.number();
            match self.chain(&name.id) {
                Ok(chain) if wanted.contains(&number) => {
                    needed.insert(name);
                    needed.extend(self.archives.keys().filter(|other| {
                        let is_twin =
                            |name: &&ArchiveName| name.id == other.id && name.kind == other.kind;
                        chain.iter().any(is_twin)
                    }));
                    if let ArchiveKind::Delta { parent } = name.kind
                        && let Ok(below) = self.id(parent)
                    {
                        needed.extend(self.chain(&below).unwrap_or_default());
                    }
                }
                Ok(_) => {}
                Err(_) => needed.extend(self.rest_of_chain(name)),
            }
        }
        self.archives.keys().rev().filter(|name| !needed.contains(name)).collect()
    }

    /// The archives of a broken chain that are there.
    fn rest_of_chain<'a>(&'a self, first: &'a ArchiveName) -> BTreeSet<&'a ArchiveName> {
        let mut rest = BTreeSet::from([first]);
        let mut open = vec![first];
        while let Some(name) = open.pop() {
            let ArchiveKind::Delta { parent } = name.kind else { continue };
            let below = self.archives.keys().filter(|below| below.id.number() == parent);
            open.extend(below.filter(|below| rest.insert(below)));
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn session<T: AsRef<str>>(names: &[T]) -> SessionArchives {
        let key = |name: &T| format!("20260101-000000-1/{}", name.as_ref());
        let stored = |name: &T| Stored { key: key(name), size_bytes: LEAST_BYTES };
        let inventory = Inventory::of(names.iter().map(stored).collect());
        assert!(inventory.foreign.is_empty(), "{:?}", inventory.foreign);
        inventory.sessions.into_values().next().unwrap()
    }

    fn numbers(names: &[&ArchiveName]) -> Vec<u64> {
        names.iter().map(|name| name.id.number()).collect()
    }

    #[test]
    fn a_delta_depends_on_the_newest_older_snapshot_that_can_be_had() {
        let held = session(&[
            "0-full.tar.zst",
            "1-delta-0.tar.zst",
            "3-delta-1.tar.zst.age",
            "4-full.tar.zst",
            "6-delta-5.tar.zst",
        ]);
        assert_eq!(held.available(), [(0, 1), (1, 2), (3, 3), (4, 1)]);
        let all: Vec<u64> = (0..10).collect();
        let parent = |number, base, depth| Ok(Parent { number, base, depth });
        assert_eq!(held.parent_for(7, &all), parent(4, 4, 0), "6 cannot be had");
        assert_eq!(held.parent_for(3, &all), parent(1, 0, 1));
        assert_eq!(held.parent_for(0, &all), Err(FullReason::NoParent));
        // The hashes of the others are unknown here.
        assert_eq!(held.parent_for(7, &[1, 5, 6]), parent(1, 0, 1));
        assert_eq!(held.parent_for(7, &[2, 7]), Err(FullReason::ParentNotHere));
    }

    #[test]
    fn a_parent_is_as_deep_as_its_chain() {
        let mut names = vec!["0-full.tar.zst".to_owned()];
        for number in 1..=10 {
            let parent = session(&names).parent_for(number, &[number - 1]).unwrap();
            assert_eq!(parent, Parent { number: number - 1, base: 0, depth: number as u32 - 1 });
            names.push(format!("{number}-delta-{}.tar.zst", number - 1));
        }
        assert_eq!(session(&names).available().last(), Some(&(10, 11)));
    }

    #[test]
    fn what_a_wanted_snapshot_needs_stays_and_deltas_go_first() {
        let held = session(&[
            "0-full.tar.zst",
            "1-delta-0.tar.zst",
            "2-delta-1.tar.zst",
            "3-full.tar.zst",
            "4-delta-3.tar.zst",
            "5-delta-4.tar.zst",
        ]);
        assert_eq!(numbers(&held.removable(&[4].into())), [5, 2, 1, 0]);
        assert_eq!(numbers(&held.removable(&[2].into())), [5, 4, 3]);
        assert_eq!(numbers(&held.removable(&BTreeSet::new())), [5, 4, 3, 2, 1, 0]);
        let broken = session(&["0-full.tar.zst", "1-delta-0.tar.zst", "3-delta-2.tar.zst"]);
        assert_eq!(numbers(&broken.removable(&BTreeSet::new())), [1, 0], "3 may be mended");
    }

    /// Archives of a session, whatever their chains: each is full, or a delta to a lower number.
    fn any_archives() -> impl Strategy<Value = BTreeSet<String>> {
        let archive = (0u64..14, 0u64..16, any::<bool>()).prop_map(|(number, parent, sealed)| {
            let end = if sealed { ".tar.zst.age" } else { ".tar.zst" };
            match parent < number {
                true => format!("{number}-delta-{parent}{end}"),
                false => format!("{number}-full{end}"),
            }
        });
        prop::collection::btree_set(archive, 1..24)
    }

    proptest! {
        #[test]
        fn a_cleanup_takes_nothing_that_a_kept_snapshot_needs_and_all_else(
            names in any_archives(),
            keep in 0usize..6,
        ) {
            let held = session(&names.iter().collect::<Vec<_>>());
            let had: Vec<u64> = held.available().iter().map(|(number, _)| *number).collect();
            let kept: BTreeSet<u64> = had.iter().rev().take(keep).copied().collect();
            let removable = held.removable(&kept);
            let key = |name: &ArchiveName| name.to_string().rsplit('/').next().unwrap().to_owned();
            // A cleanup that is cut off anywhere.
            let mut left = names.clone();
            for gone in &removable {
                prop_assert!(left.remove(&key(gone)), "{gone} goes twice");
                let now = left.iter().collect::<Vec<_>>();
                if now.is_empty() {
                    prop_assert!(kept.is_empty());
                    continue;
                }
                let now = session(&now);
                let has = |number: &u64| now.available().iter().any(|(known, _)| known == number);
                prop_assert!(kept.iter().all(has), "{kept:?} is not in {left:?}");
                let below = |number: &&u64| **number < gone.id.number();
                prop_assert!(had.iter().filter(below).all(has), "{left:?} without {gone}");
            }
            // An archive that cannot be had may be mended.
            let broken = |name: &&ArchiveName| held.chain(&name.id).is_err();
            for (name, _) in held.all().filter(|(name, _)| broken(name)) {
                prop_assert!(left.contains(&key(name)), "{name} is gone");
            }
            if !held.all().any(|(name, _)| broken(&name)) {
                let chain = |number: u64| held.chain(&held.id(number).unwrap()).unwrap();
                let mut needed: BTreeSet<String> = BTreeSet::new();
                for number in &kept {
                    let twin = |name: &str| name.split_once(".tar").unwrap().0.to_owned();
                    let chained = chain(*number).into_iter().map(|name| twin(&key(name)));
                    let chained: BTreeSet<String> = chained.collect();
                    let is_twin = |name: &&String| chained.contains(&twin(name));
                    needed.extend(names.iter().filter(is_twin).cloned());
                    for (name, _) in held.all().filter(|(name, _)| name.id.number() == *number) {
                        needed.insert(key(name));
                        if let ArchiveKind::Delta { parent } = name.kind {
                            // It may be missing: a full archive beside the delta does without.
                            let below = held.chain(&held.id(parent).unwrap());
                            needed.extend(below.unwrap_or_default().into_iter().map(key));
                        }
                    }
                }
                prop_assert_eq!(left, needed);
            }
        }
    }
}
