//! The entries of a directory in the order in which they will be read.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::lists::List;
use crate::nodes::{Order, Stretch, probable_number};
use crate::source::{Entry, TreeSource};

/// Files between a reader and what is pushed next.
const LEAD: usize = 3;

/// A stretch of a list. A long one is not sorted as a whole before the first is had: a reader would be at work by itself
/// meanwhile.
pub(super) struct Upcoming<S: TreeSource> {
    list: Arc<List<S>>,
    stretch: Stretch,
    rest: Rest,
    /// How many of the stretch were passed, and the positions of the last of them, newest last.
    count: u32,
    passed: [Option<u64>; LEAD],
}

/// What is left.
enum Rest {
    /// From this index in the list on.
    Listed(usize),
    /// Number, and index in the list.
    Numbered(BinaryHeap<Reverse<(u64, u32)>>),
}

impl<S: TreeSource> Upcoming<S> {
    pub(super) fn new(list: Arc<List<S>>, stretch: Stretch) -> Self {
        let Stretch { order, start, .. } = stretch;
        let rest = match order {
            Order::Listed => Rest::Listed(usize::try_from(start).unwrap_or(usize::MAX)),
            Order::Numbered => {
                let number = |entry: &Entry<S>| entry.node.state.map(probable_number);
                let numbered = (0..).zip(&list.entries);
                let numbered = numbered.filter_map(|(index, entry)| Some((number(entry)?, index)));
                Rest::Numbered(numbered.filter(|(at, _)| *at >= start).map(Reverse).collect())
            }
        };
        Self { list, stretch, rest, count: 0, passed: [None; LEAD] }
    }

    pub(super) fn list(&self) -> &Arc<List<S>> {
        &self.list
    }

    /// Index in the list and position of the next one that is worth a push when somebody has asked for all before the
    /// position `reached` (0: for none).
    pub(super) fn next(&mut self, reached: u64) -> Option<(usize, u64)> {
        loop {
            let is_ahead = reached == 0 || self.passed[0].is_some_and(|passed| passed >= reached);
            let next = self.pass()?;
            if is_ahead {
                return Some(next);
            }
        }
    }

    fn pass(&mut self) -> Option<(usize, u64)> {
        if self.count == self.stretch.length {
            return None;
        }
        let (index, position) = match &mut self.rest {
            Rest::Listed(next) => {
                let index = *next;
                self.list.entries.get(index)?;
                *next += 1;
                (index, index as u64)
            }
            Rest::Numbered(numbered) => {
                let Reverse((number, index)) = numbered.pop()?;
                (index as usize, number)
            }
        };
        self.count += 1;
        self.passed.rotate_left(1);
        self.passed[LEAD - 1] = Some(position);
        Some((index, position))
    }

    /// All before this position was passed.
    pub(super) fn position(&self) -> u64 {
        self.passed[LEAD - 1].map_or(self.stretch.start, |last| last + 1)
    }

    /// The same when all is passed, if there may be more behind the stretch.
    pub(super) fn cut_at(&self) -> Option<u64> {
        (self.count == self.stretch.length).then(|| self.position())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::nodes::tests::{Nothing, node};
    use crate::source::{Kind, StateId};

    /// A list with these numbers in its names and states.
    fn list(numbers: &[u8]) -> Arc<List<Nothing>> {
        let entry = |number: &u8| Entry {
            name: [*number].into(),
            node: node(Kind::File { size: 1, content: 0 }, Some(StateId([*number; 16]))),
        };
        Arc::new(List { entries: numbers.iter().map(entry).collect() })
    }

    fn names(upcoming: &mut Upcoming<Nothing>, reached: u64) -> Vec<u8> {
        let list = upcoming.list().clone();
        let next = || upcoming.next(reached);
        std::iter::from_fn(next).map(|(index, _)| list.entries[index].name[0]).collect()
    }

    #[test]
    fn what_comes_is_a_little_ahead_of_the_reader() {
        let stretch = Stretch { order: Order::Listed, start: 1, length: 99 };
        let coming = || Upcoming::new(list(&[1, 2, 3, 4, 5, 6, 7]), stretch);
        assert_eq!(names(&mut coming(), 0), [2, 3, 4, 5, 6, 7]);
        // Those at the positions 2, 3 and 4 are left to the reader.
        assert_eq!(names(&mut coming(), 2), [6, 7]);
        assert!(names(&mut coming(), 9).is_empty());
        let mut upcoming = coming();
        assert_eq!(upcoming.next(0), Some((1, 1)));
        assert_eq!(upcoming.next(0), Some((2, 2)));
        // One of the three is passed.
        assert_eq!(names(&mut upcoming, 2), [6, 7]);
        assert_eq!((upcoming.position(), upcoming.cut_at()), (7, None));
    }

    #[test]
    fn a_stretch_ends_where_it_is_long_enough() {
        let stretch = Stretch { order: Order::Listed, start: 0, length: 2 };
        let mut upcoming = Upcoming::new(list(&[1, 2, 3, 4]), stretch);
        assert_eq!(upcoming.position(), 0);
        assert_eq!(names(&mut upcoming, 0), [1, 2]);
        assert_eq!(upcoming.cut_at(), Some(2));
    }

    #[test]
    fn those_by_number_come_in_their_order_from_the_first_on() {
        let list = list(&[4, 1, 3, 2, 5]);
        let numbers = list.entries.iter().map(|entry| probable_number(entry.node.state.unwrap()));
        let mut sorted: Vec<(u64, u8)> =
            numbers.zip(&list.entries).map(|(number, entry)| (number, entry.name[0])).collect();
        sorted.sort_unstable();
        let stretch = Stretch { order: Order::Numbered, start: sorted[1].0, length: 3 };
        let mut upcoming = Upcoming::new(list, stretch);
        let expected: Vec<u8> = sorted[1..4].iter().map(|(_, name)| *name).collect();
        assert_eq!(names(&mut upcoming, 0), expected);
        assert_eq!(upcoming.cut_at(), Some(sorted[3].0 + 1));
    }
}
