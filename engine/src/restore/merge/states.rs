//! Three states of a path become one: contents and each attribute by itself.

use super::{HunkChoice, is_chosen, merge, merge_chosen, touching_hunks};
use crate::diff::EntryState;
use crate::object::{ContentHash, Node};
use crate::restore::places::Places;
use crate::snapshot::TrackedRoot;
use crate::store::{ObjectSource, StoreError};
use crate::sys;

/// Longer files are not merged.
const MAX_BYTES: u64 = super::MAX_BYTES as u64;

/// Merges states of paths, with contents from the store or from the disk.
pub(in crate::restore) struct Merger<'a> {
    source: &'a dyn ObjectSource,
    roots: &'a [TrackedRoot],
}

/// A state in which one change is done and another one stays.
pub(in crate::restore) struct Merged {
    pub(in crate::restore) state: EntryState,
    /// Its contents, if no other state of the path has them.
    pub(in crate::restore) bytes: Option<Vec<u8>>,
}

/// Decides about the hunks that both changes of a text touch.
pub(in crate::restore) enum Chosen<'a> {
    /// The contents that a person made of them.
    Bytes(&'a [u8]),
    /// One choice in each.
    Hunks(HunkChoice),
}

impl<'a> Merger<'a> {
    pub(in crate::restore) fn new(source: &'a dyn ObjectSource, roots: &'a [TrackedRoot]) -> Self {
        Self { source, roots }
    }

    /// `current` with what leads from `from` to `to`. `None`: what leads from `from` to `current`
    /// touches that, or cannot be told from it.
    pub(in crate::restore) fn carry_over(
        &self,
        path: &[u8],
        from: &EntryState,
        to: &EntryState,
        current: &EntryState,
    ) -> Result<Option<Merged>, StoreError> {
        let mut state = current.clone();
        let (origin, goal, is) = (&from.attributes, &to.attributes, &current.attributes);
        let is_same_kind = to.node.same_kind(&from.node) && from.node.same_kind(&current.node);
        let mode = one_of(&origin.mode, &goal.mode, &is.mode);
        let owner = one_of(&(origin.uid, origin.gid), &(goal.uid, goal.gid), &(is.uid, is.gid));
        let xattrs = one_of(&origin.xattrs, &goal.xattrs, &is.xattrs);
        let (true, Some(mode), Some(owner), Some(xattrs)) = (is_same_kind, mode, owner, xattrs)
        else {
            return Ok(None);
        };
        state.attributes.mode = mode;
        (state.attributes.uid, state.attributes.gid) = owner;
        state.attributes.xattrs = xattrs;
        let [origin, goal, is] = [from, to, current].map(|state| contents(&state.node));
        if origin == goal || is == goal {
            return Ok(Some(Merged { state, bytes: None }));
        }
        if is == origin {
            state.node = to.node.clone();
            state.attributes.mtime = to.attributes.mtime;
            return Ok(Some(Merged { state, bytes: None }));
        }
        let (Some(base), Some(theirs)) = (self.stored(&from.node)?, self.stored(&to.node)?) else {
            return Ok(None);
        };
        let Some(ours) = self.present(path, &current.node)? else { return Ok(None) };
        let Some(bytes) = merge(&base, &ours, &theirs) else { return Ok(None) };
        state.node = Node::file(bytes.len() as u64, ContentHash::of(&bytes));
        // Programs that compare times have to see that it is another.
        state.attributes.mtime = sys::coarse_now();
        Ok(Some(Merged { state, bytes: Some(bytes) }))
    }

