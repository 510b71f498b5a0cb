//! Records that are too many for the memory: they wait in a file without a name.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::ArchiveError;
use nono_engine::sys::{self, IoContext, TempFile};

/// Bytes that are held in memory, and written or read at once.
const HELD_BYTES: usize = 1 << 20;

/// Records of `N` bytes that come out in the order in which they went in. First all go in, then all
/// come out.
#[derive(Debug, Default)]
pub(super) struct Queue<const N: usize> {
    spilled: Option<Spilled>,
    /// Bytes in the file.
    written: u64,
    /// Bytes that were read of it.
    read: u64,
    /// The bytes behind the file; once reading began, the next ones.
    held: Vec<u8>,
    /// The bytes behind the file, once reading began.
    last: Option<Vec<u8>>,
    at: usize,
}

impl<const N: usize> Queue<N> {
    pub(super) fn push(&mut self, record: [u8; N]) -> Result<(), ArchiveError> {
        self.held.extend_from_slice(&record);
        if self.held.len() + N > HELD_BYTES {
            let spilled = match &mut self.spilled {
                Some(spilled) => spilled,
                none => none.insert(Spilled::new()?),
            };
            spilled.write(&self.held, self.written)?;
            self.written += self.held.len() as u64;
            self.held.clear();
        }
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Result<Option<[u8; N]>, ArchiveError> {
        if self.last.is_none() {
            self.last = Some(std::mem::take(&mut self.held));
        }
        if self.at == self.held.len() {
            self.at = 0;
            let left = self.written - self.read;
            match &self.spilled {
                Some(spilled) if left > 0 => {
                    self.held.resize(left.min((HELD_BYTES / N * N) as u64) as usize, 0);
                    spilled.read(&mut self.held, self.read)?;
                    self.read += self.held.len() as u64;
                }
                _ => self.held = self.last.replace(Vec::new()).unwrap_or_default(),
            }
        }
        let record = self.held.get(self.at..).and_then(|rest| rest.first_chunk()).copied();
        self.at += if record.is_some() { N } else { 0 };
        Ok(record)
    }
}

/// A file without a name in the system's directory of temporary files.
#[derive(Debug)]
pub(super) struct Spilled {
    file: File,
    dir: std::path::PathBuf,
}

impl Spilled {
    pub(super) fn new() -> sys::Result<Self> {
        let dir = sys::open_temporary_dir()?;
        let path = dir.path().to_owned();
        let temp = TempFile::new(&dir, 0o600)?;
        let file = temp.file().try_clone().at("open a temporary file in", &path)?;
        Ok(Self { file, dir: path })
    }

    pub(super) fn write(&self, bytes: &[u8], at: u64) -> sys::Result<()> {
        self.file.write_all_at(bytes, at).at("write a temporary file in", &self.dir)
    }

    pub(super) fn read(&self, bytes: &mut [u8], at: u64) -> sys::Result<()> {
        self.file.read_exact_at(bytes, at).at("read a temporary file in", &self.dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_in_their_order_also_those_in_the_file() {
        for count in [0_u32, 1, 1000, HELD_BYTES as u32, 3 * HELD_BYTES as u32 / 12 + 5] {
            let mut queue = Queue::<12>::default();
            for number in 0..count {
                let mut record = [7; 12];
                record[..4].copy_from_slice(&number.to_le_bytes());
                queue.push(record).unwrap();
            }
            assert_eq!(queue.spilled.is_some(), count as usize * 12 + 12 > HELD_BYTES);
            for number in 0..count {
                let record = queue.pop().unwrap().unwrap();
                assert_eq!(record[..4], number.to_le_bytes());
            }
            assert_eq!(queue.pop().unwrap(), None);
            assert_eq!(queue.pop().unwrap(), None);
        }
    }
}
