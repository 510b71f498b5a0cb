//! The question about the conflicts of a merge, before anything of it is in the project.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::cli::context::{Context, YELLOW};
use crate::cli::error::CliError;
use crate::cli::questions::{Letter, Question};
use crate::cli::render::{DiffOptions, Palette, write_patch_counting};
use crate::cli::restoring::{choose_hunks, texts_between};
use nono_engine::diff::{self, Difference, relative_to_roots};
use nono_engine::object::ContentHash;
use nono_engine::path_text::Shown;
use nono_engine::restore::{ConflictSide, Merge, MergeConflict};
use nono_engine::snapshot::{SnapshotManager, SnapshotManifest};
use nono_engine::store::OverlayStore;

/// The answer of a person.
pub(super) enum Answer {
    /// The merge with these decisions.
    Merge(Box<Merge>),
    /// Nothing at all.
    Nothing,
}

/// Names the conflicts, and asks what becomes of them. `before`: the present state.
///
/// # Errors
/// A state cannot be read, or the terminal not be used.
pub(super) fn ask(
    merge: Merge,
    conflicts: &[MergeConflict],
    manager: &SnapshotManager,
    before: &SnapshotManifest,
    context: &Context,
) -> Result<Answer, CliError> {
    let roots: Vec<PathBuf> = before.roots.iter().map(|root| root.path.clone()).collect();
    for MergeConflict { path, reason } in conflicts {
        let path = Shown::bytes(relative_to_roots(path.as_os_str().as_bytes(), &roots));
        context.say(format_args!("{YELLOW}! conflict{YELLOW:#}  {path}: {reason}"));
    }
    let overlay = OverlayStore::new(manager.store());
    let common = merge.common_root(&overlay)?;
    let states = [&common, &before.merkle_root, &merge.theirs().merkle_root];
    let names: HashSet<&[u8]> =
        conflicts.iter().map(|conflict| conflict.path.as_os_str().as_bytes()).collect();
    let texts = texts_between(&overlay, &names, states)?;
    let has_texts = !texts.is_empty();
    let by_hunk = if has_texts { "choose in each hunk (m), " } else { "" };
    let text = format!(
        "take the other side, of the fork (o), keep the side here (k), {by_hunk}show both changes \
         (d), leave them open and merge the rest (l), or do nothing (n)?"
    );
    let question = Question::new(&text, Letter::Leave)
        .or(Letter::Difference, "show both changes, and ask again")
        .or_where(has_texts, Letter::Merge, "choose in each hunk that both changed")
        .or(Letter::Keep, "keep the side here, as --ours does")
        .or(Letter::Other, "take the side of the fork, as --theirs does")
        .or(Letter::Leave, "leave them open, and merge the rest")
        .or(Letter::No, "merge nothing");
    loop {
        let merge = merge.clone();
        let decided = match question.ask(context)? {
            Letter::Merge => {
                let theirs = "in the fork";
                let Some(chosen) = choose_hunks(&texts, &roots, theirs, context)? else {
                    continue;
                };
                merge.deciding(ConflictSide::Open, chosen)
            }
            Letter::Other => merge.deciding(ConflictSide::Theirs, Vec::new()),
            Letter::Keep => merge.deciding(ConflictSide::Ours, Vec::new()),
            Letter::Leave => merge,
            Letter::Difference => {
                show_both(&overlay, states, &names, &roots, context)?;
                continue;
            }
            _ => return Ok(Answer::Nothing),
        };
        return Ok(Answer::Merge(Box::new(decided)));
    }
}

fn show_both(
    overlay: &OverlayStore<'_>,
    [common, ours, theirs]: [&ContentHash; 3],
    names: &HashSet<&[u8]>,
    roots: &[PathBuf],
    context: &Context,
) -> Result<(), CliError> {
    let mut options = DiffOptions::new(overlay, roots);
    options.escape = context.stdout_is_terminal;
    if context.colours() {
        options.palette = Palette::coloured();
    }
    context.show(|out| {
        for (title, root) in [("changed in the fork:", theirs), ("changed here:", ours)] {
            writeln!(out, "{title}")?;
            let mut differences = diff::compare(overlay, common, root)?;
            differences.retain(|found: &Difference| names.contains(found.path.as_slice()));
            write_patch_counting(out, &differences, &options)?;
        }
        Ok(())
    })
}
