//! Changes in one line each, and all of them in one line.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::{Palette, size_delta};
use nono_engine::diff::{Change, ChangeSummary, ChangeType, relative_to_roots};
use nono_engine::path_text::Shown;
use nono_engine::session::SessionSummary;

/// `+`, `~`, `-` or `m`.
pub const fn change_mark(change_type: ChangeType) -> char {
    match change_type {
        ChangeType::Created => '+',
        ChangeType::Modified => '~',
        ChangeType::Deleted => '-',
        ChangeType::PermissionsChanged => 'm',
    }
}

/// A kind of change in a word.
pub const fn change_word(change_type: ChangeType) -> &'static str {
    match change_type {
        ChangeType::Created => "created",
        ChangeType::Modified => "modified",
        ChangeType::Deleted => "deleted",
        ChangeType::PermissionsChanged => "permissions",
    }
}

/// A number of changes of one kind: `+5 files`. Summaries, the review and the page count so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The kind.
    pub change_type: ChangeType,
    /// Its sign in front of a number.
    pub mark: char,
    /// The number.
    pub count: u64,
    /// The noun or the adjective behind it.
    pub word: &'static str,
}

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{} {}", self.mark, self.count, self.word)
    }
}

/// The numbers that are not zero, in their order. Directories are counted alike where they come and
/// where they go. Changes in git directories are not among them.
pub fn counted_changes(summary: &ChangeSummary) -> Vec<Counted> {
    let plural = |count, one: &'static str, many| if count == 1 { one } else { many };
    let directories = |count| plural(count, "directory", "directories");
    let (made, gone) = (summary.created_directories, summary.deleted_directories);
    let files = summary.created.saturating_sub(made);
    let deleted = summary.deleted.saturating_sub(gone);
    let permissions = summary.permissions_changed;
    let all = [
        (ChangeType::Created, '+', files, plural(files, "file", "files")),
        (ChangeType::Created, '+', made, directories(made)),
        (ChangeType::Modified, '~', summary.modified, "modified"),
        (ChangeType::Deleted, '-', deleted, "deleted"),
        (ChangeType::Deleted, '-', gone, directories(gone)),
        (
            ChangeType::PermissionsChanged,
            '±',
            permissions,
            plural(permissions, "permission", "permissions"),
        ),
    ];
    let counted = all.into_iter().map(|(change_type, mark, count, word)| Counted {
        change_type,
        mark,
        count,
        word,
    });
    counted.filter(|it| it.count > 0).collect()
}

/// Changes in git directories of which nothing more is known. Their number says nothing to a
/// person.
pub const GIT_CHANGED: &str = ".git changed";

/// `+5 files +1 directory ~2 modified -1 deleted -1 directory ±3 permissions, 4 touched`. Zero
/// counts are left out, and without changes it says `no changes`.
pub fn summary_line(summary: &ChangeSummary, palette: &Palette) -> String {
    summary_with_git(summary, None, palette)
}

/// As [`summary_line`]. `git`: what is said in place of the number of changes in repositories.
pub fn summary_with_git(summary: &ChangeSummary, git: Option<&str>, palette: &Palette) -> String {
    let shown: Vec<String> = counted_changes(summary)
        .into_iter()
        .map(|counted| {
            let style = palette.change(counted.change_type);
            format!("{style}{counted}{style:#}")
        })
        .collect();
    let of_git = match (summary.in_git, git) {
        (0, _) => None,
        (_, Some(git)) => Some(git.to_owned()),
        (_, None) => Some(GIT_CHANGED.to_owned()),
    };
    let of_files = (!shown.is_empty()).then(|| shown.join(" "));
    let parts: Vec<String> = of_files.into_iter().chain(of_git).collect();
    let changes = if parts.is_empty() { "no changes".to_owned() } else { parts.join(", ") };
    format!("{changes}{}", touched_part(summary))
}

/// `, 5 touched`, or nothing: the end of a line about changes.
pub fn touched_part(summary: &ChangeSummary) -> String {
    match summary.touched {
        0 => String::new(),
        count => format!(", {count} touched"),
    }
}

/// `~ modified     src/main.rs  (+1.2 KiB)`, safe for a terminal, without a newline. The path is
/// relative to the tracked path that it lies in.
pub fn change_line(change: &Change, roots: &[PathBuf], palette: &Palette) -> String {
    let mark = change_mark(change.change_type);
    let word = change_word(change.change_type);
    let path = relative_to_roots(change.path.as_os_str().as_bytes(), roots);
    let delta = delta_part(change.size_delta, palette);
    let style = palette.change(change.change_type);
    format!("{style}{mark} {word:<11}{style:#} {}{delta}", Shown::bytes(path))
}

