//! Snapshots of containers, for `nono_py/containers.py`.
//!
//! Reports are JSON documents, those of `nono container … --json`; the Python side makes objects of
//! them. Each call connects anew: an engine that was restarted meanwhile is no problem.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use nono_container::restore::{
    Direction, Extent, HealthCheck, Job, RestoreError, RestoreOptions, RestoreReport, ResumeReport,
    Safety, Way, clean_all, interrupted, plan, restore, resume,
};
use nono_container::{
    self, ContainerError, ContainerHistory, ContainerPolicy, ContainerRecord, Docker, Endpoint,
    LocalStorage, Picked, RemovalReport, SnapshotOptions, Trigger, Watcher,
};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;

use crate::args::{Count, PathArg, Threads};
use crate::call::{call, call_telling, quick};
use crate::error::Failure;
use crate::mount::store_root;
use crate::progress::Counter;

/// Stops the work of one call from another thread.
#[pyclass(frozen, name = "_Stop", module = "nono_py")]
#[derive(Default)]
pub(crate) struct Stop(Mutex<Stopping>);

#[derive(Default)]
struct Stopping {
    is_set: bool,
    counter: Option<Arc<Counter>>,
}

impl Stop {
    fn attach(&self, counter: &Arc<Counter>) {
        let mut state = self.0.lock();
        if state.is_set {
            counter.stop();
        }
        state.counter = Some(Arc::clone(counter));
    }
}

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Stops the work that goes on, and that which begins later.
    fn set(&self) {
        let mut state = self.0.lock();
        state.is_set = true;
        if let Some(counter) = &state.counter {
            counter.stop();
        }
    }
}

/// A snapshot, and its record.
#[derive(Serialize)]
struct Listed {
    session_id: String,
    snapshot: u64,
    record: ContainerRecord,
}

/// The histories of one store, and the engine of their containers.
#[pyclass(frozen, name = "_ContainerEngine", module = "nono_py")]
pub(crate) struct ContainerEngine {
    storage: LocalStorage,
    docker_host: Option<String>,
    threads: usize,
    watcher: Watcher,
}

impl ContainerEngine {
    fn connect(&self) -> Result<Docker, ContainerError> {
        match &self.docker_host {
            None => Docker::connect(),
            Some(url) => Docker::connect_to(Endpoint { url: url.clone(), tls_dir: None }),
        }
    }

    fn find(&self, snapshot: &str) -> Result<Picked<'_>, ContainerError> {
        ContainerHistory::find(&self.storage, snapshot)
    }

    fn options(&self) -> SnapshotOptions {
        SnapshotOptions {
            message: None,
            trigger: Trigger::Manual,
            run_id: None,
            pauses: true,
            takes_image: true,
            takes_files: true,
            volume_source: None,
            watcher: self.watcher.clone(),
            threads: self.threads,
        }
    }

    /// Takes snapshots of stopped containers before something of them goes.
    fn safety_snapshot<'a>(
        &'a self,
        docker: &'a Docker,
        message: String,
        counter: &'a Arc<Counter>,
    ) -> impl Fn(&str, Extent) -> Result<Safety, RestoreError> + 'a {
        move |id, extent| {
            let options = SnapshotOptions {
                trigger: Trigger::BeforeRestore,
                message: Some(message.clone()),
                takes_image: extent == Extent::Whole,
                takes_files: extent == Extent::Whole,
                ..self.options()
            };
            let progress = Arc::clone(counter);
            let taken = nono_container::take_locked(docker, &self.storage, id, &options, progress)?;
            Ok(Safety { session_id: taken.session_id, number: taken.snapshot })
        }
    }
}

#[pymethods]
impl ContainerEngine {
    #[new]
    #[pyo3(signature = (root, docker_host, threads, watcher))]
    fn new(
        py: Python<'_>,
        root: Option<PathArg>,
        docker_host: Option<String>,
        threads: Threads,
        watcher: Vec<OsString>,
    ) -> PyResult<Self> {
        let root = store_root(py, root)?;
        // The program may go to another directory.
        let root = std::path::absolute(&root).unwrap_or(root);
        let [program, arguments @ ..] = &watcher[..] else {
            return Err(PyValueError::new_err("the watcher has no program"));
        };
        let arguments = arguments.iter().cloned().chain([root.clone().into()]).collect();
        let watcher = Watcher { program: program.into(), arguments };
        let storage = LocalStorage::new(root);
        Ok(Self { storage, docker_host, threads: threads.0, watcher })
    }

    #[getter]
    fn root(&self) -> PathBuf {
        self.storage.root().to_owned()
    }

