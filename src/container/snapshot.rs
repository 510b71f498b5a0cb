//! Taking a snapshot of a container.
//!
//! In this order: lock, pause, image, volumes, changed files, unpause, and only then the record and
//! the snapshot's manifest. A failure on the way leaves no snapshot, removes the image that was
//! made, and lets the container go on; where the engine does not allow that, the error says so.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::describe::{Described, describe, gaps};
use super::docker::Docker;
use super::error::ContainerError;
use super::history::ContainerHistory;
use super::image::ImageRemoval;
use super::pause::{self, Paused, Watcher};
use super::record::{CommittedImage, ContainerRecord, ContainerState, RECORD_VERSION, Trigger};
use super::tar_tree::Sink;
use super::volumes::{self, Parts};
use super::{CHANGES_PATH, RECORD_PATH, VOLUMES_PATH, changes, image};
use crate::manifest::{NotCaptured, NotCapturedReason};
use crate::object::{Attributes, FileTime, LinkGroups, Node, RootEntry, RootTree, Tree, Xattrs};
use crate::progress::{Progress, Stage};
use crate::session::{RecordError, create_session};
use crate::snapshot::{
    Built, CONTAINER_PATHS, ContainerSession, ManifestError, SessionDir, SessionMetadata,
    SessionOrigin, SnapshotError, SnapshotManager, VolumeSource,
};
use crate::store::{ObjectStore, Packer};
use crate::sys::{self, Dir};

/// How a snapshot is wanted.
#[derive(Debug, Clone)]
pub struct SnapshotOptions {
    /// The words of the caller.
    pub message: Option<String>,
    /// The occasion.
    pub trigger: Trigger,
    /// The run of the agent, as the caller names it.
    pub run_id: Option<String>,
    /// Whether a running container is paused meanwhile.
    pub pauses: bool,
    /// Whether an image is made of the container's own files.
    pub takes_image: bool,
    /// Whether the changed files are recorded.
    pub takes_files: bool,
    /// The source of the volumes' contents in a new session; without it the best.
    pub volume_source: Option<VolumeSource>,
    /// The program that watches a paused container.
    pub watcher: Watcher,
    /// Worker threads; 0 is one for each core.
    pub threads: usize,
}

/// A snapshot that was taken.
#[derive(Debug, Clone, Serialize)]
pub struct SnapshotReport {
    /// The id of the session.
    pub session_id: String,
    /// The number of the snapshot.
    pub snapshot: u64,
    /// The name of the container.
    pub container: String,
    /// The engine's id of the container.
    pub container_id: String,
    /// The image that was made.
    pub image: Option<CommittedImage>,
    /// The source of the volumes' contents.
    pub volume_source: Option<VolumeSource>,
    /// Number of volumes.
    pub volume_count: u64,
    /// Number of paths that differ from the image, deleted ones left out.
    pub changed_count: Option<u64>,
    /// Files in volumes and changed files.
    pub file_count: u64,
    /// Their length in bytes.
    pub total_bytes: u64,
    /// Files whose contents were read.
    pub files_read: u64,
    /// Bytes that the store did not have.
    pub bytes_written: u64,
    /// Whether the container stood still meanwhile.
    pub is_consistent: bool,
    /// What the snapshot does not hold.
    pub not_captured: Vec<String>,
    /// Paths that could not be read.
    pub unreadable: Vec<NotCaptured>,
    /// What a user should know before a restore.
    pub warnings: Vec<String>,
}

/// Takes a snapshot of a container, by its name or id, into the store in `root`. When this returns,
/// the snapshot is durable.
///
/// # Errors
/// As [`ContainerError`] says. There is no snapshot then, and the container is as it was.
pub fn take_snapshot(
    docker: &Docker,
    root: &Path,
    name: &str,
    options: &SnapshotOptions,
    progress: Arc<dyn Progress + Send>,
) -> Result<SnapshotReport, ContainerError> {
    // Refused before anything is made.
    let id = describe(docker, name)?.id;
    sys::create_private_dir(root)?;
    let _lock = pause::lock(root, &id, &*progress)?;
    pause::recover_one(root, &id, docker)?;
    take_locked(docker, root, &id, options, progress)
}

/// As [`take_snapshot`], under the container's lock.
///
/// # Errors
/// As there.
pub fn take_locked(
    docker: &Docker,
    root: &Path,
    id: &str,
    options: &SnapshotOptions,
    progress: Arc<dyn Progress + Send>,
) -> Result<SnapshotReport, ContainerError> {
    // Another snapshot may have run meanwhile, and the container may be in another state.
    let described = describe(docker, id)?;
    let (session, is_new) = session_of(docker, root, &described)?;
    let taken = Taking { docker, root, described: &described, options, progress }.run(&session);
    if taken.is_err() && is_new && session.manifest_numbers()?.is_empty() {
        discard(root, &session)?;
    }
    taken
}

