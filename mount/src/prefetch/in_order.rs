//! The entries of a directory in the order in which a program reads them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::lists::List;
use crate::nodes::{Order, probable_number};
use crate::source::{Entry, TreeSource};

/// The entries of a list from some position on, as pairs of index in the list and position. A long list is not sorted as a
/// whole before the first is had: a reader would be at work by itself meanwhile.
pub(super) struct InOrder<S: TreeSource> {
    list: Arc<List<S>>,
    rest: Rest,
}

/// What is left.
enum Rest {
    /// From this index in the list on.
    Listed(usize),
    /// Number, and index in the list.
    Numbered(BinaryHeap<Reverse<(u64, u32)>>),
}

impl<S: TreeSource> InOrder<S> {
    pub(super) fn new(list: Arc<List<S>>, order: Order, start: u64) -> Self {
        let rest = match order {
            Order::Listed => Rest::Listed(usize::try_from(start).unwrap_or(usize::MAX)),
            Order::Numbered => {
                let number = |entry: &Entry<S>| entry.node.state.map(probable_number);
                let numbered = (0..).zip(&list.entries);
                let numbered = numbered.filter_map(|(index, entry)| Some((number(entry)?, index)));
                Rest::Numbered(numbered.filter(|(at, _)| *at >= start).map(Reverse).collect())
            }
        };
        Self { list, rest }
    }

    pub(super) fn list(&self) -> &Arc<List<S>> {
        &self.list
    }
}

impl<S: TreeSource> Iterator for InOrder<S> {
    type Item = (usize, u64);

    fn next(&mut self) -> Option<(usize, u64)> {
        match &mut self.rest {
            Rest::Listed(next) => {
                let index = *next;
                self.list.entries.get(index)?;
                *next += 1;
                Some((index, index as u64))
            }
            Rest::Numbered(numbered) => {
                let Reverse((number, index)) = numbered.pop()?;
                Some((index as usize, number))
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    use crate::nodes::tests::{Nothing, node};
    use crate::source::{Kind, StateId};

    /// A list with these numbers in its names and states.
    pub(in crate::prefetch) fn list(numbers: &[u8]) -> Arc<List<Nothing>> {
        let entry = |number: &u8| Entry {
            name: [*number].into(),
            node: node(Kind::File { size: 1, content: 0 }, Some(StateId([*number; 16]))),
        };
        Arc::new(List { entries: numbers.iter().map(entry).collect() })
    }

    fn names(order: Order, start: u64) -> Vec<u8> {
        let in_order = InOrder::new(list(&[4, 1, 3, 2, 5]), order, start);
        let list = in_order.list().clone();
        in_order.map(|(index, _)| list.entries[index].name[0]).collect()
    }

    #[test]
    fn those_as_listed_come_from_an_index_on() {
        assert_eq!(names(Order::Listed, 0), [4, 1, 3, 2, 5]);
        assert_eq!(names(Order::Listed, 3), [2, 5]);
        assert!(names(Order::Listed, 5).is_empty() && names(Order::Listed, u64::MAX).is_empty());
    }

    #[test]
    fn those_by_number_come_in_their_order_from_the_first_on() {
        let number = |name: &u8| probable_number(StateId([*name; 16]));
        let mut sorted = [4, 1, 3, 2, 5];
        sorted.sort_unstable_by_key(number);
        assert_ne!(sorted, [4, 1, 3, 2, 5]);
        assert_eq!(names(Order::Numbered, 0), sorted);
        assert_eq!(names(Order::Numbered, number(&sorted[2])), sorted[2..]);
        assert_eq!(names(Order::Numbered, number(&sorted[2]) + 1), sorted[3..]);
    }
}
