//! Differences made by hand, with their contents in memory.

use std::path::PathBuf;
use std::sync::Arc;

use super::DiffOptions;
use nono_engine::diff::{Difference, EntryState};
use nono_engine::object::{Attributes, ContentHash, Node};
use nono_engine::store::{MemoryStore, ObjectStore};

/// Differences below `/p`.
pub(super) struct TestDiff {
    pub(super) differences: Vec<Difference>,
    pub(super) roots: Vec<PathBuf>,
    pub(super) max_file_bytes: u64,
    store: MemoryStore,
}

/// A state, and its contents if it is a file.
pub(super) struct State {
    pub(super) attributes: Attributes,
    pub(super) node: Node,
    bytes: Vec<u8>,
}

impl TestDiff {
    pub(super) fn new() -> Self {
        Self {
            differences: Vec::new(),
            roots: vec!["/p".into()],
            max_file_bytes: 5 << 20,
            store: MemoryStore::new(),
        }
    }

    /// Adds a difference; they must come in order.
    pub(super) fn add(&mut self, path: &str, old: Option<State>, new: Option<State>) {
        let mut store = |state: State| {
            self.store.write(&state.bytes).unwrap();
            Arc::new(EntryState { attributes: state.attributes, node: state.node })
        };
        let (old, new) = (old.map(&mut store), new.map(&mut store));
        let path = path.as_bytes().to_vec();
        let (is_relinked, is_refreshed) = (false, false);
        self.differences.push(Difference { path, old, new, is_relinked, is_refreshed });
    }

    pub(super) fn options(&self) -> DiffOptions<'_> {
        DiffOptions {
            max_file_bytes: self.max_file_bytes,
            ..DiffOptions::new(&self.store, &self.roots)
        }
    }
}

pub(super) fn file(bytes: &[u8]) -> Option<State> {
    file_with_mode(bytes, 0o644)
}

pub(super) fn file_with_mode(bytes: &[u8], mode: u16) -> Option<State> {
    let node = Node::file(bytes.len() as u64, ContentHash::of(bytes));
    let attributes = Attributes { mode, ..Attributes::default() };
    Some(State { attributes, node, bytes: bytes.to_vec() })
}

pub(super) fn link(target: &[u8]) -> Option<State> {
    let attributes = Attributes { mode: 0o777, ..Attributes::default() };
    Some(State { attributes, node: Node::Symlink { target: target.into() }, bytes: Vec::new() })
}

pub(super) fn directory() -> Option<State> {
    let attributes = Attributes { mode: 0o755, ..Attributes::default() };
    Some(State {
        attributes,
        node: Node::Directory { tree: ContentHash::of(b"") },
        bytes: Vec::new(),
    })
}