/// The session of a container; made when there is none.
fn session_of(
    docker: &Docker,
    root: &Path,
    described: &Described,
) -> Result<(SessionDir, bool), ContainerError> {
    if let Some(history) = ContainerHistory::of_container(root, &described.id)? {
        return Ok((history.session().clone(), false));
    }
    let paths = CONTAINER_PATHS.map(PathBuf::from).to_vec();
    let mut metadata = SessionMetadata::new(String::new(), Vec::new(), paths);
    metadata.origin = SessionOrigin::Container;
    let config = described.inspected.config.as_ref();
    let labels = config.and_then(|config| config.labels.as_ref());
    metadata.container = Some(ContainerSession {
        container_id: described.id.clone(),
        name: described.name.clone(),
        endpoint: docker.endpoint().url.clone(),
        volume_source: None,
        restored_from: labels.and_then(|labels| labels.get(super::LABEL_RESTORED_FROM).cloned()),
        restorations: Vec::new(),
    });
    match create_session(root, metadata) {
        Ok((session, _)) => Ok((session, true)),
        Err(RecordError::Snapshot(error)) => Err(error.into()),
        Err(RecordError::Io(error)) => Err(error.into()),
        Err(RecordError::BaselineNotDurable { source, .. }) => Err(source.into()),
    }
}

fn discard(root: &Path, session: &SessionDir) -> Result<(), ContainerError> {
    let dir = Dir::open(root)?;
    let hidden = format!("{}{}", crate::layout::REMOVED_PREFIX, session.id());
    dir.rename_new(session.id().as_bytes(), &dir, hidden.as_bytes())?;
    dir.remove_dir_all(hidden.as_bytes())?;
    Ok(())
}

struct Taking<'a> {
    docker: &'a Docker,
    root: &'a Path,
    described: &'a Described,
    options: &'a SnapshotOptions,
    progress: Arc<dyn Progress + Send>,
}

/// Everything that stands still while it is captured.
#[derive(Default)]
struct Captured {
    image: Option<CommittedImage>,
    source: Option<VolumeSource>,
    volumes: Parts,
    changes: Option<changes::Changes>,
}

