//! Reading the index. Every length in it is checked before it is believed.

use std::ops::Range;

use super::{
    BLOCK_BYTES, FOOTER_BYTES, FRAME_BYTES, KEY_BYTES, MAGIC, MAX_FRAME_BYTES, MAX_FRAMES,
    RECORD_BYTES, SKIPPED_HEADER_BYTES,
};
use nono_engine::object::ContentHash;

/// Records beside the guessed one that are read at first, and that is multiplied by the root of
/// their number: hashes are spread evenly.
const SPREAD: f64 = 4.0;
const MIN_SPREAD: u64 = 64;

/// The last bytes of an archive that has an index, and where the parts of the index stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Bytes of all frames, compressed.
    pub(crate) frames_end: u64,
    /// Where the table of frames stands.
    pub(crate) table: Range<u64>,
    records_at: u64,
    record_count: u64,
}

impl Footer {
    /// Reads the footer of an archive of so many bytes. `None`: it has no index, or none that can
    /// be.
    pub(crate) fn parse(bytes: &[u8; FOOTER_BYTES], archive_bytes: u64) -> Option<Self> {
        let (numbers, magic) = bytes.split_at(FOOTER_BYTES - MAGIC.len());
        // Whoever reads ranges does not read all that the sum is of.
        let number = |at: Range<usize>| {
            let mut number = [0; 8];
            let bytes = numbers.get(at)?;
            number[..bytes.len()].copy_from_slice(bytes);
            Some(u64::from_le_bytes(number))
        };
        let (frames, records, length) = (number(0..4)?, number(4..12)?, number(12..16)?);
        let table_bytes = frames * FRAME_BYTES as u64;
        let record_bytes = records.checked_mul(RECORD_BYTES as u64)?;
        let sum = table_bytes.checked_add(record_bytes)?.checked_add(FOOTER_BYTES as u64)?;
        if magic != MAGIC || frames > u64::from(MAX_FRAMES) || sum != length {
            return None;
        }
        let table_at = archive_bytes.checked_sub(length)?;
        let records_at = table_at + table_bytes;
        Some(Self {
            frames_end: table_at.checked_sub(SKIPPED_HEADER_BYTES)?,
            table: table_at..records_at,
            records_at,
            record_count: records,
        })
    }

    /// Where the record of an object stands, if it has one: numbers of the first and of the one
    /// behind the last that are to be read. Each attempt has more than the one before it.
    pub(crate) fn guess(&self, hash: &ContentHash, attempt: u32) -> Range<u64> {
        let count = self.record_count;
        let part = key_number(hash.as_bytes()) as f64 / 2f64.powi(8 * KEY_BYTES as i32);
        let middle = (part * count as f64) as u64;
        let spread = ((count as f64).sqrt() * SPREAD) as u64 + MIN_SPREAD;
        let spread = spread.saturating_mul(1u64.checked_shl(4 * attempt).unwrap_or(u64::MAX));
        middle.saturating_sub(spread)..middle.saturating_add(spread).min(count)
    }

    /// Where these records stand in the archive.
    pub(crate) fn place(&self, records: &Range<u64>) -> Range<u64> {
        let at = |number: u64| self.records_at + number * RECORD_BYTES as u64;
        at(records.start)..at(records.end)
    }

    /// Finds an object in records that were read: where its last header block begins in the tar
    /// file, or that more records have to be read.
    pub(crate) fn find(
        &self,
        hash: &ContentHash,
        read: &Range<u64>,
        bytes: &[u8],
    ) -> Result<Option<u64>, More> {
        let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
        let key = &hash.as_bytes()[..KEY_BYTES];
        match records.binary_search_by(|record| record[..KEY_BYTES].cmp(key)) {
            Ok(at) => {
                let mut block = [0; 8];
                block[3..].copy_from_slice(&records[at][KEY_BYTES..]);
                Ok(Some(u64::from_be_bytes(block) * BLOCK_BYTES))
            }
            Err(0) if read.start > 0 => Err(More),
            Err(at) if at == records.len() && read.end < self.record_count => Err(More),
            Err(_) => Ok(None),
        }
    }
}

/// The object may stand in records that were not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct More;

fn key_number(bytes: &[u8]) -> u64 {
    bytes[..KEY_BYTES].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The frames of an archive, by where they begin.
#[derive(Debug, Default)]
pub(crate) struct FrameTable(Vec<Span>);

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Where it begins in the compressed bytes.
    pub(crate) at: u64,
    pub(crate) bytes: u32,
    /// Where its contents begin in the tar file.
    pub(crate) plain_at: u64,
    pub(crate) plain_bytes: u32,
}

impl FrameTable {
    /// Reads the table. `None`: it cannot be that of frames of so many bytes.
    pub(crate) fn parse(bytes: &[u8], frames_end: u64) -> Option<Self> {
        let (entries, _) = bytes.as_chunks::<FRAME_BYTES>();
        let (mut at, mut plain_at) = (0u64, 0u64);
        let mut frames = Vec::with_capacity(entries.len());
        for entry in entries {
            let number = |at: usize| {
                u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
            };
            let span = Span { at, bytes: number(0), plain_at, plain_bytes: number(4) };
            if span.plain_bytes as usize > MAX_FRAME_BYTES || span.plain_bytes == 0 {
                return None;
            }
            at += u64::from(span.bytes);
            plain_at += u64::from(span.plain_bytes);
            frames.push(span);
        }
        (at == frames_end).then_some(Self(frames))
    }

