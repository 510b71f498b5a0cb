//! The questions of a restore: what it would do, a yes to that, a choice among it, and the
//! treatment of later changes.
//!
//! Nothing but a clear yes is one. A question that was answered is not asked again by the restore.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

use super::{AskedBy, Restoring, conflicts, write_preview};
use crate::cli::Outcome;
use crate::cli::args::named_project;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::questions::{Letter, Question};
use crate::cli::render::Palette;
use crate::cli::repositories::{Repositories, Told, repository_line};
use crate::cli::timeline::{self, Decision, Subject, is_possible};
use nono_engine::diff::{self, Change, Comparison};
use nono_engine::job::Plan;
use nono_engine::restore::{OnConflict, RestoreReport};
use nono_engine::snapshot::NotCapturedSet;
use nono_engine::store::EitherSource;

/// The answer of a person to a plan.
enum Answer {
    No,
    Yes,
    /// Yes to a part, which the selection names now.
    Chosen,
}

impl Restoring<'_> {
    /// Shows a plan, asks about it, and carries it out.
    pub(in crate::cli) fn run_asked(
        &mut self,
        plan: &Plan,
        question: &str,
        context: &Context,
    ) -> Outcome {
        let shown = &plan.report.restore;
        self.preview(shown, context)?;
        self.say_merged(shown, context);
        let answer = if shown.is_refused() {
            let answer = self.ask_about(shown, context)?;
            self.answer(answer.unwrap_or_default());
            if answer.is_some() { Answer::Yes } else { Answer::No }
        } else {
            self.confirm(question, shown, context)?
        };
        match answer {
            Answer::No => {
                let project = named_project(&self.roots);
                context.say(format_args!("nothing was changed in {project}"));
                Ok(1)
            }
            Answer::Yes => self.run(Some(plan), false, context),
            // Only the choice was seen, not what becomes of it.
            Answer::Chosen => self.run(Some(plan), true, context),
        }
    }

    /// Shows the changes that a plan would make, each repository as one thing. Later changes that
    /// it would overwrite are among them.
    pub(in crate::cli) fn preview(
        &self,
        plan: &RestoreReport,
        context: &Context,
    ) -> Result<(), CliError> {
        let roots = &self.roots;
        let mut out = context.out_long();
        let repositories = Repositories::restored(&plan.repositories, roots);
        let palette = Palette::coloured();
        let sum = repositories.summary(&plan.changes, &plan.touched, &palette);
        let files: Vec<Change> = repositories.outside(&plan.changes).into_iter().cloned().collect();
        if plan.changes.is_empty() {
            return Ok(());
        }
        let what = match self.asked_by {
            AskedBy::Undo { .. } => "undo",
            _ => "restore",
        };
        writeln!(out, "the {what} would do this: {sum}")?;
        // Commits and branches are worth more than any file.
        for line in repositories.said(Told::Planned) {
            writeln!(out, "  {line}")?;
        }
        write_preview(&mut out, &files, None, roots)?;
        for line in repositories.lines() {
            writeln!(out, "{}", repository_line(&line, &palette))?;
        }
        Ok(out.flush()?)
    }

    /// Names the later changes, and asks what to do about them. `None`: nothing at all.
    pub(super) fn ask_about(
        &mut self,
        report: &RestoreReport,
        context: &Context,
    ) -> Result<Option<OnConflict>, CliError> {
        conflicts::print_conflicts(&report.conflicts, &[], &self.roots, context);
        self.asked_about.clone_from(&report.conflicts);
        let texts = self.texts_in_conflict(&report.conflicts)?;
        let has_texts = !texts.is_empty();
        let by_hunk = if has_texts { "choose in each hunk (m), " } else { "" };
        let text = format!(
            "undo these later changes as well (o), keep them and restore the rest (k), \
             {by_hunk}show both changes (d), or do nothing (n)?"
        );
        let question = Question::new(&text, Letter::No)
            .or(Letter::Difference, "show both changes, and ask again")
            .or_where(has_texts, Letter::Merge, "choose in each hunk that both changed")
            .or(Letter::Keep, "keep the later changes, and restore the rest")
            .or(Letter::Other, "undo the later changes as well")
            .or(Letter::No, "change nothing");
        loop {
            return Ok(match question.ask(context)? {
                Letter::Merge => {
                    let Some(chosen) = self.choose_hunks(&texts, context)? else { continue };
                    self.job.choose(|options| options.chosen = chosen);
                    // A conflict without hunks stays as it is, and is named afterwards.
                    Some(OnConflict::KeepNewer)
                }
                Letter::Other => Some(OnConflict::Overwrite),
                Letter::Keep => Some(OnConflict::KeepNewer),
                Letter::Difference => {
                    self.show_both_changes(&report.conflicts, context)?;
                    continue;
                }
                _ => None,
            });
        }
    }

    /// Asks whether to carry out a plan. Shows it as a patch, or lets a person choose, when that is
    /// asked for.
    fn confirm(
        &mut self,
        question: &str,
        plan: &RestoreReport,
        context: &Context,
    ) -> Result<Answer, CliError> {
        let has_choice = plan.changes.len() > 1 && is_possible(context);
        let question = Question::new(question, Letter::No)
            .or(Letter::Yes, "do all of it")
            .or(Letter::No, "change nothing")
            .or(Letter::Difference, "show the difference, and ask again")
            .or_where(has_choice, Letter::Select, "select in the review what to do");
        loop {
            match question.ask(context)? {
                Letter::Difference => self.show_plan(plan, context)?,
                Letter::Select => match self.choose(plan, context)? {
                    // A look is no answer.
                    Decision::KeepAll => {}
                    Decision::RestoreAll => return Ok(Answer::Yes),
                    Decision::Restore(exactly) => {
                        self.job.choose(|options| options.selection.exactly = exactly);
                        return Ok(Answer::Chosen);
                    }
                },
                Letter::Yes => return Ok(Answer::Yes),
                _ => return Ok(Answer::No),
            }
        }
    }

    /// The review, with what a plan would take back.
    fn choose(&self, plan: &RestoreReport, context: &Context) -> Result<Decision, CliError> {
        let (session, manager) = (self.session(), self.job.manager());
        let target = session.manifest(self.job.snapshot())?.manifest;
        let live = manager.live_state(&target)?;
        let (store, now) =
            (EitherSource { first: manager.store(), second: &live }, live.manifest());
        let planned: HashSet<&[u8]> =
            plan.changes.iter().map(|change| change.path.as_os_str().as_bytes()).collect();
        let mut differences = diff::compare(&store, &target.merkle_root, &now.merkle_root)?;
        differences.retain(|found| planned.contains(found.path.as_slice()));
        let unknown = (NotCapturedSet::new(&target), NotCapturedSet::new(now));
        let comparison = Comparison::of(&differences, &unknown.0, &unknown.1);
        let subject = Subject { session, store: &store, old: &target, new: now };
        timeline::choose(&subject, comparison, self.catalog, context)
    }
}
