//! A copy of a snapshot, or of a part of it, in another directory. The original paths are not
//! looked at and need not exist. No descriptor is kept for what is done: a tree may have more
//! directories than a process may open.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::RestoreError;
use super::attributes::{self, Denied};
use super::check_selection::{Present, at_another_time, check_selection, no_such_path};
use super::folding::Folding;
use super::make::make;
use super::plan::Skipped;
use super::privileges::{LEFT_OFF, without_privileges};
use super::repositories::Locks;
use super::selection::{Selected, Selection};
use super::staging::skipped;
use crate::byte_path;
use crate::diff::Lookup;
use crate::diff::{self, EntryState};
use crate::manifest::TrackedRoot;
use crate::object::{ContentHash, Node, RootEntry, RootTree};
use crate::path_text::{serde_path, serde_paths, to_path};
use crate::progress::{Stage, Uncounted};
use crate::snapshot::{SnapshotManager, SnapshotManifest, store_paths};
use crate::store::{ObjectFile, Transfer, read_root_tree, read_tree};
use crate::sys::{self, Dir, FileKind};

const OUTSIDE: &str = "it was recorded outside of the directory that this copy stands for";
const EXISTS: &str = "something is there already";
const OTHER_NAME: &str = "this file system takes its name for another one that is there";
const TRACKED: &str = "the session records this path, and a copy keeps nothing that it overwrites";

/// The treatment of a copy.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// Which paths are meant.
    pub selection: Selection,
    /// Whether existing paths are overwritten. Nothing is kept of them.
    pub overwrite: bool,
    /// Whether files of a session that an archive brought get setuid, setgid and capabilities.
    pub with_privileges: bool,
    /// The recorded directory that the copy stands for: paths below it get their place below the
    /// copy, and others are left out and named.
    pub base: Option<PathBuf>,
    /// Whether the copy may lie in the store, as that of a fork does.
    pub in_store: bool,
}

/// The paths that were copied out of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyReport {
    /// The session.
    pub session_id: String,
    /// The snapshot.
    pub snapshot: u64,
    /// Where the copy is.
    #[serde(with = "serde_path")]
    pub to: PathBuf,
    /// Files, links and pipes that were written.
    pub written_count: u64,
    /// Bytes of their contents.
    pub written_bytes: u64,
    /// Written entries that took the place of something, of which nothing is kept.
    pub overwritten_count: u64,
    /// The paths that are not in the copy, or not as recorded, and why; as they are in the copy.
    pub skipped: Vec<Skipped>,
    /// The owners that only root could have set. They do not make a copy incomplete.
    pub owners_left: OwnersLeft,
    /// Files that kept changing while the snapshot read them: each copy is what was read, which may
    /// be a state that the file never had. Paths are those of the copy.
    #[serde(with = "serde_paths")]
    pub unstable: Vec<PathBuf>,
}

/// The recorded owners that a copy does not have: its user is in their place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnersLeft {
    /// The number of paths of the copy.
    pub path_count: u64,
    /// Their recorded owners, each once.
    pub owners: BTreeSet<Owner>,
}

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// A directory of the copy that was made, or is overwritten, with what it gets when all is in it.
struct Made {
    /// Its path in the copy.
    name: Vec<u8>,
    state: EntryState,
}

/// The tracked path that is this path or lies above it.
fn tracked_around<'a>(path: &Path, roots: &'a [TrackedRoot]) -> Option<&'a Path> {
    roots.iter().map(|root| root.path.as_path()).find(|root| path.starts_with(root))
}

/// The name that a tracked path has in a copy; `None` where it is not below the base.
pub(super) fn name_in_copy(
    entry: &RootEntry,
    is_single: bool,
    base: Option<&Path>,
) -> Option<Vec<u8>> {
    let path = &*entry.path;
    Some(match (&entry.node, is_single, base) {
        (_, _, Some(base)) => byte_path::relative_to(path, base.as_os_str().as_bytes())?.to_vec(),
        (Node::Directory { .. }, true, None) => Vec::new(),
        (_, true, None) => byte_path::split(path).1.to_vec(),
        _ => path[1..].to_vec(),
    })
}

