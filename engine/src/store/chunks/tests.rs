use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use proptest::prelude::*;
use tempfile::TempDir;

use super::cut::{OF_CONTENTS, first_of_zeros};
use super::pack_own::PackedOwn;
use super::{Head, Part, Run};
use crate::object::{Attributes, ContentHash, Node, Tree, TreeEntry};
use crate::progress::NoProgress;
use crate::repair::{RepairOptions, repair_session};
use crate::snapshot::{Budget, SessionDir, SnapshotManager};
use crate::store::packs::{Kind, LongFiles, Packer};
use crate::store::{
    Imported, LocalStore, ObjectSource, ObjectStore, StopsAt, StoreError, Transfer, hash_object,
    read_root_tree,
};
use crate::sys::stat_open_file;
use crate::verify::{VerifyOptions, verify_session};
use crate::walk::ExclusionConfig;

const SHORTEST: usize = OF_CONTENTS.shortest;
const LONGEST: usize = OF_CONTENTS.longest;

/// Bytes that repeat nowhere.
fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(seed ^ (seed >> 29)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

struct Lab {
    temp: TempDir,
    store: LocalStore,
}

impl Lab {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::create(&temp.path().join("objects")).unwrap();
        Self { temp, store }
    }

    fn file(&self, bytes: &[u8]) -> File {
        let path = self.temp.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        File::open(path).unwrap()
    }

    /// Stores a file as a snapshot does that cannot share its blocks.
    fn import(&self, file: &File, size: u64) -> Imported {
        let sparse = stat_open_file(file, self.temp.path()).unwrap().is_sparse();
        let lock = self.store.lock_shared().unwrap();
        let packer = Packer::new(&self.store, &lock);
        let mut buffer = Vec::new();
        let mut transfer = Transfer::unwatched(&mut buffer);
        let imported = packer.import_in_chunks(file, size, sparse, &mut transfer).unwrap();
        packer.finish().unwrap();
        imported
    }

    fn import_bytes(&self, bytes: &[u8]) -> Imported {
        self.import(&self.file(bytes), bytes.len() as u64)
    }

    /// The object as a restore gives it back.
    fn export(&self, imported: &Imported) -> Result<File, StoreError> {
        let target = tempfile::tempfile_in(self.temp.path()).unwrap();
        let mut buffer = Vec::new();
        let mut transfer = Transfer::unwatched(&mut buffer);
        self.store.export(&imported.hash, imported.size, &target, &mut transfer)?;
        Ok(target)
    }

    fn verify(&self, imported: &Imported) -> Result<(), StoreError> {
        let mut buffer = Vec::new();
        self.store.open_object(&imported.hash)?.verify(&mut Transfer::unwatched(&mut buffer))
    }

    /// Bytes of all packs.
    fn packed_bytes(&self) -> u64 {
        self.store.all_packs().unwrap().iter().map(|pack| pack.bytes()).sum()
    }

    /// Puts an object into a pack of its own.
    fn pack(&self, hash: &ContentHash, kind: Kind, bytes: &[u8]) {
        self.store.pack_one(hash, kind, bytes).unwrap();
    }
}

fn bytes_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn a_long_file_comes_back_as_a_whole_and_in_parts() {
    let lab = Lab::new();
    for len in [129 << 10, 1 << 20, (1 << 20) + 1, 5_000_001] {
        let bytes = noise(len, len as u64);
        let imported = lab.import_bytes(&bytes);
        assert_eq!((imported.hash, imported.size), (ContentHash::of(&bytes), len as u64));
        assert!(imported.is_new && imported.new_bytes > imported.size);
        assert_eq!(imported.midstates.is_some(), len > 1 << 20);
        lab.verify(&imported).unwrap();
        assert!(lab.store.contains(&imported.hash, imported.size).unwrap());
        assert!(!lab.store.contains(&imported.hash, imported.size - 1).unwrap());
        assert!(bytes_of(&lab.export(&imported).unwrap()) == bytes);
        assert!(lab.store.read(&imported.hash, imported.size).unwrap() == bytes);
        assert!(lab.store.read(&imported.hash, imported.size - 1).is_err());
        let object = lab.store.open_object(&imported.hash).unwrap();
        assert!(object.is_chunked() && object.file().is_none());
        for (start, wanted) in [(0, 10), (len - 3, 10), (100_000, 70_000), (len, 5), (len + 9, 5)] {
            let mut part = vec![0; wanted];
            let count = object.read_at(&mut part, start as u64).unwrap();
            let expected = &bytes[start.min(len)..(start + wanted).min(len)];
            assert!(&part[..count] == expected, "{start} of {len}");
        }
    }
}

