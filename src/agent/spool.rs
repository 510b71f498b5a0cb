//! Where hooks leave their events, and where the state of an agent session is kept between them.
//!
//! ```text
//! <root directory>/.agents/
//!   log                         what failed
//!   <client>-<hash of the id>/  one agent session
//!     lock                      held by the worker
//!     state.json                session, state machine, the last event that was handled
//!     news                      what the hook of the next prompt tells the agent
//!     notice                    what the next hook at which a person looks has to show
//!     <time>-<pid>.event        events that were not handled yet; their names sort by time
//! ```
//!
//! An event appears complete and vanishes when it is handled. The state says which one was the
//! last, so a worker that is killed between the two handles none twice. Nothing here is durable,
//! and nothing has to be: after a crash of the machine, the next event finds the session by its
//! manifest.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::event::Event;
use super::news::{Known, MAX_NEWS_BYTES};
use super::state::AgentState;
use nono_engine::object::ContentHash;
use nono_engine::session::aging_until;
use nono_engine::snapshot::AgentSession;
use nono_engine::sys::{self, Dir, FileLock};

/// Name of the directory in the root directory of a store. Hidden, so it is no session.
pub(super) const AGENTS: &str = ".agents";
const LOCK: &str = "lock";
const STATE: &str = "state.json";
const NOTICE: &str = "notice";
const NEWS: &str = "news";
const SUFFIX: &[u8] = b".event";
/// Maximum number of bytes of one of the files.
const MAX_BYTES: u64 = 1 << 20;
/// A spool that no agent has used for so long is removed.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(24 * 30);
/// So long a session that cannot be begun is left alone.
const RETRY: SignedDuration = SignedDuration::from_mins(10);

/// Why an event cannot be left or handled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// The directory cannot be used.
    #[error(transparent)]
    Io(#[from] sys::Error),
    /// Its contents cannot be written as text.
    #[error("cannot write an event: {0}")]
    Text(#[from] serde_json::Error),
}

/// An event on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpooledEvent {
    /// When the hook got it.
    pub received: Timestamp,
    /// So long the client waits, at most.
    pub deadline_ms: u64,
    /// The event.
    pub event: Event,
}

impl SpooledEvent {
    /// Whether the client has surely gone on.
    pub fn is_released(&self) -> bool {
        let waits = SignedDuration::from_millis(self.deadline_ms.min(1 << 40).cast_signed());
        let now = Timestamp::now();
        // One from the future was received before the clock was put back.
        now < self.received || now > self.received + waits
    }
}

/// The state that is kept between events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The session that records the agent session.
    #[serde(default)]
    pub session: Option<String>,
    /// The known facts of the agent session.
    #[serde(default)]
    pub agent: AgentState,
    /// The restores that the agent was told of.
    #[serde(default)]
    pub known: Known,
    /// When the session could not be begun, for the last time.
    #[serde(default)]
    pub refused: Option<Timestamp>,
    /// Name of the last event that was handled.
    #[serde(default)]
    last: String,
}

/// The name of the spool of an agent session.
fn key_of(client: &str, session_id: &str) -> String {
    let hash = ContentHash::of(session_id.as_bytes()).to_string();
    format!("{client}-{}", &hash[..16])
}

impl Kept {
    /// Whether the session could not be begun a short while ago.
    pub fn is_refused(&self) -> bool {
        let now = Timestamp::now();
        self.refused.is_some_and(|at| at <= now && now < at + RETRY)
    }
}

/// The events of one agent session.
#[derive(Debug)]
pub struct Spool {
    dir: Dir,
}

