//! `nono list`: the recorded sessions, by project.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::PathBuf;
use std::{cmp::Reverse, fmt::Write as _};

use clap::Args;
use jiff::{Timestamp, Zoned};
use serde::Serialize;

use super::quoted;
use super::usage::session_holdings;
use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, real_home};
use crate::cli::context::{BOLD, Context, DIM, RED, YELLOW};
use crate::cli::error::{CliError, opening_command};
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::render::columns::MAX_COMMAND_CELLS;
use crate::cli::render::{
    Palette, byte_size, columns, project_name, relative_time, session_changes,
};
use crate::cli::repositories::Repositories;
use crate::cli::shell_word::command_line;
use nono_engine::counted::counted;
use nono_engine::gc::{CleanupOptions, SessionHoldings};
use nono_engine::path_text::Shown;
use nono_engine::session::{SessionStatus, SessionSummary};
use nono_engine::snapshot::{Recency, SessionDir, SessionOrigin, SnapshotLabel};
use nono_engine::sys;

/// Number of sessions that a person sees unless there is a wish for more.
const SHOWN_SESSIONS: usize = 20;
/// Maximum number of a session's labels, the last ones.
const SHOWN_LABELS: usize = 3;
/// Minimum and maximum width of a command, in cells.
const COMMAND_CELLS: (usize, usize) = (12, MAX_COMMAND_CELLS);

/// Arguments of `nono list`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    /// Only sessions that have to do with this path
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// Only the newest N sessions
    #[arg(long, value_name = "N")]
    recent: Option<usize>,
    /// All sessions, however many, also those whose command changed nothing
    #[arg(long)]
    all: bool,
    /// Measure what each session alone needs, as `nono usage` does
    #[arg(long)]
    sizes: bool,
    /// Print all sessions as JSON, unless --path or --recent says less
    #[arg(long)]
    json: bool,
}

/// A session, and what it holds.
#[derive(Serialize)]
struct Sized<'a> {
    #[serde(flatten)]
    session: &'a SessionSummary,
    /// The bytes that its removal alone frees.
    own_bytes: Option<u64>,
    /// The bytes of all that it needs.
    needed_bytes: Option<u64>,
}

/// The sessions that a list omits.
#[derive(Debug, Default)]
struct Hidden {
    without_changes: usize,
    older: usize,
}

pub(in crate::cli) fn run(args: &ListArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let mut sessions = Vec::new();
    let mut directories = HashMap::new();
    let mut is_complete = true;
    let catalog = store.catalog()?;
    // Where that cannot be told, the list is empty all the same.
    if store.root.is_some() && matches!(sys::kind_of(catalog.root()), Ok(None)) {
        let root = Shown::path(catalog.root());
        context.warn(format_args!("there is no store at {root}"));
    }
    for session in catalog.sessions()? {
        match SessionSummary::of(&session) {
            Ok(summary) => {
                sessions.push(summary);
                directories.insert(session.id(), session);
            }
            // Removed since it was listed.
            Err(_) if session.is_gone() => {}
            Err(error) => {
                is_complete = false;
                let id = session.id();
                let mend = opening_command(&error).unwrap_or_else(|| format!("{NONO} verify {id}"));
                context.warn(format_args!("{error} ({mend})"));
            }
        }
    }
    let is_empty = sessions.is_empty();
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
    if !args.all && !args.json {
        sessions.retain(is_of_interest);
    }
    let counts = counts(&sessions);
    let mut hidden = Hidden { without_changes: found - sessions.len(), older: sessions.len() };
    let limit = match (args.recent, args.all || args.json) {
        (Some(recent), _) => recent,
        (None, true) => found,
        (None, false) => SHOWN_SESSIONS,
    };
    sessions.truncate(limit);
    hidden.older -= sessions.len();
    // It reads the manifests of all their steps.
    for session in sessions.iter_mut().take(SHOWN_SESSIONS) {
        if let Some(directory) = directories.get(&session.session_id) {
            session.count_own_changes(directory);
        }
    }
    let mut held = HashMap::new();
    if args.sizes {
        let bar = Bar::new(context, "looking at what sessions take");
        let options = CleanupOptions { progress: &*bar, ..CleanupOptions::default() };
        let measured = session_holdings(&catalog, &options);
        bar.finish();
        match measured {
            Ok(measured) => held = measured,
            Err(error) if error.is_stopped() => return Err(error),
            Err(error) => {
                is_complete = false;
                context.warn(format_args!("there are no sizes: {error}"));
            }
        }
    }
    if args.json && args.sizes {
        let sized = sessions.iter().map(|session| {
            let held = held.get(&session.session_id);
            let own_bytes = held.map(|held| held.own.stored);
            Sized { session, own_bytes, needed_bytes: held.map(|held| held.needed.stored) }
        });
        context.json(&sized.collect::<Vec<_>>())?;
    } else if args.json {
        context.json(&sessions)?;
    } else if is_empty && is_complete {
        context.say(format_args!("no sessions; record one: {NONO} run COMMAND"));
    } else {
        print(&sessions, &git(&sessions, &directories), &held, &counts, context)?;
        hidden.say(context);
    }
    Ok(u8::from(!is_complete))
}

