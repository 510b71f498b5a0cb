#![allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use proptest::prelude::*;

use super::format::{ENTRY_BYTES, MAX_PACKED_BYTES, TRAILER_BYTES};
use super::salvage::Salvaged;
use super::writer::Limits;
use super::*;
use crate::progress::NoProgress;
use crate::store::local::relative_name;
use crate::store::{
    Compression, LocalStore, ObjectSource, ObjectStore, READING_LOOKS, StopsAt, Transfer,
};
use crate::sys::stat_open_file;

struct Lab {
    temp: tempfile::TempDir,
    store: LocalStore,
}

impl Lab {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::create(&temp.path().join("objects")).unwrap();
        // So that objects are found where they lie.
        store.set_compression(Compression::Off);
        Self { temp, store }
    }

    /// The same store, as another process sees it.
    fn other(&self) -> LocalStore {
        LocalStore::open(self.store.path()).unwrap()
    }

    /// Packs objects, and says what they are called.
    fn pack(&self, objects: &[Vec<u8>]) -> Vec<ContentHash> {
        let lock = self.store.lock_shared().unwrap();
        let packer = Packer::with_limits(&self.store, &lock, Limits::default(), 1);
        let hashes = objects.iter().map(|bytes| packer.write(bytes).unwrap().hash).collect();
        packer.finish().unwrap();
        hashes
    }

    fn packs(&self) -> Vec<PathBuf> {
        let Ok(listed) = std::fs::read_dir(self.store.path().join("packs")) else {
            return Vec::new();
        };
        listed.map(|entry| entry.unwrap().path()).collect()
    }

    /// The numbers of the objects that another process cannot read; all others it reads right.
    fn lost(&self, hashes: &[ContentHash], objects: &[Vec<u8>]) -> Vec<usize> {
        let store = self.other();
        let is_lost = |number: &usize| match store.read(&hashes[*number], 1 << 20) {
            Ok(read) => {
                assert_eq!(read, objects[*number]);
                false
            }
            Err(_) => true,
        };
        (0..hashes.len()).filter(is_lost).collect()
    }

    /// Removes all packs, and puts this one back.
    fn reset(&self, path: &std::path::Path, good: &[u8]) {
        self.packs().iter().for_each(|pack| std::fs::remove_file(pack).unwrap());
        std::fs::write(path, good).unwrap();
    }

    /// Where a damaged pack was moved.
    fn aside(&self, pack: &std::path::Path) -> PathBuf {
        let name = format!("pack-{}-", pack.file_name().unwrap().to_str().unwrap());
        let listed = std::fs::read_dir(self.store.quarantine_path()).unwrap();
        let mut paths = listed.map(|entry| entry.unwrap().path());
        paths.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&name)).unwrap()
    }

    /// Files below the directory of objects, without packs and without what is hidden.
    fn own_files(&self) -> usize {
        let prefixes = std::fs::read_dir(self.store.path()).unwrap().map(|entry| entry.unwrap());
        let prefixes = prefixes.filter(|entry| entry.file_name().len() == 2);
        prefixes.map(|entry| std::fs::read_dir(entry.path()).unwrap().count()).sum()
    }

    /// Changes a pack behind the store's back.
    fn tamper(&self, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
        let [path] = &self.packs()[..] else { panic!("not one pack") };
        let mut bytes = std::fs::read(path).unwrap();
        change(&mut bytes);
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, bytes).unwrap();
        path.clone()
    }
}

fn objects(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|n| format!("object {n} ").repeat(n as usize % 40 + 1).into_bytes()).collect()
}

/// Where some bytes are.
fn position(all: &[u8], part: &[u8]) -> usize {
    all.windows(part.len()).position(|window| window == part).unwrap()
}

#[test]
fn many_small_objects_take_one_file_and_are_found_by_everybody() {
    let lab = Lab::new();
    let objects = objects(1000);
    let hashes = lab.pack(&objects);
    assert_eq!((lab.packs().len(), lab.own_files()), (1, 0));
    let metadata = std::fs::metadata(&lab.packs()[0]).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o400);
    for store in [&lab.store, &lab.other()] {
        for (hash, bytes) in hashes.iter().zip(&objects) {
            assert_eq!(store.read(hash, 1 << 20).unwrap(), *bytes);
            assert!(store.contains(hash, bytes.len() as u64).unwrap());
            assert!(!store.contains(hash, bytes.len() as u64 + 1).unwrap());
            let object = store.open_object(hash).unwrap();
            assert_eq!(object.path(), lab.packs()[0]);
            object.verify(&mut Transfer::unwatched(&mut Vec::new())).unwrap();
        }
        let absent = ContentHash::of(b"absent");
        assert!(!store.contains(&absent, 6).unwrap());
        assert!(matches!(store.read(&absent, 6), Err(StoreError::Missing { .. })));
        let mut listed = 0;
        store
            .for_each_object(|_| {
                listed += 1;
                Ok::<_, StoreError>(())
            })
            .unwrap();
        assert_eq!(listed, 1000);
    }
}

