//! The files of a container that differ from its image, as the tree `/changes`.
//!
//! The engine lists the paths; its archive call gives their contents. A directory that the
//! container added comes in one stream with everything in it. Of a directory that the image has,
//! only the attributes are read, and each listed path in it by itself. What lies on a mount is no
//! part of the container's own files.

use std::collections::{BTreeMap, BTreeSet};

use bollard::models::ChangeType;

use super::CHANGES_PATH;
use super::docker::{Docker, Patience};
use super::error::ContainerError;
use super::record::{ChangedFiles, MountRecord};
use super::tar_tree::{self, Sink, TarTree, assemble};
use super::volumes::Parts;
use nono_engine::byte_path;
use nono_engine::manifest::{NotCaptured, NotCapturedReason, Totals};
use nono_engine::object::{Attributes, Node, is_name};
use nono_engine::path_text::to_path;
use nono_engine::sys;

/// The changed files in the store.
#[derive(Debug)]
pub(super) struct Changes {
    pub(super) attributes: Attributes,
    pub(super) node: Node,
    pub(super) listed: ChangedFiles,
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
        if whole.as_ref().is_some_and(|whole| byte_path::is_in(path, whole)) {
            continue;
        }
        if path.windows(UNKNOWN.len()).any(|part| part == UNKNOWN) {
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

struct Collected<'a> {
    docker: &'a Docker,
    container_id: &'a str,
    sink: &'a Sink<'a>,
    entries: BTreeMap<Vec<u8>, (Attributes, Node)>,
    parts: Parts,
}

impl<'a> Collected<'a> {
    fn new(docker: &'a Docker, container_id: &'a str, sink: &'a Sink<'a>) -> Self {
        let (entries, parts) = (BTreeMap::new(), Parts::default());
        Self { docker, container_id, sink, entries, parts }
    }

    /// Adds a path, with everything below it if `whole`. `false`: it is gone meanwhile.
    fn add(&mut self, path: &[u8], whole: bool) -> Result<bool, ContainerError> {
        let absolute = format!("/{}", String::from_utf8_lossy(path));
        let stream = self.docker.archive(self.container_id, &absolute);
        let read = match whole {
            true => tar_tree::read(stream, self.sink, &|_| true),
            false => tar_tree::read_top(stream, self.sink),
        };
        let tree = match read.map_err(|error| error.of(self.container_id, &absolute)) {
            Ok(tree) => tree,
            Err(error) if error.is_not_found() && !path.is_empty() => return Ok(false),
            Err(error) => return Err(error),
        };
        let TarTree { attributes, node, links, totals } = tree;
        self.parts.add_totals(&totals);
        let root = byte_path::join(CHANGES_PATH.as_bytes(), path);
        let root = if path.is_empty() { CHANGES_PATH.as_bytes().to_vec() } else { root };
        for group in links {
            let absolute = group.iter().map(|name| match name.is_empty() {
                true => root.clone(),
                false => byte_path::join(&root, name),
            });
            self.parts.links.push(absolute.map(Vec::into_boxed_slice).collect());
        }
        self.entries.insert(path.to_vec(), (attributes, node));
        Ok(true)
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
        self.parts.add_totals(&read.totals);
        let in_container = |path: &[u8]| byte_path::join(&above, path);
        let in_snapshot = |path: &[u8]| {
            byte_path::join(CHANGES_PATH.as_bytes(), &in_container(path)).into_boxed_slice()
        };
        for (first, more) in read.links {
            let names = [first].into_iter().chain(more);
            self.parts.links.push(names.map(|name| in_snapshot(&name)).collect());
        }
        let mut is_found = false;
        for (path, entry) in read.entries.into_iter().filter(|(path, _)| !path.is_empty()) {
            let path = in_container(&path);
            is_found |= as_listed(&path) == listed;
            self.entries.entry(path).or_insert(entry);
        }
        if !is_found {
            let path = byte_path::join(CHANGES_PATH.as_bytes(), listed);
            let error = "the engine's list does not tell its name".to_owned();
            let reason = NotCapturedReason::Unreadable { error, is_denied: false };
            let path = to_path(&path).to_owned();
            self.parts.not_captured.push(NotCaptured { path, reason, state: None });
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
        Ok(Changes { attributes, node, listed, parts: self.parts })
    }
}
