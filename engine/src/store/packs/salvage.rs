//! The whole objects of a damaged pack: the blocks name them when the index does not.
//!
//! The pack itself goes into quarantine. The disk may give later the bytes that it did not give
//! then, so a repair [looks there](LocalStore::take_from_quarantine) again.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use super::block::{BLOCK_HEADER_BYTES, decode, lengths};
use super::cache::BlockCache;
use super::format::{Entry, HEADER_BYTES, Kind, RECORD_BYTES};
use super::writer::Limits;
use super::{Pack, Unreadable, packs_dir};
use crate::counted::counted;
use crate::layout;
use crate::object::ContentHash;
use crate::path_text::{Shown, to_path};
use crate::progress::Progress;
use crate::store::{LocalStore, StoreError, StoreLock};
use crate::sys::{self, Dir, FileKind, IoContext};

/// More bytes than this no pack has: its blocks end soon after 128 MiB, and its index is shorter.
const MAX_BYTES: u64 = 256 << 20;
/// The most bytes that a bad place on the disk costs.
const STEP_BYTES: usize = 4096;

/// The treatment of a pack that the disk does not give back as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadDisk {
    /// Leave it, which is an error: the disk may yet give it, and no repair was asked for.
    Refuse,
    /// Take what there is. This is a repair.
    TakeTheRest,
}

impl BadDisk {
    /// Checks a pack as far as it has to be right. Everything but a repair needs the index alone,
    /// and to read the records takes longer.
    fn check(self, pack: &Pack) -> Result<(), StoreError> {
        match self {
            Self::Refuse => pack.check_index(),
            Self::TakeTheRest => pack.check(),
        }
    }
}

/// How packs are gone through.
#[derive(Clone, Copy)]
struct Salvaging<'a> {
    bad_disk: BadDisk,
    progress: &'a dyn Progress,
}

impl Salvaging<'_> {
    fn go_on(self) -> Result<(), StoreError> {
        match self.progress.is_cancelled() {
            true => Err(StoreError::Cancelled),
            false => Ok(()),
        }
    }
}

/// The objects that were taken out of damaged packs.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// Where packs are now that were moved into quarantine.
    pub set_aside: Vec<PathBuf>,
    /// Whether the disk gave packs at the second look.
    pub(crate) are_read_again: bool,
    /// The objects that can be read again.
    pub(crate) objects: HashSet<ContentHash>,
    /// Packs of which the disk did not give all: in quarantine, or where they were if not even that
    /// could be done.
    pub(crate) not_given: Vec<PathBuf>,
}

impl LocalStore {
    /// Takes intact objects out of packs in quarantine, as far as no pack has them: the disk may
    /// give now the bytes that it did not give before. The packs stay there, because their damaged
    /// objects must not count as stored. Each is tried once as long as the store is open, unless it
    /// came there meanwhile. The lock is the exclusive one.
    ///
    /// # Errors
    /// When the directory cannot be read, or nothing can be written, or it was cancelled.
    pub(crate) fn take_from_quarantine(
        &self,
        salvaged: &mut Salvaged,
        progress: &dyn Progress,
        _lock: &StoreLock,
    ) -> Result<(), StoreError> {
        let Some(quarantine) = self.quarantine_dir()? else { return Ok(()) };
        for listed in quarantine.names()? {
            let is_pack = listed.name.starts_with(layout::DAMAGED_PACK_PREFIX.as_bytes());
            if !is_pack || self.packs().is_tried(&listed.name) {
                continue;
            }
            let how = Salvaging { bad_disk: BadDisk::TakeTheRest, progress };
            let is_all = match self.copy_intact(&quarantine, &listed.name, how, salvaged) {
                Err(StoreError::Io(error)) if error.kind() == ErrorKind::PermissionDenied => {
                    tracing::warn!("{error}");
                    false
                }
                copied => copied?,
            };
            self.packs().note_tried(&listed.name);
            if !is_all {
                salvaged.not_given.push(quarantine.path_of(&listed.name));
            }
        }
        self.sync()?;
        self.packs().refresh(self.dir())
    }

