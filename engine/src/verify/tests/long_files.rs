//! Long files and their midstates.

use super::*;
use crate::progress::{Amount, Stage};

/// Files that are read by one thread, and in parts.
const LENGTHS: [usize; 2] = [(5 << 20) + 1, (40 << 20) + 1];

/// Contents of a long file, and what else a tree has of it.
fn long_file(byte: u8, len: usize) -> (Vec<u8>, ContentHash, Midstates) {
    let bytes = vec![byte; len];
    let mut hasher = PieceHasher::new(bytes.len() as u64);
    hasher.update(&bytes);
    let (hash, midstates) = hasher.finish();
    (bytes, hash, midstates.unwrap())
}

/// A session with one long file, beside which a tree names these midstates.
fn with_midstates(lab: &Lab, len: usize, midstates: &[u8], is_stored: bool) -> SnapshotManager {
    let (contents, hash, _) = long_file(1, len);
    let link = MidstatesLink::to(ContentHash::of(midstates));
    let file = Node::File { size: contents.len() as u64, hash, midstates: link };
    let (name, attributes) = ((*b"long").into(), Attributes::default());
    let tree = Tree::new(vec![TreeEntry { name, attributes, node: file }]);
    let top = ContentHash::of(&tree.encode());
    forged(lab, &root_with(lab, Node::Directory { tree: top }), |store| {
        store.write(&contents).unwrap();
        store.write(&tree.encode()).unwrap();
        if is_stored {
            store.write(midstates).unwrap();
        }
    })
}

#[test]
fn midstates_have_to_be_there_and_those_of_the_contents_beside_them() {
    let problems = |len, midstates: &[u8], is_stored| {
        let lab = Lab::new();
        let report = verify(&with_midstates(&lab, len, midstates, is_stored));
        let of_objects = |problem: &Problem| match problem {
            Problem::MissingObject { object, path, .. } => {
                Some((*object, path.clone(), "missing".to_owned()))
            }
            // The manifest is that of something else.
            Problem::CorruptManifest { .. } => None,
            other => panic!("{other}"),
        };
        let found: Vec<_> = report.problems.iter().filter_map(of_objects).collect();
        assert!(
            found.iter().all(|(object, path, _)| *object == ContentHash::of(midstates)
                && *path == lab.path("long")),
            "{found:?}"
        );
        found.into_iter().map(|(_, _, reason)| reason).collect::<Vec<_>>()
    };
    for len in LENGTHS {
        let right = long_file(1, len).2.encode();
        assert_eq!(problems(len, &right, true), [""; 0]);
        assert_eq!(problems(len, &right, false), ["missing"]);
    }
}

#[test]
fn what_a_tree_wrongly_takes_for_midstates_is_named_and_not_moved() {
    let (other, _, _) = long_file(2, LENGTHS[0]);
    let midstates = LENGTHS.map(|len| (len, long_file(2, len).2.encode()));
    let of_others = midstates.each_ref().map(|(len, midstates)| (*len, &midstates[..]));
    let texts: [&[u8]; 3] = [b"nonomids\x01too few", b"some file", &other];
    let of_no_use = texts.into_iter().flat_map(|text| LENGTHS.map(|len| (len, text)));
    for (len, mistaken) in of_others.into_iter().chain(of_no_use) {
        let lab = Lab::new();
        let manager = with_midstates(&lab, len, mistaken, true);
        let report = verify(&manager);
        let [Problem::CorruptTree { path, reason, .. }, Problem::CorruptManifest { .. }] =
            &report.problems[..]
        else {
            panic!("{:?}", report.problems)
        };
        assert_eq!(*path, lab.path("long"));
        assert!(reason.contains("is not"), "{reason}");
        let object = manager.store().object_path(&ContentHash::of(mistaken));
        let options = RepairOptions { verify: options(), other_stores: &[] };
        let (repaired, _) = repair_session(manager.session(), manager.store(), &options).unwrap();
        let lost: Vec<_> = repaired.lost.iter().filter_map(|lost| lost.object).collect();
        assert_eq!((repaired.repaired.len(), &lost[..]), (0, &[ContentHash::of(mistaken)][..]));
        assert!(repaired.quarantined.is_empty(), "{:?}", repaired.quarantined);
        assert!(fs::read(object).unwrap() == mistaken);
    }
}

