//! One file: read once into the store, hashed on the way; and what is not a file or a directory.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::directory::{Captured, PendingDir};
use super::{Capturer, attributes};
use crate::byte_path;
use crate::manifest::NotCapturedReason;
use crate::object::{ContentHash, Midstates, MidstatesLink, Node, TreeEntry, Xattrs};
use crate::path_text::to_path;
use crate::stat_cache::{CachedFile, StatKey};
use crate::store::{ImportError, Imported, StoreError, Transfer};
use crate::sys::{self, Dir, FileKind, Stat};
use crate::walk::FoundEntry;

/// A file that changed while it was read is read again so many times before it is called unstable.
const READ_ATTEMPTS: usize = 3;

impl Capturer<'_> {
    /// A file that the cache knows: nothing is read.
    pub(super) fn unchanged_file(
        &self,
        node: &PendingDir,
        path: &[u8],
        found: &FoundEntry,
        known: &CachedFile,
    ) -> TreeEntry {
        self.request.progress.advance(1, found.stat.size);
        let entry = TreeEntry {
            name: found.name.clone(),
            attributes: attributes(&found.stat, known.xattrs.clone()),
            node: Node::File {
                size: found.stat.size,
                hash: known.hash,
                midstates: known.midstates.clone(),
            },
        };
        self.note_link(node.root, path, &found.stat, &entry);
        entry
    }

    /// Reads files of a directory, which then has them beside what else was captured of it.
    pub(super) fn files(
        &self,
        node: &PendingDir,
        dir: &Dir,
        batch: Vec<FoundEntry>,
        mut captured: Captured,
    ) {
        for found in batch {
            if self.is_stopped() {
                return;
            }
            let path = byte_path::join(&node.relative, &found.name);
            if let Some((entry, file)) = self.read_file(dir, &found, node.root, &path) {
                captured.cached_files.extend(file.map(|file| (entry.name.clone(), file)));
                captured.entries.push(entry);
            }
        }
        node.state.lock().captured.append(captured);
    }

    /// Reads a file into the store. `None`: it is not part of the snapshot, and that is recorded.
    pub(super) fn read_file(
        &self,
        dir: &Dir,
        found: &FoundEntry,
        root: usize,
        path: &[u8],
    ) -> Option<(TreeEntry, Option<CachedFile>)> {
        self.read_as(self.try_read_file(dir, found), dir, found, root, path)
    }

    /// The same of a file that was read.
    pub(super) fn read_as(
        &self,
        read: Result<ReadFile, ReadError>,
        dir: &Dir,
        found: &FoundEntry,
        root: usize,
        path: &[u8],
    ) -> Option<(TreeEntry, Option<CachedFile>)> {
        let counted = found.stat.size;
        let read = match read {
            Ok(read) => read,
            Err(ReadError::Changed) => {
                self.tally.remove(&found.stat);
                // It became something else while the directory was read: record what it is now.
                let stat = match dir.stat(&found.name) {
                    Ok(stat) => stat,
                    Err(error) => {
                        if !error.is_gone() {
                            self.unreadable(root, path, None, &error);
                        }
                        return None;
                    }
                };
                if matches!(stat.kind, FileKind::Directory | FileKind::File) {
                    let error = "it changed its kind while it was captured".to_owned();
                    let reason = NotCapturedReason::Unreadable { error, is_denied: false };
                    self.leave_out_unreadable(root, path, reason, Some(&stat));
                    return None;
                }
                if !self.count_entry(dir, &found.name, &stat) {
                    self.leave_out(root, path, NotCapturedReason::OverBudget);
                    return None;
                }
                let FoundEntry { mode, is_ignored, is_marked, .. } = *found;
                let name = found.name.clone();
                let found = FoundEntry { name, stat, mode, is_ignored, is_marked };
                return self.other_entry(dir, &found, root, path).map(|entry| (entry, None));
            }
            Err(ReadError::File(error)) => {
                self.tally.remove(&found.stat);
                if !error.is_gone() {
                    self.unreadable(root, path, Some(&found.stat), &error);
                }
                return None;
            }
            Err(ReadError::Store(error)) => {
                self.fail(error.into());
                return None;
            }
        };
        let ReadFile { stat, hash, midstates, size, xattrs, new_bytes, is_stable, .. } = read;
        let is_growing = read.is_growing;
        self.tally.file_read(counted, size);
        if let Some(bytes) = new_bytes {
            self.object_written(bytes);
        }
        let cached = if is_stable {
            self.tells_of_writes(dir, stat.dev).then(|| CachedFile {
                key: StatKey::of(&stat),
                hash,
                midstates: midstates.clone(),
                xattrs: xattrs.clone(),
            })
        } else {
            if !is_growing {
                let path = to_path(&self.absolute(root, path)).to_owned();
                self.unstable.lock().push(path);
            }
            None
        };
        let entry = TreeEntry {
            name: found.name.clone(),
            attributes: attributes(&stat, xattrs),
            node: Node::File { size, hash, midstates },
        };
        self.note_link(root, path, &stat, &entry);
        Some((entry, cached))
    }

    /// Whether the times of a file change when a program writes through a mapping of it. A file
    /// system in memory has nothing to write back, so its pages are never watched, and its files
    /// are read each time. `dir` is the directory of the file, `dev` its device.
    fn tells_of_writes(&self, dir: &Dir, dev: u64) -> bool {
        if let Some(known) = self.telling.lock().get(&dev) {
            return *known;
        }
        let tells = dir.file_system_type().is_ok_and(|magic| !is_in_memory(magic));
        // An overlay has files of other devices.
        if dir.stat_self().is_ok_and(|of_dir| of_dir.dev == dev) {
            self.telling.lock().insert(dev, tells);
        }
        tells
    }

    /// Reads a file into the store, again where it changes meanwhile.
    pub(super) fn try_read_file(
        &self,
        dir: &Dir,
        found: &FoundEntry,
    ) -> Result<ReadFile, ReadError> {
        thread_local! {
            static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        BUFFER.with_borrow_mut(|buffer| {
            let mut transfer = Transfer::new(buffer, self.request.progress);
            let read = self.read_until_stable(dir, found, &mut transfer)?;
            transfer.finish(read.size);
            Ok(read)
        })
    }

    fn read_until_stable(
        &self,
        dir: &Dir,
        found: &FoundEntry,
        transfer: &mut Transfer<'_>,
    ) -> Result<ReadFile, ReadError> {
        let owns = self.is_root_user || found.stat.uid == sys::effective_uid();
        let file = match dir.open_file(&found.name, owns) {
            Err(error) if error.is_symlink_in_path() => return Err(ReadError::Changed),
            other => other?,
        };
        let mut before = dir.stat_file(&file, &found.name)?;
        if before.kind != FileKind::File {
            return Err(ReadError::Changed);
        }
        let mut attempt = 1;
        loop {
            let (size, is_sparse) = (before.size, before.is_sparse());
            let imported = self.request.store.import(&file, size, is_sparse, transfer);
            let imported = imported.map_err(|error| match error {
                ImportError::Source(source) => {
                    let path = dir.path_of(&found.name);
                    ReadError::File(sys::Error { operation: "read", path, source })
                }
                ImportError::Store(error) => ReadError::Store(error),
            })?;
            let xattrs = Xattrs::new(dir.xattrs_file(&file, &found.name)?);
            let after = dir.stat_file(&file, &found.name)?;
            let is_stable = after.same_state(&before) && imported.size == before.size;
            if is_stable || attempt == READ_ATTEMPTS {
                let Imported { hash, size, is_new, new_bytes, midstates } = imported;
                let new_bytes = is_new.then_some(new_bytes);
                let midstates = self.store_midstates(midstates).map_err(ReadError::Store)?;
                let stat = after;
                let is_growing = false;
                return Ok(ReadFile {
                    stat,
                    hash,
                    midstates,
                    size,
                    xattrs,
                    new_bytes,
                    is_stable,
                    is_growing,
                });
            }
            attempt += 1;
            before = after;
        }
    }

    fn store_midstates(&self, midstates: Option<Midstates>) -> Result<MidstatesLink, StoreError> {
        let Some(midstates) = midstates else { return Ok(MidstatesLink::NONE) };
        let bytes = midstates.encode();
        let stored = self.request.store.write(&bytes)?;
        if stored.is_new {
            self.object_written(bytes.len() as u64);
        }
        Ok(MidstatesLink::to(stored.hash))
    }

    /// A symlink, a named pipe, a socket or a device.
    pub(super) fn other_entry(
        &self,
        dir: &Dir,
        found: &FoundEntry,
        root: usize,
        path: &[u8],
    ) -> Option<TreeEntry> {
        let stat = &found.stat;
        let read = || -> sys::Result<(Node, Xattrs)> {
            let node = match stat.kind {
                FileKind::Symlink => {
                    Node::Symlink { target: dir.read_link(&found.name)?.into_boxed_slice() }
                }
                FileKind::Fifo => Node::Fifo,
                FileKind::Socket => Node::Socket,
                FileKind::BlockDevice => Node::BlockDevice(stat.device),
                _ => Node::CharDevice(stat.device),
            };
            Ok((node, Xattrs::new(dir.xattrs(&found.name)?)))
        };
        match read() {
            Ok((node, xattrs)) => {
                if matches!(node, Node::Socket | Node::CharDevice(_) | Node::BlockDevice(_)) {
                    self.leave_out(root, path, NotCapturedReason::Special);
                }
                self.request.progress.advance(1, 0);
                let attributes = attributes(stat, xattrs);
                let entry = TreeEntry { name: found.name.clone(), attributes, node };
                self.note_link(root, path, stat, &entry);
                Some(entry)
            }
            Err(error) => {
                self.tally.remove(stat);
                if !error.is_gone() {
                    self.unreadable(root, path, Some(stat), &error);
                }
                None
            }
        }
    }

    /// Notes a name of a file that has several. A file that changes between two of its names is
    /// recorded in two states, and one file cannot have both.
    fn note_link(&self, root: usize, path: &[u8], stat: &Stat, entry: &TreeEntry) {
        if stat.nlink < 2 {
            return;
        }
        let mut state = DefaultHasher::new();
        entry.attributes.hash(&mut state);
        if let Node::File { size, hash, .. } = &entry.node {
            (size, hash).hash(&mut state);
        }
        let path = self.absolute(root, path).into_boxed_slice();
        let key = ((stat.dev, stat.ino), state.finish());
        self.links.lock().entry(key).or_default().push(path);
    }
}

/// A file that was read.
pub(super) struct ReadFile {
    stat: Stat,
    hash: ContentHash,
    midstates: MidstatesLink,
    size: u64,
    xattrs: Xattrs,
    /// Bytes of contents that were not stored before.
    new_bytes: Option<u64>,
    is_stable: bool,
    /// Whether its beginning is a state of its own: what came while it was read was added behind it.
    pub(super) is_growing: bool,
}

/// Why a file was not read.
pub(super) enum ReadError {
    /// It is no longer a regular file.
    Changed,
    File(sys::Error),
    Store(StoreError),
}

impl From<sys::Error> for ReadError {
    fn from(error: sys::Error) -> Self {
        Self::File(error)
    }
}

/// File systems without a disk, of which a shared mapping can be written without a trace. Numbers
/// are from `statfs(2)`.
fn is_in_memory(magic: u64) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    const HUGETLBFS: u64 = 0x9584_58f6;
    [TMPFS, RAMFS, HUGETLBFS].contains(&magic)
}
