//! Two projects in one store: the meaning of a command without an id, from any directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::fixture::{Finished, Fixture, finished, settle};
use crate::held::{Held, Waiting};
use nono_engine::restore::{RestoreError, RestoreOptions, RunsAtWork};
use nono_engine::snapshot::SnapshotManager;

/// Projects in the home directory of a fixture, one store.
pub struct Projects {
    pub fixture: Fixture,
}

impl Projects {
    /// `q1` and `q2`, each with a file of its own and a directory `sub`.
    pub fn new() -> Self {
        let projects = Self { fixture: Fixture::new() };
        for name in ["q1", "q2"] {
            let project = projects.dir(name);
            fs::create_dir_all(project.join("sub")).unwrap();
            fs::write(project.join("file"), name).unwrap();
            fs::write(project.join("sub/deep"), name).unwrap();
        }
        projects
    }

    /// A path below `~/dev`.
    pub fn dir(&self, name: &str) -> PathBuf {
        self.fixture.path("home/dev").join(name)
    }

    /// Runs nono in a directory below `~/dev`.
    pub fn nono(&self, dir: &str, arguments: &[&str]) -> Finished {
        self.nono_at(&self.dir(dir), arguments)
    }

    pub fn nono_at(&self, dir: &Path, arguments: &[&str]) -> Finished {
        let mut command = self.fixture.command(arguments);
        finished(command.current_dir(dir).stdin(Stdio::null()).output().unwrap())
    }

    /// Records a script in a project; its session.
    pub fn record(&self, dir: &str, script: &str) -> String {
        self.nono(dir, &["run", "--rollback", "--", "sh", "-c", script]).success();
        self.fixture.latest()
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir(path)).unwrap()
    }

    /// The session that `show` without an id means.
    fn shown(&self, dir: &str) -> String {
        let shown = self.nono(dir, &["rollback", "show", "--json"]).success().json();
        shown["session_id"].as_str().unwrap().to_owned()
    }
}

/// One session in each project, that of `q2` the newer one.
fn recorded() -> (Projects, String, String) {
    let projects = Projects::new();
    let first = projects.record("q1", "echo changed > file; echo changed > sub/deep");
    let second = projects.record("q2", "echo changed > file; echo changed > sub/deep");
    (projects, first, second)
}

#[test]
fn latest_and_no_id_mean_the_project_of_the_current_directory() {
    let (projects, first, second) = recorded();
    for (dir, id) in [("q1", &first), ("q1/sub", &first), ("q2", &second), ("q2/sub", &second)] {
        assert_eq!(projects.shown(dir), *id, "{dir}");
        let status = projects.nono(dir, &["status", "--json"]).success().json();
        assert_eq!(status["session"]["session_id"], **id, "{dir}");
        for arguments in [
            &["rollback", "verify", "--json"][..],
            &["rollback", "verify", "latest", "--json"],
            &["rollback", "show", "latest/0", "--json"],
            &["undo", "show", "--json"],
            &["rollback", "restore", "--dry-run", "--json"],
            &["rollback", "restore", "latest", "--dry-run", "--json"],
        ] {
            let report = projects.nono(dir, arguments).success().json();
            assert_eq!(report["session_id"], **id, "{dir}: {arguments:?}");
        }
        for arguments in
            [&["rollback", "diff", "--json"][..], &["undo", "diff", "latest", "--json"]]
        {
            let report = projects.nono(dir, arguments).success().json();
            assert_eq!(report["old"]["session_id"], **id, "{dir}: {arguments:?}");
        }
        let file = projects.nono(dir, &["rollback", "cat", "latest", "sub/deep"]);
        // A path in the subdirectory itself is not in the snapshot.
        let expected = if dir.contains("sub") { "" } else { &dir[..2] };
        assert_eq!(file.stdout, expected, "{dir}: {}", file.stderr);
    }
}

#[test]
fn a_restore_of_latest_touches_only_the_project_where_it_is_typed_and_names_it() {
    let (projects, first, _) = recorded();
    let done = projects.nono("q1/sub", &["rollback", "restore", "latest"]).success();
    assert_eq!(projects.read("q1/file"), "q1");
    assert_eq!(projects.read("q2/file"), "changed\n", "the newer session of the other project");
    let lines: Vec<_> = done.stderr.lines().collect();
    let (begin, end) = (lines.first().unwrap(), lines.last().unwrap());
    assert!(begin.contains("~/dev/q1") && begin.contains(&first), "{}", done.stderr);
    assert!(
        end.contains("in ~/dev/q1, ") && end.contains("take this back: nono redo"),
        "{}",
        done.stderr
    );
}

