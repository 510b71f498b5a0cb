//! `nono archive`: snapshots in single files.

mod create;
mod import;
mod show;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::archive::{ArchiveReader, Identities};
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::path_text::Shown;
use crate::sys::Dir;

/// Longest file of keys, in bytes.
const MAX_KEY_BYTES: u64 = 1 << 20;

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

/// The keys of a reader.
#[derive(Debug, Args)]
pub(in crate::cli) struct KeyArgs {
    /// A file with keys that open the archive: of age-keygen, or a private ssh key (repeatable)
    #[arg(long, short, value_name = "FILE")]
    identity: Vec<PathBuf>,
    /// A file whose first line is the passphrase of the archive
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl KeyArgs {
    fn identities(&self) -> Result<Identities, CliError> {
        let mut identities = Identities::none();
        let of = |path: &Path, error| CliError::failed(format!("{}: {error}", Shown::path(path)));
        for path in &self.identity {
            identities.add_file(&text_of(path)?).map_err(|error| of(path, error))?;
        }
        if let Some(path) = &self.passphrase_file {
            identities.add_passphrase(&text_of(path)?).map_err(|error| of(path, error))?;
        }
        Ok(identities)
    }
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

/// The directory of a file, and its name there.
fn place(path: &Path) -> Result<(Dir, Vec<u8>), CliError> {
    use std::os::unix::ffi::OsStrExt;
    let name = path.file_name().ok_or_else(|| CliError::usage("a file has a name"))?;
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    Ok((Dir::open(dir)?, name.as_bytes().to_vec()))
}

/// A small text file.
fn text_of(path: &Path) -> Result<String, CliError> {
    let (dir, name) = place(path)?;
    let bytes = dir.read(&name, MAX_KEY_BYTES)?;
    String::from_utf8(bytes)
        .map_err(|_| CliError::failed(format!("{} is no text", Shown::path(path))))
}

/// Opens an archive: a file, or `-` for the standard input.
fn open(path: &Path) -> Result<Box<dyn Read>, CliError> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let (dir, name) = place(path)?;
    Ok(Box::new(dir.open_file(&name, false)?))
}

fn reader(path: &Path, keys: &Identities) -> Result<ArchiveReader<Box<dyn Read>>, CliError> {
    ArchiveReader::open(open(path)?, keys).map_err(|error| of_file(path, &error))
}

fn of_file(path: &Path, error: &crate::archive::ArchiveError) -> CliError {
    if error.is_cancelled() {
        return CliError::stopped("stopped");
    }
    CliError::failed(format!("{}: {error}", Shown::path(path)))
}
