//! `nono cleanup --fork`, `--forks-older-than`: forks go, by name or by age.
//!
//! No other cleanup takes a fork: its layer holds work that nothing else has.

use std::io::Write;
use std::path::PathBuf;

use jiff::{Timestamp, Zoned};
use serde::Serialize;

use super::CleanupArgs;
use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, named_project};
use crate::cli::commands::fork::discard::{discard, to_remove};
use crate::cli::context::{Context, YELLOW};
use crate::cli::error::CliError;
use crate::cli::forking::forks_of;
use crate::cli::offer::NONO;
use crate::cli::render::{byte_size, relative_time};
use nono_engine::fork::Fork;
use nono_engine::path_text::serde_paths;

/// The forks that went, or would.
#[derive(Debug, Default, Serialize)]
struct Report {
    dry_run: bool,
    forks_removed: Vec<Removed>,
    forks_kept: Vec<Kept>,
    /// Bytes that their layers took.
    bytes_freed: u64,
}

#[derive(Debug, Serialize)]
struct Removed {
    name: String,
    session_id: String,
    #[serde(with = "serde_paths")]
    tracked_paths: Vec<PathBuf>,
    last_used: Timestamp,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Kept {
    name: String,
    /// Why, as a sentence for a person.
    reason: String,
}

pub(super) fn run(args: &CleanupArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let (chosen, is_complete) = choose(args, store, context)?;
    let mut report = Report { dry_run: args.dry_run, ..Report::default() };
    let is_asked = !args.dry_run && !args.yes && !chosen.is_empty();
    if is_asked {
        if !context.stdin_is_terminal || !context.stderr_is_terminal {
            return Err(CliError::usage("no terminal to ask whether these forks go")
                .with_hint("--yes removes them, --dry-run names them"));
        }
        for fork in &chosen {
            context.say(format_args!("would remove {}", line(&described(fork)?)));
        }
        let count = chosen.len();
        let forks = if count == 1 { "this fork" } else { "these forks" };
        if !context.confirm(&format!("remove {forks} with all that was changed in them?"))? {
            context.say("nothing was removed");
            return Ok(1);
        }
    }
    for fork in chosen {
        let removed = described(&fork)?;
        let gone = if args.dry_run { Ok(()) } else { discard(&fork) };
        match gone {
            Ok(()) => {
                report.bytes_freed = report.bytes_freed.saturating_add(removed.bytes);
                report.forks_removed.push(removed);
            }
            Err(error) => {
                report.forks_kept.push(Kept { name: removed.name, reason: error.to_string() });
            }
        }
    }
    if args.json {
        context.json(&report)?;
    } else {
        print(&report, context)?;
    }
    Ok(u8::from(!is_complete || !report.forks_kept.is_empty()))
}

/// The forks that the arguments mean, and whether all could be read.
fn choose(
    args: &CleanupArgs,
    store: &StoreArgs,
    context: &Context,
) -> Result<(Vec<Fork>, bool), CliError> {
    let forks = forks_of(store)?;
    let Some(oldest) = args.forks_older_than else {
        return Ok((to_remove(&args.fork, &forks)?, true));
    };
    let (mut chosen, mut is_complete) = (Vec::new(), true);
    for fork in forks.list()? {
        match fork.and_then(|fork| Ok((fork.last_used()?, fork))) {
            Ok((used, fork)) if used < oldest.begin => chosen.push(fork),
            Ok(_) => {}
            Err(error) => {
                is_complete = false;
                context.warn(format_args!("{error}; it is kept"));
            }
        }
    }
    Ok((chosen, is_complete))
}

fn described(fork: &Fork) -> Result<Removed, CliError> {
    Ok(Removed {
        name: fork.name().to_owned(),
        session_id: fork.document().session.clone(),
        tracked_paths: fork.recorded_paths().cloned().collect(),
        last_used: fork.last_used()?,
        bytes: fork.disk_bytes()?,
    })
}

fn line(fork: &Removed) -> String {
    let Removed { name, tracked_paths, last_used, bytes, .. } = fork;
    let (project, used) = (named_project(tracked_paths), relative_time(*last_used, &Zoned::now()));
    format!("fork {name}  {project}, {}, used {used}", byte_size(*bytes))
}

fn print(report: &Report, context: &Context) -> Result<(), CliError> {
    let mut out = context.out_done(report.dry_run);
    let verb = if report.dry_run { "would remove" } else { "removed" };
    for fork in &report.forks_removed {
        writeln!(out, "{verb} {}", line(fork))?;
    }
    for Kept { name, reason } in &report.forks_kept {
        if context.is_quiet() {
            context.fall_short(format_args!("kept fork {name}: {reason}"));
        }
        writeln!(out, "{YELLOW}kept{YELLOW:#} fork {name}: {reason}")?;
    }
    let verb = if report.dry_run { "would free" } else { "freed" };
    writeln!(out, "{verb} {} of layers", byte_size(report.bytes_freed))?;
    out.flush()?;
    if report.forks_removed.is_empty() && report.forks_kept.is_empty() {
        context.say(format_args!("no fork is that old; {NONO} forks lists them"));
    }
    Ok(())
}
