//! From a tar stream of the engine to a tree in the store.
//!
//! The stream begins with the asked path itself; everything after it lies below. It is untrusted:
//! names are checked, nothing is ever written to a path, and lengths in it decide no allocation.
//! The stream gives the same tree as a directory of these contents, in all that it carries:
//! kinds, contents, owners, modes, whole seconds, hard links, `security.capability`. A member that
//! no tree can hold is left out and named; it fails nothing.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};

use tar::{Entry, EntryType};

use super::error::ContainerError;
use super::members::{self, Records};
use nono_engine::byte_path;
use nono_engine::manifest::{NotCaptured, NotCapturedReason, Totals};
use nono_engine::object::{
    Attributes, ContentHash, Device, FileTime, MAX_PATH_BYTES, MODE_MASK, MidstatesLink, Node,
    Tree, TreeEntry, is_name,
};
use nono_engine::path_text::to_path;
use nono_engine::progress::Progress;
use nono_engine::store::{ImportError, ObjectStore, StoreError, Transfer};
use nono_engine::sys::{Dir, TempFile};

/// Longer contents go through a file without a name, because they may not fit into memory.
const MAX_MEMORY_BYTES: u64 = 1 << 20;

/// Where a stream goes.
pub(super) struct Sink<'a> {
    pub(super) store: &'a dyn ObjectStore,
    /// A directory on the disk of the store, for contents on their way.
    pub(super) spool: &'a Dir,
    pub(super) progress: &'a dyn Progress,
}

/// A path of a container in the store.
#[derive(Debug)]
pub(super) struct TarTree {
    pub(super) attributes: Attributes,
    pub(super) node: Node,
    /// Names of one inode each, relative to the path; empty for the path itself.
    pub(super) links: Vec<Vec<Box<[u8]>>>,
    pub(super) totals: Totals,
    pub(super) left_out: Vec<LeftOut>,
}

/// A member that no tree can hold: its path relative to the asked one, and the reason.
pub(super) type LeftOut = (Vec<u8>, String);

/// A left-out member, by its path in the snapshot.
pub(super) fn left_out_at(path: &[u8], error: String) -> NotCaptured {
    let reason = NotCapturedReason::Unreadable { error, is_denied: false };
    NotCaptured { path: to_path(path).to_owned(), reason, state: None }
}

/// Why a stream is not taken.
#[derive(Debug)]
pub(super) enum TarError {
    /// The connection failed.
    Connection(ContainerError),
    /// The bytes are no such archive.
    Bad(String),
    Store(StoreError),
}

impl From<StoreError> for TarError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for TarError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<ContainerError>() {
            Ok(error) => Self::Connection(error),
            // The archive's reader may have wrapped it.
            Err(error) => Self::Bad(error.to_string()),
        }
    }
}

impl TarError {
    /// The error of reading `path` of a container.
    pub(super) fn of(self, container: &str, path: &str) -> ContainerError {
        match self {
            Self::Connection(error) => error,
            Self::Store(StoreError::Cancelled) => ContainerError::Cancelled,
            Self::Store(error) => error.into(),
            Self::Bad(reason) => ContainerError::BadArchive {
                name: container.to_owned(),
                path: path.to_owned(),
                reason,
            },
        }
    }
}

/// Reads the asked path and what lies below it. `wants` says whether a path below, relative to the
/// asked one, is wanted, and everything below that; asked for each entry. When it wants nothing at
/// all, the stream ends after the asked path.
pub(super) fn read(
    source: impl Read,
    sink: &Sink<'_>,
    wants: &dyn Fn(&[u8]) -> bool,
) -> Result<TarTree, TarError> {
    read_each(source, sink, wants)?.finish()
}

