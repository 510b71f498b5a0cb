//! The commits that wrote the lines of a file, read from the objects of its repository.
//!
//! A line belongs to the last commit of which no parent has it. Lines go from a commit to its
//! parents, the newest commit first, as `git blame` does it. The path stays the same: a rename ends
//! the walk, and the commit that renamed the file has its lines.
//!
//! The objects are hostile, as for [`commits`]: a thread with a limit of time reads them, nothing
//! large is loaded, and no program is run. Lines whose commit is not found in time have none.

use std::collections::{BinaryHeap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Find, Kind, TreeRefIter};
use jiff::Timestamp;

use super::commits;
use nono_engine::git::{GitState, Head, Oid, Repository};
use nono_engine::history::found_again;
use nono_engine::object::ContentHash;
use nono_engine::store::{ObjectSource, StoreError};

/// Longest walk. What it has found until then is used.
const MAX_WALK: Duration = Duration::from_secs(5);
/// Maximum wait for the thread that walks.
const TIMEOUT: Duration = Duration::from_secs(7);
/// Longest name of an author and longest subject that are kept, in bytes.
const MAX_WORDS_BYTES: usize = 256;

/// A commit that wrote lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) id: Oid,
    /// The name of its author: bytes as the author chose them.
    pub(super) author: Vec<u8>,
    /// When its author made it.
    pub(super) timestamp: Timestamp,
    /// The first line of its message.
    pub(super) subject: Vec<u8>,
}

/// The commit that was checked out in a snapshot, with the repository and the file in it.
#[derive(Debug, Clone)]
pub(super) struct CheckedOut {
    objects: PathBuf,
    commit: Oid,
    /// The file, relative to the top of the work tree.
    file: PathBuf,
}

/// Finds the commit that was checked out around a file in a snapshot with this root tree. `None`
/// where the file is in no repository, or the snapshot has none of its refs.
pub(super) fn checked_out(
    file: &Path,
    source: &dyn ObjectSource,
    root: &ContentHash,
) -> Result<Option<CheckedOut>, StoreError> {
    let found = file.ancestors().skip(1).find_map(|top| Some((top, Repository::at(top)?)));
    let Some((top, repository)) = found else { return Ok(None) };
    let git_dir = repository.git_dir();
    let Some(state) = GitState::in_snapshot(source, root, git_dir)? else { return Ok(None) };
    let head = match &repository {
        Repository::Linked(linked) => {
            GitState::in_snapshot(source, root, &linked.own)?.and_then(|own| own.head)
        }
        _ => state.head,
    };
    let commit = match head {
        Some(Head::Ref(name)) => state.refs.get(&name).cloned(),
        Some(Head::Detached(commit)) => Some(commit),
        None => None,
    };
    let relative = file.strip_prefix(top).ok().map(Path::to_owned);
    Ok(commit.zip(relative).map(|(commit, file)| CheckedOut {
        objects: git_dir.join("objects"),
        commit,
        file,
    }))
}

/// The commit of each of these lines; `None` for a line that no commit has, or none that was found
/// in time.
pub(super) fn commits_of(at: &CheckedOut, lines: &[Vec<u8>]) -> Vec<Option<Commit>> {
    let unknown = vec![None; lines.len()];
    let (at, lines) = (at.clone(), lines.to_vec());
    commits::patiently("looking for the commits of lines", TIMEOUT, move || {
        let odb = commits::open(&at.objects, &at.commit)?;
        let first = ObjectId::from_hex(at.commit.hex().as_bytes()).ok()?;
        Some(Walk::new(odb, &at.file).run(first, &lines))
    })
    .unwrap_or(unknown)
}

/// Lines of a file in a commit that wait for it to be looked at.
struct Waiting {
    blob: ObjectId,
    /// Pairs of a line that was asked about and the line of the blob that it is, both rising.
    lines: Vec<(usize, usize)>,
}

/// A walk from a commit to its parents.
struct Walk<'a, F> {
    odb: F,
    file: &'a Path,
    waiting: HashMap<ObjectId, Waiting>,
    /// Commits that wait, by the time of their committer.
    pending: BinaryHeap<(i64, ObjectId)>,
    found: Vec<Option<ObjectId>>,
}

impl<'a, F: Find> Walk<'a, F> {
    fn new(odb: F, file: &'a Path) -> Self {
        let (waiting, pending) = (HashMap::new(), BinaryHeap::new());
        Self { odb, file, waiting, pending, found: Vec::new() }
    }

