//! The kernel's knowledge of the list of a directory that changes.

use std::collections::HashMap;

/// How the list of a changing directory looked when the kernel was last told about it.
#[derive(Default)]
pub(crate) struct ChangingList {
    fingerprint: u64,
    /// Added to the nanoseconds of mtime: the kernel drops its copy of a list when mtime moves.
    version: u32,
    next_cookie: u64,
    cookies: HashMap<Box<[u8]>, u64>,
}

impl ChangingList {
    /// Notes how the list looks now and returns the version to show.
    pub(crate) fn observe(&mut self, fingerprint: u64) -> u32 {
        if self.fingerprint != fingerprint {
            self.fingerprint = fingerprint;
            self.version += 1;
        }
        self.version
    }

    /// The version to show.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// A position for each name that stays while the name stays, so that a reader half-way through
    /// the list neither misses nor repeats what was there all along.
    pub(crate) fn cookies<'a>(&mut self, names: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
        let mut kept = HashMap::with_capacity(self.cookies.len());
        let mut positions = Vec::new();
        for name in names {
            let cookie = match self.cookies.remove(name) {
                Some(cookie) => cookie,
                None => {
                    self.next_cookie += 1;
                    self.next_cookie
                }
            };
            kept.insert(name.into(), cookie);
            positions.push(cookie);
        }
        self.cookies = kept;
        positions
    }
}
