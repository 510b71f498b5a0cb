//! The nodes the kernel knows: ids, inode numbers and exact lifetimes.
//!
//! What always holds:
//! - A node lives from the reply that first names it until the kernel forgot it as often as it was
//!   named ([`Nodes::acquire`], [`Nodes::forget`]), or longer while [pinned](Nodes::pin).
//! - Files of one [`StateId`] share one node, and with it the page cache. A directory has a node for
//!   each place, because the kernel allows a directory inode only one name.
//! - A node's **number** is the `st_ino` programs see. It follows from the `StateId`, so it comes back
//!   the same after the kernel forgot it. The first place of a directory state, and every file, has
//!   the number as its id; a later place of a directory has an id of its own and the same number.
//! - Two live states never share an id or a number: when the hash bits collide, the next free number
//!   is taken. Ids that follow from no state are never used twice.
//! - Numbers stay below 2^53, so that programs that keep them in a double (JavaScript) see the truth.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use crate::source::{Kind, Node, StateId, TreeSource};

/// The id and number of the mounted directory.
pub(crate) const ROOT: u64 = 1;

/// Numbers made from a state: this bit and 52 bits of the hash. Ids made from a counter are below.
const STATE_NUMBERS: u64 = 1 << 52;

/// Hashes ids. They are dense or already hash bits, and a multiplication spreads both.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

type IdMap<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;

/// Where a node was last seen: a directory's node id and the position in its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) parent: u64,
    pub(crate) index: u32,
}

/// What only directories and stateless entries need: they are found again by parent and name.
struct Named {
    name: Box<[u8]>,
    /// Named children that are alive.
    children: HashMap<Box<[u8]>, u64>,
    changing: ChangingList,
    window: PushWindow,
}

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

/// Which part of a directory's list was pushed to the kernel.
#[derive(Clone, Copy, Default)]
struct PushWindow {
    until: u32,
    length: u32,
}

/// Files to hand to the kernel before it asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Push {
    pub(crate) directory: u64,
    /// Positions in the directory's list.
    pub(crate) indices: Range<u32>,
    /// The kernel had the contents once and lost them: push what was pushed before, too.
    pub(crate) again: bool,
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

impl<S: TreeSource> Record<S> {
    fn is_directory(&self) -> bool {
        matches!(self.node.kind, Kind::Directory(_))
    }
}

/// The number of a directory state, kept while any of its places lives.
struct DirectoryNumber {
    number: u64,
    places: u32,
}

/// A node named in a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Acquired {
    /// What the kernel calls it.
    pub(crate) id: u64,
    /// What programs see as `st_ino`.
    pub(crate) number: u64,
    /// Changes when an id is used for another state, which needs a collision of 52 bits.
    pub(crate) generation: u64,
}

/// All nodes the kernel knows. The caller locks it, briefly.
pub(crate) struct Nodes<S: TreeSource> {
    records: IdMap<Box<Record<S>>>,
    directory_numbers: HashMap<StateId, DirectoryNumber>,
    /// Which directory state has a number, also when none of its places has it as id.
    number_owners: IdMap<StateId>,
    /// Ids in the order in which they were first named; some may be gone.
    ages: VecDeque<u64>,
    next_id: u64,
}

impl<S: TreeSource> Nodes<S> {
    /// Most files of one push.
    const PUSH_MOST: u32 = 1024;

