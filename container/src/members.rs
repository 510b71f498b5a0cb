//! The members of a tar stream of the engine, with their PAX records.
//!
//! The crate `tar` takes the end of a line for the end of a record, so a path or an attribute with
//! such a byte would be lost. Here the records leave the stream before the crate sees it, read by
//! their lengths, and the length of a long member goes into its own header.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

use nono_engine::object::Xattrs;
use nono_engine::pax::PaxRecords;
use tar::{Entry, EntryType, Header};

const BLOCK_BYTES: usize = 512;
/// Longest PAX header, in bytes: attributes of one file.
const MAX_PAX_BYTES: u64 = 4 << 20;
/// In front of the name of an extended attribute.
const XATTR: &[u8] = b"SCHILY.xattr.";
/// The byte of a block of a sparse file's map that says whether another one follows.
const SPARSE_MAP_GOES_ON: usize = 504;

/// A tar stream, and the records of the member that was read last.
pub(crate) fn open<R: Read>(source: R) -> (tar::Archive<WithoutPax<R>>, LastRecords) {
    let last = LastRecords::default();
    let filter = WithoutPax {
        source,
        ready: Vec::new(),
        at: 0,
        passing: 0,
        map_goes_on: false,
        next: None,
        last: Rc::clone(&last.0),
    };
    (tar::Archive::new(filter), last)
}

/// The records of the member that the archive gave last.
#[derive(Debug, Default)]
pub(crate) struct LastRecords(Rc<RefCell<Vec<u8>>>);

impl LastRecords {
    /// Takes them.
    pub(crate) fn take(&self) -> Records {
        Records(self.0.take())
    }
}

/// The PAX records of a member. They were read once, so they are whole.
#[derive(Debug)]
pub(crate) struct Records(Vec<u8>);

impl Records {
    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        PaxRecords::new(&self.0).flatten()
    }

    /// The last value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.all().filter(|(found, _)| *found == key).last().map(|(_, value)| value)
    }

    /// Extended attributes.
    pub(crate) fn xattrs(&self) -> Xattrs {
        let named = self.all().filter_map(|(key, value)| Some((key.strip_prefix(XATTR)?, value)));
        Xattrs::new(named.map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// The path of the member.
    pub(crate) fn path<R: Read>(&self, entry: &Entry<'_, R>) -> Vec<u8> {
        match self.get(b"path") {
            Some(path) => path.to_vec(),
            None => entry.path_bytes().into_owned(),
        }
    }

    /// The target of a symlink or a hard link; empty without one.
    pub(crate) fn link_name<R: Read>(&self, entry: &Entry<'_, R>) -> Vec<u8> {
        match self.get(b"linkpath") {
            Some(target) => target.to_vec(),
            None => entry.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default(),
        }
    }
}

/// The stream without its PAX headers.
pub(crate) struct WithoutPax<R> {
    source: R,
    /// A block that was looked at, and the number of its bytes that are given away.
    ready: Vec<u8>,
    at: usize,
    /// Bytes of contents that are left of the present member, with those that fill its last block.
    passing: u64,
    /// Whether the next block belongs to the map of a sparse file.
    map_goes_on: bool,
    /// Records of the next member.
    next: Option<Vec<u8>>,
    last: Rc<RefCell<Vec<u8>>>,
}

impl<R> std::fmt::Debug for WithoutPax<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WithoutPax").field("passing", &self.passing).finish_non_exhaustive()
    }
}

