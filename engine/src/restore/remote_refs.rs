//! The remote-tracking refs of a git directory stay as they are in a restore.
//!
//! A remote-tracking branch describes the remote repository, and no undo takes a push back there.
//! The objects that these branches name stay too, as all objects that git added. So nothing
//! dangles, unless `shallow` or the list of alternates is to be another; then the git directory
//! comes back as a whole. `packed-refs` may have refs of both kinds, and is merged line by line.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::merged::MergedFile;
use super::plan::RestorePlan;
use super::repositories::Repositories;
use crate::byte_path;
use crate::diff::{self, EntryState, Lookup};
use crate::git::{
    GitDirs, MAX_PACKED_BYTES, PackedRefs, is_about_objects, is_of_remote, read_contents,
};
use crate::object::{ContentHash, Node};
use crate::snapshot::SnapshotManifest;
use crate::store::{ObjectSource, StoreError, read_root_tree};
use crate::sys;

const PACKED_REFS: &[u8] = b"packed-refs";

/// The git directories whose remote-tracking branches stay.
pub(super) type Kept = HashSet<Vec<u8>>;

/// The new `packed-refs` beside branches that stay.
enum Packed {
    /// As planned.
    Planned,
    /// It stays.
    Stays,
    /// It gets other bytes.
    Merged(MergedFile),
}

impl RestorePlan {
    /// Takes out of a plan what it would do to remote-tracking branches.
    pub(super) fn keep_remote_refs(
        &mut self,
        source: &dyn ObjectSource,
        current_root: &ContentHash,
        target: &SnapshotManifest,
        repositories: &Repositories,
    ) -> Result<Kept, StoreError> {
        let mut kept = Kept::new();
        let concerned = self.with_remote_refs(repositories);
        if concerned.is_empty() {
            return Ok(kept);
        }
        let now = read_root_tree(source, current_root)?;
        let then = read_root_tree(source, &target.merkle_root)?;
        let (mut now, mut then) = (GitDirs::new(source, &now), GitDirs::new(source, &then));
        let roots = [current_root, &target.merkle_root];
        let mut left = HashSet::new();
        for (git_dir, has_packed) in concerned {
            if !now.is_git_dir(&git_dir)? || !then.is_git_dir(&git_dir)? {
                continue;
            }
            if has_packed {
                let path = byte_path::join(&git_dir, PACKED_REFS);
                match packed(source, roots, &path)? {
                    None => continue,
                    Some(Packed::Planned) => {}
                    Some(Packed::Stays) => drop(left.insert(path)),
                    Some(Packed::Merged(file)) => self.put_merged(vec![file]),
                }
            }
            kept.insert(git_dir);
        }
        if !kept.is_empty() {
            let is_meant = |path: &[u8]| {
                let inside = repositories
                    .of_path(path)
                    .filter(|git_dir| kept.contains(*git_dir))
                    .and_then(|git_dir| byte_path::relative_to(path, git_dir));
                !inside.is_some_and(is_of_remote) && !left.contains(path)
            };
            self.narrow(|path, _| is_meant(path), |path, _| is_meant(path), &HashSet::new());
        }
        Ok(kept)
    }

    /// The git directories in which the plan changes what is said of remotes, and whether it also
    /// changes `packed-refs`. Where other objects would be there afterwards, nothing can be kept.
    fn with_remote_refs(&self, repositories: &Repositories) -> BTreeMap<Vec<u8>, bool> {
        let mut found: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
        let mut barred: HashSet<Vec<u8>> = HashSet::new();
        for (path, _) in self.changes.iter() {
            let Some(git_dir) = repositories.of_path(&path) else { continue };
            let Some(inside) = byte_path::relative_to(&path, git_dir) else { continue };
            if is_about_objects(inside) {
                barred.insert(git_dir.to_vec());
            }
            if is_of_remote(inside) || inside == PACKED_REFS {
                *found.entry(git_dir.to_vec()).or_default() |= inside == PACKED_REFS;
            }
        }
        found.retain(|git_dir, _| !barred.contains(git_dir));
        found
    }
}

/// Decides about `packed-refs`. `None`: nothing can be said of it.
fn packed(
    source: &dyn ObjectSource,
    [now, then]: [&ContentHash; 2],
    path: &[u8],
) -> Result<Option<Packed>, StoreError> {
    let find = |root: &ContentHash| -> Result<_, StoreError> {
        // Other names of the file would get its bytes.
        let links = diff::links_of(source, root)?;
        let is_linked = links.groups().iter().flatten().any(|linked| **linked == *path);
        let root = read_root_tree(source, root)?;
        let state = Lookup::new(source, &root).find(path)?;
        let bytes = match state.as_ref().map(|state| &state.node) {
            None => None,
            Some(Node::File { size: 0, .. }) => Some(Vec::new()),
            Some(Node::File { size, hash, .. }) if *size <= MAX_PACKED_BYTES && !is_linked => {
                Some(read_contents(source, path, hash, MAX_PACKED_BYTES)?)
            }
            Some(_) => return Ok(None),
        };
        Ok(Some((state.map(Arc::new), bytes)))
    };
    let (Some((now, present)), Some((then, past))) = (find(now)?, find(then)?) else {
        return Ok(None);
    };
    Ok(match PackedRefs::of(past.as_deref(), present.as_deref()) {
        None => None,
        Some(PackedRefs::Then) => Some(Packed::Planned),
        Some(PackedRefs::Now) => Some(Packed::Stays),
        Some(PackedRefs::Merged(bytes)) => then.as_ref().or(now.as_ref()).map(|like| {
            let mut attributes = like.attributes.clone();
            // git keeps the file in memory as long as its time is the same.
            attributes.mtime = sys::coarse_now();
            let node = Node::file(bytes.len() as u64, ContentHash::of(&bytes));
            let target = Arc::new(EntryState { attributes, node });
            let (path, now, bytes) = (path.to_vec(), now.clone(), Some(bytes));
            Packed::Merged(MergedFile { path, now, target, bytes })
        }),
    })
}
