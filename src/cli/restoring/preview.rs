//! The changes of a session, in at most twenty lines: beyond that, by directory. A created
//! directory with its contents is one line; what is modified or deleted has its name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::cli::error::CliError;
use crate::cli::render::{Palette, change_line, summary_line, tree_line};
use nono_engine::diff::{Change, ChangeSummary, ChangeType, relative_to_roots};
use nono_engine::path_text::Shown;

/// Maximum number of lines.
const MAX_LINES: usize = 20;

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

/// A change with a line of its own. A created tree is its directory with all in it.
struct Entry<'a> {
    change: &'a Change,
    below: Vec<&'a Change>,
}

/// The outermost of these directories that a change lies in.
fn top_of<'a>(change: &Change, directories: &HashSet<&'a Path>) -> Option<&'a Path> {
    let above = change.path.ancestors().skip(1);
    above.filter_map(|above| directories.get(above).copied()).last()
}

/// The changes, those of a created tree as one entry.
fn folded(changes: &[Change]) -> Vec<Entry<'_>> {
    let is_created_dir =
        |change: &&Change| change.is_directory && change.change_type == ChangeType::Created;
    let created: HashSet<&Path> =
        changes.iter().filter(is_created_dir).map(|change| change.path.as_path()).collect();
    let mut trees: HashMap<&Path, Vec<&Change>> = HashMap::new();
    for change in changes {
        if let Some(top) = top_of(change, &created) {
            trees.entry(top).or_default().push(change);
        }
    }
    // The name of the only thing in a directory tells more than the directory.
    trees.retain(|_, below| below.len() > 1);
    let mut entries = Vec::new();
    for change in changes {
        if top_of(change, &created).is_none_or(|top| !trees.contains_key(top)) {
            let below = trees.get(change.path.as_path()).cloned().unwrap_or_default();
            entries.push(Entry { change, below });
        }
    }
    entries
}

fn lines(changes: &[Change], roots: &[PathBuf], palette: &Palette) -> Vec<String> {
    let entries = folded(changes);
    // The sum is a line, too.
    if entries.len() < MAX_LINES {
        let line = |Entry { change, below }: &Entry<'_>| match below.as_slice() {
            [] => change_line(change, roots, palette),
            below => tree_line(change, below, roots, palette),
        };
        return entries.iter().map(line).collect();
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
    let named = if count < MAX_LINES { count } else { MAX_LINES - 2 };
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
    fn a_created_tree_is_one_line_and_what_is_deleted_has_its_name() {
        let of = |path: &str, change_type, is_directory| Change {
            change_type,
            is_directory,
            ..change(path)
        };
        let created = |path: &str, is_directory| of(path, ChangeType::Created, is_directory);
        let deleted = |path: &str, is_directory| of(path, ChangeType::Deleted, is_directory);
        let mut changes = vec![created("/p/made", true), created("/p/made/deep", true)];
        changes.extend((0..30).map(|n| created(&format!("/p/made/deep/{n}"), false)));
        changes.extend([created("/p/one", true), created("/p/one/file", false)]);
        changes.extend([deleted("/p/old", true), deleted("/p/old/a", false)]);
        changes.extend([deleted("/p/old/b", false), created("/p/made.txt", false)]);
        assert_eq!(
            shown(&changes),
            [
                "+ created     made/  +30 files +1 directory  (+31 B)",
                "+ created     one  (+1 B)",
                "+ created     one/file  (+1 B)",
                "- deleted     old  (+1 B)",
                "- deleted     old/a  (+1 B)",
                "- deleted     old/b  (+1 B)",
                "+ created     made.txt  (+1 B)",
            ]
        );
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