impl<R: Read> WithoutPax<R> {
    /// Reads a block into [`ready`](Self::ready); less than a block at the end of the stream.
    fn fill(&mut self) -> io::Result<()> {
        self.at = 0;
        self.ready.clear();
        self.source.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut self.ready).map(drop)
    }

    /// Puts the next block that the crate may see into [`ready`](Self::ready).
    fn advance(&mut self) -> io::Result<()> {
        loop {
            self.fill()?;
            let Ok(block) = <&mut [u8; BLOCK_BYTES]>::try_from(&mut self.ready[..]) else {
                return Ok(());
            };
            if self.map_goes_on {
                self.map_goes_on = block[SPARSE_MAP_GOES_ON] != 0;
                return Ok(());
            }
            if block.iter().all(|byte| *byte == 0) {
                return Ok(());
            }
            let mut header = Header::new_old();
            header.as_mut_bytes().copy_from_slice(block);
            // The crate says what is wrong with such a header.
            let Ok(own) = header.entry_size() else { return Ok(()) };
            if header.entry_type() == EntryType::XHeader {
                self.take_records(own)?;
                continue;
            }
            let kind = header.entry_type();
            let describes_another =
                kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_global_extensions();
            let mut size = own;
            if !describes_another {
                let records = Records(self.next.take().unwrap_or_default());
                if let Some(told) = records.get(b"size") {
                    let told = std::str::from_utf8(told).ok().and_then(|text| text.parse().ok());
                    size = told.ok_or_else(|| io::Error::other("a length that is no number"))?;
                    header.set_size(size);
                    header.set_cksum();
                    block.copy_from_slice(header.as_bytes());
                }
                self.last.replace(records.0);
            }
            self.map_goes_on =
                kind.is_gnu_sparse() && header.as_gnu().is_some_and(|header| header.is_extended());
            self.passing = size
                .checked_next_multiple_of(BLOCK_BYTES as u64)
                .ok_or_else(|| io::Error::other("a length that no stream has"))?;
            return Ok(());
        }
    }

    /// Takes the contents of a PAX header out of the stream.
    fn take_records(&mut self, size: u64) -> io::Result<()> {
        if size > MAX_PAX_BYTES || self.next.is_some() {
            return Err(io::Error::other("it has too many attributes of one file"));
        }
        let mut records = Vec::new();
        let whole = size.next_multiple_of(BLOCK_BYTES as u64);
        self.source.by_ref().take(whole).read_to_end(&mut records)?;
        if records.len() as u64 != whole {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        records.truncate(size as usize);
        for record in PaxRecords::new(&records) {
            record.map_err(io::Error::other)?;
        }
        self.next = Some(records);
        Ok(())
    }
}

