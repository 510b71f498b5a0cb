//! Writing the next cache while a capture goes on.

use std::io::{self, Write};
use std::path::Path;

use super::fields::{put_bytes, put_key, put_u32, put_xattrs};
use super::{CachedDirectory, CachedFile, CountedOn, PLAIN, StoreState, file_name, header};
use crate::layout;
use crate::object::{FileTime, Hasher, Midstates};
use crate::sys::{self, Dir, IoContext};

/// Writes the next cache, one directory at a time in any order, and puts it in place at the end.
pub struct StatCacheWriter {
    out: io::BufWriter<std::fs::File>,
    hasher: Hasher,
    start: FileTime,
    /// As it was when it began.
    counted_on: CountedOn,
    index: Dir,
    name: Vec<u8>,
    temp: Vec<u8>,
    record: Vec<u8>,
}

impl std::fmt::Debug for StatCacheWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatCacheWriter").field("index", &self.index).finish_non_exhaustive()
    }
}

impl StatCacheWriter {
    /// Begins a cache. `start` is the kernel's coarse time before the walk began.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn new(
        index: &Dir,
        tracked_path: &Path,
        store: &StoreState<'_>,
        start: FileTime,
    ) -> sys::Result<Self> {
        let index = index.open_beneath(b"")?;
        let name = file_name(tracked_path);
        let temp = [&*name, layout::new_name()?.as_bytes()].concat();
        let file = index.create_file(&temp, 0o600)?;
        let mut writer = Self {
            out: io::BufWriter::with_capacity(1 << 17, file),
            hasher: Hasher::new(),
            start,
            counted_on: store.counted_on.clone(),
            index,
            name,
            temp,
            record: Vec::new(),
        };
        writer.put(&header(tracked_path, &store.generation))?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> sys::Result<()> {
        self.hasher.update(bytes);
        self.out.write_all(bytes).at("write", &self.index.path_of(&self.name))
    }

    /// Adds a directory, leaving out what is racy.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn add(&mut self, relative: &[u8], directory: &CachedDirectory) -> sys::Result<()> {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        record.extend_from_slice(&[0; 4]);
        put_bytes(&mut record, relative);
        record.extend_from_slice(directory.tree.as_bytes());
        let is_settled = |file: &CachedFile| {
            let is_complete =
                file.midstates.name().is_some() || !Midstates::are_kept_of(file.key.size);
            is_complete && !file.key.is_racy(self.start)
        };
        let settled = || directory.files.iter().filter(|(_, file)| is_settled(file));
        let plain = if directory.is_plain { PLAIN } else { 0 };
        put_u32(&mut record, settled().count() | plain as usize);
        for (name, file) in settled() {
            put_bytes(&mut record, name);
            put_key(&mut record, &file.key);
            record.extend_from_slice(file.hash.as_bytes());
            if let Some(midstates) = file.midstates.name() {
                record.extend_from_slice(midstates.as_bytes());
            }
            put_xattrs(&mut record, &file.xattrs);
        }
        let len = (record.len() - 4) as u32;
        record[..4].copy_from_slice(&len.to_le_bytes());
        let written = self.put(&record);
        self.record = record;
        written
    }

    /// Puts the new cache in place of the old one. Only after everything it names is durable in the
    /// store: after a power failure a cache must not vouch for objects that are gone. `now`: the
    /// dependable parts of the store after the last object was stored, of those at the cache's
    /// beginning.
    ///
    /// # Errors
    /// When the disk is full; the old cache then stays.
    pub fn commit(mut self, now: &CountedOn) -> sys::Result<()> {
        let footer = self.counted_on.until(now).footer();
        self.put(&footer)?;
        let trailer = std::mem::take(&mut self.hasher).finish();
        let path = self.index.path_of(&self.name);
        self.out.write_all(trailer.as_bytes()).at("write", &path)?;
        self.out.flush().at("write", &path)?;
        self.index.rename(&self.temp, &self.index, &self.name)?;
        self.temp.clear();
        Ok(())
    }
}

impl Drop for StatCacheWriter {
    fn drop(&mut self) {
        if !self.temp.is_empty() {
            // A cache that was not completed; a failure leaves a file that is never read.
            let _ = self.index.remove_file(&self.temp);
        }
    }
}
