//! What was hashed before, so that an unchanged file costs one `stat`.
//!
//! One file for each tracked path, shared by all sessions of a store, laid out by directory. It is
//! only a cache: it may be deleted at any time, and one that is damaged, of another version, or
//! older than the last collection of garbage is not used.
//!
//! An entry is trusted when device, inode, length, mtime and ctime are all as they were. No program
//! can set a ctime, so setting an mtime back fools nothing.
//!
//! A cache vouches for objects without anybody looking at them, so it also names the packs that it counts
//! on: if one of these is gone or was written to, it is used only if all objects that it vouches for are
//! found, with their lengths (in another pack, after packs were merged or rewritten). Otherwise everything
//! is read, and stored again. That an object with a file of its own was deleted is not noticed.
//!
//! **The racy rule** (git's): a file whose ctime is not older than the start of the walk could have been
//! changed again within the same tick of the file system's clock, after it was read. Such an entry is not
//! written, and the file is hashed again the next time.

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::layout;
use crate::object::{ContentHash, FileTime, Hasher, Xattrs};
use crate::path_text::to_path;
use crate::sys::{self, Dir, IoContext, Stat};

const MAGIC: &[u8; 8] = b"nonostat";
const VERSION: u8 = 2;
const HASH_LEN: usize = 32;
const SUFFIX: &str = ".stat";
/// Larger caches are not read: more than ten million files.
const MAX_CACHE_BYTES: u64 = 4 << 30;

/// Which pack, in which state: nobody can replace or write one and leave its ctime as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackState {
    /// What the 32 digits of its name say.
    pub name: [u8; 16],
    /// Its ctime.
    pub changed_at: FileTime,
}

impl PackState {
    /// Bytes in a cache.
    const BYTES: usize = 28;

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.name);
        put_time(out, self.changed_at);
    }

    fn of(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut fields = Fields { bytes, at: 0 };
        Some(Self { name: fields.array()?, changed_at: fields.time()? })
    }
}

/// Says whether an object is in a store, of this length where it is known.
pub type Holds<'a> = dyn Fn(&ContentHash, Option<u64>) -> bool + Sync + 'a;

/// What a cache can count on in a store.
pub struct StoreState<'a> {
    /// New whenever objects are removed.
    pub generation: [u8; 16],
    /// The packs that can be read.
    pub packs: Vec<PackState>,
    /// Whether an object is there, of the length that is known of it.
    pub holds: Box<Holds<'a>>,
}

impl std::fmt::Debug for StoreState<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreState").field("packs", &self.packs.len()).finish_non_exhaustive()
    }
}

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

    /// Whether a file read during a walk that began at `start` could have changed unseen since.
    pub fn is_racy(&self, start: FileTime) -> bool {
        // File systems that keep whole seconds (or two) cannot tell changes within one apart.
        let slack = if self.ctime.nanoseconds == 0 { 2 } else { 0 };
        let settled = FileTime { seconds: self.ctime.seconds + slack, ..self.ctime };
        settled >= start
    }
}

/// What the cache knows of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedFile {
    /// The state in which it was read.
    pub key: StatKey,
    /// Hash of its contents, which are in the store.
    pub hash: ContentHash,
    /// Its extended attributes.
    pub xattrs: Xattrs,
}

/// What the cache knows of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedDirectory {
    /// Its tree, which is in the store.
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
}

/// A loaded cache, read-only.
#[derive(Debug, Default)]
pub struct StatCache {
    bytes: Vec<u8>,
    directories: Directories,
}

/// Where the records of directories (relative to the tracked path) are.
type Directories = HashMap<Box<[u8]>, Range<usize>>;

/// Name of the cache file of a tracked path.
fn file_name(tracked_path: &Path) -> Vec<u8> {
    format!("{}{SUFFIX}", ContentHash::of(tracked_path.as_os_str().as_bytes())).into_bytes()
}

/// Last bytes of a cache, before its checksum.
fn footer(packs: &[PackState]) -> Vec<u8> {
    let mut out = Vec::with_capacity(packs.len() * PackState::BYTES + 4);
    packs.iter().for_each(|pack| pack.put(&mut out));
    put_u32(&mut out, packs.len());
    out
}

