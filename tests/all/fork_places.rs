//! Forks on file systems of several kinds, and where the kernel mounts no layer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::extremes::SmallDisk;
use crate::fixture::{Finished, Fixture, finished};
use crate::forks::has_forks;
use crate::not_run::{needs_root, not_run};

/// A store and a project in one directory.
struct Place<'a> {
    fixture: &'a Fixture,
    project: PathBuf,
    store: String,
}

impl<'a> Place<'a> {
    fn new(fixture: &'a Fixture, directory: &Path) -> Self {
        let (project, store) = (directory.join("project"), directory.join("store"));
        for path in [directory, &project, &store] {
            fs::create_dir_all(path).unwrap();
            fixture.give_away(path);
        }
        for (name, text) in [("kept", "kept\n"), ("edited", "old\n"), ("gone", "gone\n")] {
            fs::write(project.join(name), text).unwrap();
            fixture.give_away(&project.join(name));
        }
        fs::write(project.join("large"), vec![7; 3 << 20]).unwrap();
        fixture.give_away(&project.join("large"));
        Self { fixture, project, store: store.to_str().unwrap().to_owned() }
    }

    fn nono(&self, words: &[&str]) -> Finished {
        let words = [&["--root", &*self.store], words].concat();
        finished(self.fixture.command(&words).current_dir(&self.project).output().unwrap())
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.project.join(name)).unwrap()
    }

    /// Work in two forks of which one is merged, and taken back.
    fn day(&self, copy: &[&str]) {
        for fork in ["one", "two"] {
            self.nono(&[&["fork", fork], copy].concat()).success();
        }
        let inside = |fork: &str, script: &str| {
            self.nono(&["fork", "enter", fork, "--", "sh", "-c", script])
        };
        let script = "set -e; echo new > edited; rm gone; mkdir made; echo x > made/x; \
                      printf more >> large; pwd";
        let did = inside("one", script).success();
        assert_eq!(did.stdout.trim(), fs::canonicalize(&self.project).unwrap().to_str().unwrap());
        assert_eq!((self.text("edited"), self.text("gone")), ("old\n".into(), "gone\n".into()));
        assert_eq!(inside("two", "cat edited gone").success().stdout, "old\ngone\n");
        assert_eq!(inside("one", "cat edited made/x; ls").success().stdout.lines().count(), 6);
        let list = self.nono(&["forks", "--json"]).success().json();
        assert_eq!(list[0]["changes"]["modified"], 2, "{list}");
        assert_eq!(list[0]["changes"]["deleted"], 1, "{list}");
        assert_eq!(list[1]["changes"]["modified"], 0, "{list}");
        let differ = self.nono(&["fork", "diff", "one", "two", "--name-only"]).success();
        assert_eq!(differ.stdout, "edited\ngone\nlarge\nmade\nmade/x\n");
        self.nono(&["fork", "snapshot", "one"]).success();
        self.nono(&["fork", "merge", "one"]).success();
        assert_eq!(self.text("edited"), "new\n");
        assert!(!self.project.join("gone").exists());
        self.nono(&["undo", "--yes"]).success();
        assert_eq!((self.text("edited"), self.text("gone")), ("old\n".into(), "gone\n".into()));
        self.nono(&["fork", "discard", "one", "two"]).success();
        self.nono(&["rollback", "verify", "--all"]).success();
        assert_eq!(fs::read_dir(Path::new(&self.store).join("forks")).unwrap().count(), 0);
    }
}

fn users() -> impl Iterator<Item = Fixture> {
    [Fixture::new(), Fixture::ordinary_user()].into_iter()
}

#[test]
fn forks_work_on_file_systems_of_several_kinds() {
    if !rustix::process::geteuid().is_root() {
        return needs_root("mounts file systems");
    }
    for fixture in users().filter(has_forks) {
        for kind in ["xfs", "btrfs", "ext4"] {
            let Some(disk) = SmallDisk::new(&fixture.path(""), kind, 400) else { continue };
            let place = Place::new(&fixture, &disk.mount_point.join("own"));
            place.day(&[]);
            // Blocks of files are shared where the file system can.
            place.day(&["--copy", "--yes"]);
        }
        let memory = Fixture::in_memory();
        let place = Place::new(&fixture, &memory.path("own"));
        fixture.give_away(&memory.path(""));
        place.day(&[]);
    }
}

/// An overlay cannot be the layer of another one: as in a container, or with a home on NFS.
struct Overlay(PathBuf);

impl Overlay {
    fn new(below: &Path) -> Option<Self> {
        let part = |name: &str| {
            fs::create_dir(below.join(name)).unwrap();
            below.join(name).to_str().unwrap().to_owned()
        };
        let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(part);
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "overlay", "-o", &options, &merged]);
        let made = mount.status().is_ok_and(|status| status.success());
        made.then(|| Self(merged.into()))
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn where_no_layer_can_be_a_copy_is_made_after_its_price_was_agreed_to() {
    if !rustix::process::geteuid().is_root() {
        return needs_root("mounts an overlay");
    }
    for fixture in users().filter(has_forks) {
        let Some(overlay) = Overlay::new(&fixture.path("")) else {
            return not_run("no overlay here");
        };
        let place = Place::new(&fixture, &overlay.0.join("own"));
        let refused = place.nono(&["fork", "one"]).fails(1, "there can be no fork here");
        assert!(refused.says("--copy"), "{}", refused.stderr);
        place.nono(&["fork", "one", "--yes"]).fails(2, "--copy");
        assert!(!Path::new(&place.store).join("forks").exists());
        let priced = place.nono(&["fork", "one", "--copy"]).fails(2, "a copy of 4 files takes 3");
        assert!(priced.says("--yes"), "{}", priced.stderr);
        assert_eq!(place.nono(&["rollback", "list", "--all", "--json"]).stdout, "[]\n");
        let found = place.nono(&["doctor", "--json"]).json();
        let forks = found.as_array().unwrap().iter().find(|finding| finding["what"] == "forks");
        let found = forks.unwrap()["found"].as_str().unwrap().to_owned();
        assert!(found.contains("as copies alone"), "{found}");
        place.day(&["--copy", "--yes"]);
    }
}