#[test]
fn the_same_file_is_stored_once_and_a_small_change_costs_little() {
    let lab = Lab::new();
    let mut bytes = noise(8 << 20, 1);
    assert!(lab.import_bytes(&bytes).is_new);
    let again = lab.import_bytes(&bytes);
    assert_eq!((again.is_new, again.new_bytes), (false, 0));
    // Something is inserted at the front, a byte changes in the middle, and the end grows.
    bytes.splice(0..0, *b"inserted");
    bytes[4 << 20] ^= 1;
    bytes.extend_from_slice(&noise(1000, 2));
    let before = lab.packed_bytes();
    let changed = lab.import_bytes(&bytes);
    // Three places, and the cuts around each of them.
    let most = 3 * 2 * LONGEST as u64 + 16_384;
    assert!(changed.is_new && changed.new_bytes < most, "{}", changed.new_bytes);
    assert!(lab.packed_bytes() - before < most);
    assert!(bytes_of(&lab.export(&changed).unwrap()) == bytes);
}

#[test]
fn a_long_list_of_names_of_which_some_change_costs_little_and_comes_back() {
    let lab = Lab::new();
    let list = |changed: &[usize]| {
        let entry = |number: usize| TreeEntry {
            name: format!("name {number:06}").into_bytes().into(),
            attributes: Attributes::default(),
            node: Node::file(
                1,
                ContentHash::of(
                    &[number, usize::from(changed.contains(&number))]
                        .map(usize::to_le_bytes)
                        .concat(),
                ),
            ),
        };
        Tree::new((0..10_000).map(entry).collect()).encode()
    };
    let write = |bytes: &[u8]| {
        let lock = lab.store.lock_shared().unwrap();
        let packer = Packer::new(&lab.store, &lock);
        let stored = packer.write(bytes).unwrap();
        // Also before it is written.
        assert!(packer.read(&stored.hash, bytes.len() as u64).unwrap() == bytes);
        packer.finish().unwrap();
        stored
    };
    let first = list(&[]);
    assert!(first.len() > 350_000);
    assert!(write(&first).is_new);
    let before = lab.packed_bytes();
    assert!(before < first.len() as u64, "{before}");
    assert!(!write(&first).is_new);
    assert_eq!(lab.packed_bytes(), before);
    // Neighbours, here and there.
    let changed: Vec<_> = (0..10).flat_map(|at| at * 1000..at * 1000 + 10).collect();
    let second = list(&changed);
    let stored = write(&second);
    let more = lab.packed_bytes() - before;
    assert!(more < second.len() as u64 / 4, "{more}");
    assert!(lab.store.read(&stored.hash, second.len() as u64).unwrap() == second);
    assert!(lab.store.open_object(&stored.hash).unwrap().is_chunked());
}

#[test]
fn holes_cost_nothing_stay_holes_and_are_the_zeros_that_they_read_as() {
    let lab = Lab::new();
    let path = lab.temp.path().join("sparse");
    let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    let ends = noise(200_000, 3);
    let size = 3_u64 << 30;
    file.write_all_at(&ends, 0).unwrap();
    file.write_all_at(&ends, (1 << 30) + 12_345).unwrap();
    file.set_len(size).unwrap();
    let imported = lab.import(&file, size);
    assert!(imported.new_bytes < 1 << 20, "{}", imported.new_bytes);
    assert!(lab.packed_bytes() < 1 << 20);
    lab.verify(&imported).unwrap();
    let restored = lab.export(&imported).unwrap();
    let metadata = restored.metadata().unwrap();
    assert_eq!(metadata.len(), size);
    assert!(metadata.blocks() * 512 < 2 << 20, "{} blocks", metadata.blocks());
    let mut buffer = Vec::new();
    let found = hash_object(&restored, size, true, &mut Transfer::unwatched(&mut buffer)).unwrap();
    assert_eq!(found.hash, imported.hash);
}

