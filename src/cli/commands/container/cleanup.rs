//! `nono container cleanup`.

use std::io::Write;
use std::sync::Arc;

use clap::Args;
use jiff::SignedDuration;

use super::engine_if_any;
use super::restore::safety_snapshot;
use crate::cli::Outcome;
use crate::cli::args::surroundings;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::config::ContainerLimits;
use nono_container::restore::{CleanupReport, KeptOutcome, KeptReport, RestoreError, clean_all};
use nono_container::{
    ContainerPolicy, ImageRemoval, LocalStorage, RemovalReport, RemovedState, SnapshotExpiry,
    cleanup,
};
use nono_engine::path_text::Shown;

/// Arguments of `nono container cleanup`. A limit of 0 is none.
#[derive(Debug, Args)]
pub(in crate::cli) struct CleanupArgs {
    /// Greatest age of a snapshot in days
    #[arg(long, value_name = "N")]
    max_age_days: Option<u64>,
    /// Most snapshots of one container
    #[arg(long, value_name = "N")]
    max_per_container: Option<u64>,
    /// Most snapshots of all containers
    #[arg(long, value_name = "N")]
    max_snapshots: Option<u64>,
    /// Most gigabytes of all snapshots, images included
    #[arg(long, value_name = "N")]
    max_storage_gb: Option<f64>,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// The policy that the settings ask for.
pub(super) fn policy(limits: &ContainerLimits) -> ContainerPolicy {
    let limit = |value: u64| (value > 0).then_some(value);
    let days = limits.max_age_days.min(365 * 10_000) as i64;
    ContainerPolicy {
        max_age: (days > 0).then(|| SignedDuration::from_hours(days * 24)),
        max_per_container: limit(limits.max_per_container),
        max_snapshots: limit(limits.max_snapshots),
        max_bytes: limits.max_bytes(),
    }
}

pub(super) fn run(args: &CleanupArgs, storage: &LocalStorage, context: &Context) -> Outcome {
    let mut limits = ContainerLimits::load(&surroundings()?)?;
    limits.max_age_days = args.max_age_days.unwrap_or(limits.max_age_days);
    limits.max_per_container = args.max_per_container.unwrap_or(limits.max_per_container);
    limits.max_snapshots = args.max_snapshots.unwrap_or(limits.max_snapshots);
    limits.max_storage_gb = args.max_storage_gb.unwrap_or(limits.max_storage_gb);
    if !limits.max_storage_gb.is_finite() || limits.max_storage_gb < 0.0 {
        return Err(CliError::usage("--max-storage-gb is no size"));
    }
    let docker = engine_if_any(context);
    let policy = policy(&limits);
    let bar = Bar::new(context, "removing snapshots");
    let cleaned = match &docker {
        Some(docker) => {
            let message = "before its container was removed by a cleanup".to_owned();
            let safety = safety_snapshot(docker, storage, message, Arc::clone(&bar));
            clean_all(storage, &policy, docker, &safety, &*bar, args.dry_run)
        }
        None => cleanup(storage, &policy, None, args.dry_run, &*bar)
            .map(|removal| CleanupReport { removal, ..CleanupReport::default() })
            .map_err(RestoreError::from),
    };
    bar.finish();
    let cleaned = cleaned?;
    let CleanupReport { removal: report, kept_containers: kept, .. } = &cleaned;
    if args.json {
        context.json(&cleaned)?;
    } else {
        print_removed(report, context)?;
        kept.iter().try_for_each(|one| print_kept(one, args.dry_run, context))?;
    }
    report.problems.iter().for_each(|problem| context.warn(problem));
    let failed: Vec<_> = kept.iter().filter(|one| one.outcome == KeptOutcome::Failed).collect();
    for KeptReport { name, reason, .. } in &failed {
        let (name, reason) = (Shown::bytes(name.as_bytes()), Shown::bytes(reason.as_bytes()));
        context.warn(format_args!("container {name} was not removed: {reason}"));
    }
    Ok(u8::from(!report.problems.is_empty() || !failed.is_empty()))
}

fn print_kept(kept: &KeptReport, is_dry_run: bool, context: &Context) -> std::io::Result<()> {
    let name = Shown::bytes(kept.name.as_bytes());
    let verb = if is_dry_run { "would remove" } else { "removed" };
    let reason = &kept.reason;
    let mut out = context.out_done(is_dry_run);
    match (kept.outcome, &kept.snapshot) {
        (KeptOutcome::Removed, Some(snapshot)) => {
            writeln!(out, "{verb} container {name}: {reason}; {snapshot} has its last state")
        }
        (KeptOutcome::Removed, None) => {
            writeln!(out, "{verb} container {name}, after a snapshot of it: {reason}")
        }
        (KeptOutcome::InUse, _) => {
            context
                .say(format_args!("container {name} stays, and is not looked at again: {reason}"));
            Ok(())
        }
        (KeptOutcome::Young | KeptOutcome::Gone | KeptOutcome::Failed, _) => Ok(()),
    }
}

fn reason(reason: SnapshotExpiry) -> &'static str {
    match reason {
        SnapshotExpiry::TooOld => "too old (max_age_days)",
        SnapshotExpiry::TooManyForSafety => "too many that restores took for safety",
        SnapshotExpiry::TooManyOfContainer => "too many of its container (max_per_container)",
        SnapshotExpiry::TooMany => "too many in all (max_snapshots)",
        SnapshotExpiry::TooLarge => "they take too much space (max_storage_gb)",
    }
}

/// A snapshot that is gone, or would be: its id, its message, and the reason.
pub(super) fn removal_line(state: &RemovedState, verb: &str) -> String {
    let RemovedState { session_id, snapshot, message, .. } = state;
    let message = message.as_ref().map(|text| format!(" \"{}\"", Shown::bytes(text.as_bytes())));
    let why = state.reason.map(|why| format!(": {}", reason(why))).unwrap_or_default();
    let image = match state.image_removal {
        Some(ImageRemoval::InUse) => "; a container uses its image, which stays",
        Some(ImageRemoval::NotOurs) => "; its image is not one of ours, and stays",
        Some(ImageRemoval::Removed) => " and its image",
        Some(ImageRemoval::Missing) | None => "",
    };
    format!("{verb} {session_id}/{snapshot}{}{image}{why}", message.unwrap_or_default())
}

pub(super) fn print_removed(report: &RemovalReport, context: &Context) -> Result<(), CliError> {
    let mut out = context.out_done(report.dry_run);
    let verb = if report.dry_run { "would remove" } else { "removed" };
    for state in &report.removed {
        writeln!(out, "{}", removal_line(state, verb))?;
    }
    let is_of_state = |id: &&String| report.removed.iter().any(|state| state.session_id == **id);
    for id in report.sessions_removed.iter().filter(|id| !is_of_state(id)) {
        writeln!(out, "{verb} {id}: it has no snapshot")?;
    }
    for image in &report.stray_images_removed {
        writeln!(out, "{verb} image {image}: it has no snapshot")?;
    }
    for kept in &report.kept_containers_left {
        context.warn(format_args!(
            "container {}, which a restore put aside, stays: `docker rm --volumes` removes it",
            Shown::bytes(kept.as_bytes())
        ));
    }
    if !report.removed.is_empty() && !report.dry_run {
        context.say(format_args!("`{NONO} cleanup` frees the space in the store"));
    }
    Ok(out.flush()?)
}
