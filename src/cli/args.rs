//! Arguments that several commands share, and the tree of commands.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use super::commands;
use super::context::Context;
use super::error::CliError;
use super::keeper;
use super::output::{GLOBAL, OutputArgs};
use super::render::project_name;
use crate::config::{
    FlagSettings, KeepFlags, Origin, Profile, Settings, Surroundings, expand_patterns,
};
use nono_engine::session::Catalog;
use nono_engine::store::Compression;
use nono_engine::sys;
use nono_engine::walk::{ExclusionConfig, GitDirectories, Ignored};

/// Undo for AI agents, and for anything else that changes many files.
///
/// `nono run CMD` records the state of your files before and after a command. `nono undo` takes
/// back what the last one here did. `nono mount` shows all recorded states as read-only folders,
/// `nono restore` brings any of them back.
#[derive(Debug, Parser)]
#[command(name = "nono", version, propagate_version = true, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) store: StoreArgs,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Hidden commands: the program starts itself again for them.
#[derive(Debug, Subcommand)]
pub(super) enum Helper {
    /// The process between `run` and the command
    #[command(name = keeper::NAME, hide = true)]
    Keep(keeper::KeepArgs),
    /// The process that becomes the command
    #[command(name = "__sandbox-exec", hide = true)]
    SandboxExec(commands::sandbox_exec::SandboxExecArgs),
    /// The process that handles the events of hooks
    #[command(name = commands::hook::WORKER, hide = true)]
    HookWorker(commands::hook::WorkerArgs),
    /// The process beside `mount`
    #[cfg(feature = "mount")]
    #[command(name = commands::mount_guard::NAME, hide = true)]
    MountGuard(commands::mount_guard::MountGuardArgs),
    /// The process that holds the mounts of a fork
    #[cfg(feature = "mount")]
    #[command(name = super::forking::NAME, hide = true)]
    ForkHold(super::forking::HoldArgs),
    /// The process that undoes in the mounts of a fork
    #[cfg(feature = "mount")]
    #[command(name = commands::fork::undo::NAME, hide = true)]
    ForkUndo(commands::fork::undo::ForkUndoArgs),
    /// The process beside a paused container
    #[cfg(feature = "container")]
    #[command(name = commands::container::watch::NAME, hide = true)]
    ContainerWatch(commands::container::watch::WatchArgs),
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a command, recorded so that it can be undone
    ///
    /// The command writes only below its grants. Its directories are recorded before and after it.
    Run(commands::run::RunArgs),
    #[command(flatten)]
    Helper(Helper),
    /// Record the current state of some paths
    Snapshot(commands::snapshot::SnapshotArgs),
    /// Record what changes in a project, without being asked
    ///
    /// A watcher takes a step after each quiet moment, of whatever the user or another program
    /// changed.
    Watch(commands::watch::WatchCommand),
    /// Show all recorded states as read-only folders
    #[cfg(feature = "mount")]
    Mount(commands::mount::MountArgs),
    /// Take a mount away
    #[cfg(feature = "mount")]
    Umount(commands::umount::UmountArgs),
    /// Make a fork: a writable layer over a recorded state
    #[cfg(feature = "mount")]
    Fork(commands::fork::ForkCommand),
    /// List the forks
    #[cfg(feature = "mount")]
    Forks(commands::fork::list::ForksArgs),
    /// Run a command in a fork of its own, then keep or discard it
    #[cfg(feature = "mount")]
    Try(commands::fork::attempt::TryArgs),
    /// Find the recorded state at which a command began to fail
    #[cfg(feature = "mount")]
    Bisect(commands::bisect::BisectArgs),
    /// Record containers with their volumes, and bring them back
    #[cfg(feature = "container")]
    Container {
        #[command(subcommand)]
        command: commands::container::ContainerCommand,
    },
    /// Show every recorded version of a path, or what the sessions here did
    Log(commands::log::LogArgs),
    /// Say who wrote each line of a file: a step of an agent, a command, or you
    Blame(commands::blame::BlameArgs),
    /// Find a text in everything that is recorded, and say when it appeared and went
    Grep(commands::grep::GrepArgs),
    /// Show what changed in another program: meld, kdiff3, vimdiff, code
    Difftool(commands::difftool::DifftoolArgs),
    /// Print the facts of the store as lines of JSON, and follow them
    Events(commands::events::EventsArgs),
    /// Take over the sessions of the other nono, with their ids
    Import(commands::import::ImportArgs),
    /// Send sessions to a remote, as encrypted archives
    ///
    /// A remote is a directory or an object store.
    #[cfg(feature = "archive")]
    Push(commands::push::PushArgs),
    /// Fetch sessions from a remote
    #[cfg(feature = "archive")]
    Pull(commands::pull::PullArgs),
    /// Manage the places where archives lie
    #[cfg(feature = "archive")]
    Remote {
        #[command(subcommand)]
        command: commands::remote::RemoteCommand,
    },
    /// Write snapshots into single files, and read such files
    #[cfg(feature = "archive")]
    Archive {
        #[command(subcommand)]
        command: commands::archive::ArchiveCommand,
    },
    /// Look at profiles: what a kind of command may do
    ///
    /// A profile has the grants of a kind of command, and the places that are recorded of it.
    Profile {
        #[command(subcommand)]
        command: commands::profile::ProfileCommand,
    },
    /// Look at settings and where they come from, and change them
    Config {
        #[command(subcommand)]
        command: commands::config::ConfigCommand,
    },
    /// Put hooks into coding agents, so that each tool call can be undone
    Agent {
        #[command(subcommand)]
        command: commands::agent::AgentCommand,
    },
    /// Take a step at an event of a coding agent, which calls this
    ///
    /// `nono agent install` writes this command into the configuration of agents.
    Hook(commands::hook::HookArgs),
    /// Check what this machine offers, and say what mends the rest
    Doctor(commands::doctor::DoctorArgs),
    /// Print what a shell needs to complete arguments
    Completions(commands::completions::CompletionsArgs),
    /// Show a page of the manual, or install all of them for `man`
    Man(commands::man::ManArgs),
    /// Print the help of a command, or a page of the documentation
    Help(commands::help::HelpArgs),
    /// Serve the past of this project to a coding agent, as tools
    ///
    /// The protocol on stdin and stdout is the Model Context Protocol.
    #[cfg(feature = "mcp")]
    Mcp(commands::mcp::McpArgs),
    /// Undo what the last session here did, or a part of it
    Undo(commands::undo::UndoCommand),
    /// Take the last undo here back
    Redo(commands::redo::RedoArgs),
    /// The commands of `rollback` without that word
    #[command(flatten)]
    Short(Rollback),
    /// Show what an agent did: each tool call is a step
    Steps(commands::steps::StepsArgs),
    /// Show the last session here, what changed since, and what goes on
    Status(commands::status::StatusArgs),
    /// Open a local page that shows what was done, and takes it back
    ///
    /// The page is at 127.0.0.1, for this browser alone. It asks nothing of any other machine.
    #[cfg(feature = "ui")]
    Ui(commands::ui::UiArgs),
    /// Look through the sessions on a terminal: what `nono` alone does
    #[command(name = commands::timeline::NAME, hide = true)]
    Timeline,
    /// The older word before commands that also work without it
    Rollback {
        #[command(subcommand)]
        command: Rollback,
    },
}

