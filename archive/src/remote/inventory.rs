//! Sorting what a remote lists: archives, references between sessions, and the rest.
//!
//! A delta to a snapshot of another session leaves a reference in the folder of that session:
//! `PARENT/needed-by-CHILD`, stored before the delta. So a cleanup of one session finds the
//! sessions that need it without a list of the whole remote. A reference says where to look, never
//! what is needed: the names of the archives decide.
//!
//! A cleanup leaves a mark in the folder of each session before it looks a last time at what others
//! need, and removes nothing but what it finds free then. A push looks for the mark after it stored
//! a delta, and does not rely on a parent that has one. So of a push and a cleanup at once, one
//! sees the other.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use super::archives::Archives;
use super::error::RemoteError;
use super::key::KEY_NAME;
use super::place::{Place, Stored};
use crate::{ArchiveId, ArchiveName};
use nono_engine::progress::Progress;

/// Minimum length of an archive, in bytes: a shorter file is an upload that was cut off.
const LEAST_BYTES: u64 = 64;
/// Begins the name of a reference.
const NEEDED_BY: &str = "needed-by-";
/// The name of the mark of a cleanup.
const CLEANUP_BEGUN: &str = "cleanup-begun";
/// Most sessions that are listed for the chains of others. Archives beyond them count as missing:
/// names of a hostile place may go on for ever.
pub(super) const MAX_LISTED: usize = 24;

/// The archives of a remote, or of some of its sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// All archives.
    pub archives: Archives,
    /// By session, the sessions that may have archives which depend on its archives.
    pub needed_by: BTreeMap<String, BTreeSet<String>>,
    /// Sessions from which a cleanup removes archives now, or did when it was killed.
    pub being_cleaned: BTreeSet<String>,
    /// Names that are no archives.
    pub foreign: Vec<String>,
    /// Names of archives that are too short to be some. They count as missing.
    pub cut_off: Vec<ArchiveName>,
    /// Archives that are not encrypted, where all of them have to be.
    pub unencrypted: Vec<String>,
    /// Folders of sessions that are symlinks, which no command follows.
    pub linked: Vec<String>,
    /// Sessions that were listed one by one.
    listed: BTreeSet<String>,
}

impl Inventory {
    /// Sorts what a remote lists.
    pub fn of(stored: Vec<Stored>) -> Self {
        let mut inventory = Self::default();
        for Stored { key, size_bytes } in stored {
            if key == KEY_NAME {
                continue;
            }
            if let Some((session, child)) = parse_reference(&key) {
                let needed_by = inventory.needed_by.entry(session.to_owned()).or_default();
                needed_by.insert(child.to_owned());
                continue;
            }
            if let Some(session) =
                key.strip_suffix(CLEANUP_BEGUN).and_then(|it| it.strip_suffix('/'))
            {
                inventory.being_cleaned.insert(session.to_owned());
                continue;
            }
            match key.parse::<ArchiveName>() {
                Ok(name) if size_bytes >= LEAST_BYTES => {
                    inventory.archives.insert(name, size_bytes)
                }
                Ok(name) => inventory.cut_off.push(name),
                Err(_) => inventory.foreign.push(key),
            }
        }
        inventory
    }

    /// Lists sessions, and those on whose archives theirs depend. One request for each session.
    ///
    /// # Errors
    /// When the place cannot be read.
    pub fn of_sessions(
        place: &Place,
        sessions: &BTreeSet<String>,
        progress: &dyn Progress,
    ) -> Result<Self, RemoteError> {
        let mut inventory = Self::default();
        inventory.list_with_parents(place, sessions.iter().cloned().collect(), progress)?;
        Ok(inventory)
    }

    /// Lists sessions, those on whose archives theirs depend, and those whose archives depend on
    /// theirs. One request for each session; where too many depend on one, the whole place is
    /// listed. So is a directory, which costs no requests: a reference may be lost.
    ///
    /// # Errors
    /// When the place cannot be read.
    pub fn around_sessions(
        place: &Place,
        sessions: &BTreeSet<String>,
        progress: &dyn Progress,
    ) -> Result<Self, RemoteError> {
        if place.lists_without_requests() {
            return Ok(Self::of(place.list("", progress)?));
        }
        let mut inventory = Self::of_sessions(place, sessions, progress)?;
        for session in sessions {
            let children = inventory.needed_by.get(session).cloned().unwrap_or_default();
            if children.len() > MAX_LISTED {
                return Ok(Self::of(place.list("", progress)?));
            }
            for child in children.difference(&inventory.listed.clone()) {
                inventory.list(place, child, progress)?;
            }
            let parents = children.iter().flat_map(|child| inventory.archives.parents_of(child));
            let parents = parents.map(str::to_owned).collect();
            inventory.list_with_parents(place, parents, progress)?;
        }
        Ok(inventory)
    }

    /// Lists sessions that are not listed, and all on whose archives theirs depend. Beyond the
    /// sessions themselves, no more than [`MAX_LISTED`].
    fn list_with_parents(
        &mut self,
        place: &Place,
        sessions: Vec<String>,
        progress: &dyn Progress,
    ) -> Result<(), RemoteError> {
        let most = self.listed.len().saturating_add(sessions.len()).saturating_add(MAX_LISTED);
        let mut open = sessions;
        while let Some(session) = open.pop().filter(|_| self.listed.len() < most) {
            if !self.listed.contains(&session) {
                self.list(place, &session, progress)?;
                let parents = self.archives.parents_of(&session);
                open.extend(parents.into_iter().map(str::to_owned));
            }
        }
        Ok(())
    }

