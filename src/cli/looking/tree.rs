//! Changed paths as a tree of directories: rows for a list that folds.
//!
//! Chains of directories with nothing beside them are one row, and so is a file that is alone in
//! one. A row has no text of its own: its name is a part of the first path below it. Making the
//! tree costs one look at each path.

use std::ops::Range;
use std::path::PathBuf;

use nono_engine::byte_path;
use nono_engine::diff::{Change, relative_to_roots};

/// A row of a tree as a list that folds needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    /// The number of rows above it in the tree.
    pub(crate) depth: u16,
    /// Index behind the last node below it.
    pub(crate) next: usize,
    /// Whether the nodes below are hidden.
    pub(crate) is_folded: bool,
    /// Whether there are nodes below that are not loaded.
    pub(crate) has_more: bool,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// The change that the row is; `None` for a directory that only holds changes.
    pub(crate) change: Option<usize>,
    /// The changes of the row and below it.
    pub(crate) extent: Range<usize>,
    /// Its name, as bytes of the first path of the extent.
    name: Range<usize>,
}

impl Row {
    /// The path of the row.
    #[cfg_attr(not(feature = "ui"), expect(dead_code, reason = "the page has addresses of rows"))]
    pub(crate) fn path<'a>(&self, changes: &'a [Change]) -> &'a [u8] {
        &changes[self.extent.start].path.as_os_str().as_encoded_bytes()[..self.name.end]
    }

    /// The name below the row above.
    pub(crate) fn name<'a>(&self, changes: &'a [Change]) -> &'a [u8] {
        let path = changes[self.extent.start].path.as_os_str().as_encoded_bytes();
        if self.name.is_empty() { b"." } else { &path[self.name.clone()] }
    }
}

/// Makes the rows of changes, which are sorted by path. `is_hidden`: changes without a row.
pub(crate) fn tree_of(
    changes: &[Change],
    roots: &[PathBuf],
    is_hidden: impl Fn(usize) -> bool,
) -> (Vec<Row>, Vec<Node>) {
    let indices: Vec<usize> = (0..changes.len()).filter(|index| !is_hidden(*index)).collect();
    let mut tree = Tree { changes, indices, rows: Vec::new(), nodes: Vec::new() };
    let mut at = 0;
    // The tracked paths themselves, and what lies below each.
    while at < tree.indices.len() {
        let path = tree.path(at);
        let from = path.len() - relative_to_roots(path, roots).len();
        let above = &path[..from];
        let mut end = at + 1;
        while end < tree.indices.len() && tree.path(end).starts_with(above) {
            end += 1;
        }
        if from == 0 && is_root(path, roots) {
            tree.push(at, Some(tree.indices[at]), path.len()..path.len(), 0);
            at += 1;
            continue;
        }
        tree.add(at..end, from, 0);
        at = end;
    }
    (tree.rows, tree.nodes)
}

fn is_root(path: &[u8], roots: &[PathBuf]) -> bool {
    matches!(roots, [root] if root.as_os_str().as_encoded_bytes() == path)
}

struct Tree<'a> {
    changes: &'a [Change],
    /// The changes with a row.
    indices: Vec<usize>,
    rows: Vec<Row>,
    nodes: Vec<Node>,
}

impl<'a> Tree<'a> {
    fn path(&self, at: usize) -> &'a [u8] {
        self.changes[self.indices[at]].path.as_os_str().as_encoded_bytes()
    }

    fn push(&mut self, at: usize, change: Option<usize>, name: Range<usize>, depth: u16) -> usize {
        let first = self.indices[at];
        self.rows.push(Row { change, extent: first..first + 1, name });
        let next = self.nodes.len() + 1;
        self.nodes.push(Node { depth, next, is_folded: false, has_more: false });
        next - 1
    }

    /// Adds what lies in one directory, whose paths end at `from`.
    fn add(&mut self, range: Range<usize>, from: usize, depth: u16) {
        let mut at = range.start;
        while at < range.end {
            let path = self.path(at);
            // A leading slash is part of the first name.
            let slash = path[from + 1..].iter().position(|byte| *byte == b'/');
            let end = slash.map_or(path.len(), |slash| from + 1 + slash);
            let is_below = |other: &[u8]| byte_path::is_in(other, &path[..end]);
            let rest = &self.indices[at + 1..range.end];
            let below = rest.partition_point(|index| {
                is_below(self.changes[*index].path.as_os_str().as_encoded_bytes())
            });
            let stop = at + 1 + below;
            let row = if end == path.len() {
                let row = self.push(at, Some(self.indices[at]), from..end, depth);
                self.add(at + 1..stop, end + 1, depth.saturating_add(1));
                row
            } else if below == 0 {
                self.push(at, Some(self.indices[at]), from..path.len(), depth)
            } else {
                let end = common_directory(path, self.path(stop - 1), end);
                let is_itself = path.len() == end;
                let row = self.push(at, None, from..end, depth);
                if is_itself {
                    // The first path is the directory that holds all others.
                    self.rows[row].change = Some(self.indices[at]);
                }
                let first = if is_itself { at + 1 } else { at };
                self.add(first..stop, end + 1, depth.saturating_add(1));
                row
            };
            self.rows[row].extent.end = self.indices[stop - 1] + 1;
            self.nodes[row].next = self.nodes.len();
            at = stop;
        }
    }
}