impl Command {
    /// The same command by its one name: the subcommands of `undo` are those of `rollback`, and
    /// each of them is also a command by itself.
    pub(super) fn plain(self) -> Self {
        match self {
            Self::Undo(commands::undo::UndoCommand { command: Some(command), .. }) => {
                Self::Rollback { command }
            }
            Self::Short(command) => Self::Rollback { command },
            other => other,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Rollback {
    /// List recorded sessions
    List(commands::list::ListArgs),
    /// Show a session: its snapshots and what changed
    Show(commands::show::ShowArgs),
    /// Look through what a session changed, and take some of it back
    Review(commands::review::ReviewArgs),
    /// Compare two states: snapshots, or what is there now
    Diff(commands::diff::DiffArgs),
    /// Find paths in snapshots by a glob
    Find(commands::find::FindArgs),
    /// Bring paths back to a snapshot
    Restore(commands::restore::RestoreArgs),
    /// Print one file of a snapshot
    Cat(commands::cat::CatArgs),
    /// Finish a restore that was interrupted, or take it back
    Resume(commands::resume::ResumeArgs),
    /// Check every manifest and every byte
    Verify(commands::verify::VerifyArgs),
    /// Remove sessions, and free the space that nothing else needs
    Cleanup(commands::cleanup::CleanupArgs),
    /// Keep sessions, whatever the limits are
    ///
    /// A pinned session stays until it is unpinned, or removed by its name.
    Pin(commands::pin::PinArgs),
    /// Let the limits remove sessions again
    Unpin(commands::pin::PinArgs),
    /// Say how much space sessions take, by project
    Usage(commands::usage::UsageArgs),
}

/// Where sessions are kept.
#[derive(Debug, Args)]
pub(super) struct StoreArgs {
    /// Directory that holds all sessions [default: ~/.nono/rollbacks]
    #[arg(long, global = true, env = "NONO_ROOT", value_name = "DIR")]
    #[arg(help_heading = GLOBAL, display_order = 990)]
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
                let home = home_dir()?;
                let nono = home.join(".nono");
                let root = nono.join("rollbacks");
                // A store that root made in the home of another user would be root's alone.
                if matches!(sys::kind_of(&root), Ok(None)) {
                    sys::refuse_to_write_as_root(&home)?;
                }
                // Where sessions were kept before.
                Ok(Catalog::new(root, [nono.join("undo")]))
            }
        }
    }
}

