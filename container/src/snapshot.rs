//! Taking a snapshot of a container.
//!
//! In this order: lock, contents of volumes ahead of the pause, pause, image, volumes, changed
//! files, unpause, and only then the record and the snapshot's manifest. A failure on the way
//! leaves no snapshot, removes the image that was made, and lets the container go on; where the
//! engine does not allow that, the error says so.

use std::cell::Cell;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::describe::{Described, capturable, describe, gaps};
use super::docker::Docker;
use super::error::ContainerError;
use super::history::ContainerHistory;
use super::image::ImageRemoval;
use super::pause::{self, Paused, Watcher};
use super::record::{CommittedImage, ContainerRecord, ContainerState, RECORD_VERSION, Trigger};
use super::stillness::{Movement, Stillness, has_run};
use super::storage::{Effort, SnapshotDraft, SnapshotState, SnapshotStorage};
use super::tar_tree::Sink;
use super::volumes::{self, Parts};
use super::{changes, image, top};
use nono_engine::manifest::{NotCaptured, NotCapturedReason, Totals};
use nono_engine::path_text::Shown;
use nono_engine::progress::{Progress, Stage};
use nono_engine::snapshot::{ContainerSession, SnapshotManifest, VolumeSource};
use nono_engine::sys;

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
    /// The gaps of the snapshot.
    pub not_captured: Vec<String>,
    /// Paths that could not be read.
    pub unreadable: Vec<NotCaptured>,
    /// Warnings for the user before a restore.
    pub warnings: Vec<String>,
}

/// Takes a snapshot of a container, by its name or id, into a storage. When this returns, the
/// snapshot is durable.
///
/// # Errors
/// As [`ContainerError`] says. There is no snapshot then, and the container is as it was.
pub fn take_snapshot(
    docker: &Docker,
    storage: &dyn SnapshotStorage,
    name: &str,
    options: &SnapshotOptions,
    progress: Arc<dyn Progress + Send>,
) -> Result<SnapshotReport, ContainerError> {
    // Refused before anything is made.
    let id = capturable(docker, name)?;
    let _lock = pause::lock(storage, &id, &*progress)?;
    pause::recover_one(storage, &id, docker)?;
    take_locked(docker, storage, &id, options, progress)
}

/// As [`take_snapshot`], under the container's lock.
///
/// # Errors
/// As there.
pub fn take_locked(
    docker: &Docker,
    storage: &dyn SnapshotStorage,
    id: &str,
    options: &SnapshotOptions,
    progress: Arc<dyn Progress + Send>,
) -> Result<SnapshotReport, ContainerError> {
    // Another snapshot may have run meanwhile, and the container may be in another state.
    let described = describe(docker, id)?;
    let (history, is_new) = match ContainerHistory::of_container(storage, &described.id)? {
        Some(history) => (history, false),
        None => {
            let Described { id, name, .. } = &described;
            match ContainerHistory::before(storage, docker, id, name)? {
                Some(history) => {
                    history.go_on_with(id, name)?;
                    (history.reopened()?, false)
                }
                None => {
                    let created = storage.create(container_of(docker, &described))?;
                    (ContainerHistory::open(storage, &created)?, true)
                }
            }
        }
    };
    let effort = Effort { threads: options.threads, progress };
    let (history, described) = (&history, &described);
    let image_of = Cell::new(None);
    let taken = Taking { docker, history, described, options, effort, image_of }.run();
    if taken.is_err() && is_new && history.numbers()?.is_empty() {
        storage.remove(&history.id())?;
    }
    let mut report = taken?;
    if is_new {
        let damaged = storage.damaged()?;
        report.warnings.extend(
            damaged
                .iter()
                .map(|damaged| format!("a new history of the container begins: {damaged}")),
        );
    }
    Ok(report)
}

/// The container of a new history.
fn container_of(docker: &Docker, described: &Described) -> ContainerSession {
    let config = described.inspected.config.as_ref();
    let labels = config.and_then(|config| config.labels.as_ref());
    ContainerSession {
        container_id: described.id.clone(),
        former_ids: Vec::new(),
        name: described.name.clone(),
        endpoint: docker.endpoint().url.clone(),
        volume_source: None,
        restored_from: labels.and_then(|labels| labels.get(super::LABEL_RESTORED_FROM).cloned()),
        restorations: Vec::new(),
    }
}