    #[allow(clippy::too_many_arguments, reason = "named arguments on the Python side")]
    fn snapshot(
        &self,
        py: Python<'_>,
        container: &str,
        message: Option<String>,
        trigger: &str,
        run_id: Option<String>,
        pauses: bool,
        takes_image: bool,
        takes_files: bool,
        progress: Option<Py<PyAny>>,
        stop: Option<Py<Stop>>,
    ) -> PyResult<String> {
        let trigger = trigger_of(trigger)?;
        let options = SnapshotOptions {
            message,
            trigger,
            run_id,
            pauses,
            takes_image,
            takes_files,
            ..self.options()
        };
        call_telling(py, "snapshot", self.storage.root(), progress, |counter| {
            attach(stop.as_ref(), &counter);
            let docker = self.connect()?;
            json(&nono_container::take_snapshot(
                &docker,
                &self.storage,
                container,
                &options,
                counter,
            )?)
        })
    }

    fn list(&self, py: Python<'_>, container: Option<&str>) -> PyResult<String> {
        call(py, "list", self.storage.root(), |_| {
            let histories = match container {
                None => ContainerHistory::all(&self.storage)?,
                Some(name) => vec![self.find(name)?.history],
            };
            let mut listed = Vec::new();
            for history in histories {
                for number in history.numbers()? {
                    listed.push(one(&history, number)?);
                }
            }
            json(&listed)
        })
    }

    fn show(&self, py: Python<'_>, snapshot: &str) -> PyResult<String> {
        quick(py, "show", self.storage.root(), || {
            let picked = self.find(snapshot)?;
            json(&one(&picked.history, picked.number)?)
        })
    }

    #[allow(clippy::too_many_arguments, reason = "named arguments on the Python side")]
    fn restore(
        &self,
        py: Python<'_>,
        snapshot: &str,
        name: Option<String>,
        replace: bool,
        volumes_only: Option<Vec<String>>,
        start: bool,
        dry_run: bool,
        health_seconds: f64,
        health_command: Option<String>,
        share_mounts: bool,
        progress: Option<Py<PyAny>>,
        stop: Option<Py<Stop>>,
    ) -> PyResult<String> {
        let way = match (replace, volumes_only) {
            (true, Some(_)) => {
                let text = "replace and volumes_only exclude each other";
                return Err(PyValueError::new_err(text));
            }
            (true, None) => Way::Replace,
            (false, Some(volumes)) => Way::VolumesOnly(volumes),
            (false, None) => Way::New,
        };
        let health = HealthCheck { time: seconds(health_seconds)?, command: health_command };
        let options = RestoreOptions { way, name, start, share_mounts, health };
        call_telling(py, "restore", self.storage.root(), progress, |counter| {
            attach(stop.as_ref(), &counter);
            let docker = self.connect()?;
            nono_container::recover(&self.storage)?;
            let Picked { history, number, .. } = self.find(snapshot)?;
            let progress = &*counter;
            let job = Job { docker: &docker, history: &history, number, progress };
            if dry_run {
                return json(&RestoreReport::dry_run(plan(job, &options)?));
            }
            let message = format!("before the restore of {}/{number}", history.id());
            let safety = self.safety_snapshot(&docker, message, &counter);
            json(&restore(job, &options, &safety)?)
        })
    }

    fn diff(&self, py: Python<'_>, older: &str, newer: Option<&str>) -> PyResult<String> {
        call(py, "diff", self.storage.root(), |_| {
            let older = self.find(older)?;
            let newer = match newer {
                Some(newer) => self.find(newer)?,
                None => self.find(&older.history.id())?,
            };
            json(&nono_container::compare(&older, &newer)?)
        })
    }

