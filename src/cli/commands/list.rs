//! `nono rollback list`: what was recorded, by project.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use jiff::{Timestamp, Zoned};

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::{BOLD, Context, DIM, GREEN, RED, YELLOW};
use crate::cli::render::{Palette, byte_size, relative_time, summary_line};
use crate::path_text::Shown;
use crate::session::{SessionStatus, SessionSummary};
use crate::snapshot::{Recency, SnapshotLabel};
use crate::sys;

/// A person sees so many sessions unless there is a wish for more.
const SHOWN_SESSIONS: usize = 20;
/// So many of the last labels of a session.
const SHOWN_LABELS: usize = 3;

/// Arguments of `nono rollback list`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    /// Only sessions that have to do with this path
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// Only the newest N sessions
    #[arg(long, value_name = "N")]
    recent: Option<usize>,
    /// All sessions, however many
    #[arg(long, conflicts_with = "recent")]
    all: bool,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

pub(in crate::cli) fn run(args: &ListArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let mut sessions = Vec::new();
    let mut is_complete = true;
    for session in store.catalog()?.sessions()? {
        match SessionSummary::of(&session) {
            Ok(summary) => sessions.push(summary),
            // Removed since it was listed.
            Err(_) if session.is_gone() => {}
            Err(error) => {
                is_complete = false;
                context.warn(format_args!("{error} (nono rollback verify {})", session.id()));
            }
        }
    }
    if let Some(path) = &args.path {
        let path = sys::real_path(path)
            .or_else(|_| sys::current_dir().map(|current| sys::plain_absolute(path, &current)))?;
        sessions.retain(|session| session.concerns(&path));
    }
    let now = Timestamp::now();
    sessions.sort_by_cached_key(|session| {
        Reverse(Recency::new(session.started, session.session_id.as_str(), now))
    });
    let found = sessions.len();
    let limit = match (args.recent, args.all || args.json) {
        (Some(recent), _) => recent,
        (None, true) => found,
        (None, false) => SHOWN_SESSIONS,
    };
    sessions.truncate(limit);
    if args.json {
        context.json(&sessions)?;
    } else {
        print(&sessions, found, context)?;
    }
    Ok(u8::from(!is_complete))
}

fn print(
    sessions: &[SessionSummary],
    found: usize,
    context: &Context,
) -> Result<(), crate::cli::CliError> {
    if sessions.is_empty() {
        context.say("no sessions; record one: nono run --rollback -- COMMAND");
        return Ok(());
    }
    let mut projects: BTreeMap<usize, Vec<&SessionSummary>> = BTreeMap::new();
    let mut order: BTreeMap<String, usize> = BTreeMap::new();
    for session in sessions {
        let next = order.len();
        let project = *order.entry(session.project()).or_insert(next);
        projects.entry(project).or_default().push(session);
    }
    let now = Zoned::now();
    context.page();
    let mut out = context.out();
    for (index, sessions) in projects.values().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let project = sessions[0].project();
        writeln!(out, "{BOLD}{}{BOLD:#}", Shown::bytes(project.as_bytes()))?;
        for session in sessions {
            let time = relative_time(session.started, &now);
            let status = status(session);
            let changes = match session.status {
                SessionStatus::Running if session.snapshot_count < 2 => {
                    "changes not recorded yet".to_owned()
                }
                // What its command did is told by comparing with what is there now.
                SessionStatus::Interrupted
                    if session.changes.is_none_or(|changes| changes.total() == 0) =>
                {
                    format!("end not recorded (nono rollback show {})", session.session_id)
                }
                _ => match &session.changes {
                    Some(changes) => summary_line(changes, &Palette::coloured()),
                    None => "changes not counted".to_owned(),
                },
            };
            let size = byte_size(session.disk_size);
            let id = &session.session_id;
            let command = command(session);
            writeln!(
                out,
                "  {id}  {time:<16}  {status}  {changes}  {DIM}{size}{DIM:#}  {command}"
            )?;
            if !session.labels.is_empty() {
                writeln!(out, "    {DIM}{}{DIM:#}", labels(session))?;
            }
        }
    }
    if found > sessions.len() {
        let more = found - sessions.len();
        context.say(format_args!("{more} older sessions are not shown (--all shows them)"));
    }
    Ok(())
}

fn status(session: &SessionSummary) -> String {
    let word = session.status.word();
    match (session.status, session.exit_code) {
        (SessionStatus::Completed, Some(code)) if code != 0 => {
            format!("{RED}exit {code:<6}{RED:#}")
        }
        (SessionStatus::Completed, _) => format!("{GREEN}{word:<11}{GREEN:#}"),
        (SessionStatus::Interrupted, _) => format!("{RED}{word:<11}{RED:#}"),
        _ => format!("{YELLOW}{word:<11}{YELLOW:#}"),
    }
}

/// What the snapshots of a session are called.
fn labels(session: &SessionSummary) -> String {
    let named = session.labels.iter().rev().take(SHOWN_LABELS).rev();
    let shown: Vec<_> = named
        .map(|SnapshotLabel { number, label }| format!("{number} “{}”", short(label)))
        .collect();
    let more = if session.labels.len() > shown.len() { "…, " } else { "" };
    format!("{more}{}", shown.join(", "))
}

/// The command in one line, safe for a terminal and not too long.
pub(in crate::cli) fn command(session: &SessionSummary) -> String {
    short(&session.command.join(" "))
}

fn short(text: &str) -> String {
    const LONGEST: usize = 60;
    let text = Shown::bytes(text.as_bytes()).to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