/// As [`read`], without the trees: each wanted path by itself.
pub(super) fn read_each<'a>(
    source: impl Read,
    sink: &'a Sink<'a>,
    wants: &dyn Fn(&[u8]) -> bool,
) -> Result<Reading<'a>, TarError> {
    let (mut archive, last) = members::open(source);
    let mut reading = Reading {
        sink,
        entries: BTreeMap::new(),
        links: HashMap::new(),
        totals: Totals::default(),
        left_out: Vec::new(),
    };
    let stops_early = !wants(b"");
    for entry in archive.entries()? {
        if sink.progress.is_cancelled() {
            return Err(StoreError::Cancelled.into());
        }
        let mut entry = entry?;
        if entry.header().entry_type().is_pax_global_extensions() {
            continue;
        }
        let records = last.take();
        let relative = relative_path(&records.path(&entry))?;
        if !relative.is_empty() && !wants(&relative) {
            continue;
        }
        reading.take(relative, &mut entry, &records)?;
        if stops_early {
            break;
        }
    }
    Ok(reading)
}

/// The path below the asked one.
fn relative_path(path: &[u8]) -> Result<Vec<u8>, TarError> {
    let bad = || TarError::Bad(format!("{:?} is no plain path", String::from_utf8_lossy(path)));
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if path.len() > MAX_PATH_BYTES {
        return Err(bad());
    }
    let mut components = path.split(|byte| *byte == b'/').filter(|part| *part != b".");
    // The last component of the asked path. Podman leaves it empty where a file system begins: its
    // volumes have the paths `/` and `/file` unless the container runs.
    match components.next() {
        None => return Ok(Vec::new()),
        Some(top) if top.is_empty() || is_name(top) => {}
        Some(_) => return Err(bad()),
    }
    let below: Vec<&[u8]> = components.collect();
    match below.iter().all(|part| is_name(part)) {
        true => Ok(below.join(&b'/')),
        false => Err(bad()),
    }
}

/// The wanted entries of a stream.
pub(super) struct Reading<'a> {
    sink: &'a Sink<'a>,
    /// By relative path; a directory has the empty tree until the end.
    pub(super) entries: BTreeMap<Vec<u8>, (Attributes, Node)>,
    /// Further names of files, by the first.
    pub(super) links: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    pub(super) totals: Totals,
    pub(super) left_out: Vec<LeftOut>,
}

