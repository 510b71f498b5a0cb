//! The layers of an archive, from its bytes to its members. Every length is bounded before it is
//! believed.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tar::{EntryType, Header};

use super::super::frames::Frames;
use super::super::write::header_of_document;
use super::super::{ArchiveError, Identities};
use nono_engine::pax::PaxRecords;

pub(crate) const AGE_MAGIC: &[u8] = b"age-encryption.org/v1";
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The last bytes of the magic number of a frame that decompressors skip; `pzstd` begins with one.
const SKIPPED_MAGIC: &[u8] = &[0x2a, 0x4d, 0x18];
/// Largest window of the compression, as a power of two: 32 MiB.
pub(crate) const MAX_WINDOW_LOG: u32 = 25;
/// Longest PAX header, in bytes: attributes of one file.
const MAX_PAX_BYTES: u64 = 4 << 20;
const BLOCK_BYTES: usize = 512;
/// Most bytes of zeros behind the end of a tar file.
const MAX_END_BYTES: u64 = 1 << 20;

/// Notes whether the source itself failed, in contrast to what came out of it.
struct Watched<R> {
    source: R,
    failed: Arc<AtomicBool>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer);
        if read.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            self.failed.store(true, Relaxed);
        }
        read
    }
}

/// Plain bytes, or those behind an encryption.
enum Opened<R: Read> {
    Plain(BufReader<Watched<R>>),
    Age(age::stream::StreamReader<BufReader<Watched<R>>>),
}

impl<R: Read> Read for Opened<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(buffer),
            Self::Age(source) => source.read(buffer),
        }
    }
}

/// The members of an archive, one after the other.
pub(super) struct Members<R: Read> {
    source: Frames<Opened<R>>,
    failed: Arc<AtomicBool>,
    pub(super) is_encrypted: bool,
    /// Bytes of the member that are not read yet, and of its last block behind them.
    left: u64,
    padding: u64,
    /// All that stands in front of the contents of the member.
    header: Vec<u8>,
    /// The first member of `meta/` whose header nono does not write so.
    pub(super) strange: Option<String>,
}

/// The header of a member.
pub(super) struct Member {
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryType,
    pub(super) size: u64,
}

impl<R: Read> Members<R> {
    pub(super) fn open(source: R, identities: &Identities) -> Result<Self, ArchiveError> {
        let failed = Arc::new(AtomicBool::new(false));
        let mut source = BufReader::new(Watched { source, failed: Arc::clone(&failed) });
        let begin = source.fill_buf().map_err(ArchiveError::Read)?;
        let is_encrypted = begin.starts_with(AGE_MAGIC);
        let opened = if is_encrypted {
            if identities.is_empty() {
                return Err(ArchiveError::Encrypted);
            }
            let decryptor = age::Decryptor::new_buffered(source).map_err(of_age)?;
            Opened::Age(decryptor.decrypt(identities.keys()).map_err(of_age)?)
        } else if begin.starts_with(ZSTD_MAGIC)
            || matches!(begin, [0x50..=0x5f, rest @ ..] if rest.starts_with(SKIPPED_MAGIC))
        {
            Opened::Plain(source)
        } else {
            return Err(ArchiveError::corrupt("it is neither encrypted with age nor compressed"));
        };
        let source = Frames::new(opened, MAX_WINDOW_LOG).map_err(ArchiveError::Read)?;
        let (header, strange) = (Vec::new(), None);
        Ok(Self { source, failed, is_encrypted, left: 0, padding: 0, header, strange })
    }

    /// The meaning of a failed read.
    pub(super) fn failed(&self, error: io::Error) -> ArchiveError {
        if self.failed.load(Relaxed) {
            return ArchiveError::Read(error);
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => ArchiveError::corrupt("it was cut off"),
            _ => ArchiveError::corrupt(error.to_string()),
        }
    }

