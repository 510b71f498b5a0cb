//! Sizes and places at the edge: deep, wide, sparse, full, in a hurry.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use nono_engine::snapshot::{Budget, SnapshotManager};
use nono_engine::walk::ExclusionConfig;
use rustix::fs::{Mode, OFlags, mkdirat, openat};

use crate::fixture::{Fixture, noise};
use crate::not_run::not_run;
use crate::observe::{assert_same, observe};

fn manager(temp: &Path, tracked: &Path) -> SnapshotManager {
    let session = temp.join("session");
    let paths = [tracked.to_owned()];
    SnapshotManager::new(&session, &paths, ExclusionConfig::nothing(), Budget::UNLIMITED).unwrap()
}

fn tracked(temp: &Path) -> PathBuf {
    let tracked = temp.join("tracked");
    fs::create_dir(&tracked).unwrap();
    tracked
}

#[test]
fn a_sparse_file_of_4_gib_fills_neither_the_store_nor_the_disk() {
    const LEN: u64 = 4 << 30;
    let temp = tempfile::tempdir().unwrap();
    let tracked = tracked(temp.path());
    let path = tracked.join("image");
    let file = File::create(&path).unwrap();
    file.set_len(LEN).unwrap();
    file.write_all_at(b"at the start", 0).unwrap();
    file.write_all_at(b"in the middle", LEN / 2 + 1).unwrap();
    let before = fs::metadata(&path).unwrap();
    let manager = manager(temp.path(), &tracked);
    manager.create_baseline().unwrap();
    fs::remove_file(&path).unwrap();
    let report = manager.restore(0).unwrap();
    assert!(report.is_complete(), "{:?}", report.skipped);
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.len(), after.mtime_nsec()), (LEN, before.mtime_nsec()));
    assert!(after.blocks() * 512 < 1 << 20, "{} blocks", after.blocks());
    let mut middle = [0; 13];
    File::open(&path).unwrap().read_exact_at(&mut middle, LEN / 2 + 1).unwrap();
    assert_eq!(&middle, b"in the middle");
    let store_blocks: u64 = walk_blocks(&temp.path().join("session"));
    assert!(store_blocks * 512 < 1 << 20, "{store_blocks} blocks in the store");
}

fn walk_blocks(dir: &Path) -> u64 {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            metadata.blocks() + if metadata.is_dir() { walk_blocks(&path) } else { 0 }
        })
        .sum()
}

#[test]
fn a_directory_of_10_000_entries_comes_back() {
    let temp = tempfile::tempdir().unwrap();
    let tracked = tracked(temp.path());
    for number in 0..10_000 {
        fs::write(tracked.join(format!("file {number}")), (number % 100).to_string()).unwrap();
    }
    let before = observe(&tracked);
    let manager = manager(temp.path(), &tracked);
    manager.create_baseline().unwrap();
    for number in (0..10_000).step_by(3) {
        fs::remove_file(tracked.join(format!("file {number}"))).unwrap();
    }
    fs::write(tracked.join("file 1"), "changed").unwrap();
    assert!(manager.restore(0).unwrap().is_complete());
    assert_same(&before, &observe(&tracked));
}

