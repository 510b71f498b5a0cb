//! The work in a git directory beside HEAD and the refs: staged files, operations under way,
//! settings and hooks, and objects that are gone.
//!
//! git writes most of its directory by itself, and a number of changed paths says nothing to a
//! person. So each changed path is either work of one of these kinds, or git's own.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::{OPERATIONS, REFTABLE, is_added_object, is_bookkeeping};
use super::refs::Oid;
use super::state::{GitState, read_contents};
use crate::byte_path;
use crate::diff::Lookup;
use crate::object::{ContentHash, Node};
use crate::path_text::{serde_path, to_path};
use crate::store::{ObjectSource, StoreError, read_root_tree};
use crate::walk::{StagedEntries, staged_entries};

const INDEX: &[u8] = b"index";
/// The index of a hundred thousand files. The entries of a longer one are not compared.
const MAX_COMPARED_BYTES: u64 = 16 << 20;
/// Maximum number of staged files that are named.
const MAX_STAGED: usize = 10_000;

/// The work in a git directory beside the moves of HEAD and the refs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitWork {
    /// The commit of both states, where HEAD has the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Oid>,
    /// Files whose staged state is another one, by path, where HEAD has the same commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub staged: Vec<StagedFile>,
    /// Whether the index changed in a way that names no files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_index_unclear: bool,
    /// Operations that are under way in the newer state alone: `merge`, `rebase`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<String>,
    /// Operations that were under way in the older state alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<String>,
    /// Files of objects and packs that are gone, and no pack came in their place.
    #[serde(default, skip_serializing_if = "crate::git::is_zero")]
    pub gone_objects: u64,
    /// Names in the git directory of changed files that git does not write by itself: `config`,
    /// `hooks`, `info`, `reftable`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// A file whose staged state changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFile {
    /// Its path in the work tree.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// The object that the newer index has there; `None`: it has no such file.
    pub object: Option<Oid>,
}

impl GitWork {
    /// Whether there is none: all that changed is git's own.
    pub fn is_empty(&self) -> bool {
        let Self { commit: _, staged, is_index_unclear, begun, ended, gone_objects, names } = self;
        staged.is_empty()
            && !is_index_unclear
            && begun.is_empty()
            && ended.is_empty()
            && *gone_objects == 0
            && names.is_empty()
    }
}

/// The changed paths of one git directory, as far as they can be work.
#[derive(Debug, Default)]
pub(super) struct ChangedPaths {
    pub(super) count: u64,
    /// The names in the git directory that the paths are or lie in.
    pub(super) names: BTreeSet<Box<[u8]>>,
    /// The names of those that git does not write by itself.
    others: BTreeSet<Box<[u8]>>,
    /// Objects and packs, relative to the git directory.
    objects: Vec<Box<[u8]>>,
}

impl ChangedPaths {
    /// Adds a path, relative to the git directory.
    pub(super) fn add(&mut self, inside: &[u8]) {
        self.count += 1;
        let Some(name) = byte_path::components(inside).next() else { return };
        self.names.insert(name.into());
        if !is_bookkeeping(inside) {
            self.others.insert(name.into());
        }
        if inside.starts_with(b"objects/") && is_added_object(inside) {
            self.objects.push(inside.into());
        }
    }

