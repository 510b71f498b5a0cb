//! Checkpoints and steps from inside: a command asks its supervisor for a snapshot.
//!
//! The command cannot write the store, so `nono snapshot` inside of it sends one line to the
//! supervisor's socket and gets one line back, both JSON. `nono hook` sends an event of an agent
//! the same way. A client can only ask for one more snapshot of the recorded paths. A client is not
//! trusted with more, and nobody waits for a slow client: a conversation has a deadline as a whole,
//! and ends when the command has.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::Scope;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

#[cfg(feature = "mount")]
use super::commands::fork::{looking::Look, undo::TakeBackArgs};
#[cfg(feature = "mount")]
use super::context::Context;
use super::error::CliError;
use super::snapshot_report::SnapshotReport;
use crate::agent::{AgentState, EventKind, Known, SpooledEvent, record_actions};
use crate::sandbox::is_inside;
#[cfg(feature = "mount")]
use nono_engine::fork::Fork;
use nono_engine::path_text::Shown;
use nono_engine::session::{Recording, check_label};
use nono_engine::snapshot::{AgentSession, SnapshotManager, Step, StepKind};
use nono_engine::sys;

/// Name of the socket, in the directory of the command's temporary files.
pub(super) const SOCKET_NAME: &str = "nono.sock";
/// Names the socket to the command.
pub(super) const SOCKET_VARIABLE: &str = "NONO_SOCKET";
/// Names the session to the command.
pub(super) const SESSION_VARIABLE: &str = "NONO_SESSION";
/// Longest request in bytes.
const MAX_REQUEST_BYTES: u64 = 1 << 16;
/// The part of a longer request that is read and ignored.
const MAX_IGNORED_BYTES: u64 = 1 << 16;
/// A command that asks again and again must not fill the disk.
const MAX_CHECKPOINTS: u64 = 1000;
/// So many events of agents are handled; each can be a step only if something changed.
const MAX_EVENTS: u64 = 100_000;
/// So long a request may take from its first byte to its last.
const PATIENCE: Duration = Duration::from_secs(2);
/// So long whoever asked may take to read the reply, which names every change.
const REPLY_PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Checkpoint,
    NamedCheckpoint {
        label: String,
    },
    Event(Box<SpooledEvent>),
    /// A call of a tool of `nono mcp`.
    #[cfg(feature = "mcp")]
    Tool {
        tool: String,
        arguments: serde_json::Value,
    },
    /// An undo of what the fork recorded.
    #[cfg(feature = "mount")]
    Undo(TakeBackArgs),
    /// A look at what the fork has, and what it recorded.
    #[cfg(feature = "mount")]
    Look(Look),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Taken(SnapshotReport),
    Noted,
    /// An event was noted, and this is for the agent.
    Told {
        news: String,
    },
    #[cfg(feature = "mcp")]
    Answered(crate::mcp::Answer),
    /// A command about the fork ended with this code, and said this.
    #[cfg(feature = "mount")]
    Ended {
        code: u8,
        stdout: String,
        stderr: String,
    },
    Refused {
        reason: String,
    },
}

/// The keeper of the snapshots that a command asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    manager: &'a SnapshotManager,
    /// The recording, if it is a run.
    run: Option<&'a Recording>,
    /// The fork, if it is one.
    #[cfg(feature = "mount")]
    fork: Option<&'a Fork>,
    /// Whether agents are told of an undo.
    tells_agents: bool,
}

impl<'a> Asked<'a> {
    /// A recorded run.
    pub(super) fn of_run(recording: &'a Recording, tells_agents: bool) -> Self {
        Self {
            manager: recording.manager(),
            run: Some(recording),
            #[cfg(feature = "mount")]
            fork: None,
            tells_agents,
        }
    }

    /// A fork, whose states this records.
    #[cfg(feature = "mount")]
    pub(super) fn of_fork(fork: &'a Fork, manager: &'a SnapshotManager) -> Self {
        Self { manager, run: None, fork: Some(fork), tells_agents: false }
    }
}

/// Answers requests as long as somebody has it [serving](Serving).
#[derive(Debug)]
pub(super) struct Server {
    listener: UnixListener,
    stop: UnixStream,
    stopped: UnixStream,
}

impl Server {
    /// Listens in a directory.
    pub(super) fn bind(dir: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(dir.join(SOCKET_NAME))?;
        listener.set_nonblocking(true)?;
        let (stop, stopped) = UnixStream::pair()?;
        Ok(Self { listener, stop, stopped })
    }

