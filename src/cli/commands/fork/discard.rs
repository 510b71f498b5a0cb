//! `nono fork discard`: forks go, with all that was changed in them.

use clap::Args;

use super::list::processes_in;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::processes::command_line;
use nono_engine::fork::{Fork, ForkError};
use nono_engine::path_text::Shown;

/// Arguments of `nono fork discard`.
#[derive(Debug, Args)]
pub(super) struct DiscardArgs {
    /// The forks
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

/// All are found before the first one goes.
pub(super) fn run(args: &DiscardArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let found = args.names.iter().map(|name| super::found(name, store));
    let forks = found.collect::<Result<Vec<_>, CliError>>()?;
    let mut is_complete = true;
    for fork in forks {
        match discard(&fork) {
            Ok(()) => context.say(format_args!("fork {} is discarded", fork.name())),
            Err(error) => {
                is_complete = false;
                context.error(&error);
            }
        }
    }
    Ok(u8::from(!is_complete))
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
