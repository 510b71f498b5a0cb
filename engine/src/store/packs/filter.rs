//! Which objects a pack certainly does not have.
//!
//! A new object is asked for in every pack. The index on the disk answers with a read each time;
//! this Bloom filter in memory spares 99 of 100 reads, with one cache line for each question.

use crate::object::ContentHash;

/// A block is a cache line.
const BLOCK_WORDS: usize = 8;
const BLOCK_BITS: usize = BLOCK_WORDS * 64;
/// Twelve bits for each object.
const OBJECTS_PER_BLOCK: usize = BLOCK_BITS / 12;
/// Bits of each object, nine bits of its name for each.
const PROBES: u32 = 5;

/// A blocked Bloom filter (Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom
/// Filters", 2007). Names are hashes already.
#[derive(Debug)]
pub(super) struct Filter(Box<[[u64; BLOCK_WORDS]]>);

impl Filter {
    /// A filter for so many objects.
    pub(super) fn for_objects(count: usize) -> Self {
        let blocks = count / OBJECTS_PER_BLOCK + 1;
        Self(vec![[0; BLOCK_WORDS]; blocks].into())
    }

    pub(super) fn add(&mut self, hash: &ContentHash) {
        let (block, probes) = self.place_of(hash);
        let block = &mut self.0[block];
        probes.for_each(|(word, bit)| block[word] |= bit);
    }

    /// Whether an object may be in the pack; false is certain.
    pub(super) fn may_have(&self, hash: &ContentHash) -> bool {
        let (block, mut probes) = self.place_of(hash);
        let block = &self.0[block];
        probes.all(|(word, bit)| block[word] & bit != 0)
    }

    /// The block of an object, and its bits there. The fan-out of the index uses other bytes of the
    /// name, so the objects that share a place there do not share a block here.
    fn place_of(&self, hash: &ContentHash) -> (usize, impl Iterator<Item = (usize, u64)> + use<>) {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&hash.as_bytes()[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let (first, second) = (word(8), word(16));
        let bit_of = move |probe: u32| (second >> (probe * 9)) as usize % BLOCK_BITS;
        let probes = (0..PROBES).map(bit_of).map(|bit| (bit / 64, 1 << (bit % 64)));
        (first as usize % self.0.len(), probes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::packs::{Entry, Kind, Span};

    fn entries(numbers: std::ops::Range<u32>) -> Vec<Entry> {
        let hash = |number: u32| ContentHash::of(&number.to_le_bytes());
        numbers
            .map(|n| Entry { hash: hash(n), span: Span { offset: 0, len: 0, kind: Kind::Whole } })
            .collect()
    }

    #[test]
    fn what_is_there_is_never_denied_and_what_is_not_mostly_is() {
        for count in [0, 1, 42, 43, 10_000] {
            let there = entries(0..count);
            let mut filter = Filter::for_objects(there.len());
            there.iter().for_each(|entry| filter.add(&entry.hash));
            assert!(there.iter().all(|entry| filter.may_have(&entry.hash)), "{count}");
            let others = entries(1_000_000..1_010_000);
            let wrong = others.iter().filter(|entry| filter.may_have(&entry.hash)).count();
            assert!(wrong < 200, "{wrong} of 10,000 with {count}");
        }
    }
}