struct CopyOut<'a> {
    manager: &'a SnapshotManager,
    top: Rc<Dir>,
    /// Where `top` really is.
    real: PathBuf,
    overwrite: bool,
    is_root: bool,
    /// Whether setuid, setgid and capabilities are left off.
    drops_privileges: bool,
    /// The group of hard links that a path is in, and the name in the copy that each has first.
    links: HashMap<Vec<u8>, usize>,
    linked: HashMap<usize, (Vec<u8>, EntryState)>,
    made: Vec<Made>,
    made_names: HashSet<Vec<u8>>,
    /// The directory of the last file, with its path in the copy: the next is mostly in it too.
    last: Option<(Vec<u8>, Rc<Dir>)>,
    /// Paths of the snapshot that kept changing while it read them.
    unstable: HashSet<&'a [u8]>,
    report: CopyReport,
    buffer: Vec<u8>,
    /// A name that no other program uses.
    temporary: Vec<u8>,
    folding: Folding,
}

impl SnapshotManager {
    /// Writes the selected paths of a snapshot below `to`, which is made if it is missing. With one
    /// tracked directory its contents stand right in `to`, else whole paths do. Existing paths
    /// stay, unless they are to be overwritten; an existing directory gets more in it, and then the
    /// attributes of the snapshot, if it is selected. Nothing is kept of what is overwritten, so
    /// that is refused in a tracked path.
    ///
    /// # Errors
    /// [`RestoreError`]; the paths that are copied by then stay ([`RestoreError::CopyUnfinished`]).
    pub fn copy_out(
        &self,
        number: u64,
        to: &Path,
        options: &CopyOptions,
    ) -> Result<CopyReport, RestoreError> {
        let CopyOptions { selection, overwrite, with_privileges, base, in_store } = options;
        let overwrite = *overwrite;
        let real = sys::real_or_future_path(to);
        let stores = store_paths(self.session().path());
        let inside = stores.into_iter().find(|store| real.starts_with(store));
        if let Some(store) = inside.filter(|_| !in_store) {
            return Err(RestoreError::CopyIntoStore { to: to.to_owned(), store });
        }
        let _store_lock = self.lock_store_for_reading()?;
        let manifest = &self.states(number)?.target.manifest;
        if let Some(tracked) = tracked_around(&real, &manifest.roots).filter(|_| overwrite) {
            let (to, tracked) = (to.to_owned(), tracked.to_owned());
            return Err(RestoreError::CopyOverProject { to, tracked });
        }
        let present = Present::new(self.store(), &[&manifest.merkle_root])?;
        let mut exists = |path: &[u8]| present.has(path);
        let selected = Selected::new(selection, &manifest.roots, &mut exists)?;
        check_selection(&present, &selected, manifest)?;
        let root = read_root_tree(self.store(), &manifest.merkle_root)?;
        sys::create_private_dir(to)?;
        let groups = diff::links_of(self.store(), &manifest.merkle_root)?;
        let links = groups.groups().iter().enumerate();
        let mut copy = CopyOut {
            manager: self,
            top: Rc::new(Dir::open(to)?),
            real,
            overwrite,
            is_root: sys::effective_uid() == 0,
            drops_privileges: !with_privileges && self.is_foreign(number)?,
            links: links.flat_map(|(i, g)| g.iter().map(move |p| (p.to_vec(), i))).collect(),
            linked: HashMap::new(),
            made: Vec::new(),
            made_names: HashSet::new(),
            last: None,
            unstable: manifest.unstable.iter().map(|path| path.as_os_str().as_bytes()).collect(),
            report: CopyReport {
                session_id: self.session().id(),
                snapshot: number,
                to: to.to_owned(),
                written_count: 0,
                overwritten_count: 0,
                written_bytes: 0,
                skipped: Vec::new(),
                owners_left: OwnersLeft::default(),
                unstable: Vec::new(),
            },
            buffer: Vec::new(),
            temporary: format!(".nono-copy-{}", hex::encode(&sys::random_bytes()?[..8])).into(),
            folding: Folding::default(),
        };
        match self.copy_entries(manifest, root, &selected, base.as_deref(), &mut copy) {
            Ok(()) => copy.finish(),
            Err(RestoreError::Cancelled) => {
                let (to, written) = (to.to_owned(), copy.report.written_count);
                Err(RestoreError::CopyCancelled { to, written })
            }
            Err(cause) if copy.report.written_count == 0 => Err(cause),
            Err(cause) => Err(copy.unfinished(cause)),
        }
    }

