//! `nono undo`: the changes of the last session here, reverted.
//!
//! Bare it is about all of it, with paths about these. Which session that is follows from the
//! sessions themselves (`session::History`), so `undo` again means the one before. A first word
//! that names a session, and nothing on the disk, means that session instead.

use std::path::Path;
use std::sync::LazyLock;

use clap::{Args, CommandFactory, Parser};
use jiff::Zoned;

#[cfg(feature = "mount")]
pub(super) mod in_fork;

use super::resume::refuse_repeated;
use super::undo_steps::{self, StepArgs};
use crate::cli::Outcome;
use crate::cli::args::named_project;
use crate::cli::args::{StoreArgs, ThreadArgs};
use crate::cli::command_tree::Rollback;
use crate::cli::context::{BOLD, Context};
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::render::relative_time;
use crate::cli::repositories::{Repositories, Told};
use crate::cli::restoring::{
    AskedBy, ConflictArgs, PartArgs, Restoring, command, made_by, refuse_without_answers,
    say_overwritten,
};
use crate::cli::shell_word::shell_word;
use crate::cli::state_at::exact;
use crate::cli::when::{When, when};
use nono_engine::counted::counted;
use nono_engine::job::{JobKind, Plan};
use nono_engine::path_text::Shown;
use nono_engine::restore::{RecoveryReport, RestoreReport};
use nono_engine::session::{
    Catalog, CatalogError, History, Place, Purpose, SessionSummary, SnapshotId, steps_of,
};
use nono_engine::snapshot::{SessionDir, SessionOrigin, SnapshotKind};
use nono_engine::sys;

/// `nono undo`, with a subcommand or by itself.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct UndoCommand {
    #[command(subcommand)]
    pub(in crate::cli) command: Option<Rollback>,
    #[command(flatten)]
    pub(in crate::cli) undo: UndoArgs,
}

/// Arguments of `nono undo` without a subcommand.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct UndoArgs {
    #[command(flatten)]
    part: PartArgs,
    #[command(flatten)]
    pub(super) which: StepArgs,
    /// Undo all sessions here that began since this time, the newest first: 12:00, yesterday,
    /// "2h ago", "2026-11-20 18:30"
    #[arg(long, value_name = "TIME", value_parser = when, conflicts_with = "which_steps")]
    since: Option<When>,
    /// Do not ask. Later changes and runs at work are refused all the same
    #[arg(long, short)]
    pub(super) yes: bool,
    /// Only say what would be undone
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) conflicts: ConflictArgs,
    #[command(flatten)]
    pub(super) threads: ThreadArgs,
    /// Print the report as JSON; needs --yes or --dry-run
    #[arg(long)]
    pub(super) json: bool,
}

impl UndoArgs {
    /// Whether it adds to a session.
    pub(in crate::cli) fn writes_store(&self) -> bool {
        !self.dry_run
    }

    /// Whether the user is asked before anything changes.
    pub(super) fn asks(&self) -> bool {
        !self.yes && !self.dry_run
    }

    /// The session that the first word names by its id, by the beginning of it, or by its place.
    /// A name on the disk is a path all the same.
    fn session_by_id(&self, catalog: &Catalog) -> Result<Option<SessionDir>, CliError> {
        let Some(word) = self.first_word()? else { return Ok(None) };
        let Ok(id) = word.parse::<SnapshotId>();
        let is_relative = id.is_relative();
        match catalog.find_snapshot_from(&id, Purpose::Restoring) {
            Ok((session, number)) if is_relative || session.id().starts_with(&id.session) => {
                match number {
                    None => Ok(Some(session)),
                    Some(number) => Err(CliError::usage(format!(
                        "{word} is a state; undo takes back what a session or a step did"
                    ))
                    .with_hint(format!(
                        "that state: {NONO} restore {id}/{number}; what its step did: \
                         {NONO} undo --step {id}#{number}",
                        id = session.id()
                    ))),
                }
            }
            Err(error @ CatalogError::Ambiguous { .. }) => Err(error.into()),
            Err(error) if is_relative => Err(error.into()),
            _ => Ok(None),
        }
    }

