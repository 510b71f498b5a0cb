//! The members of `files/`: which there are, and what each says in front of its contents. Whoever
//! writes an archive goes by this, and whoever verifies one.

use std::collections::HashMap;
use std::sync::Arc;

use tar::EntryType;

use super::members::Member;
use super::walk::{Walk, asking};
use crate::ArchiveError;
use nono_engine::diff::{EntryState, differences};
use nono_engine::object::{Attributes, ContentHash, LinkGroups, Node};
use nono_engine::progress::Progress;
use nono_engine::store::ObjectSource;

/// Largest number of a device in a tar file.
const MAX_DEVICE: u32 = 0o7_777_777;

/// A path without its first slash, and its state.
type Found = Result<(Vec<u8>, Arc<EntryState>), ArchiveError>;

/// The members of a snapshot, in their order: all of them, or those that differ from a parent.
pub(crate) struct Files<'a> {
    found: Box<dyn Iterator<Item = Found> + 'a>,
    /// Path of a hard link → group.
    groups: HashMap<&'a [u8], usize>,
    /// The path of each group that came first.
    first: HashMap<usize, (Vec<u8>, Arc<EntryState>)>,
}

/// One member.
pub(crate) struct FileMember {
    /// The whole path in the archive.
    pub(crate) path: Vec<u8>,
    pub(crate) state: Arc<EntryState>,
    /// The earlier name of a file that comes again under another one.
    link: Option<Vec<u8>>,
}

impl<'a> Files<'a> {
    /// `links` are those of the snapshot.
    pub(crate) fn new(
        store: &'a dyn ObjectSource,
        parent_root: Option<&ContentHash>,
        root: &ContentHash,
        links: &'a LinkGroups,
        progress: &'a dyn Progress,
    ) -> Result<Self, ArchiveError> {
        let found: Box<dyn Iterator<Item = Found> + 'a> = match parent_root {
            None => Box::new(asking(Walk::of_paths(store, root)?, progress).map(|found| {
                let (path, state) = found?;
                Ok((path, Arc::new(state)))
            })),
            Some(parent_root) => {
                let found = asking(differences(store, parent_root, root)?, progress);
                Box::new(found.filter_map(|found| {
                    let found = match found {
                        Ok(found) => found,
                        Err(error) => return Some(Err(error)),
                    };
                    let new = found.new?;
                    let old = found.old.as_deref().map(|old| &old.node);
                    match (old, &new.node) {
                        // Only trees tell of other attributes.
                        (Some(Node::File { hash: old, .. }), Node::File { hash, .. })
                            if old == hash =>
                        {
                            None
                        }
                        _ => Some(Ok((found.path[1..].to_vec(), new))),
                    }
                }))
            }
        };
        let groups = links.groups().iter().enumerate();
        let groups = groups.flat_map(|(i, group)| group.iter().map(move |path| (&path[1..], i)));
        Ok(Self { found, groups: groups.collect(), first: HashMap::new() })
    }
}

impl Iterator for Files<'_> {
    type Item = Result<FileMember, ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (path, state) = match self.found.next()? {
                Ok(found) => found,
                Err(error) => return Some(Err(error)),
            };
            let is_file = match &state.node {
                // No tar file has sockets.
                Node::Socket => continue,
                Node::CharDevice(at) | Node::BlockDevice(at)
                    if at.major.max(at.minor) > MAX_DEVICE =>
                {
                    continue;
                }
                node => matches!(node, Node::File { .. }),
            };
            let group = self.groups.get(&*path).copied().filter(|_| is_file);
            let path = [b"files/", &*path].concat();
            let first = group.and_then(|group| self.first.get(&group));
            // A list of links that another program made may link what is not equal.
            let equal = first.filter(|(_, first)| first.may_be_one_file(&state));
            let link = equal.map(|(path, _)| path.clone());
            if let (Some(group), None) = (group, first) {
                self.first.insert(group, (path.clone(), Arc::clone(&state)));
            }
            return Some(Ok(FileMember { path, state, link }));
        }
    }
}

impl FileMember {
    /// A member that is no hard link to one before it.
    pub(crate) fn alone(path: &[u8], state: EntryState) -> Self {
        Self { path: [b"files/", path].concat(), state: Arc::new(state), link: None }
    }

    /// Whether its contents follow.
    pub(crate) fn has_contents(&self) -> bool {
        self.link.is_none() && matches!(self.state.node, Node::File { .. })
    }

    /// The header in front of its contents.
    pub(crate) fn member<'m>(&'m self, none: &'m Attributes) -> Member<'m> {
        let path = &*self.path;
        if let Some(target) = &self.link {
            let kind = EntryType::Link;
            return Member { path, kind, size: 0, target, device: None, attributes: none };
        }
        let (kind, target, device) = match &self.state.node {
            Node::File { .. } => (EntryType::Regular, &b""[..], None),
            Node::Directory { .. } => (EntryType::Directory, &b""[..], None),
            Node::Symlink { target } => (EntryType::Symlink, &**target, None),
            Node::Fifo | Node::Socket => (EntryType::Fifo, &b""[..], None),
            Node::CharDevice(at) => (EntryType::Char, &b""[..], Some((at.major, at.minor))),
            Node::BlockDevice(at) => (EntryType::Block, &b""[..], Some((at.major, at.minor))),
        };
        let size = match &self.state.node {
            Node::File { size, .. } => *size,
            _ => 0,
        };
        Member { path, kind, size, target, device, attributes: &self.state.attributes }
    }
}