#[test]
fn a_few_small_objects_have_files_of_their_own_and_a_list_of_chunks_never_has_one() {
    let lab = Lab::new();
    let lock = lab.store.lock_shared().unwrap();
    let write = |all: &[Vec<u8>]| {
        let packer = Packer::with_limits(&lab.store, &lock, Limits::default(), 10);
        all.iter().for_each(|bytes| assert!(packer.write(bytes).unwrap().is_new));
        packer.finish().unwrap();
        (lab.packs().len(), lab.own_files())
    };
    assert_eq!(write(&objects(9)), (0, 9));
    assert_eq!(write(&[vec![1; MAX_PACKED_BYTES as usize + 1]]), (1, 9));
    lab.pack(&[vec![2; MAX_PACKED_BYTES as usize]]);
    assert_eq!((lab.packs().len(), lab.own_files()), (2, 9));
}

#[test]
fn what_is_not_finished_was_never_there() {
    let lab = Lab::new();
    let lock = lab.store.lock_shared().unwrap();
    let packer = Packer::with_limits(&lab.store, &lock, Limits::default(), 1);
    let hash = packer.write(&vec![3; 100_000]).unwrap().hash;
    for n in 0..30_u8 {
        packer.write(&vec![n; 100_000]).unwrap();
    }
    assert_eq!(packer.read(&hash, 1 << 20).unwrap(), vec![3; 100_000]);
    drop(packer);
    assert!(lab.packs().is_empty());
    assert!(!lab.store.contains(&hash, 100_000).unwrap());
    let left = std::fs::read_dir(lab.store.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), [".lock"]);
}

