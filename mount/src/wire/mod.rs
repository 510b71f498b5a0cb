//! FUSE, the protocol between the kernel and a file system in a process, as far as a read-only tree needs it.
//!
//! One read of the [`Connection`] is one [`Request`], one write one answer ([`Reply`]) or one message that the
//! kernel did not ask for. Structures and numbers are those of `linux/fuse.h`, in the machine's byte order
//! ([`abi`]); what they mean is in `Documentation/filesystems/fuse` and in the kernel's `fs/fuse`.
//!
//! It is our own because the crates for it leave out what makes this mount fast: names in a list of which the
//! kernel makes no inode, a node with another number than its id, and lists that are encoded without a detour
//! through clocks.

mod abi;
mod connection;
mod handshake;
mod list;
mod reply;
mod request;

pub(crate) use abi::{Attr, Entry, Space};
pub(crate) use connection::Connection;
pub(crate) use handshake::{Kernel, shake_hands};
pub(crate) use list::EntryList;
pub(crate) use reply::Reply;
pub(crate) use request::{Operation, Request};

/// The most that the kernel sends in one WRITE, of which a read-only mount gets none: the least that can be said.
const MAX_WRITE_BYTES: u32 = 4096;
/// Room for a request. The kernel wants some for the largest WRITE; the rest lets it forget thousands of nodes at once.
pub(crate) const REQUEST_BYTES: usize = 64 * 1024;
