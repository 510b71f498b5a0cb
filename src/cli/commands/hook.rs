//! `nono hook`: what a coding agent's configuration calls at each event of its session.
//!
//! It exits with 0, whatever happens: an agent must not notice it. It prints nothing but two
//! things: one notice, for the person, of databases that are not recorded, at the begin of a
//! session, and after an undo the news for the agent, at its next prompt. The event goes to the
//! supervisor of the run that the agent is in, or else into the spool of the store,
//! from which a worker takes it ([`crate::agent`]). The hook waits for the worker until its
//! deadline. What fails is noted in the log of the store.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::agent::{
    Client, Event, EventKind, Journal, Kept, Recorder, Spool, SpooledEvent, look_at, parse,
};
use crate::cli::Outcome;
use crate::cli::args::{CaptureArgs, StoreArgs, surroundings};
use crate::cli::checkpoints::{self, SOCKET_VARIABLE};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::inside::fork_around;
use crate::cli::retention;
use crate::cli::unrecorded_changes::unrecorded_of;
use crate::cli::worktrees;
use crate::config::{FlagSettings, Settings};
use crate::sandbox::is_inside;
use nono_engine::diff::relative_to_roots;
use nono_engine::path_text::Shown;
use nono_engine::session::RecordRequest;
use nono_engine::snapshot::{
    NotCaptured, SessionDir, SessionOrigin, SnapshotManager, Step, StepKind,
};
use nono_engine::sys;
use nono_engine::walk::is_database;

/// Name of the hidden command that handles events.
pub(in crate::cli) const WORKER: &str = "__hook-worker";
/// Longest event in bytes: a client sends what a tool read along.
const MAX_EVENT_BYTES: usize = 64 << 20;

/// Arguments of `nono hook`.
#[derive(Debug, Args)]
pub(in crate::cli) struct HookArgs {
    /// The client that calls: claude-code, codex, gemini or opencode
    #[arg(value_name = "CLIENT")]
    client: Option<String>,
    /// The event, where the client gives it as an argument and not on its input
    #[arg(value_name = "EVENT", hide = true)]
    event: Option<OsString>,
    /// Wait so many milliseconds for the step; then it is taken in the background
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    deadline_ms: u64,
}

/// Arguments of the worker.
#[derive(Debug, Args)]
pub(in crate::cli) struct WorkerArgs {
    key: String,
}

/// Whether the program is called as a hook, which must not fail and must not speak.
pub(in crate::cli) fn is_hook(arguments: &[OsString]) -> bool {
    let asks = |word: &OsString| word == "--help" || word == "-h";
    arguments.get(1).is_some_and(|word| word == "hook") && !arguments.iter().any(asks)
}

/// Runs as a hook: nothing fails.
pub(in crate::cli) fn run(args: &HookArgs, store: &StoreArgs) -> Outcome {
    let root = store.catalog().map(|catalog| catalog.root().to_owned());
    let client = args.client.as_deref();
    match (hook(args, root.as_deref().ok()), &root) {
        (Ok(said), _) => {
            if let Some(answer) = said.answer(client.and_then(Client::named)) {
                let _ = writeln!(std::io::stdout(), "{answer}");
            }
        }
        (Err(_), Err(_)) => {}
        (Err(error), Ok(root)) => Journal::of(root).note(client.unwrap_or("agent"), &error),
    }
    Ok(0)
}

/// The text of a hook.
#[derive(Debug, Default)]
struct Said {
    /// To the person.
    notice: Option<String>,
    /// To the agent.
    news: Option<String>,
}

impl Said {
    /// The answer in the words of a client; none where there is nothing to say.
    fn answer(&self, client: Option<Client>) -> Option<serde_json::Value> {
        let mut answer = serde_json::Map::new();
        if let Some(notice) = &self.notice {
            // The field that the clients show to the person, and not to the model.
            answer.insert("systemMessage".to_owned(), notice.as_str().into());
        }
        let event = match client {
            Some(Client::Gemini) => Some("BeforeAgent"),
            // The plugin for OpenCode reads the same.
            Some(Client::ClaudeCode | Client::Codex | Client::OpenCode) => Some("UserPromptSubmit"),
            None => None,
        };
        if let (Some(event), Some(news)) = (event, &self.news) {
            let context = serde_json::json!({ "hookEventName": event, "additionalContext": news });
            answer.insert("hookSpecificOutput".to_owned(), context);
        }
        (!answer.is_empty()).then(|| answer.into())
    }
}

