//! Sums over trees.

/// The contents of a tree, subtrees included, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) files: u64,
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl Count {
    pub(super) fn plus(self, other: Self) -> Option<Self> {
        Some(Self {
            files: self.files.checked_add(other.files)?,
            entries: self.entries.checked_add(other.entries)?,
            bytes: self.bytes.checked_add(other.bytes)?,
        })
    }
}

/// The sum of a tree, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sum {
    Known(Count),
    /// Something below cannot be read.
    Unknown,
    /// Beyond 64 bits, which nothing that was ever captured is.
    TooLarge,
}

impl Sum {
    pub(super) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Known(a), Self::Known(b)) => a.plus(b).map_or(Self::TooLarge, Self::Known),
            _ => Self::TooLarge,
        }
    }
}
