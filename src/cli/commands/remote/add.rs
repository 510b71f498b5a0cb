//! `nono remote add`: a place gets a name.

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::surroundings;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::sealing::{SealArgs, encryption_of};
use crate::config::{ConfigFile, NamedRemote, is_remote_name};
use nono_archive::remote::{Address, Place};
use nono_engine::path_text::Shown;

/// Arguments of `nono remote add`.
#[derive(Debug, Args)]
pub(in crate::cli) struct AddArgs {
    /// The name: a letter, then letters, digits, dots, - and _
    #[arg(value_name = "NAME")]
    name: String,
    /// The place: a directory, s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, az://CONTAINER/FOLDER
    #[arg(value_name = "URL")]
    url: String,
    /// Print the remote as JSON
    #[arg(long)]
    json: bool,
    // A heading is that of all that follows.
    #[command(flatten)]
    seal: SealArgs,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    remote: NamedRemote,
}

pub(in crate::cli) fn run(args: &AddArgs, context: &Context) -> Outcome {
    if !is_remote_name(&args.name) {
        return Err(CliError::usage(format!(
            "{} is no name of a remote: a letter, then letters, digits, - _ and .",
            Shown::bytes(args.name.as_bytes())
        )));
    }
    let address = Address::parse(&args.url)?;
    let Some(encryption) = args.seal.encryption()? else {
        return Err(args.seal.is_missing());
    };
    // Recipients and files are looked at now and not at the first push.
    encryption_of(&encryption)?;
    if let Address::Directory(_) = &address {
        Place::open(&address, true)?;
    }
    let remote = NamedRemote { name: args.name.clone(), url: address.to_string(), encryption };
    let file = ConfigFile::load(&surroundings()?)?;
    file.save(&file.with_remote(&remote)?)?;
    context.say(format_args!("remote {}: {}", remote.name, remote.url));
    context.say(format_args!("  send a session there: {NONO} push {}", remote.name));
    if args.json {
        context.json(&Report { remote })?;
    }
    Ok(0)
}
