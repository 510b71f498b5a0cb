//! A volume read back, and compared with the snapshot.
//!
//! A directory shows everything. The tar stream of the engine shows whole seconds, and of the
//! extended attributes `security.capability` alone.

use std::collections::HashMap;
use std::io::Read;

use super::RestoreError;
use super::contents::{Contents, is_special};
use crate::{ContainerError, Docker, members, tar_tree};
use nono_engine::byte_path;
use nono_engine::diff::EntryState;
use nono_engine::object::{Attributes, ContentHash, Node, PieceHasher, Xattrs};
use nono_engine::path_text::Shown;
use nono_engine::progress::Progress;
use nono_engine::sys::{Device, Dir, FileKind, Stat, read_full_at};

/// The one extended attribute that a tar stream of the engine has.
const CAPABILITY: &[u8] = b"security.capability";
const BUFFER_BYTES: usize = 1 << 20;

/// The expected entries that were not found yet.
struct Expected<'a> {
    volume: &'a str,
    /// By path: the state, and the path of the same inode that the walk visits first.
    entries: HashMap<Vec<u8>, (EntryState, Option<Vec<u8>>)>,
    is_archive: bool,
}

/// One entry that was found. The hash of a file is that of its bytes.
struct Found {
    kind: Kind,
    attributes: Attributes,
}

#[derive(PartialEq, Eq, Debug)]
enum Kind {
    File(u64, ContentHash),
    /// Another name of this path.
    Link(Vec<u8>),
    Directory,
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    CharDevice(Device),
    BlockDevice(Device),
    Other,
}

impl<'a> Expected<'a> {
    fn new(
        contents: &Contents<'_>,
        volume: &'a str,
        is_archive: bool,
        progress: &dyn Progress,
    ) -> Result<Self, RestoreError> {
        let mut entries = HashMap::new();
        contents.walk(progress, |entry| {
            entries.insert(entry.path, (entry.state, entry.link_to));
            Ok(())
        })?;
        Ok(Self { volume, entries, is_archive })
    }

    fn differs(&self, path: &[u8], what: &str) -> RestoreError {
        let path = if path.is_empty() { b"/".as_slice() } else { path };
        RestoreError::Different {
            volume: self.volume.to_owned(),
            difference: format!("{}: {what}", Shown::bytes(path)),
        }
    }

    /// Takes an expected entry away, if the found one is like it.
    fn found(&mut self, path: &[u8], found: &Found) -> Result<(), RestoreError> {
        let Some((state, link_to)) = self.entries.remove(path) else {
            return Err(self.differs(path, "it is not in the snapshot"));
        };
        let kind = match (&state.node, link_to) {
            (_, Some(first)) => Kind::Link(first),
            (Node::File { size, hash, .. }, None) => Kind::File(*size, *hash),
            (Node::Directory { .. }, _) => Kind::Directory,
            (Node::Symlink { target }, _) => Kind::Symlink(target.to_vec()),
            (Node::Fifo, _) => Kind::Fifo,
            (Node::Socket, _) => Kind::Socket,
            (Node::CharDevice(device), _) => Kind::CharDevice(*device),
            (Node::BlockDevice(device), _) => Kind::BlockDevice(*device),
        };
        if kind != found.kind {
            let reason = match (&kind, &found.kind) {
                (Kind::File(..), Kind::File(..)) => "its contents differ",
                (Kind::Symlink(_), Kind::Symlink(_)) => "its target differs",
                (Kind::Link(_), _) | (_, Kind::Link(_)) => "it has other hard links",
                _ => "it is of another kind",
            };
            return Err(self.differs(path, reason));
        }
        if matches!(kind, Kind::Link(_)) {
            return Ok(());
        }
        self.same_attributes(path, &kind, &state.attributes, &found.attributes)
    }

    fn same_attributes(
        &self,
        path: &[u8],
        kind: &Kind,
        wanted: &Attributes,
        found: &Attributes,
    ) -> Result<(), RestoreError> {
        if (wanted.uid, wanted.gid) != (found.uid, found.gid) {
            return Err(self.differs(path, "its owner differs"));
        }
        let is_symlink = matches!(kind, Kind::Symlink(_));
        if wanted.mode != found.mode && !is_symlink {
            let text = format!("its mode is {:o} instead of {:o}", found.mode, wanted.mode);
            return Err(self.differs(path, &text));
        }
        if self.is_archive {
            // The engine does not set the time of a symlink in every version.
            if wanted.mtime.seconds != found.mtime.seconds && !is_symlink {
                return Err(self.differs(path, "its time differs"));
            }
            if wanted.xattrs.get(CAPABILITY) != found.xattrs.get(CAPABILITY) {
                return Err(self.differs(path, "its capabilities differ"));
            }
            return Ok(());
        }
        if wanted.mtime != found.mtime {
            return Err(self.differs(path, "its time differs"));
        }
        if wanted.xattrs != found.xattrs {
            return Err(self.differs(path, "its extended attributes differ"));
        }
        Ok(())
    }

    fn finish(self) -> Result<u64, RestoreError> {
        // The filling told the sockets and devices that it did not make.
        let is_missing = |(path, (state, _)): &(&Vec<u8>, &(EntryState, Option<Vec<u8>>))| {
            !is_special(&state.node) && (!self.is_archive || !path.is_empty())
        };
        match self.entries.iter().find(is_missing) {
            Some((path, _)) => Err(self.differs(path, "it is missing")),
            None => Ok(0),
        }
    }
}

