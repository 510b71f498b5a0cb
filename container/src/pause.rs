//! A container that nono pauses never stays paused.
//!
//! Before the pause, nono writes a journal and starts a *watcher*: this program, with one end of a
//! pipe. The pipe closes when nono ends in any way. Without the word that all is done, the watcher
//! then takes the lock of the container and lets it go on. It waits for an engine that is being
//! started again. It knows the journal by heart, in case a user removes the storage meanwhile.
//! Where the watcher dies too, the next command does the same by the journal, which has the
//! endpoint, the name and a word of its own. A container that was paused before has no journal, and
//! stays paused.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::docker::Docker;
use super::endpoint::Endpoint;
use super::error::ContainerError;
use super::storage::{Document, Guarded, SnapshotStorage, StorageLock};
use nono_engine::progress::{NoProgress, Progress, wait_for};
use nono_engine::sys;

/// The watcher tries again so soon, and then ever more rarely.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// The longest wait between two attempts of the watcher.
const LAST_RETRY: Duration = Duration::from_secs(5);
/// The watcher leaves it to the next command when the engine is gone for so long.
const WATCH_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// A pause that the engine did not confirm may have its effect so long after the engine answers.
const LATE_PAUSE: Duration = Duration::from_secs(10);
/// The word of nono on the pipe when the engine has confirmed the pause.
const CONFIRMED: u8 = b'p';
/// The word of nono on the pipe when the container goes on.
const DONE: u8 = b'd';

/// The program that watches: `PROGRAM ARGUMENTS… ID TOKEN`.
#[derive(Debug, Clone)]
pub struct Watcher {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments, which name the hidden command and the storage.
    pub arguments: Vec<OsString>,
}

/// The journal of a pause.
#[derive(Debug, Serialize, Deserialize)]
struct Journal {
    container_id: String,
    name: String,
    endpoint: String,
    #[serde(default)]
    tls_dir: Option<PathBuf>,
    token: String,
}

/// A container that an interrupted nono left paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftPaused {
    /// Its name.
    pub name: String,
    /// The reason why it is still paused; `None`: it goes on.
    pub problem: Option<String>,
}

/// Waits until no other process is at work on a container, and keeps others from it.
///
/// # Errors
/// [`ContainerError::Cancelled`], or a lock that cannot be made.
pub fn lock(
    storage: &dyn SnapshotStorage,
    container_id: &str,
    progress: &dyn Progress,
) -> Result<StorageLock, ContainerError> {
    let lock = wait_for(progress, || storage.try_lock(Guarded::Container(container_id)))?;
    lock.ok_or(ContainerError::Cancelled)
}

/// A container that stands still. Dropped, it goes on.
#[derive(Debug)]
pub(super) struct Paused<'a> {
    docker: &'a Docker,
    storage: &'a dyn SnapshotStorage,
    container_id: String,
    watcher: Option<Child>,
    pipe: Option<ChildStdin>,
    is_over: bool,
}

