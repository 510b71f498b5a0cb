//! The parts of a store that a cache counts on, and the ones that may be gone.

use super::fields::{Fields, put_time, put_u32};
use crate::object::{ContentHash, FileTime};
use crate::store::{FanOut, FanOuts, PackState};

/// Bytes of a pack in a cache.
pub(super) const PACK_BYTES: usize = 28;
/// Bytes of the fan-out directories in a cache.
const FAN_OUT_BYTES: usize = 256 * 12;
/// In the place of times, which no file system keeps.
const ABSENT: FileTime = FileTime { seconds: i64::MIN, nanoseconds: 0 };
const DOUBTFUL: FileTime = FileTime { seconds: i64::MIN, nanoseconds: 1 };

/// The parts of its store that a cache counts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedOn {
    /// The packs that can be read.
    pub packs: Vec<PackState>,
    /// Where objects have files of their own.
    pub fan_outs: FanOuts,
}

impl CountedOn {
    /// The parts that a finished cache counts on: packs that existed at any time since this
    /// beginning, because unread entries may be in packs that went.
    pub(super) fn until(&self, now: &Self) -> Self {
        let mut packs = [&*self.packs, &*now.packs].concat();
        packs.sort_unstable();
        packs.dedup();
        Self { packs, fan_outs: now.fan_outs.clone() }
    }

    /// The parts that may be gone now.
    pub(super) fn doubtful(&self, now: &Self) -> Doubtful {
        let are_there = self.packs.iter().all(|pack| now.packs.contains(pack));
        let is_same = |prefix| self.fan_outs.is_same(prefix, now.fan_outs.get(prefix));
        Doubtful(std::array::from_fn(|prefix| !(are_there && is_same(prefix as u8))))
    }

    /// Last bytes of a cache, before its checksum.
    pub(super) fn footer(&self) -> Vec<u8> {
        let bytes = FAN_OUT_BYTES + self.packs.len() * PACK_BYTES + 4;
        let mut out = Vec::with_capacity(bytes);
        for prefix in 0..=u8::MAX {
            put_time(
                &mut out,
                match self.fan_outs.get(prefix) {
                    FanOut::Absent => ABSENT,
                    FanOut::At(time) => time,
                    FanOut::Doubtful => DOUBTFUL,
                },
            );
        }
        for PackState { name, changed_at } in &self.packs {
            out.extend_from_slice(name);
            put_time(&mut out, *changed_at);
        }
        put_u32(&mut out, self.packs.len());
        out
    }

    /// Divides what follows the header of a cache, without the checksum, into records and this.
    pub(super) fn split_footer(body: &[u8]) -> Option<(&[u8], Self)> {
        let (rest, count) = body.split_last_chunk::<4>()?;
        let bytes = (u32::from_le_bytes(*count) as usize).checked_mul(PACK_BYTES)?;
        let (rest, packs) = rest.split_at(rest.len().checked_sub(bytes)?);
        let (records, fan_outs) = rest.split_last_chunk::<FAN_OUT_BYTES>()?;
        let mut fields = Fields { bytes: fan_outs, at: 0 };
        let fan_outs = std::iter::from_fn(|| fields.time()).map(|time| match time {
            ABSENT => FanOut::Absent,
            DOUBTFUL => FanOut::Doubtful,
            time => FanOut::At(time),
        });
        let fan_outs: Vec<_> = fan_outs.collect();
        let fan_outs = FanOuts::new(|prefix| fan_outs[usize::from(prefix)]);
        let mut fields = Fields { bytes: packs, at: 0 };
        let pack = || Some(PackState { name: fields.array()?, changed_at: fields.time()? });
        Some((records, Self { packs: std::iter::from_fn(pack).collect(), fan_outs }))
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
    /// All.
    fn default() -> Self {
        Self([true; 256])
    }
}

/// Says whether an object is in a store, of this length.
pub type Holds<'a> = dyn Fn(&ContentHash, u64) -> bool + Sync + 'a;

/// A store as a cache knows it.
pub struct StoreState<'a> {
    /// New whenever objects are removed.
    pub generation: [u8; 16],
    /// As it is before a cache is read.
    pub counted_on: CountedOn,
    /// Whether an object is there.
    pub holds: Box<Holds<'a>>,
}

impl std::fmt::Debug for StoreState<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreState").field("counted_on", &self.counted_on).finish_non_exhaustive()
    }
}
