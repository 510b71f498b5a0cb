//! Mount points, unmounting, and directories that change.

use std::fs;
use std::io::ErrorKind;

use nono_mount::{
    FS_TYPE, Mount, MountError, MountOptions, MountPoint, Unmounted, check_mount_point, mounts,
    unmount,
};
use tempfile::TempDir;

use crate::fixture::{SERVE_AT, eventually, many, mount, this_program};
use crate::memory::{Memory, ROOT, dir, file, symlink};

#[test]
fn new_and_removed_sessions_appear_without_remounting() {
    let memory = Memory::new();
    let session = memory.add_changing(ROOT, "session");
    memory.add(session, "0", &many(2, 2));
    memory.add(session, "latest", &symlink("0"));
    let Some(mounted) = mount(&memory) else { return };
    assert_eq!(mounted.shell("ls $M/session; ls $M/session/latest"), "0\nlatest\nd0\nd1");

    memory.add(session, "1", &dir([("new", file("x"))]));
    memory.add(session, "latest", &symlink("1"));
    // A link is asked for each time, a name that was missing too.
    assert_eq!(mounted.shell("readlink $M/session/latest; ls $M/session/latest"), "1\nnew");
    eventually("the new snapshot is listed", || mounted.shell("ls $M/session") == "0\n1\nlatest");

    memory.add_changing(ROOT, "another");
    assert_eq!(mounted.shell("ls -a $M/another"), ".\n..");
    mounted.mount().refresh();
    eventually("the new session is listed", || mounted.shell("ls $M") == "another\nsession");

    memory.remove(ROOT, "session");
    eventually("the session is gone", || {
        mounted.shell("ls $M") == "another" && !mounted.path("session").try_exists().unwrap()
    });
}

#[test]
fn a_reader_of_a_changing_directory_misses_nothing_that_stays() {
    let memory = Memory::new();
    for session in 0..2000 {
        memory.add_changing(ROOT, &format!("session-{session:04}"));
    }
    let Some(mounted) = mount(&memory) else { return };
    let mut entries = fs::read_dir(&mounted.point).unwrap();
    let mut seen = vec![entries.next().unwrap().unwrap().file_name()];
    for session in 0..500 {
        memory.remove(ROOT, &format!("session-{session:04}"));
    }
    // Another reader lists it anew meanwhile.
    mounted.mount().refresh();
    mounted.shell("ls $M | wc -l");
    seen.extend(entries.map(|entry| entry.unwrap().file_name()));
    for session in 500..2000 {
        let name = format!("session-{session:04}");
        assert_eq!(seen.iter().filter(|seen| **seen == *name).count(), 1, "{name}");
    }
}

#[test]
fn mount_points_that_cannot_be_used_are_refused_with_the_reason() {
    let scratch = TempDir::new().unwrap();
    let path = scratch.path().canonicalize().unwrap();
    let refused = |below: &str| {
        Mount::new(Memory::new(), &path.join(below), MountOptions::default()).unwrap_err()
    };
    fs::write(path.join("file"), "").unwrap();
    fs::create_dir_all(path.join("full/sub")).unwrap();
    assert!(matches!(refused("missing"), MountError::NotFound { .. }));
    assert!(matches!(refused("file"), MountError::NotADirectory { .. }));
    assert!(matches!(refused("full"), MountError::NotEmpty { .. }));
    assert!(matches!(check_mount_point(&path.join("full/sub")), Ok(MountPoint::Free(_))));
    assert!(matches!(unmount(&path.join("full")), Err(MountError::NotMounted { .. })));
}

#[test]
fn a_live_mount_is_listed_and_not_mounted_over() {
    let Some(mounted) = mount(&Memory::with([("0", many(1, 1))])) else { return };
    let found: Vec<_> =
        mounts().unwrap().into_iter().filter(|mount| mount.directory == mounted.point).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0], *mounted.mount().mounted_at());
    assert_eq!((found[0].fs_type.as_str(), found[0].fs_name.as_str()), (FS_TYPE, "nono"));
    assert!(found[0].is_alive().unwrap());
    let again = Mount::new(Memory::new(), &mounted.point, MountOptions::default()).unwrap_err();
    assert!(matches!(again, MountError::AlreadyMounted { fs_type, .. } if fs_type == FS_TYPE));
}

