//! `nono watch`: a project is recorded without being asked.

mod install;
mod status;
mod stop;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

pub(super) use self::status::{watchers_of, write_troubles};
use crate::agent::project_of;
use crate::cli::Outcome;
use crate::cli::args::{CaptureArgs, StoreArgs, ThreadArgs, home_dir, surroundings};
use crate::cli::background;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::render::{Palette, summary_line};
use crate::cli::signals::{self, Taken};
use crate::config::Settings;
use crate::watch::{Happening, WatchRequest, Watcher, WatcherError};
use nono_engine::counted::counted;
use nono_engine::path_text::{Shown, serde_paths};
use nono_engine::session::RecordRequest;
use nono_engine::snapshot::SessionOrigin;
use nono_engine::sys;

/// Arguments of `nono watch`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct WatchCommand {
    #[command(subcommand)]
    command: Option<WatchAction>,
    #[command(flatten)]
    begin: BeginArgs,
}

#[derive(Debug, Subcommand)]
enum WatchAction {
    /// Show the watchers of this store, and what they do
    Status(status::StatusArgs),
    /// End a watcher, after a last step
    Stop(stop::StopArgs),
    /// Write a unit of systemd that begins a watcher with your session
    Install(install::InstallArgs),
}

/// Arguments of `nono watch PATH…`.
#[derive(Debug, Args)]
struct BeginArgs {
    /// Directories to watch [default: the work tree of git around the current directory, else that]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Go to the background
    #[arg(long)]
    detach: bool,
    /// Most watches of the kernel for each PATH; without enough of them, the watcher looks at
    /// everything from time to time
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    max_watches: usize,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    capture: CaptureArgs,
}

/// A watcher that has begun.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    #[serde(with = "serde_paths")]
    paths: Vec<PathBuf>,
    session_id: String,
    pid: u32,
    directories: u64,
    gap: Option<String>,
}

pub(in crate::cli) fn run(args: &WatchCommand, store: &StoreArgs, context: &Context) -> Outcome {
    match &args.command {
        None => watch(&args.begin, store, context),
        Some(WatchAction::Status(args)) => status::run(args, store, context),
        Some(WatchAction::Stop(args)) => stop::run(args, store, context),
        Some(WatchAction::Install(args)) => install::run(args, store, context),
    }
}

fn watch(args: &BeginArgs, store: &StoreArgs, context: &Context) -> Outcome {
    if background::is_background() {
        return match begin(args, store).and_then(|it| background::detach().map(|()| it)) {
            Ok(watcher) => {
                let announce = |report: &Report| {
                    background::announce_ready(report);
                    Ok(())
                };
                serve(watcher, announce, context)
            }
            Err(error) => {
                background::announce_failure(&error);
                Ok(error.exit_code())
            }
        };
    }
    if args.detach {
        let report: Report = background::start()?;
        say(&report, args.json, context)?;
        if !args.json {
            context.say(format_args!("see it: {NONO} watch status; end it: {NONO} watch stop"));
        }
        return Ok(0);
    }
    let watcher = begin(args, store)?;
    let announce = |report: &Report| {
        say(report, args.json, context)?;
        context.say("Ctrl-C ends it");
        Ok(())
    };
    serve(watcher, announce, context)
}

fn begin(args: &BeginArgs, store: &StoreArgs) -> Result<Watcher, CliError> {
    let catalog = store.catalog()?;
    let settings = Settings::load(&surroundings()?, &args.threads.flags(args.capture.flags()))?;
    let record = RecordRequest {
        root: sys::plain_absolute(catalog.root(), &sys::current_dir()?),
        command: Vec::new(),
        tracked_paths: watched_paths(&args.paths)?,
        exclusion: args.capture.exclusion(&settings, None)?,
        budget: settings.budget(),
        compression: settings.compression.value,
        threads: settings.threads(),
        origin: SessionOrigin::Watch,
        label: None,
    };
    Ok(Watcher::begin(WatchRequest { record, max_watches: args.max_watches })?)
}