    fn list(
        &mut self,
        place: &Place,
        session: &str,
        progress: &dyn Progress,
    ) -> Result<(), RemoteError> {
        self.add(Self::of(place.list(session, progress)?));
        self.listed.insert(session.to_owned());
        Ok(())
    }

    fn add(&mut self, other: Self) {
        let Self {
            archives,
            needed_by,
            being_cleaned,
            foreign,
            cut_off,
            unencrypted,
            linked,
            listed,
        } = other;
        for (name, size_bytes) in archives.all() {
            self.archives.insert(name.clone(), size_bytes);
        }
        self.needed_by.extend(needed_by);
        self.being_cleaned.extend(being_cleaned);
        self.foreign.extend(foreign);
        self.cut_off.extend(cut_off);
        self.unencrypted.extend(unencrypted);
        self.linked.extend(linked);
        self.listed.extend(listed);
    }

    /// Ids of all sessions, also of those of which no whole archive is left.
    pub fn session_ids(&self) -> BTreeSet<&str> {
        let mut ids = self.archives.sessions();
        ids.extend(self.cut_off.iter().map(|name| name.id.session()));
        ids
    }

    /// The archives of a session that are too short to be some.
    pub fn cut_off_of(&self, session: &str) -> Vec<ArchiveName> {
        let of_it = self.cut_off.iter().filter(|name| name.id.session() == session);
        of_it.cloned().collect()
    }

    /// The references that have no use any more once these archives are gone: those in the folders
    /// of sessions that `may_go`, and those that name one of them.
    pub fn references_after(
        &self,
        gone: &BTreeSet<&ArchiveName>,
        may_go: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let left = self.archives.all().map(|(name, _)| name).filter(|name| !gone.contains(name));
        let links: BTreeSet<(&str, &str)> = left
            .filter_map(|name| Some((name.kind.parent()?.session(), name.id.session())))
            .collect();
        let all = self.needed_by.iter().flat_map(|(session, children)| {
            children.iter().map(move |child| (session.as_str(), child.as_str()))
        });
        all.filter(|(session, child)| may_go(session) || may_go(child))
            .filter(|link| !links.contains(link))
            .map(|(session, child)| reference(session, child))
            .collect()
    }

    /// Takes the archives out that are not encrypted: at a place whose archives all are, another
    /// user has put them there.
    #[must_use]
    pub fn encrypted_only(mut self) -> Self {
        let others = self.archives.all().filter(|(name, _)| !name.is_encrypted);
        self.unencrypted.extend(others.map(|(name, _)| name.to_string()));
        self.archives.retain(|name| name.is_encrypted);
        self
    }
}

/// Leaves the marks of a cleanup in the folders of sessions.
///
/// # Errors
/// As the place answers.
pub fn begin_cleanup(
    place: &Place,
    sessions: &BTreeSet<&str>,
    progress: &dyn Progress,
) -> Result<(), RemoteError> {
    for session in sessions {
        let mut write = |out: &mut dyn Write| out.write_all(b"a cleanup removes archives here\n");
        // The one of a cleanup that was killed does as well.
        place.put_new(&format!("{session}/{CLEANUP_BEGUN}"), &mut write, progress)?;
    }
    Ok(())
}

/// Takes the marks of a cleanup away.
///
/// # Errors
/// As the place answers.
pub fn end_cleanup(
    place: &Place,
    sessions: &BTreeSet<&str>,
    progress: &dyn Progress,
) -> Result<(), RemoteError> {
    sessions
        .iter()
        .try_for_each(|session| place.remove(&format!("{session}/{CLEANUP_BEGUN}"), progress))
}

/// The name of the reference that archives of `child` depend on some of `session`.
pub(super) fn reference(session: &str, child: &str) -> String {
    format!("{session}/{NEEDED_BY}{child}")
}

/// The session in whose folder a reference lies, and the one that it names.
fn parse_reference(key: &str) -> Option<(&str, &str)> {
    let (session, file) = key.split_once('/')?;
    let child = file.strip_prefix(NEEDED_BY)?;
    let is_session = |id: &str| ArchiveId::new(id, 0).is_ok();
    (session != child && is_session(session) && is_session(child)).then_some((session, child))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_sorted_into_archives_references_and_the_rest() {
        let listed = [
            ("s/0-full.tar.zst.age", LEAST_BYTES),
            ("s/1-delta-0.tar.zst.age", LEAST_BYTES - 1),
            ("s/2-full.tar.zst", LEAST_BYTES),
            ("s/needed-by-t", 9),
            ("s/needed-by-s", 9),
            ("s/needed-by-../t", 9),
            ("s/notes", 9),
            ("s/cleanup-begun", 9),
            (KEY_NAME, 99),
        ];
        let stored = |(key, size_bytes): (&str, u64)| Stored { key: key.to_owned(), size_bytes };
        let found = Inventory::of(listed.map(stored).into()).encrypted_only();
        let names: Vec<_> = found.archives.all().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["s/0-full.tar.zst.age"]);
        assert_eq!(found.needed_by, [("s".to_owned(), ["t".to_owned()].into())].into());
        assert_eq!(found.foreign, ["s/needed-by-s", "s/needed-by-../t", "s/notes"]);
        assert_eq!(found.being_cleaned, ["s".to_owned()].into());
        assert_eq!(found.cut_off.len(), 1);
        assert_eq!(found.unencrypted, ["s/2-full.tar.zst"]);
        assert_eq!(reference("s", "t"), "s/needed-by-t");
    }
}
