//! File systems with fewer promises than a project or a store expects: without symlinks, modes and
//! hard links, with names of any case, and without an answer about their space.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::fixture::Fixture;
use crate::not_run::{needs_root, not_run};

/// exFAT, by its server in user space: names keep their case, and another case is the same name.
struct Exfat {
    mount: PathBuf,
    device: String,
    // Last, because it is removed as a whole.
    _ground: tempfile::TempDir,
}

impl Exfat {
    /// `None`, and said so, where it cannot be mounted.
    fn mount() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            needs_root("mounts an image");
            return None;
        }
        let ground = match std::env::var_os("NONO_TEST_DIR") {
            Some(ground) => tempfile::tempdir_in(ground).unwrap(),
            None => tempfile::tempdir_in("/var/tmp").unwrap(),
        };
        let (image, mount) = (ground.path().join("image"), ground.path().join("mount"));
        fs::create_dir(&mount).unwrap();
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let Some(_) = ran("mkfs.exfat", &[image.as_os_str()]) else {
            not_run("there is no mkfs.exfat");
            return None;
        };
        let attached = ran("losetup", &["-f".as_ref(), "--show".as_ref(), image.as_os_str()])?;
        let device = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
        if ran("mount.exfat-fuse", &[device.as_ref(), mount.as_os_str()]).is_none() {
            ran("losetup", &["-d".as_ref(), device.as_ref()]);
            not_run("exFAT cannot be mounted");
            return None;
        }
        Some(Self { mount, device, _ground: ground })
    }
}

impl Drop for Exfat {
    fn drop(&mut self) {
        ran("umount", &["-l".as_ref(), self.mount.as_os_str()]);
        ran("losetup", &["-d".as_ref(), self.device.as_ref()]);
    }
}

/// `None`: it is not there, or failed.
fn ran(program: &str, arguments: &[&std::ffi::OsStr]) -> Option<Output> {
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    done.status.success().then_some(done)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn another_case_of_a_name_comes_back() {
    let Some(exfat) = Exfat::mount() else { return };
    let fixture = Fixture::below(&exfat.mount);
    for name in ["readme", "Dir/sub/s", "kind"] {
        fixture.write(name, name);
    }
    let store = Fixture::in_memory();
    let nono = |arguments: &[&str]| {
        let mut command = fixture.command(arguments);
        crate::fixture::finished(command.env("HOME", store.path("home")).output().unwrap())
    };
    let script = "mv readme README; echo x >> README; mv Dir t; mv t dir; rm kind; mkdir Kind";
    let (before, after) = (["Dir", "kind", "readme"], ["Kind", "README", "dir"]);
    nono(&["run", "--rollback", "--no-rollback-prompt", "--", "sh", "-c", script]).success();
    let project = fixture.project();
    assert_eq!(names(&project), after);
    nono(&["undo", "--yes"]).success();
    assert_eq!(names(&project), before);
    assert_eq!(fs::read_to_string(project.join("readme")).unwrap(), "readme");
    assert_eq!(fs::read_to_string(project.join("Dir/sub/s")).unwrap(), "Dir/sub/s");
    nono(&["redo", "--yes"]).success();
    assert_eq!(names(&project), after);
    assert_eq!(fs::read_to_string(project.join("README")).unwrap(), "readmex\n");
}

#[test]
fn a_copy_loses_no_name_that_is_another_one_there() {
    let Some(exfat) = Exfat::mount() else { return };
    let fixture = Fixture::new();
    for (name, content) in [("a", "1"), ("A", "2"), ("d/x", "3"), ("D/x", "4"), ("D/y", "5")] {
        fixture.write(name, content);
    }
    fixture.nono(&["snapshot", "-m", "base"]).success();
    let to = exfat.mount.join("copy");
    for force in [&[][..], &["--force"]] {
        let words = [&["restore", "base", "--to", to.to_str().unwrap(), "--json"][..], force];
        let report = fixture.nono(&words.concat()).fails(1, "").json();
        let skipped = report["skipped"].as_array().unwrap().iter();
        let of_other = |it: &&serde_json::Value| {
            it["reason"].as_str().unwrap().contains("takes its name for another one")
        };
        let other: Vec<&Path> =
            skipped.filter(of_other).map(|it| Path::new(it["path"].as_str().unwrap())).collect();
        // One of each two is there, as it was recorded, and the other one is named.
        let copied: Vec<String> = names(&to);
        assert_eq!(copied.len(), 2, "{copied:?}");
        for (one, two) in [("a", "A"), ("d", "D")] {
            let (here, there) =
                if copied.contains(&one.to_owned()) { (one, two) } else { (two, one) };
            assert!(other.contains(&to.join(there).as_path()), "{there}: {report}");
            let inside = if here.eq_ignore_ascii_case("d") { "/x" } else { "" };
            let name = format!("{here}{inside}");
            let expected = fs::read(fixture.project().join(&name)).unwrap();
            assert_eq!(fs::read(to.join(&name)).unwrap(), expected, "{name}");
        }
        assert!(!to.join("d").join("y").exists() || copied.contains(&"D".to_owned()));
    }
}

#[test]
fn a_store_needs_symlinks_and_says_so_before_the_command() {
    let Some(exfat) = Exfat::mount() else { return };
    let fixture = Fixture::new();
    let root = exfat.mount.join("store");
    let root = root.to_str().unwrap();
    let words = ["--root", root, "run", "--rollback", "--no-rollback-prompt", "--", "touch", "ran"];
    let refused = fixture.nono(&words).fails(1, "its file system has no symlinks");
    assert!(refused.says("keep the store elsewhere: --root DIR"), "{}", refused.stderr);
    assert!(!fixture.project().join("ran").exists());
    let doctor = fixture.nono(&["--root", root, "doctor"]);
    assert!(doctor.code == 1 && doctor.says("has no symlinks"), "{}", doctor.stdout);
    let other = fixture.nono(&["doctor"]);
    assert!(!other.says("has no symlinks"), "{}", other.stdout);
}

#[test]
fn a_file_system_that_does_not_tell_its_space_is_not_full() {
    let fixture = Fixture::new();
    fixture.write("file", "1");
    fixture.record("echo 2 > file").success();
    // The first fields of the answer, up to the blocks that are left.
    let zeros = format!("inject=fstatfs,statfs:poke_exit=@arg2={}", "0".repeat(80));
    let inject = ["-e", "trace=fstatfs,statfs", "-e", &zeros];
    let Some(undo) = fixture.nono_with_failing_calls(&inject, &["undo", "--yes"]) else { return };
    undo.success();
    assert_eq!(fs::read_to_string(fixture.project().join("file")).unwrap(), "1");
    let doctor = fixture.nono_with_failing_calls(&inject, &["doctor"]).unwrap();
    assert!(doctor.says("does not tell the free space"), "{}", doctor.stdout);
}
