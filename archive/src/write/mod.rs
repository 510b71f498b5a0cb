//! Writing an archive: the plan, then one stream.

mod contents;
mod document;
mod files;
mod members;
mod objects;
mod pipe;
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make files")]
mod tests;
mod walk;

use std::io::{self, Write};

use serde::Serialize;

use self::contents::{Contents, File};
pub(crate) use self::document::each_entry;
use self::document::{Document, Lines, State, entry_of};
pub(crate) use self::files::{FileMember, Files};
use self::members::{MAX_PLAIN_SIZE, Members};
pub(crate) use self::members::{header_of, header_of_document};
use self::objects::Objects;
use self::pipe::{Pipe, through_pipe};
pub(crate) use self::walk::{Walk, asking};
use super::delta::{DeltaEntryType, DeltaStats};
use super::frames::{MAX_FRAME_BYTES, OBJECT_FRAME_BYTES};
use super::limits::check_document;
use super::name::{ArchiveId, ArchiveKind, ArchiveName};
use super::read::MAX_OBJECT_BYTES;
use super::rules::{FullReason, MAX_CHAIN_DEPTH, is_mostly_changed};
use super::{ArchiveError, Encryption};
use nono_engine::diff::{differences, links_of};
use nono_engine::layout;
use nono_engine::manifest::MAX_MANIFEST_BYTES;
use nono_engine::object::{Attributes, ContentHash, Node};
use nono_engine::progress::{Amount, Progress, Stage, wait_for};
use nono_engine::snapshot::{LoadedManifest, SessionDir};
use nono_engine::store::{LocalStore, MAX_TREE_BYTES, ObjectSource, ReadLock};
use nono_engine::sys;

/// Begins the path of every file.
const FILES: &[u8] = b"files/";
/// Bytes of a changed file beside its contents: headers and lines.
const ENTRY_BYTES: u64 = 1 << 10;
/// Level of compression: the usual one of `zstd`.
const LEVEL: i32 = 3;

/// The archive to which another one is to be a delta.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Its snapshot: an earlier one of the same session, or one of another session of the store.
    pub id: ArchiveId,
    /// The snapshot of the full archive at the end of its chain.
    pub base: ArchiveId,
    /// The number of deltas from it down to that archive.
    pub depth: u32,
}

/// The plan of an archive. Nothing is written yet. As long as a plan lives, no collector removes
/// what it needs.
#[derive(Debug)]
pub struct ArchivePlan {
    session: SessionDir,
    store: LocalStore,
    _lock: ReadLock,
    id: ArchiveId,
    base: ArchiveId,
    chain_depth: u32,
    snapshot: LoadedManifest,
    delta: Result<Delta, FullReason>,
    stats: DeltaStats,
    state: State,
    /// Lines of the changes in the document.
    entries: Lines,
    content_bytes: u64,
}

/// The difference to another snapshot.
#[derive(Debug)]
struct Delta {
    parent: ArchiveId,
    parent_root: ContentHash,
}

/// An archive that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArchiveReport {
    /// The snapshot in it.
    pub id: ArchiveId,
    /// The name that tells what it is.
    pub name: String,
    /// The snapshot to which it is a delta; `None` of a full archive.
    pub parent: Option<ArchiveId>,
    /// The snapshot of the full archive of the chain.
    pub base: ArchiveId,
    /// The number of deltas of the chain.
    pub chain_depth: u32,
    /// Why it is full; `None` of a delta.
    pub full: Option<FullReason>,
    /// Counts of files.
    pub stats: DeltaStats,
    /// Bytes of the contents in it.
    pub content_bytes: u64,
    /// Bytes of the archive itself.
    pub archive_bytes: u64,
    /// Whether it is encrypted.
    pub is_encrypted: bool,
}

