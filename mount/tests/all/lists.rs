//! Programs that look at nothing but names cost the kernel no inodes, and all others no more messages than before.

use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use nono_mount::{Counts, MountOptions};

use crate::fixture::{Mounted, eventually, keep_caches, many, mount_with};
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