/// Gives what the client has to say.
fn hook(args: &HookArgs, root: Option<&Path>) -> Result<Said, CliError> {
    let began = Instant::now();
    let text = match &args.event {
        Some(event) => event.as_encoded_bytes().to_vec(),
        None => read_event(began + Duration::from_millis(args.deadline_ms))?,
    };
    let client = args.client.as_deref().and_then(Client::named);
    let Some(mut event) = parse(client, &text) else { return Ok(Said::default()) };
    if let EventKind::Before(call) | EventKind::After(call) = &mut event.kind {
        look_at(&mut call.paths, std::env::home_dir());
    }
    let is_prompt = matches!(event.kind, EventKind::Prompt { .. });
    let may_tell = is_prompt || event.kind == EventKind::SessionStart;
    if event.cwd.is_none() {
        event.cwd = sys::current_dir().ok();
    }
    let spooled = SpooledEvent { received: Timestamp::now(), deadline_ms: args.deadline_ms, event };
    if let Some(socket) = supervisor() {
        match checkpoints::tell(&socket, &spooled) {
            // Left over in the environment of something else.
            Err(error) if !is_inside() => tracing::debug!("no supervisor: {error}"),
            told => {
                let failed = |error| format!("the supervisor took no step: {error}");
                let said = |news| Said { notice: None, news };
                return told.map(said).map_err(|error| CliError::failed(failed(error)));
            }
        }
    }
    if fork_around().is_some() {
        // Its files are not those of the project, and no step of that.
        return Ok(Said::default());
    }
    let Some(root) = root else { return Ok(Said::default()) };
    let root = sys::plain_absolute(root, &sys::current_dir().unwrap_or_default());
    let spool = Spool::of(&root, &spooled.event)?;
    spool.leave(&spooled)?;
    let done = start_worker(&root, &Spool::key(&spooled.event))?;
    wait(&done, began + Duration::from_millis(args.deadline_ms));
    Ok(Said {
        notice: may_tell.then(|| spool.take_notice()).flatten(),
        news: is_prompt.then(|| spool.take_news()).flatten(),
    })
}

/// The supervisor of the run that this process is in.
fn supervisor() -> Option<PathBuf> {
    let named = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty());
    named
        .map(PathBuf::from)
        .or_else(|| is_inside().then(|| checkpoints::left_in(&sys::temporary_dir())).flatten())
}

