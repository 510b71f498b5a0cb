//! A source whose panics are errors.
//!
//! A panic would end the thread that answers, and the last of them the mount under programs that
//! wait for it. The panic's own message goes where the process sends them; the program that asked
//! gets an input/output error.

use std::io;
use std::ops::{Deref, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::server::buffer::with_buffer;
use crate::source::{Content, Entry, Node, TreeSource, ends_early, read_exactly};

/// A source. Calls that may fail are contained; the others go to the source itself, and are
/// expected to be too simple for a panic.
pub(crate) struct Contained<S>(S);

impl<S: TreeSource> Contained<S> {
    pub(crate) fn new(source: S) -> Self {
        Self(source)
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
}

impl<S> Deref for Contained<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

/// An open file of a source.
#[derive(Clone)]
pub(crate) struct Opened(Arc<dyn Content>);

impl Opened {
    #[cfg(test)]
    pub(crate) fn new(content: impl Content + 'static) -> Self {
        Self(Arc::new(content))
    }

    /// See [`Content::is_ready`].
    pub(crate) fn is_ready(&self, offset: u64, len: usize) -> bool {
        contain(|| Ok(self.0.is_ready(offset, len))).unwrap_or(true)
    }

    /// Hands these bytes to `take`: as they are in the memory of the source, or else read into the
    /// [buffer](with_buffer) of this thread.
    ///
    /// # Errors
    /// The errors of the source, or contents that end before the range does.
    pub(crate) fn with_bytes<T>(
        &self,
        range: Range<u64>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<T> {
        let len = usize::try_from(range.end.saturating_sub(range.start));
        let len = len.map_err(|_| io::ErrorKind::FileTooLarge)?;
        let (mut take, mut taken) = (Some(take), None);
        let mut borrower = |bytes: &[u8]| {
            if let Some(take) = take.take_if(|_| bytes.len() == len) {
                taken = Some(take(bytes));
            }
        };
        contain(|| self.0.lend(range.clone(), &mut borrower))?;
        if let Some(taken) = taken {
            return Ok(taken);
        }
        with_buffer(|buffer| {
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            let buffer = &mut buffer[..len];
            contain(|| read_exactly(&*self.0, buffer, range.start))?;
            let take = take.ok_or_else(|| io::Error::other("contents were lent and not taken"))?;
            Ok(take(buffer))
        })
    }
}

// Unwind safety: the closures change nothing of ours but buffers that are not looked at after an
// error. What a source leaves half-done is the source's.
fn contain<T>(ask: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(ask))
        .unwrap_or_else(|_| Err(io::Error::other("the source of the mount panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Stability;

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

        fn lend(&self, range: Range<u64>, borrower: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
            if self.1 {
                let end = self.0.len().min(range.end as usize);
                borrower(&self.0[range.start as usize..end]);
            }
            Ok(self.1)
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
            (SIZE, false, true),
            (SIZE - 1, false, false),
            // Bytes beyond the end are not asked for.
            (SIZE + 1, true, true),
            (SIZE + 1, false, true),
        ] {
            let source = Contained::new(Lengths { bytes, are_in_memory });
            let mut buffer = b"what was there before".repeat(9);
            let read = source.read_whole(&(), SIZE as u64, &mut buffer);
            assert_eq!(read.is_ok(), is_read, "{bytes} {are_in_memory}");
            assert!(read.is_err() || buffer.iter().copied().eq(0..SIZE as u8));
        }
    }

    #[test]
    fn bytes_are_taken_once_and_only_if_they_are_as_many_as_asked_for() {
        for are_in_memory in [true, false] {
            let source = Contained::new(Lengths { bytes: 50, are_in_memory });
            let file = source.open(&(), 50).unwrap();
            let mut taken = Vec::new();
            file.with_bytes(3..8, |bytes| taken.push(bytes.to_vec())).unwrap();
            assert_eq!(taken, [[3, 4, 5, 6, 7]]);
            let longer = file.with_bytes(45..51, |_| panic!("there are five"));
            assert_eq!(longer.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    /// Lends in ways that it should not.
    struct Odd(Lend);

    type Lend = fn(&mut dyn FnMut(&[u8])) -> bool;

    impl Content for Odd {
        fn read_at(&self, buffer: &mut [u8], _: u64) -> io::Result<usize> {
            buffer.fill(1);
            Ok(buffer.len())
        }

        fn lend(&self, _: Range<u64>, borrower: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
            Ok((self.0)(borrower))
        }
    }

    #[test]
    fn bytes_are_taken_once_however_they_are_lent() {
        let lend_twice: Lend = |borrower| {
            borrower(&[1]);
            borrower(&[2]);
            true
        };
        let lend_too_much: Lend = |borrower| {
            borrower(&[2, 2]);
            true
        };
        let lend_and_deny: Lend = |borrower| {
            borrower(&[1]);
            false
        };
        for lend in [lend_twice, lend_too_much, lend_and_deny, |_| true] {
            let mut taken = Vec::new();
            let file = Opened::new(Odd(lend));
            file.with_bytes(0..1, |bytes| taken.extend_from_slice(bytes)).unwrap();
            assert_eq!(taken, [1]);
        }
        let panics = Opened::new(Odd(|borrower| {
            borrower(&[1]);
            panic!("after it was taken")
        }));
        assert!(panics.with_bytes(0..1, |_| ()).is_err());
    }
}
