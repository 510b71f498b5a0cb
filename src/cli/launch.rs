//! Starting a command: within both walls, within one, or with all rights.
//!
//! The second wall (namespaces) is tried from its best form to its least, because only the system
//! itself knows what it permits; in any case, the first (Landlock) stands.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use super::checkpoints::{SOCKET_NAME, SOCKET_VARIABLE};
use super::error::CliError;
use super::keeper::{Keeper, Namespaces, NotStarted, Plan, THIS_PROGRAM};
use super::scratch::{LeftBehind, Scratch};
use super::ssh_config;
use crate::sandbox::{Policy, Room, TERMINALS, View, is_inside, outermost};
use nono_engine::sys;

/// Where programs keep what they share.
const SHARED_TEMPORARY: &str = "/tmp";
/// Memory that has a name, and semaphores.
const SHARED_MEMORY: &str = "/dev/shm";
/// Name of the socket at which the supervisor and the keeper meet, out of the command's reach.
const MEETING: &str = "keeper.sock";
/// Sockets of X servers of this machine.
const X_SOCKETS: &str = "/tmp/.X11-unix";

/// Whether the command gets namespaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum NamespaceMode {
    /// The ones that the system permits
    #[default]
    Auto,
    /// All of them, or the command is not started
    On,
    /// None
    Off,
}

/// A command that can be started.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    given: &'a [OsString],
    program: PathBuf,
    policy: Option<&'a Policy>,
    mode: NamespaceMode,
    outlives_supervisor: bool,
    /// The directory of the fork in which it works.
    fork: Option<PathBuf>,
    scratch: Scratch,
    /// The same in the file system of shared memory, if there is one.
    memory: Option<Scratch>,
}

/// The walls of a command besides Landlock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SecondWall {
    /// None, as wanted.
    NotWanted,
    /// Namespaces.
    Up,
    /// None.
    Refused {
        reason: String,
        /// Whether no run told of it for a day.
        is_news: bool,
    },
}

/// Which namespaces this machine gives to this user; of those that it refuses, why.
#[derive(Debug)]
pub(super) enum Offered {
    All,
    MountsAlone(String),
    None(String),
}

/// Asks the system by making them, for a command that does nothing.
///
/// # Errors
/// There is no directory for temporary files, or no process.
pub(super) fn probe() -> Result<Offered, CliError> {
    let scratch = Scratch::temporary()?;
    let attempt = |own_processes| -> Result<Option<String>, CliError> {
        let own_terminals = sys::leads_to_dir(Path::new(TERMINALS));
        let view = View { working_dir: "/".into(), own_terminals, ..View::default() };
        let plan = Plan {
            in_use: Vec::new(),
            fork: None,
            namespaces: Some(Namespaces { view, own_processes }),
            policy: None,
            program: PathBuf::new(),
            outlives_supervisor: false,
        };
        let meeting = scratch.path().join(MEETING);
        let command = ["true".into()];
        match Keeper::start(Command::new(THIS_PROGRAM), &meeting, plan, &command) {
            // The namespaces were there, however the command ended.
            Ok(mut keeper) => Ok(keeper.next().err().and(None)),
            Err(NotStarted::Refused(reason)) => Ok(Some(reason)),
            Err(NotStarted::Killed(_)) => Err(CliError::stopped("stopped")),
            Err(NotStarted::Failed(error)) => Err(error.into()),
        }
    };
    Ok(match attempt(true)? {
        None => Offered::All,
        Some(reason) => match attempt(false)? {
            None => Offered::MountsAlone(reason),
            Some(reason) => Offered::None(reason),
        },
    })
}

impl<'a> Launch<'a> {
    /// Prepares a command. Without a policy it has all rights.
    pub(super) fn new(
        given: &'a [OsString],
        policy: Option<&'a Policy>,
        mode: NamespaceMode,
        outlives_supervisor: bool,
    ) -> Result<Self, CliError> {
        let Some(name) = given.first() else {
            return Err(CliError::usage("there is no command"));
        };
        let search = std::env::var_os("PATH").unwrap_or_default();
        let program = sys::find_program(name, &search).unwrap_or_else(|| PathBuf::from(name));
        let scratch = Scratch::temporary()?;
        let memory = match (policy, mode) {
            (None, _) | (_, NamespaceMode::Off) => None,
            // A machine may have none, and a program then does without.
            _ => Scratch::new(Path::new(SHARED_MEMORY)).ok(),
        };
        let fork = None;
        Ok(Self { given, program, policy, mode, outlives_supervisor, fork, scratch, memory })
    }

