//! A command that goes on in the background when it is ready.
//!
//! The program starts itself again with the same arguments and a mark in the environment. That
//! process works in a session of its own, says on its standard output in one line of JSON that it
//! is ready (or why not), and stays. The first process waits for that line, so errors reach the
//! person and the exit code is true. The background process logs to a file.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use super::args::home_dir;
use super::error::CliError;
use nono_engine::path_text::Shown;
use nono_engine::sys;

/// Marks the process in the background. Only ever set by [`start`].
pub(super) const MARK: &str = "NONO_IN_BACKGROUND";
/// The log is started anew when it is longer than this, in bytes.
const MAX_LOG_BYTES: u64 = 1 << 20;

/// For glibc: freed memory goes back to the system, a block of 128 KiB at once and what is smaller
/// when so many bytes are free at the end of a heap. The process stays for days. Unless it is set,
/// both thresholds grow to the largest block that was ever freed, which with FUSE is the 16 MiB
/// that the first message is read into; then next to nothing goes back. Other allocators ignore it.
const TRIM_THRESHOLD: (&str, &str) = ("MALLOC_TRIM_THRESHOLD_", "1048576");

/// The only message of the process in the background.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Announcement<T> {
    Ready(T),
    Failed { message: String, hint: Option<String>, exit_code: u8 },
}

/// Whether this is the process in the background.
pub(super) fn is_background() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts this program in the background and returns what it says when it is ready.
///
/// # Errors
/// Why it is not ready; nothing runs then.
pub(super) fn start<T: for<'de> Deserialize<'de>>() -> Result<T, CliError> {
    start_with(std::env::args_os().skip(1), log_path())
}

/// As [`start`], with other arguments, and with a log where one is given.
///
/// # Errors
/// As there.
pub(super) fn start_with<T: for<'de> Deserialize<'de>>(
    arguments: impl IntoIterator<Item = OsString>,
    log: Option<PathBuf>,
) -> Result<T, CliError> {
    let program = std::env::current_exe()
        .map_err(|error| CliError::failed(format!("cannot find this program: {error}")))?;
    let log = log.and_then(|path| {
        let file = sys::open_log(&path, MAX_LOG_BYTES).ok()?;
        Some((path, file))
    });
    let (log, stderr) = match log {
        Some((path, file)) => (Some(path), Stdio::from(file)),
        // The mount is worth more than its log.
        None => (None, Stdio::null()),
    };
    let mut command = Command::new(program);
    command.args(arguments).env(MARK, "1");
    let (name, bytes) = TRIM_THRESHOLD;
    if std::env::var_os(name).is_none() {
        command.env(name, bytes);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    let mut child = command.spawn().map_err(|error| {
        CliError::failed(format!("cannot start a process in the background: {error}"))
    })?;
    match read_announcement(&mut child) {
        Some(Announcement::Ready(report)) => Ok(report),
        Some(Announcement::Failed { message, hint, exit_code }) => {
            // It has nothing left to do; no zombie stays if we live on.
            let _ = child.wait();
            let failed = CliError::failed(message).with_exit_code(exit_code);
            Err(match hint {
                Some(hint) => failed.with_hint(hint),
                None => failed,
            })
        }
        None => {
            let _ = child.kill();
            let ended = child.wait().map_or_else(|error| error.to_string(), |end| end.to_string());
            let failed = CliError::failed(format!("the process in the background failed: {ended}"));
            Err(match log {
                Some(log) => failed.with_hint(format!("its log is {}", Shown::path(&log))),
                None => failed,
            })
        }
    }
}

fn read_announcement<T: for<'de> Deserialize<'de>>(child: &mut Child) -> Option<Announcement<T>> {
    let mut line = String::new();
    BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// In the background: leaves the terminal and the current directory behind. Paths must be absolute
/// by now.
///
/// # Errors
/// When the system refuses, which it has no reason to.
pub(super) fn detach() -> Result<(), CliError> {
    sys::start_process_session()?;
    std::env::set_current_dir("/")
        .map_err(|error| CliError::failed(format!("cannot go to the root directory: {error}")))
}

/// In the background: says that it is ready. A closed stdout is no reason to stop.
pub(super) fn announce_ready(report: &impl Serialize) {
    announce(&Announcement::Ready(report));
}

/// In the background: says why it is not.
pub(super) fn announce_failure(error: &CliError) {
    announce(&Announcement::<()>::Failed {
        message: error.to_string(),
        hint: error.hint().map(str::to_owned),
        exit_code: error.exit_code(),
    });
}

fn announce(announcement: &impl Serialize) {
    let Ok(line) = serde_json::to_string(announcement) else { return };
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Where processes in the background log: `$XDG_STATE_HOME/nono/background.log`.
pub(super) fn log_path() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = match state.filter(|path| path.is_absolute()) {
        Some(state) => state,
        None => home_dir().ok()?.join(".local/state"),
    };
    Some(state.join("nono/background.log"))
}
