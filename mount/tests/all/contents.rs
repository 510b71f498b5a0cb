//! File contents: right, or an error.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{DirEntryExt, FileExt};
use std::path::PathBuf;
use std::time::Duration;

use nono_mount::{Counts, MountOptions};

use crate::fixture::{Mounted, drop_caches, eventually, keep_caches, many, mount, mount_with};
use crate::memory::{Memory, ROOT, Spec, dir, file};

fn errno(error: &std::io::Error) -> Option<rustix::io::Errno> {
    rustix::io::Errno::from_io_error(error)
}

/// Bytes that differ everywhere.
fn pattern(length: usize) -> Vec<u8> {
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
    let Some(mounted) = mount_with(&memory, pushing()) else { return };
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
fn walking_processes_read_everything_right_while_pages_come_and_go() {
    let tree = many(40, 50);
    let memory = Memory::with([("0", tree.clone()), ("1", tree)]);
    let Some(mounted) = mount_with(&memory, pushing()) else { return };
    let sums = |snapshot: usize| {
        mounted.shell(&format!("cd $M/{snapshot}; grep -r . . | sort | sha256sum; tar c . | wc -c"))
    };
    let expected = sums(0);
    std::thread::scope(|scope| {
        for walker in 0..6 {
            let (sums, expected) = (&sums, &expected);
            scope.spawn(move || {
                for _ in 0..5 {
                    assert_eq!(sums(walker % 2), *expected);
                }
            });
        }
        for _ in 0..20 {
            // Pages only, then nodes too, where that is allowed.
            let _ = drop_caches("1");
            let _ = drop_caches("3");
            mounted.shell("cat $M/0/d1/* > one");
        }
    });
    // How many depends on which thread is faster, and on whether pages may be dropped here.
    assert!(mounted.mount().counts().pushed_files > 0);
}

#[test]
fn walking_a_directory_pushes_what_comes_next() {
    let _kept = keep_caches();
    let files = (0..200).map(|i| (format!("f{i:03}"), file(format!("contents of {i}"))));
    let memory = Memory::with([("0", dir(files))]);
    let Some(mounted) = mount_with(&memory, pushing()) else { return };
    let read_all = || {
        for i in 0..200 {
            let bytes = fs::read(mounted.path(format!("0/f{i:03}"))).unwrap();
            assert_eq!(bytes, format!("contents of {i}").into_bytes());
        }
    };
    fs::read_dir(mounted.path("0")).unwrap().for_each(drop);
    fs::read(mounted.path("0/f000")).unwrap();
    eventually("files are pushed", || mounted.mount().counts().pushed_files >= 16);
    let before = mounted.mount().counts();
    fs::read(mounted.path("0/f001")).unwrap();
    assert_eq!((mounted.mount().counts() - before).read, 0);
    read_all();
}

#[test]
fn who_reads_in_the_order_of_inode_numbers_gets_pushed_what_comes_next_in_that_order() {
    let _kept = keep_caches();
    let files = (0..999).map(|i| (format!("f{i:03}"), file(format!("contents of {i}"))));
    let memory = Memory::with([("0", dir(files))]);
    let Some(mounted) = mount_with(&memory, pushing()) else { return };
    let entries = fs::read_dir(mounted.path("0")).unwrap().map(Result::unwrap);
    let mut listed: Vec<_> = entries.map(|entry| (entry.path(), entry.ino())).collect();
    listed.sort();
    let mut numbered = listed.clone();
    numbered.sort_by_key(|(_, number)| *number);
    let paths = |files: &[(PathBuf, u64)], most: usize| -> BTreeSet<PathBuf> {
        files.iter().take(most).map(|(path, _)| path.clone()).collect()
    };
    // Four files that can only be read one after the other by their numbers.
    let shows = |files: &[(PathBuf, u64)]| files.is_sorted_by(|a, b| a.0 > b.0);
    let first = numbered.windows(4).position(shows).unwrap();
    let mut pushed = BTreeSet::new();
    let mut next = BTreeSet::new();
    for (at, entry) in numbered.iter().enumerate().skip(first).take(4) {
        let index = listed.iter().position(|other| other == entry).unwrap();
        fs::read(&entry.0).unwrap();
        // The fourth shows the order, and by then it is known that this reader goes on.
        next = match at - first {
            ..3 => paths(&listed[index + 1..], 16),
            _ => paths(&numbered[at + 1..], usize::MAX),
        };
        let read = paths(&numbered[first..], at - first + 1);
        pushed.extend(next.difference(&read).cloned());
        eventually("files are pushed", || {
            mounted.mount().counts().pushed_files == pushed.len() as u64
        });
    }
    let before = mounted.mount().counts();
    for path in next.iter().take(100) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let number: usize = name[1..].parse().unwrap();
        assert_eq!(fs::read(path).unwrap(), format!("contents of {number}").into_bytes());
    }
    assert_eq!((mounted.mount().counts() - before).read, 0);
}