impl Reading<'_> {
    fn take<R: Read>(
        &mut self,
        path: Vec<u8>,
        entry: &mut Entry<'_, R>,
        records: &Records,
    ) -> Result<(), TarError> {
        let kind = entry.header().entry_type();
        if kind == EntryType::Link {
            let target = records.link_name(entry);
            let first = relative_path(&target)?;
            let Some(known) = self.entries.get(&first).cloned() else {
                let name = String::from_utf8_lossy(&target).into_owned();
                let reason = format!("it is a hard link to {name:?}, which the stream lacks");
                self.left_out.push((path, reason));
                return Ok(());
            };
            self.totals.entry_count += 1;
            if let Node::File { size, .. } = &known.1 {
                self.totals.file_count += 1;
                self.totals.total_bytes += size;
            }
            self.links.entry(first).or_default().push(path.clone());
            self.entries.insert(path, known);
            return Ok(());
        }
        let attributes = attributes(entry, records)?;
        let node = match kind {
            EntryType::Directory => Node::Directory { tree: empty_tree() },
            EntryType::Symlink => {
                let target = records.link_name(entry);
                if target.is_empty() || target.len() > MAX_PATH_BYTES || target.contains(&0) {
                    self.left_out.push((path, "it is a symlink to no path".to_owned()));
                    return Ok(());
                }
                Node::Symlink { target: target.into_boxed_slice() }
            }
            EntryType::Fifo => Node::Fifo,
            EntryType::Char => Node::CharDevice(device(entry)?),
            EntryType::Block => Node::BlockDevice(device(entry)?),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.contents(entry)?
            }
            other => {
                self.left_out.push((path, format!("its kind is unknown: {other:?}")));
                return Ok(());
            }
        };
        self.totals.entry_count += 1;
        self.entries.insert(path, (attributes, node));
        Ok(())
    }

    fn contents<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<Node, TarError> {
        let Sink { store, spool, progress } = self.sink;
        let declared = entry.size();
        let mut bytes = Vec::new();
        entry.by_ref().take(MAX_MEMORY_BYTES + 1).read_to_end(&mut bytes)?;
        let (hash, size, is_new, midstates) = if bytes.len() as u64 <= MAX_MEMORY_BYTES {
            let stored = store.write(&bytes)?;
            progress.advance(1, bytes.len() as u64);
            (stored.hash, bytes.len() as u64, stored.is_new, None)
        } else {
            let temp = TempFile::new(spool, 0o600).map_err(StoreError::from)?;
            let full = |source: io::Error| match source.downcast::<ContainerError>() {
                Ok(error) => TarError::Connection(error),
                Err(source) => {
                    let path = spool.path().to_owned();
                    let error =
                        nono_engine::sys::Error { operation: "write a file in", path, source };
                    TarError::Store(error.into())
                }
            };
            let mut file = temp.file();
            file.write_all(&bytes).map_err(full)?;
            let mut buffer = vec![0; MAX_MEMORY_BYTES as usize];
            let mut size = bytes.len() as u64;
            loop {
                if progress.is_cancelled() {
                    return Err(StoreError::Cancelled.into());
                }
                let count = entry.read(&mut buffer)?;
                if count == 0 {
                    break;
                }
                file.write_all(&buffer[..count]).map_err(full)?;
                size += count as u64;
            }
            let mut transfer = Transfer::new(&mut buffer, *progress);
            let imported =
                store.import(file, size, false, &mut transfer).map_err(|error| match error {
                    ImportError::Store(error) => TarError::Store(error),
                    ImportError::Source(error) => full(error),
                })?;
            transfer.finish(imported.size);
            (imported.hash, imported.size, imported.is_new, imported.midstates)
        };
        if size != declared {
            return Err(TarError::Bad(format!("a file of {size} bytes that says {declared}")));
        }
        let midstates = match midstates {
            Some(midstates) => {
                let bytes = midstates.encode();
                let stored = store.write(&bytes)?;
                self.count_object(stored.is_new, bytes.len() as u64);
                MidstatesLink::to(stored.hash)
            }
            None => MidstatesLink::NONE,
        };
        self.count_object(is_new, size);
        self.totals.file_count += 1;
        self.totals.files_read += 1;
        self.totals.total_bytes += size;
        Ok(Node::File { size, hash, midstates })
    }

    fn count_object(&mut self, is_new: bool, bytes: u64) {
        if is_new {
            self.totals.objects_written += 1;
            self.totals.bytes_written += bytes;
        }
    }

    /// Trees from the deepest up, so depth costs no stack.
    fn finish(mut self) -> Result<TarTree, TarError> {
        let entries = std::mem::take(&mut self.entries);
        let links = std::mem::take(&mut self.links);
        let (top, totals) = assemble(entries, self.sink.store, self.totals)?;
        let (attributes, node) = top.ok_or_else(|| TarError::Bad("it is empty".to_owned()))?;
        let links = links.into_iter().map(|(first, more)| {
            [first].into_iter().chain(more).map(Vec::into_boxed_slice).collect()
        });
        Ok(TarTree { attributes, node, links: links.collect(), totals, left_out: self.left_out })
    }
}

/// The name of the tree without entries: that of a directory that is not yet built.
pub(super) fn empty_tree() -> ContentHash {
    ContentHash::of(&Tree::default().encode())
}

