//! Storing the chunks of contents, and making their list.

use std::collections::HashSet;
use std::path::Path;

use super::cut::first_of_zeros;
use super::cutter::Cut;
use super::{Head, MOST_RUNS, Part, RUN_BYTES, Run};
use crate::object::{ContentHash, hash_each};
use crate::store::StoreError;
use crate::store::packs::Packer;

/// The list of contents whose chunks come in order.
pub(super) struct List<'p, 's> {
    packer: &'p Packer<'s>,
    runs: Vec<Run>,
    parts: Vec<Part>,
    new_bytes: u64,
    /// If not all chunks are to be stored: those that are, and are not yet.
    wanted: Option<&'p mut HashSet<ContentHash>>,
}

impl<'p, 's> List<'p, 's> {
    pub(super) fn new(packer: &'p Packer<'s>) -> Self {
        Self { packer, runs: Vec::new(), parts: Vec::new(), new_bytes: 0, wanted: None }
    }

    /// A list that nobody keeps. Of the chunks, only those that are wanted are stored, and taken
    /// out of the set.
    pub(super) fn of_wanted(packer: &'p Packer<'s>, wanted: &'p mut HashSet<ContentHash>) -> Self {
        Self { wanted: Some(wanted), ..Self::new(packer) }
    }

    /// Where the store is.
    pub(super) fn path(&self) -> &Path {
        self.packer.path()
    }

    /// Stores what comes next, and gives its buffer back.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub(super) fn add(&mut self, cut: Cut) -> Result<Vec<u8>, StoreError> {
        match cut {
            Cut::Chunks { buffer, start, ends } => {
                self.add_chunks(&buffer, start, &ends)?;
                Ok(buffer)
            }
            Cut::Zeros(times) => self.add_zeros(times).map(|()| Vec::new()),
        }
    }

    fn add_chunks(
        &mut self,
        buffer: &[u8],
        start: usize,
        ends: &[usize],
    ) -> Result<(), StoreError> {
        let starts = std::iter::once(&start).chain(ends);
        let chunks: Vec<_> = starts.zip(ends).map(|(start, end)| &buffer[*start..*end]).collect();
        let mut hashes = vec![None; chunks.len()];
        hash_each(chunks.iter().copied(), |number, hash| hashes[number] = Some(hash));
        for (chunk, hash) in chunks.iter().zip(hashes) {
            let hash = hash.unwrap_or_else(|| ContentHash::of(chunk));
            self.store(hash, chunk)?;
            self.push(Run { hash, len: chunk.len() as u32, times: 1 })?;
        }
        Ok(())
    }

    fn add_zeros(&mut self, times: u64) -> Result<(), StoreError> {
        let zeros = vec![0; first_of_zeros()];
        let (hash, len) = (ContentHash::of(&zeros), zeros.len() as u32);
        self.store(hash, &zeros)?;
        let mut left = times;
        while left > 0 {
            let step = left.min(u32::MAX.into());
            self.push(Run { hash, len, times: step as u32 })?;
            left -= step;
        }
        Ok(())
    }

    fn store(&mut self, hash: ContentHash, chunk: &[u8]) -> Result<(), StoreError> {
        if self.wanted.as_mut().is_some_and(|wanted| !wanted.remove(&hash)) {
            return Ok(());
        }
        if self.packer.write_hashed(&hash, chunk)? {
            self.new_bytes += chunk.len() as u64;
        }
        Ok(())
    }

    fn push(&mut self, run: Run) -> Result<(), StoreError> {
        if let Some(last) = self.runs.last_mut()
            && (last.hash, last.len) == (run.hash, run.len)
            && let Some(times) = last.times.checked_add(run.times)
        {
            last.times = times;
            return Ok(());
        }
        if self.runs.len() == MOST_RUNS {
            self.end_part()?;
        }
        self.runs.push(run);
        Ok(())
    }

    fn end_part(&mut self) -> Result<(), StoreError> {
        let mut bytes = Vec::with_capacity(self.runs.len() * RUN_BYTES);
        self.runs.iter().for_each(|run| run.encode(&mut bytes));
        let hash = ContentHash::of(&bytes);
        self.store(hash, &bytes)?;
        self.parts.push(Part { hash, size: self.runs.drain(..).map(|run| run.size()).sum() });
        Ok(())
    }

    /// The list of contents of `size` bytes, and how many bytes were new.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(super) fn finish(mut self, size: u64, sparse: bool) -> Result<(Head, u64), StoreError> {
        if !self.runs.is_empty() {
            self.end_part()?;
        }
        Ok((Head { size, sparse, parts: self.parts }, self.new_bytes))
    }
}
