//! Git directories in a restore: each is one thing, which comes back as a whole or stays as it is.
//!
//! Refs, index and the rest belong together; a half of them is a broken repository. Only objects
//! are different: one that git added since is in no user's way, so it stays, and the restore is
//! complete. git's own writes (its index at each `git status`) are not a user's work or conflict. A
//! branch that moved after the session is one conflict, whatever else that changed in the
//! directory. Changes that a user staged are one as well.

use std::collections::{BTreeMap, HashSet};
use std::os::unix::ffi::OsStrExt;

use super::conflicts::{self, Conflict, Conflicts, RepositoryConflict};
use super::plan::RestorePlan;
use super::remote_refs::Kept;
use super::selection::Selected;
use crate::byte_path;
use crate::diff::{self, ChangeType, Difference, EntryState, Lookup};
use crate::git::{
    self, GitDirs, GitState, LOCK, Move, OPERATIONS, REFTABLE, RepositoryChange, is_added_object,
    is_bookkeeping, is_lock, own_refs,
};
use crate::object::{ContentHash, Node, RootTree};
use crate::path_text::to_path;
use crate::snapshot::{LoadedManifest, SnapshotKind, SnapshotManifest};
use crate::store::{ObjectSource, StoreError, read_root_tree, read_tree};
use crate::sys::Dir;
use crate::walk::{DOT_GIT, GitDirectories};

const INDEX: &[u8] = b"index";

/// Whether git directories are special for a snapshot.
pub(super) fn are_special(target: &SnapshotManifest) -> bool {
    let is_special = |git: GitDirectories| git != GitDirectories::AsAnyOther;
    target.roots.iter().any(|root| is_special(root.exclusion.git_directories))
}

/// Objects that are new since the target. They stay.
pub(super) struct AddedObjects<'a>(Option<GitDirs<'a>>);

impl<'a> AddedObjects<'a> {
    pub(super) fn new(
        source: &'a dyn ObjectSource,
        target: &SnapshotManifest,
        root: &'a RootTree,
    ) -> Self {
        Self(are_special(target).then(|| GitDirs::new(source, root)))
    }

    /// `old` is now and `new` is the target.
    pub(super) fn has(
        &mut self,
        Difference { path, old, new, .. }: &Difference,
    ) -> Result<bool, StoreError> {
        let (Some(dirs), Some(now), None) = (&mut self.0, old, new) else { return Ok(false) };
        if !matches!(now.node, Node::File { .. } | Node::Directory { .. }) {
            return Ok(false);
        }
        let Some(git_dir) = dirs.of(path)? else { return Ok(false) };
        Ok(byte_path::relative_to(path, &git_dir).is_some_and(is_added_object))
    }
}

/// Locks of git in a recorded state. None of them is brought back: its process does not live any
/// more, and git would work in the repository no longer.
pub(super) struct Locks<'a>(Option<GitDirs<'a>>);

impl<'a> Locks<'a> {
    /// `root` is that of the state.
    pub(super) fn new(
        source: &'a dyn ObjectSource,
        state: &SnapshotManifest,
        root: &'a RootTree,
    ) -> Self {
        Self(are_special(state).then(|| GitDirs::new(source, root)))
    }

    pub(super) fn has(&mut self, path: &[u8]) -> Result<bool, StoreError> {
        let Some(dirs) = self.0.as_mut().filter(|_| path.ends_with(LOCK)) else {
            return Ok(false);
        };
        let Some(git_dir) = dirs.of(path)? else { return Ok(false) };
        Ok(byte_path::relative_to(path, &git_dir).is_some_and(is_lock))
    }
}

/// The git directories that a plan is about.
#[derive(Debug, Default)]
pub(super) struct Repositories {
    dirs: HashSet<Vec<u8>>,
}

