//! Mounts that lie on a tracked path: the kernel makes no event in a directory that is covered.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::byte_path;
use crate::sys::{self, Result};

const TABLE: &str = "/proc/self/mountinfo";
/// Longer tables are cut; then a difference behind that is not seen, and thousands of mounts before.
const MAX_TABLE_BYTES: u64 = 64 << 20;

/// The mounts at, below and above a path.
#[derive(Debug)]
pub(super) struct Mounts {
    path: Vec<u8>,
    /// Readable "with priority" after each change of the table.
    table: File,
    concerning: Vec<Mounted>,
}

/// A mount that concerns the path.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    id: Box<[u8]>,
    place: Box<[u8]>,
}

impl Mounts {
    /// Looks at the mounts of a path.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub(super) fn of(path: &Path) -> Result<Self> {
        // Opened first: a change after the look is told.
        let table = sys::open_kernel_file(Path::new(TABLE))?;
        let path = path.as_os_str().as_bytes().to_vec();
        let concerning = concerning(&path)?;
        Ok(Self { path, table, concerning })
    }

    /// The descriptor, which has something with priority (`POLLPRI`) after a change.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }

    /// Whether the mounts of the path are others by now. The table is read each time: the kernel
    /// tells of a change once, and a poll of the caller may have got that.
    pub(super) fn changed(&mut self) -> bool {
        match concerning(&self.path) {
            Ok(concerning) if concerning == self.concerning => false,
            Ok(concerning) => {
                self.concerning = concerning;
                true
            }
            Err(_) => true,
        }
    }
}

/// The fifth column is where a mount lies, with blanks and backslashes as octal numbers. Nothing
/// depends on their meaning but whether two paths are one in the other, so they are undone.
fn concerning(path: &[u8]) -> Result<Vec<Mounted>> {
    let text = sys::read_kernel_file(Path::new(TABLE), MAX_TABLE_BYTES)?;
    let mut found = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let mut columns = line.split(|byte| *byte == b' ');
        let (Some(id), Some(place)) = (columns.next(), columns.nth(3)) else { continue };
        let place = unescaped(place);
        if byte_path::is_in(&place, path) || byte_path::is_in(path, &place) {
            found.push(Mounted { id: id.into(), place: place.into() });
        }
    }
    Ok(found)
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..3).filter(|_| *first == b'\\');
        let number =
            digits.and_then(|it| u8::from_str_radix(std::str::from_utf8(it).ok()?, 8).ok());
        plain.push(number.unwrap_or(*first));
        rest = if number.is_some() { &tail[3..] } else { tail };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_mount_is_read_as_the_kernel_writes_it() {
        assert_eq!(unescaped(br"/a\040b\134c"), br"/a b\c");
        assert_eq!(unescaped(br"/a\9"), br"/a\9");
    }

    #[test]
    fn the_mounts_of_a_path_are_those_above_and_below_it() {
        let root = concerning(b"/").unwrap();
        let deep = concerning(b"/no/such/directory").unwrap();
        assert!(deep.len() <= root.len() && !deep.is_empty());
        assert!(!Mounts::of(Path::new("/")).unwrap().changed());
    }
}