    /// Begins to answer requests, in a thread of its own.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(super) fn start<'a>(
        &'a self,
        scope: &'a Scope<'a, '_>,
        asked: Asked<'a>,
    ) -> io::Result<Serving<'a>> {
        sys::spawn_scoped(scope, "checkpoints", move || self.serve(asked))?;
        Ok(Serving(self))
    }

    /// Answers one request after the other, at a low priority: the command's own work comes first.
    fn serve(&self, asked: Asked<'_>) {
        sys::lower_priority();
        let mut served = Served::default();
        loop {
            let mut ready = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(&self.stopped, PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Ok(_) if !ready[1].revents().is_empty() => return,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return tracing::warn!("no more checkpoints: {error}"),
            }
            let Ok((stream, _)) = self.listener.accept() else { continue };
            if let Err(error) = self.answer(&stream, asked, &mut served) {
                tracing::debug!("a request for a checkpoint came to nothing: {error}");
            }
        }
    }
}

/// A server at work. Dropped, it ends, after the request at hand; its scope waits for that.
#[derive(Debug)]
pub(super) struct Serving<'a>(&'a Server);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let _ = self.0.stop.shutdown(std::net::Shutdown::Both);
    }
}

impl Server {
    fn answer(&self, stream: &UnixStream, asked: Asked<'_>, served: &mut Served) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let patient = |patience| Patient {
            stream,
            stopped: &self.stopped,
            deadline: Instant::now() + patience,
        };
        let mut line = Vec::new();
        BufReader::new(patient(PATIENCE).take(MAX_REQUEST_BYTES)).read_until(b'\n', &mut line)?;
        let mut reply = serde_json::to_vec(&reply(&line, asked, served))?;
        reply.push(b'\n');
        let mut peer = patient(REPLY_PATIENCE);
        peer.write_all(&reply)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        // Unread input would make the kernel throw the reply away.
        io::copy(&mut peer.take(MAX_IGNORED_BYTES), &mut io::sink())?;
        Ok(())
    }
}

/// What was asked for so far.
#[derive(Default)]
struct Served {
    checkpoints: u64,
    events: u64,
    /// The agent sessions in the run, the one that was heard of last first.
    agents: Vec<(AgentSession, AgentState)>,
    /// The restores that each of them knows of.
    known: HashMap<AgentSession, Known>,
}

impl Served {
    /// Takes the steps that an event asks for, in the run's own session. Gives the news for the
    /// agent, at a prompt.
    fn event(
        &mut self,
        spooled: &SpooledEvent,
        asked: Asked<'_>,
    ) -> Result<Option<String>, String> {
        const MOST_AGENTS: usize = 100;
        if self.events == MAX_EVENTS {
            return Err(format!("{MAX_EVENTS} events were handled, and that is all"));
        }
        self.events += 1;
        let manager = asked.manager;
        let event = &spooled.event;
        let (client, session_id) = (event.client.clone(), event.session_id.clone());
        let agent = AgentSession { client, session_id };
        match self.agents.iter().position(|(known, _)| *known == agent) {
            Some(known) => self.agents[..=known].rotate_right(1),
            None if self.agents.len() == MOST_AGENTS => {
                return Err(format!("{MOST_AGENTS} agent sessions are recorded, and that is all"));
            }
            None => {
                let session = manager.session();
                let mut metadata = session.metadata().map_err(|error| error.to_string())?;
                // The session of a fork is no session of the agent, which may go on elsewhere.
                if metadata.agent.is_none() && asked.run.is_some() {
                    metadata.agent = Some(agent.clone());
                    manager.save_session_metadata(&metadata).map_err(|error| error.to_string())?;
                }
                self.agents.insert(0, (agent.clone(), AgentState::default()));
            }
        }
        let Some((_, state)) = self.agents.first_mut() else { return Ok(None) };
        let actions = state.advance(event);
        let settle = |step: &mut Step| {
            if matches!(event.kind, EventKind::Before(_)) && spooled.is_released() {
                step.kind = StepKind::Late;
                step.overlapped = true;
            }
        };
        let taken = record_actions(manager, false, actions, &settle);
        if matches!(event.kind, EventKind::Before(_)) && spooled.is_released() {
            state.began_unseen();
        }
        taken.map_err(|error| error.to_string())?;
        let known = self.known.entry(agent).or_default();
        let is_prompt = matches!(event.kind, EventKind::Prompt { .. }) && event.subagent.is_none();
        if !asked.tells_agents || !is_prompt && !known.is_empty() {
            return Ok(None);
        }
        known.news(manager.session()).map_err(|error| error.to_string())
    }
}

