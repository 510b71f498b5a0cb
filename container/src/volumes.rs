//! The contents of volumes, as entries of `/volumes`.
//!
//! A directory of a local engine that nono may read is captured directly, with its stat cache: an
//! unchanged file costs one stat. Elsewhere the engine's tar stream is read. That a directory *is*
//! the volume is proved, never assumed: another machine may have a directory of the same name.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bollard::models::Volume;
use bollard::query_parameters::ContainerArchiveInfoOptions;
use jiff::Timestamp;

use super::VOLUMES_PATH;
use super::describe::Described;
use super::docker::{Docker, Patience};
use super::error::ContainerError;
use super::record::{ContainerState, MountRecord};
use super::storage::SnapshotDraft;
use super::tar_tree::{self, Sink};
use nono_engine::byte_path;
use nono_engine::manifest::{NotCaptured, NotCapturedReason, Totals};
use nono_engine::object::{Attributes, Node, TreeEntry};
use nono_engine::path_text::to_path;
use nono_engine::snapshot::{SnapshotError, TrackedPathError, VolumeSource};
use nono_engine::store::{read_links, read_root_tree};
use nono_engine::sys::{self, Dir, FileTime};
use nono_engine::walk::OWN_STORE;

/// A volume that is written to may change between two looks.
const LOOKS: usize = 5;
/// The option with the owner of a volume.
pub(super) const OWNER_OPTION: &str = "o";
/// The options of a volume of Podman that has an owner.
const OWNED: [&str; 3] = [OWNER_OPTION, "UID", "GID"];
/// Why a directory is not that of a volume.
pub(super) const NOT_SEEN: &str = "the container sees another directory there; a volume with \
     options of its own is mounted only while its container runs: start it then";

/// Parts of a snapshot that are in the store.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) entries: Vec<TreeEntry>,
    /// Absolute virtual paths of one inode each.
    pub(super) links: Vec<Vec<Box<[u8]>>>,
    pub(super) totals: Totals,
    pub(super) not_captured: Vec<NotCaptured>,
    pub(super) unstable: Vec<PathBuf>,
}

impl Parts {
    /// Adds the work for contents that are counted already.
    pub(super) fn add_work(&mut self, totals: &Totals) {
        self.totals.files_read += totals.files_read;
        self.totals.objects_written += totals.objects_written;
        self.totals.bytes_written += totals.bytes_written;
    }

    pub(super) fn add_totals(&mut self, totals: &Totals) {
        let Totals { file_count, entry_count, total_bytes, .. } = *totals;
        self.totals.file_count += file_count;
        self.totals.entry_count += entry_count;
        self.totals.total_bytes += total_bytes;
        self.add_work(totals);
    }
}

/// A volume and its place.
#[derive(Debug)]
pub(super) struct Located<'a> {
    mount: &'a MountRecord,
    name: &'a str,
    /// Its directory here, or why it is out of reach.
    directory: Result<PathBuf, String>,
}

impl Located<'_> {
    /// The path in the volume of the store, if it lies there.
    ///
    /// # Errors
    /// When the volume lies in the store.
    fn below(&self, store: &Path) -> Result<Option<Vec<u8>>, ContainerError> {
        let Some(source) = &self.mount.source else { return Ok(None) };
        let path = sys::real_or_future_path(Path::new(source));
        if path.starts_with(store) {
            let error = TrackedPathError::InStore { path, store: store.to_owned() };
            return Err(SnapshotError::from(error).into());
        }
        let below =
            byte_path::relative_to(store.as_os_str().as_bytes(), path.as_os_str().as_bytes());
        Ok(below.map(<[u8]>::to_vec))
    }
}

