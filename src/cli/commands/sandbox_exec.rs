//! `nono __sandbox-exec`: shuts this process in and becomes the command.
//!
//! `nono run` starts itself again as this. Landlock's rules hold for the command and all its
//! children, and the supervisor stays outside.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::error::CliError;
use crate::sandbox::{Policy, enforce};
use nono_engine::path_text::Shown;
use nono_engine::sys::{self, NoProgram};

/// Arguments of the hidden command.
#[derive(Debug, Args)]
pub(in crate::cli) struct SandboxExecArgs {
    /// The policy as JSON
    #[arg(long)]
    policy: String,
    /// The file to execute
    #[arg(long)]
    program: PathBuf,
    /// The command as it was given
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

pub(in crate::cli) fn run(args: &SandboxExecArgs) -> Outcome {
    let policy: Policy = serde_json::from_str(&args.policy)
        .map_err(|error| CliError::usage(format!("the policy cannot be read: {error}")))?;
    let Some((name, arguments)) = args.command.split_first() else {
        return Err(CliError::usage("there is no command"));
    };
    // Asked before the walls stand: so it is known whether they are what keeps it from being run.
    let is_executable = sys::is_executable(&args.program);
    let missing = why_missing(name);
    enforce(&policy).map_err(|error| {
        CliError::failed(error.to_string())
            .with_hint("--no-sandbox runs the command with all the rights that you have")
            .with_exit_code(126)
    })?;
    let error = Command::new(&args.program).arg0(name).args(arguments).exec();
    let failed = cannot_run(name, &error, missing);
    if !is_executable || error.kind() != io::ErrorKind::PermissionDenied {
        return Err(failed);
    }
    Err(failed
        .leaving("it may be executed, but not within its grants")
        .with_hint("--read PATH grants a program, or the interpreter that its first line names"))
}

/// Why no directory of `PATH` has a program of this name, if that is so.
pub(in crate::cli) fn why_missing(name: &OsStr) -> Option<NoProgram> {
    sys::why_no_program(name, &std::env::var_os("PATH").unwrap_or_default())
}

/// Why a command did not start, with the exit code of a shell: 127 for what is not there,
/// 126 for what cannot be run. `missing` is what was found out before the walls stood.
pub(in crate::cli) fn cannot_run(
    name: &OsStr,
    error: &io::Error,
    missing: Option<NoProgram>,
) -> CliError {
    let is_about_the_file =
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied);
    let (reason, code) = match missing.filter(|_| is_about_the_file) {
        Some(NoProgram::Missing { closed: None }) => {
            ("there is no such command in PATH".to_owned(), 127)
        }
        Some(NoProgram::Missing { closed: Some(closed) }) => {
            let closed = Shown::path(&closed);
            (format!("there is no such command in PATH, of which {closed} cannot be searched"), 127)
        }
        Some(NoProgram::NotExecutable(path)) => {
            (format!("{} is not executable for this user", Shown::path(&path)), 126)
        }
        None if error.kind() == io::ErrorKind::NotFound => (error.to_string(), 127),
        None => (error.to_string(), 126),
    };
    CliError::failed(format!("cannot run {}: {reason}", Shown::path(name.as_ref())))
        .with_exit_code(code)
}