#[cfg(feature = "mcp")]
impl Served {
    /// Carries out a call of a tool of `nono mcp`.
    fn tool(
        &mut self,
        tool: &str,
        arguments: serde_json::Value,
        recording: &Recording,
    ) -> Result<crate::mcp::Answer, String> {
        let is_checkpoint = tool == crate::mcp::CHECKPOINT;
        if is_checkpoint && self.checkpoints == MAX_CHECKPOINTS {
            return Err(too_many_checkpoints());
        }
        let answer = super::past_tools::for_command(recording, tool, arguments, &self.agents);
        self.checkpoints += u64::from(is_checkpoint && answer.is_ok());
        answer.map_err(|error| error.to_string())
    }
}

fn too_many_checkpoints() -> String {
    format!("{MAX_CHECKPOINTS} checkpoints were taken, and that is all")
}

fn reply(request: &[u8], asked: Asked<'_>, served: &mut Served) -> Reply {
    let refused = |reason: String| Reply::Refused { reason };
    let request = serde_json::from_slice(request);
    #[cfg(feature = "mcp")]
    if let Ok(Request::Tool { tool, arguments }) = request {
        let Some(recording) = asked.run else {
            return refused("a fork answers no tools of `nono mcp`".to_owned());
        };
        return match served.tool(&tool, arguments, recording) {
            Ok(answer) => Reply::Answered(answer),
            Err(reason) => refused(reason),
        };
    }
    #[cfg(feature = "mount")]
    if let Ok(Request::Undo(what)) = &request {
        let Some(fork) = asked.fork else {
            return refused("this is no fork: the user can undo when the run has ended".to_owned());
        };
        if served.checkpoints == MAX_CHECKPOINTS {
            return refused(too_many_checkpoints());
        }
        served.checkpoints += 1;
        return about(fork, &what.words(&fork.document().session));
    }
    #[cfg(feature = "mount")]
    if let Ok(Request::Look(look)) = &request {
        let Some(fork) = asked.fork else {
            return refused("this is no fork: the user can look when the run has ended".to_owned());
        };
        if served.events == MAX_EVENTS {
            return refused(format!("{MAX_EVENTS} requests were answered, and that is all"));
        }
        served.events += 1;
        return match look.clone().words(fork) {
            Ok(words) => about(fork, &words),
            Err(error) => refused(error.to_string()),
        };
    }
    let manager = asked.manager;
    let taken = match request {
        Err(error) => return refused(format!("not a request: {error}")),
        Ok(Request::Event(event)) => {
            return match served.event(&event, asked) {
                Ok(None) => Reply::Noted,
                Ok(Some(news)) => Reply::Told { news },
                Err(reason) => refused(reason),
            };
        }
        Ok(_) if served.checkpoints == MAX_CHECKPOINTS => {
            return refused(too_many_checkpoints());
        }
        Ok(Request::Checkpoint) => manager.create_incremental_compared(),
        Ok(Request::NamedCheckpoint { label }) => match check_label(&label) {
            Ok(label) => manager.checkpoint_compared(label),
            Err(error) => return refused(error.to_string()),
        },
        #[cfg(feature = "mcp")]
        Ok(Request::Tool { .. }) => return refused("it was answered".to_owned()),
        #[cfg(feature = "mount")]
        Ok(Request::Undo(_) | Request::Look(_)) => return refused("it was answered".to_owned()),
    };
    match taken {
        Ok((manifest, changes)) => {
            served.checkpoints += 1;
            Reply::Taken(SnapshotReport::of(manager.session(), &manifest, changes))
        }
        Err(error) => refused(error.to_string()),
    }
}

/// Runs a command about a fork, in a process of its own. No terminal answers a question there.
#[cfg(feature = "mount")]
fn about(fork: &Fork, words: &[String]) -> Reply {
    let place = fork.recorded_paths().next().map_or(Path::new("/"), |path| path.as_path());
    let done = match super::itself::run_for_fork(fork.root(), words, place) {
        Ok(done) => done,
        Err(error) => {
            return Reply::Refused { reason: format!("cannot start nono again: {error}") };
        }
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = done.code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Reply::Ended { code, stdout: text(&done.stdout), stderr: text(&done.stderr) }
}

/// Somebody at the other end of a stream that does not block, waited for until a deadline, and no
/// longer than the command lives.
struct Patient<'a> {
    stream: &'a UnixStream,
    stopped: &'a UnixStream,
    deadline: Instant,
}

impl Patient<'_> {
    fn wait(&self, what: PollFlags) -> io::Result<()> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let timeout = Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut ready =
                [PollFd::new(self.stream, what), PollFd::new(self.stopped, PollFlags::IN)];
            match poll(&mut ready, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) if ready[1].revents().is_empty() => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Before each read: bytes that come one by one are as good as none.
        self.wait(PollFlags::IN)?;
        self.stream.read(buffer)
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(PollFlags::OUT)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Inside: the socket in the directory of temporary files, if a supervisor listens there.
pub(super) fn left_in(temporary: &Path) -> Option<PathBuf> {
    let path = temporary.join(SOCKET_NAME);
    UnixStream::connect(&path).is_ok().then_some(path)
}

