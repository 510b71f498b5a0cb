//! Programs that look at nothing but names cost the kernel no inodes, and all others no more messages than before.

use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use nono_mount::{Counts, MountOptions};

use crate::fixture::{Mounted, drop_caches, eventually, keep_caches, many, mount_with};
use crate::memory::{Memory, dir, file};

/// As many files as are in each directory of [`tree`].
const FILES: usize = 10;
const DIRECTORIES: usize = 60;
/// Looks that a guess may cost (`Credit::FIRST`).
const GUESSES: u64 = 32;

fn tree() -> Memory {
    Memory::with([("0", many(DIRECTORIES, FILES))])
}

fn mount(memory: &Memory) -> Option<Mounted> {
    let changing_ttl = std::time::Duration::from_secs(3600);
    let options = MountOptions { changing_ttl, push_siblings: false, ..MountOptions::default() };
    mount_with(memory, options)
}

/// Lists a directory and all below it, and does `with` each file as soon as it is known, as `find` does.
fn walk(directory: &Path, with: &mut impl FnMut(fs::DirEntry)) {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let (directories, files): (Vec<_>, Vec<_>) =
        entries.partition(|entry| entry.file_type().unwrap().is_dir());
    files.into_iter().for_each(&mut *with);
    directories.iter().for_each(|entry| walk(&entry.path(), with));
}

fn since(mounted: &Mounted, before: Counts) -> Counts {
    mounted.mount().counts() - before
}

#[test]
fn who_only_lists_has_no_inodes_made_and_sees_the_numbers_that_files_have() {
    let _kept = keep_caches();
    let Some(mounted) = mount(&tree()) else { return };
    let mut files: Vec<(PathBuf, u64)> = Vec::new();
    walk(&mounted.path("0"), &mut |file| {
        assert!(file.file_type().unwrap().is_file());
        files.push((file.path(), file.ino()));
    });
    assert_eq!(files.len(), DIRECTORIES * FILES);
    let counts = mounted.mount().counts();
    assert!(counts.lookup <= 2, "the snapshot, and what is asked of it: {counts:?}");
    let nodes = mounted.mount().live_nodes();
    assert!(nodes <= DIRECTORIES + 3, "{nodes} nodes for {DIRECTORIES} directories");
    for (path, number) in files {
        assert_eq!(fs::metadata(&path).unwrap().ino(), number, "{path:?}");
        let is = fs::read_to_string(&path).unwrap();
        assert!(is.starts_with("contents "), "{is}");
    }
}

#[test]
fn who_looks_at_what_it_lists_asks_for_few_names() {
    let _kept = keep_caches();
    let Some(mounted) = mount(&tree()) else { return };
    let before = mounted.mount().counts();
    walk(&mounted.path("0"), &mut |file| assert!(file.metadata().unwrap().len() > 0));
    let counts = since(&mounted, before);
    assert!(counts.lookup <= GUESSES + 2, "{counts:?}");
}

/// As `grep -r` and `du` do: who goes down before it looks has not left what is above.
#[test]
fn who_looks_when_it_comes_back_asks_for_few_names() {
    let _kept = keep_caches();
    let deep = (0..20).fold(dir([("f", file("f"))]), |below, _| {
        let files = (0..FILES).map(|f| (format!("f{f}"), file("f")));
        dir(files.chain([("d".to_owned(), below)]))
    });
    let Some(mounted) = mount(&Memory::with([("0", deep)])) else { return };
    let mut files = Vec::new();
    walk(&mounted.path("0"), &mut |file| files.push(file));
    let before = mounted.mount().counts();
    files.iter().rev().for_each(|file| assert!(file.metadata().unwrap().is_file()));
    let counts = since(&mounted, before);
    assert!(counts.lookup <= GUESSES, "{counts:?}");
}

#[test]
fn what_one_program_listed_costs_the_next_no_name_each() {
    let _kept = keep_caches();
    let Some(mounted) = mount(&tree()) else { return };
    let snapshot = mounted.path("0");
    walk(&snapshot, &mut |_| {});
    let before = mounted.mount().counts();
    let next = || {
        let mut files = 0;
        walk(&snapshot, &mut |file| {
            assert!(file.metadata().unwrap().len() > 0);
            files += 1;
            if files == FILES {
                // Those of the first directory were looked at, of which nobody had more than names.
                let recalled = || since(&mounted, before).recalled;
                eventually("lists are taken back", || recalled() + 2 >= DIRECTORIES as u64);
            }
        });
    };
    // Another program: another thread.
    std::thread::scope(|scope| scope.spawn(next).join().unwrap());
    let counts = since(&mounted, before);
    assert!(counts.lookup <= FILES as u64 + GUESSES, "{counts:?}");
    // Of each directory the list, its end, and what the kernel forgot with the list.
    let most = 3 * DIRECTORIES as u64 + counts.lookup + 4;
    assert!(counts.requests() <= most, "{counts:?}");
}

