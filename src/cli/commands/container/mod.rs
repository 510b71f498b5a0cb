//! `nono container`: snapshots of containers with their volumes, and the way back.

mod restore;
mod resume;

use clap::Subcommand;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::container::ContainerError;
use crate::container::restore::RestoreError;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ContainerCommand {
    /// Make a container with the state of a snapshot
    Restore(restore::RestoreArgs),
    /// Finish a restore that was interrupted, or take it back
    Resume(resume::ResumeArgs),
}

pub(in crate::cli) fn run(
    command: &ContainerCommand,
    store: &StoreArgs,
    context: &Context,
) -> Outcome {
    match command {
        ContainerCommand::Restore(args) => restore::run(args, store, context),
        ContainerCommand::Resume(args) => resume::run(args, store, context),
    }
}

impl From<ContainerError> for CliError {
    fn from(error: ContainerError) -> Self {
        match error {
            ContainerError::Snapshot(error) => error.into(),
            ContainerError::Store(error) => error.into(),
            ContainerError::Manifest(error) => error.into(),
            ContainerError::Io(error) => error.into(),
            error @ ContainerError::Cancelled => Self::stopped(error.to_string()),
            error @ ContainerError::NoSuchHistory { .. } => Self::failed(error.to_string())
                .with_hint("`nono container list` shows all snapshots of containers"),
            error => Self::failed(error.to_string()),
        }
    }
}

impl From<RestoreError> for CliError {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::Container(error) => error.into(),
            RestoreError::File(error) => error.into(),
            error @ RestoreError::Cancelled => Self::stopped(error.to_string()),
            error => Self::failed(error.to_string()),
        }
    }
}
