//! `nono fork show`: one fork.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use jiff::{Timestamp, Zoned};
use serde::Serialize;

use super::ForkChanges;
use super::list::processes_in;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::render::{Palette, absolute_time, byte_size, change_line};
use crate::cli::repositories::Told;
use nono_engine::diff::Change;
use nono_engine::fork::NotTaken;
use nono_engine::path_text::serde_paths;
use nono_engine::snapshot::NotCaptured;

/// Arguments of `nono fork show`.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The fork
    #[arg(value_name = "NAME")]
    name: String,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    session_id: &'a str,
    from: &'a str,
    created: Timestamp,
    #[serde(with = "serde_paths")]
    tracked_paths: Vec<PathBuf>,
    /// Directories that are in the fork as they are on the disk, below layers of their own.
    #[serde(with = "serde_paths")]
    live_paths: Vec<PathBuf>,
    processes: Vec<i32>,
    bytes: u64,
    changes: Vec<Change>,
    #[serde(with = "serde_paths")]
    touched: Vec<PathBuf>,
    not_captured: &'a [NotCaptured],
    not_taken: &'a [NotTaken],
}

pub(super) fn run(args: &ShowArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let fork = super::found(&args.name, store)?;
    let objects = super::objects(&fork)?;
    let state = super::state(&fork, &objects, context)?;
    let changed = ForkChanges::of(&state)?;
    let document = fork.document();
    let tracked_paths: Vec<PathBuf> = fork.recorded_paths().cloned().collect();
    let processes = processes_in(&fork);
    let bytes = fork.disk_bytes()?;
    if args.json {
        context.json(&Report {
            name: fork.name(),
            session_id: &document.session,
            from: &document.from,
            created: document.created,
            live_paths: fork.live_paths().cloned().collect(),
            tracked_paths,
            processes,
            bytes,
            changes: changed.changes,
            touched: changed.touched,
            not_captured: &state.manifest().not_captured,
            not_taken: state.not_taken(),
        })?;
        return Ok(u8::from(!state.not_taken().is_empty()));
    }
    let palette = Palette::coloured();
    let mut out = context.out();
    writeln!(out, "fork {}: {}", fork.name(), super::projects(&fork))?;
    writeln!(out, "from       {}", document.from)?;
    writeln!(out, "session    {}", document.session)?;
    writeln!(out, "made       {}", absolute_time(document.created, &Zoned::now()))?;
    writeln!(out, "processes  {}", processes.len())?;
    writeln!(out, "bytes      {}", byte_size(bytes))?;
    writeln!(out, "changes    {}", changed.summary(&palette))?;
    for line in changed.repositories.said(Told::Done) {
        writeln!(out, "{line}")?;
    }
    for change in changed.repositories.outside(&changed.changes) {
        writeln!(out, "{}", change_line(change, &tracked_paths, &palette))?;
    }
    drop(out);
    super::name_not_taken(state.not_taken(), context);
    super::say_what_it_lacks(&fork, context)?;
    Ok(u8::from(!state.not_taken().is_empty()))
}
