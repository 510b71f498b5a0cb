//! `nono undo --step`, `--prompt` and `--to-step`: what an agent did, taken back call by call.
//!
//! `last` means the newest step, or prompt, of which something is left to undo. So a second
//! `--step last` takes the step before, as a second `nono undo` takes the session before. A commit
//! is nothing that is left: no undo of a step takes it back. In the session of a watcher `last` is
//! the newest step of the user or of another program: other sessions have the rest.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::undo::UndoArgs;
use crate::agent::{AskedPrompt, command_before};
use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, home_dir, named_project};
use crate::cli::context::{Context, YELLOW};
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::repositories::Repositories;
use crate::cli::restoring::{
    ConflictArgs, Restoring, inside_of, print_changes, refuse_without_answers, state_in_words,
    summed, way_back,
};
use crate::cli::shell_word::command_line;
use crate::cli::unrecorded_changes::lines_of_step;
use nono_engine::job::{JobKind, Plan};
use nono_engine::path_text::Shown;
use nono_engine::restore::{JobReport, StepConflict};
use nono_engine::session::{Catalog, Purpose, UnrecordedStep, steps_of};
use nono_engine::snapshot::{SessionDir, SessionOrigin, StepEntry, StepKind};

/// Which steps are meant.
#[derive(Debug, Clone, Args)]
#[group(multiple = false, id = "which_steps")]
pub(in crate::cli) struct StepArgs {
    /// Take back what this step did, and nothing that came later (N, last, or ID#N)
    #[arg(long, value_name = "N")]
    step: Option<String>,
    /// Take back what the steps of this prompt did, and nothing that came later (N, last, or ID#N)
    #[arg(long, value_name = "N")]
    prompt: Option<String>,
    /// Go back to the state after this step, undoing all that came later (N, or ID#N)
    #[arg(long, value_name = "N")]
    to_step: Option<String>,
}

impl StepArgs {
    /// The step or prompt as it was given.
    #[cfg(feature = "mount")]
    pub(super) fn given(&self) -> Option<&str> {
        self.step.as_deref().or(self.prompt.as_deref()).or(self.to_step.as_deref())
    }

    /// Whether a prompt is meant, or a state.
    #[cfg(feature = "mount")]
    pub(super) fn is_other_than_step(&self) -> bool {
        self.prompt.is_some() || self.to_step.is_some()
    }

    /// Whether single steps are meant.
    pub(in crate::cli) fn is_given(&self) -> bool {
        self.step.is_some() || self.prompt.is_some() || self.to_step.is_some()
    }
}

/// Maximum number of lines about paths that stay.
const NAMED_LEFT: usize = 10;

/// The word for the newest step or prompt.
const LAST: &str = "last";

/// A session and a number in it, from `N` or `ID#N`; `None` is the last one.
fn parse(text: &str) -> Result<(&str, Option<u64>), CliError> {
    let (session, number) = text.rsplit_once('#').unwrap_or(("latest", text));
    let session = if session.is_empty() { "latest" } else { session };
    if number == LAST {
        return Ok((session, None));
    }
    let number = number.parse().map_err(|_| {
        let shown = Shown::bytes(text.as_bytes());
        CliError::usage(format!("{shown} is no number of a step"))
            .with_hint(format!("{NONO} steps lists them; `last` is the last one"))
    })?;
    Ok((session, Some(number)))
}

/// The numbers of the steps that an agent made, or a watcher saw, or of the prompts of these, the
/// newest first.
fn newest_first(session: &SessionDir, of_prompts: bool) -> Result<Vec<u64>, CliError> {
    let metadata = session.metadata()?;
    let is_meant = |step: &StepEntry| step.is_agents() || step.kind == StepKind::Watched;
    let steps = steps_of(&metadata).into_iter().rev().filter(is_meant);
    let mut numbers: Vec<u64> = Vec::new();
    for step in steps {
        let number = match of_prompts {
            true => step.prompt.map(|prompt| prompt.number),
            false => Some(step.number),
        };
        numbers.extend(number.filter(|number| !numbers.contains(number)));
    }
    if numbers.is_empty() {
        let what = match (of_prompts, metadata.origin) {
            (true, _) => "prompts of an agent",
            (false, SessionOrigin::Watch) => "changes of you or another program",
            (false, _) => "steps of an agent",
        };
        let id = session.id();
        return Err(CliError::failed(format!("session {id} has no {what}"))
            .with_hint(format!("{NONO} undo {id} takes back all that the session did")));
    }
    Ok(numbers)
}