#[test]
fn unmounting_leaves_an_empty_directory_and_ends_the_session() {
    let Some(mut mounted) = mount(&Memory::with([("0", many(1, 1))])) else { return };
    mounted.shell("ls -R $M");
    assert_eq!(mounted.mount().unmount().unwrap(), Unmounted::Clean);
    assert_eq!(fs::read_dir(&mounted.point).unwrap().count(), 0);
    // Once more is no error, and takes nothing else away.
    assert_eq!(mounted.mount().unmount().unwrap(), Unmounted::Clean);
    mounted.mount.take().unwrap().wait().unwrap();
}

#[test]
fn unmounting_by_other_means_ends_the_session() {
    let Some(mut mounted) = mount(&Memory::with([("0", many(1, 1))])) else { return };
    assert_eq!(unmount(&mounted.point).unwrap(), Unmounted::Clean);
    mounted.mount.take().unwrap().wait().unwrap();
    assert_eq!(fs::read_dir(&mounted.point).unwrap().count(), 0);
}

#[test]
fn a_busy_mount_is_unmounted_lazily_and_serves_its_last_user() {
    let Some(mut mounted) = mount(&Memory::with([("0", many(2, 2))])) else { return };
    let held = fs::File::open(mounted.path("0/d0")).unwrap();
    assert_eq!(mounted.mount().unmount().unwrap(), Unmounted::Busy);
    assert!(!mounted.path("0").try_exists().unwrap());
    let file =
        rustix::fs::openat(&held, "f0", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
    let mut text = [0; 16];
    assert_eq!(rustix::io::read(file.unwrap(), &mut text).unwrap(), "contents 0 0\n".len());
    drop(held);
    mounted.mount.take().unwrap().wait().unwrap();
}

#[test]
fn another_mount_at_the_same_place_is_left_alone() {
    let Some(mut mounted) = mount(&Memory::with([("0", many(1, 1))])) else { return };
    let first = mounted.mount.take().unwrap();
    let unmounter = first.unmounter();
    unmount(&mounted.point).unwrap();
    first.wait().unwrap();
    let second =
        Mount::new(Memory::with([("7", many(1, 1))]), &mounted.point, MountOptions::default());
    let second = second.unwrap();
    assert_eq!(unmounter.unmount().unwrap(), Unmounted::Clean);
    assert_eq!(mounted.shell("ls $M"), "7");
    drop(second);
}

/// The mount that `a_dead_mount_is_noticed_and_replaced` kills.
#[test]
#[ignore = "another test runs it in a process of its own"]
fn serve_until_killed() {
    let Some(point) = std::env::var_os(SERVE_AT) else { return };
    let memory = Memory::with([("0", many(1, 1))]);
    Mount::new(memory, point.as_ref(), MountOptions::default()).unwrap().wait().unwrap();
}

#[test]
fn a_dead_mount_is_noticed_and_replaced() {
    let Some(mut mounted) = mount(&Memory::with([("7", many(1, 1))])) else { return };
    mounted.mount.take();
    let mut server = this_program("living::serve_until_killed");
    let mut child = server.env(SERVE_AT, &mounted.point).spawn().unwrap();
    eventually("the other process mounts", || mounted.path("0").try_exists().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();

    let Ok(MountPoint::Dead(dead)) = check_mount_point(&mounted.point) else {
        panic!("{:?}", check_mount_point(&mounted.point));
    };
    assert!(!dead.is_alive().unwrap());
    assert!(mounts().unwrap().contains(&dead));
    let memory = Memory::with([("7", many(1, 1))]);
    let replaced = Mount::new(memory, &mounted.point, MountOptions::default()).unwrap();
    assert_eq!(mounted.shell("ls $M"), "7");
    drop(replaced);
    assert!(matches!(check_mount_point(&mounted.point), Ok(MountPoint::Free(_))));
}

#[test]
fn a_missing_name_is_not_found() {
    let Some(mounted) = mount(&Memory::with([("0", many(1, 1))])) else { return };
    for missing in ["no", "0/no", "0/d0/f0/no", "0/d0/\u{fffd}"] {
        let error = fs::metadata(mounted.path(missing)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory));
    }
}
