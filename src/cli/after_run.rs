//! `push_after_run`: when a recorded command has ended, a process of its own pushes the session.
//!
//! The run does not wait for that process and does not learn what became of it. The process has the
//! lowest priority, no terminal and no streams. A failure leaves a note for each
//! session, which `nono status` (there) and `nono doctor` (everywhere) show ([`failures`]). The
//! push after the next run sends these sessions, too.

use std::path::Path;
use std::process::{Command, Stdio};

use super::args::surroundings;
use super::context::Context;
use super::sealing::Target;
use crate::cli::offer::NONO;
use crate::config::{FlagSettings, Settings};
use nono_archive::remote::{PushFailure, forget_failure, push_failures};
use nono_engine::path_text::Shown;
use nono_engine::sys;

/// More sessions are not named in a command.
const MAX_NAMED: usize = 5;

/// Marks the process. Only ever set by [`start`].
const MARK: &str = "NONO_PUSH_AFTER_RUN";

/// Whether this is the process that pushes after a run.
pub(super) fn is_after_run() -> bool {
    std::env::var_os(MARK).is_some()
}

/// In that process: leaves the terminal and the current directory behind.
pub(super) fn detach() {
    // Refused only where it leads a group already, which is as good.
    let _ = sys::start_process_session();
    sys::lower_priority();
    let _ = std::env::set_current_dir("/");
}

/// The pushes that failed and are still wanted. The notes of a remote that does not exist go when
/// the settings do not name it any more.
pub(super) fn failures() -> Vec<PushFailure> {
    // An invalid file says nothing about what is wanted, nor does a directory that is gone.
    let load = |surroundings| Settings::load(&surroundings, &FlagSettings::default()).ok();
    let Some(settings) = surroundings().ok().and_then(load) else {
        return push_failures();
    };
    let mut failures = push_failures();
    failures.retain(|PushFailure { remote, session_id, .. }| {
        let is_wanted = settings.file.is_none()
            || settings.push_after_run.as_ref() == Some(remote)
            || Target::is_meant_by(remote).unwrap_or(true);
        if !is_wanted {
            forget_failure(remote, session_id);
        }
        is_wanted
    });
    failures
}

/// Failed pushes as sentences, one for each remote, each with a command that may help.
pub(super) fn told(failures: &[PushFailure]) -> Vec<(String, String)> {
    let shown = |text: &str| Shown::bytes(text.as_bytes()).to_string();
    let of_each = failures.chunk_by(|a, b| a.remote == b.remote);
    let of_each = of_each.filter_map(|all| Some((all, all.last()?)));
    let told = of_each.map(|(all, last)| {
        let [remote, id, reason] =
            [&last.remote, &last.session_id, &last.reason].map(|it| shown(it));
        let whose = match all.len() - 1 {
            0 => format!("session {id} was"),
            1 => format!("session {id} and 1 earlier one were"),
            others => format!("session {id} and {others} earlier ones were"),
        };
        // The next run sends all of them.
        let ids: Vec<_> = all.iter().map(|failure| shown(&failure.session_id)).collect();
        let command = match ids.len() {
            _ if !Target::is_meant_by(&last.remote).unwrap_or(true) => {
                format!("nono remote add {remote} URL; or nono config set push_after_run \"\"")
            }
            1..=MAX_NAMED => format!("{NONO} push {remote} {}", ids.join(" ")),
            _ => format!("{NONO} push {remote} --all"),
        };
        (format!("{whose} not pushed to {remote}: {reason}"), command)
    });
    told.collect()
}

/// Starts the process. What cannot be started is said and harms nothing.
pub(super) fn start(remote: &str, root: &Path, session: &str, context: &Context) {
    let started = std::env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command.arg("--root").arg(root).args(["push", remote, session]).env(MARK, "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // This process does not wait for it: when it ends, the system does.
        command.spawn().map(drop)
    });
    match started {
        Ok(()) => context.say(format_args!("  pushing it to {remote} in the background")),
        Err(error) => context.warn(format_args!("the push to {remote} does not start: {error}")),
    }
}
