//! The index of git, with the stat data that files have in a mount.
//!
//! git trusts an entry of its index only where size, times, owner and inode number of the file are
//! as the entry says, and reads every other file. In a mount the ctime is the mtime, and a number
//! follows from the state of a file. So an index as it was recorded has git read everything. The
//! index that is shown therefore has other times and numbers, in the same number of bytes.
//!
//! **Only what git would trust in the project is trusted here.** An entry is changed if its stat
//! data are those with which the [stat cache](crate::stat_cache) has the file, and the contents
//! that were read then are those that are shown. The file is then one that git itself takes for
//! unchanged. All other entries stay, and git looks at their files. The time of the index stays as
//! well, so git's own rule for files as new as the index holds. In a fork git goes on to compare
//! ctime and number: a program that changes a file and sets its mtime back hides nothing.
//!
//! An index is made when it is read first. It stays in memory with the mount.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use nono_mount::{Content, Kind, first_number};
use parking_lot::Mutex;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::contents::InMemory;
use super::error::from_store;
use super::key::{ContentKey, DirectoryKind, ObjectKey, PathHash, SnapshotKey};
use super::tree::{StoreEntry, StoreNode, StoreTree};
use crate::byte_path;
use crate::layout;
use crate::object::{FileTime, RootTree};
use crate::path_text::to_path;
use crate::stat_cache::{CachedDirectory, CachedFile, StatCache};
use crate::store::ObjectSource;
use crate::sys::Dir;
use crate::walk::{DOT_GIT, MAX_INDEX_BYTES, Places, places};

/// The name of an index in its git directory.
const INDEX: &[u8] = b"index";
/// The fields of an entry that are compared and changed, as `gitformat-index(5)` has them.
const CTIME: Range<usize> = 0..8;
const MTIME: Range<usize> = 8..16;
const INO: Range<usize> = 20..24;
const SIZE: Range<usize> = 36..40;

/// Indexes that were made, each by its recorded contents and its tracked path.
type Made = HashMap<(ObjectKey, Box<[u8]>), Arc<InMemory>>;

/// The indexes of the repositories at the tops of the tracked paths of one snapshot.
#[derive(Default)]
pub(super) struct GitIndexes {
    snapshot: Option<SnapshotKey>,
    /// Tracked paths, by their git directories.
    tracked: HashMap<PathHash, Box<[u8]>>,
    made: Mutex<Made>,
}

impl GitIndexes {
    pub(super) fn of(snapshot: SnapshotKey, top: PathHash, root: &RootTree) -> Self {
        let tracked = root.entries.iter().map(|entry| {
            let git_dir = byte_path::join(&entry.path, DOT_GIT);
            (PathHash::of(top, &git_dir), entry.path.clone())
        });
        Self { snapshot: Some(snapshot), tracked: tracked.collect(), made: Mutex::default() }
    }

    /// An entry of a directory, as an index if it is one.
    pub(super) fn marked(&self, parent: &PathHash, name: &[u8], node: StoreNode) -> StoreNode {
        let tracked = self.tracked.get(parent).filter(|_| name == INDEX);
        match (tracked, &node.kind) {
            (Some(tracked), Kind::File { size, content }) if *size <= MAX_INDEX_BYTES => {
                let kind = Kind::File { size: *size, content: content.of_git_index(tracked) };
                StoreNode { kind, ..node }
            }
            _ => node,
        }
    }

    /// Opens the index at the top of a tracked path.
    pub(super) fn open(
        &self,
        tree: &StoreTree,
        content: &ContentKey,
        size: u64,
        tracked: &[u8],
    ) -> io::Result<Arc<dyn Content>> {
        let key = (*content.object(), tracked.into());
        if let Some(index) = self.made.lock().get(&key) {
            return Ok(Arc::<InMemory>::clone(index));
        }
        let store = tree.stores.open(key.0.store)?;
        let mut bytes = store.read(&key.0.hash, size).map_err(from_store)?;
        if let (Some(places), Some(snapshot)) = (places(&bytes), &self.snapshot) {
            let cache = tree.stat_cache(snapshot, tracked);
            if !cache.is_empty() {
                let mut shown = Shown { tree, snapshot, tracked, cache: &cache, open: Vec::new() };
                shown.give_stat_data(&mut bytes, &places)?;
            }
        }
        // All readers get the one that was ready first.
        let mut made = self.made.lock();
        let index = made.entry(key).or_insert_with(|| Arc::new(InMemory(bytes.into())));
        Ok(Arc::<InMemory>::clone(index))
    }
}

impl StoreTree {
    /// The stat cache of a tracked path; empty where there is none.
    fn stat_cache(&self, snapshot: &SnapshotKey, tracked: &[u8]) -> StatCache {
        let session = self.sessions.path(&snapshot.session);
        let index = Dir::open(&session.parent().unwrap_or(Path::new("/")).join(layout::INDEX));
        index.map(|it| StatCache::of_any_generation(&it, to_path(tracked))).unwrap_or_default()
    }
}

