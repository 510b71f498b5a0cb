//! What is left of a damaged pack: the records tell what the index no longer does.

use std::collections::HashSet;

use super::Pack;
use super::format::{Entry, HEADER_BYTES, RECORD_BYTES, Span};
use super::writer::{Limits, PackWriter};
use crate::layout;
use crate::object::ContentHash;
use crate::path_text::Shown;
use crate::store::{LocalStore, StoreError, StoreLock};
use crate::sys::{self, Dir, FileKind, IoContext};

impl LocalStore {
    /// Takes what is intact out of packs that cannot be opened or have a damaged index, and moves
    /// these into quarantine. Gives the names of what can be read again. The lock is the exclusive one.
    ///
    /// # Errors
    /// When the disk is full or broken; nothing is lost then.
    pub(crate) fn salvage_packs(
        &self,
        _lock: &StoreLock,
    ) -> Result<HashSet<ContentHash>, StoreError> {
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
        let mut salvaged = HashSet::new();
        for name in damaged {
            self.salvage(&name, &mut salvaged)?;
        }
        self.packs().refresh(self.dir())?;
        Ok(salvaged)
    }

    fn salvage(&self, name: &[u8], taken: &mut HashSet<ContentHash>) -> Result<(), StoreError> {
        let dir = self.dir().open_dir(layout::PACKS.as_bytes())?;
        let mut writer = PackWriter::new(self.dir());
        let mut count = 0;
        for_each_intact(&dir, name, |hash, bytes| {
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
        let aside = [layout::DAMAGED_PACK_PREFIX.as_bytes(), name].concat();
        Ok(dir.rename_new(name, &quarantine, &aside)?)
    }
}

/// Gives the intact objects of a pack by its records, as far as their lengths make sense: then also by
/// its index, if that can be read.
fn for_each_intact(
    packs: &Dir,
    name: &[u8],
    mut take: impl FnMut(&ContentHash, &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let path = packs.path_of(name);
    let file = match packs.open_file(name, true) {
        Err(error) if error.is_symlink_in_path() => return Ok(()),
        file => file?,
    };
    if packs.stat_file(&file, name)?.kind != FileKind::File {
        return Ok(());
    }
    let (mut at, mut bytes) = (HEADER_BYTES as u64, Vec::new());
    loop {
        let mut record = [0; RECORD_BYTES];
        let len = match sys::read_full_at(&file, &mut record, at).at("read", &path) {
            Err(error) => match StoreError::from(error) {
                // Where the next record is cannot be told.
                error if error.is_bad_disk() => break,
                error => return Err(error),
            },
            Ok(len) => len,
        };
        let Some(entry) = Entry::from_record(&record, at).filter(|_| len == RECORD_BYTES) else {
            break;
        };
        let Span { offset, len } = entry.span;
        bytes.resize(len as usize, 0);
        match sys::read_full_at(&file, &mut bytes, offset).at("read", &path) {
            Ok(read) if read == bytes.len() && ContentHash::of(&bytes) == entry.hash => {
                take(&entry.hash, &bytes)?;
            }
            Ok(read) if read < bytes.len() => break,
            // One that is damaged; the next ones need not be.
            Ok(_) => {}
            Err(error) => match StoreError::from(error) {
                error if error.is_bad_disk() => {}
                error => return Err(error),
            },
        }
        at = offset + entry.size();
    }
    let Ok(pack) = Pack::open(packs, name) else { return Ok(()) };
    for entry in pack.plausible_entries() {
        if pack.is_intact(&entry, &mut bytes).unwrap_or(false) {
            take(&entry.hash, &bytes)?;
        }
    }
    Ok(())
}
