//! Where HEAD and the refs of a git directory are.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

use super::refs::{self, Head, Oid};
use crate::byte_path;
use crate::diff::Lookup;
use crate::object::ContentHash;
use crate::object::{Node, RootEntry, RootTree};
use crate::path_text::to_path;
use crate::store::{ObjectSource, StoreError, read_root_tree, read_tree};
use crate::sys::Dir;
use crate::sys::FileKind;

/// A ref is a line.
const MAX_REF_BYTES: u64 = 8 << 10;
/// About a million refs.
pub(crate) const MAX_PACKED_BYTES: u64 = 128 << 20;
/// About a hundred thousand moves of one ref.
const MAX_LOG_BYTES: u64 = 16 << 20;
/// Maximum number of loose refs and directories of them that are looked at.
const MAX_LOOSE_REFS: usize = 200_000;

/// HEAD and the refs of a git directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GitState {
    /// `None` if it cannot be understood.
    pub head: Option<Head>,
    /// Commits (or tags) by the full name of the ref.
    pub refs: BTreeMap<String, Oid>,
    /// Symbolic refs but HEAD, each with the full name of the ref that it leads to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub symbolic: BTreeMap<String, String>,
}

impl GitState {
    /// The commit that is checked out; none before the first one.
    pub fn commit(&self) -> Option<&Oid> {
        match self.head.as_ref()? {
            Head::Ref(name) => self.refs.get(name),
            Head::Detached(oid) => Some(oid),
        }
    }

    /// The state of a git directory in a snapshot, if it is there.
    ///
    /// # Errors
    /// When a tree or a file that has to be read is missing or damaged.
    pub fn in_snapshot(
        source: &dyn ObjectSource,
        root: &ContentHash,
        git_dir: &Path,
    ) -> Result<Option<Self>, StoreError> {
        let root = read_root_tree(source, root)?;
        InSnapshot::new(source, &root).state(git_dir.as_os_str().as_bytes())
    }
}

/// The contents of a file. The store keeps no contents of a planned state; the file itself still
/// has them, which its hash proves.
pub(crate) fn read_contents(
    source: &dyn ObjectSource,
    path: &[u8],
    hash: &ContentHash,
    max_bytes: u64,
) -> Result<Vec<u8>, StoreError> {
    let missing = match source.read(hash, max_bytes) {
        Err(error @ StoreError::Missing { .. }) => error,
        other => return other,
    };
    let (above, name) = byte_path::split(path);
    let found = Dir::open_no_symlinks(to_path(above)).and_then(|dir| dir.read(name, max_bytes));
    found.ok().filter(|bytes| ContentHash::of(bytes) == *hash).ok_or(missing)
}

/// Names, with whether each is a directory.
type Listed = Vec<(Box<[u8]>, bool)>;

/// The files of a git directory, wherever it is.
pub(crate) trait GitFiles {
    type Error;
    /// The bytes of a file, if it is there and not longer.
    fn file(&mut self, relative: &[u8], max_bytes: u64) -> Result<Option<Vec<u8>>, Self::Error>;
    /// The entries of a directory.
    fn list(&mut self, relative: &[u8]) -> Result<Listed, Self::Error>;
}

/// Reads HEAD and the refs. Loose ones come before packed ones, as for git.
pub(crate) fn read_state<F: GitFiles>(files: &mut F) -> Result<GitState, F::Error> {
    let head = files.file(b"HEAD", MAX_REF_BYTES)?.and_then(|bytes| refs::head(&bytes));
    let packed = files.file(b"packed-refs", MAX_PACKED_BYTES)?.unwrap_or_default();
    let refs = refs::packed(&packed).collect();
    let mut state = GitState { head, refs, symbolic: BTreeMap::new() };
    let mut pending = vec![b"refs".to_vec()];
    let mut count = 0;
    while let Some(dir) = pending.pop() {
        for (name, is_dir) in files.list(&dir)? {
            count += 1;
            if count > MAX_LOOSE_REFS {
                return Ok(state);
            }
            let path = byte_path::join(&dir, &name);
            if is_dir {
                pending.push(path);
                continue;
            }
            let Ok(name) = String::from_utf8(path) else { continue };
            if !refs::is_ref_name(name.as_bytes()) {
                continue;
            }
            let bytes = files.file(name.as_bytes(), MAX_REF_BYTES)?;
            // A loose ref counts, whatever `packed-refs` says.
            match bytes.and_then(|bytes| refs::head(&bytes)) {
                Some(Head::Detached(oid)) => {
                    state.refs.insert(name, oid);
                }
                Some(Head::Ref(to)) => {
                    state.refs.remove(&name);
                    state.symbolic.insert(name, to);
                }
                None => {}
            }
        }
    }
    Ok(state)
}

/// Git directories in a snapshot.
pub(super) struct InSnapshot<'a> {
    source: &'a dyn ObjectSource,
    root: &'a RootTree,
    lookup: Lookup<'a>,
    git_dir: Vec<u8>,
}

