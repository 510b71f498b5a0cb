//! Reading an archive as a stream.

mod stream;

use std::collections::{HashMap, HashSet};
use std::io::{BufReader, Read};
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;
use tar::EntryType;

use self::stream::{Contents, Member, Members};
use super::delta::{DeltaManifest, DeltaStats};
use super::name::{ArchiveId, ArchiveKind, ArchiveName};
use super::{ArchiveError, Identities};
use crate::manifest::SnapshotManifest;
use crate::object::{ContentHash, Hasher};
use crate::path_text::decode;
use crate::progress::Progress;
use crate::snapshot::{SessionMetadata, parse_manifest, parse_session};

/// Longest document of a session or a snapshot in an archive, in bytes.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// Longest delta manifest, in bytes: some millions of files.
const MAX_DELTA_BYTES: u64 = 1 << 30;
/// Longest list of a directory in an archive, in bytes.
pub(super) const MAX_OBJECT_BYTES: u64 = 64 << 20;
/// Step of reading contents, in bytes.
const STEP_BYTES: usize = 256 * 1024;

/// What an archive says of itself, checked for form.
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
            Some(parent) => ArchiveKind::Delta { parent: parent.number() },
        };
        ArchiveName { id: self.id.clone(), kind, is_encrypted: self.is_encrypted }
    }
}

/// An archive that was read to its end: every byte is there, and every file has its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArchiveSummary {
    /// What it says of itself.
    #[serde(flatten)]
    pub head: ArchiveHead,
    /// Files whose contents are in it.
    pub files: u64,
    /// Bytes of these contents.
    pub bytes: u64,
}

/// An open archive.
pub struct ArchiveReader<R: Read> {
    head: ArchiveHead,
    members: Members<R>,
    pub(super) session: SessionMetadata,
    /// The bytes of the snapshot's manifest.
    pub(super) snapshot: Vec<u8>,
    /// The files whose contents have to follow: hash of the path → hash and length.
    expected: HashMap<PathKey, (ContentHash, u64)>,
    seen: HashSet<PathKey>,
    buffer: Vec<u8>,
}

impl<R: Read> std::fmt::Debug for ArchiveReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveReader").field("head", &self.head).finish_non_exhaustive()
    }
}

/// A path, shortened: nobody finds two with one hash.
type PathKey = [u8; 16];

fn key_of(path: &[u8]) -> PathKey {
    let mut key = [0; 16];
    key.copy_from_slice(&ContentHash::of(path).as_bytes()[..16]);
    key
}

