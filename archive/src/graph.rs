//! Objects, and the objects that they name.

use nono_engine::object::{ContentHash, LinkGroups, Node, RootTree, Tree};
use nono_engine::store::StoreError;

/// The kind of an object, by the object that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The top of a snapshot, or of the ignore files of a session.
    Root,
    /// The list of a directory.
    Tree,
    /// The list of hard links.
    Links,
    /// Contents of so many bytes.
    File(u64),
}

/// An object that another one names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) hash: ContentHash,
    pub(super) kind: Kind,
    /// The name of a long file's midstates.
    pub(super) midstates: Option<ContentHash>,
}

/// The objects that one names. Its bytes have its hash already.
///
/// # Errors
/// [`StoreError::Undecodable`].
pub(super) fn named_by(
    kind: Kind,
    hash: &ContentHash,
    bytes: &[u8],
) -> Result<Vec<Named>, StoreError> {
    let undecodable = |kind, source| StoreError::Undecodable { hash: *hash, kind, source };
    let mut found = Vec::new();
    let nodes: Vec<Node> = match kind {
        Kind::Root => {
            let root = RootTree::decode(bytes).map_err(|it| undecodable("root tree", it))?;
            let links = root.links.map(|hash| Named { hash, kind: Kind::Links, midstates: None });
            found.extend(links);
            root.entries.into_iter().map(|entry| entry.node).collect()
        }
        Kind::Tree => {
            let tree = Tree::decode(bytes).map_err(|it| undecodable("tree", it))?;
            tree.into_entries().into_iter().map(|entry| entry.node).collect()
        }
        Kind::Links => {
            LinkGroups::decode(bytes).map_err(|it| undecodable("list of hard links", it))?;
            Vec::new()
        }
        Kind::File(_) => Vec::new(),
    };
    found.extend(nodes.into_iter().filter_map(|node| match node {
        Node::Directory { tree } => Some(Named { hash: tree, kind: Kind::Tree, midstates: None }),
        Node::File { size, hash, midstates } => {
            Some(Named { hash, kind: Kind::File(size), midstates: midstates.name() })
        }
        _ => None,
    }));
    Ok(found)
}