/// The moves in repositories of the newest sessions, in a few words, by id.
fn git(
    sessions: &[SessionSummary],
    directories: &HashMap<String, SessionDir>,
) -> HashMap<String, String> {
    let with_git = sessions.iter().take(SHOWN_SESSIONS).filter(|it| it.has_changes_in_git());
    let told = with_git.filter_map(|session| {
        let directory = directories.get(&session.session_id)?;
        // Its changes are counted all the same.
        let repositories = Repositories::of_session(directory).ok()?;
        Some((session.session_id.clone(), repositories.brief()?))
    });
    told.collect()
}

/// Whether a session is listed without being asked for: not if its command changed nothing. What
/// the user named or pinned is, and so is a snapshot.
fn is_of_interest(session: &SessionSummary) -> bool {
    session.status != SessionStatus::Completed
        || session.has_changes()
        || session.has_lost_unread
        || session.pinned
        || session.label.is_some()
        || !session.labels.is_empty()
}

/// Number of sessions of each project.
fn counts(sessions: &[SessionSummary]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for session in sessions {
        *counts.entry(session.project()).or_default() += 1;
    }
    counts
}

impl Hidden {
    fn say(&self, context: &Context) {
        let parts = [(self.without_changes, "without changes"), (self.older, "older")];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = parts.map(|(count, what)| format!("{count} {what}")).collect();
        if !parts.is_empty() {
            context.say(format_args!("not shown: {} (--all shows them)", parts.join(", ")));
        }
    }
}

/// One line of the list, as far as its width matters.
struct Row<'a> {
    session: &'a SessionSummary,
    time: String,
    command: String,
    /// With styles, and the cells that it takes.
    rest: (String, usize),
}

