//! The program itself, started again for what it reports in its own words: verification, cleanup, and
//! the merge of a fork with its check.
//!
//! It gets no terminal, so it asks nothing; a form has asked before. No word of it comes from the
//! past: ids of forks and numbers alone, which are checked where they are read.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use super::app::App;
use super::server::Failure;
use nono_engine::path_text::Shown;

/// Bytes of an output that are shown.
const MAX_BYTES: usize = 256 << 10;

/// Its output.
pub(super) struct Finished {
    /// `None`: a signal ended it.
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs it, and waits for its end.
///
/// # Errors
/// When it cannot be started.
pub(super) fn run<S: AsRef<OsStr>>(
    app: &App,
    arguments: &[S],
    place: &Path,
) -> Result<Finished, Failure> {
    let program = std::env::current_exe()?;
    let output = Command::new(program)
        .arg("--root")
        .arg(app.catalog.root())
        .args(arguments)
        .current_dir(place)
        .stdin(Stdio::null())
        .output()?;
    let text = |bytes: &[u8]| {
        let cut = &bytes[..bytes.len().min(MAX_BYTES)];
        let lines = cut.split(|byte| *byte == b'\n').map(|line| Shown::bytes(line).to_string());
        lines.collect::<Vec<_>>().join("\n")
    };
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    Ok(Finished { code: output.status.code(), stdout, stderr })
}
