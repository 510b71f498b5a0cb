//! Commits that were made in a fork: they arrive in the real repository as branches.
//!
//! The commit of the fork's HEAD becomes the branch `fork/NAME`, other changed branches become
//! `fork/NAME.BRANCH`. HEAD, the index and the user's own branches stay as they are.
//!
//! No git runs: its configuration is part of what an agent may have written, and can name programs.
//! Only files of the fork that hold objects are read, out of a snapshot. Each object is hashed
//! before it is written, and written after the objects that it names. So an interrupted copy leaves
//! a repository in which nothing is missing. The branch comes last, with an entry in its reflog.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Find, Kind, TagRefIter, TreeRefIter, Write};
use gix_ref::transaction::{PreviousValue, RefEdit};
use serde::Serialize;

use crate::cli::error::CliError;
use crate::cli::scratch::Scratch;
use nono_engine::diff::{self, Difference};
use nono_engine::git::{self, GitState, Head, Oid};
use nono_engine::path_text::{Shown, serde_path};
use nono_engine::restore::{CopyOptions, Selection};
use nono_engine::snapshot::{SnapshotManager, SnapshotManifest};
use nono_engine::sys::{self, Dir, FileKind};

/// Largest object that is read into memory.
const MAX_OBJECT_BYTES: usize = 1 << 30;
/// Maximum number of commits between an old state of a branch and a new one.
const MAX_COMMITS: usize = 100_000;
const BRANCHES: &str = "refs/heads/";
/// The beginning of the names of copies.
const COPY: &str = "objects-";

/// A branch that arrives, or would.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Branch {
    /// The git directory of the real repository.
    #[serde(with = "serde_path")]
    pub(super) git_dir: PathBuf,
    /// Its name there, `fork/NAME`.
    pub(super) branch: String,
    /// Its commit.
    pub(super) commit: Oid,
    /// Why it does not arrive, as a sentence for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<String>,
}

/// The branches with commits that a fork made since the state that it began with, in the
/// repositories that were there then. `manager`: of the fork's session, which has both states.
///
/// # Errors
/// A tree or a file of a state is missing or damaged.
pub(super) fn branches(
    manager: &SnapshotManager,
    base: &SnapshotManifest,
    theirs: &SnapshotManifest,
    fork: &str,
) -> Result<Vec<Branch>, CliError> {
    let (old_root, new_root) = (&base.merkle_root, &theirs.merkle_root);
    let mut changed = Vec::new();
    for difference in diff::differences(manager.store(), old_root, new_root)? {
        let path = difference?.path;
        if path.split(|byte| *byte == b'/').any(|name| name == b".git") {
            changed.push(path);
        }
    }
    let repositories = git::repositories(manager.store(), old_root, new_root, &changed)?;
    let mut found = Vec::new();
    for repository in repositories.into_iter().filter(|it| !it.is_new && !it.is_gone) {
        let git_dir = repository.git_dir;
        let state = |root| GitState::in_snapshot(manager.store(), root, &git_dir);
        let (Some(old), Some(new)) = (state(old_root)?, state(new_root)?) else { continue };
        for (branch, commit) in tips(&old, &new, fork) {
            found.push(Branch { git_dir: git_dir.clone(), branch, commit, left: None });
        }
    }
    Ok(found)
}

/// The names and commits of branches that a fork changed, between two states of a repository.
fn tips(old: &GitState, new: &GitState, fork: &str) -> BTreeMap<String, Oid> {
    let known: HashSet<&Oid> = old.refs.values().chain(old.commit()).collect();
    let checked_out = match &new.head {
        Some(Head::Ref(name)) => Some(name.as_str()),
        _ => None,
    };
    let own = format!("fork/{fork}");
    let head = new.commit().filter(|commit| !known.contains(commit));
    let mut found: BTreeMap<String, Oid> =
        head.map(|commit| (own.clone(), commit.clone())).into_iter().collect();
    for (name, commit) in &new.refs {
        let Some(branch) = name.strip_prefix(BRANCHES) else { continue };
        let is_head = checked_out == Some(name) || Some(commit) == head;
        if !is_head && !known.contains(commit) {
            found.insert(format!("{own}.{branch}"), commit.clone());
        }
    }
    // A linked work tree has its HEAD elsewhere.
    if found.len() == 1
        && let Some((_, commit)) = found.pop_first()
    {
        found.insert(own, commit);
    }
    found
}

