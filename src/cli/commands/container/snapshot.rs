//! `nono container snapshot`.

use std::io::Write;

use clap::Args;

use super::watch::watcher;
use crate::cli::Outcome;
use crate::cli::args::{ThreadArgs, surroundings};
use crate::cli::context::{BOLD, Context, DIM};
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use crate::config::ContainerLimits;
use nono_container::{
    Docker, LocalStorage, RemovalReport, SnapshotOptions, SnapshotReport, Trigger, cleanup,
    take_snapshot,
};
use nono_engine::counted::counted;
use nono_engine::path_text::Shown;
use nono_engine::progress::NoProgress;
use nono_engine::snapshot::VolumeSource;

/// Arguments of `nono container snapshot`.
#[derive(Debug, Args)]
pub(in crate::cli) struct SnapshotArgs {
    /// Name or id of the container
    container: String,
    /// Say what the state is
    #[arg(short, long, value_name = "TEXT", value_parser = super::super::label)]
    message: Option<String>,
    /// Say on which occasion it is recorded
    #[arg(long, value_enum, default_value_t = Trigger::Manual, value_name = "OCCASION")]
    trigger: Trigger,
    /// Say to which run of an agent it belongs
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Let the container run meanwhile; its files may then be from different moments
    #[arg(long)]
    no_pause: bool,
    /// Make no image of the container's own files
    #[arg(long)]
    no_image: bool,
    /// Record no files that differ from the image
    #[arg(long)]
    no_files: bool,
    /// Read volumes through the engine, also where their directories can be read
    #[arg(long)]
    through_engine: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &SnapshotArgs, storage: &LocalStorage, context: &Context) -> Outcome {
    let threads = args.threads.count(context)?;
    let docker = Docker::connect()?;
    let options = SnapshotOptions {
        message: args.message.clone(),
        trigger: args.trigger,
        run_id: args.run_id.clone(),
        pauses: !args.no_pause,
        takes_image: !args.no_image,
        takes_files: !args.no_files,
        volume_source: args.through_engine.then_some(VolumeSource::Archive),
        watcher: watcher(storage)?,
        threads,
    };
    let bar = Bar::new(context, "recording the container");
    let taken = take_snapshot(&docker, storage, &args.container, &options, bar.clone());
    bar.finish();
    let report = taken?;
    if args.json {
        context.json(&report)?;
    } else {
        print(&report, context)?;
    }
    for warning in &report.warnings {
        context.warn(Shown::bytes(warning.as_bytes()));
    }
    for left in report.unreadable.iter().take(context.at_most(10)) {
        context.warn(format_args!("not captured: {}: {}", Shown::path(&left.path), left.reason));
    }
    keep_within_limits(storage, &docker, context);
    Ok(u8::from(!report.unreadable.is_empty()))
}

fn print(report: &SnapshotReport, context: &Context) -> Result<(), CliError> {
    let mut out = context.out_done(false);
    let SnapshotReport { session_id, snapshot, file_count, total_bytes, bytes_written, .. } =
        report;
    let name = Shown::bytes(report.container.as_bytes()).to_string();
    writeln!(out, "{BOLD}{session_id}/{snapshot}{BOLD:#}  container {name}")?;
    if let Some(image) = &report.image {
        writeln!(out, "  image    {} ({})", image.reference, byte_size(image.size_bytes))?;
    }
    writeln!(out, "  volumes  {}", report.volume_count)?;
    if let Some(changed) = report.changed_count {
        writeln!(out, "  changed  {}", counted(changed, "path", "paths"))?;
    }
    writeln!(
        out,
        "{DIM}  {}, {}, {} new{DIM:#}",
        counted(*file_count, "file", "files"),
        byte_size(*total_bytes),
        byte_size(*bytes_written)
    )?;
    Ok(out.flush()?)
}

/// A snapshot that was taken counts, whatever comes of the older ones.
fn keep_within_limits(storage: &LocalStorage, docker: &Docker, context: &Context) {
    let limits = surroundings().and_then(|found| Ok(ContainerLimits::load(&found)?));
    let cleaned = limits.and_then(|limits| {
        let policy = super::cleanup::policy(&limits);
        Ok(cleanup(storage, &policy, Some(docker), false, &NoProgress)?)
    });
    match cleaned {
        Ok(RemovalReport { removed, problems, .. }) => {
            for state in &removed {
                context.say(super::cleanup::removal_line(state, "removed"));
            }
            problems.iter().for_each(|problem| context.warn(problem));
        }
        Err(error) => context.warn(format_args!("no old container snapshot is removed: {error}")),
    }
}
