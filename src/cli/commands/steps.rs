//! `nono steps`: what an agent did, prompt by prompt and call by call.

use std::io::Write;

use clap::Args;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, named_project};
use crate::cli::checkpoints::SESSION_VARIABLE;
use crate::cli::context::{BOLD, CYAN, Context, DIM, YELLOW};
use crate::cli::error::CliError;
use crate::cli::inside::fork_around;
use crate::cli::offer::NONO;
use crate::cli::render::{Palette, summary_with_git};
use crate::cli::repositories::Repositories;
use crate::cli::restoring::is_meant_here;
use crate::cli::unrecorded_changes::lines_of_step;
use nono_engine::path_text::Shown;
use nono_engine::session::{
    Catalog, Place, PromptSteps, Purpose, UnrecordedStep, by_prompt, last_watched, sessions_here,
    steps_of,
};
use nono_engine::snapshot::{
    AgentSession, RemovedSnapshot, SessionDir, SessionMetadata, SessionOrigin, StepEntry, StepKind,
    StepPrompt,
};

/// The word for the newest session.
const LATEST: &str = "latest";
/// Maximum number of characters of a prompt and of a step.
const SHOWN_CHARS: usize = 72;

/// Arguments of `nono steps`.
#[derive(Debug, Args)]
pub(in crate::cli) struct StepsArgs {
    /// Id of a session, a prefix of it, or `latest`, the newest one here
    #[arg(value_name = "ID", default_value = "latest", allow_negative_numbers = true)]
    id: String,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    session_id: String,
    agent: Option<AgentSession>,
    prompts: Vec<PromptReport>,
    /// Snapshots that were removed from the session, in order.
    removed: Vec<RemovedSnapshot>,
}

#[derive(Serialize)]
struct PromptReport {
    /// None before the first prompt.
    #[serde(flatten)]
    prompt: Option<StepPrompt>,
    steps: Vec<StepEntry>,
}

pub(in crate::cli) fn run(args: &StepsArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    // In a fork, the newest session here is that of the project.
    let own = std::env::var(SESSION_VARIABLE).ok().filter(|_| fork_around().is_some());
    let id = own.filter(|_| args.id == LATEST).unwrap_or_else(|| args.id.clone());
    let session = catalog.find_from(&id, Purpose::Looking)?;
    let metadata = session.metadata()?;
    let prompts = by_prompt(steps_of(&metadata));
    if args.json {
        let of = |PromptSteps { prompt, steps }| PromptReport { prompt, steps };
        let prompts = prompts.into_iter().map(of).collect();
        let SessionMetadata { agent, removed, .. } = metadata;
        let report = Report { session_id: session.id(), agent, prompts, removed };
        context.json(&report)?;
        return Ok(0);
    }
    print(&session, &metadata, &prompts, &catalog, context)?;
    Ok(0)
}

fn print(
    session: &SessionDir,
    metadata: &SessionMetadata,
    prompts: &[PromptSteps],
    catalog: &Catalog,
    context: &Context,
) -> Result<(), CliError> {
    context.page();
    let id = &session.id();
    let mut out = context.out_long();
    let agent = metadata
        .agent
        .as_ref()
        .map_or_else(String::new, |agent| format!("  {}", Shown::bytes(agent.client.as_bytes())));
    let times = Times::of(metadata, prompts);
    let (project, day) = (named_project(&metadata.tracked_paths), times.day);
    writeln!(out, "{BOLD}{id}{BOLD:#}{agent}  {project}  {DIM}{day}{DIM:#}")?;
    let steps = || prompts.iter().flat_map(|group| &group.steps);
    let Some(last) = steps().last() else {
        out.flush()?;
        context.say("no steps: no agent with hooks of nono changed anything (nono agent status)");
        if let Some(watched) = last_watched_here(catalog)? {
            context.say(format_args!("steps of you or another program: {NONO} steps {watched}"));
        }
        return Ok(());
    };
    let digits = last.number.to_string().len();
    let width = steps().map(|step| shown(&step.summary()).width()).max().unwrap_or(0);
    let mut before = None;
    for PromptSteps { prompt, steps } in prompts {
        match (prompt, before) {
            (Some(StepPrompt { number, text }), _) => {
                let text = shown(text);
                writeln!(out, "prompt {number}  {DIM}{text}{DIM:#}")?;
                before = Some(*number);
            }
            (None, Some(number)) => writeln!(out, "after prompt {number}")?,
            // A watcher has no prompts.
            (None, None) if steps.iter().all(is_watchers) => {}
            (None, None) => writeln!(out, "before the first prompt")?,
        }
        for step in steps {
            let summary = shown(&step.summary());
            let space = " ".repeat(width - summary.width());
            let number = step.number;
            let time = times.of_step(step);
            write!(out, "  {BOLD}#{number:<digits$}{BOLD:#}  {DIM}{time}{DIM:#}  ")?;
            match step.kind {
                StepKind::UserEdits | StepKind::Watched => {
                    write!(out, "{CYAN}{summary}{CYAN:#}{space}  ")?;
                }
                _ => write!(out, "{summary}{space}  ")?,
            }
            writeln!(out, "{}{}", changes(step, session), marks(step, metadata.removal(number)))?;
            let unrecorded = UnrecordedStep::of(step).into_iter();
            for line in unrecorded.flat_map(|it| lines_of_step(&it, &metadata.tracked_paths)) {
                writeln!(out, "  {:digits$}   {YELLOW}{line}{YELLOW:#}", "")?;
            }
        }
    }
    out.flush()?;
    // The undo of an undo is `redo`.
    let is_agents = |step: &&StepEntry| step.kind != StepKind::Undo;
    let number = steps().rfind(is_agents).map_or(last.number, |step| step.number);
    if metadata.origin == SessionOrigin::Fork {
        context.say(format_args!(
            "see one: {NONO} show {id}#{number}; take one back in the fork: {NONO} undo --step \
             {id}#{number}"
        ));
        return Ok(());
    }
    let before = if is_meant_here(id, catalog) { String::new() } else { format!("{id}#") };
    context.say(format_args!(
        "see one: {NONO} show {id}#{number}; take one back: {NONO} undo --step {before}{number}"
    ));
    Ok(())
}

