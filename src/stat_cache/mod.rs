//! What was hashed before, so that an unchanged file costs one `stat`.
//!
//! One file for each tracked path, shared by all sessions of a store, laid out by directory. It is
//! only a cache: it may be deleted at any time, and one that is damaged, of another version, or
//! older than the last collection of garbage is not used.
//!
//! An entry is trusted when device, inode, length, mtime and ctime are all as they were. No program
//! can set a ctime, so setting an mtime back fools nothing.
//!
//! A cache vouches for objects without anybody looking at them, so it also says what it counts on: packs, and
//! the directories in which objects have files of their own. Where one of these is not as it was, an object that
//! may have been in it is looked for, with its length, when the capture comes to it, and stored again when it is not
//! found.
//!
//! **The racy rule** (git's): a file whose ctime is not older than the start of the walk could have been
//! changed again within the same tick of the file system's clock, after it was read. Such an entry is not
//! written, and the file is hashed again the next time.

mod counted_on;
mod fields;

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use self::counted_on::Doubtful;
pub use self::counted_on::{CountedOn, Holds, StoreState};
use self::fields::{Fields, put_bytes, put_key, put_u32, put_xattrs};
use crate::layout;
use crate::object::{ContentHash, FileTime, Hasher, Midstates, MidstatesLink, Xattrs};
use crate::path_text::to_path;
#[cfg(any(test, feature = "fuzzing"))]
use crate::store::{FanOut, FanOuts};
use crate::sys::{self, Dir, IoContext, Stat};

const MAGIC: &[u8; 8] = b"nonostat";
const VERSION: u8 = 4;
const HASH_LEN: usize = 32;
const SUFFIX: &str = ".stat";
/// Larger caches are not read: more than ten million files.
const MAX_CACHE_BYTES: u64 = 4 << 30;

/// What must be equal for a hash to be believed.
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

    /// Whether a file read during a walk that began at `start` could have changed unseen since.
    pub fn is_racy(&self, start: FileTime) -> bool {
        self.ctime.is_racy(start)
    }
}

/// What the cache knows of a file.
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

/// What the cache knows of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedDirectory {
    /// Its tree.
    pub tree: ContentHash,
    /// Its files, sorted by name.
    pub files: Vec<(Box<[u8]>, CachedFile)>,
}

impl CachedDirectory {
    /// What is known of a file of this directory.
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
}

/// Where the records of directories (relative to the tracked path) are.
type Directories = HashMap<Box<[u8]>, Range<usize>>;

/// Name of the cache file of a tracked path.
fn file_name(tracked_path: &Path) -> Vec<u8> {
    format!("{}{SUFFIX}", ContentHash::of(tracked_path.as_os_str().as_bytes())).into_bytes()
}

/// First bytes of a cache that is valid for a tracked path and a generation of the store.
fn header(tracked_path: &Path, generation: &[u8; 16]) -> Vec<u8> {
    let path = tracked_path.as_os_str().as_bytes();
    let mut out = MAGIC.to_vec();
    out.push(VERSION);
    // Only root sees `trusted.*` attributes: what an ordinary user's capture saw is not all of them.
    out.push(u8::from(sys::effective_uid() == 0));
    out.extend_from_slice(generation);
    put_bytes(&mut out, path);
    out
}

