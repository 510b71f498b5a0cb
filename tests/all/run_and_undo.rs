//! The main job through the real program: record, look, undo, prove.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::fixture::{Fixture, settle};
use crate::not_run::needs_root;
use crate::observe::{assert_same, observe};

#[test]
fn a_recorded_command_is_listed_shown_and_undone() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "one\n");
    fixture.write("src/main.rs", "fn main() {}\n");
    let before = observe(&fixture.project());
    let run = fixture.record("echo two >> a.txt; rm -r src; mkdir new; echo n > new/file; exit 7");
    assert_eq!(run.code, 7, "{}", run.stderr);
    assert!(run.stderr.contains("undo it: nono undo"), "{}", run.stderr);

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
        let fixture = fixture.ignored("none");
        fixture.write(".gitignore", ".env\n");
        fixture.write(".env", "SECRET=1");
        fixture.write("node_modules/x/index.js", "module");
        fixture.write("a", "1");
        let unreadable = fixture.write("unreadable", "mine");
        fs::set_permissions(&unreadable, fs::Permissions::from_mode(0o000)).unwrap();
        let arguments = ["run", "--rollback", "--rollback-exclude", "node_modules", "--"];
        // The command also takes the ignore rule away: the ignored path is still none of its doing.
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
fn an_ordinary_user_gets_back_a_tree_of_directories_that_may_not_be_written() {
    let fixture = Fixture::ordinary_user();
    fixture.write("tree/a/b/c", "1");
    fixture.write("tree/d/e", "2");
    fixture.record("chmod -R a-w tree").success();
    let before = observe(&fixture.project());
    fixture.record("chmod -R u+w tree; rm -r tree").success();
    let after = observe(&fixture.project());
    let restore = ["rollback", "restore", "latest"];
    let remove = || {
        let script = "chmod -R u+w tree; rm -r tree";
        let status = std::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(fixture.project())
            .status();
        assert!(status.unwrap().success());
    };
    // It fails at each point in turn, with a tree staged or not, and nothing is left behind. Some
    // failures are in the way of nothing.
    let (mut failures, mut in_a_row, mut after) = (0, 0, after);
    for point in 1.. {
        let mut command = fixture.command(&restore);
        command.env("NONO_FAIL_POINT", format!("{point}:EIO"));
        let restored = crate::fixture::finished(command.output().unwrap());
        let is_restored = restored.code == 0 || restored.says("it is left of the restore");
        // Clears up, where the failure was in the way of that.
        if fixture.nono(&["rollback", "list"]).success().stderr.contains("was interrupted") {
            assert_ne!(restored.code, 0);
            let abort: &[&str] = if is_restored { &[] } else { &["--abort"] };
            fixture.nono(&[&["rollback", "resume"], abort].concat()).success();
        }
        if is_restored {
            assert_same(&before, &observe(&fixture.project()));
            in_a_row += 1;
            if in_a_row == 40 {
                break;
            }
            remove();
            after = observe(&fixture.project());
        } else {
            assert_same(&after, &observe(&fixture.project()));
            failures += 1;
            in_a_row = 0;
        }
    }
    assert!(failures > 20, "{failures}");
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
    // A session of a file is here where the file lies, and not above.
    let mut above = fixture.command(&["rollback", "restore", "latest"]);
    let above = crate::fixture::finished(above.current_dir(fixture.path("")).output().unwrap());
    above.fails(1, "no session has recorded");
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
    // A file that is as new as the cache is read again by design.
    settle();
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
    // The orphaned command is no child of this test any more.
    rustix::process::kill_process(orphan, rustix::process::Signal::KILL).unwrap();
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["status"], "interrupted");
    assert_eq!(list[0]["snapshot_count"], 1);
    let list = fixture.nono(&["rollback", "list"]).success().stdout;
    assert!(list.contains("end not recorded") && !list.contains("no changes"), "{list}");
    // Against what is there now, and without writing anything.
    fixture.write("later", "text\n");
    let before = observe(&fixture.store());
    let show = fixture.nono(&["rollback", "show", "latest"]).success().stdout;
    assert!(show.contains("+1 file ~1 modified") && show.contains("+ created     later"), "{show}");
    let json = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    assert_eq!(json["now"]["changes"][0]["change_type"], "modified", "{json}");
    let patch = fixture.nono(&["rollback", "show", "latest", "--diff"]).success().stdout;
    assert!(patch.contains("-1\n") && patch.contains("\n+2\n"), "{patch}");
    assert!(patch.contains("+text"), "{patch}");
    assert_same(&before, &observe(&fixture.store()));
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
    assert!(!fixture.project().join("later").exists());
    let show = fixture.nono(&["rollback", "show", "latest"]).success().stdout;
    assert!(show.contains("(not recorded)\n  no changes"), "{show}");
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

