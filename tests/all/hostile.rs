//! Stores that are forged with care: every hash fits, and what is hashed is a lie. Nothing
//! outside the tracked path changes, whatever command reads them.

use std::fs;
use std::path::{Path, PathBuf};

use nono_engine::object::{Attributes, ContentHash, Node, encode_entry};

use crate::fixture::Fixture;
use crate::observe::{assert_same, observe};

/// A session whose one snapshot can be made to say anything.
struct Forged {
    fixture: Fixture,
    id: String,
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// An entry of a tree that shares nothing with the name before it, and all attributes.
fn named(name: &[u8], node: &Node) -> Vec<u8> {
    let mut entry = Vec::new();
    encode_entry(&Attributes::default(), node, &mut entry);
    let mut out = vec![0];
    varint(name.len() as u64, &mut out);
    out.extend_from_slice(name);
    out.push(entry[0] | 0b11_1000);
    // Without kind, flags, mode, owner, group and time.
    out.extend_from_slice(&entry[11..]);
    out
}

/// An entry of a root tree, without midstates.
fn tracked(path: &[u8], node: &Node) -> Vec<u8> {
    let mut out = Vec::new();
    varint(path.len() as u64, &mut out);
    out.extend_from_slice(path);
    let attributes = Attributes { mode: 0o777, ..Attributes::default() };
    encode_entry(&attributes, node, &mut out);
    out.push(0);
    out
}

fn list(magic: &[u8], count: u64, entries: &[Vec<u8>]) -> Vec<u8> {
    let mut out = [magic, &[1]].concat();
    varint(count, &mut out);
    out.extend(entries.concat());
    out
}

fn tree(entries: &[Vec<u8>]) -> Vec<u8> {
    list(b"nonotree", entries.len() as u64, entries)
}

impl Forged {
    fn new() -> Self {
        let fixture = Fixture::in_memory();
        fixture.write("inside", "1");
        fixture.nono(&["snapshot"]).success();
        fixture.write("inside", "changed since");
        let outside = fixture.path("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("victim"), "precious").unwrap();
        let id = fixture.latest();
        Self { fixture, id }
    }

    fn put(&self, bytes: &[u8]) -> ContentHash {
        let hash = ContentHash::of(bytes);
        let objects = self.fixture.store().join("objects");
        let path = objects.join(&hash.hex()[..2]).join(&hash.hex()[2..]);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !path.exists() {
            fs::write(&path, bytes).unwrap();
        }
        hash
    }

    fn file(&self) -> Node {
        let hash = self.put(b"evil");
        Node::file(4, hash)
    }

    /// Makes these bytes the root tree, and lets every manifest agree.
    fn publish(&self, root: &[u8], tracked: Option<&Path>) {
        let root = self.put(root).hex();
        let session = self.fixture.store().join(&self.id);
        let edit = |path: PathBuf, change: &dyn Fn(&mut serde_json::Value)| {
            let mut document = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            change(&mut document);
            let bytes = serde_json::to_vec_pretty(&document).unwrap();
            fs::write(&path, &bytes).unwrap();
            ContentHash::of(&bytes).hex()
        };
        let hash = edit(session.join("snapshots/0/manifest.json"), &|manifest| {
            manifest["merkle_root"] = root.clone().into();
            if let Some(tracked) = tracked {
                manifest["roots"][0]["path"] = tracked.to_str().unwrap().into();
            }
        });
        edit(session.join("manifest.json"), &|manifest| {
            manifest["merkle_roots"] = serde_json::json!([root]);
            manifest["manifest_hashes"] = serde_json::json!([hash]);
        });
    }

    /// A root tree with one tree at the tracked path.
    fn publish_tree(&self, bytes: &[u8]) {
        let tree = self.put(bytes);
        self.publish(&self.root(&[(&self.fixture.project(), Node::Directory { tree })]), None);
    }

    fn root(&self, entries: &[(&Path, Node)]) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        let entries: Vec<_> =
            entries.iter().map(|(path, node)| tracked(path.as_os_str().as_bytes(), node)).collect();
        let mut bytes = list(b"nonoroot", entries.len() as u64, &entries);
        bytes.push(0);
        bytes
    }

