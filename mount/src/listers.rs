//! Which lists need no inodes, because whoever reads them looks at nothing but the names.
//!
//! A list may name its entries to the kernel, which makes an inode of each: 3 µs that `ls -l`, `grep -r` and `cp`
//! save a question with, and that `find`, `ls -U` and completion spend for nothing, as the kind of an entry is in
//! the list. Of a file that is in the list with nothing but its name, the kernel asks when somebody looks at it
//! (LOOKUP): 4 µs, or 60 where the [companion](crate::company) cannot answer. Directories are always named: who
//! walks a tree goes into them.
//!
//! What a thread of a program will do follows from what it did. Who walks a tree is through with a directory when it
//! lists one that is not below it; so each directory that it *leaves* without having looked at the files says that
//! it only lists, and each look says the contrary. It has a *credit*, of looks that it may cost: a list of names
//! takes as many as there are files in it, to leave it gives back [more](Credit::GAIN), and a look takes
//! [some](Credit::LOOK). So a wrong guess costs no more messages than the [first credit](Credit::FIRST), or a part
//! of what right ones have saved. Of first credits there are only [some a second](Guesses), however many come.
//! Who has none gets nodes, and no way to earn any, for as long as it is remembered.
//!
//! The kernel keeps lists, also for the next program. When another one looks at files of which there are only names,
//! the lists that are [worth it](Listers::WORTH_RECALLING) are [taken back](Recall): whoever reads them next asks,
//! and gets what it needs. Who listed for others, as in `find | xargs`, has no credit any more.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;

/// Threads of programs that listed directories lately.
pub(crate) struct Listers {
    /// By their numbers.
    seen: LruCache<u32, Lister>,
    guesses: Guesses,
    /// Directories of whose files the kernel has nothing but names; some may be gone.
    names_only: Vec<u64>,
    /// Looks at files since the last recall, by others than who got the names.
    foreign_looks: usize,
}

struct Lister {
    credit: Credit,
    /// Lists of names, each of a directory below the one before.
    outstanding: Vec<Outstanding>,
}

#[derive(Clone, Copy)]
struct Outstanding {
    directory: u64,
    files: u32,
}

/// Looks that a thread may cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Credit(i64);

/// Looks that threads of which nothing is known may cost together.
struct Guesses {
    left: i64,
    refilled: Instant,
}

/// Directories whose lists the kernel should forget.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Recall(pub(crate) Vec<u64>);

impl Listers {
    const REMEMBERED: NonZeroUsize = NonZeroUsize::new(256).unwrap();
    /// Levels of a tree.
    const MOST_OUTSTANDING: usize = 64;
    /// Lists that can be taken back: 2 MiB.
    const MOST_NAMES_ONLY: usize = 256 * 1024;
    /// Looks after which they are.
    const FOREIGN_LOOKS: usize = 8;
    /// To take a list back costs three messages: the list, its end, and the attributes of the directory, which the
    /// kernel forgets with it. So the files are worth it from here on.
    const WORTH_RECALLING: usize = 4;

    /// A thread begins to read the list of a directory with so many files. Says whether the names are enough for it.
    /// `above` are the directories above, from the nearest on.
    pub(crate) fn begins(
        &mut self,
        process: u32,
        directory: u64,
        files: usize,
        above: impl Iterator<Item = u64>,
        now: Instant,
    ) -> bool {
        // Programs of another process namespace are all called 0.
        if process == 0 {
            return false;
        }
        let guesses = &mut self.guesses;
        let lister = self.seen.get_or_insert_mut(process, || Lister::new(guesses.first(now)));
        lister.leave_all_but(above, directory);
        let Ok(files) = u32::try_from(files) else { return false };
        let is_enough =
            lister.outstanding.len() < Self::MOST_OUTSTANDING && lister.credit.take(files);
        if is_enough && files > 0 {
            lister.outstanding.push(Outstanding { directory, files });
        }
        is_enough
    }

    /// The whole list of a directory with so many files was given, with nothing but their names.
    ///
    /// Not before its end: what is taken out of a list that the kernel has not got in full leaves it one that it
    /// never completes, and never uses (`fuse_readdir_cache_end`).
    pub(crate) fn ended(&mut self, directory: u64, files: usize) {
        if files < Self::WORTH_RECALLING {
            return;
        }
        if self.names_only.len() == Self::MOST_NAMES_ONLY {
            // They stay as they are, at the cost of some messages.
            self.names_only.clear();
        }
        self.names_only.push(directory);
    }

