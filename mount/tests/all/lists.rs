//! Names that are looked up, and lists that are handed out in parts.

use std::fs;
use std::time::Duration;

use nono_mount::MountOptions;

use crate::fixture::{drop_caches, eventually, keep_caches, many, mount, mount_with};
use crate::memory::{Memory, dir, file};
use crate::not_run::needs_root;

#[test]
fn a_name_that_an_unchanging_directory_does_not_have_is_asked_for_once() {
    let _kept = keep_caches();
    let Some(mounted) = mount(&Memory::with([("0", many(60, 10))])) else { return };
    let missing = |path: &str| {
        let error = fs::metadata(mounted.path(path)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    };
    missing("0/d3/.gitignore");
    let before = mounted.mount().counts();
    (0..50).for_each(|_| missing("0/d3/.gitignore"));
    assert_eq!((mounted.mount().counts() - before).lookup, 0);
    // Sessions come and go.
    missing("1");
    let before = mounted.mount().counts();
    missing("1");
    assert_eq!((mounted.mount().counts() - before).lookup, 1);
}

#[test]
fn what_did_not_fit_into_an_answer_is_not_counted_as_named() {
    let long = dir((0..5000).map(|f| (format!("f{f:04}"), file("f"))));
    let Some(mounted) = mount(&Memory::with([("0", long)])) else { return };
    assert_eq!(fs::read_dir(mounted.path("0")).unwrap().count(), 5000);
    if let Err(error) = drop_caches("2") {
        return needs_root(format_args!("makes the kernel forget: {error}"));
    }
    eventually("all is forgotten", || mounted.mount().live_nodes() == 1);
}

#[test]
fn names_in_several_long_directories_are_looked_up_without_listing_them_again() {
    let _kept = keep_caches();
    const DIRECTORIES: usize = 3;
    const FILES: usize = 60;
    let memory = Memory::with([("0", many(DIRECTORIES, FILES))]);
    let changing_ttl = Duration::from_secs(3600);
    let options = MountOptions {
        changing_ttl,
        cached_entries: DIRECTORIES * (FILES + 4),
        ..MountOptions::default()
    };
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