#[test]
fn what_is_pushed_as_a_list_ends_waits_until_the_kernel_knows_the_files() {
    let _kept = keep_caches();
    let contents = |dir: u64, file: u64| format!("contents of {dir}, {file}");
    // Who reads in three directories is a walker.
    let count = |dir| if dir < 3 { 1 } else { 10 };
    let file = |dir, f| (format!("f{f}"), file(contents(dir, f)));
    // Some begin with what is not pushed.
    let first =
        |number| (number % 2 == 0).then(|| ("a".to_owned(), dir([] as [(String, Spec); 0])));
    let files = |dir| first(dir).into_iter().chain((0..count(dir)).map(move |f| file(dir, f)));
    let tree = dir((0..23).map(|number| (format!("d{number:02}"), dir(files(number)))));
    let memory = Memory::with([("0", tree)]);
    let Some(mounted) = mount_with(&memory, patient()) else { return };
    for walked in 0..23 {
        let path = mounted.path(format!("0/d{walked:02}"));
        let before = mounted.mount().counts();
        let since = || mounted.mount().counts() - before;
        fs::read_dir(&path).unwrap().for_each(drop);
        if walked >= 3 {
            eventually("all files are pushed", || since().pushed_files == count(walked));
        }
        for f in 0..count(walked) {
            let bytes = fs::read(path.join(format!("f{f}"))).unwrap();
            assert_eq!(bytes, contents(walked, f).into_bytes());
        }
        assert_eq!(since().read, if walked < 3 { 1 } else { 0 });
    }
}

#[test]
fn what_a_walker_will_come_to_is_read_before_it_does() {
    let _kept = keep_caches();
    let contents = |dir: u64| format!("contents of {dir}");
    let tree = dir((0..12).map(|d| (format!("d{d:02}"), dir([("f", file(contents(d)))]))));
    let Some(mounted) = mount_with(&Memory::with([("0", tree)]), patient()) else { return };
    let counts = || mounted.mount().counts();
    let walk = |number| walk_into(&mounted, number, contents(number).as_bytes());
    // Then it comes three times to where it was expected.
    (0..7).for_each(walk);
    eventually("all files are read", || counts().opened == 12);
    let before = counts();
    (7..12).for_each(walk);
    let since = counts() - before;
    assert_eq!((since.listed, since.opened, since.read), (0, 0, 0));
}

#[test]
fn files_of_a_long_directory_are_pushed_while_it_is_listed() {
    const MANY: u64 = 2000;
    let _kept = keep_caches();
    let walked = (0..7).map(|d| (format!("d{d:02}"), dir([("f", file("walked"))])));
    let many = (0..MANY).map(|number| (format!("f{number}"), file(format!("contents {number}"))));
    let tree = dir(walked.chain([("long".to_owned(), dir(many))]));
    let Some(mounted) = mount_with(&Memory::with([("0", tree)]), patient()) else { return };
    (0..7).for_each(|number| walk_into(&mounted, number, b"walked"));
    let before = mounted.mount().counts();
    let refaults_before = refaults();
    let since = || mounted.mount().counts() - before;
    let mut names = fs::read_dir(mounted.path("0/long")).unwrap();
    names.next().unwrap().unwrap();
    // One page of names, as Linux up to 6.15 asks for them.
    eventually("files are pushed", || since().pushed_files > 10);
    assert_eq!(since().readdirplus, 1);
    names.for_each(drop);
    eventually("all files are pushed", || since().pushed_files == MANY);
    for number in 0..MANY {
        let read = fs::read(mounted.path(format!("0/long/f{number}"))).unwrap();
        assert_eq!(read, format!("contents {number}").into_bytes());
    }
    assert!(since().read <= refaults() - refaults_before, "{:?}", since());
}

