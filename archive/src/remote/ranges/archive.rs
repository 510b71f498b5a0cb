//! One archive of which ranges are read.
//!
//! `age` encrypts chunks of 64 KiB, each of which opens alone. Its last chunk proves the length of
//! the whole.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::blocks::{Blocks, Cursor};
use crate::frames::{BLOCK_BYTES, FOOTER_BYTES, Footer, FrameTable, MAX_FRAME_BYTES, Span};
use crate::limits::{MAX_DOCUMENT_BYTES, check_document};
use crate::read::{AGE_MAGIC, MAX_WINDOW_LOG, of_age};
use crate::write::header_of_document;
use crate::{ArchiveError, Identities};
use nono_engine::object::ContentHash;

/// An archive up to this length comes with one request.
const WHOLE_BYTES: u64 = 192 << 10;
/// The beginning: the header of `age` and its first chunk, with the first frame.
const BEGIN_BYTES: u64 = 68 << 10;
/// The end: the footer, the table of frames, and of most archives all of the index.
const END_BYTES: u64 = 132 << 10;
/// Frames of a long file that come with one request, compressed.
const AHEAD_BYTES: u64 = 4 << 20;
/// Bytes of a chunk of `age`, and of its tag.
const CHUNK_BYTES: u64 = 64 << 10;
const TAG_BYTES: u64 = 16;
/// Decompressed frames that stay in memory.
const KEPT_FRAMES: usize = 3;

/// An archive at a remote.
pub(super) struct RangedArchive {
    blocks: Arc<Blocks>,
    state: Mutex<State>,
}

struct State {
    plain: Plain,
    index: Option<Option<Arc<Index>>>,
    frames: VecDeque<(usize, Arc<Vec<u8>>)>,
}

/// An index, as far as it was read.
struct Index {
    footer: Footer,
    frames: FrameTable,
    /// The length of the compressed bytes with the index.
    bytes: u64,
}

/// The place of an object in an archive.
pub(super) enum Found {
    /// Where its last header block begins in the tar file.
    At(u64),
    Nowhere,
    /// The archive has no index.
    NoIndex,
}

/// Compressed bytes, behind an encryption or not.
enum Plain {
    Bare(Cursor),
    Age(Box<age::stream::StreamReader<BufReader<Cursor>>>),
}

impl Read for Plain {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Bare(cursor) => cursor.read(buffer),
            Self::Age(stream) => stream.read(buffer),
        }
    }
}

impl Seek for Plain {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Bare(cursor) => cursor.seek(to),
            Self::Age(stream) => stream.seek(to),
        }
    }
}

impl RangedArchive {
    /// Opens an archive and reads its beginning.
    ///
    /// # Errors
    /// [`ArchiveError::Encrypted`], [`ArchiveError::WrongKey`], [`ArchiveError::Read`].
    pub(super) fn open(blocks: Blocks, keys: &Identities) -> Result<Self, ArchiveError> {
        let blocks = Arc::new(blocks);
        let begin = if blocks.size() <= WHOLE_BYTES { blocks.size() } else { BEGIN_BYTES };
        blocks.announce(0..begin).map_err(ArchiveError::Read)?;
        let cursor = || Cursor { blocks: Arc::clone(&blocks), at: 0 };
        let mut source = BufReader::with_capacity(512, cursor());
        let is_encrypted = source.fill_buf().map_err(ArchiveError::Read)?.starts_with(AGE_MAGIC);
        let plain = match is_encrypted {
            true if keys.is_empty() => return Err(ArchiveError::Encrypted),
            true => {
                let decryptor = age::Decryptor::new_buffered(source).map_err(of_age)?;
                Plain::Age(Box::new(decryptor.decrypt(keys.keys()).map_err(of_age)?))
            }
            false => Plain::Bare(cursor()),
        };
        let state = State { plain, index: None, frames: VecDeque::new() };
        Ok(Self { blocks, state: Mutex::new(state) })
    }

    /// The bytes of `meta/session.json` and `meta/snapshot.json`.
    ///
    /// # Errors
    /// [`ArchiveError::Corrupt`], [`ArchiveError::Read`].
    pub(super) fn manifests(&self) -> Result<(Vec<u8>, Vec<u8>), ArchiveError> {
        let mut state = self.state.lock();
        state.plain.seek(SeekFrom::Start(0)).map_err(ArchiveError::Read)?;
        let mut tar = zstd::Decoder::new(&mut state.plain).map_err(ArchiveError::Read)?;
        tar.window_log_max(MAX_WINDOW_LOG).map_err(ArchiveError::Read)?;
        let session = document(&mut tar, "meta/session.json")?;
        Ok((session, document(&mut tar, "meta/snapshot.json")?))
    }

    /// Looks for an object in the index.
    pub(super) fn find(&self, hash: &ContentHash) -> io::Result<Found> {
        let mut state = self.state.lock();
        let Some(index) = self.index(&mut state)? else { return Ok(Found::NoIndex) };
        let mut attempt = 0;
        loop {
            let records = index.footer.guess(hash, attempt);
            let place = index.footer.place(&records);
            let bytes = self.read(&mut state.plain, index.bytes, place)?;
            match index.footer.find(hash, &records, &bytes) {
                Ok(found) => return Ok(found.map_or(Found::Nowhere, Found::At)),
                Err(_) => attempt += 1,
            }
        }
    }

