//! The list of a directory, as READDIRPLUS wants it: one name after the other, until it is full.

use zerocopy::IntoBytes;

use super::abi::{Attr, Dirent, Entry};

/// The next name does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

/// Names with the nodes that they name, or without.
pub(crate) struct EntryList<'b> {
    bytes: &'b mut Vec<u8>,
    room: usize,
}

impl<'b> EntryList<'b> {
    /// For at most `room` bytes, in the place of what is in this buffer.
    pub(crate) fn new(bytes: &'b mut Vec<u8>, room: u32) -> Self {
        bytes.clear();
        Self { bytes, room: room as usize }
    }

    /// Adds a name and names its node to the kernel. `position` is that of the next one.
    pub(crate) fn add(&mut self, name: &[u8], position: u64, entry: &Entry) -> Result<(), Full> {
        self.push(entry, name, position, &entry.attr)
    }

    /// Adds nothing but a name: the kernel makes no inode, and asks when somebody wants to know more. Of the attributes,
    /// the number and the kind are used.
    pub(crate) fn add_name(&mut self, name: &[u8], position: u64, attr: &Attr) -> Result<(), Full> {
        self.push(&Entry::default(), name, position, attr)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes
    }

    fn push(&mut self, entry: &Entry, name: &[u8], position: u64, attr: &Attr) -> Result<(), Full> {
        let dirent = Dirent {
            ino: attr.ino,
            offset: position,
            name_len: u32::try_from(name.len()).map_err(|_| Full)?,
            kind: attr.kind(),
        };
        let length = (size_of::<Entry>() + size_of::<Dirent>() + name.len()).next_multiple_of(8);
        let end = self.bytes.len() + length;
        if end > self.room {
            return Err(Full);
        }
        self.bytes.extend_from_slice(entry.as_bytes());
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
        let mut buffer = b"what was there".to_vec();
        let mut list = EntryList::new(&mut buffer, 4096);
        let attr = Attr { ino: 5, mode: FILE, ..Attr::default() };
        list.add_name(b"abc", 9, &attr).unwrap();
        let head = [5_u64, 9].as_bytes().to_vec();
        let expected = [head, [3_u32, 8].as_bytes().to_vec(), b"abc\0\0\0\0\0".to_vec()].concat();
        assert_eq!(list.bytes()[size_of::<Entry>()..], expected);
    }

    #[test]
    fn a_name_alone_names_no_node() {
        let attr = Attr { ino: 5, mode: FILE, ..Attr::default() };
        let (mut buffer, mut other) = (Vec::new(), Vec::new());
        let mut alone = EntryList::new(&mut buffer, 4096);
        alone.add_name(b"abcdefgh", 9, &attr).unwrap();
        assert_eq!(alone.bytes()[..128], [0; 128]);
        let mut named = EntryList::new(&mut other, 4096);
        let entry = Entry::new(6, 0, Duration::MAX, Duration::ZERO, attr);
        named.add(b"abcdefgh", 9, &entry).unwrap();
        assert_eq!(named.bytes()[..8], 6_u64.to_ne_bytes());
        assert_eq!(named.bytes()[128..], alone.bytes()[128..]);
    }

    #[test]
    fn what_does_not_fit_leaves_no_trace() {
        let attr = Attr::default();
        let each = (size_of::<Entry>() + 32) as u32;
        let mut buffer = Vec::new();
        let mut list = EntryList::new(&mut buffer, 2 * each + each - 1);
        list.add_name(b"12345678", 1, &attr).unwrap();
        list.add_name(b"1", 2, &attr).unwrap();
        assert_eq!(list.add_name(b"1", 3, &attr), Err(Full));
        assert_eq!(list.bytes().len(), 2 * each as usize);
    }
}
