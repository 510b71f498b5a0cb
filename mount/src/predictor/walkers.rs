//! Which threads read their way through directories, and in which order.

use super::order::{Order, Spot};
use super::window::Reader;

/// Threads that began to read directories: those of `grep -r`, `tar`, `cp -a`.
#[derive(Default)]
pub(super) struct Walkers {
    seen: [Seen; Self::REMEMBERED],
    next: usize,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    /// 0: this place is free.
    thread: u32,
    /// How many pushes it started: one in each directory, or part of a large one.
    pushes: u32,
    /// The order that it has shown last.
    order: Order,
    /// The last directory that is too long to be read as listed. Its order says nothing of others.
    long_directory: Option<u64>,
    /// The last entry that it read, and its directory.
    last: Option<(u64, Spot)>,
    /// The order that it showed in this directory when it last showed one, and how often in a row.
    streak: (Order, u32),
}

impl Walkers {
    const REMEMBERED: usize = 16;
    /// Pushes that make a reader a walker.
    const PUSHES: u32 = 3;
    /// Pairs of files that make an order: a single one shows an order even of random reads.
    const PAIRS: u32 = 3;

    /// A thread gets the list of a directory of so many entries. Returns the order in which a
    /// walker will probably read the files; `None` for any other thread.
    pub(super) fn listed(&mut self, thread: u32, directory: u64, entries: usize) -> Option<Order> {
        let seen = self.find_mut(thread)?;
        if Order::expected(Order::Listed, entries) != Order::Listed {
            seen.long_directory = Some(directory);
        }
        seen.is_walker().then(|| Order::expected(seen.order, entries))
    }

    /// A thread reads the beginning of a file.
    pub(super) fn read(&mut self, thread: u32, directory: u64, spot: Spot) -> Reader {
        let Some(seen) = self.find_mut(thread) else { return Reader::default() };
        let shown = seen.shows(directory, spot);
        if seen.long_directory != Some(directory) {
            seen.order = shown.unwrap_or(seen.order);
        }
        Reader { is_walker: seen.is_walker(), order: seen.order, shown }
    }

    /// A read of this thread started a push.
    pub(super) fn note_push(&mut self, thread: u32, directory: u64, spot: Spot) {
        // Threads in another process namespace are all called 0.
        if thread == 0 {
            return;
        }
        if let Some(seen) = self.find_mut(thread) {
            seen.pushes = seen.pushes.saturating_add(1);
        } else {
            let last = Some((directory, spot));
            self.seen[self.next] = Seen { thread, pushes: 1, last, ..Seen::default() };
            self.next = (self.next + 1) % Self::REMEMBERED;
        }
    }

    fn find_mut(&mut self, thread: u32) -> Option<&mut Seen> {
        self.seen.iter_mut().find(|seen| seen.thread == thread && thread != 0)
    }
}

impl Seen {
    fn is_walker(&self) -> bool {
        self.pushes >= Walkers::PUSHES
    }

    /// Notes what is read. Returns the order in which the directory is read, if this shows it.
    fn shows(&mut self, directory: u64, spot: Spot) -> Option<Order> {
        let before = self.last.replace((directory, spot));
        let Some((_, before)) = before.filter(|(other, _)| *other == directory) else {
            self.streak = (self.order, 0);
            return None;
        };
        let order = before.order_to(spot)?;
        let (last, pairs) = self.streak;
        self.streak = (order, if order == last { pairs.saturating_add(1) } else { 1 });
        (self.streak.1 >= Walkers::PAIRS).then_some(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPOT: Spot = Spot { index: 5, number: 50 };

    #[test]
    fn a_thread_that_begins_to_read_three_directories_is_a_walker() {
        let mut walkers = Walkers::default();
        for directory in 1..=3 {
            assert_eq!(walkers.listed(7, 100 + directory, 1), None);
            walkers.note_push(7, directory, SPOT);
        }
        assert_eq!(walkers.listed(7, 9, 1), Some(Order::Listed));
        assert_eq!(walkers.listed(7, 9, 10_001), Some(Order::Numbered));
        assert!(walkers.read(7, 3, SPOT).is_walker);
        assert!(!walkers.read(8, 3, SPOT).is_walker);
    }

    #[test]
    fn threads_of_another_namespace_are_never_walkers() {
        let mut walkers = Walkers::default();
        (0..9).for_each(|directory| walkers.note_push(0, directory, SPOT));
        assert_eq!(walkers.listed(0, 9, 1), None);
        assert_eq!(walkers.read(0, 1, SPOT), Reader::default());
    }

    /// The pairs of these show one order and then the other.
    const NUMBERED: [(u32, u64); 4] = [(4, 10), (3, 20), (2, 30), (1, 40)];

    fn read(walkers: &mut Walkers, directory: u64, spots: &[(u32, u64)]) -> Vec<Option<Order>> {
        let spots = spots.iter().map(|(index, number)| Spot { index: *index, number: *number });
        spots.map(|spot| walkers.read(7, directory, spot).shown).collect()
    }

    #[test]
    fn an_order_is_shown_within_a_directory_and_remembered() {
        let mut walkers = Walkers::default();
        walkers.note_push(7, 1, SPOT);
        let shown = read(&mut walkers, 2, &NUMBERED);
        assert_eq!(shown, [None, None, None, Some(Order::Numbered)]);
        let elsewhere = walkers.read(7, 3, SPOT);
        assert_eq!((elsewhere.shown, elsewhere.order), (None, Order::Numbered));
        // Each directory is another.
        assert_eq!(read(&mut walkers, 4, &NUMBERED[..3]), [None; 3]);
        assert_eq!(read(&mut walkers, 5, &NUMBERED[2..]), [None; 2]);
    }

    #[test]
    fn the_order_of_a_very_long_directory_is_not_that_of_others() {
        let mut walkers = Walkers::default();
        walkers.note_push(7, 1, SPOT);
        walkers.listed(7, 2, 10_001);
        assert_eq!(read(&mut walkers, 2, &NUMBERED)[3], Some(Order::Numbered));
        assert_eq!(walkers.read(7, 3, SPOT).order, Order::Listed);
        walkers.listed(7, 4, 10_000);
        read(&mut walkers, 4, &NUMBERED);
        assert_eq!(walkers.read(7, 5, SPOT).order, Order::Numbered);
    }

    #[test]
    fn random_reads_rarely_show_an_order() {
        let mut walkers = Walkers::default();
        walkers.note_push(7, 1, SPOT);
        let alternating = [(1, 40), (2, 30), (1, 50), (2, 20), (1, 60), (2, 10), (1, 70)];
        assert_eq!(read(&mut walkers, 2, &alternating), [None; 7]);
    }
}
