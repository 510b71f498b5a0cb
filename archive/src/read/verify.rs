//! Verifying an archive: that its bytes have their hashes, that a pull gets from it all that a pull
//! needs, and that ordinary programs get from it what the trees say.
//!
//! A full archive is complete by itself. A delta is compared with the state of its parent, where
//! the archive of the parent was verified before. Nothing is stored but trees, in a file without a
//! name. A member of `files/` has to be, byte for byte, what nono writes for its entry in the
//! trees: a program may give meaning to attributes that nono does not know.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;

use super::{ArchiveHead, ArchiveReader, ArchiveSummary, Part};
use crate::delta::EntrySum;
use crate::graph::{Kind, named_by};
use crate::name::ArchiveId;
use crate::receive::check_roots;
use crate::shelf::Shelf;
use crate::write::{FileMember, Files, Walk, asking, each_entry, header_of};
use crate::{ArchiveError, Short, state};
use nono_engine::byte_path;
use nono_engine::diff::{Lookup, links_of};
use nono_engine::manifest::SnapshotManifest;
use nono_engine::object::{Attributes, ContentHash, Node, RootTree};
use nono_engine::path_text::Shown;
use nono_engine::progress::Progress;
use nono_engine::snapshot::{SessionMetadata, parse_manifest};
use nono_engine::store::{MAX_TREE_BYTES, ObjectSource, StoreError, read_root_tree};

/// The states of the snapshots whose archives were verified. Deltas to them are compared with them.
#[derive(Debug, Default)]
pub struct KnownStates {
    shelf: Shelf,
    states: HashMap<ArchiveId, State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    merkle_root: ContentHash,
    /// The hash of the snapshot's manifest.
    manifest_hash: ContentHash,
}

/// The archive that a delta depends on.
#[derive(Debug, Clone, Copy)]
enum Parent {
    /// Nothing: the archive is full.
    None,
    Known(State),
    Unknown,
}

impl<R: Read> ArchiveReader<R> {
    /// Reads the rest, and compares all of it. A delta is compared as a whole if the archive of its
    /// parent was verified with the same `known` before; the state of this one is known afterwards.
    ///
    /// # Errors
    /// [`ArchiveError::Corrupt`], [`ArchiveError::Read`], [`ArchiveError::TooLarge`],
    /// [`ArchiveError::Cancelled`], or a temporary file that cannot be used.
    pub fn verify(
        mut self,
        known: &mut KnownStates,
        progress: &dyn Progress,
    ) -> Result<ArchiveSummary, ArchiveError> {
        let parent = match &self.head.parent {
            None => Parent::None,
            Some(id) => known.states.get(id).map_or(Parent::Unknown, |it| Parent::Known(*it)),
        };
        let verified = verify(&mut self, &mut known.shelf, parent, progress);
        match &verified {
            Ok(summary) if summary.is_whole => {
                known.shelf.keep();
                let merkle_root = self.head.merkle_root;
                let manifest_hash = ContentHash::of(&self.snapshot);
                let state = State { merkle_root, manifest_hash };
                known.states.entry(self.head.id.clone()).or_insert(state);
            }
            _ => known.shelf.take_back(),
        }
        verified
    }
}