    /// Takes what is intact out of packs that cannot be opened or have a damaged index, and moves
    /// these into quarantine. A repair does so too with packs in which something else than was
    /// written is between the objects. The lock is the exclusive one.
    ///
    /// # Errors
    /// When the disk is full or broken, or it was cancelled; nothing is lost then.
    pub fn salvage_packs(
        &self,
        bad_disk: BadDisk,
        progress: &dyn Progress,
        _lock: &StoreLock,
    ) -> Result<Salvaged, StoreError> {
        for pack in self.packs().all(self.dir())? {
            match bad_disk.check(&pack) {
                Err(error) if error.is_damage() || error.is_bad_disk() => {
                    self.packs().distrust(&pack, &error);
                }
                checked => checked?,
            }
        }
        let are_read_again = self.look_again_at_packs(bad_disk)?;
        let damaged = self.packs().unreadable();
        if !damaged.is_empty() {
            // No stat cache may vouch for what was in them.
            self.renew_generation()?;
        }
        let mut salvaged = Salvaged { are_read_again, ..Salvaged::default() };
        for Unreadable { name, .. } in damaged {
            match self.salvage(&name, Salvaging { bad_disk, progress }, &mut salvaged) {
                Err(error) if error.is_bad_disk() && bad_disk == BadDisk::TakeTheRest => {
                    tracing::warn!("{error}: the pack stays");
                    let packs = self.path().join(layout::PACKS);
                    salvaged.not_given.push(packs.join(to_path(&name)));
                }
                done => done?,
            }
        }
        self.packs().refresh(self.dir())?;
        Ok(salvaged)
    }

