//! `nono container list`.

use std::io::Write;

use clap::Args;
use jiff::{Timestamp, Zoned};
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::context::{BOLD, Context, DIM};
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::render::{absolute_time, byte_size};
use nono_container::restore::unfinished;
use nono_container::{ContainerHistory, LocalStorage, SnapshotStorage, Trigger};
use nono_engine::counted::counted;
use nono_engine::path_text::Shown;
use nono_engine::snapshot::Restoration;

/// Arguments of `nono container list`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    /// Name or id of a container, or id of a session
    container: Option<String>,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct SessionReport {
    session_id: String,
    container: String,
    container_id: String,
    restored_from: Option<String>,
    pinned: bool,
    snapshots: Vec<SnapshotLine>,
    restorations: Vec<Restoration>,
    /// Whether a restore was interrupted, and waits for `nono container resume`.
    restore_interrupted: bool,
}

#[derive(Debug, Serialize)]
struct SnapshotLine {
    snapshot: u64,
    taken: Timestamp,
    /// `None`: the record is damaged.
    trigger: Option<Trigger>,
    run_id: Option<String>,
    message: Option<String>,
    /// Whether the container stood still; `None`: the record is damaged.
    is_consistent: Option<bool>,
    has_image: bool,
    volume_count: u64,
    file_count: u64,
    total_bytes: u64,
    bytes_written: u64,
}

pub(super) fn run(args: &ListArgs, storage: &LocalStorage, context: &Context) -> Outcome {
    let mut report = Vec::new();
    // A journal that cannot be read was told already.
    let waiting: Vec<_> =
        unfinished(storage)?.into_iter().flatten().map(|it| it.session_id).collect();
    for history in ContainerHistory::all(storage)? {
        let container = history.container();
        let is_wanted = args.container.as_deref().is_none_or(|wanted| {
            container.name == wanted
                || history.id() == wanted
                || (wanted.len() >= 12 && container.container_id.starts_with(wanted))
        });
        // A snapshot that was cut off leaves a session without any.
        let session = if is_wanted { Some(session(&history, &waiting)?) } else { None };
        report.extend(session.filter(|session| !session.snapshots.is_empty()));
    }
    if let (Some(wanted), true) = (&args.container, report.is_empty()) {
        let wanted = Shown::bytes(wanted.as_bytes());
        return Err(CliError::failed(format!("there is no snapshot of a container {wanted}"))
            .with_hint(format!("`{NONO} container list` shows all snapshots")));
    }
    if args.json {
        context.json(&report)?;
    } else {
        context.page();
        print(&report, context)?;
    }
    let damaged = storage.damaged()?;
    damaged.iter().for_each(|damaged| context.warn(damaged));
    Ok(u8::from(!damaged.is_empty()))
}

fn session(history: &ContainerHistory<'_>, waiting: &[String]) -> Result<SessionReport, CliError> {
    let mut snapshots = Vec::new();
    for number in history.numbers()? {
        let manifest = history.manifest(number)?;
        let record = history.record(number).ok();
        let totals = manifest.totals;
        snapshots.push(SnapshotLine {
            snapshot: number,
            taken: manifest.timestamp,
            trigger: record.as_ref().map(|record| record.trigger),
            run_id: record.as_ref().and_then(|record| record.run_id.clone()),
            message: manifest.label,
            is_consistent: record.as_ref().map(|record| record.is_consistent),
            has_image: record.as_ref().is_some_and(|record| record.image.committed.is_some()),
            volume_count: record.as_ref().map_or(0, |record| record.volumes().count() as u64),
            file_count: totals.file_count,
            total_bytes: totals.total_bytes,
            bytes_written: totals.bytes_written,
        });
    }
    let container = history.container();
    Ok(SessionReport {
        session_id: history.id(),
        container: container.name.clone(),
        container_id: container.container_id.clone(),
        restored_from: container.restored_from.clone(),
        pinned: history.is_pinned(),
        snapshots,
        restorations: container.restorations.clone(),
        restore_interrupted: waiting.contains(&history.id()),
    })
}

fn print(report: &[SessionReport], context: &Context) -> Result<(), CliError> {
    let mut out = context.out();
    if report.is_empty() {
        context.say(format_args!("no snapshots of containers yet: {NONO} container snapshot NAME"));
    }
    for session in report {
        let name = Shown::bytes(session.container.as_bytes()).to_string();
        let from = session.restored_from.as_ref().map(|from| format!("  from {from}"));
        let from = from.unwrap_or_default();
        writeln!(out, "{BOLD}{name}{BOLD:#}  {}{from}", session.session_id)?;
        for line in &session.snapshots {
            let trigger = line.trigger.map_or("damaged", Trigger::word);
            let message = line.message.as_deref().map(super::super::quoted).unwrap_or_default();
            let mark = if line.is_consistent == Some(false) { "  inconsistent" } else { "" };
            writeln!(
                out,
                "  {:>3}  {}  {trigger}  {}, {}{mark}{message}",
                line.snapshot,
                absolute_time(line.taken, &Zoned::now()),
                counted(line.volume_count, "volume", "volumes"),
                byte_size(line.total_bytes),
            )?;
        }
        if session.restore_interrupted {
            let id = &session.session_id;
            writeln!(out, "  interrupted restore  (to finish it: {NONO} container resume {id})")?;
        }
        for done in &session.restorations {
            let name = Shown::bytes(done.name.as_bytes()).to_string();
            let at = absolute_time(done.at, &Zoned::now());
            writeln!(out, "{DIM}  {} was restored to {name} at {at}{DIM:#}", done.snapshot)?;
        }
    }
    Ok(())
}
