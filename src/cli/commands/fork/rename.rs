//! `nono fork rename`: another name for a fork.

use clap::Args;
use serde::Serialize;

use super::facts::Facts;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;

/// Arguments of `nono fork rename`.
#[derive(Debug, Args)]
pub(super) struct RenameArgs {
    /// The fork
    #[arg(value_name = "NAME")]
    name: String,
    /// Its new name
    #[arg(value_name = "NEW")]
    new: String,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    fork: Facts,
    /// Its name before.
    was: &'a str,
}

pub(super) fn run(args: &RenameArgs, store: &StoreArgs, context: &Context) -> Outcome {
    super::check_name(&args.new)?;
    let fork = super::found(&args.name, store)?;
    super::discard::refuse_in_use(&fork)?;
    let renamed = fork.rename(&args.new)?;
    if args.json {
        context.json(&Report { fork: Facts::of(&renamed), was: fork.name() })?;
    } else {
        context.say(format_args!("fork {} is called {} now", fork.name(), renamed.name()));
    }
    Ok(0)
}