struct Taking<'a> {
    docker: &'a Docker,
    history: &'a ContainerHistory<'a>,
    described: &'a Described,
    options: &'a SnapshotOptions,
    effort: Effort,
    /// The number of the snapshot, once an image of it may be there.
    image_of: Cell<Option<u64>>,
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
    fn run(&self) -> Result<SnapshotReport, ContainerError> {
        let storage = self.history.storage();
        let (mut is_begun, mut record) = (false, None);
        let added = storage.add(&self.history.id(), &self.effort, &mut |draft| {
            is_begun = true;
            let (state, put) = self.put(draft)?;
            record = Some(put);
            Ok(state)
        });
        let manifest = match added {
            Ok(manifest) => manifest,
            Err(error) if is_begun => return Err(self.not_taken(error)),
            Err(error) => return Err(error),
        };
        let record = match record {
            Some(record) => record,
            None => self.history.record(manifest.number)?,
        };
        let noted = storage.update(&self.history.id(), &mut |container| {
            // One that a restore put aside has another name.
            if container.container_id == record.container_id {
                container.name.clone_from(&record.name);
            }
            container.endpoint.clone_from(&self.docker.endpoint().url);
            container.volume_source = container.volume_source.or(record.volume_source);
        });
        let mut report = self.report(record, manifest);
        if let Err(error) = noted {
            // The snapshot is there all the same.
            report.warnings.push(format!("the name of the container was not noted: {error}"));
        }
        Ok(report)
    }

    /// Captures the container, lets it go on, and builds the top of the snapshot.
    fn put(
        &self,
        draft: &dyn SnapshotDraft,
    ) -> Result<(SnapshotState, ContainerRecord), ContainerError> {
        let Described { id, name, .. } = self.described;
        self.effort.progress.begin(Stage::Capture, None);
        let captured_at = Timestamp::now();
        let is_running = self.described.state == ContainerState::Running;
        let mut filled = Totals::default();
        let paused = match is_running && self.options.pauses {
            true => {
                filled = self.fill(draft)?;
                volumes::flush_early(self.docker, &self.described.mounts);
                let storage = self.history.storage();
                let watcher = &self.options.watcher;
                Some(Paused::begin(self.docker, storage, id, name, watcher)?)
            }
            false => None,
        };
        let captured = Stillness::begin(self.docker, self.history.storage(), self.described)
            .and_then(|stillness| Ok((self.capture(draft)?, stillness.end()?)));
        let has_run = match paused {
            Some(paused) => paused.end(),
            None => Ok(has_run(self.docker, self.described)),
        };
        let (captured, mut moved) = captured?;
        if has_run? {
            moved.insert(0, Movement::Ran);
        }
        let record = self.record(&captured, captured_at, &moved);
        let Captured { mut volumes, changes, .. } = captured;
        volumes.add_work(&filled);
        let state = top::build(draft.objects(), &record, volumes, changes)?;
        Ok((state, record))
    }

    /// Stores volumes ahead of the pause. A failure only makes the pause longer: the capture within
    /// the pause names the cause.
    fn fill(&self, draft: &dyn SnapshotDraft) -> Result<Totals, ContainerError> {
        if self.wanted_source() == Some(VolumeSource::Archive) {
            return Ok(Totals::default());
        }
        let filled = volumes::locate(self.docker, self.described).and_then(|located| {
            let name = &self.described.name;
            match volumes::choose(&located, name, self.wanted_source())? {
                Some(VolumeSource::Directory) => volumes::fill(draft, &located),
                _ => Ok(Totals::default()),
            }
        });
        self.go_on()?;
        if let Err(error) = &filled {
            tracing::debug!("volumes are read within the pause: {error}");
        }
        Ok(filled.unwrap_or_default())
    }

    /// The source of earlier snapshots, or the one that is asked for.
    fn wanted_source(&self) -> Option<VolumeSource> {
        let before = self.history.container().volume_source.filter(|source| {
            // The paths that a restore is about to replace are recorded as fully as it can be.
            self.options.trigger != Trigger::BeforeRestore || *source == VolumeSource::Directory
        });
        before.or(self.options.volume_source)
    }

    fn capture(&self, draft: &dyn SnapshotDraft) -> Result<Captured, ContainerError> {
        let Described { id, name, mounts, .. } = self.described;
        let mut captured = Captured::default();
        if self.options.takes_image {
            let (store, session) = (self.history.storage().id()?, self.history.id());
            let message = self.options.message.as_deref();
            let number = draft.number();
            self.image_of.set(Some(number));
            let image = image::commit(self.docker, &store, id, &session, number, message)?;
            captured.image = Some(image);
        }
        self.go_on()?;
        let progress = &*self.effort.progress;
        let sink = Sink { store: draft.objects(), spool: draft.spool(), progress };
        sys::before_request("volumes")?;
        let located = volumes::locate(self.docker, self.described)?;
        captured.source = volumes::choose(&located, name, self.wanted_source())?;
        captured.volumes = match captured.source {
            Some(VolumeSource::Directory) => volumes::from_directories(draft, &located)?,
            Some(VolumeSource::Archive) => {
                let own = self.history.storage().directory();
                volumes::from_archives(self.docker, id, &sink, &located, mounts, own)?
            }
            None => Parts::default(),
        };
        self.go_on()?;
        if self.options.takes_files {
            captured.changes = Some(changes::capture(self.docker, id, mounts, &sink)?);
        }
        self.go_on()?;
        Ok(captured)
    }

    fn go_on(&self) -> Result<(), ContainerError> {
        let is_cancelled = self.effort.progress.is_cancelled();
        if is_cancelled { Err(ContainerError::Cancelled) } else { Ok(()) }
    }

    /// The error of a snapshot that was begun and is not there.
    fn not_taken(&self, cause: ContainerError) -> ContainerError {
        let image_may_stay =
            self.image_of.get().is_some_and(|number| !self.take_image_back(number));
        let is_paused = pause::is_noted(self.history.storage(), &self.described.id);
        let name = self.described.name.clone();
        match cause {
            ContainerError::Cancelled if !image_may_stay && !is_paused => cause,
            cause => {
                ContainerError::NotTaken { cause: Box::new(cause), name, image_may_stay, is_paused }
            }
        }
    }

    /// Without its snapshot, the image is of no use. By its tag: the engine may have made it after
    /// nono gave up. `false`: it may be there.
    fn take_image_back(&self, number: u64) -> bool {
        let session = self.history.id();
        let removed = self.history.storage().id().and_then(|store| {
            let name = image::reference(&store, &session, number);
            image::remove_own(self.docker, &store, &name, &session, number)
        });
        matches!(removed, Ok(ImageRemoval::Removed | ImageRemoval::Missing))
    }

    fn record(
        &self,
        captured: &Captured,
        captured_at: Timestamp,
        moved: &[Movement],
    ) -> ContainerRecord {
        let Captured { image: committed, source, volumes, changes } = captured;
        let Described { id, name, state, image, networks, mounts, inspected } = self.described;
        let (mut not_captured, mut warnings) = gaps(self.described);
        if committed.is_none() {
            not_captured.push("an image of the container's own files".to_owned());
        }
        if changes.is_none() {
            not_captured.push("the list of the files that differ from the image".to_owned());
        }
        if *source == Some(VolumeSource::Archive) {
            let lost = [
                "times below a second",
                "sockets",
                "holes",
                "extended attributes but security.capability",
            ];
            not_captured.extend(lost.map(|what| format!("{what} of the files in volumes")));
            if self.docker.is_podman() {
                not_captured.push("owners of the files in volumes".to_owned());
            }
        }
        if changes.as_ref().is_some_and(|changes| changes.has_sockets) {
            not_captured.push("owners of the sockets among the changed files".to_owned());
        }
        // Changed files always come in a stream, in which all belong to the container's user.
        if changes.is_some() && self.docker.is_podman() {
            not_captured.push("owners of the changed files".to_owned());
        }
        let left = volumes.not_captured.iter();
        let excluded = left.filter(|l| matches!(l.reason, NotCapturedReason::Excluded { .. }));
        not_captured.extend(excluded.map(|l| format!("{}: {}", Shown::path(&l.path), l.reason)));
        warnings.extend(moved.iter().map(ToString::to_string));
        let mut image = image.clone();
        image.committed.clone_from(committed);
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
            is_consistent: moved.is_empty(),
            engine: self.docker.engine(),
            image,
            config: inspected.config.clone().unwrap_or_default(),
            host_config: inspected.host_config.clone().unwrap_or_default(),
            ports: settings.and_then(|settings| settings.ports.clone()).unwrap_or_default(),
            networks: networks.clone(),
            mounts: mounts.clone(),
            volume_source: *source,
            changed_files: changes.as_ref().map(|changes| changes.listed.clone()),
            not_captured,
            warnings,
        }
    }

    fn report(&self, record: ContainerRecord, manifest: SnapshotManifest) -> SnapshotReport {
        let SnapshotManifest { number, totals, mut not_captured, .. } = manifest;
        not_captured.retain(|left| left.reason.is_problem());
        SnapshotReport {
            session_id: self.history.id(),
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
            unreadable: not_captured,
            warnings: record.warnings,
        }
    }
}
