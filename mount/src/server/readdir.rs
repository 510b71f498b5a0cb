//! The list of a directory in answers to READDIRPLUS, which name each entry to the kernel.
//!
//! A reader pages through by positions. `.` and `..` come first; an entry's position is that in the
//! list, or in a changing directory one that stays while the name stays.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{Errno, Generation, INodeNo, ReplyDirectoryPlus};

use crate::server::attributes::directory_alone;
use crate::server::nodes::Place;
use crate::server::tree::{Listed, Tree};
use crate::source::{Kind, TreeSource};

/// Positions of `.` and `..`; entries follow.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// Fills an answer from `offset` on until it is full. Returns whether the kernel knows all entries
/// then.
///
/// # Errors
/// The kernel has forgotten the directory.
pub(crate) fn fill<S: TreeSource>(
    tree: &Tree<S>,
    id: u64,
    offset: u64,
    listed: &Listed<S>,
    reply: &mut ReplyDirectoryPlus,
) -> Result<bool, Errno> {
    // The kernel neither counts nor uses these two, but it shows their numbers.
    for (position, name, number) in listed.dots_after(offset) {
        let attr = directory_alone(number);
        if reply.add(INodeNo(number), position, name, &Duration::ZERO, &attr, Generation(0)) {
            return Ok(false);
        }
    }
    let in_changing = listed.cookies.is_some();
    let mut nodes = tree.nodes.lock();
    for (position, index) in listed.positions_after(offset) {
        let entry = &listed.list.entries[index];
        let place = Place { parent: id, index: index as u32 };
        let acquired = nodes.acquire(place, &entry.name, &entry.node).ok_or(Errno::ESTALE)?;
        let version = match &entry.node.kind {
            Kind::Directory(_) => nodes.changing_list(acquired.id).map_or(0, |list| list.version()),
            _ => 0,
        };
        let found = tree.describe(acquired, &entry.node, in_changing, version);
        // fuser has one time for both. The name of a later place of a directory is asked for again,
        // and then holds for ever.
        let ttl = found.entry_ttl.min(found.attr_ttl);
        let name = OsStr::from_bytes(&entry.name);
        let generation = Generation(acquired.generation);
        if reply.add(INodeNo(acquired.id), position, name, &ttl, &found.attr, generation) {
            nodes.forget(acquired.id, 1);
            return Ok(false);
        }
    }
    Ok(true)
}

impl<S: TreeSource> Listed<S> {
    /// `.` and `..` after `offset`: (position, name, inode number).
    fn dots_after(&self, offset: u64) -> impl Iterator<Item = (u64, &'static str, u64)> {
        let dots = [(DOT, ".", self.number), (DOT_DOT, "..", self.parent_number)];
        dots.into_iter().filter(move |(position, ..)| offset < *position)
    }

    /// Entries after `offset`, in the order of their positions: (position, index in the list).
    fn positions_after(&self, offset: u64) -> Vec<(u64, usize)> {
        let Some(cookies) = &self.cookies else {
            let first = usize::try_from(offset.saturating_sub(DOT_DOT)).unwrap_or(usize::MAX);
            let indices = first..self.list.entries.len();
            return indices.map(|index| (index as u64 + DOT_DOT + 1, index)).collect();
        };
        let positions = cookies.iter().map(|cookie| cookie + DOT_DOT).zip(0..);
        let mut after: Vec<_> = positions.filter(|(position, _)| *position > offset).collect();
        after.sort_unstable();
        after
    }
}
