//! Keys of directories and contents, and the identity of states.

use std::sync::Arc;

use jiff::Timestamp;
use nono_mount::StateId;

use crate::byte_path;
use crate::object::{Attributes, ContentHash, Hasher, MidstatesLink, Node, encode_entry};

/// Which store: its place in the table of stores that were seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct StoreId(pub(super) u32);

/// A session: the store root it was found in, and its name there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct SessionKey {
    pub(super) root: u32,
    pub(super) id: Arc<str>,
}

/// A session as the past of one of its tracked paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PastKey {
    pub(super) session: SessionKey,
    /// The tracked path.
    pub(super) path: Arc<[u8]>,
}

/// The top of one snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SnapshotKey {
    pub(super) session: SessionKey,
    pub(super) number: u64,
    pub(super) store: StoreId,
    pub(super) merkle_root: ContentHash,
    pub(super) timestamp: Timestamp,
}

/// A captured directory, by what it holds and where; never by the snapshot it is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TreeKey {
    pub(super) store: StoreId,
    pub(super) tree: ContentHash,
    pub(super) path: PathHash,
    /// The list of hard links, if some of them are below this directory.
    pub(super) links: Option<ContentHash>,
}

/// Key of a directory of a [`StoreTree`](super::StoreTree).
// Behind a pointer, because the mount keeps a key in every node, and most nodes are files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryKey(pub(super) Arc<DirectoryKind>);

#[derive(PartialEq, Eq, Debug)]
pub(super) enum DirectoryKind {
    /// All sessions.
    Store,
    /// The snapshots of one session.
    Session(SessionKey),
    /// The steps of one session: links to its snapshots.
    Steps(SessionKey),
    /// The fork of one session.
    Forks(SessionKey),
    /// A directory above the tracked paths of a fork, as it is now; as [`Above`](Self::Above).
    Fork { session: SessionKey, prefix: Box<[u8]> },
    /// All projects.
    Projects,
    /// The sessions of the project at this path.
    Project(Arc<[u8]>),
    /// The states of a project in one session.
    Past(PastKey),
    /// The states of a project after the steps of one session.
    PastSteps(PastKey),
    /// The states after the steps of one prompt.
    PastPrompt(PastKey, u64),
    /// A tracked path that is no directory, or not there, in a folder of its own.
    Alone { snapshot: SnapshotKey, path: Arc<[u8]> },
    /// A snapshot whose manifest or store cannot be used: shown, so that it is seen, and never
    /// listed.
    Unusable { session: SessionKey, number: u64 },
    /// A directory above tracked paths; `prefix` is empty for the top of the snapshot.
    Above { snapshot: SnapshotKey, prefix: Box<[u8]> },
    /// A captured directory.
    Tree(TreeKey),
}

impl From<DirectoryKind> for DirectoryKey {
    fn from(kind: DirectoryKind) -> Self {
        Self(Arc::new(kind))
    }
}

/// An object of a store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ObjectKey {
    pub(super) store: StoreId,
    pub(super) hash: ContentHash,
}

/// Key of the contents of a file of a [`StoreTree`](super::StoreTree).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ContentKey(ContentKind);

// The mount keeps a key in every node, and few files are long.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum ContentKind {
    Whole(ObjectKey),
    /// With the name of its midstates.
    InPieces(Arc<(ObjectKey, ContentHash)>),
    /// The index of git at the top of this tracked path, with stat data as they are shown.
    GitIndex(Arc<(ObjectKey, Box<[u8]>)>),
}

impl ContentKey {
    pub(super) fn new(object: ObjectKey, midstates: &MidstatesLink) -> Self {
        Self(match midstates.name() {
            None => ContentKind::Whole(object),
            Some(midstates) => ContentKind::InPieces(Arc::new((object, midstates))),
        })
    }

    /// The same contents, as the index of git at the top of a tracked path.
    pub(super) fn of_git_index(&self, tracked: &[u8]) -> Self {
        Self(ContentKind::GitIndex(Arc::new((*self.object(), tracked.into()))))
    }

    /// The tracked path at whose top it is the index of git.
    pub(super) fn git_index_of(&self) -> Option<&[u8]> {
        match &self.0 {
            ContentKind::GitIndex(index) => Some(&index.1),
            _ => None,
        }
    }

    pub(super) fn object(&self) -> &ObjectKey {
        match &self.0 {
            ContentKind::Whole(object) => object,
            ContentKind::InPieces(pieces) => &pieces.0,
            ContentKind::GitIndex(index) => &index.0,
        }
    }