    /// The session that the first word names in any way.
    fn session_by_name(&self, catalog: &Catalog) -> Result<Option<SessionDir>, CliError> {
        let Some(word) = self.first_word()? else { return Ok(None) };
        Ok(catalog.find(word).ok())
    }

    /// The first word, if nothing on the disk has that path.
    fn first_word(&self) -> Result<Option<&str>, CliError> {
        let Some(word) = self.part.paths.first() else { return Ok(None) };
        let path = sys::plain_absolute(word, &sys::current_or_former_dir()?);
        let is_there = !matches!(sys::kind_of(&path), Ok(None));
        Ok(word.to_str().filter(|_| !is_there))
    }

    /// An error about a place, with the way to the project in which the first path lies.
    fn elsewhere(&self, error: CliError, catalog: &Catalog) -> CliError {
        let project = || {
            let path = self.part.paths.first()?;
            let path = sys::plain_absolute(path, &sys::current_or_former_dir().ok()?);
            let directory = sys::real_or_future_path(&path);
            let place = Place { directory, purpose: Purpose::Restoring };
            let session = catalog.find_here(&place).ok()?;
            let tracked = SessionSummary::of(&session).ok()?.tracked_paths;
            let project = tracked.into_iter().find(|root| place.directory.starts_with(root))?;
            if sys::current_or_former_dir().ok()?.starts_with(&project) {
                return None;
            }
            let inside = match place.directory.strip_prefix(&project).ok()? {
                inside if inside.as_os_str().is_empty() => String::new(),
                inside => format!(" {}", shell_word(inside)?),
            };
            Some(format!("cd {} && {NONO} undo{inside}", shell_word(&project)?))
        };
        match project() {
            Some(command) => error.with_hint(command),
            None => error,
        }
    }

    fn refuse_without_terminal(&self, context: &Context) -> Result<(), CliError> {
        if self.asks() { refuse_without_answers("undo", self.json, context) } else { Ok(()) }
    }

    /// Refuses a word that is a subcommand: behind other arguments it would be a path.
    fn refuse_subcommands(&self) -> Result<(), CliError> {
        let is_word = |path: &&Path| path.to_str().is_some_and(is_subcommand);
        match self.part.paths.iter().map(|path| path.as_path()).find(is_word) {
            None => Ok(()),
            Some(word) => {
                let word = word.display();
                Err(CliError::usage(format!("`{word}` is a command, and comes before all else"))
                    .with_hint(format!("the command: {NONO} undo {word}; a file: ./{word}")))
            }
        }
    }
}

/// The subcommands of `nono rollback`, to look at their names.
#[derive(Debug, Parser)]
struct Subcommands {
    #[command(subcommand)]
    _command: Rollback,
}

/// Whether `nono rollback` and `nono undo` have this subcommand.
pub(in crate::cli) fn is_subcommand(word: &str) -> bool {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let all = Subcommands::command();
        all.get_subcommands().map(|command| command.get_name().to_owned()).collect()
    });
    NAMES.iter().any(|name| name == word)
}

