//! Every call that changes something on the disk fails once, or from some moment on: with a broken
//! disk, a full one, a quota, too many open files, a right that was taken away, a disk that became
//! read-only.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Signal, WaitOptions, kill_process, waitpid};

use crate::fixture::{Fixture, finished};
use crate::not_run::not_run;
use crate::observe::{assert_same, observe};
use crate::scene::{Scene, as_strs, contents};

const ERRORS: [&str; 6] = ["EIO", "ENOSPC", "EMFILE", "EACCES", "EROFS", "EDQUOT"];

impl Scene {
    /// How many points a command passes.
    fn point_count(&self, arguments: &[&str]) -> u64 {
        let is_passed = |point| {
            self.reset();
            self.killed_at(point, arguments)
        };
        let mut beyond = 64;
        while is_passed(beyond) {
            beyond *= 2;
        }
        let mut passed = 0;
        while beyond - passed > 1 {
            let middle = u64::midpoint(passed, beyond);
            if is_passed(middle) { passed = middle } else { beyond = middle }
        }
        passed
    }

    fn with_failure(&self, point: u64, arguments: &[&str], turn: u64) -> crate::fixture::Finished {
        self.reset();
        // Every point meets another error in the next turn; and in every second one it stays.
        let error = ERRORS[((point / 2 + turn) % 6) as usize];
        let stays = if turn % 2 == 1 { "+" } else { "" };
        let mut command = self.fixture.command(arguments);
        command.env("NONO_FAIL_POINT", format!("{point}{stays}:{error}"));
        let done = finished(command.output().unwrap());
        let what = format!("{error}{stays} at point {point}: {}", done.stderr);
        assert!(matches!(done.code, 0 | 1), "{what}");
        assert!(!done.stderr.contains("panicked"), "{what}");
        done
    }
}

#[test]
fn a_capture_in_which_any_call_fails_harms_nothing() {
    let scene = Scene::new();
    let arguments = ["snapshot", "--session", &scene.session];
    let count = scene.point_count(&arguments);
    let mut failed = 0;
    for turn in 0..2 {
        for point in (1..=count).step_by(2) {
            let done = scene.with_failure(point, &arguments, turn);
            failed += done.code;
            assert_same(&scene.old, &scene.tree());
            scene.verify(point);
            scene.fixture.nono(&arguments).success();
        }
    }
    assert!(failed > 20, "{failed}");
    eprintln!("capture: {count} points, {failed} of the failures were fatal");
}

#[test]
fn a_restore_in_which_any_call_fails_is_done_or_taken_back_or_resumable() {
    let scene = Scene::new();
    let restore = scene.restore(0);
    let arguments = as_strs(&restore);
    let count = scene.point_count(&arguments);
    let (mut failed, mut resumable, mut partial) = (0, 0, 0);
    for turn in 0..2 {
        for point in (1..=count).step_by(2) {
            let done = scene.with_failure(point, &arguments, turn);
            failed += done.code;
            let what = format!("at point {point}, turn {turn}: {}", done.stderr);
            let is_clean = !scene.has_journal() && scene.staging().is_empty();
            assert!(is_clean || done.code != 0, "{what}");
            for staging in scene.staging() {
                assert!(done.says(&staging), "{staging} is not named {what}");
            }
            if scene.has_journal() && scene.has_work() {
                resumable += 1;
                let way: &[&str] = if point % 4 == 1 {
                    &["rollback", "resume"]
                } else {
                    &["rollback", "resume", "--abort"]
                };
                scene.fixture.nono(way).success();
            }
            // Clears staging up, if the error kept the restore from doing so.
            scene.verify(point);
            if done.code == 0 {
                assert_same(&scene.new, &scene.tree());
            }
            let (now, old, new) = (scene.tree(), contents(&scene.old), contents(&scene.new));
            let now = contents(&now);
            if done.says("no space to keep what is there now") {
                // Each path is in one of the two states, and with space the rest follows.
                partial += 1;
                let is_known =
                    |(path, state)| old.get(path) == Some(state) || new.get(path) == Some(state);
                assert!(done.code == 1 && now.iter().all(is_known), "{what}\n{now:#?}");
                scene.fixture.nono(&arguments).success();
                assert_same(&scene.new, &scene.tree());
                continue;
            }
            assert!(now == old || now == new, "{what}\n{now:#?}");
            if point % 10 == 1 {
                scene.check_that_both_states_can_be_had();
            }
        }
    }
    assert!(partial > 5, "{partial}");
    assert!(failed > 50 && resumable > 5, "{failed}, {resumable}");
    eprintln!(
        "restore: {count} points, {failed} failures were fatal, {resumable} resumable, {partial} \
         partial"
    );
}

#[test]
fn a_resume_in_which_any_call_fails_says_what_is_left_and_is_done_by_the_next_one() {
    let scene = Scene::new();
    let restore = scene.restore(0);
    let arguments = as_strs(&restore);
    let half_way = scene.point_count(&arguments) * 3 / 4;
    let interrupt = || {
        scene.reset();
        assert!(scene.killed_at(half_way, &arguments) && scene.has_work());
    };
    let (mut failed, mut left, mut in_a_row) = (0, 0, 0);
    for point in 1.. {
        interrupt();
        let mut resume = scene.fixture.command(&["rollback", "resume"]);
        resume.env("NONO_FAIL_POINT", format!("{point}:EIO"));
        let done = finished(resume.output().unwrap());
        assert!(matches!(done.code, 0 | 1), "at point {point}: {}", done.stderr);
        if done.code == 0 {
            assert!(!scene.has_journal() && scene.staging().is_empty(), "{}", done.stderr);
            in_a_row += 1;
        } else {
            in_a_row = 0;
            failed += 1;
        }
        if done.says("it is left of the restore") {
            left += 1;
            let mut now = contents(&scene.tree());
            now.retain(|path, _| !path.to_string_lossy().contains(".nono-restore-"));
            assert_eq!(contents(&scene.new), now);
        }
        scene.fixture.nono(&["rollback", "resume"]).success();
        assert_same(&scene.new, &scene.tree());
        if in_a_row == 60 {
            break;
        }
    }
    assert!(failed > 10 && left > 0, "{failed}, {left}");
}

