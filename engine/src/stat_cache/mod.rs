//! Earlier hashes, so that an unchanged file costs one `stat`.
//!
//! One file for each tracked path, shared by all sessions of a store, laid out by directory. It is
//! only a cache: it may be deleted at any time, and one that is damaged, of another version, or
//! older than the last collection of garbage is not used.
//!
//! An entry is trusted when device, inode, length, mtime and ctime are all as they were. No program
//! can set a ctime, so setting an mtime back fools nothing. On a file system in memory a program
//! can write through a mapping without a trace, so a capture keeps no entries of its files.
//!
//! A cache vouches for objects without a look at them, so it also says what it counts on:
//! packs, and the directories in which objects have files of their own. Where one of these is not
//! as it was, an object that may have been in it is looked for, with its length, when the capture
//! comes to it, and stored again when it is not found.
//!
//! **The racy rule** (git's): a file whose ctime is not older than the start of the walk could have
//! been changed again within the same tick of the file system's clock, after it was read. Such an
//! entry is not written, and the file is hashed again the next time.

mod counted_on;
mod fields;
mod writer;

use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use self::counted_on::Doubtful;
pub use self::counted_on::{CountedOn, Holds, StoreState};
use self::fields::{Fields, put_bytes};
pub use self::writer::StatCacheWriter;
use crate::byte_path;
use crate::object::{ContentHash, FileTime, Midstates, MidstatesLink, Xattrs};
use crate::path_text::to_path;
#[cfg(any(test, feature = "fuzzing"))]
use crate::store::{FanOut, FanOuts};
use crate::sys::{self, Dir, Stat};

const MAGIC: &[u8; 8] = b"nonostat";
const VERSION: u8 = 1;
const HASH_LEN: usize = 32;
const SUFFIX: &str = ".stat";
/// Larger caches are not read: more than ten million files.
const MAX_CACHE_BYTES: u64 = 4 << 30;

/// The fields that must be equal for a hash to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatKey {
    dev: u64,
    ino: u64,
    size: u64,
    mtime: FileTime,
    ctime: FileTime,
}

impl StatKey {
    /// The key of a file in this state.
    pub fn of(stat: &Stat) -> Self {
        let Stat { dev, ino, size, mtime, ctime, .. } = *stat;
        Self { dev, ino, size, mtime, ctime }
    }

    /// Length of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its inode number.
    #[cfg(feature = "mount")]
    pub(crate) fn ino(&self) -> u64 {
        self.ino
    }

    /// When its contents changed.
    #[cfg(feature = "mount")]
    pub(crate) fn mtime(&self) -> FileTime {
        self.mtime
    }

    /// When anything of it changed.
    #[cfg(feature = "mount")]
    pub(crate) fn ctime(&self) -> FileTime {
        self.ctime
    }

    /// Whether a file read during a walk that began at `start` could have changed unseen since.
    pub fn is_racy(&self, start: FileTime) -> bool {
        self.ctime.is_racy(start)
    }
}

/// The cache's knowledge of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedFile {
    /// The state in which it was read.
    pub key: StatKey,
    /// Hash of its contents.
    pub hash: ContentHash,
    /// The midstates of a long file.
    pub midstates: MidstatesLink,
    /// Its extended attributes.
    pub xattrs: Xattrs,
}

/// The cache's knowledge of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedDirectory {
    /// Its tree.
    pub tree: ContentHash,
    /// It was recorded like any other directory: nothing right in it was left out for a mark.
    pub is_plain: bool,
    /// Its files, sorted by name.
    pub files: Vec<(Box<[u8]>, CachedFile)>,
}

impl CachedDirectory {
    /// The cached entry of a file of this directory.
    pub fn file(&self, name: &[u8]) -> Option<&CachedFile> {
        let at = self.files.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.files[at].1)
    }

    /// Whether all objects that it vouches for are among those.
    fn vouches_only_for(&self, is_there: impl Fn(&ContentHash) -> bool) -> bool {
        let has_all = |file: &CachedFile| {
            is_there(&file.hash)
                && file.midstates.name().is_none_or(|midstates| is_there(&midstates))
        };
        is_there(&self.tree) && self.files.iter().all(|(_, file)| has_all(file))
    }
}

/// A loaded cache, read-only.
#[derive(Debug, Default)]
pub struct StatCache {
    bytes: Vec<u8>,
    directories: Directories,
    tracked_path: PathBuf,
    doubtful: Doubtful,
    /// Whether it was said that something is gone.
    is_said: AtomicBool,
    /// Directories that were recorded like any other, sorted, once it was asked.
    plain: OnceLock<Vec<Box<[u8]>>>,
}

/// Where the records of directories (relative to the tracked path) are.
type Directories = HashMap<Box<[u8]>, Range<usize>>;

/// Name of the cache file of a tracked path.
fn file_name(tracked_path: &Path) -> Vec<u8> {
    format!("{}{SUFFIX}", ContentHash::of(tracked_path.as_os_str().as_bytes())).into_bytes()
}

