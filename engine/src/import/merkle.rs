//! The Merkle root of a snapshot of the other nono, computed again from its list of files.
//!
//! ```text
//! leaf   SHA-256(0x00 path hash)   of each file, in the order of the components of the paths
//! node   SHA-256(0x01 left right)  of two neighbors; the last one of an odd number goes up as is
//! root   the last node; without files, SHA-256 of nothing
//! ```
//!
//! Its first versions have no bytes 0x00 and 0x01 there. The root commits to the paths and the
//! contents of regular files. Sizes, times, permissions and symlinks are not in it.

use std::collections::BTreeMap;

use super::documents::ForeignFile;
use crate::object::ContentHash;
use crate::path_text::to_path;

/// The first byte of what is hashed for a leaf, and for a node.
type Marks = (&'static [u8], &'static [u8]);

/// As RFC 6962 has them, and as the first versions do without.
const FORMS: [Marks; 2] = [(&[0], &[1]), (&[], &[])];

/// Whether files, by absolute path, have this Merkle root.
pub(super) fn proves(root: &ContentHash, files: &BTreeMap<Vec<u8>, ForeignFile>) -> bool {
    let mut paths: Vec<(&[u8], &ContentHash)> =
        files.iter().map(|(path, file)| (path.as_slice(), &file.hash)).collect();
    // By components: `/a/b` stands before `/a.c`, unlike the bytes.
    paths.sort_by(|(a, _), (b, _)| to_path(a).cmp(to_path(b)));
    FORMS.iter().any(|form| root_of(&paths, *form) == *root)
}

fn root_of(paths: &[(&[u8], &ContentHash)], (leaf, node): Marks) -> ContentHash {
    let hash = |parts: [&[u8]; 3]| ContentHash::of(&parts.concat());
    let leaves = paths.iter().map(|(path, content)| hash([leaf, path, content.as_bytes()]));
    let mut level: Vec<ContentHash> = leaves.collect();
    while level.len() > 1 {
        let pair = |pair: &[ContentHash]| match pair {
            [left, right] => hash([node, left.as_bytes(), right.as_bytes()]),
            [alone, ..] => *alone,
            [] => ContentHash::of(b""),
        };
        level = level.chunks(2).map(pair).collect();
    }
    level.pop().unwrap_or_else(|| ContentHash::of(b""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> BTreeMap<Vec<u8>, ForeignFile> {
        let file = |path: &str| ForeignFile {
            hash: ContentHash::of(path.as_bytes()),
            size: 0,
            mtime: 0,
            permissions: 0,
        };
        paths.iter().map(|path| (path.as_bytes().to_vec(), file(path))).collect()
    }

    fn leaf(path: &str) -> ContentHash {
        let content = ContentHash::of(path.as_bytes());
        ContentHash::of(&[&[0], path.as_bytes(), content.as_bytes()].concat())
    }

    fn node(left: &ContentHash, right: &ContentHash) -> ContentHash {
        ContentHash::of(&[&[1], &left.as_bytes()[..], right.as_bytes()].concat())
    }

    #[test]
    fn the_root_is_that_of_a_tree_over_the_components_of_the_paths() {
        let [a, b, c] = ["/p/a/b", "/p/a.c", "/p/z"].map(leaf);
        let root = node(&node(&a, &b), &c);
        assert!(proves(&root, &files(&["/p/z", "/p/a.c", "/p/a/b"])));
        // In the order of the bytes.
        assert!(!proves(&node(&node(&b, &a), &c), &files(&["/p/z", "/p/a.c", "/p/a/b"])));
        assert!(proves(&a, &files(&["/p/a/b"])));
        assert!(proves(&ContentHash::of(b""), &files(&[])));
    }

    #[test]
    fn the_first_versions_hash_without_marks() {
        let plain = |path: &str| {
            let content = ContentHash::of(path.as_bytes());
            ContentHash::of(&[path.as_bytes(), content.as_bytes()].concat())
        };
        let [a, b] = ["/a", "/b"].map(plain);
        let root = ContentHash::of(&[a.as_bytes(), &b.as_bytes()[..]].concat());
        assert!(proves(&root, &files(&["/a", "/b"])));
    }

    #[test]
    fn a_path_or_a_hash_that_was_changed_has_another_root() {
        let mut list = files(&["/p/a", "/p/b", "/p/c"]);
        let root = node(&node(&leaf("/p/a"), &leaf("/p/b")), &leaf("/p/c"));
        assert!(proves(&root, &list));
        let file = list.remove(b"/p/c".as_slice()).unwrap();
        assert!(!proves(&root, &list), "one file less");
        list.insert(b"/p/d".to_vec(), file);
        assert!(!proves(&root, &list), "another path");
        let mut list = files(&["/p/a", "/p/b", "/p/c"]);
        let other = list[&b"/p/a".to_vec()].hash;
        list.get_mut(b"/p/b".as_slice()).unwrap().hash = other;
        assert!(!proves(&root, &list), "another hash");
    }
}