#[test]
fn what_is_force_included_below_an_excluded_directory_comes_back() {
    let fixture = Fixture::new();
    fixture.write("node_modules/keep", "mine");
    fixture.write("node_modules/other", "theirs");
    let arguments = [
        "run",
        "--rollback",
        "--rollback-exclude",
        "node_modules",
        "--rollback-include",
        "node_modules/keep",
        "--",
        "sh",
        "-c",
        "rm node_modules/keep; echo changed > node_modules/other",
    ];
    fixture.nono(&arguments).success();
    let restored = fixture.nono(&["rollback", "restore", "latest"]);
    let restored = restored.fails(1, "not recorded and changed: ");
    assert!(!restored.says("skipped"), "{}", restored.stdout);
    let read = |name: &str| fs::read_to_string(fixture.project().join(name)).unwrap();
    assert_eq!(read("node_modules/keep"), "mine");
    assert_eq!(read("node_modules/other"), "changed\n");
}

#[test]
fn what_was_unreadable_below_a_forced_directory_is_left_alone() {
    let fixture = Fixture::ordinary_user();
    fixture.write("ex/b/c", "never captured");
    fs::set_permissions(fixture.project().join("ex/b"), fs::Permissions::from_mode(0o000)).unwrap();
    let arguments = [
        "run",
        "--rollback",
        "--rollback-exclude",
        "ex",
        "--rollback-include",
        "ex/b",
        "--",
        "chmod",
        "755",
        "ex/b",
    ];
    fixture.nono(&arguments).success();
    fixture.nono(&["rollback", "restore", "latest"]);
    let inside = fixture.project().join("ex/b");
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(fs::read_to_string(inside.join("c")).unwrap(), "never captured");
}

#[test]
fn links_that_were_broken_are_told_and_made_again_without_a_trace() {
    let fixture = Fixture::new();
    fixture.write("a/x", "linked");
    fs::create_dir(fixture.project().join("c")).unwrap();
    fs::hard_link(fixture.project().join("a/x"), fixture.project().join("c/y")).unwrap();
    let past = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    fs::File::open(fixture.project().join("c")).unwrap().set_times(past).unwrap();
    let before = observe(&fixture.project());
    let run = fixture.record("cp -p a/x a/z; mv a/z a/x").success();
    assert!(run.stderr.contains("~2 modified"), "{}", run.stderr);
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn a_device_in_the_way_is_named_and_the_rest_is_restored() {
    if !rustix::process::geteuid().is_root() {
        needs_root("makes devices");
        return;
    }
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.write("b", "1");
    fixture.write("dir/c", "1");
    let script = "rm a; mkdir a; mknod a/null c 1 3; echo 2 > b; rm -r dir; mkdir -p dir/new/deep \
                  gone; mknod dir/new/deep/null c 1 3; touch dir/new/e gone/f";
    fixture.nono(&["run", "--rollback", "--no-sandbox", "--", "sh", "-c", script]).success();
    let restored = fixture.nono(&["rollback", "restore", "latest"]).fails(1, "not as they were");
    assert!(restored.stdout.contains("device"), "{}", restored.stdout);
    assert_eq!(fs::read_to_string(fixture.project().join("b")).unwrap(), "1");
    assert!(fixture.project().join("a/null").exists());
    assert!(fixture.project().join("dir/new/deep/null").exists());
    assert_eq!(fs::read_to_string(fixture.project().join("dir/c")).unwrap(), "1");
    assert!(!fixture.project().join("dir/new/e").exists());
    assert!(!fixture.project().join("gone").exists());
    let reasons = restored.stdout.matches("holds a device, which stays").count();
    assert_eq!(reasons, 3, "{}", restored.stdout);
}

#[test]
fn a_session_without_its_manifest_is_noticed() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.nono(&["snapshot"]).success();
    fs::remove_file(fixture.session().join("manifest.json")).unwrap();
    fixture.nono(&["rollback", "list"]).fails(1, "no manifest");
    let verified = fixture.nono(&["rollback", "verify", "--all", "--json"]);
    assert!(verified.stdout.contains("session_id"), "{}", verified.stdout);
}