/// However the files are looked at afterwards, and whether or not the lists are taken back meanwhile.
#[test]
fn lists_of_names_stay_at_hand_for_those_who_look() {
    let _kept = keep_caches();
    let options = MountOptions {
        changing_ttl: std::time::Duration::from_secs(3600),
        cached_entries: 20,
        push_siblings: false,
        ..MountOptions::default()
    };
    let Some(mounted) = mount_with(&tree(), options) else { return };
    walk(&mounted.path("0"), &mut |_| {});
    let before = mounted.mount().counts();
    let look = || {
        for file in 0..FILES {
            for directory in 0..DIRECTORIES {
                let path = mounted.path(format!("0/d{directory}/f{file}"));
                assert!(fs::metadata(path).unwrap().is_file());
            }
        }
    };
    std::thread::scope(|scope| scope.spawn(look).join().unwrap());
    let counts = since(&mounted, before);
    assert!(counts.lookup >= (DIRECTORIES * (FILES - 3)) as u64, "{counts:?}");
    // Those of the first credit had nodes.
    assert!(counts.listed <= 8, "{counts:?}");
}

#[test]
fn short_lists_are_not_taken_back() {
    let _kept = keep_caches();
    let Some(mounted) = mount(&Memory::with([("0", many(DIRECTORIES, 3))])) else { return };
    let snapshot = mounted.path("0");
    walk(&snapshot, &mut |_| {});
    let before = mounted.mount().counts();
    let look = || walk(&snapshot, &mut |file| assert!(file.metadata().unwrap().len() > 0));
    std::thread::scope(|scope| scope.spawn(look).join().unwrap());
    let counts = since(&mounted, before);
    assert_eq!((counts.recalled, counts.readdirplus), (0, 0));
    assert_eq!(counts.lookup, DIRECTORIES as u64 * 3);
}

/// The kernel never completes a list of which it has to forget a part, and asks for all of it each time.
#[test]
fn a_list_that_is_being_read_is_not_taken_back() {
    let _kept = keep_caches();
    let long = dir((0..5000).map(|f| (format!("f{f:04}"), file("f"))));
    let entries = [("a", many(DIRECTORIES, 20)), ("b", long)];
    let Some(mounted) = mount(&Memory::with([("0", dir(entries))])) else { return };
    walk(&mounted.path("0/a"), &mut |_| {});
    let mut list = fs::read_dir(mounted.path("0/b")).unwrap();
    (0..1000).for_each(|_| assert!(list.next().unwrap().is_ok()));
    let before = mounted.mount().counts();
    let look = || {
        for f in 0..20 {
            assert!(fs::metadata(mounted.path(format!("0/a/d3/f{f}"))).unwrap().is_file());
        }
    };
    std::thread::scope(|scope| scope.spawn(look).join().unwrap());
    eventually("lists are taken back", || since(&mounted, before).recalled >= 1);
    assert_eq!(list.count(), 4000);
    let all = || fs::read_dir(mounted.path("0/b")).unwrap().count();
    assert_eq!(all(), 5000);
    let before = mounted.mount().counts();
    assert_eq!(all(), 5000);
    assert_eq!(since(&mounted, before).readdirplus, 0);
}

#[test]
fn many_threads_that_look_ask_for_few_names_together() {
    let _kept = keep_caches();
    const THREADS: usize = 64;
    let Some(mounted) = mount(&Memory::with([("0", many(THREADS * 4, FILES))])) else { return };
    fs::read_dir(mounted.path("0")).unwrap().for_each(drop);
    let before = mounted.mount().counts();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mounted = &mounted;
            scope.spawn(move || {
                for directory in 0..4 {
                    let path = mounted.path(format!("0/d{}", thread * 4 + directory));
                    walk(&path, &mut |file| assert!(file.metadata().unwrap().len() > 0));
                }
            });
        }
    });
    let counts = since(&mounted, before);
    // Of some seconds, should they last so long.
    assert!(counts.lookup <= 8 * GUESSES + 20 * GUESSES, "{counts:?}");
}