    fn copy_entries(
        &self,
        manifest: &SnapshotManifest,
        root: RootTree,
        selected: &Selected<'_>,
        base: Option<&Path>,
        copy: &mut CopyOut<'_>,
    ) -> Result<(), RestoreError> {
        let single = root.entries.len() == 1;
        let whole = root.clone();
        let mut locks = Locks::new(self.store(), manifest, &whole);
        let mut pending: Vec<(Vec<u8>, Vec<u8>, EntryState)> = Vec::new();
        for entry in root.entries {
            let Some(name) = name_in_copy(&entry, single, base) else {
                if selected.contains(&entry.path) {
                    copy.skip(&entry.path[1..], OUTSIDE);
                }
                continue;
            };
            let state = EntryState { attributes: entry.attributes, node: entry.node };
            pending.push((entry.path.into_vec(), name, state));
        }
        let expected = selected.is_all().then(|| manifest.totals.expected());
        self.progress().begin(Stage::Copy, expected);
        // Not recursive: a tree may be deeper than a stack.
        while let Some((path, name, state)) = pending.pop() {
            if self.progress().is_cancelled() {
                return Err(RestoreError::Cancelled);
            }
            if let Node::Directory { tree } = state.node {
                // An empty directory is copied for itself, others with what is in them.
                if selected.contains(&path)
                    && let Some(dir) = copy.directory(manifest, &path, &name)?
                {
                    copy.overwrite_directory(&dir, &name, &state)?;
                }
                for entry in read_tree(self.store(), &tree)?.into_entries() {
                    let state = EntryState { attributes: entry.attributes, node: entry.node };
                    pending.push((
                        byte_path::join(&path, &entry.name),
                        byte_path::join(&name, &entry.name),
                        state,
                    ));
                }
            } else if selected.contains(&path) && !locks.has(&path)? {
                copy.leaf(manifest, &path, &name, &state)?;
            }
        }
        Ok(())
    }

    /// Finds one file of a snapshot, its bytes checked.
    ///
    /// # Errors
    /// When it is not in the snapshot, is no file, or its object is damaged.
    pub fn open_file_of(&self, number: u64, path: &Path) -> Result<ObjectFile, RestoreError> {
        let manifest = &self.states(number)?.target.manifest;
        let selection = Selection { paths: vec![path.to_owned()], ..Selection::default() };
        // One file is meant, so whatever is in its name is no pattern.
        let selected = Selected::new(&selection, &manifest.roots, &mut |_| Ok(true))?;
        let root = read_root_tree(self.store(), &manifest.merkle_root)?;
        let mut lookup = Lookup::new(self.store(), &root);
        for path in selected.named().flatten() {
            let Some(state) = lookup.find(path)? else { continue };
            let Node::File { hash, size, .. } = state.node else {
                return Err(RestoreError::NotAFile {
                    path: to_path(path).to_owned(),
                    kind: state.node.kind_name(),
                });
            };
            return self.checked_object(&hash, size);
        }
        Err(match no_such_path(path, manifest) {
            RestoreError::NoSuchPath { path, snapshot } => {
                let forms: Vec<&Vec<u8>> = selected.named().flatten().collect();
                at_another_time(self, path, snapshot, &forms)?
            }
            other => other,
        })
    }

    fn checked_object(&self, hash: &ContentHash, size: u64) -> Result<ObjectFile, RestoreError> {
        let progress = Uncounted(self.progress());
        Ok(self.store().open_intact(hash, size, &mut Transfer::new(&mut Vec::new(), &progress))?)
    }
}

