//! How a tree is mounted. Everything has a default that fits a person browsing their own past.

use std::time::Duration;

/// Whose files the mount shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Owner {
    /// Owner and group as captured.
    #[default]
    Original,
    /// Everything belongs to this user and group.
    Me {
        /// User id shown for every entry.
        uid: u32,
        /// Group id shown for every entry.
        gid: u32,
    },
}

/// Options of one mount. Build it from [`MountOptions::default`].
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Whose files the mount shows.
    pub owner: Owner,
    /// Let other users in (`allow_other`); permissions are then checked as on any file system. An
    /// ordinary user needs `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Number of threads that answer the kernel. One is best where pushes, and files that take long
    /// to verify, have threads of their own: the kernel wakes several in turn, so that every message
    /// of a single program goes to the other processor and back. Measured with `cp -a` of 85,000
    /// files: 12.8 s with two, 10.5 s with one.
    pub threads: usize,
    /// Have one more thread, which answers a program that walks on the processor of that program.
    /// Measured with `ls -lR` of 85,000 files in a virtual machine with two processors: 5.2 s
    /// without, 0.8 s with it.
    pub companion: bool,
    /// First column of `mount`: says what is served. The type is always `fuse.nono`.
    pub fs_name: String,
    /// Also list `user.nono.sha256` in `listxattr`. Off by default, so that `cp -a`, `rsync -X` and
    /// `tar --xattrs` copy what was captured and nothing else; asking for it by name always works.
    pub list_sha256: bool,
    /// How long the kernel may believe what it knows about a changing directory.
    pub changing_ttl: Duration,
    /// Directory entries kept decoded between requests; about 200 bytes each.
    pub cached_entries: usize,
    /// Nodes after which the kernel is asked to drop the oldest that nobody uses. One takes about
    /// 220 bytes here, and five times that in the kernel.
    pub max_nodes: usize,
    /// Large files kept open (and verified) between requests.
    pub cached_contents: usize,
    /// Push small siblings of a file that is read to the kernel before they are asked for.
    pub push_siblings: bool,
    /// Largest file that is pushed, in bytes.
    pub push_file_bytes: u64,
    /// Most bytes pushed for one read.
    pub push_batch_bytes: u64,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            owner: Owner::Original,
            allow_other: false,
            threads: 1,
            companion: true,
            fs_name: "nono".to_owned(),
            list_sha256: false,
            changing_ttl: Duration::from_millis(500),
            cached_entries: 32 * 1024,
            max_nodes: 1_000_000,
            cached_contents: 64,
            push_siblings: true,
            push_file_bytes: 128 * 1024,
            push_batch_bytes: 4 * 1024 * 1024,
        }
    }
}