/// What is pushed has to be known to the kernel.
#[test]
fn lists_of_names_do_not_keep_files_from_being_pushed_later() {
    let _kept = keep_caches();
    let options = MountOptions {
        changing_ttl: std::time::Duration::from_secs(3600),
        push_patience: std::time::Duration::from_secs(30),
        ..MountOptions::default()
    };
    let Some(mounted) = mount_with(&tree(), options) else { return };
    let snapshot = mounted.path("0");
    walk(&snapshot, &mut |_| {});
    let one_of_each = || {
        for directory in 0..DIRECTORIES {
            fs::read(snapshot.join(format!("d{directory}/f0"))).unwrap();
        }
    };
    std::thread::scope(|scope| scope.spawn(one_of_each).join().unwrap());
    let recalled = || mounted.mount().counts().recalled;
    eventually("lists are taken back", || recalled() + 2 >= DIRECTORIES as u64);
    let all = || walk(&snapshot, &mut |file| drop(fs::read(file.path()).unwrap()));
    std::thread::scope(|scope| scope.spawn(all).join().unwrap());
    eventually("files are pushed", || mounted.mount().counts().pushed_files > 0);
}

#[test]
fn a_name_that_an_unchanging_directory_does_not_have_is_asked_for_once() {
    let _kept = keep_caches();
    let Some(mounted) = mount(&tree()) else { return };
    let missing = |path: &str| {
        let error = fs::metadata(mounted.path(path)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    };
    missing("0/d3/.gitignore");
    let before = mounted.mount().counts();
    (0..50).for_each(|_| missing("0/d3/.gitignore"));
    assert_eq!(since(&mounted, before).lookup, 0);
    // Sessions come and go.
    missing("1");
    let before = mounted.mount().counts();
    missing("1");
    assert_eq!(since(&mounted, before).lookup, 1);
}

#[test]
fn what_did_not_fit_into_an_answer_is_not_counted_as_named() {
    let options =
        MountOptions { lean_lists: false, push_siblings: false, ..MountOptions::default() };
    let long = dir((0..5000).map(|f| (format!("f{f:04}"), file("f"))));
    let Some(mounted) = mount_with(&Memory::with([("0", long)]), options) else { return };
    assert_eq!(fs::read_dir(mounted.path("0")).unwrap().count(), 5000);
    if let Err(error) = drop_caches("2") {
        eprintln!("TEST DID NOT RUN TO ITS END: the kernel may not be told to forget: {error}");
        return;
    }
    eventually("all is forgotten", || mounted.mount().live_nodes() == 1);
}

#[test]
fn a_long_list_is_of_one_kind_from_beginning_to_end() {
    let _kept = keep_caches();
    let long = dir((0..5000).map(|f| (format!("f{f:04}"), file("f"))));
    let entries = [("a", many(DIRECTORIES, 20)), ("b", long)];
    let Some(mounted) = mount(&Memory::with([("0", dir(entries))])) else { return };
    let mut files = 0;
    walk(&mounted.path("0"), &mut |_| files += 1);
    assert_eq!(files, 5000 + DIRECTORIES * 20);
    let nodes = mounted.mount().live_nodes();
    assert!(nodes <= DIRECTORIES + 5, "{nodes}");
}

#[test]
fn lists_can_have_nodes_for_everybody() {
    let _kept = keep_caches();
    let options =
        MountOptions { lean_lists: false, push_siblings: false, ..MountOptions::default() };
    let Some(mounted) = mount_with(&tree(), options) else { return };
    walk(&mounted.path("0"), &mut |_| {});
    assert!(mounted.mount().live_nodes() > DIRECTORIES * FILES);
}

#[test]
fn names_in_several_long_directories_are_looked_up_without_listing_them_again() {
    let _kept = keep_caches();
    const DIRECTORIES: usize = 3;
    const FILES: usize = 60;
    let memory = Memory::with([("0", many(DIRECTORIES, FILES))]);
    let changing_ttl = std::time::Duration::from_secs(3600);
    let options = MountOptions { changing_ttl, cached_entries: FILES, ..MountOptions::default() };
    let Some(mounted) = mount_with(&memory, options) else { return };
    for file in 0..FILES {
        for directory in 0..DIRECTORIES {
            fs::metadata(mounted.path(format!("0/d{directory}/f{file}"))).unwrap();
        }
    }
    let counts = mounted.mount().counts();
    assert!(counts.lookup as usize >= DIRECTORIES * FILES, "{counts:?}");
    assert!(counts.listed as usize <= DIRECTORIES + 2, "{counts:?}");
}