impl<'a> Paused<'a> {
    /// Pauses a running container, under its lock.
    ///
    /// # Errors
    /// When it cannot be paused, or the watcher cannot be started; it runs then.
    pub(super) fn begin(
        docker: &'a Docker,
        storage: &'a dyn SnapshotStorage,
        container_id: &str,
        name: &str,
        watcher: &Watcher,
    ) -> Result<Self, ContainerError> {
        let token = hex::encode(sys::random_bytes()?);
        let journal = Journal {
            container_id: container_id.to_owned(),
            name: name.to_owned(),
            endpoint: docker.endpoint().url.clone(),
            tls_dir: docker.endpoint().tls_dir.clone(),
            token: token.clone(),
        };
        let bytes =
            serde_json::to_vec(&journal).map_err(|error| ContainerError::InvalidAnswer {
                operation: format!("note that {name} is paused"),
                reason: error.to_string(),
            })?;
        storage.write(Document::Pause(container_id), Some(&bytes))?;
        let started = start(watcher, container_id, &token);
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                forget(storage, container_id)?;
                return Err(error);
            }
        };
        let mut pipe = child.stdin.take();
        if let Some(pipe) = &mut pipe {
            // A watcher that is gone already needs no journal.
            let _ = pipe.write_all(&(bytes.len() as u32).to_le_bytes());
            let _ = pipe.write_all(&bytes);
        }
        let mut paused = Self {
            docker,
            storage,
            container_id: container_id.to_owned(),
            watcher: Some(child),
            pipe,
            is_over: false,
        };
        let done = sys::before_request("pause").map_err(ContainerError::from);
        match done.and_then(|()| docker.pause(container_id)) {
            Ok(()) => {
                paused.say(CONFIRMED);
                Ok(paused)
            }
            Err(error @ (ContainerError::TimedOut { .. } | ContainerError::Unreachable { .. })) => {
                // The request may have its effect later: the watcher looks for that.
                paused.is_over = true;
                Err(error)
            }
            Err(error) => {
                paused.finish()?;
                Err(error)
            }
        }
    }

    /// Lets the container go on. Tells whether another program did it before, or started it again.
    ///
    /// # Errors
    /// When it cannot; the watcher does it as soon as the engine answers.
    pub(super) fn end(mut self) -> Result<bool, ContainerError> {
        let state = self.docker.inspect(&self.container_id).ok().and_then(|found| found.state);
        // Without an answer the next request says why.
        let was_still = state.is_none_or(|state| state.paused.unwrap_or(false));
        self.finish()?;
        Ok(!was_still)
    }

    /// A watcher that is gone needs no word.
    fn say(&mut self, word: u8) {
        if let Some(pipe) = &mut self.pipe {
            let _ = pipe.write_all(&[word]);
        }
    }

    fn finish(&mut self) -> Result<(), ContainerError> {
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        sys::before_request("unpause")?;
        self.docker.unpause(&self.container_id)?;
        forget(self.storage, &self.container_id)?;
        self.say(DONE);
        drop(self.pipe.take());
        if let Some(mut watcher) = self.watcher.take() {
            let _ = watcher.wait();
        }
        Ok(())
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::warn!("the watcher goes on: {error}");
        }
        // Its sign for a watcher that is needed still; a long-lived caller wants no zombie of it.
        drop(self.pipe.take());
        if let Some(mut watcher) = self.watcher.take() {
            let _ = std::thread::Builder::new().spawn(move || watcher.wait());
        }
    }
}

fn start(watcher: &Watcher, container_id: &str, token: &str) -> Result<Child, ContainerError> {
    let mut command = Command::new(&watcher.program);
    command.args(&watcher.arguments).arg(container_id).arg(token);
    // A signal that ends nono is not meant for the watcher.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    #[cfg(feature = "fail-points")]
    command.env_remove("NONO_FAIL_POINT").env_remove("NONO_OPERATION_LOG");
    sys::before_request("watcher")?;
    command.spawn().map_err(|source| {
        let path = watcher.program.clone();
        sys::Error { operation: "start the watcher", path, source }.into()
    })
}

fn forget(storage: &dyn SnapshotStorage, container_id: &str) -> Result<(), ContainerError> {
    storage.write(Document::Pause(container_id), None)
}

/// The work of the watcher: reads the journal (its length in four bytes, little-endian, and then
/// its JSON) and words of nono from `pipe`, until the other end closes. Then the watcher lets the
/// container go on unless nono said that it does. While the engine does not answer, it tries again.
///
/// # Errors
/// When the container could not be let go on for a day.
pub fn watch(
    mut pipe: impl Read,
    storage: &dyn SnapshotStorage,
    container_id: &str,
    token: &str,
) -> Result<(), ContainerError> {
    let held = received(&mut pipe).filter(|journal| journal.token == token);
    let mut said = Vec::new();
    // A pipe that breaks has closed.
    let _ = pipe.by_ref().take(16).read_to_end(&mut said);
    if said.contains(&DONE) {
        return Ok(());
    }
    let late = if said.contains(&CONFIRMED) { Duration::ZERO } else { LATE_PAUSE };
    let (began, mut pause) = (Instant::now(), FIRST_RETRY);
    let mut answered: Option<Instant> = None;
    loop {
        let is_last = answered.is_some_and(|at| at.elapsed() >= late) || late.is_zero();
        match attempt(storage, container_id, token, held.as_ref(), is_last) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                answered.get_or_insert_with(Instant::now);
                pause = FIRST_RETRY;
            }
            Err(error) if began.elapsed() >= WATCH_FOR => return Err(error),
            Err(_) => pause = LAST_RETRY.min(pause * 2),
        }
        std::thread::sleep(pause);
    }
}

