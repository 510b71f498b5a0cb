//! File systems that take different names for one: those of another case (vfat, exFAT, ext4 with
//! `casefold`), or of another normal form.
//!
//! A snapshot may hold `a` and `A`, and a copy of both there would lose one of them. Which names
//! are one depends on the file system and its version, so no table decides it: an entry that is
//! found under a name, and that no list of the directory has, is that of another name.

use std::collections::HashSet;

use crate::sys::{self, Dir};

/// The names of the directory in which a copy is at work.
#[derive(Debug, Default)]
pub(super) struct Folding {
    /// Whether the file system does so. The first file of the copy tells.
    is_sure: Option<bool>,
    /// The path of the directory in the copy, and its names. Those that come are added.
    listed: Option<(Vec<u8>, HashSet<Vec<u8>>)>,
}

impl Folding {
    /// Finds out by a file with a name of its own, which has small letters.
    pub(super) fn learn(&mut self, dir: &Dir, temporary: &[u8]) -> sys::Result<()> {
        if self.is_sure.is_none() {
            self.is_sure = Some(dir.try_stat(&temporary.to_ascii_uppercase())?.is_some());
        }
        Ok(())
    }

    /// Whether an entry that was found under this name has another one. `parent` is the path of the
    /// directory in the copy.
    pub(super) fn is_of_other(
        &mut self,
        dir: &Dir,
        parent: &[u8],
        name: &[u8],
    ) -> sys::Result<bool> {
        if self.is_sure == Some(false) {
            return Ok(false);
        }
        if self.listed.as_ref().is_none_or(|(listed, _)| listed != parent) {
            let names = match dir.names() {
                // One that cannot be listed cannot be told.
                Err(error) if error.is_denied() => return Ok(false),
                names => names?,
            };
            let names = names.into_iter().map(|listed| listed.name.into()).collect();
            self.listed = Some((parent.to_vec(), names));
        }
        Ok(self.listed.as_ref().is_some_and(|(_, names)| !names.contains(name)))
    }

    /// Notes a name that the copy made.
    pub(super) fn made(&mut self, parent: &[u8], name: &[u8]) {
        if let Some((_, names)) = self.listed.as_mut().filter(|(listed, _)| listed == parent) {
            names.insert(name.to_vec());
        }
    }
}
