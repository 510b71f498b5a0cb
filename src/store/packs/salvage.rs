//! What is left of a damaged pack: the records tell what the index no longer does.

use std::collections::HashSet;

use super::Pack;
use super::format::{Entry, HEADER_BYTES, RECORD_BYTES};
use super::writer::{Limits, PackWriter};
use crate::layout;
use crate::object::ContentHash;
use crate::path_text::Shown;
use crate::store::{LocalStore, StoreError, StoreLock};
use crate::sys::{self, Dir, FileKind, IoContext};

/// More bytes than this no pack has: its records end soon after 128 MiB, and its index is shorter.
const MOST_BYTES: u64 = 256 << 20;
/// What a bad place on the disk costs at the most.
const STEP_BYTES: usize = 4096;

/// What to do with a pack that the disk does not give back as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadDisk {
    /// Leave it where it is: the disk may yet give it, and nobody has asked for a repair.
    Leave,
    /// Take what there is.
    TakeTheRest,
}

/// What was taken out of damaged packs.
#[derive(Debug, Default)]
pub(crate) struct Salvaged {
    /// How many packs were moved into quarantine.
    pub(crate) packs: usize,
    /// What can be read again.
    pub(crate) objects: HashSet<ContentHash>,
}

impl LocalStore {
    /// Takes what is intact out of packs that cannot be opened or have a damaged index, and moves
    /// these into quarantine. The lock is the exclusive one.
    ///
    /// # Errors
    /// When the disk is full or broken; nothing is lost then.
    pub(crate) fn salvage_packs(
        &self,
        bad_disk: BadDisk,
        _lock: &StoreLock,
    ) -> Result<Salvaged, StoreError> {
        for pack in self.packs().all(self.dir())? {
            match pack.entries() {
                Err(error) if error.is_damage() || error.is_bad_disk() => {
                    self.packs().distrust(&pack);
                }
                other => drop(other?),
            }
        }
        let damaged = self.packs().unreadable();
        if !damaged.is_empty() {
            // No stat cache may vouch for what was in them.
            self.renew_generation()?;
        }
        let mut salvaged = Salvaged::default();
        for name in damaged {
            match self.salvage(&name, bad_disk, &mut salvaged.objects) {
                Err(error) if error.is_bad_disk() => tracing::warn!("{error}: the pack stays"),
                done => {
                    done?;
                    salvaged.packs += 1;
                }
            }
        }
        self.packs().refresh(self.dir())?;
        Ok(salvaged)
    }

    fn salvage(
        &self,
        name: &[u8],
        bad_disk: BadDisk,
        taken: &mut HashSet<ContentHash>,
    ) -> Result<(), StoreError> {
        let dir = self.dir().open_dir(layout::PACKS.as_bytes())?;
        let mut writer = PackWriter::new(self.dir());
        let mut count = 0;
        for_each_intact(&dir, name, bad_disk, |hash, bytes| {
            if !taken.insert(*hash) {
                return Ok(());
            }
            count += 1;
            writer.append_and_write(hash, bytes)?;
            if writer.is_full(&Limits::default()) {
                std::mem::replace(&mut writer, PackWriter::new(self.dir())).seal()?;
            }
            Ok(())
        })?;
        if !writer.is_empty() {
            writer.seal()?;
        }
        tracing::warn!("{count} objects were taken out of {}", Shown::path(&dir.path_of(name)));
        self.sync()?;
        let quarantine = self.make_quarantine()?;
        let random = hex::encode(&sys::random_bytes()?[..8]);
        let aside =
            [layout::DAMAGED_PACK_PREFIX.as_bytes(), name, b"-", random.as_bytes()].concat();
        Ok(dir.rename_new(name, &quarantine, &aside)?)
    }
}

/// Gives the intact objects of a pack by its records, and then by its index, if that can be read. Where a
/// record makes no sense, the next one that does is looked for.
fn for_each_intact(
    packs: &Dir,
    name: &[u8],
    bad_disk: BadDisk,
    mut take: impl FnMut(&ContentHash, &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let bytes = read_what_can_be(packs, name, bad_disk)?;
    let empty = ContentHash::of(b"");
    let mut at = HEADER_BYTES;
    while let Some(record) = bytes.get(at..at + RECORD_BYTES).and_then(|r| r.try_into().ok()) {
        let intact = Entry::from_record(record, at as u64).and_then(|entry| {
            let start = at + RECORD_BYTES;
            let content = bytes.get(start..start + entry.span.len as usize)?;
            // Without contents there is nothing to hash, and zeros look like that.
            let is_intact = match content {
                [] => entry.hash == empty,
                content => ContentHash::of(content) == entry.hash,
            };
            is_intact.then_some((entry.hash, content))
        });
        match intact {
            Some((hash, content)) => {
                take(&hash, content)?;
                at += RECORD_BYTES + content.len();
            }
            None => at += 1,
        }
    }
    let Ok(pack) = Pack::open(packs, name) else { return Ok(()) };
    let mut bytes = Vec::new();
    for entry in pack.plausible_entries() {
        if pack.is_intact(&entry, &mut bytes).unwrap_or(false) {
            take(&entry.hash, &bytes)?;
        }
    }
    Ok(())
}

/// The bytes of a pack, without more than any pack has, and maybe with zeros where the disk gives none.
/// Nothing for what is no regular file.
fn read_what_can_be(packs: &Dir, name: &[u8], bad_disk: BadDisk) -> Result<Vec<u8>, StoreError> {
    if packs.stat(name)?.kind != FileKind::File {
        return Ok(Vec::new());
    }
    let path = packs.path_of(name);
    let file = packs.open_file(name, true)?;
    let size = packs.stat_file(&file, name)?.size.min(MOST_BYTES);
    let mut bytes = vec![0; size as usize];
    for (step, piece) in bytes.chunks_mut(STEP_BYTES).enumerate() {
        let offset = (step * STEP_BYTES) as u64;
        match sys::read_full_at(&file, piece, offset).at("read", &path) {
            Ok(_) => {}
            Err(error) => match StoreError::from(error) {
                error if error.is_bad_disk() && bad_disk == BadDisk::TakeTheRest => {}
                error => return Err(error),
            },
        }
    }
    Ok(bytes)
}