impl ArchivePlan {
    /// Plans the archive of a snapshot: a delta to a parent that the store holds, unless a rule
    /// says otherwise, or a full one for a reason.
    ///
    /// # Errors
    /// When the snapshot was removed or is damaged; [`ArchiveError::NoParent`].
    pub fn new(
        session: &SessionDir,
        number: u64,
        parent: Result<Parent, FullReason>,
        progress: &dyn Progress,
    ) -> Result<Self, ArchiveError> {
        session.refuse_removed(number)?;
        let metadata = session.metadata()?;
        let id = ArchiveId::new(&session.id(), number)?;
        let store = LocalStore::open(&session.objects_path())?;
        let lock = wait_for(progress, || store.try_lock_for_reading())?;
        let lock = lock.ok_or(ArchiveError::Cancelled)?;
        let snapshot = session.listed_manifest(number, &metadata.manifest_hashes)?;
        let state = State::of(&store, &snapshot.manifest.merkle_root, progress)?;
        let (added, total_files) = (state.sum.count, state.sum.count);
        let mut plan = Self {
            session: session.clone(),
            store,
            _lock: lock,
            base: id.clone(),
            id,
            chain_depth: 0,
            snapshot,
            delta: Err(FullReason::NoParent),
            stats: DeltaStats { added, total_files, ..DeltaStats::default() },
            entries: state.added,
            content_bytes: state.bytes,
            state,
        };
        let parent = parent.and_then(|parent| match parent.depth < MAX_CHAIN_DEPTH {
            true => Ok(parent),
            false => Err(FullReason::ChainDepth),
        });
        let parent = match parent {
            Ok(parent) => parent,
            Err(reason) => {
                plan.delta = Err(reason);
                return Ok(plan);
            }
        };
        let (delta, stats, entries, bytes) = plan.compare(&parent.id, progress)?;
        if is_mostly_changed(&stats) {
            plan.delta = Err(FullReason::MostChanged);
            return Ok(plan);
        }
        plan.chain_depth = parent.depth + 1;
        plan.base = parent.base;
        (plan.delta, plan.stats, plan.entries) = (Ok(delta), stats, entries);
        plan.content_bytes = bytes;
        Ok(plan)
    }

    /// The difference to a parent, its counts, the lines of its changes, and the bytes in them.
    fn compare(
        &self,
        parent: &ArchiveId,
        progress: &dyn Progress,
    ) -> Result<(Delta, DeltaStats, Lines, u64), ArchiveError> {
        let no_parent = || ArchiveError::NoParent { parent: parent.clone() };
        let session = match parent.session() == self.id.session() {
            true if parent.number() >= self.id.number() => {
                let (id, parent) = (self.id.clone(), parent.clone());
                return Err(ArchiveError::ParentNotOlder { id, parent });
            }
            true => self.session.clone(),
            false => sibling(&self.session, parent.session()).ok_or_else(no_parent)?,
        };
        let number = parent.number();
        session.refuse_removed(number).map_err(|_| no_parent())?;
        let listed = session.metadata()?.manifest_hashes;
        let parent_root = session.listed_manifest(number, &listed)?.manifest.merkle_root;
        let mut stats = DeltaStats { total_files: self.state.sum.count, ..DeltaStats::default() };
        let (mut lines, mut buffer, mut bytes) = (Lines::default(), Vec::new(), 0);
        let root = &self.snapshot.manifest.merkle_root;
        for found in asking(differences(&self.store, &parent_root, root)?, progress) {
            let Some(entry) = entry_of(&found?) else { continue };
            *match entry.entry_type {
                DeltaEntryType::Added => &mut stats.added,
                DeltaEntryType::Modified => &mut stats.modified,
                DeltaEntryType::Removed => &mut stats.removed,
            } += 1;
            lines.add_entry(&entry, &mut buffer);
            bytes += entry.size.unwrap_or(0);
        }
        stats.unchanged = stats.total_files - stats.added - stats.modified;
        stats.bytes_saved = self.state.bytes.saturating_sub(bytes);
        Ok((Delta { parent: parent.clone(), parent_root }, stats, lines, bytes))
    }

    /// The name that the archive has to get.
    pub fn name(&self, is_encrypted: bool) -> ArchiveName {
        let kind = match &self.delta {
            Ok(delta) => ArchiveKind::Delta { parent: delta.parent.clone() },
            Err(_) => ArchiveKind::Full,
        };
        ArchiveName { id: self.id.clone(), kind, is_encrypted }
    }

