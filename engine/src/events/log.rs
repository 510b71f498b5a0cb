//! The file of facts: the order in which they were seen.
//!
//! ```text
//! index/events.jsonl   {"format_version":1,"generation":"<16 hex digits>"}
//!                      one record in each line
//! index/events.lock    held exclusively while a reader looks and adds
//! ```
//!
//! A line is complete or it is the torn last one, which the next reader cuts off. A file that has
//! grown too long, or has another first line, is replaced by one of a new generation.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

use super::EventError;
use super::fact::{Event, Record};
use super::look::Seen;
use crate::layout;
use crate::manifest::MANIFEST_VERSION;
use crate::sys::{self, Dir, FileLock, IoContext, read_full_at};

/// A longer file is begun anew, in bytes.
const MAX_BYTES: u64 = 32 << 20;

/// A place between two facts of a store. Its text is opaque to users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    generation: String,
    /// Number of facts before it.
    count: u64,
}

impl Cursor {
    /// Whether the fact before this place stands behind another place. Every place stands behind
    /// one of another generation.
    pub(super) fn is_behind(&self, other: &Self) -> bool {
        self.generation != other.generation || self.count > other.count
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation, self.count)
    }
}

impl FromStr for Cursor {
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        let wrong = || EventError::Cursor { text: text.to_owned() };
        let (generation, count) = text.split_once('-').ok_or_else(wrong)?;
        if !is_generation(generation) || !count.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        let count = count.parse().map_err(|_| wrong())?;
        Ok(Self { generation: generation.to_owned(), count })
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn is_generation(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format_version: u32,
    generation: String,
}

/// The file, as far as it was read.
#[derive(Debug)]
pub(super) struct EventLog {
    index: PathBuf,
    read: Option<Read>,
}

#[derive(Debug)]
struct Read {
    /// Device and inode of the file.
    identity: (u64, u64),
    generation: String,
    /// Bytes that were read, and the number of facts in them.
    bytes: u64,
    count: u64,
    seen: Seen,
}

impl EventLog {
    pub(super) fn new(root: &Path) -> Self {
        Self { index: root.join(layout::INDEX), read: None }
    }

    /// The facts that this value has not given yet: those in the file, and those that `look` finds
    /// beyond them, which are added to it.
    pub(super) fn read_and_add(
        &mut self,
        look: impl FnOnce(&Seen) -> Result<Vec<Record>, EventError>,
    ) -> Result<Vec<Event>, EventError> {
        sys::refuse_to_write_as_root(self.index.parent().unwrap_or(&self.index))?;
        sys::create_private_dir(&self.index)?;
        let _lock = FileLock::exclusive(&self.index.join(layout::EVENTS_LOCK))?;
        let index = Dir::open(&self.index)?;
        let (file, mut read, mut events) = self.catch_up(&index)?;
        let found = look(&read.seen);
        // The facts that could be read stay known, whatever the look met.
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.read = Some(read);
                return Err(error);
            }
        };
        if !found.is_empty() {
            let mut text = Vec::new();
            for record in &found {
                let line = serde_json::to_vec(record).map_err(std::io::Error::from);
                text.append(&mut line.at("write", &self.index)?);
                text.push(b'\n');
            }
            let path = index.path_of(layout::EVENTS.as_bytes());
            (&file).write_all(&text).at("write", &path)?;
            read.bytes += text.len() as u64;
            events.extend(found.into_iter().map(|record| read.next(record)));
        }
        self.read = Some(read);
        Ok(events)
    }

    /// Opens the file, or a new one, and reads what was not read before.
    fn catch_up(&mut self, index: &Dir) -> Result<(File, Read, Vec<Event>), EventError> {
        let name = layout::EVENTS.as_bytes();
        let path = index.path_of(name);
        if let Some(caught) = self.try_catch_up(index)? {
            return Ok(caught);
        }
        let generation = hex::encode(&sys::random_bytes()?[..8]);
        let header = Header { format_version: MANIFEST_VERSION, generation: generation.clone() };
        let mut text =
            serde_json::to_vec(&header).map_err(std::io::Error::from).at("write", &path)?;
        text.push(b'\n');
        index.replace_file(name, &text, 0o600, false)?;
        let file = sys::open_log(&path, u64::MAX)?;
        let stat = index.stat_file(&file, name)?;
        let identity = (stat.dev, stat.ino);
        let bytes = text.len() as u64;
        Ok((
            file,
            Read { identity, generation, bytes, count: 0, seen: Seen::default() },
            Vec::new(),
        ))
    }

    /// `None`: there is no file, it is too long, or something else wrote it.
    fn try_catch_up(
        &mut self,
        index: &Dir,
    ) -> Result<Option<(File, Read, Vec<Event>)>, EventError> {
        let name = layout::EVENTS.as_bytes();
        let path = index.path_of(name);
        let reader = match index.open_file(name, false) {
            Err(error) if error.is_gone() => return Ok(None),
            reader => reader?,
        };
        let stat = index.stat_file(&reader, name)?;
        if stat.kind != crate::sys::FileKind::File || stat.size > MAX_BYTES {
            return Ok(None);
        }
        let identity = (stat.dev, stat.ino);
        let known = self.read.take();
        let known = known.filter(|read| read.identity == identity && read.bytes <= stat.size);
        let from = known.as_ref().map_or(0, |read| read.bytes);
        let mut tail = vec![0; usize::try_from(stat.size - from).unwrap_or(usize::MAX)];
        let len = read_full_at(&reader, &mut tail, from).at("read", &path)?;
        tail.truncate(len);
        let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let is_torn = whole < tail.len();
        tail.truncate(whole);
        let mut lines = tail.split_inclusive(|byte| *byte == b'\n');
        let mut read = match known {
            Some(read) => read,
            None => {
                let header = lines.next().unwrap_or_default();
                let Ok(Header { format_version, generation }) = serde_json::from_slice(header)
                else {
                    return Ok(None);
                };
                if format_version != MANIFEST_VERSION || !is_generation(&generation) {
                    return Ok(None);
                }
                let bytes = header.len() as u64;
                Read { identity, generation, bytes, count: 0, seen: Seen::default() }
            }
        };
        let mut events = Vec::new();
        for line in lines {
            let Ok(record) = serde_json::from_slice(line) else { return Ok(None) };
            read.bytes += line.len() as u64;
            events.push(read.next(record));
        }
        let file = sys::open_log(&path, u64::MAX)?;
        if is_torn {
            file.set_len(read.bytes).at("shorten", &path)?;
        }
        Ok(Some((file, read, events)))
    }
}

impl Read {
    /// The next fact in the order.
    fn next(&mut self, record: Record) -> Event {
        self.count += 1;
        self.seen.note(&record);
        Event { cursor: Cursor { generation: self.generation.clone(), count: self.count }, record }
    }
}
