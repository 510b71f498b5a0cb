//! The choice of a person in files that an undo cannot merge: hunk by hunk, mine, the other side
//! or both.
//!
//! Only texts that the session and a later change both touched have hunks. A file that changes
//! after the choice is a conflict as before.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Restoring;
use crate::cli::context::{BOLD, Context, DIM};
use crate::cli::error::CliError;
use crate::cli::questions::{Letter, Question};
use nono_engine::diff::{self, Difference, EntryState, relative_to_roots};
use nono_engine::job::JobKind;
use nono_engine::object::{ContentHash, Node};
use nono_engine::path_text::Shown;
use nono_engine::restore::{ChosenText, Conflict, Hunk, HunkChoice, merge_chosen, touching_hunks};
use nono_engine::store::{EitherSource, ObjectSource};

/// Longer files are not read for their hunks.
const MAX_BYTES: u64 = 8 << 20;
/// Maximum number of files that are read for their hunks.
const MAX_FILES: usize = 50;
/// Maximum number of lines of a hunk that are shown of each side.
const SHOWN_LINES: usize = 12;

/// A text with hunks that the session and a later change both touched.
pub(in crate::cli) struct TextInConflict {
    path: PathBuf,
    /// As the session left it, as it is now, and as it was before the session.
    texts: [Vec<u8>; 3],
    now: ContentHash,
    hunks: Vec<Hunk>,
}

impl Restoring<'_> {
    /// The texts in conflict that have hunks.
    ///
    /// # Errors
    /// When a state cannot be read.
    pub(super) fn texts_in_conflict(
        &self,
        conflicts: &[Conflict],
    ) -> Result<Vec<TextInConflict>, CliError> {
        let has_hunks = |it: &&Conflict| {
            it.repository.is_none() && it.user_edit.is_none() && it.beside.is_empty()
        };
        let names: HashSet<&[u8]> = conflicts
            .iter()
            .filter(has_hunks)
            .map(|it| it.path.as_os_str().as_bytes())
            .take(MAX_FILES)
            .collect();
        if names.is_empty() || !matches!(self.job.kind(), JobKind::Undo(_)) {
            return Ok(Vec::new());
        }
        let target = self.session().manifest(self.job.snapshot())?.manifest;
        let Some(left) = self.state_left()? else { return Ok(Vec::new()) };
        let live = self.job.manager().live_state(&target)?;
        let source = EitherSource { first: self.job.manager().store(), second: &live };
        let states = [&left.merkle_root, &live.manifest().merkle_root, &target.merkle_root];
        texts_between(&source, &names, states)
    }

    /// Asks about each hunk. `None`: a hunk got no answer.
    pub(super) fn choose_hunks(
        &self,
        texts: &[TextInConflict],
        context: &Context,
    ) -> Result<Option<Vec<ChosenText>>, CliError> {
        choose_hunks(texts, &self.roots, "before the session", context)
    }
}

/// The texts among these paths that have hunks. `states`: the roots of the state that both sides
/// began with, of the present one, and of the other side's.
pub(in crate::cli) fn texts_between(
    source: &dyn ObjectSource,
    names: &HashSet<&[u8]>,
    states: [&ContentHash; 3],
) -> Result<Vec<TextInConflict>, CliError> {
    let [base, ours, theirs] = states;
    let changed_to = |root: &ContentHash| {
        let mut found = diff::compare(source, base, root)?;
        found.retain(|it: &Difference| names.contains(it.path.as_slice()));
        Ok::<_, CliError>(found)
    };
    let (theirs, ours) = (changed_to(theirs)?, changed_to(ours)?);
    let ours: HashMap<&[u8], &Difference> =
        ours.iter().map(|it| (it.path.as_slice(), it)).collect();
    let mut found = Vec::new();
    for Difference { path, old, new, .. } in theirs.iter().take(MAX_FILES) {
        let now = ours.get(path.as_slice()).and_then(|it| it.new.as_deref());
        let states = [old.as_deref(), now, new.as_deref()];
        let Some((texts, now)) = read_texts(source, states) else { continue };
        let hunks = touching_hunks(&texts[0], &texts[1], &texts[2]).unwrap_or_default();
        if !hunks.is_empty() {
            let path = Path::new(std::ffi::OsStr::from_bytes(path)).to_owned();
            found.push(TextInConflict { path, texts, now, hunks });
        }
    }
    Ok(found)
}

/// Asks about each hunk. `None`: a hunk got no answer. `theirs`: the other side in words.
pub(in crate::cli) fn choose_hunks(
    texts: &[TextInConflict],
    roots: &[PathBuf],
    theirs: &str,
    context: &Context,
) -> Result<Option<Vec<ChosenText>>, CliError> {
    let mut chosen = Vec::new();
    for TextInConflict { path, texts, now, hunks } in texts {
        let name = relative_to_roots(path.as_os_str().as_bytes(), roots);
        let mut choices = Vec::new();
        for (at, hunk) in hunks.iter().enumerate() {
            let mut out = context.out_long();
            let (number, count) = (at + 1, hunks.len());
            let title = Shown::bytes(name);
            writeln!(out, "{BOLD}{title}, hunk {number} of {count}{BOLD:#}, line {}", hunk.line)?;
            write_side(&mut out, "now", &hunk.ours)?;
            write_side(&mut out, theirs, &hunk.theirs)?;
            out.flush()?;
            let text = format!(
                "keep mine, as it is now (k), the other side, as {theirs} (o), both (b), or go \
                 back (n)?"
            );
            let other = format!("the lines as {theirs}");
            let question = Question::new(&text, Letter::No)
                .or(Letter::Keep, "the lines as they are now")
                .or(Letter::Other, &other)
                .or(Letter::Both, "the lines of both, mine first")
                .or(Letter::No, "go back to the question before");
            choices.push(match question.ask(context)? {
                Letter::Keep => HunkChoice::Ours,
                Letter::Other => HunkChoice::Theirs,
                Letter::Both => HunkChoice::Both,
                _ => return Ok(None),
            });
        }
        let texts = texts.each_ref().map(Vec::as_slice);
        if let Some(bytes) = merge_chosen(texts, &choices) {
            chosen.push(ChosenText { path: path.clone(), now: *now, bytes });
        }
    }
    Ok(Some(chosen))
}

/// The contents of three states of a file, and the hash of the present one. `None`: one of them is
/// no file, too long, or cannot be read: then there are no hunks.
fn read_texts(
    source: &dyn ObjectSource,
    states: [Option<&EntryState>; 3],
) -> Option<([Vec<u8>; 3], ContentHash)> {
    let read = |state: Option<&EntryState>| match &state?.node {
        Node::File { size, hash, .. } if *size <= MAX_BYTES => {
            Some((source.read(hash, *size).ok()?, *hash))
        }
        _ => None,
    };
    let [(base, _), (ours, now), (theirs, _)] =
        [read(states[0])?, read(states[1])?, read(states[2])?];
    Some(([base, ours, theirs], now))
}

fn write_side(out: &mut dyn Write, title: &str, text: &[u8]) -> std::io::Result<()> {
    writeln!(out, "  {DIM}{title}:{DIM:#}{}", if text.is_empty() { " nothing" } else { "" })?;
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    for line in lines.iter().take(SHOWN_LINES) {
        writeln!(out, "    {}", Shown::bytes(line.trim_ascii_end()))?;
    }
    match lines.len().saturating_sub(SHOWN_LINES) {
        0 => Ok(()),
        more => writeln!(out, "    {DIM}and {more} more lines{DIM:#}"),
    }
}