/// `+ created      made/  +12 files +1 directory  (+1.2 KiB)`: a directory with all in it.
pub fn tree_line(
    change: &Change,
    below: &[&Change],
    roots: &[PathBuf],
    palette: &Palette,
) -> String {
    let directory = change_line(&Change { size_delta: None, ..change.clone() }, roots, palette);
    let sum = summary_line(&ChangeSummary::of(below.iter().copied()), palette);
    let size: i64 = below.iter().filter_map(|change| change.size_delta).sum();
    format!("{directory}/  {sum}{}", delta_part(Some(size), palette))
}

fn delta_part(size: Option<i64>, palette: &Palette) -> String {
    match size {
        None | Some(0) => String::new(),
        Some(delta) => format!("  {0}({1}){0:#}", palette.dim, size_delta(delta)),
    }
}

/// The changes of a session, and behind them how many more are the user's. `git` is as in
/// [`summary_with_git`].
pub fn session_changes(session: &SessionSummary, git: Option<&str>, palette: &Palette) -> String {
    let Some(changes) = &session.changes else { return "changes not counted".to_owned() };
    let changed = summary_with_git(changes, git, palette);
    match session.user_changes {
        0 => changed,
        count => format!("{changed}  ({count} more by you)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(created: u64, modified: u64, deleted: u64, permissions_changed: u64) -> String {
        let summary = ChangeSummary {
            created,
            modified,
            deleted,
            permissions_changed,
            ..ChangeSummary::default()
        };
        summary_line(&summary, &Palette::plain())
    }

    #[test]
    fn a_summary_names_what_happened() {
        assert_eq!(line(5, 2, 1, 3), "+5 files ~2 modified -1 deleted ±3 permissions");
        assert_eq!(line(1, 0, 0, 1), "+1 file ±1 permission");
        assert_eq!(line(0, 1, 0, 0), "~1 modified");
        assert_eq!(line(0, 0, 0, 0), "no changes");
    }

    #[test]
    fn directories_are_no_files_and_what_was_touched_is_no_change() {
        let line = |summary: ChangeSummary| summary_line(&summary, &Palette::plain());
        let summary = ChangeSummary { created: 3, created_directories: 1, ..Default::default() };
        assert_eq!(line(summary), "+2 files +1 directory");
        let summary = ChangeSummary { created: 2, created_directories: 2, ..Default::default() };
        assert_eq!(line(summary), "+2 directories");
        let summary = ChangeSummary { deleted: 3, deleted_directories: 1, ..Default::default() };
        assert_eq!(line(summary), "-2 deleted -1 directory");
        let summary = ChangeSummary { modified: 1, touched: 5, ..Default::default() };
        assert_eq!(line(summary), "~1 modified, 5 touched");
        assert_eq!(line(ChangeSummary::default().with_touched(1)), "no changes, 1 touched");
        let summary = ChangeSummary { in_git: 12, ..Default::default() };
        assert_eq!(line(summary), ".git changed");
        let summary = ChangeSummary { modified: 1, in_git: 1, touched: 2, ..Default::default() };
        assert_eq!(line(summary), "~1 modified, .git changed, 2 touched");
    }

    #[test]
    fn a_change_has_its_mark_and_word() {
        let change = |change_type, size_delta| {
            let path = "/p/a\x1b b".into();
            let change = Change { path, change_type, size_delta, is_directory: false };
            change_line(&change, &["/p".into()], &Palette::plain())
        };
        assert_eq!(change(ChangeType::Created, Some(1200)), "+ created     a\\u{1b} b  (+1.2 KiB)");
        assert_eq!(change(ChangeType::Modified, Some(0)), "~ modified    a\\u{1b} b");
        assert_eq!(change(ChangeType::Deleted, Some(-3)), "- deleted     a\\u{1b} b  (-3 B)");
        assert_eq!(change(ChangeType::PermissionsChanged, None), "m permissions a\\u{1b} b");
    }

    #[test]
    fn colours_enclose_the_parts() {
        let summary = ChangeSummary { created: 2, ..ChangeSummary::default() };
        assert_eq!(summary_line(&summary, &Palette::coloured()), "\x1b[32m+2 files\x1b[0m");
    }
}
