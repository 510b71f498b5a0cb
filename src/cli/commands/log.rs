//! `nono log`: every version of a path that is recorded, or what the sessions here changed.

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Zoned;
use serde::Serialize;

use super::list::command;
use super::quoted;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::argument::{Earlier, not_held};
use crate::cli::context::{BOLD, Context, DIM, GREEN, RED, YELLOW};
use crate::cli::error::CliError;
use crate::cli::maker::Maker;
use crate::cli::offer::NONO;
use crate::cli::past::{Past, compared, name_damaged};
use crate::cli::render::{
    DiffOptions, Palette, byte_size, change_line, relative_time, size_delta, summary_line,
    summary_with_git, write_patch,
};
use crate::cli::repositories::Repositories;
use crate::cli::shell_word::shell_word;
use crate::cli::state_at::exact;
use crate::cli::unrecorded_changes::lines_of_step;
use crate::cli::when::{When, when};
use nono_engine::diff::{self, Change, ChangeSummary, Difference, EntryState};
use nono_engine::history::{
    Damaged, Now, Origin, PathHistory, Version, forms_of, history_of, now_of,
};
use nono_engine::object::{ContentHash, Node};
use nono_engine::path_text::{Shown, serde_path};
use nono_engine::session::{
    Catalog, CatalogError, NotHere, Place, Purpose, SessionStatus, SessionSummary, sessions_here,
};
use nono_engine::snapshot::{NotCapturedSet, Recency, SessionDir, StepEntry};
use nono_engine::sys;

/// Maximum number of changes of a session that are named one by one.
const NAMED_CHANGES: usize = 10;

/// Arguments of `nono log`.
#[derive(Debug, Args)]
pub(in crate::cli) struct LogArgs {
    /// A file or a directory, which may be gone [default: the sessions here]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// Only versions that appeared since this time, or sessions that were at work since: 12:00,
    /// yesterday, "2h ago", "2026-11-20 18:30"
    #[arg(long, value_name = "TIME", value_parser = when)]
    since: Option<When>,
    /// Only the version of the PATH that stood at this time
    #[arg(long, value_name = "TIME", value_parser = when)]
    #[arg(requires = "path", conflicts_with = "since")]
    at: Option<When>,
    /// Show what each version changed
    #[arg(long, short)]
    patch: bool,
    /// Print the report as JSON
    #[arg(long, conflicts_with = "patch")]
    json: bool,
}

pub(in crate::cli) fn run(args: &LogArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let current_dir = sys::current_dir()?;
    let Some(path) = &args.path else {
        return log_sessions(&current_dir, args, &catalog, context);
    };
    let forms = forms_of(&sys::plain_absolute(path, &current_dir));
    let mut past = Past::of_path(&forms, &catalog)?;
    if past.sessions.is_empty() {
        // All that is recorded may lie below.
        let real = forms.last().unwrap_or(path);
        return log_sessions(real, args, &catalog, context);
    }
    let mut history = history_of(&forms, &past.sessions, &past.objects);
    let mut damaged = std::mem::take(&mut history.damaged);
    damaged.append(&mut past.damaged);
    if history.versions.is_empty() {
        name_damaged(&damaged, context);
        return Err(not_held(&history.path));
    }
    let now = past.newest().map(|newest| now_of(&history, newest)).transpose();
    let now = now.unwrap_or_else(|error| {
        context.warn(format_args!("what is there now is not known: {error}"));
        None
    });
    let shown = args.chosen(&history, context)?;
    if args.json {
        context.json(&Report::of(&history, &shown, now.as_ref(), &past, &damaged))?;
    } else {
        context.page();
        print(&history, &shown, now.as_ref(), &past, args.patch, context)?;
    }
    Ok(u8::from(!name_damaged(&damaged, context)))
}