    pub(crate) fn new(root: Node<S>) -> Self {
        let record = Record {
            lookups: 1,
            pins: 0,
            place: Place { parent: ROOT, index: 0 },
            number: ROOT,
            loaded: false,
            named: Some(Named::boxed(b"")),
            node: Node { state: None, ..root },
        };
        let mut records = IdMap::default();
        records.insert(ROOT, Box::new(record));
        Self {
            records,
            directory_numbers: HashMap::new(),
            number_owners: IdMap::default(),
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
        let directory = matches!(node.kind, Kind::Directory(_));
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
        let mut number = first_number(state);
        loop {
            match self.records.get(&number) {
                Some(record) if record.node.state == Some(state) && !record.is_directory() => {
                    return number;
                }
                Some(_) => {}
                None if self.number_owners.contains_key(&number) => {}
                None => break,
            }
            number = next_number(number);
        }
        let record = Record::new(place, number, None, node.clone());
        self.insert(number, record);
        number
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
                let number = self.directory_number(state);
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

    /// The number of a directory state, with one more place.
    fn directory_number(&mut self, state: StateId) -> u64 {
        if let Some(known) = self.directory_numbers.get_mut(&state) {
            known.places += 1;
            return known.number;
        }
        let mut number = first_number(state);
        while self.records.contains_key(&number) || self.number_owners.contains_key(&number) {
            number = next_number(number);
        }
        self.directory_numbers.insert(state, DirectoryNumber { number, places: 1 });
        self.number_owners.insert(number, state);
        number
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
            && record.is_directory()
            && let Some(known) = self.directory_numbers.get_mut(&state)
        {
            known.places -= 1;
            if known.places == 0 {
                self.number_owners.remove(&known.number);
                self.directory_numbers.remove(&state);
            }
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
        let mut number = first_number(state);
        loop {
            match self.records.get_mut(&number) {
                Some(record) if record.node.state == Some(state) && !record.is_directory() => {
                    if record.loaded && !again {
                        return None;
                    }
                    record.pins += 1;
                    return Some(number);
                }
                Some(_) => number = next_number(number),
                None => return None,
            }
        }
    }

    /// Undoes [`pin`](Self::pin); `loaded` says that the kernel has the contents now.
    pub(crate) fn unpin(&mut self, id: u64, loaded: bool) {
        if let Some(record) = self.records.get_mut(&id) {
            record.pins = record.pins.saturating_sub(1);
            record.loaded |= loaded;
            self.drop_if_unused(id);
        }
    }

    /// What a node stands for.
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

    /// The name of a directory or stateless entry.
    pub(crate) fn name(&self, id: u64) -> Option<&[u8]> {
        self.records.get(&id)?.named.as_ref().map(|named| &*named.name)
    }

    /// The number an entry would have if it were named now; for lists without attributes.
    pub(crate) fn peek_number(&self, parent: u64, name: &[u8], node: &Node<S>) -> u64 {
        let named = self.records.get(&parent).and_then(|parent| parent.named.as_ref());
        if let Some(id) = named.and_then(|named| named.children.get(name)) {
            return self.number(*id).unwrap_or(*id);
        }
        match node.state {
            Some(state) => match self.directory_numbers.get(&state) {
                Some(known) => known.number,
                None => first_number(state),
            },
            // Not alive yet, so nobody can compare it: any number but zero.
            None => STATE_NUMBERS - 1,
        }
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

    /// A walker has read the whole list of a directory and will read its files next.
    pub(crate) fn push_after_list(&mut self, directory: u64) -> Option<Push> {
        let window = &mut self.records.get_mut(&directory)?.named.as_mut()?.window;
        if window.length > 0 {
            return None;
        }
        *window = PushWindow { until: Self::PUSH_MOST, length: Self::PUSH_MOST };
        Some(Push { directory, indices: 0..Self::PUSH_MOST, again: false })
    }

    /// Notes that the contents of `id` were asked for, and says which siblings to push: the next
    /// ones in the list. The first read of a directory starts with few, unless a `walker` does it; a
    /// reader that comes back where the last push ended gets more each time.
    pub(crate) fn push_after_read(&mut self, id: u64, walker: bool) -> Option<Push> {
        const FIRST: u32 = 16;
        let record = self.records.get_mut(&id)?;
        let again = std::mem::replace(&mut record.loaded, true);
        let place = record.place;
        let window = &mut self.records.get_mut(&place.parent)?.named.as_mut()?.window;
        let start = place.index + 1;
        let inside = start <= window.until && start + window.length >= window.until;
        if window.length > 0 && inside && !again {
            // Inside what is being pushed, or the file that started it.
            return None;
        }
        let onward = window.length > 0 && place.index >= window.until;
        window.length = match (walker, onward) {
            (true, _) => Self::PUSH_MOST,
            (false, true) => (window.length * 4).min(Self::PUSH_MOST),
            (false, false) => FIRST,
        };
        window.until = start + window.length;
        Some(Push { directory: place.parent, indices: start..window.until, again })
    }

    /// The push of a directory ended before this position of its list.
    pub(crate) fn pushed_until(&mut self, directory: u64, index: u32) {
        if let Some(record) = self.records.get_mut(&directory)
            && let Some(named) = &mut record.named
        {
            named.window.until = named.window.until.min(index);
        }
    }

    /// Ids of all directories the kernel knows.
    pub(crate) fn directories(&self) -> Vec<u64> {
        self.records.iter().filter(|(_, record)| record.is_directory()).map(|(id, _)| *id).collect()
    }
}

impl Named {
    fn boxed(name: &[u8]) -> Box<Self> {
        Box::new(Self {
            name: name.into(),
            children: HashMap::new(),
            changing: ChangingList::default(),
            window: PushWindow::default(),
        })
    }
}

impl<S: TreeSource> Record<S> {
    fn new(place: Place, number: u64, named: Option<Box<Named>>, node: Node<S>) -> Self {
        Self { lookups: 0, pins: 0, place, number, loaded: false, named, node }
    }
}

fn first_number(state: StateId) -> u64 {
    let StateId([a, b, c, d, e, f, g, h, ..]) = state;
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) & (STATE_NUMBERS - 1) | STATE_NUMBERS
}

fn next_number(number: u64) -> u64 {
    (number + 1) & (STATE_NUMBERS - 1) | STATE_NUMBERS
}

/// The other half of the state for ids that follow from it; zero for ids that are used once.
fn generation(id: u64, state: Option<StateId>) -> u64 {
    match state {
        Some(StateId([.., a, b, c, d, e, f, g, h])) if id >= STATE_NUMBERS => {
            u64::from_le_bytes([a, b, c, d, e, f, g, h])
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
