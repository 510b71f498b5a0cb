//! Refs in reftables (`git init --ref-format=reftable`), as far as a restore needs them: reading
//! the refs of a stack, and a further table for a few of them.
//!
//! A stack is a list of tables (`tables.list`); a later table has the last word about a ref. So a
//! ref is set by one more table, and nothing that is there changes. The format is the one of
//! git's `Documentation/technical/reftable`. Reflogs, objects and indexes of a table are not read.

use std::collections::BTreeMap;

use crate::object::ContentHash;

/// The list of the tables of a stack.
pub(crate) const TABLES: &[u8] = b"tables.list";
/// Longer tables are not read: millions of refs.
pub(crate) const MAX_TABLE_BYTES: u64 = 64 << 20;
/// More tables are no stack that git keeps.
pub(crate) const MAX_TABLES: usize = 1 << 10;

/// Longer names are no refs of git, and more of them would not fit in a block.
const MAX_NAME_BYTES: usize = 4 << 10;
/// Later tables than these have no further one.
const MAX_UPDATE_INDEX: u64 = u64::MAX >> 1;

const MAGIC: &[u8] = b"REFT";
/// The kind of a block of refs.
const REFS: u8 = b'r';

/// The value of a ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RefValue {
    /// An object.
    Object(Vec<u8>),
    /// A tag, and the object that it leads to.
    Tag(Vec<u8>, Vec<u8>),
    /// The name of another ref.
    Symbolic(Vec<u8>),
}

/// The refs of a stack, and what a further table needs to know.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefStack {
    /// Refs by their full names.
    pub(crate) refs: BTreeMap<Vec<u8>, RefValue>,
    /// The update index of the next table.
    next: u64,
    /// Bytes of the name of an object.
    hash_bytes: usize,
}

impl RefStack {
    /// Reads the tables of a stack, oldest first. `None`: one of them cannot be understood.
    pub(crate) fn read(tables: &[Vec<u8>]) -> Option<Self> {
        let mut stack = Self::default();
        for table in tables {
            stack.add(table)?;
        }
        (stack.hash_bytes > 0).then_some(stack)
    }

    fn add(&mut self, bytes: &[u8]) -> Option<()> {
        let header = Header::read(bytes)?;
        if self.hash_bytes != 0 && self.hash_bytes != header.hash_bytes {
            return None;
        }
        self.hash_bytes = header.hash_bytes;
        if header.max_update_index > MAX_UPDATE_INDEX {
            return None;
        }
        self.next = self.next.max(header.max_update_index + 1);
        let end = bytes.len().checked_sub(header.footer_bytes())?;
        let body = bytes.get(..end)?;
        let mut start = 0;
        loop {
            // The first block begins with the header of the table.
            let at = if start == 0 { header.bytes } else { start };
            if body.get(at) != Some(&REFS) {
                return Some(());
            }
            let length = usize::try_from(number(body.get(at + 1..at + 4)?)).ok()?;
            let block = body.get(start..start.checked_add(length)?)?;
            self.block(block, at + 4 - start)?;
            // Blocks may be filled up with zeros.
            let next = start + length;
            start = match body.get(next) {
                Some(0) if header.block_bytes > length => start + header.block_bytes,
                _ => next,
            };
        }
    }

    /// Reads the records of a block from `at` on.
    fn block(&mut self, block: &[u8], mut at: usize) -> Option<()> {
        let count_at = block.len().checked_sub(2)?;
        let restarts = usize::try_from(number(&block[count_at..])).ok()?;
        let end = count_at.checked_sub(restarts.checked_mul(3)?)?;
        let records = block.get(..end)?;
        let mut name: Vec<u8> = Vec::new();
        while at < end {
            let shared = usize::try_from(varint(records, &mut at)?).ok()?;
            let word = varint(records, &mut at)?;
            let suffix = take(records, &mut at, usize::try_from(word >> 3).ok()?)?;
            name.truncate(Some(shared).filter(|shared| *shared <= name.len())?);
            name.extend_from_slice(suffix);
            if name.len() > MAX_NAME_BYTES {
                return None;
            }
            varint(records, &mut at)?;
            let hash = self.hash_bytes;
            let value = match word & 7 {
                0 => None,
                1 => Some(RefValue::Object(take(records, &mut at, hash)?.to_vec())),
                2 => {
                    let tag = take(records, &mut at, hash)?.to_vec();
                    Some(RefValue::Tag(tag, take(records, &mut at, hash)?.to_vec()))
                }
                3 => {
                    let length = usize::try_from(varint(records, &mut at)?).ok()?;
                    Some(RefValue::Symbolic(take(records, &mut at, length)?.to_vec()))
                }
                _ => return None,
            };
            match value {
                Some(value) => drop(self.refs.insert(name.clone(), value)),
                None => drop(self.refs.remove(&name)),
            }
        }
        Some(())
    }

    /// A table in which these refs get these values or go, and its file name. `None`: no refs.
    pub(crate) fn further_table(
        &self,
        refs: &BTreeMap<Vec<u8>, Option<RefValue>>,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        if refs.is_empty() {
            return None;
        }
        let is_long = self.hash_bytes == 32;
        let mut header = MAGIC.to_vec();
        header.push(if is_long { 2 } else { 1 });
        // Blocks are as long as they are.
        header.extend_from_slice(&[0; 3]);
        header.extend_from_slice(&self.next.to_be_bytes());
        header.extend_from_slice(&self.next.to_be_bytes());
        if is_long {
            header.extend_from_slice(b"s256");
        }
        let first = u32::try_from(header.len() + 4).ok()?;
        let mut records = Vec::new();
        for (name, value) in refs {
            put_record(&mut records, name, value.as_ref());
        }
        // Names stand in full, and one of them is listed as such.
        records.extend_from_slice(&first.to_be_bytes()[1..]);
        records.extend_from_slice(&1u16.to_be_bytes());
        let length = u32::try_from(header.len() + 4 + records.len()).ok()?;
        let mut table = header.clone();
        table.push(REFS);
        table.extend_from_slice(length.to_be_bytes().get(1..)?);
        table.extend_from_slice(&records);
        // No index, no list of objects, no logs.
        let mut footer = header;
        footer.extend_from_slice(&[0; 40]);
        footer.extend_from_slice(&crc32(&footer).to_be_bytes());
        table.extend_from_slice(&footer);
        let mark = ContentHash::of(&table).to_string();
        let file = format!("0x{next:012x}-0x{next:012x}-{}.ref", mark.get(..8)?, next = self.next);
        Some((file.into_bytes(), table))
    }
}