impl LogArgs {
    /// The indices of the versions that are shown. The exact time is said.
    fn chosen(&self, history: &PathHistory, context: &Context) -> Result<Vec<usize>, CliError> {
        let versions = || history.versions.iter().enumerate();
        let began = |version: &Version| version.first().timestamp;
        if let Some(at) = &self.at {
            let end = at.end();
            let stood = versions().find(|(_, version)| began(version) <= end);
            let Some((index, version)) = stood else {
                let path = Shown::path(&history.path);
                let time = exact(end);
                return Err(CliError::failed(format!("no version of {path} is as old as {time}")));
            };
            let place = version.first();
            let (at, since) = (exact(end), exact(place.timestamp));
            context.say(format_args!("the version at {at} is that of {place}, of {since}"));
            return Ok(vec![index]);
        }
        if let Some(since) = &self.since {
            context.say(format_args!("versions since {}", exact(since.begin())));
        }
        let is_since = |version: &Version| {
            self.since.as_ref().is_none_or(|since| began(version) >= since.begin())
        };
        Ok(versions().filter(|(_, version)| is_since(version)).map(|(index, _)| index).collect())
    }
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(with = "serde_path")]
    path: PathBuf,
    /// Newest first.
    versions: Vec<VersionReport<'a>>,
    /// Whether what is there now is none of them, or nothing where none says so.
    now_is_unrecorded: Option<bool>,
    damaged: Vec<DamagedReport<'a>>,
}

#[derive(Serialize)]
struct DamagedReport<'a> {
    session_id: &'a str,
    error: String,
}

#[derive(Serialize)]
struct VersionReport<'a> {
    /// The argument for a restore: the oldest snapshot that has this version.
    snapshot: String,
    session_id: &'a str,
    number: u64,
    timestamp: jiff::Timestamp,
    command: &'a [String],
    /// `command`, `outside` of every session, `first` recorded, `restored`, or `received` in an
    /// archive.
    origin: &'static str,
    /// `file`, `directory`, …, or `gone`.
    kind: &'static str,
    size: Option<u64>,
    size_delta: Option<i64>,
    sha256: Option<ContentHash>,
    mode: Option<u16>,
    is_now: bool,
    /// The step that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<StepEntry>,
    /// All snapshots that have it, oldest first.
    snapshots: Vec<String>,
}

impl<'a> Report<'a> {
    fn of(
        history: &'a PathHistory,
        shown: &[usize],
        now: Option<&Now>,
        past: &'a Past,
        damaged: &'a [Damaged],
    ) -> Self {
        let versions = shown.iter().map(|index| {
            let is_now = now == Some(&Now::Version(*index));
            VersionReport::of(&history.versions[*index], is_now, past)
        });
        let damaged = damaged.iter().map(|damaged| DamagedReport {
            session_id: &damaged.session_id,
            error: damaged.error.to_string(),
        });
        Self {
            path: history.path.clone(),
            versions: versions.collect(),
            now_is_unrecorded: now.map(|now| !matches!(now, Now::Version(_))),
            damaged: damaged.collect(),
        }
    }
}

impl<'a> VersionReport<'a> {
    fn of(version: &'a Version, is_now: bool, past: &'a Past) -> Self {
        let first = version.first();
        let state = version.state.as_deref();
        let maker = Maker::of(version, past);
        let file = state.and_then(|state| match &state.node {
            Node::File { size, hash, .. } => Some((*size, *hash)),
            _ => None,
        });
        Self {
            snapshot: first.to_string(),
            session_id: &first.session_id,
            number: first.number,
            timestamp: first.timestamp,
            command: maker.command(),
            origin: maker.origin_word(),
            kind: state.map_or("gone", |state| state.node.kind_name()),
            size: file.map(|(size, _)| size),
            size_delta: version.size_delta(),
            sha256: file.map(|(_, hash)| hash),
            mode: state.map(|state| state.attributes.mode),
            is_now,
            step: maker.step(),
            snapshots: version.places.iter().map(ToString::to_string).collect(),
        }
    }
}

