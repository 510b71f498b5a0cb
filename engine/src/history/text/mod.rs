//! A text in the past: the contents that have it, where they stood, when it appeared and when it
//! went.
//!
//! Each distinct object is searched once, in parallel, however many snapshots and paths have it.
//! The trees then say where the contents stood: each different directory is read once. So a search
//! costs about one reading of everything that is different, and not one for each snapshot.
//!
//! Names that begin with a dot are searched as others are. A git directory is searched only where a
//! path leads there: objects of git are compressed, and its logs repeat the work tree.
//! Each received session is a line of states of its own: its states were never here.

mod objects;
mod pattern;
mod standing;
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make what they search")]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::{Damaged, HistoryError};
use super::matching::{Matching, Wanted};
use super::snapshots::{Place, each_snapshot};
use super::versions::each_restore;
use crate::byte_path;
use crate::diff::EntryState;
use crate::object::{ContentHash, Node, RootEntry, TreeEntry};
use crate::progress::Progress;
use crate::snapshot::{NotCapturedSet, SessionDir, SnapshotManifest};
use crate::store::{FileSource, StoreError, read_root_tree, read_tree};
use crate::walk::DOT_GIT;

pub use objects::{Depth, InObject, Line};
pub use pattern::{TextOptions, TextPattern};
pub use standing::{Event, Standing, TextVersion};

/// A search: its text, its places and its depth.
#[derive(Debug)]
pub struct TextRequest<'a> {
    /// The text.
    pub pattern: &'a TextPattern,
    /// Only these paths and what is in them, each in all its [forms](super::forms_of); empty means
    /// everything.
    pub paths: &'a [Vec<PathBuf>],
    /// The facts that are kept of each object that has the text.
    pub depth: Depth,
    /// Number of threads; 0 is one for each core.
    pub threads: usize,
}

/// The result of a search.
#[derive(Debug)]
pub struct TextSearch {
    /// The snapshots in which text was looked for, oldest first.
    pub places: Vec<Place>,
    /// The objects that have the text.
    pub objects: HashMap<ContentHash, InObject>,
    /// Where and when the text stood, newest first, and by path where that is equal.
    pub standing: Vec<Standing>,
    /// Number of distinct objects that were searched.
    pub searched_count: u64,
    /// Bytes of these.
    pub searched_bytes: u64,
    /// Sessions of which a part could not be looked at.
    pub damaged: Vec<Damaged>,
    /// Objects that could not be searched, each with a path that has it.
    pub unsearched: Vec<(PathBuf, HistoryError)>,
}

/// Finds a text in the snapshots of these sessions, whose objects are in `source`.
///
/// # Errors
/// [`StoreError::Cancelled`], by `progress`, and threads that cannot be started. Damage is in the
/// result.
pub fn search_text(
    request: &TextRequest<'_>,
    sessions: &[SessionDir],
    source: &dyn FileSource,
    progress: &dyn Progress,
) -> Result<TextSearch, HistoryError> {
    let within = Within::new(request.paths);
    let mut damaged = Vec::new();
    let (seen, found) = (HashSet::new(), Vec::new());
    let mut files = Files { within: &within, source, progress, seen, found };
    let mut roots = HashSet::new();
    each_snapshot(sessions, &mut damaged, |place, _| {
        if roots.insert(place.merkle_root) {
            files.snapshot(&place.merkle_root)?;
        }
        Ok(Some(()))
    });
    stop_if_asked(progress)?;
    let files = files.found;
    let found = objects::search(&files, request, source, progress)?;
    let mut search = TextSearch {
        places: Vec::new(),
        objects: found.objects,
        standing: Vec::new(),
        searched_count: found.searched_count,
        searched_bytes: found.searched_bytes,
        damaged,
        unsearched: found.unsearched,
    };
    let having = Having { within: &within, objects: &search.objects, progress };
    let matches = Matches::of(having, &roots, source)?;
    stop_if_asked(progress)?;
    let mut sightings = Vec::new();
    // A session that is damaged was named above.
    let held = each_snapshot(sessions, &mut Vec::new(), |_, manifest| {
        Ok(Some(matches.sighting(manifest)))
    });
    for (number, (place, sighting)) in held.into_iter().enumerate() {
        sightings.push((place.clone(), Some(number), sighting));
        search.places.push(place);
    }
    for session in sessions {
        let restored = each_restore(session, |_, place, manifest, only| {
            sightings.push((place, None, matches.sighting(manifest).of_restore(only, &matches)));
            Ok(())
        });
        if let Err(error) = restored {
            tracing::debug!("restores of session {}: {error}", session.id());
        }
    }
    search.standing = standing::of(sightings, &matches);
    Ok(search)
}

/// A few trees can name more paths than there is time for, so each walk asks.
fn stop_if_asked(progress: &dyn Progress) -> Result<(), StoreError> {
    if progress.is_cancelled() { Err(StoreError::Cancelled) } else { Ok(()) }
}

/// The paths that are searched.
#[derive(Debug)]
struct Within {
    /// Forms of the paths; empty means everything.
    forms: Vec<Vec<u8>>,
    /// Whether a path leads into a git directory, or to one.
    names_git: bool,
}

impl Within {
    fn new(paths: &[Vec<PathBuf>]) -> Self {
        let forms: Vec<Vec<u8>> =
            paths.iter().flatten().map(|form| form.as_os_str().as_bytes().to_vec()).collect();
        let is_git = |form: &Vec<u8>| byte_path::components(form).any(|name| name == DOT_GIT);
        Self { names_git: forms.iter().any(is_git), forms }
    }

