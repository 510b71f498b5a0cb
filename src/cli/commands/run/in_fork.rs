//! `nono run --fork`: a command in a fork, recorded in the session of the fork.
//!
//! The walls and grants are those of every run. The states before and after the command become
//! snapshots of the fork's session, unless nothing is to be recorded. The project stays as it is.

use super::{RunArgs, report_leftover};
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::commands::fork::say_changes;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::forking::{CommandArgs, Entered, RightsArgs, forks_of};
use crate::cli::progress::Bar;
use crate::cli::render::{Palette, summary_line};
use crate::cli::run_report::{ReportFile, RunReport};
use crate::config::Settings;
use nono_engine::diff::ChangeSummary;
use nono_engine::fork::Fork;
use nono_engine::session::Recorded;
use nono_engine::snapshot::SnapshotManifest;

/// Runs the command in the fork of a name.
pub(super) fn run(
    args: &RunArgs,
    name: &str,
    settings: &Settings,
    store: &StoreArgs,
    (report, file): (&RunReport, &mut Option<ReportFile>),
    context: &Context,
) -> Outcome {
    let is_recorded = args.asks_for_record() || (!args.no_rollback && settings.record.value);
    if !is_recorded && args.message.is_some() {
        return Err(CliError::usage("-m names a snapshot, and this run is not recorded"));
    }
    let fork = forks_of(store)?.find(name)?;
    let tracked: Vec<_> = fork.recorded_paths().cloned().collect();
    *file = args.report.open(&tracked, fork.root())?;
    let rights = RightsArgs {
        profile: args.profile.clone(),
        grants: args.grants.clone(),
        namespaces: args.namespaces,
    };
    let inside = CommandArgs { command: args.command.clone(), rights };
    let threads = settings.threads();
    let entered = Entered::new(&fork)?;
    let before = match is_recorded {
        true => Some(record(&fork, "recording the state before", None, threads, context)?),
        false => None,
    };
    report.began(&fork.document().session);
    let ended = entered.run(&inside, store, context)?;
    let Some(before) = before else {
        say_changes(&fork, context);
        return Ok(ended.code);
    };
    report_leftover(&ended, entered.helpers(), report, context);
    let label = args.message.clone();
    let last = record(&fork, "recording the state after", label, threads, context)?;
    let (session, manager) = (fork.session()?, fork.manager()?);
    let changes = manager.changes_between(&before, &last)?;
    let (id, number) = (session.id(), last.number);
    let summary = match changes.as_slice() {
        [] => "nothing changed".to_owned(),
        changes => summary_line(&ChangeSummary::of(changes), &Palette::coloured()),
    };
    context.say(format_args!("snapshot {id}/{number} of the fork: {summary}"));
    let session_root = session.metadata()?.session_root();
    let touched = Vec::new();
    let recorded = Recorded { last, changes, touched, session_root };
    report.recorded(&recorded, (Vec::new(), Vec::new()), Vec::new());
    say_changes(&fork, context);
    Ok(ended.code)
}

/// Records the state of a fork. An unchanged one is the last snapshot.
fn record(
    fork: &Fork,
    what: &'static str,
    label: Option<String>,
    threads: usize,
    context: &Context,
) -> Result<SnapshotManifest, CliError> {
    let bar = Bar::new(context, what);
    let taken = fork.snapshot(label, bar.clone(), threads);
    bar.finish();
    Ok(taken?.manifest)
}