impl Taking<'_> {
    fn run(&self, session: &SessionDir) -> Result<SnapshotReport, ContainerError> {
        let paths = CONTAINER_PATHS.map(Path::new);
        let manager = SnapshotManager::of_virtual_paths(session.clone(), &paths)?
            .with_progress(Arc::clone(&self.progress))
            .with_threads(self.options.threads);
        let _session_lock = manager.lock_session()?;
        // Held until the manifest is published: the collector sees all of it or nothing.
        let store_lock = manager.lock_store()?;
        let parent = match manager.latest() {
            Ok(parent) => Some(parent),
            Err(SnapshotError::NoBaseline { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let number = parent.as_ref().map_or(0, |parent| parent.manifest.number + 1);
        let before = session.metadata()?.container.and_then(|container| container.volume_source);
        self.progress.begin(Stage::Capture, None);
        let timestamp = Timestamp::now();
        let packer = Packer::new(manager.store(), &store_lock);
        let Described { id, name, .. } = self.described;
        let is_running = self.described.state == ContainerState::Running;
        let paused = match is_running && self.options.pauses {
            true => {
                let paused = Paused::begin(self.docker, self.root, id, name, &self.options.watcher);
                Some(paused.map_err(|error| self.not_taken(error, false))?)
            }
            false => None,
        };
        let is_consistent = !is_running || paused.is_some();
        let mut captured = Captured::default();
        let outcome = self.capture(&manager, &packer, session, number, before, &mut captured);
        let went_on = paused.map_or(Ok(()), Paused::end);
        let published = outcome.and(went_on).and_then(|()| {
            let (built, record, totals) =
                self.build(&packer, captured, timestamp, is_consistent)?;
            packer.finish()?;
            manager.publish_built(built, parent.as_ref())?;
            Ok((record, totals))
        });
        let (record, manifest) = match published {
            Ok(published) => published,
            Err(error) => {
                let image_may_stay =
                    self.options.takes_image && !self.take_image_back(&session.id(), number);
                return Err(self.not_taken(error, image_may_stay));
            }
        };
        let noted = self.note(session, &record);
        let mut report = self.report(session, number, record, manifest);
        if let Err(error) = noted {
            // The snapshot is there all the same.
            report.warnings.push(format!("the name of the container was not noted: {error}"));
        }
        Ok(report)
    }

    fn capture(
        &self,
        manager: &SnapshotManager,
        store: &dyn ObjectStore,
        session: &SessionDir,
        number: u64,
        before: Option<VolumeSource>,
        captured: &mut Captured,
    ) -> Result<(), ContainerError> {
        let Described { id, name, mounts, .. } = self.described;
        if self.options.takes_image {
            let message = self.options.message.as_deref();
            captured.image =
                Some(image::commit(self.docker, self.root, id, &session.id(), number, message)?);
        }
        self.go_on()?;
        let spool = Dir::open(manager.store().path())?;
        let sink = Sink { store, spool: &spool, progress: &*self.progress };
        sys::before_request("volumes")?;
        let mut seen = std::collections::HashSet::new();
        let each = mounts.iter().filter(|mount| seen.insert(mount.tree.clone()));
        let located = volumes::locate(self.docker, id, each)?;
        let wanted = before.or(self.options.volume_source);
        captured.source = volumes::choose(&located, name, wanted)?;
        captured.volumes = match captured.source {
            Some(VolumeSource::Directory) => volumes::from_directories(manager, store, &located)?,
            Some(VolumeSource::Archive) => {
                volumes::from_archives(self.docker, id, &sink, &located, mounts)?
            }
            None => Parts::default(),
        };
        self.go_on()?;
        if self.options.takes_files {
            captured.changes = Some(changes::capture(self.docker, id, mounts, &sink)?);
        }
        self.go_on()
    }

    fn go_on(&self) -> Result<(), ContainerError> {
        if self.progress.is_cancelled() { Err(ContainerError::Cancelled) } else { Ok(()) }
    }

    /// Without its snapshot, the image is of no use. By its tag: the engine may have made it after
    /// nono gave up. `false`: it may be there.
    fn take_image_back(&self, session: &str, number: u64) -> bool {
        let removed = image::reference(self.root, session, number)
            .and_then(|name| image::remove_own(self.docker, self.root, &name, session, number));
        matches!(removed, Ok(ImageRemoval::Removed | ImageRemoval::Missing))
    }

    fn not_taken(&self, cause: ContainerError, image_may_stay: bool) -> ContainerError {
        let is_paused = pause::is_noted(self.root, &self.described.id);
        let name = self.described.name.clone();
        match cause {
            ContainerError::Cancelled if !image_may_stay && !is_paused => cause,
            cause => {
                ContainerError::NotTaken { cause: Box::new(cause), name, image_may_stay, is_paused }
            }
        }
    }

    /// Stores the record and the top of the snapshot.
    fn build(
        &self,
        store: &dyn ObjectStore,
        captured: Captured,
        timestamp: Timestamp,
        is_consistent: bool,
    ) -> Result<(Built, ContainerRecord, Vec<NotCaptured>), ContainerError> {
        let Captured { image, source, volumes, changes } = captured;
        let record = self.record(image, source, changes.as_ref(), timestamp, is_consistent);
        let bytes = record.encode().map_err(|reason| ContainerError::InvalidAnswer {
            operation: "write the record".to_owned(),
            reason,
        })?;
        let own = attributes(0o700, timestamp);
        let mut parts = volumes;
        let tree = Tree::new(std::mem::take(&mut parts.entries)).encode();
        let volumes = Node::Directory { tree: count(store, &tree, &mut parts)? };
        let size = bytes.len() as u64;
        let hash = count(store, &bytes, &mut parts)?;
        parts.totals.file_count += 1;
        parts.totals.total_bytes += size;
        parts.totals.entry_count += 2;
        let mut entries = Vec::new();
        match changes {
            Some(mut changes) => {
                parts.add_totals(&changes.parts.totals);
                parts.links.append(&mut changes.parts.links);
                parts.not_captured.append(&mut changes.parts.not_captured);
                let (attributes, node) = (changes.attributes, changes.node);
                entries.push(RootEntry { path: CHANGES_PATH.as_bytes().into(), attributes, node });
            }
            None => {
                let rule = "the caller: the changed files were not wanted".to_owned();
                parts.not_captured.push(NotCaptured {
                    path: CHANGES_PATH.into(),
                    reason: NotCapturedReason::Excluded { rule },
                    state: None,
                });
            }
        }
        entries.push(RootEntry {
            path: RECORD_PATH.as_bytes().into(),
            attributes: attributes(0o600, timestamp),
            node: Node::file(size, hash),
        });
        entries.push(RootEntry {
            path: VOLUMES_PATH.as_bytes().into(),
            attributes: own,
            node: volumes,
        });
        let links = LinkGroups::new(std::mem::take(&mut parts.links));
        let links = match links.is_empty() {
            true => None,
            false => Some(count(store, &links.encode(), &mut parts)?),
        };
        let merkle_root = count(store, &RootTree { entries, links }.encode(), &mut parts)?;
        parts.not_captured.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
        parts.unstable.sort();
        let not_captured = parts.not_captured.clone();
        let built = Built {
            timestamp,
            merkle_root,
            totals: parts.totals,
            not_captured: parts.not_captured,
            unstable: parts.unstable,
            caches: parts.caches,
            label: self.options.message.clone(),
        };
        Ok((built, record, not_captured))
    }

    fn record(
        &self,
        committed: Option<CommittedImage>,
        source: Option<VolumeSource>,
        changes: Option<&changes::Changes>,
        captured_at: Timestamp,
        is_consistent: bool,
    ) -> ContainerRecord {
        let Described { id, name, state, image, networks, mounts, inspected } = self.described;
        let (mut not_captured, mut warnings) = gaps(self.described);
        if committed.is_none() {
            not_captured.push("an image of the container's own files".to_owned());
        }
        if changes.is_none() {
            not_captured.push("the list of the files that differ from the image".to_owned());
        }
        if source == Some(VolumeSource::Archive) {
            let lost =
                ["times below a second", "sockets", "extended attributes but security.capability"];
            not_captured.extend(lost.map(|what| format!("{what} of the files in volumes")));
            if self.docker.is_podman() {
                not_captured.push("owners of the files in volumes".to_owned());
            }
        }
        // Changed files always come in a stream, in which all belong to the container's user.
        if changes.is_some() && self.docker.is_podman() {
            not_captured.push("owners of the changed files".to_owned());
        }
        if !is_consistent {
            warnings.push(
                "the container was running: its files may be from different moments".to_owned(),
            );
        }
        let mut image = image.clone();
        image.committed = committed;
        let settings = inspected.network_settings.as_ref();
        ContainerRecord {
            format_version: RECORD_VERSION,
            container_id: id.clone(),
            name: name.clone(),
            captured_at,
            trigger: self.options.trigger,
            run_id: self.options.run_id.clone(),
            message: self.options.message.clone(),
            state: *state,
            is_consistent,
            engine: self.docker.engine(),
            image,
            config: inspected.config.clone().unwrap_or_default(),
            host_config: inspected.host_config.clone().unwrap_or_default(),
            ports: settings.and_then(|settings| settings.ports.clone()).unwrap_or_default(),
            networks: networks.clone(),
            mounts: mounts.clone(),
            volume_source: source,
            changed_files: changes.map(|changes| changes.listed.clone()),
            not_captured,
            warnings,
        }
    }

    /// Notes the facts that may change in the session's manifest, under its lock.
    fn note(&self, session: &SessionDir, record: &ContainerRecord) -> Result<(), ManifestError> {
        let mut metadata = session.metadata()?;
        if let Some(container) = &mut metadata.container {
            container.name.clone_from(&record.name);
            container.endpoint.clone_from(&self.docker.endpoint().url);
            container.volume_source = record.volume_source.or(container.volume_source);
        }
        session.save_metadata(&metadata)
    }

    fn report(
        &self,
        session: &SessionDir,
        number: u64,
        record: ContainerRecord,
        not_captured: Vec<NotCaptured>,
    ) -> SnapshotReport {
        let totals = session.manifest(number).map(|loaded| loaded.manifest.totals);
        let totals = totals.unwrap_or_default();
        SnapshotReport {
            session_id: session.id(),
            snapshot: number,
            volume_count: record.volumes().count() as u64,
            container: record.name,
            container_id: record.container_id,
            image: record.image.committed,
            volume_source: record.volume_source,
            changed_count: record.changed_files.map(|files| files.changed_count),
            file_count: totals.file_count,
            total_bytes: totals.total_bytes,
            files_read: totals.files_read,
            bytes_written: totals.bytes_written,
            is_consistent: record.is_consistent,
            not_captured: record.not_captured,
            unreadable: not_captured.into_iter().filter(|left| left.reason.is_problem()).collect(),
            warnings: record.warnings,
        }
    }
}

fn count(
    store: &dyn ObjectStore,
    bytes: &[u8],
    parts: &mut Parts,
) -> Result<crate::object::ContentHash, ContainerError> {
    let stored = store.write(bytes)?;
    if stored.is_new {
        parts.totals.objects_written += 1;
        parts.totals.bytes_written += bytes.len() as u64;
    }
    Ok(stored.hash)
}

fn attributes(mode: u16, timestamp: Timestamp) -> Attributes {
    let mtime = FileTime { seconds: timestamp.as_second(), nanoseconds: 0 };
    let (uid, gid) = (sys::effective_uid(), sys::effective_gid());
    Attributes { mode, uid, gid, mtime, xattrs: Xattrs::default() }
}