impl StoreArgs {
    /// The argument that chooses the store.
    pub(super) fn origin(&self) -> Origin {
        let variable = std::env::var_os("NONO_ROOT").map(PathBuf::from);
        match &self.root {
            None => Origin::Default,
            Some(_) if self.root == variable => Origin::Environment,
            Some(_) => Origin::Flag,
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

/// The home directory as tracked paths have it, for showing paths; `None` where it is unknown.
pub(super) fn real_home() -> Option<PathBuf> {
    home_dir().ok().and_then(|home| sys::real_path(&home).ok())
}

/// A project as it is named to people here.
pub(super) fn named_project(tracked_paths: &[PathBuf]) -> String {
    project_name(tracked_paths, real_home().as_deref())
}

/// The environment in which paths and settings of this process are looked up.
///
/// # Errors
/// When there is no current directory.
pub(super) fn surroundings() -> Result<Surroundings<'static>, CliError> {
    fn variable(name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }
    let current_dir = sys::current_dir()?;
    let is_inside = crate::sandbox::is_inside();
    Ok(Surroundings { home: home_dir().ok(), current_dir, variable: &variable, is_inside })
}

/// The paths to capture, and their limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "What is recorded")]
pub(super) struct CaptureArgs {
    /// Leave out what matches: a name, a path (with a /), or a glob (repeatable)
    #[arg(long, value_name = "PATTERN")]
    pub(super) rollback_exclude: Vec<String>,
    /// Keep what matches, whatever excludes it (repeatable)
    #[arg(long, value_name = "PATTERN")]
    pub(super) rollback_include: Vec<String>,
    /// Record the small ignored paths (a file of 1 MiB, a database, notebook or .env of 16 MiB, a
    /// directory of 64 MiB and 5000 entries), none, or all of them
    /// [env: NONO_IGNORED] [default: small]
    #[arg(long, value_name = "WHAT", value_parser = ignored())]
    pub(super) ignored: Option<Ignored>,
    /// Leave nothing out: no build directories, not even what .gitignore names
    #[arg(long, conflicts_with = "rollback_exclude")]
    pub(super) rollback_all: bool,
    /// Most files, directories and links of one snapshot; 0 is no limit
    /// [env: NONO_MAX_ENTRIES] [default: 300000]
    #[arg(long, value_name = "N")]
    pub(super) max_entries: Option<u64>,
    /// Most bytes of file contents of one snapshot; 0 is no limit
    /// [env: NONO_MAX_BYTES] [default: 2147483648]
    #[arg(long, value_name = "BYTES")]
    pub(super) max_bytes: Option<u64>,
}

impl CaptureArgs {
    /// Settings that these arguments give.
    pub(super) fn flags(&self) -> FlagSettings {
        let Self { max_entries, max_bytes, ignored, .. } = *self;
        FlagSettings { max_entries, max_bytes, ignored, ..FlagSettings::default() }
    }

    /// The exclusions: of these arguments, of a profile, of the settings, and by habit.
    pub(super) fn exclusion(
        &self,
        settings: &Settings,
        profile: Option<&Profile>,
    ) -> Result<ExclusionConfig, CliError> {
        if self.rollback_all {
            let git_directories = GitDirectories::Whole;
            return Ok(ExclusionConfig { git_directories, ..ExclusionConfig::nothing() });
        }
        let surroundings = surroundings()?;
        let rules = [Some(&settings.rollback), profile.map(|profile| &profile.rollback)];
        let mut config = ExclusionConfig {
            exclude_patterns: expand_patterns(&self.rollback_exclude, &surroundings)?,
            force_include: expand_patterns(&self.rollback_include, &surroundings)?,
            ignored: settings.ignored.value,
            rebuildable: true,
            git_directories: GitDirectories::WithinLimit,
            ..ExclusionConfig::default()
        };
        for rules in rules.into_iter().flatten() {
            rules.add_to(&mut config, &surroundings)?;
        }
        Ok(config)
    }
}

/// Reads one of the words, which are completed and listed.
fn ignored() -> impl TypedValueParser<Value = Ignored> {
    PossibleValuesParser::new(["small", "none", "all"]).try_map(|word| word.parse::<Ignored>())
}

/// How many processors are kept busy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(super) struct ThreadArgs {
    /// Work with so many threads; 0 is one for each core [env: NONO_THREADS] [default: 0]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<u64>,
}

impl ThreadArgs {
    /// Settings that these arguments give, next to those of others.
    pub(super) fn flags(&self, others: FlagSettings) -> FlagSettings {
        FlagSettings { threads: self.threads, ..others }
    }