/// Compares the directory of a volume.
pub(super) fn directory(
    contents: &Contents<'_>,
    volume: &str,
    top: &Dir,
    progress: &dyn Progress,
) -> Result<(), RestoreError> {
    let mut expected = Expected::new(contents, volume, false, progress)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut names_of: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    let mut pending = vec![Vec::new()];
    while let Some(path) = pending.pop() {
        if progress.is_cancelled() {
            return Err(RestoreError::Cancelled);
        }
        let (parent, name) = byte_path::split(&path);
        let dir = top.open_beneath(if path.is_empty() { b"" } else { parent })?;
        let name = if path.is_empty() { b".".as_slice() } else { name };
        let stat = dir.stat(name)?;
        let attributes = Attributes {
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            mtime: stat.mtime,
            xattrs: Xattrs::new(dir.inode(name)?.xattrs()?),
        };
        let kind = match stat.kind {
            FileKind::Directory => {
                let mut names =
                    dir.open_beneath(if path.is_empty() { b"" } else { name })?.names()?;
                names.sort_by(|a, b| b.name.cmp(&a.name));
                pending.extend(names.iter().map(|listed| byte_path::join(&path, &listed.name)));
                Kind::Directory
            }
            _ if stat.nlink > 1 && names_of.contains_key(&(stat.dev, stat.ino)) => {
                Kind::Link(names_of[&(stat.dev, stat.ino)].clone())
            }
            FileKind::File => {
                names_of.insert((stat.dev, stat.ino), path.clone());
                Kind::File(stat.size, hash_file(&dir, name, &stat, &mut buffer)?)
            }
            FileKind::Symlink => {
                names_of.insert((stat.dev, stat.ino), path.clone());
                Kind::Symlink(dir.read_link(name)?)
            }
            kind => {
                names_of.insert((stat.dev, stat.ino), path.clone());
                match kind {
                    FileKind::Fifo => Kind::Fifo,
                    FileKind::Socket => Kind::Socket,
                    FileKind::CharDevice => Kind::CharDevice(stat.device),
                    FileKind::BlockDevice => Kind::BlockDevice(stat.device),
                    _ => Kind::Other,
                }
            }
        };
        progress.advance(1, 0);
        expected.found(&path, &Found { kind, attributes })?;
    }
    expected.finish().map(drop)
}

fn hash_file(
    dir: &Dir,
    name: &[u8],
    stat: &Stat,
    buffer: &mut [u8],
) -> Result<ContentHash, RestoreError> {
    let file = dir.open_file(name, true)?;
    let mut hasher = PieceHasher::new(stat.size);
    let mut at = 0;
    while at < stat.size {
        let len = read_full_at(&file, buffer, at).map_err(|source| nono_engine::sys::Error {
            operation: "read",
            path: dir.path_of(name),
            source,
        })?;
        if len == 0 {
            break;
        }
        hasher.update(&buffer[..len]);
        at += len as u64;
    }
    Ok(hasher.finish().0)
}

/// Compares the tar stream of a volume at a path of a container.
pub(super) fn archive(
    contents: &Contents<'_>,
    volume: &str,
    docker: &Docker,
    container: &str,
    path: &str,
    progress: &dyn Progress,
) -> Result<(), RestoreError> {
    let mut expected = Expected::new(contents, volume, true, progress)?;
    let bad = |error: std::io::Error| -> RestoreError {
        match error.downcast::<ContainerError>() {
            Ok(error) => error.into(),
            Err(error) => ContainerError::BadArchive {
                name: container.to_owned(),
                path: path.to_owned(),
                reason: error.to_string(),
            }
            .into(),
        }
    };
    let asked = path;
    let (mut stream, last) = members::open(docker.archive(container, path));
    for entry in stream.entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        if progress.is_cancelled() {
            return Err(RestoreError::Cancelled);
        }
        let records = last.take();
        let path = below_first(&records.path(&entry));
        let kind = match entry.header().entry_type() {
            tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {
                let mut hasher = PieceHasher::new(entry.size());
                let mut buffer = vec![0; 1 << 16];
                let mut size = 0;
                loop {
                    let len = entry.read(&mut buffer).map_err(bad)?;
                    if len == 0 {
                        break;
                    }
                    hasher.update(&buffer[..len]);
                    size += len as u64;
                }
                Kind::File(size, hasher.finish().0)
            }
            tar::EntryType::Link => Kind::Link(below_first(&records.link_name(&entry))),
            tar::EntryType::Directory => Kind::Directory,
            tar::EntryType::Symlink => Kind::Symlink(records.link_name(&entry)),
            tar::EntryType::Fifo => Kind::Fifo,
            _ => Kind::Other,
        };
        let attributes = tar_tree::attributes(&entry, &records)
            .map_err(|error| RestoreError::from(error.of(container, asked)))?;
        progress.advance(1, 0);
        expected.found(&path, &Found { kind, attributes })?;
    }
    expected.finish().map(drop)
}

/// The path without its first component, which is the name of the volume's directory.
fn below_first(path: &[u8]) -> Vec<u8> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    match path.iter().position(|byte| *byte == b'/') {
        Some(slash) => path[slash + 1..].to_vec(),
        None => Vec::new(),
    }
}
