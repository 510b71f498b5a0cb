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
    /// Ordinary threads that answer the kernel, at least one; [`companion`](Self::companion) adds
    /// one. More help only programs that ask at the same time.
    pub threads: usize,
    /// Have one more thread, of the class `SCHED_IDLE`, which runs on the processor of a program
    /// that sends one short message after the other. It is not used on a single processor.
    pub companion: bool,
    /// First column of `mount`: says what is served. The type is always `fuse.nono`.
    pub fs_name: String,
    /// How long the kernel may believe what it knows about a changing directory.
    pub changing_ttl: Duration,
    /// Directory entries kept decoded between requests; about 200 bytes each. The list that was
    /// used last is kept however long it is.
    pub cached_entries: usize,
    /// Nodes after which the kernel is asked to drop the oldest that no program uses. One takes
    /// about 220 bytes here, and five times that in the kernel.
    pub max_nodes: usize,
    /// Large files kept open, as far as they are verified, between requests.
    pub cached_contents: usize,
    /// Predict which files a program reads next and push them to the kernel before it asks. Without
    /// it no file is pushed, and no [guard](crate::Mount::start_guard) is needed.
    pub predictor: bool,
    /// Most bytes of one push, for a read or for a list that a walking program has read.
    pub push_batch_bytes: u64,
    /// How long a push that begins with the answer to a list waits, busily, until the kernel knows
    /// the names in it. Later it gives up, and a read begins the push anew.
    pub push_patience: Duration,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            owner: Owner::Original,
            allow_other: false,
            threads: 1,
            companion: true,
            fs_name: "nono".to_owned(),
            changing_ttl: Duration::from_millis(500),
            cached_entries: 64 * 1024,
            max_nodes: 1_000_000,
            cached_contents: 64,
            predictor: true,
            push_batch_bytes: 16 * 1024 * 1024,
            push_patience: Duration::from_micros(200),
        }
    }
}