    /// Why it is full; `None` of a delta.
    pub fn full(&self) -> Option<FullReason> {
        self.delta.as_ref().err().copied()
    }

    /// Counts of files.
    pub fn stats(&self) -> DeltaStats {
        self.stats
    }

    /// About how many bytes come out of it, uncompressed.
    pub fn plain_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Writes the archive to its end. `progress` is told of files and their bytes. After an error,
    /// what was written is no archive; nothing is flushed to a disk.
    ///
    /// # Errors
    /// [`ArchiveError::Write`], a damaged object, or [`ArchiveError::Cancelled`].
    pub fn write(
        &self,
        encryption: &Encryption,
        out: impl Write,
        progress: &dyn Progress,
    ) -> Result<ArchiveReport, ArchiveError> {
        let written = ArchiveError::Write;
        let counted = Counted { out, bytes: 0 };
        let mut sealed = encryption.wrap(self.snapshot.hash, counted).map_err(written)?;
        through_pipe(|pipe| self.write_members(pipe, progress), &mut sealed)?;
        let mut counted = sealed.finish().map_err(written)?;
        counted.out.flush().map_err(written)?;
        Ok(ArchiveReport {
            id: self.id.clone(),
            name: self.name(encryption.is_some()).to_string(),
            parent: self.delta.as_ref().ok().map(|delta| delta.parent.clone()),
            base: self.base.clone(),
            chain_depth: self.chain_depth,
            full: self.full(),
            stats: self.stats,
            content_bytes: self.content_bytes,
            archive_bytes: counted.bytes,
            is_encrypted: encryption.is_some(),
        })
    }

    fn write_members(&self, pipe: &mut Pipe, progress: &dyn Progress) -> Result<(), ArchiveError> {
        let mut members = Members { out: pipe };
        self.write_meta(&mut members, progress)?;
        let files = self.state.sum.count.min(self.stats.added + self.stats.modified);
        let expected = Amount { entries: files, bytes: self.content_bytes };
        progress.begin(Stage::ReadContents, Some(expected));
        self.write_files(&mut members, progress)?;
        members.finish().map_err(ArchiveError::Write)?;
        Ok(())
    }

    fn write_meta(
        &self,
        members: &mut Members<&mut Pipe>,
        progress: &dyn Progress,
    ) -> Result<(), ArchiveError> {
        let written = ArchiveError::Write;
        let dir = self.session.dir()?;
        let read = |name: &str| {
            let bytes = dir.read(name.as_bytes(), MAX_MANIFEST_BYTES)?;
            check_document(name, &bytes)?;
            Ok::<_, ArchiveError>(bytes)
        };
        members.document("meta/session.json", &read(layout::MANIFEST)?).map_err(written)?;
        let own = read(&layout::snapshot_manifest(self.id.number()))?;
        members.document("meta/snapshot.json", &own).map_err(written)?;
        // A reader of ranges begins with these two, and passes over what follows.
        members.out.begin_frames(MAX_FRAME_BYTES).map_err(written)?;
        let document = Document {
            store: &self.store,
            merkle_root: self.snapshot.manifest.merkle_root,
            parent: self.delta.as_ref().ok().map(|delta| &delta.parent),
            base: &self.base,
            chain_depth: self.chain_depth,
            stats: self.stats,
            parent_root: self.delta.as_ref().ok().map(|delta| delta.parent_root),
            state: &self.state,
            entries: self.entries,
            progress,
        };
        let size = document.size();
        members.begin_document("meta/delta-manifest.json", size).map_err(written)?;
        document.write(&mut members.out)?;
        members.end(size).map_err(written)?;
        members.out.begin_frames(OBJECT_FRAME_BYTES).map_err(written)?;

        // Snapshots before it that the parent's archive does not have: of another session, all.
        let first = match &self.delta {
            Ok(delta) if delta.parent.session() == self.id.session() => delta.parent.number() + 1,
            _ => 0,
        };
        let mut objects = Objects::default();
        if let Ok(delta) = &self.delta {
            objects.visit(&self.store, delta.parent_root, false)?;
            objects.begin();
        }
        objects.visit(&self.store, self.snapshot.manifest.merkle_root, false)?;
        for number in first..=self.id.number() {
            let name = layout::snapshot_manifest(number);
            if number < self.id.number() {
                let path = format!("meta/snapshots/{number}.json");
                write_object(members, &path, &read(&name)?)?;
            }
            if let Some(root) = self.session.manifest(number)?.manifest.ignore_files {
                objects.visit(&self.store, root, true)?;
            }
        }
        let (lists, files) = objects.finish();
        for hash in lists.iter().chain(files.keys()) {
            let bytes = self.store.read(hash, MAX_TREE_BYTES)?;
            if bytes.len() as u64 > MAX_OBJECT_BYTES {
                let (length, most) = (bytes.len(), MAX_OBJECT_BYTES);
                return Err(ArchiveError::TooLarge {
                    reason: format!(
                        "the list of a directory has {length} bytes, and {most} is the most"
                    ),
                });
            }
            write_object(members, &format!("meta/objects/{hash}"), &bytes)?;
        }
        members.out.begin_frames(MAX_FRAME_BYTES).map_err(written)
    }

