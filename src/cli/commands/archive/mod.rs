//! `nono archive`: snapshots in single files.

mod create;
mod import;
mod show;

pub(in crate::cli::commands) use create::because;
pub(in crate::cli::commands) use import::{import_files, tell_imported};
use std::io::{self, Read};
use std::path::Path;

use clap::Subcommand;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use nono_archive::{ArchiveReader, Identities};
use nono_engine::path_text::Shown;
use nono_engine::sys;

/// Subcommands of `nono archive`.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ArchiveCommand {
    /// Write a snapshot into one file
    Create(create::CreateArgs),
    /// Say what an archive holds
    Show(show::ShowArgs),
    /// Read an archive to its end, and check every byte
    Verify(show::ShowArgs),
    /// Make sessions of archives
    Import(import::ImportArgs),
}

pub(in crate::cli) fn run(
    command: &ArchiveCommand,
    store: &StoreArgs,
    context: &Context,
) -> Outcome {
    match command {
        ArchiveCommand::Create(args) => create::run(args, store, context),
        ArchiveCommand::Show(args) => show::show(args, context),
        ArchiveCommand::Verify(args) => show::verify(args, context),
        ArchiveCommand::Import(args) => import::run(args, store, context),
    }
}

/// Opens an archive: a file, or `-` for the standard input.
fn open(path: &Path) -> Result<Box<dyn Read>, CliError> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(sys::open_named(path)?))
}

fn reader(path: &Path, keys: &Identities) -> Result<ArchiveReader<Box<dyn Read>>, CliError> {
    ArchiveReader::open(open(path)?, keys).map_err(|error| of_file(path, &error))
}

fn of_file(path: &Path, error: &nono_archive::ArchiveError) -> CliError {
    if error.is_cancelled() {
        return CliError::stopped("stopped");
    }
    CliError::failed(format!("{}: {error}", Shown::path(path)))
}
