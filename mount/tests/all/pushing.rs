//! Files that are handed to the kernel before it asks.
//!
//! How many are pushed depends on which thread is faster, and what the kernel keeps on its memory.
//! So the tests state what must hold: the bytes are right, and no more READs come than the push
//! leaves.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::PathBuf;
use std::time::Duration;

use nono_mount::{Counts, MountOptions};

use crate::contents::{errno, pattern};
use crate::fixture::{Mounted, drop_caches, eventually, keep_caches, many, mount, mount_with};
use crate::memory::{Memory, Spec, dir, file};

/// The reads since some moment.
struct Reads<'a> {
    mounted: &'a Mounted,
    before: Counts,
    refaults: u64,
}

impl<'a> Reads<'a> {
    fn begin(mounted: &'a Mounted) -> Self {
        Self { mounted, before: mounted.mount().counts(), refaults: refaults() }
    }

    fn since(&self) -> Counts {
        self.mounted.mount().counts() - self.before
    }

    /// A page that the kernel reclaimed meanwhile is one READ more.
    fn are_at_most(&self, most: u64) {
        let reclaimed = refaults() - self.refaults;
        assert!(self.since().read <= most + reclaimed, "{:?}, {reclaimed}", self.since());
    }
}

/// Pages that were read again because the kernel had reclaimed them, of all files of the machine.
/// Some kernels reclaim ahead of need (DAMON), a page that was pushed a moment ago among others.
fn refaults() -> u64 {
    let counters = fs::read_to_string("/proc/vmstat").unwrap();
    let refaults = counters.lines().find_map(|line| line.strip_prefix("workingset_refault_file "));
    refaults.unwrap().parse().unwrap()
}

/// A push waits so long for the answer that names its files that other programs on the processor do
/// not matter: each push begins once.
fn patient() -> MountOptions {
    MountOptions { push_patience: Duration::from_secs(30), ..MountOptions::default() }
}

/// Lists three directories and reads a file in each, which makes this thread a walker.
fn walk_three(mounted: &Mounted, name: &str) {
    for walked in 0..3 {
        let path = mounted.path(format!("0/d{walked}"));
        fs::read_dir(&path).unwrap().for_each(drop);
        assert!(!fs::read(path.join(name)).unwrap().is_empty());
    }
}

#[test]
fn without_a_predictor_nothing_is_pushed() {
    let Some(mounted) = mount(&Memory::with([("0", many(10, 10))])) else { return };
    assert_eq!(mounted.shell("cat $M/0/*/* | wc -l"), "100");
    let counts = mounted.mount().counts();
    assert_eq!((counts.pushed_files, counts.pushed_bytes), (0, 0));
    assert!(counts.read >= 100, "each file is asked for: {counts:?}");
}

#[test]
fn walking_a_directory_pushes_what_comes_next() {
    let _kept = keep_caches();
    let files = (0..200).map(|i| (format!("f{i:03}"), file(format!("contents of {i}"))));
    let memory = Memory::with([("0", dir(files))]);
    let Some(mounted) = mount_with(&memory, MountOptions::default()) else { return };
    let read_all = || {
        for i in 0..200 {
            let bytes = fs::read(mounted.path(format!("0/f{i:03}"))).unwrap();
            assert_eq!(bytes, format!("contents of {i}").into_bytes());
        }
    };
    fs::read_dir(mounted.path("0")).unwrap().for_each(drop);
    fs::read(mounted.path("0/f000")).unwrap();
    eventually("files are pushed", || mounted.mount().counts().pushed_files >= 16);
    let reads = Reads::begin(&mounted);
    fs::read(mounted.path("0/f001")).unwrap();
    reads.are_at_most(0);
    read_all();
}