/// The files of a tracked path as they are shown, asked for in the order of their paths.
struct Shown<'a> {
    tree: &'a StoreTree,
    snapshot: &'a SnapshotKey,
    tracked: &'a [u8],
    cache: &'a StatCache,
    /// The directory that was looked at last, below those above it.
    open: Vec<Level>,
}

/// A directory.
struct Level {
    /// Its path relative to the tracked one.
    relative: Box<[u8]>,
    entries: Vec<StoreEntry>,
    cached: Option<CachedDirectory>,
}

impl Shown<'_> {
    /// Gives the entries of an index the stat data that their files have here.
    fn give_stat_data(&mut self, index: &mut [u8], places: &Places) -> io::Result<()> {
        for (at, path) in &places.entries {
            let Some(entry) = index.get_mut(*at..*at + SIZE.end) else { continue };
            let Some((node, cached)) = self.file(path)? else { continue };
            let Kind::File { size, content } = &node.kind else { continue };
            let mtime = FileTime { seconds: node.mtime_s, nanoseconds: node.mtime_ns };
            let is_recorded = content.object().hash == cached.hash
                && cached.key.mtime() == mtime
                && cached.key.size() == *size;
            let Some(state) = node.state.filter(|_| is_recorded && is_trusted(entry, cached))
            else {
                continue;
            };
            // git keeps the lower half of both.
            entry[CTIME].copy_from_slice(&time(mtime));
            entry[INO].copy_from_slice(&(first_number(state) as u32).to_be_bytes());
        }
        sum_up(index, places.hash_bytes);
        Ok(())
    }

    /// A file as it is shown, and as it was when it was read last.
    fn file(&mut self, path: &[u8]) -> io::Result<Option<(&StoreNode, &CachedFile)>> {
        let (above, name) = byte_path::split(path);
        if !self.go_to(above)? {
            return Ok(None);
        }
        let Some(level) = self.open.last() else { return Ok(None) };
        let entry = entry_of(&level.entries, name);
        let cached = level.cached.as_ref().and_then(|cached| cached.file(name));
        Ok(entry.zip(cached))
    }

    /// Opens a directory; `false` where there is none.
    fn go_to(&mut self, relative: &[u8]) -> io::Result<bool> {
        let is_above = |level: &Level| byte_path::relative_to(relative, &level.relative).is_some();
        while self.open.last().is_some_and(|level| !is_above(level)) {
            self.open.pop();
        }
        if self.open.is_empty() {
            let Some(top) = self.top()? else { return Ok(false) };
            self.enter(b"", &top)?;
        }
        let from = self.open.last().map(|level| level.relative.clone()).unwrap_or_default();
        let rest = byte_path::relative_to(relative, &from).unwrap_or_default();
        for name in byte_path::components(rest) {
            let Some(level) = self.open.last() else { return Ok(false) };
            let below = byte_path::join(&level.relative, name);
            let Some(node) = entry_of(&level.entries, name).cloned() else { return Ok(false) };
            if !self.enter(&below, &node)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn enter(&mut self, relative: &[u8], node: &StoreNode) -> io::Result<bool> {
        let Kind::Directory(key) = &node.kind else { return Ok(false) };
        let DirectoryKind::Tree(key) = &*key.0 else { return Ok(false) };
        let entries = self.tree.list_tree(key)?;
        let cached = self.cache.directory(relative);
        self.open.push(Level { relative: relative.into(), entries, cached });
        Ok(true)
    }

    /// The tracked directory.
    fn top(&self) -> io::Result<Option<StoreNode>> {
        let (above, name) = byte_path::split(self.tracked);
        let entries = self.tree.list_above(self.snapshot, above)?;
        Ok(entry_of(&entries, name).cloned())
    }
}

fn entry_of<'a>(entries: &'a [StoreEntry], name: &[u8]) -> Option<&'a StoreNode> {
    let at = entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok()?;
    Some(&entries[at].node)
}

/// Whether git would have trusted an entry when the file was read last.
fn is_trusted(entry: &[u8], cached: &CachedFile) -> bool {
    let key = &cached.key;
    entry[CTIME] == time(key.ctime())
        && entry[MTIME] == time(key.mtime())
        && entry[INO] == (key.ino() as u32).to_be_bytes()
        && entry[SIZE] == (key.size() as u32).to_be_bytes()
}

/// A time in an entry.
fn time(time: FileTime) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&(time.seconds as u32).to_be_bytes());
    bytes[4..].copy_from_slice(&time.nanoseconds.to_be_bytes());
    bytes
}

/// Writes the checksum of an index, unless git was told to write none (`index.skipHash`).
fn sum_up(index: &mut [u8], hash_bytes: usize) {
    let Some(end) = index.len().checked_sub(hash_bytes) else { return };
    let (body, sum) = index.split_at_mut(end);
    if sum.iter().all(|byte| *byte == 0) {
        return;
    }
    match hash_bytes {
        20 => sum.copy_from_slice(&Sha1::digest(&*body)),
        _ => sum.copy_from_slice(&Sha256::digest(&*body)),
    }
}