/// Pages that were read again because the kernel had reclaimed them, of all files of the machine. Some
/// kernels reclaim ahead of need (DAMON), a page that was pushed a moment ago among others.
fn refaults() -> u64 {
    let counters = fs::read_to_string("/proc/vmstat").unwrap();
    let refaults = counters.lines().find_map(|line| line.strip_prefix("workingset_refault_file "));
    refaults.unwrap().parse().unwrap()
}

#[test]
fn long_files_are_pushed_to_a_walker_that_reads_them_and_opened_once() {
    let _kept = keep_caches();
    let large = |seed: usize| pattern((1 << 20) + 1 + seed);
    let files = |dir: usize| (0..3).map(move |i| (format!("f{i}"), file(large(dir * 3 + i))));
    let tree = dir((0..6).map(|i| (format!("d{i}"), dir(files(i)))));
    let Some(mounted) = mount_with(&Memory::with([("0", tree)]), patient()) else {
        return;
    };
    for walked in 0..4 {
        let path = mounted.path(format!("0/d{walked}"));
        fs::read_dir(&path).unwrap().for_each(drop);
        for i in 0..3 {
            assert!(fs::read(path.join(format!("f{i}"))).unwrap() == large(walked * 3 + i));
        }
    }
    let before = mounted.mount().counts();
    assert_eq!(before.opened, 12);
    fs::read_dir(mounted.path("0/d5")).unwrap().for_each(drop);
    let since = || mounted.mount().counts() - before;
    eventually("long files are pushed", || since().pushed_files >= 3);
    for i in 0..3 {
        assert!(fs::read(mounted.path(format!("0/d5/f{i}"))).unwrap() == large(15 + i));
    }
    assert_eq!((since().opened, since().pushed_files, since().read), (3, 3, 0));
}

#[test]
fn the_push_of_a_long_file_goes_on_ahead_of_a_reader_that_comes_to_it() {
    const PIECE: usize = 1 << 20;
    let _kept = keep_caches();
    let long = pattern(7 * PIECE + 5);
    let walked = |number: usize| [("a", file(pattern((2 << 20) + number)))];
    let walked = (0..3).map(|number| (format!("d{number}"), dir(walked(number))));
    let others = ["p", "q", "r", "z"].map(|name| (name, file(name)));
    let last = dir([("long", file(long.clone()))].into_iter().chain(others));
    let tree = dir(walked.chain([("d9".to_owned(), last)]));
    let memory = Memory::with([("0", tree)]);
    memory.hold_push(&long, PIECE as u64);
    let Some(mounted) = mount_with(&memory, patient()) else { return };
    walk_three(&mounted, &["a"]);
    let before = mounted.mount().counts();
    let since = || mounted.mount().counts() - before;
    fs::read_dir(mounted.path("0/d9")).unwrap().for_each(drop);
    eventually("the first piece is pushed", || since().pushed_bytes == PIECE as u64);
    // The second one is on its way now.
    let path = mounted.path("0/d9/long");
    let mut bytes = [0; 100];
    let opened = fs::File::open(&path).unwrap();
    // The kernel reads no more ahead, whatever it is told of this file system.
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::Random).unwrap();
    opened.read_exact_at(&mut bytes, PIECE as u64).unwrap();
    assert_eq!(bytes, long[PIECE..PIECE + 100]);
    eventually("what comes after it is pushed", || since().pushed_files == 4);
    // All but the second one, as far as a reader that is not farther should have it.
    let pushed = since().pushed_bytes as usize - 4;
    assert_eq!(pushed, 3 * PIECE);
    let asked = since().read;
    assert!(fs::read(&path).unwrap() == long);
    assert!(since().read > asked);
    assert_eq!(since().opened, 5);
}

#[test]
fn a_push_ends_when_it_has_as_many_bytes_as_it_may() {
    let _kept = keep_caches();
    let files = |count: usize| (0..count).map(|i| (format!("f{i}"), file(vec![i as u8; 1000])));
    let walked = (0..3).map(|number| (format!("d{number}"), dir(files(1))));
    let tree = dir(walked.chain([("d9".to_owned(), dir(files(5)))]));
    let options = MountOptions { push_batch_bytes: 2500, ..patient() };
    let Some(mounted) = mount_with(&Memory::with([("0", tree)]), options) else { return };
    walk_three(&mounted, &["f0"]);
    let before = mounted.mount().counts();
    let since = || mounted.mount().counts() - before;
    fs::read_dir(mounted.path("0/d9")).unwrap().for_each(drop);
    let read = |i: usize| {
        assert!(fs::read(mounted.path(format!("0/d9/f{i}"))).unwrap() == [i as u8; 1000])
    };
    eventually("two files are pushed", || since().pushed_files == 2);
    (0..3).for_each(read);
    eventually("two more are pushed", || since().pushed_files == 4);
    (3..5).for_each(read);
    assert_eq!((since().read, since().pushed_bytes), (1, 4000));
}