    /// Lets the command work in the fork of this directory, whose mounts are there.
    #[cfg(feature = "mount")]
    pub(super) fn in_fork(self, fork: &Path) -> Self {
        Self { fork: Some(fork.to_owned()), ..self }
    }

    /// The directory in which the supervisor listens to the command.
    pub(super) fn listening_dir(&self) -> &Path {
        self.scratch.room()
    }

    /// Starts it. `dress` gives it its environment; `is_listening` says whether a thread serves
    /// [`listening_dir`](Self::listening_dir); `tell` hears of the second wall before the start.
    ///
    /// # Errors
    /// As [`NotStarted`] says.
    pub(super) fn start(
        &mut self,
        dress: &dyn Fn(&mut Command) -> Result<(), CliError>,
        is_listening: bool,
        tell: &dyn Fn(&SecondWall),
    ) -> Result<Keeper, NotStarted> {
        let Some(policy) = self.policy else {
            tell(&SecondWall::NotWanted);
            let command = self.command(dress, None, is_listening)?;
            return self.keep(command, None, None);
        };
        let mut refused = String::new();
        let attempts: &[bool] = match self.mode {
            NamespaceMode::Auto => &[true, false],
            NamespaceMode::On => &[true],
            NamespaceMode::Off => &[],
        };
        for own_processes in attempts {
            let policy = self.complete(policy, dress)?;
            let (policy, view) = self.furnish(policy)?;
            let tmp = view.rooms.iter().find(|room| room.from == self.scratch.room());
            let seen = tmp.map_or(self.scratch.room(), |room| &room.at).to_owned();
            let command = self.command(dress, Some(&seen), is_listening)?;
            let namespaces = Namespaces { view, own_processes: *own_processes };
            match self.keep(command, Some(namespaces), Some(policy)) {
                Err(NotStarted::Refused(reason)) => refused = reason,
                started => {
                    tell(&SecondWall::Up);
                    return started;
                }
            }
        }
        if self.mode == NamespaceMode::On {
            return Err(NotStarted::Refused(refused));
        }
        match self.mode {
            NamespaceMode::Off => tell(&SecondWall::NotWanted),
            _ => {
                // Inside of a run, whoever started that knows.
                let is_news = !is_inside() && self.scratch.is_news("one-wall");
                tell(&SecondWall::Refused { reason: refused, is_news });
            }
        }
        let mut policy = self.complete(policy, dress)?;
        policy.write.push(self.scratch.room().to_owned());
        let memory = Path::new(SHARED_MEMORY);
        let holds_what_is_ours = policy.withheld.iter().chain(&policy.write);
        if !holds_what_is_ours.into_iter().any(|path| path.starts_with(memory)) {
            policy.write.extend(sys::real_path(memory));
        }
        let seen = self.scratch.room().to_owned();
        let command = self.command(dress, Some(&seen), is_listening)?;
        self.keep(command, None, Some(policy))
    }

    /// The files that the command left in its own `/tmp` and `/dev/shm`.
    pub(super) fn left_behind(&mut self) -> Vec<LeftBehind> {
        let scratches = [Some(&mut self.scratch), self.memory.as_mut()].into_iter().flatten();
        scratches.filter_map(|scratch| scratch.left_behind(SOCKET_NAME)).collect()
    }

    /// The keeper, with the environment of the command. `temporary` is where this sees its room.
    fn command(
        &self,
        dress: &dyn Fn(&mut Command) -> Result<(), CliError>,
        temporary: Option<&Path>,
        is_listening: bool,
    ) -> Result<Command, NotStarted> {
        let mut command = Command::new(THIS_PROGRAM);
        if let Some(temporary) = temporary {
            command.env("TMPDIR", temporary);
        }
        dress(&mut command).map_err(|error| std::io::Error::other(error.to_string()))?;
        if is_listening {
            let room = temporary.unwrap_or_else(|| self.scratch.room());
            command.env(SOCKET_VARIABLE, room.join(SOCKET_NAME));
        }
        Ok(command)
    }

