//! `nono archive create`: a snapshot becomes one file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::reader;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
#[cfg(feature = "ui")]
use crate::cli::args::real_home;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use crate::cli::sealing::{UnsealArgs, encryption_of, identities};
#[cfg(feature = "ui")]
use crate::cli::ui::{Exported, export};
use crate::config::RemoteEncryption;
use nono_archive::{ArchiveError, ArchivePlan, ArchiveReport, Encryption, FullReason, Parent};
use nono_engine::path_text::Shown;
use nono_engine::session::{Purpose, SnapshotId};
use nono_engine::sys::{self, Dir, FileKind, TempFile};

/// Permissions of an archive: for its owner alone.
const MODE: u16 = 0o600;

/// Arguments of `nono archive create`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CreateArgs {
    /// A snapshot; without /N it is the newest of the session
    #[arg(value_name = "ID[/N]")]
    id: SnapshotId,
    /// Write the archive here; - is the standard output, and a pipe or a device gets it, too
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Write only the difference to the snapshot in this archive
    #[arg(long, value_name = "FILE", conflicts_with = "full")]
    parent: Option<PathBuf>,
    /// Replace a file that is there, unless it is the parent
    #[arg(long)]
    force: bool,
    /// Write everything
    #[arg(long)]
    full: bool,
    /// Encrypt for the owner of a key: age1… or a public ssh key (repeatable)
    #[arg(long, short, value_name = "KEY")]
    recipient: Vec<String>,
    /// Encrypt with the passphrase in the first line of this file; with --recipient it only opens
    /// the parent
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// A file with keys that open the parent (repeatable)
    #[arg(long, short, value_name = "FILE", requires = "parent")]
    identity: Vec<PathBuf>,
    /// Also write the session as a page into this directory; the page is not encrypted
    #[cfg(feature = "ui")]
    #[arg(long, value_name = "DIR")]
    page: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(in crate::cli) fn run(args: &CreateArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let (session, number) = store.catalog()?.find_snapshot_from(&args.id, Purpose::Looking)?;
    let newest = || session.snapshot_numbers().map(|all| all.last().copied().unwrap_or(0));
    let number = match number {
        Some(number) => number,
        None => newest().map_err(|error| CliError::failed(error.to_string()))?,
    };
    let is_stdout = args.output == Path::new("-");
    if is_stdout && (args.json || context.stdout_is_terminal) {
        return Err(CliError::usage("the archive itself goes to the standard output"));
    }
    let encryption = match (&*args.recipient, &args.passphrase_file) {
        ([], None) => Encryption::None,
        ([], Some(path)) => encryption_of(&RemoteEncryption::PassphraseFile(path.clone()))?,
        (keys, _) => encryption_of(&RemoteEncryption::Recipients(keys.to_vec()))?,
    };
    let parent = match &args.parent {
        Some(path) => Ok(parent(args, path)?),
        None if args.full => Err(FullReason::Asked),
        None => Err(FullReason::NoParent),
    };
    let output = if is_stdout { None } else { Some(Output::find(args)?) };
    let bar = Bar::new(context, "archiving");
    let written = (|| {
        let plan = ArchivePlan::new(&session, number, parent, &*bar)?;
        match &output {
            None => plan.write(&encryption, context.out_bytes(), &*bar),
            Some(output) => output.write(|file| plan.write(&encryption, file, &*bar)),
        }
    })();
    bar.finish();
    let report = written?;
    if args.json {
        context.json(&report)?;
    } else {
        tell(&report, context);
    }
    #[cfg(feature = "ui")]
    if let Some(page) = &args.page {
        let page = sys::plain_absolute(page, &sys::current_dir()?);
        let Exported { path, bytes } = export(&session, &page, &[], store.catalog()?, real_home())?;
        context.say(format_args!("page: {} ({})", Shown::path(&path), byte_size(bytes)));
        if report.is_encrypted {
            context.warn("the page is not encrypted, as the archive is");
        }
    }
    Ok(0)
}

/// Where an archive goes.
enum Output {
    /// A name that is free. It appears when the archive is complete.
    New { dir: Dir, name: Vec<u8> },
    /// A file that the archive replaces when it is complete.
    Replaced { dir: Dir, name: Vec<u8> },
    /// A pipe or a device.
    Stream(File),
}

