//! The nodes the kernel knows: ids, inode numbers and exact lifetimes.
//!
//! Invariants:
//! - A node lives from the reply that first names it until the kernel forgot it as often as it was
//!   named ([`Nodes::acquire`], [`Nodes::forget`]), or longer while [pinned](Nodes::pin).
//! - Files of one [`StateId`] share one node, and with it the page cache. A directory has a node
//!   for each place, because the kernel allows a directory inode only one name.
//! - A node's **number** is the `st_ino` programs see. It follows from the `StateId`, so it comes
//!   back the same after the kernel forgot it. It is the id of a file, and of the first place of a
//!   directory state. A later place has an id of its own and the same number.
//! - Two live states never share an id or a number: when the hash bits collide, the next free
//!   number is taken. Ids that follow from no state are never used twice.
//! - Numbers stay below 2^53: a program may keep them in a double (JavaScript).

mod changing;
mod numbers;

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, VecDeque};

use self::changing::ChangingList;
pub use self::numbers::first_number;
use self::numbers::{DirectoryNumbers, IdMap, generation, next_number};
use crate::source::{Kind, Node, StateId, TreeSource};

/// The id and number of the mounted directory.
pub(crate) const ROOT: u64 = 1;

/// Where a node was last seen: a directory's node id and the position in its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) parent: u64,
    pub(crate) index: u32,
}

/// The data of directories and stateless entries alone: they are found by parent and name.
struct Named {
    name: Box<[u8]>,
    /// Named children that are alive.
    children: HashMap<Box<[u8]>, u64>,
    changing: ChangingList,
}

/// A node the kernel knows.
struct Record<S: TreeSource> {
    lookups: u64,
    pins: u32,
    place: Place,
    number: u64,
    /// The kernel has read or was given the contents.
    loaded: bool,
    named: Option<Box<Named>>,
    node: Node<S>,
}

/// A node named in a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Acquired {
    /// The kernel's number for it.
    pub(crate) id: u64,
    /// The number that programs see as `st_ino`.
    pub(crate) number: u64,
    /// Changes when an id is used for another state, which needs a collision of 52 bits.
    pub(crate) generation: u64,
}

/// All nodes the kernel knows. The caller locks it, briefly.
pub(crate) struct Nodes<S: TreeSource> {
    records: IdMap<Box<Record<S>>>,
    directory_numbers: DirectoryNumbers,
    /// Ids in the order in which they were first named; some may be gone.
    ages: VecDeque<u64>,
    next_id: u64,
}

impl<S: TreeSource> Nodes<S> {
    pub(crate) fn new(root: Node<S>) -> Self {
        let place = Place { parent: ROOT, index: 0 };
        let root = Node { state: None, ..root };
        let record = Record::new(place, ROOT, Some(Named::boxed(b"")), root);
        let mut records = IdMap::default();
        records.insert(ROOT, Box::new(record));
        Self {
            records,
            directory_numbers: DirectoryNumbers::default(),
            ages: VecDeque::new(),
            next_id: ROOT + 1,
        }
    }

    /// Live nodes, the root included.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Names `node` to the kernel: one more lookup of the node that stands for it, which is made
    /// when there is none. `None` when `place.parent` is not alive.
    pub(crate) fn acquire(
        &mut self,
        place: Place,
        name: &[u8],
        node: &Node<S>,
    ) -> Option<Acquired> {
        let directory = node.is_directory();
        let id = match node.state {
            Some(state) if !directory => self.file_id(state, place, node),
            state => self.named_id(state, place, name, node)?,
        };
        let record = self.records.get_mut(&id)?;
        record.lookups += 1;
        record.place = place;
        Some(Acquired { id, number: record.number, generation: generation(id, node.state) })
    }

    /// The node of a file (anything but a directory) that has a state.
    fn file_id(&mut self, state: StateId, place: Place, node: &Node<S>) -> u64 {
        let (number, is_known) = self.file_number(state);
        if !is_known {
            self.insert(number, Record::new(place, number, None, node.clone()));
        }
        number
    }

    /// The number of a file in this state, and whether the kernel knows the file.
    fn file_number(&self, state: StateId) -> (u64, bool) {
        let mut number = first_number(state);
        loop {
            match self.records.get(&number).map(|record| &record.node) {
                Some(node) if node.state == Some(state) && !node.is_directory() => {
                    return (number, true);
                }
                None if !self.directory_numbers.contains(number) => return (number, false),
                _ => number = next_number(number),
            }
        }
    }

    /// The node of a directory, or of an entry without a state: one for each parent and name.
    fn named_id(
        &mut self,
        state: Option<StateId>,
        place: Place,
        name: &[u8],
        node: &Node<S>,
    ) -> Option<u64> {
        let known = self.records.get(&place.parent)?.named.as_ref()?.children.get(name).copied();
        if let Some(id) = known
            && let Some(record) = self.records.get_mut(&id)
            && record.node.state == state
            && record.node.kind == node.kind
        {
            if state.is_none() {
                record.node = node.clone();
            }
            return Some(id);
        }
        let (id, number) = match state {
            None => {
                let id = self.fresh_id();
                (id, id)
            }
            Some(state) => {
                let is_id = |number| self.records.contains_key(&number);
                let number = self.directory_numbers.add_place(state, is_id);
                let first = !self.records.contains_key(&number);
                (if first { number } else { self.fresh_id() }, number)
            }
        };
        let record = Record::new(place, number, Some(Named::boxed(name)), node.clone());
        self.insert(id, record);
        let parent = self.records.get_mut(&place.parent)?.named.as_mut()?;
        parent.children.insert(name.into(), id);
        Some(id)
    }

