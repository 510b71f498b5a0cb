//! A source for tests of what needs no kernel: directories and files are numbers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::source::{Content, Entry, HardLinks, Kind, Node, Stability, StateId, TreeSource};

/// Lists by directory; the root is 0.
#[derive(Default)]
pub(crate) struct Shelves {
    lists: HashMap<u32, Vec<Entry<Shelves>>>,
    /// What was opened, in this order.
    pub(crate) opened: Mutex<Vec<u32>>,
}

impl Shelves {
    pub(crate) fn new(lists: impl IntoIterator<Item = (u32, Vec<Entry<Self>>)>) -> Self {
        Self { lists: lists.into_iter().collect(), opened: Mutex::default() }
    }
}

/// A directory with the name of its number.
pub(crate) fn directory(number: u32) -> Entry<Shelves> {
    entry(number, Kind::Directory(number))
}

/// A file of so many bytes with the name of its number.
pub(crate) fn file(number: u32, size: u64) -> Entry<Shelves> {
    entry(number, Kind::File { size, content: number })
}

fn entry(number: u32, kind: Kind<Shelves>) -> Entry<Shelves> {
    let state = Some(StateId(u128::from(number).to_le_bytes().map(|byte| byte ^ 0x5a)));
    let node = Node {
        kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        mtime_s: 0,
        mtime_ns: 0,
        links: HardLinks(1),
        xattrs: None,
        state,
    };
    Entry { name: format!("{number:09}").into_bytes().into(), node }
}

struct Bytes(Vec<u8>);

impl Content for Bytes {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn in_memory(&self) -> Option<&[u8]> {
        Some(&self.0)
    }
}

impl TreeSource for Shelves {
    type Directory = u32;
    type Content = u32;

    fn root(&self) -> Node<Self> {
        directory(0).node
    }

    fn stability(&self, _: &u32) -> Stability {
        Stability::Immutable
    }

    fn list(&self, directory: &u32) -> io::Result<Vec<Entry<Self>>> {
        let entries = self.lists.get(directory).ok_or(io::ErrorKind::NotFound)?;
        let copy =
            |entry: &Entry<Self>| Entry { name: entry.name.clone(), node: entry.node.clone() };
        Ok(entries.iter().map(copy).collect())
    }

    fn open(&self, content: &u32, size: u64) -> io::Result<Arc<dyn Content>> {
        self.opened.lock().push(*content);
        Ok(Arc::new(Bytes(vec![0; size as usize])))
    }

    fn sha256_hex(&self, _: &u32) -> String {
        String::new()
    }
}
