//! `nono container diff`.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use crate::cli::Outcome;
use crate::cli::context::{BOLD, Context};
use crate::cli::error::CliError;
use crate::cli::render::{Palette, change_line};
use nono_container::{ContainerDiff, ContainerHistory, FieldChange, LocalStorage, compare};
use nono_engine::path_text::Shown;

/// Arguments of `nono container diff`.
#[derive(Debug, Args)]
pub(in crate::cli) struct DiffArgs {
    /// The older snapshot: ID/N or NAME/N
    older: String,
    /// The newer snapshot; without it, the latest of the same history
    newer: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DiffArgs, storage: &LocalStorage, context: &Context) -> Outcome {
    let older = ContainerHistory::find(storage, &args.older)?;
    let newer = match &args.newer {
        Some(newer) => ContainerHistory::find(storage, newer)?,
        None => ContainerHistory::find(storage, &older.history.id())?,
    };
    let report = compare(&older, &newer)?;
    if args.json {
        context.json(&report)?;
    } else {
        context.page();
        print(&report, context)?;
    }
    Ok(0)
}

fn print(report: &ContainerDiff, context: &Context) -> Result<(), CliError> {
    let mut out = context.out();
    let palette = Palette::plain();
    writeln!(out, "{BOLD}{} → {}{BOLD:#}", report.older, report.newer)?;
    for FieldChange { field, older, newer } in &report.configuration {
        let shown = |value: &Value| Shown::bytes(value.to_string().as_bytes()).to_string();
        writeln!(out, "  {field}: {} → {}", shown(older), shown(newer))?;
    }
    for change in &report.changes {
        writeln!(out, "  {}", change_line(change, &[], &palette))?;
    }
    if report.configuration.is_empty() && report.changes.is_empty() {
        context.say("the two snapshots hold the same state");
    }
    Ok(())
}
