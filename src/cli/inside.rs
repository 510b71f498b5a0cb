//! Inside a run: the commands that work there, and the message of the others.
//!
//! A recorded command reaches neither the store nor the supervisor's memory, and neither do its
//! children, this program among them. A command that needs the store then fails at its first file,
//! with a message that names anything but the cause. So two questions come first: is this process
//! within the walls of a run ([`is_inside`], which no environment decides), and does the kernel
//! keep the store from it? Only if both are so, the command ends here. A store within the grants is
//! used as anywhere.

use std::ffi::OsString;
use std::io::ErrorKind;

use super::checkpoints::SOCKET_VARIABLE;
use super::command_tree::{Arguments, Command, Rollback};
#[cfg(feature = "archive")]
use super::commands::archive::ArchiveCommand;
use super::error::CliError;
use crate::sandbox::is_inside;
use nono_engine::path_text::Shown;
use nono_engine::session::Catalog;
use nono_engine::sys::{self, Dir, TempFile};

/// Names the fork in the environment of its commands.
pub(super) const FORK_VARIABLE: &str = "NONO_FORK";

/// The use that a command makes of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// It can do without.
    Nothing,
    Reading,
    Writing,
}

/// A command, as it is named to a person.
struct Named(Need, &'static str);

/// Refuses a command that needs a store which is out of reach in here. A snapshot is not refused:
/// it has a way of its own.
///
/// # Errors
/// The refusal for a person, with exit code 1.
pub(super) fn refuse(arguments: &Arguments) -> Result<(), CliError> {
    let Named(need, command) = need(&arguments.command);
    let is_written = match &arguments.command {
        Command::Snapshot(args) => !args.asks_supervisor(),
        // The supervisor of the fork does it.
        #[cfg(feature = "mount")]
        Command::Undo(args) if args.command.is_none() && fork_around().is_some() => return Ok(()),
        #[cfg(feature = "mount")]
        Command::Redo(_) if fork_around().is_some() => return Ok(()),
        _ => need == Need::Writing,
    };
    if let Some(fork) = fork_around().filter(|_| is_written && !is_inside()) {
        return Err(CliError::failed(format!(
            "this is inside of fork {}, whose files are not those of the project",
            Shown::bytes(fork.as_encoded_bytes())
        ))
        .with_hint("leave the fork first"));
    }
    if need == Need::Nothing || !is_inside() {
        return Ok(());
    }
    match out_of_reach(&arguments.store.catalog()?, need == Need::Writing) {
        None => Ok(()),
        Some(error) => Err(CliError::failed(format!(
            "this is inside `nono run`, where a command cannot touch its own record: {error}"
        ))
        .with_hint(format!("use `nono {command}` outside of the run"))),
    }
}

/// The fork in which this process works, as its environment says. Behind walls nothing depends on
/// that.
pub(super) fn fork_around() -> Option<OsString> {
    std::env::var_os(FORK_VARIABLE).filter(|name| !name.is_empty())
}

fn need(command: &Command) -> Named {
    let Command::Rollback { command } = command else {
        return match command {
            Command::Run(args) if args.fork().is_some() => Named(Need::Writing, "run --fork"),
            Command::Run(args) if args.asks_for_record() => Named(Need::Writing, "run --rollback"),
            #[cfg(feature = "mount")]
            Command::Mount(args) if args.needs_store() => Named(Need::Reading, "mount"),
            Command::Undo(args) => Named(writing(args.undo.writes_store()), "undo"),
            Command::Redo(args) => Named(writing(args.writes_store()), "redo"),
            Command::Status(_) => Named(Need::Reading, "status"),
            Command::Steps(_) => Named(Need::Reading, "steps"),
            Command::Log(_) | Command::Timeline => Named(Need::Reading, "log"),
            Command::Blame(_) => Named(Need::Reading, "blame"),
            Command::Grep(_) => Named(Need::Reading, "grep"),
            Command::Difftool(_) => Named(Need::Reading, "difftool"),
            Command::Events(_) => Named(Need::Writing, "events"),
            #[cfg(feature = "archive")]
            Command::Push(_) => Named(Need::Reading, "push"),
            #[cfg(feature = "archive")]
            Command::Pull(_) => Named(Need::Writing, "pull"),
            #[cfg(feature = "mount")]
            Command::Fork(_) => Named(Need::Writing, "fork"),
            #[cfg(feature = "mount")]
            Command::Forks(_) => Named(Need::Reading, "forks"),
            #[cfg(feature = "mount")]
            Command::Try(_) => Named(Need::Writing, "try"),
            #[cfg(feature = "mount")]
            Command::Bisect(_) => Named(Need::Writing, "bisect"),
            #[cfg(feature = "container")]
            Command::Container { .. } => Named(Need::Writing, "container"),
            Command::Watch(_) => Named(Need::Writing, "watch"),
            Command::Import(_) => Named(Need::Writing, "import"),
            #[cfg(feature = "archive")]
            Command::Archive { command } => match command {
                ArchiveCommand::Create(_) => Named(Need::Reading, "archive create"),
                ArchiveCommand::Import(_) => Named(Need::Writing, "archive import"),
                // They work on a file.
                ArchiveCommand::Show(_) | ArchiveCommand::Verify(_) => Named(Need::Nothing, ""),
            },
            _ => Named(Need::Nothing, ""),
        };
    };
    match command {
        Rollback::List(_) => Named(Need::Reading, "list"),
        Rollback::Show(_) => Named(Need::Reading, "show"),
        Rollback::Review(_) => Named(Need::Reading, "review"),
        Rollback::Diff(_) => Named(Need::Reading, "diff"),
        Rollback::Find(_) => Named(Need::Reading, "find"),
        Rollback::Cat(_) => Named(Need::Reading, "cat"),
        Rollback::Restore(args) => Named(writing(args.writes_store()), "restore"),
        Rollback::Resume(_) => Named(Need::Writing, "resume"),
        Rollback::Verify(args) => Named(writing(args.writes_store()), "verify"),
        Rollback::Cleanup(args) => Named(writing(args.writes_store()), "cleanup"),
        Rollback::Pin(_) => Named(Need::Writing, "pin"),
        Rollback::Unpin(_) => Named(Need::Writing, "unpin"),
        Rollback::Usage(_) => Named(Need::Reading, "usage"),
    }
}

fn writing(is_written: bool) -> Need {
    if is_written { Need::Writing } else { Need::Reading }
}

/// Why the store cannot be used from in here; `None` outside, and where it can.
pub(super) fn store_is_out_of_reach(catalog: &Catalog) -> Option<sys::Error> {
    if is_inside() { out_of_reach(catalog, true) } else { None }
}

/// The kernel's answer to a look at the store, or at the place where it would be made, if that is a
/// refusal.
fn out_of_reach(catalog: &Catalog, is_written: bool) -> Option<sys::Error> {
    let root = sys::plain_absolute(catalog.root(), &sys::current_dir().unwrap_or_default());
    let reached = root.ancestors().find_map(|place| match Dir::open(place) {
        Err(error) if error.is_gone() => None,
        opened => Some(opened),
    });
    // To make a file without a name is the only honest question about writing: it leaves nothing.
    let tried = reached?.and_then(|dir| match is_written {
        true => TempFile::new(&dir, 0o600).map(drop),
        false => Ok(()),
    });
    let refused = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
    tried.err().filter(|error| refused.contains(&error.kind())).map(|mut error| {
        error.path = root;
        error
    })
}

/// The process that has the past of what this process works on.
#[cfg(feature = "mcp")]
pub(super) enum Keeper {
    /// The store, which is within reach.
    Store,
    /// The supervisor at this socket.
    Supervisor(std::path::PathBuf),
    /// Neither can be asked, and why.
    Unreachable(CliError),
}

/// The holder of the past: inside of a recorded run its supervisor, else the store.
#[cfg(feature = "mcp")]
pub(super) fn keeper_of_the_past(catalog: &Catalog) -> Keeper {
    let named = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty());
    if !is_inside() {
        return Keeper::Store;
    }
    if let Some(socket) =
        named.map(Into::into).or_else(|| super::checkpoints::left_in(&sys::temporary_dir()))
    {
        return Keeper::Supervisor(socket);
    }
    match out_of_reach(catalog, true) {
        Some(error) => Keeper::Unreachable(no_supervisor(&error)),
        None => Keeper::Store,
    }
}

/// The message where a snapshot cannot be asked for.
pub(super) fn no_supervisor(error: &sys::Error) -> CliError {
    CliError::failed(format!(
        "this is inside `nono run`: {error}, and {SOCKET_VARIABLE} is not set, by which the \
         supervisor of a recorded run is asked for a snapshot"
    ))
    .with_hint(format!(
        "pass {SOCKET_VARIABLE} and NONO_SESSION on to this process (servers of Codex: env_vars = \
         [\"{SOCKET_VARIABLE}\", \"NONO_SESSION\"]); `nono run` sets them where it records"
    ))
}

/// The message where a snapshot of something else is asked for.
pub(super) fn not_its_own(error: &sys::Error) -> CliError {
    CliError::failed(format!(
        "this is inside `nono run`: {error}; the supervisor takes snapshots of the run's own \
         session alone"
    ))
    .with_hint("`nono snapshot` alone adds one, without paths and options")
}
