//! The state of the places that a copy of a snapshot writes to.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::RestoreError;
use super::copy_out::{CopyOptions, name_in_copy};
use super::repositories::Locks;
use super::selection::Selected;
use crate::byte_path;
use crate::diff::EntryState;
use crate::object::{ContentHash, Node};
use crate::path_text::to_path;
use crate::snapshot::SnapshotManager;
use crate::store::{read_root_tree, read_tree};
use crate::sys::{self, Dir, FileKind};

/// Longer files are not compared, and count as others.
const MAX_COMPARED_BYTES: u64 = 64 << 20;

/// The state of the place of a path of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InPlace {
    /// Nothing.
    Nothing,
    /// The recorded kind, contents and permissions.
    Same,
    /// Something else.
    Other,
}

/// A path of a copy that is not made yet: a file, a link or a pipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCopy {
    /// The recorded path.
    pub path: PathBuf,
    /// Its place.
    pub place: PathBuf,
    /// The present entry.
    pub found: InPlace,
}

impl SnapshotManager {
    /// The paths that [`copy_out`](Self::copy_out) would write below `to`, in order of path, and
    /// what is there now. Writes nothing.
    ///
    /// # Errors
    /// [`RestoreError`]: a snapshot that cannot be read, a path that no snapshot has.
    pub fn plan_copy(
        &self,
        number: u64,
        to: &Path,
        options: &CopyOptions,
    ) -> Result<Vec<PlannedCopy>, RestoreError> {
        let _store_lock = self.lock_store_for_reading()?;
        let manifest = self.load_manifest(number)?;
        let selected = Selected::new(&options.selection, &manifest.roots, &mut |_| Ok(true))?;
        let root = read_root_tree(self.store(), &manifest.merkle_root)?;
        let is_single = root.entries.len() == 1;
        let whole = root.clone();
        let mut locks = Locks::new(self.store(), &manifest, &whole);
        let (mut planned, mut pending) = (Vec::new(), Vec::new());
        for entry in root.entries {
            let Some(name) = name_in_copy(&entry, is_single, options.base.as_deref()) else {
                continue;
            };
            let state = EntryState { attributes: entry.attributes, node: entry.node };
            pending.push((entry.path.into_vec(), name, state));
        }
        // Not recursive: a tree may be deeper than a stack.
        while let Some((path, name, state)) = pending.pop() {
            if let Node::Directory { tree } = state.node {
                for entry in read_tree(self.store(), &tree)?.into_entries() {
                    let below = byte_path::join(&path, &entry.name);
                    let name = byte_path::join(&name, &entry.name);
                    let state = EntryState { attributes: entry.attributes, node: entry.node };
                    pending.push((below, name, state));
                }
            } else if selected.contains(&path) && !locks.has(&path)? {
                let place = to.join(to_path(&name));
                let found = found_at(&place, &state)?;
                planned.push(PlannedCopy { path: to_path(&path).to_owned(), place, found });
            }
        }
        planned.sort_by(|a, b| a.place.as_os_str().as_bytes().cmp(b.place.as_os_str().as_bytes()));
        Ok(planned)
    }
}

fn found_at(place: &Path, state: &EntryState) -> sys::Result<InPlace> {
    let (Some(above), Some(name)) = (place.parent(), place.file_name()) else {
        return Ok(InPlace::Other);
    };
    let Some(stat) = sys::stat_of(place)? else { return Ok(InPlace::Nothing) };
    let is_mode_same = stat.mode == state.attributes.mode;
    let name = name.as_bytes();
    let is_same = match &state.node {
        Node::File { size, hash, .. } => {
            let is_alike = stat.kind == FileKind::File && stat.size == *size && is_mode_same;
            is_alike
                && *size <= MAX_COMPARED_BYTES
                && ContentHash::of(&Dir::open(above)?.read(name, *size)?) == *hash
        }
        Node::Symlink { target } => {
            stat.kind == FileKind::Symlink && Dir::open(above)?.read_link(name)? == **target
        }
        Node::Fifo => stat.kind == FileKind::Fifo && is_mode_same,
        _ => false,
    };
    Ok(if is_same { InPlace::Same } else { InPlace::Other })
}
