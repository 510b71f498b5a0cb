//! Reading much of a pack: objects in the order in which they lie, many with one call.

use std::ops::Range;

use rayon::prelude::*;

use super::{Entry, Pack};
use crate::store::StoreError;
use crate::sys::{self, IoContext};

/// So much is read at once, in bytes.
const RUN_BYTES: u64 = 1024 * 1024;
/// Bytes that are read though nobody wants them, rather than to read once more.
const MOST_BETWEEN: u64 = 16 * 1024;

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

    /// Tells which objects of one pack, in the order in which they lie, are best read with one
    /// call.
    pub(crate) fn runs<T>(wanted: &[(Entry, T)]) -> Vec<Range<usize>> {
        debug_assert!(wanted.is_sorted_by_key(|(entry, _)| entry.span.offset));
        let mut runs: Vec<Range<usize>> = Vec::new();
        let (mut begin, mut end) = (0, 0);
        for (index, (Entry { span, .. }, _)) in wanted.iter().enumerate() {
            let next = span.offset + span.len();
            match runs.last_mut() {
                Some(run)
                    if (end..=end + MOST_BETWEEN).contains(&span.offset)
                        && next <= begin + RUN_BYTES =>
                {
                    run.end = index + 1;
                }
                _ => {
                    begin = span.offset;
                    runs.push(index..index + 1);
                }
            }
            end = next;
        }
        runs
    }

    /// Reads one of the [`runs`](Self::runs), and gives the bytes of each object in it, which are
    /// not checked: fewer than its length where the pack was cut short.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn read_run<'a, T>(
        &self,
        run: &'a [(Entry, T)],
        buffer: &'a mut Vec<u8>,
    ) -> Result<impl Iterator<Item = &'a [u8]>, StoreError> {
        let begin = run.first().map_or(0, |(first, _)| first.span.offset);
        let range_of = move |entry: &Entry| {
            let start = (entry.span.offset - begin) as usize;
            start..start + entry.span.len as usize
        };
        let end = run.iter().map(|(entry, _)| range_of(entry).end).max().unwrap_or(0);
        if buffer.len() < end {
            buffer.resize(end, 0);
        }
        let read =
            sys::read_full_at(&self.file, &mut buffer[..end], begin).at("read", &self.path)?;
        let bytes: &[u8] = &buffer[..read];
        Ok(run.iter().map(move |(entry, _)| {
            let range = range_of(entry);
            &bytes[range.start.min(read)..range.end.min(read)]
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ContentHash;
    use crate::store::packs::Span;

    fn entry(offset: u64, len: u32) -> (Entry, ()) {
        (Entry { hash: ContentHash::of(&offset.to_le_bytes()), span: Span { offset, len } }, ())
    }

    #[test]
    fn neighbours_are_read_with_one_call_up_to_a_length() {
        let far = RUN_BYTES * 10;
        let wanted = [
            entry(100, 10),
            entry(146, 20),
            entry(166 + MOST_BETWEEN, 1),
            entry(168 + 2 * MOST_BETWEEN, 1),
            entry(far, 5),
            entry(far + RUN_BYTES - 1, 1),
            entry(far + RUN_BYTES, 7),
        ];
        assert_eq!(Pack::runs(&wanted), [0..3, 3..4, 4..5, 5..7]);
        let long: Vec<_> = (0..100).map(|number| entry(number * 128 * 1024, 128 * 1024)).collect();
        let runs = Pack::runs(&long);
        assert_eq!(runs.len(), 13);
        assert!(runs.iter().all(|run| run.len() <= 8));
    }

    #[test]
    fn places_that_overlap_are_not_one_run_however_many_they_are() {
        let many = [entry(10, 100), entry(10, 100), entry(50, 100), entry(149, 1)];
        assert_eq!(Pack::runs(&many).len(), 4);
    }

    #[test]
    fn nothing_is_nothing() {
        assert!(Pack::runs::<()>(&[]).is_empty());
    }
}
