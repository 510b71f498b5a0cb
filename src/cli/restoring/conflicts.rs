//! The conflicts of a restore: paths that were changed later, each with the maker of the change.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::summed::summed;
use crate::cli::context::Context;
use crate::cli::render::change_word;
use crate::cli::repositories::conflict_text;
use nono_engine::restore::{Conflict, UserEdit};

/// Maximum number of lines about conflicts.
const NAMED_CONFLICTS: usize = 10;

/// Maximum number of named sessions that changed a path later.
const NAMED_SESSIONS: usize = 3;

/// Names conflicts, without those that are known. Many in one directory are one line.
pub(super) fn print_conflicts(
    conflicts: &[Conflict],
    known: &[Conflict],
    roots: &[PathBuf],
    context: &Context,
) {
    let known: HashMap<&Path, &Conflict> = known.iter().map(|it| (&*it.path, it)).collect();
    let is_new = |conflict: &&Conflict| {
        let known = known.get(&*conflict.path);
        known.is_none_or(|known| {
            let facts = |it: &Conflict| {
                (it.change_type, it.repository.clone(), it.user_edit, it.beside.clone())
            };
            facts(known) != facts(conflict)
        })
    };
    let fact = |conflict: &Conflict| fact(conflict, context);
    let inside = |conflict: &Conflict| inside_of(&conflict.path, roots).to_owned();
    let new = conflicts.iter().filter(is_new).map(|it| (inside(it), fact(it)));
    let new: Vec<(PathBuf, String)> = new.collect();
    let new: Vec<_> = new.iter().map(|(path, fact)| (path.as_path(), fact.clone())).collect();
    let (lines, more) = summed(&new, context.at_most(NAMED_CONFLICTS));
    for line in lines {
        context.fall_short(line);
    }
    if more > 0 {
        context.warn(format_args!("{more} more were changed after the session (-v names all)"));
    }
}

/// The part of a path inside of its tracked path.
pub(in crate::cli) fn inside_of<'a>(path: &'a Path, roots: &[PathBuf]) -> &'a Path {
    let inside = roots.iter().find_map(|root| path.strip_prefix(root).ok());
    inside.filter(|path| !path.as_os_str().is_empty()).unwrap_or(path)
}

/// The maker of a conflict and the change, behind the name of the path.
fn fact(conflict: &Conflict, context: &Context) -> String {
    if let Some(repository) = &conflict.repository {
        return format!(": {}", conflict_text(&conflict.path, repository));
    }
    if !conflict.beside.is_empty() {
        let others = named_sessions(&conflict.beside, context);
        let was = if conflict.beside.len() == 1 { "session" } else { "sessions" };
        return format!(
            " may be the work of {was} {others} as well, at work or restored at the same time"
        );
    }
    if let Some(UserEdit { step, is_certain }) = conflict.user_edit {
        let edited = match is_certain {
            true => "you edited it, too, in",
            false => "you may have edited it, too, up to",
        };
        return format!(": {edited} step {step}");
    }
    let who = match conflict.sessions.as_slice() {
        [] => String::new(),
        sessions => format!(", by session {}", named_sessions(sessions, context)),
    };
    let what = change_word(conflict.change_type);
    format!(" was changed after the session ({what}{who})")
}

/// Ids of sessions, not too many for a line.
fn named_sessions(sessions: &[String], context: &Context) -> String {
    let named = sessions.len().min(context.at_most(NAMED_SESSIONS));
    let shown = sessions[..named].join(", ");
    match sessions.len() - named {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
