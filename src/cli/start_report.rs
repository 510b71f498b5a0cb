//! The words about the start of a command: its walls, and the reason why it did not start.

use std::ffi::OsString;

use super::commands::sandbox_exec::{cannot_run, why_missing};
use super::context::Context;
use super::error::CliError;
use super::keeper::NotStarted;
use super::launch::SecondWall;
use super::offer::NONO;
use super::supervise::Ended;

/// Whether a command failed by itself: it was started, and no signal ended it.
pub(super) fn has_failed(ended: &Ended) -> bool {
    !ended.was_told_to_end && !matches!(ended.code, 0 | 126 | 127 | 129..=192)
}

/// The gaps in the walls are named before the command starts.
pub(super) fn tell(wall: &SecondWall, context: &Context) {
    if let SecondWall::Refused { reason, is_news: true } = wall {
        context.say(format_args!(
            "one wall only ({reason}): the command can change modes, owners and times of files \
             outside its grants, and reach your other terminals ({NONO} doctor)"
        ));
    }
}

/// The error of a command that did not start.
pub(super) fn not_started(command: &[OsString], error: &NotStarted) -> CliError {
    match error {
        NotStarted::Failed(error) => {
            let missing = command.first().and_then(|name| why_missing(name));
            cannot_run(command, error, missing)
        }
        NotStarted::Killed(signal) => {
            let code = u8::try_from(128 + signal).unwrap_or(u8::MAX);
            CliError::failed(format!("signal {signal} came before the command started"))
                .with_exit_code(code)
        }
        NotStarted::Refused(reason) => {
            CliError::failed(format!("the command gets no namespaces: {reason}"))
                .with_hint("--namespaces auto does without")
                .with_exit_code(126)
        }
    }
}