/// Divides what follows the header of a cache, without the checksum, into records and packs.
fn split_footer(body: &[u8]) -> Option<(&[u8], Vec<PackState>)> {
    let (rest, count) = body.split_last_chunk::<4>()?;
    let bytes = (u32::from_le_bytes(*count) as usize).checked_mul(PackState::BYTES)?;
    let (records, packs) = rest.split_at(rest.len().checked_sub(bytes)?);
    Some((records, packs.as_chunks().0.iter().map(PackState::of).collect::<Option<_>>()?))
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
    let (cache, _) = StatCache::parse(bytes, &path, old);
    if cache.is_empty() || !cache.vouches_only_for(|hash, _| !is_gone(hash)) {
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
        let (cache, packs) = Self::parse(bytes, tracked_path, &store.generation);
        let are_there = packs.iter().all(|pack| store.packs.contains(pack));
        if !are_there && !cache.vouches_only_for(&store.holds) {
            let path = tracked_path.display();
            tracing::warn!("all of {path} is read: a pack is gone with what was stored of it");
            return Self::default();
        }
        cache
    }

    /// The cache in these bytes, and the packs that were there when it was written.
    fn parse(bytes: Vec<u8>, tracked_path: &Path, generation: &[u8; 16]) -> (Self, Vec<PackState>) {
        Self::try_parse(&bytes, tracked_path, generation)
            .map(|(directories, packs)| (Self { directories, bytes }, packs))
            .unwrap_or_default()
    }

    fn try_parse(
        bytes: &[u8],
        tracked_path: &Path,
        generation: &[u8; 16],
    ) -> Option<(Directories, Vec<PackState>)> {
        let (body, trailer) = bytes.split_last_chunk::<HASH_LEN>()?;
        let header = header(tracked_path, generation);
        if !body.starts_with(&header) || ContentHash::of(body).as_bytes() != trailer {
            return None;
        }
        let (records, packs) = split_footer(&body[header.len()..])?;
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
        Some((directories, packs))
    }

    /// Whether all objects that it vouches for are among those.
    fn vouches_only_for(&self, holds: impl Fn(&ContentHash, Option<u64>) -> bool) -> bool {
        self.directories.keys().all(|relative| {
            self.directory(relative).is_some_and(|known| {
                let files = || known.files.iter().map(|(_, file)| file);
                holds(&known.tree, None)
                    && files().all(|file| holds(&file.hash, Some(file.key.size)))
            })
        })
    }

    /// What is known of a directory, given relative to the tracked path.
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
            files.push((name, CachedFile { key, hash, xattrs: fields.xattrs()? }));
        }
        Some(CachedDirectory { tree, files })
    }

    /// A cache whose records are these bytes, with a valid header and checksum.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn with_records(records: &[u8]) -> Self {
        let (path, generation) = (Path::new("/tracked"), [7; 16]);
        let mut bytes = [&*header(path, &generation), records, &footer(&[])].concat();
        let sum = ContentHash::of(&bytes);
        bytes.extend_from_slice(sum.as_bytes());
        Self::parse(bytes, path, &generation).0
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
    /// Those that were there when it began: what was not read since may be in them.
    packs: Vec<PackState>,
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
            packs: store.packs.clone(),
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
        let settled = || directory.files.iter().filter(|(_, file)| !file.key.is_racy(self.start));
        put_u32(&mut record, settled().count());
        for (name, file) in settled() {
            put_bytes(&mut record, name);
            put_key(&mut record, &file.key);
            record.extend_from_slice(file.hash.as_bytes());
            put_xattrs(&mut record, &file.xattrs);
        }
        let len = (record.len() - 4) as u32;
        record[..4].copy_from_slice(&len.to_le_bytes());
        let written = self.put(&record);
        self.record = record;
        written
    }

    /// Puts the new cache in place of the old one. Only after everything it names is durable in the
    /// store: after a power failure a cache must not vouch for objects that are gone. `packs` are in the
    /// store now.
    ///
    /// # Errors
    /// When the disk is full; the old cache then stays.
    pub fn commit(mut self, packs: &[PackState]) -> sys::Result<()> {
        let mut counted_on = std::mem::take(&mut self.packs);
        counted_on.extend_from_slice(packs);
        counted_on.sort_unstable();
        counted_on.dedup();
        self.put(&footer(&counted_on))?;
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

fn put_u32(out: &mut Vec<u8>, value: usize) {
    out.extend_from_slice(&(value as u32).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_key(out: &mut Vec<u8>, key: &StatKey) {
    for number in [key.dev, key.ino, key.size] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for time in [key.mtime, key.ctime] {
        put_time(out, time);
    }
}

fn put_time(out: &mut Vec<u8>, time: FileTime) {
    out.extend_from_slice(&time.seconds.to_le_bytes());
    out.extend_from_slice(&time.nanoseconds.to_le_bytes());
}

fn put_xattrs(out: &mut Vec<u8>, xattrs: &Xattrs) {
    put_u32(out, xattrs.iter().count());
    for (name, value) in xattrs.iter() {
        put_bytes(out, name);
        put_bytes(out, value);
    }
}

/// Takes fields from the front; `None` where the bytes end.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn raw(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.raw(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    /// A length that is inside the bytes.
    fn length(&mut self) -> Option<usize> {
        let len = self.u32()? as usize;
        (len <= self.bytes.len() - self.at).then_some(len)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.length()?;
        self.raw(len)
    }

    fn hash(&mut self) -> Option<ContentHash> {
        Some(ContentHash::from_bytes(self.array()?))
    }

    fn time(&mut self) -> Option<FileTime> {
        Some(FileTime { seconds: i64::from_le_bytes(self.array()?), nanoseconds: self.u32()? })
    }

    fn key(&mut self) -> Option<StatKey> {
        Some(StatKey {
            dev: self.u64()?,
            ino: self.u64()?,
            size: self.u64()?,
            mtime: self.time()?,
            ctime: self.time()?,
        })
    }

    fn xattrs(&mut self) -> Option<Xattrs> {
        let count = self.u32()?;
        let mut pairs = Vec::new();
        for _ in 0..count {
            pairs.push((self.bytes()?.into(), self.bytes()?.into()));
        }
        Some(Xattrs::new(pairs))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
mod tests {
    use super::*;

    const GENERATION: [u8; 16] = [7; 16];
    /// There from the beginning to the end, gone before the end, made by the snapshot.
    const PACK: PackState = pack(1, 5);
    const GONE: PackState = pack(2, 5);
    const LATER: PackState = pack(3, 5);

    const fn pack(name: u8, seconds: i64) -> PackState {
        PackState { name: [name; 16], changed_at: FileTime { seconds, nanoseconds: 1 } }
    }

    fn store(generation: [u8; 16]) -> StoreState<'static> {
        let holds = Box::new(|_: &_, _| panic!("no pack is gone"));
        StoreState { generation, packs: vec![PACK, GONE, LATER], holds }
    }

    fn time(seconds: i64, nanoseconds: u32) -> FileTime {
        FileTime { seconds, nanoseconds }
    }

    fn file(ctime: FileTime) -> CachedFile {
        let key = StatKey { dev: 1, ino: 2, size: 3, mtime: time(1, 1), ctime };
        let xattrs = Xattrs::new(vec![((*b"user.a").into(), (*b"1").into())]);
        CachedFile { key, hash: ContentHash::of(b"x"), xattrs }
    }

    fn directory(files: Vec<(Box<[u8]>, CachedFile)>) -> CachedDirectory {
        CachedDirectory { tree: ContentHash::of(b"t"), files }
    }

    fn saved(start: FileTime, content: &CachedDirectory) -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let index = Dir::open(temp.path()).unwrap();
        let mut writer =
            StatCacheWriter::new(&index, Path::new("/p"), &store(GENERATION), start).unwrap();
        writer.add(b"a/b", content).unwrap();
        writer.commit(&[PACK, LATER]).unwrap();
        (temp, index)
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
        let names: Vec<_> =
            cache.directory(b"a/b").unwrap().files.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [(*b"older").into()]);
    }

    #[test]
    fn when_a_pack_is_gone_a_cache_is_used_only_if_all_it_vouches_for_is_there() {
        let content = directory(vec![((*b"f").into(), file(time(9, 1)))]);
        let (_temp, index) = saved(time(10, 0), &content);
        let load = |packs: &[PackState], lost: &'static [u8]| {
            let holds = Box::new(|hash: &_, size: Option<u64>| {
                // A file has a length, a tree has none that is known.
                assert_eq!(size, (*hash == ContentHash::of(b"x")).then_some(3));
                *hash != ContentHash::of(lost)
            });
            let store = StoreState { generation: GENERATION, packs: packs.to_vec(), holds };
            StatCache::load(&index, Path::new("/p"), &store)
        };
        let packs = [pack(9, 5), PACK, GONE, LATER];
        assert_eq!(load(&packs, b"x").directory(b"a/b"), Some(content.clone()), "nobody looks");
        for gone in 1..packs.len() {
            // Also one that went while the cache was written: who was not read may have been in it.
            let there: Vec<_> = packs.iter().copied().filter(|pack| *pack != packs[gone]).collect();
            assert_eq!(load(&there, b"else").directory(b"a/b"), Some(content.clone()));
            assert!(load(&there, b"x").is_empty());
            assert!(load(&there, b"t").is_empty());
            // One that was written to.
            let there = [&*there, &[pack(gone as u8, 6)]].concat();
            assert!(load(&there, b"x").is_empty());
        }
    }

    #[test]
    fn a_footer_that_claims_more_than_there_is_makes_a_cache_empty() {
        let parse = |end: &[u8]| {
            let mut bytes = [&*header(Path::new("/p"), &GENERATION), end].concat();
            let sum = ContentHash::of(&bytes);
            bytes.extend_from_slice(sum.as_bytes());
            StatCache::try_parse(&bytes, Path::new("/p"), &GENERATION).map(|(_, packs)| packs)
        };
        assert_eq!(parse(&footer(&[PACK, LATER])), Some(vec![PACK, LATER]));
        assert_eq!(parse(&footer(&[])), Some(vec![]));
        let one = &footer(&[PACK])[..PackState::BYTES];
        let more = |count: u32| parse(&[one, &count.to_le_bytes()].concat());
        assert_eq!(more(1), Some(vec![PACK]));
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