fn put_record(records: &mut Vec<u8>, name: &[u8], value: Option<&RefValue>) {
    let (kind, bytes) = match value {
        None => (0, Vec::new()),
        Some(RefValue::Object(object)) => (1, object.clone()),
        Some(RefValue::Tag(tag, object)) => (2, [&tag[..], object].concat()),
        Some(RefValue::Symbolic(target)) => {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, target.len() as u64);
            bytes.extend_from_slice(target);
            (3, bytes)
        }
    };
    put_varint(records, 0);
    put_varint(records, (name.len() as u64) << 3 | kind);
    records.extend_from_slice(name);
    put_varint(records, 0);
    records.extend_from_slice(&bytes);
}

struct Header {
    bytes: usize,
    /// Length of a block that is filled up; 0: none is.
    block_bytes: usize,
    max_update_index: u64,
    hash_bytes: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (length, hash_bytes) = match (rest.first()?, bytes.get(24..28)) {
            (1, _) => (24, 20),
            (2, Some(b"sha1")) => (28, 20),
            (2, Some(b"s256")) => (28, 32),
            _ => return None,
        };
        let block_bytes = usize::try_from(number(bytes.get(5..8)?)).ok()?;
        let max_update_index = number(bytes.get(16..24)?);
        Some(Self { bytes: length, block_bytes, max_update_index, hash_bytes })
    }

    /// The header again, five places, and a sum.
    fn footer_bytes(&self) -> usize {
        self.bytes + 44
    }
}

/// A number, the most significant byte first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn take<'b>(bytes: &'b [u8], at: &mut usize, length: usize) -> Option<&'b [u8]> {
    let end = at.checked_add(length)?;
    let taken = bytes.get(*at..end)?;
    *at = end;
    Some(taken)
}

/// Each further byte counts one more, so that a number has one form.
fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut byte = take(bytes, at, 1)?[0];
    let mut number = u64::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = take(bytes, at, 1)?[0];
        number = number.checked_add(1)?.checked_mul(128)? | u64::from(byte & 0x7f);
    }
    Some(number)
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    let mut reversed = vec![(number & 0x7f) as u8];
    while number >= 0x80 {
        number = (number >> 7) - 1;
        reversed.push(0x80 | (number & 0x7f) as u8);
    }
    bytes.extend(reversed.into_iter().rev());
}

/// The sum of ISO 3309, as in zlib.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sum_is_that_of_zlib() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    fn one(value: Option<RefValue>) -> BTreeMap<Vec<u8>, Option<RefValue>> {
        BTreeMap::from([(b"refs/heads/a".to_vec(), value)])
    }

    fn object() -> RefValue {
        RefValue::Object(vec![3; 20])
    }

    fn empty() -> RefStack {
        RefStack { hash_bytes: 20, next: 7, ..RefStack::default() }
    }

    #[test]
    fn a_further_table_has_the_last_word() {
        let values = [
            object(),
            RefValue::Tag(vec![1; 20], vec![2; 20]),
            RefValue::Symbolic(b"refs/heads/main".to_vec()),
        ];
        for value in values {
            let mut refs = one(Some(object()));
            refs.insert(b"refs/heads/b".to_vec(), Some(object()));
            let (name, first) = empty().further_table(&refs).unwrap();
            assert!(name.starts_with(b"0x000000000007-0x000000000007-"), "{name:?}");
            let stack = RefStack::read(std::slice::from_ref(&first)).unwrap();
            assert_eq!(stack.refs.len(), 2);
            assert_eq!(stack.refs.get(&b"refs/heads/a"[..]), Some(&object()));
            let (_, second) = stack.further_table(&one(Some(value.clone()))).unwrap();
            let stack = RefStack::read(&[first.clone(), second.clone()]).unwrap();
            assert_eq!(stack.refs.get(&b"refs/heads/a"[..]), Some(&value));
            let (_, third) = stack.further_table(&one(None)).unwrap();
            let stack = RefStack::read(&[first, second, third]).unwrap();
            assert_eq!(stack.refs.keys().collect::<Vec<_>>(), [b"refs/heads/b"]);
            assert_eq!(stack.next, 10);
        }
        assert!(RefStack::read(&[]).is_none());
        assert!(empty().further_table(&BTreeMap::new()).is_none());
    }

    proptest! {
        #[test]
        fn numbers_come_back(number in any::<u64>().prop_map(|it| it >> 2)) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            let mut at = 0;
            prop_assert_eq!(varint(&bytes, &mut at), Some(number));
            prop_assert_eq!(at, bytes.len());
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            cut in 0..200usize,
            flip in 0..200usize,
        ) {
            RefStack::read(&[bytes]);
            let (_, mut table) = empty().further_table(&one(Some(object()))).unwrap();
            let at = flip % table.len();
            table[at] ^= 1 << (cut % 8);
            table.truncate(table.len() - cut % table.len());
            RefStack::read(&[table]);
        }
    }
}
