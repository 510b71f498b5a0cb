//! How many commits lie between two, read from the objects of a repository on the disk.
//!
//! The objects are whatever the command left there. So they are read by a thread that is given up
//! after two seconds (a pipe in place of an object is never read to its end), nothing large is
//! loaded, and without an answer the two names are told without a number.

use std::collections::{BinaryHeap, HashMap};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Find, Kind, TreeRefIter};

use nono_engine::git::{Oid, StagedFile};
use nono_engine::sys;

/// Maximum number of commits that are counted; then "more than" has to do.
const MAX_COMMITS: usize = 10_000;
/// Largest object that is read. A commit is small.
const MAX_BYTES: usize = 16 << 20;
/// Maximum wait for a number of commits.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Commits that one of two has and the other has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Between {
    /// Only the newer one reaches them.
    pub(super) added: usize,
    /// Only the older one does.
    pub(super) gone: usize,
    /// There are more.
    pub(super) is_partial: bool,
}

/// Counts, for each pair, the commits between both. `None` for what cannot be counted.
pub(super) fn between(objects: &Path, pairs: &[(Oid, Oid)]) -> Vec<Option<Between>> {
    let unknown = vec![None; pairs.len()];
    let (objects, pairs) = (objects.to_owned(), pairs.to_vec());
    patiently("counting commits", TIMEOUT, move || count_all(&objects, &pairs)).unwrap_or(unknown)
}

/// The answer of a thread, if it comes in time. A thread that panics or never ends gives none.
pub(super) fn patiently<T: Send + 'static>(
    name: &str,
    timeout: Duration,
    work: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    let started = sys::spawn(name, move || {
        let _ = sender.send(work());
    });
    started.ok().and_then(|_| receiver.recv_timeout(timeout).ok().flatten())
}

/// The commits that a repository does not have. Without a sure answer, none is named.
pub(super) fn missing(objects: &Path, commits: &[Oid]) -> Vec<Oid> {
    if commits.is_empty() {
        return Vec::new();
    }
    let (objects, commits) = (objects.to_owned(), commits.to_vec());
    patiently("looking for commits", TIMEOUT, move || find_missing(&objects, commits))
        .unwrap_or_default()
}

fn find_missing(objects: &Path, commits: Vec<Oid>) -> Option<Vec<Oid>> {
    let odb = open(objects, commits.first()?)?;
    let is_missing = |oid: &Oid| {
        let id = ObjectId::from_hex(oid.hex().as_bytes());
        id.is_ok_and(|id| matches!(odb.try_find(&id, &mut Vec::new()), Ok(None)))
    };
    Some(commits.into_iter().filter(is_missing).collect())
}

/// The number of staged files that are in a commit as they are in the index; `None` without a sure
/// answer.
pub(super) fn as_committed(objects: &Path, commit: &Oid, staged: &[StagedFile]) -> Option<usize> {
    let (objects, commit, staged) = (objects.to_owned(), commit.clone(), staged.to_vec());
    patiently("looking at staged files", TIMEOUT, move || {
        count_committed(&objects, &commit, &staged)
    })
}

fn count_committed(objects: &Path, commit: &Oid, staged: &[StagedFile]) -> Option<usize> {
    let odb = open(objects, commit)?;
    let id = ObjectId::from_hex(commit.hex().as_bytes()).ok()?;
    let mut buffer = Vec::new();
    let data = odb.try_find(&id, &mut buffer).ok()??;
    if data.kind != Kind::Commit {
        return None;
    }
    let tree = CommitRefIter::from_bytes(data.data, data.object_hash).tree_id().ok()?;
    let mut tree_buffer = Vec::new();
    let data = odb.try_find(&tree, &mut tree_buffer).ok()??;
    if data.kind != Kind::Tree {
        return None;
    }
    let tree = TreeRefIter::from_bytes(data.data, data.object_hash);
    let mut count = 0;
    for file in staged {
        let mut buffer = Vec::new();
        let entry = tree.lookup_entry_by_path(&odb, &mut buffer, &file.path).ok()?;
        let committed = entry.map(|entry| entry.oid.to_string());
        count += usize::from(committed.as_deref() == file.object.as_ref().map(Oid::hex));
    }
    Some(count)
}

/// The objects of a repository whose names are as long as this one's. Large ones are refused.
pub(super) fn open(objects: &Path, like: &Oid) -> Option<gix_odb::Handle> {
    let kind = match like.hex().len() {
        40 => gix_hash::Kind::Sha1,
        _ => gix_hash::Kind::Sha256,
    };
    let options =
        gix_odb::store::init::Options { alloc_limit_bytes: Some(MAX_BYTES), ..Default::default() };
    gix_odb::at_opts(objects.to_owned(), kind, [], options).ok()
}

fn count_all(objects: &Path, pairs: &[(Oid, Oid)]) -> Option<Vec<Option<Between>>> {
    let odb = open(objects, &pairs.first()?.0)?;
    let parsed = |oid: &Oid| ObjectId::from_hex(oid.hex().as_bytes()).ok();
    let count = |(from, to): &(Oid, Oid)| walk(parsed(from)?, parsed(to)?, |id| commit(&odb, id));
    Some(pairs.iter().map(count).collect())
}

/// Time and parents of a commit.
type Commit = (i64, Vec<ObjectId>);

fn commit(odb: &impl Find, id: ObjectId) -> Option<Commit> {
    let mut buffer = Vec::new();
    let data = odb.try_find(&id, &mut buffer).ok()??;
    if data.kind != Kind::Commit {
        return None;
    }
    let time = CommitRefIter::from_bytes(data.data, data.object_hash).committer().ok()?;
    let time = time.time().ok()?.seconds;
    Some((time, CommitRefIter::from_bytes(data.data, data.object_hash).parent_ids().collect()))
}

