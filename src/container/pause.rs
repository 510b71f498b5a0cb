//! A container that nono pauses never stays paused.
//!
//! Before the pause, nono writes a journal and starts a *watcher*: this program, with one end of a
//! pipe. The pipe closes when nono ends in any way. Without the word that all is done, the watcher
//! then takes the lock of the container and lets it go on. It waits for an engine that is being
//! started again. It knows the journal by heart, in case somebody removes the store meanwhile. Where
//! the watcher dies too, the next command does the same by the journal. A container that was paused
//! before has no journal, and stays paused.
//!
//! ```text
//! <root directory>/.containers/ID.lock     held exclusively while nono is at work on the container
//! <root directory>/.containers/ID.paused   the journal: endpoint, name, a word of its own
//! ```

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::docker::Docker;
use super::endpoint::Endpoint;
use super::error::ContainerError;
use crate::progress::{Progress, wait_for};
use crate::sys::{self, Dir, FileLock};

const PLACE: &str = ".containers";
const JOURNAL: &str = ".paused";
const MAX_JOURNAL_BYTES: u64 = 1 << 16;
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

/// The program that watches: `PROGRAM ARGUMENTS… ROOT ID TOKEN`.
#[derive(Debug, Clone)]
pub struct Watcher {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments, which name the hidden command.
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

fn place(root: &Path) -> PathBuf {
    root.join(PLACE)
}

/// Whether the text is an id of an engine: then it is a plain file name.
fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Waits until nobody else is at work on a container, and keeps others from it.
///
/// # Errors
/// [`ContainerError::Cancelled`], or a lock file that cannot be made.
pub fn lock(
    root: &Path,
    container_id: &str,
    progress: &dyn Progress,
) -> Result<FileLock, ContainerError> {
    let path = lock_path(root, container_id)?;
    let lock = wait_for(progress, || FileLock::try_exclusive(&path))?;
    lock.ok_or(ContainerError::Cancelled)
}

/// Keeps others from a container, unless somebody is at work on it.
pub(super) fn try_lock(
    root: &Path,
    container_id: &str,
) -> Result<Option<FileLock>, ContainerError> {
    Ok(FileLock::try_exclusive(&lock_path(root, container_id)?)?)
}

/// Whether somebody is at work on a container.
pub(super) fn is_busy(root: &Path, container_id: &str) -> Result<bool, ContainerError> {
    Ok(try_lock(root, container_id)?.is_none())
}

fn lock_path(root: &Path, container_id: &str) -> Result<PathBuf, ContainerError> {
    if !is_id(container_id) {
        return Err(ContainerError::InvalidAnswer {
            operation: "look at the container".to_owned(),
            reason: format!("{container_id:?} is no id"),
        });
    }
    let place = place(root);
    sys::create_private_dir(&place)?;
    Ok(place.join(format!("{container_id}.lock")))
}

/// A container that stands still. Dropped, it goes on.
#[derive(Debug)]
pub(super) struct Paused<'a> {
    docker: &'a Docker,
    root: PathBuf,
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
        root: &Path,
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
        let dir = Dir::open(&place(root))?;
        let file = format!("{container_id}{JOURNAL}");
        dir.replace_file(file.as_bytes(), &bytes, 0o600, true)?;
        let started = start(watcher, root, container_id, &token);
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                dir.remove_file(file.as_bytes())?;
                return Err(error);
            }
        };
        let pipe = child.stdin.take();
        let mut paused = Self {
            docker,
            root: root.to_owned(),
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

    /// Lets the container go on.
    ///
    /// # Errors
    /// When it cannot; the watcher does it as soon as the engine answers.
    pub(super) fn end(mut self) -> Result<(), ContainerError> {
        self.finish()
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
        forget(&self.root, &self.container_id)?;
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

fn start(
    watcher: &Watcher,
    root: &Path,
    container_id: &str,
    token: &str,
) -> Result<Child, ContainerError> {
    let mut command = Command::new(&watcher.program);
    command.args(&watcher.arguments).arg(root).arg(container_id).arg(token);
    // What ends nono is not meant for the watcher.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    #[cfg(feature = "fail-points")]
    command.env_remove("NONO_FAIL_POINT").env_remove("NONO_OPERATION_LOG");
    sys::before_request("watcher")?;
    command.spawn().map_err(|source| {
        let path = watcher.program.clone();
        sys::Error { operation: "start the watcher", path, source }.into()
    })
}

fn forget(root: &Path, container_id: &str) -> Result<(), ContainerError> {
    let file = format!("{container_id}{JOURNAL}");
    match Dir::open(&place(root))?.remove_file(file.as_bytes()) {
        Err(error) if !error.is_gone() => Err(error.into()),
        _ => Ok(()),
    }
}

/// The work of the watcher: waits until the other end of standard input closes, and lets the
/// container go on unless nono said that it does. While the engine does not answer, it tries again.
///
/// # Errors
/// When the container could not be let go on for a day.
pub fn watch(
    mut pipe: impl Read,
    root: &Path,
    container_id: &str,
    token: &str,
) -> Result<(), ContainerError> {
    let held = journal(root, container_id)?.filter(|journal| journal.token == token);
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
        match attempt(root, container_id, token, held.as_ref(), is_last) {
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

/// Lets the container go on; with `is_last` it is forgotten then. `true`: nothing is left to do.
/// `held` is the journal as it was at the start.
fn attempt(
    root: &Path,
    container_id: &str,
    token: &str,
    held: Option<&Journal>,
    is_last: bool,
) -> Result<bool, ContainerError> {
    if journal(root, container_id)?.is_none() {
        // Without the store there is nothing to lock, and no other command knows of the pause.
        return match held {
            Some(held) if is_removed(root)? => unpause(held, None).map(|()| is_last),
            _ => Ok(true),
        };
    }
    let _lock = FileLock::exclusive(&lock_path(root, container_id)?)?;
    match journal(root, container_id)? {
        // Another command was faster.
        None => return Ok(true),
        Some(journal) if journal.token != token => return Ok(true),
        Some(journal) => unpause(&journal, None)?,
    }
    if is_last {
        forget(root, container_id)?;
    }
    Ok(is_last)
}

/// Whether nono paused the container and did not let it go on.
pub(super) fn is_noted(root: &Path, container_id: &str) -> bool {
    !matches!(journal(root, container_id), Ok(None))
}

/// Whether no journal can be there, because the store is gone.
fn is_removed(root: &Path) -> Result<bool, ContainerError> {
    match Dir::open(&place(root)) {
        Ok(_) => Ok(false),
        Err(error) if error.is_gone() => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn journal(root: &Path, container_id: &str) -> Result<Option<Journal>, ContainerError> {
    let file = format!("{container_id}{JOURNAL}");
    let dir = match Dir::open(&place(root)) {
        Ok(dir) => dir,
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bytes = match dir.read(file.as_bytes(), MAX_JOURNAL_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let read = serde_json::from_slice::<Journal>(&bytes).map_err(|error| error.to_string());
    let checked = read.and_then(|journal| match journal.container_id == container_id {
        true => Ok(journal),
        false => Err("it is about another container".to_owned()),
    });
    checked.map(Some).map_err(|reason| ContainerError::InvalidAnswer {
        operation: format!("read {}", dir.path_of(file.as_bytes()).display()),
        reason,
    })
}

fn go_on(root: &Path, journal: &Journal, docker: Option<&Docker>) -> Result<(), ContainerError> {
    unpause(journal, docker)?;
    forget(root, &journal.container_id)
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
    root: &Path,
    container_id: &str,
    docker: &Docker,
) -> Result<(), ContainerError> {
    match journal(root, container_id)? {
        Some(journal) => go_on(root, &journal, Some(docker)),
        None => Ok(()),
    }
}

/// Lets all containers go on that an interrupted nono left paused.
///
/// # Errors
/// When the journals cannot be listed. A container that cannot be let go on is named instead.
pub fn recover(root: &Path) -> Result<Vec<LeftPaused>, ContainerError> {
    let dir = match Dir::open(&place(root)) {
        Ok(dir) => dir,
        Err(error) if error.is_gone() => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for listed in dir.names()? {
        let name = String::from_utf8_lossy(&listed.name);
        let Some(id) = name.strip_suffix(JOURNAL).filter(|id| is_id(id)) else { continue };
        // At work, and able to end it.
        let Some(_lock) = FileLock::try_exclusive(&lock_path(root, id)?)? else { continue };
        let done = match journal(root, id) {
            Ok(None) => continue,
            Ok(Some(journal)) => (journal.name.clone(), go_on(root, &journal, None)),
            Err(error) => (id.to_owned(), Err(error)),
        };
        let (name, outcome) = done;
        found.push(LeftPaused { name, problem: outcome.err().map(|error| error.to_string()) });
    }
    Ok(found)
}
