//! Message budgets: what the kernel was told once, it does not ask again.
//!
//! The number of messages is the same on every machine, so a budget is what the work needs and
//! [`SPARE`] for a kernel that begins in another way, and not a message more.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use nono_mount::{Counts, MountOptions};

use crate::fixture::{Mounted, keep_caches, many, mount_with};
use crate::memory::{Memory, Spec, What, dir, file, symlink};

/// Messages that another kernel may send at the beginning of a work: a STATFS, a GETATTR of `.`.
const SPARE: u64 = 2;

/// Mounts so that what may change is not asked for again while a test runs, however slow the
/// machine, and nothing is pushed, which depends on which thread is faster.
fn mount(memory: &Memory) -> Option<Mounted> {
    let changing_ttl = Duration::from_secs(3600);
    let options = MountOptions { changing_ttl, predictor: false, ..MountOptions::default() };
    mount_with(memory, options)
}

/// The messages of `work`. The machine may drop caches at any moment, which costs messages that say
/// nothing about the mount: the best of a few tries counts.
fn best_of_tries(mounted: &Mounted, work: impl Fn()) -> Counts {
    let tries = (0..5).map(|_| {
        let before = mounted.mount().counts();
        work();
        mounted.mount().counts() - before
    });
    tries.min_by_key(Counts::requests).unwrap()
}

/// Replaces the contents of one file in a tree made by `many`.
fn change(tree: &mut Spec, directory: usize) {
    let What::Directory(entries) = &mut tree.kind else { unreachable!() };
    let entry = entries.get_mut(format!("d{directory}").as_bytes()).unwrap();
    let What::Directory(entries) = &mut entry.kind else { unreachable!() };
    entries.insert(b"f0".to_vec(), file("another state\n"));
}

#[test]
fn a_second_full_read_of_a_snapshot_sends_nothing() {
    let _kept = keep_caches();
    let Some(mounted) = mount(&Memory::with([("0", many(20, 20))])) else { return };
    let snapshot = fs::File::open(mounted.path("0")).unwrap();
    // Inside the snapshot, so that the changing root above is not asked for.
    let read = || {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "find . -printf '%p %s %i\\n'; cat */*; grep -r contents ."]);
        let output = command.current_dir(mounted.path("0")).output().unwrap();
        assert!(output.status.success());
    };
    read();
    let again = best_of_tries(&mounted, read);
    assert_eq!(again.requests() - again.getattr - again.statfs, 0, "{again:?}");
    assert!(again.requests() <= SPARE, "{again:?}");
    drop(snapshot);
}

#[test]
fn a_second_long_listing_sends_nothing() {
    let _kept = keep_caches();
    let Some(mounted) = mount(&Memory::with([("0", many(10, 20))])) else { return };
    let list = || drop(mounted.shell("ls -lR $M/0"));
    list();
    let again = best_of_tries(&mounted, list);
    // `ls` asks for the SELinux label of the first file, and believes the answer for all.
    assert!(again.getxattr <= 1, "{again:?}");
    assert_eq!(again.requests() - again.getxattr - again.getattr - again.statfs, 0, "{again:?}");
    assert!(again.requests() <= 1 + SPARE, "{again:?}");
}

#[test]
fn comparing_two_snapshots_costs_what_changed() {
    let same = many(100, 10);
    let mut other = same.clone();
    for directory in [3, 50, 97] {
        change(&mut other, directory);
    }
    let _kept = keep_caches();
    let Some(mounted) = mount(&Memory::with([("0", same), ("1", other)])) else { return };
    let diff = || {
        let output = mounted.output("diff", &[&"-r", &mounted.path("0"), &mounted.path("1")]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.matches("another state").count(), 3, "{text}");
    };
    let before = mounted.mount().counts();
    diff();
    let first = mounted.mount().counts() - before;
    const CHANGED: u64 = 3;
    const EQUAL: u64 = 100 - CHANGED;
    // On each side the top and the changed directories are listed, in two messages: what is there,
    // and that there is no more. Each equal directory is looked up and looked at, on one side.
    const LISTS: u64 = 2 * (1 + CHANGED);
    // The root is looked at, which lists it; 0 and 1 are looked up in it; OPEN, OPENDIR and FLUSH
    // are answered once and for all.
    const BEGINNING: u64 = 3 + 3;
    assert!(first.listed <= LISTS + 1, "{first:?}");
    assert!(first.read <= 2 * CHANGED, "{first:?}");
    let needed = BEGINNING + 2 * LISTS + 2 * CHANGED + 2 * EQUAL;
    assert!(first.requests() <= needed + SPARE, "{first:?}");
    let second = best_of_tries(&mounted, diff);
    assert!(second.requests() <= SPARE, "{second:?}");
}

