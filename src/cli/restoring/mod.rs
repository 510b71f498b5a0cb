//! The shared part of `restore`, `undo`, `redo` and the review: the arguments, the questions, the
//! work and the report of it.

mod another_home;
mod asking;
mod at_work;
mod conflicts;
mod hunks;
mod patches;
mod paths;
mod preview;
mod report;
mod state;
mod summed;
mod ways;

use std::path::PathBuf;

use clap::Args;

use super::Outcome;
use super::args::ThreadArgs;
use super::context::Context;
use super::error::CliError;
use super::progress::Bar;
use super::shell_word::shell_word;
use crate::cli::offer::NONO;
use crate::cli::repositories::without_commits;
use nono_engine::job::{JobKind, Plan, RestoreJob, refuse_half_way};
use nono_engine::restore::{
    Conflict, JobReport, KeepBefore, OnConflict, RestoreError, RestoreReport, RunsAtWork, Selection,
};
use nono_engine::session::Catalog;
use nono_engine::snapshot::{SessionDir, SnapshotManager};

pub(in crate::cli) use another_home::{AnotherHome, note_home};
#[cfg(feature = "mount")]
pub(in crate::cli) use at_work::is_allowed;
pub(in crate::cli) use at_work::{command, made_by};
pub(in crate::cli) use conflicts::inside_of;
#[cfg(feature = "mount")]
pub(in crate::cli) use hunks::{choose_hunks, texts_between};
pub(in crate::cli) use paths::{PartArgs, resolve};
pub(in crate::cli) use preview::write_preview;
pub(in crate::cli) use report::{
    AskedBy, name_unstable, print_changes, print_report, say_overwritten, warn_of_skipped, way_back,
};
pub(in crate::cli) use state::state_in_words;
pub(in crate::cli) use summed::summed;
pub(in crate::cli) use ways::{Ways, is_meant_here, ways};

/// The treatment of later changes.
#[derive(Debug, Clone, Default, Args)]
pub(in crate::cli) struct ConflictArgs {
    /// Undo later changes as well, and also while a run is at work
    #[arg(long, conflicts_with = "keep_newer")]
    pub(in crate::cli) force: bool,
    /// Leave paths alone that were changed later
    #[arg(long)]
    pub(in crate::cli) keep_newer: bool,
    /// Restore files alone: commits, branches and staged files of git repositories stay as they are
    #[arg(long)]
    pub(in crate::cli) keep_commits: bool,
    /// Restore the rest where paths cannot be changed: those of others, immutable ones, …
    #[arg(long)]
    pub(in crate::cli) skip_blocked: bool,
}

impl ConflictArgs {
    pub(in crate::cli) fn on_conflict(&self) -> OnConflict {
        match (self.force, self.keep_newer) {
            (true, _) => OnConflict::Overwrite,
            (_, true) => OnConflict::KeepNewer,
            _ => OnConflict::Refuse,
        }
    }
}

/// A restore that the user asked for.
pub(in crate::cli) struct Restoring<'a> {
    pub(in crate::cli) catalog: &'a Catalog,
    pub(in crate::cli) job: RestoreJob,
    /// The tracked paths of the snapshot: the project.
    pub(in crate::cli) roots: Vec<PathBuf>,
    pub(in crate::cli) asked_by: AskedBy,
    /// Whether a run that is at work is no reason to ask.
    pub(in crate::cli) force: bool,
    /// Whether a program reads the report, so that no question is answered.
    pub(in crate::cli) is_for_program: bool,
    /// Whether later changes are not asked about: they were, or `--yes` says not to.
    pub(in crate::cli) is_settled: bool,
    /// The later changes that a question named.
    asked_about: Vec<Conflict>,
}

impl<'a> Restoring<'a> {
    /// A job of a session, asked about where that is needed.
    pub(in crate::cli) fn new(
        catalog: &'a Catalog,
        session: &SessionDir,
        kind: JobKind,
        threads: &ThreadArgs,
        context: &Context,
    ) -> Result<Self, CliError> {
        let manager = SnapshotManager::open(session.path())?
            .with_threads(threads.count(context)?)
            .with_compression(threads.compression());
        let job = RestoreJob::new(manager, kind)?.in_catalog(catalog);
        let roots = job.tracked_paths();
        refuse_half_way(catalog, &roots)?;
        Ok(Self {
            catalog,
            job,
            roots,
            asked_by: AskedBy::Restore,
            force: false,
            is_for_program: false,
            is_settled: false,
            asked_about: Vec::new(),
        })
    }

    /// Takes over what the flags say about later changes.
    pub(in crate::cli) fn decide(&mut self, flags: &ConflictArgs) {
        self.force = flags.force;
        self.job.choose(|options| {
            options.on_conflict = flags.on_conflict();
            options.keep_commits = flags.keep_commits;
            options.skip_blocked = flags.skip_blocked;
        });
    }

