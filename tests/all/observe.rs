//! Looks at a tree with plain system calls, independently of the code under test.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Everything a snapshot promises to bring back of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    pub kind: String,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: (i64, i64),
    pub content: Vec<u8>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The first path (in order) that is the same inode.
    pub linked_to: Option<PathBuf>,
}

/// All paths below and including `root`, relative to it.
pub fn observe(root: &Path) -> BTreeMap<PathBuf, Observed> {
    let mut found = BTreeMap::new();
    let mut inodes: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    let mut paths = Vec::new();
    collect(root, &mut paths);
    paths.sort();
    for path in paths {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let kind = metadata.file_type();
        let relative = path.strip_prefix(root).unwrap().to_owned();
        let content = if kind.is_file() {
            std::fs::read(&path).unwrap()
        } else if kind.is_symlink() {
            std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
        } else {
            Vec::new()
        };
        let linked_to = if kind.is_dir() || metadata.nlink() < 2 {
            None
        } else {
            let first = inodes.entry((metadata.dev(), metadata.ino())).or_insert(relative.clone());
            Some(first.clone())
        };
        let kind = match () {
            () if kind.is_file() => "file",
            () if kind.is_dir() => "dir",
            () if kind.is_symlink() => "symlink",
            () if kind.is_fifo() => "fifo",
            () if kind.is_socket() => "socket",
            () => "device",
        };
        found.insert(
            relative,
            Observed {
                kind: kind.to_owned(),
                mode: metadata.mode() & 0o7777,
                uid: metadata.uid(),
                gid: metadata.gid(),
                mtime: (metadata.mtime(), metadata.mtime_nsec()),
                content,
                xattrs: xattrs(&path),
                linked_to,
            },
        );
    }
    found
}

fn collect(path: &Path, out: &mut Vec<PathBuf>) {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return };
    out.push(path.to_owned());
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), out);
        }
    }
}

fn xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0u8; 65536];
    let Ok(len) = rustix::fs::llistxattr(path, &mut names[..]) else { return Vec::new() };
    let mut pairs = Vec::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 65536];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        pairs.push((name.to_vec(), value[..len].to_vec()));
    }
    pairs.sort();
    pairs
}

/// Compares two observations with a message that names the paths.
#[track_caller]
pub fn assert_same(before: &BTreeMap<PathBuf, Observed>, after: &BTreeMap<PathBuf, Observed>) {
    let mut problems: Vec<(&PathBuf, Option<&Observed>, Option<&Observed>)> = Vec::new();
    for path in before.keys().chain(after.keys()) {
        let (old, new) = (before.get(path), after.get(path));
        if old != new && !problems.iter().any(|(known, ..)| *known == path) {
            problems.push((path, old, new));
        }
    }
    assert!(problems.is_empty(), "{} paths differ: {problems:#?}", problems.len());
}