impl Output {
    fn find(args: &CreateArgs) -> Result<Self, CliError> {
        let path = &args.output;
        let (dir, name) = place(path)?;
        let Some(stat) = dir.try_stat(&name)? else { return Ok(Self::New { dir, name }) };
        match stat.kind {
            FileKind::Fifo | FileKind::CharDevice => Ok(Self::Stream(sys::open_to_write(path)?)),
            FileKind::File => {
                let parent = args.parent.as_ref().map(|parent| sys::open_named(parent));
                let parent = parent.transpose()?;
                let parent = parent.map(|file| sys::stat_open_file(&file, path)).transpose()?;
                if parent.is_some_and(|it| (it.dev, it.ino) == (stat.dev, stat.ino)) {
                    let message =
                        format!("{} is the parent, which the delta needs", Shown::path(path));
                    return Err(CliError::usage(message));
                }
                match args.force {
                    true => Ok(Self::Replaced { dir, name }),
                    false => {
                        Err(CliError::failed(format!("{} is there already", Shown::path(path)))
                            .with_hint("--force replaces it"))
                    }
                }
            }
            _ => Err(CliError::failed(format!(
                "{} is there already, and is no file, pipe or device",
                Shown::path(path)
            ))),
        }
    }

    /// Lets the archive appear, if `write` writes all of it.
    fn write(
        &self,
        write: impl FnOnce(&mut File) -> Result<ArchiveReport, ArchiveError>,
    ) -> Result<ArchiveReport, ArchiveError> {
        match self {
            Self::New { dir, name } => {
                let temp = TempFile::new(dir, MODE)?;
                let mut file = temp.file().try_clone().map_err(ArchiveError::Write)?;
                let report = write(&mut file)?;
                file.sync_all().map_err(ArchiveError::Write)?;
                if !temp.persist(dir, name)? {
                    return Err(ArchiveError::Write(io::ErrorKind::AlreadyExists.into()));
                }
                dir.sync()?;
                Ok(report)
            }
            Self::Replaced { dir, name } => {
                let mut outcome = Err(ArchiveError::Cancelled);
                let replaced = dir.replace_file_with(name, MODE, true, |file| {
                    outcome = write(file);
                    match &outcome {
                        Ok(_) => Ok(()),
                        Err(_) => Err(io::Error::other("the archive was not written")),
                    }
                });
                let report = outcome?;
                replaced?;
                Ok(report)
            }
            Self::Stream(file) => write(&mut file.try_clone().map_err(ArchiveError::Write)?),
        }
    }
}

/// The directory of a file, and its name there.
fn place(path: &Path) -> Result<(Dir, Vec<u8>), CliError> {
    let name = path.file_name().ok_or_else(|| CliError::usage("a file has a name"))?;
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    Ok((Dir::open(dir)?, name.as_encoded_bytes().to_vec()))
}

/// The facts in the archive of the parent.
fn parent(args: &CreateArgs, path: &Path) -> Result<Parent, CliError> {
    let CreateArgs { identity, passphrase_file, .. } = args;
    let keys = UnsealArgs { identity: identity.clone(), passphrase_file: passphrase_file.clone() };
    let open = reader(path, &identities(&keys, None)?)?;
    let head = open.head();
    Ok(Parent { id: head.id.clone(), base: head.base.clone(), depth: head.chain_depth })
}

/// The reason for a full archive, where a user might expect a delta.
pub(in crate::cli::commands) fn because(reason: FullReason) -> String {
    reason.words().map(|words| format!(", because {words}")).unwrap_or_default()
}

fn tell(report: &ArchiveReport, context: &Context) {
    let stats = report.stats;
    match (report.full, &report.parent) {
        (Some(reason), _) => {
            context.say(format_args!("{}: full archive{}", report.id, because(reason)));
        }
        (None, Some(parent)) => {
            context.say(format_args!("{}: delta to {parent}", report.id));
        }
        (None, None) => {}
    }
    context.say(format_args!(
        "  Changes: +{} added, ~{} modified, -{} removed, {} unchanged",
        stats.added, stats.modified, stats.removed, stats.unchanged
    ));
    if report.full.is_none() {
        context.say(format_args!("  Saved:   {} vs full snapshot", byte_size(stats.bytes_saved)));
    }
    let stored = if report.is_encrypted { "Encrypted & stored" } else { "Stored in plain text" };
    context.say(format_args!("  {stored} ({})", byte_size(report.archive_bytes)));
    if !report.is_encrypted {
        context.warn(
            "whoever has this file can read all of the project, secrets such as .env too \
             (--recipient or --passphrase-file encrypts)",
        );
    }
}
