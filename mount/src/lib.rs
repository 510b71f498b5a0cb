//! A fast read-only FUSE mount of any immutable tree of directories.
//!
//! The crate knows FUSE and one trait, [`TreeSource`]; where the directories and bytes come from is
//! the source's business. The dependency is inverted on purpose: FUSE code cannot reach into a
//! store, and the mount is tested on trees in memory.
//!
//! What makes it fast is that the kernel is told everything once, for ever: opens need no message,
//! names and attributes below immutable directories never expire, equal states share one inode
//! number, and small files are pushed before they are asked for. How many messages each piece of
//! work needs is counted ([`Counts`]) and asserted in the tests.

#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("mounts speak to the kernel of Linux; build nono without its feature `mount`");

mod attach;
mod attributes;
mod buffer;
mod company;
mod contained;
mod contents;
mod counters;
mod error;
mod filesystem;
mod guard;
mod listers;
mod listing;
mod lists;
mod mount;
mod nodes;
mod options;
mod prefetch;
mod prune;
mod reads;
mod recall;
mod session;
mod source;
mod sys;
mod tree;
mod wire;
mod xattrs;

pub use attach::Unmounted;
pub use counters::Counts;
pub use error::MountError;
pub use guard::{ParseWatchedError, Watched, stand_guard};
pub use mount::{Mount, Unmounter, unmount};
pub use options::{MountOptions, Owner};
pub use source::{
    Content, Device, Entry, HardLinks, Kind, Node, Space, Stability, StateId, TreeSource, Xattrs,
};
pub use sys::{FS_TYPE, MountPoint, MountedAt, check_mount_point, mounts};
