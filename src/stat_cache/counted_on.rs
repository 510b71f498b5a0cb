//! What a cache counts on in its store, and what of that may be gone.
//!
//! Nobody can replace or write a pack, or remove an object that has a file of its own, without a new ctime: of the
//! pack, of the fan-out directory. Storing an object moves the latter as well, so what changed is only doubtful.
//! Whoever stores objects finds out whether that is all that happened (`store/account.rs`).

use super::fields::{Fields, put_time, put_u32};
use crate::object::{ContentHash, FileTime};

/// Which pack, in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackState {
    /// What the 32 digits of its name say.
    pub name: [u8; 16],
    /// Its ctime.
    pub changed_at: FileTime,
}

impl PackState {
    /// Bytes in a cache.
    pub(super) const BYTES: usize = 28;

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.name);
        put_time(out, self.changed_at);
    }

    fn of(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut fields = Fields { bytes, at: 0 };
        Some(Self { name: fields.array()?, changed_at: fields.time()? })
    }
}

/// The ctimes of the 256 fan-out directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FanOutTimes(Box<[FileTime; 256]>);

impl FanOutTimes {
    /// Bytes in a cache.
    const BYTES: usize = 256 * 12;
    /// Of a directory that is not there.
    const ABSENT: FileTime = FileTime { seconds: i64::MIN, nanoseconds: 0 };
    /// Of one that could change without a new ctime, because the clock has not moved since. Equal to none that is seen.
    const UNSETTLED: FileTime = FileTime { seconds: i64::MIN, nanoseconds: 1 };

    /// What was seen at a time, which is [`coarse_now`](crate::sys::coarse_now) before the first look.
    pub fn seen(at: FileTime, times: &[Option<FileTime>; 256]) -> Self {
        Self(Box::new(times.map(|time| Self::settled(time, at))))
    }

    fn settled(time: Option<FileTime>, seen_at: FileTime) -> FileTime {
        match time {
            None => Self::ABSENT,
            Some(time) if time.is_racy(seen_at) => Self::UNSETTLED,
            Some(time) => time,
        }
    }

    /// Whether one of them is, for certain, as it was, if this is its ctime by now.
    pub(crate) fn is_same(&self, prefix: u8, now: Option<FileTime>, seen_at: FileTime) -> bool {
        let before = self.0[usize::from(prefix)];
        before != Self::UNSETTLED && before == Self::settled(now, seen_at)
    }

    /// Whether one of them is, for certain, as it was.
    pub(crate) fn is_same_in(&self, now: &Self, prefix: u8) -> bool {
        let at = usize::from(prefix);
        self.0[at] != Self::UNSETTLED && self.0[at] == now.0[at]
    }

    /// One of them may have lost something.
    pub(crate) fn doubt(&mut self, prefix: u8) {
        self.0[usize::from(prefix)] = Self::UNSETTLED;
    }

    /// Which of the directories changed since, for all that is known.
    fn changed(&self, now: &Self) -> [bool; 256] {
        std::array::from_fn(|prefix| !self.is_same_in(now, prefix as u8))
    }
}

/// What a cache counts on in its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedOn {
    /// The packs that can be read.
    pub packs: Vec<PackState>,
    /// Where objects have files of their own.
    pub fan_out: FanOutTimes,
}

impl CountedOn {
    /// What a cache counts on that was begun with this and is complete now: packs that were there at any time, as what
    /// was not read since may be in those that went.
    pub(super) fn until(&self, now: &Self) -> Self {
        let mut packs = [&*self.packs, &*now.packs].concat();
        packs.sort_unstable();
        packs.dedup();
        Self { packs, fan_out: now.fan_out.clone() }
    }

    /// What may be gone now.
    pub(super) fn doubtful(&self, now: &Self) -> Doubtful {
        if self.packs.iter().all(|pack| now.packs.contains(pack)) {
            Doubtful(self.fan_out.changed(&now.fan_out))
        } else {
            Doubtful([true; 256])
        }
    }

    /// Last bytes of a cache, before its checksum.
    pub(super) fn footer(&self) -> Vec<u8> {
        let bytes = FanOutTimes::BYTES + self.packs.len() * PackState::BYTES + 4;
        let mut out = Vec::with_capacity(bytes);
        self.fan_out.0.iter().for_each(|time| put_time(&mut out, *time));
        self.packs.iter().for_each(|pack| pack.put(&mut out));
        put_u32(&mut out, self.packs.len());
        out
    }

    /// Divides what follows the header of a cache, without the checksum, into records and this.
    pub(super) fn split_footer(body: &[u8]) -> Option<(&[u8], Self)> {
        let (rest, count) = body.split_last_chunk::<4>()?;
        let bytes = (u32::from_le_bytes(*count) as usize).checked_mul(PackState::BYTES)?;
        let (rest, packs) = rest.split_at(rest.len().checked_sub(bytes)?);
        let (records, times) = rest.split_last_chunk::<{ FanOutTimes::BYTES }>()?;
        let packs = packs.as_chunks().0.iter().map(PackState::of).collect::<Option<_>>()?;
        let mut times = Fields { bytes: times, at: 0 };
        let mut fan_out = Box::new([FanOutTimes::ABSENT; 256]);
        for time in &mut *fan_out {
            *time = times.time()?;
        }
        Some((records, Self { packs, fan_out: FanOutTimes(fan_out) }))
    }
}

/// Objects that may be gone, by the first byte of their names.
#[derive(Debug)]
pub(super) struct Doubtful([bool; 256]);

impl Doubtful {
    pub(super) fn contains(&self, hash: &ContentHash) -> bool {
        self.0[usize::from(hash.as_bytes()[0])]
    }
}

impl Default for Doubtful {
    /// Nothing.
    fn default() -> Self {
        Self([false; 256])
    }
}

/// Says whether an object is in a store, of this length where it is known.
pub type Holds<'a> = dyn Fn(&ContentHash, Option<u64>) -> bool + Sync + 'a;

/// A store as a cache knows it.
pub struct StoreState<'a> {
    /// New whenever objects are removed.
    pub generation: [u8; 16],
    /// As it is before a cache is read.
    pub counted_on: CountedOn,
    /// Whether an object is there, of the length that is known of it.
    pub holds: Box<Holds<'a>>,
}

impl std::fmt::Debug for StoreState<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreState").field("counted_on", &self.counted_on).finish_non_exhaustive()
    }
}
