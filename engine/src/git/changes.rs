//! The changes of repositories between two snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::files::GitDirs;
use super::refs::{Head, Oid};
use super::state::{GitState, InSnapshot};
use super::work::{ChangedPaths, GitWork, RefAt, own_refs};
use crate::byte_path;
use crate::diff::Lookup;
use crate::object::{ContentHash, Node, RootTree};
use crate::path_text::{serde_path, to_path};
use crate::store::{ObjectSource, StoreError, read_root_tree, read_tree};

/// A git directory in which something changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryChange {
    /// The git directory.
    #[serde(with = "serde_path")]
    pub git_dir: PathBuf,
    /// How many paths in it changed.
    pub path_count: u64,
    /// Whether it is there only in the newer state.
    pub is_new: bool,
    /// Whether it is there only in the older state.
    pub is_gone: bool,
    /// Whether it is new and only some of it is among the changed paths: of a restore, the paths
    /// that were asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
    /// The moves of HEAD and the refs.
    pub moves: Vec<Move>,
    /// The work beside these.
    #[serde(default, skip_serializing_if = "GitWork::is_empty")]
    pub work: GitWork,
    /// The branches, tags and the stash of a repository that is new or gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<RefAt>,
    /// The remote-tracking branches that a restore leaves different from the snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<RemoteBranch>,
}

/// A remote-tracking branch that a restore leaves as it is: it says what the remote has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteBranch {
    /// The full name of the ref, `refs/remotes/origin/main`.
    pub name: String,
    /// Its commit; `None` if it is gone.
    pub commit: Option<Oid>,
    /// Whether a push was its last move.
    pub is_pushed: bool,
}

/// A move of HEAD or one ref. Names of refs are full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Move {
    /// HEAD is another branch, or a commit, or was one.
    Switched {
        /// Before.
        from: Head,
        /// After.
        to: Head,
    },
    /// A ref has another commit.
    Moved {
        /// Its name.
        name: String,
        /// Before.
        from: Oid,
        /// After.
        to: Oid,
    },
    /// A ref is new.
    Created {
        /// Its name.
        name: String,
        /// Its commit.
        to: Oid,
        /// For a branch: the commit that was checked out before, from which it probably comes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Oid>,
    },
    /// A ref is gone.
    Deleted {
        /// Its name.
        name: String,
        /// The commit that it had.
        from: Oid,
    },
    /// A symbolic ref is new, is gone, or leads to another ref.
    Redirected {
        /// Its name.
        name: String,
        /// The ref that it led to; `None`: it is new.
        from: Option<String>,
        /// The ref that it leads to; `None`: it is gone.
        to: Option<String>,
    },
}

impl Move {
    /// Whether it is about what a remote repository has, which `git fetch` writes.
    pub fn is_of_remote(&self) -> bool {
        match self {
            Self::Switched { .. } => false,
            Self::Moved { name, .. }
            | Self::Created { name, .. }
            | Self::Deleted { name, .. }
            | Self::Redirected { name, .. } => name.starts_with("refs/remotes/"),
        }
    }
}

/// The moves of HEAD and the refs from one state to the other: HEAD first, then the branch that is
/// checked out, then by name.
pub fn moves(old: &GitState, new: &GitState) -> Vec<Move> {
    let mut found = Vec::new();
    if let (Some(from), Some(to)) = (&old.head, &new.head)
        && from != to
    {
        found.push(Move::Switched { from: from.clone(), to: to.clone() });
    }
    let mut names: Vec<&String> = old.refs.keys().chain(new.refs.keys()).collect();
    let is_head = |name: &String| matches!(&new.head, Some(Head::Ref(head)) if head == name);
    names.sort_unstable_by_key(|name| (!is_head(name), *name));
    names.dedup();
    for name in names {
        let name = name.clone();
        found.extend(match (old.refs.get(&name), new.refs.get(&name)) {
            (Some(from), Some(to)) if from != to => {
                Some(Move::Moved { name, from: from.clone(), to: to.clone() })
            }
            (None, Some(to)) => {
                let is_branch = name.starts_with("refs/heads/");
                let since = old.commit().filter(|_| is_branch).cloned();
                Some(Move::Created { name, to: to.clone(), since })
            }
            (Some(from), None) => Some(Move::Deleted { name, from: from.clone() }),
            _ => None,
        });
    }
    let names: BTreeSet<&String> = old.symbolic.keys().chain(new.symbolic.keys()).collect();
    for name in names {
        let (from, to) = (old.symbolic.get(name).cloned(), new.symbolic.get(name).cloned());
        if from != to {
            found.push(Move::Redirected { name: name.clone(), from, to });
        }
    }
    found
}

