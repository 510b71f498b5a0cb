//! `nono undo`: the changes of the last session here, reverted.
//!
//! Bare it is about all of it, with paths about these. Which session that is follows from the
//! sessions themselves (`session::History`), so `undo` again means the one before.

use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, Parser};
use jiff::Zoned;

use super::undo_steps::{self, StepArgs};
use crate::cli::Outcome;
use crate::cli::args::named_project;
use crate::cli::args::{Rollback, StoreArgs, ThreadArgs};
use crate::cli::context::{BOLD, Context};
use crate::cli::error::CliError;
use crate::cli::render::relative_time;
use crate::cli::repositories::Repositories;
use crate::cli::restoring::{
    AskedBy, ConflictArgs, PartArgs, Restoring, answers, command, inverted, print_outcome,
    write_preview,
};
use crate::diff::Comparison;
use crate::restore::RestoreReport;
use crate::session::{Catalog, History, Place, Purpose, SessionSummary};
use crate::snapshot::{SessionDir, SessionOrigin, SnapshotKind};

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
#[derive(Debug, Args)]
pub(in crate::cli) struct UndoArgs {
    #[command(flatten)]
    part: PartArgs,
    #[command(flatten)]
    pub(super) which: StepArgs,
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

    /// Whether somebody is asked before anything changes.
    pub(super) fn asks(&self) -> bool {
        !self.yes && !self.dry_run
    }

    /// A word that is no path may be meant as a session.
    fn hint_at_session(&self, error: CliError, catalog: &Catalog) -> CliError {
        let [word] = &*self.part.paths else { return error };
        match word.to_str().map(|word| catalog.find(word)) {
            Some(Ok(session)) => error.with_hint(format!(
                "a session is undone by its id: nono rollback restore {}",
                session.id()
            )),
            _ => error,
        }
    }

