//! `nono remote remove`: a remote loses its name.

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::surroundings;
use crate::cli::context::Context;
use crate::config::{self, ConfigFile};

/// Arguments of `nono remote remove`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RemoveArgs {
    /// The name
    #[arg(value_name = "NAME")]
    name: String,
}

pub(in crate::cli) fn run(args: &RemoveArgs, context: &Context) -> Outcome {
    let surroundings = surroundings()?;
    let remote = config::remote(&surroundings, &args.name)?;
    let file = ConfigFile::load(&surroundings)?;
    if let Some(text) = file.without_remote(&args.name)? {
        file.save(&text)?;
    }
    context.say(format_args!("{} has no name any more; its archives stay", remote.url));
    Ok(0)
}