fn print(
    sessions: &[SessionSummary],
    git: &HashMap<String, String>,
    held: &HashMap<String, SessionHoldings>,
    counts: &BTreeMap<String, usize>,
    context: &Context,
) -> Result<(), CliError> {
    let now = Zoned::now();
    let row = |session| Row {
        session,
        time: relative_time(session.started, &now),
        command: command(session),
        rest: rest(session, git.get(&session.session_id), held.get(&session.session_id)),
    };
    let rows: Vec<Row<'_>> = sessions.iter().map(row).collect();
    let widest = |of: &dyn Fn(&Row<'_>) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let ids = widest(&|row| row.session.session_id.len());
    let times = widest(&|row| columns::width(&row.time));
    let rests = widest(&|row| row.rest.1);
    let (least, most) = COMMAND_CELLS;
    let before = 4 + ids + 2 + times + 2;
    let columns = context.columns();
    // On a narrow terminal, what changed has a line of its own.
    let is_narrow = columns.is_some_and(|columns| columns < before + least + 2 + rests);
    let after = if is_narrow { 0 } else { 2 + rests };
    let room =
        columns.map_or(most, |columns| columns.saturating_sub(before + after).clamp(least, most));
    let commands = widest(&|row| columns::width(&row.command)).min(room);

    let mut projects: Vec<(String, Vec<&Row<'_>>)> = Vec::new();
    for row in &rows {
        let project = row.session.project();
        match projects.iter_mut().find(|(name, _)| *name == project) {
            Some((_, rows)) => rows.push(row),
            None => projects.push((project, vec![row])),
        }
    }
    let home = real_home();
    context.page();
    let mut out = context.out();
    let count = counts.values().sum::<usize>();
    writeln!(out, "{}", counted(count, "session", "sessions"))?;
    for (project, rows) in &projects {
        let count = counts.get(project).copied().unwrap_or(rows.len());
        let name = project_name(&rows[0].session.tracked_paths, home.as_deref());
        let of_project = counted(count, "session", "sessions");
        writeln!(out, "\n  {BOLD}{name}{BOLD:#} ({of_project})")?;
        for Row { session, time, command, rest: (rest, _) } in rows {
            let id = columns::pad(&session.session_id, ids);
            let time = columns::pad(time, times);
            let command = columns::cut(command, commands);
            if is_narrow {
                writeln!(out, "    {id}  {time}  {command}\n      {rest}")?;
            } else {
                let command = columns::pad(&command, commands);
                writeln!(out, "    {id}  {time}  {command}  {rest}")?;
            }
            if session.step_count > 0 {
                let id = &session.session_id;
                let steps = counted(session.step_count, "step", "steps");
                writeln!(out, "      {DIM}{steps} ({NONO} steps {id}){DIM:#}")?;
            }
            if !session.labels.is_empty() {
                writeln!(out, "      {DIM}{}{DIM:#}", labels(session))?;
            }
        }
        if count > rows.len() {
            writeln!(out, "    {DIM}…{DIM:#}")?;
        }
    }
    Ok(())
}

/// The changes, and the peculiarities of a session.
fn rest(
    session: &SessionSummary,
    git: Option<&String>,
    held: Option<&SessionHoldings>,
) -> (String, usize) {
    let changes = |palette: &Palette| match session.status {
        SessionStatus::Running if session.snapshot_count < 2 => {
            "changes not recorded yet".to_owned()
        }
        // A comparison with the present state tells the changes of its command.
        SessionStatus::Interrupted
            if session.changes.is_none_or(|changes| changes.total() == 0) =>
        {
            "end not recorded".to_owned()
        }
        _ => session_changes(session, git.map(String::as_str), palette),
    };
    let mut plain = changes(&Palette::plain());
    let mut styled = changes(&Palette::coloured());
    let status = match (session.status, session.exit_code) {
        (SessionStatus::Completed, Some(code)) if code != 0 => Some((RED, format!("exit {code}"))),
        (SessionStatus::Completed, _) => None,
        (SessionStatus::Interrupted, _) => Some((RED, session.status.word().to_owned())),
        _ => Some((YELLOW, session.status.word().to_owned())),
    };
    let undone = session.undone_word().map(|word| (DIM, word.to_owned()));
    let pinned = session.pinned.then(|| (YELLOW, "pinned".to_owned()));
    let received = session.received.then(|| (YELLOW, "received".to_owned()));
    let label = session.label.as_deref().map(|label| (BOLD, quoted(label).trim().to_owned()));
    let size = held.map(|held| (DIM, format!("{} of its own", byte_size(held.own.stored))));
    for (style, word) in [status, undone, pinned, received, label, size].into_iter().flatten() {
        let _ = write!(plain, "  {word}");
        let _ = write!(styled, "  {style}{word}{style:#}");
    }
    let cells = columns::width(&plain);
    (styled, cells)
}

/// The names of a session's snapshots.
fn labels(session: &SessionSummary) -> String {
    let named = session.labels.iter().rev().take(SHOWN_LABELS).rev();
    let shown: Vec<_> =
        named.map(|SnapshotLabel { number, label }| format!("{number}{}", quoted(label))).collect();
    let more = if session.labels.len() > shown.len() { "…, " } else { "" };
    format!("{more}{}", shown.join(", "))
}

/// The command in one line, safe for a terminal and not too long.
pub(in crate::cli) fn command(session: &SessionSummary) -> String {
    columns::cut(&whole_command(session), MAX_COMMAND_CELLS)
}

/// The command in one line, safe for a terminal.
pub(in crate::cli) fn whole_command(session: &SessionSummary) -> String {
    match without_command(session) {
        Some(maker) => format!("({maker})"),
        None => Shown::bytes(command_line(&session.command).as_bytes()).to_string(),
    }
}

/// The maker of a session that has no command, safe for a terminal.
pub(in crate::cli) fn without_command(session: &SessionSummary) -> Option<String> {
    if !session.command.is_empty() {
        return None;
    }
    Some(match (&session.fork, session.origin) {
        (Some(fork), _) => format!("fork {}", Shown::bytes(fork.as_bytes())),
        (None, SessionOrigin::Fork) => "fork".to_owned(),
        (None, SessionOrigin::Watch) => "you or another program".to_owned(),
        (None, _) => "snapshot".to_owned(),
    })
}