#[test]
fn who_reads_one_file_has_no_large_ones_opened() {
    let _kept = keep_caches();
    let entries = [("a", file("a")), ("b", file(pattern(2 << 20))), ("c", file("c"))];
    let memory = Memory::with([("0", dir(entries))]);
    let Some(mounted) = mount_with(&memory, pushing()) else { return };
    fs::read_dir(mounted.path("0")).unwrap().for_each(drop);
    assert_eq!(fs::read(mounted.path("0/a")).unwrap(), b"a");
    eventually("a file is pushed", || mounted.mount().counts().pushed_files >= 1);
    assert_eq!(mounted.mount().counts().opened, 2);
}

/// What is pushed is what the kernel knows, so the lists of these small trees name all files.
fn pushing() -> MountOptions {
    MountOptions { lean_lists: false, ..MountOptions::default() }
}

/// Pushes wait so long for the answer that names their files that it does not matter who else wants the
/// processor: each begins once.
fn patient() -> MountOptions {
    let long = Duration::from_secs(30);
    MountOptions { push_patience: long, read_ahead_kept: long, ..pushing() }
}

/// Lists a directory and reads the one file in it, which is pushed from the fourth on: who came to three is a walker.
fn walk_into(mounted: &Mounted, number: u64, contents: &[u8]) {
    let path = mounted.path(format!("0/d{number:02}"));
    fs::read_dir(&path).unwrap().for_each(drop);
    let pushed = (number + 1).saturating_sub(3);
    eventually("it is pushed", || mounted.mount().counts().pushed_files == pushed);
    assert_eq!(fs::read(path.join("f")).unwrap(), contents);
}

/// Lists three directories and reads some files in each: who did that is a walker.
fn walk_three(mounted: &Mounted, names: &[&str]) {
    for walked in 0..3 {
        let path = mounted.path(format!("0/d{walked}"));
        fs::read_dir(&path).unwrap().for_each(drop);
        for name in names {
            assert!(!fs::read(path.join(name)).unwrap().is_empty());
        }
    }
}

/// Walks three directories, each of a short and a long file, of which `read` are read, and then lists one with `last`
/// in it. Returns what that cost when as many files as that were pushed, and opened: a file that was read before may
/// still be pushed.
fn walk_and_list(read: &[&str], last: Spec, pushed: u64, opened: u64) -> Option<Counts> {
    let _kept = keep_caches();
    let walked = |number: usize| {
        [("a", file(format!("a{number}"))), ("b", file(pattern((2 << 20) + number)))]
    };
    let walked = (0..3).map(|number| (format!("d{number}"), dir(walked(number))));
    let tree = dir(walked.chain([("d9".to_owned(), last)]));
    let mounted = mount_with(&Memory::with([("0", tree)]), patient())?;
    walk_three(&mounted, read);
    let before = mounted.mount().counts();
    fs::read_dir(mounted.path("0/d9")).unwrap().for_each(drop);
    let since = || mounted.mount().counts() - before;
    let is_done = || since().pushed_files >= pushed && since().opened >= opened;
    eventually("files are pushed", is_done);
    Some(since())
}

#[test]
fn a_very_large_file_does_not_end_a_push() {
    let (huge, long) = (vec![7; 65 << 20], pattern(4 << 20));
    let files = [("a", file("small")), ("b", file(huge)), ("c", file(long)), ("d", file("last"))];
    let Some(counts) = walk_and_list(&["a", "b"], dir(files), 3, 3) else { return };
    assert_eq!(counts.opened, 3);
}

