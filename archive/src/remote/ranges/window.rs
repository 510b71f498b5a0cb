//! A store in the cache whose sessions and objects come from a remote when they are asked for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::archive::{Found, RangedArchive};
use super::blocks::Blocks;
use super::cache::Bound;
use super::streamed::{self, is_of, store_all};
use crate::limits::MAX_DOCUMENT_BYTES;
use crate::remote::archives::Archives;
use crate::remote::error::RemoteError;
use crate::remote::inventory::Inventory;
use crate::remote::place::Place;
use crate::{ArchiveError, ArchiveId, ArchiveName, Identities, Receiver};
use nono_engine::layout;
use nono_engine::object::ContentHash;
use nono_engine::progress::NoProgress;
use nono_engine::snapshot::{SessionDir, SessionMetadata, parse_session};
use nono_engine::store::{LocalStore, Origin, OriginError, StoreError};
use nono_engine::sys::{self, Dir, FileKind};

/// Archives that stay open.
const MAX_OPEN: usize = 64;
/// Permissions of the manifest that stands in for one that did not come yet.
const MODE: u16 = 0o600;

/// Called with an archive that is read from its beginning.
type Tell = dyn Fn(&ArchiveName) + Send + Sync;

/// A remote behind a store in the cache.
pub struct Window {
    place: Arc<Place>,
    archives: Archives,
    keys: Identities,
    /// The root directory of the store.
    root: PathBuf,
    bound: Bound,
    tell: Box<Tell>,
    /// Sessions whose manifests are in the store.
    shown: Mutex<HashSet<String>>,
    /// The archives of these sessions, the one that gave an object last first.
    asked: Mutex<Vec<ArchiveName>>,
    open: Mutex<HashMap<ArchiveName, Arc<RangedArchive>>>,
    /// Archives without an index, of which it was told.
    told: Mutex<HashSet<ArchiveName>>,
    /// Objects that no archive has.
    nowhere: Mutex<HashSet<ContentHash>>,
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window").field("root", &self.root).finish_non_exhaustive()
    }
}

/// The manifests of a session, as archives have them.
#[derive(Default)]
struct Manifests {
    session: Option<SessionMetadata>,
    by_number: BTreeMap<u64, Vec<u8>>,
}