    fn keep(
        &self,
        command: Command,
        namespaces: Option<Namespaces>,
        policy: Option<Policy>,
    ) -> Result<Keeper, NotStarted> {
        let scratches = [Some(&self.scratch), self.memory.as_ref()].into_iter().flatten();
        let plan = Plan {
            in_use: scratches.map(|scratch| scratch.path().to_owned()).collect(),
            fork: self.fork.clone(),
            namespaces,
            policy,
            program: self.program.clone(),
            outlives_supervisor: self.outlives_supervisor,
        };
        Keeper::start(command, &self.scratch.path().join(MEETING), plan, self.given)
    }

    /// The policy, with what a command needs that is named: its own file, this program (`nono
    /// snapshot` works inside), and the sockets of the user's agent of keys and of the screen.
    fn complete(
        &self,
        policy: &Policy,
        dress: &dyn Fn(&mut Command) -> Result<(), CliError>,
    ) -> Result<Policy, NotStarted> {
        let command = self.command(dress, None, false)?;
        let variable = |name: &str| -> Option<OsString> {
            let set = command.get_envs().find(|(key, _)| *key == OsStr::new(name));
            set.map_or_else(|| std::env::var_os(name), |(_, value)| value.map(OsStr::to_owned))
        };
        let mut policy = policy.clone();
        let itself = std::env::current_exe().ok();
        let programs = [Some(self.program.clone()), itself, variable("XAUTHORITY").map(Into::into)];
        let programs = programs.into_iter().flatten();
        policy.read.extend(programs.filter_map(|program| sys::real_path(&program).ok()));
        let screen = variable("DISPLAY").filter(|name| name.as_encoded_bytes().starts_with(b":"));
        let sockets = [variable("SSH_AUTH_SOCK"), screen.map(|_| X_SOCKETS.into())];
        let sockets = sockets.into_iter().flatten().map(PathBuf::from);
        policy.connect.extend(sockets.filter_map(|socket| sys::real_path(&socket).ok()));
        Ok(policy)
    }

    /// Rooms in the place of `/tmp` and `/dev/shm`, with places for all that is granted there, and
    /// the policy that goes with them. A place that is granted as a whole gets no room.
    fn furnish(&mut self, mut policy: Policy) -> Result<(Policy, View), NotStarted> {
        let failed = |error: CliError| std::io::Error::other(error.to_string());
        let working_dir = sys::current_dir().map_err(|error| failed(error.into()))?;
        let is_granted_as_a_whole = |place: &Path| {
            let granted = policy.read.iter().chain(&policy.write);
            granted.into_iter().any(|granted| place.starts_with(granted))
        };
        let mut rooms = Vec::new();
        let scratches =
            [(SHARED_TEMPORARY, Some(&self.scratch)), (SHARED_MEMORY, self.memory.as_ref())];
        for (place, scratch) in scratches {
            let (Some(scratch), Ok(at)) = (scratch, sys::real_path(Path::new(place))) else {
                continue;
            };
            if !is_granted_as_a_whole(&at) {
                rooms.push(Room { at, from: scratch.room().to_owned(), is_writable: true });
            }
        }
        if rooms.iter().all(|room| room.from != self.scratch.room()) {
            policy.write.push(self.scratch.room().to_owned());
        }
        rooms.extend(ssh_config::copied(self.scratch.path()).map_err(failed)?);
        let named = |path: &PathBuf| path.starts_with(TERMINALS);
        let mut view = View {
            rooms,
            writable: policy.write.clone(),
            visible: Vec::new(),
            // A granted terminal is one of the machine's.
            own_terminals: sys::leads_to_dir(Path::new(TERMINALS))
                && !policy.read.iter().chain(&policy.write).any(named),
            working_dir,
        };
        let granted = [&policy.read, &policy.write, &policy.connect].into_iter().flatten();
        let mut visible = Vec::new();
        for path in outermost(granted.chain([&view.working_dir])) {
            let Some(room) = view.room_of(path) else { continue };
            let is_memory = self.memory.as_ref().is_some_and(|own| own.room() == room.from);
            let scratch = if is_memory { self.memory.as_mut() } else { Some(&mut self.scratch) };
            if let (Some(scratch), Ok(relative)) = (scratch, path.strip_prefix(&room.at)) {
                scratch.make_place(relative, sys::leads_to_dir(path)).map_err(failed)?;
            }
            if !policy.write.iter().any(|writable| path.starts_with(writable)) {
                visible.push(path.to_owned());
            }
        }
        view.visible = visible;
        let rooms = view.rooms.iter().filter(|room| room.is_writable);
        policy.write.extend(rooms.map(|room| room.at.clone()));
        Ok((policy, view))
    }
}
