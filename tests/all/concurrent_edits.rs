//! The user works on while a restore is at work or interrupted: nothing of theirs is lost, nothing
//! outside is touched, and success means that the state that was asked for is on the disk.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::faults::at_point;
use crate::fixture::Fixture;
use crate::not_run::needs_root;
use crate::observe::{assert_same, observe};
use crate::scene::{Scene, as_strs};

/// Regular files below a directory, staging directories included.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap();
        if kind.is_dir() {
            found.extend(files(&path));
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found
}

fn is_staged(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b".nono-"))
}

fn own_files(scene: &Scene) -> Vec<PathBuf> {
    files(&scene.fixture.project()).into_iter().filter(|path| !is_staged(path)).collect()
}

/// Names that are linked get the same contents, and no others do.
fn mark(path: &Path) -> String {
    format!("mine, in {}", fs::metadata(path).unwrap().ino())
}

/// A user's work on a project; gives the contents that must not be lost.
type Meddle = fn(&Scene) -> Vec<String>;

fn edit_in_place(scene: &Scene) -> Vec<String> {
    let edited = own_files(scene);
    edited.iter().for_each(|path| fs::write(path, mark(path)).unwrap());
    edited.iter().map(|path| mark(path)).collect()
}

fn edit_by_renaming(scene: &Scene) -> Vec<String> {
    let edited = own_files(scene);
    let write = |path: &PathBuf| {
        let (temporary, content) = (path.with_extension("tmp~"), mark(path));
        fs::write(&temporary, &content).unwrap();
        fs::rename(&temporary, path).unwrap();
        content
    };
    edited.iter().map(write).collect()
}

fn remove_all(scene: &Scene) -> Vec<String> {
    own_files(scene).iter().for_each(|path| fs::remove_file(path).unwrap());
    Vec::new()
}

fn fill_every_free_name(scene: &Scene) -> Vec<String> {
    let mut kept = Vec::new();
    for path in scene.old.keys().chain(scene.new.keys()) {
        let path = scene.fixture.project().join(path);
        let is_possible = path.parent().is_some_and(Path::is_dir);
        if is_possible && fs::symlink_metadata(&path).is_err() {
            let content = format!("mine, number {}", kept.len());
            fs::write(&path, &content).unwrap();
            kept.push(content);
        }
    }
    kept
}

fn swap_directories_for_links(scene: &Scene) -> Vec<String> {
    let project = scene.fixture.project();
    let outside = scene.fixture.path("outside");
    let _ = fs::remove_dir_all(&outside);
    fs::create_dir(&outside).unwrap();
    for name in ["gone", "new", "to-dir", "to-file"] {
        let path = project.join(name);
        if path.is_dir() {
            fs::rename(&path, outside.join(name)).unwrap();
            symlink(outside.join(name), &path).unwrap();
        }
    }
    Vec::new()
}

/// As a program does that has the files open.
fn write_to_what_was_taken_away(scene: &Scene) -> Vec<String> {
    let staged = files(&scene.fixture.project()).into_iter().filter(|path| is_staged(path));
    let is_old = |path: &PathBuf| {
        let content = fs::read(path).unwrap();
        // A staged file may be dropped.
        !scene.new.values().any(|observed| observed.content == content)
    };
    let written: Vec<PathBuf> = staged.filter(is_old).collect();
    written.iter().for_each(|path| fs::write(path, mark(path)).unwrap());
    written.iter().map(|path| mark(path)).collect()
}

fn is_somewhere(scene: &Scene, content: &str) -> bool {
    let hash = nono_engine::object::ContentHash::of(content.as_bytes()).hex();
    let object = scene.fixture.store().join("objects").join(&hash[..2]).join(&hash[2..]);
    object.exists()
        || files(&scene.fixture.project())
            .iter()
            .any(|path| fs::read_to_string(path).is_ok_and(|found| found == content))
}