impl<'a> InSnapshot<'a> {
    pub(super) fn new(source: &'a dyn ObjectSource, root: &'a RootTree) -> Self {
        Self { source, root, lookup: Lookup::new(source, root), git_dir: Vec::new() }
    }

    /// The state of one git directory, if it is there.
    pub(super) fn state(&mut self, git_dir: &[u8]) -> Result<Option<GitState>, StoreError> {
        if self.lookup.find(git_dir)?.is_none() {
            return self.tracked_refs(git_dir);
        }
        git_dir.clone_into(&mut self.git_dir);
        read_state(self).map(Some)
    }
}

impl InSnapshot<'_> {
    /// Whether the last move of a remote-tracking branch was a push, as its log says.
    pub(super) fn was_pushed(&mut self, git_dir: &[u8], name: &str) -> Result<bool, StoreError> {
        git_dir.clone_into(&mut self.git_dir);
        let log = self.file(&[b"logs/", name.as_bytes()].concat(), MAX_LOG_BYTES)?;
        let log = log.unwrap_or_default();
        let mut lines = log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        // The message stands behind a tab; git writes this one for a push alone.
        Ok(lines.next_back().is_some_and(|line| line.ends_with(b"\tupdate by push")))
    }

    /// The tracked refs of a repository that is not tracked itself: a branch of a linked worktree.
    fn tracked_refs(&mut self, git_dir: &[u8]) -> Result<Option<GitState>, StoreError> {
        let mut state = GitState::default();
        for entry in &self.root.entries {
            let Some((dir, name)) = tracked_ref(entry) else { continue };
            let Node::File { size, hash, .. } = &entry.node else { continue };
            if dir != git_dir || *size > MAX_REF_BYTES {
                continue;
            }
            let bytes = read_contents(self.source, &entry.path, hash, MAX_REF_BYTES)?;
            if let Some(oid) = refs::loose(&bytes) {
                state.refs.insert(name.to_owned(), oid);
            }
        }
        Ok((!state.refs.is_empty()).then_some(state))
    }
}

/// For a tracked path that is the file of a branch: the git directory and the name of the ref.
pub(crate) fn tracked_ref(entry: &RootEntry) -> Option<(&[u8], &str)> {
    const BRANCHES: &[u8] = b"/refs/heads/";
    if !matches!(entry.node, Node::File { .. }) {
        return None;
    }
    let at = entry.path.windows(BRANCHES.len()).rposition(|part| part == BRANCHES)?;
    let (dir, name) = (&entry.path[..at], &entry.path[at + 1..]);
    let name = std::str::from_utf8(name).ok().filter(|name| refs::is_ref_name(name.as_bytes()))?;
    (!dir.is_empty()).then_some((dir, name))
}

impl GitFiles for InSnapshot<'_> {
    type Error = StoreError;

    fn file(&mut self, relative: &[u8], max_bytes: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let path = byte_path::join(&self.git_dir, relative);
        match self.lookup.find(&path)?.map(|state| state.node) {
            Some(Node::File { size: 0, .. }) => Ok(Some(Vec::new())),
            Some(Node::File { size, hash, .. }) if size <= max_bytes => {
                read_contents(self.source, &path, &hash, max_bytes).map(Some)
            }
            // HEAD was a symlink once.
            Some(Node::Symlink { target }) if relative == b"HEAD" => {
                Ok(Some([b"ref: ", &*target].concat()))
            }
            _ => Ok(None),
        }
    }

    fn list(&mut self, relative: &[u8]) -> Result<Listed, StoreError> {
        let path = byte_path::join(&self.git_dir, relative);
        let Some(Node::Directory { tree }) = self.lookup.find(&path)?.map(|state| state.node)
        else {
            return Ok(Vec::new());
        };
        let entries = read_tree(self.source, &tree)?.into_entries();
        let told = entries.into_iter().map(|entry| {
            let is_dir = matches!(entry.node, Node::Directory { .. });
            (entry.name, is_dir)
        });
        Ok(told.collect())
    }
}

/// A git directory on the disk. Unreadable files count as missing.
pub(crate) struct OnDisk<'a>(pub(crate) &'a Dir);

impl GitFiles for OnDisk<'_> {
    type Error = std::convert::Infallible;

    fn file(&mut self, relative: &[u8], max_bytes: u64) -> Result<Option<Vec<u8>>, Self::Error> {
        let (above, name) = byte_path::split(relative);
        let dir = if above.is_empty() { None } else { self.0.open_beneath(above).ok() };
        let dir = dir.as_ref().unwrap_or(self.0);
        Ok(dir.read(name, max_bytes).ok())
    }

    fn list(&mut self, relative: &[u8]) -> Result<Listed, Self::Error> {
        let Ok(dir) = self.0.open_beneath(relative) else { return Ok(Vec::new()) };
        let names = dir.names().unwrap_or_default();
        let told = names.into_iter().map(|listed| {
            let kind = listed.kind.or_else(|| Some(dir.stat(&listed.name).ok()?.kind));
            (listed.name, kind == Some(FileKind::Directory))
        });
        Ok(told.collect())
    }
}