    /// As [`carry_over`](Self::carry_over), with a choice where the two changes touch each other.
    /// `None`: one of the three is no text.
    pub(in crate::restore) fn decided(
        &self,
        path: &[u8],
        from: &EntryState,
        to: &EntryState,
        current: &EntryState,
        chosen: &Chosen<'_>,
    ) -> Result<Option<Merged>, StoreError> {
        let texts = (self.stored(&from.node)?, self.stored(&to.node)?);
        let (Some(base), Some(theirs)) = texts else { return Ok(None) };
        let Some(ours) = self.present(path, &current.node)? else { return Ok(None) };
        let bytes = match chosen {
            Chosen::Bytes(bytes) => bytes.to_vec(),
            Chosen::Hunks(choice) => {
                let hunks = touching_hunks(&base, &ours, &theirs).unwrap_or_default().len();
                let merged = merge_chosen([&base, &ours, &theirs], &vec![*choice; hunks]);
                let Some(merged) = merged else { return Ok(None) };
                merged
            }
        };
        let is_theirs = matches!(chosen, Chosen::Hunks(HunkChoice::Theirs));
        let side = if is_theirs { &to.attributes } else { &current.attributes };
        let (origin, goal, is) = (&from.attributes, &to.attributes, &current.attributes);
        let owners = [origin, goal, is].map(|it| (it.uid, it.gid));
        let mut state = current.clone();
        let it = &mut state.attributes;
        it.mode = one_of(&origin.mode, &goal.mode, &is.mode).unwrap_or(side.mode);
        (it.uid, it.gid) =
            one_of(&owners[0], &owners[1], &owners[2]).unwrap_or((side.uid, side.gid));
        it.xattrs =
            one_of(&origin.xattrs, &goal.xattrs, &is.xattrs).unwrap_or_else(|| side.xattrs.clone());
        let hash = ContentHash::of(&bytes);
        if bytes != ours {
            state.node = Node::file(bytes.len() as u64, hash);
        }
        Ok(Some(Merged { state, bytes: Some(bytes) }))
    }

    /// Whether `now` is `current` without what leads from `old` to `new`, with a choice in each
    /// hunk that both touch.
    pub(in crate::restore) fn is_taken_back_by_choice(
        &self,
        path: &[u8],
        [old, new, current]: [&EntryState; 3],
        now: &EntryState,
    ) -> Result<bool, StoreError> {
        let with_contents = EntryState { node: now.node.clone(), ..current.clone() };
        if !is_same(&with_contents, now) {
            return Ok(false);
        }
        let stored =
            (self.stored(&old.node)?, self.stored(&new.node)?, self.stored(&current.node)?);
        let (Some(theirs), Some(base), Some(ours)) = stored else { return Ok(false) };
        let Some(now) = self.present(path, &now.node)? else { return Ok(false) };
        Ok(is_chosen([&base, &ours, &theirs], &now))
    }

    /// The contents of a file of a snapshot; `None`: it is none, too long, or damaged.
    fn stored(&self, node: &Node) -> Result<Option<Vec<u8>>, StoreError> {
        match node {
            Node::File { size, hash, .. } if *size <= MAX_BYTES => {
                match self.source.read(hash, *size) {
                    Err(error) if error.is_damage() => Ok(None),
                    read => read.map(Some),
                }
            }
            _ => Ok(None),
        }
    }

    /// The contents of a file as it is now. A plan does not store them.
    fn present(&self, path: &[u8], node: &Node) -> Result<Option<Vec<u8>>, StoreError> {
        let Node::File { size, hash, .. } = node else { return Ok(None) };
        if *size > MAX_BYTES {
            return Ok(None);
        }
        if let Some(stored) = self.stored(node)? {
            return Ok(Some(stored));
        }
        let read = Places::new(self.roots).find(path).and_then(|it| it.dir.read(&it.name, *size));
        // Changed since it was looked at: then it is a conflict in the plan.
        Ok(read.ok().filter(|bytes| ContentHash::of(bytes) == *hash))
    }
}

/// An attribute after a change of it; `None`: another change gave it a third value.
fn one_of<T: PartialEq + Clone>(origin: &T, goal: &T, is: &T) -> Option<T> {
    if origin == goal {
        return Some(is.clone());
    }
    (is == origin || is == goal).then(|| goal.clone())
}

/// The contents of a file or a symlink. All directories are alike.
fn contents(node: &Node) -> Option<Node> {
    match node {
        Node::Directory { .. } => None,
        Node::File { size, hash, .. } => Some(Node::file(*size, *hash)),
        other => Some(other.clone()),
    }
}

/// Whether two states are the same but for times, and for what is in directories.
pub(in crate::restore) fn is_same(a: &EntryState, b: &EntryState) -> bool {
    let facts = |state: &EntryState| {
        let it = &state.attributes;
        (it.mode, it.uid, it.gid, it.xattrs.clone(), contents(&state.node))
    };
    facts(a) == facts(b)
}
