//! Making an archive with several threads: one reads and verifies the store ahead, others compress
//! what it made, each a frame of its own, and the calling one encrypts and sends the frames in
//! their order.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Scope;

use parking_lot::Mutex;

use super::LEVEL;
use crate::ArchiveError;
use crate::frames::{BLOCK_BYTES, DENSE_FRAME_BYTES, MAX_FRAME_BYTES, Notes, write_index};
use nono_engine::object::ContentHash;
use nono_engine::sys;

/// Chunks that wait in the pipe.
const CHUNKS_AHEAD: usize = 1;
/// Most threads that compress.
const MAX_THREADS: usize = 8;
/// Bytes of a sample, and their number, that tell whether contents are dense.
const SAMPLE_BYTES: usize = 16 << 10;
const SAMPLES: usize = 4;
/// Level at which a sample is compressed: the fastest usual one.
const SAMPLE_LEVEL: i32 = 1;

/// The end of a pipe into which its maker writes. Filled chunks go away, and come back empty. Each
/// of them becomes one frame.
pub(super) struct Pipe {
    chunk: Vec<u8>,
    /// Longest chunk.
    most: usize,
    /// The length at which a chunk of dense contents ends.
    stop: usize,
    /// Bytes in the chunks before this one.
    before: u64,
    notes: Notes,
    filled: SyncSender<Vec<u8>>,
    emptied: Receiver<Vec<u8>>,
}

impl Pipe {
    fn new(filled: SyncSender<Vec<u8>>, emptied: Receiver<Vec<u8>>) -> Self {
        let (chunk, notes) = (Vec::with_capacity(MAX_FRAME_BYTES), Notes::default());
        let (most, stop) = (MAX_FRAME_BYTES, DENSE_FRAME_BYTES);
        Self { chunk, most, stop, before: 0, notes, filled, emptied }
    }

    /// Frames from here on have at most so many bytes.
    pub(super) fn begin_frames(&mut self, most: usize) -> io::Result<()> {
        self.most = most;
        self.end_frame()
    }

    /// Begins a frame where so many bytes would end in the next one: a reader wants all of them.
    pub(super) fn keep_together(&mut self, bytes: u64) -> io::Result<()> {
        let end = bytes.saturating_add(self.chunk.len() as u64);
        let is_too_long = end > self.most as u64;
        match is_too_long || (end > self.stop as u64 && self.is_dense()?) {
            true => self.end_frame(),
            false => Ok(()),
        }
    }

    /// Whether compression makes the end of the chunk no shorter than half: samples of it tell.
    fn is_dense(&self) -> io::Result<bool> {
        let end = &self.chunk[self.chunk.len().saturating_sub(DENSE_FRAME_BYTES)..];
        let step = (end.len() / SAMPLES).max(1);
        let parts = end.chunks(step).flat_map(|part| &part[..part.len().min(SAMPLE_BYTES)]);
        let sample: Vec<u8> = parts.copied().collect();
        Ok(zstd::bulk::compress(&sample, SAMPLE_LEVEL)?.len() * 2 > sample.len())
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.stop = DENSE_FRAME_BYTES.min(self.most);
        if self.chunk.is_empty() {
            return Ok(());
        }
        let empty = self.emptied.try_recv();
        let empty = empty.unwrap_or_else(|_| Vec::with_capacity(MAX_FRAME_BYTES));
        let filled = std::mem::replace(&mut self.chunk, empty);
        self.before += filled.len() as u64;
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "no reader takes the archive");
        self.filled.send(filled).map_err(gone)
    }

    /// Notes that the last block is the header of an object.
    pub(super) fn note(&mut self, hash: &ContentHash) {
        let end = self.before + self.chunk.len() as u64;
        self.notes.add(hash, end.saturating_sub(BLOCK_BYTES));
    }
}

/// Hands what `make` writes on to `out`, compressed, and the index behind it. `make` runs in a
/// thread of its own, and `out` in this one. After an error of one side, the other side ends with
/// its next chunk.
///
/// # Errors
/// [`ArchiveError::Write`] of `out`, or else the error of `make`.
pub(super) fn through_pipe<T: Send>(
    make: impl FnOnce(&mut Pipe) -> Result<T, ArchiveError> + Send,
    out: &mut impl Write,
) -> Result<T, ArchiveError> {
    let (filled, chunks) = sync_channel(CHUNKS_AHEAD);
    let (empty, emptied) = channel();
    let mut pipe = Pipe::new(filled, emptied);
    let (jobs, waiting) = channel::<Job>();
    let waiting = Mutex::new(waiting);
    std::thread::scope(|scope| {
        // Here, so that the threads end when this function does.
        let jobs = jobs;
        let maker = sys::spawn_scoped(scope, "archive", move || {
            let made = make(&mut pipe)?;
            pipe.end_frame().map_err(ArchiveError::Write)?;
            Ok::<_, ArchiveError>((made, pipe.notes))
        });
        let maker = maker.map_err(ArchiveError::Write)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(MAX_THREADS);
        let begun = (0..threads).try_for_each(|_| spawn_compressor(scope, &waiting));
        let sent = begun.and_then(|()| send(chunks, &empty, &jobs, threads, out));
        let made = maker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let frames = sent.map_err(ArchiveError::Write)?;
        let (made, notes) = made?;
        write_index(notes, &frames, out).map_err(ArchiveError::Write)?;
        Ok(made)
    })
}