    /// The session.
    pub(in crate::cli) fn session(&self) -> &SessionDir {
        self.job.session()
    }

    /// Whether everything is meant, and not a part.
    pub(in crate::cli) fn is_whole(&self) -> bool {
        let is_redo = matches!(self.job.kind(), JobKind::Redo(_));
        is_redo || self.job.options().selection.is_everything()
    }

    /// Its plan. Changes nothing.
    pub(in crate::cli) fn plan(&mut self, context: &Context) -> Result<Plan, CliError> {
        let bar = Bar::new(context, "comparing");
        self.job.tell(bar.clone());
        let planned = self.job.plan();
        bar.finish();
        Ok(planned?)
    }

    /// Names the files in which later changes stay.
    pub(in crate::cli) fn say_merged(&self, plan: &RestoreReport, context: &Context) {
        report::say_merged(plan, &self.roots, context);
    }

    /// Says what it would do. Changes nothing.
    pub(in crate::cli) fn dry_run(&mut self, context: &Context) -> Outcome {
        let plan = self.plan(context)?;
        self.say_plan(&plan, context)
    }

    /// Says what a plan would do.
    pub(in crate::cli) fn say_plan(&self, plan: &Plan, context: &Context) -> Outcome {
        let report = &plan.report.restore;
        if self.is_for_program {
            context.json(report)?;
        } else {
            print_report(report, &self.roots, context)?;
            self.print_outcome(report, context);
        }
        Ok(u8::from(!is_reached(report)))
    }

    /// Asks what has to be asked, restores, and says what came of it. `shows_changes`: also names
    /// the changed paths, which the user may just have seen. `plan`: the one that was shown.
    pub(in crate::cli) fn run(
        &mut self,
        plan: Option<&Plan>,
        shows_changes: bool,
        context: &Context,
    ) -> Outcome {
        if !self.may_run(context)? {
            return Ok(1);
        }
        let report = self.carry_out(plan, context)?.restore;
        if self.is_for_program {
            context.json(&report)?;
        } else if report.is_refused() {
            // A list would look like something that was done.
            self.print_outcome(&report, context);
        } else {
            let (id, number) = (self.session().id(), self.job.snapshot());
            report::announce(&id, number, &self.roots, context);
            if shows_changes {
                print_report(&report, &self.roots, context)?;
            } else {
                report::warn_of_skipped(&report.skipped, context);
            }
            self.print_outcome(&report, context);
        }
        let without =
            if report.is_refused() { vec![] } else { without_commits(&report.repositories) };
        for text in &without {
            context.warn(text);
        }
        Ok(u8::from(!is_reached(&report) || !without.is_empty()))
    }

    /// Says what came of it, or would.
    pub(in crate::cli) fn print_outcome(&self, report: &RestoreReport, context: &Context) {
        let Self { asked_about, asked_by, roots, .. } = self;
        let (session, is_whole) = (self.session().path(), self.is_whole());
        report::print_outcome(report, asked_about, is_whole, *asked_by, session, roots, context);
    }

    /// Names the user's own edits after the snapshot, in the session of an agent, that go as well.
    pub(in crate::cli) fn name_own_edits(&self, plan: &Plan, context: &Context) {
        if plan.report.restore.is_refused() {
            return;
        }
        match self.job.own_edits(plan) {
            Ok(going) => report::say_own_edits(&going, &self.roots, context),
            Err(error) => tracing::warn!("which edits are the user's cannot be told: {error}"),
        }
    }

    /// Whether no run is in the way.
    pub(in crate::cli) fn may_run(&mut self, context: &Context) -> Result<bool, CliError> {
        let asks_nothing = self.is_for_program || self.is_settled;
        let running = self.job.runs_at_work()?;
        let allowed = at_work::is_allowed(running, self.force, asks_nothing, context)?;
        let may_run = allowed.is_some();
        let force = self.force;
        self.job.choose(|options| {
            options.runs_at_work = if force {
                RunsAtWork::Ignore
            } else {
                RunsAtWork::Allow(allowed.unwrap_or_default())
            };
        });
        Ok(may_run)
    }

    /// Carries the job out; where later changes would be undone as well, asks, unless no user is
    /// there to answer.
    pub(in crate::cli) fn carry_out(
        &mut self,
        plan: Option<&Plan>,
        context: &Context,
    ) -> Result<JobReport, CliError> {
        let mut report = self.restore_unblocked(plan, context)?;
        let is_asked = !self.is_settled && answers(self.is_for_program, context);
        if report.restore.is_refused() && is_asked {
            let Some(answer) = self.ask_about(&report.restore, context)? else {
                return Ok(report);
            };
            self.answer(answer);
            report = self.restore_unblocked(plan, context)?;
        }
        Ok(report)
    }

