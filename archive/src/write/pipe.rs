//! Making an archive with two threads: one reads and verifies the store ahead, the other one
//! compresses, encrypts and sends what the first one made.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use crate::ArchiveError;
use nono_engine::sys;

/// Bytes that go through the pipe at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Chunks that wait in it.
const CHUNKS_AHEAD: usize = 3;

/// The end of a pipe into which its maker writes. Filled chunks go away, and come back empty.
pub(super) struct Pipe {
    chunk: Vec<u8>,
    filled: SyncSender<Vec<u8>>,
    emptied: Receiver<Vec<u8>>,
}

/// Hands what `make` writes on to `out`. `make` runs in a thread of its own, and `out` in this one.
/// After an error of one side, the other side ends with its next chunk.
///
/// # Errors
/// [`ArchiveError::Write`] of `out`, or else the error of `make`.
pub(super) fn through_pipe<T: Send>(
    make: impl FnOnce(&mut Pipe) -> Result<T, ArchiveError> + Send,
    out: &mut impl Write,
) -> Result<T, ArchiveError> {
    let (filled, chunks) = sync_channel(CHUNKS_AHEAD);
    let (empty, emptied) = channel();
    let mut pipe = Pipe { chunk: Vec::with_capacity(CHUNK_BYTES), filled, emptied };
    std::thread::scope(|scope| {
        let maker = sys::spawn_scoped(scope, "archive", move || {
            let made = make(&mut pipe)?;
            pipe.flush().map_err(ArchiveError::Write)?;
            Ok(made)
        });
        let maker = maker.map_err(ArchiveError::Write)?;
        let sent = send(chunks, &empty, out);
        let made = maker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent.map_err(ArchiveError::Write).and(made)
    })
}

/// Writes chunks until the maker has no more. The chunks end with this function, so that a maker
/// does not wait for a writer that failed.
fn send(
    chunks: Receiver<Vec<u8>>,
    empty: &Sender<Vec<u8>>,
    out: &mut impl Write,
) -> io::Result<()> {
    for mut chunk in chunks {
        out.write_all(&chunk)?;
        chunk.clear();
        // The maker is done, perhaps.
        let _ = empty.send(chunk);
    }
    Ok(())
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.chunk.len() == CHUNK_BYTES {
            self.flush()?;
        }
        let len = bytes.len().min(CHUNK_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        let empty = self.emptied.try_recv();
        let empty = empty.unwrap_or_else(|_| Vec::with_capacity(CHUNK_BYTES));
        let filled = std::mem::replace(&mut self.chunk, empty);
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "no reader takes the archive");
        self.filled.send(filled).map_err(gone)
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

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 7) as u8).collect()
    }

    #[test]
    fn what_is_made_comes_out_whole_and_in_order() {
        for len in [0, 1, CHUNK_BYTES, 9 * CHUNK_BYTES + 5] {
            let (whole, mut out) = (bytes(len), Vec::new());
            let make = |pipe: &mut Pipe| {
                whole.chunks(100_000).try_for_each(|part| pipe.write_all(part)).unwrap();
                Ok(len)
            };
            assert_eq!(through_pipe(make, &mut out).unwrap(), len);
            assert!(out == whole, "{len}");
        }
    }

    #[test]
    fn the_failure_of_either_side_ends_both() {
        let whole = bytes(20 * CHUNK_BYTES);
        let full = through_pipe(
            |pipe| pipe.write_all(&whole).map_err(ArchiveError::Write),
            &mut Full(3 * CHUNK_BYTES),
        );
        let Err(ArchiveError::Write(error)) = full else { panic!("{full:?}") };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let stopped = through_pipe(
            |pipe| {
                pipe.write_all(&whole[..CHUNK_BYTES]).unwrap();
                Err::<(), _>(ArchiveError::Cancelled)
            },
            &mut Vec::new(),
        );
        assert!(matches!(stopped, Err(ArchiveError::Cancelled)), "{stopped:?}");
    }
}