const OF_OLD: u8 = 1;
const OF_NEW: u8 = 2;
const OF_BOTH: u8 = OF_OLD | OF_NEW;

/// Goes back from both, the newest commit first, until all that is left to look at is reached by
/// both.
fn walk(
    old: ObjectId,
    new: ObjectId,
    mut read: impl FnMut(ObjectId) -> Option<Commit>,
) -> Option<Between> {
    let mut marks: HashMap<ObjectId, u8> = HashMap::new();
    let mut known: HashMap<ObjectId, Commit> = HashMap::new();
    let mut pending: BinaryHeap<(i64, ObjectId)> = BinaryHeap::new();
    let mut to_mark = vec![(old, OF_OLD), (new, OF_NEW)];
    let mut is_partial = false;
    loop {
        while let Some((id, mark)) = to_mark.pop() {
            let marked = marks.entry(id).or_default();
            let before = *marked;
            *marked |= mark;
            let is_of_both = *marked == OF_BOTH;
            if *marked == before {
                continue;
            }
            let time = match known.get(&id) {
                Some((time, _)) => *time,
                None if known.len() >= MAX_COMMITS => {
                    is_partial = true;
                    continue;
                }
                None => match read(id) {
                    Some(commit) => known.entry(id).or_insert(commit).0,
                    // The history of a shallow clone ends somewhere.
                    None if is_of_both => continue,
                    None => return None,
                },
            };
            pending.push((time, id));
        }
        if is_partial || pending.iter().all(|(_, id)| marks.get(id) == Some(&OF_BOTH)) {
            break;
        }
        let Some((_, id)) = pending.pop() else { break };
        let mark = marks.get(&id).copied()?;
        to_mark.extend(known.get(&id)?.1.iter().map(|parent| (*parent, mark)));
    }
    // Commits of one second, or of clocks that disagree, may have been looked at in another order:
    // what lies behind one of both is of both.
    let mut of_both: Vec<ObjectId> =
        marks.iter().filter(|(_, mark)| **mark == OF_BOTH).map(|(id, _)| *id).collect();
    while let Some(id) = of_both.pop() {
        for parent in known.get(&id).map_or(&[][..], |(_, parents)| parents) {
            if let Some(mark) = marks.get_mut(parent).filter(|mark| **mark != OF_BOTH) {
                *mark = OF_BOTH;
                of_both.push(*parent);
            }
        }
    }
    let count = |mark| marks.values().filter(|found| **found == mark).count();
    Some(Between { added: count(OF_NEW), gone: count(OF_OLD), is_partial })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> ObjectId {
        ObjectId::from_bytes_or_panic(&[number; 20])
    }

    /// Commits as (number, parents); a higher number is later.
    fn between(old: u8, new: u8, history: &[(u8, &[u8])]) -> Option<(usize, usize)> {
        let read = |wanted: ObjectId| {
            let (number, parents) = history.iter().find(|(number, _)| id(*number) == wanted)?;
            Some((i64::from(*number), parents.iter().map(|parent| id(*parent)).collect()))
        };
        walk(id(old), id(new), read).map(|found| (found.added, found.gone))
    }

    #[test]
    fn commits_that_one_side_alone_reaches_are_counted() {
        let straight: &[(u8, &[u8])] = &[(1, &[]), (2, &[1]), (3, &[2]), (4, &[3])];
        assert_eq!(between(2, 4, straight), Some((2, 0)));
        assert_eq!(between(4, 1, straight), Some((0, 3)));
        assert_eq!(between(3, 3, straight), Some((0, 0)));
        let forked: &[(u8, &[u8])] = &[(1, &[]), (2, &[1]), (3, &[1]), (4, &[3]), (5, &[4, 2])];
        assert_eq!(between(2, 4, forked), Some((2, 1)));
        assert_eq!(between(2, 5, forked), Some((3, 0)));
    }

    #[test]
    fn commits_of_one_second_are_told_apart_whatever_their_names_are() {
        for names in [[1, 2, 3, 4], [4, 3, 2, 1], [2, 1, 4, 3], [3, 4, 1, 2], [2, 4, 3, 1]] {
            let read = |wanted: ObjectId| {
                let at = names.iter().position(|name| id(*name) == wanted)?;
                let parents = at.checked_sub(1).map(|before| id(names[before]));
                Some((7, parents.into_iter().collect()))
            };
            let walk = |old: usize, new: usize| {
                let found = walk(id(names[old]), id(names[new]), read).unwrap();
                (found.added, found.gone)
            };
            assert_eq!((walk(3, 2), walk(3, 0), walk(1, 3)), ((0, 1), (0, 3), (2, 0)), "{names:?}");
        }
    }

    #[test]
    fn what_is_missing_matters_only_where_it_is_needed() {
        let shallow: &[(u8, &[u8])] = &[(2, &[1]), (3, &[2]), (5, &[9])];
        assert_eq!(between(2, 3, shallow), Some((1, 0)));
        assert_eq!(between(2, 5, shallow), None);
        assert_eq!(between(2, 7, shallow), None);
    }

    #[test]
    fn an_endless_history_ends_with_a_part() {
        let read = |wanted: ObjectId| {
            let number = u64::from_be_bytes(wanted.as_bytes()[..8].try_into().ok()?);
            let mut next = [0; 20];
            next[..8].copy_from_slice(&(number + 1).to_be_bytes());
            Some((-i64::try_from(number).ok()?, vec![ObjectId::from_bytes_or_panic(&next)]))
        };
        let mut first = [0; 20];
        first[19] = 1;
        let found = walk(id(0xf0 >> 4), ObjectId::from_bytes_or_panic(&first), read).unwrap();
        assert!(found.is_partial && found.added <= MAX_COMMITS);
    }
}
