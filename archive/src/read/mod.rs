//! Reading an archive as a stream.

mod stream;
mod verify;

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io::{BufReader, Read};
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;
use tar::EntryType;

pub(super) use self::stream::{AGE_MAGIC, MAX_WINDOW_LOG, of_age};
use self::stream::{Contents, Member, Members};
pub use self::verify::KnownStates;
use super::delta::{DeltaEntry, DeltaManifest, DeltaStats, EntrySum, Reader};
use super::limits::{MAX_DOCUMENT_BYTES, check_document};
use super::name::{ArchiveId, ArchiveKind, ArchiveName};
use super::spill::Queue;
use super::{ArchiveError, Identities, Short};
use nono_engine::byte_path;
use nono_engine::manifest::SnapshotManifest;
use nono_engine::object::{ContentHash, PieceHasher};
use nono_engine::path_text::decode;
use nono_engine::progress::Progress;
use nono_engine::snapshot::{SessionMetadata, parse_manifest, parse_session};

/// Longest delta manifest, in bytes: some millions of files.
const MAX_DELTA_BYTES: u64 = 1 << 30;
/// Longest list of a directory in an archive, in bytes.
pub(super) const MAX_OBJECT_BYTES: u64 = 64 << 20;
/// Step of reading contents, in bytes.
const STEP_BYTES: usize = 256 * 1024;

/// The description of an archive by itself, checked for form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArchiveHead {
    /// The snapshot in it.
    pub id: ArchiveId,
    /// The snapshot to which it is a delta; `None` of a full archive.
    pub parent: Option<ArchiveId>,
    /// The snapshot of the full archive of the chain.
    pub base: ArchiveId,
    /// The number of deltas of the chain.
    pub chain_depth: u32,
    /// The Merkle root of the snapshot.
    pub merkle_root: ContentHash,
    /// When the snapshot was taken.
    pub timestamp: Timestamp,
    /// SHA-256 of the sorted lines `path:sha256:HEX` of all files.
    pub root_hash: ContentHash,
    /// Counts of files.
    pub stats: DeltaStats,
    /// Whether it is encrypted.
    pub is_encrypted: bool,
}

impl ArchiveHead {
    /// The name that tells this.
    pub fn name(&self) -> ArchiveName {
        let kind = match &self.parent {
            None => ArchiveKind::Full,
            Some(parent) => ArchiveKind::Delta { parent: parent.clone() },
        };
        ArchiveName { id: self.id.clone(), kind, is_encrypted: self.is_encrypted }
    }
}

/// An archive that was read to its end: every byte is there, every file has its hash, and every
/// member is that of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArchiveSummary {
    /// Its own description.
    #[serde(flatten)]
    pub head: ArchiveHead,
    /// Files whose contents are in it.
    pub file_count: u64,
    /// Bytes of these contents.
    pub content_bytes: u64,
    /// Whether the whole snapshot was compared with its Merkle root. Of a delta whose parent is not
    /// known, what its own trees tell was compared.
    pub is_whole: bool,
}

/// An open archive.
pub struct ArchiveReader<R: Read> {
    head: ArchiveHead,
    members: Members<R>,
    pub(super) session: SessionMetadata,
    /// The bytes of the snapshot's manifest.
    pub(super) snapshot: Vec<u8>,
    /// The files whose contents have to follow, in this order.
    expected: Queue<EXPECTED_BYTES>,
    /// The entries of the delta manifest, added up.
    entries: ContentHash,
    place: Place,
    /// The path of the last member of `files/`.
    last: Vec<u8>,
    /// Objects that came.
    objects: HashSet<Short>,
    buffer: Vec<u8>,
}

impl<R: Read> std::fmt::Debug for ArchiveReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveReader").field("head", &self.head).finish_non_exhaustive()
    }
}

/// The parts of an archive behind its head, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Snapshots,
    Objects,
    Files,
}

/// Bytes of a file that has to follow: its shortened path, its hash, its length.
const EXPECTED_BYTES: usize = 16 + 32 + 8;

/// A file that has to follow.
struct Expected {
    path: Short,
    hash: ContentHash,
    size: u64,
}

impl Expected {
    fn encode(&self) -> [u8; EXPECTED_BYTES] {
        let mut record = [0; EXPECTED_BYTES];
        record[..16].copy_from_slice(&self.path.0);
        record[16..48].copy_from_slice(self.hash.as_bytes());
        record[48..].copy_from_slice(&self.size.to_le_bytes());
        record
    }

    fn decode(record: &[u8; EXPECTED_BYTES]) -> Self {
        let (mut path, mut hash, mut size) = ([0; 16], [0; 32], [0; 8]);
        path.copy_from_slice(&record[..16]);
        hash.copy_from_slice(&record[16..48]);
        size.copy_from_slice(&record[48..]);
        let hash = ContentHash::from_bytes(hash);
        Self { path: Short(path), hash, size: u64::from_le_bytes(size) }
    }
}