/// The git directories in which some of the changed paths lie, by path.
///
/// # Errors
/// When a tree or a file that has to be read is missing or damaged.
pub fn repositories<P: AsRef<[u8]>>(
    source: &dyn ObjectSource,
    old_root: &ContentHash,
    new_root: &ContentHash,
    changed: impl IntoIterator<Item = P>,
) -> Result<Vec<RepositoryChange>, StoreError> {
    let (old, new) = (read_root_tree(source, old_root)?, read_root_tree(source, new_root)?);
    let (mut old_dirs, mut new_dirs) = (GitDirs::new(source, &old), GitDirs::new(source, &new));
    let mut repositories: BTreeMap<Vec<u8>, ChangedPaths> = BTreeMap::new();
    for path in changed {
        let path = path.as_ref();
        let (a, b) = (old_dirs.of(path)?, new_dirs.of(path)?);
        // The innermost of the two.
        if let Some(git_dir) = a.max_by_depth(b) {
            let inside = byte_path::relative_to(path, &git_dir).unwrap_or_default();
            let inside = inside.to_vec();
            repositories.entry(git_dir).or_default().add(&inside);
        }
    }
    let (mut before, mut after) = (InSnapshot::new(source, &old), InSnapshot::new(source, &new));
    let (mut then, mut now) = (Lookup::new(source, &old), Lookup::new(source, &new));
    let mut found = Vec::new();
    for (git_dir, changed) in repositories {
        let is_new = !old_dirs.is_git_dir(&git_dir)?;
        let is_gone = !new_dirs.is_git_dir(&git_dir)?;
        let states = (before.state(&git_dir)?, after.state(&git_dir)?);
        let (moves, work, refs) = match states {
            (Some(old), Some(new)) if !is_new && !is_gone => {
                let places = [&mut then, &mut now];
                let work = changed.work(source, &git_dir, places, [&old, &new])?;
                (moves(&old, &new), work, Vec::new())
            }
            (Some(old), _) if is_gone => (Vec::new(), GitWork::default(), own_refs(&old)),
            (_, Some(new)) if is_new => (Vec::new(), GitWork::default(), own_refs(&new)),
            _ => Default::default(),
        };
        let names = &changed.names;
        let is_partial = is_new && !is_gone && lacks_some(source, [&old, &new], &git_dir, names)?;
        let git_dir = to_path(&git_dir).to_owned();
        let stays = Vec::new();
        found.push(RepositoryChange {
            git_dir,
            path_count: changed.count,
            is_new,
            is_gone,
            is_partial,
            moves,
            work,
            refs,
            stays,
        });
    }
    Ok(found)
}

/// Whether something in a git directory of the newer state is neither changed nor in the older one.
fn lacks_some(
    source: &dyn ObjectSource,
    [old, new]: [&RootTree; 2],
    git_dir: &[u8],
    changed: &BTreeSet<Box<[u8]>>,
) -> Result<bool, StoreError> {
    let found = Lookup::new(source, new).find(git_dir)?;
    let Some(Node::Directory { tree }) = found.map(|state| state.node) else { return Ok(false) };
    let mut old = Lookup::new(source, old);
    for entry in read_tree(source, &tree)?.into_entries() {
        if !changed.contains(&entry.name)
            && old.find(&byte_path::join(git_dir, &entry.name))?.is_none()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

impl RepositoryChange {
    /// Keeps the remote-tracking branches in the change from the state `now` to another one.
    ///
    /// # Errors
    /// When a tree or a file that has to be read is missing or damaged.
    pub(crate) fn keep_remote(
        &mut self,
        source: &dyn ObjectSource,
        now: &ContentHash,
    ) -> Result<(), StoreError> {
        let root = read_root_tree(source, now)?;
        let mut now = InSnapshot::new(source, &root);
        let git_dir = self.git_dir.as_os_str().as_bytes();
        let moves = std::mem::take(&mut self.moves);
        let (of_remote, local): (Vec<Move>, Vec<Move>) =
            moves.into_iter().partition(Move::is_of_remote);
        self.moves = local;
        for change in of_remote {
            let (name, commit) = match change {
                Move::Moved { name, from, .. } | Move::Deleted { name, from } => (name, Some(from)),
                Move::Created { name, .. } => (name, None),
                Move::Switched { .. } | Move::Redirected { .. } => continue,
            };
            let is_pushed = commit.is_some() && now.was_pushed(git_dir, &name).unwrap_or(false);
            self.stays.push(RemoteBranch { name, commit, is_pushed });
        }
        Ok(())
    }
}

trait Deeper {
    fn max_by_depth(self, other: Self) -> Self;
}

impl Deeper for Option<Vec<u8>> {
    /// Both lie above one path, so the longer one is inside the other.
    fn max_by_depth(self, other: Self) -> Self {
        let length = |dir: &Self| dir.as_ref().map_or(0, Vec::len);
        if length(&self) >= length(&other) { self } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(digit: char) -> Oid {
        Oid::from_hex(digit.to_string().repeat(40).as_bytes()).unwrap()
    }

    fn state(head: &str, refs: &[(&str, char)]) -> GitState {
        GitState {
            head: Some(Head::Ref(head.to_owned())),
            refs: refs.iter().map(|(name, digit)| ((*name).to_owned(), oid(*digit))).collect(),
            symbolic: BTreeMap::new(),
        }
    }

    #[test]
    fn the_branch_that_is_checked_out_comes_first() {
        let old = state("refs/heads/main", &[("refs/heads/a", 'a'), ("refs/heads/main", 'b')]);
        let new = state(
            "refs/heads/main",
            &[("refs/heads/b", 'a'), ("refs/heads/main", 'c'), ("refs/remotes/o/m", 'c')],
        );
        assert_eq!(
            moves(&old, &new),
            [
                Move::Moved { name: "refs/heads/main".into(), from: oid('b'), to: oid('c') },
                Move::Deleted { name: "refs/heads/a".into(), from: oid('a') },
                Move::Created { name: "refs/heads/b".into(), to: oid('a'), since: Some(oid('b')) },
                Move::Created { name: "refs/remotes/o/m".into(), to: oid('c'), since: None },
            ]
        );
        assert_eq!(moves(&new, &new), []);
    }

    #[test]
    fn another_branch_is_checked_out() {
        let old = state("refs/heads/main", &[]);
        let new = GitState { head: Some(Head::Detached(oid('d'))), ..GitState::default() };
        let Move::Switched { from, to } = &moves(&old, &new)[0] else { panic!() };
        assert_eq!((from, to), (old.head.as_ref().unwrap(), new.head.as_ref().unwrap()));
    }
}