#[test]
fn an_explicit_id_works_from_anywhere() {
    let (projects, first, second) = recorded();
    projects.nono("q1", &["rollback", "restore", &second]).success();
    assert_eq!(projects.read("q2/file"), "q2");
    assert_eq!(projects.read("q1/file"), "changed\n");
    let elsewhere = projects.fixture.path("home");
    projects.nono_at(&elsewhere, &["rollback", "restore", &first]).success();
    assert_eq!(projects.read("q1/file"), "q1");
}

#[test]
fn where_nothing_is_recorded_the_newest_session_elsewhere_is_named() {
    let (projects, _, second) = recorded();
    fs::create_dir(projects.dir("q3")).unwrap();
    for arguments in [
        &["undo", "--yes"][..],
        &["redo"],
        &["rollback", "restore"],
        &["rollback", "restore", "latest"],
        &["rollback", "show"],
        &["rollback", "diff"],
        &["rollback", "review"],
        &["rollback", "verify"],
        &["rollback", "cat", "latest", "file"],
        &["rollback", "resume", "latest"],
        &["snapshot", "--session", "latest"],
    ] {
        let refused = projects.nono("q3", arguments).fails(1, "no session has recorded");
        for named in [second.as_str(), "~/dev/q2", "nono show"] {
            assert!(refused.says(named), "{arguments:?}: {}", refused.stderr);
        }
    }
    assert!(projects.nono("q3", &["status"]).success().says("no session has recorded"));
    assert_eq!(projects.read("q2/file"), "changed\n");
}

#[test]
fn who_looks_may_stand_above_one_project_and_who_restores_may_not() {
    let projects = Projects::new();
    let first = projects.record("q1", "echo changed > file");
    assert_eq!(projects.shown(""), first);
    let status = projects.nono("", &["status", "--json"]).success().json();
    assert_eq!(status["session"]["session_id"], first);
    projects.nono("", &["rollback", "restore"]).fails(1, "no session has recorded");
    projects.nono("", &["undo", "--yes"]).fails(1, "no session has recorded");
    assert_eq!(projects.read("q1/file"), "changed\n");

    projects.record("q2", "echo changed > file");
    let refused = projects.nono("", &["rollback", "show"]).fails(1, "several projects are below");
    assert!(refused.says("dev/q1") && refused.says("dev/q2"), "{}", refused.stderr);
    let status = projects.nono("", &["status", "--json"]).success().json();
    assert_eq!(status["session"], serde_json::Value::Null);
    assert_eq!(status["below"].as_array().unwrap().len(), 2);
}

#[test]
fn a_session_above_comes_before_those_below() {
    let projects = Projects::new();
    let above = projects.record("", "echo new > note");
    projects.record("q1", "echo changed > file");
    assert_eq!(projects.shown(""), above);
    assert_eq!(projects.shown("q2"), above, "it tracks this directory, too");
}

#[test]
fn symlinks_to_a_project_mean_the_project() {
    let (projects, first, _) = recorded();
    symlink(projects.dir("q1"), projects.fixture.path("home/link")).unwrap();
    let through_link = projects.fixture.path("home/link/sub");
    let shown = projects.nono_at(&through_link, &["rollback", "show", "--json"]).success().json();
    assert_eq!(shown["session_id"], first);
    // Also as an argument: the symlink is on the way to the file.
    let file = projects.fixture.path("home/link/file");
    projects
        .nono_at(&through_link, &["rollback", "restore", "latest", file.to_str().unwrap()])
        .success();
    assert_eq!(projects.read("q1/file"), "q1");
    assert_eq!(projects.read("q1/sub/deep"), "changed\n");
}

#[test]
fn a_directory_that_became_a_symlink_is_restored_by_its_name() {
    let projects = Projects::new();
    projects.record("q1", "rm -r sub; ln -s ../q2/sub sub");
    projects.nono("q1", &["rollback", "restore", "latest", "sub/deep", "sub"]).success();
    assert_eq!(projects.read("q1/sub/deep"), "q1");
    assert!(!projects.dir("q1/sub").is_symlink());
    assert_eq!(projects.read("q2/sub/deep"), "q2");
}

#[test]
fn a_session_that_changed_nothing_is_passed_over_unless_there_is_no_other() {
    let projects = Projects::new();
    let idle = projects.record("q1", "true");
    assert_eq!(projects.shown("q1"), idle);
    let first = projects.record("q1", "echo changed > file");
    projects.record("q1", "true");
    assert_eq!(projects.shown("q1"), first);
    projects.nono("q1", &["rollback", "restore"]).success();
    assert_eq!(projects.read("q1/file"), "q1");
}

