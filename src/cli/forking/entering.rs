//! A command in a fork, within its walls.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Command;

use clap::Args;
use rustix::process::{Pid, getpid};

use super::{here, holder};
use crate::cli::args::{StoreArgs, surroundings};
use crate::cli::checkpoints::{Asked, SESSION_VARIABLE, Server};
use crate::cli::context::Context;
use crate::cli::denials::{explain_failure, name_what_is_outside};
use crate::cli::error::CliError;
use crate::cli::grants::{GrantArgs, Grants};
use crate::cli::inside::FORK_VARIABLE;
use crate::cli::launch::{Launch, NamespaceMode, SecondWall};
use crate::cli::offer::NONO;
use crate::cli::processes::descendants;
use crate::cli::scratch::LeftBehind;
use crate::cli::signals;
use crate::cli::start_report::{has_failed, not_started, tell};
use crate::cli::state_at::exact;
use crate::cli::supervise::{CommandSignals, Ended, supervise};
use crate::config::{FoundProfile, ProfileLibrary, apply_rules};
use nono_engine::fork::{Fork, LostWrites};
use nono_engine::path_text::Shown;
use nono_engine::sys::{self, FileLock};

/// A command in a fork, and its rights.
#[derive(Debug, Args)]
pub(in crate::cli) struct CommandArgs {
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(in crate::cli) command: Vec<OsString>,
    #[command(flatten)]
    pub(in crate::cli) rights: RightsArgs,
}

/// The rights of a command in a fork.
#[derive(Debug, Clone, Default, Args)]
pub(in crate::cli) struct RightsArgs {
    /// The grants of the command: the name of a profile (nono profile list), or a file
    #[arg(long, value_name = "NAME|FILE")]
    pub(in crate::cli) profile: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) grants: GrantArgs,
    /// Second wall: mounts and processes of the command's own. The mounts of the fork are there in
    /// any case
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, env = "NONO_NAMESPACES")]
    pub(in crate::cli) namespaces: NamespaceMode,
}

impl CommandArgs {
    /// A command with the grants of every command in a fork.
    pub(in crate::cli) fn of(command: Vec<OsString>) -> Self {
        Self { command, rights: RightsArgs::default() }
    }

    /// The profile that they name.
    pub(in crate::cli) fn profile(&self) -> Result<Option<FoundProfile>, CliError> {
        let surroundings = surroundings()?;
        let named = self.rights.profile.as_deref();
        Ok(named.map(|name| ProfileLibrary::new(&surroundings).find(name)).transpose()?)
    }

    /// The command, or the shell of this user.
    fn command_or_shell(&self) -> Vec<OsString> {
        if !self.command.is_empty() {
            return self.command.clone();
        }
        let shell = std::env::var_os("SHELL").filter(|shell| Path::new(shell).is_absolute());
        vec![shell.unwrap_or_else(|| "/bin/sh".into())]
    }
}

/// More paths than this are not named one by one.
const MAX_NAMED: usize = 10;

/// Names the writes that the machine may have lost.
pub(in crate::cli) fn say_lost_writes(fork: &Fork, lost: &LostWrites, context: &Context) {
    let LostWrites { since, paths } = lost;
    context.warn(format_args!(
        "the machine went down before all writes in fork {} were on the disk: those since {} may \
         be missing",
        fork.name(),
        exact(*since)
    ));
    for path in paths.iter().take(context.at_most(MAX_NAMED)) {
        context.say(format_args!("  may be damaged: {}", Shown::path(path)));
    }
    if let more @ 1.. = paths.len().saturating_sub(context.at_most(MAX_NAMED)) {
        context.say(format_args!("  and {more} more (-v names them)"));
    }
}

/// A fork whose mounts are there, as long as this lives.
#[derive(Debug)]
pub(in crate::cli) struct Entered<'a> {
    fork: &'a Fork,
    /// The process that holds the mounts, and its own, where this process started them.
    helpers: Vec<Pid>,
    lost: Option<LostWrites>,
    _used: FileLock,
}

