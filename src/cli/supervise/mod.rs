//! Running the command: its input, output and terminal are ours, untouched.
//!
//! The command stays in our process group, so the terminal treats us as one: Ctrl-C and Ctrl-Z reach
//! it directly. We only follow. When it stops, we stop, so that the shell takes the terminal back;
//! `fg` wakes both. When it ends, we end, after the last state is recorded. Its orphans become our
//! children, so we know whether somebody still writes.

mod quiet;

use std::ffi::c_int;
use std::io::{self, IsTerminal};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgrp, getpid, kill_process, waitpid,
};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use super::signals::{Taken, queue};
use crate::sys;

pub(super) use quiet::{Leftover, PATIENCE, wait_for_quiet};

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    /// Its exit code, 128+n for a signal n.
    pub(super) code: u8,
    /// Whether somebody asked us to end (SIGTERM, SIGHUP), and does not wait for a question.
    pub(super) was_told_to_end: bool,
}

/// The signals of a command: taken before it starts, given back when its last state is recorded, which
/// none of them ends.
#[derive(Debug)]
pub(super) struct CommandSignals {
    _taken: Taken,
    queue: Signals,
}

impl CommandSignals {
    /// Takes them. What arrives from now on is for the command.
    pub(super) fn take() -> io::Result<Self> {
        let queue = queue()?;
        let all = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
        Ok(Self { _taken: Taken::queued(&all, &queue)?, queue })
    }
}

/// Runs a command to its end. [`wait_for_quiet`] then tells what it left running.
///
/// Signals that are sent to us alone are passed on; none of them ends us.
pub(super) fn supervise(mut command: Command, signals: &mut CommandSignals) -> io::Result<Ended> {
    // Without it, orphans go to init: nothing is lost but the wait for a quiet moment.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
    let terminal = Terminal::of_stdin();
    let is_terminal = terminal.is_some();
    let queue = &mut signals.queue;
    // Before and after, Ctrl-Z stops us and nobody else.
    let _suspension = Taken::queued(&[SIGTSTP], queue)?;
    let (hand_over, handed_over) = mpsc::sync_channel(1);
    let (status, was_told_to_end) = std::thread::scope(move |scope| {
        // Before the command: where nobody could pass signals on, it is not run.
        let forwarder = sys::spawn_scoped(scope, "signals", move || {
            // Nothing comes when the command does not start.
            handed_over.recv().is_ok_and(|(queue, child)| forward(queue, child, is_terminal))
        })?;
        let child = pid_of(&command.spawn()?)?;
        // These came before the command was there to get them from the terminal.
        let came_before = queue.pending().fold(false, |told, signal| told | pass_on(signal, child));
        let closed = Closed(queue.handle());
        // The receiver waits.
        let _ = hand_over.send((queue, child));
        let status = wait(child, is_terminal);
        drop(closed);
        // A panic in it would not be the command's.
        let came_later = forwarder.join().unwrap_or(false);
        Ok::<_, io::Error>((status?, came_before | came_later))
    })?;
    if let (Some(terminal), true) = (terminal, status.signaled()) {
        terminal.restore();
    }
    Ok(Ended { code: exit_code(status), was_told_to_end })
}

/// Passes on what comes out of the queue until that is closed; says whether we were asked to end.
fn forward(queue: &mut Signals, child: Pid, is_terminal: bool) -> bool {
    queue.forever().fold(false, |told, signal| {
        // What a terminal sends, it has sent to the command as well.
        let is_shared = is_terminal && matches!(signal, SIGINT | SIGQUIT | SIGTSTP);
        told | (!is_shared && pass_on(signal, child))
    })
}

/// Sends a signal to the command; says whether it asks us to end.
fn pass_on(signal: c_int, child: Pid) -> bool {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // It may have ended already.
        let _ = kill_process(child, signal);
    }
    matches!(signal, SIGTERM | SIGHUP)
}

/// Closes a queue when dropped, also by a panic: a scope waits for whoever waits for signals.
struct Closed(Handle);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Waits until a program of our own ends that has the terminal now, such as a pager, and returns its
/// exit code. Ctrl-Z stops both of us.
pub(super) fn wait_in_foreground(child: &Child) -> io::Result<u8> {
    Ok(exit_code(wait(pid_of(child)?, true)?))
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Waits until the command ends. Everybody else's end is only noted by the kernel.
fn wait(child: Pid, is_terminal: bool) -> io::Result<WaitStatus> {
    loop {
        match waitpid(None, WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) if pid == child => {
                if !status.stopped() {
                    return Ok(status);
                }
                // Without a terminal there is no shell that would wake us.
                if is_terminal {
                    kill_process(getpid(), Signal::STOP)?;
                    // Whoever woke only us means the command.
                    let _ = kill_process(child, Signal::CONT);
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn exit_code(status: WaitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let status = ExitStatus::from_raw(status.as_raw());
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The modes of the terminal before the command had it.
struct Terminal(Termios);

impl Terminal {
    fn of_stdin() -> Option<Self> {
        let stdin = io::stdin();
        stdin.is_terminal().then(|| tcgetattr(&stdin).ok().map(Self)).flatten()
    }

    /// A command that was killed could not clean up behind itself.
    fn restore(&self) {
        let stdin = io::stdin();
        // In the background, this would stop us.
        if tcgetpgrp(&stdin).is_ok_and(|foreground| foreground == getpgrp()) {
            let _ = tcsetattr(&stdin, OptionalActions::Now, &self.0);
        }
    }
}