/// Looks for the directories of a container's volumes, each volume once.
///
/// # Errors
/// [`ContainerError::NotMounted`], and as [`Docker::call`].
pub(super) fn locate<'a>(
    docker: &Docker,
    container: &'a Described,
) -> Result<Vec<Located<'a>>, ContainerError> {
    let mut found: Vec<Located<'a>> = Vec::new();
    for mount in &container.mounts {
        let Some(name) = mount.tree.as_deref() else { continue };
        if found.iter().any(|known| known.name == name) {
            continue;
        }
        refuse_unmounted(docker, container, mount)?;
        let directory = directory_of(docker, &container.id, mount)?;
        found.push(Located { mount, name, directory });
    }
    found.sort_by(|a, b| a.name.cmp(b.name));
    Ok(found)
}

/// Docker mounts a volume to show it. Podman shows the empty directory below it.
fn refuse_unmounted(
    docker: &Docker,
    container: &Described,
    mount: &MountRecord,
) -> Result<(), ContainerError> {
    let is_mounted = matches!(container.state, ContainerState::Running | ContainerState::Paused);
    let Some(volume) = mount.volume.as_deref().filter(|_| docker.is_podman() && !is_mounted) else {
        return Ok(());
    };
    let request = docker.client().inspect_volume(volume);
    let operation = format_args!("look at volume {volume}");
    let found = docker.call(operation, Patience::Quick, request)?;
    if is_directory(docker, &found) {
        return Ok(());
    }
    Err(ContainerError::NotMounted { name: container.name.clone(), volume: volume.to_owned() })
}

/// Whether a volume is its directory, and nothing is ever mounted there.
pub(super) fn is_directory(docker: &Docker, volume: &Volume) -> bool {
    // A volume of Podman that has an owner is a directory all the same.
    let is_plain = |option: &String| docker.is_podman() && OWNED.contains(&option.as_str());
    volume.driver == "local" && volume.options.keys().all(is_plain)
}

