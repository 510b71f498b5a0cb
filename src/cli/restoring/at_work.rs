//! A restore of files on which a command is at work: never without a word.

use super::answers;
use crate::cli::args::named_project;
use crate::cli::commands::list::without_command;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::render::columns::{MAX_COMMAND_CELLS, cut};
use crate::cli::shell_word::command_line;
use nono_engine::path_text::Shown;
use nono_engine::restore::RestoreError;
use nono_engine::session::SessionSummary;

fn says(session: &SessionSummary) -> String {
    format!(
        "session {} is running in {}: {}",
        session.session_id,
        named_project(&session.tracked_paths),
        command(session)
    )
}

/// Whether to restore although runs are at work on the paths. On a terminal that is asked, and
/// refused without one; `--force` does it. The ids of the runs that are allowed to go on; `None`:
/// nothing is to be done.
///
/// # Errors
/// The refusal.
pub(in crate::cli) fn is_allowed(
    running: Vec<SessionSummary>,
    force: bool,
    asks_nothing: bool,
    context: &Context,
) -> Result<Option<Vec<String>>, CliError> {
    let Some(first) = running.first() else { return Ok(Some(Vec::new())) };
    if !force && !answers(asks_nothing, context) {
        let (session, command) = (first.session_id.clone(), first.command.clone());
        let tracked = first.tracked_paths.clone();
        let refused = RestoreError::RunAtWork { session, command, tracked };
        return Err(CliError::from(refused).leaving("nothing was changed"));
    }
    for session in &running {
        context.warn(says(session));
    }
    if force || context.confirm("it may write on. Restore all the same?")? {
        return Ok(Some(running.into_iter().map(|session| session.session_id).collect()));
    }
    context.say("nothing was changed");
    Ok(None)
}

/// The maker of a session in a few words: its command, or what a list says in its place.
pub(in crate::cli) fn made_by(session: &SessionSummary) -> String {
    without_command(session).unwrap_or_else(|| command(session))
}

/// The command of a session as a person typed it, in one line, and cut as in lists.
pub(in crate::cli) fn command(session: &SessionSummary) -> String {
    let command = Shown::bytes(command_line(&session.command).as_bytes()).to_string();
    format!("`{}`", cut(&command, MAX_COMMAND_CELLS))
}
