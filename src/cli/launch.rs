//! The process that becomes the command: within its grants, or with all rights.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::error::CliError;
use super::scratch::Scratch;
use crate::sandbox::Policy;
use crate::sys;

/// This program, whatever became of the file it was started from.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The command, ready to be started. With a policy, `scratch` is where its temporary files go.
pub(super) fn prepare(
    command: &[OsString],
    policy: Option<&Policy>,
    scratch: &Scratch,
) -> Result<Command, CliError> {
    let Some((name, arguments)) = command.split_first() else {
        return Err(CliError::usage("there is no command"));
    };
    let Some(policy) = policy else {
        let mut plain = Command::new(name);
        plain.args(arguments);
        return Ok(plain);
    };
    let search = std::env::var_os("PATH").unwrap_or_default();
    let program = sys::find_program(name, &search).unwrap_or_else(|| PathBuf::from(name));
    let mut policy = policy.clone();
    policy.write.push(scratch.path().to_owned());
    // Who names a program wants it to be run, wherever it is installed; and `nono snapshot` works
    // inside.
    let itself = std::env::current_exe().ok();
    let programs = [Some(&program), itself.as_ref()].into_iter().flatten();
    policy.read.extend(programs.filter_map(|program| sys::real_path(program).ok()));
    let mut inner = Command::new(THIS_PROGRAM);
    inner.arg0("nono").arg("__sandbox-exec").arg("--policy").arg(serde_json::to_string(&policy)?);
    inner.arg("--program").arg(&program).arg("--").args(command);
    inner.env("TMPDIR", scratch.path());
    Ok(inner)
}