/// Inside: asks for a checkpoint, maybe under a name.
pub(super) fn ask(socket: &Path, label: Option<&str>) -> Result<SnapshotReport, CliError> {
    let request = match label.map(str::to_owned) {
        Some(label) => Request::NamedCheckpoint { label },
        None => Request::Checkpoint,
    };
    match converse(socket, &request)? {
        Reply::Taken(report) => Ok(report),
        Reply::Refused { reason } => {
            Err(CliError::failed(format!("the supervisor took no checkpoint: {reason}")))
        }
        _ => Err(CliError::failed("the supervisor answered something else")),
    }
}

/// Inside: asks for the answer of a tool of `nono mcp`.
#[cfg(feature = "mcp")]
pub(super) fn ask_tool(
    socket: &Path,
    tool: &str,
    arguments: serde_json::Value,
) -> Result<crate::mcp::Answer, CliError> {
    match converse(socket, &Request::Tool { tool: tool.to_owned(), arguments })? {
        Reply::Answered(answer) => Ok(answer),
        Reply::Refused { reason } => Err(CliError::failed(reason)),
        _ => Err(CliError::failed("the supervisor answered something else")),
    }
}

/// Inside of a fork: asks for an undo, and says what it said. Returns its exit code.
#[cfg(feature = "mount")]
pub(super) fn ask_undo(
    socket: &Path,
    what: &TakeBackArgs,
    context: &Context,
) -> Result<u8, CliError> {
    ask_about(socket, &Request::Undo(what.clone()), context)
}

/// Inside of a fork: asks for a look at it, and says what it said. Returns its exit code.
#[cfg(feature = "mount")]
pub(super) fn ask_look(socket: &Path, look: Look, context: &Context) -> Result<u8, CliError> {
    ask_about(socket, &Request::Look(look), context)
}

#[cfg(feature = "mount")]
fn ask_about(socket: &Path, request: &Request, context: &Context) -> Result<u8, CliError> {
    match converse(socket, request)? {
        Reply::Ended { code, stdout, stderr } => {
            let mut out = context.out();
            out.write_all(stdout.as_bytes())?;
            out.flush()?;
            drop(out);
            for line in stderr.lines() {
                context.say(line.strip_prefix("nono: ").unwrap_or(line));
            }
            Ok(code)
        }
        Reply::Refused { reason } => Err(CliError::failed(reason)),
        _ => Err(CliError::failed("the supervisor answered something else")),
    }
}

/// Sends one request and waits for its reply.
fn converse(socket: &Path, request: &Request) -> Result<Reply, CliError> {
    let lost = |error: &dyn std::fmt::Display| {
        let message = format!("cannot reach the supervisor at {}: {error}", Shown::path(socket));
        let failed = CliError::failed(message);
        if is_inside() {
            return failed;
        }
        failed.with_hint(format!(
            "this is not within the walls of a run; unset {SOCKET_VARIABLE} to record in the store"
        ))
    };
    let mut request = serde_json::to_vec(request)?;
    request.push(b'\n');
    if request.len() as u64 > MAX_REQUEST_BYTES {
        return Err(CliError::failed(format!(
            "the request is longer than {MAX_REQUEST_BYTES} bytes"
        )));
    }
    let mut stream = UnixStream::connect(socket).map_err(|error| lost(&error))?;
    stream.write_all(&request).map_err(|error| lost(&error))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(|error| lost(&error))?;
    serde_json::from_str(&line).map_err(|error| lost(&error))
}

/// Inside: tells the supervisor of an event, and waits until its steps are taken or the deadline is
/// over. What the supervisor has got by then, it handles all the same.
/// Gives the news for the agent.
pub(super) fn tell(socket: &Path, event: &SpooledEvent) -> io::Result<Option<String>> {
    let deadline = Instant::now() + Duration::from_millis(event.deadline_ms);
    let stream = UnixStream::connect(socket)?;
    stream.set_nonblocking(true)?;
    let (_never, stopped) = UnixStream::pair()?;
    let mut peer = Patient { stream: &stream, stopped: &stopped, deadline };
    let mut request = serde_json::to_vec(&Request::Event(Box::new(event.clone())))?;
    request.push(b'\n');
    peer.write_all(&request)?;
    let mut line = String::new();
    match BufReader::new(peer).read_line(&mut line) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error),
        Ok(_) => match serde_json::from_str(&line) {
            Ok(Reply::Refused { reason }) => Err(io::Error::other(reason)),
            Ok(Reply::Told { news }) => Ok(Some(news)),
            _ => Ok(None),
        },
    }
}