/// The bytes of contents that were read, by the reported progress.
#[derive(Default)]
struct Told {
    expected: AtomicU64,
    bytes: AtomicU64,
    /// Asks to stop after so many bytes.
    limit: Option<u64>,
}

impl Progress for Told {
    fn begin(&self, stage: Stage, expected: Option<Amount>) {
        if stage == Stage::ReadContents {
            let bytes = expected.map_or(0, |expected| expected.bytes);
            self.expected.store(bytes, Ordering::Relaxed);
        }
    }

    fn advance(&self, _: u64, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.limit.is_some_and(|limit| self.bytes.load(Ordering::Relaxed) >= limit)
    }
}

/// A file so long that it is not read beside the lists, of bytes that differ from piece to piece.
fn with_very_long_file(lab: &Lab) -> (SnapshotManager, PathBuf, u64) {
    const LEN: u64 = (70 << 20) + 12_345;
    let words = (0..LEN.div_ceil(8)).flat_map(|word: u64| (word / 1000).to_le_bytes());
    let bytes: Vec<u8> = words.take(LEN as usize).collect();
    fs::write(lab.work().join("sub/long"), &bytes).unwrap();
    let manager = lab.manager("long");
    manager.create_baseline().unwrap();
    manager.store().unpack_all().unwrap();
    let object = manager.store().object_path(&ContentHash::of(&bytes));
    (manager, object, LEN)
}

#[test]
fn each_byte_of_a_very_long_file_is_read_once_and_told_of() {
    let lab = Lab::new();
    let (manager, _, len) = with_very_long_file(&lab);
    let told = Told::default();
    for threads in [1, 4] {
        let options = VerifyOptions { threads, progress: &told, ..VerifyOptions::default() };
        let report = verify_session(manager.session(), manager.store(), &options).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let expected = told.expected.swap(0, Ordering::Relaxed);
        let bytes = told.bytes.swap(0, Ordering::Relaxed);
        assert!(expected >= len && expected < len + 100, "{expected}");
        assert!(bytes >= expected, "{bytes} of {expected}, and lists");
        assert!(bytes < len + (1 << 20), "{bytes}: nothing twice");
    }
}

#[test]
fn damage_anywhere_in_a_very_long_file_is_that_of_its_contents() {
    let lab = Lab::new();
    let (manager, object, len) = with_very_long_file(&lab);
    for at in [0, (1 << 20) - 1, len / 2, len - 1] {
        flip_byte_at(&object, at);
        let report = verify(&manager);
        let [Problem::CorruptObject { path, reason, .. }] = &report.problems[..] else {
            panic!("{at}: {:?}", report.problems)
        };
        assert_eq!(*path, lab.path("sub/long"));
        assert!(reason.contains("do not have the hash"), "{reason}");
        flip_byte_at(&object, at);
    }
    assert!(verify(&manager).problems.is_empty());
}

#[test]
fn a_verification_stops_in_the_middle_of_a_very_long_file() {
    let lab = Lab::new();
    let (manager, _, len) = with_very_long_file(&lab);
    let told = Told { limit: Some(len / 2), ..Told::default() };
    let options = VerifyOptions { threads: 2, progress: &told, ..VerifyOptions::default() };
    let stopped = verify_session(manager.session(), manager.store(), &options);
    assert!(matches!(stopped, Err(VerifyError::Cancelled)), "{stopped:?}");
    assert!(told.bytes.load(Ordering::Relaxed) < len * 3 / 4);
}

fn flip_byte_at(path: &Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at as usize] ^= 1;
    overwrite(path, &bytes);
}
