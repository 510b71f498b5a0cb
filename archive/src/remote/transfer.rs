//! The bytes of archives as they arrive, counted for the progress line.
//!
//! The line tells how much of the archives is here. So what comes out of them is not counted.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nono_engine::progress::{Amount, Progress, Stage};

/// Archives that arrive.
pub(super) struct Arriving<'a> {
    progress: &'a dyn Progress,
    /// Bytes that have arrived.
    bytes: AtomicU64,
}

impl<'a> Arriving<'a> {
    pub(super) fn new(progress: &'a dyn Progress) -> Self {
        Self { progress, bytes: AtomicU64::new(0) }
    }

    /// Bytes that have arrived so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// The next archives begin to arrive: their number, and their length in bytes.
    pub(super) fn begin_archives(&self, expected: Amount) {
        self.progress.begin(Stage::Download, Some(expected));
    }

    /// An archive whose bytes count.
    pub(super) fn count<R: Read>(&self, source: R) -> Counted<'_, R> {
        Counted { source, arriving: self }
    }

    /// An archive was read as far as it is needed.
    pub(super) fn archive_done(&self) {
        self.progress.advance(1, 0);
    }
}

impl Progress for Arriving<'_> {
    fn advance(&self, _entries: u64, _bytes: u64) {}

    fn begin(&self, stage: Stage, expected: Option<Amount>) {
        // The contents are copied while they arrive.
        if stage != Stage::Copy {
            self.progress.begin(stage, expected);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.progress.is_cancelled()
    }
}

/// A source that tells how much was read of it.
pub(super) struct Counted<'a, R> {
    source: R,
    arriving: &'a Arriving<'a>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.arriving.progress.advance(0, read as u64);
        self.arriving.bytes.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}
