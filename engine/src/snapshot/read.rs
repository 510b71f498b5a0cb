//! One file of a snapshot, by the path it had.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::manager::{SnapshotError, SnapshotManager};
use crate::byte_path;
use crate::manifest::{NotCapturedSet, SnapshotManifest};
use crate::object::{ContentHash, Node};
use crate::path_text::Shown;
use crate::store::{ObjectSource, StoreError, read_root_tree, read_tree};
use crate::sys;

impl SnapshotManager {
    /// The contents of a file as it was in a snapshot, checked against their hash. The path need
    /// not exist any more; one that is relative is meant from the current directory. Symlinks *in
    /// the snapshot* are not followed.
    ///
    /// # Errors
    /// [`SnapshotError::NoSuchSnapshot`], [`SnapshotError::NoSuchFile`] that says what is there
    /// instead, or a store that is damaged.
    pub fn read(&self, number: u64, path: &Path) -> Result<Vec<u8>, SnapshotError> {
        let manifest = self.load_manifest(number)?;
        let path = sys::plain_absolute(path, &sys::current_dir()?);
        let no_such_file = |reason: String| SnapshotError::NoSuchFile {
            session: self.session().path().to_owned(),
            number,
            path: path.clone(),
            reason,
        };
        let Some(path) = in_roots(&manifest, &path) else {
            return Err(no_such_file("it is outside the tracked paths".to_owned()));
        };
        let found = find(self.store(), &manifest.merkle_root, &path)?;
        let (size, hash) = match found {
            Found::Node(Node::File { size, hash, .. }) => (size, hash),
            Found::Node(other) => {
                return Err(no_such_file(format!("it was a {}", other.kind_name())));
            }
            Found::Below { kind, at } => {
                return Err(no_such_file(format!("{} was a {kind}", Shown::bytes(&at))));
            }
            Found::Nothing => {
                let unknown = NotCapturedSet::new(&manifest);
                let reason = match unknown.reason(path.as_os_str().as_bytes()) {
                    Some(reason) => format!("it was not captured: {reason}"),
                    None => "nothing was there".to_owned(),
                };
                return Err(no_such_file(reason));
            }
        };
        let bytes = self.store().read(&hash, size)?;
        if bytes.len() as u64 != size {
            return Err(StoreError::Corrupt {
                hash,
                path: self.store().object_path(&hash),
                reason: format!("it has {} bytes and not {size}, as its entry says", bytes.len()),
            }
            .into());
        }
        Ok(bytes)
    }
}

/// The path in the form in which the snapshot has it: with as few symlinks resolved as bring it
/// into a tracked path. A deeper symlink of today may have been a directory then.
fn in_roots(manifest: &SnapshotManifest, path: &Path) -> Option<PathBuf> {
    let is_inside = |path: &Path| manifest.roots.iter().any(|root| path.starts_with(&root.path));
    let mut above: Vec<_> = path.ancestors().skip(1).collect();
    above.reverse();
    above.into_iter().find_map(|above| {
        let resolved = sys::real_path(above).ok()?.join(path.strip_prefix(above).ok()?);
        is_inside(&resolved).then_some(resolved)
    })
}

/// The node at a path in a snapshot.
enum Found {
    Node(Node),
    /// Something above it is no directory.
    Below {
        kind: &'static str,
        at: Vec<u8>,
    },
    Nothing,
}

fn find(
    store: &dyn ObjectSource,
    merkle_root: &ContentHash,
    path: &Path,
) -> Result<Found, StoreError> {
    let root = read_root_tree(store, merkle_root)?;
    let entry = root.entries.into_iter().find_map(|entry| {
        let below = path.strip_prefix(crate::path_text::to_path(&entry.path)).ok()?;
        Some((entry.path.into_vec(), entry.node, below.to_owned()))
    });
    let Some((mut at, mut node, below)) = entry else { return Ok(Found::Nothing) };
    for component in below.components() {
        let Node::Directory { tree } = node else {
            return Ok(Found::Below { kind: node.kind_name(), at });
        };
        let name = component.as_os_str().as_bytes();
        match read_tree(store, &tree)?.get(name) {
            Some(entry) => node = entry.node.clone(),
            None => return Ok(Found::Nothing),
        }
        at = byte_path::join(&at, name);
    }
    Ok(Found::Node(node))
}
