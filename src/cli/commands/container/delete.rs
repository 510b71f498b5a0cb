//! `nono container delete`.

use clap::Args;

use super::cleanup::print_removed;
use super::engine_if_any;
use crate::cli::Outcome;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use nono_container::{ContainerHistory, LocalStorage, RemovalReport, remove};

/// Arguments of `nono container delete`.
#[derive(Debug, Args)]
pub(in crate::cli) struct DeleteArgs {
    /// A snapshot, ID/N or NAME/N; with --all, the history ID or NAME
    id: String,
    /// Remove the whole history of the container
    #[arg(long)]
    all: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DeleteArgs, storage: &LocalStorage, context: &Context) -> Outcome {
    let picked = ContainerHistory::find_whole(storage, &args.id)?;
    let numbers = match (picked.is_named, args.all) {
        (true, false) => vec![picked.number],
        (false, true) => picked.history.numbers()?,
        (true, true) => {
            return Err(CliError::usage("--all means the whole history: leave the number out"));
        }
        (false, false) => {
            let id = picked.history.id();
            let usage = CliError::usage("nothing is removed without a number or --all");
            return Err(usage.with_hint(format!(
                "one snapshot: {NONO} container delete {id}/{}; the whole history: {NONO} \
                 container delete {id} --all",
                picked.number
            )));
        }
    };
    let docker = engine_if_any(context);
    let numbers: Vec<_> = numbers.into_iter().map(|number| (number, None)).collect();
    let mut report = RemovalReport::default();
    let bar = Bar::new(context, "removing snapshots");
    let removed = remove(&picked.history, &numbers, docker.as_ref(), &*bar, &mut report);
    bar.finish();
    removed?;
    if args.json {
        context.json(&report)?;
    } else {
        print_removed(&report, context)?;
    }
    report.problems.iter().for_each(|problem| context.warn(problem));
    Ok(u8::from(!report.problems.is_empty()))
}
