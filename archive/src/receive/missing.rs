//! The files that a store lacks, by hash: few in memory, the others sorted in files.

use std::collections::BTreeMap;

use crate::ArchiveError;
use crate::spill::Spilled;
use nono_engine::object::ContentHash;

/// Maximum number of records that are held in memory.
const HELD: usize = 1 << 16;
/// Bytes of a record: hash and length.
const RECORD_BYTES: usize = 40;
/// Records that are read at once. The hash of the first one is in memory.
const STEP: usize = 32;

/// A set of hashes with the lengths of the files. Memory is bounded by [`HELD`], and by a bit and a
/// quarter of a byte for each file.
#[derive(Debug, Default)]
pub(super) struct MissingFiles {
    held: BTreeMap<ContentHash, u64>,
    runs: Vec<Run>,
}

/// Records, sorted by hash.
#[derive(Debug)]
struct Run {
    file: Spilled,
    count: usize,
    /// The beginning of the first hash of each step.
    steps: Vec<u64>,
    /// A bit for each record that is not missing any more.
    came: Vec<u64>,
    left: usize,
}

impl MissingFiles {
    /// Adds a file, unless it is there.
    pub(super) fn insert(&mut self, hash: ContentHash, size: u64) -> Result<(), ArchiveError> {
        self.held.insert(hash, size);
        if self.held.len() < HELD {
            return Ok(());
        }
        let mut records = std::mem::take(&mut self.held).into_iter();
        self.runs.push(Run::new(|| Ok(records.next()))?);
        Ok(())
    }

    /// The length of a file, if it is missing.
    pub(super) fn get(&self, hash: &ContentHash) -> Result<Option<u64>, ArchiveError> {
        if let Some(size) = self.held.get(hash) {
            return Ok(Some(*size));
        }
        for run in &self.runs {
            if let Some((_, size)) = run.find(hash)? {
                return Ok(Some(size));
            }
        }
        Ok(None)
    }

    /// A file is not missing any more.
    pub(super) fn remove(&mut self, hash: &ContentHash) -> Result<(), ArchiveError> {
        self.held.remove(hash);
        for run in &mut self.runs {
            if let Some((at, _)) = run.find(hash)? {
                run.came[at / 64] |= 1 << (at % 64);
                run.left -= 1;
            }
        }
        self.runs.retain(|run| run.left > 0);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.runs.is_empty()
    }

    /// One of them.
    pub(super) fn first(&self) -> Result<Option<ContentHash>, ArchiveError> {
        if let Some((hash, _)) = self.held.first_key_value() {
            return Ok(Some(*hash));
        }
        match self.runs.first() {
            Some(run) => Ok(Records::new(run).next()?.map(|(hash, _)| hash)),
            None => Ok(None),
        }
    }

    /// Makes one run of many: each is asked for every file that comes.
    pub(super) fn merge(&mut self) -> Result<(), ArchiveError> {
        if self.runs.len() < 2 {
            return Ok(());
        }
        let mut sources: Vec<_> = self.runs.iter().map(Records::new).collect();
        let mut heads = Vec::new();
        for source in &mut sources {
            heads.push(source.next()?);
        }
        let merged = Run::new(|| {
            let least = heads.iter().flatten().min().copied();
            for (head, source) in heads.iter_mut().zip(&mut sources) {
                // The same file may be in several.
                if head.is_some_and(|(hash, _)| least.is_some_and(|(first, _)| first == hash)) {
                    *head = source.next()?;
                }
            }
            Ok(least)
        })?;
        self.runs = vec![merged];
        Ok(())
    }
}

impl Run {
    /// Writes records that come sorted.
    fn new(
        mut next: impl FnMut() -> Result<Option<(ContentHash, u64)>, ArchiveError>,
    ) -> Result<Self, ArchiveError> {
        const WRITE_BYTES: usize = RECORD_BYTES * STEP * 256;
        let (file, mut steps) = (Spilled::new()?, Vec::new());
        let (mut buffer, mut at, mut count) = (Vec::with_capacity(WRITE_BYTES), 0, 0);
        while let Some((hash, size)) = next()? {
            if count % STEP == 0 {
                steps.push(key(&hash));
            }
            buffer.extend_from_slice(hash.as_bytes());
            buffer.extend_from_slice(&size.to_le_bytes());
            count += 1;
            if buffer.len() == WRITE_BYTES {
                file.write(&buffer, at)?;
                at += buffer.len() as u64;
                buffer.clear();
            }
        }
        file.write(&buffer, at)?;
        Ok(Self { file, count, steps, came: vec![0; count.div_ceil(64)], left: count })
    }