/// Far beyond PATH_MAX, so that no path of it can be given to a system call.
#[test]
fn a_tree_200_directories_deep_comes_back() {
    const NAME: [u8; 100] = [b'd'; 100];
    let temp = tempfile::tempdir().unwrap();
    let tracked = tracked(temp.path());
    let deepest = |make: bool| {
        let mut dir = OwnedFd::from(File::open(&tracked).unwrap());
        for _ in 0..200 {
            if make {
                mkdirat(&dir, &NAME[..], Mode::RWXU).unwrap();
            }
            dir = openat(&dir, &NAME[..], OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        dir
    };
    // By its descriptor, its path is short.
    let inside = |dir: &OwnedFd, name: &str| {
        PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name)
    };
    let dir = deepest(true);
    fs::write(inside(&dir, "file"), "").unwrap();
    let mtime = |dir: &OwnedFd| fs::metadata(inside(dir, "")).unwrap().modified().unwrap();
    let before = mtime(&dir);
    let manager = manager(temp.path(), &tracked);
    let baseline = manager.create_baseline().unwrap();
    assert_eq!(baseline.totals.entry_count, 202);
    fs::remove_file(inside(&dir, "file")).unwrap();
    symlink("/etc/passwd", inside(&dir, "file")).unwrap();
    fs::write(inside(&dir, "other"), "").unwrap();
    let report = manager.restore(0).unwrap();
    assert!(report.is_complete(), "{:?}", report.skipped);
    let dir = deepest(false);
    assert_eq!(mtime(&dir), before);
    assert!(fs::symlink_metadata(inside(&dir, "file")).unwrap().is_file());
    assert!(fs::read(inside(&dir, "file")).unwrap().is_empty());
    assert!(!inside(&dir, "other").exists());
    let again = manager.create_incremental().unwrap().0;
    assert_eq!(again.merkle_root, baseline.merkle_root);
    // The whole of it goes and comes back. (`rm -r` needs no long paths either.)
    assert!(Command::new("rm").arg("-rf").arg(&tracked).status().unwrap().success());
    assert!(manager.restore(0).unwrap().is_complete());
    assert_eq!(manager.create_incremental().unwrap().0.merkle_root, baseline.merkle_root);
}

/// A small file system of its own, as a real disk that can be full. `None` where it cannot be made.
pub struct SmallDisk {
    pub mount_point: PathBuf,
}

impl SmallDisk {
    pub fn new(temp: &Path, kind: &str, megabytes: u64) -> Option<Self> {
        let image = temp.join(format!("{kind}.img"));
        let mount_point = temp.join(kind);
        fs::create_dir(&mount_point).unwrap();
        File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
        let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
            let output = Command::new(program).args(arguments).output();
            output.map_err(|error| error.to_string()).and_then(|output| {
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                if output.status.success() { Ok(()) } else { Err(text) }
            })
        };
        let made = run(&format!("mkfs.{kind}"), &["-q".as_ref(), image.as_ref()]).and_then(|()| {
            run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_ref(), mount_point.as_ref()])
        });
        match made {
            Ok(()) => Some(Self { mount_point }),
            Err(error) => {
                not_run(format_args!("no {kind} file system of its own: {error}"));
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mount_point).status();
    }
}

#[test]
fn a_full_disk_stops_a_snapshot_and_a_restore_and_changes_nothing() {
    let fixture = Fixture::new();
    let Some(disk) = SmallDisk::new(&fixture.path(""), "ext4", 24) else { return };
    let project = disk.mount_point.join("project");
    fs::create_dir(&project).unwrap();
    // No two files share contents, and none compresses: each takes its space in the store.
    let content = |seed| noise(6 << 20, seed);
    fs::write(project.join("a"), content(1)).unwrap();
    let store = disk.mount_point.join("store");
    let store = store.to_str().unwrap();
    let project_text = project.to_str().unwrap();
    let snapshot = ["snapshot", "--root", store, project_text];
    fixture.nono(&snapshot).success();
    // The next one does not fit any more.
    fs::write(project.join("b"), content(2)).unwrap();
    fixture.nono(&snapshot).fails(1, "No space left on device");
    let list = fixture.nono(&["rollback", "list", "--root", store, "--json"]).success().json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    fixture.nono(&["rollback", "verify", "--root", store, "--all"]).success();
    let id = list[0]["session_id"].as_str().unwrap();
    let before = observe(&project);
    // A restore needs room for what no snapshot holds; without it, that does not change.
    let full = fixture.nono(&["rollback", "restore", "--root", store, id]);
    let full = full.fails(1, "no space to keep what is there now");
    // Offered commands name the store as this command did.
    assert!(full.stderr.contains(&format!("nono --root {store} restore")), "{}", full.stderr);
    assert_same(&before, &observe(&project));
    fs::remove_file(project.join("b")).unwrap();
    fs::write(project.join("a"), "changed").unwrap();
    fixture.nono(&["rollback", "restore", "--root", store, id]).success();
    assert_eq!(fs::read(project.join("a")).unwrap(), content(1));
}

