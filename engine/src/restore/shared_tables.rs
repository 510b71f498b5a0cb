//! The reftables that all work trees of a repository share, in the session of a linked one.
//!
//! The session records them whole, because the branch of its work tree has no file of its own. But
//! nothing else in them is of this work tree: another branch, a tag or the stash may be the work of
//! another user of the repository, at the same time. So a restore sets the recorded branch
//! with one more table, and leaves every other ref as it is now. The same holds where the refs are
//! files: there the branch alone is recorded.
//!
//! A branch is moved later if it is at a commit at which no recorded state of the session has it.

use std::collections::{BTreeMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::conflicts::{AllConflicts, Conflict, RepositoryConflict};
use super::merged::MergedFile;
use super::plan::RestorePlan;
use crate::byte_path;
use crate::diff::{ChangeType, EntryState, Lookup};
use crate::git::{
    MAX_TABLE_BYTES, MAX_TABLES, REFTABLE, RefStack, RefValue, TABLES, read_contents,
};
use crate::object::{ContentHash, Node, RootTree};
use crate::path_text::to_path;
use crate::snapshot::{LoadedManifest, SnapshotKind, SnapshotManifest};
use crate::store::{ObjectSource, StoreError, read_root_tree};
use crate::sys;

/// Where a git directory has those of its linked work trees.
const WORK_TREES: &[u8] = b"worktrees";

/// Shared tables that a plan changes.
pub(super) struct SharedTables {
    dir: Vec<u8>,
    /// The new values of the recorded branches, where they are something else now.
    wanted: BTreeMap<Vec<u8>, Option<RefValue>>,
    /// The refs of now.
    now: RefStack,
    list: Arc<EntryState>,
    lines: Vec<u8>,
    /// Whether one of the branches moved after the session.
    has_moved: bool,
}

impl SharedTables {
    /// The shared tables of a plan. Where a table cannot be understood, the tables are files like others.
    pub(super) fn of(
        source: &dyn ObjectSource,
        chain: &[LoadedManifest],
        current_root: &ContentHash,
        target: &SnapshotManifest,
        plan: &RestorePlan,
    ) -> Result<Vec<Self>, StoreError> {
        let mut found = Vec::new();
        for (dir, own) in shared(target) {
            if plan.changes.iter().any(|(path, _)| is_in(&path, dir)) {
                found.extend(Self::at(source, chain, current_root, target, dir, &own)?);
            }
        }
        Ok(found)
    }

    fn at(
        source: &dyn ObjectSource,
        chain: &[LoadedManifest],
        current_root: &ContentHash,
        target: &SnapshotManifest,
        dir: &[u8],
        own: &[&[u8]],
    ) -> Result<Option<Self>, StoreError> {
        let then_root = read_root_tree(source, &target.merkle_root)?;
        let now_root = read_root_tree(source, current_root)?;
        let list_path = byte_path::join(dir, TABLES);
        let list = Lookup::new(source, &now_root).find(&list_path)?;
        let (Some(then), Some(now), Some(list)) =
            (stack(source, &then_root, dir)?, stack(source, &now_root, dir)?, list)
        else {
            return Ok(None);
        };
        let mut branches = HashSet::new();
        for own in own {
            let own = stack(source, &then_root, &byte_path::join(own, REFTABLE))?;
            let Some(own) = own else { return Ok(None) };
            if let Some(RefValue::Symbolic(branch)) = own.refs.get(&b"HEAD"[..]) {
                branches.insert(branch.clone());
            }
        }
        let mut wanted = BTreeMap::new();
        for branch in branches {
            let value = then.refs.get(&branch);
            if value != now.refs.get(&branch) {
                wanted.insert(branch, value.cloned());
            }
        }
        let mut unknown: HashSet<&[u8]> = wanted.keys().map(Vec::as_slice).collect();
        let ordinary = |loaded: &&LoadedManifest| loaded.manifest.kind == SnapshotKind::Ordinary;
        for loaded in chain.iter().filter(ordinary) {
            if unknown.is_empty() {
                break;
            }
            let root = read_root_tree(source, &loaded.manifest.merkle_root)?;
            if let Some(known) = stack(source, &root, dir)? {
                unknown.retain(|branch| known.refs.get(*branch) != now.refs.get(*branch));
            }
        }
        let has_moved = !unknown.is_empty();
        let Some(lines) = file(source, &list_path, &list)? else { return Ok(None) };
        let (dir, list) = (dir.to_vec(), Arc::new(list));
        Ok(Some(Self { dir, wanted, now, list, lines, has_moved }))
    }

    /// Takes the conflicts in these files out of those of a plan. A branch that moved later is one,
    /// where later changes count.
    pub(super) fn settle(&self, conflicts: &mut AllConflicts, has_later_changes: bool) {
        conflicts.paths.retain(|path| !is_in(path, &self.dir));
        if self.has_moved && has_later_changes {
            conflicts.repositories.push(Conflict {
                path: to_path(byte_path::split(&self.dir).0).to_owned(),
                change_type: ChangeType::Modified,
                sessions: Vec::new(),
                repository: Some(RepositoryConflict::MovedOn { moves: Vec::new() }),
                user_edit: None,
                beside: Vec::new(),
            });
        }
    }

    pub(super) fn has(&self, path: &[u8]) -> bool {
        is_in(path, &self.dir)
    }

    /// Plans the further table. `keeps`: where a branch moved later, it stays.
    pub(super) fn plan(self, plan: &mut RestorePlan, keeps: bool) {
        let list_path = byte_path::join(&self.dir, TABLES);
        let files = if keeps && self.has_moved { None } else { self.files(&list_path) };
        let is_meant =
            |path: &[u8]| !is_in(path, &self.dir) || files.is_some() && path == list_path;
        plan.narrow(|path, _| is_meant(path), |path, _| is_meant(path), &HashSet::new());
        plan.put_merged(files.unwrap_or_default());
    }

    /// The table and the list with it. `None`: no branch changes.
    fn files(&self, list_path: &[u8]) -> Option<Vec<MergedFile>> {
        let (name, table) = self.now.further_table(&self.wanted)?;
        let mut lines = self.lines.clone();
        lines.extend_from_slice(&name);
        lines.push(b'\n');
        let mut attributes = self.list.attributes.clone();
        attributes.mtime = sys::coarse_now();
        let merged = |path: Vec<u8>, now: Option<Arc<EntryState>>, bytes: Vec<u8>| {
            let node = Node::file(bytes.len() as u64, ContentHash::of(&bytes));
            let target = Arc::new(EntryState { attributes: attributes.clone(), node });
            MergedFile { path, now, target, bytes: Some(bytes) }
        };
        Some(vec![
            merged(byte_path::join(&self.dir, &name), None, table),
            merged(list_path.to_vec(), Some(Arc::clone(&self.list)), lines),
        ])
    }
}

/// The directories of shared tables that a snapshot tracks, each with the git directories of the
/// tracked work trees.
fn shared(target: &SnapshotManifest) -> Vec<(&[u8], Vec<&[u8]>)> {
    let roots = || target.roots.iter().map(|root| root.path.as_os_str().as_bytes());
    let tables = roots().filter(|dir| byte_path::split(dir).1 == REFTABLE);
    let with_own = tables.map(|dir| {
        let work_trees = byte_path::join(byte_path::split(dir).0, WORK_TREES);
        (dir, roots().filter(|root| byte_path::split(root).0 == work_trees).collect())
    });
    with_own.filter(|(_, own): &(_, Vec<_>)| !own.is_empty()).collect()
}

/// Whether a path lies in shared tables that a snapshot tracks.
pub(super) fn is_shared(target: &SnapshotManifest, path: &[u8]) -> bool {
    shared(target).iter().any(|(dir, _)| is_in(path, dir))
}

fn is_in(path: &[u8], dir: &[u8]) -> bool {
    path == dir || byte_path::relative_to(path, dir).is_some()
}

/// The refs of a stack in a recorded state. `None`: it is not there, or cannot be understood.
fn stack(
    source: &dyn ObjectSource,
    root: &RootTree,
    dir: &[u8],
) -> Result<Option<RefStack>, StoreError> {
    let mut lookup = Lookup::new(source, root);
    let list_path = byte_path::join(dir, TABLES);
    let Some(list) = lookup.find(&list_path)? else { return Ok(None) };
    let Some(list) = file(source, &list_path, &list)? else { return Ok(None) };
    let mut tables = Vec::new();
    for name in list.split(|byte| *byte == b'\n').filter(|name| !name.is_empty()) {
        let path = byte_path::join(dir, name);
        if tables.len() == MAX_TABLES || name.contains(&b'/') {
            return Ok(None);
        }
        let Some(state) = lookup.find(&path)? else { return Ok(None) };
        let Some(bytes) = file(source, &path, &state)? else { return Ok(None) };
        tables.push(bytes);
    }
    Ok(RefStack::read(&tables))
}

fn file(
    source: &dyn ObjectSource,
    path: &[u8],
    state: &EntryState,
) -> Result<Option<Vec<u8>>, StoreError> {
    match &state.node {
        Node::File { size: 0, .. } => Ok(Some(Vec::new())),
        Node::File { size, hash, .. } if *size <= MAX_TABLE_BYTES => {
            read_contents(source, path, hash, MAX_TABLE_BYTES).map(Some)
        }
        _ => Ok(None),
    }
}