/// The bit in the number of files of a directory that was recorded like any other.
const PLAIN: u32 = 1 << 31;

fn plain_and_count(field: u32) -> (bool, u32) {
    (field & PLAIN != 0, field & !PLAIN)
}

/// The place of the generation in it.
const GENERATION: Range<usize> = 10..26;

/// First bytes of a cache that is valid for a tracked path and a generation of the store.
fn header(tracked_path: &Path, generation: &[u8; 16]) -> Vec<u8> {
    let path = tracked_path.as_os_str().as_bytes();
    let mut out = MAGIC.to_vec();
    out.push(VERSION);
    // Only root sees `trusted.*` attributes: an ordinary user's capture did not see all of them.
    out.push(u8::from(sys::effective_uid() == 0));
    out.extend_from_slice(generation);
    put_bytes(&mut out, path);
    out
}

/// Whether there is a cache of a tracked path, valid or not.
pub fn has_cache(index: &Dir, tracked_path: &Path) -> bool {
    matches!(index.try_stat(&file_name(tracked_path)), Ok(Some(_)))
}

/// Files of a tracked path, by relative path, in the states in which they were read last: at most
/// `most` of them. That is so whatever became of their objects.
pub fn known_files(index: &Dir, tracked_path: &Path, most: usize) -> Vec<(Vec<u8>, StatKey)> {
    let cache = StatCache::of_any_generation(index, tracked_path);
    let mut directories: Vec<&[u8]> = cache.directories.keys().map(|path| &**path).collect();
    directories.sort_unstable();
    let mut known = Vec::new();
    for relative in directories {
        for (name, file) in cache.directory(relative).into_iter().flat_map(|found| found.files) {
            if known.len() == most {
                return known;
            }
            known.push((byte_path::join(relative, &name), file.key));
        }
    }
    known
}

/// Whether a name in the index is that of a cache.
pub fn is_cache_name(name: &[u8]) -> bool {
    name.ends_with(SUFFIX.as_bytes())
}

/// Makes a cache valid for a new generation of the store, if nothing that it names is gone. `false`
/// when something is, or the cache was not valid for the old generation.
///
/// # Errors
/// When it cannot be written; the old one, which is not valid any more, then stays.
pub fn carry_over(
    index: &Dir,
    name: &[u8],
    generations: [&[u8; 16]; 2],
    is_gone: impl Fn(&ContentHash) -> bool,
) -> sys::Result<bool> {
    let [old, new] = generations;
    let bytes = index.read(name, MAX_CACHE_BYTES)?;
    let mut start = Fields { bytes: &bytes, at: header(Path::new(""), old).len() - 4 };
    let Some(path) = start.bytes().map(to_path) else { return Ok(false) };
    if file_name(path) != name {
        return Ok(false);
    }
    let header_len = header(path, old).len();
    let path = path.to_owned();
    let Some((cache, _)) = StatCache::parse(bytes, &path, old) else { return Ok(false) };
    let vouches = |relative: &[u8]| {
        cache.directory(relative).is_some_and(|known| known.vouches_only_for(|hash| !is_gone(hash)))
    };
    if cache.is_empty() || !cache.directories.keys().all(|relative| vouches(relative)) {
        return Ok(false);
    }
    let body = &cache.bytes[header_len..cache.bytes.len() - HASH_LEN];
    let mut renewed = header(&path, new);
    renewed.extend_from_slice(body);
    let trailer = ContentHash::of(&renewed);
    renewed.extend_from_slice(trailer.as_bytes());
    index.replace_file(name, &renewed, 0o600, false)?;
    Ok(true)
}

impl StatCache {
    /// Loads the cache of a tracked path. Any defect gives an empty cache.
    pub fn load(index: &Dir, tracked_path: &Path, store: &StoreState<'_>) -> Self {
        let Ok(bytes) = index.read(&file_name(tracked_path), MAX_CACHE_BYTES) else {
            return Self::default();
        };
        let Some((mut cache, counted_on)) = Self::parse(bytes, tracked_path, &store.generation)
        else {
            return Self::default();
        };
        cache.doubtful = counted_on.doubtful(&store.counted_on);
        cache
    }

    /// The cache of a tracked path, whatever became of the objects that it names. Any defect gives
    /// an empty cache.
    pub(crate) fn of_any_generation(index: &Dir, tracked_path: &Path) -> Self {
        let bytes = index.read(&file_name(tracked_path), MAX_CACHE_BYTES).unwrap_or_default();
        let generation = bytes.get(GENERATION).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        let parsed = generation.and_then(|of| Self::parse(bytes, tracked_path, &of));
        parsed.map(|(cache, _)| cache).unwrap_or_default()
    }

