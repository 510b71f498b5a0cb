//! The keeper's own side: `nono __keep`.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

use super::{Event, NAME, Namespaces, Order, Plan, THIS_PROGRAM, send};
use crate::cli::Outcome;
use crate::cli::error::CliError;
use crate::cli::processes::descendants;
use crate::cli::signals::Taken;
use crate::sandbox::{furnish, relinquish, separate};
use nono_engine::sys::{self, FileLock};

/// Exit code of a process that dies because its supervisor did, as a shell says of SIGKILL.
const KILLED: i32 = 137;
/// Maximum wait for the end of the command's processes, in a race with a fork bomb.
const GRACE_PERIOD: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(5);

/// Arguments of the hidden command.
#[derive(Debug, Args)]
pub(in crate::cli) struct KeepArgs {
    /// The socket of the supervisor
    #[arg(long)]
    meeting: PathBuf,
    /// Make a process namespace besides that of mounts
    #[arg(long, conflicts_with = "inside")]
    own_processes: bool,
    /// Enter the mounts of the fork in this directory
    #[arg(long, conflicts_with = "inside")]
    fork: Option<PathBuf>,
    /// The namespaces are made, or there are to be none
    #[arg(long)]
    inside: bool,
    /// The command as it was given
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

pub(in crate::cli) fn run(args: &KeepArgs) -> Outcome {
    if args.inside { keep(args) } else { enter(args) }
}

/// Makes the namespaces and starts the keeper in them. It becomes the supervisor's child when this
/// process ends.
fn enter(args: &KeepArgs) -> Outcome {
    let refuse = |reason: &dyn Display| refuse(&UnixStream::connect(&args.meeting)?, reason);
    let entered = match &args.fork {
        #[cfg(feature = "mount")]
        Some(fork) => crate::cli::forking::join(fork, args.own_processes),
        _ => separate(args.own_processes).map_err(CliError::from),
    };
    if let Err(error) = entered {
        return refuse(&error);
    }
    let mut keeper = Command::new(THIS_PROGRAM);
    keeper.arg0("nono").args([NAME, "--inside", "--meeting"]).arg(&args.meeting);
    match keeper.arg("--").args(&args.command).spawn() {
        Ok(_) => Ok(0),
        Err(error) => refuse(&format_args!("cannot start in a namespace: {error}")),
    }
}

fn refuse(supervisor: &UnixStream, reason: &dyn Display) -> Outcome {
    send(supervisor, &Event::Refused(reason.to_string()))?;
    Ok(0)
}

/// The command, as far as the two threads have to agree on it.
#[derive(Debug, Default)]
struct Kept {
    process: Option<Process>,
    has_ended: bool,
}

/// The command: a descriptor, because its process id may be another's when it has ended.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Process(rustix::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Process {
    fn of(pid: Pid) -> rustix::io::Result<Self> {
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).map(Self)
    }

    fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        rustix::process::pidfd_send_signal(&self.0, signal)
    }
}

/// Where there are no such descriptors, the process id has to do.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
struct Process(Pid);

#[cfg(not(target_os = "linux"))]
impl Process {
    fn of(pid: Pid) -> rustix::io::Result<Self> {
        Ok(Self(pid))
    }

    fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        kill_process(self.0, signal)
    }
}

