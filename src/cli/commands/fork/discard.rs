//! `nono fork discard`: forks go, with all that was changed in them.

use std::collections::HashSet;

use clap::Args;
use serde::Serialize;

use super::facts::Facts;
use super::list::processes_in;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::forking::forks_of;
use crate::cli::processes::command_line;
use nono_engine::fork::{Fork, ForkError, Forks};
use nono_engine::path_text::Shown;

/// Arguments of `nono fork discard`.
#[derive(Debug, Args)]
pub(super) struct DiscardArgs {
    /// The forks
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    discarded: Vec<Facts>,
    left: Vec<Left>,
}

/// A fork that stays.
#[derive(Debug, Serialize)]
struct Left {
    #[serde(flatten)]
    fork: Facts,
    /// Why, as a sentence for a person.
    message: String,
}

/// All are found before the first one goes.
pub(super) fn run(args: &DiscardArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let forks = to_remove(&args.names, &forks_of(store)?)?;
    let mut report = Report::default();
    for fork in forks {
        let facts = Facts::of(&fork);
        match discard(&fork) {
            Ok(()) => {
                if !args.json {
                    context.say(format_args!("fork {} is discarded", fork.name()));
                }
                report.discarded.push(facts);
            }
            Err(error) => {
                context.error(&error);
                report.left.push(Left { fork: facts, message: error.to_string() });
            }
        }
    }
    if args.json {
        context.json(&report)?;
    }
    Ok(u8::from(!report.left.is_empty()))
}

/// The forks of some names, each once. All are found, or none.
///
/// # Errors
/// A name means no fork that may be removed from here.
pub(in crate::cli) fn to_remove(names: &[String], forks: &Forks) -> Result<Vec<Fork>, CliError> {
    let found = names.iter().map(|name| forks.find_to_remove(name));
    let mut found = found.collect::<Result<Vec<_>, ForkError>>()?;
    let mut seen = HashSet::new();
    found.retain(|fork| seen.insert(fork.document().session.clone()));
    Ok(found)
}

/// Discards a fork. Where a process is in it, that is named, and nothing waits for its end: its
/// work would be lost.
pub(in crate::cli) fn discard(fork: &Fork) -> Result<(), CliError> {
    refuse_in_use(fork)?;
    match fork.discard() {
        Err(error @ ForkError::InUse { .. }) => {
            refuse_in_use(fork)?;
            Err(error.into())
        }
        discarded => Ok(discarded?),
    }
}

/// Refuses a fork with a process in it, by name.
pub(super) fn refuse_in_use(fork: &Fork) -> Result<(), CliError> {
    let Some(pid) = processes_in(fork).first().copied() else { return Ok(()) };
    let error = ForkError::InUse { name: fork.name().to_owned() };
    let message = format!("{error} by process {pid} ({})", Shown::bytes(&command_line(pid)));
    Err(CliError::from(error).saying(message))
}
