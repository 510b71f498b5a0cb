//! Which lists need no inodes, because whoever reads them looks at nothing but the names.
//!
//! A list may name its entries to the kernel (`mount/src/wire/list.rs`), which makes an inode of each: 3 µs that `ls -l`, `grep -r` and `cp`
//! save a question with, and that `find`, `ls` and completion spend for nothing, as the kind of an entry is in the
//! list. Of a file that is in the list with nothing but its name, the kernel asks when somebody looks at it (LOOKUP), which takes about as long.
//! Directories are always named: who walks a tree goes into them.
//!
//! What a program will do follows from what it did. Programs that walk a tree are through with a directory when they
//! list one that is not below it; so each directory that a program *leaves* without having looked at its files says that it only lists,
//! and each look says the contrary. A program has a *credit*, of looks that it may cost: a list of names takes as many as there are files in it,
//! to leave it gives back [more](Credit::GAIN), and a look takes [some](Credit::LOOK). So a wrong guess costs no more messages than the
//! [first credit](Credit::FIRST), or a part of what right ones have saved.
//!
//! The kernel keeps lists, also for the next program. When another one looks at files of which there are only names, such lists
//! are [taken back](Recall): whoever reads them next asks, and gets what it needs. Who listed for others has no credit any more.

/// Programs that listed directories lately.
#[derive(Default)]
pub(crate) struct Listers {
    seen: [Lister; Self::REMEMBERED],
    next: usize,
    /// Directories of whose files the kernel has nothing but names; some may be gone.
    names_only: Vec<u64>,
    /// Looks at their files by others than who got the names.
    foreign_looks: usize,
}

/// Directories whose lists the kernel should forget.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Recall(pub(crate) Vec<u64>);

#[derive(Default)]
struct Lister {
    /// 0: none.
    process: u32,
    credit: Credit,
    /// Lists of names, each of a directory below the one before.
    outstanding: Vec<Outstanding>,
}

#[derive(Clone, Copy)]
struct Outstanding {
    directory: u64,
    files: u32,
}

/// Looks that a program may cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Credit(i64);

impl Listers {
    const REMEMBERED: usize = 16;
    /// Levels of a tree.
    const MOST_OUTSTANDING: usize = 256;
    /// Lists that can be taken back: 2 MiB.
    const MOST_NAMES_ONLY: usize = 256 * 1024;
    /// Looks after which they are.
    const FOREIGN_LOOKS: usize = 8;

    /// A process begins to read the list of a directory with so many files. Says whether the names are enough for it.
    /// `is_below` says whether that directory is below another.
    pub(crate) fn begins(
        &mut self,
        process: u32,
        directory: u64,
        files: usize,
        is_below: impl Fn(u64) -> bool,
    ) -> bool {
        // Programs of another process namespace are all called 0.
        if process == 0 {
            return false;
        }
        let lister = self.of(process);
        while let Some(last) = lister.outstanding.last()
            && !is_below(last.directory)
        {
            if last.directory == directory {
                lister.credit.give_back(last.files);
            } else {
                lister.credit.gain(last.files);
            }
            lister.outstanding.pop();
        }
        let Ok(files) = u32::try_from(files) else { return false };
        let is_enough =
            lister.outstanding.len() < Self::MOST_OUTSTANDING && lister.credit.take(files);
        if is_enough && files > 0 {
            lister.outstanding.push(Outstanding { directory, files });
            if self.names_only.len() == Self::MOST_NAMES_ONLY {
                // They stay as they are, at the cost of some messages.
                self.names_only.clear();
            }
            self.names_only.push(directory);
        }
        is_enough
    }

    /// `process` looked at a file in a list of which `lister` got the names.
    pub(crate) fn looked(&mut self, process: u32, lister: u32) -> Option<Recall> {
        let is_foreign = process != lister;
        self.foreign_looks += usize::from(is_foreign);
        let is_recalled = self.foreign_looks >= Self::FOREIGN_LOOKS && !self.names_only.is_empty();
        if let Some(lister) = self.seen.iter_mut().find(|seen| seen.process == lister) {
            match is_foreign && is_recalled {
                // It lists for others, as in `find | xargs`.
                true => lister.credit = Credit::NONE,
                false => lister.credit.look(),
            }
        }
        is_recalled.then(|| {
            self.foreign_looks = 0;
            Recall(std::mem::take(&mut self.names_only))
        })
    }

    fn of(&mut self, process: u32) -> &mut Lister {
        let known = self.seen.iter().position(|lister| lister.process == process);
        let index = known.unwrap_or_else(|| {
            let index = self.next;
            self.next = (index + 1) % Self::REMEMBERED;
            self.seen[index] = Lister { process, ..Lister::default() };
            index
        });
        &mut self.seen[index]
    }
}

impl Credit {
    /// Of a program of which nothing is known.
    const FIRST: i64 = 32;
    /// Of a program that wants nodes from now on.
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

impl Default for Credit {
    fn default() -> Self {
        Self(Self::FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: u32 = 7;

    /// Directories are numbered so that 12 is in 1 and 123 in 12.
    fn is_below(directory: u64) -> impl Fn(u64) -> bool {
        move |above| {
            let mut up = directory / 10;
            while up != 0 && up != above {
                up /= 10;
            }
            up == above
        }
    }

    fn begins(listers: &mut Listers, directory: u64, files: usize) -> bool {
        listers.begins(PROCESS, directory, files, is_below(directory))
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
        (1..4).for_each(|directory| assert!(begins(&mut listers, directory, 10)));
        assert!(begins(&mut listers, 4, 0), "of nothing there is nothing to take back");
        let look = |listers: &mut Listers| listers.looked(8, PROCESS);
        (1..Listers::FOREIGN_LOOKS).for_each(|_| assert_eq!(look(&mut listers), None));
        assert_eq!(look(&mut listers), Some(Recall(vec![1, 2, 3])));
        (0..100).for_each(|_| assert_eq!(look(&mut listers), None));
        assert!(!begins(&mut listers, 5, 1), "it lists for others");
        assert!(listers.begins(9, 5, 1, is_below(5)));
    }

    #[test]
    fn processes_are_told_apart_and_forgotten() {
        let mut listers = Listers::default();
        assert!(!listers.begins(0, 1, 1, is_below(1)), "of another namespace");
        assert!(begins(&mut listers, 1, 20));
        assert!(listers.begins(8, 1, 20, is_below(1)));
        (0..20).for_each(|_| drop(listers.looked(8, 8)));
        assert!(begins(&mut listers, 2, 20));
        (9..)
            .take(Listers::REMEMBERED)
            .for_each(|other| assert!(listers.begins(other, 1, 0, is_below(1))));
        assert_eq!(listers.looked(9, PROCESS), None);
        assert!(begins(&mut listers, 3, 32), "it is new");
    }
}