fn print(
    history: &PathHistory,
    shown: &[usize],
    now: Option<&Now>,
    past: &Past,
    patch: bool,
    context: &Context,
) -> Result<(), CliError> {
    let time_now = Zoned::now();
    let mut out = context.out_long();
    let count = shown.len();
    let plural = if count == 1 { "" } else { "s" };
    writeln!(out, "{BOLD}{}{BOLD:#}  {count} version{plural}", Shown::path(&history.path))?;
    match now {
        Some(Now::Unrecorded { size }) => {
            let size = size.map_or(String::new(), byte_size);
            writeln!(out, "{GREEN}*{GREEN:#} now, in no snapshot  {size}")?;
        }
        Some(Now::Gone) => writeln!(out, "{GREEN}*{GREEN:#} now gone, in no snapshot")?,
        _ => {}
    }
    let versions = || shown.iter().map(|index| (*index, &history.versions[*index]));
    let widest = versions().map(|(_, version)| version.first().to_string().len()).max();
    let widest = widest.unwrap_or(0);
    for (index, version) in versions() {
        let is_now = now == Some(&Now::Version(index));
        let mark = if is_now { format!("{GREEN}*{GREEN:#}") } else { " ".to_owned() };
        let line = version_line(version, &history.path, past, widest, &time_now)?;
        let now = if is_now { format!("  {GREEN}now{GREEN:#}") } else { String::new() };
        writeln!(out, "{mark} {line}{now}")?;
        if patch {
            out.flush()?;
            write_changes(&mut *out, version, &history.path, past, context)?;
        }
    }
    out.flush()?;
    if let Some(path) = shell_word(&history.path) {
        // A newer version is a later change, which is the reason to ask for an older one.
        context.say(format_args!(
            "bring one back: {NONO} restore ID/N --force {path} ({NONO} redo takes it \
             back)"
        ));
    }
    Ok(())
}

/// A version in a line: its snapshot in this width, its time, its size and its maker.
fn version_line(
    version: &Version,
    path: &Path,
    past: &Past,
    widest: usize,
    now: &Zoned,
) -> Result<String, CliError> {
    let place = version.first();
    let time = relative_time(place.timestamp, now);
    let what = what(version.state.as_deref());
    let changes = change(version, path, past)?;
    let who = Maker::of(version, past).words();
    let id = format!("{:<widest$}", place.to_string());
    Ok(format!("{BOLD}{id}{BOLD:#}  {time:<14}  {what:>10}  {changes:<10}  {who}"))
}

/// Shows one version, and what it changed.
pub(super) fn show_version(earlier: &Earlier, json: bool, context: &Context) -> Outcome {
    let Earlier { past, path, version, .. } = earlier;
    let code = u8::from(!earlier.name_damaged(context));
    if json {
        context.json(&VersionReport::of(version, false, past))?;
        return Ok(code);
    }
    context.page();
    let mut out = context.out_long();
    writeln!(out, "{BOLD}{}{BOLD:#}", Shown::path(path))?;
    writeln!(out, "  {}", version_line(version, path, past, 0, &Zoned::now())?)?;
    out.flush()?;
    write_changes(&mut *out, version, path, past, context)?;
    out.flush()?;
    Ok(code)
}

fn what(state: Option<&EntryState>) -> String {
    match state.map(|state| &state.node) {
        None => "gone".to_owned(),
        Some(Node::File { size, .. }) => byte_size(*size),
        Some(node) => node.kind_name().to_owned(),
    }
}

/// How large the change was: bytes of a file, changed paths of a directory.
fn change(version: &Version, path: &Path, past: &Past) -> Result<String, CliError> {
    if version.origin == Origin::First {
        return Ok(String::new());
    }
    let states = [version.before.as_deref(), version.state.as_deref()];
    if states.into_iter().flatten().any(|state| matches!(state.node, Node::Directory { .. })) {
        let differences = version.differences(&past.objects, path)?;
        let changes: Vec<Change> = differences.iter().filter_map(Difference::change).collect();
        return Ok(summary_line(&ChangeSummary::of(&changes), &Palette::coloured()));
    }
    if let [Some(before), Some(state)] = states
        && before.node == state.node
        && before.attributes.mode != state.attributes.mode
    {
        let (old, new) = (before.attributes.mode, state.attributes.mode);
        return Ok(format!("mode {old:o} → {new:o}"));
    }
    Ok(version.size_delta().map_or(String::new(), size_delta))
}

