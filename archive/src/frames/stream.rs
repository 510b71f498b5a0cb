//! Reading frames one after the other, and the index behind them.
//!
//! A decompressor would pass over the index. So each frame has a decompressor of its own, and the
//! sum of the index is compared, as that of every other frame.

use std::io::{self, BufRead, BufReader, Read};

use super::{MAGIC, SKIPPED_MAGIC, SUM_BYTES};
use nono_engine::object::Hasher;

/// Bytes of the end of an index that its sum does not cover.
const END_BYTES: usize = SUM_BYTES + MAGIC.len();

/// The contents of all frames.
pub(crate) struct Frames<R: Read> {
    /// `None` behind the last frame.
    frame: Option<zstd::Decoder<'static, Peeking<R>>>,
    /// Whether that is one that decompressors skip.
    is_skipped: bool,
    max_window_log: u32,
}

impl<R: Read> Frames<R> {
    /// Frames whose windows have at most so many bytes, as a power of two.
    pub(crate) fn new(source: R, max_window_log: u32) -> io::Result<Self> {
        let source = Peeking { source: BufReader::new(source), ahead: Vec::new() };
        let frame = Some(decoder(source, max_window_log)?);
        Ok(Self { frame, is_skipped: false, max_window_log })
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.frame {
            let read = frame.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(frame) = self.frame.take() else { break };
            let mut source = frame.finish();
            match source.peek()? {
                // A frame that is skipped stands in front of another one.
                [] if self.is_skipped => return Err(invalid("bytes behind its end")),
                [] => {}
                begin if begin == SKIPPED_MAGIC => check_index(&mut source)?,
                begin => {
                    self.is_skipped = matches!(begin, [0x50..=0x5f, 0x2a, 0x4d, 0x18]);
                    self.frame = Some(decoder(source, self.max_window_log)?);
                }
            }
        }
        Ok(0)
    }
}

fn decoder<R: Read>(
    source: Peeking<R>,
    max_window_log: u32,
) -> io::Result<zstd::Decoder<'static, Peeking<R>>> {
    let mut decoder = zstd::Decoder::with_buffer(source)?.single_frame();
    decoder.window_log_max(max_window_log)?;
    Ok(decoder)
}

/// Reads the index at which a source stands, to the end of the source.
fn check_index(source: &mut impl Read) -> io::Result<()> {
    let damaged = || invalid("its index is damaged");
    let mut head = [0; SKIPPED_MAGIC.len() + 4];
    source.read_exact(&mut head)?;
    let [.., a, b, c, d] = head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let mut left = length.checked_sub(END_BYTES).ok_or_else(damaged)?;
    let (mut hasher, mut buffer) = (Hasher::new(), [0; 4096]);
    while left > 0 {
        let part = left.min(buffer.len());
        source.read_exact(&mut buffer[..part])?;
        hasher.update(&buffer[..part]);
        left -= part;
    }
    let mut end = [0; END_BYTES];
    source.read_exact(&mut end)?;
    let (sum, magic) = end.split_at(SUM_BYTES);
    if sum != &hasher.finish().as_bytes()[..SUM_BYTES] || magic != MAGIC {
        return Err(damaged());
    }
    match source.read(&mut end)? {
        0 => Ok(()),
        _ => Err(invalid("bytes behind its end")),
    }
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// A source of which the next bytes can be looked at.
struct Peeking<R> {
    source: BufReader<R>,
    /// Bytes that were looked at.
    ahead: Vec<u8>,
}

impl<R: Read> Peeking<R> {
    /// The next four bytes, or all that are left.
    fn peek(&mut self) -> io::Result<&[u8]> {
        let wanted = SKIPPED_MAGIC.len().saturating_sub(self.ahead.len());
        self.source.by_ref().take(wanted as u64).read_to_end(&mut self.ahead)?;
        Ok(&self.ahead)
    }
}

impl<R: Read> Read for Peeking<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: Read> BufRead for Peeking<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.ahead.is_empty() {
            true => self.source.fill_buf(),
            false => Ok(&self.ahead),
        }
    }

    fn consume(&mut self, bytes: usize) {
        match self.ahead.is_empty() {
            true => self.source.consume(bytes),
            false => drop(self.ahead.drain(..bytes)),
        }
    }
}
