//! `nono __sandbox-exec`: shuts this process in and becomes the command.
//!
//! `nono run` starts itself again as this. Landlock's rules hold for the command and all its
//! children, and the supervisor stays outside.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::error::CliError;
use crate::sandbox::{Policy, enforce};
use nono_engine::path_text::Shown;
use nono_engine::sys;

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
    enforce(&policy).map_err(|error| {
        CliError::failed(error.to_string())
            .with_hint("--no-sandbox runs the command with all the rights that you have")
            .with_exit_code(126)
    })?;
    let error = Command::new(&args.program).arg0(name).args(arguments).exec();
    let failed = cannot_run(name, &error);
    if !is_executable || error.kind() != io::ErrorKind::PermissionDenied {
        return Err(failed);
    }
    Err(failed
        .leaving("it may be executed, but not within its grants")
        .with_hint("--read PATH grants a program, or the interpreter that its first line names"))
}

/// Why a command did not start, with the exit code that a shell gives: 127 for what is not there,
/// 126 for what cannot be run.
pub(in crate::cli) fn cannot_run(name: &OsString, error: &io::Error) -> CliError {
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    CliError::failed(format!("cannot run {}: {error}", Shown::path(name.as_ref())))
        .with_exit_code(code)
}
