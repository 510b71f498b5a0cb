//! The contents of a foreign snapshot: objects checked and stored, and trees built from its list of
//! files.
//!
//! Directories are built from the deepest up, so depth costs no stack. The list names files and, of
//! some versions, symlinks without their targets: a directory exists because a file lies in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use super::documents::{ForeignFile, ForeignSession, ForeignSnapshot, OBJECTS};
use super::{ImportProblem, ImportSessionError};
use crate::byte_path;
use crate::manifest::{NotCaptured, NotCapturedReason, Totals};
use crate::object::{
    Attributes, ContentHash, FileTime, MODE_MASK, MidstatesLink, Node, RootEntry, RootTree, Tree,
    TreeEntry, Xattrs, is_name,
};
use crate::path_text::to_path;
use crate::progress::Progress;
use crate::store::{ImportError, ObjectStore, StoreError, Transfer};
use crate::sys::{self, Dir, FileKind, Stat};

/// The bits of `st_mode` that say the kind, and those of a regular file.
const KIND_BITS: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
/// Permissions of a directory that no longer exists: the record does not name them.
const DIRECTORY_MODE: u16 = 0o755;

/// A snapshot whose objects are all in the store.
pub(super) struct Built {
    pub merkle_root: ContentHash,
    pub totals: Totals,
    /// Files that could not be taken over, sorted by path.
    pub left_out: Vec<NotCaptured>,
}

/// Copies the objects of a session, each once.
pub(super) struct Contents<'a> {
    source: &'a Dir,
    store: &'a dyn ObjectStore,
    progress: &'a dyn Progress,
    buffer: Vec<u8>,
    /// Every object that was looked at: its node, or why it is none.
    known: HashMap<ContentHash, Result<Node, String>>,
    pub(super) bytes_checked: u64,
    pub(super) problems: Vec<ImportProblem>,
}

impl<'a> Contents<'a> {
    pub(super) fn new(
        source: &'a Dir,
        store: &'a dyn ObjectStore,
        progress: &'a dyn Progress,
    ) -> Self {
        let (buffer, known, problems) = (Vec::new(), HashMap::new(), Vec::new());
        Self { source, store, progress, buffer, known, bytes_checked: 0, problems }
    }

    /// Objects whose bytes are what their names say.
    pub(super) fn objects_checked(&self) -> u64 {
        self.known.values().filter(|found| found.is_ok()).count() as u64
    }

