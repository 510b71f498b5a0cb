//! `nono archive show` and `nono archive verify`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::{of_file, reader};
use crate::cli::Outcome;
use crate::cli::context::Context;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use crate::cli::sealing::{UnsealArgs, identities};
use nono_archive::{ArchiveHead, KnownStates};
use nono_engine::counted::counted;

/// Arguments of `nono archive show` and `nono archive verify`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ShowArgs {
    /// An archive; - is the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    // A heading is that of all that follows.
    #[command(flatten)]
    keys: UnsealArgs,
}

pub(in crate::cli) fn show(args: &ShowArgs, context: &Context) -> Outcome {
    let open = reader(&args.file, &identities(&args.keys, None)?)?;
    match args.json {
        true => context.json(open.head())?,
        false => tell(open.head(), context)?,
    }
    Ok(0)
}

pub(in crate::cli) fn verify(args: &ShowArgs, context: &Context) -> Outcome {
    let open = reader(&args.file, &identities(&args.keys, None)?)?;
    let bar = Bar::new(context, "verifying");
    let verified = open.verify(&mut KnownStates::default(), &*bar);
    bar.finish();
    let summary = verified.map_err(|error| of_file(&args.file, &error))?;
    if args.json {
        context.json(&summary)?;
        return Ok(0);
    }
    tell(&summary.head, context)?;
    // The first name of hard links has the contents.
    let stats = summary.head.stats;
    let links = (stats.added + stats.modified).saturating_sub(summary.file_count);
    let links = if links > 0 {
        format!(" and {}", counted(links, "hard link", "hard links"))
    } else {
        String::new()
    };
    let (files, bytes) =
        (counted(summary.file_count, "file", "files"), byte_size(summary.content_bytes));
    writeln!(context.out(), "intact: {files}{links}, {bytes}")?;
    if let (false, Some(parent)) = (summary.is_whole, &summary.head.parent) {
        context.say(format_args!(
            "the rest of the snapshot is in the archive of {parent}, which was not read: \
             `nono remote verify` reads both"
        ));
    }
    Ok(0)
}

fn tell(head: &ArchiveHead, context: &Context) -> std::io::Result<()> {
    let mut out = context.out();
    writeln!(out, "snapshot     {}", head.id)?;
    writeln!(out, "taken        {}", head.timestamp)?;
    match &head.parent {
        Some(parent) => writeln!(
            out,
            "archive      delta to {parent}, {} after the full one of {}",
            head.chain_depth, head.base
        )?,
        None => writeln!(out, "archive      full")?,
    }
    let stats = head.stats;
    writeln!(
        out,
        "files        {} (+{} ~{} -{})",
        stats.total_files, stats.added, stats.modified, stats.removed
    )?;
    writeln!(out, "encrypted    {}", if head.is_encrypted { "yes" } else { "no" })?;
    writeln!(out, "merkle root  {}", head.merkle_root)
}