    /// The next member; what is left of the one before is passed over. `None`: the end.
    pub(super) fn next(&mut self) -> Result<Option<Member>, ArchiveError> {
        self.skip()?;
        let (mut path, mut size) = (None, None);
        self.header.clear();
        loop {
            let mut block = [0; BLOCK_BYTES];
            self.fill(&mut block)?;
            self.header.extend(block);
            if block.iter().all(|byte| *byte == 0) {
                self.end()?;
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block);
            let sum = block[..148].iter().chain(&block[156..]).map(|byte| u32::from(*byte));
            let sum = sum.sum::<u32>() + 8 * u32::from(b' ');
            let own =
                header.entry_size().map_err(|error| ArchiveError::corrupt(error.to_string()))?;
            if header.cksum().ok() != Some(sum) {
                return Err(ArchiveError::corrupt("the checksum of a member is wrong"));
            }
            if header.entry_type() == EntryType::XHeader {
                if own > MAX_PAX_BYTES || path.is_some() || size.is_some() {
                    return Err(ArchiveError::TooLarge {
                        reason: "attributes of a file".to_owned(),
                    });
                }
                self.begin(own);
                let mut records = Vec::new();
                self.read_to(&mut records, MAX_PAX_BYTES)?;
                for record in PaxRecords::new(&records) {
                    match record.map_err(|error| ArchiveError::corrupt(error.to_string()))? {
                        (b"path", value) => path = Some(value.to_vec()),
                        (b"size", value) => {
                            let value = std::str::from_utf8(value).ok();
                            let value = value.and_then(|it| it.parse::<u64>().ok());
                            let value = value.ok_or_else(|| ArchiveError::corrupt("a length"))?;
                            size = Some(value);
                        }
                        _ => {}
                    }
                }
                self.header.extend(&records);
                self.header.resize(self.header.len().next_multiple_of(BLOCK_BYTES), 0);
                self.skip()?;
                continue;
            }
            let kind = header.entry_type();
            let is_known = matches!(
                kind,
                EntryType::Regular
                    | EntryType::Directory
                    | EntryType::Symlink
                    | EntryType::Link
                    | EntryType::Fifo
                    | EntryType::Char
                    | EntryType::Block
            );
            if !is_known {
                return Err(ArchiveError::corrupt("a member of a kind that nono does not write"));
            }
            let size = size.unwrap_or(own);
            if size > 0 && kind != EntryType::Regular {
                return Err(ArchiveError::corrupt("contents of what is no file"));
            }
            let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
            let path = path.strip_suffix(b"/").map(<[u8]>::to_vec).unwrap_or(path);
            if !path.split(|byte| *byte == b'/').all(nono_engine::object::is_name) {
                let path = nono_engine::path_text::Shown::bytes(&path).to_string();
                return Err(ArchiveError::corrupt(format!("{path} is no path of an archive")));
            }
            self.begin(size);
            return Ok(Some(Member { path, kind, size }));
        }
    }

    /// All that stands in front of the contents of the present member.
    pub(super) fn header(&self) -> &[u8] {
        &self.header
    }

    /// Whether the present member is a hard link.
    pub(super) fn is_link(&self) -> bool {
        let last = self.header.len().checked_sub(BLOCK_BYTES);
        last.is_some_and(|at| self.header[at + 156] == EntryType::Link.as_byte())
    }

    /// Notes a member of `meta/` that ordinary programs may take for another one.
    pub(super) fn compare_document(&mut self, path: &str, size: u64) {
        let is_ours = header_of_document(path, size).is_ok_and(|ours| ours == self.header);
        if !is_ours && self.strange.is_none() {
            self.strange = Some(path.to_owned());
        }
    }

    fn begin(&mut self, size: u64) {
        self.left = size;
        self.padding = (512 - size % 512) % 512;
    }

