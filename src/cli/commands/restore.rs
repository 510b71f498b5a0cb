//! `nono rollback restore`: the way back.

use std::io::Write;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::{BOLD, Context, YELLOW};
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::cli::render::{Palette, change_line, summary_line};
use crate::diff::ChangeSummary;
use crate::path_text::Shown;
use crate::restore::RestoreReport;
use crate::session::SnapshotId;
use crate::snapshot::SnapshotManager;

/// Arguments of `nono rollback restore`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RestoreArgs {
    /// Id of a session, a prefix of it, or `latest`; ID/N is the same as --snapshot N
    #[arg(value_name = "ID[/N]")]
    id: SnapshotId,
    /// Number of the snapshot to bring back [default: 0, the baseline]
    #[arg(long, value_name = "N")]
    snapshot: Option<u64>,
    /// Only say what would change
    #[arg(long)]
    dry_run: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(in crate::cli) fn run(args: &RestoreArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let (session, named) = store.catalog()?.find_snapshot(&args.id)?;
    let number = match (args.snapshot, named) {
        (Some(a), Some(b)) if a != b => {
            return Err(CliError::usage(format!(
                "--snapshot {a} and /{b} are different snapshots"
            )));
        }
        (a, b) => a.or(b).unwrap_or(0),
    };
    let bar = Bar::new(context, "restoring", true);
    let manager = SnapshotManager::open(session.path())?.with_progress(bar.clone());
    let report = if args.dry_run {
        manager.plan_restore(number).map(|plan| RestoreReport {
            session_id: session.id(),
            snapshot: number,
            dry_run: true,
            changes: plan.changes,
            conflicts: Vec::new(),
            skipped: plan.skipped,
            safety_snapshot: None,
        })
    } else {
        manager.restore(number)
    };
    bar.finish();
    let report = report?;
    if args.json {
        context.json(&report)?;
    } else {
        print(&report, &manager, context)?;
    }
    Ok(u8::from(!report.is_complete()))
}

fn print(
    report: &RestoreReport,
    manager: &SnapshotManager,
    context: &Context,
) -> Result<(), CliError> {
    let palette = Palette::coloured();
    let roots: Vec<_> = manager.roots().iter().map(|root| root.path.clone()).collect();
    let mut out = context.out();
    for change in &report.changes {
        writeln!(out, "{}", change_line(change, &roots, &palette))?;
    }
    for skipped in &report.skipped {
        let path = Shown::path(&skipped.path);
        writeln!(out, "{YELLOW}! skipped{YELLOW:#}     {path}: {}", skipped.reason)?;
    }
    let id = format!("{BOLD}{}/{}{BOLD:#}", report.session_id, report.snapshot);
    let summary = summary_line(&ChangeSummary::of(&report.changes), &palette);
    match (report.changes.is_empty(), report.dry_run) {
        (true, _) if report.is_complete() => {
            context.say(format_args!("everything is as in {id} already"));
        }
        (_, true) => context.say(format_args!("restoring {id} would do this: {summary}")),
        (_, false) => context.say(format_args!("restored {id}: {summary}")),
    }
    if !report.is_complete() {
        let count = report.skipped.len();
        context.warn(format_args!("{count} paths are not as they were in {id}, see above"));
    }
    if let Some(safety) = report.safety_snapshot {
        let session = &report.session_id;
        context.say(format_args!("undo this: nono rollback restore {session}/{safety}"));
    }
    Ok(())
}