/// The paths in real repositories that this program made: files, and directories with all in them.
#[derive(Debug, Default)]
pub(super) struct Made(Vec<PathBuf>);

impl Made {
    /// Notes a path that is about to be made: the outermost directory that is missing, or itself.
    fn note(&mut self, path: PathBuf) {
        let missing = |path: &&Path| matches!(sys::kind_of(path), Ok(None));
        let outermost = path.ancestors().take_while(missing).last();
        self.0.push(outermost.unwrap_or(&path).to_owned());
    }

    /// The paths that are there, none inside another.
    fn finish(mut self) -> Vec<PathBuf> {
        self.0.retain(|path| matches!(sys::kind_of(path), Ok(Some(_))));
        self.0.sort();
        self.0.dedup();
        let mut outermost: Vec<PathBuf> = Vec::new();
        for path in self.0 {
            if !outermost.last().is_some_and(|above| path.starts_with(above)) {
                outermost.push(path);
            }
        }
        outermost
    }
}

/// Copies the commits of branches into the real repositories, and makes the branches. One that
/// cannot be made is named in `left`. Returns the paths that were made.
///
/// # Errors
/// The state of the fork cannot be read, or there is no place for its objects.
pub(super) fn arrive(
    branches: &mut [Branch],
    manager: &SnapshotManager,
    base: &SnapshotManifest,
    theirs: &SnapshotManifest,
) -> Result<Vec<PathBuf>, CliError> {
    let mut copied: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    if branches.is_empty() {
        return Ok(Vec::new());
    }
    let mut made = Made::default();
    let scratch = Scratch::temporary()?;
    for branch in branches {
        let objects = match copied.get(&branch.git_dir) {
            Some(objects) => objects.clone(),
            None => {
                let to = scratch.path().join(format!("{COPY}{}", copied.len()));
                let objects = copy_objects(manager, base, theirs, &branch.git_dir, &to)?;
                copied.entry(branch.git_dir.clone()).or_insert(objects).clone()
            }
        };
        branch.left = make(branch, &objects, &mut made).err().map(|error| error.to_string());
    }
    // These copies are not of a command, so nothing looks for them.
    let dir = Dir::open(scratch.path())?;
    (0..copied.len()).try_for_each(|number| {
        match dir.remove_dir_all(format!("{COPY}{number}").as_bytes()) {
            Err(error) if error.is_gone() => Ok(()),
            removed => removed,
        }
    })?;
    Ok(made.finish())
}

/// Copies the files with objects that a fork made out of its snapshot, and returns their directory.
fn copy_objects(
    manager: &SnapshotManager,
    base: &SnapshotManifest,
    theirs: &SnapshotManifest,
    git_dir: &Path,
    to: &Path,
) -> Result<PathBuf, CliError> {
    let objects = git_dir.join("objects");
    let mut exactly = Vec::new();
    for difference in diff::differences(manager.store(), &base.merkle_root, &theirs.merkle_root)? {
        let Difference { path, new, .. } = difference?;
        let path = PathBuf::from(OsStr::from_bytes(&path));
        let is_object = path.strip_prefix(&objects).is_ok_and(holds_objects);
        if is_object && new.is_some_and(|state| state.bytes() > 0) {
            exactly.push(path);
        }
    }
    // Each path lies there below its whole name.
    let top = Path::new("/");
    let copy = to.join(objects.strip_prefix(top).unwrap_or(&objects));
    sys::create_private_dir(&copy)?;
    if exactly.is_empty() {
        return Ok(copy);
    }
    let selection = Selection { exactly, ..Selection::default() };
    let options = CopyOptions { selection, base: Some(top.to_owned()), ..CopyOptions::default() };
    manager.copy_out(theirs.number, to, &options)?;
    Ok(copy)
}