    /// Every command may refuse, and none changes anything outside.
    fn check(&self, what: &str, is_refused: bool) {
        let outside = self.fixture.path("outside");
        let before = observe(&outside);
        let project = observe(&self.fixture.project());
        let copy = self.fixture.path("copy");
        let copy = copy.to_str().unwrap();
        let id = &self.id;
        for arguments in [
            &["rollback", "verify", id][..],
            &["rollback", "show", id],
            &["rollback", "diff", id],
            &["rollback", "restore", id, "--to", copy],
            &["rollback", "restore", id, "--dry-run"],
            &["rollback", "restore", id, "--force"],
            &["rollback", "restore", id, "--force", "../outside/victim"],
            &["rollback", "cat", id, "../outside/victim"],
            &["rollback", "verify", id, "--repair"],
            &["snapshot", "--session", id],
            &["rollback", "cleanup", "--yes", id],
        ] {
            let done = self.fixture.nono(arguments);
            assert!((0..=2).contains(&done.code), "{what}: {arguments:?}: {}", done.stderr);
            assert!(!done.stderr.contains("panicked"), "{what}: {arguments:?}: {}", done.stderr);
            assert_same(&before, &observe(&outside));
            if is_refused && !arguments.contains(&"cleanup") {
                assert_same(&project, &observe(&self.fixture.project()));
                if arguments[1] == "verify" {
                    assert_eq!(done.code, 1, "{what}: {arguments:?}: {}", done.stdout);
                }
            }
        }
        assert!(!self.fixture.path("evil").exists() && !Path::new("/evil").exists(), "{what}");
    }
}

#[test]
fn names_that_are_no_names_kinds_that_are_none_and_counts_that_lie_are_refused() {
    let names: [&[u8]; 8] = [b"..", b".", b"", b"/evil", b"../evil", b"a/b", b"a\0b", &[b'x'; 256]];
    for name in names {
        let forged = Forged::new();
        forged.publish_tree(&tree(&[named(name, &forged.file())]));
        forged.check(&format!("the name {:?}", String::from_utf8_lossy(name)), true);
    }
    let forged = Forged::new();
    let file = forged.file();
    let (a, b) = (named(b"a", &file), named(b"b", &file));
    let mut kind = a.clone();
    // A long file, which it is not.
    kind[3] &= !0b111;
    let trees: [(&str, Vec<u8>); 5] = [
        ("two entries of one name", tree(&[a.clone(), a.clone()])),
        ("entries out of order", tree(&[b, a.clone()])),
        ("a kind that does not fit", tree(&[kind])),
        ("a thousand million entries", list(b"nonotree", 1_000_000_000, std::slice::from_ref(&a))),
        ("2^63 entries", list(b"nonotree", 1 << 63, &[a])),
    ];
    for (what, bytes) in trees {
        let forged = Forged::new();
        forged.file();
        forged.publish_tree(&bytes);
        forged.check(what, true);
    }
}

#[test]
fn objects_of_the_wrong_kind_and_sizes_that_lie_are_refused() {
    let forged = Forged::new();
    let evil = forged.put(b"evil");
    let huge = |size| tree(&[named(b"inside", &Node::file(size, evil))]);
    for (what, bytes) in [("2^64-1 bytes", huge(u64::MAX)), ("one byte more", huge(5))] {
        let forged = Forged::new();
        forged.put(b"evil");
        forged.publish_tree(&bytes);
        forged.check(what, true);
    }
    let forged = Forged::new();
    let file = forged.put(b"evil");
    forged.publish_tree(&tree(&[named(b"dir", &Node::Directory { tree: file })]));
    forged.check("contents as a list", true);
    // A list that names the list above it cannot be made, so the nearest thing: a missing one.
    let forged = Forged::new();
    let nowhere = ContentHash::of(b"not there");
    forged.publish_tree(&tree(&[named(b"dir", &Node::Directory { tree: nowhere })]));
    forged.check("a list that is not there", true);
}

#[test]
fn roots_that_are_not_tracked_overlap_or_lead_outside_are_refused() {
    let node = |forged: &Forged| {
        let tree = forged.put(&tree(&[named(b"victim", &forged.file())]));
        Node::Directory { tree }
    };
    let forged = Forged::new();
    let root = forged.root(&[(&forged.fixture.path("outside"), node(&forged))]);
    forged.publish(&root, None);
    forged.check("a root that the manifest does not track", true);

    let forged = Forged::new();
    let project = forged.fixture.project();
    let root = forged.root(&[(&project, node(&forged)), (&project.join("sub"), node(&forged))]);
    forged.publish(&root, None);
    forged.check("roots one in the other", true);

    for path in ["/../evil", "/a//b", "relative", "/a/./b", "/", ""] {
        let forged = Forged::new();
        let root = forged.root(&[(Path::new(path), node(&forged))]);
        forged.publish(&root, None);
        forged.check(path, true);
        let forged = Forged::new();
        forged.publish(&root, Some(Path::new(path)));
        forged.check(path, true);
    }
}

#[test]
fn a_symlink_and_what_is_below_it_cannot_both_be_in_a_tree() {
    let forged = Forged::new();
    let target = b"../outside".to_vec().into();
    let file = named(b"victim", &forged.file());
    let below = forged.put(&tree(&[file]));
    forged.publish_tree(&tree(&[
        named(b"link", &Node::Symlink { target }),
        named(b"link", &Node::Directory { tree: below }),
    ]));
    forged.check("a link and a directory of one name", true);
}