#[test]
fn what_comes_twice_is_stored_once_however_many_threads_bring_it() {
    let lab = Lab::new();
    // Many packs, so that some become complete while others write.
    let limits = Limits { bytes: 3 << 20, objects: 1 << 18 };
    let lock = lab.store.lock_shared().unwrap();
    let packer = Packer::with_limits(&lab.store, &lock, limits, 1);
    let all: Vec<Vec<u8>> = (0..600_u32).map(|n| n.to_le_bytes().repeat(8000)).collect();
    let new: usize = std::thread::scope(|threads| {
        let bring = || {
            let mut new = 0;
            for bytes in &all {
                let stored = packer.write(bytes).unwrap();
                new += usize::from(stored.is_new);
                assert_eq!(packer.read(&stored.hash, 1 << 20).unwrap(), *bytes);
                assert!(packer.contains(&stored.hash, bytes.len() as u64).unwrap());
            }
            new
        };
        let threads: Vec<_> = (0..4).map(|_| threads.spawn(bring)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    packer.finish().unwrap();
    assert_eq!(new, all.len());
    assert!(lab.packs().len() > 3, "{} packs", lab.packs().len());
    let mut listed = 0;
    lab.store
        .for_each_object(|_| {
            listed += 1;
            Ok::<_, StoreError>(())
        })
        .unwrap();
    assert_eq!(listed, all.len());
    for bytes in &all {
        assert_eq!(lab.other().read(&ContentHash::of(bytes), 1 << 20).unwrap(), *bytes);
    }
    // More packs than are asked one after the other, and more questions.
    let store = lab.other();
    for bytes in all.iter().cycle().take(2 * QUESTIONS_BEFORE_TABLE) {
        assert_eq!(store.read(&ContentHash::of(bytes), 1 << 20).unwrap(), *bytes);
    }
    assert!(store.packs().known.read().table.is_some());
}

#[test]
fn a_wrong_byte_is_never_served_whatever_byte_was_changed() {
    let lab = Lab::new();
    let objects = objects(40);
    let hashes = lab.pack(&objects);
    let good = std::fs::read(&lab.packs()[0]).unwrap();
    let spans: Vec<_> = objects.iter().map(|bytes| position(&good, bytes)..).collect();
    for at in 0..good.len() {
        lab.tamper(|bytes| {
            bytes.clone_from(&good);
            bytes[at] ^= 1;
        });
        let lost = lab.lost(&hashes, &objects);
        // A flipped byte among the objects costs its own object, or none.
        let end = spans[39].start + objects[39].len();
        let owner =
            (0..40).find(|n| (spans[*n].start..spans[*n].start + objects[*n].len()).contains(&at));
        if (16..end).contains(&at) {
            assert_eq!(lost, Vec::from_iter(owner), "byte {at}");
        }
    }
}

#[test]
fn a_pack_that_was_cut_short_gives_back_what_is_whole_in_it() {
    let lab = Lab::new();
    let objects = objects(100);
    let hashes = lab.pack(&objects);
    let good = std::fs::read(&lab.packs()[0]).unwrap();
    for len in [0, 7, 16, 17, 60, 1000, 5000, good.len() - 1] {
        let path = lab.tamper(|bytes| bytes.truncate(len));
        let store = lab.other();
        assert!(
            hashes
                .iter()
                .all(|hash| matches!(store.read(hash, 1 << 20), Err(StoreError::Missing { .. })))
        );
        // A snapshot stores everything again.
        assert!(!store.contains(&hashes[0], objects[0].len() as u64).unwrap());
        let lock = store.lock_exclusive().unwrap();
        store.salvage_packs(BadDisk::TakeTheRest, &NoProgress, &lock).unwrap();
        for (hash, bytes) in hashes.iter().zip(&objects) {
            let is_whole = position(&good, bytes) + bytes.len() <= len;
            match store.read(hash, 1 << 20) {
                Ok(read) => assert!(is_whole && read == *bytes),
                Err(error) => assert!(!is_whole && error.is_damage(), "{len}: {error}"),
            }
        }
        assert!(!path.exists());
        let aside = lab.aside(&path);
        assert_eq!(std::fs::metadata(&aside).unwrap().size(), len as u64);
        // The next round begins with the whole pack.
        std::fs::remove_file(aside).unwrap();
        lab.reset(&path, &good);
    }
}

#[test]
fn a_damaged_object_is_replaced_at_once_and_taken_out_later() {
    let lab = Lab::new();
    let objects = objects(50);
    let hashes = lab.pack(&objects);
    let old = lab.tamper(|bytes| {
        let at = position(bytes, &objects[7]);
        bytes[at] ^= 1;
    });
    let store = lab.other();
    let len = objects[7].len() as u64;
    assert!(matches!(store.read(&hashes[7], len), Err(StoreError::Corrupt { .. })));

    // A restore does this before it overwrites the only other copy.
    let live = lab.temp.path().join("live");
    std::fs::write(&live, &objects[7]).unwrap();
    let file = std::fs::File::open(&live).unwrap();
    let stat = stat_open_file(&file, &live).unwrap();
    let lock = store.lock_shared().unwrap();
    assert!(
        store.keep(&hashes[7], &file, &stat, &mut Transfer::unwatched(&mut Vec::new())).unwrap()
    );
    assert_eq!(lab.other().read(&hashes[7], len).unwrap(), objects[7]);
    drop(lock);
    let aside = store.quarantined().unwrap();
    assert_eq!((aside.len(), aside[0].object.hash), (1, hashes[7]));

    let lock = store.lock_exclusive().unwrap();
    store.purge_packs(&lock).unwrap();
    assert!(!old.exists());
    assert_eq!((lab.packs().len(), lab.own_files()), (1, 1));
    assert!(lab.lost(&hashes, &objects).is_empty());
}

#[test]
fn whoever_has_opened_a_pack_reads_on_and_whoever_locks_counts_on_nothing_that_is_gone() {
    let lab = Lab::new();
    let objects = objects(50);
    let hashes = lab.pack(&objects);
    let (reader, writer) = (lab.other(), lab.other());
    for store in [&reader, &writer] {
        assert!(store.contains(&hashes[3], objects[3].len() as u64).unwrap());
    }
    {
        let lock = lab.store.lock_exclusive().unwrap();
        let packs = lab.store.all_packs().unwrap();
        let mut kept = packs[0].entries().unwrap();
        kept.retain(|entry| entry.hash != hashes[3]);
        lab.store.rewrite_packs(&[Rewrite { pack: packs[0].clone(), kept }], &lock).unwrap();
    }
    assert_eq!(reader.read(&hashes[3], 1 << 20).unwrap(), objects[3]);
    let lock = writer.lock_shared().unwrap();
    assert!(!writer.contains(&hashes[3], objects[3].len() as u64).unwrap());
    assert!(writer.contains(&hashes[4], objects[4].len() as u64).unwrap());
    // And stores it again.
    let packer = Packer::new(&writer, &lock);
    assert!(packer.write(&objects[3]).unwrap().is_new);
    packer.finish().unwrap();
    assert_eq!(lab.other().read(&hashes[3], 1 << 20).unwrap(), objects[3]);
}

#[test]
fn trees_and_contents_lie_in_different_blocks_also_after_a_rewrite() {
    let lab = Lab::new();
    let mut objects = Vec::new();
    for number in 0..1500_u32 {
        let name = number.to_le_bytes();
        objects.push([&b"nonotree"[..], &name, &[1; 500]].concat());
        objects.push([&name[..], &[2; 4000]].concat());
    }
    let hashes = lab.pack(&objects);
    let trees: HashSet<_> = hashes.iter().step_by(2).copied().collect();
    let check = || {
        assert!(lab.lost(&hashes, &objects).is_empty());
        let [pack] = &lab.other().all_packs().unwrap()[..] else { panic!("one pack") };
        let entries = pack.entries().unwrap();
        let mut mixed = 0;
        for block in pack.blocks() {
            let within = entries.iter().filter(|entry| {
                (block.plain_at..block.plain_end()).contains(&entry.span.record_at())
            });
            let kinds: HashSet<_> = within.map(|entry| trees.contains(&entry.hash)).collect();
            mixed += usize::from(kinds.len() != 1);
        }
        assert_eq!(mixed, 0);
        // 6 MiB of contents, and less than 1 MiB of trees.
        assert!(pack.blocks().len() > 40);
    };
    check();
    let lock = lab.store.lock_exclusive().unwrap();
    let pack = lab.store.all_packs().unwrap()[0].clone();
    let kept = pack.entries().unwrap();
    lab.store.rewrite_packs(&[Rewrite { pack, kept }], &lock).unwrap();
    check();
}

#[test]
fn a_pack_of_a_newer_version_is_refused_and_left_alone() {
    let lab = Lab::new();
    let objects = objects(50);
    let hashes = lab.pack(&objects);
    let path = lab.tamper(|bytes| {
        let trailer = bytes.len() - 64;
        (bytes[8], bytes[trailer + 20]) = (2, 2);
    });
    let store = lab.other();
    let error = store.read(&hashes[0], 100).unwrap_err();
    assert!(matches!(error, StoreError::NewerPack { .. }) && !error.is_damage());
    assert!(store.lock_shared().is_err());
    assert!(path.exists());
}

#[test]
fn what_stands_among_the_packs_without_being_one_is_in_nobodys_way() {
    let lab = Lab::new();
    let hashes = lab.pack(&objects(3));
    let packs = lab.store.path().join("packs");
    std::fs::write(packs.join("README"), "hello").unwrap();
    std::fs::create_dir(packs.join("0".repeat(32))).unwrap();
    std::os::unix::fs::symlink("/dev/zero", packs.join("1".repeat(32))).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        packs.join("2".repeat(32)),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let store = lab.other();
    assert_eq!(store.read(&hashes[1], 100).unwrap(), objects(3)[1]);
    assert_eq!(store.all_packs().unwrap().len(), 1);
}

proptest! {
    #[test]
    fn any_bytes_are_a_pack_or_a_clear_error(
        objects in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..40),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let lab = Lab::new();
        let hashes = lab.pack(&objects);
        lab.tamper(|bytes| {
            for (place, byte) in places {
                // The end is where the numbers are.
                let at = bytes.len() - 1 - place.index(bytes.len().min(300));
                bytes[at] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
        });
        let store = lab.other();
        for (hash, bytes) in hashes.iter().zip(&objects) {
            match store.read(hash, 1 << 20) {
                Ok(read) => prop_assert_eq!(&read, bytes),
                Err(error) => {
                    let is_newer = matches!(error, StoreError::NewerPack { .. });
                    prop_assert!(error.is_damage() || is_newer, "{}", error);
                }
            }
        }
        for pack in store.all_packs().unwrap_or_default() {
            let _ = pack.entries();
        }
        if let Ok(lock) = store.lock_exclusive() {
            store.salvage_packs(BadDisk::TakeTheRest, &NoProgress, &lock).unwrap();
        }
    }
}

#[test]
fn salvaging_can_be_stopped_and_begun_again() {
    let lab = Lab::new();
    let objects = objects(100);
    let hashes = lab.pack(&objects);
    let path = lab.tamper(|bytes| bytes.truncate(bytes.len() - 1));
    let store = lab.other();
    let lock = store.lock_exclusive().unwrap();
    let take = BadDisk::TakeTheRest;
    let stopped = store.salvage_packs(take, &StopsAt::new(0), &lock);
    assert!(matches!(stopped, Err(StoreError::Cancelled)));
    assert!(path.exists());
    let mut salvaged = store.salvage_packs(take, &NoProgress, &lock).unwrap();
    assert!(!path.exists() && salvaged.objects.len() == objects.len());

    // The same of what is in quarantine, which the pack went to.
    std::fs::remove_file(&lab.packs()[0]).unwrap();
    let store = lab.other();
    let stopped = store.take_from_quarantine(&mut salvaged, &StopsAt::new(0), &lock);
    assert!(matches!(stopped, Err(StoreError::Cancelled)));
    let mut salvaged = Salvaged::default();
    store.take_from_quarantine(&mut salvaged, &NoProgress, &lock).unwrap();
    assert_eq!(salvaged.objects.len(), objects.len());
    assert!(hashes.iter().all(|hash| store.read(hash, 1 << 20).is_ok()));
}

#[test]
fn there_are_never_many_small_packs() {
    let lab = Lab::new();
    let objects = objects(300);
    for (number, object) in objects.iter().enumerate() {
        lab.pack(std::slice::from_ref(object));
        assert!(lab.packs().len() <= number + 1);
    }
    assert!(lab.packs().len() <= 128, "{}", lab.packs().len());
    let reader = lab.other();
    for object in &objects {
        assert_eq!(reader.read(&ContentHash::of(object), 1 << 20).unwrap(), *object);
    }
}

#[test]
fn threads_that_look_again_at_the_same_time_all_find_what_is_new() {
    let lab = Lab::new();
    lab.pack(&objects(3));
    for round in 0..30_u32 {
        let reader = lab.other();
        reader.all_packs().unwrap();
        let new: Vec<_> = (0..4_u32).map(|n| format!("{round} {n}").into_bytes()).collect();
        lab.pack(&new);
        let barrier = std::sync::Barrier::new(new.len());
        std::thread::scope(|threads| {
            for object in &new {
                threads.spawn(|| {
                    barrier.wait();
                    assert_eq!(reader.read(&ContentHash::of(object), 100).unwrap(), *object);
                });
            }
        });
    }
}

#[test]
fn a_good_copy_in_another_pack_is_found_behind_a_damaged_one() {
    let lab = Lab::new();
    let objects = objects(20);
    let hashes = lab.pack(&objects);
    let first = lab.packs().remove(0);
    let good = std::fs::read(&first).unwrap();
    // The same pack once more, as two processes at once may leave it.
    let second = first.with_file_name("f".repeat(32));
    std::fs::write(&second, &good).unwrap();
    for damaged in [&first, &second] {
        let mut bytes = good.clone();
        let at = position(&bytes, &objects[5]);
        bytes[at] ^= 1;
        std::fs::remove_file(damaged).unwrap();
        std::fs::write(damaged, &bytes).unwrap();
        let store = lab.other();
        let lock = store.lock_exclusive().unwrap();
        if store.read(&hashes[5], 1 << 20).is_err() {
            assert!(!store.quarantine(&hashes[5], &lock).unwrap().is_empty());
        }
        assert_eq!(store.read(&hashes[5], 1 << 20).unwrap(), objects[5]);
        store.purge_packs(&lock).unwrap();
        assert_eq!(lab.other().read(&hashes[5], 1 << 20).unwrap(), objects[5]);
        for pack in lab.packs() {
            std::fs::remove_file(pack).unwrap();
        }
        for path in [&first, &second] {
            std::fs::write(path, &good).unwrap();
        }
    }
}

#[test]
fn of_several_copies_an_intact_one_is_read_wherever_it_is() {
    let lab = Lab::new();
    let objects = objects(20);
    let hashes = lab.pack(&objects);
    let (bytes, hash, size) = (&objects[5], &hashes[5], objects[5].len() as u64);
    let first = lab.packs().remove(0);
    let good = std::fs::read(&first).unwrap();
    let second = first.with_file_name("f".repeat(32));
    let own = lab.store.path().join(String::from_utf8(relative_name(hash).into()).unwrap());
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    let mut bad = good.clone();
    let at = position(&bad, bytes);
    bad[at] ^= 1;
    let target = |name: &str| std::fs::File::create_new(lab.temp.path().join(name)).unwrap();
    for (round, intact) in [&first, &second, &own].into_iter().enumerate() {
        for pack in [&first, &second] {
            let _ = std::fs::remove_file(pack);
            std::fs::write(pack, if pack == intact { &good } else { &bad }).unwrap();
        }
        let _ = std::fs::remove_file(&own);
        let mut own_bytes = bytes.clone();
        own_bytes[3] ^= u8::from(*intact != own);
        std::fs::write(&own, own_bytes).unwrap();
        let store = lab.other();
        assert_eq!(store.read(hash, size).unwrap(), *bytes, "{}", intact.display());
        let name = format!("out{round}");
        let mut buffer = Vec::new();
        let mut transfer = Transfer::unwatched(&mut buffer);
        store.export(hash, size, &target(&name), &mut transfer).unwrap();
        assert_eq!(std::fs::read(lab.temp.path().join(name)).unwrap(), *bytes);
        let transfer = &mut Transfer::unwatched(&mut buffer);
        assert_eq!(store.open_intact(hash, size, transfer).unwrap().path(), intact);
        // A full verification is not content with that.
        assert_eq!(store.read_first_found(hash, size).is_ok(), *intact == own);
        std::fs::remove_file(&own).unwrap();
        let packs = lab.other().all_packs().unwrap();
        let newest = packs[0].path() == intact;
        assert_eq!(lab.other().read_first_found(hash, size).is_ok(), newest);
    }
    for pack in [&first, &second] {
        std::fs::remove_file(pack).unwrap();
        std::fs::write(pack, &bad).unwrap();
    }
    let store = lab.other();
    assert!(matches!(store.read(hash, size), Err(StoreError::Corrupt { .. })));
}

#[test]
fn a_repair_of_a_pack_with_a_damaged_index_keeps_every_object() {
    let lab = Lab::new();
    let objects = objects(60);
    let hashes = lab.pack(&objects);
    let good = std::fs::read(&lab.packs()[0]).unwrap();
    let index_at = position(&good, &objects[59]) + objects[59].len();
    let rotten = position(&good, &objects[2]);
    for at in (index_at..good.len()).step_by(7) {
        let path = lab.tamper(|bytes| {
            bytes.clone_from(&good);
            bytes[at] ^= 0x10;
            // And an early object too.
            bytes[rotten] ^= 1;
        });
        let store = lab.other();
        let lock = store.lock_exclusive().unwrap();
        store.salvage_packs(BadDisk::TakeTheRest, &NoProgress, &lock).unwrap();
        assert_eq!(lab.lost(&hashes, &objects), [2], "byte {at}");
        std::fs::remove_file(lab.aside(&path)).unwrap();
        lab.reset(&path, &good);
    }
}

#[test]
fn what_is_no_pack_is_moved_aside_and_then_caches_are_trusted_again() {
    let lab = Lab::new();
    let hashes = lab.pack(&objects(3));
    let packs = lab.store.path().join("packs");
    std::fs::create_dir(packs.join("0".repeat(32))).unwrap();
    std::os::unix::fs::symlink("/dev/zero", packs.join("1".repeat(32))).unwrap();
    std::fs::write(packs.join("2".repeat(32)), "").unwrap();
    let store = lab.other();
    let before = store.renew_generation().unwrap();
    assert_eq!(store.generation().unwrap(), None);
    assert!(store.has_damaged_packs().unwrap());
    let lock = store.lock_exclusive().unwrap();
    store.salvage_packs(BadDisk::TakeTheRest, &NoProgress, &lock).unwrap();
    assert!(!store.has_damaged_packs().unwrap());
    assert!(store.generation().unwrap().is_some_and(|generation| generation != before));
    assert_eq!(store.read(&hashes[1], 100).unwrap(), objects(3)[1]);
    assert_eq!(std::fs::read_dir(store.quarantine_path()).unwrap().count(), 3);
}

#[test]
fn of_two_copies_the_intact_one_survives_a_merge() {
    let lab = Lab::new();
    let objects = objects(20);
    let hashes = lab.pack(&objects);
    let first = lab.packs().remove(0);
    let good = std::fs::read(&first).unwrap();
    let second = first.with_file_name("f".repeat(32));
    for damaged in [&first, &second] {
        for path in [&first, &second] {
            let mut bytes = good.clone();
            let at = position(&bytes, &objects[5]);
            bytes[at] ^= u8::from(path == damaged);
            let _ = std::fs::remove_file(path);
            std::fs::write(path, &bytes).unwrap();
        }
        let store = lab.other();
        let lock = store.lock_exclusive().unwrap();
        let packs = store.all_packs().unwrap();
        let all = |pack: &Arc<Pack>| Rewrite { pack: pack.clone(), kept: pack.entries().unwrap() };
        store.rewrite_packs(&packs.iter().map(all).collect::<Vec<_>>(), &lock).unwrap();
        assert_eq!(lab.packs().len(), 1);
        assert!(lab.lost(&hashes, &objects).is_empty());
        std::fs::remove_file(&lab.packs()[0]).unwrap();
    }
}

#[test]
fn damage_in_front_of_a_record_and_at_the_end_costs_one_object_at_the_most() {
    let lab = Lab::new();
    let objects = objects(60);
    let hashes = lab.pack(&objects);
    let good = std::fs::read(&lab.packs()[0]).unwrap();
    // Hash and length of the first object, and of one in the middle.
    for (victim, back) in [(0, 36), (0, 4), (0, 2), (30, 20), (30, 3), (30, 1)] {
        let path = lab.tamper(|bytes| {
            bytes.clone_from(&good);
            let at = position(bytes, &objects[victim]) - back;
            bytes[at] ^= 0x11;
            bytes.pop();
        });
        let store = lab.other();
        let lock = store.lock_exclusive().unwrap();
        store.salvage_packs(BadDisk::TakeTheRest, &NoProgress, &lock).unwrap();
        let lost = lab.lost(&hashes, &objects);
        assert!(lost.is_empty() || lost == [victim], "{lost:?}");
        lab.reset(&path, &good);
    }
}

/// Texts of which one block holds many, in three blocks or more.
fn texts() -> Vec<Vec<u8>> {
    (0..400_u32).map(|n| format!("line {n} of a text\n").repeat(60).into_bytes()).collect()
}

#[test]
fn what_is_packed_takes_a_part_of_its_length_and_comes_back() {
    let texts = texts();
    let plain: usize = texts.iter().map(Vec::len).sum();
    let mut sizes = Vec::new();
    for compression in [Compression::Off, Compression::Fast, Compression::Small] {
        let lab = Lab::new();
        lab.store.set_compression(compression);
        let hashes = lab.pack(&texts);
        assert!(lab.lost(&hashes, &texts).is_empty());
        let pack = &lab.other().all_packs().unwrap()[0];
        assert!(pack.blocks().len() >= 3);
        pack.check().unwrap();
        // As a verification reads it.
        let mut entries: Vec<_> = pack.entries_in_order().unwrap();
        entries.retain(|entry| entry.hash != hashes[7]);
        let wanted: Vec<_> = entries.into_iter().map(|entry| (entry, ())).collect();
        let mut read = 0;
        for run in pack.runs(&wanted) {
            let run = &wanted[run];
            let mut buffer = Vec::new();
            for (bytes, (entry, ())) in pack.read_run(run, &mut buffer).unwrap().zip(run) {
                assert_eq!(ContentHash::of(bytes), entry.hash);
                read += 1;
            }
        }
        assert_eq!(read, texts.len() - 1);
        sizes.push(std::fs::metadata(&lab.packs()[0]).unwrap().size() as usize);
    }
    assert!(sizes[0] > plain && sizes[1] < plain / 4 && sizes[2] < plain / 4, "{sizes:?}");
}

#[test]
fn a_wrong_byte_in_a_compressed_block_costs_no_object_of_another_one_and_is_found() {
    let lab = Lab::new();
    lab.store.set_compression(Compression::Fast);
    let texts = texts();
    let hashes = lab.pack(&texts);
    let good = std::fs::read(&lab.packs()[0]).unwrap();
    let pack = lab.other().all_packs().unwrap().remove(0);
    let blocks = pack.blocks().to_vec();
    let block_of = |number: usize| pack.block_of(pack.find(&hashes[number]).unwrap().unwrap());
    for (number, block) in blocks.iter().enumerate() {
        for at in (block.file_at..block.file_end()).step_by(97) {
            let path = lab.tamper(|bytes| {
                bytes.clone_from(&good);
                bytes[at as usize] ^= 0x10;
            });
            let lost = lab.lost(&hashes, &texts);
            assert!(lost.iter().all(|lost| block_of(*lost) == number), "byte {at}: {lost:?}");
            // It is a matter of objects, or else of the pack.
            assert_eq!(lab.other().has_damaged_packs().unwrap(), lost.is_empty(), "byte {at}");
            // Without the end of the index, they are found by the blocks.
            lab.tamper(|bytes| bytes.truncate(bytes.len() - 1));
            let store = lab.other();
            let lock = store.lock_exclusive().unwrap();
            let salvaged = store.salvage_packs(BadDisk::TakeTheRest, &NoProgress, &lock).unwrap();
            drop(lock);
            let still_lost = lab.lost(&hashes, &texts);
            assert_eq!(salvaged.objects.len(), texts.len() - still_lost.len());
            assert!(still_lost.iter().all(|lost| block_of(*lost) == number), "byte {at}");
            std::fs::remove_file(lab.aside(&path)).unwrap();
            lab.reset(&path, &good);
        }
    }
}

#[test]
fn without_its_index_a_compressed_pack_gives_back_every_object_of_its_whole_blocks() {
    let lab = Lab::new();
    lab.store.set_compression(Compression::Fast);
    let texts = texts();
    let hashes = lab.pack(&texts);
    let good = std::fs::read(&lab.packs()[0]).unwrap();
    let pack = lab.other().all_packs().unwrap().remove(0);
    let blocks = pack.blocks().to_vec();
    let block_of = |number: usize| pack.block_of(pack.find(&hashes[number]).unwrap().unwrap());
    for whole in 0..=blocks.len() {
        let end = blocks.get(whole).map_or(good.len() as u64 - 1, |next| next.file_at + 20);
        let path = lab.tamper(|bytes| bytes.truncate(end as usize));
        let store = lab.other();
        let lock = store.lock_exclusive().unwrap();
        store.salvage_packs(BadDisk::TakeTheRest, &NoProgress, &lock).unwrap();
        drop(lock);
        let expected = (0..texts.len()).filter(|number| block_of(*number) >= whole);
        assert_eq!(lab.lost(&hashes, &texts), expected.collect::<Vec<_>>(), "{whole}");
        std::fs::remove_file(lab.aside(&path)).unwrap();
        lab.reset(&path, &good);
    }
}

#[test]
fn a_block_that_claims_to_be_longer_than_any_is_refused() {
    let lab = Lab::new();
    lab.store.set_compression(Compression::Fast);
    let texts = texts();
    let hashes = lab.pack(&texts);
    lab.tamper(|bytes| {
        let trailer = bytes.len() - TRAILER_BYTES;
        // The records of the last block, in the table before the trailer.
        bytes[trailer - 40..trailer - 36].copy_from_slice(&u32::MAX.to_le_bytes());
    });
    let store = lab.other();
    assert!(matches!(store.read(&hashes[0], 1 << 20), Err(StoreError::Missing { .. })));
    let lock = store.lock_exclusive().unwrap();
    store.salvage_packs(BadDisk::TakeTheRest, &NoProgress, &lock).unwrap();
    drop(lock);
    assert!(lab.lost(&hashes, &texts).is_empty());
}

#[test]
fn a_copy_of_a_plain_pack_is_small() {
    let lab = Lab::new();
    let texts = texts();
    let hashes = lab.pack(&texts);
    let plain = std::fs::metadata(&lab.packs()[0]).unwrap().size();
    let pack = lab.store.all_packs().unwrap().remove(0);
    assert!(!pack.would_shrink(&lab.store), "it is not to be compressed");
    let store = lab.other();
    assert!(pack.would_shrink(&store));
    let lock = store.lock_exclusive().unwrap();
    let kept = pack.entries().unwrap();
    store.rewrite_packs(&[Rewrite { pack, kept }], &lock).unwrap();
    drop(lock);
    assert_eq!(lab.packs().len(), 1);
    assert!(std::fs::metadata(&lab.packs()[0]).unwrap().size() < plain / 4);
    assert!(!store.all_packs().unwrap()[0].would_shrink(&store));
    assert!(lab.lost(&hashes, &texts).is_empty());
}

#[test]
fn a_terabyte_of_nothing_and_a_socket_among_the_packs_keep_nobody() {
    let lab = Lab::new();
    let hashes = lab.pack(&objects(3));
    let packs = lab.store.path().join("packs");
    let sparse = std::fs::File::create(packs.join("3".repeat(32))).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(packs.join("4".repeat(32))).unwrap();
    let store = lab.other();
    let lock = store.lock_exclusive().unwrap();
    assert!(
        store.salvage_packs(BadDisk::TakeTheRest, &NoProgress, &lock).unwrap().objects.is_empty()
    );
    assert_eq!(lab.packs().len(), 1);
    assert_eq!(store.read(&hashes[2], 100).unwrap(), objects(3)[2]);
}

#[test]
fn a_pack_that_claims_more_objects_than_any_has_is_refused() {
    use std::os::unix::fs::FileExt;
    let lab = Lab::new();
    lab.pack(&objects(3));
    let (count, index_at) = (4_000_000_000_u64, 16 + 36 * 4_000_000_000_u64 + 1000);
    let path = lab.store.path().join("packs").join("5".repeat(32));
    let file = std::fs::File::create(&path).unwrap();
    let good =
        std::fs::read(lab.packs().into_iter().find(|other| *other != path).unwrap()).unwrap();
    file.write_all_at(&good[..16], 0).unwrap();
    file.write_all_at(&(count as u32).to_le_bytes(), index_at).unwrap();
    let trailer_at = index_at + 4 + 44 * count;
    let mut trailer = good[good.len() - 64..].to_vec();
    trailer[..8].copy_from_slice(&index_at.to_le_bytes());
    trailer[8..12].copy_from_slice(&(count as u32).to_le_bytes());
    trailer[12..16].fill(0);
    trailer[16..20].copy_from_slice(&0_u32.to_le_bytes());
    file.write_all_at(&trailer, trailer_at).unwrap();
    let store = lab.other();
    assert!(store.has_damaged_packs().unwrap());
    assert_eq!(store.all_packs().unwrap().len(), 1);
}

#[test]
fn a_fan_out_that_hides_objects_is_damage_though_the_checksum_is_right() {
    let lab = Lab::new();
    let all = objects(200);
    let hashes = lab.pack(&all);
    lab.tamper(|pack| {
        let trailer = pack.len() - TRAILER_BYTES;
        let index_at = u64::from_le_bytes(pack[trailer..trailer + 8].try_into().unwrap()) as usize;
        // The first place claims to be empty, so that its objects are looked for in the next one.
        assert_ne!(pack[index_at..index_at + 4], [0; 4]);
        pack[index_at..index_at + 4].fill(0);
        let checksum = ContentHash::of(&pack[index_at..pack.len() - 32]);
        let end = pack.len();
        pack[end - 32..].copy_from_slice(checksum.as_bytes());
    });
    let store = lab.other();
    assert!(store.has_damaged_packs().unwrap());
    assert!(hashes.iter().any(|hash| store.read(hash, 1 << 20).is_err()));
    let lock = store.lock_exclusive().unwrap();
    store.salvage_packs(BadDisk::TakeTheRest, &NoProgress, &lock).unwrap();
    drop(lock);
    assert_eq!(lab.lost(&hashes, &all), Vec::<usize>::new());
}

#[test]
fn a_long_snapshot_knows_what_has_a_file_of_its_own_before_and_since() {
    let lab = Lab::new();
    let own = objects(4000).split_off(3990);
    own.iter().for_each(|bytes| assert!(lab.store.write(bytes).unwrap().is_new));
    let lock = lab.store.lock_shared().unwrap();
    let packer = Packer::with_limits(&lab.store, &lock, Limits::default(), 1);
    let new = objects(3000);
    new.iter().for_each(|bytes| assert!(packer.write(bytes).unwrap().is_new));
    // By now the files were listed.
    assert!(lab.store.has_no_own(&ContentHash::of(&new[0])));
    assert!(own.iter().all(|bytes| !packer.write(bytes).unwrap().is_new));
    let large = vec![7; MAX_PACKED_BYTES as usize + 1];
    assert!(lab.store.write(&large).unwrap().is_new);
    assert!(!packer.write(&large).unwrap().is_new);
    assert!(!lab.store.has_no_own(&ContentHash::of(&large)));
    // An object that another process stores meanwhile may come twice, and is read all the same.
    let other = b"stored by another".to_vec();
    lab.other().write(&other).unwrap();
    packer.write(&other).unwrap();
    packer.finish().unwrap();
    assert!(!lab.store.has_no_own(&ContentHash::of(&new[0])), "nothing is known any more");
    for bytes in new.iter().chain(&own).chain([&large, &other]) {
        assert_eq!(lab.store.read(&ContentHash::of(bytes), 1 << 20).unwrap(), *bytes);
    }
}

#[test]
fn a_pack_that_is_asked_often_still_knows_all_it_has() {
    let lab = Lab::new();
    let all = objects(1000);
    let hashes = lab.pack(&all);
    let store = lab.other();
    for round in 0_u32..2000 {
        let stranger = ContentHash::of(&[b"stranger".as_slice(), &round.to_le_bytes()].concat());
        assert!(!store.contains(&stranger, 8).unwrap());
        let number = round as usize % hashes.len();
        assert!(store.contains(&hashes[number], all[number].len() as u64).unwrap());
    }
    // With an index that cannot be believed there is no filter, and what it still tells is found.
    lab.tamper(|pack| {
        let first = hashes.iter().min().unwrap().as_bytes();
        let index = pack.windows(first.len()).rposition(|window| window == first).unwrap();
        pack[index + 500 * ENTRY_BYTES + 32] ^= 1;
    });
    let store = lab.other();
    for round in 0..4 {
        let lost = hashes.iter().filter(|hash| store.read(hash, 1 << 20).is_err()).count();
        assert_eq!(lost, 1, "{round}");
    }
}

#[test]
fn who_opens_many_objects_finds_out_what_has_a_file_of_its_own_and_finds_what_comes_later() {
    let lab = Lab::new();
    let packed = objects(20);
    let hashes = lab.pack(&packed);
    let store = lab.other();
    let read_many = || {
        assert!(!store.has_no_own(&hashes[0]));
        for round in 0..=READING_LOOKS as usize {
            assert_eq!(store.read(&hashes[round % 20], 1 << 20).unwrap(), packed[round % 20]);
        }
        assert!(store.has_no_own(&hashes[0]));
    };
    read_many();
    let later = lab.other().write(b"stored by another").unwrap().hash;
    assert!(store.has_no_own(&later), "no listing said so");
    assert_eq!(store.read(&later, 1 << 20).unwrap(), b"stored by another");
    assert!(store.forget_own() && !store.forget_own());
    // It is found out anew.
    read_many();
    assert!(!store.has_no_own(&later));
}
