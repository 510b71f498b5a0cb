//! Which files of a directory to push to the kernel next.

use super::order::{Order, Spot};

/// Maximum number of entries of one push.
const MAX_ENTRIES: u32 = 64 * 1024;
/// Entries pushed for the first read of a directory, unless a walker reads.
const FIRST: u32 = 16;

/// The part of a directory that was pushed last.
#[derive(Clone, Copy, Default)]
pub(super) struct PushWindow {
    order: Order,
    /// Position in that order from which on files were pushed, and before which the push ends.
    from: u64,
    until: u64,
    /// Entries at the most, 0 when nothing was pushed yet.
    length: u32,
    /// Whether the push has not ended.
    is_running: bool,
}

/// Entries of a directory that come one after the other in an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    pub(crate) order: Order,
    /// The first position in that order.
    pub(crate) start: u64,
    /// Number of entries at the most.
    pub(crate) length: u32,
}

/// The known facts of a thread that reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reader {
    /// It reads its way through directories.
    pub(crate) is_walker: bool,
    /// The order that it has shown last, here or elsewhere.
    pub(crate) order: Order,
    /// The order in which it reads this directory, if it shows that now.
    pub(crate) shown: Option<Order>,
}

impl PushWindow {
    /// A walker has read the whole list and will read the files next, probably in this order.
    pub(super) fn after_list(&mut self, order: Order) -> Option<Stretch> {
        let is_undone = !self.is_running && self.until == self.from;
        is_undone.then(|| self.begin(Stretch { order, start: 0, length: MAX_ENTRIES }))
    }

    /// A file was read, and the kernel `had` its contents before. What comes after it is pushed:
    /// few entries at first, unless a walker reads; more each time a reader comes back beyond the
    /// end of the last push. Also says whether the kernel has lost what it had.
    pub(super) fn after_read(
        &mut self,
        spot: Spot,
        had: bool,
        by: Reader,
    ) -> Option<(Stretch, bool)> {
        let is_begun = self.length > 0;
        let order = by.shown.unwrap_or(if is_begun { self.order } else { by.order });
        let is_same = is_begun && order == self.order;
        // Unless it was pushed while this read was on its way.
        let again = had && !self.is_running;
        let start = spot.position(order) + 1;
        if is_same && (self.from..=self.until).contains(&start) && !again {
            // Inside what is being pushed, or the file that started it.
            return None;
        }
        let onward = is_same && start > self.until;
        let length = match (by.is_walker, onward) {
            (true, _) => MAX_ENTRIES,
            (false, true) => (self.length * 4).min(MAX_ENTRIES),
            (false, false) => FIRST,
        };
        Some((self.begin(Stretch { order, start, length }), again))
    }

    /// The order of the push that runs.
    pub(super) fn running_order(&self) -> Option<Order> {
        self.is_running.then_some(self.order)
    }

    fn begin(&mut self, stretch: Stretch) -> Stretch {
        let Stretch { order, start, length } = stretch;
        let until = match order {
            Order::Listed => start + u64::from(length),
            // It is found out when it ends.
            Order::Numbered => u64::MAX,
        };
        *self = Self { order, from: start, until, length, is_running: true };
        stretch
    }

    /// The push of this stretch has ended: before this position, or with the last file of the
    /// directory.
    pub(super) fn ended(&mut self, stretch: Stretch, position: Option<u64>) {
        if (stretch.order, stretch.start) == (self.order, self.from) {
            self.until = position.map_or(self.until, |position| self.until.min(position));
            self.is_running = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALKER: Reader = Reader { is_walker: true, order: Order::Listed, shown: None };

    fn spot(index: u32, number: u64) -> Spot {
        Spot { index, number }
    }

    fn start(push: Option<(Stretch, bool)>) -> Option<u64> {
        push.map(|(stretch, _)| stretch.start)
    }

    #[test]
    fn what_is_being_pushed_is_not_pushed_again() {
        let mut window = PushWindow::default();
        let (first, again) = window.after_read(spot(0, 9), false, WALKER).unwrap();
        assert_eq!((first.start, first.order, again), (1, Order::Listed, false));
        assert_eq!(window.after_read(spot(20, 5), false, WALKER), None);
        // It was pushed while the READ was on its way.
        assert_eq!(window.after_read(spot(21, 5), true, WALKER), None);
        window.ended(first, Some(10));
        assert_eq!(start(window.after_read(spot(9, 6), false, WALKER)), None);
        assert_eq!(start(window.after_read(spot(21, 6), false, WALKER)), Some(22));
    }

    #[test]
    fn what_the_kernel_lost_is_pushed_again() {
        let mut window = PushWindow::default();
        let (first, _) = window.after_read(spot(0, 9), false, WALKER).unwrap();
        window.ended(first, None);
        let (second, again) = window.after_read(spot(3, 4), true, WALKER).unwrap();
        assert_eq!((second.start, again), (4, true));
    }

    #[test]
    fn a_push_becomes_longer_when_the_reader_comes_to_its_end() {
        let (mut window, reader) = (PushWindow::default(), Reader::default());
        let (first, _) = window.after_read(spot(0, 0), false, reader).unwrap();
        assert_eq!(first.length, FIRST);
        window.ended(first, Some(first.start + u64::from(FIRST)));
        assert_eq!(window.after_read(spot(FIRST - 1, 0), false, reader), None);
        let (second, _) = window.after_read(spot(FIRST + 1, 0), false, reader).unwrap();
        assert_eq!(second.length, 4 * FIRST);
        window.ended(second, None);
        let (third, _) = window.after_read(spot(9000, 0), false, reader).unwrap();
        assert_eq!(third.length, 16 * FIRST);
        // Before its beginning, it is another reader.
        let (elsewhere, _) = window.after_read(spot(50, 0), false, reader).unwrap();
        assert_eq!((elsewhere.start, elsewhere.length), (51, FIRST));
    }

    #[test]
    fn a_reader_that_shows_another_order_gets_a_push_in_that_order() {
        let mut window = PushWindow::default();
        let first = window.after_list(Order::Listed).unwrap();
        assert_eq!(window.after_list(Order::Listed), None);
        let numbered = Reader { shown: Some(Order::Numbered), ..WALKER };
        let (second, _) = window.after_read(spot(7, 100), false, numbered).unwrap();
        assert_eq!((second.order, second.start), (Order::Numbered, 101));
        // The end of the other one says nothing of this.
        window.ended(first, Some(3));
        assert_eq!(window.after_read(spot(2, 200), false, WALKER), None);
        window.ended(second, Some(150));
        assert_eq!(start(window.after_read(spot(1, 200), false, WALKER)), Some(201));
    }

    #[test]
    fn a_push_for_which_there_was_no_time_is_made_later() {
        let mut window = PushWindow::default();
        let first = window.after_list(Order::Numbered).unwrap();
        window.ended(first, Some(first.start));
        // The kernel asks whether there is more of the list.
        let second = window.after_list(Order::Numbered).unwrap();
        assert_eq!(window.after_list(Order::Numbered), None);
        window.ended(second, Some(second.start));
        assert_eq!(start(window.after_read(spot(7, 100), false, WALKER)), Some(101));
    }
}
