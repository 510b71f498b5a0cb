//! Doing a part of a plan: selected paths only, or without those that are to stay.
//!
//! The narrowed plan keeps the plan's promises: a directory goes only if everything in it goes, and
//! a needed directory is made even if it was not selected itself.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::plan::{Attribute, RestorePlan, Skipped};
use crate::byte_path;
use crate::diff::{ChangeType, EntryState};
use crate::object::Node;
use crate::path_text::to_path;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const IN_THE_WAY: &str = "what stands in its way was not selected, or stays because it is newer";

/// Directories above a path, the nearest first.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(byte_path::split(path).0), |dir| {
        let parent = byte_path::split(dir).0;
        (parent.len() < dir.len()).then_some(parent)
    })
    .filter(|dir| !dir.is_empty())
}

impl RestorePlan {
    /// Keeps what is wanted. `left` are paths that must stay as they are. `concerns` tells of a
    /// skipped path whether to name it; its second argument says whether all that is or was below
    /// the path is skipped with it.
    pub(super) fn narrow(
        &mut self,
        wanted: impl Fn(&[u8], Option<ChangeType>) -> bool,
        concerns: impl Fn(&[u8], bool) -> bool,
        left: &HashSet<Vec<u8>>,
    ) {
        let types: HashMap<Vec<u8>, ChangeType> = self
            .changes
            .iter()
            .filter_map(|(path, told)| Some((path, told.change_type()?)))
            .collect();
        let actions = &mut self.actions;
        // Below a path that stays a file (or stays away), nothing can be done. Of a directory that
        // stays, what is in it can go.
        let removals = actions.removals.iter();
        let files =
            removals.filter(|removal| !matches!(removal.current.node, Node::Directory { .. }));
        let structural = files.map(|removal| &removal.path);
        let structural = structural.chain(&actions.directories);
        let structural = structural.chain(actions.puts.iter().map(|put| &put.path));
        let barred: HashSet<Vec<u8>> =
            structural.filter(|path| left.contains(*path)).cloned().collect();
        let may_change = |path: &[u8]| {
            !left.contains(path)
                && (barred.is_empty() || !above(path).any(|dir| barred.contains(dir)))
        };
        let is_wanted = |path: &[u8]| may_change(path) && wanted(path, types.get(path).copied());

        // Deepest first, so that what stays is known before the directory it stays in.
        let mut holding: HashSet<Vec<u8>> = HashSet::new();
        let mut stays: HashSet<Vec<u8>> = HashSet::new();
        let mut standing: Vec<(Vec<u8>, Arc<EntryState>)> = Vec::new();
        actions.removals.retain(|removal| {
            let path = &removal.path;
            let is_kept = is_wanted(path) && !holding.contains(path);
            if !is_kept {
                holding.extend(above(path).map(<[u8]>::to_vec));
                stays.insert(path.clone());
                if matches!(removal.current.node, Node::Directory { .. }) {
                    standing.push((path.clone(), Arc::clone(&removal.current)));
                }
            }
            is_kept
        });

        // Directories that are made: those that are wanted, and those that are needed.
        let planned: BTreeSet<Vec<u8>> = actions.directories.iter().cloned().collect();
        let mut skipped = Vec::new();
        let mut made: HashSet<Vec<u8>> = HashSet::new();
        let mut make_way = |path: &[u8]| {
            let needed: Vec<&[u8]> = [path]
                .into_iter()
                .chain(above(path))
                .filter(|dir| planned.contains(*dir))
                .collect();
            if stays.contains(path) || needed.iter().any(|dir| stays.contains(*dir)) {
                skipped.push(Skipped {
                    path: to_path(path).to_owned(),
                    reason: IN_THE_WAY.to_owned(),
                });
                return false;
            }
            made.extend(needed.into_iter().map(<[u8]>::to_vec));
            true
        };
        actions.puts.retain(|put| is_wanted(&put.path) && make_way(&put.path));
        for path in planned.iter().filter(|path| is_wanted(path)) {
            make_way(path);
        }
        actions.directories.retain(|path| made.contains(path));
        actions.attributes.retain(|attribute| is_wanted(&attribute.path));

        let mut acted: HashSet<&[u8]> = HashSet::new();
        acted.extend(actions.removals.iter().map(|removal| removal.path.as_slice()));
        acted.extend(actions.directories.iter().map(Vec::as_slice));
        acted.extend(actions.puts.iter().map(|put| put.path.as_slice()));
        let touched: HashSet<Vec<u8>> =
            acted.iter().map(|path| byte_path::split(path).0.to_vec()).collect();
        acted.extend(actions.attributes.iter().map(|attribute| attribute.path.as_slice()));
        let mut set: HashSet<Vec<u8>> = acted.into_iter().map(<[u8]>::to_vec).collect();
        actions.directory_attributes.retain_mut(|attribute| {
            let path = &attribute.path;
            match &attribute.current {
                None => made.contains(path),
                Some(_) if is_wanted(path) => {
                    set.insert(path.clone());
                    true
                }
                // Not meant itself: after the work in it, it gets back the mode and time it has.
                Some(current) if touched.contains(path) => {
                    attribute.target = current.clone();
                    true
                }
                Some(_) => false,
            }
        });
        // Nor does a directory that stays, although the target has none, get another time.
        standing.retain(|(path, _)| touched.contains(path));
        if !standing.is_empty() {
            let attributes = &mut actions.directory_attributes;
            attributes.extend(standing.into_iter().map(|(path, current)| {
                let target = Arc::clone(&current);
                Attribute { path, current: Some(current), target }
            }));
            actions.sort_directories();
        }
        if touched.is_empty() && actions.attributes.is_empty() {
            // Nothing is done below, so a directory that is as it should be needs nothing.
            let is_other = |current: &Arc<EntryState>, target: &Arc<EntryState>| {
                current.attributes != target.attributes
            };
            actions.directory_attributes.retain(|attribute| {
                let Attribute { current, target, .. } = attribute;
                current.as_ref().is_none_or(|current| is_other(current, target))
            });
        }
        self.changes.retain(|path| set.contains(path));
        let kept = &self.kept;
        self.skipped.retain(|skipped| {
            let path = skipped.path.as_os_str().as_bytes();
            may_change(path) && concerns(path, kept.contains(path))
        });
        self.rebuildable.retain(|path| {
            let path = path.as_os_str().as_bytes();
            may_change(path) && concerns(path, true)
        });
        self.lost.retain(|lost| {
            let path = lost.path.as_os_str().as_bytes();
            may_change(path) && concerns(path, lost.is_directory)
        });
        self.skipped.extend(skipped);
        self.bytes_to_write = actions
            .puts
            .iter()
            .map(|put| match put.target.node {
                Node::File { size, .. } => size,
                _ => 0,
            })
            .sum();
    }
}