impl Repositories {
    /// The git directories of either state that the plan changes.
    pub(super) fn of(
        source: &dyn ObjectSource,
        current_root: &ContentHash,
        target: &SnapshotManifest,
        plan: &RestorePlan,
    ) -> Result<Self, StoreError> {
        let mut dirs = HashSet::new();
        if are_special(target) {
            let now = read_root_tree(source, current_root)?;
            let then = read_root_tree(source, &target.merkle_root)?;
            let (mut now, mut then) = (GitDirs::new(source, &now), GitDirs::new(source, &then));
            for dir in plan.directories() {
                dirs.extend(now.of(dir)?);
                dirs.extend(then.of(dir)?);
            }
        }
        Ok(Self { dirs })
    }

    /// The innermost git directory that a path is or lies in.
    pub(super) fn of_path<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        if self.dirs.is_empty() {
            return None;
        }
        [path]
            .into_iter()
            .chain(byte_path::ancestors(path).rev())
            .find(|dir| self.dirs.contains(*dir))
    }

    /// Whether a path belongs to git: it is in a git directory, or is the file that leads to one.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        byte_path::split(path).1 == DOT_GIT || self.of_path(path).is_some()
    }

    /// Whether a selection means a path. In a git directory it means all, or none.
    pub(super) fn is_selected(
        &self,
        selected: &Selected<'_>,
        path: &[u8],
        change: Option<ChangeType>,
    ) -> bool {
        match self.of_path(path) {
            None => selected.contains(path) && selected.wants(change),
            Some(git_dir) => selected.names(path) || self.is_whole(selected, git_dir),
        }
    }

    /// Whether a selection means all of a git directory, maybe as a part of another one.
    fn is_whole(&self, selected: &Selected<'_>, git_dir: &[u8]) -> bool {
        let above = byte_path::ancestors(git_dir).filter(|dir| self.dirs.contains(*dir));
        [git_dir].into_iter().chain(above).any(|dir| selected.is_unit(dir))
    }

    /// The moves of HEAD and the refs if the plan is carried out.
    pub(super) fn changes(
        &self,
        source: &dyn ObjectSource,
        current_root: &ContentHash,
        target: &SnapshotManifest,
        plan: &RestorePlan,
        selected: &Selected<'_>,
        kept: &Kept,
    ) -> Result<Vec<RepositoryChange>, StoreError> {
        if self.dirs.is_empty() {
            return Ok(Vec::new());
        }
        // One in which nothing changes but stays is named as well.
        let paths = plan.changes.iter().map(|(path, _)| path).chain(kept.iter().cloned());
        let mut found = git::repositories(source, current_root, &target.merkle_root, paths)?;
        for repository in &mut found {
            let git_dir = repository.git_dir.as_os_str().as_bytes();
            let is_whole = self.is_whole(selected, git_dir);
            let is_kept = kept.contains(git_dir);
            if !selected.is_all() && !is_whole {
                repository.moves.clear();
            }
            if is_kept {
                repository.path_count -= 1;
                repository.keep_remote(source, current_root)?;
            }
        }
        found.retain(|repository| repository.path_count > 0 || !repository.stays.is_empty());
        Ok(found)
    }

    /// The git directories of the plan that are the same in two snapshots, but for the times that a
    /// `git status` writes into the index. git's own writes since are in no user's way, and what a
    /// user staged is the user's work.
    pub(super) fn unchanged_between(
        &self,
        source: &dyn ObjectSource,
        before: &ContentHash,
        after: &ContentHash,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let (before, after) = (read_root_tree(source, before)?, read_root_tree(source, after)?);
        let (mut before, mut after) = (Lookup::new(source, &before), Lookup::new(source, &after));
        let mut unchanged = Vec::new();
        for git_dir in &self.dirs {
            let (Some(old), Some(new)) = (before.find(git_dir)?, after.find(git_dir)?) else {
                continue;
            };
            if old.node == new.node || is_index_alone(source, &old.node, &new.node)? {
                unchanged.push(git_dir.clone());
            }
        }
        Ok(unchanged)
    }

    /// The git directories of the plan in which a user worked between two snapshots: HEAD, a
    /// branch, a tag or the stash moved, something else is staged, or a file is another that git
    /// does not write by itself.
    pub(super) fn worked_on_between(
        &self,
        source: &dyn ObjectSource,
        before: &ContentHash,
        after: &ContentHash,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut found = Vec::new();
        if self.dirs.is_empty() {
            return Ok(found);
        }
        let roots = (read_root_tree(source, before)?, read_root_tree(source, after)?);
        let (mut then, mut now) = (Lookup::new(source, &roots.0), Lookup::new(source, &roots.1));
        for git_dir in &self.dirs {
            let (old, new) = (then.find(git_dir)?, now.find(git_dir)?);
            if old.as_ref().map(|old| &old.node) == new.as_ref().map(|new| &new.node) {
                continue;
            }
            let path = to_path(git_dir);
            let state = |root| GitState::in_snapshot(source, root, path);
            let index = [git_dir, &b"/"[..], INDEX].concat();
            let (old_index, new_index) = (then.find(&index)?, now.find(&index)?);
            let node = |state: Option<EntryState>| state.map(|state| state.node);
            let (old_index, new_index) = (node(old_index), node(new_index));
            let beside = |root| Beside::in_snapshot(source, root, git_dir);
            let mut is_work = !is_same(state(before)?.as_ref(), state(after)?.as_ref())
                || beside(before)? != beside(after)?
                || (old_index != new_index && !stage_the_same(source, old_index, new_index)?);
            if !is_work {
                for difference in diff::differences_of(source, git_dir, old.as_ref(), new.as_ref())
                {
                    let difference = difference?;
                    let inside = byte_path::relative_to(&difference.path, git_dir);
                    let is_by_itself = inside.is_some_and(is_bookkeeping);
                    is_work |= !is_by_itself && difference.change_type().is_some();
                }
            }
            if is_work {
                found.push(git_dir.clone());
            }
        }
        Ok(found)
    }

    /// The git directories in which a plan changes something.
    pub(super) fn changed_by(&self, plan: &RestorePlan) -> HashSet<Vec<u8>> {
        if self.dirs.is_empty() {
            return HashSet::new();
        }
        let paths = plan.changes.iter().map(|(path, _)| path);
        paths.filter_map(|path| self.of_path(&path).map(<[u8]>::to_vec)).collect()
    }

    /// Takes the conflicts in git directories out of `paths`, and returns those that the user has
    /// to decide about, one for each repository.
    pub(super) fn conflicts(
        &self,
        source: &dyn ObjectSource,
        chain: &[LoadedManifest],
        current_root: &ContentHash,
        plan: &RestorePlan,
        paths: &mut Conflicts,
    ) -> Result<Vec<Conflict>, StoreError> {
        let last = chain.iter().rev().find(|loaded| loaded.manifest.kind == SnapshotKind::Ordinary);
        let (Some(last), false) = (last, self.dirs.is_empty()) else { return Ok(Vec::new()) };
        let last = &last.manifest.merkle_root;
        let mut decided: BTreeMap<Vec<u8>, Option<Conflict>> = BTreeMap::new();
        let concerned = self.changed_by(plan);
        let locks = self.locks(source, last, current_root, plan)?;
        for git_dir in concerned {
            let conflict = match locks.get(&git_dir) {
                Some(lock) => Some((
                    ChangeType::Modified,
                    RepositoryConflict::AtWork { lock: to_path(lock).to_owned() },
                )),
                None => moved_on(source, chain, last, current_root, &git_dir)?,
            };
            let conflict = conflict.map(|(change_type, repository)| Conflict {
                path: to_path(&git_dir).to_owned(),
                change_type,
                sessions: Vec::new(),
                repository: Some(repository),
                user_edit: None,
                beside: Vec::new(),
            });
            decided.insert(git_dir, conflict);
        }
        paths.retain(|path| match self.of_path(path) {
            None => true,
            Some(git_dir) => {
                let is_decided = matches!(decided.get(git_dir), Some(Some(_)));
                let inside = byte_path::relative_to(path, git_dir);
                !is_decided && !inside.is_some_and(is_bookkeeping)
            }
        });
        Ok(decided.into_values().flatten().collect())
    }

    /// Locks that are there now and that the command did not leave behind, by git directory.
    fn locks(
        &self,
        source: &dyn ObjectSource,
        last: &ContentHash,
        current_root: &ContentHash,
        plan: &RestorePlan,
    ) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, StoreError> {
        let (last, now) = (read_root_tree(source, last)?, read_root_tree(source, current_root)?);
        let (mut last, mut now) = (Lookup::new(source, &last), Lookup::new(source, &now));
        let mut found = BTreeMap::new();
        for (path, _) in plan.changes.iter() {
            let Some(git_dir) = self.of_path(&path) else { continue };
            let Some(inside) = byte_path::relative_to(&path, git_dir) else { continue };
            // The lock of a branch that is tracked by itself lies beside the branch.
            let lock = [&path[..], b".lock"].concat();
            if now.find(git_dir)?.is_none() && is_there(&lock) {
                found.insert(git_dir.to_vec(), [inside, b".lock"].concat());
            }
            if !is_lock(inside) {
                continue;
            }
            let lock: Option<EntryState> = now.find(&path)?;
            if lock.is_some() && last.find(&path)? != lock {
                found.insert(git_dir.to_vec(), inside.to_vec());
            }
        }
        Ok(found)
    }
}

