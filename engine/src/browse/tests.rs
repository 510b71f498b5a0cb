mod by_project;

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nono_mount::{Content, Kind, Node, Stability, StateId, TreeSource};
use tempfile::TempDir;

use super::{BrowseError, DirectoryKey, Scope, StoreTree};
use crate::object::ContentHash;
use crate::snapshot::{Budget, SessionDir, SessionMetadata, SessionOrigin, SnapshotManager};
use crate::store::LocalStore;
use crate::sys::Dir;
use crate::walk::ExclusionConfig;

/// A store root, a project, and what is shown of them.
struct World {
    temp: TempDir,
    root: PathBuf,
    project: PathBuf,
}

impl World {
    fn new() -> Self {
        let temp = TempDir::new().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let (root, project) = (base.join("store"), base.join("project"));
        fs::create_dir_all(root.join("objects")).unwrap();
        fs::create_dir(&project).unwrap();
        Self { temp, root, project }
    }

    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn session(&self, id: &str) -> SnapshotManager {
        self.session_of(id, std::slice::from_ref(&self.project))
    }

    fn session_of(&self, id: &str, paths: &[PathBuf]) -> SnapshotManager {
        let dir = self.root.join(id);
        let exclusion = ExclusionConfig::default();
        SnapshotManager::new(&dir, paths, exclusion, Budget::default()).unwrap()
    }

    /// All objects get files of their own, as where blocks are shared.
    fn share_blocks(&self) {
        LocalStore::open(&self.root.join("objects")).unwrap().unpack_all().unwrap();
    }

    fn tree(&self) -> StoreTree {
        self.scoped(&Scope::Everything)
    }

    fn scoped(&self, scope: &Scope) -> StoreTree {
        StoreTree::new(std::slice::from_ref(&self.root), scope).unwrap()
    }

    /// The path of something in the project, below a snapshot.
    fn inside(&self, snapshot: &str, path: &str) -> PathBuf {
        let project = self.project.strip_prefix("/").unwrap();
        Path::new(snapshot).join(project).join(path)
    }
}

fn key(node: &Node<StoreTree>) -> DirectoryKey {
    match &node.kind {
        Kind::Directory(key) => key.clone(),
        _ => panic!("not a directory"),
    }
}

fn walk(tree: &StoreTree, path: impl AsRef<Path>) -> std::io::Result<Option<Node<StoreTree>>> {
    let mut node = tree.root();
    for name in path.as_ref().iter() {
        match tree.find(&key(&node), name.as_bytes())? {
            Some(found) => node = found,
            None => return Ok(None),
        }
    }
    Ok(Some(node))
}

fn at(tree: &StoreTree, path: impl AsRef<Path>) -> Node<StoreTree> {
    let path = path.as_ref();
    walk(tree, path).unwrap().unwrap_or_else(|| panic!("{path:?} is not there"))
}

fn names(tree: &StoreTree, path: impl AsRef<Path>) -> Vec<String> {
    let entries = tree.list(&key(&at(tree, path))).unwrap();
    assert!(entries.is_sorted_by(|a, b| a.name < b.name), "not in order");
    entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect()
}

fn target(tree: &StoreTree, path: &str) -> String {
    match at(tree, path).kind {
        Kind::Symlink { target } => String::from_utf8(target.into_vec()).unwrap(),
        _ => panic!("{path} is not a symlink"),
    }
}

fn hash_of(parts: &[&[u8]]) -> [u8; 32] {
    *ContentHash::of(&parts.concat()).as_bytes()
}

/// Opens a file, and says how long it is.
fn open(tree: &StoreTree, path: impl AsRef<Path>) -> std::io::Result<(Arc<dyn Content>, u64)> {
    let Kind::File { size, content } = at(tree, path).kind else { panic!("not a file") };
    Ok((tree.open(&content, size)?, size))
}

/// Reads a file, a short one at once and in parts.
fn read(tree: &StoreTree, path: impl AsRef<Path>) -> std::io::Result<Vec<u8>> {
    let Kind::File { size, content } = at(tree, &path).kind else { panic!("not a file") };
    let in_parts = read_in_parts(tree, path);
    if size <= 1 << 20 {
        let mut whole = b"what was there before".to_vec();
        let read = tree.read_whole(&content, size, &mut whole);
        match &in_parts {
            Ok(bytes) => assert!(read.is_ok() && whole == *bytes),
            Err(error) => assert_eq!(read.unwrap_err().kind(), error.kind()),
        }
    }
    in_parts
}