    /// The contents of the object whose last header block begins there.
    pub(super) fn contents(&self, header_at: u64) -> io::Result<Contents<'_>> {
        let mut block = [0; BLOCK_BYTES as usize];
        let mut header = Contents { archive: self, at: header_at, left: BLOCK_BYTES };
        header.read_exact(&mut block)?;
        let size = tar::Header::from_byte_slice(&block).entry_size()?;
        let at = header_at + BLOCK_BYTES;
        Ok(Contents { archive: self, at, left: size })
    }

    fn index(&self, state: &mut State) -> io::Result<Option<Arc<Index>>> {
        if let Some(known) = &state.index {
            return Ok(known.clone());
        }
        let size = self.blocks.size();
        self.blocks.announce(size.saturating_sub(END_BYTES)..size)?;
        let bytes = state.plain.seek(SeekFrom::End(0))?;
        let footer = match bytes.checked_sub(FOOTER_BYTES as u64) {
            Some(at) => self.read(&mut state.plain, bytes, at..bytes)?,
            None => Vec::new(),
        };
        let footer = footer.first_chunk().and_then(|footer| Footer::parse(footer, bytes));
        let index = match footer {
            None => None,
            Some(footer) => {
                let table = self.read(&mut state.plain, bytes, footer.table.clone())?;
                let frames = FrameTable::parse(&table, footer.frames_end);
                frames.map(|frames| Arc::new(Index { footer, frames, bytes }))
            }
        };
        Ok(state.index.insert(index).clone())
    }

    /// Reads a range of the compressed bytes, of which there are so many.
    fn read(&self, plain: &mut Plain, bytes: u64, range: Range<u64>) -> io::Result<Vec<u8>> {
        let length = range.end.saturating_sub(range.start);
        self.announce(plain, bytes, &range)?;
        plain.seek(SeekFrom::Start(range.start))?;
        let mut read = Vec::new();
        plain.take(length).read_to_end(&mut read)?;
        match read.len() as u64 == length {
            true => Ok(read),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Asks for the bytes of the object in which a range of the compressed bytes stands.
    fn announce(&self, plain: &Plain, bytes: u64, range: &Range<u64>) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let range = match plain {
            Plain::Bare(_) => range.clone(),
            Plain::Age(_) => {
                let chunks = bytes.div_ceil(CHUNK_BYTES).max(1);
                let header = self.blocks.size().saturating_sub(bytes + chunks * TAG_BYTES);
                let at = |chunk: u64| header + chunk * (CHUNK_BYTES + TAG_BYTES);
                at(range.start / CHUNK_BYTES)..at(range.end.div_ceil(CHUNK_BYTES))
            }
        };
        self.blocks.announce(range)
    }

    /// The contents of the frame in which a byte of the tar file stands, and the frame. The frames
    /// up to another byte follow it.
    fn frame(&self, plain_at: u64, up_to: u64) -> io::Result<(Arc<Vec<u8>>, Span)> {
        let corrupt = || io::Error::new(io::ErrorKind::InvalidData, "its index is damaged");
        let mut state = self.state.lock();
        let index = self.index(&mut state)?.ok_or_else(corrupt)?;
        let number = index.frames.holding(plain_at).ok_or_else(corrupt)?;
        let span = index.frames.get(number).ok_or_else(corrupt)?;
        if let Some((_, frame)) = state.frames.iter().find(|(known, _)| *known == number) {
            return Ok((Arc::clone(frame), span));
        }
        let mut end = span.at + u64::from(span.bytes);
        for next in (number + 1..).map_while(|next| index.frames.get(next)) {
            let next_end = next.at + u64::from(next.bytes);
            if next.plain_at >= up_to || next_end - span.at > AHEAD_BYTES {
                break;
            }
            end = next_end;
        }
        self.announce(&state.plain, index.bytes, &(span.at..end))?;
        let range = span.at..span.at + u64::from(span.bytes);
        let compressed = self.read(&mut state.plain, index.bytes, range)?;
        let frame = zstd::bulk::decompress(&compressed, MAX_FRAME_BYTES)?;
        if frame.len() != span.plain_bytes as usize {
            return Err(corrupt());
        }
        let frame = Arc::new(frame);
        state.frames.push_front((number, Arc::clone(&frame)));
        state.frames.truncate(KEPT_FRAMES);
        Ok((frame, span))
    }
}

/// A member that stands at its place in the beginning of an archive.
fn document(tar: &mut impl Read, path: &str) -> Result<Vec<u8>, ArchiveError> {
    let corrupt = |error: io::Error| ArchiveError::corrupt(format!("{path}: {error}"));
    let mut block = [0; BLOCK_BYTES as usize];
    tar.read_exact(&mut block).map_err(corrupt)?;
    let size = tar::Header::from_byte_slice(&block).entry_size().map_err(corrupt)?;
    if size > MAX_DOCUMENT_BYTES || header_of_document(path, size).map_err(corrupt)? != block {
        return Err(ArchiveError::corrupt(format!("{path} is not where it has to be")));
    }
    let mut bytes = Vec::new();
    let padded = size.next_multiple_of(BLOCK_BYTES);
    tar.take(padded).read_to_end(&mut bytes).map_err(corrupt)?;
    if bytes.len() as u64 != padded {
        return Err(ArchiveError::corrupt("it was cut off"));
    }
    bytes.truncate(size as usize);
    check_document(path, &bytes)?;
    Ok(bytes)
}

/// The bytes of one object.
pub(super) struct Contents<'a> {
    archive: &'a RangedArchive,
    /// Where the next one stands in the tar file.
    at: u64,
    left: u64,
}

impl Contents<'_> {
    /// The number of bytes that are not read yet.
    pub(super) fn left(&self) -> u64 {
        self.left
    }
}

impl Read for Contents<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let (frame, span) = self.archive.frame(self.at, self.at.saturating_add(self.left))?;
        let rest = &frame[(self.at - span.plain_at) as usize..];
        let len =
            rest.len().min(buffer.len()).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        buffer[..len].copy_from_slice(&rest[..len]);
        self.at += len as u64;
        self.left -= len as u64;
        Ok(len)
    }
}
