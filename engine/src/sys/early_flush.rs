//! Flushing while there is still work: the disk writes what is complete already, and the flush at
//! the end, which is the one that counts, finds little left to do.

use parking_lot::{Condvar, Mutex};

use super::{Dir, Result, spawn_scoped};

/// A flush begins when so many bytes were written since the last one began. While it commits the
/// journal of a file system, no file is made there; so with a quarter of it a restore of many
/// files takes longer by a tenth.
const STEP_BYTES: u64 = 128 << 20;
/// The least cost of a small file to the disk, in bytes: its block, and its share of the metadata.
const FILE_BYTES: u64 = 8 << 10;

/// Counts what is written and flushes the file system from a thread of its own. Where there is
/// none, all is left to the flush at the end.
pub(crate) struct EarlyFlush {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes written since the last flush began.
    unflushed: u64,
    is_over: bool,
}

impl EarlyFlush {
    /// Does some work that writes to the file systems of `dirs` and reports it by
    /// [`wrote`](Self::wrote).
    ///
    /// # Errors
    /// EIO when the kernel lost data. It says so once only: the flush at the end would not know.
    pub(crate) fn during<T>(dirs: &[&Dir], work: impl FnOnce(&Self) -> T) -> Result<T> {
        let flush = Self { state: Mutex::default(), changed: Condvar::new() };
        std::thread::scope(|threads| {
            let flusher = spawn_scoped(threads, "early-flush", || flush.run(dirs))
                .inspect_err(|error| tracing::debug!("nothing is flushed early: {error}"));
            let over = Over(&flush);
            let value = work(&flush);
            drop(over);
            // A panic here is one of `sync_file_system`, which has none.
            let flushed = flusher.map_or(Ok(()), |flusher| flusher.join().unwrap_or(Ok(())));
            flushed.map(|()| value)
        })
    }

    /// A file of so many bytes is complete.
    pub(crate) fn wrote(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.unflushed += bytes.max(FILE_BYTES);
        if state.unflushed >= STEP_BYTES {
            self.changed.notify_one();
        }
    }

    fn run(&self, dirs: &[&Dir]) -> Result<()> {
        let mut state = self.state.lock();
        while !state.is_over {
            if state.unflushed < STEP_BYTES {
                self.changed.wait(&mut state);
                continue;
            }
            state.unflushed = 0;
            parking_lot::MutexGuard::unlocked(&mut state, || {
                dirs.iter().try_for_each(|dir| dir.sync_file_system())
            })?;
        }
        Ok(())
    }
}

/// Ends the flusher, also when the work panics.
struct Over<'a>(&'a EarlyFlush);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.changed.notify_one();
    }
}