/// Whether there is a cache of a tracked path, valid or not.
pub fn has_cache(index: &Dir, tracked_path: &Path) -> bool {
    matches!(index.try_stat(&file_name(tracked_path)), Ok(Some(_)))
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
    /// Loads the cache of a tracked path. Whatever is wrong with it, the result is an empty cache.
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

    /// What is known of a directory, given relative to the tracked path. Its objects are in the store if the cache
    /// [vouches for](Self::vouches_for) them.
    pub fn directory(&self, relative: &[u8]) -> Option<CachedDirectory> {
        let range = self.directories.get(relative)?;
        let mut fields = Fields { bytes: self.bytes.get(..range.end)?, at: range.start };
        let tree = fields.hash()?;
        let count = fields.u32()?;
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
        Some(CachedDirectory { tree, files })
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
        put_u32(&mut record, settled().count());
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
    /// store: after a power failure a cache must not vouch for objects that are gone. `now`: what can be
    /// counted on of the store after the last object was stored, of all that could be when the cache was begun.
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
            // A cache that was not completed; a failure leaves a file that nobody reads.
            let _ = self.index.remove_file(&self.temp);
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
mod tests {
    use super::*;
    use crate::store::PackState;

    const GENERATION: [u8; 16] = [7; 16];
    /// There from the beginning to the end, gone before the end, made by the snapshot.
    const PACK: PackState = pack(1, 5);
    const GONE: PackState = pack(2, 5);
    const LATER: PackState = pack(3, 5);

    const fn pack(name: u8, seconds: i64) -> PackState {
        PackState { name: [name; 16], changed_at: FileTime { seconds, nanoseconds: 1 } }
    }

    /// Seen at second 20, with all fan-out directories as they were at second 5 but one.
    fn counted_on(packs: &[PackState], other: Option<(u8, Option<FileTime>)>) -> CountedOn {
        let fan_outs = FanOuts::new(|prefix| {
            let other = other.filter(|(other, _)| *other == prefix);
            FanOut::seen(time(20, 0), other.map_or(Some(time(5, 1)), |(_, time)| time))
        });
        CountedOn { packs: packs.to_vec(), fan_outs }
    }

    fn store(generation: [u8; 16]) -> StoreState<'static> {
        let counted_on = counted_on(&[PACK, GONE, LATER], None);
        StoreState { generation, counted_on, holds: Box::new(NOBODY_LOOKS) }
    }

    const NOBODY_LOOKS: fn(&ContentHash, u64) -> bool = |_, _| panic!("nothing changed");

    fn time(seconds: i64, nanoseconds: u32) -> FileTime {
        FileTime { seconds, nanoseconds }
    }

    fn file(ctime: FileTime) -> CachedFile {
        let key = StatKey { dev: 1, ino: 2, size: 3, mtime: time(1, 1), ctime };
        let xattrs = Xattrs::new(vec![((*b"user.a").into(), (*b"1").into())]);
        CachedFile { key, hash: ContentHash::of(b"x"), midstates: MidstatesLink::NONE, xattrs }
    }

    #[test]
    fn a_long_file_is_known_with_its_midstates_and_not_without() {
        let long = |name: &[u8], midstates| {
            let file = file(time(9, 1));
            let key = StatKey { size: 5 << 20, ..file.key };
            (name.into(), CachedFile { key, midstates, ..file })
        };
        let midstates = ContentHash::of(b"midstates");
        let link = MidstatesLink::to(midstates);
        let files = vec![long(b"with", link), long(b"without", MidstatesLink::NONE)];
        let (_temp, index) = saved(time(10, 0), &directory(files));
        let cache = StatCache::load(&index, Path::new("/p"), &store(GENERATION));
        let known = cache.directory(b"a/b").unwrap();
        assert_eq!(known.files.len(), 1);
        assert_eq!(known.file(b"with").unwrap().midstates.name(), Some(midstates));
        assert!(known.vouches_only_for(|hash| *hash != ContentHash::of(b"other")));
        assert!(!known.vouches_only_for(|hash| *hash != midstates));
    }

    fn directory(files: Vec<(Box<[u8]>, CachedFile)>) -> CachedDirectory {
        CachedDirectory { tree: ContentHash::of(b"t"), files }
    }

    fn saved(start: FileTime, content: &CachedDirectory) -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let index = Dir::open(temp.path()).unwrap();
        save(&index, start, content, &counted_on(&[PACK, LATER], None));
        (temp, index)
    }

    fn save(index: &Dir, start: FileTime, content: &CachedDirectory, end: &CountedOn) {
        let mut writer =
            StatCacheWriter::new(index, Path::new("/p"), &store(GENERATION), start).unwrap();
        writer.add(b"a/b", content).unwrap();
        writer.commit(end).unwrap();
    }

    /// What is known of the directory when a store is like this, and has lost the object of these bytes.
    fn known(index: &Dir, now: CountedOn, lost: &'static [u8]) -> Option<CachedDirectory> {
        let holds: Box<Holds<'_>> = Box::new(|hash, size| {
            assert_eq!(size, 3);
            *hash != ContentHash::of(lost)
        });
        let store = StoreState { generation: GENERATION, counted_on: now, holds };
        let cache = StatCache::load(index, Path::new("/p"), &store);
        let known = cache.directory(b"a/b")?;
        let vouches = |hash: &_| cache.vouches_for(b"a/b", hash, 3, &store.holds);
        known.vouches_only_for(vouches).then_some(known)
    }

    #[test]
    fn a_cache_comes_back() {
        let content = directory(vec![((*b"f").into(), file(time(9, 1)))]);
        let (_temp, index) = saved(time(10, 0), &content);
        let cache = StatCache::load(&index, Path::new("/p"), &store(GENERATION));
        assert_eq!(cache.directory(b"a/b"), Some(content));
        assert_eq!(cache.directory(b"a"), None);
    }

    #[test]
    fn an_entry_as_new_as_the_cache_is_racy_and_is_not_kept() {
        let start = time(10, 500);
        let content = directory(vec![
            ((*b"older").into(), file(time(10, 499))),
            ((*b"same tick").into(), file(time(10, 500))),
            ((*b"whole seconds").into(), file(time(9, 0))),
        ]);
        let (_temp, index) = saved(start, &content);
        let cache = StatCache::load(&index, Path::new("/p"), &store(GENERATION));
        let known = cache.directory(b"a/b").unwrap();
        let names: Vec<_> = known.files.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [(*b"older").into()]);
    }

    #[test]
    fn when_a_pack_is_gone_a_directory_is_known_only_if_all_its_objects_are_there() {
        let content = directory(vec![((*b"f").into(), file(time(9, 1)))]);
        let (_temp, index) = saved(time(10, 0), &content);
        let known = |packs: &[PackState], lost| known(&index, counted_on(packs, None), lost);
        let packs = [pack(9, 5), PACK, GONE, LATER];
        assert_eq!(known(&packs, b"x"), Some(content.clone()), "nobody looks");
        for gone in 1..packs.len() {
            // Also one that went while the cache was written: who was not read may have been in it.
            let there: Vec<_> = packs.iter().copied().filter(|pack| *pack != packs[gone]).collect();
            assert_eq!(known(&there, b"else"), Some(content.clone()));
            assert_eq!(known(&there, b"x"), None);
            assert_eq!(known(&there, b"t"), None);
            // One that was written to.
            let there = [&*there, &[pack(gone as u8, 6)]].concat();
            assert_eq!(known(&there, b"x"), None);
        }
    }

    #[test]
    fn where_a_fan_out_directory_changed_its_objects_are_looked_for() {
        let content = directory(vec![((*b"f").into(), file(time(9, 1)))]);
        let (_temp, index) = saved(time(10, 0), &content);
        let packs = [PACK, GONE, LATER];
        let prefix_of = |bytes: &[u8]| ContentHash::of(bytes).as_bytes()[0];
        let known = |changed, lost| known(&index, counted_on(&packs, changed), lost);
        for lost in [&b"x"[..], b"t"] {
            for time in [None, Some(time(6, 1)), Some(time(20, 0))] {
                let changed = Some((prefix_of(lost), time));
                assert_eq!(known(changed, lost), None);
                assert_eq!(known(changed, b"else"), Some(content.clone()));
                // Objects of another are not looked for.
                let other = Some((prefix_of(lost) ^ 1, time));
                assert_eq!(known(other, lost), Some(content.clone()));
            }
        }
        // It could have changed without a new time when the cache was complete.
        for time in [Some(time(20, 0)), Some(time(20, 1)), Some(time(18, 0))] {
            let end = counted_on(&packs, Some((prefix_of(b"x"), time)));
            save(&index, FileTime { seconds: 10, nanoseconds: 0 }, &content, &end);
            assert_eq!(super::tests::known(&index, end.clone(), b"x"), None);
            assert_eq!(super::tests::known(&index, end, b"t"), Some(content.clone()));
        }
    }

    #[test]
    fn a_footer_that_claims_more_than_there_is_makes_a_cache_empty() {
        let parse = |end: &[u8]| {
            let mut bytes = [&*header(Path::new("/p"), &GENERATION), end].concat();
            let sum = ContentHash::of(&bytes);
            bytes.extend_from_slice(sum.as_bytes());
            StatCache::try_parse(&bytes, Path::new("/p"), &GENERATION)
                .map(|(_, counted_on)| counted_on)
        };
        for packs in [&[][..], &[PACK, LATER]] {
            let counted_on = counted_on(packs, Some((7, None)));
            assert_eq!(parse(&counted_on.footer()), Some(counted_on));
        }
        let one = counted_on(&[PACK], None);
        let footer = one.footer();
        let (rest, _) = footer.split_last_chunk::<4>().unwrap();
        let more = |count: u32| parse(&[rest, &count.to_le_bytes()].concat());
        assert_eq!(more(1), Some(one));
        for count in [2, 3, u32::MAX] {
            assert_eq!(more(count), None);
        }
        assert_eq!(parse(b"abc"), None);
    }

    #[test]
    fn a_cache_of_another_generation_path_or_with_a_flipped_bit_is_empty() {
        let content = directory(vec![((*b"f").into(), file(time(9, 1)))]);
        let (temp, index) = saved(time(10, 0), &content);
        assert!(StatCache::load(&index, Path::new("/p"), &store([8; 16])).is_empty());
        assert!(StatCache::load(&index, Path::new("/q"), &store(GENERATION)).is_empty());
        let path = temp.path().join(String::from_utf8(file_name(Path::new("/p"))).unwrap());
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, bad).unwrap();
            assert!(
                StatCache::load(&index, Path::new("/p"), &store(GENERATION)).is_empty(),
                "byte {at}"
            );
        }
        std::fs::write(&path, &good[..good.len() / 2]).unwrap();
        assert!(StatCache::load(&index, Path::new("/p"), &store(GENERATION)).is_empty());
    }
}
