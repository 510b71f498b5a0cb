//! `nono resume`: the way out of a restore that was interrupted.

use std::path::PathBuf;

use clap::Args;

#[cfg(feature = "mount")]
use super::fork;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, named_project};
use crate::cli::context::{BOLD, Context};
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::render::{Palette, summary_line};
use crate::cli::repositories::Repositories;
use crate::cli::restoring::{print_changes, warn_of_skipped};
use crate::cli::unrecorded_changes::report_lost;
use nono_engine::diff::ChangeSummary;
use nono_engine::path_text::Shown;
use nono_engine::restore::{Recovery, RecoveryOutcome, RecoveryReport, RestoreMark};
use nono_engine::session::{Catalog, InterruptedRestores, Place, Purpose, SessionSummary};
#[cfg(feature = "mount")]
use nono_engine::snapshot::SessionOrigin;
use nono_engine::snapshot::{SessionDir, SnapshotManager};

/// Arguments of `nono resume`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ResumeArgs {
    /// Id of a session, a prefix of it, or `latest` [default: every session here with an
    /// interrupted restore]
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Take the restore back instead of finishing it
    #[arg(long)]
    abort: bool,
    /// Give up a journal that is damaged: it is set aside, and the session can be restored again
    #[arg(long, requires = "id", conflicts_with_all = ["abort", "json"])]
    discard: bool,
    /// Print the reports as a JSON list
    #[arg(long)]
    json: bool,
}

pub(in crate::cli) fn run(args: &ResumeArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let mut failures = Vec::new();
    let mut others = Others::new()?;
    let sessions = match &args.id {
        Some(id) => vec![catalog.find_from(id, Purpose::Restoring)?],
        None => {
            let InterruptedRestores { sessions, unknown } = catalog.interrupted_restores()?;
            failures.extend(unknown.into_iter().map(CliError::from));
            sessions.into_iter().filter(|session| others.is_here(session)).collect()
        }
    };
    #[cfg(feature = "mount")]
    if let (Some(_), [session]) = (&args.id, &sessions[..])
        && session.metadata().is_ok_and(|it| it.origin == SessionOrigin::Fork)
    {
        return in_fork(args, session, store, context);
    }
    if args.discard {
        return discard(&sessions, context);
    }
    let way = if args.abort { Recovery::TakeBack } else { Recovery::Finish };
    let mut reports = Vec::new();
    let mut tracked = Vec::new();
    for session in &sessions {
        // The outcome of each is reported, whatever the outcome of another.
        match recover(session, way) {
            Ok(Some((report, roots))) => {
                reports.push(report);
                tracked.push(roots);
            }
            Ok(None) => {}
            Err(error) => failures.push(error),
        }
    }
    if args.json {
        context.json(&reports)?;
    } else {
        for (report, roots) in reports.iter().zip(&tracked) {
            print(report, roots, context)?;
        }
    }
    #[cfg(feature = "mount")]
    let is_complete = {
        let meant = Meant { id: args.id.as_deref(), way, named: &sessions, reports: &reports };
        end_merges(&meant, &mut others, &mut failures, store, context)?
    };
    // Without forks, there are no merges.
    #[cfg(not(feature = "mount"))]
    let is_complete = None;
    if !args.json {
        others.say(context);
    }
    let last = failures.pop();
    for error in &failures {
        context.error(error);
    }
    if let Some(error) = last {
        return Err(error);
    }
    if reports.is_empty() && is_complete.is_none() {
        context.say(match others.sessions.is_empty() {
            true => "no restore was interrupted",
            false => "no restore was interrupted here",
        });
    }
    let are_complete = reports.iter().all(RecoveryReport::is_complete);
    Ok(u8::from(!are_complete || is_complete == Some(false)))
}

/// Ends an undo in a fork: its paths are those that the fork shows.
#[cfg(feature = "mount")]
fn in_fork(
    args: &ResumeArgs,
    session: &SessionDir,
    store: &StoreArgs,
    context: &Context,
) -> Outcome {
    if args.discard || args.json {
        return Err(CliError::usage(format!(
            "session {} is of a fork: an undo there is finished, or taken back with --abort",
            session.id()
        )));
    }
    let what = fork::undo::TakeBackArgs { resume: true, abort: args.abort, ..Default::default() };
    fork::undo::outside(session, &what, store, context)
}

