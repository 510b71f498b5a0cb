//! Arguments that several commands share, and the tree of commands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::commands;
use super::error::CliError;
use super::preflight;
use crate::session::Catalog;
use crate::snapshot::Budget;
use crate::walk::ExclusionConfig;

/// Undo for AI agents, and for anything else that changes many files.
///
/// `nono run --rollback -- CMD` records the state of your files before and after a command.
/// `nono mount` shows all recorded states as read-only folders, `nono rollback restore` brings one
/// back.
#[derive(Debug, Parser)]
#[command(name = "nono", version, propagate_version = true)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) store: StoreArgs,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a command, with --rollback recorded so that it can be undone
    Run(commands::run::RunArgs),
    /// What `run` starts for the command
    #[command(name = "__sandbox-exec", hide = true)]
    SandboxExec(commands::sandbox_exec::SandboxExecArgs),
    /// Record the current state of some paths
    Snapshot(commands::snapshot::SnapshotArgs),
    /// Show all recorded states as read-only folders
    #[cfg(feature = "mount")]
    Mount(commands::mount::MountArgs),
    /// Take a mount away
    #[cfg(feature = "mount")]
    Umount(commands::umount::UmountArgs),
    /// Check what this machine offers, and say what mends what is wrong
    Doctor(commands::doctor::DoctorArgs),
    /// Print what a shell needs to complete arguments
    Completions(commands::completions::CompletionsArgs),
    /// Write the manual as man pages
    Man(commands::completions::ManArgs),
    /// Look at recorded sessions, undo them, prove them, remove them
    #[command(alias = "undo")]
    Rollback {
        #[command(subcommand)]
        command: Rollback,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Rollback {
    /// List recorded sessions
    List(commands::list::ListArgs),
    /// Show a session: its snapshots and what changed
    Show(commands::show::ShowArgs),
    /// Look through what a session changed, and take some or all of it back
    Review(commands::review::ReviewArgs),
    /// Compare two snapshots
    Diff(commands::diff::DiffArgs),
    /// Bring paths back to a snapshot
    Restore(commands::restore::RestoreArgs),
    /// Print one file of a snapshot
    Cat(commands::cat::CatArgs),
    /// Finish a restore that was interrupted, or take it back
    Resume(commands::resume::ResumeArgs),
    /// Check every manifest and every byte
    Verify(commands::verify::VerifyArgs),
    /// Remove sessions, and free the space that nobody needs
    Cleanup(commands::cleanup::CleanupArgs),
}

/// Where sessions are kept.
#[derive(Debug, Args)]
pub(super) struct StoreArgs {
    /// Directory that holds all sessions [default: ~/.nono/rollbacks]
    #[arg(long, global = true, env = "NONO_ROOT", value_name = "DIR")]
    pub(super) root: Option<PathBuf>,
}

impl StoreArgs {
    /// The store that is meant.
    pub(super) fn catalog(&self) -> Result<Catalog, CliError> {
        match &self.root {
            Some(root) if root.as_os_str().is_empty() => {
                Err(CliError::usage("--root (or NONO_ROOT) is empty"))
            }
            Some(root) => Ok(Catalog::new(root.clone(), [])),
            None => {
                let home = home_dir()?.join(".nono");
                // Where sessions were kept before.
                Ok(Catalog::new(home.join("rollbacks"), [home.join("undo")]))
            }
        }
    }
}

/// The home directory.
pub(super) fn home_dir() -> Result<PathBuf, CliError> {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    home.ok_or_else(|| {
        CliError::usage("the home directory is unknown: set HOME, or give --root DIR")
    })
}

/// What is captured, and how much of it.
#[derive(Debug, PartialEq, Eq, Args)]
pub(super) struct CaptureArgs {
    /// Leave out what matches: a name, a path (with a /), or a glob (repeatable)
    #[arg(long, value_name = "PATTERN")]
    pub(super) rollback_exclude: Vec<String>,
    /// Keep what matches, whatever excludes it (repeatable)
    #[arg(long, value_name = "PATTERN")]
    pub(super) rollback_include: Vec<String>,
    /// Leave nothing out: not .git, not build directories, not even what .gitignore names
    #[arg(long, conflicts_with = "rollback_exclude")]
    pub(super) rollback_all: bool,
    /// Most files, directories and links of one snapshot; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = Budget::default().max_entries)]
    pub(super) max_entries: u64,
    /// Most bytes of file contents of one snapshot; 0 is no limit
    #[arg(long, value_name = "BYTES", default_value_t = Budget::default().max_bytes)]
    pub(super) max_bytes: u64,
}

impl Default for CaptureArgs {
    fn default() -> Self {
        let Budget { max_entries, max_bytes } = Budget::default();
        Self {
            rollback_exclude: Vec::new(),
            rollback_include: Vec::new(),
            rollback_all: false,
            max_entries,
            max_bytes,
        }
    }
}

impl CaptureArgs {
    pub(super) fn budget(&self) -> Budget {
        Budget { max_entries: self.max_entries, max_bytes: self.max_bytes }
    }

    pub(super) fn exclusion(&self) -> ExclusionConfig {
        let habits = preflight::default_patterns().filter(|_| !self.rollback_all);
        ExclusionConfig {
            use_gitignore: !self.rollback_all,
            exclude_patterns: self.rollback_exclude.iter().cloned().chain(habits).collect(),
            exclude_globs: Vec::new(),
            force_include: self.rollback_include.clone(),
        }
    }
}
