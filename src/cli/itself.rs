//! The program itself, started again for what it reports in its own words.
//!
//! The page and the tools of an agent carry out some commands so: verification, cleanup, forks and
//! their merges. The command gets no terminal, so it asks nothing.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

#[cfg(any(feature = "ui", feature = "mcp"))]
use nono_engine::path_text::Shown;

/// Bytes of an output that are shown.
#[cfg(any(feature = "ui", feature = "mcp"))]
const MAX_SHOWN_BYTES: usize = 256 << 10;

/// The end of a command, and its output.
pub(crate) struct Finished {
    /// `None`: a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Runs the program on the store in a root directory, from a directory, and waits for its end.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn run<S: AsRef<OsStr>>(
    root: &Path,
    arguments: &[S],
    place: &Path,
) -> io::Result<Finished> {
    finish(Command::new(std::env::current_exe()?).arg("--root").arg(root).args(arguments), place)
}

/// The same for a reader in a fork, where no command names a store: neither do those that are
/// offered.
///
/// # Errors
/// As [`run`].
#[cfg(feature = "mount")]
pub(crate) fn run_for_fork(
    root: &Path,
    arguments: &[String],
    place: &Path,
) -> io::Result<Finished> {
    finish(Command::new(std::env::current_exe()?).env("NONO_ROOT", root).args(arguments), place)
}

fn finish(command: &mut Command, place: &Path) -> io::Result<Finished> {
    let output = command.current_dir(place).stdin(Stdio::null()).output()?;
    let (stdout, stderr) = (output.stdout, output.stderr);
    Ok(Finished { code: output.status.code(), stdout, stderr })
}

/// An output as lines that are harmless wherever they are shown, cut where it is very long.
#[cfg(any(feature = "ui", feature = "mcp"))]
pub(crate) fn shown(output: &[u8]) -> String {
    let cut = &output[..output.len().min(MAX_SHOWN_BYTES)];
    let lines = cut.split(|byte| *byte == b'\n').map(|line| Shown::bytes(line).to_string());
    lines.collect::<Vec<_>>().join("\n")
}
