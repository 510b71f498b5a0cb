//! Sparse files: what counts of them is data, in time, in the budget and in the store.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::fixture::Fixture;

const TIB: u64 = 1 << 40;
const SIZE: u64 = 8 * TIB;
const FIRST: u64 = 3 * TIB + 4096;
const LAST: u64 = SIZE - 4096;

/// An image of 8 TiB with two blocks of data.
fn image(path: &Path) -> File {
    let file = File::options().write(true).create(true).truncate(false).open(path).unwrap();
    file.set_len(SIZE).unwrap();
    file.write_all_at(&[1; 4096], FIRST).unwrap();
    file.write_all_at(&[2; 4096], LAST).unwrap();
    file
}

fn block(path: &Path, at: u64) -> [u8; 4096] {
    let mut block = [9; 4096];
    File::open(path).unwrap().read_exact_at(&mut block, at).unwrap();
    block
}

fn assert_image(path: &Path) {
    let found = fs::metadata(path).unwrap();
    assert_eq!(found.len(), SIZE);
    assert!(found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
    for (at, byte) in [(0, 0), (FIRST, 1), (FIRST + 4096, 0), (FIRST - 4096, 0), (LAST, 2)] {
        assert_eq!(block(path, at), [byte; 4096], "at {at}");
    }
}

#[test]
fn an_image_of_terabytes_costs_its_data() {
    let fixture = Fixture::new();
    let path = fixture.project().join("image");
    image(&path);
    let begun = Instant::now();
    // Below every default limit.
    fixture.record("printf x | dd of=image bs=1 seek=4096 conv=notrunc 2>&1").success();
    assert_eq!(block(&path, 4096)[..2], *b"x\0");
    fixture.nono(&["undo", "--yes"]).success();
    assert_image(&path);
    fixture.nono(&["redo", "--yes"]).success();
    assert_eq!(block(&path, 4096)[..2], *b"x\0");
    fixture.nono(&["undo", "--yes"]).success();
    // Removed, and back.
    fixture.record("rm image").success();
    fixture.nono(&["undo", "--yes"]).success();
    assert_image(&path);
    // A copy, and the proof of every byte.
    let copy = fixture.path("copy");
    fixture.nono(&["restore", "latest", "image", "--to", copy.to_str().unwrap()]).success();
    assert_image(&copy.join("image"));
    fixture.nono(&["rollback", "verify"]).success();
    fixture.nono(&["status"]).success();
    fixture.nono(&["diff"]).success();
    fixture.nono(&["log", "image"]).success();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    // Neither the store nor the limits of the store count holes.
    let usage = fixture.nono(&["rollback", "usage", "--json"]).success().json();
    for field in ["disk_bytes", "total_bytes"] {
        assert!(usage[field].as_u64().unwrap() < 1 << 20, "{field}: {usage}");
    }
    let sizes = fixture.nono(&["list", "--json"]).success().json();
    assert!(sizes[1]["disk_size"].as_u64().unwrap() < 1 << 20, "{sizes}");
    let cleaned = fixture.nono(&["rollback", "cleanup", "--yes"]).success();
    assert!(!cleaned.says("removed"), "{}{}", cleaned.stdout, cleaned.stderr);
    assert_eq!(fixture.nono(&["list", "--json"]).success().json().as_array().unwrap().len(), 2);
}

#[test]
fn a_flipped_byte_of_a_stored_image_is_found() {
    let fixture = Fixture::new();
    image(&fixture.project().join("image"));
    fixture.nono(&["snapshot"]).success();
    let objects = fixture.store().join("objects");
    let own = fs::read_dir(&objects).unwrap().flat_map(|entry| {
        let entry = entry.unwrap();
        let is_fan_out = entry.file_name().len() == 2;
        let below = is_fan_out.then(|| fs::read_dir(entry.path()).unwrap());
        below.into_iter().flatten().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    });
    let stored = own.into_iter().find(|path| fs::metadata(path).unwrap().len() == SIZE).unwrap();
    let mut mode = fs::metadata(&stored).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o600);
    fs::set_permissions(&stored, mode).unwrap();
    for at in [5 * TIB, FIRST] {
        let file = File::options().read(true).write(true).open(&stored).unwrap();
        let mut before = [0];
        file.read_exact_at(&mut before, at).unwrap();
        file.write_all_at(&[before[0] ^ 4], at).unwrap();
        let found = fixture.nono(&["rollback", "verify"]);
        assert_eq!(found.code, 1, "{}{}", found.stdout, found.stderr);
        file.write_all_at(&before, at).unwrap();
        fixture.nono(&["rollback", "verify"]).success();
    }
}

#[test]
fn the_budget_counts_data_and_no_holes() {
    let fixture = Fixture::new();
    let hole = File::create(fixture.project().join("hole")).unwrap();
    hole.set_len(3 << 30).unwrap();
    hole.write_all_at(&[1; 4096], 1 << 30).unwrap();
    let run =
        |limit: &str| fixture.nono(&["run", "--rollback", "--max-bytes", limit, "--", "true"]);
    run("1000000").success();
    // Data counts, also in a file with holes.
    hole.write_all_at(&[1; 2_000_000], 0).unwrap();
    let over = run("1000000").fails(1, "too much");
    assert!(over.says("2 entries and 2007040 bytes"), "{}", over.stderr);
    run("3000000").success();
}
