//! Layers that are not flushed yet.
//!
//! The overlays of a fork are mounted `volatile`: otherwise each first change of an old file waits
//! for the disk. Then nothing but nono flushes a layer, and the kernel refuses to mount one again
//! that was. A document in the fork's directory says since when the layers may be unflushed, and in
//! which run of the machine. Always true:
//!
//! - It is durable before the first write.
//! - It goes only after a flush that began after the last write.
//! - Processes that are killed lose nothing: the kernel has what they wrote. Only where the
//!   document names another run of the machine, the last writes may be lost, and that is said.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ForkError;
use super::store::{Fork, WORK};
use crate::path_text::to_path;
use crate::sys::{self, Dir, FileKind, FileTime};

/// The document, in the directory of a fork.
const DOCUMENT: &[u8] = b"unflushed.json";
const MAX_DOCUMENT_BYTES: u64 = 4096;
/// The number of this run of the machine (proc(5)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const MAX_BOOT_ID_BYTES: u64 = 64;
/// More paths than this are counted alone.
const MAX_PATHS: usize = 1000;
/// The kernel's mark in the directory `work` that it works in, below that of the layer.
const INCOMPAT: &[u8] = b"incompat";

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Unflushed {
    /// The run of the machine.
    boot: String,
    /// When the unflushed writes began.
    since_seconds: i64,
    since_nanoseconds: u32,
    /// The holder that wrote this last.
    holder: String,
}

/// Writes that the machine may have lost because it went down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostWrites {
    /// When the first of them was made. A file that was made later may be missing.
    pub since: Timestamp,
    /// Paths that were written since, as the fork shows them: their contents may be damaged.
    pub paths: Vec<PathBuf>,
}

/// A use of the layers that flushes nothing by itself.
#[derive(Debug)]
pub struct UnflushedUse {
    fork: Fork,
    holder: String,
}

fn boot_id() -> sys::Result<String> {
    let bytes = sys::read_kernel_file(Path::new(BOOT_ID), MAX_BOOT_ID_BYTES)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

impl Fork {
    fn unflushed(&self) -> Result<Option<Unflushed>, ForkError> {
        let bytes = match Dir::open(self.path())?.read(DOCUMENT, MAX_DOCUMENT_BYTES) {
            Err(error) if error.is_gone() => return Ok(None),
            bytes => bytes?,
        };
        let document = serde_json::from_slice(&bytes).map_err(|error| ForkError::Document {
            name: self.name().to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Some(document))
    }

    /// The writes that the machine may have lost since the layers were flushed last.
    ///
    /// # Errors
    /// A layer cannot be read.
    pub fn lost_writes(&self) -> Result<Option<LostWrites>, ForkError> {
        let Some(unflushed) = self.unflushed()? else { return Ok(None) };
        if unflushed.boot == boot_id()? {
            return Ok(None);
        }
        let Unflushed { since_seconds: seconds, since_nanoseconds: nanoseconds, .. } = unflushed;
        let since = FileTime { seconds, nanoseconds };
        let mut paths = Vec::new();
        for (number, layer) in self.document().layers.iter().enumerate() {
            let mut pending = vec![(Dir::open(&self.upper_path(number))?, layer.path.clone())];
            while let Some((dir, shown)) = pending.pop() {
                for listed in dir.names()? {
                    let Some(stat) = dir.try_stat(&listed.name)? else { continue };
                    let path = shown.join(to_path(&listed.name));
                    if stat.kind == FileKind::Directory {
                        // One that is closed to its own user was not written through.
                        if let Ok(inside) = dir.open_dir(&listed.name) {
                            pending.push((inside, path));
                        }
                    } else if stat.kind == FileKind::File
                        && stat.ctime >= since
                        && paths.len() < MAX_PATHS
                    {
                        paths.push(path);
                    }
                }
            }
        }
        paths.sort();
        let since = Timestamp::from_second(seconds).unwrap_or(self.document().created);
        Ok(Some(LostWrites { since, paths }))
    }

    /// Begins a use of the layers that flushes nothing by itself, before they are mounted.
    ///
    /// # Errors
    /// The directory of the fork cannot be written.
    pub fn begin_unflushed(&self) -> Result<UnflushedUse, ForkError> {
        let boot = boot_id()?;
        let before = self.unflushed()?.filter(|before| before.boot == boot);
        let now = sys::coarse_now();
        let since = before.map_or((now.seconds, now.nanoseconds), |before| {
            (before.since_seconds, before.since_nanoseconds)
        });
        let holder = hex::encode(sys::random_bytes()?);
        let document = Unflushed {
            boot,
            since_seconds: since.0,
            since_nanoseconds: since.1,
            holder: holder.clone(),
        };
        let bytes = serde_json::to_vec(&document).map_err(|error| ForkError::Document {
            name: self.name().to_owned(),
            reason: error.to_string(),
        })?;
        Dir::open(self.path())?.replace_file(DOCUMENT, &bytes, 0o600, true)?;
        for layer in 0..self.document().layers.len() {
            self.allow_mount(layer)?;
        }
        Ok(UnflushedUse { fork: self.clone(), holder })
    }

    /// Removes the kernel's mark of a volatile mount.
    fn allow_mount(&self, layer: usize) -> Result<(), ForkError> {
        let own = Dir::open(&self.work_path(layer))?;
        if own.try_stat(WORK.as_bytes())?.is_none() {
            return Ok(());
        }
        match own.open_own_dir(WORK.as_bytes())?.remove_dir_all(INCOMPAT) {
            Err(error) if !error.is_gone() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl UnflushedUse {
    /// Flushes what was written. No process writes any more.
    ///
    /// # Errors
    /// The kernel lost data.
    pub fn flush(&self) -> Result<(), ForkError> {
        Ok(Dir::open(self.fork.path())?.sync_file_system()?)
    }

    /// Says that all is flushed, unless another use began meanwhile. No use begins while this is
    /// called.
    ///
    /// # Errors
    /// The directory of the fork cannot be written.
    pub fn end(&self) -> Result<(), ForkError> {
        if self.fork.unflushed()?.is_some_and(|it| it.holder == self.holder) {
            Dir::open(self.fork.path())?.remove_file(DOCUMENT)?;
        }
        Ok(())
    }
}
