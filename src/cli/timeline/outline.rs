//! A list that folds: which rows of a tree are on the screen, and where the cursor is.
//!
//! Nodes are in the order of the screen, parents before their children, and have no text: whoever
//! draws asks for the rows that fit. So a list of 100,000 rows costs a few numbers for each, and
//! drawing costs what fits.

use crate::cli::looking::Node;

/// The list.
#[derive(Debug, Default)]
pub(super) struct Outline {
    nodes: Vec<Node>,
    /// The shown nodes.
    shown: Vec<usize>,
    /// With a search, whether each node matches.
    matching: Option<Vec<bool>>,
    match_count: usize,
    /// Position among the shown nodes.
    cursor: usize,
    /// Position of the first row on the screen.
    top: usize,
    /// Rows on the screen.
    rows: usize,
}

impl Outline {
    /// A list with the cursor on its first row.
    pub(super) fn new(nodes: Vec<Node>) -> Self {
        let mut outline = Self { nodes, rows: 1, ..Self::default() };
        outline.refresh();
        outline
    }

    /// Other nodes; the cursor goes to `current`.
    pub(super) fn replace(&mut self, nodes: Vec<Node>, current: usize) {
        self.nodes = nodes;
        self.matching = None;
        self.refresh();
        self.select(current);
    }

    pub(super) fn node(&self, index: usize) -> Node {
        self.nodes[index]
    }

    /// Whether it folds.
    pub(super) fn is_parent(&self, index: usize) -> bool {
        let node = self.nodes[index];
        node.has_more || node.next > index + 1
    }

    /// The node at the cursor.
    pub(super) fn current(&self) -> Option<usize> {
        self.shown.get(self.cursor).copied()
    }

    /// The position of the cursor among the shown rows.
    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    /// Number of shown rows.
    pub(super) fn shown_count(&self) -> usize {
        self.shown.len()
    }

    /// With a search, how many nodes match.
    pub(super) fn match_count(&self) -> Option<usize> {
        self.matching.as_ref().map(|_| self.match_count)
    }

    /// Whether a node matches the search; all do without one.
    pub(super) fn is_match(&self, index: usize) -> bool {
        self.matching.as_ref().is_none_or(|matching| matching[index])
    }

    /// Moves the cursor to a position, or to the last one.
    pub(super) fn move_to(&mut self, position: usize) {
        self.cursor = position.min(self.shown.len().saturating_sub(1));
    }

    /// Moves the cursor by so many rows.
    pub(super) fn move_by(&mut self, rows: isize) {
        self.move_to(self.cursor.saturating_add_signed(rows));
    }

    /// Moves the cursor by so many screens.
    pub(super) fn move_pages(&mut self, pages: isize) {
        self.move_by(pages.saturating_mul(isize::try_from(self.rows).unwrap_or(1)));
    }

    /// Moves the cursor to a node, or to the nearest shown one above it.
    pub(super) fn select(&mut self, index: usize) {
        self.cursor = self.shown.partition_point(|shown| *shown <= index).saturating_sub(1);
    }

    /// The node above a node in the tree.
    pub(super) fn parent(&self, index: usize) -> Option<usize> {
        let depth = self.nodes[index].depth;
        (0..index).rev().find(|above| self.nodes[*above].depth < depth)
    }

    /// Hides or shows what is below a node; the cursor stays on a shown row.
    pub(super) fn fold(&mut self, index: usize, is_folded: bool) {
        self.nodes[index].is_folded = is_folded;
        let current = self.current();
        self.refresh();
        if let Some(current) = current {
            self.select(current);
        }
    }

    /// Shows the nodes that match and those above them, folded or not; all without a search.
    pub(super) fn search(&mut self, matching: Option<Vec<bool>>) {
        let current = self.current();
        self.match_count = matching.iter().flatten().filter(|matches| **matches).count();
        self.matching = matching;
        if let (None, Some(current)) = (&self.matching, current) {
            // The found node stays in sight.
            let mut above = self.parent(current);
            while let Some(index) = above {
                self.nodes[index].is_folded = false;
                above = self.parent(index);
            }
        }
        self.refresh();
        match current {
            Some(current) => self.select(current),
            None => self.cursor = 0,
        }
        // The cursor is at a node that was searched for, and not at one above it.
        if let Some(index) = self.current()
            && !self.is_match(index)
            && let Some(position) = self.shown.iter().position(|shown| self.is_match(*shown))
        {
            self.cursor = position;
        }
    }

