//! Whether every byte of a pack between its header and its index belongs to an object.
//!
//! Readers find objects by the index and never look at the records. A repair of a pack that lost
//! its index needs them, so `verify` compares each record's header with the index. Records follow
//! each other without a gap. So with the bytes of the objects, which their names prove, and with
//! the checksum of the index, no byte of a pack is unproved.

use super::format::{Entry, HEADER_BYTES, RECORD_BYTES};
use super::pack::{Pack, corrupt};
use crate::store::StoreError;
use crate::sys::{self, IoContext};

/// So much is read at once, in bytes: headers of small objects come by the dozen, and nothing is
/// read in vain of a large one.
const WINDOW_BYTES: usize = 4096;

impl Pack {
    /// Checks the index and what is between the objects.
    ///
    /// # Errors
    /// A failed read, or [`StoreError::CorruptPack`].
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.check_records(&self.entries_in_order()?)
    }

    /// Compares the records with the index, given in the order in which the objects lie.
    fn check_records(&self, entries: &[Entry]) -> Result<(), StoreError> {
        let mut window = Window { pack: self, begin: 0, bytes: Vec::new() };
        let mut at = HEADER_BYTES as u64;
        for entry in entries {
            if entry.span.offset.checked_sub(RECORD_BYTES as u64) != Some(at) {
                return Err(corrupt(&self.path, "its objects do not follow each other"));
            }
            let header = Entry::record_header(&entry.hash, entry.span.len);
            if window.read(at)? != header {
                let hash = entry.hash;
                let reason = format!("what stands before object {hash} is not its name and length");
                return Err(corrupt(&self.path, &reason));
            }
            at = entry.span.offset + entry.size();
        }
        if at == self.index_at() {
            Ok(())
        } else {
            Err(corrupt(&self.path, "bytes between its objects and its index belong to nothing"))
        }
    }
}

/// The part of a pack that was read last.
struct Window<'p> {
    pack: &'p Pack,
    begin: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// A record's header at a place after the last one; less where the pack was cut short.
    fn read(&mut self, at: u64) -> Result<&[u8], StoreError> {
        let is_here = |begin: u64, len: usize| at + RECORD_BYTES as u64 <= begin + len as u64;
        if !is_here(self.begin, self.bytes.len()) {
            self.bytes.resize(WINDOW_BYTES, 0);
            let read = sys::read_full_at(&self.pack.file, &mut self.bytes, at)
                .at("read", &self.pack.path)?;
            self.bytes.truncate(read);
            self.begin = at;
        }
        let start = (at - self.begin) as usize;
        let end = (start + RECORD_BYTES).min(self.bytes.len());
        Ok(&self.bytes[start..end])
    }
}
