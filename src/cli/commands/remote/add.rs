//! `nono remote add`: a place gets a name, once it has answered.

use std::num::NonZeroU64;

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::surroundings;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::sealing::{SealArgs, encryption_of};
use crate::config::{ConfigFile, NamedRemote, is_remote_name, parse_byte_rate};
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
    /// Do not try the place: its disk may be away, or its server out of reach
    #[arg(long)]
    no_check: bool,
    /// Let no push send more than so many bytes in a second: 500K, 2M
    #[arg(long, value_name = "BYTES", value_parser = parse_byte_rate)]
    limit_upload: Option<NonZeroU64>,
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
    if !args.no_check {
        try_place(&address, context)?;
    }
    let (name, url) = (args.name.clone(), address.to_string());
    let remote = NamedRemote { name, url, encryption, limit_upload: args.limit_upload };
    let file = ConfigFile::load(&surroundings()?)?;
    file.save(&file.with_remote(&remote)?)?;
    context.say(format_args!("remote {}: {}", remote.name, remote.url));
    context.say(format_args!("  send a session there: {NONO} push {}", remote.name));
    if args.json {
        context.json(&Report { remote })?;
    }
    Ok(0)
}

/// Asks the place whether it can be used. A directory that is missing is made.
fn try_place(address: &Address, context: &Context) -> Result<(), CliError> {
    let bar = Bar::new(context, "trying the remote");
    let tried = Place::open(address, true).and_then(|place| place.probe(&*bar));
    bar.finish();
    tried.map_err(|error| match error.is_cancelled() {
        true => error.into(),
        false => CliError::failed(format!("{error}; no remote was added"))
            .with_hint("mend that, or add it all the same with --no-check"),
    })
}
