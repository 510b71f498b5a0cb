//! A run that can be undone: the state before, the command, the state after, and the messages about
//! them. The exit code is the command's, unless the recording fails.

use std::cell::OnceCell;
use std::path::Path;

use jiff::Timestamp;

use super::{Job, Recorder};
use crate::cli::commands::review::Reviewed;
use crate::cli::commands::snapshot::{
    report_idle_patterns, report_left_out, report_missing, report_unstable,
};
use crate::cli::concurrent_runs::Together;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::preflight;
use crate::cli::progress::Bar;
use crate::cli::render::{Palette, touched_part};
use crate::cli::repositories::{Repositories, Told};
use crate::cli::restoring::{Ways, ways};
use crate::cli::run_later::RunLater;
use crate::cli::snapshot_hooks::Hooks;
use crate::cli::supervise::{CommandSignals, Ended};
use crate::cli::unrecorded_changes::Unrecorded;
use crate::cli::{Outcome, retention, signals, state_before, timeline};
use crate::config::{Settings, SnapshotHooks};
use nono_engine::counted::counted;
use nono_engine::diff::{ChangeSummary, Comparison};
use nono_engine::progress::Progress;
use nono_engine::session::{Catalog, RecordError, RecordRequest, Recorded, Recording, StoreModes};
use nono_engine::snapshot::{SessionDir, SessionOrigin, SnapshotError, SnapshotManifest};
use nono_engine::store::ObjectSource;

pub(super) fn run(job: &Job<'_>, catalog: &Catalog, settings: &Settings) -> Outcome {
    let context = job.context;
    let none = SnapshotHooks::default();
    let hooks = Hooks {
        hooks: job.profile.map_or(&none, |profile| &profile.hooks),
        directory: job.grants.tracked.first().cloned(),
    };
    let (recording, began) = hooks.around(true, context, || begin(job, catalog, settings))?;
    let id = recording.session_id();
    report_left_out(recording.baseline(), &id, Some(catalog), context);
    let together = Together::begin(catalog, &recording, began, context);

    let retention = OnceCell::new();
    let on_started = || {
        retention.get_or_init(|| retention::begin(catalog.root(), settings, context));
    };
    let mut signals = CommandSignals::take().map_err(signals::refused)?;
    let modes = StoreModes::note(catalog.root())?;
    let tells_agents = settings.tell_agents.value;
    let recorder = Recorder { recording: &recording, on_started: &on_started, tells_agents };
    let ended = job.start(Some(recorder), &mut signals);
    // Behind the second wall, no command changes a mode of the store.
    if !matches!(ended, Ok(Ended { has_second_wall: true, .. })) {
        put_back(&modes, catalog.root(), context);
    }
    let (session, before) = (recording.manager().session().clone(), recording.baseline().clone());
    let finished = hooks.around(false, context, || finish(recording, &ended, context));
    let ran = Ran { session: &session, id: &id, before: &before };
    let had_others = match (&ended, &finished) {
        (Ok(_), Ok(recorded)) => {
            ran.report(job, catalog, &together, recorded, settings.name_run_later.value)
        }
        (Err(error), Err(_)) => {
            context.error(error);
            false
        }
        _ => false,
    };
    #[cfg(feature = "archive")]
    if let (Some(remote), Ok(_)) = (&settings.push_after_run, &finished) {
        crate::cli::after_run::start(remote, catalog.root(), &id, context);
    }
    // All is recorded and said: the user does not wait for the rest.
    drop(signals);
    if let Some(retention) = retention.into_inner() {
        retention.finish(catalog.root(), settings, has_worked(&ended, &finished), context);
    }
    let recorded = finished?;
    let ended = ended?;
    if !recorded.changes.is_empty() {
        ran.review(job, catalog, &ended, recorded, had_others);
    }
    Ok(ended.code)
}

/// Records the state before, and notes when that began.
fn begin(
    job: &Job<'_>,
    catalog: &Catalog,
    settings: &Settings,
) -> Result<(Recording, Timestamp), CliError> {
    let Job { args, grants, profile, report, context, .. } = *job;
    let request = RecordRequest {
        root: catalog.root().to_owned(),
        command: args.command.clone(),
        tracked_paths: grants.tracked.clone(),
        exclusion: args.capture.exclusion(settings, profile)?,
        budget: settings.budget(),
        compression: settings.compression.value,
        threads: settings.threads(),
        origin: SessionOrigin::Run,
        label: args.message.clone(),
    };
    let announced = preflight::announce(&request, context);
    let guessed = request.clone();
    let bar = Bar::guessing(context, "recording the state before", move || {
        announced.or_else(|| preflight::guess(&guessed))
    });
    let began = Timestamp::now();
    let started = Recording::begin(&request, bar.clone());
    bar.finish();
    let recording = started.map_err(|error| {
        let error = CliError::from(error);
        if error.is_stopped() { error } else { error.or_hint("--no-rollback records nothing") }
    })?;
    let id = recording.session_id();
    report.began(&id);
    if bar.is_cancelled() {
        let message =
            "stopped before the command was started; the state before was recorded already";
        return Err(CliError::stopped(message).with_hint(format!("remove it: {NONO} cleanup {id}")));
    }
    Ok((recording, began))
}

