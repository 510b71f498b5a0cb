//! The way out of a merge that was killed, where no path is half-way.
//!
//! A merge that had changed nothing is no session. One whose files are in the project gets the
//! branches that it still awaits, and its end. One that was undone meanwhile gets its end alone.

use super::commits::{self, Branch};
use crate::cli::args::{StoreArgs, named_project};
use crate::cli::context::{BOLD, Context};
use crate::cli::error::CliError;
use crate::cli::forking::forks_of;
use crate::cli::offer::NONO;
use nono_engine::fork::ForkError;
use nono_engine::gc::withdraw;
use nono_engine::path_text::Shown;
use nono_engine::restore::Recovery;
use nono_engine::session::{SessionSummary, end_merge};
use nono_engine::snapshot::{MergeRecord, SessionDir, SnapshotManager};

/// Ends a killed merge, and says so unless `is_told`. Whether all that was asked for is done.
///
/// # Errors
/// The session or the fork cannot be read, or the store not be written.
pub(in crate::cli) fn finish(
    session: &SessionDir,
    way: Recovery,
    is_told: bool,
    store: &StoreArgs,
    context: &Context,
) -> Result<bool, CliError> {
    let id = session.id();
    let metadata = session.metadata()?;
    let Some(merge) = metadata.merge else { return Ok(true) };
    let project = named_project(&metadata.tracked_paths);
    let name = format!("merge of session {BOLD}{id}{BOLD:#} into {project}");
    if !merge.is_done {
        if let Some(root) = session.path().parent() {
            for skipped in withdraw(root, std::slice::from_ref(session))?.skipped {
                tracing::info!("session {} stays: {:?}", skipped.session_id, skipped.reason);
            }
        }
        if is_told {
            return Ok(true);
        }
        let is_asked = way == Recovery::TakeBack;
        context.say(match is_asked {
            true => format!("the {name} had changed nothing yet: everything is as before it"),
            false => format!(
                "the {name} had changed nothing yet, and is not done: the same command as before \
                 begins it anew"
            ),
        });
        return Ok(is_asked);
    }
    let manager = SnapshotManager::open(session.path())?;
    let summary = SessionSummary::of(session)?;
    if summary.undone || summary.partly_undone {
        // Branches would be the merge again, and a state of its session after the undo.
        manager.note_awaited_branches(false)?;
        end_merge(&manager)?;
        if !is_told {
            let word = summary.undone_word().unwrap_or_default();
            context.say(format_args!("the {name} is {word}: no branch is made"));
        }
        return Ok(true);
    }
    let mut is_complete = true;
    if merge.awaits_branches && way == Recovery::Finish {
        let branches = arrive(&merge, &manager, store)?;
        for branch in &branches {
            say_branch(branch, context);
            is_complete &= branch.left.is_none();
        }
    } else if merge.awaits_branches {
        manager.note_awaited_branches(false)?;
    }
    end_merge(&manager)?;
    if !is_told {
        let end = match way {
            Recovery::Finish => String::new(),
            Recovery::TakeBack => {
                is_complete = false;
                format!(", and is not taken back: {NONO} undo {id}")
            }
        };
        context.say(format_args!("the {name} was complete{end}"));
    }
    Ok(is_complete)
}

/// Makes the branches of a merge whose files are in the project.
fn arrive(
    merge: &MergeRecord,
    manager: &SnapshotManager,
    store: &StoreArgs,
) -> Result<Vec<Branch>, CliError> {
    let fork = match forks_of(store)?.of_session(&merge.fork) {
        Err(ForkError::NotFound { .. }) => {
            manager.note_awaited_branches(false)?;
            return Err(CliError::failed(format!(
                "the fork of session {} is gone, so its commits came to no branch",
                merge.fork
            )));
        }
        fork => fork?,
    };
    let own = SnapshotManager::open(fork.session()?.path())?;
    let (base, theirs) = (fork.base()?, own.load_manifest(merge.theirs)?);
    let mut branches = commits::branches(&own, &base, &theirs, fork.name())?;
    let made = commits::arrive(&mut branches, &own, &base, &theirs)?;
    manager.add_to_merge(&made)?;
    Ok(branches)
}

/// Says that a branch was made, or why not.
fn say_branch(branch: &Branch, context: &Context) {
    let name = Shown::bytes(branch.branch.as_bytes());
    match &branch.left {
        Some(reason) => context.fall_short(format_args!("{name} was left: {reason}")),
        None => context.say(format_args!("commit {} became branch {name}", branch.commit.short())),
    }
}