fn write_changes(
    out: &mut dyn Write,
    version: &Version,
    path: &Path,
    past: &Past,
    context: &Context,
) -> Result<(), CliError> {
    let differences = version.differences(&past.objects, path)?;
    let session = past.summary(&version.first().session_id);
    let roots = session.map_or(Vec::new(), |session| session.tracked_paths.clone());
    let mut options = DiffOptions::new(&past.objects, &roots);
    options.escape = context.stdout_is_terminal;
    if context.colours() {
        options.palette = Palette::coloured();
    }
    write_patch(out, &differences, &options)?;
    Ok(writeln!(out)?)
}

#[derive(Serialize)]
struct SessionReport<'a> {
    #[serde(flatten)]
    summary: &'a SessionSummary,
    changed: Vec<Change>,
}

/// The sessions that concern a directory, with what they changed.
fn log_sessions(directory: &Path, args: &LogArgs, catalog: &Catalog, context: &Context) -> Outcome {
    let now = jiff::Timestamp::now();
    let place = Place { directory: directory.to_owned(), purpose: Purpose::Looking };
    let listed = catalog.listed()?.sessions;
    let here: HashSet<&str> = match sessions_here(&listed, &place, now) {
        Ok(here) => here.iter().map(|session| session.session_id.as_str()).collect(),
        Err(NotHere::SeveralBelow(projects)) => {
            let directory = place.directory;
            return Err(CatalogError::SeveralBelow { directory, projects }.into());
        }
        Err(NotHere::Nowhere) => return Err(catalog.none_here(&place, &listed, now).into()),
    };
    let mut past = Past::of(catalog, |summary| here.contains(summary.session_id.as_str()))?;
    let mut is_complete = name_damaged(&std::mem::take(&mut past.damaged), context);
    let mut order: Vec<usize> = (0..past.sessions.len()).collect();
    order.sort_by_cached_key(|index| {
        let summary = &past.summaries[*index];
        std::cmp::Reverse(Recency::new(summary.started, summary.session_id.as_str(), now))
    });
    let (shown, hidden): (Vec<usize>, Vec<usize>) = order.into_iter().partition(|index| {
        let summary = &past.summaries[*index];
        let is_told = !summary.unrecorded.is_empty();
        let is_since = args.since.as_ref().is_none_or(|since| {
            let is_open = matches!(summary.status, SessionStatus::Running | SessionStatus::Open);
            let end = summary.ended.unwrap_or(if is_open { now } else { summary.started });
            end >= since.begin()
        });
        is_since && (context.is_verbose || summary.has_changes() || summary.lacks_end() || is_told)
    });
    if shown.is_empty() && !args.json {
        let directory = Shown::path(directory);
        context.say(format_args!("no session changed something in {directory}"));
        return Ok(u8::from(!is_complete));
    }
    if !args.json {
        context.page();
    }
    let time_now = Zoned::now();
    let mut reports = Vec::new();
    let mut out = context.out_long();
    for (position, index) in shown.iter().enumerate() {
        let (session, summary) = (&past.sessions[*index], &past.summaries[*index]);
        let differences = match differences(session, &past) {
            Ok(differences) => differences,
            Err(_) if session.is_gone() => continue,
            Err(error) => {
                is_complete = false;
                context.warn(format_args!("{error} ({NONO} verify {})", session.id()));
                continue;
            }
        };
        let changed: Vec<Change> = differences.iter().filter_map(Difference::change).collect();
        if args.json {
            reports.push(SessionReport { summary, changed });
            continue;
        }
        if position > 0 {
            writeln!(out)?;
        }
        let git = match summary.has_changes_in_git() {
            true => Repositories::of_session(session).ok().and_then(|found| found.brief()),
            false => None,
        };
        print_session(&mut *out, summary, git.as_deref(), &changed, &time_now, context)?;
        if args.patch {
            let mut options = DiffOptions::new(&past.objects, &summary.tracked_paths);
            options.escape = context.stdout_is_terminal;
            if context.colours() {
                options.palette = Palette::coloured();
            }
            write_patch(&mut *out, &differences, &options)?;
        }
    }
    if args.json {
        drop(out);
        context.json(&reports)?;
    } else {
        out.flush()?;
        if !hidden.is_empty() {
            let count = hidden.len();
            let what = if count == 1 { "session" } else { "sessions" };
            context.say(format_args!("{count} {what} without changes not shown (-v shows them)"));
        }
    }
    Ok(u8::from(!is_complete))
}