/// The directories that are meant, without symlinks.
fn watched_paths(given: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    if !given.is_empty() {
        let real = given.iter().map(|path| real_path(path));
        let mut real = real.collect::<Result<Vec<_>, CliError>>()?;
        real.sort();
        real.dedup();
        return Ok(real);
    }
    let here = sys::current_dir()?;
    let project = project_of(&here, home_dir().ok().as_deref());
    project.map(|project| vec![project]).ok_or_else(|| {
        let shown = Shown::path(&here).to_string();
        CliError::usage(format!("{shown} is no project: a home directory, or one of the system"))
            .with_hint(format!("name the directory: {NONO} watch PATH"))
    })
}

/// A directory without symlinks. A single word that is none may be meant as a command.
fn real_path(path: &Path) -> Result<PathBuf, CliError> {
    sys::real_path(path).map_err(|error| {
        let is_word = error.is_gone() && path.components().count() == 1;
        let error = CliError::from(error);
        match is_word {
            true => error.with_hint(format!(
                "a watcher begins with {NONO} watch [PATH]; its commands are {NONO} watch status, \
                 stop and install"
            )),
            false => error,
        }
    })
}

fn report_of(watcher: &Watcher) -> Report {
    let facts = watcher.facts();
    Report {
        paths: facts.paths,
        session_id: facts.session_id,
        pid: facts.pid,
        directories: facts.directories,
        gap: facts.gap,
    }
}

fn say(report: &Report, json: bool, context: &Context) -> Result<(), CliError> {
    if json {
        return context.json(report);
    }
    let Report { session_id, .. } = report;
    let directories = counted(report.directories, "directory", "directories");
    let paths = shown_paths(&report.paths);
    context.say(format_args!("watching {paths}: {directories}, session {session_id}"));
    if let Some(gap) = &report.gap {
        context.warn(format_args!("{gap}: everything is looked at from time to time"));
    }
    Ok(())
}

fn shown_paths(paths: &[PathBuf]) -> String {
    let shown = |path: &PathBuf| Shown::path(path).to_string();
    paths.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// Signals are taken before the report, so whoever reads it can end the watcher at once.
fn serve(
    watcher: Watcher,
    announce: impl FnOnce(&Report) -> Result<(), CliError>,
    context: &Context,
) -> Outcome {
    let mut queue = signals::queue().map_err(signals::refused)?;
    let ends = [SIGINT, SIGTERM, SIGHUP];
    let _taken = Taken::queued(&ends, &queue).map_err(signals::refused)?;
    let (stopper, handle) = (watcher.stopper(), queue.handle());
    let stopping = sys::spawn("signals", move || {
        for _ in queue.forever() {
            stopper.stop();
        }
    });
    let stopping = stopping.map_err(signals::refused)?;
    let served = announce(&report_of(&watcher))
        .and_then(|()| Ok(watcher.serve(&|happening| tell(&happening, context))?));
    handle.close();
    let _ = stopping.join();
    served?;
    Ok(0)
}

fn tell(happening: &Happening, context: &Context) {
    match happening {
        Happening::Recorded { session_id, number, changes } => {
            let changes = summary_line(changes, &Palette::plain());
            context.say(format_args!("recorded {session_id}#{number}: {changes}"));
        }
        Happening::Lost(why) => {
            context.say(format_args!("events were lost ({why}): everything is looked at"));
        }
        Happening::Waits(what) => context.say(format_args!("waits for the end of {what}")),
        Happening::Failed(why) => context.warn(format_args!("no step was taken: {why}")),
    }
}

impl From<WatcherError> for CliError {
    fn from(error: WatcherError) -> Self {
        match error {
            WatcherError::Record(error) => error.into(),
            WatcherError::Snapshot(error) => error.into(),
            already @ WatcherError::WatchedAlready { .. } => {
                Self::failed(already.to_string()).with_hint(format!("see it: {NONO} watch status"))
            }
            other => Self::failed(other.to_string()),
        }
    }
}