/// Whether two states of a git directory differ in the index alone, and both stage the same.
fn is_index_alone(source: &dyn ObjectSource, old: &Node, new: &Node) -> Result<bool, StoreError> {
    let (Node::Directory { tree: old }, Node::Directory { tree: new }) = (old, new) else {
        return Ok(false);
    };
    let take_index = |tree: &ContentHash| -> Result<_, StoreError> {
        let mut entries = read_tree(source, tree)?.into_entries();
        let index = entries.iter().position(|entry| *entry.name == *INDEX);
        let index = index.map(|at| entries.remove(at).node);
        Ok((index, entries))
    };
    let ((old_index, old), (new_index, new)) = (take_index(old)?, take_index(new)?);
    Ok(old == new && stage_the_same(source, old_index, new_index)?)
}

/// Whether two indexes are known to stage the same.
fn stage_the_same(
    source: &dyn ObjectSource,
    old: Option<Node>,
    new: Option<Node>,
) -> Result<bool, StoreError> {
    let (old, new) = (diff::staging(source, old.as_ref())?, diff::staging(source, new.as_ref())?);
    Ok(old.is_some() && old == new)
}

/// The staged state of the index at a path in a snapshot; `None` if it is unknown, as where its
/// contents are damaged.
fn staged_in(
    source: &dyn ObjectSource,
    root: &ContentHash,
    index: &[u8],
) -> Result<Option<ContentHash>, StoreError> {
    let root = read_root_tree(source, root)?;
    let node = Lookup::new(source, &root).find(index)?.map(|index| index.node);
    diff::staging_at(source, index, node.as_ref())
}

