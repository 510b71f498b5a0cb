//! Paths out of the bytes of an index, versions 2 to 4, as `gitformat-index(5)` has them.
//!
//! The reader knows nothing but paths and the name of a shared index. It looks into no extension,
//! recurses nowhere, and takes no more memory than the limits say, whatever the bytes are.

#[cfg(feature = "mount")]
use super::Places;
use super::{Paths, StagedEntries, StagedEntry};
use crate::object::ContentHash;

const SIGNATURE: &[u8] = b"DIRC";
const HEADER_BYTES: usize = 12;
/// Times, device, inode, mode, owner and size of an entry, before the name of its object.
const STAT_BYTES: usize = 40;
/// Where the mode is.
const MODE_AT: usize = 24;
const IS_EXTENDED: u16 = 0x4000;
/// The extension that names a shared index.
const LINK: &[u8] = b"link";
/// A longer path is none that the kernel would take.
const MAX_PATH_BYTES: usize = 4096;
/// Version 4 leaves out what a path shares with the one before, so that few bytes can be many.
const MAX_ALL_PATHS_BYTES: usize = 1 << 28;

/// The contents of an index.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) paths: Paths,
    /// Name of the shared index that this one adds to, in hexadecimal.
    pub(super) shared: Option<String>,
}

/// The staged state in one hash: modes, object names, flags and paths of all entries. Data that a
/// `git status` writes anew (times, inodes, extensions) is not in it. `None`: unreadable, or a
/// part of it is in a shared index.
pub(super) fn staged(bytes: &[u8]) -> Option<ContentHash> {
    let read = |hash_bytes: usize| {
        let mut text = Vec::new();
        let decoded = decode_with(bytes, hash_bytes, |_, entry, path| {
            text.extend_from_slice(entry.get(MODE_AT..MODE_AT + 4).unwrap_or_default());
            text.extend_from_slice(entry.get(STAT_BYTES..).unwrap_or_default());
            text.extend_from_slice(path);
            text.push(0);
        });
        decoded.ok().filter(|decoded| decoded.shared.is_none()).map(|_| ContentHash::of(&text))
    };
    read(20).or_else(|| read(32))
}

/// The staged entries of an index. `None`: it cannot be read, or a part of it is in a shared index.
pub(super) fn staged_entries(bytes: &[u8]) -> Option<StagedEntries> {
    let read = |hash_bytes: usize| {
        let mut entries = StagedEntries::new();
        let decoded = decode_with(bytes, hash_bytes, |_, entry, path| {
            let at = |from: usize, count: usize| entry.get(from..from + count).unwrap_or_default();
            let mode = number(at(MODE_AT, 4)).unwrap_or_default();
            let flags = at(STAT_BYTES + hash_bytes, 2);
            let stage = flags.first().map_or(0, |flags| flags >> 4 & 3);
            let object = hex::encode(at(STAT_BYTES, hash_bytes)).into();
            entries.insert((path.to_vec(), stage), StagedEntry { mode, object });
        });
        decoded.ok().filter(|decoded| decoded.shared.is_none()).map(|_| entries)
    };
    read(20).or_else(|| read(32))
}

/// Reads an index. The object names in it have 20 bytes or 32; the index itself does not say which.
pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, &'static str> {
    let read = |hash_bytes| decode_with(bytes, hash_bytes, |_, _, _| {});
    read(20).or_else(|error| read(32).map_err(|_| error))
}

/// The entries of an index whose paths it holds itself. `None`: it cannot be read, or a part of it
/// is in a shared index.
#[cfg(feature = "mount")]
pub(super) fn places(bytes: &[u8]) -> Option<Places> {
    let read = |hash_bytes: usize| {
        let mut entries = Vec::new();
        let decoded = decode_with(bytes, hash_bytes, |at, _, path| entries.push((at, path.into())));
        let is_whole = decoded.is_ok_and(|decoded| decoded.shared.is_none());
        is_whole.then_some(Places { entries, hash_bytes })
    };
    read(20).or_else(|| read(32))
}

/// `see` gets the place of each entry, the entry up to its path, and the path.
fn decode_with(
    bytes: &[u8],
    hash_bytes: usize,
    mut see: impl FnMut(usize, &[u8], &[u8]),
) -> Result<Decoded, &'static str> {
    const SHORT: &str = "it ends early";
    let (header, mut rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(SHORT)?;
    if !header.starts_with(SIGNATURE) {
        return Err("it does not begin as an index does");
    }
    let version = number(&header[4..]).ok_or(SHORT)?;
    let count = number(&header[8..]).ok_or(SHORT)?;
    if !(2..=4).contains(&version) {
        return Err("its version is none of 2, 3 and 4");
    }
    let mut paths = Paths::default();
    let mut path = Vec::new();
    for _ in 0..count {
        let entry = rest;
        rest = rest.get(STAT_BYTES + hash_bytes..).ok_or(SHORT)?;
        let (flags, after) = rest.split_at_checked(2).ok_or(SHORT)?;
        rest = after;
        if u16::from_be_bytes([flags[0], flags[1]]) & IS_EXTENDED != 0 {
            rest = rest.get(2..).ok_or(SHORT)?;
        }
        let head = &entry[..entry.len() - rest.len()];
        if version == 4 {
            let stripped = stripped_count(&mut rest).ok_or(SHORT)?;
            let kept = path.len().checked_sub(stripped).ok_or("it strips more than there is")?;
            path.truncate(kept);
        } else {
            path.clear();
        }
        let end = rest.iter().take(MAX_PATH_BYTES + 1).position(|byte| *byte == 0);
        let end = end.ok_or("a path in it has no end")?;
        path.extend_from_slice(&rest[..end]);
        rest = &rest[end..];
        if path.len() > MAX_PATH_BYTES {
            return Err("a path in it is too long");
        }
        rest = if version == 4 {
            rest.get(1..).ok_or(SHORT)?
        } else {
            // At least one zero byte, up to a multiple of eight.
            let used = entry.len() - rest.len();
            entry.get((used + 8) & !7..).ok_or(SHORT)?
        };
        see(bytes.len() - entry.len(), head, &path);
        paths.push(&path)?;
        if paths.bytes.len() > MAX_ALL_PATHS_BYTES {
            return Err("its paths are too long");
        }
    }
    Ok(Decoded { paths, shared: shared_index(rest, hash_bytes).ok_or(SHORT)? })
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// A number in the variable length that git's packs use for offsets.
fn stripped_count(rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0usize;
    for index in 0.. {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        if index > 0 {
            value = value.checked_add(1)?;
        }
        value = value.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(value)
}

/// The name of a shared index among the extensions. `None`: they are cut short.
fn shared_index(mut rest: &[u8], hash_bytes: usize) -> Option<Option<String>> {
    // The checksum of the whole is last.
    while rest.len() > hash_bytes {
        let (signature, after) = rest.split_at_checked(4)?;
        let size = usize::try_from(number(after)?).ok()?;
        let (data, after) = after.get(4..)?.split_at_checked(size)?;
        if signature == LINK {
            let name = data.get(..hash_bytes)?;
            return Some(name.iter().any(|byte| *byte != 0).then(|| hex::encode(name)));
        }
        rest = after;
    }
    (rest.len() == hash_bytes).then_some(None)
}
