//! Running the command: its input, output and terminal are ours, untouched.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// Runs a command to its end and returns its exit code, 128+n for a signal n.
///
/// A terminal sends Ctrl-C to the command and to us; we stay, to record how it ends. Signals that
/// are sent to us alone are passed on.
pub(super) fn supervise(mut command: Command, stdin_is_terminal: bool) -> io::Result<u8> {
    // Before the command starts, so that no signal can end us while it runs.
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP])?;
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let handle = signals.handle();
    let forwarder = std::thread::spawn(move || {
        for signal in &mut signals {
            let from_terminal = stdin_is_terminal && matches!(signal, SIGINT | SIGQUIT);
            if let (false, Some(pid), Some(signal)) =
                (from_terminal, pid, Signal::from_named_raw(signal))
            {
                // It may have ended already.
                let _ = kill_process(pid, signal);
            }
        }
    });
    let status = child.wait();
    handle.close();
    // The thread ends with the handle; a panic in it would not be the command's.
    let _ = forwarder.join();
    Ok(exit_code(status?))
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
