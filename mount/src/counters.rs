//! How many requests of each kind the kernel sent.
//!
//! The speed of a mount is the number of messages it needs, and that number is the same on every
//! machine. So tests assert message counts, never times. Counting costs one relaxed addition.

use std::fmt;
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Live counters of one mount.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)* }

        /// Counters at one moment; subtract two to see what happened in between.
        #[derive(Clone, Copy, PartialEq, Eq, Default)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// The numbers now.
            pub(crate) fn counts(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }

        impl Sub for Counts {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }
        }

        impl fmt::Debug for Counts {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut map = f.debug_map();
                $(if self.$name != 0 { map.entry(&stringify!($name), &self.$name); })*
                map.finish()
            }
        }
    };
}

counters! {
    /// LOOKUP: a name was asked for.
    lookup,
    /// GETATTR.
    getattr,
    /// READLINK.
    readlink,
    /// OPEN; one for the life of a mount.
    open,
    /// READ.
    read,
    /// FLUSH; one for the life of a mount.
    flush,
    /// OPENDIR; one for the life of a mount.
    opendir,
    /// READDIRPLUS.
    readdirplus,
    /// GETXATTR.
    getxattr,
    /// LISTXATTR.
    listxattr,
    /// STATFS.
    statfs,
    /// Requests that would change something, all refused.
    refused,
    /// Anything else (LSEEK, IOCTL, …), answered "not implemented".
    other,
    /// Requests, counted above too, that the companion answered; see
    /// [`MountOptions::companion`](crate::MountOptions::companion).
    accompanied,
    /// Nodes the kernel forgot. No request waits for it, so it is not part of the total.
    forgotten,
    /// Nodes the kernel was asked to forget.
    pruned,
    /// Calls of [`TreeSource::list`](crate::TreeSource::list).
    listed,
    /// Calls of [`TreeSource::open`](crate::TreeSource::open) and
    /// [`TreeSource::read_whole`](crate::TreeSource::read_whole).
    opened,
    /// Files pushed to the kernel before it asked.
    pushed_files,
    /// Bytes of these.
    pushed_bytes,
}

impl Counts {
    /// Requests that some program had to wait for.
    pub fn requests(&self) -> u64 {
        self.lookup
            + self.getattr
            + self.readlink
            + self.open
            + self.read
            + self.flush
            + self.opendir
            + self.readdirplus
            + self.getxattr
            + self.listxattr
            + self.statfs
            + self.refused
            + self.other
    }
}

/// One relaxed counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