impl Spool {
    /// The spool of an agent session, made if it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn of(root: &Path, event: &Event) -> Result<Self, SpoolError> {
        Self::open(root, &Self::key(event))
    }

    /// The name of the spool of an agent session.
    pub fn key(event: &Event) -> String {
        key_of(&event.client, &event.session_id)
    }

    /// The state that the hooks of an agent session told of, waiting events included.
    /// `None` where nothing is kept of it. Writes nothing and needs no lock.
    pub fn told(root: &Path, agent: &AgentSession) -> Option<AgentState> {
        let path = root.join(AGENTS).join(key_of(&agent.client, &agent.session_id));
        let spool = Self { dir: Dir::open(&path).ok()? };
        // Read before the state: an event that is handled meanwhile is in both, and known by name.
        let names = spool.names().ok()?;
        let waiting: Vec<_> = names.iter().map(|name| (name, spool.read(name))).collect();
        let Kept { agent: mut state, last, .. } = spool.kept();
        for (name, spooled) in waiting {
            if let Some(spooled) = spooled.filter(|_| name.as_slice() > last.as_bytes()) {
                state.advance(&spooled.event);
            }
        }
        Some(state)
    }

    /// The spool of this name, made if it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(root: &Path, key: &str) -> Result<Self, SpoolError> {
        let path = root.join(AGENTS).join(key);
        match Dir::open(&path) {
            Ok(dir) => Ok(Self { dir }),
            Err(error) if error.is_gone() => {
                sys::create_private_dir(&path)?;
                Ok(Self { dir: Dir::open(&path)? })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Leaves an event.
    ///
    /// # Errors
    /// When it cannot be written; nothing of it is there then.
    pub fn leave(&self, event: &SpooledEvent) -> Result<(), SpoolError> {
        let time = event.received.as_nanosecond();
        let name = format!("{time:020}-{}", std::process::id());
        let bytes = serde_json::to_vec(event)?;
        let name = [name.as_bytes(), SUFFIX].concat();
        Ok(self.dir.replace_file(&name, &bytes, 0o600, false)?)
    }

    /// Waits until no other worker is at work, and keeps others from it.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub fn lock(&self) -> Result<FileLock, SpoolError> {
        Ok(FileLock::exclusive(&self.path().join(LOCK))?)
    }

    /// Leaves what a later hook of the session shows to the person, once.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn leave_notice(&self, text: &str) -> Result<(), SpoolError> {
        Ok(self.dir.replace_file(NOTICE.as_bytes(), text.as_bytes(), 0o600, false)?)
    }

    /// The rest, for the hook that removes it.
    pub fn take_notice(&self) -> Option<String> {
        let bytes = self.dir.read(NOTICE.as_bytes(), MAX_BYTES).ok()?;
        self.dir.remove_file(NOTICE.as_bytes()).ok()?;
        String::from_utf8(bytes).ok()
    }

    /// Leaves what the hook of a prompt tells the agent, once, in place of what no hook took.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn leave_news(&self, text: &str) -> Result<(), SpoolError> {
        Ok(self.dir.replace_file(NEWS.as_bytes(), text.as_bytes(), 0o600, false)?)
    }

    /// The rest, for the hook that removes it.
    pub fn take_news(&self) -> Option<String> {
        let bytes = self.dir.read(NEWS.as_bytes(), MAX_NEWS_BYTES as u64).ok()?;
        self.dir.remove_file(NEWS.as_bytes()).ok()?;
        String::from_utf8(bytes).ok()
    }

    fn path(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// Names of the events that are there, oldest first.
    fn names(&self) -> Result<Vec<Vec<u8>>, SpoolError> {
        let listed = self.dir.names()?.into_iter().map(|listed| listed.name.into_vec());
        let mut names: Vec<_> = listed.filter(|name| name.ends_with(SUFFIX)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Whether a call has begun that is not handled yet, and for which the client does not wait any
    /// more.
    pub fn has_released_call(&self) -> bool {
        let names = self.names().unwrap_or_default();
        let mut events = names.iter().filter_map(|name| self.read(name));
        // The first one is being handled.
        events.next();
        events.any(|it| {
            matches!(it.event.kind, super::event::EventKind::Before(_)) && it.is_released()
        })
    }

    fn read(&self, name: &[u8]) -> Option<SpooledEvent> {
        serde_json::from_slice(&self.dir.read(name, MAX_BYTES).ok()?).ok()
    }

    /// Handles all events that are there, and those that come meanwhile. Under the lock.
    ///
    /// # Errors
    /// When the state cannot be read or written. What `handle` says is its own affair.
    pub fn drain(
        &self,
        mut handle: impl FnMut(&mut Kept, &SpooledEvent),
    ) -> Result<(), SpoolError> {
        let mut kept = self.kept();
        // An entry that cannot be removed is none of ours: a directory with such a name.
        let mut foreign: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut names = self.names()?;
            names.retain(|name| !foreign.contains(name));
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                let text = String::from_utf8_lossy(&name).into_owned();
                if text != kept.last {
                    if let Some(event) = self.read(&name) {
                        handle(&mut kept, &event);
                    }
                    kept.last = text;
                    let bytes = serde_json::to_vec(&kept)?;
                    self.dir.replace_file(STATE.as_bytes(), &bytes, 0o600, false)?;
                }
                match self.dir.remove_file(&name) {
                    Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => {
                        foreign.push(name);
                    }
                    removed => removed?,
                }
            }
        }
    }

    fn kept(&self) -> Kept {
        // A state that cannot be read is found again: the session by its manifest.
        let bytes = self.dir.read(STATE.as_bytes(), MAX_BYTES).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Removes the spools that no agent has used for a month.
    pub fn forget_old(root: &Path) {
        let Ok(agents) = Dir::open(&root.join(AGENTS)) else { return };
        let Ok(names) = agents.names() else { return };
        let spools: Vec<_> = names
            .into_iter()
            .filter_map(|listed| {
                let stat = agents.try_stat(&listed.name).ok().flatten()?;
                let used = stat.mtime.timestamp()?;
                (stat.kind == sys::FileKind::Directory).then_some((listed.name, used))
            })
            .collect();
        let aged = aging_until(spools.iter().map(|(_, used)| *used), Timestamp::now());
        for (name, _) in spools.iter().filter(|(_, used)| *used < aged - MAX_AGE) {
            let _ = agents.remove_dir_all(name);
        }
    }
}
