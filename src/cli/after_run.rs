//! `push_after_run`: when a recorded command has ended, a process of its own pushes the session.
//!
//! The run does not wait for that process and does not learn what became of it. The process has the
//! lowest priority, no terminal and no streams. A failure leaves a note that `nono status` and
//! `nono doctor` show ([`crate::remote::push_failures`]).

use std::path::Path;
use std::process::{Command, Stdio};

use super::context::Context;
use crate::sys;

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

/// Starts the process. What cannot be started is said and harms nothing.
pub(super) fn start(remote: &str, root: &Path, session: &str, context: &Context) {
    let started = std::env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command.arg("--root").arg(root).args(["push", remote, session]).env(MARK, "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Nobody waits for it: when this process ends, the system does.
        command.spawn().map(drop)
    });
    match started {
        Ok(()) => context.say(format_args!("  pushing it to {remote} in the background")),
        Err(error) => context.warn(format_args!("the push to {remote} does not start: {error}")),
    }
}