#[test]
fn large_files_share_their_blocks_where_the_file_system_can() {
    for kind in ["xfs", "btrfs"] {
        let temp = tempfile::tempdir().unwrap();
        let Some(disk) = SmallDisk::new(temp.path(), kind, 400) else { continue };
        let project = disk.mount_point.join("project");
        fs::create_dir(&project).unwrap();
        let content: Vec<u8> = (0..16u32 << 20).map(|i| (i >> 7) as u8).collect();
        fs::write(project.join("large"), &content).unwrap();
        rustix::fs::syncfs(File::open(&project).unwrap()).unwrap();
        let free = || {
            let stat = rustix::fs::statvfs(&disk.mount_point).unwrap();
            stat.f_bavail * stat.f_frsize
        };
        let before = free();
        let manager = SnapshotManager::new(
            &disk.mount_point.join("session"),
            std::slice::from_ref(&project),
            ExclusionConfig::nothing(),
            Budget::default(),
        )
        .unwrap();
        manager.create_baseline().unwrap();
        let used = before.saturating_sub(free());
        assert!(used < content.len() as u64 / 2, "{kind}: {used} bytes for a clone");
        fs::write(project.join("large"), "changed").unwrap();
        manager.restore(0).unwrap();
        assert!(fs::read(project.join("large")).unwrap() == content, "{kind}");
    }
}

#[test]
fn two_at_once_on_one_session_take_turns() {
    let fixture = Fixture::new();
    for number in 0..50 {
        fixture.write(&format!("f{number}"), number.to_string());
    }
    fixture.nono(&["snapshot"]).success();
    let id = fixture.latest();
    let children: Vec<_> = (0..6)
        .map(|_| {
            let arguments = ["snapshot", "--session", &id, "--json"];
            let mut command = fixture.command(&arguments);
            command.stdout(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut numbers: Vec<u64> = children
        .into_iter()
        .map(|child| {
            let finished = crate::fixture::finished(child.wait_with_output().unwrap()).success();
            finished.json()["number"].as_u64().unwrap()
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    fixture.nono(&["rollback", "verify", &id]).success();
}

/// The moments are random: the invariants hold at every one of them.
#[test]
fn killed_at_any_moment_the_store_verifies_and_the_next_command_works() {
    let fixture = Fixture::new();
    for number in 0..200 {
        fixture.write(&format!("d{}/f{number}", number % 10), vec![number as u8; 3000]);
    }
    fixture.nono(&["snapshot"]).success();
    let first = fixture.latest();
    for round in 0..40u64 {
        fixture.write("d1/changing", round.to_string());
        let arguments: &[&str] = match round % 4 {
            0 => &["snapshot"],
            1 => &["snapshot", "--session", &first],
            2 => &["run", "--rollback", "--", "sh", "-c", "echo x > d2/made; rm -rf d3"],
            _ => &["rollback", "cleanup", "--keep", "3", "--yes"],
        };
        let mut child = fixture
            .command(arguments)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Anywhere from before its first system call to after its last one.
        std::thread::sleep(std::time::Duration::from_micros(round * 977));
        let _ = child.kill();
        child.wait().unwrap();
        fixture.nono(&["rollback", "verify", "--all"]).success();
        fixture.nono(&["rollback", "list", "--all"]).success();
    }
    fixture.nono(&["snapshot"]).success();
    let id = fixture.latest();
    fixture.write("d1/changing", "last");
    fixture.nono(&["rollback", "restore", &id]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("d1/changing")).unwrap(), "39");
}
