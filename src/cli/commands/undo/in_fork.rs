//! An undo that means a fork: typed in the fork, or with the id of the fork's session.

use super::UndoArgs;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::checkpoints::{self, SOCKET_VARIABLE};
use crate::cli::commands::fork::undo::{TakeBackArgs, outside};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::inside::fork_around;
use crate::cli::restoring::refuse_without_answers;
use nono_engine::session::{Catalog, Purpose, SnapshotId};
use nono_engine::snapshot::{SessionDir, SessionOrigin};

/// Undoes in a fork; `None` where the project is meant.
pub(super) fn undo(args: &UndoArgs, store: &StoreArgs, context: &Context) -> Option<Outcome> {
    if fork_around().is_some() {
        return Some(from_inside(args, context));
    }
    let meant = store.catalog().and_then(|catalog| args.fork(&catalog));
    Some(match meant {
        Ok(None) => return None,
        Ok(Some((session, number))) => {
            args.taking_back(number).and_then(|what| outside(&session, &what, store, context))
        }
        Err(error) => Err(error),
    })
}

impl UndoArgs {
    /// The session of a fork that is named, with the number of a snapshot of it.
    fn fork(&self, catalog: &Catalog) -> Result<Option<(SessionDir, Option<u64>)>, CliError> {
        let word = match self.which.given() {
            Some(word) => Some(word),
            None => self.first_word()?,
        };
        let Some(word) = word else { return Ok(None) };
        let Ok(id) = word.replacen('#', "/", 1).parse::<SnapshotId>();
        // An undo says itself which words mean nothing.
        let Ok((session, number)) = catalog.find_snapshot_from(&id, Purpose::Looking) else {
            return Ok(None);
        };
        let is_fork = session.id().starts_with(&id.session)
            && session.metadata().is_ok_and(|it| it.origin == SessionOrigin::Fork);
        Ok(is_fork.then_some((session, number)))
    }

    /// The same for a fork.
    fn taking_back(&self, number: Option<u64>) -> Result<TakeBackArgs, CliError> {
        let names_more = self.part.paths.len() > usize::from(!self.which.is_given());
        if names_more || self.since.is_some() || self.which.is_other_than_step() {
            return Err(CliError::usage(
                "in a fork, undo takes back one snapshot: paths, prompts and times select nothing",
            ));
        }
        Ok(TakeBackArgs {
            number,
            yes: self.yes,
            dry_run: self.dry_run,
            force: self.conflicts.force,
            json: self.json,
            ..TakeBackArgs::default()
        })
    }
}

/// Asks the supervisor of the command in the fork.
fn from_inside(args: &UndoArgs, context: &Context) -> Outcome {
    let word = match args.which.given() {
        Some(word) => Some(word),
        None => args.first_word()?,
    };
    let number = match word {
        None if !args.part.paths.is_empty() => {
            return Err(CliError::usage(
                "in a fork, undo takes back one snapshot, and selects no paths",
            ));
        }
        None | Some("last") => None,
        Some(word) => {
            // The session is that of the fork, with its id or without.
            let number = word.rsplit(['#', '/']).next().unwrap_or(word);
            Some(number.parse().map_err(|_| {
                CliError::usage(format!("{word:?} is no number of a snapshot of this fork"))
            })?)
        }
    };
    ask(args.taking_back(number)?, context)
}

/// Takes the last undo in this fork back that stands.
pub(in crate::cli) fn redo(yes: bool, dry_run: bool, json: bool, context: &Context) -> Outcome {
    ask(TakeBackArgs { redo: true, yes, dry_run, json, ..TakeBackArgs::default() }, context)
}

/// Asks the supervisor, after a yes where one is needed.
fn ask(mut what: TakeBackArgs, context: &Context) -> Outcome {
    let word = if what.redo { "redo" } else { "undo" };
    let socket = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty());
    let Some(socket) = socket else {
        return Err(CliError::failed(format!(
            "this is inside of a fork, and {SOCKET_VARIABLE} is not set, by which its supervisor \
             is asked for an undo"
        )));
    };
    if !what.yes && !what.dry_run {
        refuse_without_answers(word, what.json, context)?;
        let shown = TakeBackArgs { dry_run: true, ..what.clone() };
        let code = checkpoints::ask_undo(socket.as_ref(), &shown, context)?;
        if code > 1 || !context.confirm(&format!("{word} this in the fork?"))? {
            context.say("nothing was changed");
            return Ok(1);
        }
        what.yes = true;
    }
    checkpoints::ask_undo(socket.as_ref(), &what, context)
}
