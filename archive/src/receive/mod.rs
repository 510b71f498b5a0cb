//! A chain of archives becomes snapshots of a session.
//!
//! ```text
//! let mut receiver = Receiver::new(root, "20260214-143022-12345", progress)?;
//! let mut next = receiver.read(open(5)?, &keys, Role::Target)?;
//! while let Some(parent) = next.needs {
//!     next = receiver.read(open(parent)?, &keys, Role::Source)?;
//! }
//! receiver.finish()?;
//! ```

mod appear;
mod manifests;
mod missing;
mod needs;

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub(super) use self::appear::check_roots;
use self::manifests::{Link, Manifests};
use self::needs::Needs;
use super::name::ArchiveId;
use super::read::{ArchiveHead, ArchiveReader, Part};
use super::{ArchiveError, Identities, state};
use nono_engine::layout;
use nono_engine::manifest::SnapshotManifest;
use nono_engine::object::ContentHash;
use nono_engine::progress::{Amount, Progress, Stage, wait_for};
use nono_engine::snapshot::{ManifestError, SessionDir, SessionMetadata, parse_manifest};
use nono_engine::store::{ImportError, LocalStore, ObjectStore, Packer, StoreLock, Transfer};
use nono_engine::sys::{self, Dir, IoContext, TempFile};

/// Contents up to this length are held in memory.
const SMALL_BYTES: u64 = 1 << 20;

/// The purpose of reading an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Its snapshot is to be there afterwards.
    Target,
    /// Only for what other snapshots need of it.
    Source,
}

/// An archive that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Its own description.
    pub head: ArchiveHead,
    /// The snapshot whose archive has to be read next, because something is still missing. `None`:
    /// everything is there.
    pub needs: Option<ArchiveId>,
}

/// Snapshots that are there now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReceiveReport {
    /// The session.
    pub session_id: String,
    /// Whether it was made; else it was there.
    pub is_new_session: bool,
    /// Numbers of the snapshots that were made, ascending.
    pub snapshots: Vec<u64>,
    /// Numbers of those that were there already.
    pub already_here: Vec<u64>,
    /// Objects that the store did not have.
    pub objects_written: u64,
    /// Bytes of these objects.
    pub bytes_written: u64,
    /// Whether the store had contents that were not read.
    pub uses_unread: bool,
}

/// Makes snapshots of one session. Archives are read one after the other, each target before its
/// parents, the highest number first. Parents of other sessions come last, in any order, and only
/// for their trees and files. Nothing appears before [`finish`](Self::finish); a receiver
/// that is dropped leaves nothing that a cleanup does not remove.
pub struct Receiver<'a> {
    progress: &'a dyn Progress,
    root: PathBuf,
    session: String,
    store: LocalStore,
    lock: StoreLock,
    needs: Needs,
    /// Snapshots that the session has here, removed ones included: hashes of their manifests.
    here: Vec<ContentHash>,
    /// Snapshots that are held.
    held: Vec<u64>,
    /// Snapshots that the session lists, and whose manifests are missing or damaged.
    lost: Vec<u64>,
    /// Snapshots of which nothing may be missing at the end, those that are held included.
    targets: Vec<ArchiveHead>,
    manifests: Manifests,
    /// Facts of the session, of the archive that knows most.
    facts: Option<SessionMetadata>,
    last_read: Option<ArchiveHead>,
    /// The lowest number of an archive of the session that was read.
    lowest: Option<u64>,
    objects_written: u64,
    bytes_written: u64,
}

impl std::fmt::Debug for Receiver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("session", &self.session).finish_non_exhaustive()
    }
}