/// Where the deepest directory ends that holds both paths, or is the first of them.
fn common_directory(first: &[u8], last: &[u8], at_least: usize) -> usize {
    let same = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    if same == first.len() && last.get(same) == Some(&b'/') {
        return same;
    }
    first[..same].iter().rposition(|byte| *byte == b'/').map_or(at_least, |at| at.max(at_least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nono_engine::diff::ChangeType;

    fn changes(paths: &[&str]) -> Vec<Change> {
        let change = |path: &&str| Change {
            path: path.into(),
            change_type: ChangeType::Modified,
            size_delta: None,
            is_directory: false,
        };
        paths.iter().map(change).collect()
    }

    /// Depth, name and number of changes of each row; a change has a star.
    fn shown(paths: &[&str], roots: &[&str]) -> Vec<String> {
        let changes = changes(paths);
        let roots: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
        let (rows, nodes) = tree_of(&changes, &roots, |_| false);
        let row = |(row, node): (&Row, &Node)| {
            let name = String::from_utf8_lossy(row.name(&changes)).into_owned();
            let star = if row.change.is_some() { "*" } else { "" };
            format!("{}{name}{star} {}", "  ".repeat(node.depth.into()), row.extent.len())
        };
        rows.iter().zip(&nodes).map(row).collect()
    }

    #[test]
    fn directories_hold_what_is_in_them_and_chains_are_one_row() {
        let paths = ["/p/a", "/p/deep/er/x", "/p/deep/er/y", "/p/lone/some/file", "/p/z"];
        assert_eq!(
            shown(&paths, &["/p"]),
            ["a* 1", "deep/er 2", "  x* 1", "  y* 1", "lone/some/file* 1", "z* 1"]
        );
    }

    #[test]
    fn a_changed_directory_is_the_row_above_its_contents() {
        let paths = ["/p/new", "/p/new/one", "/p/new/sub/two", "/p/new-er", "/p/x/y", "/p/x/y/z"];
        assert_eq!(
            shown(&paths, &["/p"]),
            ["new* 3", "  one* 1", "  sub/two* 1", "new-er* 1", "x/y* 2", "  z* 1"]
        );
    }

    #[test]
    fn several_tracked_paths_stand_below_the_directory_that_holds_them() {
        assert_eq!(
            shown(&["/h/one/a", "/h/one/b", "/h/two/c"], &["/h/one", "/h/two"]),
            ["one 2", "  a* 1", "  b* 1", "two/c* 1"]
        );
        assert_eq!(
            shown(&["/a/x", "/a/y", "/b/z"], &["/a", "/b"]),
            ["/a 2", "  x* 1", "  y* 1", "/b/z* 1"]
        );
        assert_eq!(
            shown(&["/p", "/p/x"], &["/p"]),
            [". 1", "x* 1"].map(|row| {
                if row.starts_with('.') { ".* 1".to_owned() } else { row.to_owned() }
            })
        );
    }

    #[test]
    fn a_hidden_change_has_no_row_and_stays_in_the_extent_above() {
        let changes = changes(&["/p/d/a", "/p/d/b", "/p/d/c"]);
        let (rows, nodes) = tree_of(&changes, &["/p".into()], |index| index == 1);
        assert_eq!(
            rows.iter().map(|row| row.extent.clone()).collect::<Vec<_>>(),
            [0..3, 0..1, 2..3]
        );
        assert_eq!(nodes[0].next, 3);
    }

    #[test]
    fn a_very_deep_path_and_very_many_are_rows() {
        let deep = format!("/p/{}x", "d/".repeat(2000));
        let mut paths: Vec<String> = vec!["/p/a".to_owned(), deep];
        let many = (0..100_000).map(|n| format!("/p/e{:03}/f{:05}", n / 100, n % 100));
        paths.extend(many);
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let (rows, nodes) = tree_of(&changes(&paths), &["/p".into()], |_| false);
        assert_eq!(rows.len(), 2 + 1000 + 100_000);
        assert_eq!(nodes[2].next, 2 + 101);
    }
}