fn short_path(path: &[u8]) -> Short {
    Short::of(&ContentHash::of(path))
}

/// The parts behind the head, in this order.
pub(super) enum Part {
    /// The manifest of an earlier snapshot.
    Snapshot(u64, Vec<u8>),
    /// A tree or another object that is not in `files/`, with its declared name.
    Object(ContentHash, u64),
    /// The contents of a file.
    File(ContentHash, u64),
    /// A member without contents.
    Other,
}

impl<R: Read> ArchiveReader<R> {
    /// Reads the beginning of an archive: all that stands before trees and contents.
    ///
    /// # Errors
    /// [`ArchiveError::Encrypted`], [`ArchiveError::WrongKey`], [`ArchiveError::Corrupt`],
    /// [`ArchiveError::Read`].
    pub fn open(source: R, identities: &Identities) -> Result<Self, ArchiveError> {
        let mut members = Members::open(source, identities)?;
        let session = document(&mut members, "meta/session.json")?;
        let session = parse_session(&session, Path::new("meta/session.json"))?;
        let snapshot = document(&mut members, "meta/snapshot.json")?;
        let manifest: SnapshotManifest =
            parse_manifest(&snapshot, Path::new("meta/snapshot.json"))?;
        manifest.validate(manifest.number).map_err(ArchiveError::corrupt)?;
        let mut expected = Queue::default();
        let (delta, entries) = delta_manifest(&mut members, &mut expected)?;
        let id = ArchiveId::new(&session.session_id, manifest.number)?;
        // Another session has its own numbers.
        let is_later =
            |other: &ArchiveId, most: u64| other.session() == id.session() && other.number() > most;
        let own = id.number();
        let base_is_own = delta.base_id == id;
        if delta.parent_id.is_none() != base_is_own
            || delta.parent_id.as_ref().is_some_and(|it| *it == id || is_later(it, own))
            || is_later(&delta.base_id, own)
        {
            return Err(ArchiveError::NoChain {
                reason: format!("the parent or the base of {id} cannot be one"),
            });
        }
        let head = ArchiveHead {
            id,
            parent: delta.parent_id,
            base: delta.base_id,
            chain_depth: delta.chain_depth,
            merkle_root: manifest.merkle_root,
            timestamp: manifest.timestamp,
            root_hash: delta.result_hashes.root_hash,
            stats: delta.stats,
            is_encrypted: members.is_encrypted,
        };
        let (place, last) = (Place::Snapshots, Vec::new());
        let (objects, buffer) = (HashSet::new(), Vec::new());
        Ok(Self {
            head,
            members,
            session,
            snapshot,
            expected,
            entries,
            place,
            last,
            objects,
            buffer,
        })
    }

    /// Its own description.
    pub fn head(&self) -> &ArchiveHead {
        &self.head
    }

    /// The next part; what is left of the one before is passed over. At the end, every file that
    /// was announced has come.
    pub(super) fn next_part(&mut self) -> Result<Option<Part>, ArchiveError> {
        let Some(Member { path, kind, size }) = self.members.next()? else {
            return match self.expected.pop()? {
                None => Ok(None),
                Some(_) => Err(ArchiveError::corrupt("files are not in it")),
            };
        };
        let corrupt = |reason: &str| {
            let shown = nono_engine::path_text::Shown::bytes(&path);
            ArchiveError::corrupt(format!("{shown} {reason}"))
        };
        let text = |prefix: &[u8]| std::str::from_utf8(path.strip_prefix(prefix)?).ok();
        let hash = || text(b"meta/objects/")?.parse::<ContentHash>().ok();
        let number = || text(b"meta/snapshots/")?.strip_suffix(".json")?.parse::<u32>().ok();
        let (place, part) = if let Some(file) = path.strip_prefix(b"files/") {
            if byte_path::order(&self.last, file) != Ordering::Less {
                return Err(corrupt("is there twice or out of order"));
            }
            self.last = file.to_vec();
            let mut part = Part::Other;
            if matches!(kind, EntryType::Regular | EntryType::Link) {
                let next = self.expected.pop()?.map(|record| Expected::decode(&record));
                let next = next.filter(|next| next.path == short_path(file));
                let next = next.ok_or_else(|| corrupt("is not announced"))?;
                if kind == EntryType::Regular {
                    if next.size != size {
                        return Err(corrupt("has another length than announced"));
                    }
                    part = Part::File(next.hash, size);
                }
            }
            (Place::Files, part)
        } else if kind != EntryType::Regular {
            return Err(corrupt("is no part of an archive"));
        } else if let Some(hash) = hash() {
            if !self.objects.insert(Short::of(&hash)) {
                return Err(corrupt("is there twice"));
            }
            self.members.compare_document(&format!("meta/objects/{hash}"), size);
            (Place::Objects, Part::Object(hash, size))
        } else if let Some(number) = number() {
            self.members.compare_document(&format!("meta/snapshots/{number}.json"), size);
            let mut bytes = Vec::new();
            self.members.read_to(&mut bytes, MAX_DOCUMENT_BYTES)?;
            check_document(&format!("meta/snapshots/{number}.json"), &bytes)?;
            (Place::Snapshots, Part::Snapshot(number.into(), bytes))
        } else {
            return Err(corrupt("is no part of an archive"));
        };
        if place < self.place {
            return Err(corrupt("is out of order"));
        }
        self.place = place;
        Ok(Some(part))
    }

