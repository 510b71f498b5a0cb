//! The main job through the real program: record, look, undo, prove.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::fixture::Fixture;
use crate::observe::{assert_same, observe};

#[test]
fn a_recorded_command_is_listed_shown_and_undone() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "one\n");
    fixture.write("src/main.rs", "fn main() {}\n");
    let before = observe(&fixture.project());
    let run = fixture.record("echo two >> a.txt; rm -r src; mkdir new; echo n > new/file; exit 7");
    assert_eq!(run.code, 7, "{}", run.stderr);
    assert!(run.stderr.contains("nono rollback restore"), "{}", run.stderr);

    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    let session = &list[0];
    assert_eq!(session["status"], "completed");
    assert_eq!(session["exit_code"], 7);
    assert_eq!(session["snapshot_count"], 2);
    assert_eq!(session["changes"]["created"], 2);
    assert_eq!(session["changes"]["modified"], 1);
    assert_eq!(session["changes"]["deleted"], 2);
    assert_eq!(session["tracked_paths"][0], fixture.project().to_str().unwrap());

    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    let changes = show["snapshots"][1]["changes"].as_array().unwrap();
    let of = |name: &str| {
        let path = fixture.project().join(name);
        changes.iter().find(|change| change["path"] == path.to_str().unwrap()).unwrap().clone()
    };
    assert_eq!(of("a.txt")["change_type"], "modified");
    assert_eq!(of("a.txt")["size_delta"], 4);
    assert_eq!(of("src/main.rs")["change_type"], "deleted");
    assert_eq!(of("new/file")["change_type"], "created");

    let dry = fixture.nono(&["rollback", "restore", "latest", "--dry-run", "--json"]).success();
    assert!(fixture.project().join("new/file").exists());
    let done = fixture.nono(&["rollback", "restore", "latest", "--json"]).success().json();
    assert_eq!(dry.json()["changes"], done["changes"]);
    assert_eq!(done["safety_snapshot"], 2);
    assert_same(&before, &observe(&fixture.project()));
    let verify = fixture.nono(&["rollback", "verify", "latest", "--json"]).success().json();
    assert_eq!(verify["ok"], true);
    assert_eq!(verify["snapshots"].as_array().unwrap().len(), 3);
}

#[test]
fn the_older_name_undo_is_the_same() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    fixture.nono(&["undo", "restore", "latest"]).success();
    assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"1");
    // Sessions of the older place are seen too.
    fs::rename(fixture.store(), fixture.path("home/.nono/undo")).unwrap();
    assert_eq!(fixture.nono(&["undo", "list", "--json"]).json().as_array().unwrap().len(), 1);
    fixture.nono(&["undo", "verify", "--all"]).success();
}

#[test]
fn what_was_not_captured_is_there_unchanged_after_every_restore() {
    for fixture in [Fixture::new(), Fixture::ordinary_user()] {
        fixture.write(".gitignore", ".env\n");
        fixture.write(".env", "SECRET=1");
        fixture.write("node_modules/x/index.js", "module");
        fixture.write("a", "1");
        let unreadable = fixture.write("unreadable", "mine");
        fs::set_permissions(&unreadable, fs::Permissions::from_mode(0o000)).unwrap();
        let arguments = ["run", "--rollback", "--rollback-exclude", "node_modules", "--"];
        // The command also takes the ignore rule away: what it names is still none of its doing.
        let script = "echo 2 > a; rm .gitignore; echo more >> .env; chmod 600 unreadable";
        fixture.nono(&[&arguments[..], &["sh", "-c", script]].concat()).success();
        let restored = fixture.nono(&["rollback", "restore", "latest"]);
        assert!(restored.code == 0 || restored.code == 1, "{}", restored.stderr);
        let read = |name: &str| fs::read_to_string(fixture.project().join(name)).unwrap();
        assert_eq!(read("a"), "1");
        assert_eq!(read(".env"), "SECRET=1more\n");
        assert_eq!(read("node_modules/x/index.js"), "module");
        assert_eq!(read("unreadable"), "mine");
        assert_eq!(read(".gitignore"), ".env\n");
    }
}

#[test]
fn ignoring_a_file_hides_nothing_that_is_done_to_it() {
    let fixture = Fixture::new();
    fixture.write("src/a", "1");
    fixture.record("echo '*' > .gitignore; echo 2 > src/a").success();
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).json();
    let changes = show["snapshots"][1]["changes"].to_string();
    assert!(changes.contains("src/a"), "{changes}");
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("src/a")).unwrap(), "1");
}

