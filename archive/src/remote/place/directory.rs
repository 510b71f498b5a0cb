//! A directory as a remote: a folder for each session, a file for each archive.
//!
//! A new archive is an unnamed file that gets its name when it is complete and durable. So a killed
//! push leaves nothing, and a taken name is found by the link itself.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{Backend, Source, Stored};
use crate::remote::error::RemoteError;
use crate::{ArchiveId, ArchiveName};
use nono_engine::path_text::Shown;
use nono_engine::progress::Progress;
use nono_engine::sys::{self, Dir, FileKind, TempFile};

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 1 << 18;
/// Permissions of archives: for their owner alone.
const MODE: u16 = 0o600;

pub(super) struct Directory {
    root: Dir,
}

impl Directory {
    pub(super) fn open(path: &Path, make: bool) -> Result<Self, RemoteError> {
        let missing = || RemoteError::NoDirectory { place: Shown::path(path).to_string() };
        match Dir::open(path) {
            Ok(root) => Ok(Self { root }),
            Err(error) if error.is_gone() && make => {
                let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                    return Err(missing());
                };
                let parent = match Dir::open(parent) {
                    Err(error) if error.is_gone() => return Err(missing()),
                    opened => opened?,
                };
                match parent.make_dir(name.as_encoded_bytes(), 0o700) {
                    // Another pusher may have been faster.
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error.into());
                    }
                    _ => {}
                }
                Ok(Self { root: Dir::open(path)? })
            }
            Err(error) if error.is_gone() => Err(missing()),
            Err(error) => Err(error.into()),
        }
    }

    fn path_of(&self, key: &str) -> PathBuf {
        self.root.path_of(key.as_bytes())
    }

    /// The folder and the file that a key names. Neither leads anywhere else.
    fn split<'k>(&self, key: &'k str) -> Result<(&'k str, &'k str), RemoteError> {
        let is_name =
            |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains('/');
        let parts = key.split_once('/').filter(|(folder, name)| is_name(folder) && is_name(name));
        parts.ok_or_else(|| self.missing(key))
    }

    fn missing(&self, key: &str) -> RemoteError {
        let place = Shown::path(self.root.path()).to_string();
        RemoteError::Missing { object: key.to_owned(), place }
    }

    /// The files in a folder. One that is gone has none.
    fn list_folder(&self, folder: &str, stored: &mut Vec<Stored>) -> Result<(), RemoteError> {
        let dir = match self.root.open_dir(folder.as_bytes()) {
            Ok(dir) => dir,
            Err(error) if error.is_gone() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for entry in dir.names()? {
            let Ok(name) = str::from_utf8(&entry.name) else { continue };
            if name.starts_with('.') {
                continue;
            }
            let Some(stat) = dir.try_stat(&entry.name)? else { continue };
            let key = format!("{folder}/{name}");
            if stat.kind == FileKind::File {
                stored.push(Stored { key, size_bytes: stat.size });
            } else if key.parse::<ArchiveName>().is_ok() {
                // Something else that has an archive's name has no bytes of one.
                stored.push(Stored { key, size_bytes: 0 });
            }
        }
        Ok(())
    }

    /// A folder that holds an archive, or is to get one.
    fn open_folder(&self, key: &str, folder: &str) -> Result<Dir, RemoteError> {
        let error = match self.root.open_dir(folder.as_bytes()) {
            Ok(dir) => return Ok(dir),
            Err(error) => error,
        };
        let reason = match self.root.try_stat(folder.as_bytes())?.map(|stat| stat.kind) {
            Some(FileKind::Symlink) => "is a symlink, which is not followed",
            Some(FileKind::Directory) | None => return Err(error.into()),
            Some(_) => "is no directory",
        };
        Err(RemoteError::Failed {
            operation: "store",
            object: key.to_owned(),
            place: Shown::path(self.root.path()).to_string(),
            reason: format!("{folder} there {reason}"),
        })
    }

    /// Whether a symlink leads to a folder with archives, or to nothing: its disk may be away.
    fn leads_to_session(&self, name: &str) -> bool {
        let is_archive = |file: &[u8]| {
            let file = str::from_utf8(file).map(|file| format!("{name}/{file}"));
            file.is_ok_and(|key| key.parse::<ArchiveName>().is_ok())
        };
        match Dir::open(&self.path_of(name)).and_then(|dir| dir.names()) {
            Ok(names) => names.iter().any(|entry| is_archive(&entry.name)),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Opens the file of an object.
    fn open_file(&self, key: &str) -> Result<File, RemoteError> {
        let (folder, name) = self.split(key)?;
        let opened = self
            .root
            .open_dir(folder.as_bytes())
            .and_then(|dir| dir.open_file(name.as_bytes(), true).map(|file| (dir, file)));
        match opened {
            Ok((dir, file)) => {
                if dir.stat_file(&file, name.as_bytes())?.kind != FileKind::File {
                    return Err(self.missing(key));
                }
                Ok(file)
            }
            Err(error) if error.is_gone() => Err(self.missing(key)),
            Err(error) => Err(error.into()),
        }
    }

    /// The folders, by name.
    fn folders(&self) -> Result<Vec<String>, RemoteError> {
        let mut folders = Vec::new();
        for entry in self.root.open_beneath(b"")?.names()? {
            let Ok(name) = str::from_utf8(&entry.name) else { continue };
            let is_dir = || {
                let stat = self.root.try_stat(name.as_bytes())?;
                Ok::<_, sys::Error>(stat.is_some_and(|stat| stat.kind == FileKind::Directory))
            };
            if !name.starts_with('.') && is_dir()? {
                folders.push(name.to_owned());
            }
        }
        Ok(folders)
    }
}

impl Backend for Directory {
    fn list(&self, folder: &str, progress: &dyn Progress) -> Result<Vec<Stored>, RemoteError> {
        let mut stored = Vec::new();
        if !folder.is_empty() {
            self.list_folder(folder, &mut stored)?;
            return Ok(stored);
        }
        for folder in self.folders()? {
            if progress.is_cancelled() {
                return Err(RemoteError::Cancelled);
            }
            self.list_folder(&folder, &mut stored)?;
        }
        Ok(stored)
    }

    fn linked(&self) -> Result<Vec<String>, RemoteError> {
        let mut linked = Vec::new();
        for entry in self.root.open_beneath(b"")?.names()? {
            let Ok(name) = str::from_utf8(&entry.name) else { continue };
            let stat = self.root.try_stat(name.as_bytes())?;
            if stat.is_some_and(|stat| stat.kind == FileKind::Symlink)
                && ArchiveId::new(name, 0).is_ok()
                && self.leads_to_session(name)
            {
                linked.push(name.to_owned());
            }
        }
        Ok(linked)
    }

    fn put_new(
        &self,
        key: &str,
        source: &mut Source<'_>,
        _progress: &dyn Progress,
    ) -> Result<Option<u64>, RemoteError> {
        let (folder, name) = self.split(key)?;
        match self.root.make_dir(folder.as_bytes(), 0o700) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
            _ => {}
        }
        let dir = self.open_folder(key, folder)?;
        if dir.try_stat(name.as_bytes())?.is_some() {
            return Ok(None);
        }
        let temp = TempFile::new(&dir, MODE)?;
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, temp.file());
        source(&mut out).and_then(|()| out.flush()).map_err(RemoteError::Source)?;
        drop(out);
        temp.file().sync_all().map_err(|error| RemoteError::Failed {
            operation: "store",
            object: key.to_owned(),
            place: Shown::path(self.root.path()).to_string(),
            reason: error.to_string(),
        })?;
        let size_bytes = sys::stat_open_file(temp.file(), &self.path_of(key))?.size;
        if !temp.persist(&dir, name.as_bytes())? {
            return Ok(None);
        }
        dir.sync()?;
        self.root.sync()?;
        Ok(Some(size_bytes))
    }

    fn open<'a>(
        &'a self,
        key: &str,
        progress: &'a dyn Progress,
    ) -> Result<Box<dyn Read + Send + 'a>, RemoteError> {
        let file = self.open_file(key)?;
        sys::will_read_in_order(&file);
        Ok(Box::new(Stoppable { file, progress }))
    }

    fn read_range(
        &self,
        key: &str,
        range: Range<u64>,
        _progress: &dyn Progress,
    ) -> Result<Bytes, RemoteError> {
        let file = self.open_file(key)?;
        let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
        let path = self.path_of(key);
        let read = sys::read_full_at(&file, &mut bytes, range.start);
        let read = read.map_err(|source| sys::Error { operation: "read", path, source })?;
        bytes.truncate(read);
        Ok(bytes.into())
    }

    fn remove(&self, key: &str, _progress: &dyn Progress) -> Result<(), RemoteError> {
        let (folder, name) = self.split(key)?;
        let removed = self.root.open_dir(folder.as_bytes()).and_then(|dir| {
            dir.remove_file(name.as_bytes())?;
            dir.sync()
        });
        match removed {
            Err(error) if !error.is_gone() => Err(error.into()),
            _ => {
                // One that still holds something stays.
                let _ = self.root.remove_dir(folder.as_bytes());
                Ok(())
            }
        }
    }

    fn probe(&self, _progress: &dyn Progress) -> Result<(), RemoteError> {
        self.folders().map(drop)
    }

    fn clear_leftovers(&self, progress: &dyn Progress) -> Result<(), RemoteError> {
        for folder in self.folders()? {
            if progress.is_cancelled() {
                return Err(RemoteError::Cancelled);
            }
            let Ok(dir) = self.root.open_dir(folder.as_bytes()) else { continue };
            let names = dir.names()?;
            // Others may have folders here, and files with similar names in them.
            let is_archive = |name: &[u8]| {
                let key = str::from_utf8(name).map(|name| format!("{folder}/{name}"));
                key.is_ok_and(|key| key.parse::<ArchiveName>().is_ok())
            };
            if !names.iter().any(|entry| is_archive(&entry.name)) {
                continue;
            }
            for entry in names {
                if TempFile::is_name(&entry.name) && is_left(&dir, &entry.name) {
                    // Another pusher may have been faster.
                    let _ = dir.remove_file(&entry.name);
                }
            }
        }
        Ok(())
    }
}

/// Whether a file is as a push makes it, and was last written more than a day ago: no push writes
/// it any more.
fn is_left(dir: &Dir, name: &[u8]) -> bool {
    const DAY_NS: i128 = 24 * 3600 * 1_000_000_000;
    let Ok(Some(stat)) = dir.try_stat(name) else { return false };
    if stat.kind != FileKind::File || stat.mode != MODE || stat.uid != sys::effective_uid() {
        return false;
    }
    jiff::Timestamp::now().as_nanosecond() - i128::from(stat.mtime.seconds) * 1_000_000_000 > DAY_NS
}

/// A file whose reading can be stopped.
struct Stoppable<'a> {
    file: std::fs::File,
    progress: &'a dyn Progress,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.progress.is_cancelled() {
            return Err(io::Error::other(RemoteError::Cancelled));
        }
        self.file.read(buffer)
    }
}
