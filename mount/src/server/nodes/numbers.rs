//! Inode numbers that follow from states.
//!
//! A number is the first 52 bits of the state's id, so numbers have the order of ids. When two live
//! states have the same bits, the second one gets the next number that is free.

use std::collections::HashMap;

use crate::source::StateId;

/// Numbers made from a state: this bit and 52 bits of its id. Ids made from a counter are below.
const STATE_NUMBERS: u64 = 1 << 52;

/// The inode number of a file in this state, unless another live state has the same bits.
pub fn first_number(state: StateId) -> u64 {
    let StateId([a, b, c, d, e, f, g, h, ..]) = state;
    u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 12 | STATE_NUMBERS
}

/// Where it goes on, should another state have that one.
pub(super) fn next_number(number: u64) -> u64 {
    (number + 1) & (STATE_NUMBERS - 1) | STATE_NUMBERS
}

/// The other half of the state for ids that follow from it; zero for ids that are used once.
pub(super) fn generation(id: u64, state: Option<StateId>) -> u64 {
    match state {
        Some(StateId([.., a, b, c, d, e, f, g, h])) if id >= STATE_NUMBERS => {
            u64::from_le_bytes([a, b, c, d, e, f, g, h])
        }
        _ => 0,
    }
}

/// Numbers of directory states, each kept while any place of the state lives. A file needs no such
/// memory: its number is the id of its one node.
#[derive(Default)]
pub(super) struct DirectoryNumbers {
    numbers: HashMap<StateId, DirectoryNumber>,
    /// Which state has a number, also when none of its places has it as id.
    owners: IdMap<StateId>,
}

struct DirectoryNumber {
    number: u64,
    places: u32,
}

impl DirectoryNumbers {
    /// Whether a directory state has this number.
    pub(super) fn contains(&self, number: u64) -> bool {
        self.owners.contains_key(&number)
    }

    /// The number of a state that gets one more place; a new one is not among those that `is_id`
    /// says a node has as its id.
    pub(super) fn add_place(&mut self, state: StateId, is_id: impl Fn(u64) -> bool) -> u64 {
        if let Some(known) = self.numbers.get_mut(&state) {
            known.places += 1;
            return known.number;
        }
        let mut number = first_number(state);
        while is_id(number) || self.contains(number) {
            number = next_number(number);
        }
        self.numbers.insert(state, DirectoryNumber { number, places: 1 });
        self.owners.insert(number, state);
        number
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.owners.is_empty()
    }

    /// A place of a state is gone.
    pub(super) fn remove_place(&mut self, state: StateId) {
        if let Some(known) = self.numbers.get_mut(&state) {
            known.places -= 1;
            if known.places == 0 {
                self.owners.remove(&known.number);
                self.numbers.remove(&state);
            }
        }
    }
}

/// A map by id.
pub(super) type IdMap<V> = HashMap<u64, V, foldhash::fast::RandomState>;
