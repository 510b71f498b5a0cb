//! The list of a directory in answers, which name entries to the kernel with their attributes, or give their names
//! alone.
//!
//! A reader pages through by positions. `.` and `..` come first; an entry's position is that in the
//! list, or in a changing directory one that stays while the name stays.

use rustix::io::Errno;

use crate::attributes::{directory_alone, kind_alone};
use crate::nodes::Place;
use crate::source::{Kind, Node, TreeSource};
use crate::tree::{Listed, Tree};
use crate::wire::EntryList;

/// Positions of `.` and `..`; entries follow.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// What a list tells the kernel of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Files {
    /// Their nodes: it need not ask when somebody looks at them.
    Nodes,
    /// Their names, numbers and kinds.
    Names,
}

/// Fills the answer to a READDIRPLUS from `offset` until it is full. Returns how many entries of the list are in it.
///
/// # Errors
/// The kernel has forgotten the directory.
pub(crate) fn fill_entries<S: TreeSource>(
    tree: &Tree<S>,
    id: u64,
    offset: u64,
    listed: &Listed<S>,
    files: Files,
    entries: &mut EntryList<'_>,
) -> Result<usize, Errno> {
    let in_changing = listed.cookies.is_some();
    let mut filled = 0;
    for (position, name, number) in listed.dots_after(offset) {
        if entries.add_name(name, position, &directory_alone(number)).is_err() {
            return Ok(filled);
        }
    }
    let mut nodes = tree.nodes.lock();
    for (index, position) in listed.positions_after(offset) {
        let entry = &listed.list.entries[index];
        if files == Files::Names && is_file(&entry.node) {
            let number = nodes.peek_number(id, &entry.name, &entry.node);
            let attr = kind_alone(&entry.node.kind, number);
            if entries.add_name(&entry.name, position, &attr).is_err() {
                return Ok(filled);
            }
            filled += 1;
            continue;
        }
        let place = Place { parent: id, index: index as u32 };
        let acquired = nodes.acquire(place, &entry.name, &entry.node).ok_or(Errno::STALE)?;
        let version = match &entry.node.kind {
            Kind::Directory(_) => nodes.changing_list(acquired.id).map_or(0, |list| list.version()),
            _ => 0,
        };
        let named = tree.describe(acquired, &entry.node, in_changing, version);
        if entries.add(&entry.name, position, &named).is_err() {
            nodes.forget(acquired.id, 1);
            return Ok(filled);
        }
        filled += 1;
    }
    Ok(filled)
}

/// Whether it can be in a list with nothing but its name: it has a number that follows from its state, and nobody walks into it.
fn is_file<S: TreeSource>(node: &Node<S>) -> bool {
    node.state.is_some() && !matches!(node.kind, Kind::Directory(_))
}

impl<S: TreeSource> Listed<S> {
    /// How many of the entries are [files](is_file).
    pub(crate) fn files(&self) -> usize {
        self.list.entries.iter().filter(|entry| is_file(&entry.node)).count()
    }

    /// `.` and `..` after `offset`: (position, name, inode number).
    fn dots_after(&self, offset: u64) -> impl Iterator<Item = (u64, &'static [u8], u64)> {
        let dots: [(_, &[u8], _); 2] =
            [(DOT, b".", self.number), (DOT_DOT, b"..", self.parent_number)];
        dots.into_iter().filter(move |(position, ..)| offset < *position)
    }

    /// Index of the first entry after `offset` in the list of an immutable directory.
    pub(crate) fn first_after(&self, offset: u64) -> usize {
        let index = usize::try_from(offset.saturating_sub(DOT_DOT)).unwrap_or(usize::MAX);
        index.min(self.list.entries.len())
    }

    /// Entries after `offset`, in the order of their positions: (index in the list, position).
    fn positions_after(&self, offset: u64) -> Box<dyn Iterator<Item = (usize, u64)> + '_> {
        match &self.cookies {
            None => {
                let indices = self.first_after(offset)..self.list.entries.len();
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