    /// Ends the interrupted restores of one history, or of all. Every one is tried; then the first
    /// failure is raised.
    #[allow(clippy::too_many_arguments, reason = "named arguments on the Python side")]
    fn resume(
        &self,
        py: Python<'_>,
        container: Option<&str>,
        abort: bool,
        gives_up: bool,
        health_seconds: f64,
        progress: Option<Py<PyAny>>,
        stop: Option<Py<Stop>>,
    ) -> PyResult<String> {
        let check = HealthCheck { time: seconds(health_seconds)?, command: None };
        let direction = match (abort, gives_up) {
            (true, true) => {
                return Err(PyValueError::new_err("abort and give_up exclude each other"));
            }
            (true, false) => Direction::TakeBack,
            (false, true) if container.is_none() => {
                return Err(PyValueError::new_err("give_up needs the container or the session"));
            }
            (false, true) => Direction::GiveUp,
            (false, false) => Direction::Finish,
        };
        call_telling(py, "resume", self.storage.root(), progress, |counter| {
            attach(stop.as_ref(), &counter);
            let histories = match container {
                None => ContainerHistory::all(&self.storage)?,
                Some(name) => vec![self.find(name)?.history],
            };
            let mut reports: Vec<ResumeReport> = Vec::new();
            let mut failure = None;
            let mut docker = None;
            for history in histories {
                match interrupted(&history) {
                    _ if gives_up => {}
                    Ok(None) => continue,
                    Ok(Some(_)) => {}
                    Err(error) => {
                        failure = failure.or(Some(error));
                        continue;
                    }
                }
                let docker = match &mut docker {
                    Some(docker) => docker,
                    none => none.insert(self.connect()?),
                };
                let name = &history.container().name;
                let message = format!("before the resume of a restore of {name}");
                let safety = self.safety_snapshot(docker, message, &counter);
                match resume(docker, &history, direction, &check, &safety, &*counter) {
                    Ok(report) => reports.extend(report),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            match failure {
                Some(error) => Err(error.into()),
                None => json(&reports),
            }
        })
    }

    fn delete(&self, py: Python<'_>, snapshot: &str, all: bool) -> PyResult<String> {
        call(py, "delete", self.storage.root(), |counter| {
            let picked = ContainerHistory::find_whole(&self.storage, snapshot)?;
            if picked.is_named == all {
                let text = "a deletion names one snapshot, SESSION/N, or a history with all=True";
                return Err(Failure::wrong_argument(text));
            }
            let numbers = if all { picked.history.numbers()? } else { vec![picked.number] };
            let numbers: Vec<_> = numbers.into_iter().map(|number| (number, None)).collect();
            let docker = self.connect()?;
            let mut report = RemovalReport::default();
            let history = &picked.history;
            nono_container::remove(history, &numbers, Some(&docker), &*counter, &mut report)?;
            json(&report)
        })
    }

    #[allow(clippy::too_many_arguments, reason = "named arguments on the Python side")]
    fn cleanup(
        &self,
        py: Python<'_>,
        max_age_seconds: Option<f64>,
        max_per_container: Option<Count>,
        max_snapshots: Option<Count>,
        max_bytes: Option<Count>,
        dry_run: bool,
    ) -> PyResult<String> {
        let max_age = max_age_seconds
            .map(SignedDuration::try_from_secs_f64)
            .transpose()
            .map_err(|error| PyValueError::new_err(format!("max_age: {error}")))?;
        let count = |count: Option<Count>| count.map(|count| count.0);
        let policy = ContainerPolicy {
            max_age,
            max_per_container: count(max_per_container),
            max_snapshots: count(max_snapshots),
            max_bytes: count(max_bytes),
        };
        call(py, "cleanup", self.storage.root(), |counter| {
            let docker = self.connect()?;
            nono_container::recover(&self.storage)?;
            let message = "before its container was removed by a cleanup".to_owned();
            let safety = self.safety_snapshot(&docker, message, &counter);
            json(&clean_all(&self.storage, &policy, &docker, &safety, &*counter, dry_run)?)
        })
    }

    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        call(py, "stats", self.storage.root(), |_| {
            json(&nono_container::container_stats(&self.storage)?)
        })
    }

    fn validate(&self, py: Python<'_>, snapshot: Option<&str>) -> PyResult<String> {
        call(py, "validate", self.storage.root(), |_| {
            let docker = self.connect()?;
            let picked = snapshot.map(|snapshot| self.find(snapshot)).transpose()?;
            let id = picked.as_ref().map(|picked| picked.history.id());
            let only = picked.as_ref().zip(id.as_deref()).map(|(picked, id)| {
                let number = picked.is_named.then_some(picked.number);
                (id, number)
            });
            json(&nono_container::validate(&self.storage, &docker, only)?)
        })
    }
}

/// Waits until standard input closes, and lets a paused container go on if it has to be. The work
/// of the process beside a snapshot.
#[pyfunction]
#[pyo3(name = "_watch_paused")]
pub(crate) fn watch_paused(
    py: Python<'_>,
    root: PathBuf,
    container_id: &str,
    token: &str,
) -> PyResult<()> {
    let storage = LocalStorage::new(root);
    quick(py, "watch", storage.root(), || {
        Ok(nono_container::watch(io::stdin().lock(), &storage, container_id, token)?)
    })
}

fn one(history: &ContainerHistory<'_>, number: u64) -> Result<Listed, ContainerError> {
    Ok(Listed { session_id: history.id(), snapshot: number, record: history.record(number)? })
}

fn seconds(value: f64) -> PyResult<Duration> {
    let time = Duration::try_from_secs_f64(value);
    time.map_err(|error| PyValueError::new_err(format!("health_seconds: {error}")))
}

fn attach(stop: Option<&Py<Stop>>, counter: &Arc<Counter>) {
    if let Some(stop) = stop {
        stop.get().attach(counter);
    }
}

fn trigger_of(word: &str) -> PyResult<Trigger> {
    use Trigger::{AfterAction, BeforeAction, Manual, RunEnd, RunStart};
    let all = [Manual, RunStart, RunEnd, BeforeAction, AfterAction];
    all.into_iter().find(|trigger| trigger.word() == word).ok_or_else(|| {
        let words = all.map(Trigger::word).join(", ");
        PyValueError::new_err(format!("no trigger: {word}; there are {words}"))
    })
}

fn json(report: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(report).map_err(|error| Failure::internal(error.to_string()))
}
