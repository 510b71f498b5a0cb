//! `show_changes` and `diff`: what is different between two states.

use serde::Deserialize;
use serde_json::json;

use super::pages::{Window, answer, fitting, page, position};
use super::states::{Named, Older, State};
use super::workspace::is_in_git;
use super::{Answer, ToolError, Workspace};
use crate::cli::render::{
    DiffOptions, Palette, RenderError, change_mark, summary_line, write_patch,
};
use nono_engine::byte_path;
use nono_engine::diff::{self, Change, ChangeSummary, Difference};
use nono_engine::path_text::Shown;
use nono_engine::snapshot::NotCapturedSet;
use nono_engine::store::EitherSource;

/// Maximum number of paths that a call may name.
const MAX_PATHS: usize = 100;
/// Larger files are named in a diff, not compared, in bytes.
const MAX_DIFF_BYTES: u64 = 1 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ChangesArguments {
    at: Option<String>,
    since: Option<String>,
    cursor: Option<String>,
    limit: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DiffArguments {
    from: Option<String>,
    to: Option<String>,
    paths: Vec<String>,
    cursor: Option<String>,
}

impl Workspace {
    pub(super) fn show_changes(&self, arguments: &ChangesArguments) -> Result<Answer, ToolError> {
        // A wrong cursor is one also where there is nothing to list.
        position(arguments.cursor.as_deref())?;
        let new = self.state(arguments.at.as_deref())?;
        let older = self.older(arguments.since.as_deref(), &new)?;
        let Some(old) = &older.state else {
            let head = nothing_before(&new, &older);
            let removed = &older.removed;
            let data = json!({"to": new.name(), "removed_state": removed, "changes": []});
            return Ok(answer(&head, "", None, data));
        };
        let (old_state, new_state) = (old.load()?, new.load()?);
        let found = self.differences(&old_state, &new_state)?;
        let changes: Vec<_> = found.iter().filter_map(Difference::change).collect();
        let summary = ChangeSummary::of(&changes);
        let line = |change: &Change| {
            let path = self.named(change.path.as_os_str().as_encoded_bytes());
            let mark = change_mark(change.change_type);
            format!("{mark} {}\n", Shown::bytes(path.as_bytes()))
        };
        let cursor = arguments.cursor.as_deref();
        let (changes, next) = page(changes, cursor, arguments.limit, line)?;
        let recorded: String = changes.iter().map(line).collect();
        let mut listed = Vec::new();
        for change in &changes {
            let path = self.named(change.path.as_os_str().as_encoded_bytes());
            listed.push(json!({
                "path": path,
                "change_type": change.change_type,
                "size_delta": change.size_delta,
                "is_directory": change.is_directory,
            }));
        }
        let head = format!(
            "Changes from {} to {}: {}.{}",
            old.name(),
            new.name(),
            summary_line(&summary, &Palette::plain()),
            noted(&older)
        );
        let data = json!({
            "from": old.name(), "to": new.name(), "summary": summary, "changes": listed,
            "removed_state": older.removed,
        });
        Ok(answer(&head, &recorded, next, data))
    }

    pub(super) fn diff(&self, arguments: &DiffArguments) -> Result<Answer, ToolError> {
        let from = position(arguments.cursor.as_deref())?.unwrap_or(0);
        let paths = self.paths(&arguments.paths)?;
        let new = self.state(arguments.to.as_deref())?;
        let older = self.older(arguments.from.as_deref(), &new)?;
        let Some(old) = &older.state else {
            let head = nothing_before(&new, &older);
            let removed = &older.removed;
            let data = json!({"to": new.name(), "removed_state": removed, "diff": ""});
            return Ok(answer(&head, "", None, data));
        };
        let (old_state, new_state) = (old.load()?, new.load()?);
        let mut found = self.differences(&old_state, &new_state)?;
        if !paths.is_empty() {
            found.retain(|one| paths.iter().any(|path| byte_path::is_in(&one.path, path)));
        }
        let (hidden, shown): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|one| self.hides(&one.path));
        let hidden_count = hidden.len();
        let mut hidden: Vec<_> = hidden.iter().map(|one| self.named(&one.path)).collect();
        hidden.truncate(fitting(hidden.iter().cloned(), Some(u64::MAX)));
        let source = EitherSource { first: old_state.source(), second: new_state.source() };
        let roots = [self.project.clone()];
        let mut options = DiffOptions::new(&source, &roots);
        options.max_file_bytes = MAX_DIFF_BYTES;
        let mut window = Window::new(from);
        match write_patch(&mut window, &shown, &options) {
            Err(RenderError::Output(_)) if window.is_full() => {}
            written => written?,
        }
        let (patch, next) = window.finish();
        let mut head = format!("Diff from {} to {}.{}", old.name(), new.name(), noted(&older));
        if shown.is_empty() {
            head.push_str(" Nothing is different.");
        }
        if hidden_count > 0 {
            head.push_str(&format!(" The contents of {hidden_count} changed files are not shown."));
        }
        let data = json!({
            "from": old.name(), "to": new.name(), "diff": patch, "not_shown": hidden,
            "not_shown_count": hidden_count,
            "removed_state": older.removed,
        });
        Ok(answer(&head, &patch, next, data))
    }

    /// Absolute paths of the project, as bytes.
    pub(super) fn paths(&self, given: &[String]) -> Result<Vec<Vec<u8>>, ToolError> {
        if given.len() > MAX_PATHS {
            let reason = format!("paths: {} are more than {MAX_PATHS}", given.len());
            return Err(ToolError::Arguments(reason));
        }
        let path = |path: &String| Ok(self.path(path)?.into_os_string().into_encoded_bytes());
        given.iter().map(path).collect()
    }

    /// The older state: the one that is named, or the one before the newer.
    fn older(&self, named: Option<&str>, new: &Named) -> Result<Older, ToolError> {
        match named {
            Some(named) => Ok(Older::named(self.state(Some(named))?)),
            None => new.before(),
        }
    }

    /// The differences in the project, outside of git's own directories.
    fn differences(&self, old: &State<'_>, new: &State<'_>) -> Result<Vec<Difference>, ToolError> {
        let (a, b) = (old.manifest(), new.manifest());
        let source = EitherSource { first: old.source(), second: new.source() };
        let mut found = diff::compare(&source, &a.merkle_root, &b.merkle_root)?;
        let unknown = (NotCapturedSet::new(a), NotCapturedSet::new(b));
        found.retain(|one| {
            self.holds(&one.path)
                && !is_in_git(&one.path)
                && diff::is_known(one, &unknown.0, &unknown.1)
        });
        Ok(found)
    }
}

/// The answer where there is no state to compare with.
fn nothing_before(new: &Named, older: &Older) -> String {
    match older.note() {
        Some(note) => format!("Nothing is left to compare {} with. {note}", new.name()),
        None => format!("{} is the first state: nothing is before it.", new.name()),
    }
}

/// The note on the older state, behind another sentence.
fn noted(older: &Older) -> String {
    older.note().map(|note| format!(" {note}")).unwrap_or_default()
}
