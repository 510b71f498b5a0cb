//! A look at the directory of a volume before it is cleared: whether everything in it can be
//! removed, and whether the state that comes has room.

use std::collections::HashSet;

use super::contents::Contents;
use super::{Job, RestoreError};
use nono_engine::byte_path;
use nono_engine::object::Node;
use nono_engine::path_text::Shown;
use nono_engine::restore::SURELY_COPIED_BYTES;
use nono_engine::sys::{Dir, FileKind, Stat};

/// The unit of `stat` for the space of a file.
const BLOCK_BYTES: u64 = 512;

/// The obstacle that would take its own safety snapshot along.
const STORE: &str = "the store of nono: move it to another place";

/// The space and inodes that a directory gives back when it is cleared.
#[derive(Debug, Default)]
struct Freed {
    inodes: u64,
    bytes: u64,
}

/// Refuses a volume that cannot be cleared whole, or filled after that. Changes nothing.
///
/// # Errors
/// [`RestoreError::Refused`] with the path, or a directory that cannot be read.
pub(super) fn refuse(
    job: Job<'_>,
    volume: &str,
    dir: &Dir,
    contents: &Contents<'_>,
) -> Result<(), RestoreError> {
    let freed = look(job, volume, dir)?;
    let (mut inodes, mut bytes) = (0u64, 0u64);
    contents.walk(job.progress, |entry| {
        inodes += u64::from(entry.link_to.is_none() && !entry.path.is_empty());
        if let (Node::File { size, .. }, None) = (&entry.state.node, &entry.link_to) {
            // Long files may be clones, or have holes.
            bytes += if *size <= SURELY_COPIED_BYTES { *size } else { 0 };
        }
        Ok(())
    })?;
    let space = dir.space()?;
    let wants = |needed: u64, room: u64, what: &str| {
        let reason = format!(
            "volume {volume} needs {needed} {what}, and its file system, that of {}, has room for \
             {room}",
            Shown::path(dir.path())
        );
        RestoreError::Refused { snapshot: job.snapshot(), reason }
    };
    let room = space.free_inodes.saturating_add(freed.inodes);
    // Some file systems do not count them, or tell nothing of their space.
    if space.inodes > 0 && inodes > room {
        return Err(wants(inodes, room, "inodes"));
    }
    let room = space.free_bytes.saturating_add(freed.bytes);
    if space.bytes > 0 && bytes > room {
        return Err(wants(bytes, room, "bytes"));
    }
    Ok(())
}

fn look(job: Job<'_>, volume: &str, top: &Dir) -> Result<Freed, RestoreError> {
    let refused = |path: &[u8], obstacle: &str| {
        let path = if path.is_empty() { b"/".as_slice() } else { path };
        let reason = format!(
            "volume {volume} cannot be cleared: {} in it is {obstacle}",
            Shown::bytes(path)
        );
        RestoreError::Refused { snapshot: job.snapshot(), reason }
    };
    let own = top.stat_self()?;
    let store = job.history.storage().directory().map(Dir::open).transpose()?;
    let store = store.map(|dir| dir.stat_self()).transpose()?.map(|stat| (stat.dev, stat.ino));
    let is_store = |stat: &Stat| store == Some((stat.dev, stat.ino));
    if is_store(&own) {
        return Err(refused(b"", STORE));
    }
    let mut freed = Freed::default();
    let mut linked = HashSet::new();
    if let Some(obstacle) = top.inode(b".")?.frozen() {
        return Err(refused(b"", obstacle));
    }
    let mut pending = vec![Vec::new()];
    while let Some(path) = pending.pop() {
        let dir = top.open_beneath(&path)?;
        for listed in dir.names()? {
            if job.progress.is_cancelled() {
                return Err(RestoreError::Cancelled);
            }
            let Some(stat) = dir.try_stat(&listed.name)? else { continue };
            let below = byte_path::join(&path, &listed.name);
            if let Some(obstacle) = dir.obstacle(&listed.name) {
                return Err(refused(&below, obstacle));
            }
            if is_store(&stat) {
                return Err(refused(&below, STORE));
            }
            if stat.dev != own.dev {
                return Err(refused(&below, "on another file system"));
            }
            if stat.kind == FileKind::Directory {
                pending.push(below);
            } else if stat.nlink > 1 && !linked.insert(stat.ino) {
                continue;
            }
            freed.inodes += 1;
            freed.bytes += stat.blocks.saturating_mul(BLOCK_BYTES);
        }
    }
    Ok(freed)
}