    /// Whether all that is in a path is searched, git directories aside.
    fn has(&self, path: &[u8]) -> bool {
        self.forms.is_empty() || self.forms.iter().any(|form| byte_path::is_in(path, form))
    }

    /// Whether a directory may hold something that is searched.
    fn may_have_in(&self, directory: &[u8]) -> bool {
        let is_git = byte_path::split(directory).1 == DOT_GIT;
        let leads_there = || self.forms.iter().any(|form| byte_path::is_in(form, directory));
        if is_git { leads_there() } else { self.has(directory) || leads_there() }
    }
}

/// The objects of files that have the text.
struct Having<'a> {
    within: &'a Within,
    objects: &'a HashMap<ContentHash, InObject>,
    /// Ends the walk: no further directory is entered.
    progress: &'a dyn Progress,
}

impl Wanted for Having<'_> {
    fn may_be_in(&self, directory: &[u8]) -> bool {
        !self.progress.is_cancelled() && self.within.may_have_in(directory)
    }

    fn is_match(&self, path: &[u8], _: &[u8], state: &EntryState) -> bool {
        matches!(&state.node, Node::File { hash, .. } if self.objects.contains_key(hash))
            && self.within.has(path)
    }
}

/// A file that is to be searched: its contents, and the first path that has them.
struct File {
    hash: ContentHash,
    size: u64,
    path: Vec<u8>,
}

/// The distinct contents of files.
struct Files<'a> {
    within: &'a Within,
    source: &'a dyn FileSource,
    progress: &'a dyn Progress,
    /// Trees that were read, and objects. Trees by their paths as well where the path decides what
    /// of them is searched.
    seen: HashSet<(ContentHash, Vec<u8>)>,
    found: Vec<File>,
}

impl Files<'_> {
    fn snapshot(&mut self, merkle_root: &ContentHash) -> Result<(), StoreError> {
        let mut waiting = Vec::new();
        for RootEntry { path, node, .. } in read_root_tree(self.source, merkle_root)?.entries {
            self.meet(path.into_vec(), node, &mut waiting);
        }
        while let Some((path, tree)) = waiting.pop() {
            stop_if_asked(self.progress)?;
            for TreeEntry { name, node, .. } in read_tree(self.source, &tree)?.into_entries() {
                self.meet(byte_path::join(&path, &name), node, &mut waiting);
            }
        }
        Ok(())
    }

    fn meet(&mut self, path: Vec<u8>, node: Node, waiting: &mut Vec<(Vec<u8>, ContentHash)>) {
        match node {
            Node::File { hash, size, .. }
                if self.within.has(&path) && self.seen.insert((hash, Vec::new())) =>
            {
                self.found.push(File { hash, size, path });
            }
            Node::Directory { tree } if self.within.may_have_in(&path) => {
                let is_whole = self.within.has(&path) && !self.within.names_git;
                let key = if is_whole { Vec::new() } else { path.clone() };
                if self.seen.insert((tree, key)) {
                    waiting.push((path, tree));
                }
            }
            _ => {}
        }
    }
}

/// Everything that has the text: paths and contents, which are named by their numbers.
struct Matches {
    /// The paths that have the text in some snapshot, sorted.
    paths: Vec<Vec<u8>>,
    /// The contents, with their lengths.
    contents: Vec<(ContentHash, u64)>,
    /// By root tree: the numbers of paths, sorted, each with that of its contents.
    by_root: HashMap<ContentHash, Arc<[(u32, u32)]>>,
}

impl Matches {
    fn of(
        having: Having<'_>,
        roots: &HashSet<ContentHash>,
        source: &dyn FileSource,
    ) -> Result<Self, HistoryError> {
        let mut matching = Matching::new(having, source);
        let mut lists = Vec::new();
        for root in roots {
            match matching.snapshot(root) {
                Ok(list) => lists.push((*root, list)),
                // The first reading found it, and named the session.
                Err(error) if error.is_damage() => tracing::debug!("{error}"),
                Err(error) => return Err(error.into()),
            }
        }
        let distinct: BTreeSet<&[u8]> = matching.all().map(|(path, _)| path).collect();
        let paths: Vec<Vec<u8>> = distinct.into_iter().map(<[u8]>::to_vec).collect();
        let contents = matching.all().map(|(_, state)| match &state.node {
            Node::File { hash, size, .. } => (*hash, *size),
            // Only files are wanted.
            _ => (ContentHash::of(b""), 0),
        });
        let contents = contents.collect();
        let number = |path: &[u8]| paths.binary_search_by(|known| known.as_slice().cmp(path));
        let numbered = |list: &Arc<[usize]>| -> Arc<[(u32, u32)]> {
            let found = list.iter().filter_map(|at| {
                let path = number(matching.found(*at).0).ok()?;
                Some((path as u32, *at as u32))
            });
            let mut found: Vec<(u32, u32)> = found.collect();
            found.sort_unstable();
            found.into()
        };
        let by_root = lists.iter().map(|(root, list)| (*root, numbered(list))).collect();
        Ok(Self { paths, contents, by_root })
    }

    /// The state of the paths in a snapshot.
    fn sighting(&self, manifest: &SnapshotManifest) -> standing::Sighting {
        let Some(contents) = self.by_root.get(&manifest.merkle_root) else {
            let all = 0..self.paths.len() as u32;
            return standing::Sighting::new(Arc::from([]), all.collect());
        };
        let known = NotCapturedSet::new(manifest);
        let unknown = self.paths.iter().enumerate().filter(|(_, path)| !known.knows(path));
        let unknown = unknown.map(|(number, _)| number as u32).collect();
        standing::Sighting::new(Arc::clone(contents), unknown)
    }
}