/// Names what steps of the session changed and no snapshot holds.
pub(super) fn write_unrecorded(
    out: &mut dyn Write,
    summary: &SessionSummary,
    most: usize,
) -> Result<(), CliError> {
    let SessionSummary { session_id, unrecorded, tracked_paths, .. } = summary;
    let lines: Vec<String> = unrecorded
        .iter()
        .flat_map(|step| {
            let lines = lines_of_step(step, tracked_paths).into_iter();
            lines.map(|line| format!("{line}, step {}", step.step))
        })
        .collect();
    for line in lines.iter().take(most) {
        writeln!(out, "  {YELLOW}{line}{YELLOW:#}")?;
    }
    if let Some(more @ 1..) = lines.len().checked_sub(most) {
        writeln!(
            out,
            "  {YELLOW}{more} more that are not recorded{YELLOW:#} ({NONO} steps {session_id})"
        )?;
    }
    Ok(())
}

/// The changes of a session, without paths that one of its states does not know.
fn differences(session: &SessionDir, past: &Past) -> Result<Vec<Difference>, CliError> {
    let (old, new) = compared(session, None)?;
    let mut differences = diff::compare(&past.objects, &old.merkle_root, &new.merkle_root)?;
    let unknown = (NotCapturedSet::new(&old), NotCapturedSet::new(&new));
    differences.retain(|difference| diff::is_known(difference, &unknown.0, &unknown.1));
    Ok(differences)
}

fn print_session(
    out: &mut dyn Write,
    summary: &SessionSummary,
    git: Option<&str>,
    changed: &[Change],
    now: &Zoned,
    context: &Context,
) -> Result<(), CliError> {
    let SessionSummary { session_id, started, exit_code, .. } = summary;
    let time = relative_time(*started, now);
    let failed = exit_code.filter(|code| *code != 0);
    let failed = failed.map_or(String::new(), |code| format!("  {RED}exit {code}{RED:#}"));
    let command = command(summary);
    let undone = summary.undone_word();
    let undone = undone.map_or(String::new(), |word| format!("  {YELLOW}{word}{YELLOW:#}"));
    let unfinished = Some(summary.status.word()).filter(|_| summary.lacks_end());
    let unfinished = unfinished.map_or(String::new(), |word| format!("  {YELLOW}{word}{YELLOW:#}"));
    let label = summary.label.as_deref().map(|label| format!(" {}", quoted(label)));
    let label = label.unwrap_or_default();
    writeln!(
        out,
        "{BOLD}{session_id}{BOLD:#}  {time}{failed}{unfinished}{undone}  {command}{label}"
    )?;
    let palette = Palette::coloured();
    if summary.lacks_end() && changed.is_empty() {
        writeln!(out, "  its last state is not recorded ({NONO} diff {session_id})")?;
        return Ok(());
    }
    writeln!(out, "  {}", summary_with_git(&ChangeSummary::of(changed), git, &palette))?;
    // Changes in a repository are counted above.
    let changed: Vec<&Change> = changed.iter().filter(|change| !change.is_in_git()).collect();
    let named = changed.len().min(context.at_most(NAMED_CHANGES));
    for change in &changed[..named] {
        writeln!(out, "  {}", change_line(change, &summary.tracked_paths, &palette))?;
    }
    if changed.len() > named {
        let more = changed.len() - named;
        writeln!(out, "  {DIM}and {more} more ({NONO} show {session_id}){DIM:#}")?;
    }
    write_unrecorded(out, summary, context.at_most(NAMED_CHANGES))
}