impl<'a> Receiver<'a> {
    /// Begins to receive snapshots of a session into the store in `root`, which is made when it is
    /// missing.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub fn new(
        root: &Path,
        session: &str,
        progress: &'a dyn Progress,
    ) -> Result<Self, ArchiveError> {
        ArchiveId::new(session, 0)?;
        sys::create_private_dir(root)?;
        let store = LocalStore::create(&root.join(layout::OBJECTS))?;
        // Held until the session is visible: the collector sees all of it or nothing.
        let lock = wait_for(progress, || store.try_lock_shared())?;
        let lock = lock.ok_or(ArchiveError::Cancelled)?;
        let (here, held, lost) = match SessionDir::open(&root.join(session)) {
            Ok(dir) => snapshots_of(&dir)?,
            Err(_) => Default::default(),
        };
        Ok(Self {
            progress,
            root: root.to_owned(),
            session: session.to_owned(),
            store,
            lock,
            needs: Needs::default(),
            here,
            held,
            lost,
            targets: Vec::new(),
            manifests: Manifests::default(),
            facts: None,
            last_read: None,
            lowest: None,
            objects_written: 0,
            bytes_written: 0,
        })
    }

    /// The numbers of the session's snapshots that are here already, so that they need not be had.
    pub fn already_here(&self) -> &[u64] {
        &self.held
    }

    /// Whether nothing is missing any more.
    ///
    /// # Errors
    /// When a temporary file cannot be read.
    pub fn is_whole(&self) -> Result<bool, ArchiveError> {
        Ok(self.lacking()?.is_none())
    }

    /// Reads one archive, and of it only what is still needed.
    ///
    /// # Errors
    /// As [`ArchiveError`] says. The receiver cannot be used any more.
    pub fn read(
        &mut self,
        source: impl Read,
        identities: &Identities,
        role: Role,
    ) -> Result<ReadOutcome, ArchiveError> {
        let mut reader = ArchiveReader::open(source, identities)?;
        let head = reader.head().clone();
        self.check_place(&head, role)?;
        if head.id.session() == self.session {
            self.take_own(&mut reader, &head, role)?;
        }
        self.read_parts(&mut reader)?;
        self.last_read = Some(head.clone());
        let is_whole = self.is_whole()?;
        let needs = head.parent.clone().filter(|_| !is_whole);
        Ok(ReadOutcome { head, needs })
    }

    /// Takes the manifest of an archive of the session, and what it says of the session.
    fn take_own<R: Read>(
        &mut self,
        reader: &mut ArchiveReader<R>,
        head: &ArchiveHead,
        role: Role,
    ) -> Result<(), ArchiveError> {
        let number = head.id.number();
        self.lowest = Some(number);
        let bytes = std::mem::take(&mut reader.snapshot);
        let manifest = self.add_manifest(number, &bytes, number)?;
        if self.facts.as_ref().is_none_or(|it| it.snapshot_count < reader.session.snapshot_count) {
            self.facts = Some(reader.session.clone());
        }
        if role == Role::Target {
            // Also of one that is here: what is lost of it comes back.
            self.needs.need(&self.store, head.merkle_root)?;
            self.targets.push(head.clone());
        }
        self.need_ignore_files(&manifest)
    }

    /// Whether an archive may be read now. One of this session is older than the one before, and a
    /// target is of this session. Its base may be another one: a remote may have got a full archive
    /// in place of a delta. The Merkle root of the target decides about the contents.
    fn check_place(&self, head: &ArchiveHead, role: Role) -> Result<(), ArchiveError> {
        let no = |reason: String| Err(ArchiveError::NoChain { reason });
        if head.id.session() != self.session {
            return match role {
                Role::Source => Ok(()),
                Role::Target => {
                    no(format!("{} is no snapshot of session {}", head.id, self.session))
                }
            };
        }
        match self.lowest {
            Some(lowest) if head.id.number() >= lowest => {
                no(format!("{} does not stand before {}/{lowest}", head.id, self.session))
            }
            _ => Ok(()),
        }
    }

    /// Takes a manifest that came in the archive of snapshot `from`.
    fn add_manifest(
        &mut self,
        number: u64,
        bytes: &[u8],
        from: u64,
    ) -> Result<SnapshotManifest, ArchiveError> {
        let manifest: SnapshotManifest = parse_manifest(bytes, Path::new("meta/snapshots"))?;
        manifest.validate(number).map_err(ArchiveError::corrupt)?;
        if manifest.parent != number.checked_sub(1) {
            let reason = format!("snapshot {number} does not name the one before it");
            return Err(ArchiveError::corrupt(reason));
        }
        let link = Link { hash: ContentHash::of(bytes), parent_hash: manifest.parent_hash, from };
        self.check_history(number, &link)?;
        self.manifests.add(number, bytes, link)?;
        Ok(manifest)
    }

    /// Whether a manifest is the one here and the one that came before, and stands between its
    /// neighbors. All that came are a chain with those here once each of them passed.
    fn check_history(&self, number: u64, link: &Link) -> Result<(), ArchiveError> {
        let session = || self.session.clone();
        let before = number.checked_sub(1);
        let here = |number: u64| self.here.get(number as usize);
        let does_not_follow = |number: u64, where_: &str| {
            let before = number.saturating_sub(1);
            format!(
                "snapshot {number} in the archive does not follow the snapshot {before} {where_}"
            )
        };
        let reason = if here(number).is_some_and(|it| *it != link.hash) {
            Some(format!("its snapshot {number} is not the one in the archive"))
        } else if before.and_then(here).is_some_and(|it| link.parent_hash != Some(*it)) {
            Some(does_not_follow(number, "here"))
        } else {
            None
        };
        if let Some(reason) = reason {
            return Err(ArchiveError::OtherHistory {
                session: session(),
                number: link.from,
                reason,
            });
        }
        let came = |number: u64| self.manifests.link(number);
        let same = came(number).filter(|it| it.hash != link.hash);
        let after = came(number + 1).filter(|it| it.parent_hash != Some(link.hash));
        let before = before.and_then(came).filter(|it| link.parent_hash != Some(it.hash));
        let (other, reason) = match (same, after, before) {
            (Some(other), ..) => (other, format!("snapshot {number} is another one in each")),
            (_, Some(other), _) => (other, does_not_follow(number + 1, "in another one")),
            (_, _, Some(other)) => (other, does_not_follow(number, "in another one")),
            (None, None, None) => return Ok(()),
        };
        match other.from == link.from {
            true => Err(ArchiveError::corrupt("its manifests are no chain")),
            false => {
                Err(ArchiveError::TwoHistories { session: session(), number: other.from, reason })
            }
        }
    }

    /// Later snapshots go by the ignore files of earlier ones.
    fn need_ignore_files(&mut self, manifest: &SnapshotManifest) -> Result<(), ArchiveError> {
        match manifest.ignore_files.filter(|_| !self.targets.is_empty()) {
            Some(root) => Ok(self.needs.need(&self.store, root)?),
            None => Ok(()),
        }
    }

    fn read_parts<R: Read>(&mut self, reader: &mut ArchiveReader<R>) -> Result<(), ArchiveError> {
        self.progress.begin(Stage::Copy, None);
        let mut next = reader.next_part()?;
        while let Some(Part::Snapshot(number, bytes)) = &next {
            if *number >= reader.head().id.number() {
                return Err(ArchiveError::corrupt("a manifest out of order"));
            }
            if reader.head().id.session() == self.session {
                let from = reader.head().id.number();
                let manifest = self.add_manifest(*number, bytes, from)?;
                self.need_ignore_files(&manifest)?;
            }
            next = reader.next_part()?;
        }
        let packer = Packer::new(&self.store, &self.lock);
        let mut have_files_begun = false;
        while let Some(part) = next {
            if self.progress.is_cancelled() {
                return Err(ArchiveError::Cancelled);
            }
            if matches!(part, Part::File(..)) && !have_files_begun {
                have_files_begun = true;
                self.needs.files_begin()?;
            }
            match part {
                Part::Object(hash, size) if self.needs.has(&hash)? => {
                    let bytes = reader.bytes(&hash)?;
                    self.needs.came(&self.store, &hash, &bytes)?;
                    let stored = packer.write(&bytes)?;
                    self.objects_written += u64::from(stored.is_new);
                    self.bytes_written += if stored.is_new { size } else { 0 };
                }
                Part::File(hash, size) if self.needs.has_file(&hash, size)? => {
                    let is_new = take(reader, &packer, &self.store, &hash, size, self.progress)?;
                    self.objects_written += u64::from(is_new);
                    self.bytes_written += if is_new { size } else { 0 };
                    self.needs.came_file(&hash)?;
                    self.progress.advance(1, 0);
                }
                // In front of the objects alone.
                Part::Snapshot(..) => {}
                Part::Object(..) | Part::File(..) | Part::Other => {
                    // The rest has nothing that is still missing.
                    if matches!(part, Part::File(..) | Part::Other)
                        && self.targets.last() != Some(reader.head())
                        && self.needs.is_empty()
                    {
                        break;
                    }
                }
            }
            next = reader.next_part()?;
        }
        packer.finish()?;
        Ok(())
    }

    /// The missing things: objects, or manifests of earlier snapshots.
    fn lacking(&self) -> Result<Option<String>, ArchiveError> {
        let Some(last) = self.targets.first().map(|head| head.id.number()) else {
            return Ok(None);
        };
        let is_here = |number: u64| number < self.here.len() as u64 && !self.lost.contains(&number);
        let missing = (0..last).find(|it| !is_here(*it) && !self.manifests.has(*it));
        Ok(match missing {
            Some(number) => Some(format!("the manifest of snapshot {number}")),
            None => self.needs.first()?.map(|hash| format!("object {hash}")),
        })
    }

    /// Checks everything against the Merkle roots and the hashes of the files, makes it durable,
    /// and lets the snapshots appear.
    ///
    /// # Errors
    /// [`ArchiveError::Incomplete`], [`ArchiveError::Diverged`], or as [`ArchiveError`] says; then
    /// nothing appears.
    pub fn finish(self) -> Result<ReceiveReport, ArchiveError> {
        if let (Some(last), Some(lacking)) = (&self.last_read, self.lacking()?) {
            let Some(missing) = last.parent.clone() else {
                return Err(ArchiveError::corrupt(format!("{}: {lacking} is not in it", last.id)));
            };
            let id = self.targets.first().map_or_else(|| last.id.clone(), |head| head.id.clone());
            return Err(ArchiveError::Incomplete { id, missing });
        }
        for target in &self.targets {
            let number = target.id.number();
            let bytes = self.manifests.get(number)?.unwrap_or_default();
            let manifest = parse_manifest(&bytes, Path::new("meta/snapshot.json"))?;
            state::check(&self.store, target, &manifest, self.progress)?;
        }
        self.needs.make_midstates(&self.store, self.progress)?;
        self.progress.begin(Stage::Flush, None::<Amount>);
        self.store.sync()?;
        self.appear()
    }
}

