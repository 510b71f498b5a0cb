//! `nono fork show`: one fork.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use jiff::Zoned;
use serde::Serialize;

use super::ForkChanges;
use super::facts::Facts;
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
    #[serde(flatten)]
    fork: Facts,
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
            fork: Facts::of(&fork),
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