#[test]
fn for_a_walker_that_leaves_long_files_alone_none_is_pushed() {
    let last =
        || dir([("a", file("small")), ("b", file(pattern(3 << 20))), ("c", file("behind it"))]);
    let Some(counts) = walk_and_list(&["a"], last(), 2, 2) else { return };
    assert_eq!(counts.opened, 2);
    let Some(counts) = walk_and_list(&["a", "b"], last(), 3, 3) else { return };
    assert_eq!(counts.opened, 3);
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

#[test]
fn a_source_that_panics_ends_neither_pushes_nor_answers() {
    const PANICS: std::ops::Range<usize> = 5..8;
    let _kept = keep_caches();
    let memory = Memory::with([("0", many(20, 3))]);
    PANICS.for_each(|d| memory.panic_at(format!("contents {d} 1\n").as_bytes()));
    let Some(mounted) = mount_with(&memory, patient()) else { return };
    for d in 0..19 {
        let path = |f| mounted.path(format!("0/d{d}/f{f}"));
        fs::read_dir(mounted.path(format!("0/d{d}"))).unwrap().for_each(drop);
        if d == PANICS.start {
            eventually("it panics as it pushes", || memory.has_panicked_in("nono-push"));
        }
        assert!(fs::read(path(0)).is_ok());
        if PANICS.contains(&d) {
            for _ in 0..10 {
                assert_eq!(errno(&fs::read(path(1)).unwrap_err()), Some(rustix::io::Errno::IO));
            }
        }
        assert_eq!(fs::read(path(2)).unwrap(), format!("contents {d} 2\n").into_bytes());
    }
    let before = mounted.mount().counts().pushed_files;
    fs::read_dir(mounted.path("0/d19")).unwrap().for_each(drop);
    eventually("files are pushed", || mounted.mount().counts().pushed_files >= before + 3);
}

#[test]
fn long_files_beyond_what_may_be_pushed_at_a_time_are_pushed_when_a_reader_comes_to_the_first() {
    let _kept = keep_caches();
    const LONG: usize = 4 << 20;
    const FILES: usize = 20;
    let long = |seed: usize| pattern(LONG + seed);
    let walked =
        (0..3).map(|number| (format!("d{number}"), dir([("a", file(long(100 + number)))])));
    let last = (0..FILES).map(|number| (format!("f{number:02}"), file(long(number))));
    let tree = dir(walked.chain([("d9".to_owned(), dir(last))]));
    let Some(mounted) = mount_with(&Memory::with([("0", tree)]), patient()) else { return };
    walk_three(&mounted, &["a"]);
    let before = mounted.mount().counts();
    let refaults_before = refaults();
    let since = || mounted.mount().counts() - before;
    fs::read_dir(mounted.path("0/d9")).unwrap().for_each(drop);
    // 64 MiB, but for what does not fit.
    eventually("as much is pushed as may be", || since().pushed_files >= 15);
    let read = |number: usize| {
        let path = mounted.path(format!("0/d9/f{number:02}"));
        assert!(fs::read(path).unwrap() == long(number));
    };
    (0..15).for_each(read);
    assert_eq!(since().opened, 15);
    // To ask for all of one takes more.
    let reclaimed = refaults() - refaults_before;
    assert!(since().read < 15 + reclaimed, "{:?}, {reclaimed}", since());
    read(15);
    eventually("the rest is pushed", || since().pushed_files >= 19);
    (16..FILES).for_each(read);
    assert_eq!(since().opened as usize, FILES);
}

#[test]
fn the_rest_of_a_very_large_file_is_pushed_to_who_reads_it_in_order() {
    const STEP: u64 = 128 * 1024;
    let _kept = keep_caches();
    let walked = (0..3).map(|number| (format!("d{number}"), dir([("a", file(pattern(2 << 20)))])));
    let huge = pattern(65 << 20);
    let tree = dir(walked.chain([("d9".to_owned(), dir([("huge", file(huge.clone()))]))]));
    let Some(mounted) = mount_with(&Memory::with([("0", tree)]), patient()) else { return };
    walk_three(&mounted, &["a"]);
    let path = mounted.path("0/d9");
    fs::read_dir(&path).unwrap().for_each(drop);
    let opened = fs::File::open(path.join("huge")).unwrap();
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::Random).unwrap();
    let before = mounted.mount().counts();
    let mut part = vec![0; STEP as usize];
    let mut read = |offset: u64| {
        opened.read_exact_at(&mut part, offset).unwrap();
        assert!(part == huge[offset as usize..][..STEP as usize], "{offset}");
        (mounted.mount().counts() - before).pushed_bytes
    };
    // Who looks at its beginning has not shown anything.
    for offset in (0..1 << 20).step_by(STEP as usize) {
        assert_eq!(read(offset), 0);
    }
    let mut offsets = (1 << 20..65 << 20).step_by(STEP as usize);
    eventually("it is pushed on", || read(offsets.next().unwrap()) > 0);
    assert!(offsets.map(read).max() > Some(0));
}