    /// Reads the rest of the member into memory, at most so many bytes.
    pub(super) fn read_to(&mut self, out: &mut Vec<u8>, most: u64) -> Result<(), ArchiveError> {
        out.clear();
        if self.left > most {
            return Err(ArchiveError::TooLarge {
                reason: format!("a member of {} bytes", self.left),
            });
        }
        let mut step = [0; 8192];
        while self.left > 0 {
            let read = self.read_some(&mut step)?;
            out.extend_from_slice(&step[..read]);
        }
        Ok(())
    }

    /// Bytes of the member that are not read yet.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Reads some bytes of the member; 0 at its end.
    pub(super) fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, ArchiveError> {
        let step = self.left.min(buffer.len() as u64) as usize;
        if step == 0 {
            return Ok(0);
        }
        match self.source.read(&mut buffer[..step]) {
            Ok(0) => Err(ArchiveError::corrupt("it was cut off")),
            Ok(read) => {
                self.left -= read as u64;
                Ok(read)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    fn skip(&mut self) -> Result<(), ArchiveError> {
        let mut buffer = [0; 16 * 1024];
        while self.left > 0 {
            self.read_some(&mut buffer)?;
        }
        // Zeros, or two archives would mean the same.
        self.left = std::mem::take(&mut self.padding);
        while self.left > 0 {
            let read = self.read_some(&mut buffer)?;
            if buffer[..read].iter().any(|byte| *byte != 0) {
                return Err(ArchiveError::corrupt("bytes that belong to no member"));
            }
        }
        Ok(())
    }

    fn fill(&mut self, block: &mut [u8]) -> Result<(), ArchiveError> {
        self.source.read_exact(block).map_err(|error| self.failed(error))
    }

    /// Reads to the last byte: behind it stand the checksums.
    fn end(&mut self) -> Result<(), ArchiveError> {
        let mut buffer = [0; 4096];
        let mut bytes = BLOCK_BYTES as u64;
        loop {
            let read = self.source.read(&mut buffer).map_err(|error| self.failed(error))?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            if bytes > MAX_END_BYTES || buffer[..read].iter().any(|byte| *byte != 0) {
                return Err(ArchiveError::corrupt("bytes behind its end"));
            }
        }
        match bytes < 2 * BLOCK_BYTES as u64 {
            true => Err(ArchiveError::corrupt("it was cut off")),
            false => Ok(()),
        }
    }
}

/// Lets a member be read by others; an error is kept for whoever asks.
pub(super) struct Contents<'a, R: Read> {
    pub(super) members: &'a mut Members<R>,
    pub(super) error: Option<ArchiveError>,
    /// Bytes since the last line break: a document has no longer lines.
    line: usize,
}

/// Longest line of a document, in bytes.
const MAX_LINE_BYTES: usize = 1 << 20;

impl<'a, R: Read> Contents<'a, R> {
    pub(super) fn new(members: &'a mut Members<R>) -> Self {
        Self { members, error: None, line: 0 }
    }
}

impl<R: Read> Read for Contents<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self.members.read_some(buffer) {
            Ok(read) => read,
            Err(error) => {
                self.error = Some(error);
                return Err(io::Error::other("the archive cannot be read"));
            }
        };
        for byte in &buffer[..read] {
            self.line = if *byte == b'\n' { 0 } else { self.line + 1 };
        }
        if self.line > MAX_LINE_BYTES {
            self.error = Some(ArchiveError::TooLarge { reason: "a line of a document".to_owned() });
            return Err(io::Error::other("the archive cannot be read"));
        }
        Ok(read)
    }
}

pub(crate) fn of_age(error: age::DecryptError) -> ArchiveError {
    match error {
        age::DecryptError::NoMatchingKeys | age::DecryptError::DecryptionFailed => {
            ArchiveError::WrongKey
        }
        age::DecryptError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            ArchiveError::corrupt("it was cut off")
        }
        age::DecryptError::Io(error) => ArchiveError::Read(error),
        error => ArchiveError::corrupt(error.to_string().trim().to_owned()),
    }
}