fn read_in_parts(tree: &StoreTree, path: impl AsRef<Path>) -> std::io::Result<Vec<u8>> {
    let (content, size) = open(tree, path)?;
    let mut bytes = vec![0; size as usize + 10];
    let mut len = 0;
    loop {
        let end = bytes.len().min(len + 1_000_000);
        match content.read_at(&mut bytes[len..end], len as u64)? {
            0 => break,
            count => len += count,
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

fn state(tree: &StoreTree, path: impl AsRef<Path>) -> StateId {
    at(tree, path).state.unwrap()
}

/// Puts other bytes in the place of an object, as a broken disk or an attacker would.
fn damage(world: &World, bytes: &[u8], replacement: &[u8]) -> PathBuf {
    let hash = ContentHash::of(bytes).hex();
    let path = world.root.join("objects").join(&hash[..2]).join(&hash[2..]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, replacement).unwrap();
    path
}

#[test]
fn sessions_and_snapshots_are_folders_and_latest_follows() {
    let world = World::new();
    let file = world.write("dir/file", "one");
    let old = world.session("20260101-000000-9");
    old.create_baseline().unwrap();
    let new = world.session("20260101-000000-10");
    new.create_baseline().unwrap();
    let tree = world.tree();
    assert_eq!(
        names(&tree, ""),
        ["20260101-000000-10", "20260101-000000-9", "by-project", "latest"]
    );
    assert_eq!(target(&tree, "latest"), "20260101-000000-10", "the one that began last");
    assert_eq!(names(&tree, "20260101-000000-9"), ["0", "latest"]);

    fs::write(&file, "two").unwrap();
    for _ in 0..10 {
        old.create_incremental().unwrap();
    }
    let listed = names(&tree, "20260101-000000-9");
    assert_eq!(listed, ["0", "1", "10", "2", "3", "4", "5", "6", "7", "8", "9", "latest"]);
    assert_eq!(target(&tree, "20260101-000000-9/latest"), "10");
    assert_eq!(read(&tree, world.inside("20260101-000000-9/0", "dir/file")).unwrap(), b"one");
    assert_eq!(read(&tree, world.inside("20260101-000000-9/10", "dir/file")).unwrap(), b"two");
    for missing in ["x", "01", "+1", "11", "-1", ""] {
        let session = key(&at(&tree, "20260101-000000-9"));
        assert!(tree.find(&session, missing.as_bytes()).unwrap().is_none(), "{missing:?}");
    }
}

#[test]
fn a_baseline_is_shown_before_it_is_durable_and_is_the_same_afterwards() {
    let world = World::new();
    world.write("a", "one");
    let manager = world.session("s");
    let tree = world.tree();
    let pending = manager.begin_baseline().unwrap();
    // Its session has no manifest yet: that one comes first in a recorded run.
    manager.session().save_metadata(&SessionMetadata::new("s".into(), vec![], vec![])).unwrap();
    assert_eq!(names(&tree, "s"), ["0", "latest"]);
    assert_eq!(target(&tree, "s/latest"), "0");
    let file = world.inside("s/0", "a");
    assert_eq!(read(&tree, &file).unwrap(), b"one");
    let before = state(&tree, &file);
    pending.publish().unwrap();
    assert_eq!(names(&tree, "s"), ["0", "latest"]);
    assert_eq!(state(&tree, &file), before);
    // One that was given up is gone.
    let manager = world.session("lost");
    drop(manager.begin_baseline().unwrap());
    manager.session().save_metadata(&SessionMetadata::new("lost".into(), vec![], vec![])).unwrap();
    assert_eq!(names(&tree, "lost"), ["0", "latest"]);
    let snapshots = manager.session().path().join("snapshots/0");
    fs::rename(snapshots.join("manifest.pending.json"), snapshots.join("manifest.lost.json"))
        .unwrap();
    assert_eq!(names(&tree, "lost"), [""; 0]);
}

#[test]
fn only_the_root_and_sessions_change() {
    let world = World::new();
    world.write("file", "x");
    world.session("s").create_baseline().unwrap();
    let tree = world.tree();
    assert_eq!(tree.stability(&key(&tree.root())), Stability::Changing);
    assert_eq!(tree.stability(&key(&at(&tree, "s"))), Stability::Changing);
    for path in [PathBuf::from("s/0"), world.inside("s/0", "")] {
        assert_eq!(tree.stability(&key(&at(&tree, path))), Stability::Immutable);
    }
}

#[test]
fn folders_above_a_tracked_path_are_read_only_and_as_old_as_the_snapshot() {
    let world = World::new();
    world.write("file", "x");
    let manifest = world.session("s").create_baseline().unwrap();
    let tree = world.tree();
    let above = world.inside("s/0", "").parent().unwrap().to_owned();
    for path in [Path::new("s/0"), &above] {
        let node = at(&tree, path);
        assert_eq!((node.mode, node.links.0), (0o555, 1));
        assert_eq!(node.uid, crate::sys::effective_uid());
        let time = i128::from(node.mtime_s) * 1_000_000_000 + i128::from(node.mtime_ns);
        assert_eq!(time, manifest.timestamp.as_nanosecond());
    }
    // The root of a snapshot keeps a number of its own.
    assert!(at(&tree, "s/0").state.is_none());
}

#[test]
fn several_tracked_paths_are_one_tree_and_a_file_can_be_tracked() {
    let world = World::new();
    let base = world.project.clone();
    for path in ["a/x", "a-b/y", "deep/er/z", "deep/file"] {
        world.write(path, path);
    }
    let paths: Vec<_> = ["a", "a-b", "deep/er", "deep/file"].map(|path| base.join(path)).into();
    world.session_of("s", &paths).create_baseline().unwrap();
    let tree = world.tree();
    assert_eq!(names(&tree, world.inside("s/0", "")), ["a", "a-b", "deep"]);
    assert_eq!(names(&tree, world.inside("s/0", "deep")), ["er", "file"]);
    assert_eq!(read(&tree, world.inside("s/0", "deep/file")).unwrap(), b"deep/file");
    assert_eq!(read(&tree, world.inside("s/0", "a-b/y")).unwrap(), b"a-b/y");
}

#[test]
fn attributes_are_shown_as_captured() {
    let world = World::new();
    let file = world.write("file", "x");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o2640)).unwrap();
    symlink("nowhere/\u{fc}", world.project.join("link")).unwrap();
    let dir = Dir::open(&world.project).unwrap();
    dir.make_fifo(b"fifo", 0o600).unwrap();
    let has_xattrs = dir.inode(b"file").unwrap().set_xattr(b"user.test", b"value\0").is_ok();
    let raw = OsStr::from_bytes(b"raw-\xff\n");
    fs::write(world.project.join(raw), "raw").unwrap();
    world.session("s").create_baseline().unwrap();

    let tree = world.tree();
    let node = at(&tree, world.inside("s/0", "file"));
    let stat = fs::metadata(&file).unwrap();
    assert_eq!((node.mode, node.uid, node.gid), (0o2640, stat.uid(), stat.gid()));
    assert_eq!((node.mtime_s, i64::from(node.mtime_ns)), (stat.mtime(), stat.mtime_nsec()));
    if has_xattrs {
        let xattrs = node.xattrs.unwrap();
        assert_eq!(xattrs[0], (b"user.test".as_slice().into(), b"value\0".as_slice().into()));
    } else {
        assert!(node.xattrs.is_none());
    }
    assert!(matches!(at(&tree, world.inside("s/0", "fifo")).kind, Kind::Fifo));
    let Kind::Symlink { target } = at(&tree, world.inside("s/0", "link")).kind else { panic!() };
    assert_eq!(*target, *"nowhere/\u{fc}".as_bytes());
    let raw = world.inside("s/0", "").join(raw);
    assert_eq!(read(&tree, raw).unwrap(), b"raw");
}

#[test]
fn equal_paths_in_equal_state_are_one_state_in_all_snapshots_and_sessions() {
    let world = World::new();
    world.write("same/file", "x");
    world.write("other/file", "x");
    let changed = world.write("changed/file", "x");
    let first = world.session("s");
    first.create_baseline().unwrap();
    fs::write(&changed, "y").unwrap();
    first.create_incremental().unwrap();
    world.session("t").create_baseline().unwrap();

    let tree = world.tree();
    let of = |snapshot: &str, path: &str| state(&tree, world.inside(snapshot, path));
    for path in ["same", "same/file", "other"] {
        assert_eq!(of("s/0", path), of("s/1", path), "{path}");
        assert_eq!(of("s/0", path), of("t/0", path), "{path}");
        assert_eq!(
            key_or_none(&tree, world.inside("s/0", path)),
            key_or_none(&tree, world.inside("t/0", path))
        );
    }
    for path in ["", "changed", "changed/file"] {
        assert_ne!(of("s/0", path), of("s/1", path), "{path}");
    }
    assert_eq!(of("s/1", ""), of("t/0", ""));
    // Equal contents in another place are another file.
    assert_ne!(of("s/0", "same/file"), of("s/0", "other/file"));
    // A folder above belongs to its snapshot.
    let above = |snapshot| state(&tree, world.inside(snapshot, "").parent().unwrap());
    assert_ne!(above("s/1"), above("t/0"));
    assert_eq!(above("s/1"), above("s/1"));
}

fn key_or_none(tree: &StoreTree, path: PathBuf) -> Option<DirectoryKey> {
    match at(tree, path).kind {
        Kind::Directory(key) => Some(key),
        _ => None,
    }
}

#[test]
fn any_attribute_makes_another_state() {
    let world = World::new();
    let file = world.write("file", "x");
    let time = fs::metadata(&file).unwrap().modified().unwrap();
    let session = world.session("s");
    session.create_baseline().unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    session.create_incremental().unwrap();
    let earlier = time - std::time::Duration::from_nanos(1);
    fs::File::options().write(true).open(&file).unwrap().set_modified(earlier).unwrap();
    session.create_incremental().unwrap();
    let tree = world.tree();
    let states: Vec<_> =
        ["s/0", "s/1", "s/2"].map(|s| state(&tree, world.inside(s, "file"))).into();
    assert!(states[0] != states[1] && states[1] != states[2] && states[0] != states[2]);
}

#[test]
fn names_of_one_file_are_one_state_with_the_number_of_names() {
    let world = World::new();
    let first = world.write("a/one", "linked");
    world.write("b/sub/other", "alone");
    let session = world.session("s");
    session.create_baseline().unwrap();
    fs::hard_link(&first, world.project.join("b/two")).unwrap();
    session.create_incremental().unwrap();

    let tree = world.tree();
    let of = |snapshot: &str, path: &str| at(&tree, world.inside(snapshot, path));
    let (one, two) = (of("s/1", "a/one"), of("s/1", "b/two"));
    assert_eq!((one.links.0, two.links.0), (2, 2));
    assert_eq!(one.state, two.state);
    // In snapshot 0 the same bytes have one name: another file, in another directory state, though
    // the directory holds what it held.
    assert_eq!(of("s/0", "a/one").links.0, 1);
    assert_ne!(of("s/0", "a/one").state, one.state);
    assert_ne!(of("s/0", "a").state, of("s/1", "a").state);
    // Unrelated entries are as they were.
    assert_eq!(of("s/0", "b/sub").state, of("s/1", "b/sub").state);
    assert_eq!(of("s/1", "a").links.0, 1);
}

#[test]
fn a_removed_session_is_not_found_and_the_others_stay() {
    let world = World::new();
    let file = world.write("file", "only in s");
    world.session("s").create_baseline().unwrap();
    fs::write(&file, "in t").unwrap();
    world.session("t").create_baseline().unwrap();
    let tree = world.tree();
    let (session, snapshot) = (key(&at(&tree, "s")), key(&at(&tree, "s/0")));
    let Kind::File { size, content } = at(&tree, world.inside("s/0", "file")).kind else {
        panic!()
    };

    fs::remove_dir_all(world.root.join("s")).unwrap();
    assert_eq!(names(&tree, ""), ["by-project", "latest", "t"]);
    assert_eq!(target(&tree, "latest"), "t");
    assert!(walk(&tree, "s").unwrap().is_none());
    assert_eq!(tree.list(&session).err().unwrap().kind(), ErrorKind::NotFound);
    assert!(tree.find(&session, b"0").unwrap().is_none());
    // Its objects are still there; then the collector takes them.
    assert!(tree.list(&snapshot).is_ok());
    fs::remove_dir_all(world.root.join("objects")).unwrap();
    fs::create_dir(world.root.join("objects")).unwrap();
    walk(&tree, "t/0").unwrap();
    assert_eq!(tree.list(&snapshot).err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(tree.open(&content, size).err().unwrap().kind(), ErrorKind::NotFound);
}

#[test]
fn wrong_bytes_are_never_read() {
    let world = World::new();
    let large = vec![b'l'; 3_000_000];
    world.write("small", "small");
    world.write("large", &large);
    world.session("s").create_baseline().unwrap();
    world.share_blocks();
    damage(&world, b"small", b"smalL");
    let mut other = large.clone();
    other[1_234_567] = b'L';
    let path = damage(&world, &large, &other);
    let tree = world.tree();
    for name in ["small", "large"] {
        let error = read(&tree, world.inside("s/0", name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("objects"), "{error}");
    }
    // The right bytes are fine again, as if nothing had been.
    fs::write(&path, &large).unwrap();
    assert_eq!(read(&tree, world.inside("s/0", "large")).unwrap(), large);
    // A verified object that changes is verified again.
    fs::write(&path, &other).unwrap();
    let error = read(&tree, world.inside("s/0", "large")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    fs::write(&path, &large[1..]).unwrap();
    let error = read(&tree, world.inside("s/0", "large")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}

#[test]
fn what_was_stored_anew_in_a_file_of_its_own_is_read_from_that() {
    let world = World::new();
    // More than the blocks that stay in memory.
    let contents =
        |number: usize| format!("the contents of number {number:04} ").repeat(1000).into_bytes();
    for number in 0..500 {
        world.write(&format!("f{number}"), contents(number));
    }
    let manager = world.session("s").with_compression(crate::store::Compression::Off);
    manager.create_baseline().unwrap();
    let tree = world.tree();
    let file = |number: usize| read(&tree, world.inside("s/0", &format!("f{number}")));
    // By then it is known what has a file of its own.
    for number in 0..=crate::store::READING_LOOKS as usize {
        assert_eq!(file(number % 500).unwrap(), contents(number % 500));
    }
    tree.forget_blocks();
    for pack in fs::read_dir(world.root.join("objects/packs")).unwrap() {
        let path = pack.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let wanted = contents(123);
        let Some(at) = bytes.windows(wanted.len()).position(|part| part == wanted) else {
            continue;
        };
        bytes[at] ^= 1;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(file(123).unwrap_err().kind(), ErrorKind::InvalidData);
    let name = ContentHash::of(&contents(123)).hex();
    let own = world.root.join("objects").join(&name[..2]).join(&name[2..]);
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    fs::write(&own, contents(123)).unwrap();
    assert_eq!(file(123).unwrap(), contents(123));
}

/// Bytes of which no two mebibytes are equal.
fn long(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8 ^ (at >> 20) as u8).collect()
}

/// Takes away the midstates of a file.
fn forget_midstates(world: &World, bytes: &[u8]) {
    let mut hasher = crate::object::PieceHasher::new(bytes.len() as u64);
    hasher.update(bytes);
    let name = ContentHash::of(&hasher.finish().1.unwrap().encode()).hex();
    fs::remove_file(world.root.join("objects").join(&name[..2]).join(&name[2..])).unwrap();
}

#[test]
fn of_a_long_file_only_the_pieces_that_are_read_are_verified() {
    const PIECE: usize = 1 << 20;
    let world = World::new();
    let right = long(10 * PIECE as u32 + 5);
    world.write("long", &right);
    world.session("s").create_baseline().unwrap();
    world.share_blocks();
    let mut wrong = right.clone();
    wrong[7 * PIECE + 3] ^= 1;
    let path = damage(&world, &right, &wrong);
    let tree = world.tree();
    let (open, _) = open(&tree, world.inside("s/0", "long")).unwrap();
    let read = |offset: usize, len: usize| {
        let mut buffer = vec![0; len];
        let len = open.read_at(&mut buffer, offset as u64)?;
        buffer.truncate(len);
        std::io::Result::Ok(buffer)
    };
    // The middle, what spans two pieces, the end, and beyond it; the second time from memory or in
    // place.
    for _ in 0..2 {
        for (offset, len) in [
            (4 * PIECE, PIECE),
            (5 * PIECE - 10, 20),
            (0, 1),
            (8 * PIECE, 2 * PIECE + 5),
            (10 * PIECE, 100),
            (11 * PIECE, 1),
        ] {
            let end = right.len().min(offset + len);
            assert!(read(offset, len).unwrap() == right[offset.min(end)..end], "{offset}");
        }
    }
    // In order, so that what comes next is verified ahead.
    for piece in 0..7 {
        assert!(read(piece * PIECE, PIECE).unwrap() == right[piece * PIECE..][..PIECE]);
    }
    for (offset, len) in [(7 * PIECE, 1), (8 * PIECE - 1, 1), (6 * PIECE, 2 * PIECE)] {
        let error = read(offset, len).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("objects"), "{error}");
    }
    // Bytes that were served in place are no longer served when the object changes.
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&path, vec![0; right.len()]).unwrap();
    for piece in 0..11 {
        match read(piece * PIECE, PIECE) {
            Ok(bytes) => assert!(bytes == right[piece * PIECE..][..bytes.len()], "from memory"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidData),
        }
    }
    assert_eq!(read(7 * PIECE, 1).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn pieces_in_memory_are_lent_and_stay_as_they_are_while_they_are() {
    const PIECE: usize = 1 << 20;
    let world = World::new();
    let right = long(40 * PIECE as u32 + 5);
    world.write("long", &right);
    world.session("s").create_baseline().unwrap();
    world.share_blocks();
    let mut wrong = right.clone();
    wrong[39 * PIECE + 3] ^= 1;
    damage(&world, &right, &wrong);
    let tree = world.tree();
    let (open, _) = open(&tree, world.inside("s/0", "long")).unwrap();
    let lend = |range: std::ops::Range<usize>, meanwhile: &dyn Fn()| {
        let mut lent = false;
        let said = open.lend(range.start as u64..range.end as u64, &mut |bytes| {
            meanwhile();
            assert!(bytes == &right[range.clone()], "{range:?}");
            lent = true;
        });
        assert_eq!(lent, *said.as_ref().unwrap_or(&false));
        said.map_err(|error| error.kind())
    };
    let nothing = || ();
    let read_ten = || {
        let mut buffer = vec![0; PIECE];
        for piece in 10..24 {
            assert_eq!(open.read_at(&mut buffer, (piece * PIECE) as u64).unwrap(), PIECE);
        }
    };
    // The buffer is not used again for a piece that comes meanwhile.
    assert_eq!(lend(5..PIECE, &read_ten), Ok(true));
    assert_eq!(lend(5..PIECE, &nothing), Ok(false), "it was verified, and others took its place");
    assert_eq!(lend(22 * PIECE..22 * PIECE + 1, &nothing), Ok(true));
    assert_eq!(lend(40 * PIECE..right.len(), &nothing), Ok(true));
    for elsewhere in
        [PIECE - 1..PIECE + 1, 40 * PIECE..right.len() + 1, right.len() + 9..right.len() + 10]
    {
        assert_eq!(
            open.lend(elsewhere.start as u64..elsewhere.end as u64, &mut |_| panic!()).ok(),
            Some(false)
        );
    }
    assert_eq!(lend(39 * PIECE..39 * PIECE + 1, &nothing), Err(ErrorKind::InvalidData));
}

#[test]
fn one_open_long_file_is_read_by_many_at_once() {
    const PIECE: u64 = 1 << 20;
    let world = World::new();
    let bytes = long(20 * PIECE as u32 + 12_345);
    world.write("long", &bytes);
    world.session("s").create_baseline().unwrap();
    world.share_blocks();
    let tree = world.tree();
    let (open, size) = open(&tree, world.inside("s/0", "long")).unwrap();
    std::thread::scope(|scope| {
        for reader in 0..8 {
            let (open, bytes) = (&open, &bytes);
            scope.spawn(move || {
                let mut buffer = vec![0; 300_000];
                let mut offset = reader * 1_234_567 % size;
                for step in 0..400_u64 {
                    let len = open.read_at(&mut buffer, offset).unwrap();
                    assert!(open.is_ready(offset, len));
                    assert!(buffer[..len] == bytes[offset as usize..][..len]);
                    // Half of them read in order.
                    offset = match reader % 2 {
                        0 => (offset + len as u64) % size,
                        _ => (offset + step * 7_654_321) % size,
                    };
                }
            });
        }
    });
}

#[test]
fn files_around_the_length_of_a_piece_are_read_back() {
    const PIECE: usize = 1 << 20;
    let world = World::new();
    let lengths = [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE - 1, 2 * PIECE, 2 * PIECE + 1];
    for len in lengths {
        world.write(&format!("f{len}"), long(len as u32));
    }
    // Data across the ends of pieces, and holes elsewhere.
    let sparse = fs::File::create(world.project.join("sparse")).unwrap();
    sparse.set_len(70 << 20).unwrap();
    for at in [PIECE - 10, 5 * PIECE - 4096, 66 * PIECE] {
        sparse.write_all_at(&[7; 5000], at as u64).unwrap();
    }
    let manager = world.session("s");
    manager.create_baseline().unwrap();
    let tree = world.tree();
    for name in lengths.map(|len| format!("f{len}")).iter().chain([&"sparse".to_owned()]) {
        let right = fs::read(world.project.join(name)).unwrap();
        assert!(read(&tree, world.inside("s/0", name)).unwrap() == right, "{name}");
    }
    let options = crate::verify::VerifyOptions::default();
    let report = crate::verify::verify_session(manager.session(), manager.store(), &options);
    assert_eq!(report.unwrap().problems, []);
}

#[test]
fn a_tracked_file_is_verified_by_the_piece_too() {
    let world = World::new();
    let right = long(5 << 20);
    let file = world.write("disk image", &right);
    world.session_of("s", &[file]).create_baseline().unwrap();
    world.share_blocks();
    let mut wrong = right.clone();
    wrong[4 << 20] ^= 1;
    damage(&world, &right, &wrong);
    let tree = world.tree();
    let (open, _) = open(&tree, world.inside("s/0", "disk image")).unwrap();
    let mut buffer = vec![0; 4 << 20];
    assert_eq!(open.read_at(&mut buffer, 0).unwrap(), 4 << 20);
    assert!(buffer == right[..4 << 20]);
    assert!(open.read_at(&mut buffer, 4 << 20).is_err());
}

/// Any byte of a pack changes, before a long file is opened or while it is open.
#[test]
fn of_a_long_file_that_is_made_of_chunks_no_wrong_byte_is_read() {
    let world = World::new();
    let right: Vec<u8> =
        long(14 << 20).iter().zip(0_u32..).map(|(b, at)| b ^ (at >> 12) as u8).collect();
    world.write("long", &right);
    world.session("s").create_baseline().unwrap();
    let packs = fs::read_dir(world.root.join("objects/packs")).unwrap();
    let pack = packs.map(|entry| entry.unwrap().path()).next().unwrap();
    fs::set_permissions(&pack, fs::Permissions::from_mode(0o600)).unwrap();
    let whole = fs::read(&pack).unwrap();
    let read_all = |open: &dyn nono_mount::Content| {
        let (mut buffer, mut failed) = (vec![0; 100_000], 0);
        for (expected, at) in right.chunks(buffer.len()).zip((0..).step_by(100_000)) {
            match open.read_at(&mut buffer, at) {
                Ok(len) => assert!(buffer[..len] == *expected, "wrong bytes at {at}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
                    failed += 1;
                }
            }
        }
        failed
    };
    for place in 1..6 {
        // An open pack keeps its file, so this changes what is read of it.
        let (opened, _) = open(&world.tree(), world.inside("s/0", "long")).unwrap();
        assert_eq!(read_all(&*opened), 0);
        let mut other = whole.clone();
        other[whole.len() / 8 * place] ^= 1;
        fs::write(&pack, &other).unwrap();
        read_all(&*opened);
        let failed =
            open(&world.tree(), world.inside("s/0", "long")).map(|(open, _)| read_all(&*open));
        assert!(!matches!(failed, Ok(0)), "the change at {place} was not seen");
        fs::write(&pack, &whole).unwrap();
    }
}

/// Whether it has midstates, or is verified as a whole.
#[test]
fn a_long_file_of_which_a_pack_has_damaged_chunks_is_read_from_another_pack() {
    for len in [14 << 20, 500_000] {
        let world = World::new();
        let right: Vec<u8> =
            long(len).iter().zip(0_u32..).map(|(b, at)| b ^ (at >> 12) as u8).collect();
        world.write("long", &right);
        world.session("s").create_baseline().unwrap();
        let packs = world.root.join("objects/packs");
        let Some(pack) = fs::read_dir(&packs).unwrap().map(|it| it.unwrap().path()).next() else {
            panic!("nothing was packed")
        };
        fs::copy(&pack, packs.join("0123456789abcdef0123456789abcdef")).unwrap();
        let (opened, _) = open(&world.tree(), world.inside("s/0", "long")).unwrap();
        fs::set_permissions(&pack, fs::Permissions::from_mode(0o600)).unwrap();
        // The one that was changed last is asked first.
        let mut bytes = fs::read(&pack).unwrap();
        let whole = bytes.len();
        (1..6).for_each(|place| bytes[whole / 8 * place] ^= 1);
        fs::write(&pack, &bytes).unwrap();
        let (opened_later, _) = open(&world.tree(), world.inside("s/0", "long")).unwrap();
        for opened in [opened, opened_later] {
            let mut read = vec![0; right.len()];
            assert_eq!(opened.read_at(&mut read, 0).unwrap(), read.len());
            assert!(read == right);
        }
    }
}

/// Reads 6,000 files of 2 KiB, with these names, in the order of inode numbers, and returns how
/// many blocks that took, and how many there are. `room`: bytes of blocks that stay in memory.
fn blocks_read_by_number(name: impl Fn(u64) -> String, room: Option<usize>) -> (u64, u64) {
    let world = World::new();
    let count = 6000_u64;
    for number in 0..count {
        // Bytes that do not repeat, so that no two files are one object: 12 MB together.
        let seed = number.to_le_bytes();
        let bytes: Vec<u8> = (0..64_u8).flat_map(|at| hash_of(&[&seed, &[at]])).collect();
        world.write(&name(number), bytes);
    }
    let manager = world.session("20260101-000000-1");
    manager.create_baseline().unwrap();
    let packs = manager.store().all_packs().unwrap();
    let blocks: u64 = packs.iter().map(|pack| pack.block_count() as u64).sum();
    assert!(blocks > 90, "{blocks}");
    let tree = world.tree();
    let folder = at(&tree, world.inside("20260101-000000-1/0", ""));
    let mut entries = tree.list(&key(&folder)).unwrap();
    assert_eq!(entries.len() as u64, count);
    if let Some(room) = room {
        tree.keep_blocks(room);
    }
    entries.sort_by_key(|entry| entry.node.state.map(|StateId(bytes)| bytes));
    let mut buffer = Vec::new();
    for entry in &entries {
        let Kind::File { size, content } = &entry.node.kind else { panic!("not a file") };
        tree.read_whole(content, *size, &mut buffer).unwrap();
    }
    (tree.blocks_read(), blocks)
}

#[test]
fn a_directory_that_is_read_in_the_order_of_inode_numbers_needs_each_block_once() {
    let (read, blocks) = blocks_read_by_number(|number| format!("file {number}"), None);
    assert!(read <= blocks, "{read} of {blocks}");
}

#[test]
fn inode_numbers_follow_names_so_that_few_blocks_are_read_again() {
    let letter = |number: u64| char::from(b'a' + (number % 24) as u8);
    let name = |number| format!("{} {number}", letter(number));
    let (read, _) = blocks_read_by_number(name, Some(1 << 20));
    // How often depends on how the threads shared the names when they stored them. Names that
    // begin alike have the order of hashes.
    let (alike, _) = blocks_read_by_number(|number| format!("file {number}"), Some(1 << 20));
    assert!(4 * read < alike, "{read}, and {alike}");
}

#[test]
fn pieces_of_many_long_files_are_read_at_once() {
    const LEN: u32 = (6 << 20) + 77;
    let world = World::new();
    let bytes = |number: u8| long(LEN).iter().map(|byte| byte ^ number).collect::<Vec<_>>();
    (0..4).for_each(|number| drop(world.write(&format!("f{number}"), bytes(number))));
    world.session("s").create_baseline().unwrap();
    let tree = world.tree();
    std::thread::scope(|scope| {
        for reader in 0..8_u8 {
            let (tree, world) = (&tree, &world);
            scope.spawn(move || {
                for number in (0..4).map(|step| (reader + step) % 4) {
                    let found = read(tree, world.inside("s/0", &format!("f{number}"))).unwrap();
                    assert!(found == bytes(number));
                }
            });
        }
    });
}

#[test]
fn without_its_midstates_a_long_file_is_verified_as_a_whole() {
    let world = World::new();
    let right = long(17_000_001);
    world.write("huge", &right);
    world.session("s").create_baseline().unwrap();
    world.share_blocks();
    forget_midstates(&world, &right);
    let tree = world.tree();
    assert!(read(&tree, world.inside("s/0", "huge")).unwrap() == right);
    let mut wrong = right.clone();
    *wrong.last_mut().unwrap() ^= 1;
    damage(&world, &right, &wrong);
    for tree in [&tree, &world.tree()] {
        let error = open(tree, world.inside("s/0", "huge")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}

#[test]
fn very_large_files_are_verified_to_the_last_byte() {
    let world = World::new();
    let mut bytes: Vec<u8> = (0..17_000_001_u32).map(|i| (i % 251) as u8).collect();
    world.write("huge", &bytes);
    world.session("s").create_baseline().unwrap();
    world.share_blocks();
    let tree = world.tree();
    assert!(read(&tree, world.inside("s/0", "huge")).unwrap() == bytes);
    let right = bytes.clone();
    *bytes.last_mut().unwrap() ^= 1;
    damage(&world, &right, &bytes);
    for tree in [&tree, &world.tree()] {
        let error = read(tree, world.inside("s/0", "huge")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}

#[test]
fn contents_of_another_length_than_their_entry_says_are_an_error() {
    let world = World::new();
    world.write("short", "12345");
    world.write("middle", "12345".repeat(40_000));
    world.session("s").create_baseline().unwrap();
    let tree = world.tree();
    for name in ["short", "middle"] {
        let Kind::File { size, content } = at(&tree, world.inside("s/0", name)).kind else {
            panic!("not a file")
        };
        for wrong in [size - 1, size + 1] {
            let opened = tree.open(&content, wrong).err().unwrap();
            let read = tree.read_whole(&content, wrong, &mut Vec::new()).unwrap_err();
            assert_eq!([opened.kind(), read.kind()], [ErrorKind::InvalidData; 2], "{name} {wrong}");
        }
    }
}

#[test]
fn an_object_that_changes_while_it_is_open_is_no_longer_read() {
    let world = World::new();
    let large = long((1 << 20) + 50);
    let (size, start) = (large.len() as u64, 1 << 20);
    world.write("large", &large);
    world.session("s").create_baseline().unwrap();
    world.share_blocks();
    forget_midstates(&world, &large);
    let tree = world.tree();
    let (open, _) = open(&tree, world.inside("s/0", "large")).unwrap();
    let mut buffer = [0; 100];
    assert_eq!(open.read_at(&mut buffer, start).unwrap(), 50);
    assert_eq!(open.read_at(&mut buffer, size).unwrap(), 0);
    // The kernel's clock for files ticks every few milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(20));
    damage(&world, &large, &vec![b'x'; large.len()]);
    assert_eq!(open.read_at(&mut buffer, 0).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn damaged_trees_and_manifests_are_errors_of_their_own_place_only() {
    let world = World::new();
    world.write("dir/file", "x");
    let session = world.session("s");
    let manifest = session.create_baseline().unwrap();
    world.write("dir/file", "y");
    session.create_incremental().unwrap();
    let bytes = crate::store::ObjectSource::read(session.store(), &manifest.merkle_root, 1 << 20);
    damage(&world, &bytes.unwrap(), b"nonsense");
    let manifest = world.root.join("s/snapshots/1/manifest.json");
    fs::write(&manifest, "{").unwrap();
    fs::create_dir(world.root.join("s/snapshots/2")).unwrap();

    let tree = world.tree();
    assert_eq!(names(&tree, "s"), ["0", "1", "latest"], "damage is shown, a crash's rest is not");
    for snapshot in ["s/0", "s/1"] {
        let error = tree.list(&key(&at(&tree, snapshot))).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }
}

#[test]
fn what_is_no_session_is_not_shown() {
    let world = World::new();
    world.write("file", "x");
    world.session("s").create_baseline().unwrap();
    for name in ["index", "empty", ".hidden", "latest", "by-project"] {
        fs::create_dir_all(world.root.join(name)).unwrap();
    }
    for name in [".hidden", "latest", "by-project"] {
        let planted = world.root.join(name).join("manifest.json");
        fs::copy(world.root.join("s/manifest.json"), planted).unwrap();
    }
    symlink("s", world.root.join("linked")).unwrap();
    fs::write(world.root.join("file"), "").unwrap();
    let tree = world.tree();
    assert_eq!(names(&tree, ""), ["by-project", "latest", "s"]);
    assert_eq!(target(&tree, "latest"), "s");
    for name in ["objects", "linked", "empty", ".hidden", "file", "..", "."] {
        assert!(tree.find(&key(&tree.root()), name.as_bytes()).unwrap().is_none(), "{name}");
    }
    // A session whose manifest cannot be read still shows its snapshots.
    fs::write(world.root.join("s/manifest.json"), "{").unwrap();
    assert_eq!(names(&tree, "s"), ["0", "latest"]);
}

#[test]
fn a_store_that_does_not_exist_yet_is_empty_and_appears() {
    let temp = TempDir::new().unwrap();
    let root = temp.path().join("later");
    let tree = StoreTree::new(std::slice::from_ref(&root), &Scope::Everything).unwrap();
    assert!(names(&tree, "").is_empty());
    let world = World::new();
    world.write("file", "x");
    world.session("s").create_baseline().unwrap();
    fs::rename(&world.root, &root).unwrap();
    assert_eq!(names(&tree, ""), ["by-project", "latest", "s"]);
}

#[test]
fn two_stores_are_one_tree_and_share_no_states() {
    let (one, two) = (World::new(), World::new());
    one.write("file", "x");
    for (world, id) in [(&one, "a"), (&two, "b"), (&two, "a")] {
        let session = world.session_of(id, std::slice::from_ref(&one.project));
        session.create_baseline().unwrap();
    }
    let roots = [one.root.clone(), two.root.clone()];
    let tree = StoreTree::new(&roots, &Scope::Everything).unwrap();
    assert_eq!(names(&tree, ""), ["a", "b", "by-project", "latest"]);
    let of = |snapshot| one.inside(snapshot, "file");
    assert_eq!(read(&tree, of("b/0")).unwrap(), b"x");
    assert_ne!(state(&tree, of("a/0")), state(&tree, of("b/0")));
}

#[test]
fn a_session_with_objects_of_its_own_is_shown() {
    let world = World::new();
    world.write("file", "x");
    let manager = SnapshotManager::new(
        &world.root.join("bare"),
        std::slice::from_ref(&world.project),
        ExclusionConfig::default(),
        Budget::default(),
    );
    manager.unwrap().create_baseline().unwrap();
    let tree = world.tree();
    assert_eq!(read(&tree, world.inside("bare/0", "file")).unwrap(), b"x");
    // Nothing of it is left: shown as unusable, with the reason.
    fs::remove_dir_all(world.root.join("bare/objects")).unwrap();
    assert_eq!(names(&tree, "bare"), ["0", "latest"]);
    let error = tree.list(&key(&at(&tree, "bare/0"))).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("bare/objects"), "{error}");
}

#[test]
fn one_session_is_shown_without_a_folder_of_its_own() {
    let world = World::new();
    world.write("file", "x");
    for id in ["20260101-1", "20260101-2", "20260202-1"] {
        world.session(id).create_baseline().unwrap();
    }
    let scoped = |id: &str| {
        StoreTree::new(std::slice::from_ref(&world.root), &Scope::Session(id.to_owned()))
    };
    let tree = scoped("20260101-2").unwrap();
    assert_eq!(names(&tree, ""), ["0", "latest"]);
    assert_eq!(read(&tree, world.inside("0", "file")).unwrap(), b"x");
    for missing in ["20260101", "", "objects", "../store/20260101-1"] {
        assert!(matches!(scoped(missing), Err(BrowseError::NoSuchSession { .. })), "{missing}");
    }
}

#[test]
fn only_sessions_of_a_project_are_shown() {
    let world = World::new();
    for path in ["a/x", "b/y", "ab/z"] {
        world.write(path, path);
    }
    world.session_of("of-a", &[world.project.join("a")]).create_baseline().unwrap();
    world.session_of("of-b", &[world.project.join("b")]).create_baseline().unwrap();
    world.session("of-all").create_baseline().unwrap();
    let shown = |path: PathBuf| names(&world.scoped(&Scope::Path(path)), "");
    assert_eq!(shown(world.project.join("a")), ["by-project", "latest", "of-a", "of-all"]);
    assert_eq!(shown(world.project.clone()), ["by-project", "latest", "of-a", "of-all", "of-b"]);
    // Something inside, which need not exist any more.
    assert_eq!(shown(world.project.join("b/gone")), ["by-project", "latest", "of-all", "of-b"]);
    assert!(shown(world.temp.path().join("elsewhere")).is_empty());
    let tree = world.scoped(&Scope::Path(world.project.join("b")));
    assert!(walk(&tree, "of-a").unwrap().is_none());
}

#[test]
fn latest_is_the_session_that_began_last_whatever_its_id() {
    let world = World::new();
    world.write("file", "x");
    for (id, started) in [("b", "2026-01-01T00:00:00Z"), ("a", "2026-02-01T00:00:00Z")] {
        let session = world.session(id);
        session.create_baseline().unwrap();
        let mut metadata = SessionMetadata::new(id.into(), Vec::new(), Vec::new());
        metadata.started = started.parse().unwrap();
        session.save_session_metadata(&metadata).unwrap();
    }
    assert_eq!(target(&world.tree(), "latest"), "a");
}

#[test]
fn latest_is_no_older_session_because_the_newest_cannot_be_read() {
    let world = World::new();
    world.write("file", "x");
    for id in ["a", "b"] {
        world.session(id).create_baseline().unwrap();
    }
    let tree = world.tree();
    assert_eq!(target(&tree, "latest"), "b");
    fs::write(world.root.join("b/manifest.json"), "{").unwrap();
    assert_eq!(names(&tree, ""), ["a", "b", "by-project"]);
    assert!(tree.find(&key(&tree.root()), b"latest").unwrap().is_none());
    // One that is surely older is ignored: by more than the clock of files may be behind.
    let now = jiff::Timestamp::now();
    while jiff::Timestamp::now() <= now + jiff::SignedDuration::from_millis(11) {
        std::thread::yield_now();
    }
    world.session("c").create_baseline().unwrap();
    assert_eq!(target(&tree, "latest"), "c");
}

#[test]
fn manifests_of_snapshots_that_nobody_looks_at_are_not_read() {
    let world = World::new();
    world.write("file", "x");
    world.session("s").create_baseline().unwrap();
    // A parser of the whole finds that it is not JSON.
    let path = world.root.join("s/snapshots/0/manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    let cut = text.find("\"not_captured\"").unwrap();
    fs::write(&path, format!("{} \"not_captured\": [!", &text[..cut])).unwrap();
    assert_eq!(read(&world.tree(), world.inside("s/0", "file")).unwrap(), b"x");
}

#[test]
fn latest_is_no_session_that_an_archive_brought() {
    let world = World::new();
    world.write("a", "1");
    for id in ["20260101-000000-1", "20260101-000000-2"] {
        world.session(id).create_baseline().unwrap();
    }
    let tree = world.tree();
    assert_eq!(target(&tree, "latest"), "20260101-000000-2");
    let newest = SessionDir::open(&world.root.join("20260101-000000-2")).unwrap();
    let metadata = SessionMetadata { received: true, ..newest.metadata().unwrap() };
    newest.save_metadata(&metadata).unwrap();
    assert_eq!(target(&world.tree(), "latest"), "20260101-000000-1");
    // It is there, by its id.
    assert!(names(&world.tree(), "").contains(&"20260101-000000-2".to_owned()));
}