    /// The commit of each line.
    fn run(mut self, first: ObjectId, lines: &[Vec<u8>]) -> Vec<Option<Commit>> {
        self.found = vec![None; lines.len()];
        if let Some((blob, text)) = self.text_in(first) {
            let kept = found_again(&text, lines).into_iter().enumerate();
            self.pass(first, blob, kept.filter_map(|(line, of)| Some((line, of?))).collect());
        }
        let deadline = Instant::now() + MAX_WALK;
        while let Some((_, id)) = self.pending.pop()
            && Instant::now() < deadline
        {
            if let Some(waiting) = self.waiting.remove(&id) {
                self.look_at(id, waiting);
            }
        }
        let mut known: HashMap<ObjectId, Option<Commit>> = HashMap::new();
        let mut commit = |id| known.entry(id).or_insert_with(|| self.commit(id)).clone();
        self.found.iter().map(|id| id.and_then(&mut commit)).collect()
    }

    /// Gives lines of a commit to the parents that have them. The rest is its own.
    fn look_at(&mut self, id: ObjectId, waiting: Waiting) {
        let Waiting { blob, mut lines } = waiting;
        let Some(parents) = self.parents(id) else { return };
        let mut text = None;
        for parent in parents {
            let Some(of_parent) = self.blob_in(parent) else { continue };
            if of_parent == blob {
                self.pass(parent, blob, std::mem::take(&mut lines));
                return;
            }
            if text.is_none() {
                text = self.text(blob);
            }
            let (Some(text), Some(old)) = (&text, self.text(of_parent)) else { return };
            let kept = found_again(&old, text);
            let old_line = |at: usize| kept.get(at).copied().flatten();
            let passed = lines.iter().filter_map(|(line, at)| Some((*line, old_line(*at)?)));
            self.pass(parent, of_parent, passed.collect());
            lines.retain(|(_, at)| old_line(*at).is_none());
        }
        for (line, _) in lines {
            self.found[line] = Some(id);
        }
    }

    /// Lets lines wait for a commit.
    fn pass(&mut self, id: ObjectId, blob: ObjectId, lines: Vec<(usize, usize)>) {
        if lines.is_empty() {
            return;
        }
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.lines.extend(lines);
            return;
        }
        let Some(time) = self.time(id) else { return };
        self.waiting.insert(id, Waiting { blob, lines });
        self.pending.push((time, id));
    }

    /// An object of this kind, decoded.
    fn read<T>(
        &self,
        id: ObjectId,
        kind: Kind,
        decode: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let mut buffer = Vec::new();
        let object = self.odb.try_find(&id, &mut buffer).ok()??;
        if object.kind != kind {
            return None;
        }
        decode(object.data)
    }

    fn time(&self, id: ObjectId) -> Option<i64> {
        self.read(id, Kind::Commit, |bytes| {
            let committer = CommitRefIter::from_bytes(bytes, id.kind()).committer().ok()?;
            Some(committer.time().ok()?.seconds)
        })
    }

    /// The parents that the repository has: a shallow clone has not all.
    fn parents(&self, id: ObjectId) -> Option<Vec<ObjectId>> {
        let parents = self.read(id, Kind::Commit, |bytes| {
            Some(CommitRefIter::from_bytes(bytes, id.kind()).parent_ids().collect::<Vec<_>>())
        })?;
        Some(parents.into_iter().filter(|parent| self.time(*parent).is_some()).collect())
    }

    /// The contents of the file in a commit, by name.
    fn blob_in(&self, commit: ObjectId) -> Option<ObjectId> {
        let tree = self.read(commit, Kind::Commit, |bytes| {
            CommitRefIter::from_bytes(bytes, commit.kind()).tree_id().ok()
        })?;
        let entry = self.read(tree, Kind::Tree, |bytes| {
            let tree = TreeRefIter::from_bytes(bytes, tree.kind());
            tree.lookup_entry_by_path(&self.odb, &mut Vec::new(), self.file).ok()?
        })?;
        entry.mode.is_blob().then_some(entry.oid)
    }

    fn text_in(&self, commit: ObjectId) -> Option<(ObjectId, Vec<Vec<u8>>)> {
        let blob = self.blob_in(commit)?;
        Some((blob, self.text(blob)?))
    }

    /// The lines of a blob, each with its end.
    fn text(&self, blob: ObjectId) -> Option<Vec<Vec<u8>>> {
        self.read(blob, Kind::Blob, |bytes| {
            Some(bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect())
        })
    }

    fn commit(&self, id: ObjectId) -> Option<Commit> {
        self.read(id, Kind::Commit, |bytes| {
            let commit = || CommitRefIter::from_bytes(bytes, id.kind());
            let author = commit().author().ok()?;
            let timestamp = Timestamp::from_second(author.time().ok()?.seconds).ok()?;
            let message = commit().message().ok()?;
            let subject = message.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let words = |text: &[u8]| text[..text.len().min(MAX_WORDS_BYTES)].to_vec();
            let (author, subject) = (words(author.name), words(subject));
            let id = Oid::from_hex(id.to_string().as_bytes())?;
            Some(Commit { id, author, timestamp, subject })
        })
    }
}
