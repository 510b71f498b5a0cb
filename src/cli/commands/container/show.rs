//! `nono container show`.

use std::collections::BTreeMap;
use std::io::Write;

use clap::Args;
use jiff::Zoned;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::context::{BOLD, Context, DIM};
use crate::cli::error::CliError;
use crate::cli::render::{absolute_time, byte_size};
use nono_container::{ContainerHistory, ContainerRecord, LocalStorage, MountKind};
use nono_engine::counted::counted;
use nono_engine::object::ContentHash;
use nono_engine::path_text::Shown;
use nono_engine::snapshot::{ContainerSession, NotCaptured, Totals};

/// Arguments of `nono container show`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ShowArgs {
    /// A snapshot: ID, ID/N, NAME or NAME/N
    id: String,
    /// Print the whole record as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    session_id: String,
    snapshot: u64,
    record: ContainerRecord,
    #[serde(flatten)]
    totals: Totals,
    /// The tree of each volume, by its name below `/volumes`.
    volumes: BTreeMap<String, ContentHash>,
    not_captured_paths: Vec<NotCaptured>,
    session: ContainerSession,
}

pub(super) fn run(args: &ShowArgs, storage: &LocalStorage, context: &Context) -> Outcome {
    let picked = ContainerHistory::find(storage, &args.id)?;
    let (history, number) = (picked.history, picked.number);
    let manifest = history.manifest(number)?;
    let record = history.record(number)?;
    let mut volumes = BTreeMap::new();
    for name in record.volumes().filter_map(|mount| mount.tree.clone()) {
        let (_, tree) = history.volume(number, &name)?;
        volumes.insert(name, tree);
    }
    let report = Report {
        session_id: history.id(),
        snapshot: number,
        record,
        volumes,
        totals: manifest.totals,
        not_captured_paths: manifest.not_captured,
        session: history.container().clone(),
    };
    if args.json {
        context.json(&report)?;
    } else {
        context.page();
        print(&report, context)?;
    }
    Ok(0)
}

fn print(report: &Report, context: &Context) -> Result<(), CliError> {
    let mut out = context.out();
    let shown = |text: &str| Shown::bytes(text.as_bytes()).to_string();
    let Report { record, session_id, snapshot, totals, .. } = report;
    let name = shown(&record.name);
    writeln!(out, "{BOLD}{session_id}/{snapshot}{BOLD:#}  container {name}")?;
    let message = record.message.as_deref().map(super::super::quoted).unwrap_or_default();
    let (at, trigger) = (absolute_time(record.captured_at, &Zoned::now()), record.trigger.word());
    writeln!(out, "  taken     {at}, {trigger}{message}")?;
    if let Some(run) = &record.run_id {
        writeln!(out, "  run       {}", shown(run))?;
    }
    writeln!(out, "  image     {}", shown(&record.image.reference))?;
    if let Some(image) = &record.image.committed {
        writeln!(out, "  snapshot  {} ({})", image.reference, byte_size(image.size_bytes))?;
    }
    let words = |words: &Option<Vec<String>>| words.iter().flatten().cloned().collect::<Vec<_>>();
    let command = [words(&record.config.entrypoint), words(&record.config.cmd)].concat().join(" ");
    if !command.is_empty() {
        writeln!(out, "  command   {}", shown(&command))?;
    }
    for network in &record.networks {
        let aliases = network.endpoint.aliases.clone().unwrap_or_default().join(", ");
        let aliases = if aliases.is_empty() { aliases } else { format!(" as {aliases}") };
        writeln!(out, "  network   {}{}", shown(&network.name), shown(&aliases))?;
    }
    for mount in &record.mounts {
        let what = match mount.kind {
            MountKind::Volume => mount.volume.as_deref().unwrap_or("volume"),
            MountKind::Anonymous => "anonymous volume",
            MountKind::Bind => mount.source.as_deref().unwrap_or("bind mount"),
            MountKind::Tmpfs => "tmpfs",
            MountKind::Other => "mount",
        };
        writeln!(out, "  mount     {}  {}", shown(&mount.destination), shown(what))?;
    }
    if let Some(files) = &record.changed_files {
        let deleted = files.deleted.len();
        let changed = counted(files.changed_count, "path", "paths");
        writeln!(out, "  changed   {changed}, {deleted} deleted")?;
    }
    let files = counted(totals.file_count, "file", "files");
    writeln!(out, "  contents  {files}, {}", byte_size(totals.total_bytes))?;
    for gap in &record.not_captured {
        writeln!(out, "{DIM}  not captured: {}{DIM:#}", shown(gap))?;
    }
    for warning in &record.warnings {
        context.warn(shown(warning));
    }
    for done in report.session.restorations.iter().filter(|done| done.snapshot == *snapshot) {
        writeln!(
            out,
            "  restored  to {} at {}",
            shown(&done.name),
            absolute_time(done.at, &Zoned::now())
        )?;
    }
    Ok(())
}
