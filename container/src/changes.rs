//! The files of a container that differ from its image, as the tree `/changes`.
//!
//! The engine lists the paths; its archive call gives their contents. A directory that the
//! container added comes in one stream with everything in it. Of a directory that the image has,
//! only the attributes are read, and each listed path in it by itself. What lies on a mount is no
//! part of the container's own files.
//!
//! The engine's streams have no sockets. A listed path that its stream lacks is looked at by
//! itself. A socket is recorded with its mode and time; the engine does not tell its owner.
//! Anything else is left out, and named.

use std::collections::{BTreeMap, BTreeSet};

use bollard::models::ChangeType;
use bollard::query_parameters::ContainerArchiveInfoOptions;
use jiff::Timestamp;

use super::CHANGES_PATH;
use super::docker::{Docker, Patience};
use super::error::ContainerError;
use super::record::{ChangedFiles, MountRecord};
use super::tar_tree::{self, Reading, Sink, assemble};
use super::volumes::Parts;
use nono_engine::byte_path;
use nono_engine::manifest::{NotCaptured, NotCapturedReason, Totals};
use nono_engine::object::{Attributes, FileTime, Node, is_name};
use nono_engine::path_text::to_path;
use nono_engine::sys;

/// The changed files in the store.
#[derive(Debug)]
pub(super) struct Changes {
    pub(super) attributes: Attributes,
    pub(super) node: Node,
    pub(super) listed: ChangedFiles,
    /// Whether there are sockets, whose owners the engine does not tell.
    pub(super) has_sockets: bool,
    pub(super) parts: Parts,
}

/// Places that the engine fills itself.
const OF_THE_ENGINE: [&[u8]; 6] =
    [b"proc", b"sys", b"dev", b"etc/hosts", b"etc/hostname", b"etc/resolv.conf"];

/// Captures the changed files.
pub(super) fn capture(
    docker: &Docker,
    container_id: &str,
    mounts: &[MountRecord],
    sink: &Sink<'_>,
) -> Result<Changes, ContainerError> {
    sys::before_request("changes")?;
    let operation = format!("list the changed files of container {container_id}");
    let request = docker.client().container_changes(container_id);
    let listed = docker.call(&operation, Patience::Long, request)?.unwrap_or_default();
    let mounted: Vec<Vec<u8>> = mounts
        .iter()
        .map(|mount| mount.destination.trim_matches('/').as_bytes().to_vec())
        .collect();
    let is_apart = |path: &[u8]| {
        let is_mounted = mounted.iter().any(|mount| byte_path::is_in(path, mount));
        is_mounted || OF_THE_ENGINE.iter().any(|place| byte_path::is_in(path, place))
    };
    let mut deleted = Vec::new();
    let mut changed: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
    for change in listed {
        let path = change.path.trim_start_matches('/').as_bytes().to_vec();
        if path.is_empty() || is_apart(&path) {
            continue;
        }
        if !byte_path::components(&path).all(is_name) {
            return Err(ContainerError::InvalidAnswer {
                operation,
                reason: format!("{:?} is no plain path", change.path),
            });
        }
        match change.kind {
            ChangeType::_2 => deleted.push(change.path),
            ChangeType::_1 => {
                changed.insert(path, true);
            }
            ChangeType::_0 => {
                changed.insert(path, false);
            }
        }
    }
    deleted.sort();
    // The directories above are listed too, unless only a mount lies in them.
    let above: BTreeSet<Vec<u8>> = changed
        .keys()
        .flat_map(|path| byte_path::ancestors(path))
        .filter(|path| !path.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    for path in above {
        changed.entry(path).or_insert(false);
    }
    let listed = ChangedFiles { changed_count: changed.len() as u64, deleted };
    let mut collected = Collected::new(docker, container_id, sink);
    collected.add(b"", false)?;
    let mut whole: Option<Vec<u8>> = None;
    for (path, is_added) in &changed {
        let is_unnamed = path.windows(UNKNOWN.len()).any(|part| part == UNKNOWN);
        if whole.as_ref().is_some_and(|whole| byte_path::is_in(path, whole)) {
            if !is_unnamed {
                collected.add_missing(path)?;
            }
            continue;
        }
        if is_unnamed {
            collected.add_unnamed(path, *is_added)?;
            continue;
        }
        let holds_mount = mounted.iter().any(|mount| byte_path::is_in(mount, path));
        let takes_all = *is_added && !holds_mount;
        if collected.add(path, takes_all)? && takes_all {
            whole = Some(path.clone());
        }
    }
    collected.finish(listed)
}

/// The engine's list has this character for each byte of a name that is no UTF-8.
const UNKNOWN: &[u8] = "\u{fffd}".as_bytes();

/// A path as the engine's list has it.
fn as_listed(path: &[u8]) -> Vec<u8> {
    let mut listed = Vec::new();
    for chunk in path.utf8_chunks() {
        listed.extend_from_slice(chunk.valid().as_bytes());
        listed.extend(chunk.invalid().iter().flat_map(|_| UNKNOWN));
    }
    listed
}

/// The path of a changed file in the snapshot.
fn in_changes(path: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        CHANGES_PATH.as_bytes().to_vec()
    } else {
        byte_path::join(CHANGES_PATH.as_bytes(), path)
    }
}