    /// Stores everything that a snapshot names, and its trees.
    pub(super) fn build(
        &mut self,
        session: &ForeignSession,
        number: u64,
        snapshot: &ForeignSnapshot,
    ) -> Result<Built, ImportSessionError> {
        let mut totals = Totals::default();
        let mut left_out = Vec::new();
        // Each directory with what is in it, and the tracked paths that are files.
        let mut directories: BTreeMap<Vec<u8>, Vec<TreeEntry>> = BTreeMap::new();
        let mut roots: Vec<RootEntry> = Vec::new();
        let mut on_disk = OnDisk::default();
        let above: BTreeSet<&[u8]> =
            snapshot.files.keys().flat_map(|path| byte_path::ancestors(path)).collect();
        for (path, file) in &snapshot.files {
            let root = session.tracked_paths.iter().find(|root| byte_path::is_in(path, root));
            let found = match root {
                None => Err("it is in no tracked path".to_owned()),
                Some(_) if above.contains(path.as_slice()) => {
                    Err("the record has it as a file and as a directory".to_owned())
                }
                Some(_) if snapshot.symlinks.is_none() && on_disk.is_symlink(path) => {
                    Err("it is a symlink now, and may have been one: that version of the other \
                         program records the file behind a symlink"
                        .to_owned())
                }
                Some(_) => self.node(file, &mut totals)?,
            };
            let node = match found {
                Ok(node) => node,
                Err(reason) => {
                    let path = to_path(path).to_owned();
                    if root.is_some() {
                        let reason = NotCapturedReason::Unreadable {
                            error: reason.clone(),
                            is_denied: false,
                        };
                        left_out.push(NotCaptured { path: path.clone(), reason, state: None });
                    }
                    self.problems.push(ImportProblem { snapshot: number, path, reason });
                    continue;
                }
            };
            totals.file_count += 1;
            totals.total_bytes += file.size;
            let attributes = on_disk.file_attributes(path, file);
            if root.is_some_and(|root| root == path) {
                roots.push(RootEntry { path: path.as_slice().into(), attributes, node });
            } else {
                let (dir, name) = byte_path::split(path);
                let entry = TreeEntry { name: name.into(), attributes, node };
                directories.entry(dir.to_vec()).or_default().push(entry);
            }
        }
        let is_file_root = |root: &Vec<u8>| roots.iter().any(|file| *file.path == **root);
        for root in session.tracked_paths.iter().filter(|root| !is_file_root(root)) {
            // Recorded as a directory, also when the list has no file in it.
            directories.entry(root.clone()).or_default();
            let below: Vec<Vec<u8>> = directories
                .keys()
                .filter(|dir| byte_path::is_in(dir, root))
                .flat_map(|dir| byte_path::ancestors(dir).chain([dir.as_slice()]))
                .filter(|dir| byte_path::is_in(dir, root))
                .map(<[u8]>::to_vec)
                .collect();
            for dir in below {
                directories.entry(dir).or_default();
            }
        }
        let mut deepest_first: Vec<Vec<u8>> = directories.keys().cloned().collect();
        deepest_first.sort_by_key(|dir| std::cmp::Reverse(byte_path::depth(dir)));
        for dir in deepest_first {
            let entries = directories.remove(&dir).unwrap_or_default();
            let newest = entries.iter().map(|entry| entry.attributes.mtime).max();
            let attributes = on_disk.directory_attributes(&dir, newest);
            totals.entry_count += entries.len() as u64;
            let tree = self.write(&Tree::new(entries).encode(), &mut totals)?;
            let node = Node::Directory { tree };
            if session.tracked_paths.contains(&dir) {
                roots.push(RootEntry { path: dir.into(), attributes, node });
            } else {
                let (above, name) = byte_path::split(&dir);
                let entry = TreeEntry { name: name.into(), attributes, node };
                directories.entry(above.to_vec()).or_default().push(entry);
            }
        }
        roots.sort_by(|a, b| a.path.cmp(&b.path));
        totals.entry_count += roots.len() as u64;
        let root = RootTree { entries: roots, links: None };
        let merkle_root = self.write(&root.encode(), &mut totals)?;
        Ok(Built { merkle_root, totals, left_out })
    }

    fn write(&self, bytes: &[u8], totals: &mut Totals) -> Result<ContentHash, StoreError> {
        let stored = self.store.write(bytes)?;
        if stored.is_new {
            totals.objects_written += 1;
            totals.bytes_written += bytes.len() as u64;
        }
        Ok(stored.hash)
    }

    /// The node of a file, with its contents in the store; or why its contents cannot be had.
    fn node(
        &mut self,
        file: &ForeignFile,
        totals: &mut Totals,
    ) -> Result<Result<Node, String>, StoreError> {
        if self.progress.is_cancelled() {
            return Err(StoreError::Cancelled);
        }
        if !matches!(file.permissions & KIND_BITS, REGULAR | 0) {
            return Ok(Err(format!("the record calls it no file ({:o})", file.permissions)));
        }
        let found = match self.known.get(&file.hash) {
            Some(found) => found.clone(),
            None => {
                let found = self.take_over(&file.hash, totals)?;
                self.known.insert(file.hash, found.clone());
                found
            }
        };
        Ok(found.and_then(|node| match node {
            Node::File { size, .. } if size != file.size => {
                Err(format!("the record says {} bytes, its object has {size}", file.size))
            }
            node => Ok(node),
        }))
    }

    /// Copies one object, and checks that its bytes have its name.
    fn take_over(
        &mut self,
        hash: &ContentHash,
        totals: &mut Totals,
    ) -> Result<Result<Node, String>, StoreError> {
        let hex = hash.hex();
        let (prefix, rest) = hex.split_at(2);
        let opened = (|| {
            // One name at a time: a symlink in place of any of them is refused.
            let dir = self.source.open_dir(OBJECTS)?.open_dir(prefix.as_bytes())?;
            let file = dir.open_file(rest.as_bytes(), false)?;
            let stat = dir.stat_file(&file, rest.as_bytes())?;
            Ok::<_, sys::Error>((file, stat))
        })();
        let (file, stat) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(format!("its object cannot be read: {error}"))),
        };
        if stat.kind != FileKind::File {
            return Ok(Err(format!("its object {hex} is no regular file")));
        }
        let mut transfer = Transfer::new(&mut self.buffer, self.progress);
        let imported = match self.store.import(&file, stat.size, stat.is_sparse(), &mut transfer) {
            Ok(imported) => imported,
            Err(ImportError::Source(error)) => {
                return Ok(Err(format!("its object {hex} cannot be read: {error}")));
            }
            Err(ImportError::Store(error)) => return Err(error),
        };
        if imported.hash != *hash {
            // A stranger among the objects, which the next cleanup removes.
            return Ok(Err(format!("its object {hex} is damaged: its bytes have another hash")));
        }
        totals.files_read += 1;
        self.bytes_checked += imported.size;
        if imported.is_new {
            totals.objects_written += 1;
        }
        totals.bytes_written += imported.new_bytes;
        let midstates = match imported.midstates {
            Some(midstates) => MidstatesLink::to(self.write(&midstates.encode(), totals)?),
            None => MidstatesLink::NONE,
        };
        self.progress.advance(1, imported.size);
        Ok(Ok(Node::File { size: imported.size, hash: *hash, midstates }))
    }
}

