//! Reading much of a pack: objects in the order in which they lie, many with one call.

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use super::block::{BLOCK_HEADER_BYTES, decode};
use super::pack::corrupt;
use super::{Entry, Pack};
use crate::store::StoreError;
use crate::sys::{self, IoContext};

/// Blocks that are read at once: mostly 1 MiB of records.
const BLOCKS_AT_ONCE: usize = 8;

impl Pack {
    /// All objects, in the order in which they lie.
    ///
    /// # Errors
    /// As [`entries`](Self::entries).
    pub(crate) fn entries_in_order(&self) -> Result<Vec<Entry>, StoreError> {
        let mut entries = self.entries()?;
        entries.par_sort_unstable_by_key(|entry| entry.span.offset);
        Ok(entries)
    }

    /// Tells which objects of one pack, in the order in which they lie, are best read at once: all
    /// that are wanted of a block, and of those after it.
    pub(crate) fn runs<T>(&self, wanted: &[(Entry, T)]) -> Vec<Range<usize>> {
        runs(wanted.iter().map(|(entry, _)| self.block_of(entry.span)))
    }

    /// Reads one of the [`runs`](Self::runs), and gives the bytes of each object in it, which are
    /// not checked: none where its block cannot be told.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn read_run<'a, T>(
        &self,
        run: &'a [(Entry, T)],
        buffer: &'a mut Vec<u8>,
    ) -> Result<impl Iterator<Item = &'a [u8]>, StoreError> {
        let number =
            |entry: Option<&(Entry, T)>| entry.map_or(0, |(entry, _)| self.block_of(entry.span));
        let (first, last) = (number(run.first()), number(run.last()));
        let blocks = self.blocks().get(first..=last).unwrap_or_default();
        let (begin, end) = match blocks {
            [first, .., last] => (first, last),
            [only] => (only, only),
            [] => return Err(corrupt(&self.path, "its index names a place outside of it")),
        };
        thread_local! {
            static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let plain_at = begin.plain_at;
        let told = STORED.with_borrow_mut(|stored| {
            // Bounded by the lengths that blocks may have, and by their number in a run.
            stored.resize((end.file_end() - begin.file_at) as usize, 0);
            buffer.resize((end.plain_end() - plain_at) as usize, 0);
            let len =
                sys::read_full_at(&self.file, stored, begin.file_at).at("read", &self.path)?;
            let mut rest: &mut [u8] = buffer;
            let told = blocks.iter().map(|block| {
                let (records, behind) =
                    std::mem::take(&mut rest).split_at_mut(block.plain as usize);
                rest = behind;
                let at = (block.file_at - begin.file_at) as usize;
                let body = at + BLOCK_HEADER_BYTES..at + BLOCK_HEADER_BYTES + block.stored as usize;
                let is_told = body.end <= len && decode(&stored[body], records);
                is_told.then(|| block.plain_at..block.plain_end())
            });
            Ok::<Vec<_>, StoreError>(told.collect())
        })?;
        let bytes: &[u8] = buffer;
        Ok(run.iter().map(move |(entry, _)| {
            let span = entry.span;
            let place = told.iter().flatten().find(|place| place.contains(&span.record_at()));
            let is_inside = place.is_some_and(|place| span.offset + span.len() <= place.end);
            let start = span.offset.saturating_sub(plain_at) as usize;
            let found = bytes.get(start..start.saturating_add(span.len as usize));
            found.filter(|_| is_inside).unwrap_or_default()
        }))
    }
}

/// Objects in the order in which they lie, given by the numbers of their blocks.
fn runs(blocks: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let (mut first, mut last) = (0, 0);
    for (index, block) in blocks.enumerate() {
        match runs.last_mut() {
            Some(run) if (last..=last + 1).contains(&block) && block < first + BLOCKS_AT_ONCE => {
                run.end = index + 1;
            }
            _ => {
                first = block;
                runs.push(index..index + 1);
            }
        }
        last = block;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_read_at_once_up_to_a_number_of_blocks() {
        let runs_of = |blocks: &[usize]| runs(blocks.iter().copied());
        assert_eq!(runs_of(&[0, 0, 1, 1, 3, 4, 4]), [0..4, 4..7]);
        let long: Vec<_> = (0..2 * BLOCKS_AT_ONCE + 1).flat_map(|block| [block, block]).collect();
        let each = 2 * BLOCKS_AT_ONCE;
        assert_eq!(runs_of(&long), [0..each, each..2 * each, 2 * each..2 * each + 2]);
        assert!(runs_of(&[]).is_empty());
    }
}