#[test]
fn a_restore_refuses_to_guess_about_a_file_that_it_cannot_read() {
    let fixture = Fixture::ordinary_user();
    fixture.write("a", "1");
    fixture.record("echo 2 > a; chmod 000 a").success();
    let restored = fixture.nono(&["rollback", "restore", "latest", "--json"]).fails(1, "");
    let report = restored.json();
    assert_eq!(report["changes"].as_array().unwrap().len(), 0);
    assert!(report["skipped"][0]["path"].as_str().unwrap().ends_with("/a"));
    fs::set_permissions(fixture.project().join("a"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "2\n");
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
}

#[test]
fn an_ordinary_user_gets_everything_back_that_is_his() {
    let fixture = Fixture::ordinary_user();
    fixture.write("a", "1");
    fixture.write("dir/b", "2");
    let before = observe(&fixture.project());
    // Directories that forbid writing are in the way of an ordinary user only.
    fixture.record("rm a; chmod 700 dir; echo 3 > dir/c; rm dir/b; chmod 500 dir").success();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn a_tracked_path_that_was_removed_or_replaced_comes_back() {
    for script in [
        "rm -r ../project",
        "rm -r ../project; ln -s /etc ../project",
        "rm -r ../project; echo x > ../project",
    ] {
        let fixture = Fixture::new();
        fixture.write("dir/a", "1");
        let before = observe(&fixture.project());
        let project = fixture.project();
        let mut run = fixture.command(&[
            "run",
            "--rollback",
            "--no-sandbox",
            "--allow",
            project.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            &script.replace("../project", project.to_str().unwrap()),
        ]);
        let run = crate::fixture::finished(run.current_dir(fixture.path("home")).output().unwrap());
        assert_eq!(run.code, 0, "{script}: {}", run.stderr);
        let id = run.stderr.split("session ").nth(1).unwrap().split(':').next().unwrap().to_owned();
        let mut restore = fixture.command(&["rollback", "restore", &id]);
        let done =
            crate::fixture::finished(restore.current_dir(fixture.path("home")).output().unwrap());
        assert_eq!(done.code, 0, "{script}: {}", done.stderr);
        assert_same(&before, &observe(&fixture.project()));
    }
}

#[test]
fn a_single_file_is_tracked_alone() {
    let fixture = Fixture::new();
    let file = fixture.write("one", "1");
    fixture.write("other", "1");
    let other = fixture.project().join("other");
    let arguments = ["run", "--rollback", "--allow", file.to_str().unwrap()];
    let write = ["--write", other.to_str().unwrap(), "--", "sh", "-c"];
    let script = ["echo 2 > one; echo 2 > other"];
    fixture.nono(&[&arguments[..], &write, &script].concat()).success();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(fs::read_to_string(&file).unwrap(), "1");
    assert_eq!(fs::read_to_string(fixture.project().join("other")).unwrap(), "2\n");
    assert_eq!(fs::read_dir(fixture.project()).unwrap().count(), 2, "something was left behind");
}

#[test]
fn open_sessions_collect_snapshots() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let first = fixture.nono(&["snapshot", "--json"]).success().json();
    assert_eq!(first["number"], 0);
    let id = first["session_id"].as_str().unwrap();
    fixture.write("a", "22");
    let second = fixture.nono(&["snapshot", "--session", id, "--json"]).success().json();
    assert_eq!(second["number"], 1);
    assert_eq!(second["changes"][0]["size_delta"], 1);
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["status"], "open");
    let diff =
        fixture.nono(&["rollback", "diff", &format!("{id}/0"), &format!("{id}/1")]).success();
    assert!(diff.stdout.contains("-1\n") && diff.stdout.contains("+22\n"), "{}", diff.stdout);
    fixture.nono(&["rollback", "restore", id, "--snapshot", "0"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
}

#[test]
fn an_unchanged_tree_is_not_read_again_and_writes_next_to_nothing() {
    let fixture = Fixture::new();
    for number in 0..300 {
        fixture.write(&format!("d{}/f{number}", number % 20), number.to_string());
    }
    // What is as new as the cache is read again by design, so let the files settle: the clock that
    // stamps them ticks at least every 10 ms.
    let newest = fs::metadata(fixture.write("last", "")).unwrap();
    while nono::sys::coarse_now().seconds * 1_000_000_000
        + i64::from(nono::sys::coarse_now().nanoseconds)
        <= std::os::unix::fs::MetadataExt::ctime(&newest) * 1_000_000_000
            + std::os::unix::fs::MetadataExt::ctime_nsec(&newest)
    {
        std::thread::yield_now();
    }
    fixture.nono(&["snapshot"]).success();
    // In the same session, and in the next one.
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    let manifest = |number: u64| -> serde_json::Value {
        let path = fixture.session().join(format!("snapshots/{number}/manifest.json"));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    };
    let again = manifest(1);
    assert_eq!(
        (again["files_read"].as_u64(), again["objects_written"].as_u64()),
        (Some(0), Some(0))
    );
    fixture.nono(&["snapshot"]).success();
    let next = manifest(0);
    assert_eq!((next["files_read"].as_u64(), next["objects_written"].as_u64()), (Some(0), Some(0)));
    fixture.write("d3/f3", "changed");
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    let changed = manifest(1);
    assert_eq!(changed["files_read"], 1);
    assert!(changed["objects_written"].as_u64().unwrap() < 20);
}

#[test]
fn setting_the_time_back_fools_nothing() {
    let fixture = Fixture::new();
    let file = fixture.write("a", "1");
    fixture.nono(&["snapshot"]).success();
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, "2").unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
    let taken = fixture.nono(&["snapshot", "--session", "latest", "--json"]).success().json();
    assert_eq!(taken["changes"].as_array().unwrap().len(), 1, "{taken}");
}

#[test]
fn killing_the_supervisor_leaves_a_session_that_can_be_undone() {
    use std::io::BufRead;
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let script = "echo 2 > a; echo $$; exec sleep 600";
    let mut child = fixture
        .command(&["run", "--rollback", "--", "sh", "-c", script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let orphan = rustix::process::Pid::from_raw(line.trim().parse().unwrap()).unwrap();
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["status"], "running");
    child.kill().unwrap();
    child.wait().unwrap();
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["status"], "interrupted");
    assert_eq!(list[0]["snapshot_count"], 1);
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
    // The orphaned command is no child of this test any more.
    rustix::process::kill_process(orphan, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn signals_reach_the_command_and_its_end_is_recorded() {
    use std::io::Read;
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let script = "trap 'echo 3 > a; exit 9' TERM; echo 2 > a; echo ready; \
                  while :; do sleep 0.1; done";
    let mut child = fixture
        .command(&["run", "--rollback", "--", "sh", "-c", script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!((&list[0]["exit_code"], &list[0]["status"]), (&9.into(), &"completed".into()));
    let killed = fixture.record("kill -KILL $$");
    assert_eq!(killed.code, 128 + 9);
}