#[test]
fn equal_paths_have_one_inode_number_in_all_snapshots_and_others_do_not() {
    let same = many(3, 3);
    let mut other = same.clone();
    change(&mut other, 1);
    let _kept = keep_caches();
    let Some(mounted) = mount(&Memory::with([("0", same), ("1", other)])) else { return };
    let number = |path: &str| fs::symlink_metadata(mounted.path(path)).unwrap().ino();
    for _ in 0..2 {
        for equal in ["d0", "d0/f0", "d1/f1", "d2"] {
            assert_eq!(number(&format!("0/{equal}")), number(&format!("1/{equal}")), "{equal}");
        }
        for changed in ["", "d1", "d1/f0"] {
            assert_ne!(number(&format!("0/{changed}")), number(&format!("1/{changed}")));
        }
        // The numbers stay when lists are read again.
        mounted.shell("ls -lR $M > listing");
    }
    assert_ne!(number("0/d0/f0"), number("0/d0/f1"));
}

#[test]
fn stat_of_one_path_lists_its_directories_and_opens_nothing() {
    let tree = dir([("a", dir([("b", many(5, 5))])), ("z", many(5, 5))]);
    let _kept = keep_caches();
    let Some(mounted) = mount(&Memory::with([("0", tree)])) else { return };
    let before = mounted.mount().counts();
    fs::metadata(mounted.path("0/a/b/d0/f0")).unwrap();
    let spent = mounted.mount().counts() - before;
    assert_eq!((spent.opened, spent.read, spent.readdirplus), (0, 0, 0), "{spent:?}");
    // The root is looked at, and each of the five names looked up.
    assert!(spent.requests() <= 1 + 5 + SPARE, "{spent:?}");
    assert!(spent.listed <= 5, "{spent:?}");
    assert!(mounted.mount().live_nodes() <= 1 + 5);
}

#[test]
fn opening_sends_one_message_in_the_life_of_a_mount() {
    let _kept = keep_caches();
    let Some(mounted) = mount(&Memory::with([("0", many(5, 5))])) else { return };
    mounted.shell("cat $M/0/*/* > all; ls $M/0/* > names; cat $M/0/*/* > all");
    let counts = mounted.mount().counts();
    assert!(counts.open <= 1 && counts.opendir <= 1 && counts.flush <= 1, "{counts:?}");
    assert!(counts.read <= 5 * 5, "{counts:?}");
}

#[test]
fn a_large_file_is_read_in_large_parts_and_once() {
    let _kept = keep_caches();
    const LEN: usize = 16 << 20;
    let Some(mounted) = mount(&Memory::with([("0", dir([("large", file(vec![7; LEN]))]))])) else {
        return;
    };
    let read = || assert_eq!(fs::read(mounted.path("0/large")).unwrap().len(), LEN);
    let before = mounted.mount().counts();
    read();
    // The kernel reads 128 KiB ahead, and asks for it with one message.
    let first = mounted.mount().counts() - before;
    assert!(first.read <= (LEN / (128 << 10)) as u64 + SPARE, "{first:?}");
    assert_eq!(best_of_tries(&mounted, read).read, 0);
}

#[test]
fn a_symlink_is_read_once() {
    let _kept = keep_caches();
    let Some(mounted) = mount(&Memory::with([("0", dir([("link", symlink("target"))]))])) else {
        return;
    };
    let read = || assert_eq!(fs::read_link(mounted.path("0/link")).unwrap().as_os_str(), "target");
    read();
    assert_eq!(best_of_tries(&mounted, read).readlink, 0);
}
