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

/// Discards a fork. Where a process is in it, that is named.
pub(super) fn discard(fork: &Fork) -> Result<(), CliError> {
    match fork.discard() {
        Err(error @ ForkError::InUse { .. }) => {
            let processes = processes_in(fork);
            let named = processes
                .first()
                .map(|pid| format!(" by process {pid} ({})", Shown::bytes(&command_line(*pid))));
            let message = format!("{error}{}", named.unwrap_or_default());
            Err(CliError::from(error).saying(message))
        }
        discarded => Ok(discarded?),
    }
}