    /// `process` looked at a file in a list of which `lister` got the names.
    pub(crate) fn looked(&mut self, process: u32, lister: u32) -> Option<Recall> {
        let is_foreign = process != lister && !self.names_only.is_empty();
        self.foreign_looks += usize::from(is_foreign);
        let is_recalled = is_foreign && self.foreign_looks >= Self::FOREIGN_LOOKS;
        if let Some(lister) = self.seen.get_mut(&lister) {
            if is_recalled {
                lister.credit = Credit::NONE;
            } else {
                lister.credit.look();
            }
        }
        is_recalled.then(|| {
            self.foreign_looks = 0;
            Recall(std::mem::take(&mut self.names_only))
        })
    }
}

impl Default for Listers {
    fn default() -> Self {
        Self {
            seen: LruCache::new(Self::REMEMBERED),
            guesses: Guesses { left: Guesses::MOST, refilled: Instant::now() },
            names_only: Vec::new(),
            foreign_looks: 0,
        }
    }
}

impl Lister {
    fn new(credit: Credit) -> Self {
        Self { credit, outstanding: Vec::new() }
    }

    /// It lists a directory now, so it has left all that are not above.
    fn leave_all_but(&mut self, mut above: impl Iterator<Item = u64>, directory: u64) {
        if self.outstanding.is_empty() {
            return;
        }
        let place = |above: u64| self.outstanding.iter().rposition(|one| one.directory == above);
        let still_in = above.find_map(place).map_or(0, |place| place + 1);
        for left in self.outstanding.drain(still_in..) {
            if left.directory == directory {
                self.credit.give_back(left.files);
            } else {
                self.credit.gain(left.files);
            }
        }
    }
}

impl Guesses {
    const MOST: i64 = 8 * Credit::FIRST;
    /// In this time there is one more first credit.
    const REFILL: Duration = Duration::from_secs(1);

    /// The first credit of a thread of which nothing is known.
    fn first(&mut self, now: Instant) -> Credit {
        let refills = now.duration_since(self.refilled).as_secs() / Self::REFILL.as_secs();
        if refills > 0 {
            let refilled = i64::try_from(refills).unwrap_or(i64::MAX).saturating_mul(Credit::FIRST);
            self.left = self.left.saturating_add(refilled).min(Self::MOST);
            self.refilled = now;
        }
        let first = self.left.min(Credit::FIRST);
        self.left -= first;
        Credit(first)
    }
}

impl Credit {
    /// Of a thread of which nothing is known.
    const FIRST: i64 = 32;
    /// Of one that gets nodes from now on.
    const NONE: Self = Self(-Self::MOST);
    /// What a file gives that was not looked at.
    const GAIN: i64 = 8;
    /// What a file takes that was: who looks at half of the files gains nothing.
    const LOOK: i64 = 2 * Self::GAIN;
    /// Enough for the names in a very long list, and not more than some thousand looks take away.
    const MOST: i64 = 128 * 1024;

    /// False: there is not enough.
    fn take(&mut self, files: u32) -> bool {
        let left = self.0 - i64::from(files);
        let is_enough = left >= 0;
        if is_enough {
            self.0 = left;
        }
        is_enough
    }

    fn give_back(&mut self, files: u32) {
        self.0 = (self.0 + i64::from(files)).min(Self::MOST);
    }

    fn gain(&mut self, files: u32) {
        self.0 = (self.0 + (1 + Self::GAIN) * i64::from(files)).min(Self::MOST);
    }

    fn look(&mut self) {
        self.0 = (self.0 - Self::LOOK).max(-Self::MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: u32 = 7;

    /// Directories are numbered so that 12 is in 1 and 123 in 12.
    fn above(directory: u64) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(directory / 10), |up| Some(up / 10)).take_while(|up| *up > 0)
    }

    fn begins_of(listers: &mut Listers, process: u32, directory: u64, files: usize) -> bool {
        let now = listers.guesses.refilled;
        listers.begins(process, directory, files, above(directory), now)
    }

    /// A thread gets a list and all of it.
    fn begins(listers: &mut Listers, directory: u64, files: usize) -> bool {
        let is_enough = begins_of(listers, PROCESS, directory, files);
        if is_enough {
            listers.ended(directory, files);
        }
        is_enough
    }

    fn looks(listers: &mut Listers, count: usize) {
        (0..count).for_each(|_| assert_eq!(listers.looked(PROCESS, PROCESS), None));
    }

    #[test]
    fn who_leaves_directories_without_a_look_gets_names_of_longer_and_longer_ones() {
        let mut listers = Listers::default();
        assert!(begins(&mut listers, 1, 5));
        assert!(!begins(&mut listers, 11, 30));
        assert!(begins(&mut listers, 12, 20));
        assert!(!begins(&mut listers, 13, 1000));
        assert!(begins(&mut listers, 14, 180), "20 were left without a look");
        assert!(begins(&mut listers, 15, 1600));
        assert!(begins(&mut listers, 16, 14_000));
    }