    /// The cache in these bytes, and what it counts on.
    fn parse(
        bytes: Vec<u8>,
        tracked_path: &Path,
        generation: &[u8; 16],
    ) -> Option<(Self, CountedOn)> {
        let (directories, counted_on) = Self::try_parse(&bytes, tracked_path, generation)?;
        let tracked_path = tracked_path.to_owned();
        Some((Self { bytes, directories, tracked_path, ..Self::default() }, counted_on))
    }

    fn try_parse(
        bytes: &[u8],
        tracked_path: &Path,
        generation: &[u8; 16],
    ) -> Option<(Directories, CountedOn)> {
        let (body, trailer) = bytes.split_last_chunk::<HASH_LEN>()?;
        let header = header(tracked_path, generation);
        if !body.starts_with(&header) || ContentHash::of(body).as_bytes() != trailer {
            return None;
        }
        let (records, counted_on) = CountedOn::split_footer(&body[header.len()..])?;
        let end_of_records = header.len() + records.len();
        let mut directories = HashMap::new();
        let mut fields = Fields { bytes: &body[..end_of_records], at: header.len() };
        while fields.at < end_of_records {
            let record = fields.length()?;
            let end = fields.at + record;
            let path = fields.bytes()?;
            directories.insert(path.into(), fields.at..end);
            fields.at = end;
        }
        Some((directories, counted_on))
    }

    /// Whether an object of a directory is in the store, of this length: where it may have
    /// gone since the cache was written, that is asked.
    pub fn vouches_for(
        &self,
        relative: &[u8],
        hash: &ContentHash,
        size: u64,
        holds: &Holds<'_>,
    ) -> bool {
        if !self.doubtful.contains(hash) || holds(hash, size) {
            return true;
        }
        if !self.is_said.swap(true, Relaxed) {
            let path = self.tracked_path.join(to_path(relative));
            let path = path.display();
            tracing::warn!("objects that are of {path} or the like are missing from the store");
        }
        false
    }

    /// The cached entry of a directory, given relative to the tracked path. Its objects are in the
    /// store if the cache [vouches for](Self::vouches_for) them.
    pub fn directory(&self, relative: &[u8]) -> Option<CachedDirectory> {
        let range = self.directories.get(relative)?;
        let mut fields = Fields { bytes: self.bytes.get(..range.end)?, at: range.start };
        let tree = fields.hash()?;
        let (is_plain, count) = plain_and_count(fields.u32()?);
        let mut files = Vec::with_capacity(count.min(1 << 16) as usize);
        for _ in 0..count {
            let name = fields.bytes()?.into();
            let key = fields.key()?;
            let hash = fields.hash()?;
            let is_long = Midstates::are_kept_of(key.size);
            let link =
                if is_long { MidstatesLink::to(fields.hash()?) } else { MidstatesLink::NONE };
            let xattrs = fields.xattrs()?;
            files.push((name, CachedFile { key, hash, midstates: link, xattrs }));
        }
        Some(CachedDirectory { tree, is_plain, files })
    }

    /// Whether a directory, given relative to the tracked path, was recorded like any other.
    pub fn holds_plainly(&self, relative: &[u8]) -> bool {
        self.directories.get(relative).is_some_and(|range| self.is_plain(range))
    }

    /// Whether a directory was recorded, and one below it was recorded like any other.
    pub fn holds_plainly_below(&self, relative: &[u8]) -> bool {
        if !self.directories.contains_key(relative) {
            return false;
        }
        let plain = self.plain.get_or_init(|| {
            let all = self.directories.iter().filter(|(_, range)| self.is_plain(range));
            let mut paths: Vec<_> = all.map(|(path, _)| path.clone()).collect();
            paths.sort_unstable();
            paths
        });
        let below = [relative, b"/"].concat();
        let first = plain.partition_point(|path| **path < *below);
        plain.get(first).is_some_and(|path| path.starts_with(&below))
    }

    fn is_plain(&self, record: &Range<usize>) -> bool {
        let count = || {
            let mut fields = Fields { bytes: self.bytes.get(..record.end)?, at: record.start };
            fields.hash()?;
            fields.u32()
        };
        count().is_some_and(|count| plain_and_count(count).0)
    }

    /// A cache whose records are these bytes, with a valid header and checksum.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn with_records(records: &[u8]) -> Self {
        let (path, generation) = (Path::new("/tracked"), [7; 16]);
        let nothing = CountedOn { packs: Vec::new(), fan_outs: FanOuts::new(|_| FanOut::Absent) };
        let mut bytes = [&*header(path, &generation), records, &nothing.footer()].concat();
        let sum = ContentHash::of(&bytes);
        bytes.extend_from_slice(sum.as_bytes());
        Self::parse(bytes, path, &generation).map(|(cache, _)| cache).unwrap_or_default()
    }

    /// Directories that are known.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn directories(&self) -> impl Iterator<Item = &[u8]> {
        self.directories.keys().map(|path| &**path)
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
mod tests;
