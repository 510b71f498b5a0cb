//! The tree of commands, each with the arguments that its own file has.

use clap::{Parser, Subcommand};

use super::args::StoreArgs;
use super::commands;
use super::keeper;
use super::output::OutputArgs;

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
    #[command(name = super::mount_guard::NAME, hide = true)]
    MountGuard(super::mount_guard::MountGuardArgs),
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