    /// Worker threads of a command that needs no other setting, and that a mistake in the file must
    /// not keep from undoing.
    pub(super) fn count(&self, context: &Context) -> Result<usize, CliError> {
        let load = |flags| Settings::load(&surroundings()?, &flags).map_err(CliError::from);
        match (load(self.flags(FlagSettings::default())), self.threads) {
            (Ok(settings), _) => Ok(settings.threads()),
            (Err(error), Some(_)) => Err(error),
            (Err(error), None) => {
                context.warn(format_args!("{error}; work is done with all cores"));
                Ok(0)
            }
        }
    }
}

impl ThreadArgs {
    /// How objects are compressed, from the settings; as usual where these cannot be read.
    /// Like the number of threads, no reason to keep from undoing.
    pub(super) fn compression(&self) -> Compression {
        let load =
            |around| Settings::load(&around, &FlagSettings::default()).map_err(CliError::from);
        let settings = surroundings().and_then(load);
        settings.map(|settings| settings.compression.value).unwrap_or_default()
    }
}

/// How much a store may hold. A limit of 0 is none.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "How much is kept")]
pub(super) struct LimitArgs {
    /// Keep at most so many sessions of a project that changed something; 0 is no limit
    /// [env: NONO_MAX_SESSIONS] [default: 10]
    #[arg(long, value_name = "N")]
    pub(super) max_sessions: Option<u64>,
    /// Keep at most so many GiB of recorded contents; 0 is no limit
    /// [env: NONO_MAX_STORAGE_GB] [default: 5]
    #[arg(long, value_name = "GB")]
    pub(super) max_storage_gb: Option<f64>,
    /// Keep no session that began more than so many days ago; 0 is no limit
    /// [env: NONO_MAX_AGE_DAYS] [default: 0]
    #[arg(long, value_name = "DAYS")]
    pub(super) max_age_days: Option<u64>,
}

impl LimitArgs {
    /// Whether one of them is given.
    pub(super) fn is_given(&self) -> bool {
        self.flags(FlagSettings::default()) != FlagSettings::default()
    }

    /// Settings that these arguments give, next to those of others.
    pub(super) fn flags(&self, others: FlagSettings) -> FlagSettings {
        let Self { max_sessions, max_storage_gb, max_age_days } = *self;
        FlagSettings { max_sessions, max_storage_gb, max_age_days, ..others }
    }
}

/// Rules that decide which sessions, steps and changes of a watcher stay.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Rules")]
pub(super) struct KeepArgs {
    /// Keep the newest N sessions of each project; 0 is no rule
    #[arg(long, value_name = "N")]
    pub(super) keep_last: Option<u64>,
    /// Keep the newest session of each of the last N hours that have one
    #[arg(long, value_name = "N")]
    pub(super) keep_hourly: Option<u64>,
    /// Keep the newest session of each of the last N days that have one
    #[arg(long, value_name = "N")]
    pub(super) keep_daily: Option<u64>,
    /// Keep the newest session of each of the last N weeks that have one
    #[arg(long, value_name = "N")]
    pub(super) keep_weekly: Option<u64>,
    /// Keep the newest session of each of the last N months that have one
    #[arg(long, value_name = "N")]
    pub(super) keep_monthly: Option<u64>,
}

impl KeepArgs {
    /// Settings that these arguments give.
    pub(super) fn flags(self) -> KeepFlags {
        let Self {
            keep_last: last,
            keep_hourly: hourly,
            keep_daily: daily,
            keep_weekly: weekly,
            keep_monthly: monthly,
        } = self;
        KeepFlags { last, hourly, daily, weekly, monthly }
    }
}
