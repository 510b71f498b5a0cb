//! `nono` alone, on a terminal: the timeline. Elsewhere, and where nothing is recorded, it is the
//! help.

use std::io::{IsTerminal, Write};

use clap::error::ErrorKind;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::timeline::{is_possible, look};

/// The name of the command, which no user types.
pub(in crate::cli) const NAME: &str = "__timeline";

/// Whether arguments without a command mean the timeline.
pub(in crate::cli) fn is_meant(error: &clap::Error) -> bool {
    let lacks_command = matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    );
    let streams = [
        std::io::stdin().is_terminal(),
        std::io::stdout().is_terminal(),
        std::io::stderr().is_terminal(),
    ];
    // `nono agent` without its command becomes no valid line, and keeps its help.
    lacks_command && streams == [true; 3]
}

/// Shows the timeline, or the help of the program.
pub(in crate::cli) fn run(
    store: &StoreArgs,
    mut program: clap::Command,
    context: &Context,
) -> Outcome {
    if !is_possible(context) {
        return Err(CliError::usage("the timeline needs a terminal"));
    }
    if look(store, context)? {
        return Ok(0);
    }
    let help = program.render_help();
    write!(context.out(), "{}", help.ansi())?;
    context.say("nothing is recorded yet: nono run COMMAND");
    Ok(0)
}