/// Whether something is at a path of the disk.
fn is_there(path: &[u8]) -> bool {
    let (above, name) = byte_path::split(path);
    let found = Dir::open_no_symlinks(to_path(above)).and_then(|dir| dir.try_stat(name));
    matches!(found, Ok(Some(_)))
}

/// The state of a repository beside HEAD, refs and index, without times.
#[derive(PartialEq, Eq)]
struct Beside {
    /// Names and contents of reftables; `None` where the refs are files.
    tables: Option<Vec<(Box<[u8]>, Node)>>,
    /// The operations that are under way, with what says so.
    operations: Vec<(&'static str, Node)>,
}

impl Beside {
    fn in_snapshot(
        source: &dyn ObjectSource,
        root: &ContentHash,
        git_dir: &[u8],
    ) -> Result<Self, StoreError> {
        let root = read_root_tree(source, root)?;
        let mut lookup = Lookup::new(source, &root);
        let tables = match lookup.find(&byte_path::join(git_dir, REFTABLE))?.map(|it| it.node) {
            Some(Node::Directory { tree }) => {
                let entries = read_tree(source, &tree)?.into_entries();
                Some(entries.into_iter().map(|entry| (entry.name, entry.node)).collect())
            }
            _ => None,
        };
        let mut operations = Vec::new();
        for (name, operation) in OPERATIONS {
            if let Some(state) = lookup.find(&byte_path::join(git_dir, name))? {
                operations.push((operation, state.node));
            }
        }
        Ok(Self { tables, operations })
    }

