//! Structures and numbers of `linux/fuse.h`, and how times become two numbers.

use std::time::Duration;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the protocol: that of Linux 5.4, which has all that both sides must agree on.
pub(super) const MAJOR: u32 = 7;
pub(super) const MINOR: u32 = 31;

/// Codes of messages that the kernel did not ask for, in the place of an error.
pub(super) mod notification {
    pub(crate) const INVALIDATE_INODE: i32 = 2;
    pub(crate) const STORE: i32 = 4;
    pub(crate) const RESEND: i32 = 7;
    pub(crate) const PRUNE: i32 = 9;
}

pub(super) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const TMPFILE: u32 = 51;
}

/// What both sides can do, from INIT.
pub(super) mod flag {
    pub(crate) const ASYNC_READ: u32 = 1;
    pub(crate) const AUTO_INVAL_DATA: u32 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u32 = 1 << 13;
    pub(crate) const ASYNC_DIO: u32 = 1 << 15;
    pub(crate) const NO_OPEN_SUPPORT: u32 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(crate) const POSIX_ACL: u32 = 1 << 20;
    pub(crate) const MAX_PAGES: u32 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u32 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u32 = 1 << 24;
}

/// `FOPEN_KEEP_CACHE`: what is cached stays when the file is opened again.
pub(super) const KEEP_CACHE: u32 = 1 << 1;

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident $fields:tt)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
            #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name $fields
        )*
    };
}

structures! {
    /// `fuse_in_header`: before every request.
    InHeader {
        pub(super) len: u32,
        pub(super) opcode: u32,
        pub(super) unique: u64,
        pub(super) node: u64,
        pub(super) uid: u32,
        pub(super) gid: u32,
        pub(super) pid: u32,
        pub(super) extensions: u16,
        pub(super) padding: u16,
    }

    /// `fuse_out_header`: before every answer, and with a code instead of an error before what nobody asked for.
    OutHeader {
        pub(super) len: u32,
        pub(super) error: i32,
        pub(super) unique: u64,
    }

    /// `fuse_init_in`, as far as all versions have it.
    InitIn {
        pub(super) major: u32,
        pub(super) minor: u32,
        pub(super) max_readahead: u32,
        pub(super) flags: u32,
    }

    /// `fuse_init_out`.
    InitOut {
        pub(super) major: u32,
        pub(super) minor: u32,
        pub(super) max_readahead: u32,
        pub(super) flags: u32,
        pub(super) max_background: u16,
        pub(super) congestion_threshold: u16,
        pub(super) max_write: u32,
        pub(super) time_granularity_ns: u32,
        pub(super) max_pages: u16,
        pub(super) map_alignment: u16,
        pub(super) flags2: u32,
        pub(super) max_stack_depth: u32,
        pub(super) request_timeout: u16,
        pub(super) unused: [u16; 11],
    }

    /// `fuse_forget_in`.
    ForgetIn {
        pub(super) lookups: u64,
    }

    /// `fuse_batch_forget_in`, before as many [`ForgetOne`].
    BatchForgetIn {
        pub(super) count: u32,
        pub(super) padding: u32,
    }

    /// `fuse_forget_one`.
    ForgetOne {
        pub(super) node: u64,
        pub(super) lookups: u64,
    }

    /// `fuse_read_in`, of READ and READDIRPLUS.
    ReadIn {
        pub(super) handle: u64,
        pub(super) offset: u64,
        pub(super) size: u32,
        pub(super) read_flags: u32,
        pub(super) lock_owner: u64,
        pub(super) flags: u32,
        pub(super) padding: u32,
    }

    /// `fuse_getxattr_in`, of GETXATTR (before a name) and LISTXATTR, and `fuse_getxattr_out`.
    XattrSize {
        pub(super) size: u32,
        pub(super) padding: u32,
    }

    /// `fuse_open_out`.
    OpenOut {
        pub(super) handle: u64,
        pub(super) flags: u32,
        pub(super) backing_id: u32,
    }

    /// `fuse_attr`: what `stat` shows.
    Attr {
        pub(crate) ino: u64,
        pub(crate) size: u64,
        /// In units of 512 bytes.
        pub(crate) blocks: u64,
        /// Seconds since the epoch, negative before it.
        pub(crate) atime: i64,
        pub(crate) mtime: i64,
        pub(crate) ctime: i64,
        pub(crate) atime_ns: u32,
        pub(crate) mtime_ns: u32,
        pub(crate) ctime_ns: u32,
        /// Kind and permissions.
        pub(crate) mode: u32,
        pub(crate) nlink: u32,
        pub(crate) uid: u32,
        pub(crate) gid: u32,
        pub(crate) rdev: u32,
        pub(crate) block_bytes: u32,
        pub(crate) flags: u32,
    }

    /// `fuse_attr_out`.
    AttrOut {
        pub(super) valid: u64,
        pub(super) valid_ns: u32,
        pub(super) padding: u32,
        pub(super) attr: Attr,
    }

    /// `fuse_entry_out`: a name is this node, which has been named once more with it.
    Entry {
        /// The kernel's name for it; 0 in a list: nothing but the name.
        pub(super) node: u64,
        pub(super) generation: u64,
        pub(super) entry_valid: u64,
        pub(super) attr_valid: u64,
        pub(super) entry_valid_ns: u32,
        pub(super) attr_valid_ns: u32,
        pub(crate) attr: Attr,
    }

    /// `fuse_dirent`, before a name that is filled up to a multiple of eight bytes.
    Dirent {
        pub(super) ino: u64,
        /// The position after it.
        pub(super) offset: u64,
        pub(super) name_len: u32,
        /// `d_type`.
        pub(super) kind: u32,
    }

    /// `fuse_statfs_out`.
    Space {
        /// In units of `fragment_bytes`.
        pub(crate) blocks: u64,
        pub(crate) free_blocks: u64,
        pub(crate) available_blocks: u64,
        pub(crate) inodes: u64,
        pub(crate) free_inodes: u64,
        pub(crate) block_bytes: u32,
        pub(crate) name_bytes: u32,
        pub(crate) fragment_bytes: u32,
        pub(crate) padding: u32,
        pub(crate) spare: [u32; 6],
    }

    /// `fuse_notify_store_out`.
    StoreOut {
        pub(super) node: u64,
        pub(super) offset: u64,
        pub(super) size: u32,
        pub(super) padding: u32,
    }

    /// `fuse_notify_prune_out`, before as many nodes.
    PruneOut {
        pub(super) count: u32,
        pub(super) padding: u32,
        pub(super) spare: u64,
    }

    /// `fuse_notify_inval_inode_out`.
    InvalidateInodeOut {
        pub(super) node: u64,
        pub(super) offset: i64,
        /// Not positive: to the end.
        pub(super) len: i64,
    }
}

