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
use crate::byte_path;
use crate::manifest::Totals;
use crate::object::{Attributes, Node, is_name};
use crate::sys;

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
        let holds_mount = mounted.iter().any(|mount| byte_path::is_in(mount, path));
        let takes_all = *is_added && !holds_mount;
        if collected.add(path, takes_all)? && takes_all {
            whole = Some(path.clone());
        }
    }
    collected.finish(listed)
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