#[test]
fn a_hole_and_written_zeros_are_cut_at_the_same_places() {
    for at in [0, 1, SHORTEST, 100_000, 3_000_000] {
        let lab = Lab::new();
        let mut bytes = noise(4 << 20, 4);
        bytes[at..at + 1_000_000].fill(0);
        let dense = lab.import_bytes(&bytes);
        let path = lab.temp.path().join("holes");
        let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        file.write_all_at(&bytes[..at], 0).unwrap();
        file.write_all_at(&bytes[at + 1_000_000..], (at + 1_000_000) as u64).unwrap();
        // With one byte more it is another object of the same chunks, but for the last.
        file.write_all_at(b"x", bytes.len() as u64).unwrap();
        let sparse = lab.import(&file, bytes.len() as u64 + 1);
        assert_ne!(sparse.hash, dense.hash);
        assert!(sparse.new_bytes < 2 * LONGEST as u64 + 8192, "{at}: {}", sparse.new_bytes);
        bytes.push(b'x');
        assert!(bytes_of(&lab.export(&sparse).unwrap()) == bytes);
    }
}

#[test]
fn an_object_of_which_a_chunk_is_gone_is_damaged_and_is_stored_again() {
    let lab = Lab::new();
    let bytes = noise(2 << 20, 5);
    let imported = lab.import_bytes(&bytes);
    let chunk = lab.store.chunks_of(&imported.hash).unwrap().pop().unwrap();
    lab.store.drop_everywhere(&chunk);
    let error = lab.verify(&imported).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("chunk"), "{error}");
    assert!(!lab.store.contains(&imported.hash, imported.size).unwrap());
    assert!(lab.export(&imported).is_err());
    let again = lab.import_bytes(&bytes);
    assert!(again.is_new && again.new_bytes < 2 * LONGEST as u64, "{}", again.new_bytes);
    lab.verify(&again).unwrap();
    assert!(bytes_of(&lab.export(&again).unwrap()) == bytes);
}