/// Lets a question be asked about the objects of the state of a fork: those that it made, and those
/// of the real repository.
///
/// # Errors
/// The state cannot be read, or there is no place for a copy.
pub(super) fn with_objects<T>(
    manager: &SnapshotManager,
    base: &SnapshotManifest,
    theirs: &SnapshotManifest,
    git_dir: &Path,
    ask: impl FnOnce(&Path) -> T,
) -> Result<T, CliError> {
    let scratch = Scratch::temporary()?;
    let to = scratch.path().join(format!("{COPY}0"));
    let objects = copy_objects(manager, base, theirs, git_dir, &to)?;
    let info = objects.join("info");
    sys::create_private_dir(&info)?;
    let real = [git_dir.join("objects").as_os_str().as_bytes(), b"\n"].concat();
    Dir::open(&info)?.replace_file(b"alternates", &real, 0o600, false)?;
    let answer = ask(&objects);
    Dir::open(scratch.path())?.remove_dir_all(format!("{COPY}0").as_bytes())?;
    Ok(answer)
}

/// Whether a file below `objects` holds objects, by its name. Lists of other places are none.
fn holds_objects(inside: &Path) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some((directory, name)) = inside.to_str().and_then(|text| text.split_once('/')) else {
        return false;
    };
    match directory {
        "pack" => name
            .strip_prefix("pack-")
            .and_then(|it| it.split_once('.'))
            .is_some_and(|(hash, kind)| is_hex(hash) && matches!(kind, "pack" | "idx")),
        _ => directory.len() == 2 && is_hex(directory) && is_hex(name),
    }
}

/// Copies what a branch reaches, and makes it.
fn make(branch: &Branch, fork_objects: &Path, made: &mut Made) -> Result<(), CliError> {
    let git_dir = &branch.git_dir;
    refuse_symlinks(git_dir, &["objects"])?;
    let name = format!("{BRANCHES}{}", branch.branch);
    for above in [Path::new(&name), &Path::new("logs").join(&name)] {
        let names: Vec<&str> = above.iter().filter_map(OsStr::to_str).collect();
        refuse_symlinks(git_dir, &names)?;
    }
    if Dir::open(git_dir)?.try_stat(b"reftable")?.is_some() {
        return Err(CliError::failed("its refs are in reftables, which nono does not write"));
    }
    let repository = Objects::open(&git_dir.join("objects"), &branch.commit)?;
    let tip = repository.id(&branch.commit)?;
    let fork = Objects::open(fork_objects, &branch.commit)?;
    repository.take(tip, &fork, made)?;
    let references = gix_ref::file::Store::at(git_dir.clone(), repository.kind);
    let full = gix_ref::FullName::try_from(name.as_str())
        .map_err(|error| failed(&name, "is no name of a branch", &error))?;
    let is_checked_out = references
        .try_find_loose("HEAD")
        .ok()
        .flatten()
        .is_some_and(|head| head.target == gix_ref::Target::Symbolic(full.clone()));
    if is_checked_out {
        let reason = format!("{} is checked out: check out another branch first", branch.branch);
        return Err(CliError::failed(reason));
    }
    let known = references
        .try_find(full.as_ref())
        .map_err(|error| failed(&name, "cannot be read", &error))?
        .map(|known| known.target);
    let repository = Objects::open(&git_dir.join("objects"), &branch.commit)?;
    let expected = match known {
        None => PreviousValue::MustNotExist,
        Some(target) if target.try_id() == Some(tip.as_ref()) => return Ok(()),
        Some(target) => {
            let is_older = target.try_id().is_some_and(|old| repository.reaches(tip, old.into()));
            if !is_older {
                let reason = format!(
                    "branch {} has commits that the fork does not have: rename it first",
                    branch.branch
                );
                return Err(CliError::failed(reason));
            }
            PreviousValue::MustExistAndMatch(target)
        }
    };
    let commit = repository.read(tip)?;
    let mut committer = CommitRefIter::from_bytes(&commit.1, repository.kind)
        .committer()
        .map_err(|error| failed(&branch.commit.hex(), "names no committer", &error))?;
    let now = format!("{} +0000", jiff::Timestamp::now().as_second());
    committer.time = &now;
    made.note(git_dir.join(&name));
    made.note(git_dir.join("logs").join(&name));
    let edit = RefEdit::update(full, tip, expected, "nono fork merge");
    references
        .transaction()
        .prepare([edit], Default::default(), Default::default())
        .and_then(|prepared| prepared.commit(committer))
        .map_err(|error| failed(&name, "cannot be written", &error))?;
    Ok(())
}

