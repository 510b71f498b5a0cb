//! Who reads its way through directories, and how.

use crate::nodes::{Order, Reader, Spot};

/// Processes that began to read directories: `grep -r`, `tar`, `cp -a`.
#[derive(Default)]
pub(crate) struct Walkers {
    seen: [Seen; Self::REMEMBERED],
    next: usize,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    process: u32,
    /// For how many of them, or parts of them, it was the first who read.
    directories: u32,
    /// Not all who walk read everything: `grep --include`.
    reads_long_files: bool,
    /// In which order it read, as far as it has shown that.
    order: Order,
    /// What it read last, and in which directory.
    last: Option<(u64, Spot)>,
}

impl Walkers {
    const REMEMBERED: usize = 16;
    /// Directories (or large parts of one) that make a reader a walker.
    const DIRECTORIES: u32 = 3;

    /// In which order a walker mostly reads. `None` for who is none.
    pub(crate) fn order_of(&self, process: u32) -> Option<Order> {
        self.find(process).filter(|seen| seen.is_walker()).map(|seen| seen.order)
    }

    /// Whether this is a walker that reads long files too.
    pub(crate) fn reads_long_files(&self, process: u32) -> bool {
        self.find(process).is_some_and(|seen| seen.is_walker() && seen.reads_long_files)
    }

    /// A process reads a file that it has not read before.
    pub(crate) fn read(&mut self, process: u32, directory: u64, spot: Spot) -> Reader {
        let Some(seen) = self.find_mut(process) else { return Reader::default() };
        let before = seen.last.replace((directory, spot));
        let before = before.filter(|(other, _)| *other == directory);
        let shown = before.and_then(|(_, before)| before.order_to(spot));
        seen.order = shown.unwrap_or(seen.order);
        Reader { is_walker: seen.is_walker(), usual: seen.order, shown }
    }

    /// This process has begun to read a file that is too long to be pushed.
    pub(crate) fn note_long_file(&mut self, process: u32) {
        if let Some(seen) = self.find_mut(process) {
            seen.reads_long_files = true;
        }
    }

    /// A read of this process started a push.
    pub(crate) fn note_push(&mut self, process: u32, directory: u64, spot: Spot) {
        // Readers in another process namespace are all called 0.
        if process == 0 {
            return;
        }
        if let Some(seen) = self.find_mut(process) {
            seen.directories = seen.directories.saturating_add(1);
        } else {
            let last = Some((directory, spot));
            self.seen[self.next] = Seen { process, directories: 1, last, ..Seen::default() };
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
        self.directories >= Walkers::DIRECTORIES
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
            assert_eq!(walkers.order_of(7), None);
            walkers.note_push(7, directory, SPOT);
        }
        assert_eq!(walkers.order_of(7), Some(Order::Listed));
        assert!(walkers.read(7, 3, SPOT).is_walker);
        assert!(!walkers.read(8, 3, SPOT).is_walker);
        assert!(!walkers.reads_long_files(7));
        walkers.note_long_file(7);
        assert!(walkers.reads_long_files(7));
    }

    #[test]
    fn processes_of_another_namespace_are_nobody() {
        let mut walkers = Walkers::default();
        (0..9).for_each(|directory| walkers.note_push(0, directory, SPOT));
        assert_eq!(walkers.order_of(0), None);
        assert_eq!(walkers.read(0, 1, SPOT), Reader::default());
        walkers.note_long_file(0);
        assert!(!walkers.reads_long_files(0));
    }

    #[test]
    fn an_order_is_shown_within_a_directory_and_remembered() {
        let mut walkers = Walkers::default();
        walkers.note_push(7, 1, SPOT);
        let by_number = Spot { index: 2, number: 60 };
        assert_eq!(walkers.read(7, 2, by_number).shown, None);
        let next = Spot { index: 1, number: 70 };
        assert_eq!(walkers.read(7, 2, next).shown, Some(Order::Numbered));
        let elsewhere = walkers.read(7, 3, SPOT);
        assert_eq!((elsewhere.shown, elsewhere.usual), (None, Order::Numbered));
    }
}
