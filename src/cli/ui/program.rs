//! The program itself, started again for verification, cleanup, and the merge of a fork with its
//! check.
//!
//! A form has asked before. No word of it comes from the past: ids of forks and numbers alone,
//! which are checked where they are read.

use std::ffi::OsStr;
use std::path::Path;

use super::app::App;
use super::server::Failure;
use crate::cli::itself::{self, shown};

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
    let finished = itself::run(app.catalog.root(), arguments, place)?;
    let (stdout, stderr) = (shown(&finished.stdout), shown(&finished.stderr));
    Ok(Finished { code: finished.code, stdout, stderr })
}