pub(in crate::cli) fn run(args: &UndoArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let StepArgs { step, prompt, to_step } = &args.which;
    let catalog = store.catalog()?;
    let given = step.as_ref().or(prompt.as_ref()).or(to_step.as_ref());
    let (id, number) = parse(given.map_or("", String::as_str))?;
    let session = catalog.find_from(id, Purpose::Restoring)?;
    take_back(args, number, &session, &catalog, context)
}

/// Takes back the steps that the arguments mean in a session; without a number, the last one.
pub(super) fn take_back(
    args: &UndoArgs,
    number: Option<u64>,
    session: &SessionDir,
    catalog: &Catalog,
    context: &Context,
) -> Outcome {
    let StepArgs { prompt, to_step, .. } = &args.which;
    let numbers = match number {
        Some(number) => vec![number],
        None => newest_first(session, prompt.is_some())?,
    };
    // A number that there is not is no question.
    for &number in &numbers {
        match (prompt, to_step) {
            (Some(_), _) => steps_of_prompt(session, number).map(drop)?,
            (None, Some(_)) => check_step(session, number)?,
            (None, None) => step_of(session, number).map(drop)?,
        }
    }
    if args.asks() {
        refuse_without_answers("undo", args.json, context)?;
    }
    let kind = JobKind::Steps(Vec::new());
    let mut work = Restoring::new(catalog, session, kind, &args.threads, context)?;
    work.decide(&args.conflicts);
    work.is_for_program = args.json;
    work.is_settled = args.yes;
    if let (Some(_), Some(&number)) = (to_step, numbers.first()) {
        return go_back(args, number, work, context);
    }
    let of_prompt = prompt.is_some();
    let which = Which { numbers: &numbers, is_last: number.is_none(), of_prompt };
    match planned(args, &mut work, session, which, context)? {
        Some((steps, plan)) => carry_out(args, &steps, &plan, work, context),
        None => {
            if let Some(number) = number {
                name_unrecorded(session, number, of_prompt, context)?;
            }
            Err(nothing_left(session, number, of_prompt))
        }
    }
}

/// Goes back to the state after a step.
fn go_back(args: &UndoArgs, number: u64, mut work: Restoring<'_>, context: &Context) -> Outcome {
    work.job.set_kind(JobKind::GoBack(number))?;
    let plan = work.plan(context)?;
    if !args.json {
        work.name_own_edits(&plan, context);
    }
    if args.dry_run {
        return work.say_plan(&plan, context);
    }
    if args.asks() && !plan.report.restore.changes.is_empty() {
        let state = state_in_words(work.session(), number)?;
        return work.run_asked(&plan, &format!("go back to {state}?"), context);
    }
    work.run(Some(&plan), true, context)
}

fn nothing_left(session: &SessionDir, number: Option<u64>, of_prompt: bool) -> CliError {
    let what = match (number, of_prompt) {
        (Some(number), true) => format!("prompt {number}"),
        (Some(number), false) => format!("step {number}"),
        (None, true) => "any prompt".to_owned(),
        (None, false) => "any step".to_owned(),
    };
    let id = session.id();
    CliError::failed(format!("nothing of {what} of session {id} is left to undo"))
        .with_hint(format!("{NONO} steps {id}"))
}

/// Names steps, asks about their undo, and carries it out.
fn carry_out(
    args: &UndoArgs,
    steps: &[StepEntry],
    plan: &Plan,
    mut work: Restoring<'_>,
    context: &Context,
) -> Outcome {
    let id = work.session().id();
    let shown = &plan.report;
    for step in steps {
        let summary = step.summary();
        let summary = Shown::bytes(summary.as_bytes());
        context.say(format_args!("undo step {} of {id}: {summary}", step.number));
        if step.overlapped {
            context.warn("another call was at work meanwhile: what it wrote by then goes as well");
        }
        warn_of_unrecorded(step, &work.roots, context);
    }
    if args.dry_run {
        return print(shown, &work, args, context);
    }
    if args.asks() && !shown.restore.changes.is_empty() {
        show_changes(shown, &work, context)?;
        let is_of_agent = steps.iter().all(StepEntry::is_agents);
        let what = if is_of_agent { "this" } else { "what you or another program changed" };
        if !context.confirm(&format!("undo {what} in {}?", named_project(&work.roots)))? {
            return Ok(nothing_changed(&work, context));
        }
    }
    if !work.may_run(context)? {
        return Ok(1);
    }
    let done = work.carry_out(Some(plan), context)?;
    if done.is_nothing_but_commits() && !shown.is_nothing_but_commits() {
        let message = "nothing of that is left to undo by now: another command did it meanwhile";
        return Err(CliError::failed(message).leaving("nothing was changed"));
    }
    let code = print(&done, &work, args, context)?;
    if args.which.prompt.is_some() && !args.json {
        say_conversation(work.session(), steps, context);
    }
    Ok(code)
}