/// What comes behind the head, in this order.
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
        let delta = delta_manifest(&mut members)?;
        let id = ArchiveId::new(&session.session_id, manifest.number)?;
        let belongs = |other: &ArchiveId| other.session() == id.session();
        let base_is_own = delta.base_id == id;
        if !belongs(&delta.base_id)
            || delta.parent_id.as_ref().is_some_and(|it| !belongs(it) || it.number() >= id.number())
            || delta.parent_id.is_none() != base_is_own
            || delta.base_id.number() > id.number()
        {
            return Err(ArchiveError::NoChain {
                reason: format!("the parent or the base of {id} cannot be one"),
            });
        }
        let mut expected = HashMap::new();
        for entry in &delta.entries {
            let path = decode(&entry.path);
            if !path.split(|byte| *byte == b'/').all(crate::object::is_name) {
                return Err(ArchiveError::corrupt(format!("{:?} is no path", entry.path)));
            }
            if let (Some(hash), Some(size)) = (entry.hash, entry.size)
                && expected.insert(key_of(&path), (hash, size)).is_some()
            {
                return Err(ArchiveError::corrupt(format!("{:?} is there twice", entry.path)));
            }
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
        let (seen, buffer) = (HashSet::new(), Vec::new());
        Ok(Self { head, members, session, snapshot, expected, seen, buffer })
    }

    /// What it says of itself.
    pub fn head(&self) -> &ArchiveHead {
        &self.head
    }

    /// Reads the rest, hashes every file, and stores nothing.
    ///
    /// # Errors
    /// [`ArchiveError::Corrupt`], [`ArchiveError::Read`], [`ArchiveError::Cancelled`].
    pub fn verify(mut self, progress: &dyn Progress) -> Result<ArchiveSummary, ArchiveError> {
        let (mut files, mut bytes) = (0, 0);
        while let Some(part) = self.next_part()? {
            if progress.is_cancelled() {
                return Err(ArchiveError::Cancelled);
            }
            match part {
                Part::Object(hash, _) => self.contents(&hash, progress, |_| Ok(()))?,
                Part::File(hash, size) => {
                    self.contents(&hash, progress, |_| Ok(()))?;
                    files += 1;
                    bytes += size;
                    progress.advance(1, 0);
                }
                Part::Snapshot(..) | Part::Other => {}
            }
        }
        Ok(ArchiveSummary { head: self.head, files, bytes })
    }

    /// The next part; what is left of the one before is passed over. At the end, every file that
    /// was announced has come.
    pub(super) fn next_part(&mut self) -> Result<Option<Part>, ArchiveError> {
        let Some(Member { path, kind, size }) = self.members.next()? else {
            return match self.expected.len() {
                0 => Ok(None),
                missing => Err(ArchiveError::corrupt(format!("{missing} files are not in it"))),
            };
        };
        let shown = || crate::path_text::Shown::bytes(&path).to_string();
        let key = key_of(&path);
        if !self.seen.insert(key) {
            return Err(ArchiveError::corrupt(format!("{} is there twice", shown())));
        }
        let text = |prefix: &[u8]| std::str::from_utf8(path.strip_prefix(prefix)?).ok();
        if let Some(file) = path.strip_prefix(b"files/") {
            return match kind {
                EntryType::Regular => match self.expected.remove(&key_of(file)) {
                    Some((hash, announced)) if announced == size => {
                        Ok(Some(Part::File(hash, size)))
                    }
                    _ => Err(ArchiveError::corrupt(format!("{} is not announced so", shown()))),
                },
                EntryType::Link => match self.expected.remove(&key_of(file)) {
                    Some(_) => Ok(Some(Part::Other)),
                    None => Err(ArchiveError::corrupt(format!("{} is not announced", shown()))),
                },
                _ => Ok(Some(Part::Other)),
            };
        }
        if kind == EntryType::Regular {
            if let Some(hash) = text(b"meta/objects/").and_then(|hex| hex.parse().ok()) {
                return Ok(Some(Part::Object(hash, size)));
            }
            let number = text(b"meta/snapshots/").and_then(|it| it.strip_suffix(".json"));
            if let Some(number) = number.and_then(|it| it.parse::<u32>().ok()) {
                let mut bytes = Vec::new();
                self.members.read_to(&mut bytes, MAX_DOCUMENT_BYTES)?;
                return Ok(Some(Part::Snapshot(number.into(), bytes)));
            }
        }
        Err(ArchiveError::corrupt(format!("{} is no part of an archive", shown())))
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
        let mut hasher = Hasher::new();
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
        if hasher.finish() == *hash { Ok(()) } else { Err(wrong(hash)) }
    }
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
            Ok(())
        }
        _ => Err(ArchiveError::corrupt(format!("{path} is not where it has to be"))),
    }
}

fn document<R: Read>(members: &mut Members<R>, path: &str) -> Result<Vec<u8>, ArchiveError> {
    expect(members, path, MAX_DOCUMENT_BYTES)?;
    let mut bytes = Vec::new();
    members.read_to(&mut bytes, MAX_DOCUMENT_BYTES)?;
    Ok(bytes)
}

fn delta_manifest<R: Read>(members: &mut Members<R>) -> Result<DeltaManifest, ArchiveError> {
    const PATH: &str = "meta/delta-manifest.json";
    expect(members, PATH, MAX_DELTA_BYTES)?;
    let mut contents = BufReader::with_capacity(STEP_BYTES, Contents::new(members));
    let parsed: Result<DeltaManifest, _> = serde_json::from_reader(&mut contents);
    if let Some(error) = contents.get_mut().error.take() {
        return Err(error);
    }
    let delta = parsed.map_err(|error| ArchiveError::corrupt(format!("{PATH}: {error}")))?;
    delta.validate().map_err(|reason| ArchiveError::corrupt(format!("{PATH}: {reason}")))?;
    Ok(delta)
}
