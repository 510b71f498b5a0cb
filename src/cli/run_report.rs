//! The messages of `nono run` in the form for a program: a line of JSON, or a file with it.
//!
//! The file is looked for before the command starts, because a mistake in its name must not be
//! found after an hour of work. It is written after the last snapshot, at once. So it lies outside
//! of what is recorded: inside it would be a later change, which the next undo would have to ask
//! about.

use std::path::{Path, PathBuf};

use clap::Args;
use parking_lot::Mutex;
use serde::Serialize;

use super::context::Context;
use super::error::CliError;
use super::supervise::Leftover;
use nono_engine::diff::{ChangeSummary, Lost};
use nono_engine::object::ContentHash;
use nono_engine::path_text::{Shown, encode};
use nono_engine::session::Recorded;
use nono_engine::snapshot::NotCaptured;
use nono_engine::sys::{self, Dir, FileKind, TempFile};

/// How a run is reported to a program.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Report")]
pub(super) struct ReportArgs {
    /// Print a report as one line of JSON, last on stderr
    #[arg(long)]
    json: bool,
    /// Write the same report to a file, which must not lie in what is recorded
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// The facts of a run. Filled while it goes on.
#[derive(Debug, Default)]
pub(super) struct RunReport(Mutex<Facts>);

#[derive(Debug, Default, Serialize)]
struct Facts {
    /// None if nothing was recorded.
    session_id: Option<String>,
    /// How many snapshots the session has; 0 if it did not end.
    snapshots: u64,
    changes: Option<ChangeSummary>,
    root: Option<ContentHash>,
    exit_code: u8,
    /// New paths without a record, which no restore removes.
    unrecorded: Vec<NotCaptured>,
    /// Left-out paths of the state before that are gone or different: no restore brings them back.
    lost: Vec<Lost>,
    /// Files and settings among the changes that programs run by themselves later.
    run_later: Vec<String>,
    leftovers: Vec<LeftoverReport>,
    /// Why something failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct LeftoverReport {
    pid: i32,
    command: String,
    is_writing: bool,
}

impl RunReport {
    /// A session was begun.
    pub(super) fn began(&self, session_id: &str) {
        self.0.lock().session_id = Some(session_id.to_owned());
    }

    /// The command has ended, and these processes go on.
    pub(super) fn left(&self, leftovers: &[Leftover]) {
        let report = |left: &Leftover| LeftoverReport {
            pid: left.pid,
            command: encode(&left.command).into_owned(),
            is_writing: left.is_writing,
        };
        self.0.lock().leftovers = leftovers.iter().map(report).collect();
    }

    /// The last state is recorded.
    pub(super) fn recorded(
        &self,
        recorded: &Recorded,
        (unrecorded, lost): (Vec<NotCaptured>, Vec<Lost>),
        run_later: Vec<String>,
    ) {
        let mut facts = self.0.lock();
        facts.snapshots = recorded.last.number + 1;
        facts.changes = Some(ChangeSummary::of(&recorded.changes));
        facts.root = Some(recorded.session_root);
        (facts.unrecorded, facts.lost) = (unrecorded, lost);
        facts.run_later = run_later;
    }
}

/// Where a report goes.
#[derive(Debug)]
pub(super) struct ReportFile {
    dir: Dir,
    name: Vec<u8>,
    path: PathBuf,
}

impl ReportArgs {
    /// Finds the place of the file, and whether it can be written.
    ///
    /// # Errors
    /// When it cannot, or lies in one of the `recorded` paths or in the store.
    pub(super) fn open(
        &self,
        recorded: &[PathBuf],
        store: &Path,
    ) -> Result<Option<ReportFile>, CliError> {
        let Some(path) = &self.report else { return Ok(None) };
        let shown = Shown::path(path);
        let path = sys::plain_absolute(path, &sys::current_dir()?);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(CliError::usage(format!("--report {shown} names no file")));
        };
        let parent = sys::real_or_future_path(parent);
        let real = parent.join(name);
        let is_in = |path: &Path| real.starts_with(sys::real_or_future_path(path));
        if is_in(store) {
            return Err(CliError::usage(format!("--report {shown} lies in the store")));
        }
        if let Some(inside) = recorded.iter().find(|path| is_in(path)) {
            let inside = Shown::path(inside);
            let message = format!("--report {shown} lies in {inside}, which is recorded");
            return Err(CliError::usage(message).with_hint(
                "it would be written after the last snapshot, and so be a change that an undo has \
                 to ask about: choose a place outside",
            ));
        }
        let dir = Dir::open(&parent)?;
        let name = name.as_encoded_bytes().to_vec();
        if dir.try_stat(&name)?.is_some_and(|stat| stat.kind != FileKind::File) {
            return Err(CliError::usage(format!("--report {shown} is there and no file")));
        }
        // A file without a name shows that one can be made, and leaves nothing.
        TempFile::new(&dir, 0o600)?;
        Ok(Some(ReportFile { dir, name, path: real }))
    }

    /// Reports how a run ended. Returns the exit code; an error was said then.
    pub(super) fn finish(
        &self,
        report: &RunReport,
        file: Option<&ReportFile>,
        outcome: Result<u8, CliError>,
        context: &Context,
    ) -> Result<u8, CliError> {
        if !self.json && file.is_none() {
            return outcome;
        }
        let mut facts = std::mem::take(&mut *report.0.lock());
        let code = match outcome {
            Ok(code) => code,
            Err(error) => {
                facts.error = Some(error.to_string());
                context.error(&error);
                error.exit_code()
            }
        };
        facts.exit_code = code;
        let written = file.map_or(Ok(()), |file| file.write(&facts));
        if let Err(error) = &written {
            context.error(error);
        }
        if self.json {
            // No reader is left when stderr is closed.
            let _ = context.json_line(&facts);
        }
        Ok(if written.is_ok() { code } else { code.max(1) })
    }
}

impl ReportFile {
    fn write(&self, facts: &Facts) -> Result<(), CliError> {
        let mut text = serde_json::to_vec(facts)?;
        text.push(b'\n');
        let written = self.dir.replace_file(&self.name, &text, 0o644, true);
        written.map_err(|error| {
            let path = Shown::path(&self.path);
            CliError::failed(format!("the report {path} was not written: {error}"))
        })
    }
}
