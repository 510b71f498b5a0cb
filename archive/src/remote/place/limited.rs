//! A limit of the bytes that go up in a second.
//!
//! The bytes of an archive wait where they are made. A bucket gets a long object in parts of some
//! MiB, so the limit is one of the average.

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use nono_engine::progress::Progress;

/// Longest wait before the caller is asked whether to stop.
const STEP: Duration = Duration::from_millis(50);

/// A writer that takes no more than so many bytes in a second, on average.
pub(super) struct Limited<'a> {
    out: &'a mut dyn Write,
    bytes_per_second: NonZeroU64,
    begin: Instant,
    written: u64,
    progress: &'a dyn Progress,
}

impl<'a> Limited<'a> {
    pub(super) fn new(
        out: &'a mut dyn Write,
        bytes_per_second: NonZeroU64,
        progress: &'a dyn Progress,
    ) -> Self {
        Self { out, bytes_per_second, begin: Instant::now(), written: 0, progress }
    }

    /// When the bytes so far may have gone.
    fn due(&self) -> Duration {
        let nanos = u128::from(self.written) * 1_000_000_000;
        let nanos = nanos / u128::from(self.bytes_per_second.get());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A tenth of a second of them at once.
        let most = (self.bytes_per_second.get() / 10).max(1);
        let len = bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let written = self.out.write(&bytes[..len])?;
        self.written += written as u64;
        // Whoever stops gets an answer from the writer of the archive.
        while let Some(left) = self.due().checked_sub(self.begin.elapsed())
            && !left.is_zero()
            && !self.progress.is_cancelled()
        {
            std::thread::sleep(left.min(STEP));
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nono_engine::progress::NoProgress;

    #[test]
    fn so_many_bytes_take_no_less_than_their_time() {
        let mut out = Vec::new();
        let begin = Instant::now();
        let rate = NonZeroU64::new(1_000_000).unwrap();
        let mut limited = Limited::new(&mut out, rate, &NoProgress);
        limited.write_all(&[7; 300_000]).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(300));
        assert_eq!(out, [7; 300_000]);
    }
}
