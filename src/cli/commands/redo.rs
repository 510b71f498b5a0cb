//! `nono redo`: the last undo here, taken back.

use clap::Args;

use super::resume::refuse_repeated;
use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, ThreadArgs};
use crate::cli::context::Context;
use crate::cli::error::CliError;
#[cfg(feature = "mount")]
use crate::cli::inside::fork_around;
use crate::cli::offer::NONO;
use crate::cli::restoring::{AskedBy, ConflictArgs, Restoring};
use nono_engine::job::JobKind;
use nono_engine::restore::RecoveryReport;
use nono_engine::session::{History, NoRedo, Place, Purpose};

/// Arguments of `nono redo`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RedoArgs {
    /// Ask nothing, not even about later changes: these are refused
    #[arg(long, short)]
    yes: bool,
    /// Only say what would change
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    conflicts: ConflictArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl RedoArgs {
    /// Whether it adds to a session.
    pub(in crate::cli) fn writes_store(&self) -> bool {
        !self.dry_run
    }
}

/// `finished`: interrupted restores that turned out to be complete just now.
pub(in crate::cli) fn run(
    args: &RedoArgs,
    finished: &[RecoveryReport],
    store: &StoreArgs,
    context: &Context,
) -> Outcome {
    #[cfg(feature = "mount")]
    if fork_around().is_some() {
        return super::undo::in_fork::redo(args.yes, args.dry_run, args.json, context);
    }
    let catalog = store.catalog()?;
    refuse_repeated(finished, &catalog, "redo")?;
    let history = History::read(&catalog, &Place::current(Purpose::Restoring)?)?;
    let redo = history.redo()?.map_err(explain)?;
    let kind = JobKind::Redo(redo.safety_snapshot);
    let mut work = Restoring::new(&catalog, &redo.session, kind, &args.threads, context)?;
    work.job = work.job.decided_at(redo.restore_count);
    work.decide(&args.conflicts);
    work.is_for_program = args.json;
    work.is_settled = args.yes;
    let is_next = history.is_next(&redo.session.id());
    work.asked_by = if redo.is_undo { AskedBy::Redo { is_next } } else { AskedBy::RedoOfRestore };
    if args.dry_run { work.dry_run(context) } else { work.run(None, true, context) }
}

fn explain(why: NoRedo) -> CliError {
    let nothing = |reason: &str| CliError::failed(format!("there is nothing to redo: {reason}"));
    match why {
        NoRedo::NothingUndone => nothing("nothing here is undone"),
        NoRedo::NothingKept { session_id } => {
            nothing("nothing was kept of the state before the last undo")
                .with_hint(format!("its snapshots: {NONO} show {session_id}"))
        }
        NoRedo::Cleared { by, session_id, safety_snapshot } => {
            nothing(&format!("session {by} came after the last undo")).with_hint(format!(
                "the state before the undo: {NONO} restore {session_id}/{safety_snapshot}"
            ))
        }
    }
}
