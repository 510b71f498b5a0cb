//! `nono container stats`.

use std::io::Write;

use clap::Args;
use jiff::Zoned;

use crate::cli::Outcome;
use crate::cli::context::{BOLD, Context};
use crate::cli::render::{absolute_time, byte_size};
use nono_container::{LocalStorage, container_stats};
use nono_engine::counted::counted;
use nono_engine::path_text::Shown;

/// Arguments of `nono container stats`.
#[derive(Debug, Args)]
pub(in crate::cli) struct StatsArgs {
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &StatsArgs, storage: &LocalStorage, context: &Context) -> Outcome {
    let stats = container_stats(storage)?;
    if args.json {
        context.json(&stats)?;
        return Ok(0);
    }
    let mut out = context.out();
    for session in &stats.sessions {
        let name = Shown::bytes(session.container.as_bytes()).to_string();
        let newest =
            session.newest.map(|at| format!(", last {}", absolute_time(at, &Zoned::now())));
        writeln!(
            out,
            "{BOLD}{name}{BOLD:#}  {}  {}, {} in the store, {} of images{}",
            session.session_id,
            counted(session.snapshot_count, "snapshot", "snapshots"),
            byte_size(session.store_bytes),
            byte_size(session.image_bytes),
            newest.unwrap_or_default(),
        )?;
    }
    writeln!(
        out,
        "in all {} of {}: {} in the store, {} of images",
        counted(stats.snapshot_count, "snapshot", "snapshots"),
        counted(stats.container_count, "container", "containers"),
        byte_size(stats.store_bytes),
        byte_size(stats.image_bytes),
    )?;
    Ok(0)
}