    /// Looks once more at packs that the disk did not give: it may have been an error that passes.
    /// Returns whether one was.
    ///
    /// # Errors
    /// With [`BadDisk::Refuse`], the disk still does not give one; or what is there cannot be
    /// looked at.
    pub(crate) fn look_again_at_packs(&self, bad_disk: BadDisk) -> Result<bool, StoreError> {
        let Some(packs) = packs_dir(self.dir())? else { return Ok(false) };
        // The packs may not have been listed yet.
        self.packs().refresh(self.dir())?;
        let mut are_read_again = false;
        for Unreadable { name, is_on_bad_disk } in self.packs().unreadable() {
            if !is_on_bad_disk {
                continue;
            }
            match Pack::open(&packs, &name, &self.packs().cache)
                .and_then(|pack| bad_disk.check(&pack))
            {
                Ok(()) => {
                    self.packs().trust(&name);
                    are_read_again = true;
                }
                Err(error) if error.is_bad_disk() && bad_disk == BadDisk::TakeTheRest => {}
                Err(error) if error.is_damage() => {}
                Err(StoreError::Io(error)) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        self.packs().refresh(self.dir())?;
        Ok(are_read_again)
    }

    fn salvage(
        &self,
        name: &[u8],
        how: Salvaging<'_>,
        salvaged: &mut Salvaged,
    ) -> Result<(), StoreError> {
        let dir = self.dir().open_dir(layout::PACKS.as_bytes())?;
        let is_all = self.copy_intact(&dir, name, how, salvaged)?;
        self.sync()?;
        let quarantine = self.make_quarantine()?;
        let random = hex::encode(&sys::random_bytes()?[..8]);
        let aside =
            [layout::DAMAGED_PACK_PREFIX.as_bytes(), name, b"-", random.as_bytes()].concat();
        dir.rename_new(name, &quarantine, &aside)?;
        self.packs().note_tried(&aside);
        let path = quarantine.path_of(&aside);
        if !is_all {
            salvaged.not_given.push(path.clone());
        }
        salvaged.set_aside.push(path);
        Ok(())
    }

    /// Copies what is intact in a pack, and in no other one, into new ones. Returns whether the
    /// disk gave all of it.
    fn copy_intact(
        &self,
        dir: &Dir,
        name: &[u8],
        how: Salvaging<'_>,
        salvaged: &mut Salvaged,
    ) -> Result<bool, StoreError> {
        let mut writer = self.new_pack();
        let (mut copied, mut buffer) = (HashSet::new(), Vec::new());
        let is_all = for_each_intact(dir, name, &self.packs().cache, how, |hash, kind, bytes| {
            how.go_on()?;
            let is_there = salvaged.objects.contains(hash)
                || copied.contains(hash)
                || self.packs().have_intact(hash, &mut buffer);
            if is_there {
                return Ok(());
            }
            writer.append_and_write(hash, kind, bytes)?;
            copied.insert(*hash);
            if writer.is_full(&Limits::default()) {
                std::mem::replace(&mut writer, self.new_pack()).seal()?;
            }
            Ok(())
        })?;
        if !writer.is_empty() {
            writer.seal()?;
        }
        let count = copied.len();
        let objects = counted(count, "object was", "objects were");
        tracing::warn!("{objects} taken out of {}", Shown::path(&dir.path_of(name)));
        salvaged.objects.extend(copied);
        Ok(is_all)
    }
}

/// Gives the intact objects of a pack by its blocks, and then by its index, if that can be read.
/// Where a block makes no sense, the next one that does is looked for. Returns whether the disk
/// gave all of it.
fn for_each_intact(
    packs: &Dir,
    name: &[u8],
    cache: &Arc<BlockCache>,
    how: Salvaging<'_>,
    mut take: impl FnMut(&ContentHash, Kind, &[u8]) -> Result<(), StoreError>,
) -> Result<bool, StoreError> {
    let (bytes, is_all) = read_what_can_be(packs, name, how)?;
    let (mut at, mut records) = (HEADER_BYTES, Vec::new());
    while let Some(header) = bytes.get(at..at + BLOCK_HEADER_BYTES) {
        let body = at + BLOCK_HEADER_BYTES;
        let stored = lengths(header).and_then(|(plain, stored)| {
            let end = bytes.len().min(body + stored);
            let found = &bytes[body..end];
            if plain == stored {
                // Also of one that was cut short.
                found.clone_into(&mut records);
                return Some(found);
            }
            records.resize(plain, 0);
            (found.len() == stored && decode(found, &mut records)).then_some(found)
        });
        // Inside of what is no block a block may begin.
        at = match stored {
            Some(stored) if for_each_record(&records, how, &mut take)? => body + stored.len(),
            _ => at + 1,
        };
    }
    let Ok(pack) = Pack::open(packs, name, cache) else { return Ok(is_all) };
    let mut bytes = Vec::new();
    for entry in pack.plausible_entries() {
        if pack.is_intact(&entry, &mut bytes).unwrap_or(false) {
            take(&entry.hash, entry.span.kind, &bytes)?;
        }
    }
    Ok(is_all)
}

/// Gives the intact objects of a block. Where a record makes no sense, the next one that does is
/// looked for. Returns whether there was any.
fn for_each_record(
    records: &[u8],
    how: Salvaging<'_>,
    take: &mut impl FnMut(&ContentHash, Kind, &[u8]) -> Result<(), StoreError>,
) -> Result<bool, StoreError> {
    how.go_on()?;
    let empty = ContentHash::of(b"");
    let (mut at, mut is_any) = (0, false);
    while let Some(record) = records.get(at..at + RECORD_BYTES).and_then(|r| r.try_into().ok()) {
        let intact = Entry::from_record(record, at as u64).and_then(|entry| {
            let start = at + RECORD_BYTES;
            let content = records.get(start..start + entry.span.len as usize)?;
            // Without contents there is nothing to hash, and zeros look like that.
            let kind = entry.span.kind;
            let is_intact = match content {
                [] => kind == Kind::Whole && entry.hash == empty,
                content => kind.is_intact(&entry.hash, content),
            };
            is_intact.then_some((entry.hash, kind, content))
        });
        match intact {
            Some((hash, kind, content)) => {
                take(&hash, kind, content)?;
                is_any = true;
                at += RECORD_BYTES + content.len();
            }
            None => at += 1,
        }
    }
    Ok(is_any)
}

/// The bytes of a pack, without more than any pack has, with zeros where the disk gives none; and
/// whether it gave all. Nothing for what is no regular file.
fn read_what_can_be(
    packs: &Dir,
    name: &[u8],
    how: Salvaging<'_>,
) -> Result<(Vec<u8>, bool), StoreError> {
    let Salvaging { bad_disk, .. } = how;
    let path = packs.path_of(name);
    let open = || -> Result<_, StoreError> {
        if packs.stat(name)?.kind != FileKind::File {
            return Ok(None);
        }
        let file = packs.open_file(name, true)?;
        let size = packs.stat_file(&file, name)?.size.min(MAX_BYTES);
        Ok(Some((file, size)))
    };
    let (file, size) = match open() {
        Ok(Some(open)) => open,
        Ok(None) => return Ok((Vec::new(), true)),
        Err(error) if error.is_bad_disk() && bad_disk == BadDisk::TakeTheRest => {
            return Ok((Vec::new(), false));
        }
        Err(error) => return Err(error),
    };
    let (mut bytes, mut is_all) = (vec![0; size as usize], true);
    for (step, piece) in bytes.chunks_mut(STEP_BYTES).enumerate() {
        // A bad place can keep the disk busy for seconds.
        how.go_on()?;
        let offset = (step * STEP_BYTES) as u64;
        match sys::read_full_at(&file, piece, offset).at("read", &path) {
            Ok(_) => {}
            Err(error) => match StoreError::from(error) {
                error if error.is_bad_disk() && bad_disk == BadDisk::TakeTheRest => is_all = false,
                error => return Err(error),
            },
        }
    }
    Ok((bytes, is_all))
}
