//! In which order a program reads the files of a directory.

/// An order of the files of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Order {
    /// As they are listed: most programs.
    #[default]
    Listed,
    /// By their inode numbers, which on a disk saves seeks: GNU `cp` (`SAVEDIR_SORT_FASTREAD`), and
    /// programs that walk with gnulib's `fts` (`grep -r`, `du`) in [long](Self::expected)
    /// directories.
    Numbered,
}

impl Order {
    /// `fts` sorts longer lists (`_FTS_INODE_SORT_DIR_ENTRIES_THRESHOLD`).
    const LONGEST_UNSORTED: usize = 10_000;

    /// The order in which a directory of so many entries is probably read by a program that has
    /// read another one in the order `last`.
    pub(crate) fn expected(last: Self, entries: usize) -> Self {
        if entries > Self::LONGEST_UNSORTED { Self::Numbered } else { last }
    }
}

/// Where a file is in its directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    /// Position in the list.
    pub(crate) index: u32,
    /// Inode number.
    pub(crate) number: u64,
}

impl Spot {
    /// Its position in an order. Positions are sorted and may have gaps.
    pub(crate) fn position(self, order: Order) -> u64 {
        match order {
            Order::Listed => self.index.into(),
            Order::Numbered => self.number,
        }
    }

    /// The order that a program shows by reading `next` after this one. `None`: it could be either.
    pub(crate) fn order_to(self, next: Self) -> Option<Order> {
        match (self.index < next.index, self.number < next.number) {
            (true, false) => Some(Order::Listed),
            (false, true) => Some(Order::Numbered),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_files_show_an_order_if_only_one_has_it() {
        let spot = |index, number| Spot { index, number };
        assert_eq!(spot(1, 50).order_to(spot(2, 40)), Some(Order::Listed));
        assert_eq!(spot(2, 40).order_to(spot(1, 50)), Some(Order::Numbered));
        assert_eq!(spot(1, 40).order_to(spot(2, 50)), None);
        assert_eq!(spot(2, 50).order_to(spot(1, 40)), None);
        assert_eq!(spot(2, 50).order_to(spot(2, 50)), None);
    }

    #[test]
    fn long_lists_are_read_by_number() {
        assert_eq!(Order::expected(Order::Listed, 10_000), Order::Listed);
        assert_eq!(Order::expected(Order::Numbered, 1), Order::Numbered);
        assert_eq!(Order::expected(Order::Listed, 10_001), Order::Numbered);
    }
}