impl Window {
    /// A window to a listed remote, with its store in `root`. The directory is made when it is
    /// missing. `tell` hears of archives that are read from their beginning.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn new(
        place: Place,
        inventory: &Inventory,
        keys: Identities,
        root: &Path,
        tell: impl Fn(&ArchiveName) + Send + Sync + 'static,
    ) -> Result<Self, RemoteError> {
        let setup = |reason| RemoteError::Setup { place: place.address().to_string(), reason };
        let bound = Bound::of_environment().map_err(setup)?;
        sys::create_private_dir(root)?;
        LocalStore::create(&root.join(layout::OBJECTS)).map_err(ArchiveError::from)?;
        Ok(Self {
            place: Arc::new(place),
            archives: inventory.archives.clone(),
            keys,
            root: root.to_owned(),
            bound,
            tell: Box::new(tell),
            shown: Mutex::default(),
            asked: Mutex::default(),
            open: Mutex::default(),
            told: Mutex::default(),
            nowhere: Mutex::default(),
        })
    }

    /// Puts a name for each session of the remote into the store, and takes away those of others.
    /// Their manifests come when they are looked at.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn show_names(&self) -> Result<(), RemoteError> {
        let root = Dir::open(&self.root)?;
        let ids = self.archives.sessions();
        for listed in root.names()? {
            let id = str::from_utf8(&listed.name).unwrap_or_default();
            if layout::may_be_session(&listed.name) && !ids.contains(id) {
                root.remove_dir_all(&listed.name)?;
            }
        }
        for id in ids {
            let is_there = root.try_stat(id.as_bytes())?.is_some();
            if is_there || self.numbers(id)?.is_empty() {
                continue;
            }
            root.make_dir(id.as_bytes(), 0o700)?;
            let started = started_of(id);
            let manifest =
                format!("{{\"received\":true,\"started\":\"{started}\",\"tracked_paths\":[]}}");
            let dir = root.open_dir(id.as_bytes())?;
            dir.replace_file(layout::MANIFEST.as_bytes(), manifest.as_bytes(), MODE, false)?;
        }
        Ok(())
    }

    /// Numbers of the snapshots of a session that can be had.
    fn numbers(&self, session: &str) -> Result<Vec<u64>, RemoteError> {
        let available = self.archives.available(session).map_err(ArchiveError::from)?;
        Ok(available.into_iter().map(|(number, _)| number).collect())
    }

    /// Puts the manifests of a session into the store, unless they are there.
    ///
    /// # Errors
    /// When they cannot be had, or the store cannot be written.
    pub fn show_session(&self, session: &str) -> Result<(), RemoteError> {
        let mut shown = self.shown.lock();
        if shown.contains(session) || ArchiveId::new(session, 0).is_err() {
            return Ok(());
        }
        let numbers = self.numbers(session)?;
        if numbers.is_empty() {
            return Ok(());
        }
        if !self.is_here(session, &numbers) {
            self.fetch_session(session, &numbers)?;
        }
        let mut asked = self.asked.lock();
        for number in numbers.iter().rev() {
            let id = ArchiveId::new(session, *number).map_err(ArchiveError::from)?;
            for name in self.archives.chain(&id).unwrap_or_default() {
                if !asked.contains(name) {
                    asked.push(name.clone());
                }
            }
        }
        shown.insert(session.to_owned());
        Ok(())
    }

    /// Whether the store has the manifests of these snapshots of a session, from an earlier look.
    fn is_here(&self, session: &str, numbers: &[u64]) -> bool {
        let Ok(dir) = SessionDir::open(&self.root.join(session)) else { return false };
        dir.metadata().is_ok() && dir.snapshot_numbers().is_ok_and(|here| here == numbers)
    }

    /// Fetches the manifests of a session: those of snapshots that can be had from the beginnings
    /// of their archives, and the others by their hashes.
    fn fetch_session(&self, session: &str, numbers: &[u64]) -> Result<(), RemoteError> {
        let mut found = Manifests::default();
        for number in numbers.iter().rev() {
            let id = ArchiveId::new(session, *number).map_err(ArchiveError::from)?;
            if let Some(name) = self.archives.chain(&id).unwrap_or_default().first() {
                self.add_manifests(name, *number, &mut found)?;
            }
        }
        let facts = found.session.ok_or_else(|| ArchiveError::corrupt("no session"))?;
        let last = numbers.last().copied().unwrap_or(0);
        for number in 0..last {
            if !found.by_number.contains_key(&number)
                && let Some(hash) = facts.manifest_hashes.get(number as usize)
            {
                let bytes = self.find_manifest(session, number, hash)?;
                found.by_number.extend(bytes.map(|bytes| (number, bytes)));
            }
        }
        let root = Dir::open(&self.root)?;
        if root.try_stat(session.as_bytes())?.is_some() {
            root.remove_dir_all(session.as_bytes())?;
        }
        let receiver = Receiver::new(&self.root, session, &NoProgress)?;
        Ok(receiver.show(facts, &found.by_number, numbers)?)
    }

    /// Adds the manifests in the beginning of an archive.
    fn add_manifests(
        &self,
        name: &ArchiveName,
        number: u64,
        found: &mut Manifests,
    ) -> Result<(), RemoteError> {
        let read = self.archive(name)?.manifests();
        if let Ok((session, snapshot)) = read {
            let session = parse_session(&session, Path::new("meta/session.json"));
            let session = session.map_err(ArchiveError::from)?;
            found.session.get_or_insert(session);
            found.by_number.insert(number, snapshot);
            return Ok(());
        }
        // Another program made it.
        let source = self.place.open_object(&name.to_string(), &NoProgress)?;
        let streamed::Manifests { session, snapshot, earlier } =
            streamed::manifests(source, &self.keys)?;
        found.session.get_or_insert(session);
        found.by_number.insert(number, snapshot);
        for (number, bytes) in earlier {
            found.by_number.entry(number).or_insert(bytes);
        }
        Ok(())
    }

    /// The manifest of a snapshot that has no archive: one of a later snapshot has it.
    fn find_manifest(
        &self,
        session: &str,
        number: u64,
        hash: &ContentHash,
    ) -> Result<Option<Vec<u8>>, RemoteError> {
        let later = |name: &&ArchiveName| name.id.number() > number;
        for name in self.archives.of_session(session).map(|(name, _)| name).filter(later) {
            let archive = self.archive(name)?;
            match archive.find(hash).map_err(ArchiveError::Read)? {
                Found::At(at) => {
                    let mut contents = archive.contents(at).map_err(ArchiveError::Read)?;
                    let mut bytes = Vec::new();
                    if contents.left() <= MAX_DOCUMENT_BYTES {
                        io::Read::read_to_end(&mut contents, &mut bytes)
                            .map_err(ArchiveError::Read)?;
                    }
                    if is_of(hash, &bytes) {
                        return Ok(Some(bytes));
                    }
                }
                Found::Nowhere => {}
                Found::NoIndex => {
                    let source = self.place.open_object(&name.to_string(), &NoProgress)?;
                    let mut earlier = streamed::manifests(source, &self.keys)?.earlier.into_iter();
                    if let Some((_, bytes)) = earlier.find(|(_, bytes)| is_of(hash, bytes)) {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
        Ok(None)
    }

    /// An archive, opened unless it is.
    fn archive(&self, name: &ArchiveName) -> Result<Arc<RangedArchive>, ArchiveError> {
        if let Some(archive) = self.open.lock().get(name) {
            return Ok(Arc::clone(archive));
        }
        let size = self.archives.of_session(name.id.session());
        let size = size.filter(|(listed, _)| *listed == name).map(|(_, size)| size).next();
        let blocks = Blocks::new(Arc::clone(&self.place), name.to_string(), size.unwrap_or(0));
        let archive = Arc::new(RangedArchive::open(blocks, &self.keys)?);
        let mut open = self.open.lock();
        if open.len() >= MAX_OPEN {
            open.clear();
        }
        open.insert(name.clone(), Arc::clone(&archive));
        Ok(archive)
    }

    /// Stores an object from an archive with an index.
    fn take(
        &self,
        store: &LocalStore,
        archive: &RangedArchive,
        hash: &ContentHash,
        at: u64,
    ) -> Result<(), StoreError> {
        let failed =
            |error: io::Error| StoreError::NotFetched { hash: *hash, reason: error.to_string() };
        let size = archive.contents(at).map_err(failed)?.left();
        self.bound.make_room(store, size)?;
        let mut fill = |out: &mut dyn Write| io::copy(&mut archive.contents(at)?, out).map(drop);
        store.take(hash, &mut fill)
    }

    /// Looks for an object in the archives of the shown sessions.
    fn look(&self, store: &LocalStore, hash: &ContentHash) -> Result<bool, OriginError> {
        let asked = self.asked.lock().clone();
        let (mut without_index, mut failed) = (Vec::new(), None::<OriginError>);
        for name in &asked {
            let words = |error: &dyn std::fmt::Display| OriginError(format!("{name}: {error}"));
            let archive = match self.archive(name) {
                Ok(archive) => archive,
                Err(error) => {
                    failed = failed.or(Some(words(&error)));
                    continue;
                }
            };
            match archive.find(hash) {
                Ok(Found::At(at)) => match self.take(store, &archive, hash, at) {
                    Ok(()) => {
                        let mut asked = self.asked.lock();
                        if let Some(at) = asked.iter().position(|one| one == name) {
                            asked[..=at].rotate_right(1);
                        }
                        return Ok(true);
                    }
                    // An index that is wrong, or a full disk.
                    Err(error) => failed = failed.or(Some(words(&error))),
                },
                Ok(Found::Nowhere) => {}
                Ok(Found::NoIndex) => without_index.push(name),
                Err(error) => failed = failed.or(Some(words(&error))),
            }
        }
        for name in without_index {
            let words = |error: &dyn std::fmt::Display| OriginError(format!("{name}: {error}"));
            if self.told.lock().insert(name.clone()) {
                (self.tell)(name);
            }
            let source = self.place.open_object(&name.to_string(), &NoProgress);
            let source = source.map_err(|error| words(&error))?;
            store_all(source, &self.keys, store).map_err(|error| words(&error))?;
            // All of them came, and the next ones that are asked for are there.
            if matches!(sys::kind_of(&store.object_path(hash)), Ok(Some(FileKind::File))) {
                return Ok(true);
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(false),
        }
    }
}

impl Origin for Window {
    fn fetch(&self, store: &LocalStore, hash: &ContentHash) -> Result<bool, OriginError> {
        if self.nowhere.lock().contains(hash) {
            return Ok(false);
        }
        let found = self.look(store, hash)?;
        if !found {
            self.nowhere.lock().insert(*hash);
        }
        Ok(found)
    }

    fn show(&self, session_id: &str) -> Result<(), OriginError> {
        self.show_session(session_id).map_err(|error| OriginError(error.to_string()))
    }
}

/// The time in the id of a session, or else the earliest one.
fn started_of(id: &str) -> jiff::Timestamp {
    let digits = id.get(..15).unwrap_or_default();
    let time = jiff::civil::DateTime::strptime("%Y%m%d-%H%M%S", digits);
    let zoned = time.and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC));
    zoned.map(|zoned| zoned.timestamp()).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}