#[test]
fn an_unreadable_session_here_is_not_passed_over_and_one_elsewhere_is() {
    let (projects, first, second) = recorded();
    let store = projects.fixture.store();
    fs::write(store.join(&second).join("manifest.json"), "{").unwrap();
    assert_eq!(projects.shown("q1"), first, "its first snapshot says that it is elsewhere");
    let refused = projects.nono("q2", &["rollback", "restore"]).fails(1, "may be the latest");
    assert!(refused.says(&second), "{}", refused.stderr);
    projects.nono("q2", &["undo", "--yes"]).fails(1, "may be the latest");
    assert_eq!(projects.read("q2/file"), "changed\n");
    fs::write(store.join(&second).join("snapshots/0/manifest.json"), "{").unwrap();
    projects.nono("q1", &["rollback", "restore"]).fails(1, "may be the latest");
}

#[test]
fn a_mount_shows_the_whole_store() {
    let (projects, _, second) = recorded();
    let at = projects.fixture.path("home/snapshots");
    projects.nono("q1", &["mount"]).success();
    let latest = fs::read_link(at.join("latest"));
    projects.nono("q1", &["umount", at.to_str().unwrap()]).success();
    assert_eq!(latest.unwrap(), Path::new(&second), "also where it is not here");
}

#[test]
fn words_of_rollback_alone_do_what_the_whole_command_does() {
    let (projects, first, _) = recorded();
    let done = |words: &[&str]| {
        let done = projects.nono("q1", words);
        (done.code, done.stdout, done.stderr)
    };
    for words in
        [&["list"][..], &["cat", "latest", "file"], &["verify", &first], &["restore", "a b"]]
    {
        assert_eq!(done(words), done(&[&["rollback"], words].concat()), "{words:?}");
    }
    for word in ["list", "review", "restore", "cat", "resume", "verify", "cleanup"] {
        projects.nono("q1", &[word, "--no-such-flag"]).fails(2, &format!("nono {word}"));
    }
    let [alone, whole] = [&["--root", "/x", "list"][..], &["--root", "/x", "rollback", "list"]];
    assert_eq!(done(alone), done(whole));
    projects.nono("q1", &["lst"]).fails(2, "unrecognized subcommand");
}

#[test]
fn status_says_what_changed_what_is_different_now_and_what_was_interrupted() {
    let (projects, first, _) = recorded();
    let status = projects.nono("q1", &["status", "--json"]).success().json();
    assert_eq!(status["session"]["changes"]["modified"], 2);
    assert_eq!(status["session"]["undone"], false);
    assert_eq!(status["since"]["changes"].as_array().unwrap().len(), 0);
    fs::write(projects.dir("q1/later"), "x").unwrap();
    let status = projects.nono("q1", &["status", "--json"]).success().json();
    assert_eq!(status["since"]["summary"]["created"], 1);
    let shown = projects.nono("q1", &["status"]).success();
    for text in ["~/dev/q1", &first, "`sh -c", "later"] {
        assert!(shown.says(text), "{text}: {}", shown.stdout);
    }
    projects.nono("q1", &["undo", "--yes", "--keep-newer"]).success();
    let status = projects.nono("q1", &["status", "--json"]).success().json();
    assert_eq!(status["session"]["undone"], true);
    assert_eq!(status["since"]["summary"]["created"], 1, "the later file alone");
    assert_eq!(status["running"].as_array().unwrap().len(), 0);
    assert_eq!(status["interrupted"]["runs"].as_array().unwrap().len(), 0);
}

/// A run that is at work until it is released.
pub struct Working {
    pub session: String,
    child: Child,
    waiting: Waiting,
}

impl Working {
    /// Runs a script in a project, and what follows it only after the release.
    pub fn start(projects: &Projects, dir: &str, script: &str, after: &str) -> Self {
        let held = Held::on_pipe(&projects.fixture);
        let pipe = projects.fixture.path("held");
        let script = format!("{script}; read line < {}; {after}", pipe.display());
        let arguments = ["run", "--rollback", "--no-sandbox", "--", "sh", "-c", &script];
        let mut command = projects.fixture.command(&arguments);
        command.current_dir(projects.dir(dir)).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let waiting = held.wait();
        Self { session: projects.fixture.latest(), child, waiting }
    }

    /// Lets it go on to its end.
    pub fn release(self) -> Finished {
        drop(self.waiting);
        finished(self.child.wait_with_output().unwrap())
    }