    /// Name of its midstates.
    pub(super) fn midstates(&self) -> Option<&ContentHash> {
        match &self.0 {
            ContentKind::Whole(_) | ContentKind::GitIndex(_) => None,
            ContentKind::InPieces(pieces) => Some(&pieces.1),
        }
    }
}

/// A path inside a snapshot, in 16 bytes. Paths in different stores differ, so that a state never
/// depends on a store that may go away on its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct PathHash([u8; 16]);

/// The hashed bytes begin with a word that says what they are, so that nothing of one kind can be
/// mistaken for another.
const STORE: &[u8] = b"nono store\0";
const CHILD: &[u8] = b"nono path\0";
const ENTRY: &[u8] = b"nono state\0";
const ABOVE: &[u8] = b"nono above\0";
const LINKS: &[u8] = b"nono links\0";

impl PathHash {
    /// The top of every snapshot of the store at `path`.
    pub(super) fn top(path: &[u8]) -> Self {
        Self(digest(STORE, &[path]))
    }

    pub(super) fn child(&self, name: &[u8]) -> Self {
        Self(digest(CHILD, &[&self.0, name]))
    }

    /// The directory at an absolute path.
    pub(super) fn of(top: Self, path: &[u8]) -> Self {
        byte_path::components(path).fold(top, |at, name| at.child(name))
    }
}

/// The place of an entry: its own, or for members of a hard-link group that of the first one.
#[derive(Clone, Copy)]
pub(super) struct EntryPlace<'a> {
    pub(super) parent: &'a PathHash,
    pub(super) name: &'a [u8],
    /// Number of names.
    pub(super) links: u32,
    /// The links below a directory.
    pub(super) links_below: Option<&'a LinksDigest>,
}

/// The state of an entry. `scratch` is a buffer to reuse.
///
/// It begins with that of the name. Programs such as GNU `grep -r` read a long directory in the
/// order of inode numbers, which is that of states. In a pack, contents lie in the order of names:
/// so what is read together is in few blocks.
pub(super) fn entry_state(
    place: EntryPlace<'_>,
    attributes: &Attributes,
    node: &Node,
    scratch: &mut Vec<u8>,
) -> StateId {
    scratch.clear();
    encode_entry(attributes, node, scratch);
    let name_len = (place.name.len() as u32).to_le_bytes();
    let below = place.links_below.map_or([0; 16], |digest| digest.0);
    let parts =
        [&place.parent.0, &name_len[..], place.name, &place.links.to_le_bytes(), &below, scratch];
    let mut state = digest(ENTRY, &parts);
    state[0] = place.name.first().copied().unwrap_or_default();
    StateId(state)
}

/// The state of a directory above tracked paths: it belongs to one snapshot.
pub(super) fn above_state(snapshot: &SnapshotKey, prefix: &[u8]) -> StateId {
    let SnapshotKey { session, number, store: _, merkle_root, timestamp } = snapshot;
    let id_len = (session.id.len() as u32).to_le_bytes();
    let parts = [
        &session.root.to_le_bytes(),
        &id_len[..],
        session.id.as_bytes(),
        &number.to_le_bytes(),
        merkle_root.as_bytes(),
        &timestamp.as_nanosecond().to_le_bytes(),
        prefix,
    ];
    StateId(digest(ABOVE, &parts))
}

/// Everything that is hard-linked below a directory: part of the directory's state, because it
/// shows in the attributes of what is below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LinksDigest([u8; 16]);

/// Adds up the links below one directory, in the order of their paths.
pub(super) struct LinksHasher(Hasher);

impl LinksHasher {
    pub(super) fn new() -> Self {
        let mut hasher = Hasher::new();
        hasher.update(LINKS);
        Self(hasher)
    }

    /// A linked name: of how many names, and which is the first.
    pub(super) fn member(&mut self, name: &[u8], first: &PathHash, count: u32) {
        self.0.update(&[1]);
        self.0.update(&(name.len() as u32).to_le_bytes());
        self.0.update(name);
        self.0.update(&first.0);
        self.0.update(&count.to_le_bytes());
    }

    /// A subdirectory with links below it.
    pub(super) fn directory(&mut self, path: &PathHash, below: &LinksDigest) {
        self.0.update(&[2]);
        self.0.update(&path.0);
        self.0.update(&below.0);
    }

    pub(super) fn finish(self) -> LinksDigest {
        LinksDigest(truncate(self.0.finish()))
    }
}

fn digest(kind: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = Hasher::new();
    hasher.update(kind);
    for part in parts {
        hasher.update(part);
    }
    truncate(hasher.finish())
}

fn truncate(hash: ContentHash) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&hash.as_bytes()[..16]);
    out
}