/// Hashes and two lists of numbers.
type Snapshots = (Vec<ContentHash>, Vec<u64>, Vec<u64>);

/// The snapshots of a session: hashes of all manifests, numbers of those that are held, and of
/// those whose manifests are lost. The session's own manifest vouches for what is lost.
fn snapshots_of(dir: &SessionDir) -> Result<Snapshots, ManifestError> {
    let unusable = match dir.chain() {
        Ok(chain) => {
            let hashes = chain.iter().map(|it| it.hash).collect();
            return Ok((hashes, dir.snapshot_numbers()?, Vec::new()));
        }
        Err(error) => error,
    };
    let metadata = dir.metadata()?;
    let is_lost = |(number, hash): (u64, &ContentHash)| match dir.manifest(number) {
        Ok(loaded) => (loaded.hash != *hash).then_some(number),
        Err(_) => Some(number),
    };
    let lost: Vec<u64> = (0..).zip(&metadata.manifest_hashes).filter_map(is_lost).collect();
    if lost.is_empty() || metadata.altered.is_some() {
        return Err(unusable);
    }
    let mut held = dir.snapshot_numbers()?;
    held.retain(|number| !lost.contains(number));
    Ok((metadata.manifest_hashes, held, lost))
}

/// Stores the contents of a file, checked before the store has them.
fn take<R: Read>(
    reader: &mut ArchiveReader<R>,
    packer: &Packer<'_>,
    store: &LocalStore,
    hash: &ContentHash,
    size: u64,
    progress: &dyn Progress,
) -> Result<bool, ArchiveError> {
    if size <= SMALL_BYTES {
        let bytes = reader.bytes(hash)?;
        progress.advance(0, size);
        return Ok(packer.write(&bytes)?.is_new);
    }
    let dir = Dir::open(store.path())?;
    if let Some(free) = dir.free_bytes()?
        && size > free
    {
        let reason = format!("a file of {size} bytes, and the disk has {free}");
        return Err(ArchiveError::TooLarge { reason });
    }
    let temp = TempFile::new(&dir, 0o600)?;
    let mut at = 0;
    reader.contents(hash, progress, |bytes| {
        // A run of zeros stays a hole.
        if bytes.iter().any(|byte| *byte != 0) {
            temp.file().write_all_at(bytes, at).at("write an object in", dir.path())?;
        }
        at += bytes.len() as u64;
        Ok(())
    })?;
    temp.file().set_len(size).at("write an object in", dir.path())?;
    let mut buffer = Vec::new();
    let mut transfer = Transfer::unwatched(&mut buffer);
    let imported =
        packer.import(temp.file(), size, true, &mut transfer).map_err(|error| match error {
            ImportError::Source(error) => ArchiveError::Read(error),
            ImportError::Store(error) => error.into(),
        })?;
    if let Some(midstates) = &imported.midstates {
        packer.write(&midstates.encode())?;
    }
    Ok(imported.is_new)
}
