//! The objects that give back the Merkle root: trees, root trees, lists of links, in an order in
//! which each stands behind every one that names it.

use std::collections::{HashMap, HashSet};

use crate::Short;
use nono_engine::object::{ContentHash, Node};
use nono_engine::store::{ObjectSource, StoreError, read_root_tree, read_tree};

/// The part of the graph below one object.
enum Step {
    Root(ContentHash),
    Tree(ContentHash),
    /// All below it was visited.
    Done(ContentHash),
}

/// Finds objects that are to be written.
#[derive(Default)]
pub(super) struct Objects {
    /// Objects that the parent has, and objects that were visited.
    known: HashSet<Short>,
    /// In the order in which they are done: each before those that name it.
    done: Vec<ContentHash>,
    /// Contents of files that a root names, with their lengths.
    files: HashMap<ContentHash, u64>,
}

impl Objects {
    /// Notes whatever a root reaches. Trees that are known are not entered.
    pub(super) fn visit(
        &mut self,
        store: &dyn ObjectSource,
        root: ContentHash,
        with_files: bool,
    ) -> Result<(), StoreError> {
        let mut pending = vec![Step::Root(root)];
        while let Some(step) = pending.pop() {
            let (hash, nodes) = match step {
                Step::Done(hash) => {
                    self.done.push(hash);
                    continue;
                }
                Step::Root(hash) | Step::Tree(hash) if self.known.contains(&Short::of(&hash)) => {
                    continue;
                }
                Step::Root(hash) => {
                    let root = read_root_tree(store, &hash)?;
                    // Has nothing below it.
                    let links = root.links.filter(|links| self.known.insert(Short::of(links)));
                    self.done.extend(links);
                    (hash, root.entries.into_iter().map(|it| it.node).collect::<Vec<_>>())
                }
                Step::Tree(hash) => {
                    let entries = read_tree(store, &hash)?.into_entries();
                    (hash, entries.into_iter().map(|entry| entry.node).collect())
                }
            };
            self.known.insert(Short::of(&hash));
            pending.push(Step::Done(hash));
            for node in nodes {
                match node {
                    Node::Directory { tree } => pending.push(Step::Tree(tree)),
                    Node::File { size, hash, .. } if with_files => {
                        self.files.insert(hash, size);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Forgets what was found so far, but that it is known.
    pub(super) fn begin(&mut self) {
        self.done.clear();
        self.files.clear();
    }

    /// The objects, each behind those that name it, and the contents.
    pub(super) fn finish(self) -> (Vec<ContentHash>, HashMap<ContentHash, u64>) {
        let Self { done: mut found, mut files, .. } = self;
        found.reverse();
        if !files.is_empty() {
            // A file may have the bytes of a tree.
            for hash in &found {
                files.remove(hash);
            }
        }
        (found, files)
    }
}
