//! `nono container`: snapshots of containers, with their volumes and changed files, and the way
//! back.

mod cleanup;
mod delete;
mod diff;
mod list;
mod restore;
mod resume;
mod show;
mod snapshot;
mod stats;
mod validate;
pub(in crate::cli) mod watch;

use clap::Subcommand;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use nono_container::restore::{RestoreError, unfinished};
use nono_container::{ContainerError, Docker, LocalStorage, recover};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ContainerCommand {
    /// Record a container: its image, its configuration, its volumes, its changed files
    Snapshot(snapshot::SnapshotArgs),
    /// List snapshots of containers
    List(list::ListArgs),
    /// Show one snapshot
    Show(show::ShowArgs),
    /// Compare two snapshots: configuration, volumes, changed files
    Diff(diff::DiffArgs),
    /// Make a container with the state of a snapshot
    Restore(restore::RestoreArgs),
    /// Finish a restore that was interrupted, or take it back
    Resume(resume::ResumeArgs),
    /// Remove a snapshot, or the whole history of a container
    Delete(delete::DeleteArgs),
    /// Remove what is over a limit: snapshots, and containers that a restore put aside
    Cleanup(cleanup::CleanupArgs),
    /// Say how much space snapshots take
    Stats(stats::StatsArgs),
    /// Check that snapshots can be restored
    Validate(validate::ValidateArgs),
}

pub(in crate::cli) fn run(
    command: &ContainerCommand,
    store: &StoreArgs,
    context: &Context,
) -> Outcome {
    let storage = LocalStorage::new(store.catalog()?.root().to_owned());
    for left in recover(&storage)? {
        let name = nono_engine::path_text::Shown::bytes(left.name.as_bytes()).to_string();
        match left.problem {
            None => context.warn(format_args!(
                "container {name} was left paused by an interrupted nono, and goes on now"
            )),
            Some(problem) => context.warn(format_args!(
                "container {name} may be paused since nono was interrupted: {problem}"
            )),
        }
    }
    // The command that ends it tells its outcome itself.
    if !matches!(command, ContainerCommand::Resume(_)) {
        tell_unfinished(&storage, context)?;
    }
    match command {
        ContainerCommand::Snapshot(args) => snapshot::run(args, &storage, context),
        ContainerCommand::List(args) => list::run(args, &storage, context),
        ContainerCommand::Show(args) => show::run(args, &storage, context),
        ContainerCommand::Diff(args) => diff::run(args, &storage, context),
        ContainerCommand::Restore(args) => restore::run(args, &storage, context),
        ContainerCommand::Resume(args) => resume::run(args, &storage, context),
        ContainerCommand::Delete(args) => delete::run(args, &storage, context),
        ContainerCommand::Cleanup(args) => cleanup::run(args, &storage, context),
        ContainerCommand::Stats(args) => stats::run(args, &storage, context),
        ContainerCommand::Validate(args) => validate::run(args, &storage, context),
    }
}

fn tell_unfinished(storage: &LocalStorage, context: &Context) -> Result<(), CliError> {
    for waiting in unfinished(storage)? {
        match waiting {
            Ok(waiting) => context.warn(waiting),
            Err(error) => context.warn(error),
        }
    }
    Ok(())
}

/// The engine, where a command can do without.
fn engine_if_any(context: &Context) -> Option<Docker> {
    match Docker::connect() {
        Ok(docker) => Some(docker),
        Err(error) => {
            context.warn(format_args!("images are not looked at: {error}"));
            None
        }
    }
}

impl From<ContainerError> for CliError {
    fn from(error: ContainerError) -> Self {
        let failed = Self::failed(error.to_string());
        match error {
            ContainerError::NotTaken { cause, .. } => Self::from(*cause).saying(failed.to_string()),
            ContainerError::Snapshot(error) => error.into(),
            ContainerError::Store(error) => error.into(),
            ContainerError::Manifest(error) => error.into(),
            ContainerError::Io(error) => error.into(),
            ContainerError::Cancelled => Self::stopped(error.to_string()),
            ContainerError::NoDaemon { .. } => {
                failed.with_hint("start the engine, or name its socket in DOCKER_HOST")
            }
            ContainerError::BadEndpoint { .. } | ContainerError::Unreachable { .. } => {
                failed.with_hint("check that the engine runs; DOCKER_HOST names its socket")
            }
            ContainerError::NoSuchHistory { .. } | ContainerError::AmbiguousName { .. } => {
                failed.with_hint(format!("`{NONO} container list` shows all snapshots"))
            }
            ContainerError::NoSuchContainer { .. } => {
                failed.with_hint("`docker ps --all` shows all containers")
            }
            ContainerError::NotRemoved { .. } => failed.with_hint(format!(
                "`{NONO} unpin ID` releases a pinned session, and `{NONO} \
                     container resume ID` ends a restore"
            )),
            ContainerError::OtherSource { .. } => failed.with_hint(
                "earlier snapshots had other rights, or the container ran: a history keeps to \
                     one source of volumes",
            ),
            ContainerError::WrongState { .. } => {
                failed.with_hint("running, paused, stopped and created containers can be captured")
            }
            _ => failed,
        }
    }
}

impl From<RestoreError> for CliError {
    fn from(error: RestoreError) -> Self {
        let text = error.to_string();
        match error {
            RestoreError::Container(error) => error.into(),
            RestoreError::File(error) => error.into(),
            RestoreError::TakenBack { cause } | RestoreError::Volume { cause, .. } => {
                Self::from(*cause).saying(text)
            }
            error @ RestoreError::Cancelled => Self::stopped(error.to_string()),
            error => Self::failed(error.to_string()),
        }
    }
}