impl CopyOut<'_> {
    fn skip(&mut self, name: &[u8], reason: &str) {
        let path = self.report.to.join(to_path(name));
        self.report.skipped.push(Skipped { path, reason: reason.to_owned() });
    }

    /// Notes what a path of the copy did not get. A copy belongs to its user, so only root finds an
    /// owner missing.
    fn note_denied(&mut self, path: &Path, mut denied: Vec<Denied>) {
        if !self.is_root {
            let left = &mut self.report.owners_left;
            let count = denied.len();
            denied.retain(|denied| match *denied {
                Denied::Owner { uid, gid } => {
                    left.owners.insert(Owner { uid, gid });
                    false
                }
                Denied::Other(_) => true,
            });
            left.path_count += u64::from(denied.len() < count);
        }
        self.report.skipped.extend(skipped(path.as_os_str().as_bytes(), denied));
    }

    /// The directory of the copy for a directory of the snapshot, made with those above it as
    /// needed. `None` when something else is in the way.
    fn directory(
        &mut self,
        manifest: &SnapshotManifest,
        path: &[u8],
        name: &[u8],
    ) -> Result<Option<Rc<Dir>>, RestoreError> {
        if let Some((_, dir)) = self.last.as_ref().filter(|(last, _)| last == name) {
            return Ok(Some(Rc::clone(dir)));
        }
        let mut dir = Rc::clone(&self.top);
        let root = read_root_tree(self.manager.store(), &manifest.merkle_root)?;
        let mut lookup = Lookup::new(self.manager.store(), &root);
        let components: Vec<&[u8]> = byte_path::components(name).collect();
        // The copy's name is the end of the original path.
        let base_len = path.len() - name.len();
        let mut end = base_len;
        for (index, component) in components.iter().enumerate() {
            end += component.len() + usize::from(index > 0);
            match dir.try_stat(component)? {
                Some(stat) if stat.kind == FileKind::Directory => {
                    let above = components[..index].join(&b'/');
                    if self.folding.is_of_other(&dir, &above, component)? {
                        self.skip(name, OTHER_NAME);
                        return Ok(None);
                    }
                    dir = Rc::new(dir.open_dir(component)?);
                    continue;
                }
                Some(_) => {
                    self.skip(name, EXISTS);
                    return Ok(None);
                }
                None => {}
            }
            dir.make_dir(component, 0o700)?;
            self.folding.made(&components[..index].join(&b'/'), component);
            let parent = Rc::clone(&dir);
            dir = Rc::new(parent.open_dir(component)?);
            // Directories above a tracked path are not part of the snapshot.
            if let Some(state) = lookup.find(&path[..end])? {
                let made = components[..=index].join(&b'/');
                self.will_finish(made, state);
            }
        }
        self.last = Some((name.to_vec(), Rc::clone(&dir)));
        Ok(Some(dir))
    }

    /// Lets a directory that was there be like that of the snapshot, as a file would be replaced.
    fn overwrite_directory(
        &mut self,
        dir: &Dir,
        name: &[u8],
        state: &EntryState,
    ) -> Result<(), RestoreError> {
        if !self.overwrite || name.is_empty() || self.made_names.contains(name) {
            return Ok(());
        }
        // An earlier copy may have made it read-only. Whose it is not may not, and need not be able
        // to.
        let mode = dir.stat_self()?.mode;
        if mode & 0o700 != 0o700 {
            let _ = dir.inode(b".")?.set_mode(mode | 0o700);
        }
        self.will_finish(name.to_vec(), state.clone());
        Ok(())
    }

    fn will_finish(&mut self, name: Vec<u8>, state: EntryState) {
        self.made_names.insert(name.clone());
        self.made.push(Made { name, state });
    }

    fn leaf(
        &mut self,
        manifest: &SnapshotManifest,
        path: &[u8],
        name: &[u8],
        state: &EntryState,
    ) -> Result<(), RestoreError> {
        if matches!(state.node, Node::Socket | Node::CharDevice(_) | Node::BlockDevice(_)) {
            self.skip(name, "sockets and devices are recorded, but not made");
            return Ok(());
        }
        let (parent, last) = byte_path::split(name);
        let above = &path[..path.len() - name.len() + parent.len()];
        let Some(dir) = self.directory(manifest, above, parent)? else { return Ok(()) };
        let is_taken = match dir.try_stat(last)? {
            Some(_) if self.folding.is_of_other(&dir, parent, last)? => {
                self.skip(name, OTHER_NAME);
                return Ok(());
            }
            Some(stat) if !self.overwrite || stat.kind == FileKind::Directory => {
                self.skip(name, EXISTS);
                return Ok(());
            }
            Some(_)
                if tracked_around(&self.real.join(to_path(name)), &manifest.roots).is_some() =>
            {
                self.skip(name, TRACKED);
                return Ok(());
            }
            found => found.is_some(),
        };
        let group = self.links.get(path).copied();
        let first = group.and_then(|group| self.linked.get(&group));
        // A file that kept changing was not the same under each of its names.
        let first = first.filter(|(_, first)| first.may_be_one_file(state)).map(|(name, _)| name);
        let temporary = self.temporary.clone();
        let made = match first {
            Some(first) => {
                let (first_dir, first_name) = byte_path::split(first);
                let first_dir = self.top.open_beneath(first_dir)?;
                if let Node::File { size, .. } = state.node {
                    self.manager.progress().advance(1, size);
                }
                let linked = first_dir.link(first_name, &dir, &temporary);
                linked.map_err(RestoreError::from).map(|()| Vec::new())
            }
            None => self.make(&dir, &temporary, path, state),
        };
        let placed = made.and_then(|denied| {
            self.folding.learn(&dir, &temporary)?;
            if self.overwrite {
                dir.rename(&temporary, &dir, last)?;
            } else {
                dir.rename_new(&temporary, &dir, last)?;
            }
            Ok(denied)
        });
        let denied = match placed {
            Ok(denied) => denied,
            Err(error) => {
                let _ = dir.remove_file(&temporary);
                return match error {
                    // The others are whole.
                    RestoreError::Content { source, .. } if source.is_damage() => {
                        self.skip(name, &source.to_string());
                        Ok(())
                    }
                    error => Err(error),
                };
            }
        };
        self.folding.made(parent, last);
        if let Some(group) = group {
            self.linked.entry(group).or_insert_with(|| (name.to_vec(), state.clone()));
        }
        let shown = self.report.to.join(to_path(name));
        self.note_denied(&shown, denied);
        if self.unstable.contains(path) {
            self.report.unstable.push(shown);
        }
        self.report.written_count += 1;
        self.report.overwritten_count += u64::from(is_taken);
        self.report.written_bytes += state.bytes();
        Ok(())
    }

    fn make(
        &mut self,
        dir: &Dir,
        name: &[u8],
        path: &[u8],
        state: &EntryState,
    ) -> Result<Vec<Denied>, RestoreError> {
        let less = Some(state).filter(|_| self.drops_privileges).and_then(without_privileges);
        let transfer = Transfer::new(&mut self.buffer, self.manager.progress());
        let made = less.as_ref().unwrap_or(state);
        let mut denied = make(self.manager.store(), dir, name, made, path, transfer)?.denied;
        denied.extend(less.map(|_| Denied::Other(LEFT_OFF.to_owned())));
        Ok(denied)
    }

    /// Attributes of directories come last, the deepest first: a new entry changes a directory's
    /// time.
    fn finish(mut self) -> Result<CopyReport, RestoreError> {
        for Made { name, state } in std::mem::take(&mut self.made).into_iter().rev() {
            let applied = self.top.open_beneath(&name).and_then(|dir| {
                attributes::apply(&dir.inode(b".")?, &state.attributes, &state.node)
            });
            // One that fails is named, and those above it are finished all the same.
            let denied = applied.unwrap_or_else(|error| {
                vec![Denied::Other(format!("its attributes could not be set: {error}"))]
            });
            let path = self.report.to.join(to_path(&name));
            self.note_denied(&path, denied);
        }
        self.manager.progress().begin(Stage::Flush, None);
        self.top.sync_file_system()?;
        super::plan::sort(&mut self.report.skipped);
        Ok(self.report)
    }

    fn unfinished(&self, cause: RestoreError) -> RestoreError {
        RestoreError::CopyUnfinished {
            cause: Box::new(cause),
            to: self.report.to.clone(),
            written_count: self.report.written_count,
        }
    }
}
