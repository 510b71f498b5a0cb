//! The bytes of archives as they arrive, counted for the progress line.
//!
//! The line tells how much of the archives is here. So what comes out of them is not counted.

use std::io::{self, Read};

use nono_engine::progress::{Amount, Progress, Stage};

/// Archives that arrive.
pub(super) struct Arriving<'a>(pub(super) &'a dyn Progress);

impl<'a> Arriving<'a> {
    /// The next archives begin to arrive: their number, and their length in bytes.
    pub(super) fn begin_archives(&self, expected: Amount) {
        self.0.begin(Stage::Download, Some(expected));
    }

    /// An archive whose bytes count.
    pub(super) fn count<R: Read>(&self, source: R) -> Counted<'a, R> {
        Counted { source, progress: self.0 }
    }

    /// An archive was read as far as it is needed.
    pub(super) fn archive_done(&self) {
        self.0.advance(1, 0);
    }
}

impl Progress for Arriving<'_> {
    fn advance(&self, _entries: u64, _bytes: u64) {}

    fn begin(&self, stage: Stage, expected: Option<Amount>) {
        // The contents are copied while they arrive.
        if stage != Stage::Copy {
            self.0.begin(stage, expected);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// A source that tells how much was read of it.
pub(super) struct Counted<'a, R> {
    source: R,
    progress: &'a dyn Progress,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.progress.advance(0, read as u64);
        Ok(read)
    }
}
