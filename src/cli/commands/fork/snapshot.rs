//! `nono fork snapshot`: the state of a fork, recorded in its session.

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, ThreadArgs};
use crate::cli::commands;
use crate::cli::context::Context;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use nono_engine::fork::{ForkSnapshot, NotTaken};
use nono_engine::object::ContentHash;

/// Arguments of `nono fork snapshot`.
#[derive(Debug, Args)]
pub(super) struct SnapshotArgs {
    /// The fork
    #[arg(value_name = "NAME")]
    name: String,
    /// Call the snapshot this
    #[arg(long, short, value_name = "TEXT", value_parser = commands::label)]
    message: Option<String>,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    fork: &'a str,
    session_id: &'a str,
    number: u64,
    merkle_root: ContentHash,
    /// Whether it was recorded now; else the last snapshot is this state.
    is_new: bool,
    not_taken: &'a [NotTaken],
}

pub(super) fn run(args: &SnapshotArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let fork = super::found(&args.name, store)?;
    let bar = Bar::new(context, "recording the state of the fork");
    let taken = fork.snapshot(args.message.clone(), bar.clone(), args.threads.count(context)?);
    bar.finish();
    let ForkSnapshot { manifest, not_taken, is_new } = taken?;
    let (name, session_id) = (fork.name(), &*fork.document().session);
    let (number, merkle_root) = (manifest.number, manifest.merkle_root);
    if args.json {
        let not_taken = &not_taken;
        let fork = name;
        context.json(&Report { fork, session_id, number, merkle_root, is_new, not_taken })?;
        return Ok(u8::from(!not_taken.is_empty()));
    }
    super::name_not_taken(&not_taken, context);
    if is_new {
        context.say(format_args!("the state of fork {name} is snapshot {session_id}/{number}"));
        context.say(format_args!("  see it: {NONO} diff {session_id}/0 {session_id}/{number}"));
    } else {
        context.say(format_args!("fork {name} is as in snapshot {session_id}/{number}"));
    }
    Ok(u8::from(!not_taken.is_empty()))
}