fn verify<R: Read>(
    reader: &mut ArchiveReader<R>,
    shelf: &mut Shelf,
    parent: Parent,
    progress: &dyn Progress,
) -> Result<ArchiveSummary, ArchiveError> {
    let manifest: SnapshotManifest =
        parse_manifest(&reader.snapshot, Path::new("meta/snapshot.json"))?;
    let is_whole = !matches!(parent, Parent::Unknown);
    let (contents, next) = verify_meta(reader, shelf, parent, &manifest, progress)?;
    let shelf = &*shelf;
    let mut summary =
        ArchiveSummary { head: reader.head.clone(), file_count: 0, content_bytes: 0, is_whole };
    let parent_root = match parent {
        Parent::Known(state) => Some(state.merkle_root),
        Parent::None | Parent::Unknown => None,
    };
    let root = &reader.head.merkle_root.clone();
    if is_whole {
        state::check(shelf, &reader.head, &manifest, progress)?;
        let mut sum = EntrySum::default();
        each_entry(shelf, parent_root.as_ref(), root, progress, |entry| {
            sum.add(&entry);
            Ok(())
        })?;
        if sum.finish() != reader.entries {
            let reason = "the entries of meta/delta-manifest.json are not those of its trees";
            return Err(ArchiveError::corrupt(reason));
        }
        let links = links_of(shelf, root)?;
        let mut files = Files::new(shelf, parent_root.as_ref(), root, &links, progress)?;
        let mut each = |reader: &ArchiveReader<R>| compare(files.next().transpose()?, reader);
        verify_files(reader, next, &mut summary, progress, &mut each)?;
        if let Some(missing) = files.next().transpose()? {
            return Err(not_in_it(&missing.path));
        }
        check_ignore_files(shelf, root, contents, progress)?;
    } else {
        let top = match read_root_tree(shelf, root) {
            Ok(top) => Some(top),
            Err(StoreError::Missing { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let mut lookup = top.as_ref().map(|top: &RootTree| Lookup::new(shelf, top));
        let mut each = |reader: &ArchiveReader<R>| match &mut lookup {
            Some(lookup) => compare_alone(lookup, reader),
            None => Ok(()),
        };
        verify_files(reader, next, &mut summary, progress, &mut each)?;
    }
    match &reader.members.strange {
        Some(path) => Err(ArchiveError::corrupt(format!("{path} has attributes of its own"))),
        None => Ok(summary),
    }
}

/// Reads up to the files: manifests are a chain, and each object is one that a tree names. Returns
/// contents of ignore files that are still to come, and the first part of the files.
fn verify_meta<R: Read>(
    reader: &mut ArchiveReader<R>,
    shelf: &mut Shelf,
    parent: Parent,
    manifest: &SnapshotManifest,
    progress: &dyn Progress,
) -> Result<(HashSet<ContentHash>, Option<Part>), ArchiveError> {
    let mut chain = ManifestChain::new(&reader.head, parent);
    let mut trees = Trees::new(shelf);
    if let Parent::Known(state) = parent {
        trees.know(state.merkle_root, progress)?;
    }
    let mut roots = vec![reader.head.merkle_root];
    let mut next = reader.next_part()?;
    while let Some(Part::Snapshot(number, bytes)) = &next {
        let earlier: SnapshotManifest = parse_manifest(bytes, Path::new("meta/snapshots"))?;
        earlier.validate(*number).map_err(ArchiveError::corrupt)?;
        chain.add(&earlier, ContentHash::of(bytes), &reader.session)?;
        roots.extend(earlier.ignore_files);
        next = reader.next_part()?;
    }
    let own = ContentHash::of(&reader.snapshot);
    chain.add(manifest, own, &reader.session)?;
    roots.extend(manifest.ignore_files);
    if reader.session.manifest_hashes.get(manifest.number as usize).is_some_and(|it| *it != own) {
        let reason = "meta/session.json names another manifest of the snapshot";
        return Err(ArchiveError::corrupt(reason));
    }
    for (at, root) in roots.into_iter().enumerate() {
        trees.need(root, Needed { kind: Kind::Root, with_contents: at > 0 });
    }
    while let Some(Part::Object(hash, _)) = next {
        trees.came(reader, &hash, progress)?;
        next = reader.next_part()?;
    }
    if let (Some(missing), false) = (trees.missing.keys().min(), matches!(parent, Parent::Unknown))
    {
        return Err(ArchiveError::corrupt(format!("object {missing} is not in it")));
    }
    Ok((trees.contents, next))
}

/// Reads the files. `each` compares the header of a member.
fn verify_files<R: Read>(
    reader: &mut ArchiveReader<R>,
    mut next: Option<Part>,
    summary: &mut ArchiveSummary,
    progress: &dyn Progress,
    each: &mut dyn FnMut(&ArchiveReader<R>) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    while let Some(part) = next {
        if progress.is_cancelled() {
            return Err(ArchiveError::Cancelled);
        }
        each(reader)?;
        if let Part::File(hash, size) = part {
            reader.contents(&hash, progress, |_| Ok(()))?;
            summary.file_count += 1;
            summary.content_bytes += size;
            progress.advance(1, 0);
        }
        next = reader.next_part()?;
    }
    Ok(())
}

fn not_in_it(path: &[u8]) -> ArchiveError {
    ArchiveError::corrupt(format!("{} is not in it", Shown::bytes(path)))
}

fn no_such_path(path: &[u8]) -> ArchiveError {
    ArchiveError::corrupt(format!("{} is no path of its trees", Shown::bytes(path)))
}

/// Compares the present member with the one that has to stand there.
fn compare<R: Read>(
    wanted: Option<FileMember>,
    reader: &ArchiveReader<R>,
) -> Result<(), ArchiveError> {
    let found = [b"files/", &*reader.last].concat();
    match wanted {
        None => Err(no_such_path(&found)),
        Some(wanted) => match byte_path::order(&wanted.path, &found) {
            Ordering::Less => Err(not_in_it(&wanted.path)),
            Ordering::Greater => Err(no_such_path(&found)),
            Ordering::Equal => compare_header(&wanted, reader),
        },
    }
}

fn compare_header<R: Read>(
    wanted: &FileMember,
    reader: &ArchiveReader<R>,
) -> Result<(), ArchiveError> {
    let header = header_of(&wanted.member(&Attributes::default())).map_err(ArchiveError::Read)?;
    match header == reader.members.header() {
        true => Ok(()),
        false => {
            let path = Shown::bytes(&wanted.path);
            Err(ArchiveError::corrupt(format!("{path} is not as its tree says")))
        }
    }
}

/// Compares the present member of a delta with the trees, as far as they are in it.
fn compare_alone<R: Read>(
    lookup: &mut Lookup<'_>,
    reader: &ArchiveReader<R>,
) -> Result<(), ArchiveError> {
    let state = match lookup.find(&[b"/", &*reader.last].concat()) {
        Ok(Some(state)) => state,
        Ok(None) => return Err(no_such_path(&[b"files/", &*reader.last].concat())),
        // The parent has it.
        Err(StoreError::Missing { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let is_file = matches!(state.node, Node::File { .. });
    match reader.members.is_link() && is_file {
        // Only the links of the parent could tell more.
        true => Ok(()),
        false => compare_header(&FileMember::alone(&reader.last, state), reader),
    }
}

/// An ignore file has its contents in `meta/`, unless the snapshot has the directory, too.
fn check_ignore_files(
    shelf: &Shelf,
    root: &ContentHash,
    mut contents: HashSet<ContentHash>,
    progress: &dyn Progress,
) -> Result<(), ArchiveError> {
    if contents.is_empty() {
        return Ok(());
    }
    for found in asking(Walk::of_paths(shelf, root)?, progress) {
        if let Node::File { hash, .. } = found?.1.node {
            contents.remove(&hash);
        }
    }
    match contents.iter().min() {
        None => Ok(()),
        Some(missing) => Err(ArchiveError::corrupt(format!("object {missing} is not in it"))),
    }
}

/// The manifests of an archive: each names the one before it, and none is left out.
struct ManifestChain {
    next: u64,
    /// The hash of the one before, where it is known.
    before: Option<Option<ContentHash>>,
}

impl ManifestChain {
    fn new(head: &ArchiveHead, parent: Parent) -> Self {
        let own_parent = head.parent.as_ref().filter(|it| it.session() == head.id.session());
        let Some(own_parent) = own_parent else { return Self { next: 0, before: Some(None) } };
        let next = own_parent.number() + 1;
        let before = match parent {
            Parent::None => Some(None),
            Parent::Known(state) => Some(Some(state.manifest_hash)),
            Parent::Unknown => None,
        };
        Self { next, before }
    }

    fn add(
        &mut self,
        manifest: &SnapshotManifest,
        hash: ContentHash,
        session: &SessionMetadata,
    ) -> Result<(), ArchiveError> {
        let number = manifest.number;
        if number != self.next {
            let reason = format!("the manifest of snapshot {} is not in it", self.next);
            return Err(ArchiveError::corrupt(reason));
        }
        if self.before.is_some_and(|before| before != manifest.parent_hash) {
            let reason = format!("the manifest of snapshot {number} names another one before it");
            return Err(ArchiveError::corrupt(reason));
        }
        check_roots(session, manifest)?;
        (self.next, self.before) = (number + 1, Some(Some(hash)));
        Ok(())
    }
}

/// An object that has to come.
#[derive(Debug, Clone, Copy)]
struct Needed {
    kind: Kind,
    /// Whether the contents of files below it have to come, too.
    with_contents: bool,
}

/// The objects of an archive, from the roots down.
struct Trees<'s> {
    shelf: &'s mut Shelf,
    /// Trees of the parent, and all that were named.
    known: HashSet<Short>,
    missing: HashMap<ContentHash, Needed>,
    /// Contents that have to come.
    contents: HashSet<ContentHash>,
}

impl<'s> Trees<'s> {
    fn new(shelf: &'s mut Shelf) -> Self {
        let (known, missing, contents) = Default::default();
        Self { shelf, known, missing, contents }
    }

    /// Notes the trees that the parent has: no delta repeats them.
    fn know(&mut self, parent: ContentHash, progress: &dyn Progress) -> Result<(), ArchiveError> {
        let mut pending = vec![(parent, Kind::Root)];
        while let Some((hash, kind)) = pending.pop() {
            if progress.is_cancelled() {
                return Err(ArchiveError::Cancelled);
            }
            if matches!(kind, Kind::File(_)) || !self.known.insert(Short::of(&hash)) {
                continue;
            }
            let bytes = self.shelf.read(&hash, MAX_TREE_BYTES)?;
            pending.extend(named_by(kind, &hash, &bytes)?.iter().map(|it| (it.hash, it.kind)));
        }
        Ok(())
    }

    fn need(&mut self, hash: ContentHash, needed: Needed) {
        match needed.kind {
            Kind::File(_) if needed.with_contents => drop(self.contents.insert(hash)),
            Kind::File(_) => {}
            _ if self.known.insert(Short::of(&hash)) => drop(self.missing.insert(hash, needed)),
            _ => {}
        }
    }

    /// Takes the object at which a reader stands.
    fn came<R: Read>(
        &mut self,
        reader: &mut ArchiveReader<R>,
        hash: &ContentHash,
        progress: &dyn Progress,
    ) -> Result<(), ArchiveError> {
        let is_contents = self.contents.remove(hash);
        let Some(needed) = self.missing.remove(hash) else {
            if !is_contents {
                let reason = format!("nothing in it names object {hash}");
                return Err(ArchiveError::corrupt(reason));
            }
            return reader.contents(hash, progress, |_| Ok(()));
        };
        let bytes = reader.bytes(hash)?;
        self.shelf.put(hash, &bytes)?;
        let named = named_by(needed.kind, hash, &bytes);
        for named in named.map_err(|error| ArchiveError::corrupt(error.to_string()))? {
            self.need(named.hash, Needed { kind: named.kind, ..needed });
        }
        Ok(())
    }
}