/// `finished`: interrupted restores that turned out to be complete just now.
pub(in crate::cli) fn run(
    args: &UndoArgs,
    finished: &[RecoveryReport],
    store: &StoreArgs,
    context: &Context,
) -> Outcome {
    args.refuse_subcommands()?;
    #[cfg(feature = "mount")]
    if let Some(outcome) = in_fork::undo(args, store, context) {
        return outcome;
    }
    if args.which.is_given() {
        if !args.part.is_everything() {
            return Err(CliError::usage("with a step, paths are not selected"));
        }
        return undo_steps::run(args, store, context);
    }
    let catalog = store.catalog()?;
    if let (None, Some(session)) = (&args.since, args.session_by_id(&catalog)?) {
        return undo_named(args, &session, &catalog, context);
    }
    refuse_repeated(finished, &catalog, "undo")?;
    let history = History::read(&catalog, &Place::current(Purpose::Restoring)?)
        .map_err(|error| args.elsewhere(error.into(), &catalog))?;
    // A path that means nothing is told first.
    if args.part.is_everything() {
        args.refuse_without_terminal(context)?;
    }
    if let Some(since) = &args.since {
        return undo_since(args, since, &history, &catalog, context);
    }
    // Paths that none of the sessions knows, and those that others than the sessions changed.
    let (mut unknown, mut spared) = (None, None);
    for (summary, session) in history.to_undo() {
        let is_next = history.is_next(&summary.session_id);
        match planned(args, &args.part, (summary, session), &catalog, context) {
            // Where something of it cannot be undone, an earlier session is not meant.
            Ok((work, plan)) if is_nothing(&plan) => {
                let shown = &plan.report.restore;
                // Newer changes are passed over by a user who kept them before.
                if shown.has_kept_newer() && !summary.has_kept_some {
                    return undo(args, (summary, session, is_next), work, plan, context);
                }
                if !args.dry_run {
                    // Another undo may have left nothing, and two of them take one session.
                    work.job.refuse_restored_since()?;
                }
                say_what_stays(summary, shown, &work, args, context);
                if let (None, [path, ..]) = (&spared, &shown.spared[..]) {
                    spared = Some((summary.session_id.clone(), path.clone()));
                }
            }
            Ok((work, plan)) => {
                if let Some(last) = history.last_without_changes()
                    && !args.json
                {
                    context.say(format_args!(
                        "the last run here, {}, changed nothing that is recorded; an earlier \
                         session is meant",
                        command(last)
                    ));
                }
                return undo(args, (summary, session, is_next), work, plan, context);
            }
            Err(error) if error.is_about_selection() => {
                unknown.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    if let Some((id, path)) = spared.filter(|_| !args.part.is_everything()) {
        return Err(not_of_sessions(&id, &path));
    }
    let Some(error) = unknown else {
        return match history.meant_watched().filter(|_| args.part.is_everything()) {
            Some(session) => undo_steps::take_back(args, None, session, &catalog, context),
            None => Err(nothing_left(&history, args)),
        };
    };
    match args.session_by_name(&catalog)? {
        Some(session) => undo_named(args, &session, &catalog, context),
        None => Err(args.elsewhere(error, &catalog)),
    }
}

/// Undoes the sessions that began since a time, one after the other, the newest first. Each undo is
/// one of its own, which `redo` takes back. The first that is not complete is the last.
fn undo_since(
    args: &UndoArgs,
    since: &When,
    history: &History,
    catalog: &Catalog,
    context: &Context,
) -> Outcome {
    let begin = since.begin();
    let meant: Vec<_> = history.to_undo().filter(|(summary, _)| summary.started >= begin).collect();
    let straddling = history.to_undo().filter(|(summary, _)| {
        summary.started < begin && summary.ended.is_some_and(|ended| ended >= begin)
    });
    let mut is_complete = true;
    for (summary, session) in straddling {
        is_complete = false;
        name_straddling(summary, session, since, context)?;
    }
    if meant.is_empty() {
        let began = exact(begin);
        let error = format!("no session here that began since {began} is left to undo");
        return Err(with_watched(CliError::failed(error), history));
    }
    let count = counted(meant.len(), "session", "sessions");
    if !args.json {
        context.say(format_args!("{count} here began since {}:", exact(begin)));
        for (summary, _) in &meant {
            let what = made_by(summary);
            let at = exact(summary.started);
            context.say(format_args!("  {}  {at}  {what}", summary.session_id));
        }
    }
    // The effect of an older undo follows from the state that the newer ones leave.
    if args.dry_run && meant.len() > 1 && !args.json {
        return Ok(u8::from(!is_complete));
    }
    if args.asks() && !context.confirm(&format!("undo {count}?"))? {
        context.say("nothing was changed");
        return Ok(1);
    }
    let settled = UndoArgs { yes: !args.dry_run, ..args.clone() };
    for (summary, session) in meant {
        let (work, plan) = planned(&settled, &args.part, (summary, session), catalog, context)?;
        if is_nothing(&plan) {
            continue;
        }
        let is_next = history.is_next(&summary.session_id);
        let code = undo(&settled, (summary, session, is_next), work, plan, context)?;
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(u8::from(!is_complete))
}

/// Names a session that was at work before a time and after it: its whole undo would take back more
/// than is meant.
fn name_straddling(
    summary: &SessionSummary,
    session: &SessionDir,
    since: &When,
    context: &Context,
) -> Result<(), CliError> {
    let id = &summary.session_id;
    let steps = steps_of(&session.metadata()?);
    let before = steps.iter().rfind(|step| step.timestamp < since.begin());
    let way = match before {
        Some(step) => format!("{NONO} undo --to-step {id}#{} undoes what came later", step.number),
        None => format!("{NONO} undo {id} undoes all of it"),
    };
    context.warn(format_args!("session {id} began before that and ended after it: {way}"));
    Ok(())
}

/// Whether nothing is left to undo, and nothing to say about that.
fn is_nothing(plan: &Plan) -> bool {
    let plan = &plan.report.restore;
    plan.changes.is_empty() && plan.is_complete() && plan.overwritten.is_empty()
}

/// The undo of a session, or of a part of it, and its plan.
fn planned<'a>(
    args: &UndoArgs,
    part: &PartArgs,
    (summary, session): (&SessionSummary, &SessionDir),
    catalog: &'a Catalog,
    context: &Context,
) -> Result<(Restoring<'a>, Plan), CliError> {
    let mut work = Restoring::new(catalog, session, JobKind::Undo(0), &args.threads, context)?;
    work.job = work.job.decided_at(summary.restore_count);
    let selection = part.selection(&work.roots)?;
    work.decide(&args.conflicts);
    work.job.choose(|options| options.selection = selection);
    let plan = work.plan(context)?;
    Ok((work, plan))
}

/// Undoes the session that the first word names.
fn undo_named(
    args: &UndoArgs,
    session: &SessionDir,
    catalog: &Catalog,
    context: &Context,
) -> Outcome {
    args.refuse_without_terminal(context)?;
    let summary = SessionSummary::of(session)?;
    let part = args.part.behind_first();
    let (work, plan) = planned(args, &part, (&summary, session), catalog, context)?;
    if is_nothing(&plan) && !plan.report.restore.has_kept_newer() {
        let id = session.id();
        return Err(CliError::failed(format!("nothing of session {id} is left to undo"))
            .with_hint(format!("{NONO} show {id}")));
    }
    let place = Place::current(Purpose::Restoring)?;
    let history = History::read(catalog, &place).ok();
    let is_next = history.is_some_and(|history| history.is_next(&summary.session_id));
    undo(args, (&summary, session, is_next), work, plan, context)
}

/// Says for a session with changes at a remote alone that these stay.
fn say_what_stays(
    summary: &SessionSummary,
    plan: &RestoreReport,
    work: &Restoring<'_>,
    args: &UndoArgs,
    context: &Context,
) {
    if args.json {
        return;
    }
    let repositories = Repositories::restored(&plan.repositories, &work.roots);
    for line in repositories.said(Told::Planned) {
        let id = &summary.session_id;
        context.say(format_args!("nothing else of session {id} is left to undo: {line}"));
    }
}

/// Says for a session of snapshots the way to the last of them where more would go.
fn say_last_snapshot(
    session: &SessionDir,
    report: &RestoreReport,
    context: &Context,
) -> Result<(), CliError> {
    if !report.is_refused() || session.metadata()?.origin != SessionOrigin::Snapshot {
        return Ok(());
    }
    for number in session.recorded_numbers()?.into_iter().rev() {
        if session.manifest(number)?.manifest.kind == SnapshotKind::Ordinary {
            let id = session.id();
            context.say(format_args!("  back to the last snapshot: {NONO} restore {id}/{number}"));
            break;
        }
    }
    Ok(())
}

/// Says for a session whose newer changes were kept the way to the session before it.
fn say_session_before(summary: &SessionSummary, is_refused: bool, context: &Context) {
    if is_refused && summary.has_kept_some {
        context.say(format_args!(
            "  leave them, and undo the session before: {NONO} undo --keep-newer"
        ));
    }
}

/// Asks about a plan, and carries it out. The session comes with whether `undo` without a name
/// means it.
fn undo(
    args: &UndoArgs,
    (summary, session, is_next): (&SessionSummary, &SessionDir, bool),
    mut work: Restoring<'_>,
    plan: Plan,
    context: &Context,
) -> Outcome {
    args.refuse_without_terminal(context)?;
    work.asked_by = AskedBy::Undo { is_next };
    work.is_for_program = args.json;
    // A conflict that is not asked about here is not asked about later.
    work.is_settled = args.yes;
    let shown = &plan.report.restore;
    if shown.changes.is_empty() {
        let id = &summary.session_id;
        context.warn(format_args!(
            "nothing of session {id} can be undone now; an earlier one is undone by its id ({NONO} \
             list)"
        ));
        if shown.touched.is_empty() && shown.is_complete() && !args.dry_run {
            if args.json {
                context.json(&RestoreReport { dry_run: false, ..shown.clone() })?;
            } else {
                say_overwritten(shown, context);
            }
            return Ok(1);
        }
    }
    let is_refused = shown.is_refused();
    if args.dry_run {
        if args.json {
            context.json(shown)?;
        } else {
            introduce(summary, &work, context);
            work.preview(shown, context)?;
            work.print_outcome(shown, context);
            say_last_snapshot(session, shown, context)?;
            say_session_before(summary, is_refused && is_next, context);
        }
        return Ok(u8::from(!shown.is_complete()));
    }
    if args.yes {
        if !args.json {
            introduce(summary, &work, context);
        }
        let done = work.run(Some(&plan), true, context);
        if !args.json {
            say_last_snapshot(session, shown, context)?;
            say_session_before(summary, is_refused && is_next, context);
        }
        return done;
    }
    introduce(summary, &work, context);
    let whose = match summary.origin {
        SessionOrigin::Watch => format!(" ({})", made_by(summary)),
        _ => String::new(),
    };
    let project = named_project(&work.roots);
    let question = format!("undo session {}{whose} in {project}?", session.id());
    work.run_asked(&plan, &question, context)
}

/// Says which session is meant.
fn introduce(summary: &SessionSummary, work: &Restoring<'_>, context: &Context) {
    let project = named_project(&work.roots);
    let when = relative_time(summary.started, &Zoned::now());
    let id = &summary.session_id;
    let what = made_by(summary);
    context.say(format_args!("undo in {project}: session {BOLD}{id}{BOLD:#}, {what}, {when}"));
    let steps = match summary.origin {
        SessionOrigin::Watch => summary.step_count,
        _ => summary.agent_step_count,
    };
    if work.is_whole() && steps > 0 {
        let steps = match steps {
            1 => "its only step".to_owned(),
            count => format!("all of its {count} steps"),
        };
        context.say(format_args!("  {steps}; the last one alone: {NONO} undo --step {id}#last"));
    }
}

/// A path that only others than the sessions here changed.
fn not_of_sessions(id: &str, path: &Path) -> CliError {
    let shown = Shown::path(path);
    let error = CliError::failed(format!(
        "nothing of {shown} is left to undo: you or others changed it, and session {id} did not"
    ));
    match shell_word(path) {
        Some(path) => {
            error.with_hint(format!("as it was before that session: {NONO} restore {id}/0 {path}"))
        }
        None => error,
    }
}

fn nothing_left(history: &History, args: &UndoArgs) -> CliError {
    if let Some(path) = args.part.paths.first() {
        let log = shell_word(path).map(|path| format!("{NONO} log {path}"));
        let error = CliError::failed(format!(
            "nothing of {} is left to undo: no session here changed it, or what did is undone",
            Shown::path(path)
        ));
        return error.with_hint(log.unwrap_or_else(|| format!("{NONO} list")));
    }
    let error = CliError::failed("nothing is left to undo here");
    let error = match history.redo() {
        Ok(Ok(_)) => error.with_hint(format!("take the last undo back: {NONO} redo")),
        _ => error.with_hint(format!("`{NONO} list --path .` shows what is recorded")),
    };
    with_watched(error, history)
}

/// Adds the way to the last step of a watcher, which an undo without a name passes over.
fn with_watched(error: CliError, history: &History) -> CliError {
    match history.last_watched() {
        Some(id) => error.or_hint(&format!(
            "the last change of you or another program: {NONO} undo --step {id}#last"
        )),
        None => error,
    }
}