    /// Refuses a word that is a subcommand: behind other arguments it would be a path.
    fn refuse_subcommands(&self) -> Result<(), CliError> {
        let is_word = |path: &&Path| path.to_str().is_some_and(is_subcommand);
        match self.part.paths.iter().map(|path| path.as_path()).find(is_word) {
            None => Ok(()),
            Some(word) => {
                let word = word.display();
                Err(CliError::usage(format!("`{word}` is a command, and comes before all else"))
                    .with_hint(format!("the command: nono undo {word}; a file: ./{word}")))
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
    Subcommands::command().get_subcommands().any(|command| command.get_name() == word)
}

pub(in crate::cli) fn run(args: &UndoArgs, store: &StoreArgs, context: &Context) -> Outcome {
    args.refuse_subcommands()?;
    if args.which.is_given() {
        if !args.part.is_everything() {
            return Err(CliError::usage("with a step, paths are not selected"));
        }
        return undo_steps::run(args, store, context);
    }
    let catalog = store.catalog()?;
    let history = History::read(&catalog, &Place::current(Purpose::Restoring)?)?;
    if args.asks() && !answers(args.json, context) {
        return Err(CliError::usage("there is no terminal to ask on whether to undo")
            .with_hint("--yes undoes without a question, --dry-run says what would be undone"));
    }
    // Paths that none of the sessions knows.
    let mut unknown = None;
    for (summary, session) in history.to_undo() {
        let mut work = Restoring::new(&catalog, session, 0, &args.threads, context)?;
        work.options.selection = args.part.selection(&work.roots)?;
        work.options.keep_commits = args.conflicts.keep_commits;
        work.options.on_conflict = args.conflicts.on_conflict();
        work.options.is_undo = true;
        match work.plan(context) {
            // Where something of it cannot be undone, an earlier session is not meant.
            Ok(plan) if plan.changes.is_empty() && plan.is_complete() => {
                // Newer changes are passed over by a user who kept them before.
                if plan.has_kept_newer() && !summary.partly_undone {
                    return undo(args, (summary, session), work, plan, context);
                }
            }
            Ok(plan) => return undo(args, (summary, session), work, plan, context),
            Err(error) if error.is_about_selection() => {
                unknown.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(unknown
        .map_or_else(|| nothing_left(&history), |error| args.hint_at_session(error, &catalog)))
}

/// Of a session of snapshots, the way to the last of them where more than that would go.
fn say_last_snapshot(
    session: &SessionDir,
    report: &RestoreReport,
    context: &Context,
) -> Result<(), CliError> {
    if !report.is_refused() || session.metadata()?.origin != SessionOrigin::Snapshot {
        return Ok(());
    }
    for number in session.snapshot_numbers()?.into_iter().rev() {
        if session.manifest(number)?.manifest.kind == SnapshotKind::Ordinary {
            let id = session.id();
            context.say(format_args!(
                "  back to the last snapshot: nono rollback restore {id}/{number}"
            ));
            break;
        }
    }
    Ok(())
}

/// Of a session whose newer changes were kept before, the way to the session before it.
fn say_session_before(summary: &SessionSummary, is_refused: bool, context: &Context) {
    if is_refused && summary.partly_undone {
        context.say("  leave them, and undo the session before: nono undo --keep-newer");
    }
}

/// Asks about a plan, and carries it out.
fn undo(
    args: &UndoArgs,
    (summary, session): (&SessionSummary, &SessionDir),
    mut work: Restoring<'_>,
    plan: RestoreReport,
    context: &Context,
) -> Outcome {
    work.asked_by = AskedBy::Undo;
    work.force = args.conflicts.force;
    work.is_for_program = args.json;
    // A conflict that is not asked about here is not asked about later.
    work.is_settled = args.yes;
    if plan.changes.is_empty() {
        let id = &summary.session_id;
        context.warn(format_args!(
            "nothing of session {id} can be undone now; an earlier one is undone by its id (nono \
             rollback list)"
        ));
    }
    let is_refused = plan.is_refused();
    if args.dry_run {
        if args.json {
            context.json(&plan)?;
        } else {
            introduce(summary, &work, context);
            preview(&plan, &work.roots, context)?;
            print_outcome(&plan, work.is_whole(), AskedBy::Undo, &work.roots, context);
            say_last_snapshot(session, &plan, context)?;
            say_session_before(summary, is_refused, context);
        }
        return Ok(u8::from(!plan.is_complete()));
    }
    if args.yes {
        if !args.json {
            introduce(summary, &work, context);
        }
        let done = work.run(true, context);
        if !args.json {
            say_last_snapshot(session, &plan, context)?;
            say_session_before(summary, is_refused, context);
        }
        return done;
    }
    introduce(summary, &work, context);
    preview(&plan, &work.roots, context)?;
    let is_yes = if is_refused {
        let answer = work.ask_about(&plan, context)?;
        work.options.on_conflict = answer.unwrap_or_default();
        answer.is_some()
    } else {
        let project = named_project(&work.roots);
        context.confirm(&format!("undo session {} in {project}?", session.id()))?
    };
    if !is_yes {
        context.say(format_args!("nothing was changed in {}", named_project(&work.roots)));
        return Ok(1);
    }
    work.run(false, context)
}

/// Shows what the session did, each repository as one thing.
fn preview(plan: &RestoreReport, roots: &[PathBuf], context: &Context) -> Result<(), CliError> {
    let repositories = Repositories::restored(&plan.repositories, roots);
    let comparison = Comparison { changes: plan.changes.clone(), touched: Vec::new() };
    let changes = inverted(&repositories.collapsed(comparison).changes);
    write_preview(&mut context.out_long(), &changes, roots)
}

/// Says which session is meant.
fn introduce(summary: &SessionSummary, work: &Restoring<'_>, context: &Context) {
    let project = named_project(&work.roots);
    let when = relative_time(summary.started, &Zoned::now());
    let id = &summary.session_id;
    let what = if summary.command.is_empty() { "snapshot".to_owned() } else { command(summary) };
    context.say(format_args!("undo in {project}: session {BOLD}{id}{BOLD:#}, {what}, {when}"));
}

fn nothing_left(history: &History) -> CliError {
    let error = CliError::failed("nothing is left to undo here");
    match history.redo() {
        Ok(Ok(_)) => error.with_hint("take the last undo back: nono redo"),
        _ => error.with_hint("`nono rollback list --path .` shows what is recorded"),
    }
}