    #[test]
    fn who_looks_at_files_soon_gets_none_and_who_looks_at_few_goes_on() {
        let mut listers = Listers::default();
        assert!(begins(&mut listers, 1, 10));
        looks(&mut listers, 2);
        assert!(!begins(&mut listers, 11, 1));
        // All of it was looked at, so leaving it changes little.
        looks(&mut listers, 8);
        assert!(!begins(&mut listers, 2, 1));

        let mut listers = Listers::default();
        for directory in 1..1000 {
            assert!(begins(&mut listers, directory, 10), "{directory}");
            looks(&mut listers, 4);
        }
    }

    #[test]
    fn a_guess_costs_no_more_than_the_first_credit() {
        let mut listers = Listers::default();
        let mut files = 0;
        for depth in 0..18 {
            if begins(&mut listers, 10_u64.pow(depth), 5) {
                files += 5;
            }
        }
        assert_eq!(files, 30);
        // Reading one list again and again shows nothing.
        let mut listers = Listers::default();
        (0..100).for_each(|_| assert!(begins(&mut listers, 1, 20)));
        assert!(!begins(&mut listers, 11, 20));
    }

    #[test]
    fn a_program_that_has_long_listed_and_looks_is_believed_within_some_thousand_looks() {
        let mut listers = Listers::default();
        (1..100).for_each(|directory| assert!(begins(&mut listers, directory, 30)));
        (1..100).for_each(|directory| assert!(begins(&mut listers, directory, 20_000)));
        assert!(begins(&mut listers, 100, 1), "and left the last long one");
        looks(&mut listers, 10_000);
        assert!(!begins(&mut listers, 101, 1));
    }

    #[test]
    fn lists_of_names_are_taken_back_when_others_look() {
        let mut listers = Listers::default();
        let look = |listers: &mut Listers| listers.looked(8, PROCESS);
        (0..100).for_each(|_| assert_eq!(look(&mut listers), None, "there is none"));
        assert!(begins(&mut listers, 1, 10));
        assert!(begins(&mut listers, 2, 10));
        assert!(begins(&mut listers, 3, Listers::WORTH_RECALLING - 1));
        assert!(begins_of(&mut listers, PROCESS, 4, 10), "of which the kernel has not all");
        (1..Listers::FOREIGN_LOOKS).for_each(|_| assert_eq!(look(&mut listers), None));
        assert_eq!(listers.looked(PROCESS, PROCESS), None);
        assert_eq!(look(&mut listers), Some(Recall(vec![1, 2])));
        (0..100).for_each(|_| assert_eq!(look(&mut listers), None));
        assert!(!begins(&mut listers, 5, 1), "it lists for others");
        assert!(begins_of(&mut listers, 9, 5, 1));
    }

    #[test]
    fn however_many_come_they_cost_some_looks_together() {
        let mut listers = Listers::default();
        let mut files = 0;
        for round in 0..3 {
            for process in 1..1000 {
                let is_enough = begins_of(&mut listers, process, 1, 10);
                files += i64::from(is_enough) * 10;
                (0..10).for_each(|_| drop(listers.looked(process, process)));
            }
            assert!(files <= Guesses::MOST, "{files} in round {round}");
        }
        let later = listers.guesses.refilled + Guesses::REFILL;
        assert!(listers.begins(1000, 1, 30, above(1), later));
        assert!(!listers.begins(1001, 1, 1, above(1), later));
    }

    #[test]
    fn only_some_levels_are_outstanding() {
        let mut listers = Listers::default();
        // A chain of directories, after enough credit was earned.
        (1..9).for_each(|directory| assert!(begins(&mut listers, directory, 3)));
        let up = |directory: u64| (100..directory).rev();
        let now = listers.guesses.refilled;
        let given = (101..).take(100).filter(|at| listers.begins(PROCESS, *at, 1, up(*at), now));
        assert_eq!(given.count(), Listers::MOST_OUTSTANDING);
    }

    #[test]
    fn threads_are_told_apart() {
        let mut listers = Listers::default();
        assert!(!begins_of(&mut listers, 0, 1, 1), "of another namespace");
        assert!(begins(&mut listers, 1, 20));
        assert!(begins_of(&mut listers, 8, 1, 20));
        (0..20).for_each(|_| drop(listers.looked(8, 8)));
        assert!(begins(&mut listers, 2, 20));
        assert!(!begins_of(&mut listers, 8, 2, 1));
    }
}