    /// Reads the bytes of the present part into memory, checked.
    pub(super) fn bytes(&mut self, hash: &ContentHash) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = Vec::new();
        self.members.read_to(&mut bytes, MAX_OBJECT_BYTES)?;
        match ContentHash::of(&bytes) == *hash {
            true => Ok(bytes),
            false => Err(wrong(hash)),
        }
    }

    /// Reads the bytes of the present part piece by piece, and checks them at the end.
    pub(super) fn contents(
        &mut self,
        hash: &ContentHash,
        progress: &dyn Progress,
        mut see: impl FnMut(&[u8]) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        self.buffer.resize(STEP_BYTES, 0);
        let mut hasher = PieceHasher::new(self.members.left());
        loop {
            let read = self.members.read_some(&mut self.buffer)?;
            if read == 0 {
                break;
            }
            if progress.is_cancelled() {
                return Err(ArchiveError::Cancelled);
            }
            hasher.update(&self.buffer[..read]);
            see(&self.buffer[..read])?;
            progress.advance(0, read as u64);
        }
        if hasher.finish().0 == *hash { Ok(()) } else { Err(wrong(hash)) }
    }
}

/// The hash of the manifest of the snapshot in an archive.
pub(super) fn manifest_hash(
    source: impl Read,
    identities: &Identities,
) -> Result<ContentHash, ArchiveError> {
    let mut members = Members::open(source, identities)?;
    document(&mut members, "meta/session.json")?;
    Ok(ContentHash::of(&document(&mut members, "meta/snapshot.json")?))
}

fn wrong(hash: &ContentHash) -> ArchiveError {
    ArchiveError::corrupt(format!("the bytes of {hash} have another hash"))
}

/// The member that has to come next.
fn expect<R: Read>(members: &mut Members<R>, path: &str, most: u64) -> Result<(), ArchiveError> {
    match members.next()? {
        Some(member) if member.path == path.as_bytes() && member.kind == EntryType::Regular => {
            if member.size > most {
                let reason = format!("{path} has {} bytes", member.size);
                return Err(ArchiveError::TooLarge { reason });
            }
            members.compare_document(path, member.size);
            Ok(())
        }
        _ => Err(ArchiveError::corrupt(format!("{path} is not where it has to be"))),
    }
}

fn document<R: Read>(members: &mut Members<R>, path: &str) -> Result<Vec<u8>, ArchiveError> {
    expect(members, path, MAX_DOCUMENT_BYTES)?;
    let mut bytes = Vec::new();
    members.read_to(&mut bytes, MAX_DOCUMENT_BYTES)?;
    check_document(path, &bytes)?;
    Ok(bytes)
}

fn delta_manifest<R: Read>(
    members: &mut Members<R>,
    expected: &mut Queue<EXPECTED_BYTES>,
) -> Result<(DeltaManifest, ContentHash), ArchiveError> {
    const PATH: &str = "meta/delta-manifest.json";
    expect(members, PATH, MAX_DELTA_BYTES)?;
    let mut contents = BufReader::with_capacity(STEP_BYTES, Contents::new(members));
    let (mut last, mut sum) = (Vec::new(), EntrySum::default());
    let mut entry = |entry: DeltaEntry| {
        sum.add(&entry);
        let DeltaEntry { path: text, hash, size, .. } = entry;
        let path = decode(&text);
        if !path.split(|byte| *byte == b'/').all(nono_engine::object::is_name) {
            return Err(ArchiveError::corrupt(format!("{text:?} is no path")));
        }
        if byte_path::order(&last, &path) != Ordering::Less {
            return Err(ArchiveError::corrupt(format!("{text:?} is there twice or out of order")));
        }
        if let (Some(hash), Some(size)) = (hash, size) {
            expected.push(Expected { path: short_path(&path), hash, size }.encode())?;
        }
        last = path;
        Ok(())
    };
    let read = Reader { line: &mut |_, _| Ok(()), entry: &mut entry }.read(&mut contents);
    if let Some(error) = contents.get_mut().error.take() {
        return Err(error);
    }
    let read = read.map_err(|error| match error {
        ArchiveError::Corrupt { reason } => ArchiveError::corrupt(format!("{PATH}: {reason}")),
        error => error,
    });
    Ok((read?, sum.finish()))
}