/// The id of the newest session of a watcher here that has steps.
fn last_watched_here(catalog: &Catalog) -> Result<Option<String>, CliError> {
    let (sessions, place) = (catalog.listed()?.sessions, Place::current(Purpose::Looking)?);
    let here = sessions_here(&sessions, &place, Timestamp::now()).unwrap_or_default();
    Ok(last_watched(&here).map(|session| session.session_id.clone()))
}

fn is_watchers(step: &StepEntry) -> bool {
    matches!(step.kind, StepKind::Watched | StepKind::Elsewhere)
}

/// The times of steps, as the time zone here has them.
struct Times {
    zone: TimeZone,
    /// The day on which the session began.
    day: Date,
    /// Whether all steps are of that day.
    is_one_day: bool,
}

impl Times {
    fn of(metadata: &SessionMetadata, prompts: &[PromptSteps]) -> Self {
        let zone = TimeZone::system();
        let day = |time: Timestamp| zone.to_datetime(time).date();
        let first = day(metadata.started);
        let mut steps = prompts.iter().flat_map(|group| &group.steps);
        let is_one_day = steps.all(|step| day(step.timestamp) == first);
        Self { day: first, is_one_day, zone }
    }

    fn of_step(&self, step: &StepEntry) -> String {
        let form = if self.is_one_day { "%H:%M" } else { "%Y-%m-%d %H:%M" };
        self.zone.to_datetime(step.timestamp).strftime(form).to_string()
    }
}

fn changes(step: &StepEntry, session: &SessionDir) -> String {
    let has_git = step.changes.is_some_and(|changes| changes.in_git > 0);
    let moved = || Repositories::of_snapshot(session, step.number).ok()?.brief();
    let git = if has_git { moved() } else { None };
    match &step.changes {
        Some(changes) => summary_with_git(changes, git.as_deref(), &Palette::coloured()),
        None => "changes not counted".to_owned(),
    }
}

/// Marks that have to be known before the step is believed.
fn marks(step: &StepEntry, removed: Option<&RemovedSnapshot>) -> String {
    let subagent = step
        .subagent
        .as_deref()
        .map(|id| format!("  {DIM}subagent {}{DIM:#}", Shown::bytes(id.as_bytes())));
    let mark = |is: bool, word: &str| is.then(|| format!("  {YELLOW}{word}{YELLOW:#}"));
    let removed = removed.map(|removed| format!("  {YELLOW}{removed}{YELLOW:#}"));
    let marks =
        [mark(step.failed, "failed"), mark(step.overlapped, "overlapped"), removed, subagent];
    marks.into_iter().flatten().collect()
}

/// A text on one line that does nothing to a terminal, cut where it is too long.
fn shown(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut cut: String = line.chars().take(SHOWN_CHARS).collect();
    if cut.len() < line.len() {
        cut.push('…');
    }
    Shown::bytes(cut.as_bytes()).to_string()
}