#[test]
fn a_reader_in_the_order_of_inode_numbers_gets_the_next_files_in_that_order() {
    let _kept = keep_caches();
    let files = (0..999).map(|i| (format!("f{i:03}"), file(format!("contents of {i}"))));
    let memory = Memory::with([("0", dir(files))]);
    let Some(mounted) = mount_with(&memory, MountOptions::default()) else { return };
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
            mounted.mount().counts().pushed_files >= pushed.len() as u64
        });
    }
    let reads = Reads::begin(&mounted);
    for path in next.iter().take(100) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let number: usize = name[1..].parse().unwrap();
        assert_eq!(fs::read(path).unwrap(), format!("contents of {number}").into_bytes());
    }
    reads.are_at_most(0);
}

#[test]
fn what_is_pushed_as_a_list_ends_waits_until_the_kernel_knows_the_files() {
    let _kept = keep_caches();
    let contents = |dir: u64, file: u64| format!("contents of {dir}, {file}");
    // A thread that reads in three directories is a walker.
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
        let reads = Reads::begin(&mounted);
        fs::read_dir(&path).unwrap().for_each(drop);
        if walked >= 3 {
            eventually("all files are pushed", || reads.since().pushed_files >= count(walked));
        }
        for f in 0..count(walked) {
            let bytes = fs::read(path.join(format!("f{f}"))).unwrap();
            assert_eq!(bytes, contents(walked, f).into_bytes());
        }
        reads.are_at_most(if walked < 3 { 1 } else { 0 });
    }
}

#[test]
fn a_push_ends_when_it_has_as_many_bytes_as_it_may() {
    let _kept = keep_caches();
    let files = |count: usize| (0..count).map(|i| (format!("f{i}"), file(vec![i as u8; 1000])));
    let walked = (0..3).map(|number| (format!("d{number}"), dir(files(1))));
    let tree = dir(walked.chain([("d9".to_owned(), dir(files(5)))]));
    let options = MountOptions { push_batch_bytes: 2500, ..patient() };
    let Some(mounted) = mount_with(&Memory::with([("0", tree)]), options) else { return };
    walk_three(&mounted, "f0");
    let reads = Reads::begin(&mounted);
    fs::read_dir(mounted.path("0/d9")).unwrap().for_each(drop);
    let read = |i: usize| {
        assert!(fs::read(mounted.path(format!("0/d9/f{i}"))).unwrap() == [i as u8; 1000])
    };
    eventually("two files are pushed", || reads.since().pushed_files >= 2);
    assert!(reads.since().pushed_bytes <= 2500, "{:?}", reads.since());
    (0..3).for_each(read);
    eventually("two more are pushed", || reads.since().pushed_files >= 4);
    (3..5).for_each(read);
    // The third, which did not fit into the first push.
    reads.are_at_most(1);
}

#[test]
fn a_file_of_more_than_a_mebibyte_is_not_pushed_and_does_not_end_a_push() {
    let _kept = keep_caches();
    let walked = (0..3).map(|number| (format!("d{number}"), dir([("a", file("a"))])));
    let long = pattern((1 << 20) + 1);
    let last = [("a", file("small")), ("b", file(long.clone())), ("c", file("behind it"))];
    let tree = dir(walked.chain([("d9".to_owned(), dir(last))]));
    let Some(mounted) = mount_with(&Memory::with([("0", tree)]), patient()) else { return };
    walk_three(&mounted, "a");
    let reads = Reads::begin(&mounted);
    fs::read_dir(mounted.path("0/d9")).unwrap().for_each(drop);
    eventually("the short files are pushed", || reads.since().pushed_files >= 2);
    assert!(reads.since().pushed_bytes < 1 << 20, "{:?}", reads.since());
    assert_eq!(fs::read(mounted.path("0/d9/c")).unwrap(), b"behind it");
    reads.are_at_most(0);
    assert!(fs::read(mounted.path("0/d9/b")).unwrap() == long);
}

#[test]
fn walking_programs_read_everything_right_while_pages_come_and_go() {
    let tree = many(40, 50);
    let memory = Memory::with([("0", tree.clone()), ("1", tree)]);
    let Some(mounted) = mount_with(&memory, MountOptions::default()) else { return };
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
    // How many depends on which thread is faster, and on the kernel's memory.
    assert!(mounted.mount().counts().pushed_files > 0);
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