/// The present state of the recorded paths, for the attributes that the record lacks.
#[derive(Default)]
struct OnDisk {
    /// The directory that was opened last.
    dir: Option<(Vec<u8>, Option<Dir>)>,
}

impl OnDisk {
    fn open(&mut self, dir: &[u8]) -> Option<&Dir> {
        if self.dir.as_ref().is_none_or(|(path, _)| path != dir) {
            self.dir = Some((dir.to_vec(), Dir::open_no_symlinks(to_path(dir)).ok()));
        }
        self.dir.as_ref().and_then(|(_, dir)| dir.as_ref())
    }

    fn stat(&mut self, path: &[u8]) -> Option<Stat> {
        let (dir, name) = byte_path::split(path);
        debug_assert!(is_name(name));
        self.open(dir)?.try_stat(name).ok().flatten()
    }

    fn is_symlink(&mut self, path: &[u8]) -> bool {
        self.stat(path).is_some_and(|stat| stat.kind == FileKind::Symlink)
    }

    fn file_attributes(&mut self, path: &[u8], file: &ForeignFile) -> Attributes {
        let mode = (file.permissions & u32::from(MODE_MASK)) as u16;
        let mut mtime = FileTime { seconds: file.mtime, nanoseconds: 0 };
        let Some(stat) = self.stat(path).filter(|stat| stat.kind == FileKind::File) else {
            let (dir, _) = byte_path::split(path);
            let (uid, gid) = owner_above(dir);
            return Attributes { mode, uid, gid, mtime, xattrs: Xattrs::default() };
        };
        // As far as the record goes, this is the same file.
        if stat.mtime.seconds == file.mtime && stat.size == file.size {
            mtime = stat.mtime;
        }
        let (dir, name) = byte_path::split(path);
        let xattrs = self.open(dir).and_then(|dir| dir.xattrs(name).ok()).unwrap_or_default();
        Attributes { mode, uid: stat.uid, gid: stat.gid, mtime, xattrs: Xattrs::new(xattrs) }
    }

    /// `newest`: the newest time in the directory, for one that is gone.
    fn directory_attributes(&self, path: &[u8], newest: Option<FileTime>) -> Attributes {
        let dir = Dir::open_no_symlinks(to_path(path)).ok();
        let stat = dir.as_ref().and_then(|dir| dir.stat_self().ok());
        match (dir, stat) {
            (Some(dir), Some(Stat { mode, uid, gid, mtime, .. })) => {
                let xattrs = Xattrs::new(dir.xattrs_self().unwrap_or_default());
                Attributes { mode, uid, gid, mtime, xattrs }
            }
            _ => {
                let (uid, gid) = owner_above(path);
                let mtime = newest.unwrap_or_default();
                Attributes { mode: DIRECTORY_MODE, uid, gid, mtime, xattrs: Xattrs::default() }
            }
        }
    }
}

/// The owner of the nearest directory above a path that is gone, if a restore may set it.
fn owner_above(path: &[u8]) -> (u32, u32) {
    let own = (sys::effective_uid(), sys::effective_gid());
    let above = |path: &Path| Dir::open_no_symlinks(path).and_then(|dir| dir.stat_self()).ok();
    let mut stats = byte_path::ancestors(path).rev().filter_map(|dir| above(to_path(dir)));
    match stats.next() {
        Some(stat) if own.0 == 0 || own.0 == stat.uid => (stat.uid, stat.gid),
        _ => own,
    }
}