    /// The place of a file that is still missing, and its length.
    fn find(&self, hash: &ContentHash) -> Result<Option<(usize, u64)>, ArchiveError> {
        let wanted = key(hash);
        // Equal beginnings may begin in the step before, and go on over several.
        let first = self.steps.partition_point(|step| *step < wanted).saturating_sub(1);
        let end = self.steps.partition_point(|step| *step <= wanted);
        let mut buffer = [0; RECORD_BYTES * STEP];
        for step in first..end {
            for (at, (found, size)) in self.step(step, &mut buffer)?.enumerate() {
                let at = step * STEP + at;
                if found == *hash && !self.has_come(at) {
                    return Ok(Some((at, size)));
                }
            }
        }
        Ok(None)
    }

    fn has_come(&self, at: usize) -> bool {
        self.came[at / 64] >> (at % 64) & 1 == 1
    }

    fn step<'b>(
        &self,
        step: usize,
        buffer: &'b mut [u8; RECORD_BYTES * STEP],
    ) -> Result<impl Iterator<Item = (ContentHash, u64)> + use<'b>, ArchiveError> {
        let count = STEP.min(self.count - step * STEP);
        let records = &mut buffer[..count * RECORD_BYTES];
        self.file.read(records, (step * STEP * RECORD_BYTES) as u64)?;
        Ok(records.chunks_exact(RECORD_BYTES).map(|record| {
            let (mut hash, mut size) = ([0; 32], [0; 8]);
            hash.copy_from_slice(&record[..32]);
            size.copy_from_slice(&record[32..]);
            (ContentHash::from_bytes(hash), u64::from_le_bytes(size))
        }))
    }
}

/// The beginning of a hash, in the order of hashes.
fn key(hash: &ContentHash) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_be_bytes(bytes)
}

/// The records of a run that are still missing, one after the other.
struct Records<'r> {
    run: &'r Run,
    at: usize,
    read: Vec<(ContentHash, u64)>,
}

impl<'r> Records<'r> {
    fn new(run: &'r Run) -> Self {
        Self { run, at: 0, read: Vec::new() }
    }

    fn next(&mut self) -> Result<Option<(ContentHash, u64)>, ArchiveError> {
        while self.at < self.run.count {
            if self.at.is_multiple_of(STEP) {
                let mut buffer = [0; RECORD_BYTES * STEP];
                self.read = self.run.step(self.at / STEP, &mut buffer)?.collect();
            }
            let record = self.read[self.at % STEP];
            self.at += 1;
            if !self.run.has_come(self.at - 1) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: usize) -> ContentHash {
        ContentHash::of(&number.to_le_bytes())
    }

    #[test]
    fn what_was_put_in_is_found_until_it_comes_also_from_the_files() {
        const COUNT: usize = 3 * HELD + 100;
        let mut missing = MissingFiles::default();
        for number in 0..COUNT {
            missing.insert(hash(number), number as u64).unwrap();
        }
        // Once more, now into another run.
        for number in 0..HELD {
            missing.insert(hash(number), number as u64).unwrap();
        }
        assert!(missing.runs.len() > 3);
        let check = |missing: &MissingFiles, came: usize| {
            for number in (0..COUNT + 10).step_by(97) {
                let is_missing = number >= came && number < COUNT;
                let found = missing.get(&hash(number)).unwrap();
                assert_eq!(found, is_missing.then_some(number as u64), "{number}");
            }
        };
        check(&missing, 0);
        for number in 0..1000 {
            missing.remove(&hash(number)).unwrap();
        }
        check(&missing, 1000);
        missing.merge().unwrap();
        assert_eq!(missing.runs.len(), 1);
        check(&missing, 1000);
        for number in 1000..COUNT {
            assert!(missing.first().unwrap().is_some());
            missing.remove(&hash(number)).unwrap();
        }
        assert!(missing.is_empty());
        assert_eq!(missing.first().unwrap(), None);
    }
}
