//! Notifications that `fuser` 0.18 has no call for, written to a duplicate of its descriptor.
//!
//! - STORE: `fuser::Notifier::store` hides the answer ENOENT behind a success. Contents that come
//!   before the kernel has the name of their file are lost, and the sender has to know.
//! - PRUNE (Linux 6.18) and RESEND (Linux 6.9) have no call at all.
//!
//! A release of `fuser` with these three makes this file needless. Layouts and numbers are those of
//! `linux/fuse.h`, in the machine's byte order. The kernel takes each message as a whole or not.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

const STORE: i32 = 4;
const RESEND: i32 = 7;
const PRUNE: i32 = 9;
/// Sizes of `fuse_out_header`, `fuse_notify_store_out` and `fuse_notify_prune_out`.
const HEADER_BYTES: usize = 16;
const STORE_BYTES: usize = 24;
const PRUNE_BYTES: usize = 16;
/// In the place of a request's number: no request is answered.
const NOTIFICATION: u64 = 0;

/// The descriptor over which the mount and the kernel talk.
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

    /// Asks the kernel to forget nodes that no program uses.
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

    /// Makes the kernel hand out again every request without an answer.
    ///
    /// # Errors
    /// [`Errno::INVAL`]: the kernel is older than Linux 6.9, or the connection has ended.
    pub(crate) fn resend(&self) -> Result<(), Errno> {
        self.write(&[IoSlice::new(&out_header(RESEND, NOTIFICATION, 0)?)])
    }

    /// Reads one request and returns its number; `None` for a message that wants no answer.
    ///
    /// # Errors
    /// [`Errno::AGAIN`]: there is none now. [`Errno::INVAL`]: this is no connection to FUSE.
    pub(crate) fn next_request(&self, buffer: &mut [u8]) -> Result<Option<u64>, Errno> {
        let count = loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(count) => break count,
                // NOENT: the request was taken back meanwhile.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        };
        // `fuse_in_header`: length, opcode, number of the request.
        let unique = buffer[..count].get(8..16).and_then(|bytes| bytes.try_into().ok());
        let unique = u64::from_ne_bytes(unique.ok_or(Errno::INVAL)?);
        // An answer to 0 would be a notification.
        Ok((unique != NOTIFICATION).then_some(unique))
    }

    /// Answers a request with an error. The kernel says ENOENT if it no longer waits for the
    /// answer.
    pub(crate) fn refuse(&self, unique: u64, why: Errno) -> Result<(), Errno> {
        self.write(&[IoSlice::new(&out_header(-why.raw_os_error(), unique, 0)?)])
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.0, parts)).map(drop)
    }
}

impl AsFd for Notifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `struct fuse_out_header` before a body of so many bytes. An answer has its error and the number
/// of the request, a [notification](NOTIFICATION) its code.
fn out_header(code: i32, unique: u64, body_bytes: usize) -> Result<[u8; HEADER_BYTES], Errno> {
    let len = u32::try_from(HEADER_BYTES + body_bytes).map_err(|_| Errno::FBIG)?;
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&len.to_ne_bytes());
    header[4..8].copy_from_slice(&code.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    Ok(header)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

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
        assert_eq!(written(|kernel| kernel.resend().unwrap()), bytes(&[16, 7, 0, 0]));
        let refused = written(|kernel| kernel.refuse(7, Errno::IO).unwrap());
        assert_eq!(refused, bytes(&[16, 5_u32.wrapping_neg(), 7, 0]));
    }

    #[test]
    fn a_message_without_a_header_is_an_error() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"no header").unwrap();
        let connection = Notifications::new(reader.into());
        assert_eq!(connection.next_request(&mut [0; 64]), Err(Errno::INVAL));
    }
}