    /// The positions and nodes on a screen of so many rows; moved so that the cursor is on it.
    pub(super) fn window(&mut self, rows: usize) -> Vec<(usize, usize)> {
        self.rows = rows.max(1);
        let last_top = self.shown.len().saturating_sub(self.rows);
        let lowest = (self.cursor + 1).saturating_sub(self.rows);
        self.top = self.top.clamp(lowest, self.cursor.max(lowest)).min(last_top);
        let end = (self.top + rows).min(self.shown.len());
        (self.top..end).map(|position| (position, self.shown[position])).collect()
    }

    /// The position on so many rows below the top of the screen.
    pub(super) fn position_at(&self, row: usize) -> Option<usize> {
        Some(self.top + row).filter(|position| row < self.rows && *position < self.shown.len())
    }

    fn refresh(&mut self) {
        self.shown.clear();
        match &self.matching {
            None => {
                let mut at = 0;
                while let Some(node) = self.nodes.get(at) {
                    self.shown.push(at);
                    at = if node.is_folded { node.next } else { at + 1 };
                }
            }
            Some(matching) => {
                let mut is_shown = vec![false; self.nodes.len()];
                let mut above: Vec<usize> = Vec::new();
                for (at, node) in self.nodes.iter().enumerate() {
                    above.truncate(node.depth.into());
                    above.push(at);
                    if matching[at] {
                        let new = above.iter().rev().take_while(|it| !is_shown[**it]);
                        new.copied().collect::<Vec<_>>().into_iter().for_each(|it| {
                            is_shown[it] = true;
                        });
                    }
                }
                self.shown.extend((0..self.nodes.len()).filter(|at| is_shown[*at]));
            }
        }
        self.move_to(self.cursor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a` with `b` (with `c`) and `d`, then `e`.
    fn outline() -> Outline {
        let node = |depth, next| Node { depth, next, is_folded: false, has_more: false };
        Outline::new(vec![node(0, 4), node(1, 3), node(2, 3), node(1, 4), node(0, 5)])
    }

    fn shown(outline: &mut Outline) -> Vec<usize> {
        outline.window(100).into_iter().map(|(_, node)| node).collect()
    }

    #[test]
    fn folding_hides_what_is_below_and_keeps_the_cursor_on_a_shown_row() {
        let mut outline = outline();
        outline.select(2);
        outline.fold(0, true);
        assert_eq!(shown(&mut outline), [0, 4]);
        assert_eq!(outline.current(), Some(0));
        outline.fold(0, false);
        assert_eq!(shown(&mut outline), [0, 1, 2, 3, 4]);
        outline.fold(1, true);
        outline.select(3);
        assert_eq!((shown(&mut outline), outline.current()), (vec![0, 1, 3, 4], Some(3)));
    }

    #[test]
    fn a_search_shows_matches_below_folded_nodes_with_the_nodes_above() {
        let mut outline = outline();
        outline.fold(0, true);
        outline.search(Some(vec![false, false, true, false, false]));
        assert_eq!(shown(&mut outline), [0, 1, 2]);
        assert_eq!((outline.current(), outline.match_count()), (Some(2), Some(1)));
        // The found node stays in sight.
        outline.search(None);
        assert_eq!((shown(&mut outline), outline.current()), (vec![0, 1, 2, 3, 4], Some(2)));
        outline.search(Some(vec![false; 5]));
        assert_eq!((outline.current(), outline.shown_count()), (None, 0));
    }

    #[test]
    fn parents_are_found() {
        let outline = outline();
        let parents: Vec<_> = (0..5).map(|index| outline.parent(index)).collect();
        assert_eq!(parents, [None, Some(0), Some(1), Some(0), None]);
    }

    #[test]
    fn the_window_follows_the_cursor() {
        let mut outline = outline();
        let positions = |outline: &mut Outline, rows| -> Vec<usize> {
            outline.window(rows).into_iter().map(|(position, _)| position).collect()
        };
        assert_eq!(positions(&mut outline, 3), [0, 1, 2]);
        outline.move_by(3);
        assert_eq!(positions(&mut outline, 3), [1, 2, 3]);
        outline.move_by(-1);
        assert_eq!(positions(&mut outline, 3), [1, 2, 3]);
        assert_eq!((outline.position_at(0), outline.position_at(3)), (Some(1), None));
        outline.move_to(usize::MAX);
        assert_eq!(positions(&mut outline, 3), [2, 3, 4]);
        // A larger screen shows more, a tiny one less, and the cursor is on both.
        assert_eq!(positions(&mut outline, 100), [0, 1, 2, 3, 4]);
        assert_eq!(positions(&mut outline, 1), [4]);
        assert_eq!(positions(&mut outline, 0), Vec::<usize>::new());
        outline.move_pages(-100);
        assert_eq!(outline.cursor(), 0);
    }
}