    /// The number of the frame in which a byte of the tar file stands.
    pub(crate) fn holding(&self, plain_at: u64) -> Option<usize> {
        let next = self.0.partition_point(|frame| frame.plain_at <= plain_at);
        let at = next.checked_sub(1)?;
        let frame = self.0[at];
        (plain_at < frame.plain_at + u64::from(frame.plain_bytes)).then_some(at)
    }

    pub(crate) fn get(&self, number: usize) -> Option<Span> {
        self.0.get(number).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{Frames, Notes, SUM_BYTES, write_index};

    fn hash(number: u32) -> ContentHash {
        ContentHash::of(&number.to_le_bytes())
    }

    /// An index behind two frames of 10 and 20 bytes, with its footer.
    fn index(objects: u32) -> (Vec<u8>, Footer) {
        let mut notes = Notes::default();
        (0..objects).for_each(|number| notes.add(&hash(number), u64::from(number) * BLOCK_BYTES));
        let mut bytes = vec![0; 30];
        write_index(notes, &[(10, 512), (20, 1024)], &mut bytes).unwrap();
        let footer = bytes.last_chunk().unwrap();
        let footer = Footer::parse(footer, bytes.len() as u64).unwrap();
        (bytes, footer)
    }

    fn find(bytes: &[u8], footer: &Footer, hash: &ContentHash) -> (Option<u64>, u64) {
        for attempt in 0.. {
            let records = footer.guess(hash, attempt);
            let place = footer.place(&records);
            let read = &bytes[place.start as usize..place.end as usize];
            if let Ok(found) = footer.find(hash, &records, read) {
                return (found, records.end - records.start);
            }
        }
        unreachable!("attempts go on until all records are read")
    }

    #[test]
    fn each_object_is_found_in_few_records_and_no_other_one() {
        for objects in [0, 1, 100, 50_000] {
            let (bytes, footer) = index(objects);
            for number in (0..objects).step_by(997) {
                let (found, read) = find(&bytes, &footer, &hash(number));
                assert_eq!(found, Some(u64::from(number) * BLOCK_BYTES));
                assert!(read <= 2100, "{read} of {objects}");
            }
            for number in objects..objects + 50 {
                assert_eq!(find(&bytes, &footer, &hash(number)).0, None);
            }
        }
    }

    #[test]
    fn frames_are_found_by_their_contents_and_a_table_that_lies_is_none() {
        let (bytes, footer) = index(3);
        let table = &bytes[footer.table.start as usize..footer.table.end as usize];
        let frames = FrameTable::parse(table, footer.frames_end).unwrap();
        assert_eq!(footer.frames_end, 30);
        assert_eq!(frames.holding(0), Some(0));
        assert_eq!(frames.holding(511), Some(0));
        assert_eq!(frames.holding(512), Some(1));
        assert_eq!(frames.holding(1536), None);
        assert_eq!(frames.get(1).unwrap().at, 10);
        assert!(FrameTable::parse(table, 31).is_none());
        assert!(FrameTable::parse(&[255; 8], u64::from(u32::MAX)).is_none());
    }

    #[test]
    fn an_archive_without_an_index_has_no_footer() {
        let (bytes, _) = index(3);
        let footer: &[u8; FOOTER_BYTES] = bytes.last_chunk().unwrap();
        let sum = FOOTER_BYTES - MAGIC.len() - SUM_BYTES..FOOTER_BYTES - MAGIC.len();
        for at in (0..FOOTER_BYTES).filter(|at| !sum.contains(at)) {
            let mut changed = *footer;
            changed[at] ^= 0x80;
            assert_eq!(Footer::parse(&changed, bytes.len() as u64), None, "{at}");
        }
        assert_eq!(Footer::parse(footer, 40), None);
    }

    #[test]
    fn each_changed_bit_of_an_index_is_noticed_by_a_reader_of_the_whole() {
        let mut bytes = zstd::bulk::compress(b"first ", 3).unwrap();
        bytes.extend(zstd::bulk::compress(b"second", 3).unwrap());
        let frames_end = bytes.len();
        let mut notes = Notes::default();
        notes.add(&hash(1), 0);
        write_index(notes, &[(1, 6), (1, 6)], &mut bytes).unwrap();
        let read = |bytes: &[u8]| {
            let mut text = String::new();
            let read = std::io::Read::read_to_string(&mut Frames::new(bytes, 25)?, &mut text);
            read.map(|_| text)
        };
        assert_eq!(read(&bytes).unwrap(), "first second");
        assert_eq!(read(&bytes[..frames_end]).unwrap(), "first second");
        for at in frames_end..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(read(&changed).is_err(), "{at}");
            assert!(read(&bytes[..at.max(frames_end + 1)]).is_err(), "{at}");
        }
        assert!(read(&[&bytes[..], b"more"].concat()).is_err());
    }
}
