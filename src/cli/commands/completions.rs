//! `nono completions`: the script with which a shell asks for completions.

use std::io::Write;

use clap::Args;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::cli::Outcome;
use crate::cli::context::Context;
use crate::cli::error::CliError;

/// Says which shell asks.
pub(in crate::cli) const VARIABLE: &str = "NONO_COMPLETE";

/// Arguments of `nono completions`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(in crate::cli) fn run(args: &CompletionsArgs, context: &Context) -> Outcome {
    let (shell, mut script) = (args.shell.to_string(), Vec::new());
    let unknown = || CliError::usage(format!("nothing is known of the shell {shell}"));
    let completer = Shells::builtins().completer(&shell).map(|found| {
        // By its name: the installed program offers the words that it understands.
        found.write_registration(VARIABLE, "nono", "nono", "nono", &mut script)
    });
    completer.ok_or_else(unknown)??;
    let mut out = context.out_bytes();
    out.write_all(&script)?;
    out.flush()?;
    Ok(0)
}
