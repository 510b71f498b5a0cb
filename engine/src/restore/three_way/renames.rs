//! Files that got another name: one side may rename a file that the other side edits.
//!
//! A rename is a file that goes and one that comes with the same bytes. No other file that goes or
//! comes may have these bytes. So nothing is guessed.

use std::collections::HashMap;

use super::virtual_state::Change;
use crate::object::{ContentHash, Node};

/// A file that got another name, by the places of both names in a list of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rename {
    pub(super) removed: usize,
    pub(super) created: usize,
}

/// The renames among changes.
pub(super) fn renames(changes: &[Change]) -> Vec<Rename> {
    let mut by_bytes: HashMap<ContentHash, [Vec<usize>; 2]> = HashMap::new();
    for (at, Change { from, to, .. }) in changes.iter().enumerate() {
        let (side, state) = match (from, to) {
            (Some(state), None) => (0, state),
            (None, Some(state)) => (1, state),
            _ => continue,
        };
        // Empty files are all alike.
        if let Node::File { size: 1.., hash, .. } = &state.node {
            by_bytes.entry(*hash).or_default()[side].push(at);
        }
    }
    let mut found: Vec<Rename> = by_bytes
        .into_values()
        .filter_map(|[removed, created]| match (&removed[..], &created[..]) {
            (&[removed], &[created]) => Some(Rename { removed, created }),
            _ => None,
        })
        .collect();
    found.sort_by_key(|rename| rename.removed);
    found
}

/// The new names of files that got another one, by their old names.
#[derive(Debug, Default)]
pub(in crate::restore) struct Renames(HashMap<Vec<u8>, Vec<u8>>);

impl Renames {
    /// The renames among changes.
    pub(in crate::restore) fn among(changes: &[Change]) -> Self {
        let names =
            |it: Rename| (changes[it.removed].path.clone(), changes[it.created].path.clone());
        Self(renames(changes).into_iter().map(names).collect())
    }

    pub(super) fn new_name(&self, old: &[u8]) -> Option<&[u8]> {
        self.0.get(old).map(Vec::as_slice)
    }
}