/// The request, and the work on restores so far.
#[cfg(feature = "mount")]
struct Meant<'a> {
    id: Option<&'a str>,
    way: Recovery,
    /// The sessions with restores that were meant.
    named: &'a [SessionDir],
    reports: &'a [RecoveryReport],
}

/// Interrupted sessions of other projects, which are not meant without their ids.
struct Others {
    here: PathBuf,
    sessions: Vec<(String, Vec<PathBuf>)>,
}

impl Others {
    fn new() -> Result<Self, CliError> {
        let here = Place::current(Purpose::Restoring)?.directory;
        Ok(Self { here, sessions: Vec::new() })
    }

    /// Whether a session is about this directory, one above it or one below it. Others are noted.
    fn is_here(&mut self, session: &SessionDir) -> bool {
        // One that cannot be read says so where it is recovered.
        let Ok(metadata) = session.metadata() else { return true };
        let tracked = metadata.tracked_paths;
        let concerns = |path: &PathBuf| path.starts_with(&self.here) || self.here.starts_with(path);
        let is_here = tracked.is_empty() || tracked.iter().any(concerns);
        if !is_here {
            self.sessions.push((session.id(), tracked));
        }
        is_here
    }

    fn say(&self, context: &Context) {
        for (id, tracked) in &self.sessions {
            let project = named_project(tracked);
            context.say(format_args!(
                "an interrupted restore or merge in {project} is left: {NONO} resume {id}"
            ));
        }
    }
}

/// Ends merges that were killed with no path half-way, or whose paths are so no more. `None`: there
/// are none.
#[cfg(feature = "mount")]
fn end_merges(
    meant: &Meant<'_>,
    others: &mut Others,
    failures: &mut Vec<CliError>,
    store: &StoreArgs,
    context: &Context,
) -> Result<Option<bool>, CliError> {
    let mut is_complete = None;
    for session in store.catalog()?.killed_merges()? {
        let id = session.id();
        if session.has_restore_journal()? {
            continue;
        }
        let is_meant = match meant.id {
            Some(_) => meant.named.iter().any(|named| named.id() == id),
            None => others.is_here(&session),
        };
        if !is_meant {
            continue;
        }
        let is_told = meant.reports.iter().any(|report| report.session_id == id);
        match fork::killed::finish(&session, meant.way, is_told, store, context) {
            Ok(is_done) => is_complete = Some(is_complete.unwrap_or(true) && is_done),
            Err(error) => failures.push(error),
        }
    }
    Ok(is_complete)
}

/// Recovers one, and says what it tracks. `None`: no restore of it was interrupted.
fn recover(
    session: &SessionDir,
    way: Recovery,
) -> Result<Option<(RecoveryReport, Vec<PathBuf>)>, CliError> {
    let manager = SnapshotManager::open(session.path())?;
    let roots: Vec<PathBuf> = manager.roots().iter().map(|root| root.path.clone()).collect();
    // No run begins meanwhile. Without a mark, as on a full disk, the work is done all the same.
    let root = session.path().parent();
    let _mark = root.and_then(|root| RestoreMark::set(root, &roots).ok());
    Ok(manager.recover_restore(way)?.map(|report| (report, roots)))
}

fn discard(sessions: &[SessionDir], context: &Context) -> Outcome {
    for session in sessions {
        let id = session.id();
        let Some(report) = SnapshotManager::open(session.path())?.discard_restore()? else {
            context.say(format_args!("no restore of {id} was interrupted"));
            continue;
        };
        context.say(format_args!("{id}: the journal was set aside as restore.journal.discarded"));
        for path in &report.removed {
            context.say(format_args!("  removed what it had staged: {}", Shown::path(path)));
        }
        context.warn(
            "how far the restore came is not known: its files can be in either state until one is \
             restored",
        );
        for (path, reason) in &report.left {
            let path = Shown::path(path);
            context.warn(format_args!(
                "{path} is left of a restore, because {reason}; look into it, then: rm -r {path}"
            ));
        }
        context.say(format_args!("  its snapshots: {NONO} show {id}"));
    }
    Ok(0)
}

