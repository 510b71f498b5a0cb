//! A fast read-only FUSE mount of any immutable tree of directories.
//!
//! The crate knows FUSE and one trait, [`TreeSource`]; where the directories and bytes come from is
//! the source's business. The dependency is inverted on purpose: FUSE code cannot reach into a
//! store, and the mount is tested on trees in memory.
//!
//! Two parts can be told apart:
//! - The `server` answers the kernel. It is complete by itself and guesses nothing.
//! - The `predictor` says which files a program will read next, and the `driver` hands these to the
//!   kernel before it asks. [`MountOptions::predictor`] switches both off.
//!
//! The mount is fast because the kernel is told everything once, for ever: opens need no message,
//! names and attributes below immutable directories never expire, and equal states share one inode
//! number. How many messages each piece of work needs is counted ([`Counts`]) and asserted in
//! tests.

#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("mounts speak to the kernel of Linux; build nono without its feature `mount`");

mod company;
mod counters;
mod driver;
mod error;
mod kernel;
mod mount;
#[cfg(test)]
#[allow(clippy::print_stderr, clippy::disallowed_methods, dead_code, reason = "for tests")]
#[path = "../../tests/shared/not_run.rs"]
mod not_run;
mod options;
mod predictor;
mod server;
mod source;

pub use counters::Counts;
pub use error::MountError;
pub use kernel::attach::Unmounted;
pub use kernel::guard::{Watched, stand_guard};
pub use kernel::mount_table::{FS_TYPE, MountPoint, MountedAt, check_mount_point, mounts};
pub use mount::{Mount, Unmounter, unmount};
pub use options::{MountOptions, Owner};
pub use server::nodes::first_number;
pub use source::{
    Content, Device, Entry, HardLinks, Kind, Node, Space, Stability, StateId, TreeSource, Xattrs,
};
