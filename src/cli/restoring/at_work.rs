//! A restore of files on which a command is at work: never without a word.

use std::path::PathBuf;

use super::answers;
use crate::cli::args::named_project;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::render::columns::{MOST_COMMAND_CELLS, cut};
use crate::cli::shell_word::command_line;
use nono_engine::path_text::Shown;
use nono_engine::restore::Selection;
use nono_engine::session::{Catalog, RestoreMark, SessionSummary, begin_restore, running_on};

/// A restore that may begin: until it ends, no run begins on its paths.
///
/// # Errors
/// That a run began since somebody was asked: `allowed` are the ids of those that are no obstacle.
pub(super) fn begin(
    catalog: &Catalog,
    roots: &[PathBuf],
    selection: &Selection,
    force: bool,
    allowed: &[String],
) -> Result<Option<RestoreMark>, CliError> {
    let (mark, running) = begin_restore(catalog, &paths_of(selection, roots))?;
    let new = running.iter().find(|session| !allowed.contains(&session.session_id));
    match new.filter(|_| !force) {
        Some(session) => Err(refused(session)),
        None => Ok(mark),
    }
}

fn refused(session: &SessionSummary) -> CliError {
    CliError::failed(format!("{}; nothing was changed", says(session)))
        .with_hint("wait until it has ended; --force restores while it works, and it may write on")
}

fn says(session: &SessionSummary) -> String {
    format!(
        "session {} is running in {}: {}",
        session.session_id,
        named_project(&session.tracked_paths),
        command(session)
    )
}

/// Whether to restore although a run may be at work on the paths. On a terminal that is asked, and
/// refused without one; `--force` does it. The ids of the runs that are allowed to go on; `None`:
/// nothing is to be done.
///
/// # Errors
/// That it is refused.
pub(super) fn is_allowed(
    catalog: &Catalog,
    roots: &[PathBuf],
    selection: &Selection,
    force: bool,
    asks_nothing: bool,
    context: &Context,
) -> Result<Option<Vec<String>>, CliError> {
    let running = running_on(catalog, &paths_of(selection, roots), None)?;
    let Some(first) = running.first() else { return Ok(Some(Vec::new())) };
    if !force && !answers(asks_nothing, context) {
        return Err(refused(first));
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

/// The command of a session as a person typed it, in one line, and cut as in lists.
pub(in crate::cli) fn command(session: &SessionSummary) -> String {
    let command = Shown::bytes(command_line(&session.command).as_bytes()).to_string();
    format!("`{}`", cut(&command, MOST_COMMAND_CELLS))
}

/// The paths that the restore may touch, as paths that contain all of them.
fn paths_of(selection: &Selection, roots: &[PathBuf]) -> Vec<PathBuf> {
    let Selection { paths, exactly, .. } = selection;
    let is_plain = |path: &&PathBuf| {
        path.is_absolute() && !path.to_string_lossy().contains(['*', '?', '[', '{'])
    };
    if selection.is_everything() || !paths.iter().all(|path| is_plain(&path)) {
        return roots.to_vec();
    }
    let named: Vec<PathBuf> = paths.iter().chain(exactly).cloned().collect();
    if named.is_empty() { roots.to_vec() } else { named }
}