impl<'a> Entered<'a> {
    /// Uses a fork, and starts the process that holds its mounts unless there is one.
    pub(in crate::cli) fn new(fork: &'a Fork) -> Result<Self, CliError> {
        sys::refuse_to_write_as_root(fork.path())?;
        here::refuse_git_elsewhere(&fork.recorded_paths().cloned().collect::<Vec<_>>())?;
        let used = fork.enter()?;
        // Before the holder begins a use of its own.
        let lost = fork.lost_writes()?;
        holder::start(fork)?;
        // No command has begun yet.
        let helpers = descendants(getpid());
        Ok(Self { fork, helpers, lost, _used: used })
    }

    /// The processes of this program that hold the mounts, as far as they are below this one.
    pub(in crate::cli) fn helpers(&self) -> &[Pid] {
        &self.helpers
    }

    /// Runs a command in it, to its end.
    pub(in crate::cli) fn run(
        &self,
        args: &CommandArgs,
        store: &StoreArgs,
        context: &Context,
    ) -> Result<Ended, CliError> {
        if let Some(lost) = &self.lost {
            say_lost_writes(self.fork, lost, context);
        }
        let command = args.command_or_shell();
        let profile = args.profile()?;
        self.go_inside()?;
        let mut grants = args.rights.grants.clone();
        grants.allow.extend(self.fork.recorded_paths().cloned());
        let catalog = store.catalog()?;
        let grants = Grants::of(&grants, false, profile.as_ref(), &catalog, &command, context)?;
        if grants.policy.is_none() {
            context.say("no sandbox: outside of the fork, the command can write wherever you can");
        }
        if let Some(policy) = &grants.policy {
            name_what_is_outside(policy, &command, context);
        }
        let profile = profile.map(|found| found.profile);
        let mut launch =
            Launch::new(&command, grants.policy.as_ref(), args.rights.namespaces, false)?
                .in_fork(self.fork.path());
        let dress = |command: &mut Command| -> Result<(), CliError> {
            if let Some(profile) = &profile {
                apply_rules(&profile.env, std::env::vars_os().map(|(name, _)| name), command)?;
            }
            command.env(FORK_VARIABLE, self.fork.name());
            command.env(SESSION_VARIABLE, &self.fork.document().session);
            Ok(())
        };
        let mut signals = CommandSignals::take().map_err(signals::refused)?;
        let manager = self.fork.manager()?;
        let refuse = |error: &io::Error| {
            context.warn(format_args!("`{NONO} snapshot` will not work inside: {error}"));
        };
        // Asked for a snapshot of the fork: by `nono snapshot`, and by the hooks of an agent.
        let server = Server::bind(launch.listening_dir()).inspect_err(refuse).ok();
        let ended = std::thread::scope(|scope| {
            let asked = Asked::of_fork(self.fork, &manager);
            let start = |server| Server::start(server, scope, asked).inspect_err(refuse).ok();
            // Ends the server however the command ends.
            let serving = server.as_ref().and_then(start);
            let tell = |wall: &SecondWall| tell(wall, context);
            supervise(|| launch.start(&dress, serving.is_some(), &tell), &mut signals)
        });
        for LeftBehind { path, count } in launch.left_behind() {
            context.say(format_args!(
                "the command left {count} temporary {}, kept for a day: {}",
                if count == 1 { "entry" } else { "entries" },
                Shown::path(&path)
            ));
        }
        if let (Some(policy), true) = (&grants.policy, ended.as_ref().is_ok_and(has_failed)) {
            let surroundings = surroundings()?;
            explain_failure(policy, &command, profile.is_some(), &surroundings, context);
        }
        ended.map_err(|error| not_started(&command, &error))
    }

    /// A command begins in a directory that the fork shows: here, or at the top of its project.
    fn go_inside(&self) -> Result<(), CliError> {
        let here = sys::current_dir()?;
        let is_shown = |path: &&std::path::PathBuf| here.starts_with(path);
        match (self.fork.recorded_paths().find(is_shown), self.fork.recorded_paths().next()) {
            (None, Some(first)) => std::env::set_current_dir(first).map_err(|error: io::Error| {
                CliError::failed(format!("cannot go to {}: {error}", Shown::path(first)))
            }),
            _ => Ok(()),
        }
    }
}
