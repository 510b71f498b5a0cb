//! Who reads its way through directories, and how.

use std::ops::Range;

use super::long_file::READER_BYTES;
use crate::contents::INLINE_OPEN_BYTES;
use crate::nodes::{Order, Reader, Spot};

/// Processes that began to read directories: `grep -r`, `tar`, `cp -a`.
#[derive(Default)]
pub(crate) struct Walkers {
    seen: [Seen; Self::REMEMBERED],
    next: usize,
}

/// How a process reads. The default is what is taken for granted of who is no walker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Walker {
    /// The order that it has shown last.
    pub(crate) order: Order,
    /// Not all who walk read everything: `grep --include`.
    pub(crate) reads_long_files: bool,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    process: u32,
    /// How many pushes it started: one in each directory, or part of a large one.
    pushes: u32,
    reads_long_files: bool,
    order: Order,
    /// A directory whose order says nothing of others: the last one that is too long to be read as listed.
    long_directory: Option<u64>,
    /// What it read last, and in which directory.
    last: Option<(u64, Spot)>,
    /// The file that it reads from its beginning on, and how far it has come.
    run: Option<(u64, u64)>,
    /// The order that it showed in this directory when it last showed one, and how often in a row.
    streak: (Order, u32),
}

impl Walkers {
    const REMEMBERED: usize = 16;
    /// Pushes that make a reader a walker.
    const PUSHES: u32 = 3;
    /// Pairs of files that make an order: one shows one of the two even to who reads at random.
    const PAIRS: u32 = 3;

    /// What is known of a walker. `None` for who is none.
    pub(crate) fn walker(&self, process: u32) -> Option<Walker> {
        let seen = self.find(process).filter(|seen| seen.is_walker())?;
        Some(Walker { order: seen.order, reads_long_files: seen.reads_long_files })
    }

    /// A process gets the list of a directory of so many entries.
    pub(crate) fn note_list(&mut self, process: u32, directory: u64, entries: usize) {
        if let Some(seen) = self.find_mut(process)
            && Order::expected(Order::Listed, entries) != Order::Listed
        {
            seen.long_directory = Some(directory);
        }
    }

    /// A process reads the beginning of a file.
    pub(crate) fn read(&mut self, process: u32, directory: u64, spot: Spot) -> Reader {
        let Some(seen) = self.find_mut(process) else { return Reader::default() };
        let shown = seen.shows(directory, spot);
        if seen.long_directory != Some(directory) {
            seen.order = shown.unwrap_or(seen.order);
        }
        Reader { is_walker: seen.is_walker(), order: seen.order, shown }
    }

    /// A process reads a part of a file. Who looks at the end of a long one does not read it.
    pub(crate) fn note_part(&mut self, process: u32, file: u64, part: Range<u64>) {
        if let Some(seen) = self.find_mut(process) {
            let before = seen.run.filter(|(of, to)| *of == file && part.start <= to + READER_BYTES);
            seen.run = match before.filter(|_| part.start > 0) {
                Some((_, to)) => Some((file, to.max(part.end))),
                None => (part.start == 0).then_some((file, part.end)),
            };
            seen.reads_long_files |= seen.run.is_some_and(|(_, to)| to > INLINE_OPEN_BYTES);
        }
    }

    /// A read of this process started a push.
    pub(crate) fn note_push(&mut self, process: u32, directory: u64, spot: Spot) {
        // Readers in another process namespace are all called 0.
        if process == 0 {
            return;
        }
        if let Some(seen) = self.find_mut(process) {
            seen.pushes = seen.pushes.saturating_add(1);
        } else {
            let last = Some((directory, spot));
            self.seen[self.next] = Seen { process, pushes: 1, last, ..Seen::default() };
            self.next = (self.next + 1) % Self::REMEMBERED;
        }
    }

    fn find(&self, process: u32) -> Option<&Seen> {
        self.seen.iter().find(|seen| seen.process == process && process != 0)
    }

    fn find_mut(&mut self, process: u32) -> Option<&mut Seen> {
        self.seen.iter_mut().find(|seen| seen.process == process && process != 0)
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
    fn who_begins_to_read_three_directories_is_a_walker() {
        let mut walkers = Walkers::default();
        for directory in 1..=3 {
            assert_eq!(walkers.walker(7), None);
            walkers.note_push(7, directory, SPOT);
        }
        assert_eq!(walkers.walker(7), Some(Walker::default()));
        assert!(walkers.read(7, 3, SPOT).is_walker);
        assert!(!walkers.read(8, 3, SPOT).is_walker);
        const PART: u64 = 128 * 1024;
        let mut part = |file, start: u64| {
            walkers.note_part(7, file, start..start + PART);
            walkers.walker(7)
        };
        // The end of one, and a part far behind the beginning of another.
        for (file, start) in [(1, 9 * PART), (2, 0), (2, 20 * PART), (2, 21 * PART)] {
            assert_eq!(part(file, start), Some(Walker::default()));
        }
        // In order, but for what the kernel reads ahead.
        for start in [0, 1, 3, 2, 4, 6, 7, 5] {
            assert_eq!(part(3, start * PART), Some(Walker::default()));
        }
        part(3, 8 * PART);
        let reads_all = Walker { order: Order::Listed, reads_long_files: true };
        assert_eq!(walkers.walker(7), Some(reads_all));
    }

    #[test]
    fn processes_of_another_namespace_are_nobody() {
        let mut walkers = Walkers::default();
        (0..9).for_each(|directory| walkers.note_push(0, directory, SPOT));
        assert_eq!(walkers.walker(0), None);
        assert_eq!(walkers.read(0, 1, SPOT), Reader::default());
        walkers.note_part(0, 1, 0..2 << 20);
        assert_eq!(walkers.walker(0), None);
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
        walkers.note_list(7, 2, 10_001);
        assert_eq!(read(&mut walkers, 2, &NUMBERED)[3], Some(Order::Numbered));
        assert_eq!(walkers.read(7, 3, SPOT).order, Order::Listed);
        walkers.note_list(7, 4, 10_000);
        read(&mut walkers, 4, &NUMBERED);
        assert_eq!(walkers.read(7, 5, SPOT).order, Order::Numbered);
    }

    #[test]
    fn who_reads_at_random_rarely_shows_an_order() {
        let mut walkers = Walkers::default();
        walkers.note_push(7, 1, SPOT);
        let alternating = [(1, 40), (2, 30), (1, 50), (2, 20), (1, 60), (2, 10), (1, 70)];
        assert_eq!(read(&mut walkers, 2, &alternating), [None; 7]);
    }
}