/// An error with its causes: those of git's files often say the most.
fn failed(what: &dyn Display, why: &str, error: &dyn Error) -> CliError {
    let mut said = format!("{what} {why}");
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        cause = error.source();
    }
    CliError::failed(said)
}

/// Refuses a way through a symlink: it may lead anywhere. A missing part is made later.
fn refuse_symlinks(git_dir: &Path, names: &[&str]) -> Result<(), CliError> {
    let mut path = git_dir.to_owned();
    for name in names {
        path.push(name);
        match sys::kind_of(&path)? {
            None => return Ok(()),
            Some(FileKind::Symlink) => {
                let reason = format!("{} is a symlink", Shown::path(&path));
                return Err(CliError::failed(reason));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The objects of a repository.
struct Objects {
    path: PathBuf,
    kind: gix_hash::Kind,
    known: gix_odb::Handle,
}

/// The kind and the bytes of an object.
type Object = (Kind, Vec<u8>);

impl Objects {
    fn open(path: &Path, like: &Oid) -> Result<Self, CliError> {
        let kind = match like.hex().len() {
            40 => gix_hash::Kind::Sha1,
            _ => gix_hash::Kind::Sha256,
        };
        let options = gix_odb::store::init::Options {
            alloc_limit_bytes: Some(MAX_OBJECT_BYTES),
            ..Default::default()
        };
        let known = gix_odb::at_opts(path.to_owned(), kind, [], options)
            .map_err(|error| failed(&Shown::path(path), "cannot be read", &error))?;
        Ok(Self { path: path.to_owned(), kind, known })
    }

    fn id(&self, oid: &Oid) -> Result<ObjectId, CliError> {
        ObjectId::from_hex(oid.hex().as_bytes())
            .map_err(|error| failed(&oid.hex(), "is no name of an object", &error))
    }

    fn has(&self, id: ObjectId) -> bool {
        gix_object::Exists::exists(&self.known, &id)
    }

    /// An object, unless it is missing or its bytes are others.
    fn read(&self, id: ObjectId) -> Result<Object, CliError> {
        let mut buffer = Vec::new();
        let found = self
            .known
            .try_find(&id, &mut buffer)
            .map_err(|error| failed(&id, "cannot be read", &error))?;
        let Some(data) = found else {
            return Err(CliError::failed(format!("object {id} is missing in the fork")));
        };
        let (kind, bytes) = (data.kind, data.data.to_vec());
        let hash = gix_object::compute_hash(self.kind, kind, &bytes)
            .map_err(|error| failed(&id, "cannot be hashed", &error))?;
        match hash == id {
            true => Ok((kind, bytes)),
            false => Err(CliError::failed(format!("object {id} of the fork has other bytes"))),
        }
    }

    /// The objects that an object names. A submodule's commit is in another repository.
    fn named(&self, id: ObjectId, (kind, bytes): &Object) -> Result<Vec<ObjectId>, CliError> {
        let damaged = |error: &dyn Error| failed(&id, "is damaged", error);
        Ok(match kind {
            Kind::Blob => Vec::new(),
            Kind::Commit => {
                let mut commit = CommitRefIter::from_bytes(bytes, self.kind);
                let tree = commit.tree_id().map_err(|error| damaged(&error))?;
                let parents = CommitRefIter::from_bytes(bytes, self.kind).parent_ids();
                [tree].into_iter().chain(parents).collect()
            }
            Kind::Tag => {
                let target = TagRefIter::from_bytes(bytes, self.kind).target_id();
                vec![target.map_err(|error| damaged(&error))?]
            }
            Kind::Tree => {
                let mut named = Vec::new();
                for entry in TreeRefIter::from_bytes(bytes, self.kind) {
                    let entry = entry.map_err(|error| damaged(&error))?;
                    if !entry.mode.is_commit() {
                        named.push(entry.oid.to_owned());
                    }
                }
                named
            }
        })
    }

    /// Takes what an object reaches from another repository, as far as it is not here.
    fn take(&self, tip: ObjectId, from: &Self, made: &mut Made) -> Result<(), CliError> {
        let writer = gix_odb::loose::Store::at(self.path.clone(), self.kind);
        let mut seen: HashSet<ObjectId> = HashSet::new();
        // An object is written when all that it names is.
        let mut pending = vec![(tip, false)];
        while let Some((id, is_complete)) = pending.pop() {
            if !is_complete && (!seen.insert(id) || self.has(id)) {
                continue;
            }
            let object = from.read(id)?;
            if !is_complete {
                pending.push((id, true));
                let named = from.named(id, &object)?;
                pending.extend(named.into_iter().map(|id| (id, false)));
                continue;
            }
            let fan_out = id.to_hex().to_string();
            refuse_symlinks(&self.path, &[&fan_out[..2]])?;
            made.note(self.path.join(&fan_out[..2]).join(&fan_out[2..]));
            let (kind, bytes) = object;
            writer
                .write_buf(kind, &bytes)
                .map_err(|error| failed(&id, "cannot be written", &error))?;
        }
        Ok(())
    }

    /// Whether a commit has another one among its ancestors.
    fn reaches(&self, from: ObjectId, older: ObjectId) -> bool {
        let mut seen = HashSet::from([from]);
        let mut pending = vec![from];
        while let Some(id) = pending.pop() {
            if id == older {
                return true;
            }
            let Ok((Kind::Commit, bytes)) = self.read(id) else { return false };
            for parent in CommitRefIter::from_bytes(&bytes, self.kind).parent_ids() {
                if seen.len() < MAX_COMMITS && seen.insert(parent) {
                    pending.push(parent);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_objects_are_taken() {
        for (name, is_meant) in [
            ("ab/cdef0123", true),
            ("pack/pack-0a1b.pack", true),
            ("pack/pack-0a1b.idx", true),
            ("pack/pack-0a1b.keep", false),
            ("pack/tmp_pack_x", false),
            ("info/alternates", false),
            ("ab/cd/ef", false),
            ("abc/def", false),
            ("xy/cdef", false),
        ] {
            assert_eq!(holds_objects(Path::new(name)), is_meant, "{name}");
        }
    }

    fn oid(digit: char) -> Oid {
        Oid::from_hex(digit.to_string().repeat(40).as_bytes()).unwrap()
    }

    fn state(head: &str, refs: &[(&str, char)]) -> GitState {
        let refs = refs.iter().map(|(name, digit)| (format!("{BRANCHES}{name}"), oid(*digit)));
        let head = Some(Head::Ref(format!("{BRANCHES}{head}")));
        GitState { head, refs: refs.collect(), ..GitState::default() }
    }

    #[test]
    fn new_commits_get_branches_of_the_fork_and_known_ones_do_not() {
        let old = state("main", &[("main", 'a'), ("other", 'b')]);
        let names = |new: &GitState| {
            let tips = tips(&old, new, "x").into_iter();
            tips.map(|(name, commit)| (name, commit.hex()[..1].to_owned())).collect::<Vec<_>>()
        };
        let named = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(names(&old), named(&[]));
        let checked_out = state("other", &[("main", 'a'), ("other", 'b')]);
        assert_eq!(names(&checked_out), named(&[]), "another branch is no commit");
        let made = state("main", &[("main", 'c'), ("other", 'b')]);
        assert_eq!(names(&made), named(&[("fork/x", "c")]));
        let elsewhere = state("main", &[("main", 'a'), ("other", 'c')]);
        assert_eq!(names(&elsewhere), named(&[("fork/x", "c")]));
        let both = state("new", &[("main", 'a'), ("other", 'd'), ("new", 'c')]);
        assert_eq!(names(&both), named(&[("fork/x", "c"), ("fork/x.other", "d")]));
    }
}