#[test]
fn latest_is_no_older_session_because_the_newest_cannot_be_read() {
    let fixture = Fixture::new();
    for content in ["one", "two"] {
        fixture.write("f", content);
        fixture.nono(&["snapshot"]).success();
    }
    let id = fixture.latest();
    let manifest = fixture.session().join("manifest.json");
    let whole = fs::read(&manifest).unwrap();
    fixture.write("f", "three");
    for damage in [Some(&whole[..10]), None] {
        match damage {
            Some(rest) => fs::write(&manifest, rest).unwrap(),
            None => fs::remove_file(&manifest).unwrap(),
        }
        for arguments in [
            &["rollback", "restore", "latest", "--force"][..],
            &["rollback", "show", "latest"],
            &["rollback", "cat", "latest", "f"],
            &["snapshot", "--session", "latest"],
        ] {
            let failed =
                fixture.nono(arguments).fails(1, &format!("session {id} may be the latest"));
            let hint = format!("nono verify {id} --repair");
            assert!(failed.stderr.contains(&hint), "{}", failed.stderr);
        }
        assert_eq!(fs::read_to_string(fixture.project().join("f")).unwrap(), "three");
        if damage.is_some() {
            // As the hint says.
            fixture.nono(&["rollback", "verify", &id, "--repair"]).success();
        } else {
            fs::write(&manifest, &whole).unwrap();
        }
        let shown = fixture.nono(&["rollback", "cat", "latest", "f"]).success().stdout;
        assert_eq!(shown, "two");
    }
    // One that is surely older is ignored, and so is what was never a session.
    fs::write(&manifest, "{").unwrap();
    fs::create_dir_all(fixture.store().join("99991231-000000-1/snapshots")).unwrap();
    fixture.nono(&["snapshot"]).success();
    let shown = fixture.nono(&["rollback", "cat", "latest", "f"]).success().stdout;
    assert_eq!(shown, "three");
}

#[test]
fn many_sessions_need_few_descriptors() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    for _ in 0..40 {
        fixture.nono(&["snapshot"]).success();
    }
    let program = fixture.command(&[]).get_program().to_owned();
    let run = |arguments: &str| {
        let script = format!("ulimit -n 32; exec \"$0\" {arguments}");
        let command = fixture.command(&[]);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).arg(&program).current_dir(fixture.project());
        shell.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        crate::fixture::finished(shell.output().unwrap())
    };
    run("rollback list --all").success();
    run("rollback verify --all").success();
    run("rollback cleanup --keep 38 --yes").success();
}

#[test]
fn a_plan_writes_nothing() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.nono(&["snapshot"]).success();
    fs::remove_file(fixture.store().join("objects/.generation")).unwrap();
    fixture.write("a", "2");
    fixture.write("b", "new contents");
    let before = observe(&fixture.store());
    fixture.nono(&["rollback", "restore", "latest", "--dry-run"]).success();
    assert_same(&before, &observe(&fixture.store()));
}

#[test]
fn a_damaged_snapshot_does_not_stop_the_next_one() {
    let fixture = Fixture::new();
    fixture.write("d/a", "1");
    fixture.nono(&["snapshot"]).success();
    let id = fixture.latest();
    // Break every tree of the first snapshot.
    let mut broken = 0;
    for prefix in fs::read_dir(fixture.store().join("objects")).unwrap() {
        let prefix = prefix.unwrap().path();
        for object in fs::read_dir(&prefix).into_iter().flatten() {
            let object = object.unwrap().path();
            if fs::read(&object).unwrap().starts_with(b"nonotree") {
                fs::remove_file(&object).unwrap();
                broken += 1;
            }
        }
    }
    assert_eq!(broken, 2);
    fs::remove_dir_all(fixture.store().join("index")).unwrap();
    fixture.write("d/a", "2");
    fixture.nono(&["snapshot", "--session", &id]).fails(1, "snapshot 1 was recorded");
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["snapshot_count"], 2);
    fixture.write("d/a", "3");
    fixture.nono(&["snapshot", "--session", &id]).success();
    fixture.nono(&["rollback", "restore", &id, "--snapshot", "1"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("d/a")).unwrap(), "2");
}
