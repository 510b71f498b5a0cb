//! Files that got another name: one side may rename a file that the other side edits.
//!
//! A rename is a file that goes and one that comes with the same bytes. No other file that goes or
//! comes may have these bytes. So nothing is guessed.

use std::collections::HashMap;

use super::virtual_state::Change;
use crate::byte_path;
use crate::diff::EntryState;
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

/// A file or a directory that has another name on each side, and not the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DoubleRename {
    pub(super) old: Vec<u8>,
    /// Its name on the other side.
    pub(super) there: Vec<u8>,
    /// Its name here.
    pub(super) here: Vec<u8>,
    /// The names here of the files in it that were found on both sides.
    pub(super) pairs: Vec<Vec<u8>>,
}

/// Entries that both sides gave another name, by the changes of the other side and the names here. A
/// directory is one where it is gone on both sides, and a file of it went to a new directory on each side.
pub(super) fn doubles(
    changes: &[Change],
    here: &Renames,
    is_gone_here: impl Fn(&[u8]) -> bool,
) -> Vec<DoubleRename> {
    let by_path: HashMap<&[u8], &Change> =
        changes.iter().map(|change| (change.path.as_slice(), change)).collect();
    let is_directory = |state: &EntryState| matches!(state.node, Node::Directory { .. });
    let has_gone = |path: &[u8]| {
        let change = by_path.get(path);
        change.is_some_and(|it| it.to.is_none() && it.from.as_deref().is_some_and(is_directory))
    };
    let has_come = |path: &[u8]| {
        let change = by_path.get(path);
        change.is_some_and(|it| it.from.is_none() && it.to.as_deref().is_some_and(is_directory))
    };
    let mut found: Vec<DoubleRename> = Vec::new();
    for rename in renames(changes) {
        let (old, there) = (&changes[rename.removed].path, &changes[rename.created].path);
        let Some(name) = here.new_name(old).filter(|name| *name != there.as_slice()) else {
            continue;
        };
        let pair = name.to_vec();
        let mut places = [old.as_slice(), there.as_slice(), name];
        // The same name in directories that went and came: the directories were renamed.
        loop {
            let above = places.map(byte_path::split);
            let is_same_name = above.iter().all(|(_, name)| *name == above[0].1);
            let above = above.map(|(parent, _)| parent);
            let differ = above[0] != above[1] && above[0] != above[2] && above[1] != above[2];
            if !is_same_name
                || !differ
                || !has_gone(above[0])
                || !has_come(above[1])
                || !is_gone_here(above[0])
            {
                break;
            }
            places = above;
        }
        let [old, there, here] = places.map(<[u8]>::to_vec);
        match found.iter_mut().find(|it| it.old == old && it.there == there && it.here == here) {
            Some(known) => known.pairs.push(pair),
            None => found.push(DoubleRename { old, there, here, pairs: vec![pair] }),
        }
    }
    found
}