impl Attr {
    /// `d_type`: the kind in the mode.
    pub(super) fn kind(&self) -> u32 {
        self.mode >> 12
    }
}

impl Entry {
    /// Whether it names a node.
    pub(crate) fn is_something(&self) -> bool {
        self.node != 0
    }

    /// There is nothing of a name, and so it stays for as long as is said here.
    pub(crate) fn of_nothing(entry_valid: Duration) -> Self {
        Self::new(0, 0, entry_valid, Duration::ZERO, Attr::default())
    }

    /// A name stays what it is, and the attributes what they are, for as long as is said here.
    pub(crate) fn new(
        node: u64,
        generation: u64,
        entry_valid: Duration,
        attr_valid: Duration,
        attr: Attr,
    ) -> Self {
        Self {
            node,
            generation,
            entry_valid: entry_valid.as_secs(),
            attr_valid: attr_valid.as_secs(),
            entry_valid_ns: entry_valid.subsec_nanos(),
            attr_valid_ns: attr_valid.subsec_nanos(),
            attr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes that `linux/fuse.h` gives; padding that nobody wrote down would not compile.
    #[test]
    fn structures_are_as_large_as_those_of_the_kernel() {
        assert_eq!(size_of::<InHeader>(), 40);
        assert_eq!(size_of::<OutHeader>(), 16);
        assert_eq!(size_of::<InitIn>(), 16);
        assert_eq!(size_of::<InitOut>(), 64);
        assert_eq!(size_of::<ForgetIn>(), 8);
        assert_eq!(size_of::<BatchForgetIn>(), 8);
        assert_eq!(size_of::<ForgetOne>(), 16);
        assert_eq!(size_of::<ReadIn>(), 40);
        assert_eq!(size_of::<XattrSize>(), 8);
        assert_eq!(size_of::<OpenOut>(), 16);
        assert_eq!(size_of::<Attr>(), 88);
        assert_eq!(size_of::<AttrOut>(), 104);
        assert_eq!(size_of::<Entry>(), 128);
        assert_eq!(size_of::<Dirent>(), 24);
        assert_eq!(size_of::<Space>(), 80);
        assert_eq!(size_of::<StoreOut>(), 24);
        assert_eq!(size_of::<PruneOut>(), 16);
        assert_eq!(size_of::<InvalidateInodeOut>(), 24);
    }
}