struct Collected<'a> {
    docker: &'a Docker,
    container_id: &'a str,
    sink: &'a Sink<'a>,
    /// By path; a directory has the empty tree until the end.
    entries: BTreeMap<Vec<u8>, (Attributes, Node)>,
    has_sockets: bool,
    parts: Parts,
}

/// A socket in a mode as the engine tells it, which is a `FileMode` of Go.
const GO_SOCKET: u32 = 1 << 24;
/// The bits of such a mode above the permissions, and those of Linux.
const GO_MODES: [(u32, u16); 3] = [(1 << 23, 0o4000), (1 << 22, 0o2000), (1 << 20, 0o1000)];

impl<'a> Collected<'a> {
    fn new(docker: &'a Docker, container_id: &'a str, sink: &'a Sink<'a>) -> Self {
        let (entries, parts) = (BTreeMap::new(), Parts::default());
        Self { docker, container_id, sink, entries, has_sockets: false, parts }
    }

    /// Adds a path, with everything below it if `whole`. `false`: it is gone meanwhile.
    fn add(&mut self, path: &[u8], whole: bool) -> Result<bool, ContainerError> {
        let absolute = format!("/{}", String::from_utf8_lossy(path));
        let stream = self.docker.archive(self.container_id, &absolute);
        let read = tar_tree::read_each(stream, self.sink, &|_| whole);
        match read.map_err(|error| error.of(self.container_id, &absolute)) {
            Ok(read) if read.entries.is_empty() && read.left_out.is_empty() && !path.is_empty() => {
                self.add_missing(path)?;
                return Ok(self.entries.contains_key(path));
            }
            Ok(read) => self.merge(read, path),
            Err(error) if error.is_not_found() && !path.is_empty() => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Adds what a stream of the path `above` gave.
    fn merge(&mut self, read: Reading<'_>, above: &[u8]) {
        self.parts.add_totals(&read.totals);
        let in_container = |path: &[u8]| {
            if path.is_empty() { above.to_vec() } else { byte_path::join(above, path) }
        };
        let in_snapshot = |path: &[u8]| in_changes(&in_container(path));
        for (first, more) in read.links {
            let names = [first].into_iter().chain(more);
            self.parts.links.push(names.map(|name| in_snapshot(&name).into()).collect());
        }
        for (path, reason) in read.left_out {
            self.parts.not_captured.push(tar_tree::left_out_at(&in_snapshot(&path), reason));
        }
        for (path, entry) in read.entries {
            self.entries.entry(in_container(&path)).or_insert(entry);
        }
    }

    /// Adds a listed path that its stream lacks, unless it is known or gone.
    fn add_missing(&mut self, path: &[u8]) -> Result<(), ContainerError> {
        let (parent, _) = byte_path::split(path);
        if self.entries.contains_key(path) || !self.entries.contains_key(parent) {
            return Ok(());
        }
        let absolute = format!("/{}", String::from_utf8_lossy(path));
        let snapshot_path = in_changes(path);
        let options = ContainerArchiveInfoOptions { path: absolute.clone() };
        let request =
            self.docker.client().get_container_archive_info(self.container_id, Some(options));
        let operation = format_args!("look at {absolute} of container {}", self.container_id);
        let found = match self.docker.call(operation, Patience::Quick, request) {
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error @ ContainerError::Refused { .. }) => {
                let left_out = tar_tree::left_out_at(&snapshot_path, error.to_string());
                self.parts.not_captured.push(left_out);
                return Ok(());
            }
            found => found?,
        };
        if found.file_mode & GO_SOCKET == 0 {
            let reason = "the engine's stream lacks it".to_owned();
            self.parts.not_captured.push(tar_tree::left_out_at(&snapshot_path, reason));
            return Ok(());
        }
        let special = GO_MODES.iter().filter(|(bit, _)| found.file_mode & bit != 0);
        let mode = special.fold((found.file_mode & 0o777) as u16, |mode, (_, bit)| mode | bit);
        let time = found.modification_time.and_then(|text| text.parse::<Timestamp>().ok());
        // Streams have whole seconds, too.
        let seconds = time.map_or(0, |time| time.as_nanosecond().div_euclid(1_000_000_000) as i64);
        let mtime = FileTime { seconds, nanoseconds: 0 };
        let attributes = Attributes { mode, mtime, ..Attributes::default() };
        self.entries.insert(path.to_vec(), (attributes, Node::Socket));
        self.parts.not_captured.push(NotCaptured {
            path: to_path(&snapshot_path).to_owned(),
            reason: NotCapturedReason::Special,
            state: None,
        });
        self.parts.totals.entry_count += 1;
        self.has_sockets = true;
        Ok(())
    }

    /// Adds what may be meant by a path with a name that the engine's list cannot tell: out of the
    /// stream of the last directory above that it can tell. With everything below it if `whole`.
    fn add_unnamed(&mut self, listed: &[u8], whole: bool) -> Result<(), ContainerError> {
        let components: Vec<&[u8]> = byte_path::components(listed).collect();
        let told = components.iter().take_while(|name| !name.windows(3).any(|it| it == UNKNOWN));
        let above: Vec<u8> = told.copied().collect::<Vec<_>>().join(&b'/');
        let absolute = format!("/{}", String::from_utf8_lossy(&above));
        let wants = |path: &[u8]| {
            let path = as_listed(&byte_path::join(&above, path));
            let is_above = byte_path::is_in(listed, &path);
            is_above || (whole && byte_path::is_in(&path, listed))
        };
        let stream = self.docker.archive(self.container_id, &absolute);
        let failed = |error: tar_tree::TarError| error.of(self.container_id, &absolute);
        let read = tar_tree::read_each(stream, self.sink, &wants).map_err(failed)?;
        let is_meant = |path: &Vec<u8>| as_listed(&byte_path::join(&above, path)) == listed;
        let is_found = read.entries.keys().any(is_meant);
        self.merge(read, &above);
        if !is_found {
            let error = "the engine's list does not tell its name".to_owned();
            self.parts.not_captured.push(tar_tree::left_out_at(&in_changes(listed), error));
        }
        Ok(())
    }

    fn finish(mut self, listed: ChangedFiles) -> Result<Changes, ContainerError> {
        let assembled = assemble(self.entries, self.sink.store, Totals::default());
        let (top, totals) = assembled.map_err(|error| error.of(self.container_id, "/"))?;
        self.parts.add_totals(&totals);
        let (attributes, node) = top.ok_or_else(|| ContainerError::BadArchive {
            name: self.container_id.to_owned(),
            path: "/".to_owned(),
            reason: "it is empty".to_owned(),
        })?;
        Ok(Changes { attributes, node, listed, has_sockets: self.has_sockets, parts: self.parts })
    }
}
