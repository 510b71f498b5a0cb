//! A source whose panics are errors.
//!
//! A panic would end the thread that answers, and the last of them the mount under programs that wait for it. The
//! panic's own message goes where the process sends them; who asked gets an input/output error.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::source::{Content, Entry, Node, Space, Stability, TreeSource, ends_early, read_exactly};

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
        match buffer.len() as u64 {
            found if found == size => Ok(()),
            found if found < size => Err(ends_early(found)),
            found => {
                Err(io::Error::other(format!("the contents have {found} bytes and not {size}")))
            }
        }
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
        contain(|| read_exactly(&*self.0, buffer, offset))
    }
}

// Unwind safety: nothing of ours is changed by the closures but buffers that nobody looks at after an error. What a
// source leaves half-done is the source's.
fn contain<T>(ask: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(ask))
        .unwrap_or_else(|_| Err(io::Error::other("the source of the mount panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file has so many bytes, whatever its size should be.
    struct Lengths {
        bytes: usize,
        are_in_memory: bool,
    }

    struct Bytes(Vec<u8>, bool);

    impl Content for Bytes {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = self.0.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(buffer.len()).min(7);
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        }

        fn in_memory(&self) -> Option<&[u8]> {
            self.1.then_some(&self.0)
        }
    }

    impl TreeSource for Lengths {
        type Directory = ();
        type Content = ();

        fn root(&self) -> Node<Self> {
            unreachable!()
        }

        fn stability(&self, (): &()) -> Stability {
            unreachable!()
        }

        fn list(&self, (): &()) -> io::Result<Vec<Entry<Self>>> {
            unreachable!()
        }

        fn open(&self, (): &(), _: u64) -> io::Result<Arc<dyn Content>> {
            let bytes = (0..self.bytes).map(|at| at as u8).collect();
            Ok(Arc::new(Bytes(bytes, self.are_in_memory)))
        }

        fn sha256_hex(&self, (): &()) -> String {
            unreachable!()
        }
    }

    #[test]
    fn what_is_read_whole_has_the_length_of_the_file() {
        const SIZE: usize = 50;
        for (bytes, are_in_memory, is_read) in [
            (SIZE, true, true),
            (SIZE - 1, true, false),
            (SIZE + 1, true, false),
            (SIZE, false, true),
            (SIZE - 1, false, false),
            // What is beyond the end is not asked for.
            (SIZE + 1, false, true),
        ] {
            let source = Contained::new(Lengths { bytes, are_in_memory });
            let mut buffer = b"what was there before".repeat(9);
            let read = source.read_whole(&(), SIZE as u64, &mut buffer);
            assert_eq!(read.is_ok(), is_read, "{bytes} {are_in_memory}");
            assert!(read.is_err() || buffer.iter().copied().eq(0..SIZE as u8));
        }
    }
}
