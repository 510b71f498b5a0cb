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
use crate::cli::offer::NONO;
use crate::cli::shell_word::command_line;
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
    let failed = cannot_run(&args.command, &error, missing);
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
    command: &[OsString],
    error: &io::Error,
    missing: Option<NoProgram>,
) -> CliError {
    let name = command.first().map(OsString::as_os_str).unwrap_or_default();
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
    let shown = Shown::path(name.as_ref()).to_string();
    // Several words in a row would look like a command with arguments.
    let shown = if shown.contains(' ') { format!("'{shown}'") } else { shown };
    let failed = CliError::failed(format!("cannot run {shown}: {reason}")).with_exit_code(code);
    let is_program = |word: &str| {
        let search = std::env::var_os("PATH").unwrap_or_default();
        sys::find_program(OsStr::new(word), &search).is_some()
    };
    match one_word(command, is_program).filter(|_| code == 127) {
        Some(hint) => failed.with_hint(hint),
        None => failed,
    }
}

/// For a name with spaces in it: it is one word, and the ways to type it as several.
fn one_word(command: &[OsString], is_program: impl Fn(&str) -> bool) -> Option<String> {
    let (name, rest) = command.split_first()?;
    let name = name.to_str()?;
    let mut words = name.split_whitespace();
    let first = words.next().filter(|_| words.next().is_some())?;
    let rest: Vec<String> =
        rest.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>()?;
    let with_rest = |line: String| match rest.is_empty() {
        true => line,
        false => format!("{line} {}", command_line(&rest)),
    };
    // Such characters mean something to a shell alone.
    let is_for_shell = name.contains(|c: char| "|&;<>()$`\\\"'*?[]#~={}\n".contains(c));
    let plain = (!is_for_shell && is_program(first)).then(|| {
        let words: Vec<String> = name.split_whitespace().map(str::to_owned).collect();
        with_rest(format!("{NONO} run {}", command_line(&words)))
    });
    let script = with_rest(name.to_owned());
    let by_shell = format!("{NONO} run sh -c {}", command_line(&[script]));
    let ways = plain.into_iter().chain([by_shell]).collect::<Vec<_>>().join(", or: ");
    Some(format!("the quotes make the command one word; {ways}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(words: &[&str]) -> Option<String> {
        let command: Vec<OsString> = words.iter().map(OsString::from).collect();
        one_word(&command, |word| ["rm", "touch", "git"].contains(&word))
    }

    #[test]
    fn a_command_in_quotes_is_offered_without_them_and_by_a_shell() {
        let told = |ways: &str| Some(format!("the quotes make the command one word; {ways}"));
        assert_eq!(hint(&["rm -rf x"]), told("nono run rm -rf x, or: nono run sh -c 'rm -rf x'"));
        assert_eq!(
            hint(&["touch x", "a b"]),
            told("nono run touch x 'a b', or: nono run sh -c 'touch x '\\''a b'\\'''")
        );
        // A shell alone knows these.
        assert_eq!(hint(&["rm a; rm b"]), told("nono run sh -c 'rm a; rm b'"));
        assert_eq!(hint(&["cd src"]), told("nono run sh -c 'cd src'"));
        assert_eq!(hint(&["nosuch", "x"]), None);
        assert_eq!(hint(&["rm "]), None);
        assert_eq!(hint(&[]), None);
    }
}
