//! The parts of a damaged long object that go, and those that stay.
//!
//! A damaged chunk goes alone: into quarantine, as any small object. The list and the other chunks
//! stay in use, so the object is whole again as soon as one stores that chunk, as a snapshot of
//! another version of the file does. The list goes where it cannot be read to the end, and if all
//! its chunks are intact and make other contents.

use std::collections::HashSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use super::import::fill;
use crate::object::ContentHash;
use crate::store::packs::{Kind, MAX_PACKED_BYTES, Pack, Packer, Span};
use crate::store::{ImportError, LocalStore, StoreError, StoreLock, Transfer};
use crate::sys::Stat;

/// The found copies of a chunk, or of a part of a list.
#[derive(Default)]
struct Copies {
    is_any_intact: bool,
    /// Where the damaged ones are now.
    aside: Vec<PathBuf>,
}

impl LocalStore {
    /// Moves the damaged chunks of an object into quarantine, and says where they are now. `None`:
    /// it is the list that has to go.
    ///
    /// # Errors
    /// When the packs cannot be listed, or the quarantine not be written.
    pub(in crate::store) fn set_chunks_aside(
        &self,
        hash: &ContentHash,
        pack: &Pack,
        span: Span,
    ) -> Result<Option<Vec<PathBuf>>, StoreError> {
        let Ok(head) = self.listed(hash, pack, span) else { return Ok(None) };
        let Ok(runs) = self.runs(hash, &head, pack.path()) else { return Ok(None) };
        let (mut seen, mut is_complete, mut aside) = (HashSet::new(), true, Vec::new());
        for run in runs {
            if seen.insert(run.hash) {
                let mut copies = self.set_damaged_aside(&run.hash)?;
                is_complete &= copies.is_any_intact;
                aside.append(&mut copies.aside);
            }
        }
        Ok((!is_complete || !aside.is_empty()).then_some(aside))
    }

    /// Moves the damaged parts of a list into quarantine: what is stored from now on must not rely
    /// on them.
    ///
    /// # Errors
    /// As [`set_chunks_aside`](Self::set_chunks_aside).
    pub(in crate::store) fn set_parts_aside(
        &self,
        hash: &ContentHash,
        pack: &Pack,
        span: Span,
    ) -> Result<Vec<PathBuf>, StoreError> {
        let Ok(head) = self.listed(hash, pack, span) else { return Ok(Vec::new()) };
        let mut aside = Vec::new();
        for part in &head.parts {
            aside.append(&mut self.set_damaged_aside(&part.hash)?.aside);
        }
        Ok(aside)
    }

    /// Moves the damaged copies of a small object into quarantine. One that the disk does not give
    /// stays: it may give it yet.
    fn set_damaged_aside(&self, hash: &ContentHash) -> Result<Copies, StoreError> {
        let (mut copies, mut buffer) = (Copies::default(), Vec::new());
        let own = match self.open_own(hash) {
            Ok(Some(own)) => own.read_checked(MAX_PACKED_BYTES, &mut buffer).map(|()| true),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        match own {
            Ok(is_intact) => copies.is_any_intact = is_intact,
            Err(error) if error.is_damage() => copies.aside.extend(self.move_aside(hash)?),
            Err(error) => tracing::debug!("a chunk: {error}"),
        }
        for (pack, span) in self.packs().find_all(self.dir(), hash)? {
            if span.kind() != Kind::Whole {
                continue;
            }
            match pack.holds_intact(hash, &mut buffer) {
                Ok(true) => copies.is_any_intact = true,
                Ok(false) => copies.aside.push(self.copy_aside(hash, &pack, span)?),
                Err(error) => tracing::debug!("a chunk: {error}"),
            }
        }
        Ok(copies)
    }

    /// An intact copy of a chunk of so many bytes in a pack.
    ///
    /// # Errors
    /// When the packs cannot be listed.
    pub(super) fn find_intact(
        &self,
        chunk: &ContentHash,
        len: u32,
    ) -> Result<Option<(Arc<Pack>, Span)>, StoreError> {
        let mut found = self.packs().find_all(self.dir(), chunk)?.into_iter();
        let mut buffer = Vec::new();
        Ok(found.find(|(pack, span)| {
            (span.kind(), span.len()) == (Kind::Whole, len.into())
                && pack.holds_intact(chunk, &mut buffer).unwrap_or(false)
        }))
    }

    /// Whether a list of an object of `size` bytes names chunks that are not there.
    ///
    /// # Errors
    /// When the packs cannot be read.
    pub(crate) fn lacks_chunks(&self, hash: &ContentHash, size: u64) -> Result<bool, StoreError> {
        Ok(!self.missing_chunks(hash, size)?.is_empty())
    }

    /// Stores those chunks of a file that a long object of `size` bytes lacks. The file may be
    /// another version: what is cut at the same places is the same. Whether the object lacks none
    /// now; its bytes are not checked. For the lock see [`quarantine`](Self::quarantine).
    ///
    /// # Errors
    /// As those of [`offer_file`](Self::offer_file).
    pub(crate) fn fill_missing_chunks(
        &self,
        hash: &ContentHash,
        size: u64,
        source: &File,
        stat: &Stat,
        transfer: &mut Transfer<'_>,
        lock: &StoreLock,
    ) -> Result<bool, ImportError> {
        let mut missing = self.missing_chunks(hash, size)?;
        if missing.is_empty() {
            return Ok(false);
        }
        let packer = Packer::new(self, lock);
        fill(&packer, &mut missing, source, stat.size, stat.is_sparse(), transfer)?;
        packer.finish()?;
        Ok(missing.is_empty())
    }

    /// The chunks that no list of an object of `size` bytes has. None also where there is no list.
    fn missing_chunks(
        &self,
        hash: &ContentHash,
        size: u64,
    ) -> Result<HashSet<ContentHash>, StoreError> {
        let mut missing = HashSet::new();
        for (pack, span) in self.lists_of(hash)? {
            let Ok(head) = self.listed(hash, &pack, span) else { continue };
            if head.size != size {
                continue;
            }
            let Ok(runs) = self.runs(hash, &head, pack.path()) else { continue };
            for run in runs {
                if !missing.contains(&run.hash)
                    && !self.contains_chunk(&run.hash, run.len.into())?
                {
                    missing.insert(run.hash);
                }
            }
        }
        Ok(missing)
    }
}