    fn insert(&mut self, id: u64, record: Record<S>) {
        self.records.insert(id, Box::new(record));
        if self.ages.len() > 2 * self.records.len() + 1024 {
            let records = &self.records;
            self.ages.retain(|id| records.contains_key(id));
        }
        self.ages.push_back(id);
    }

    /// The `count` nodes that were named first. They count as named last from now on, in case the
    /// kernel keeps them.
    pub(crate) fn oldest(&mut self, count: usize) -> Vec<u64> {
        let mut ids = Vec::with_capacity(count);
        for _ in 0..self.ages.len() {
            if ids.len() == count {
                break;
            }
            let Some(id) = self.ages.pop_front() else { break };
            if self.records.contains_key(&id) {
                self.ages.push_back(id);
                ids.push(id);
            }
        }
        ids
    }

    fn fresh_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// The kernel forgot `count` lookups. Returns true when the node is gone.
    pub(crate) fn forget(&mut self, id: u64, count: u64) -> bool {
        if id == ROOT {
            return false;
        }
        let Some(record) = self.records.get_mut(&id) else {
            tracing::debug!(id, count, "the kernel forgot a node that is not known");
            return false;
        };
        record.lookups = record.lookups.saturating_sub(count);
        self.drop_if_unused(id)
    }

    fn drop_if_unused(&mut self, id: u64) -> bool {
        let MapEntry::Occupied(entry) = self.records.entry(id) else { return false };
        if entry.get().lookups > 0 || entry.get().pins > 0 {
            return false;
        }
        let record = entry.remove();
        if let Some(state) = record.node.state
            && record.node.is_directory()
        {
            self.directory_numbers.remove_place(state);
        }
        if let Some(named) = &record.named
            && let Some(parent) = self.records.get_mut(&record.place.parent)
            && let Some(parent) = &mut parent.named
            && parent.children.get(&named.name) == Some(&id)
        {
            parent.children.remove(&named.name);
        }
        true
    }

    /// Keeps a file that the kernel knows until [`unpin`](Self::unpin) and returns its id. Unless
    /// `again`, only a file whose contents the kernel does not have.
    pub(crate) fn pin(&mut self, state: StateId, again: bool) -> Option<u64> {
        let (id, _) = self.file_number(state);
        let record = self.records.get_mut(&id).filter(|record| again || !record.loaded)?;
        record.pins += 1;
        Some(id)
    }

    /// Undoes [`pin`](Self::pin); `loaded` says that the kernel has the contents now.
    pub(crate) fn unpin(&mut self, id: u64, loaded: bool) {
        if let Some(record) = self.records.get_mut(&id) {
            record.pins = record.pins.saturating_sub(1);
            record.loaded |= loaded;
            self.drop_if_unused(id);
        }
    }

    /// The entry of a node.
    pub(crate) fn get(&self, id: u64) -> Option<&Node<S>> {
        self.records.get(&id).map(|record| &record.node)
    }

    /// The inode number programs see for `id`.
    pub(crate) fn number(&self, id: u64) -> Option<u64> {
        self.records.get(&id).map(|record| record.number)
    }

    /// Where a node was last seen.
    pub(crate) fn place(&self, id: u64) -> Option<Place> {
        self.records.get(&id).map(|record| record.place)
    }

    /// Notes that the kernel asks for the contents of a file. Returns whether it had them before.
    pub(crate) fn note_loaded(&mut self, id: u64) -> bool {
        self.records.get_mut(&id).is_some_and(|record| std::mem::replace(&mut record.loaded, true))
    }

    /// The name of a directory or stateless entry.
    pub(crate) fn name(&self, id: u64) -> Option<&[u8]> {
        self.records.get(&id)?.named.as_ref().map(|named| &*named.name)
    }

    /// New attributes of an entry without a state.
    pub(crate) fn refresh(&mut self, id: u64, node: Node<S>) {
        if let Some(record) = self.records.get_mut(&id)
            && record.node.state.is_none()
        {
            record.node = Node { state: None, ..node };
        }
    }

    /// The list state of a changing directory.
    pub(crate) fn changing_list(&mut self, id: u64) -> Option<&mut ChangingList> {
        Some(&mut self.records.get_mut(&id)?.named.as_mut()?.changing)
    }

    /// Ids of directories with such a key that the kernel knows.
    pub(crate) fn directories(&self, are: impl Fn(&S::Directory) -> bool) -> Vec<u64> {
        let is = |node: &Node<S>| matches!(&node.kind, Kind::Directory(key) if are(key));
        self.records.iter().filter(|(_, record)| is(&record.node)).map(|(id, _)| *id).collect()
    }
}

impl Named {
    fn boxed(name: &[u8]) -> Box<Self> {
        Box::new(Self {
            name: name.into(),
            children: HashMap::new(),
            changing: ChangingList::default(),
        })
    }
}

impl<S: TreeSource> Record<S> {
    fn new(place: Place, number: u64, named: Option<Box<Named>>, node: Node<S>) -> Self {
        Self { lookups: 0, pins: 0, place, number, loaded: false, named, node }
    }
}

#[cfg(test)]
pub(crate) mod tests;
