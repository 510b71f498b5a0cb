//! In which state a store is, as far as times tell: for whoever counts on objects without looking
//! at them.
//!
//! To replace or write a pack, or to remove an object that has a file of its own, always leaves a
//! new ctime: of the pack, of the fan-out directory. Storing an object moves the latter as well, so
//! what changed is only doubtful. A writer of objects finds out whether other changes happened
//! ([`account`](super::account)).

use crate::object::FileTime;

/// Which pack, in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackState {
    /// The 32 digits of its name, decoded.
    pub name: [u8; 16],
    /// Its ctime.
    pub changed_at: FileTime,
}

/// When objects were last added to or removed from a fan-out directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FanOut {
    /// It is not there.
    Absent,
    /// It has this ctime, which anything that is done to it from now on changes.
    At(FileTime),
    /// It may have lost an object, or could without a new ctime, because the clock has not moved
    /// since the last one.
    Doubtful,
}

impl FanOut {
    /// The state of one with this ctime (`None`: it is not there), which was asked for after a time
    /// that was [`coarse_now`](crate::sys::coarse_now).
    pub fn seen(since: FileTime, ctime: Option<FileTime>) -> Self {
        match ctime {
            None => Self::Absent,
            Some(time) if time.is_racy(since) => Self::Doubtful,
            Some(time) => Self::At(time),
        }
    }
}

/// The 256 fan-out directories, in which objects have files of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FanOuts(Box<[FanOut; 256]>);

impl FanOuts {
    /// Each of them in the state that is told for its prefix.
    pub fn new(state: impl Fn(u8) -> FanOut) -> Self {
        Self(Box::new(std::array::from_fn(|prefix| state(prefix as u8))))
    }

    /// The state of one.
    pub fn get(&self, prefix: u8) -> FanOut {
        self.0[usize::from(prefix)]
    }

    /// Whether one has lost nothing since, for certain.
    pub(crate) fn is_same(&self, prefix: u8, now: FanOut) -> bool {
        self.get(prefix) != FanOut::Doubtful && self.get(prefix) == now
    }
}
