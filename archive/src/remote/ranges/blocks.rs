//! Ranges of one object of a remote, a few of which stay in memory.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::remote::place::Place;
use nono_engine::progress::NoProgress;

/// Length of a range that no caller announced.
const BLOCK_BYTES: u64 = 64 << 10;
/// Most bytes of one object that stay in memory.
const HELD_BYTES: usize = 8 << 20;

/// An object of which ranges are read.
pub(super) struct Blocks {
    place: Arc<Place>,
    key: String,
    size: u64,
    held: Mutex<VecDeque<(u64, Bytes)>>,
}

impl Blocks {
    pub(super) fn new(place: Arc<Place>, key: String, size: u64) -> Self {
        Self { place, key, size, held: Mutex::default() }
    }

    /// The length of the object, as it was listed.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Reads a range with one request, unless it is in memory.
    pub(super) fn announce(&self, range: Range<u64>) -> io::Result<()> {
        let range = range.start..range.end.min(self.size);
        if range.is_empty() {
            return Ok(());
        }
        let mut held = self.held.lock();
        let is_held = held.iter().any(|(at, bytes)| {
            *at <= range.start && range.end <= at.saturating_add(bytes.len() as u64)
        });
        if is_held {
            return Ok(());
        }
        let at = range.start;
        let read = self.place.read_range(&self.key, range, &NoProgress);
        held.push_front((at, read.map_err(io::Error::other)?));
        let mut sum = 0;
        held.retain(|(_, bytes)| {
            // The one that was just read stays, whatever its length.
            let stays = sum == 0 || sum + bytes.len() <= HELD_BYTES;
            sum += bytes.len();
            stays
        });
        Ok(())
    }

    /// Reads what is in memory behind a place, or else a block there.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if at >= self.size || buffer.is_empty() {
            return Ok(0);
        }
        let held = |blocks: &VecDeque<(u64, Bytes)>, buffer: &mut [u8]| {
            let behind = blocks.iter().filter_map(|(start, bytes)| {
                let skipped = usize::try_from(at.checked_sub(*start)?).ok()?;
                bytes.get(skipped..).filter(|rest| !rest.is_empty())
            });
            let rest = behind.max_by_key(|rest| rest.len())?;
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Some(len)
        };
        if let Some(len) = held(&self.held.lock(), buffer) {
            return Ok(len);
        }
        self.announce(at..at.saturating_add(BLOCK_BYTES))?;
        held(&self.held.lock(), buffer).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Reads the object from any place in it.
pub(super) struct Cursor {
    pub(super) blocks: Arc<Blocks>,
    pub(super) at: u64,
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.blocks.read_at(self.at, buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Cursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.blocks.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