/// The source for all volumes of a container: that of its earlier snapshots, or the best.
pub(super) fn choose(
    located: &[Located<'_>],
    name: &str,
    before: Option<VolumeSource>,
) -> Result<Option<VolumeSource>, ContainerError> {
    let out_of_reach = located
        .iter()
        .find_map(|volume| volume.directory.as_ref().err().map(|reason| (volume, reason.clone())));
    match (before, out_of_reach) {
        _ if located.is_empty() => Ok(None),
        (Some(VolumeSource::Archive), _) | (None, Some(_)) => Ok(Some(VolumeSource::Archive)),
        (_, None) => Ok(Some(VolumeSource::Directory)),
        (Some(VolumeSource::Directory), Some((volume, reason))) => {
            let path = volume.mount.source.clone().unwrap_or_default().into();
            Err(ContainerError::OtherSource { name: name.to_owned(), path, reason })
        }
    }
}

fn directory_of(
    docker: &Docker,
    container_id: &str,
    mount: &MountRecord,
) -> Result<Result<PathBuf, String>, ContainerError> {
    if !docker.endpoint().is_local() {
        return Ok(Err("the engine is on another machine".to_owned()));
    }
    let Some(source) = &mount.source else {
        return Ok(Err("the engine names no directory".to_owned()));
    };
    let first = seen_at(docker, container_id, mount, source)?;
    let bound = if first.is_err() { bound_directory(docker, mount) } else { None };
    match bound {
        Some(bound) => seen_at(docker, container_id, mount, &bound),
        None => Ok(first),
    }
}

fn seen_at(
    docker: &Docker,
    container_id: &str,
    mount: &MountRecord,
    place: &str,
) -> Result<Result<PathBuf, String>, ContainerError> {
    let opened = sys::real_path(Path::new(place)).and_then(|path| {
        let dir = Dir::open(&path)?;
        dir.names()?;
        Ok((path, dir))
    });
    let (path, dir) = match opened {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if sees(docker, container_id, &mount.destination, &dir)? {
        return Ok(Ok(path));
    }
    Ok(Err(NOT_SEEN.to_owned()))
}

/// The directory of this machine that the options of a volume bind. The engine mounts it at the
/// place of the volume only while a container runs with it.
fn bound_directory(docker: &Docker, mount: &MountRecord) -> Option<String> {
    let request = docker.client().inspect_volume(mount.volume.as_deref()?);
    let found = docker.call("look at the volume", Patience::Quick, request).ok()?;
    let is_bind = found.options.get("o")?.split(',').any(|word| matches!(word, "bind" | "rbind"));
    found.options.get("device").filter(|_| is_bind).cloned()
}

/// Whether the engine sees this directory at a path of a container: its time and its mode are
/// there. Changes nothing.
pub(super) fn sees(
    docker: &Docker,
    container_id: &str,
    destination: &str,
    dir: &Dir,
) -> Result<bool, ContainerError> {
    for _ in 0..LOOKS {
        let options = ContainerArchiveInfoOptions { path: destination.to_owned() };
        let request = docker.client().get_container_archive_info(container_id, Some(options));
        let operation = format!("look at {destination} of container {container_id}");
        let there = docker.call(&operation, Patience::Quick, request)?;
        let time = there.modification_time.and_then(|time| time.parse::<Timestamp>().ok());
        let mtime = time.map(|time| {
            let nanoseconds = time.as_nanosecond();
            FileTime {
                seconds: nanoseconds.div_euclid(1_000_000_000) as i64,
                nanoseconds: nanoseconds.rem_euclid(1_000_000_000) as u32,
            }
        });
        let here = dir.stat_self()?;
        let same_mode = u32::from(here.mode) & 0o777 == there.file_mode & 0o777;
        if mtime == Some(here.mtime) && same_mode {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Stores the contents of volumes while the container runs, so that it stands still only for what
/// changes until its pause.
///
/// # Errors
/// A store that cannot be written, or a stop.
pub(super) fn fill(
    draft: &dyn SnapshotDraft,
    located: &[Located<'_>],
) -> Result<Totals, ContainerError> {
    let mut paths: Vec<&Path> =
        located.iter().filter_map(|volume| volume.directory.as_deref().ok()).collect();
    paths.sort_by_key(|path| path.as_os_str().as_bytes());
    let flushed_from = sys::coarse_now();
    flush(&paths)?;
    draft.fill(flushed_from, &paths)
}

/// Writes back most of it while the container runs, so that it stands still for a shorter time.
pub(super) fn flush_early(docker: &Docker, mounts: &[MountRecord]) {
    let volumes = mounts.iter().filter(|mount| mount.tree.is_some());
    let paths: Vec<&Path> =
        volumes.filter_map(|mount| mount.source.as_deref().map(Path::new)).collect();
    if docker.endpoint().is_local()
        && let Err(error) = flush(&paths)
    {
        tracing::debug!("volumes are flushed later: {error}");
    }
}

/// Writes back what programs changed through mappings of files: the stat cache sees the next such
/// change, and this one is among the bytes that are read now.
fn flush(paths: &[&Path]) -> Result<(), ContainerError> {
    let mut flushed = Vec::new();
    for path in paths {
        Dir::open(path)?.sync_file_system_once(&mut flushed)?;
    }
    Ok(())
}

/// Captures volumes from their directories.
pub(super) fn from_directories(
    draft: &dyn SnapshotDraft,
    located: &[Located<'_>],
) -> Result<Parts, ContainerError> {
    let mut names: Vec<(&Path, &str)> = Vec::new();
    for volume in located {
        if let Ok(path) = &volume.directory {
            names.push((path, volume.name));
        }
    }
    names.sort_by(|a, b| a.0.as_os_str().as_bytes().cmp(b.0.as_os_str().as_bytes()));
    let paths: Vec<&Path> = names.iter().map(|(path, _)| *path).collect();
    flush(&paths)?;
    let captured = draft.capture(&paths)?;
    let store = draft.objects();
    let root = read_root_tree(store, &captured.merkle_root)?;
    let links = read_links(store, root.links.as_ref())?;
    let virtual_path = |path: &[u8]| -> Option<Vec<u8>> {
        names.iter().find_map(|(root, name)| {
            let below = byte_path::relative_to(path, root.as_os_str().as_bytes())?;
            let root = format!("{VOLUMES_PATH}/{name}");
            Some(if below.is_empty() {
                root.into_bytes()
            } else {
                byte_path::join(root.as_bytes(), below)
            })
        })
    };
    let virtual_buf = |path: &Path| {
        let path = virtual_path(path.as_os_str().as_bytes());
        path.map(|path| to_path(&path).to_owned())
    };
    let mut parts = Parts::default();
    parts.add_totals(&captured.totals);
    for entry in root.entries {
        let Some((_, name)) =
            names.iter().find(|(path, _)| path.as_os_str().as_bytes() == &*entry.path)
        else {
            continue;
        };
        parts.entries.push(TreeEntry {
            name: name.as_bytes().into(),
            attributes: entry.attributes,
            node: entry.node,
        });
    }
    for group in links.groups() {
        let paths = group.iter().filter_map(|path| virtual_path(path));
        parts.links.push(paths.map(Vec::into_boxed_slice).collect());
    }
    for left in captured.not_captured {
        if let Some(path) = virtual_buf(&left.path) {
            parts.not_captured.push(NotCaptured { path, ..left });
        }
    }
    parts.unstable = captured.unstable.iter().filter_map(|path| virtual_buf(path)).collect();
    Ok(parts)
}

/// Captures volumes from the engine's tar streams. `mounts` are all of the container: what is
/// mounted inside a volume is no part of it, and neither is the storage, which lies in `own`.
pub(super) fn from_archives(
    docker: &Docker,
    container_id: &str,
    sink: &Sink<'_>,
    located: &[Located<'_>],
    mounts: &[MountRecord],
    own: Option<&Path>,
) -> Result<Parts, ContainerError> {
    let mut parts = Parts::default();
    let own = own.and_then(|own| sys::real_path(own).ok());
    for volume in located {
        let destination = volume.mount.destination.as_bytes();
        let own = match &own {
            Some(own) => volume.below(own)?,
            None => None,
        };
        let inner: Vec<Vec<u8>> = mounts
            .iter()
            .filter_map(|mount| byte_path::relative_to(mount.destination.as_bytes(), destination))
            .chain(own.as_deref())
            .filter(|inner| !inner.is_empty())
            .map(<[u8]>::to_vec)
            .collect();
        if let Some(own) = &own {
            let path = byte_path::join(format!("{VOLUMES_PATH}/{}", volume.name).as_bytes(), own);
            parts.not_captured.push(NotCaptured {
                path: to_path(&path).to_owned(),
                reason: NotCapturedReason::Excluded { rule: OWN_STORE.to_owned() },
                state: None,
            });
        }
        // The directory under another mount stays, as it does in the volume.
        let wants =
            |path: &[u8]| !inner.iter().any(|inner| path != inner && byte_path::is_in(path, inner));
        let stream = docker.archive(container_id, &volume.mount.destination);
        let tree = tar_tree::read(stream, sink, &wants)
            .map_err(|error| error.of(container_id, &volume.mount.destination))?;
        parts.add_totals(&tree.totals);
        let root = format!("{VOLUMES_PATH}/{}", volume.name);
        for (path, reason) in tree.left_out {
            let path = byte_path::join(root.as_bytes(), &path);
            parts.not_captured.push(tar_tree::left_out_at(&path, reason));
        }
        for group in tree.links {
            let absolute = group.iter().map(|path| byte_path::join(root.as_bytes(), path));
            parts.links.push(absolute.map(Vec::into_boxed_slice).collect());
        }
        let (attributes, node): (Attributes, Node) = (tree.attributes, tree.node);
        parts.entries.push(TreeEntry { name: volume.name.as_bytes().into(), attributes, node });
    }
    Ok(parts)
}
