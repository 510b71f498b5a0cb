//! Whether a selection means anything at all.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::RestoreError;
use super::selection::{Pattern, Selected};
use crate::byte_path;
use crate::diff::Lookup;
use crate::object::{ContentHash, Node, RootTree, TreeEntry};
use crate::path_text::to_path;
use crate::snapshot::{NotCapturedSet, SnapshotManager, SnapshotManifest};
use crate::store::{ObjectSource, StoreError, read_root_tree, read_tree};
use crate::sys;

/// The paths of some states, and of the disk: none of them is a glob.
pub(super) struct Present<'a> {
    source: &'a dyn ObjectSource,
    states: Vec<RootTree>,
}

impl<'a> Present<'a> {
    pub(super) fn new(
        source: &'a dyn ObjectSource,
        roots: &[&ContentHash],
    ) -> Result<Self, RestoreError> {
        let states = roots.iter().map(|root| read_root_tree(source, root));
        Ok(Self { source, states: states.collect::<Result<_, _>>()? })
    }

    /// Whether a path is on the disk or in a state.
    pub(super) fn has(&self, path: &[u8]) -> Result<bool, RestoreError> {
        Ok(matches!(sys::kind_of(to_path(path)), Ok(Some(_))) || self.records(path)?)
    }

    fn records(&self, path: &[u8]) -> Result<bool, RestoreError> {
        for state in &self.states {
            if Lookup::new(self.source, state).find(path)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Refuses a selection that names what is in none of the states; of the paths that one name may
/// stand for, one is enough, and of those that a glob matches, too. A slip of the pen must not look
/// like a state that needs no restore.
pub(super) fn check_selection(
    present: &Present<'_>,
    selected: &Selected<'_>,
    target: &SnapshotManifest,
) -> Result<(), RestoreError> {
    for paths in selected.named() {
        let mut is_found = false;
        for path in paths {
            is_found = is_found || present.records(path)?;
        }
        if !is_found {
            return Err(no_such_path(to_path(paths.first().map_or(b"", Vec::as_slice)), target));
        }
    }
    for glob in selected.globs() {
        let mut is_matched = false;
        for state in &present.states {
            is_matched = is_matched || has_match(present.source, state, selected, glob)?;
        }
        if !is_matched {
            let (pattern, snapshot) = (glob.given.clone(), target.number);
            return Err(RestoreError::NothingMatches { pattern, snapshot });
        }
    }
    Ok(())
}

/// Why nothing is at a path.
pub(super) fn no_such_path(path: &Path, target: &SnapshotManifest) -> RestoreError {
    let (path, snapshot) = (path.to_owned(), target.number);
    let mut tracked = target.roots.iter().map(|root| &root.path);
    let first = tracked.clone().next();
    match (tracked.any(|root| path.starts_with(root)), first) {
        (false, Some(first)) => RestoreError::NotTracked { path, tracked: first.clone() },
        _ => {
            let left_out = NotCapturedSet::new(target);
            match left_out.reason(path.as_os_str().as_bytes()).cloned() {
                Some(reason) => RestoreError::PathLeftOut { path, snapshot, reason },
                None => RestoreError::NoSuchPath { path, snapshot },
            }
        }
    }
}

/// Why a snapshot does not have a path: when it is there instead.
pub(super) fn at_another_time(
    manager: &SnapshotManager,
    path: PathBuf,
    snapshot: u64,
    forms: &[&Vec<u8>],
) -> Result<RestoreError, RestoreError> {
    let is_now = matches!(sys::kind_of(&path), Ok(Some(_)));
    let mut first = None;
    for number in manager.session().snapshot_numbers()? {
        // Where a snapshot is damaged, the others still tell something.
        let Ok(manifest) = manager.load_manifest(number) else { continue };
        let Ok(root) = read_root_tree(manager.store(), &manifest.merkle_root) else { continue };
        let mut lookup = Lookup::new(manager.store(), &root);
        if forms.iter().any(|form| matches!(lookup.find(form), Ok(Some(_)))) {
            first = Some(number);
            break;
        }
    }
    Ok(match is_now || first.is_some() {
        true => RestoreError::NotInSnapshot { path, snapshot, is_now, first },
        false => RestoreError::NoSuchPath { path, snapshot },
    })
}

fn has_match(
    source: &dyn ObjectSource,
    root: &RootTree,
    selected: &Selected<'_>,
    glob: &Pattern,
) -> Result<bool, StoreError> {
    let of_root = root.entries.iter().map(|entry| (entry.path.to_vec(), entry.node.clone()));
    let mut pending: Vec<(Vec<u8>, Node)> = of_root.collect();
    while let Some((path, node)) = pending.pop() {
        if selected.matches(glob, &path) {
            return Ok(true);
        }
        if let Node::Directory { tree } = node {
            let entries = read_tree(source, &tree)?.into_entries();
            let below = |entry: TreeEntry| (byte_path::join(&path, &entry.name), entry.node);
            pending.extend(entries.into_iter().map(below));
        }
    }
    Ok(false)
}