    /// Its supervisor is killed.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn two_runs_on_the_same_files_are_told_of_each_other() {
    let projects = Projects::new();
    let held = Working::start(&projects, "q1", "true", "true");
    let first = held.session.clone();
    let second = projects.nono("q1/sub", &["run", "--rollback", "--", "touch", "made"]).success();
    let said_at_once = format!("session {first} is at work in ~/dev/q1 too: `sh -c");
    assert!(second.says(&said_at_once), "{}", second.stderr);
    assert!(
        second.says(&format!("session {first} worked in ~/dev/q1 meanwhile")),
        "{}",
        second.stderr
    );
    // A plain undo would be refused.
    assert!(second.says("nono undo --force") && second.says("--keep-newer"), "{}", second.stderr);
    let second = projects.fixture.latest();
    let other = projects.nono("q2", &["run", "--rollback", "--", "touch", "made"]).success();
    assert!(!other.says(&first), "elsewhere: {}", other.stderr);
    let status = projects.nono("q2", &["status", "--json"]).success().json();
    assert_eq!(status["running"][0]["session_id"], first);
    assert_eq!(status["running"][0]["here"], false);
    assert!(projects.nono("q1", &["status"]).success().says("running here"));
    let ended = held.release();
    assert!(
        ended.says(&format!("session {second} worked in ~/dev/q1/sub meanwhile")),
        "{}",
        ended.stderr
    );
    let alone = projects.nono("q1", &["run", "--rollback", "--", "touch", "more"]).success();
    assert!(!alone.says("meanwhile") && !alone.says("at work"), "{}", alone.stderr);
}

#[test]
fn a_restore_of_files_on_which_a_run_is_at_work_is_refused_without_a_terminal() {
    let projects = Projects::new();
    let first = projects.record("q1", "echo changed > file; echo changed > sub/deep");
    let held = Working::start(&projects, "q1/sub", "true", "true");
    let running = held.session.clone();
    for arguments in [
        &["rollback", "restore", first.as_str()][..],
        &["rollback", "restore", first.as_str(), "--json"],
        &["rollback", "restore", first.as_str(), "sub"],
        &["undo", "--yes"],
    ] {
        let refused =
            projects.nono("q1", arguments).fails(1, &format!("session {running} is running"));
        assert!(
            refused.says("--force") && refused.says("nothing was changed"),
            "{}",
            refused.stderr
        );
        assert_eq!(projects.read("q1/file"), "changed\n");
    }
    // So it is for a program that embeds the engine.
    let manager = SnapshotManager::open(&projects.fixture.store().join(&first)).unwrap();
    let restore = |runs_at_work| {
        manager.restore_with(0, &RestoreOptions { runs_at_work, ..RestoreOptions::default() })
    };
    for runs_at_work in [RunsAtWork::default(), RunsAtWork::Allow(vec![first.clone()])] {
        let error = restore(runs_at_work).unwrap_err();
        assert!(matches!(&error, RestoreError::RunAtWork { session, .. } if *session == running));
    }
    assert_eq!(projects.read("q1/file"), "changed\n");
    // An untouched path does not matter.
    projects.nono("q1", &["rollback", "restore", &first, "file"]).success();
    assert_eq!(projects.read("q1/file"), "q1");
    restore(RunsAtWork::Allow(vec![running])).unwrap();
    assert_eq!(projects.read("q1/sub/deep"), "q1");
    projects.nono("q1", &["redo", "--force"]).success();
    projects.nono("q1", &["rollback", "restore", &first, "--force"]).success();
    assert_eq!(projects.read("q1/sub/deep"), "q1");
    held.release();
}

#[test]
fn a_project_that_was_moved_is_named_with_its_old_place_and_a_copy_of_it_is_not() {
    let projects = Projects::new();
    settle();
    let id = projects.record("q1", "echo changed > file");
    projects.record("q2", "echo changed > file");
    let mut copy = Command::new("cp");
    copy.arg("-a").args([projects.dir("q1"), projects.dir("copy")]);
    assert!(copy.status().unwrap().success());
    fs::rename(projects.dir("q1"), projects.dir("moved")).unwrap();
    let (old, new) = (projects.dir("q1"), projects.dir("moved"));
    let back = format!("mv {} {}", new.display(), old.display());
    for dir in ["moved", "moved/sub"] {
        for arguments in [
            &["undo", "--yes"][..],
            &["redo"],
            &["rollback", "show"],
            &["rollback", "restore"],
            &["rollback", "diff"],
            &["log"],
        ] {
            let refused = projects.nono(dir, arguments).fails(1, &back);
            assert!(refused.says(&format!("nono show {id}")), "{}", refused.stderr);
        }
        assert!(projects.nono(dir, &["status"]).success().says(&back));
        let status = projects.nono(dir, &["status", "--json"]).success().json();
        assert_eq!(status["moved"]["session_id"], id);
        assert_eq!(status["moved"]["to"], new.to_str().unwrap());
    }
    let elsewhere = projects.nono("copy", &["undo", "--yes"]).fails(1, "no session has recorded");
    assert!(!elsewhere.says("mv "), "{}", elsewhere.stderr);
    fs::rename(new, old).unwrap();
    projects.nono("q1", &["undo", "--yes"]).success();
    assert_eq!(projects.read("q1/file"), "q1");
}
