//! The descriptor of `/dev/fuse` over which a mount and the kernel talk.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::abi::{InvalidateInodeOut, OutHeader, PruneOut, StoreOut, notification};
use super::request::Request;

/// In the place of the number of a request: nobody asked.
const NOTIFICATION: u64 = 0;

/// A connection to the kernel. It can be used by several threads: each message is one system call.
pub(crate) struct Connection(OwnedFd);

impl Connection {
    pub(crate) fn new(connection: OwnedFd) -> Self {
        Self(connection)
    }

    /// Waits for a request, for which `buffer` must have room ([`REQUEST_BYTES`](super::REQUEST_BYTES)).
    ///
    /// # Errors
    /// [`Errno::NODEV`]: the connection has ended. [`Errno::AGAIN`]: there is none now, and nobody waits for one.
    /// [`Errno::PROTO`]: this is not FUSE.
    pub(crate) fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Request<'b>, Errno> {
        let count = loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(count) => break count,
                // NOENT: it was taken back meanwhile.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        };
        Request::decode(&buffer[..count]).ok_or(Errno::PROTO)
    }

    /// Answers a request.
    ///
    /// # Errors
    /// [`Errno::NOENT`]: nobody waits for an answer to it, not any more. Others break the protocol.
    pub(super) fn answer(&self, unique: u64, body: &[u8]) -> Result<(), Errno> {
        self.send(0, unique, &[body])
    }

    /// Answers a request with an error.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub(crate) fn refuse(&self, unique: u64, why: Errno) -> Result<(), Errno> {
        self.send(-why.raw_os_error(), unique, &[])
    }

    /// Gives the kernel contents of a file, from the beginning of a page to the end of another one or of the file.
    ///
    /// # Errors
    /// [`Errno::NOENT`]: the kernel does not know this node, not yet or no longer. Contents that come before the name
    /// of their file are lost.
    pub(crate) fn store(&self, node: u64, offset: u64, contents: &[u8]) -> Result<(), Errno> {
        let size = u32::try_from(contents.len()).map_err(|_| Errno::FBIG)?;
        let head = StoreOut { node, offset, size, padding: 0 };
        self.send(notification::STORE, NOTIFICATION, &[head.as_bytes(), contents])
    }

    /// Asks the kernel to forget nodes that nobody uses.
    ///
    /// # Errors
    /// [`Errno::INVAL`] or [`Errno::NOSYS`]: the kernel is older than Linux 6.18.
    pub(crate) fn prune(&self, nodes: &[u64]) -> Result<(), Errno> {
        let count = u32::try_from(nodes.len()).map_err(|_| Errno::INVAL)?;
        let head = PruneOut { count, ..PruneOut::default() };
        self.send(notification::PRUNE, NOTIFICATION, &[head.as_bytes(), nodes.as_bytes()])
    }

    /// Has the kernel forget what it knows of a node: attributes, contents, the list of a directory.
    ///
    /// # Errors
    /// [`Errno::NOENT`]: the kernel does not know this node.
    pub(crate) fn invalidate(&self, node: u64) -> Result<(), Errno> {
        let all = InvalidateInodeOut { node, offset: 0, len: 0 };
        self.send(notification::INVALIDATE_INODE, NOTIFICATION, &[all.as_bytes()])
    }

    /// Has the kernel hand out again whatever nobody has answered.
    ///
    /// # Errors
    /// [`Errno::INVAL`]: the kernel is older than Linux 6.9, or a newer one that says so of a connection that has ended.
    pub(crate) fn resend(&self) -> Result<(), Errno> {
        self.send(notification::RESEND, NOTIFICATION, &[])
    }

    /// The kernel takes a message as a whole or not at all.
    fn send(&self, error: i32, unique: u64, body: &[&[u8]]) -> Result<(), Errno> {
        const MOST_PARTS: usize = 2;
        let body_bytes: usize = body.iter().map(|part| part.len()).sum();
        let len = u32::try_from(size_of::<OutHeader>() + body_bytes).map_err(|_| Errno::FBIG)?;
        let header = OutHeader { len, error, unique };
        let mut parts = [IoSlice::new(&[]); 1 + MOST_PARTS];
        parts[0] = IoSlice::new(header.as_bytes());
        for (slot, part) in parts[1..].iter_mut().zip(body) {
            *slot = IoSlice::new(part);
        }
        let parts = &parts[..1 + body.len()];
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.0, parts)).map(drop)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn written(write: impl FnOnce(&Connection)) -> Vec<u8> {
        let (mut reader, writer) = std::io::pipe().unwrap();
        write(&Connection::new(writer.into()));
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Words of 32 bits, as `linux/fuse.h` has them.
    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn messages_have_the_layout_of_the_kernel() {
        const ID: u64 = 0x0001_0002_0003_0004;
        const LOW: u32 = 0x0003_0004;
        const HIGH: u32 = 0x0001_0002;
        let stored = written(|kernel| kernel.store(ID, 0x0007_0000_0006, b"abcde").unwrap());
        let head = [45, 4, 0, 0, LOW, HIGH, 6, 7, 5, 0];
        assert_eq!(stored, [bytes(&head), b"abcde".to_vec()].concat());
        let pruned = written(|kernel| kernel.prune(&[ID, 7]).unwrap());
        assert_eq!(pruned, bytes(&[48, 9, 0, 0, 2, 0, 0, 0, LOW, HIGH, 7, 0]));
        let invalidated = written(|kernel| kernel.invalidate(ID).unwrap());
        assert_eq!(invalidated, bytes(&[40, 2, 0, 0, LOW, HIGH, 0, 0, 0, 0]));
        let resent = written(|kernel| kernel.resend().unwrap());
        assert_eq!(resent, bytes(&[16, 7, 0, 0]));
        let answered = written(|kernel| kernel.answer(ID, b"ab").unwrap());
        assert_eq!(answered, [bytes(&[18, 0, LOW, HIGH]), b"ab".to_vec()].concat());
        let refused = written(|kernel| kernel.refuse(7, Errno::IO).unwrap());
        assert_eq!(refused, bytes(&[16, 5_u32.wrapping_neg(), 7, 0]));
    }

    #[test]
    fn what_is_no_request_is_an_error() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, b"no header").unwrap();
        let connection = Connection::new(reader.into());
        assert_eq!(connection.receive(&mut [0; 64]).err(), Some(Errno::PROTO));
    }
}