fn while_a_restore_is_interrupted(name: &str, meddle: Meddle) {
    let scene = Scene::new();
    let arguments = scene.restore(0);
    let (mut point, mut tried) = (1, 0);
    let outside = scene.fixture.path("outside");
    while {
        scene.reset();
        scene.killed_at(point, &as_strs(&arguments))
    } {
        for way in [&["rollback", "resume"][..], &["rollback", "resume", "--abort"]] {
            scene.reset();
            assert!(scene.killed_at(point, &as_strs(&arguments)));
            if !scene.has_work() {
                continue;
            }
            tried += 1;
            let precious = meddle(&scene);
            let before = outside.exists().then(|| observe(&outside));
            let done = scene.fixture.nono(way);
            let what = format!("{name}, point {point}, {way:?}: {}{}", done.stdout, done.stderr);
            assert!(!done.stderr.contains("panicked"), "{what}");
            for content in precious {
                assert!(is_somewhere(&scene, &content), "{content:?} is lost: {what}");
            }
            if let Some(before) = before {
                assert_eq!(before, observe(&outside), "{what}");
            }
            if done.code == 0 {
                let expected = if way.len() == 2 { &scene.new } else { &scene.old };
                let (expected, found) =
                    (crate::scene::contents(expected), crate::scene::contents(&scene.tree()));
                assert_eq!(expected, found, "{what}");
            }
        }
        point += 7;
    }
    assert!(tried > 10, "{tried}");
}

#[test]
fn files_that_are_edited_in_place() {
    while_a_restore_is_interrupted("edited in place", edit_in_place);
}

#[test]
fn files_that_are_edited_by_renaming() {
    while_a_restore_is_interrupted("edited by renaming", edit_by_renaming);
}

#[test]
fn files_that_are_removed() {
    while_a_restore_is_interrupted("removed", remove_all);
}

#[test]
fn names_that_are_taken() {
    while_a_restore_is_interrupted("taken", fill_every_free_name);
}

#[test]
fn directories_that_become_links() {
    while_a_restore_is_interrupted("links", swap_directories_for_links);
}

#[test]
fn files_that_are_written_to_after_they_were_taken_away() {
    while_a_restore_is_interrupted("taken away", write_to_what_was_taken_away);
}

/// A file of which only the mode is different, in a completed state of affairs.
fn only_a_mode() -> (Fixture, PathBuf) {
    let fixture = Fixture::in_memory();
    let file = fixture.write("f", "same");
    fixture.nono(&["snapshot"]).success();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    (fixture, file)
}

#[test]
fn a_file_that_becomes_a_link_to_another_at_any_moment_gives_it_no_rights() {
    let mut swaps = 0;
    for point in 1.. {
        let (fixture, file) = only_a_mode();
        let victim = fixture.path("victim");
        // In everything that a restore could compare like the file whose place it takes.
        assert!(Command::new("cp").arg("-p").args([&file, &victim]).status().unwrap().success());
        let swap = || {
            let temporary = fixture.path("temporary");
            fs::hard_link(&victim, &temporary).unwrap();
            fs::rename(&temporary, &file).unwrap();
        };
        let arguments = ["rollback", "restore", "latest"];
        if at_point(&fixture, point, &arguments, swap).is_none() {
            break;
        }
        swaps += 1;
        let mode = fs::metadata(&victim).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o600, "at point {point}");
    }
    assert!(swaps > 20, "{swaps}");
}

#[test]
fn a_file_that_is_edited_at_any_moment_keeps_its_contents_and_time() {
    let mut kept = 0;
    for point in 1.. {
        let (fixture, file) = only_a_mode();
        let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        let mut edited = None;
        let edit = || {
            fs::write(&file, "more").unwrap();
            edited = Some(time(&file));
        };
        if at_point(&fixture, point, &["rollback", "restore", "latest"], edit).is_none() {
            break;
        }
        if fs::read_to_string(&file).unwrap() == "more" {
            kept += 1;
            assert_eq!(Some(time(&file)), edited, "at point {point}");
        } else {
            // It came early enough to be part of the safety snapshot.
            let undo = ["rollback", "restore", &format!("{}/1", fixture.latest())];
            fixture.nono(&undo).success();
            assert_eq!(fs::read_to_string(&file).unwrap(), "more", "at point {point}");
        }
    }
    assert!(kept > 10, "{kept}");
}

#[test]
fn what_is_mounted_twice_in_a_tracked_path_is_restored() {
    if !rustix::process::geteuid().is_root() {
        needs_root("mounts");
        return;
    }
    struct Bound(PathBuf);
    impl Drop for Bound {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    let fixture = Fixture::in_memory();
    let (below, bound) = (fixture.path("below"), fixture.project().join("bound"));
    fs::create_dir(&below).unwrap();
    fixture.write("bound/hidden", "");
    let mount = Command::new("mount").arg("--bind").args([&below, &bound]).status().unwrap();
    assert!(mount.success());
    let _bound = Bound(bound);
    fixture.write("bound/f", "1");
    fixture.write("f", "1");
    let before = observe(&fixture.project());
    fixture.nono(&["snapshot"]).success();
    fixture.write("bound/f", "22");
    fixture.write("bound/new/x", "22");
    fixture.write("f", "22");
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&before, &observe(&fixture.project()));
}