fn print(report: &RecoveryReport, roots: &[PathBuf], context: &Context) -> Result<(), CliError> {
    let palette = Palette::coloured();
    let repositories = Repositories::default();
    print_changes(&report.changes, &report.skipped, &repositories, roots, false, context)?;
    let session = &report.session_id;
    let id = format!("{BOLD}{session}/{}{BOLD:#}", report.snapshot);
    let (work, done) = match report.is_merge {
        true => {
            let project = named_project(roots);
            (
                format!("merge of session {BOLD}{session}{BOLD:#} into {project}"),
                "merged".to_owned(),
            )
        }
        false => (format!("restore of {id}"), format!("restored {id}")),
    };
    let again = "the same command as before begins it anew";
    match (report.outcome, report.was_over) {
        (RecoveryOutcome::Finished, false) => {
            let summary = ChangeSummary::of(&report.changes).with_touched(report.touched.len());
            let summary = summary_line(&summary, &palette);
            context.say(format_args!("{done}: {summary}"));
        }
        (RecoveryOutcome::Finished, true) => {
            let end = if report.is_as_asked() { "" } else { ", and is not taken back" };
            context.say(format_args!("the {work} was complete{end}"));
        }
        (RecoveryOutcome::TakenBack, _) if !report.is_as_asked() => {
            context.say(format_args!("the {work} was taken back before, and is not done: {again}"));
        }
        (RecoveryOutcome::TakenBack, _) => {
            let what = if report.skipped.is_empty() { "everything" } else { "all else" };
            context.say(format_args!("the {work} is taken back: {what} is as before it"));
        }
        (RecoveryOutcome::NotBegun, _) if !report.is_as_asked() => {
            context
                .say(format_args!("the {work} had changed nothing yet, and is not done: {again}"));
        }
        (RecoveryOutcome::NotBegun, _) => context
            .say(format_args!("the {work} had changed nothing yet: everything is as before it")),
    }
    report_lost(&report.lost, context);
    if let Some(safety) = report.safety_snapshot.filter(|_| is_finished(report)) {
        match report.is_merge {
            true => context.say(format_args!("undo this: {NONO} undo {session}")),
            false => {
                context.say(format_args!("undo this: {NONO} restore {session}/{safety}"));
            }
        }
    }
    Ok(())
}

fn is_finished(report: &RecoveryReport) -> bool {
    report.outcome == RecoveryOutcome::Finished
}

/// Says which restores were interrupted, in a line each, and clears up after those that had no path
/// half-way. Returns those of them that were complete. The command itself notices if that cannot be
/// found out.
pub(in crate::cli) fn remind(store: &StoreArgs, context: &Context) -> Vec<RecoveryReport> {
    let Ok(catalog) = store.catalog() else { return Vec::new() };
    let mut finished = Vec::new();
    for session in catalog.interrupted_restores().unwrap_or_default().sessions {
        let id = session.id();
        let cleared = SnapshotManager::open(session.path())
            .ok()
            .and_then(|manager| manager.clear_staging().ok().flatten());
        let Some(report) = cleared else {
            context.warn(format_args!(
                "a restore of session {id} was interrupted; to finish it: {NONO} resume \
                 {id} (to take it back: --abort)"
            ));
            continue;
        };
        let state = match report.outcome {
            RecoveryOutcome::Finished => "it was complete",
            RecoveryOutcome::TakenBack => "it was taken back",
            RecoveryOutcome::NotBegun => "it had changed nothing yet",
        };
        let work = match report.is_merge {
            true => format!("the merge of session {id}"),
            false => format!("a restore of {id}/{}", report.snapshot),
        };
        context.say(format_args!(
            "{work} was interrupted with no path half-way: {state}; what it had staged is removed"
        ));
        warn_of_skipped(&report.skipped, context);
        if is_finished(&report) {
            report_lost(&report.lost, context);
            // An undo after a complete merge means that merge.
            if !report.is_merge {
                finished.push(report);
            }
        }
    }
    finished
}

/// Refuses an undo or a redo by its place where an interrupted one turned out to be complete: what
/// was meant is done, and what comes next in the order would be another session.
pub(super) fn refuse_repeated(
    finished: &[RecoveryReport],
    catalog: &Catalog,
    word: &str,
) -> Result<(), CliError> {
    let here = Place::current(Purpose::Restoring)?.directory;
    for report in finished {
        let session = catalog.find(&report.session_id)?;
        if SessionSummary::of(&session)?.concerns(&here) {
            let id = &report.session_id;
            return Err(CliError::failed(format!(
                "nothing was changed: the interrupted restore of session {id} here was complete"
            ))
            .with_hint(format!("once more, the next {word} goes on from there")));
        }
    }
    Ok(())
}