    fn write_files(
        &self,
        members: &mut Members<&mut Pipe>,
        progress: &dyn Progress,
    ) -> Result<(), ArchiveError> {
        let written = ArchiveError::Write;
        let root = &self.snapshot.manifest.merkle_root;
        let parent_root = self.delta.as_ref().ok().map(|delta| &delta.parent_root);
        let links = links_of(&self.store, root)?;
        let mut contents = Contents::new(&self.store, progress);
        let none = Attributes::default();
        for file in Files::new(&self.store, parent_root, root, &links, progress)? {
            let file = file?;
            if let (true, Node::File { size, .. }) = (file.has_contents(), &file.state.node) {
                members.out.keep_together(size.saturating_add(ENTRY_BYTES)).map_err(written)?;
            }
            members.begin(&file.member(&none)).map_err(written)?;
            if let (true, Node::File { hash, size, midstates }) =
                (file.has_contents(), &file.state.node)
            {
                // The header has no room for a greater length.
                if *size <= MAX_PLAIN_SIZE {
                    members.out.note(hash);
                }
                let path = &file.path[FILES.len()..];
                let file = File { path, hash: *hash, size: *size, midstates };
                contents.copy(&file, &mut members.out)?;
                members.end(*size).map_err(written)?;
            }
        }
        Ok(())
    }
}

/// Writes a whole member of `meta/` that a reader finds by its hash.
fn write_object(
    members: &mut Members<&mut Pipe>,
    path: &str,
    bytes: &[u8],
) -> Result<(), ArchiveError> {
    let written = ArchiveError::Write;
    let size = bytes.len() as u64;
    members.out.keep_together(size.saturating_add(ENTRY_BYTES)).map_err(written)?;
    members.begin_document(path, size).map_err(written)?;
    members.out.note(&ContentHash::of(bytes));
    members.out.write_all(bytes).and_then(|()| members.end(size)).map_err(written)
}

/// Another session of the same store; `None` if there is none.
pub(crate) fn sibling(session: &SessionDir, id: &str) -> Option<SessionDir> {
    let other = SessionDir::open(&session.path().with_file_name(id)).ok()?;
    let objects = |of: &SessionDir| sys::real_path(&of.objects_path()).ok();
    (objects(session)? == objects(&other)?).then_some(other)
}

/// About how many bytes a delta between two states has before it is compressed. Not counted beyond
/// `most`.
///
/// # Errors
/// A tree that cannot be read, or the caller asked to stop.
pub(crate) fn delta_bytes(
    store: &dyn ObjectSource,
    from: &ContentHash,
    to: &ContentHash,
    most: u64,
    progress: &dyn Progress,
) -> Result<u64, ArchiveError> {
    let mut bytes = 0u64;
    for found in asking(differences(store, from, to)?, progress) {
        if let Some(entry) = entry_of(&found?) {
            bytes = bytes.saturating_add(ENTRY_BYTES + entry.size.unwrap_or(0));
        }
        if bytes > most {
            break;
        }
    }
    Ok(bytes)
}

/// Counts what is written.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