/// The journal, which comes before the words: a store may be gone before the watcher looks.
fn received(pipe: &mut impl Read) -> Option<Journal> {
    let mut length = [0; 4];
    pipe.read_exact(&mut length).ok()?;
    let mut bytes = Vec::new();
    pipe.take(u64::from(u32::from_le_bytes(length))).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Lets the container go on; with `is_last` it is forgotten then. `true`: nothing is left to do.
/// `held` is the journal as it was at the start.
fn attempt(
    storage: &dyn SnapshotStorage,
    container_id: &str,
    token: &str,
    held: Option<&Journal>,
    is_last: bool,
) -> Result<bool, ContainerError> {
    if journal(storage, container_id)?.is_none() {
        // Without the storage there is nothing to lock, and no other command knows of the pause.
        return match held {
            Some(held) if !storage.is_there()? => unpause(held, None).map(|()| is_last),
            _ => Ok(true),
        };
    }
    let _lock = lock(storage, container_id, &NoProgress)?;
    match journal(storage, container_id)? {
        // Another command was faster.
        None => return Ok(true),
        Some(journal) if journal.token != token => return Ok(true),
        Some(journal) => unpause(&journal, None)?,
    }
    if is_last {
        forget(storage, container_id)?;
    }
    Ok(is_last)
}

/// Whether nono paused the container and did not let it go on.
pub(super) fn is_noted(storage: &dyn SnapshotStorage, container_id: &str) -> bool {
    !matches!(journal(storage, container_id), Ok(None))
}

fn journal(
    storage: &dyn SnapshotStorage,
    container_id: &str,
) -> Result<Option<Journal>, ContainerError> {
    let Some(bytes) = storage.read(Document::Pause(container_id))? else { return Ok(None) };
    let read = serde_json::from_slice::<Journal>(&bytes).map_err(|error| error.to_string());
    let checked = read.and_then(|journal| match journal.container_id == container_id {
        true => Ok(journal),
        false => Err("it is about another container".to_owned()),
    });
    checked.map(Some).map_err(|reason| ContainerError::BadPauseJournal {
        container: container_id.to_owned(),
        reason,
    })
}

fn go_on(
    storage: &dyn SnapshotStorage,
    journal: &Journal,
    docker: Option<&Docker>,
) -> Result<(), ContainerError> {
    unpause(journal, docker)?;
    forget(storage, &journal.container_id)
}

fn unpause(journal: &Journal, docker: Option<&Docker>) -> Result<(), ContainerError> {
    let endpoint = Endpoint { url: journal.endpoint.clone(), tls_dir: journal.tls_dir.clone() };
    match docker.filter(|docker| *docker.endpoint() == endpoint) {
        Some(docker) => docker.unpause(&journal.container_id),
        None => Docker::connect_to(endpoint)?.unpause(&journal.container_id),
    }
}

/// Lets a container go on that an interrupted nono left paused, under its lock.
pub(super) fn recover_one(
    storage: &dyn SnapshotStorage,
    container_id: &str,
    docker: &Docker,
) -> Result<(), ContainerError> {
    match journal(storage, container_id)? {
        Some(journal) => go_on(storage, &journal, Some(docker)),
        None => Ok(()),
    }
}

/// Lets all containers go on that an interrupted nono left paused.
///
/// # Errors
/// When the journals cannot be listed. A container that cannot be let go on is named instead.
pub fn recover(storage: &dyn SnapshotStorage) -> Result<Vec<LeftPaused>, ContainerError> {
    let mut found = Vec::new();
    for id in storage.paused()? {
        // At work, and able to end it.
        let Some(_lock) = storage.try_lock(Guarded::Container(&id))? else { continue };
        let (name, outcome) = match journal(storage, &id) {
            Ok(None) => continue,
            Ok(Some(journal)) => (journal.name.clone(), go_on(storage, &journal, None)),
            Err(error) => (id, Err(error)),
        };
        found.push(LeftPaused { name, problem: outcome.err().map(|error| error.to_string()) });
    }
    Ok(found)
}