    /// An operation that is under way here and was not, or not so, before.
    fn begun_since(&self, before: &Self) -> Option<&'static str> {
        let newer = self.operations.iter().find(|it| !before.operations.contains(it));
        newer.map(|(operation, _)| *operation)
    }
}

/// Whether HEAD or a ref of a repository moved after the session, and after every restore of it; or
/// where none did, whether something else was staged.
fn moved_on(
    source: &dyn ObjectSource,
    chain: &[LoadedManifest],
    last: &ContentHash,
    current_root: &ContentHash,
    git_dir: &[u8],
) -> Result<Option<(ChangeType, RepositoryConflict)>, StoreError> {
    let path = to_path(git_dir);
    let state = |root: &ContentHash| GitState::in_snapshot(source, root, path);
    let now = state(current_root)?;
    let index = [git_dir, b"/", INDEX].concat();
    let staged_now = staged_in(source, current_root, &index)?;
    let beside_now = Beside::in_snapshot(source, current_root, git_dir)?;
    let mut base = None;
    let mut is_known = false;
    let mut beside_moved = None;
    let restored = conflicts::restored(chain).map(|(_, target)| &target.merkle_root);
    for root in std::iter::once(last).chain(restored) {
        // A path that an earlier restore left alone is as it was before that restore.
        base = state(root)?;
        if is_same(base.as_ref(), now.as_ref()) {
            let beside = Beside::in_snapshot(source, root, git_dir)?;
            if beside.tables != beside_now.tables {
                beside_moved = Some(RepositoryConflict::Reftables);
                continue;
            }
            if let Some(operation) = beside_now.begun_since(&beside) {
                let operation = operation.to_owned();
                beside_moved = Some(RepositoryConflict::InProgress { operation });
                continue;
            }
            let staged = staged_in(source, root, &index)?;
            // Only a change that is certain is a user's work.
            if staged.is_none() || staged_now.is_none() || staged == staged_now {
                return Ok(None);
            }
            is_known = true;
        }
    }
    if is_known {
        return Ok(Some((ChangeType::Modified, RepositoryConflict::Staged)));
    }
    if let Some(conflict) = beside_moved {
        return Ok(Some((ChangeType::Modified, conflict)));
    }
    Ok(Some(match (&base, &now) {
        (Some(base), Some(now)) => {
            let moves = local(base, now);
            (ChangeType::Modified, RepositoryConflict::MovedOn { moves })
        }
        (Some(base), None) => {
            (ChangeType::Deleted, RepositoryConflict::Removed { refs: own_refs(base) })
        }
        (None, now) => {
            let refs = now.as_ref().map(own_refs).unwrap_or_default();
            (ChangeType::Created, RepositoryConflict::Made { refs })
        }
    }))
}

/// Whether nothing moved but what `git fetch` moves, and can move again.
fn is_same(a: Option<&GitState>, b: Option<&GitState>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => local(a, b).is_empty() && a.head.is_some() == b.head.is_some(),
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn local(a: &GitState, b: &GitState) -> Vec<Move> {
    let mut moves = git::moves(a, b);
    moves.retain(|change| !change.is_of_remote());
    moves
}
