//! What may be worth a push: whatever a reader has not left behind.

use std::sync::Arc;

use super::in_order::InOrder;
use crate::lists::List;
use crate::nodes::Stretch;
use crate::source::TreeSource;

/// Files between a reader and what is pushed next.
const LEAD: usize = 3;

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    /// In the list.
    pub(super) index: usize,
    /// In the order.
    pub(super) position: u64,
    /// A reader is there, or so near that it asks for a short file before it could be pushed.
    pub(super) is_near: bool,
}

/// A stretch of a list.
pub(super) struct Upcoming<S: TreeSource> {
    entries: InOrder<S>,
    stretch: Stretch,
    /// How many of the stretch were passed, and the positions of the last of them, newest last.
    count: u32,
    passed: [Option<u64>; LEAD],
}

impl<S: TreeSource> Upcoming<S> {
    pub(super) fn new(list: Arc<List<S>>, stretch: Stretch) -> Self {
        let entries = InOrder::new(list, stretch.order, stretch.start);
        Self { entries, stretch, count: 0, passed: [None; LEAD] }
    }

    /// The next one, but for those that are left behind by who has asked for all before the position `reached` (0: for none).
    pub(super) fn next(&mut self, reached: u64) -> Option<Candidate> {
        loop {
            let is_ahead = reached == 0 || self.passed[0].is_some_and(|passed| passed >= reached);
            let (index, position) = self.pass()?;
            if position + 1 >= reached {
                return Some(Candidate { index, position, is_near: !is_ahead });
            }
        }
    }

    fn pass(&mut self) -> Option<(usize, u64)> {
        if self.count == self.stretch.length {
            return None;
        }
        let (index, position) = self.entries.next()?;
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

    use crate::nodes::tests::Nothing;
    use crate::nodes::{Order, probable_number};
    use crate::prefetch::in_order::tests::list;
    use crate::source::StateId;

    /// The names of a list of seven that are not near.
    fn names(upcoming: &mut Upcoming<Nothing>, reached: u64) -> Vec<u8> {
        let next = std::iter::from_fn(|| upcoming.next(reached));
        next.filter(|next| !next.is_near).map(|next| next.index as u8 + 1).collect()
    }

    fn coming(start: u64, length: u32) -> Upcoming<Nothing> {
        let stretch = Stretch { order: Order::Listed, start, length };
        Upcoming::new(list(&[1, 2, 3, 4, 5, 6, 7]), stretch)
    }

    #[test]
    fn what_comes_is_a_little_ahead_of_the_reader() {
        let coming = || coming(1, 99);
        assert_eq!(names(&mut coming(), 0), [2, 3, 4, 5, 6, 7]);
        // Those at the positions 2, 3 and 4 are left to the reader.
        assert_eq!(names(&mut coming(), 2), [6, 7]);
        assert!(names(&mut coming(), 9).is_empty());
        let mut upcoming = coming();
        let at = |at: usize| Candidate { index: at, position: at as u64, is_near: false };
        assert_eq!((upcoming.next(0), upcoming.next(0)), (Some(at(1)), Some(at(2))));
        // One of the three is passed.
        assert_eq!(names(&mut upcoming, 2), [6, 7]);
        assert_eq!((upcoming.position(), upcoming.cut_at()), (7, None));
    }

    #[test]
    fn what_is_near_begins_with_what_is_read() {
        let mut upcoming = coming(0, 99);
        let next = std::iter::from_fn(|| upcoming.next(3));
        let next: Vec<_> = next.map(|next| (next.position, next.is_near)).collect();
        assert_eq!(next, [(2, true), (3, true), (4, true), (5, true), (6, false)]);
    }

    #[test]
    fn a_stretch_ends_where_it_is_long_enough() {
        let mut upcoming = coming(0, 2);
        assert_eq!(upcoming.position(), 0);
        assert_eq!(names(&mut upcoming, 0), [1, 2]);
        assert_eq!(upcoming.cut_at(), Some(2));
    }

    #[test]
    fn a_stretch_by_number_is_cut_at_a_number() {
        let mut numbers = [4, 1, 3, 2, 5].map(|name| probable_number(StateId([name; 16])));
        numbers.sort_unstable();
        let stretch = Stretch { order: Order::Numbered, start: numbers[1], length: 3 };
        let mut upcoming = Upcoming::new(list(&[4, 1, 3, 2, 5]), stretch);
        let passed = std::iter::from_fn(|| upcoming.next(0)).map(|next| next.position);
        assert_eq!(passed.collect::<Vec<_>>(), numbers[1..4]);
        assert_eq!(upcoming.cut_at(), Some(numbers[3] + 1));
    }
}