/// Ends the undo of a prompt with the client's own command that goes on from before it, where the
/// client has one.
fn say_conversation(session: &SessionDir, steps: &[StepEntry], context: &Context) {
    let command = || {
        let first = steps.first()?;
        let step = session.manifest(first.number).ok()?.manifest.step?;
        let asked = AskedPrompt {
            client: step.agent,
            session: step.agent_session,
            text: first.prompt.as_ref()?.text.clone(),
            answered: first.timestamp,
        };
        let own = std::env::var_os("CLAUDE_CONFIG_DIR").map(PathBuf::from);
        let claude_home = own.or_else(|| Some(home_dir().ok()?.join(".claude")))?;
        let words = command_before(&asked, &claude_home);
        words.inspect_err(|error| tracing::info!("no way into the conversation: {error}")).ok()?
    };
    if let Some(words) = command() {
        let command = command_line(&words);
        context.say(format_args!("the conversation from before that prompt: {command} PROMPT"));
        context.say("  PROMPT: what you ask for in its place; then go on: claude --continue");
    }
}

/// The steps or prompts of which the first is meant that has something left.
#[derive(Clone, Copy)]
struct Which<'a> {
    numbers: &'a [u64],
    /// Whether `last` was given, and no number.
    is_last: bool,
    of_prompt: bool,
}

/// The first of these steps or prompts of which something is left to undo, and the plan of that.
fn planned(
    args: &UndoArgs,
    work: &mut Restoring<'_>,
    session: &SessionDir,
    Which { numbers, is_last, of_prompt }: Which<'_>,
    context: &Context,
) -> Result<Option<(Vec<StepEntry>, Plan)>, CliError> {
    for (at, &number) in numbers.iter().enumerate() {
        let steps = match of_prompt {
            true => steps_of_prompt(session, number)?,
            false => vec![step_of(session, number)?],
        };
        let meant: Vec<u64> = steps.iter().map(|step| step.number).collect();
        work.job.set_kind(JobKind::Steps(meant))?;
        let plan = work.plan(context)?;
        let has_commits = !plan.report.step_conflicts.is_empty();
        if !plan.report.is_nothing_but_commits() || has_commits && !is_last {
            return Ok(Some((steps, plan)));
        }
        if !args.dry_run {
            // Another undo may have left nothing, and two of them take one step.
            work.job.refuse_restored_since()?;
        }
        let what = if of_prompt { "prompt" } else { "step" };
        let left = match has_commits {
            true => "nothing but commits and branches",
            false => "nothing",
        };
        let of_git = if has_commits { ", use git for them" } else { "" };
        if at + 1 < numbers.len() {
            context.say(format_args!(
                "{left} of {what} {number} is left to undo{of_git}; the one before it is meant"
            ));
        } else if has_commits {
            context.say(format_args!("{left} of {what} {number} is left to undo{of_git}"));
        }
    }
    Ok(None)
}

fn show_changes(
    report: &JobReport,
    work: &Restoring<'_>,
    context: &Context,
) -> Result<(), CliError> {
    // A path that stays is named with its reason afterwards.
    let changes = &report.restore.changes;
    let is_asked = report.restore.dry_run;
    print_changes(changes, &[], &Repositories::default(), &work.roots, is_asked, context)
}

fn nothing_changed(work: &Restoring<'_>, context: &Context) -> u8 {
    context.say(format_args!("nothing was changed in {}", named_project(&work.roots)));
    1
}

/// Names what a step changed and no undo brings back.
fn warn_of_unrecorded(step: &StepEntry, roots: &[PathBuf], context: &Context) {
    let unrecorded = UnrecordedStep::of(step).into_iter();
    for line in unrecorded.flat_map(|it| lines_of_step(&it, roots)) {
        context.warn(format_args!("step {}: {line}", step.number));
    }
}

/// The same for a step or a prompt of which nothing is left to undo.
fn name_unrecorded(
    session: &SessionDir,
    number: u64,
    of_prompt: bool,
    context: &Context,
) -> Result<(), CliError> {
    let steps = match of_prompt {
        true => steps_of_prompt(session, number)?,
        false => vec![step_of(session, number)?],
    };
    let roots = session.metadata()?.tracked_paths;
    steps.iter().for_each(|step| warn_of_unrecorded(step, &roots, context));
    Ok(())
}

