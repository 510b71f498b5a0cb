//! The changes of a session, in at most twenty lines: beyond that, by directory.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::cli::error::CliError;
use crate::cli::render::{Palette, change_line, summary_line};
use nono_engine::diff::{Change, ChangeSummary, relative_to_roots};
use nono_engine::path_text::Shown;

/// So many lines at most.
const MOST_LINES: usize = 20;

/// Writes changes, one in a line, or a line for each directory, and their sum, if one is given.
pub(in crate::cli) fn write_preview(
    out: &mut impl Write,
    changes: &[Change],
    sum: Option<&str>,
    roots: &[PathBuf],
) -> Result<(), CliError> {
    let palette = Palette::coloured();
    for line in lines(changes, roots, &palette) {
        writeln!(out, "{line}")?;
    }
    if let Some(sum) = sum {
        writeln!(out, "{sum}")?;
    }
    Ok(out.flush()?)
}

fn lines(changes: &[Change], roots: &[PathBuf], palette: &Palette) -> Vec<String> {
    // The sum is a line, too.
    if changes.len() < MOST_LINES {
        return changes.iter().map(|change| change_line(change, roots, palette)).collect();
    }
    let mut directories: BTreeMap<&[u8], Vec<&Change>> = BTreeMap::new();
    for change in changes {
        let path = relative_to_roots(change.path.as_os_str().as_bytes(), roots);
        // The deepest name is the file's, and two levels tell enough.
        let above = path.iter().rposition(|byte| *byte == b'/').map_or(0, |end| end + 1);
        let second = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').nth(1);
        let end = second.map_or(above, |(end, _)| above.min(end + 1));
        directories.entry(&path[..end]).or_default().push(change);
    }
    let mut directories: Vec<_> = directories.into_iter().collect();
    let count = directories.len();
    let named = if count < MOST_LINES { count } else { MOST_LINES - 2 };
    if named < count {
        // The directories with most changes, in the order of their names.
        directories.sort_by_key(|(_, changes)| std::cmp::Reverse(changes.len()));
        directories[..named].sort_by_key(|(directory, _)| *directory);
    }
    let mut lines: Vec<String> = directories[..named]
        .iter()
        .map(|(directory, changes)| {
            let place = if directory.is_empty() { &b"./"[..] } else { directory };
            let sum = summary_line(&ChangeSummary::of(changes.iter().copied()), palette);
            format!("{}  {sum}", Shown::bytes(place))
        })
        .collect();
    if named < count {
        lines.push(format!("and {} more directories", count - named));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str) -> Change {
        let (path, change_type) = (path.into(), nono_engine::diff::ChangeType::Created);
        Change { path, change_type, size_delta: Some(1), is_directory: false }
    }

    fn shown(changes: &[Change]) -> Vec<String> {
        lines(changes, &["/p".into()], &Palette::plain())
    }

    #[test]
    fn few_changes_have_a_line_each() {
        let few: Vec<_> = (0..19).map(|n| change(&format!("/p/{n:02}"))).collect();
        assert_eq!(shown(&few).len(), 19);
        assert!(shown(&few)[3].starts_with("+ created     03"));
    }

    #[test]
    fn many_are_summed_up_by_directory() {
        let mut many: Vec<_> = (0..30).map(|n| change(&format!("/p/src/a/b/{n}"))).collect();
        many.push(change("/p/top"));
        many.push(change("/p/doc/x"));
        assert_eq!(shown(&many), ["./  +1 file", "doc/  +1 file", "src/a/  +30 files"]);
    }

    #[test]
    fn of_very_many_directories_the_fullest_are_named() {
        let mut many: Vec<_> = (0..100).map(|n| change(&format!("/p/{n:03}/x"))).collect();
        many.push(change("/p/099/y"));
        let shown = shown(&many);
        assert_eq!(shown.len(), 19, "with the sum of all, twenty");
        assert!(shown.contains(&"099/  +2 files".to_owned()), "{shown:?}");
        assert_eq!(shown[18], "and 82 more directories");
    }
}
