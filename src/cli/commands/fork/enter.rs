//! `nono fork enter`: a command in a fork.

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::forking::CommandArgs;

/// Arguments of `nono fork enter`.
#[derive(Debug, Args)]
pub(super) struct EnterArgs {
    /// The fork
    #[arg(value_name = "NAME")]
    name: String,
    /// Print a report of its end as one line of JSON, last on stderr
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    inside: CommandArgs,
}

pub(super) fn run(args: &EnterArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let fork = super::found(&args.name, store)?;
    let code = super::enter(&fork, &args.inside, store, context)?;
    match args.json {
        true => super::report_end(&fork, code, context)?,
        false => super::say_changes(&fork, context),
    }
    Ok(code)
}
