//! Messages that the kernel did not ask for: contents it may keep, nodes it should forget, requests it should
//! hand out again.
//!
//! Layouts and numbers are those of `linux/fuse.h`, in the machine's byte order. fuser does not know
//! `FUSE_NOTIFY_PRUNE`, and hides whether the kernel knew the node of a `FUSE_NOTIFY_STORE`: contents that
//! come before the name of their file are lost, and whoever sends them has to know. What the kernel does not
//! know needs no invalidating, so that is left to fuser.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

const STORE: i32 = 4;
const RESEND: i32 = 7;
const PRUNE: i32 = 9;
/// Sizes of `fuse_out_header`, `fuse_notify_store_out` and `fuse_notify_prune_out`.
pub(crate) const HEADER_BYTES: usize = 16;
const STORE_BYTES: usize = 24;
const PRUNE_BYTES: usize = 16;
/// In the place of the number of a request.
const NOTIFICATION: u64 = 0;

/// A connection to the kernel to which such messages are written.
pub(crate) struct Notifications(OwnedFd);

impl Notifications {
    pub(crate) fn new(connection: OwnedFd) -> Self {
        Self(connection)
    }

    /// Gives the kernel the whole contents of a file.
    ///
    /// # Errors
    /// [`Errno::NOENT`]: the kernel does not know this node, not yet or no longer.
    pub(crate) fn store(&self, id: u64, contents: &[u8]) -> Result<(), Errno> {
        let size = u32::try_from(contents.len()).map_err(|_| Errno::FBIG)?;
        let mut head = [0; HEADER_BYTES + STORE_BYTES];
        let (header, store) = head.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&out_header(STORE, NOTIFICATION, STORE_BYTES + contents.len())?);
        // The offset is 0, so is the padding.
        store[..8].copy_from_slice(&id.to_ne_bytes());
        store[16..20].copy_from_slice(&size.to_ne_bytes());
        self.write(&[IoSlice::new(&head), IoSlice::new(contents)])
    }

    /// Asks the kernel to forget nodes that nobody uses.
    ///
    /// # Errors
    /// [`Errno::INVAL`] or [`Errno::NOSYS`]: the kernel is older than Linux 6.18.
    pub(crate) fn prune(&self, ids: &[u64]) -> Result<(), Errno> {
        let count = u32::try_from(ids.len()).map_err(|_| Errno::INVAL)?;
        let ids: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
        let header = out_header(PRUNE, NOTIFICATION, PRUNE_BYTES + ids.len())?;
        let mut prune = [0; PRUNE_BYTES];
        prune[..4].copy_from_slice(&count.to_ne_bytes());
        self.write(&[IoSlice::new(&header), IoSlice::new(&prune), IoSlice::new(&ids)])
    }

    /// Has the kernel hand out again whatever nobody has answered.
    ///
    /// # Errors
    /// [`Errno::INVAL`]: the kernel is older than Linux 6.9, or a newer one that says so of a connection that has ended.
    pub(crate) fn resend(&self) -> Result<(), Errno> {
        self.write(&[IoSlice::new(&out_header(RESEND, NOTIFICATION, 0)?)])
    }

    /// The kernel takes a message as a whole or not at all.
    fn write(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.0, parts)).map(drop)
    }
}

impl AsFd for Notifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `struct fuse_out_header` before a body of so many bytes: in an answer with its error and the number of the
/// request, in a [notification](NOTIFICATION) with its code.
pub(crate) fn out_header(
    code: i32,
    unique: u64,
    body_bytes: usize,
) -> Result<[u8; HEADER_BYTES], Errno> {
    let len = u32::try_from(HEADER_BYTES + body_bytes).map_err(|_| Errno::FBIG)?;
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&len.to_ne_bytes());
    header[4..8].copy_from_slice(&code.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    Ok(header)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn written(write: impl FnOnce(&Notifications)) -> Vec<u8> {
        let (mut reader, writer) = std::io::pipe().unwrap();
        write(&Notifications::new(writer.into()));
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// As `linux/fuse.h` has it, in words of 32 bits.
    #[cfg(target_endian = "little")]
    #[test]
    fn messages_have_the_layout_of_the_kernel() {
        const ID: u64 = 0x0001_0002_0003_0004;
        let stored = written(|kernel| kernel.store(ID, b"abcde").unwrap());
        let head = [45, 4, 0, 0, 0x0003_0004, 0x0001_0002, 0, 0, 5, 0];
        assert_eq!(stored, [bytes(&head), b"abcde".to_vec()].concat());
        let pruned = written(|kernel| kernel.prune(&[ID, 7]).unwrap());
        let head = [48, 9, 0, 0, 2, 0, 0, 0, 0x0003_0004, 0x0001_0002, 7, 0];
        assert_eq!(pruned, bytes(&head));
    }
}