/// Builds the trees of entries by relative path, and gives that of the path itself. A directory
/// with the empty tree gets the entries below it.
pub(super) fn assemble(
    entries: BTreeMap<Vec<u8>, (Attributes, Node)>,
    store: &dyn ObjectStore,
    mut totals: Totals,
) -> Result<(Option<(Attributes, Node)>, Totals), TarError> {
    let mut paths: Vec<Vec<u8>> = entries.keys().cloned().collect();
    paths.sort_by_key(|path| {
        std::cmp::Reverse(if path.is_empty() { 0 } else { 1 + byte_path::depth(path) })
    });
    let mut entries = entries;
    let mut below: HashMap<Vec<u8>, Vec<TreeEntry>> = HashMap::new();
    for path in paths {
        let Some((attributes, mut node)) = entries.remove(&path) else { continue };
        let inside = below.remove(&path);
        match &mut node {
            // A part of another stream has its tree already.
            Node::Directory { tree } if inside.is_some() || *tree == empty_tree() => {
                let bytes = Tree::new(inside.unwrap_or_default()).encode();
                let stored = store.write(&bytes)?;
                if stored.is_new {
                    totals.objects_written += 1;
                    totals.bytes_written += bytes.len() as u64;
                }
                *tree = stored.hash;
            }
            _ if inside.is_some() => {
                let path = String::from_utf8_lossy(&path).into_owned();
                return Err(TarError::Bad(format!("{path:?} is no directory and has entries")));
            }
            _ => {}
        }
        if path.is_empty() {
            return match below.into_keys().next() {
                Some(orphan) => Err(TarError::Bad(format!(
                    "it has entries in {:?} and not the directory itself",
                    String::from_utf8_lossy(&orphan)
                ))),
                None => Ok((Some((attributes, node)), totals)),
            };
        }
        let (dir, name) = match path.contains(&b'/') {
            true => byte_path::split(&path),
            false => (&b""[..], &path[..]),
        };
        let entry = TreeEntry { name: name.into(), attributes, node };
        below.entry(dir.to_vec()).or_default().push(entry);
    }
    Ok((None, totals))
}

fn device<R: Read>(entry: &Entry<'_, R>) -> Result<Device, TarError> {
    let header = entry.header();
    let (major, minor) = (header.device_major()?, header.device_minor()?);
    Ok(Device { major: major.unwrap_or(0), minor: minor.unwrap_or(0) })
}

/// The attributes of a member.
pub(super) fn attributes<R: Read>(
    entry: &Entry<'_, R>,
    records: &Records,
) -> Result<Attributes, TarError> {
    let id = |id: u64| u32::try_from(id).map_err(|_| TarError::Bad(format!("an owner {id}")));
    let header = entry.header();
    let mode = (header.mode()? & u32::from(MODE_MASK)) as u16;
    let (uid, gid) = (header.uid()?, header.gid()?);
    // Beyond what the field holds, the extension below says it.
    let seconds = header.mtime().ok().and_then(|mtime| i64::try_from(mtime).ok());
    let mut mtime = FileTime { seconds: seconds.unwrap_or(0), nanoseconds: 0 };
    let (mut uid, mut gid) = (id(uid)?, id(gid)?);
    let record =
        |key: &[u8]| records.get(key).map(|value| String::from_utf8_lossy(value).into_owned());
    let invalid = |key: &str, text: &str| TarError::Bad(format!("{key} {text:?}"));
    if let Some(text) = record(b"uid") {
        uid = text.parse().map_err(|_| invalid("uid", &text))?;
    }
    if let Some(text) = record(b"gid") {
        gid = text.parse().map_err(|_| invalid("gid", &text))?;
    }
    if let Some(text) = record(b"mtime") {
        mtime = time(&text).ok_or_else(|| invalid("mtime", &text))?;
    }
    if [uid, gid].contains(&u32::MAX) {
        return Err(TarError::Bad(format!("an owner {}", u32::MAX)));
    }
    Ok(Attributes { mode, uid, gid, mtime, xattrs: records.xattrs() })
}

/// Seconds since 1970 with a fraction, as the extensions write them.
fn time(text: &str) -> Option<FileTime> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        let seconds = seconds.checked_sub(1)?;
        return Some(FileTime { seconds, nanoseconds: 1_000_000_000 - nanoseconds });
    }
    Some(FileTime { seconds, nanoseconds })
}