/// Lets a command run to a point and stop there, does something, and lets it go on.
pub fn at_point(
    fixture: &Fixture,
    point: u64,
    arguments: &[&str],
    meanwhile: impl FnOnce(),
) -> Option<crate::fixture::Finished> {
    let mut command = fixture.command(arguments);
    command.env("NONO_FAIL_POINT", format!("{point}:stop"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let status = waitpid(Some(pid), WaitOptions::UNTRACED);
    let (_, status) = status.unwrap().unwrap();
    if !status.stopped() {
        // It ended before; that it did is known now, and no other caller may wait for it.
        std::mem::forget(child);
        return None;
    }
    meanwhile();
    kill_process(pid, Signal::CONT).unwrap();
    Some(finished(child.wait_with_output().unwrap()))
}

#[test]
fn a_directory_swapped_for_a_symlink_at_any_moment_leads_nowhere() {
    let build = || {
        let fixture = Fixture::in_memory();
        for name in ["dir/sub/a", "dir/b", "other/c"] {
            fixture.write(name, "1");
        }
        fixture.nono(&["snapshot"]).success();
        for name in ["dir/sub/a", "dir/b", "other/c", "dir/sub/new"] {
            fixture.write(name, "changed");
        }
        let outside = fixture.path("outside");
        fs::create_dir_all(outside.join("sub")).unwrap();
        for name in ["sub/a", "b", "sub/new"] {
            fs::write(outside.join(name), "changed").unwrap();
        }
        fixture
    };
    let mut swaps = 0;
    for point in (1..).step_by(5) {
        let fixture = build();
        let dir = fixture.project().join("dir");
        let outside = fixture.path("outside");
        let before = observe(&outside);
        let swap = || {
            fs::rename(&dir, fixture.path("moved")).unwrap();
            symlink(&outside, &dir).unwrap();
        };
        let arguments = ["rollback", "restore", "latest"];
        let Some(done) = at_point(&fixture, point, &arguments, swap) else { break };
        swaps += 1;
        assert!(!done.stderr.contains("panicked"), "at point {point}: {}", done.stderr);
        assert_same(&before, &observe(&outside));
        fixture.nono(&["rollback", "verify", "--all"]).success();
    }
    assert!(swaps > 20, "{swaps}");
    eprintln!("swapped at {swaps} points");
}

/// A file system with a quota, on a loop device.
struct Quota<'a>(&'a Path);

impl<'a> Quota<'a> {
    fn mount(image: &Path, at: &'a Path) -> Result<Self, String> {
        let run = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output();
            match output {
                Ok(output) if output.status.success() => Ok(()),
                Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
                Err(error) => Err(format!("{program}: {error}")),
            }
        };
        let file = fs::File::create(image).map_err(|error| error.to_string())?;
        file.set_len(256 << 20).map_err(|error| error.to_string())?;
        let (image, path) = (image.to_str().unwrap(), at.to_str().unwrap());
        run("mkfs.btrfs", &["-q", image])?;
        run("mount", &["-o", "loop", image, path])?;
        let quota = Self(at);
        run("btrfs", &["quota", "enable", path])?;
        run("btrfs", &["qgroup", "limit", "20M", path])?;
        run("btrfs", &["quota", "rescan", "-w", path])?;
        Ok(quota)
    }
}

impl Drop for Quota<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

#[test]
fn a_quota_stops_a_restore_before_it_changes_anything() {
    let fixture = Fixture::in_memory();
    let project = fixture.project();
    let image = fixture.path("image");
    let quota = match Quota::mount(&image, &project) {
        Ok(quota) => quota,
        Err(error) => {
            not_run(format_args!("no file system with quotas can be made here: {error}"));
            return;
        }
    };
    for number in 0..10 {
        // Nothing that could be compressed or shared.
        let mut content = vec![number; 1 << 20];
        content.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= ((at * 31) >> 7) as u8);
        fixture.write(&format!("file{number}"), content);
    }
    let before = observe(&project);
    fixture.nono(&["snapshot"]).success();
    for number in 0..10 {
        fs::remove_file(project.join(format!("file{number}"))).unwrap();
    }
    let mut filler = vec![7u8; 15 << 20];
    filler.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= ((at * 17) >> 5) as u8);
    fixture.write("filler", filler);
    assert!(Command::new("sync").arg("-f").arg(&project).status().unwrap().success());
    let full = observe(&project);
    // The file system has space, and the filler is not meant.
    let refused = fixture.nono(&["rollback", "restore", "latest", "file*"]).fails(1, "uota");
    assert!(refused.stderr.contains("nothing was changed"), "{}", refused.stderr);
    assert_same(&full, &observe(&project));
    // Too little goes anyway: 1 MiB.
    fs::rename(project.join("filler"), project.join("kept")).unwrap();
    fixture.write("file00", vec![1; 1 << 20]);
    let refused = fixture.nono(&["rollback", "restore", "latest", "file*"]).fails(1, "uota");
    assert!(refused.stderr.contains("nothing was changed"), "{}", refused.stderr);
    assert!(project.join("file00").exists());
    // Enough does.
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&before, &observe(&project));
    drop(quota);
}