    /// The work that the paths stand for. The states of HEAD and the refs are those of both
    /// snapshots.
    ///
    /// # Errors
    /// When a tree that has to be read is missing or damaged.
    pub(super) fn work(
        &self,
        source: &dyn ObjectSource,
        git_dir: &[u8],
        [before, after]: [&mut Lookup<'_>; 2],
        [old, new]: [&GitState; 2],
    ) -> Result<GitWork, StoreError> {
        let mut work = GitWork::default();
        for (name, operation) in OPERATIONS {
            let path = byte_path::join(git_dir, name);
            if self.names.contains(name) {
                let states = (before.find(&path)?.is_some(), after.find(&path)?.is_some());
                match states {
                    (false, true) => work.begun.push(operation.to_owned()),
                    (true, false) => work.ended.push(operation.to_owned()),
                    _ => {}
                }
            }
        }
        if old.commit() == new.commit() && self.names.contains(INDEX) {
            work.commit = new.commit().cloned();
            let path = byte_path::join(git_dir, INDEX);
            let indexes = (entries(source, &path, before)?, entries(source, &path, after)?);
            match indexes {
                (Some(old), Some(new)) => work.staged = changed_entries(&old, &new),
                _ => work.is_index_unclear = true,
            }
        }
        work.gone_objects = self.gone_objects(git_dir, before, after)?;
        let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        work.names = self.others.iter().map(|name| shown(name)).collect();
        if self.names.contains(REFTABLE) {
            work.names.push(String::from_utf8_lossy(REFTABLE).into_owned());
        }
        Ok(work)
    }

    /// `git gc` and `git repack` put a pack in the place of what they remove.
    fn gone_objects(
        &self,
        git_dir: &[u8],
        before: &mut Lookup<'_>,
        after: &mut Lookup<'_>,
    ) -> Result<u64, StoreError> {
        let mut gone = 0;
        for inside in &self.objects {
            let path = byte_path::join(git_dir, inside);
            let is_file = |node: Option<Node>| matches!(node, Some(Node::File { .. }));
            let then = is_file(before.find(&path)?.map(|state| state.node));
            let now = is_file(after.find(&path)?.map(|state| state.node));
            if now && !then && inside.ends_with(b".pack") {
                return Ok(0);
            }
            gone += u64::from(then && !now && !inside.starts_with(b"objects/info/"));
        }
        Ok(gone)
    }
}

/// The files of which the newer of two snapshots has another staged state, by path. `None`: that
/// cannot be told.
///
/// # Errors
/// When a tree that has to be read is missing or damaged.
pub fn staged_between(
    source: &dyn ObjectSource,
    [old, new]: [&ContentHash; 2],
    git_dir: &Path,
) -> Result<Option<Vec<StagedFile>>, StoreError> {
    let path = byte_path::join(git_dir.as_os_str().as_bytes(), INDEX);
    let read = |root: &ContentHash| {
        let root = read_root_tree(source, root)?;
        entries(source, &path, &mut Lookup::new(source, &root))
    };
    Ok(read(old)?.zip(read(new)?).map(|(old, new)| changed_entries(&old, &new)))
}

/// The staged entries of an index, none where there is no index. `None`: they cannot be told.
fn entries(
    source: &dyn ObjectSource,
    path: &[u8],
    state: &mut Lookup<'_>,
) -> Result<Option<StagedEntries>, StoreError> {
    match state.find(path)?.map(|state| state.node) {
        None => Ok(Some(StagedEntries::new())),
        Some(Node::File { size, hash, .. }) if size <= MAX_COMPARED_BYTES => {
            let bytes = read_contents(source, path, &hash, MAX_COMPARED_BYTES);
            Ok(bytes.ok().and_then(|bytes| staged_entries(&bytes)))
        }
        Some(_) => Ok(None),
    }
}

/// Paths with other entries, in their order.
fn changed_entries(old: &StagedEntries, new: &StagedEntries) -> Vec<StagedFile> {
    let mut found: BTreeMap<&[u8], Option<&str>> = BTreeMap::new();
    for ((path, stage), entry) in new {
        if old.get(&(path.clone(), *stage)) != Some(entry) {
            found.insert(path, Some(&entry.object));
        }
    }
    for (path, stage) in old.keys() {
        if !new.contains_key(&(path.clone(), *stage)) {
            found.entry(path).or_insert(None);
        }
    }
    let file = |(path, object): (&[u8], Option<&str>)| StagedFile {
        path: to_path(path).to_owned(),
        object: object.and_then(|hex| Oid::from_hex(hex.as_bytes())),
    };
    found.into_iter().take(MAX_STAGED).map(file).collect()
}

/// A ref of a repository that is new or gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefAt {
    /// Its full name.
    pub name: String,
    /// Its commit.
    pub commit: Oid,
}

/// The refs of a repository, without the remote-tracking ones: the branch that is checked out
/// first, then by name.
pub(crate) fn own_refs(state: &GitState) -> Vec<RefAt> {
    let is_own = |(name, _): &(&String, &Oid)| !name.starts_with("refs/remotes/");
    let refs = state.refs.iter().filter(is_own);
    let mut refs: Vec<RefAt> =
        refs.map(|(name, commit)| RefAt { name: name.clone(), commit: commit.clone() }).collect();
    let head = match &state.head {
        Some(super::refs::Head::Ref(name)) => Some(name.as_str()),
        _ => None,
    };
    refs.sort_by_key(|it| Some(it.name.as_str()) != head);
    refs
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::walk::StagedEntry;

    fn entry(digit: char) -> StagedEntry {
        StagedEntry { mode: 0o100_644, object: digit.to_string().repeat(40).into() }
    }

    #[test]
    fn files_with_another_staged_state_are_named_once() {
        let old = StagedEntries::from([
            ((b"a".to_vec(), 0), entry('a')),
            ((b"b".to_vec(), 0), entry('b')),
            ((b"c".to_vec(), 0), entry('c')),
        ]);
        let new = StagedEntries::from([
            ((b"a".to_vec(), 0), entry('a')),
            // A conflict has up to three entries.
            ((b"b".to_vec(), 2), entry('d')),
            ((b"b".to_vec(), 3), entry('e')),
            ((b"n".to_vec(), 0), entry('f')),
        ]);
        let found = changed_entries(&old, &new);
        let found: Vec<_> =
            found.iter().map(|it| (it.path.to_str().unwrap(), it.object.is_some())).collect();
        assert_eq!(found, [("b", true), ("c", false), ("n", true)]);
        assert_eq!(changed_entries(&new, &new), []);
    }

    #[test]
    fn the_own_writes_of_git_are_no_work() {
        let mut paths = ChangedPaths::default();
        let object = format!("objects/ab/{}", "c".repeat(38));
        for path in ["index", "logs/HEAD", "ORIG_HEAD", "COMMIT_EDITMSG", "packed-refs", &object] {
            paths.add(path.as_bytes());
        }
        assert!(paths.others.is_empty(), "{paths:?}");
        assert_eq!((paths.count, paths.objects.len()), (6, 1));
        for path in ["config", "hooks/pre-commit", "hooks", "info/exclude"] {
            paths.add(path.as_bytes());
        }
        let names: Vec<_> = paths.others.iter().map(|name| name.to_vec()).collect();
        assert_eq!(names, [&b"config"[..], b"hooks", b"info"]);
    }
}
