//! The list of a directory, as READDIR and READDIRPLUS want it: one name after the other, until it is full.

use zerocopy::IntoBytes;

use super::abi::{Attr, Dirent, Entry};

/// The next name does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

/// For READDIR: names with their numbers and kinds.
pub(crate) struct NameList(Bytes);

/// For READDIRPLUS: names with the nodes that they name, or without.
pub(crate) struct EntryList(Bytes);

impl NameList {
    /// For at most `room` bytes.
    pub(crate) fn new(room: u32) -> Self {
        Self(Bytes::new(room))
    }

    /// Adds a name; of the attributes, the number and the kind are used. `position` is that of the next one.
    pub(crate) fn add(&mut self, name: &[u8], position: u64, attr: &Attr) -> Result<(), Full> {
        self.0.add(&[], name, position, attr)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl EntryList {
    /// For at most `room` bytes.
    pub(crate) fn new(room: u32) -> Self {
        Self(Bytes::new(room))
    }

    /// Adds a name and names its node to the kernel. `position` is that of the next one.
    pub(crate) fn add(&mut self, name: &[u8], position: u64, entry: &Entry) -> Result<(), Full> {
        self.0.add(entry.as_bytes(), name, position, &entry.attr)
    }

    /// Adds nothing but a name: the kernel makes no inode, and asks when somebody wants to know more. Of the attributes,
    /// the number and the kind are used.
    pub(crate) fn add_name(&mut self, name: &[u8], position: u64, attr: &Attr) -> Result<(), Full> {
        self.0.add(Entry::default().as_bytes(), name, position, attr)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }
}

struct Bytes {
    bytes: Vec<u8>,
    room: usize,
}

impl Bytes {
    /// What one name takes at the most, but for the node.
    const LONGEST: usize = size_of::<Dirent>() + 256;

    fn new(room: u32) -> Self {
        // The kernel asks for as much as the program's buffer holds, which is a lot for most directories.
        Self { bytes: Vec::with_capacity(Self::LONGEST), room: room as usize }
    }

    fn add(&mut self, head: &[u8], name: &[u8], position: u64, attr: &Attr) -> Result<(), Full> {
        let dirent = Dirent {
            ino: attr.ino,
            offset: position,
            name_len: u32::try_from(name.len()).map_err(|_| Full)?,
            kind: attr.kind(),
        };
        let length = (head.len() + size_of::<Dirent>() + name.len()).next_multiple_of(8);
        let end = self.bytes.len() + length;
        if end > self.room {
            return Err(Full);
        }
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FILE: u32 = 0o100_644;

    #[test]
    fn a_name_has_its_number_its_kind_and_the_position_after_it() {
        let mut list = NameList::new(4096);
        let attr = Attr { ino: 5, mode: FILE, ..Attr::default() };
        list.add(b"abc", 9, &attr).unwrap();
        let head = [5_u64, 9].as_bytes().to_vec();
        let expected = [head, [3_u32, 8].as_bytes().to_vec(), b"abc\0\0\0\0\0".to_vec()].concat();
        assert_eq!(list.bytes(), expected);
    }

    #[test]
    fn a_name_alone_names_no_node() {
        let attr = Attr { ino: 5, mode: FILE, ..Attr::default() };
        let mut alone = EntryList::new(4096);
        alone.add_name(b"abcdefgh", 9, &attr).unwrap();
        assert_eq!(alone.bytes()[..128], [0; 128]);
        let mut named = EntryList::new(4096);
        let entry = Entry::new(6, 0, Duration::MAX, Duration::ZERO, attr);
        named.add(b"abcdefgh", 9, &entry).unwrap();
        assert_eq!(named.bytes()[..8], 6_u64.to_ne_bytes());
        assert_eq!(named.bytes()[128..], alone.bytes()[128..]);
    }

    #[test]
    fn what_does_not_fit_leaves_no_trace() {
        let attr = Attr::default();
        let mut list = NameList::new(2 * 32 + 31);
        list.add(b"12345678", 1, &attr).unwrap();
        list.add(b"1", 2, &attr).unwrap();
        assert_eq!(list.add(b"1", 3, &attr), Err(Full));
        assert_eq!(list.bytes().len(), 64);
    }
}
