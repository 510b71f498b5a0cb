//! File contents: right, or an error.

use std::fs;
use std::os::unix::fs::FileExt;

use nono_mount::MountOptions;

use crate::fixture::{mount, mount_with};
use crate::memory::{Memory, ROOT, dir, file};

pub(crate) fn errno(error: &std::io::Error) -> Option<rustix::io::Errno> {
    rustix::io::Errno::from_io_error(error)
}

/// Bytes that differ everywhere.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn files_of_all_sizes_read_back_whole_and_in_parts() {
    let sizes =
        [0, 1, 4095, 4096, 4097, 131_071, 131_072, 131_073, 1 << 20, (1 << 20) + 1, 9 << 20];
    let tree = dir(sizes.map(|size| (format!("{size}"), file(pattern(size)))));
    let Some(mounted) = mount(&Memory::with([("0", tree)])) else { return };
    for size in sizes {
        let path = mounted.path(format!("0/{size}"));
        let expected = pattern(size);
        assert!(fs::read(&path).unwrap() == expected, "{size}");
        let mut part = vec![0; 1000];
        let offset = size / 2;
        let count = fs::File::open(&path).unwrap().read_at(&mut part, offset as u64).unwrap();
        assert!(part[..count] == expected[offset..][..count], "{size}");
    }
}

#[test]
fn many_readers_of_one_large_file_verify_it_once() {
    let size = 8 << 20;
    let memory = Memory::with([("0", dir([("large", file(pattern(size)))]))]);
    let Some(mounted) = mount(&memory) else { return };
    let path = mounted.path("0/large");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(fs::read(&path).unwrap() == pattern(size)));
        }
    });
    assert_eq!(mounted.mount().counts().opened, 1);
}

#[test]
fn damaged_contents_give_an_error_and_never_a_byte() {
    let (small, large) = (b"small".to_vec(), pattern(3 << 20));
    let tree =
        dir([("a", file("fine")), ("large", file(large.clone())), ("small", file(small.clone()))]);
    let memory = Memory::with([("0", tree)]);
    memory.damage(&small);
    memory.damage(&large);
    // With pushing, which must not push what does not verify.
    let Some(mounted) = mount_with(&memory, MountOptions::default()) else { return };
    assert_eq!(fs::read(mounted.path("0/a")).unwrap(), b"fine");
    for name in ["0/small", "0/large"] {
        let error = fs::read(mounted.path(name)).unwrap_err();
        assert_eq!(errno(&error), Some(rustix::io::Errno::IO), "{name}");
    }
    assert_eq!(fs::metadata(mounted.path("0/large")).unwrap().len(), 3 << 20);
    memory.repair();
    assert_eq!(fs::read(mounted.path("0/small")).unwrap(), small);
    assert!(fs::read(mounted.path("0/large")).unwrap() == large);
}

#[test]
fn missing_contents_of_a_snapshot_that_is_there_are_an_error_of_the_disk() {
    let tree = dir([("f", file("lost")), ("sub", dir([("g", file("lost"))]))]);
    let memory = Memory::with([("0", tree)]);
    let options = MountOptions { changing_ttl: std::time::Duration::ZERO, ..Default::default() };
    let Some(mounted) = mount_with(&memory, options) else { return };
    memory.lose(b"lost");
    for name in ["0/f", "0/sub/g"] {
        let error = fs::read(mounted.path(name)).unwrap_err();
        assert_eq!(errno(&error), Some(rustix::io::Errno::IO), "{name}");
    }
    let held = fs::File::open(mounted.path("0/f")).unwrap();
    memory.remove(ROOT, "0");
    let error = std::io::Read::read(&mut &held, &mut [0; 8]).unwrap_err();
    assert_eq!(errno(&error), Some(rustix::io::Errno::NOENT));
}

#[test]
fn a_removed_snapshot_is_not_found_and_the_others_stay() {
    let tree = dir([("sub", dir([("f", file("x"))]))]);
    let memory = Memory::with([("0", tree.clone()), ("1", tree)]);
    let options = MountOptions { changing_ttl: std::time::Duration::ZERO, ..Default::default() };
    let Some(mounted) = mount_with(&memory, options) else { return };
    let held = fs::File::open(mounted.path("0")).unwrap();
    memory.remove(ROOT, "0");
    for gone in ["0", "0/sub", "0/sub/f"] {
        let error = fs::read_dir(mounted.path(gone)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{gone}");
    }
    let below =
        rustix::fs::openat(&held, "sub", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
    assert_eq!(below.unwrap_err(), rustix::io::Errno::NOENT);
    assert_eq!(fs::read(mounted.path("1/sub/f")).unwrap(), b"x");
}

#[test]
fn who_waits_for_a_file_whose_source_panics_gets_an_error() {
    let bytes = pattern(2 << 20);
    let memory = Memory::with([("0", dir([("large", file(bytes.clone()))]))]);
    let Some(mounted) = mount(&memory) else { return };
    let path = mounted.path("0/large");
    memory.panic_at(&bytes);
    for _ in 0..2 {
        let error = fs::read(&path).unwrap_err();
        assert_eq!(errno(&error), Some(rustix::io::Errno::IO));
    }
    memory.repair();
    assert!(fs::read(&path).unwrap() == bytes);
}
