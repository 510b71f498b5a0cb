//! A source whose panics are errors.
//!
//! A panic would end the thread that answers, and the last of them the mount under programs that wait for it. The
//! panic's own message goes where the process sends them; who asked gets an input/output error.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::source::{Content, Entry, Node, Space, Stability, TreeSource};

/// A source. What may fail is contained; what may not is expected to be too simple for a panic.
pub(crate) struct Contained<S>(S);

impl<S: TreeSource> Contained<S> {
    pub(crate) fn new(source: S) -> Self {
        Self(source)
    }

    pub(crate) fn root(&self) -> Node<S> {
        self.0.root()
    }

    pub(crate) fn stability(&self, directory: &S::Directory) -> Stability {
        self.0.stability(directory)
    }

    pub(crate) fn list(&self, directory: &S::Directory) -> io::Result<Vec<Entry<S>>> {
        contain(|| self.0.list(directory))
    }

    pub(crate) fn find(
        &self,
        directory: &S::Directory,
        name: &[u8],
    ) -> io::Result<Option<Node<S>>> {
        contain(|| self.0.find(directory, name))
    }

    pub(crate) fn open(&self, content: &S::Content, size: u64) -> io::Result<Opened> {
        contain(|| self.0.open(content, size)).map(Opened)
    }

    /// See [`TreeSource::read_whole`]. The buffer has as many bytes as the file.
    pub(crate) fn read_whole(
        &self,
        content: &S::Content,
        size: u64,
        buffer: &mut Vec<u8>,
    ) -> io::Result<()> {
        contain(|| self.0.read_whole(content, size, buffer))?;
        if buffer.len() as u64 == size { Ok(()) } else { Err(ends_early(buffer.len() as u64)) }
    }

    pub(crate) fn sha256_hex(&self, content: &S::Content) -> String {
        self.0.sha256_hex(content)
    }

    pub(crate) fn space(&self) -> Space {
        self.0.space()
    }
}

/// An open file of a source.
#[derive(Clone)]
pub(crate) struct Opened(Arc<dyn Content>);

impl Opened {
    /// All bytes, if they are in memory.
    pub(crate) fn in_memory(&self) -> Option<&[u8]> {
        self.0.in_memory()
    }

    /// See [`Content::is_ready`].
    pub(crate) fn is_ready(&self, offset: u64, len: usize) -> bool {
        contain(|| Ok(self.0.is_ready(offset, len))).unwrap_or(true)
    }

    /// Fills a buffer.
    ///
    /// # Errors
    /// Those of the source, or the contents end before the buffer is full.
    pub(crate) fn read_exactly(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let end = offset + filled as u64;
            match contain(|| self.0.read_at(&mut buffer[filled..], end)) {
                Ok(0) => return Err(ends_early(end)),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Contents end at this byte, and not where their file does.
pub(crate) fn ends_early(end: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("the contents end at byte {end}, before their size"),
    )
}

// Unwind safety: nothing of ours is changed by the closures but buffers that nobody looks at after an error. What a
// source leaves half-done is the source's.
fn contain<T>(ask: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(ask))
        .unwrap_or_else(|_| Err(io::Error::other("the source of the mount panicked")))
}