fn keep(args: &KeepArgs) -> Outcome {
    // Signals of the terminal are the command's; the supervisor knows their meaning.
    let passed_by = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP];
    let _taken = Taken::raising(&passed_by, &Arc::new(AtomicBool::new(false)))?;
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
    let supervisor = UnixStream::connect(&args.meeting)?;
    let mut orders = BufReader::new(supervisor.try_clone()?).lines();
    let Some(Order::Begin(plan)) = orders.next().transpose()?.map(parse).transpose()? else {
        return Err(CliError::failed("the supervisor has not told what to keep"));
    };
    let _in_use = plan.in_use.iter().chain(&plan.fork).map(|path| FileLock::shared_dir(path));
    let _in_use = _in_use.collect::<Result<Vec<_>, _>>()?;
    if let Some(Namespaces { view, own_processes }) = &plan.namespaces
        && let Err(error) = furnish(view, *own_processes)
    {
        return refuse(&supervisor, &error);
    }
    // Where a view was furnished, that is done.
    if plan.fork.is_some()
        && let Err(error) = relinquish()
    {
        return refuse(&supervisor, &error);
    }
    send(&supervisor, &Event::Ready)?;
    let kept = Arc::new(Mutex::new(Kept::default()));
    let mut command = command(args, &plan)?;
    // Before the thread looks at it: an order waits until there is a command.
    let mut starting = kept.lock();
    let orders = {
        let kept = Arc::clone(&kept);
        move || obey(&kept, orders, plan.outlives_supervisor)
    };
    sys::spawn("orders", orders)?;
    let started = command.spawn().and_then(|child| {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidData)?;
        starting.process = Some(Process::of(pid)?);
        Ok(pid)
    });
    let pid = match started {
        Ok(pid) => pid,
        Err(error) => {
            starting.has_ended = true;
            let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            send(&supervisor, &Event::NotStarted(errno))?;
            return Ok(0);
        }
    };
    drop(starting);
    drop(command);
    // They are the command's, and a reader may wait until all writers are gone.
    let nowhere = sys::open_nowhere()?;
    for replace in
        [rustix::stdio::dup2_stdin, rustix::stdio::dup2_stdout, rustix::stdio::dup2_stderr]
    {
        replace(&nowhere).map_err(io::Error::from)?;
    }
    follow(pid, &kept, &supervisor);
    Ok(0)
}

fn command(args: &KeepArgs, plan: &Plan) -> Result<Command, CliError> {
    let Some((name, arguments)) = args.command.split_first() else {
        return Err(CliError::usage("there is no command"));
    };
    let Some(policy) = &plan.policy else {
        let mut plain = Command::new(name);
        plain.args(arguments);
        return Ok(plain);
    };
    let mut inner = Command::new(THIS_PROGRAM);
    inner.arg0("nono").args(["__sandbox-exec", "--policy", &serde_json::to_string(policy)?]);
    inner.arg("--program").arg(&plan.program).arg("--").args(&args.command);
    Ok(inner)
}

/// Follows the command until it and all that it left behind have ended.
fn follow(command: Pid, kept: &Mutex<Kept>, supervisor: &UnixStream) {
    loop {
        let event = match wait(WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) if pid == command => {
                if status.stopped() {
                    Event::Stopped
                } else {
                    kept.lock().has_ended = true;
                    Event::Ended(status.as_raw())
                }
            }
            Ok(_) | Err(Errno::INTR) => continue,
            // No process is left.
            Err(_) => return,
        };
        // The thread that waits for orders knows what to do when the supervisor does not listen.
        let _ = send(supervisor, &event);
    }
}

fn parse(line: String) -> Result<Order, serde_json::Error> {
    serde_json::from_str(&line)
}

/// Obeys until the supervisor is gone. If the command has not ended by then, the supervisor died.
fn obey(
    kept: &Mutex<Kept>,
    orders: impl Iterator<Item = io::Result<String>>,
    outlives_supervisor: bool,
) {
    let orders = orders.map_while(|line| parse(line.ok()?).ok());
    for order in orders {
        let Order::Signal(number) = order else { continue };
        let kept = kept.lock();
        if let (Some(process), Some(signal), false) =
            (&kept.process, Signal::from_named_raw(number), kept.has_ended)
        {
            let _ = process.signal(signal);
        }
    }
    if !kept.lock().has_ended && !outlives_supervisor {
        end_all();
    }
}

/// Ends this process and all that it keeps. Where it is the first of a namespace, the kernel does.
fn end_all() -> ! {
    let started = Instant::now();
    while getpid() != Pid::INIT && started.elapsed() < GRACE_PERIOD {
        let left = descendants(getpid());
        if left.is_empty() {
            break;
        }
        for pid in left {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(STEP);
    }
    std::process::exit(KILLED)
}