/// Reads the event, and no longer than until the deadline.
fn read_event(deadline: Instant) -> Result<Vec<u8>, CliError> {
    let (mut bytes, mut is_too_long) = (Vec::new(), false);
    let stdin = std::io::stdin();
    let mut buffer = vec![0; 1 << 16];
    loop {
        if !is_ready(&mut [PollFd::new(&stdin, PollFlags::IN)], deadline) {
            return Err(CliError::failed("the client sent no whole event"));
        }
        let read = stdin.lock().read(&mut buffer);
        let read = read.map_err(|error| CliError::failed(format!("no event: {error}")))?;
        match read {
            0 if is_too_long => {
                return Err(CliError::failed("the event is longer than any that is read"));
            }
            0 => return Ok(bytes),
            _ => {}
        }
        // Longer input is read all the same: a closed pipe would be an error for the client.
        is_too_long |= bytes.len() + read > MAX_EVENT_BYTES;
        match is_too_long {
            true => bytes = Vec::new(),
            false => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Starts the worker; the end of its output is the end of its work.
fn start_worker(root: &Path, key: &str) -> Result<ChildStdout, CliError> {
    let failed = |error| CliError::failed(format!("cannot start the worker: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .arg("--root")
        .arg(root)
        .args([WORKER, key])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    child.stdout.take().ok_or_else(|| CliError::failed("the worker has no output"))
}

/// Waits until the worker has ended, or until the deadline.
fn wait(done: &ChildStdout, deadline: Instant) {
    is_ready(&mut [PollFd::new(done, PollFlags::IN)], deadline);
}

/// Whether there is something to read, or the end, before the deadline.
fn is_ready(ready: &mut [PollFd<'_>], deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(ready, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Handles all events of an agent session, in a process of its own for which no agent waits.
pub(in crate::cli) fn work(args: &WorkerArgs, store: &StoreArgs, context: &Context) -> Outcome {
    // A signal to the hook's group of processes does not mean this one.
    let _ = sys::start_process_session();
    let root = store.catalog()?.root().to_owned();
    let journal = Journal::of(&root);
    if let Err(error) = try_work(args, &root, &journal, context) {
        journal.note(&args.key, &error);
    }
    Ok(0)
}

fn try_work(
    args: &WorkerArgs,
    root: &Path,
    journal: &Journal,
    context: &Context,
) -> Result<(), CliError> {
    sys::raise_descriptor_limit();
    let spool = Spool::open(root, &args.key)?;
    let lock = spool.lock()?;
    let settings = Settings::load(&surroundings()?, &FlagSettings::default())?;
    let recorder = Recorder {
        request: RecordRequest {
            root: root.to_owned(),
            command: Vec::new(),
            tracked_paths: Vec::new(),
            exclusion: CaptureArgs::default().exclusion(&settings, None)?,
            budget: settings.budget(),
            compression: settings.compression.value,
            threads: settings.threads(),
            origin: SessionOrigin::Agent,
            label: None,
        },
    };
    let mut has_ended = false;
    spool.drain(|kept, spooled| {
        let event = &spooled.event;
        let settle = |step: &mut Step| {
            match event.kind {
                // The agent has not waited: the state may be one after the call began.
                EventKind::Before(_) if spooled.is_released() => {
                    step.kind = StepKind::Late;
                    step.overlapped = true;
                }
                EventKind::After(_) if spool.has_released_call() => step.overlapped = true,
                _ => {}
            }
            for line in unrecorded_of(step) {
                journal.note_by_design(&event.client, &line);
            }
        };
        let elsewhere = |project: &Path| elsewhere_of(project, &event.client, journal);
        let was_known = kept.session.is_some();
        if let Err(error) = recorder.handle(kept, event, &settle, &elsewhere) {
            journal.note_unrecorded(&event.client, &error);
        }
        if let Some(id) = kept.session.as_ref().filter(|_| !was_known)
            && let Some(notice) = notice_of(&root.join(id))
        {
            journal.note_by_design(&event.client, &notice);
            if let Err(error) = spool.leave_notice(&notice) {
                journal.note(&event.client, &error);
            }
        }
        if settings.tell_agents.value
            && let Err(error) = leave_news(kept, event, root, &spool)
        {
            journal.note(&event.client, &error);
        }
        note_unseen(kept, spooled);
        has_ended |= event.kind == EventKind::SessionEnd;
    })?;
    drop(lock);
    if has_ended {
        Spool::forget_old(root);
        let retention = retention::begin(root, &settings, context);
        retention.finish(root, &settings, true, context);
    }
    Ok(())
}

/// The git directory of a project, where it lies elsewhere. Without it the files are recorded all
/// the same.
fn elsewhere_of(project: &Path, client: &str, journal: &Journal) -> Vec<PathBuf> {
    worktrees::recorded_with(project).unwrap_or_else(|error| {
        journal.note(
            client,
            &format_args!("commits in {} are not recorded: {error}", Shown::path(project)),
        );
        Vec::new()
    })
}

/// Leaves the news for the hook of a prompt. The first look has none.
fn leave_news(kept: &mut Kept, event: &Event, root: &Path, spool: &Spool) -> Result<(), CliError> {
    let is_prompt = matches!(event.kind, EventKind::Prompt { .. }) && event.subagent.is_none();
    let Some(id) = kept.session.as_ref().filter(|_| is_prompt || kept.known.is_empty()) else {
        return Ok(());
    };
    let Ok(session) = SessionDir::open(&root.join(id)) else { return Ok(()) };
    if let Some(news) = kept.known.news(&session)? {
        spool.leave_news(&news)?;
    }
    Ok(())
}

/// Most databases that the notice names.
const MAX_NAMED_DATABASES: usize = 5;

/// Says which databases of a project its session does not record.
fn notice_of(session: &Path) -> Option<String> {
    let baseline = SnapshotManager::open(session).and_then(|manager| manager.load_manifest(0));
    let baseline = baseline.ok()?;
    let roots: Vec<_> = baseline.roots.iter().map(|root| root.path.clone()).collect();
    let is_database = |left: &&NotCaptured| {
        let name = left.path.file_name().unwrap_or_default();
        is_database(name.as_encoded_bytes())
    };
    let databases: Vec<_> = baseline.not_captured.iter().filter(is_database).collect();
    let named = databases.iter().take(MAX_NAMED_DATABASES).map(|left| {
        let path = relative_to_roots(left.path.as_os_str().as_encoded_bytes(), &roots);
        format!("{} ({})", Shown::bytes(path), left.reason)
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match databases.len().saturating_sub(MAX_NAMED_DATABASES) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    (!databases.is_empty()).then(|| {
        format!("nono does not record these databases, so no undo brings them back: {named}{more}")
    })
}

fn note_unseen(kept: &mut Kept, spooled: &SpooledEvent) {
    let Event { kind: EventKind::Before(_), .. } = spooled.event else { return };
    if spooled.is_released() {
        kept.agent.began_unseen();
    }
}
