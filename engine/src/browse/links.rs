//! The hard links of one snapshot, ready for looking up while its directories are listed.

use std::collections::HashMap;
use std::sync::Arc;

use lru::LruCache;

use super::key::{LinksDigest, LinksHasher, PathHash, StoreId};
use crate::byte_path;
use crate::object::{ContentHash, LinkGroups};

/// Hard-linked names kept in memory, over all lists of links; about 100 bytes each.
const CACHED_LINKS: usize = 100_000;

/// Which names are linked, by directory.
#[derive(Debug, Default)]
pub(super) struct LinkIndex {
    groups: Vec<Group>,
    /// Linked names of a directory, sorted, each with its group.
    members: HashMap<PathHash, Vec<Member>>,
    /// For every directory above a linked name, what is linked below it.
    below: HashMap<PathHash, LinksDigest>,
    len: usize,
}

/// A linked name and the number of its group.
type Member = (Box<[u8]>, u32);

/// Names of one inode.
#[derive(Debug)]
pub(super) struct Group {
    /// Directory and name of the first path, which stands for all of them.
    pub(super) parent: PathHash,
    pub(super) name: Box<[u8]>,
    /// How many names.
    pub(super) count: u32,
}

/// A directory whose linked names are being added up.
struct Open<'a> {
    name: &'a [u8],
    path: PathHash,
    hasher: LinksHasher,
}

impl LinkIndex {
    pub(super) fn new(top: PathHash, links: &LinkGroups) -> Self {
        let mut index = Self::default();
        let mut paths: Vec<(&[u8], u32)> = Vec::new();
        for (number, group) in links.groups().iter().enumerate() {
            paths.extend(group.iter().map(|path| (&**path, number as u32)));
            // The decoder lets no empty group through.
            let first = group.first().map_or(&b""[..], |path| path);
            let (parent, name) = byte_path::split(first);
            index.groups.push(Group {
                parent: PathHash::of(top, parent),
                name: name.into(),
                count: u32::try_from(group.len()).unwrap_or(u32::MAX),
            });
        }
        // In this order everything below one directory stands together.
        paths.sort_unstable();
        index.len = paths.len();
        let mut open: Vec<Open<'_>> = Vec::new();
        for (path, number) in paths {
            let (parent, name) = byte_path::split(path);
            let names = || byte_path::components(parent);
            let common = open.iter().zip(names()).take_while(|(open, name)| open.name == *name);
            let common = common.count();
            while open.len() > common {
                index.close(&mut open);
            }
            for name in names().skip(common) {
                let path = open.last().map_or(top, |parent| parent.path).child(name);
                open.push(Open { name, path, hasher: LinksHasher::new() });
            }
            let at = open.last().map_or(top, |directory| directory.path);
            if let Some(directory) = open.last_mut() {
                let group = &index.groups[number as usize];
                directory.hasher.member(name, &group.parent.child(&group.name), group.count);
            }
            index.members.entry(at).or_default().push((name.into(), number));
        }
        while !open.is_empty() {
            index.close(&mut open);
        }
        for members in index.members.values_mut() {
            members.sort_unstable();
        }
        index
    }

    fn close(&mut self, open: &mut Vec<Open<'_>>) {
        let Some(directory) = open.pop() else { return };
        let digest = directory.hasher.finish();
        if let Some(parent) = open.last_mut() {
            parent.hasher.directory(&directory.path, &digest);
        }
        self.below.insert(directory.path, digest);
    }

    /// Number of linked names.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The links below a directory; `None` when there are none.
    pub(super) fn below(&self, directory: &PathHash) -> Option<&LinksDigest> {
        self.below.get(directory)
    }

    /// The group that a name belongs to.
    pub(super) fn group(&self, directory: &PathHash, name: &[u8]) -> Option<&Group> {
        let members = self.members.get(directory)?;
        let at = members.binary_search_by(|(member, _)| (**member).cmp(name)).ok()?;
        self.groups.get(members[at].1 as usize)
    }
}

/// Indexes of hard links, bounded by the number of names in all of them.
pub(super) struct LinkCache {
    indexes: LruCache<(StoreId, ContentHash), Arc<LinkIndex>>,
    names: usize,
}

impl LinkCache {
    pub(super) fn new() -> Self {
        Self { indexes: LruCache::unbounded(), names: 0 }
    }

    /// An index that is there becomes the most recent one.
    pub(super) fn get(&mut self, key: &(StoreId, ContentHash)) -> Option<&Arc<LinkIndex>> {
        self.indexes.get(key)
    }

    pub(super) fn put(&mut self, key: (StoreId, ContentHash), index: Arc<LinkIndex>) {
        self.names += index.len() + 1;
        if let Some(old) = self.indexes.put(key, index) {
            self.names -= old.len() + 1;
        }
        while self.names > CACHED_LINKS && self.indexes.len() > 1 {
            let Some((_, oldest)) = self.indexes.pop_lru() else { break };
            self.names -= oldest.len() + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(groups: &[&[&str]]) -> LinkIndex {
        let groups = groups.iter().map(|group| {
            group.iter().map(|path| Box::<[u8]>::from(path.as_bytes())).collect::<Vec<_>>()
        });
        LinkIndex::new(top(), &LinkGroups::new(groups.collect()))
    }

    fn top() -> PathHash {
        PathHash::top(b"store")
    }

    fn at(path: &str) -> PathHash {
        PathHash::of(top(), path.as_bytes())
    }

    #[test]
    fn all_members_of_a_group_are_found_by_directory_and_name() {
        let index = index(&[&["/p/a", "/p/sub/b", "/p-x/c"], &["/p/sub/d", "/p/sub/e"]]);
        for (directory, name) in [("/p", "a"), ("/p/sub", "b"), ("/p-x", "c")] {
            let group = index.group(&at(directory), name.as_bytes()).unwrap();
            assert_eq!(group.count, 3);
            // The first in byte order: '-' sorts before '/'.
            assert_eq!((group.parent, &*group.name), (at("/p-x"), &b"c"[..]));
        }
        assert_eq!(index.group(&at("/p/sub"), b"e").unwrap().count, 2);
        assert!(index.group(&at("/p"), b"b").is_none());
        assert_eq!(index.len(), 5);
    }

    #[test]
    fn only_directories_above_a_change_of_links_see_it() {
        let before = index(&[&["/p/a/1", "/p/a/2"], &["/p/b/1", "/p/b/2"]]);
        let after = index(&[&["/p/a/1", "/p/a/2"], &["/p/b/1", "/p/b/2", "/p/b/c/3"]]);
        assert_eq!(before.below(&at("/p/a")), after.below(&at("/p/a")));
        assert!(before.below(&at("/p/b")).is_some());
        assert_ne!(before.below(&at("/p/b")), after.below(&at("/p/b")));
        assert_ne!(before.below(&at("/p")), after.below(&at("/p")));
        assert!(before.below(&at("/p/b/c")).is_none());
        assert!(before.below(&at("/q")).is_none());
    }

    #[test]
    fn a_link_across_directories_changes_both_sides() {
        let before = index(&[&["/p/a/1", "/p/b/1"]]);
        let after = index(&[&["/p/a/1", "/p/b/1", "/p/c/1"]]);
        assert_ne!(before.below(&at("/p/a")), after.below(&at("/p/a")));
    }
}