/// The collector asks before the store has listed its packs.
#[test]
fn what_a_list_names_is_known_to_a_store_that_was_just_opened() {
    let lab = Lab::new();
    let imported = lab.import_bytes(&noise(1 << 20, 10));
    let named = lab.store.chunks_of(&imported.hash).unwrap();
    assert!(named.len() > 1 << 3);
    let other = LocalStore::open(lab.store.path()).unwrap();
    assert_eq!(other.chunks_of(&imported.hash).unwrap(), named);
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_stored_as_it_was_read() {
    let lab = Lab::new();
    let bytes = noise(1 << 20, 6);
    let file = lab.file(&bytes);
    let claimed = 3 << 20;
    let imported = lab.import(&file, claimed);
    assert_eq!((imported.hash, imported.size), (ContentHash::of(&bytes), 1 << 20));
    lab.verify(&imported).unwrap();
    let short = lab.file(&bytes[..1000]);
    let imported = lab.import(&short, claimed);
    assert_eq!(imported.hash, ContentHash::of(&bytes[..1000]));
    assert!(!lab.store.has_list_of(&imported.hash));
    assert_eq!(lab.store.read(&imported.hash, 1000).unwrap(), &bytes[..1000]);
}

#[test]
fn a_list_that_lies_is_damage() {
    let lab = Lab::new();
    let chunk = noise(20_000, 7);
    let run = Run { hash: ContentHash::of(&chunk), len: 20_000, times: 2 };
    let contents = [&*chunk, &chunk].concat();
    let encoded = |runs: &[Run]| {
        let mut bytes = Vec::new();
        runs.iter().for_each(|run| run.encode(&mut bytes));
        bytes
    };
    let lists = |runs: &[Run], size: u64| {
        let part = encoded(runs);
        let parts = vec![Part { hash: ContentHash::of(&part), size }];
        (part, Head { size, sparse: false, parts }.encode())
    };
    let honest = lists(&[run], 40_000);
    let other = noise(40_000, 8);
    // The contents that the name says, and a list.
    type Case<'a> = (&'a [u8], &'a (Vec<u8>, Vec<u8>), bool);
    let cases: [Case<'_>; 6] = [
        (&contents, &honest, true),
        (&other, &honest, false),
        (&contents, &lists(&[Run { len: 19_999, ..run }], 39_998), false),
        (&contents, &lists(&[Run { times: 3, ..run }], 40_000), false),
        (&contents, &lists(&[Run { times: 0, ..run }], 0), false),
        (&contents, &lists(&[Run { len: 10_000, times: 4, ..run }], 40_000), false),
    ];
    for (number, (contents, (part, head), is_right)) in cases.into_iter().enumerate() {
        let lab = Lab::new();
        lab.pack(&run.hash, Kind::Whole, &chunk);
        lab.pack(&ContentHash::of(part), Kind::Whole, part);
        let hash = ContentHash::of(contents);
        lab.pack(&hash, Kind::ChunkList, head);
        let read = lab.store.read(&hash, 1 << 20);
        assert_eq!(read.is_ok(), is_right, "case {number}: {read:?}");
        if let Err(error) = read {
            assert!(error.is_damage(), "case {number}: {error}");
        }
    }
    // A flipped bit in the head is seen before anything is read.
    let mut head = honest.1;
    head[3] ^= 1;
    assert!(Head::is_intact(&lists(&[run], 40_000).1) && !Head::is_intact(&head));
    lab.pack(&ContentHash::of(&contents), Kind::ChunkList, &head);
    assert!(lab.store.read(&ContentHash::of(&contents), 1 << 20).unwrap_err().is_damage());
    assert!(lab.store.chunks_of(&ContentHash::of(&contents)).is_err());
}

#[test]
fn a_list_that_names_itself_or_another_list_is_damage() {
    let hashes = [ContentHash::of(b"one"), ContentHash::of(b"other")];
    for [first, second] in [[hashes[0]; 2], hashes] {
        let lab = Lab::new();
        for (name, part) in [(first, second), (second, first)] {
            let parts = vec![Part { hash: part, size: 200_000 }];
            let head = Head { size: 200_000, sparse: false, parts }.encode();
            lab.pack(&name, Kind::ChunkList, &head);
        }
        assert!(lab.store.read(&first, 1 << 20).unwrap_err().is_damage());
        assert!(lab.store.chunks_of(&first).unwrap_err().is_damage());
        assert!(!lab.store.contains(&first, 200_000).unwrap());
        let (pack, span) = lab.store.packs().find(lab.store.dir(), &first, true).unwrap().unwrap();
        assert!(lab.store.set_chunks_aside(&first, &pack, span).unwrap().is_none());
    }
}

impl Lab {
    /// Every way to read all of an object gives its bytes.
    #[track_caller]
    fn gives(&self, imported: &Imported, bytes: &[u8]) {
        // As a process that knows nothing of the others.
        let store = LocalStore::open(self.store.path()).unwrap();
        let lab = Self { temp: tempfile::tempdir().unwrap(), store };
        assert!(bytes_of(&lab.export(imported).unwrap()) == bytes);
        assert!(lab.store.read(&imported.hash, imported.size).unwrap() == bytes);
        let mut buffer = Vec::new();
        let mut transfer = Transfer::unwatched(&mut buffer);
        let opened = lab.store.open_intact(&imported.hash, imported.size, &mut transfer).unwrap();
        opened.verify(&mut transfer).unwrap();
    }

    fn pack_flipped(&self, chunk: &ContentHash) {
        let mut bytes = self.store.read(chunk, 1 << 20).unwrap();
        bytes[5] ^= 1;
        self.pack(chunk, Kind::Whole, &bytes);
    }
}

#[test]
fn a_damaged_copy_of_a_chunk_is_passed_over_where_another_pack_has_an_intact_one() {
    let (lab, bytes) = (Lab::new(), noise(2 << 20, 50));
    let imported = lab.import_bytes(&bytes);
    let chunks = lab.store.chunks_of(&imported.hash).unwrap();
    // Packs of the same tick of the clock are asked in any order.
    while lab.verify(&imported).is_ok() {
        assert!(lab.store.all_packs().unwrap().len() < 1000);
        lab.pack_flipped(&chunks[1]);
    }
    lab.gives(&imported, &bytes);
    // Each pack has a damaged one, and another.
    let lab = Lab::new();
    let imported = lab.import_bytes(&bytes);
    let good = lab.store.read(&chunks[1], 1 << 20).unwrap();
    lab.pack_flipped(&chunks[1]);
    lab.pack_flipped(&chunks[2]);
    lab.pack(&chunks[1], Kind::Whole, &good);
    lab.gives(&imported, &bytes);
}

#[test]
fn a_bad_list_or_file_is_passed_over_where_another_pack_has_a_good_list() {
    let bytes = noise(1 << 20, 51);
    let chunk = noise(20_000, 7);
    let run = Run { hash: ContentHash::of(&chunk), len: 20_000, times: 2 };
    let mut part = Vec::new();
    run.encode(&mut part);
    let parts = vec![Part { hash: ContentHash::of(&part), size: 40_000 }];
    let lying = Head { size: 40_000, sparse: false, parts }.encode();
    let mut flipped = lying.clone();
    flipped[3] ^= 1;
    for head in [&lying, &flipped] {
        let lab = Lab::new();
        let imported = lab.import_bytes(&bytes);
        lab.pack(&run.hash, Kind::Whole, &chunk);
        lab.pack(&ContentHash::of(&part), Kind::Whole, &part);
        lab.pack(&imported.hash, Kind::ChunkList, head);
        lab.gives(&imported, &bytes);
    }
    // A file of its own with other bytes.
    let lab = Lab::new();
    let imported = lab.import_bytes(&bytes);
    let hex = imported.hash.hex();
    let own = lab.store.path().join(&hex[..2]).join(&hex[2..]);
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    let mut other = bytes.clone();
    other[500_000] ^= 1;
    std::fs::write(own, other).unwrap();
    lab.gives(&imported, &bytes);
}

#[test]
fn a_list_that_makes_more_than_is_asked_for_is_not_read() {
    let lab = Lab::new();
    let hash = ContentHash::of(&noise(300_000, 61));
    lab.pack_endless(&hash);
    let mut buffer = Vec::new();
    let mut transfer = Transfer::unwatched(&mut buffer);
    assert!(lab.store.open_intact(&hash, 300_000, &mut transfer).unwrap_err().is_damage());
    let target = tempfile::tempfile_in(lab.temp.path()).unwrap();
    assert!(lab.store.export(&hash, 300_000, &target, &mut transfer).unwrap_err().is_damage());
    assert!(lab.store.read(&hash, 300_000).unwrap_err().is_damage());
}

/// As long as a verification does not read it, a repair must not either.
#[test]
fn a_repair_reads_no_list_that_makes_more_than_its_file_has() {
    let temp = tempfile::tempdir().unwrap();
    let [work, session] = ["work", "session"].map(|name| temp.path().join(name));
    std::fs::create_dir(&work).unwrap();
    let bytes = noise(300_000, 61);
    std::fs::write(work.join("file"), &bytes).unwrap();
    let (rules, budget) = (ExclusionConfig::default(), Budget::default());
    let manager = SnapshotManager::new(&session, &[work], rules, budget).unwrap();
    manager.create_baseline().unwrap();
    let lab = Lab { temp, store: LocalStore::open(&session.join("objects")).unwrap() };
    let lock = lab.store.lock_exclusive().unwrap();
    let hash = ContentHash::of(&bytes);
    lab.store.quarantine(&hash, &lock).unwrap();
    lab.store.purge_packs(&lock).unwrap();
    drop(lock);
    lab.pack_endless(&hash);
    let session = SessionDir::open(&session).unwrap();
    let (report, verified) =
        repair_session(&session, &lab.store, &RepairOptions::default()).unwrap();
    assert!(verified.ok && report.lost.is_empty(), "{report:?}");
    assert!(lab.store.read(&hash, 300_000).unwrap() == bytes);
}

/// The lists of names that a snapshot has, and the chunks of the long ones.
fn chunks_of_lists(manager: &SnapshotManager) -> Vec<ContentHash> {
    let manifest = manager.load_manifest(0).unwrap();
    let root = read_root_tree(manager.store(), &manifest.merkle_root).unwrap();
    let Node::Directory { tree } = root.entries[0].node else { panic!("not a directory") };
    manager.store().chunks_of(&tree).unwrap()
}

#[test]
fn whatever_chunk_of_a_long_list_of_names_goes_it_is_missed_and_stored_again() {
    let temp = tempfile::tempdir().unwrap();
    let [work, session] = ["work", "session"].map(|name| temp.path().join(name));
    std::fs::create_dir(&work).unwrap();
    for number in 0..700_u32 {
        let name = ContentHash::of(&[number as u8, (number >> 8) as u8]).hex();
        std::fs::write(work.join(name.repeat(3)), "a file").unwrap();
    }
    let (rules, budget) = (ExclusionConfig::default(), Budget::default());
    let manager = SnapshotManager::new(&session, &[work], rules, budget).unwrap();
    manager.create_baseline().unwrap();
    let session = SessionDir::open(&session).unwrap();
    let chunks = chunks_of_lists(&manager);
    assert!(chunks.len() > 20, "{}", chunks.len());
    for chunk in chunks.iter().step_by(10) {
        let store = LocalStore::open(&session.path().join("objects")).unwrap();
        let lock = store.lock_exclusive().unwrap();
        store.quarantine(chunk, &lock).unwrap();
        store.purge_packs(&lock).unwrap();
        // As a repair does.
        store.renew_generation().unwrap();
        drop(lock);
        let verify = || {
            let store = LocalStore::open(&session.path().join("objects")).unwrap();
            verify_session(&session, &store, &VerifyOptions::default()).unwrap()
        };
        assert!(!verify().ok);
        manager.create_incremental().unwrap();
        let report = verify();
        assert!(report.ok, "{:?}", report.problems);
    }
}

impl Lab {
    /// Packs a list under this name whose contents it takes a century to hash.
    fn pack_endless(&self, hash: &ContentHash) {
        let chunk = noise(100_000, 60);
        let run = Run { hash: ContentHash::of(&chunk), len: 100_000, times: u32::MAX };
        let mut part = Vec::new();
        (0..3000).for_each(|_| run.encode(&mut part));
        let size = run.size() * 3000;
        let parts = vec![Part { hash: ContentHash::of(&part), size }];
        self.pack(&run.hash, Kind::Whole, &chunk);
        self.pack(&ContentHash::of(&part), Kind::Whole, &part);
        self.pack(hash, Kind::ChunkList, &Head { size, sparse: false, parts }.encode());
    }
}

impl Lab {
    /// Stores a file as a first baseline does.
    fn import_plain(&self, file: &File, size: u64) -> Imported {
        let sparse = stat_open_file(file, self.temp.path()).unwrap().is_sparse();
        let lock = self.store.lock_shared().unwrap();
        let packer = Packer::new(&self.store, &lock).storing_long_files(LongFiles::Plain);
        let mut buffer = Vec::new();
        let mut transfer = Transfer::unwatched(&mut buffer);
        let imported = packer.import(file, size, sparse, &mut transfer).unwrap();
        packer.finish().unwrap();
        imported
    }

    /// Bytes of all objects: packed ones, and those with their own files.
    fn stored_bytes(&self) -> u64 {
        let own = self.store.long_own_files().unwrap();
        self.packed_bytes() + own.into_iter().map(|(_, size)| size).sum::<u64>()
    }

    fn has_own_file(&self, imported: &Imported) -> bool {
        self.store.open_own_file(&imported.hash, imported.size).unwrap().is_some()
    }

    fn pack_long_files(&self) -> PackedOwn {
        self.store.pack_all_long(&NoProgress).unwrap()
    }
}

#[test]
fn long_files_that_were_stored_plain_are_packed_and_come_back() {
    let lab = Lab::new();
    let contents = [noise(LONGEST + 1, 20), b"compressible ".repeat(400_000), noise(3 << 20, 21)];
    let mut plain: Vec<_> = contents
        .iter()
        .map(|bytes| lab.import_plain(&lab.file(bytes), bytes.len() as u64))
        .collect();
    let path = lab.temp.path().join("sparse");
    let sparse = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    sparse.write_all_at(&contents[0], 5 << 20).unwrap();
    sparse.set_len(64 << 20).unwrap();
    plain.push(lab.import_plain(&sparse, 64 << 20));
    let small = lab.import_plain(&lab.file(b"small"), 5);
    assert!(plain.iter().all(|it| it.is_new && lab.has_own_file(it)));
    // The bytes of the sparse one that are in no hole.
    let (sparse, whole) = plain.split_last().unwrap();
    assert!(whole.iter().all(|it| it.new_bytes == it.size));
    assert!((LONGEST as u64..2 * LONGEST as u64).contains(&sparse.new_bytes));

    let bytes = plain.iter().map(|it| it.size).sum();
    assert_eq!(lab.pack_long_files(), PackedOwn { files: 4, bytes });
    assert!(lab.has_own_file(&small));
    for (imported, contents) in plain.iter().zip(contents.iter().map(Some).chain([None])) {
        assert!(!lab.has_own_file(imported) && lab.store.has_list_of(&imported.hash));
        assert!(lab.store.contains(&imported.hash, imported.size).unwrap());
        lab.verify(imported).unwrap();
        let restored = lab.export(imported).unwrap();
        match contents {
            Some(contents) => assert!(bytes_of(&restored) == *contents),
            None => assert!(restored.metadata().unwrap().blocks() * 512 < 2 << 20),
        }
    }
    assert_eq!(lab.pack_long_files(), PackedOwn::default());
    // It is known now, whoever stores it.
    let again = lab.import_plain(&lab.file(&contents[1]), contents[1].len() as u64);
    assert!(!again.is_new && !lab.has_own_file(&again));
}

#[test]
fn a_damaged_file_is_not_packed_and_one_whose_chunks_are_damaged_stays() {
    let lab = Lab::new();
    let [flipped, sound, behind] = [30, 31, 32].map(|seed| noise(1 << 20, seed));
    let import = |bytes: &[u8]| lab.import_plain(&lab.file(bytes), bytes.len() as u64);
    let imported = [import(&flipped), import(&sound), import(&behind)];
    let hex = imported[0].hash.hex();
    let own = lab.store.path().join(&hex[..2]).join(&hex[2..]);
    std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let file = File::options().write(true).open(&own).unwrap();
    file.write_all_at(&[flipped[500_000] ^ 1], 500_000).unwrap();
    // A pack has one of its chunks already, with other bytes.
    let other = Lab::new();
    let listed = other.import_bytes(&behind);
    let chunk = other.store.chunks_of(&listed.hash).unwrap().pop().unwrap();
    let mut bytes = other.store.read(&chunk, 1 << 20).unwrap();
    bytes[7] ^= 1;
    lab.pack(&chunk, Kind::Whole, &bytes);

    assert_eq!(lab.pack_long_files(), PackedOwn { files: 1, bytes: 1 << 20 });
    assert_eq!(imported.each_ref().map(|it| lab.has_own_file(it)), [true, false, true]);
    assert!(lab.verify(&imported[0]).unwrap_err().is_damage());
    lab.verify(&imported[1]).unwrap();
    lab.verify(&imported[2]).unwrap();
}

#[test]
fn a_file_of_its_own_goes_when_its_contents_are_stored_in_chunks() {
    let lab = Lab::new();
    let long = noise(3 << 20, 50);
    let plain = lab.import_plain(&lab.file(&long), long.len() as u64);
    let before = lab.stored_bytes();
    // Read again, as each snapshot does on a file system in memory.
    for _ in 0..3 {
        let again = lab.import(&lab.file(&long), plain.size);
        assert_eq!((again.hash, again.is_new), (plain.hash, false));
        let lock = lab.store.lock_shared().unwrap();
        lab.store.drop_doubles(&lock);
        assert!(!lab.has_own_file(&plain) && lab.store.has_list_of(&plain.hash));
        lab.verify(&plain).unwrap();
        assert!(lab.stored_bytes() < before + (64 << 10), "{}", lab.stored_bytes());
    }
    // A chunk that is damaged needs the file.
    let other = noise(1 << 20, 51);
    let plain = lab.import_plain(&lab.file(&other), other.len() as u64);
    let elsewhere = Lab::new();
    let listed = elsewhere.import_bytes(&other);
    let chunk = elsewhere.store.chunks_of(&listed.hash).unwrap().pop().unwrap();
    let mut bytes = elsewhere.store.read(&chunk, 1 << 20).unwrap();
    bytes[7] ^= 1;
    lab.pack(&chunk, Kind::Whole, &bytes);
    lab.import(&lab.file(&other), plain.size);
    lab.store.drop_doubles(&lab.store.lock_shared().unwrap());
    assert!(lab.has_own_file(&plain));
    lab.verify(&plain).unwrap();
}

#[test]
fn who_stops_packing_leaves_every_object_as_it_was() {
    let lab = Lab::new();
    let bytes = noise(4 << 20, 40);
    let imported = lab.import_plain(&lab.file(&bytes), bytes.len() as u64);
    assert_eq!(lab.store.pack_all_long(&StopsAt::new(0)).unwrap(), PackedOwn::default());
    assert!(lab.has_own_file(&imported) && !lab.store.has_list_of(&imported.hash));
    // The collector is at work.
    let lock = lab.store.lock_exclusive().unwrap();
    assert_eq!(lab.pack_long_files(), PackedOwn::default());
    drop(lock);
    // A crash before the file was removed.
    lab.import_bytes(&bytes);
    assert!(lab.has_own_file(&imported));
    lab.import(&lab.file(&bytes), imported.size);
    assert_eq!(lab.pack_long_files().files, 1);
    assert!(!lab.has_own_file(&imported));
    lab.verify(&imported).unwrap();
}

#[test]
fn zeros_are_cut_into_chunks_of_one_length() {
    let len = first_of_zeros();
    assert!((SHORTEST..=LONGEST).contains(&len));
    assert_eq!(OF_CONTENTS.first(&vec![0; 4 * LONGEST]), len);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_contents_come_back(parts in prop::collection::vec(
        (any::<u64>(), 1..200_000_usize, any::<bool>()), 1..6,
    )) {
        let lab = Lab::new();
        let mut bytes = noise(LONGEST + 1, 9);
        for (seed, len, is_zeros) in parts {
            bytes.extend(if is_zeros { vec![0; len] } else { noise(len, seed) });
        }
        let imported = lab.import_bytes(&bytes);
        prop_assert_eq!(imported.hash, ContentHash::of(&bytes));
        prop_assert!(bytes_of(&lab.export(&imported).unwrap()) == bytes);
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_any_bytes_are_one_or_none(
        sizes in prop::collection::vec(0..1_u64 << 40, 0..20),
        sparse in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let parts: Vec<_> = sizes.iter().map(|size| {
            Part { hash: ContentHash::of(&size.to_le_bytes()), size: *size }
        }).collect();
        let head = Head { size: sizes.iter().sum(), sparse, parts };
        prop_assert_eq!(Head::decode(&head.encode()), Some(head));
        if let Some(head) = Head::decode(&bytes) {
            prop_assert_eq!(head.encode(), bytes);
        }
    }
}