impl<R: Read> Read for WithoutPax<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.at == self.ready.len() {
            if self.passing > 0 && !self.map_goes_on {
                let most = buffer.len().min(usize::try_from(self.passing).unwrap_or(usize::MAX));
                let count = self.source.read(&mut buffer[..most])?;
                self.passing -= count as u64;
                return Ok(count);
            }
            let passing = self.passing;
            self.advance()?;
            // A block of a map stands in front of the contents.
            self.passing = self.passing.max(passing);
        }
        let count = buffer.len().min(self.ready.len() - self.at);
        buffer[..count].copy_from_slice(&self.ready[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(1);
            self.0.read(&mut buffer[..most])
        }
    }

    fn block(out: &mut Vec<u8>, header: &mut Header, contents: &[u8]) {
        header.set_cksum();
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(contents);
        out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
    }

    fn pax(out: &mut Vec<u8>, records: &[(&str, &[u8])]) {
        let mut contents = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let length = (1..).find(|length| *length == rest + length.to_string().len()).unwrap();
            contents.extend_from_slice(format!("{length} {key}=").as_bytes());
            contents.extend_from_slice(value);
            contents.push(b'\n');
        }
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_size(contents.len() as u64);
        block(out, &mut header, &contents);
    }

    fn file(name: &str, size: usize) -> Header {
        let mut header = Header::new_ustar();
        header.set_path(name).unwrap();
        header.set_size(size as u64);
        header
    }

    type Member = (Vec<u8>, Vec<u8>, Xattrs, Vec<u8>);

    fn members(source: impl Read) -> io::Result<Vec<Member>> {
        let (mut archive, last) = open(source);
        let mut members = Vec::new();
        for entry in archive.entries()? {
            let mut entry = entry?;
            let records = last.take();
            let mut contents = Vec::new();
            let (path, target) = (records.path(&entry), records.link_name(&entry));
            entry.read_to_end(&mut contents)?;
            members.push((path, target, records.xattrs(), contents));
        }
        Ok(members)
    }

    #[test]
    fn members_have_their_own_records_whatever_bytes_are_in_them() {
        let long = format!("{}\n7 x=y\n", "n".repeat(200));
        let (path, capability) = (long.as_bytes(), &b"\n\0=\n12 path=bad\n"[..]);
        let mut stream = Vec::new();
        pax(&mut stream, &[("path", path), ("SCHILY.xattr.security.capability", capability)]);
        block(&mut stream, &mut file("short", 3), b"one");
        block(&mut stream, &mut file("plain", 2), b"22");
        pax(&mut stream, &[("linkpath", b"to\nit")]);
        let mut link = file("link", 0);
        link.set_entry_type(EntryType::Symlink);
        block(&mut stream, &mut link, b"");
        // The length of what no header has room for stands in a record.
        pax(&mut stream, &[("size", b"700")]);
        block(&mut stream, &mut file("large", 0), &[7; 700]);
        stream.extend_from_slice(&[0; 2 * BLOCK_BYTES]);
        let expected: Vec<Member> = vec![
            (
                path.to_vec(),
                Vec::new(),
                Xattrs::new(vec![((*b"security.capability").into(), capability.into())]),
                b"one".to_vec(),
            ),
            (b"plain".to_vec(), Vec::new(), Xattrs::default(), b"22".to_vec()),
            (b"link".to_vec(), b"to\nit".to_vec(), Xattrs::default(), Vec::new()),
            (b"large".to_vec(), Vec::new(), Xattrs::default(), vec![7; 700]),
        ];
        assert_eq!(members(&stream[..]).unwrap(), expected);
        assert_eq!(members(Slow(&stream)).unwrap(), expected);
    }

    /// Contents of zeros that look like the end, and a map that does not fit into one header.
    #[test]
    fn sparse_files_and_long_names_pass_through() {
        let mut stream = Vec::new();
        let mut builder = tar::Builder::new(&mut stream);
        let name = "d/".repeat(80) + "end\n";
        let mut header = Header::new_gnu();
        header.set_size(1024);
        builder.append_data(&mut header, &name, &[0; 1024][..]).unwrap();
        drop(builder.into_inner());
        stream.truncate(stream.len() - 2 * BLOCK_BYTES);
        let mut sparse = Header::new_gnu();
        sparse.set_path("sparse").unwrap();
        sparse.set_entry_type(EntryType::GNUSparse);
        sparse.set_size(5 * 512);
        let octal = |field: &mut [u8; 12], value: usize| {
            field.copy_from_slice(format!("{value:011o}\0").as_bytes());
        };
        let mut map = [0; BLOCK_BYTES];
        {
            let gnu = sparse.as_gnu_mut().unwrap();
            octal(&mut gnu.realsize, 10 * 512);
            gnu.isextended = [1];
            for (at, part) in gnu.sparse.iter_mut().enumerate() {
                octal(&mut part.offset, at * 1024);
                octal(&mut part.numbytes, 512);
            }
        }
        let parts = format!("{:011o}\0{:011o}\0{:011o}\0{:011o}\0", 4 * 1024, 512, 10 * 512, 0);
        map[..48].copy_from_slice(parts.as_bytes());
        sparse.set_cksum();
        stream.extend_from_slice(sparse.as_bytes());
        stream.extend_from_slice(&map);
        stream.extend_from_slice(&[5; 5 * 512]);
        block(&mut stream, &mut file("after", 1), b"a");
        stream.extend_from_slice(&[0; 2 * BLOCK_BYTES]);
        for found in [members(&stream[..]).unwrap(), members(Slow(&stream)).unwrap()] {
            assert_eq!(found.len(), 3);
            assert_eq!((&*found[0].0, &*found[0].3), (name.as_bytes(), &[0; 1024][..]));
            let part = [vec![5; 512], vec![0; 512]].concat();
            assert_eq!(found[1].3, part.repeat(5));
            assert_eq!((&*found[2].0, &*found[2].3), (&b"after"[..], &b"a"[..]));
        }
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        for (size, contents) in
            [(4, &b"4 a\n"[..]), (5 << 20, b""), (512, b"9 a=b\n"), (600, b"6 a=b\n")]
        {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::XHeader);
            header.set_size(size);
            let mut stream = Vec::new();
            block(&mut stream, &mut header, contents);
            assert!(members(&stream[..]).is_err(), "{size}");
        }
        let mut twice = Vec::new();
        pax(&mut twice, &[("a", b"b")]);
        pax(&mut twice, &[("a", b"b")]);
        block(&mut twice, &mut file("x", 0), b"");
        assert!(members(&twice[..]).is_err());
    }
}