    /// Takes over the answer to the question about later changes.
    fn answer(&mut self, answer: OnConflict) {
        self.job.choose(|options| {
            options.on_conflict = answer;
            // The question was about what cannot be merged.
            options.always_merges = true;
        });
    }

    /// Restores; where paths cannot be changed, asks whether to restore the rest.
    fn restore_unblocked(
        &mut self,
        plan: Option<&Plan>,
        context: &Context,
    ) -> Result<JobReport, CliError> {
        match self.restore(plan, context) {
            Err(error @ RestoreFailed { is_blocked: true, .. })
                if !self.is_settled && answers(self.is_for_program, context) =>
            {
                context.warn(&error.error);
                if !context.confirm("leave them, and restore the rest?")? {
                    return Err(CliError::failed("nothing was changed"));
                }
                self.job.choose(|options| options.skip_blocked = true);
                self.restore(plan, context).map_err(|failed| failed.error)
            }
            done => done.map_err(|failed| failed.error),
        }
    }

    fn restore(
        &mut self,
        plan: Option<&Plan>,
        context: &Context,
    ) -> Result<JobReport, RestoreFailed> {
        let bar = Bar::new(context, "restoring");
        self.job.tell(bar.clone());
        let done = match plan {
            Some(plan) => self.job.carry_out(plan),
            None => self.job.run(),
        };
        bar.finish();
        done.map_err(|error| {
            let way = self.way_to_space(&error);
            let failed = failed(error);
            match way {
                Some(way) => RestoreFailed { error: failed.error.with_hint(way), ..failed },
                None => failed,
            }
        })
    }

    /// Where the disk of the project is full: a command for the paths that are only removed.
    fn way_to_space(&self, error: &RestoreError) -> Option<String> {
        let RestoreError::ProjectFull { removed, .. } = error else { return None };
        let paths: Option<Vec<_>> =
            removed.iter().take(report::NAMED_PATHS).map(|path| shell_word(path)).collect();
        let paths = paths.filter(|paths| !paths.is_empty())?.join(" ");
        let options = self.job.options();
        let flags = [
            (options.keep_before == KeepBefore::Nothing, "--no-safety-snapshot "),
            (options.on_conflict == OnConflict::Overwrite, "--force "),
            (options.on_conflict == OnConflict::KeepNewer, "--keep-newer "),
        ];
        let flags: String = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, it)| *it).collect();
        let id = self.session().id();
        Some(format!(
            "make space on that disk and repeat this, or remove first what goes anyway: {NONO} \
             restore {id}/{} {flags}{paths}",
            self.job.snapshot()
        ))
    }
}

/// Whether the state is there that was asked for. Newer paths may stay, but not in place of all
/// that was to come back.
fn is_reached(report: &RestoreReport) -> bool {
    report.is_complete() && !(report.has_kept_newer() && report.changes.is_empty())
}

/// Restores what was picked in a review, and says what came of it. Asks about later changes.
pub(in crate::cli) fn restore_picked(
    catalog: &Catalog,
    session: &SessionDir,
    number: u64,
    selection: Selection,
    context: &Context,
) -> Outcome {
    // As `nono undo`: the work of the session goes, and that of others stays.
    let kind = JobKind::Undo(number);
    let mut work = Restoring::new(catalog, session, kind, &ThreadArgs::default(), context)?;
    work.job.choose(|options| options.selection = selection);
    work.run(None, false, context)
}

/// Refuses what asks first where no person can answer. `verb`: undo, restore.
pub(in crate::cli) fn refuse_without_answers(
    verb: &str,
    is_for_program: bool,
    context: &Context,
) -> Result<(), CliError> {
    if answers(is_for_program, context) {
        return Ok(());
    }
    let (reader, done) = match verb {
        "undo" => ("undoes", "undone"),
        _ => ("restores", "restored"),
    };
    let message = format!("nothing was changed: {verb} asks first, and this is no terminal");
    Err(CliError::usage(message).with_hint(format!(
        "--yes {reader} without a question, --dry-run says what would be {done}"
    )))
}

/// Whether a user can answer a question.
pub(in crate::cli) fn answers(is_for_program: bool, context: &Context) -> bool {
    context.stdin_is_terminal && context.stderr_is_terminal && !is_for_program
}

/// A restore that failed.
struct RestoreFailed {
    error: CliError,
    /// Whether paths cannot be changed, and the rest can.
    is_blocked: bool,
}

fn failed(error: RestoreError) -> RestoreFailed {
    let is_untouched = error.is_before_any_change();
    let is_blocked = matches!(error, RestoreError::Blocked { .. });
    let failed = CliError::from(error);
    let error = if is_untouched { failed.leaving("nothing was changed") } else { failed };
    RestoreFailed { error, is_blocked }
}
