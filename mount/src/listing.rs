//! The list of a directory in replies: READDIR has names and kinds, READDIRPLUS names each entry to
//! the kernel with its attributes.
//!
//! A reader pages through by positions. `.` and `..` come first; an entry's position is that in the
//! list, or in a changing directory one that stays while the name stays.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use crate::attributes::file_type;
use crate::nodes::{Acquired, Nodes, Place};
use crate::source::{Entry, TreeSource};
use crate::tree::{Listed, Tree};

/// Positions of `.` and `..`; entries follow.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// Fills a READDIR reply from `offset` until it is full.
pub(crate) fn fill<S: TreeSource>(
    tree: &Tree<S>,
    id: u64,
    offset: u64,
    listed: &Listed<S>,
    reply: &mut ReplyDirectory,
) {
    for (position, name, number) in listed.dots_after(offset) {
        if reply.add(INodeNo(number), position, FileType::Directory, name) {
            return;
        }
    }
    for (index, position) in listed.positions_after(offset) {
        let Entry { name, node } = &listed.list.entries[index];
        let number = tree.nodes.lock().peek_number(id, name, node);
        if reply.add(INodeNo(number), position, file_type(&node.kind), OsStr::from_bytes(name)) {
            return;
        }
    }
}

/// Fills a READDIRPLUS reply from `offset`: names entries until it is full. Returns whether that was the
/// last of them, so that the kernel knows all.
pub(crate) fn fill_plus<S: TreeSource>(
    tree: &Tree<S>,
    id: u64,
    offset: u64,
    listed: &Listed<S>,
    reply: &mut ReplyDirectoryPlus,
) -> bool {
    let changing = listed.cookies.is_some();
    // The kernel neither counts nor uses what is said of `.` and `..`, but it shows the numbers.
    for (position, name, number) in listed.dots_after(offset) {
        let attr = dot_attr(number);
        if reply.add(INodeNo(number), position, name, &Duration::ZERO, &attr, Generation(0)) {
            return false;
        }
    }
    let mut nodes = None;
    for (index, position) in listed.positions_after(offset) {
        let entry = &listed.list.entries[index];
        let place = Place { parent: id, index: index as u32 };
        let nodes = nodes.get_or_insert_with(|| tree.nodes.lock());
        let Some(acquired) = nodes.acquire(place, &entry.name, &entry.node) else { return false };
        if add_plus(tree, reply, nodes, acquired, entry, position, changing) {
            nodes.forget(acquired.id, 1);
            return false;
        }
    }
    true
}

fn add_plus<S: TreeSource>(
    tree: &Tree<S>,
    reply: &mut ReplyDirectoryPlus,
    nodes: &mut Nodes<S>,
    acquired: Acquired,
    entry: &Entry<S>,
    position: u64,
    changing: bool,
) -> bool {
    let version = nodes.changing_list(acquired.id).map_or(0, |list| list.version());
    let found = tree.describe(acquired, &entry.node, changing, version);
    // One time for both: the name of a later place of a directory is asked for again, and then
    // holds for ever.
    let ttl = found.entry_ttl.min(found.attr_ttl);
    reply.add(
        INodeNo(acquired.id),
        position,
        OsStr::from_bytes(&entry.name),
        &ttl,
        &found.attr,
        Generation(acquired.generation),
    )
}

impl<S: TreeSource> Listed<S> {
    /// `.` and `..` after `offset`: (position, name, inode number).
    fn dots_after(&self, offset: u64) -> impl Iterator<Item = (u64, &'static str, u64)> {
        let dots = [(DOT, ".", self.number), (DOT_DOT, "..", self.parent_number)];
        dots.into_iter().filter(move |(position, ..)| offset < *position)
    }

    /// Entries after `offset`, in the order of their positions: (index in the list, position).
    fn positions_after(&self, offset: u64) -> Box<dyn Iterator<Item = (usize, u64)> + '_> {
        match &self.cookies {
            None => {
                let start = usize::try_from(offset.saturating_sub(DOT_DOT)).unwrap_or(usize::MAX);
                let indices = start..self.list.entries.len();
                Box::new(indices.map(|index| (index, index as u64 + DOT_DOT + 1)))
            }
            Some(cookies) => {
                let positions = cookies.iter().map(|cookie| cookie + DOT_DOT).enumerate();
                let mut after: Vec<_> =
                    positions.filter(|(_, position)| *position > offset).collect();
                after.sort_unstable_by_key(|(_, position)| *position);
                Box::new(after.into_iter())
            }
        }
    }
}

/// Attributes for `.` and `..`: only the number and the kind are looked at.
fn dot_attr(number: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}