/// Refuses a number that is neither the baseline's nor that of a step.
fn check_step(session: &SessionDir, number: u64) -> Result<(), CliError> {
    if number == 0 { Ok(()) } else { step_of(session, number).map(drop) }
}

/// The step of this number.
fn step_of(session: &SessionDir, number: u64) -> Result<StepEntry, CliError> {
    let metadata = session.metadata()?;
    let step = steps_of(&metadata).into_iter().find(|step| step.number == number);
    step.ok_or_else(|| {
        CliError::failed(format!("session {} has no step {number}", session.id()))
            .with_hint(format!("{NONO} steps {}", session.id()))
    })
}

/// The agent's steps of a prompt, removed ones included: they go with the next one that is there.
/// The user's own edits are none of them.
fn steps_of_prompt(session: &SessionDir, prompt: u64) -> Result<Vec<StepEntry>, CliError> {
    let metadata = session.metadata()?;
    let is_meant = |step: &StepEntry| {
        step.is_agents() && step.prompt.as_ref().is_some_and(|known| known.number == prompt)
    };
    let steps: Vec<_> = steps_of(&metadata).into_iter().filter(is_meant).collect();
    if steps.is_empty() {
        let message = format!("session {} has no steps of prompt {prompt}", session.id());
        return Err(CliError::failed(message).with_hint(format!("{NONO} steps {}", session.id())));
    }
    Ok(steps)
}

/// Whether what stays is as was asked for: newer changes by `--keep-newer`, those of git by
/// `--keep-commits`.
fn is_as_asked(report: &JobReport, conflicts: &ConflictArgs) -> bool {
    let is_kept = |conflict: &StepConflict| {
        if is_of_git(conflict) { conflicts.keep_commits } else { conflicts.keep_newer }
    };
    report.restore.is_complete() && report.step_conflicts.iter().all(is_kept)
}

/// Whether commits or branches stay, which no flag takes back.
fn is_of_git(conflict: &StepConflict) -> bool {
    conflict.path.components().any(|name| name.as_os_str() == ".git")
}

fn print(report: &JobReport, work: &Restoring<'_>, args: &UndoArgs, context: &Context) -> Outcome {
    let code = u8::from(!is_as_asked(report, &args.conflicts));
    if args.json {
        context.json(report)?;
        return Ok(code);
    }
    let restore = &report.restore;
    show_changes(report, work, context)?;
    let mut out = context.out_done(restore.dry_run);
    let inside = |path| {
        let roots = &work.roots;
        let path: &std::path::Path = path;
        let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
        Shown::bytes(nono_engine::diff::relative_to_roots(bytes, roots)).to_string()
    };
    for path in &report.restore.merged {
        writeln!(out, "  merged with later changes: {}", inside(path))?;
    }
    let id = work.session().id();
    let conflicts = report.step_conflicts.iter().map(|it| (&*it.path, &it.reason));
    let skipped = restore.skipped.iter().chain(&restore.blocked);
    let skipped = skipped.map(|it| (&*it.path, &it.reason));
    let left = conflicts
        .chain(skipped)
        .map(|(path, reason)| (inside_of(path, &work.roots), format!(": {reason}")));
    let (lines, more) = summed(&left.collect::<Vec<_>>(), context.at_most(NAMED_LEFT));
    for line in lines {
        if context.is_quiet() {
            context.fall_short(format_args!("left {line}"));
        }
        writeln!(out, "{YELLOW}! left{YELLOW:#}  {line}")?;
    }
    if more > 0 {
        writeln!(out, "{YELLOW}! left{YELLOW:#}  {more} more (-v names all)")?;
    }
    out.flush()?;
    let done = if restore.dry_run { "would be undone" } else { "undone" };
    let summary = crate::cli::render::summary_line(
        &restore.summary(),
        &crate::cli::render::Palette::coloured(),
    );
    let project = named_project(&work.roots);
    let is_done = !restore.changes.is_empty() || !restore.touched.is_empty();
    if is_done || report.step_conflicts.is_empty() {
        context.say(format_args!("{done} in {project}: {summary}"));
    } else {
        context.say(format_args!("nothing {done} in {project}"));
    }
    if let Some(conflict) = report.step_conflicts.first() {
        let step = conflict.step;
        context.say(format_args!("what step {step} did there: {NONO} show --diff {id}#{step}"));
        let has_files = !report.step_conflicts.iter().all(is_of_git);
        if has_files && !args.conflicts.force && code != 0 {
            context.say("  undo that too: --force; leave it: --keep-newer");
        }
    }
    if let Some(safety) = restore.safety_snapshot.filter(|_| is_done) {
        context.say(way_back(&id, safety, &work.roots));
    }
    Ok(code)
}
