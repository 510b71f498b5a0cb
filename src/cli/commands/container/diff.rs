//! `nono container diff`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::cli::Outcome;
use crate::cli::context::{BOLD, Context};
use crate::cli::error::CliError;
use crate::cli::render::{Palette, change_line};
use crate::container::{ContainerHistory, ContainerRecord, RECORD_PATH};
use crate::diff::{Change, Comparison, compare};
use crate::path_text::Shown;
use crate::snapshot::NotCapturedSet;

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

#[derive(Debug, Serialize)]
struct Report {
    older: String,
    newer: String,
    /// Fields of the configuration that differ.
    configuration: Vec<FieldChange>,
    /// Paths in `/volumes` and `/changes`.
    changes: Vec<Change>,
}

#[derive(Debug, Serialize)]
struct FieldChange {
    field: String,
    older: Value,
    newer: Value,
}

pub(super) fn run(args: &DiffArgs, root: &Path, context: &Context) -> Outcome {
    let older = ContainerHistory::find(root, &args.older)?;
    let newer = match &args.newer {
        Some(newer) => ContainerHistory::find(root, newer)?,
        None => ContainerHistory::find(root, &older.history.id())?,
    };
    let (old, new) = (older.history.manifest(older.number)?, newer.history.manifest(newer.number)?);
    let differences = compare(newer.history.store(), &old.merkle_root, &new.merkle_root)?;
    let comparison =
        Comparison::of(&differences, &NotCapturedSet::new(&old), &NotCapturedSet::new(&new));
    let mut changes = comparison.changes;
    changes.retain(|change| change.path != Path::new(RECORD_PATH));
    let (old, new) = (older.history.record(older.number)?, newer.history.record(newer.number)?);
    let report = Report {
        older: format!("{}/{}", older.history.id(), older.number),
        newer: format!("{}/{}", newer.history.id(), newer.number),
        configuration: configuration(&old, &new)?,
        changes,
    };
    if args.json {
        context.json(&report)?;
    } else {
        context.page();
        print(&report, context)?;
    }
    Ok(0)
}

/// The fields that describe the container, by name; not those of the snapshot.
fn fields(record: &ContainerRecord) -> Result<BTreeMap<String, Value>, CliError> {
    let mut all = BTreeMap::new();
    for (prefix, value) in [
        ("", serde_json::to_value(&record.config)?),
        ("HostConfig.", serde_json::to_value(&record.host_config)?),
    ] {
        if let Value::Object(fields) = value {
            all.extend(fields.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value)));
        }
    }
    all.insert("Name".to_owned(), record.name.clone().into());
    all.insert("Networks".to_owned(), serde_json::to_value(&record.networks)?);
    all.insert("Mounts".to_owned(), serde_json::to_value(&record.mounts)?);
    if let Some(files) = &record.changed_files {
        all.insert("DeletedFiles".to_owned(), serde_json::to_value(&files.deleted)?);
    }
    Ok(all)
}

fn configuration(
    old: &ContainerRecord,
    new: &ContainerRecord,
) -> Result<Vec<FieldChange>, CliError> {
    let (mut old, new) = (fields(old)?, fields(new)?);
    let mut changed = Vec::new();
    for (field, newer) in new {
        let older = old.remove(&field).unwrap_or(Value::Null);
        if older != newer {
            changed.push(FieldChange { field, older, newer });
        }
    }
    let gone = old.into_iter().filter(|(_, older)| !older.is_null());
    changed.extend(gone.map(|(field, older)| FieldChange { field, older, newer: Value::Null }));
    Ok(changed)
}

fn print(report: &Report, context: &Context) -> Result<(), CliError> {
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