/// A chunk that is to be compressed, and who waits for it.
struct Job {
    chunk: Vec<u8>,
    done: SyncSender<io::Result<Frame>>,
}

/// A chunk, and the frame of it.
struct Frame {
    chunk: Vec<u8>,
    bytes: Vec<u8>,
}

/// Starts a thread that compresses until no jobs are to come.
fn spawn_compressor<'scope>(
    scope: &'scope Scope<'scope, '_>,
    jobs: &'scope Mutex<Receiver<Job>>,
) -> io::Result<()> {
    let mut zstd = zstd::bulk::Compressor::new(LEVEL)?;
    zstd.include_checksum(true)?;
    let compress = move || {
        loop {
            // The lock goes before the work.
            let next = jobs.lock().recv();
            let Ok(Job { chunk, done }) = next else { return };
            let compressed = zstd.compress(&chunk);
            // The sender may have failed meanwhile.
            let _ = done.send(compressed.map(|bytes| Frame { chunk, bytes }));
        }
    };
    sys::spawn_scoped(scope, "compress", compress).map(drop)
}

/// Compresses and writes chunks until the maker has no more. The chunks end with this function, so
/// that a maker does not wait for a writer that failed. Returns the lengths of the frames,
/// compressed and decompressed.
fn send(
    chunks: Receiver<Vec<u8>>,
    empty: &Sender<Vec<u8>>,
    jobs: &Sender<Job>,
    threads: usize,
    out: &mut impl Write,
) -> io::Result<Vec<(u32, u32)>> {
    let mut frames = Vec::new();
    let mut at_work: VecDeque<Receiver<io::Result<Frame>>> = VecDeque::new();
    let mut write = |frame: &Receiver<io::Result<Frame>>| {
        let ended = |_| io::Error::other("a thread that compresses ended");
        let Frame { mut chunk, bytes } = frame.recv().map_err(ended)??;
        out.write_all(&bytes)?;
        // A chunk and its frame are some MiB at most.
        frames.push((bytes.len() as u32, chunk.len() as u32));
        chunk.clear();
        // The maker is done, perhaps.
        let _ = empty.send(chunk);
        Ok::<_, io::Error>(())
    };
    for chunk in chunks {
        let (done, frame) = sync_channel(1);
        let ended = |_| io::Error::other("the threads that compress ended");
        jobs.send(Job { chunk, done }).map_err(ended)?;
        at_work.push_back(frame);
        if at_work.len() > threads
            && let Some(first) = at_work.pop_front()
        {
            write(&first)?;
        }
    }
    at_work.iter().try_for_each(write)?;
    Ok(frames)
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.chunk.len() >= self.stop {
            match self.stop >= self.most || self.is_dense()? {
                true => self.end_frame()?,
                false => self.stop += DENSE_FRAME_BYTES,
            }
        }
        let len = bytes.len().min(self.stop - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    /// A frame ends where its maker says so, and where it is full.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes, then fails.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Bytes that cannot be compressed.
    fn bytes(len: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn what_is_made_comes_out_whole_and_in_order() {
        for len in [0, 1, MAX_FRAME_BYTES, 9 * MAX_FRAME_BYTES + 5] {
            let (whole, mut out) = (bytes(len), Vec::new());
            let make = |pipe: &mut Pipe| {
                whole.chunks(100_000).try_for_each(|part| pipe.write_all(part)).unwrap();
                Ok(len)
            };
            assert_eq!(through_pipe(make, &mut out).unwrap(), len);
            assert!(zstd::decode_all(&*out).unwrap() == whole, "{len}");
        }
    }

    #[test]
    fn the_failure_of_either_side_ends_both() {
        let whole = bytes(20 * MAX_FRAME_BYTES);
        let full = through_pipe(
            |pipe| pipe.write_all(&whole).map_err(ArchiveError::Write),
            &mut Full(3 * MAX_FRAME_BYTES),
        );
        let Err(ArchiveError::Write(error)) = full else { panic!("{full:?}") };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let stopped = through_pipe(
            |pipe| {
                pipe.write_all(&whole[..MAX_FRAME_BYTES]).unwrap();
                Err::<(), _>(ArchiveError::Cancelled)
            },
            &mut Vec::new(),
        );
        assert!(matches!(stopped, Err(ArchiveError::Cancelled)), "{stopped:?}");
    }
}