/// Records the state after.
fn finish(
    recording: Recording,
    ended: &Result<Ended, CliError>,
    context: &Context,
) -> Result<Recorded, CliError> {
    let code = match ended {
        Ok(ended) => ended.code,
        Err(error) => error.exit_code(),
    };
    let session = recording.manager().session().clone();
    let bar = Bar::after_command(context, "recording the state after");
    let finished = recording.with_progress(bar.clone()).finish(Some(code.into()));
    bar.finish();
    finished.map_err(|error| {
        let hint = match &error {
            RecordError::BaselineNotDurable { is_lost: true, .. } => {
                "this run cannot be undone".to_owned()
            }
            RecordError::BaselineNotDurable { is_lost: false, .. } => {
                state_before::hint_when_not_durable(&session)
            }
            RecordError::Snapshot(SnapshotError::Store(error)) if error.is_damage() => {
                let id = session.id();
                format!("mend what can be mended: {NONO} verify {id} --repair")
            }
            _ => state_before::hint(&session),
        };
        let error = CliError::from(error).with_hint(hint);
        if error.is_stopped() { error } else { error.with_exit_code(code.max(1)) }
    })
}

/// A session whose command has ended.
#[derive(Clone, Copy)]
struct Ran<'a> {
    session: &'a SessionDir,
    id: &'a str,
    before: &'a SnapshotManifest,
}

impl Ran<'_> {
    /// Names the changes, and every path that the recording lacks. Whether other sessions may have
    /// made a part of the changes.
    fn report(
        &self,
        job: &Job<'_>,
        catalog: &Catalog,
        together: &Together,
        recorded: &Recorded,
        names_run_later: bool,
    ) -> bool {
        let (Self { session, id, before }, context) = (*self, job.context);
        let Recorded { last, changes, touched, session_root } = recorded;
        let unrecorded =
            self.or_nothing(context, |store| Ok(Unrecorded::since(store, before, last)?));
        let said = |path: &Path| unrecorded.names(path);
        report_missing(last, Some(before), said, context);
        unrecorded.report(id, context);
        report_unstable(&[before, last], id, context);
        report_idle_patterns(&job.args.capture.rollback_exclude, &[before, last], context);
        let had_others = together.report(catalog, session, context);
        let counted = ChangeSummary::of(changes).with_touched(touched.len());
        let repositories =
            self.or_nothing(context, |store| Ok(Repositories::of(store, before, last, changes)?));
        let summary = match changes.as_slice() {
            // Paths that rules left out were not looked at.
            [] if unrecorded.is_empty() && last.not_captured.is_empty() => {
                format!("nothing changed{}", touched_part(&counted))
            }
            [] => format!("nothing that is recorded changed{}", touched_part(&counted)),
            changes => repositories.summary(changes, touched, &Palette::coloured()),
        };
        context.say(format_args!("session {id}: {summary}"));
        for line in repositories.said(Told::Done) {
            context.say(format_args!("  {line}"));
        }
        let run_later = if names_run_later {
            self.or_nothing(context, |store| RunLater::among(changes, store, before, last))
        } else {
            RunLater::default()
        };
        run_later.report(context);
        if context.is_verbose {
            context.say(format_args!("  root: {session_root}"));
        }
        job.report.recorded(recorded, unrecorded.into_left(), run_later.into_words());
        had_others
    }

    /// The answer of the session's store. A failure is reported, and gives an empty answer: the
    /// session is recorded all the same.
    fn or_nothing<T: Default>(
        &self,
        context: &Context,
        ask: impl FnOnce(&dyn ObjectSource) -> Result<T, CliError>,
    ) -> T {
        let store = Catalog::store_of(self.session).map_err(CliError::from);
        store.and_then(|store| ask(&store)).unwrap_or_else(|error| {
            context.error(&error);
            T::default()
        })
    }

    /// Shows the changes on a terminal, or names the commands for them. `had_others`: other
    /// sessions may have made a part of the changes.
    fn review(
        &self,
        job: &Job<'_>,
        catalog: &Catalog,
        ended: &Ended,
        recorded: Recorded,
        had_others: bool,
    ) {
        let (Self { session, before: old, .. }, context) = (*self, job.context);
        let Recorded { last, changes, touched, .. } = recorded;
        let wants_review = !job.args.no_rollback_prompt && !ended.was_told_to_end;
        let is_settled = wants_review && timeline::is_possible(context) && {
            let reviewed = Catalog::store_of(session).map_err(CliError::from).and_then(|store| {
                let (store_args, store, new) = (job.store, &store, &last);
                let work = Reviewed { catalog, store_args, session, store, old, new };
                work.review(Comparison { changes, touched }, context)
            });
            // The exit code is the command's in any case. The decision has been reported.
            reviewed.map(|_| true).unwrap_or_else(|error| {
                context.error(&error);
                false
            })
        };
        if !is_settled {
            let Ways { see, undo } = ways(catalog, session);
            context.say(format_args!("  see it:  {see}"));
            if had_others {
                // Without a flag the undo would be refused.
                context.say(format_args!(
                    "  undo it, and what others did there meanwhile: {undo} --force"
                ));
                context.say(format_args!("  undo the rest alone: {undo} --keep-newer"));
            } else {
                context.say(format_args!("  undo it: {undo}"));
            }
        }
    }
}

/// Whether the command had started and is recorded to its end. Within the walls, one that could not
/// be started ends with 126 or 127.
fn has_worked<E>(ended: &Result<Ended, CliError>, finished: &Result<Recorded, E>) -> bool {
    match (ended, finished) {
        (Ok(ended), Ok(recorded)) => {
            !matches!(ended.code, 126 | 127) || !recorded.changes.is_empty()
        }
        _ => false,
    }
}

fn put_back(modes: &StoreModes, root: &Path, context: &Context) {
    match modes.put_back(root) {
        Ok(0) => {}
        Ok(count) => context.warn(format_args!(
            "the modes of {} of the store were changed meanwhile, and are put back",
            counted(count, "file or directory", "files and directories")
        )),
        Err(error) => context.warn(format_args!("the store may be out of reach: {error}")),
    }
}
