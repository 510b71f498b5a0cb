//! `nono remote list`: the remotes that have a name.

use std::io::Write;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::surroundings;
use crate::cli::context::{BOLD, Context};
use crate::cli::sealing::{encryption_words, refuse_private_keys};
use crate::config;
use nono_engine::path_text::Shown;

/// Arguments of `nono remote list`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

pub(in crate::cli) fn run(args: &ListArgs, context: &Context) -> Outcome {
    let remotes = config::remotes(&surroundings()?)?;
    remotes.iter().try_for_each(|remote| refuse_private_keys(&remote.encryption))?;
    if args.json {
        context.json(&remotes)?;
        return Ok(0);
    }
    let mut out = context.out();
    for remote in &remotes {
        let url = Shown::bytes(remote.url.as_bytes());
        let words = encryption_words(&remote.encryption);
        writeln!(out, "{BOLD}{}{BOLD:#}  {url}  ({words})", remote.name)?;
    }
    if remotes.is_empty() {
        context.say("there are no remotes; `nono remote add NAME URL` makes one");
    }
    Ok(0)
}
