//! Forks: commands in a layer over a recorded state, and the project that they do not touch.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nono_engine::sys::{Device, Dir, FileKind};

use crate::fixture::{Finished, Fixture, finished};
use crate::not_run::not_run;
use crate::terminal::{Terminal, eventually};

/// Longest wait for what another process does.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Both kinds of users, each with a small project.
fn users() -> impl Iterator<Item = Fixture> {
    let root = rustix::process::geteuid().is_root();
    let fixtures = [Some(Fixture::ordinary_user()), root.then(Fixture::new)];
    fixtures.into_iter().flatten().filter(has_forks).inspect(|fixture| {
        for (name, text) in [
            ("kept", "kept"),
            ("edited", "old\n"),
            ("gone", "gone"),
            ("dir/a", "a"),
            ("dir/b", "b"),
        ] {
            fixture.write(name, text);
        }
    })
}

/// The user of the test alone. `fusermount3` mounts for no user without a name, so the tests of
/// mounts run once more as an ordinary user who has one.
fn mounting_user() -> impl Iterator<Item = Fixture> {
    // Root comes last.
    users().last().into_iter()
}

/// Whether this machine lets the user have forks; said where not.
pub fn has_forks(fixture: &Fixture) -> bool {
    let found = fixture.nono(&["doctor", "--json"]).json();
    let forks = found.as_array().unwrap().iter().find(|finding| finding["what"] == "forks");
    let is_ok = forks.unwrap()["mend"].is_null();
    if !is_ok {
        not_run(format_args!("no forks here: {}", forks.unwrap()["found"]));
    }
    is_ok
}

/// The directory of a fork: that of its session.
fn dir_of(fixture: &Fixture, fork: &str) -> PathBuf {
    let shown = fixture.nono(&["fork", "show", fork, "--json"]).json();
    fixture.store().join("forks").join(shown["session_id"].as_str().unwrap())
}

/// A command in a fork.
fn inside(fixture: &Fixture, fork: &str, script: &str) -> Finished {
    fixture.nono(&["fork", "enter", fork, "--", "sh", "-c", script])
}

/// Everything of a directory but times of access: what it is, its attributes and its contents.
fn seen(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(path) = pending.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        let content = if stat.is_file() {
            format!("{:?}", fs::read(&path).unwrap())
        } else if stat.is_symlink() {
            format!("{:?}", fs::read_link(&path).unwrap())
        } else {
            String::new()
        };
        if stat.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let (mode, owner, mtime) = (stat.mode(), stat.uid(), (stat.mtime(), stat.mtime_nsec()));
        found.insert(path, format!("{mode:o} {owner} {mtime:?} {} {content}", stat.ino()));
    }
    found
}

/// A command that goes on in a fork until it is ended. It is inside when this returns.
struct Staying(Child);

impl Staying {
    fn start(fixture: &Fixture, fork: &str, script: &str) -> Self {
        let script = format!("{script}; echo ready; read line");
        let mut command = fixture.command(&["fork", "enter", fork, "--", "sh", "-c", &script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    /// Lets it end.
    fn end(mut self) -> Finished {
        drop(self.0.stdin.take());
        finished(self.0.wait_with_output().unwrap())
    }
}

fn changes(fixture: &Fixture, fork: &str) -> BTreeMap<String, String> {
    let shown = fixture.nono(&["fork", "show", fork, "--json"]);
    let project = fs::canonicalize(fixture.project()).unwrap();
    let shown = shown.json();
    let changes = shown["changes"].as_array().unwrap().iter();
    changes
        .map(|change| {
            let path = Path::new(change["path"].as_str().unwrap()).strip_prefix(&project).unwrap();
            let path = path.to_str().unwrap().to_owned();
            (path, change["change_type"].as_str().unwrap().to_owned())
        })
        .collect()
}

#[test]
fn a_command_in_a_fork_changes_the_fork_alone() {
    for fixture in users() {
        let before = seen(&fixture.project());
        let script = "pwd; echo new > edited; rm gone; mkdir -p made/in; echo x > made/in/file; \
                      mv dir moved; chmod 700 kept; ln -s kept link; cat edited";
        let did = fixture.nono(&["fork", "one", "--", "sh", "-c", script]).success();
        let project = fs::canonicalize(fixture.project()).unwrap();
        assert_eq!(did.stdout, format!("{}\nnew\n", project.display()));
        assert!(did.says("fork one: "), "{}", did.stderr);
        assert_eq!(seen(&fixture.project()), before);
        // The next command sees what the first one did.
        let again = inside(&fixture, "one", "cat edited moved/a; ls; test ! -e gone").success();
        assert_eq!(again.stdout, "new\naedited\nkept\nlink\nmade\nmoved\n");
        let changed = changes(&fixture, "one");
        let expected = [
            ("dir", "deleted"),
            ("dir/a", "deleted"),
            ("dir/b", "deleted"),
            ("edited", "modified"),
            ("gone", "deleted"),
            ("kept", "permissions_changed"),
            ("link", "created"),
            ("made", "created"),
            ("made/in", "created"),
            ("made/in/file", "created"),
            ("moved", "created"),
            ("moved/a", "created"),
            ("moved/b", "created"),
        ];
        let expected = expected.map(|(path, how)| (path.to_owned(), how.to_owned()));
        assert_eq!(changed, BTreeMap::from(expected));
        let patch = fixture.nono(&["fork", "diff", "one"]).success();
        assert!(patch.stdout.contains("-old\n+new\n"), "{}", patch.stdout);
        fixture.nono(&["fork", "discard", "one"]).success();
        assert_eq!(fs::read_dir(fixture.store().join("forks")).unwrap().count(), 0);
        assert_eq!(seen(&fixture.project()), before);
    }
}

#[test]
fn the_code_of_a_command_in_a_fork_is_passed_on() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        assert_eq!(inside(&fixture, "one", "exit 7").code, 7);
        assert_eq!(inside(&fixture, "one", "kill -TERM $$").code, 143);
        fixture.nono(&["fork", "enter", "one", "--", "/no/such/command"]).fails(127, "cannot run");
        fixture.nono(&["fork", "enter", "two", "--", "true"]).fails(1, "there is no fork two");
    }
}

#[test]
fn a_fork_begins_from_any_recorded_state() {
    for fixture in users() {
        fixture.record("echo recorded > edited").success();
        let id = fixture.latest();
        fixture.write("edited", "later\n");
        fixture.nono(&["fork", "before", "--from", &format!("{id}/0")]).success();
        fixture.nono(&["fork", "after", "--from", &id]).success();
        fixture.nono(&["fork", "now"]).success();
        for (fork, text) in [("before", "old\n"), ("after", "recorded\n"), ("now", "later\n")] {
            assert_eq!(inside(&fixture, fork, "cat edited").success().stdout, text, "{fork}");
        }
        // The state below stays as long as the fork does.
        fixture.nono(&["rollback", "cleanup", &id, "--yes"]).success();
        assert_eq!(inside(&fixture, "before", "cat edited").success().stdout, "old\n");
        let shown = fixture.nono(&["fork", "show", "before", "--json"]).success().json();
        let own = shown["session_id"].as_str().unwrap();
        let refused = fixture.nono(&["rollback", "cleanup", own, "--yes"]);
        assert!(refused.says("a fork begins from it"), "{}{}", refused.stdout, refused.stderr);
        assert_eq!(inside(&fixture, "before", "cat edited").success().stdout, "old\n");
        fixture.nono(&["fork", "x", "--from", "20010101-000000-1"]).fails(1, "");
        // No session of a fork is the last one here.
        assert_ne!(fixture.nono(&["undo", "--dry-run"]).code, 0);
    }
}

#[test]
fn forks_side_by_side_do_not_see_each_other() {
    for fixture in users() {
        for fork in ["one", "two"] {
            fixture.nono(&["fork", fork]).success();
        }
        let one = Staying::start(&fixture, "one", "echo 1 > edited; echo 1 > only1");
        let two = Staying::start(&fixture, "two", "echo 2 > edited; rm gone");
        // A second command in the first one sees what the other one wrote there.
        let second = inside(&fixture, "one", "cat edited only1 gone; echo 3 > edited").success();
        assert_eq!(second.stdout, "1\n1\ngone");
        let second = inside(&fixture, "two", "cat edited; ls").success();
        assert_eq!(second.stdout, "2\ndir\nedited\nkept\n");
        let list = fixture.nono(&["forks", "--json"]).success().json();
        assert_eq!(list[0]["name"], "one");
        assert!(!list[0]["processes"].as_array().unwrap().is_empty(), "{list}");
        let collisions = list[0]["collisions"].as_array().unwrap();
        let path = collisions[0]["path"].as_str().unwrap();
        assert!(path.ends_with("/edited") && collisions.len() == 1, "{list}");
        assert_eq!(collisions[0]["forks"][0], "two");
        assert_eq!(collisions[0]["project"], false);
        // A fork with a command in it stays.
        let refused = fixture.nono(&["fork", "discard", "one"]).fails(1, "fork one is in use");
        assert!(refused.says("by process"), "{}", refused.stderr);
        fixture.nono(&["fork", "rename", "one", "three"]).fails(1, "in use");
        one.end();
        two.end();
        assert_eq!(inside(&fixture, "one", "cat edited").success().stdout, "3\n");
        let list = fixture.nono(&["forks", "--json"]).success().json();
        assert_eq!(list[0]["processes"].as_array().unwrap().len(), 0, "{list}");
        let between = fixture.nono(&["fork", "diff", "one", "two", "--name-only"]).success();
        assert_eq!(between.stdout, "edited\ngone\nonly1\n");
        fixture.write("edited", "by me\n");
        let list = fixture.nono(&["forks", "--json"]).success().json();
        assert_eq!(list[0]["collisions"][0]["project"], true, "{list}");
        let text = fixture.nono(&["forks"]).success();
        assert!(text.stdout.contains("also changed in two, the project: "), "{}", text.stdout);
        fixture.nono(&["fork", "rename", "one", "three"]).success();
        assert_eq!(inside(&fixture, "three", "cat edited").success().stdout, "3\n");
        fixture.nono(&["fork", "discard", "two", "three"]).success();
        assert_eq!(fixture.nono(&["forks", "--json"]).success().stdout, "[]\n");
    }
}

#[test]
fn the_walls_stand_in_a_fork() {
    for fixture in users() {
        let outside = fixture.path("outside");
        fs::create_dir(&outside).unwrap();
        fixture.give_away(&outside);
        fs::write(outside.join("secret"), "secret").unwrap();
        fixture.give_away(&outside.join("secret"));
        fixture.nono(&["fork", "one"]).success();
        fixture.nono(&["fork", "other"]).success();
        let out = outside.display().to_string();
        let store = fs::canonicalize(fixture.store()).unwrap().display().to_string();
        let dir =
            |fork: &str| fs::canonicalize(dir_of(&fixture, fork)).unwrap().display().to_string();
        let (one, other) = (dir("one"), dir("other"));
        for namespaces in ["auto", "off"] {
            for escape in [
                format!("echo x > {out}/new"),
                format!("cat {out}/secret"),
                format!("ls {store}/forks"),
                format!("echo x > {other}/layers/0/upper/planted"),
                format!("echo x > {one}/layers/0/upper/planted"),
                format!("cat {one}/fork.json"),
                "umount .".to_owned(),
                "mknod disk b 7 0".to_owned(),
                "setfattr -n user.overlay.opaque -v y dir && \
                 getfattr -n user.overlay.opaque dir && \
                 test ! -e dir/a"
                    .to_owned(),
            ] {
                let script = format!("({escape}); echo ended $?");
                let tried = fixture.nono(&[
                    "fork",
                    "enter",
                    "one",
                    "--namespaces",
                    namespaces,
                    "--",
                    "sh",
                    "-c",
                    &script,
                ]);
                assert!(tried.stdout.contains("ended "), "{escape}: {}", tried.stderr);
                assert!(!tried.stdout.contains("ended 0"), "{escape}: {}", tried.stdout);
            }
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(changes(&fixture, "one"), BTreeMap::new());
        assert_eq!(changes(&fixture, "other"), BTreeMap::new());
        let free = fixture
            .nono(&[
                "fork",
                "enter",
                "one",
                "--no-sandbox",
                "--",
                "sh",
                "-c",
                "echo free > made; cat kept",
            ])
            .success();
        assert_eq!(free.stdout, "kept");
        assert!(!fixture.project().join("made").exists());
        let umounted = fixture.nono(&[
            "fork",
            "enter",
            "one",
            "--no-sandbox",
            "--",
            "sh",
            "-c",
            "umount -l . ; cat made",
        ]);
        let again = inside(&fixture, "one", "cat made").success();
        assert_eq!(again.stdout, "free\n", "{}", umounted.stderr);
    }
}

#[test]
fn what_a_hostile_layer_holds_is_named_and_not_taken() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        let upper = dir_of(&fixture, "one").join("layers/0/upper");
        fs::create_dir(upper.join("dir")).unwrap();
        let set = |name: &str, attribute: &str, value: &str| {
            let done = Command::new("setfattr")
                .args(["-n", attribute, "-v", value])
                .arg(upper.join(name))
                .status();
            done.is_ok_and(|status| status.success())
        };
        if !set("dir", "user.overlay.redirect", "/etc") {
            return not_run("no setfattr");
        }
        fs::write(upper.join("edited"), "").unwrap();
        assert!(set("edited", "user.overlay.metacopy", "y"));
        symlink("/etc/passwd", upper.join("out")).unwrap();
        let layer = Dir::open(&upper).unwrap();
        let is_root =
            layer.make_node(b"disk", FileKind::BlockDevice, Device { major: 7, minor: 0 }).is_ok();
        for path in ["dir", "edited", "out", "disk"] {
            fixture.give_away_link(&upper.join(path));
        }
        let shown = fixture.nono(&["fork", "show", "one"]);
        assert_eq!(shown.code, 1);
        for path in ["dir", "edited"].into_iter().chain(is_root.then_some("disk")) {
            let named =
                format!("not taken from the fork: {}", fixture.project().join(path).display());
            assert!(shown.says(&named), "{path}: {}", shown.stderr);
        }
        // A symlink is a symlink, and nothing is read through it.
        let changed = changes(&fixture, "one");
        assert_eq!(changed, BTreeMap::from([("out".to_owned(), "created".to_owned())]));
        fixture.nono(&["fork", "discard", "one"]).success();
        assert!(Path::new("/etc/passwd").exists());
    }
}

#[test]
fn a_fork_survives_the_end_of_the_process_that_holds_it() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        let staying = Staying::start(&fixture, "one", "echo written > made");
        let fork = dir_of(&fixture, "one");
        let pid = fs::read_to_string(fork.join("holder.pid")).unwrap();
        let killed = Command::new("kill").args(["-KILL", &pid]).status().unwrap();
        assert!(killed.success());
        let begin = Instant::now();
        while Path::new("/proc").join(&pid).join("root").exists() {
            assert!(begin.elapsed() < TIMEOUT, "the holder lives");
            std::thread::yield_now();
        }
        staying.end();
        let again = inside(&fixture, "one", "cat made kept; echo more > made").success();
        assert_eq!(again.stdout, "written\nkept");
        assert_eq!(changes(&fixture, "one").len(), 1);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(fork.to_str().unwrap()), "{mounts}");
        fixture.nono(&["fork", "discard", "one"]).success();
    }
}

#[test]
fn names_of_any_bytes_come_through_a_fork() {
    for fixture in users() {
        let name = OsStr::from_bytes(b"a\xff,:\\\n b");
        fs::write(fixture.project().join(name), "odd").unwrap();
        fixture.give_away(&fixture.project().join(name));
        fixture.nono(&["fork", "one"]).success();
        let script = "cat a*; printf new > \"$(printf 'n\\376\\\\:,')\"; rm a*";
        assert_eq!(inside(&fixture, "one", script).success().stdout, "odd");
        assert!(fixture.project().join(name).exists());
        let shown = fixture.nono(&["fork", "show", "one", "--json"]).success().json();
        assert_eq!(shown["changes"].as_array().unwrap().len(), 2, "{shown}");
    }
}

#[test]
fn git_commits_in_a_fork_stay_in_it() {
    for fixture in users() {
        let git = |arguments: &str| format!("git -c user.name=a -c user.email=a@b {arguments}");
        let script = format!("git init -q -b main; git add .; {}", git("commit -qm one"));
        fixture.record(&script).success();
        let head = || fs::read_to_string(fixture.project().join(".git/refs/heads/main")).unwrap();
        let before = head();
        fixture.nono(&["fork", "one"]).success();
        let script = format!(
            "set -e; test -z \"$(git status --porcelain)\"; echo 2 > edited; {}; \
             git rev-list --count main; git fsck --strict",
            git("commit -qam two")
        );
        let did = inside(&fixture, "one", &script).success();
        assert_eq!(did.stdout.trim(), "2", "{}", did.stderr);
        assert_eq!(head(), before);
        assert!(changes(&fixture, "one").contains_key("edited"));
    }
}

#[test]
fn a_left_out_directory_is_in_the_fork_as_it_is_on_the_disk() {
    for fixture in users() {
        fixture.write("package.json", "{}");
        fixture.write("package-lock.json", "{}");
        let lock = r#"{"packages":{"node_modules/dep":{"version":"1.0.0"}}}"#;
        fixture.write("node_modules/.package-lock.json", lock);
        fixture.write("node_modules/dep/index.js", "installed");
        let before = seen(&fixture.project());
        let made = fixture.nono(&["fork", "one"]).success();
        if !made.says("as it is on the disk, below a layer: ") {
            panic!("node_modules is not left out: {}", made.stderr);
        }
        let script = "cat node_modules/dep/index.js; echo changed > node_modules/dep/index.js; \
                      echo new > node_modules/new";
        assert_eq!(inside(&fixture, "one", script).success().stdout, "installed");
        let again = inside(&fixture, "one", "cat node_modules/dep/index.js node_modules/new");
        assert_eq!(again.success().stdout, "changed\nnew\n");
        assert_eq!(seen(&fixture.project()), before);
        assert_eq!(changes(&fixture, "one"), BTreeMap::new());
        let taken = fixture.nono(&["fork", "snapshot", "one", "--json"]).success().json();
        assert_eq!(taken["is_new"], false, "{taken}");
    }
}

#[test]
fn root_enters_no_fork_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return crate::not_run::needs_root("can try to enter a fork of another user");
    }
    let fixture = Fixture::ordinary_user();
    if !has_forks(&fixture) {
        return;
    }
    fixture.nono(&["fork", "one"]).success();
    let mut command = Command::new(fixture.command(&[]).get_program());
    command.args(["fork", "enter", "one", "--", "true"]).current_dir(fixture.project());
    command.env("HOME", fixture.path("home"));
    finished(command.output().unwrap()).fails(1, "it belongs to user");
}

#[test]
fn a_snapshot_of_a_fork_is_one_of_its_session() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        inside(&fixture, "one", "echo new > edited; rm gone; mkdir d; echo x > d/f").success();
        let report = fixture.nono(&["fork", "snapshot", "one", "-m", "works", "--json"]);
        let report = report.success().json();
        assert_eq!((report["number"].as_u64(), report["is_new"].as_bool()), (Some(1), Some(true)));
        let id = report["session_id"].as_str().unwrap().to_owned();
        fixture.nono(&["rollback", "verify", &id]).success();
        let to = fixture.path("out");
        fixture.nono(&["rollback", "cat", &format!("{id}/1"), "edited"]).success();
        let copied = fixture.nono(&[
            "rollback",
            "restore",
            &format!("{id}/1"),
            "--to",
            to.to_str().unwrap(),
        ]);
        if copied.code == 0 {
            assert!(to.exists());
        }
        let again = fixture.nono(&["fork", "snapshot", "one", "--json"]).success().json();
        assert_eq!(again["is_new"], false);
        // A fork of a fork.
        fixture.nono(&["fork", "two", "--from", &format!("{id}/1")]).success();
        let seen = inside(&fixture, "two", "cat edited d/f; ls").success();
        assert_eq!(seen.stdout, "new\nx\nd\ndir\nedited\nkept\n");
        // The snapshot outlives the fork.
        fixture.nono(&["fork", "discard", "one", "two"]).success();
        fixture.nono(&["rollback", "verify", &id]).success();
        assert_eq!(fs::read_to_string(fixture.project().join("edited")).unwrap(), "old\n");
    }
}

#[test]
fn a_trial_leaves_the_project_and_what_is_asked_for() {
    for fixture in users() {
        let before = seen(&fixture.project());
        let tried = fixture.nono(&["try", "--", "sh", "-c", "rm -r dir; exit 3"]);
        assert_eq!(tried.code, 3, "{}", tried.stderr);
        assert!(tried.says("it is left as fork try-"), "{}", tried.stderr);
        let list = fixture.nono(&["forks", "--json"]).success().json();
        let name = list[0]["name"].as_str().unwrap().to_owned();
        assert_eq!(list[0]["changes"]["deleted"], 3);
        fixture.nono(&["fork", "discard", &name]).success();
        let tried = fixture.nono(&["try", "--discard", "--", "sh", "-c", "rm -r dir"]).success();
        assert!(tried.says("-2 deleted -1 directory"), "{}", tried.stderr);
        let tried = fixture.nono(&["try", "--discard", "rm", "-r", "dir"]).success();
        assert!(tried.says("-2 deleted -1 directory"), "{}", tried.stderr);
        let tried = fixture.nono(&["try", "--", "true"]).success();
        assert!(tried.says("nothing changed"), "{}", tried.stderr);
        fixture.nono(&["try", "--", "/no/such/command"]).fails(127, "cannot run");
        assert_eq!(fixture.nono(&["forks", "--json"]).success().stdout, "[]\n");
        let sessions = fixture.nono(&["rollback", "list", "--all", "--json"]).success();
        assert_eq!(sessions.stdout, "[]\n");
        assert_eq!(seen(&fixture.project()), before);
    }
}

#[test]
fn the_top_of_a_project_cannot_be_moved_away_from_a_fork() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        let tried = inside(
            &fixture,
            "one",
            "mv ../project ../elsewhere; echo ended $?; rm -rf \
                            \"$PWD\"; ls -A | wc -l",
        );
        assert!(!tried.stdout.contains("ended 0"), "{}", tried.stdout);
        assert!(fixture.project().join("kept").exists());
        assert_eq!(fs::read_dir(fixture.project()).unwrap().count(), 4);
        // All that was in it is gone there, and can be discarded.
        let changed = changes(&fixture, "one");
        assert!(changed.values().all(|how| how == "deleted") && changed.len() == 6, "{changed:?}");
        fixture.nono(&["fork", "discard", "one"]).success();
    }
}

#[test]
fn a_name_of_a_command_or_of_a_path_is_none_for_a_fork() {
    let fixture = Fixture::new();
    fixture.nono(&["fork", "rename", "x", "list"]).fails(2, "is a command of `nono fork`");
    assert_eq!(fixture.nono(&["fork", "list", "--json"]).success().stdout, "[]\n");
    for name in ["../x", "a/b", ".x", "a b", ""] {
        fixture.nono(&["fork", name]).fails(2, "is no name for a fork");
    }
    fixture.nono(&["fork"]).fails(2, "the new fork has no name");
    fixture.nono(&["forks"]).success();
    fixture.nono(&["try"]).fails(2, "there is no command to try");
    assert!(!fixture.store().join("forks").exists());
}

/// Behind the walls the store is out of reach; without them the environment tells.
#[test]
fn nothing_is_recorded_of_the_project_from_within_a_fork() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        let nono = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
        let free = |script: &str| {
            let script = script.replace("nono ", &format!("{nono} "));
            let words = ["fork", "enter", "one", "--no-sandbox", "--", "sh", "-c", &script];
            fixture.nono(&words)
        };
        let run = free("nono run --no-sandbox -- sh -c 'echo x > made'").success();
        assert!(run.says("not recorded: the fork keeps what changes apart"), "{}", run.stderr);
        for refused in ["run --rollback -- true", "fork two", "try -- true"] {
            free(&format!("nono {refused}")).fails(1, "this is inside of fork one");
        }
        free("nono undo --yes").fails(1, "nothing that is recorded in fork one");
        free("nono redo --yes").fails(1, "nothing in fork one is undone");
        let sessions = fixture.nono(&["rollback", "list", "--all", "--json"]).success().json();
        assert_eq!(sessions.as_array().unwrap().len(), 1, "{sessions}");
        assert!(fixture.nono(&["rollback", "list", "--all"]).success().says("(fork one)"));
        assert!(!fixture.project().join("made").exists());
        let usage = fixture.nono(&["rollback", "usage", "--json"]).success().json();
        assert_eq!(usage["forks"][0]["name"], "one", "{usage}");
        assert!(usage["forks"][0]["bytes"].as_u64().unwrap() > 0, "{usage}");
    }
}

#[test]
fn what_is_not_in_a_fork_is_named_at_its_start() {
    for fixture in users() {
        fixture.write(".gitignore", "*.bin\n");
        fixture.record("git init -q").success();
        fixture.write("large.bin", vec![7; 3 << 20]);
        let made = fixture.nono(&["fork", "one"]).success();
        let named = format!("not in the fork: {}", fixture.project().join("large.bin").display());
        assert!(made.says(&named), "{}", made.stderr);
        assert_eq!(inside(&fixture, "one", "ls").success().stdout, "dir\nedited\ngone\nkept\n");
    }
}

#[test]
fn snapshots_and_steps_from_within_a_fork_are_of_its_session() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        let nono = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
        let shown = fixture.nono(&["fork", "show", "one", "--json"]).success().json();
        let id = shown["session_id"].as_str().unwrap().to_owned();
        let event = |name: &str, more: serde_json::Value| {
            let mut event = serde_json::json!({
                "session_id": "abc", "cwd": fixture.project(), "hook_event_name": name,
            });
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            event.to_string()
        };
        let call = serde_json::json!({
            "tool_name": "Bash", "tool_use_id": "call-1",
            "tool_input": {"command": "echo stepped > edited"},
        });
        let script = format!(
            "set -e; echo first > made; {nono} snapshot -m early; {nono} snapshot --session \
             $NONO_SESSION >/dev/null; hook() {{ {nono} hook claude-code --deadline-ms 60000; }}; \
             hook <<'E'\n{}\nE\nhook <<'E'\n{}\nE\necho stepped > edited; hook <<'E'\n{}\nE\n",
            event("UserPromptSubmit", serde_json::json!({"prompt": "do it"})),
            event("PreToolUse", call.clone()),
            event("PostToolUse", call.clone()),
        );
        let before = seen(&fixture.project());
        inside(&fixture, "one", &script).success();
        assert_eq!(seen(&fixture.project()), before);
        let steps = fixture.nono(&["steps", &id]).success();
        assert!(steps.stdout.contains("do it"), "{}", steps.stdout);
        assert!(steps.stdout.contains("echo stepped > edited"), "{}", steps.stdout);
        let cat = |state: &str, path: &str| {
            fixture.nono(&["rollback", "cat", &format!("{id}/{state}"), path]).stdout
        };
        assert_eq!((cat("1", "made"), cat("1", "edited")), ("first\n".into(), "old\n".into()));
        assert_eq!(cat("latest", "edited"), "stepped\n");
        // The offer acts in the fork alone.
        let offer = steps.stderr.split_once("nono undo --step ").unwrap().1.trim().to_owned();
        let undone = fixture.nono(&["undo", "--yes", "--step", &offer]).success();
        assert!(undone.says("undone in fork one"), "{}", undone.stderr);
        assert_eq!(inside(&fixture, "one", "cat made edited").success().stdout, "first\nold\n");
        assert_eq!(seen(&fixture.project()), before);
        fixture.nono(&["rollback", "verify", &id]).success();
        // The agent may go on outside: its own session is another one.
        let sessions = fixture.nono(&["rollback", "list", "--all", "--json"]).success().json();
        assert_eq!(sessions.as_array().unwrap().len(), 1, "{sessions}");
    }
}

#[test]
fn the_past_of_a_path_has_no_state_of_a_fork() {
    let fixture = Fixture::new();
    fixture.write("a", "one\n");
    fixture.record("echo two > a").success();
    fixture.nono(&["fork", "one", "--", "sh", "-c", "echo forked > a"]).success();
    fixture.nono(&["fork", "snapshot", "one"]).success();
    fixture.write("a", "mine\n");
    let search = fixture.nono(&["grep", "forked"]);
    assert!(search.code == 1 && search.stdout.is_empty(), "{}", search.stdout);
    assert!(!fixture.nono(&["log", "a"]).success().stdout.contains("fork"));
    fixture.nono(&["restore", "--yes", "a"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "two\n");
    // Asked for by its id, it is there.
    let list = fixture.nono(&["forks", "--json"]).success().json();
    let state = format!("{}/1", list[0]["session_id"].as_str().unwrap());
    assert_eq!(fixture.nono(&["cat", &state, "a"]).success().stdout, "forked\n");
}

#[test]
fn a_project_whose_git_directory_lies_elsewhere_is_refused() {
    let fixture = Fixture::new();
    fixture.write("a", "one\n");
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=n", "-c", "user.email=n@example.org"]);
        let done = git.args(words).current_dir(fixture.project()).output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-qm", "first"]);
    let linked = fixture.path("linked");
    git(&["worktree", "add", "-q", linked.to_str().unwrap()]);
    for words in [&["fork", "one"][..], &["try", "--discard", "--", "true"]] {
        let refused = finished(fixture.command(words).current_dir(&linked).output().unwrap());
        refused.fails(1, "lies outside of it");
    }
    assert_eq!(fixture.nono(&["forks", "--json"]).success().stdout, "[]\n");
    // The main worktree holds its own.
    fixture.nono(&["try", "--discard", "--", "git", "status"]).success();
}

#[test]
fn a_trial_that_is_kept_stays_where_a_merge_does_not_take_all_of_it() {
    let fixture = Fixture::new();
    fixture.write("a", "one\n");
    let script = "git init -q . && git add a && git -c user.name=n -c user.email=n@x commit -qm 1";
    let made = Command::new("sh").args(["-c", script]).current_dir(fixture.project()).status();
    assert!(made.unwrap().success());
    fixture.write("a", "mine\n");
    // Work in a stash comes with no merge.
    let stash = "git -c user.name=n -c user.email=n@x stash -q";
    let kept = fixture.nono(&["try", "--keep", "--", "sh", "-c", stash]).success();
    assert!(kept.says("it stays as fork try-"), "{}", kept.stderr);
    let list = fixture.nono(&["forks", "--json"]).success().json();
    let name = list[0]["name"].as_str().unwrap().to_owned();
    let stashed = fixture.nono(&["fork", "enter", &name, "--", "git", "stash", "list"]).success();
    assert!(stashed.stdout.contains("stash@{0}"), "{}", stashed.stdout);
    fixture.nono(&["fork", "discard", &name]).success();
    // A merge takes nothing of a directory that a program makes again, either.
    fixture.write("target/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    fixture.write("target/.rustc_info.json", "{}");
    fixture.write("Cargo.toml", "[package]\nname = \"x\"\nversion = \"0.1.0\"\n");
    let kept = fixture.nono(&["try", "--keep", "--", "sh", "-c", "echo n > target/new"]).success();
    assert!(!kept.says("and it is gone"), "{}", kept.stderr);
    assert!(!fixture.project().join("target/new").exists());
    assert_eq!(fixture.nono(&["forks", "--json"]).success().json().as_array().unwrap().len(), 1);
}

#[test]
fn a_trial_that_commits_leaves_no_fork_for_staged_files_unless_there_are_some() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    let git = "git -c user.name=n -c user.email=n@x";
    for (name, text) in [("a", "1\n"), ("dir/b", "1\n")] {
        fixture.write(name, text);
    }
    let made = format!("git init -q -b main && git add . && {git} commit -qm 1");
    let made = Command::new("sh").args(["-c", &made]).current_dir(fixture.project()).status();
    assert!(made.unwrap().success());
    let script = format!("echo 2 > a; echo n > dir/n; git add .; {git} commit -qm 2");
    let kept = fixture.nono(&["try", "--keep", "--", "sh", "-ec", &script]).success();
    assert!(!kept.says("stays"), "{}", kept.stderr);
    assert_eq!(fixture.nono(&["forks", "--json"]).success().json().as_array().unwrap().len(), 0);
    // Staged beside a commit, and not in it.
    let script = format!("echo 3 > a; {git} commit -qam 3; echo 4 > dir/b; git add dir/b");
    let kept = fixture.nono(&["try", "--keep", "--", "sh", "-ec", &script]).success();
    assert!(kept.says("stays in the fork: the staged files of .git"), "{}", kept.stderr);
    assert_eq!(fixture.nono(&["forks", "--json"]).success().json().as_array().unwrap().len(), 1);
}

#[test]
fn a_fork_in_use_is_not_discarded_and_a_trial_with_work_left_is_not_merged() {
    let fixture = Fixture::new();
    fixture.write("a", "one\n");
    fixture.nono(&["fork", "one"]).success();
    let mut command = fixture.command(&["fork", "enter", "one", "--", "cat"]);
    let cat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut cat = cat.spawn().unwrap();
    let mut input = cat.stdin.take().unwrap();
    input.write_all(b"x").unwrap();
    cat.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    fixture.nono(&["fork", "discard", "one"]).fails(1, "by process");
    drop(input);
    assert!(cat.wait().unwrap().success());
    fixture.nono(&["fork", "rename", "one", "trial-0123456789ab"]).fails(2, "throw-away");
    fixture.nono(&["fork", "discard", "one"]).success();
    let made = Command::new("mkfifo").arg(fixture.path("wait")).status();
    assert!(made.unwrap().success());
    let wait = fixture.path("wait");
    let script = format!(
        "(setsid sh -c 'read x < {0}; echo late > late' >/dev/null 2>&1 &) </dev/null; echo now > b",
        wait.display()
    );
    let read = wait.display().to_string();
    let kept = fixture.nono(&["try", "--keep", "--read", &read, "--", "sh", "-c", &script]);
    kept.fails(1, "it is left as fork");
    assert!(!fixture.project().join("b").exists());
    fs::write(&wait, "go\n").unwrap();
}

#[test]
fn a_name_means_the_fork_of_the_project_here() {
    for fixture in users() {
        let second = fixture.path("second");
        fs::create_dir(&second).unwrap();
        fs::write(second.join("edited"), "of the second\n").unwrap();
        for path in [second.clone(), second.join("edited")] {
            fixture.give_away(&path);
        }
        let at = |dir: &Path, words: &[&str]| {
            finished(fixture.command(words).current_dir(dir).output().unwrap())
        };
        fixture.nono(&["fork", "a"]).success();
        at(&second, &["fork", "a"]).success();
        at(&second, &["fork", "b"]).success();
        fixture.nono(&["fork", "a"]).fails(1, "there is a fork a already");
        let read = ["fork", "enter", "a", "--", "cat", "edited"];
        assert_eq!(fixture.nono(&read).success().stdout, "old\n");
        assert_eq!(at(&second, &read).success().stdout, "of the second\n");
        let refused = fixture.nono(&["fork", "diff", "b"]).fails(1, "is one of");
        let project = fs::canonicalize(&second).unwrap();
        assert!(refused.says(project.to_str().unwrap()), "{}", refused.stderr);
        fixture.nono(&["fork", "merge", "b"]).fails(1, "there is no fork b of this project");
        // Above both, a name of both says nothing.
        let above = at(second.parent().unwrap(), &["fork", "discard", "a"]);
        above.fails(1, "several projects have a fork a");
        at(second.parent().unwrap(), &["fork", "discard", "b"]).success();
        at(&second, &["fork", "discard", "a"]).success();
        assert_eq!(fixture.nono(&read).success().stdout, "old\n");
        let list = fixture.nono(&["forks", "--json"]).success().json();
        assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    }
}

#[test]
fn a_run_in_a_fork_has_the_walls_and_the_record_of_a_run() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        let outside = fixture.path("outside");
        fs::create_dir(&outside).unwrap();
        fixture.give_away(&outside);
        let script = format!("echo new > edited; echo x > {}/x; exit 3", outside.display());
        let report = fixture.path("home/report.json");
        let words = ["run", "--fork", "one", "-m", "first", "--report", report.to_str().unwrap()];
        let ran = fixture.nono(&[&words[..], &["sh", "-c", &script]].concat());
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(fixture.project().join("edited")).unwrap(), "old\n");
        let list = fixture.nono(&["forks", "--json"]).success().json();
        let id = list[0]["session_id"].as_str().unwrap();
        assert!(ran.says(&format!("snapshot {id}/1 of the fork")), "{}", ran.stderr);
        let report: serde_json::Value =
            serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
        assert_eq!((&report["session_id"], &report["exit_code"]), (&id.into(), &3.into()));
        assert_eq!(report["changes"]["modified"], 1, "{report}");
        assert_eq!(fixture.nono(&["cat", &format!("{id}/1"), "edited"]).success().stdout, "new\n");
        let granted =
            ["run", "--fork", "one", "--no-rollback", "--write", outside.to_str().unwrap()];
        fixture.nono(&[&granted[..], &["sh", "-c", &script]].concat());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        fixture.nono(&["run", "--fork", "two", "true"]).fails(1, "there is no fork two");
    }
}

/// A bisect whose command says that it is at work, and then waits.
fn bisect_at_work(fixture: &Fixture) -> Child {
    let fifo = fixture.path("at-work");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fixture.give_away(&fifo);
    let script = format!("trap '' HUP; echo > {}; sleep 1000 & wait", fifo.display());
    let write = fifo.to_str().unwrap();
    let words = ["bisect", "--write", write, "--", "sh", "-c", &script];
    let mut command = fixture.command_to_be_signalled(&words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    fs::read_to_string(&fifo).unwrap();
    child
}

#[test]
fn a_bisect_that_is_told_to_end_or_killed_leaves_no_fork_and_no_session() {
    for fixture in users() {
        fixture.record("echo 1 > edited").success();
        let sessions = || fixture.nono(&["rollback", "list", "--all", "--json"]).success().stdout;
        let before = sessions();
        for signal in ["-TERM", "-HUP", "-INT", "-KILL"] {
            let mut child = bisect_at_work(&fixture);
            fs::remove_file(fixture.path("at-work")).unwrap();
            let list = fixture.nono(&["forks", "--json"]).success().json();
            let name = list[0]["name"].as_str().unwrap();
            assert!(name.starts_with("trial-"), "a living one stays: {list}");
            let kill = || Command::new("kill").args([signal, &child.id().to_string()]).status();
            assert!(kill().unwrap().success());
            if signal == "-HUP" {
                // Its command does not listen, so a second signal ends it.
                assert!(kill().unwrap().success());
            }
            assert!(!child.wait().unwrap().success());
            // The rest after a kill goes as soon as its last process has ended.
            eventually("no fork is left", || {
                fixture.nono(&["forks", "--json"]).success().stdout == "[]\n"
            });
            assert_eq!(sessions(), before, "{signal}");
            assert_eq!(fs::read_dir(fixture.store().join("forks")).unwrap().count(), 0);
        }
    }
}

fn shell_of(fixture: &Fixture) -> Terminal {
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        "env PS1='ready> ' bash --norc --noprofile -i",
    );
    terminal.wait_for("ready>");
    terminal
}

/// Waits until a text stands so often on the screen, also where lines are wrapped.
fn sees(terminal: &Terminal, text: &str, times: usize) {
    let unwrapped = |screen: &str| screen.replace([' ', '\n'], "");
    terminal
        .wait_until(text, |screen| unwrapped(screen).matches(&unwrapped(text)).count() == times);
}

#[test]
fn ctrl_c_at_the_question_of_a_trial_leaves_a_fork_and_says_how_to_go_on() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("edited", "old\n");
    let terminal = shell_of(&fixture);
    terminal.line(&format!("{} try sh -c 'echo new > edited'", env!("CARGO_BIN_EXE_nono")));
    sees(&terminal, "discard it? [k/s/L/x", 1);
    terminal.keys(&["C-c"]);
    sees(&terminal, "it is left as fork try-", 1);
    sees(&terminal, "discard it: nono fork discard try-", 1);
    terminal.line("echo \"ended with $?\"");
    terminal.wait_for("ended with 130");
    assert_eq!(fs::read_to_string(fixture.project().join("edited")).unwrap(), "old\n");
    let list = fixture.nono(&["forks", "--json"]).success().json();
    assert_eq!(list[0]["changes"]["modified"], 1, "{list}");
}

#[test]
fn some_changes_of_a_trial_are_chosen_in_the_review_and_the_rest_stays_in_its_fork() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    for name in ["a", "b", "c"] {
        fixture.write(name, "old\n");
    }
    let terminal = shell_of(&fixture);
    let script = "for f in a b c; do echo new > $f; done";
    terminal.line(&format!("{} try sh -c '{script}'", env!("CARGO_BIN_EXE_nono")));
    sees(&terminal, "discard it? [k/s/L/x", 1);
    // To choose nothing leads back to the question.
    terminal.line("s");
    terminal.wait_for("Enter keep what is marked");
    terminal.keys(&["q"]);
    sees(&terminal, "discard it? [k/s/L/x", 2);
    terminal.line("s");
    terminal.wait_for("Enter keep what is marked");
    terminal.keys(&["j", "Space", "Enter"]);
    terminal.wait_for("keep 1 marked path? [y/N/?]");
    terminal.keys(&["y"]);
    sees(&terminal, "the rest is left in fork try-", 1);
    let texts = ["a", "b", "c"].map(|it| fs::read_to_string(fixture.project().join(it)).unwrap());
    assert_eq!(texts, ["old\n", "new\n", "old\n"]);
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("b")).unwrap(), "old\n");
    let list = fixture.nono(&["forks", "--json"]).success().json();
    assert_eq!(list[0]["changes"]["modified"], 3, "{list}");
}

#[test]
fn the_question_of_a_trial_goes_on_when_the_pager_of_its_difference_is_closed() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("a", "old\n");
    let pager = fixture.path("pager");
    fs::write(&pager, "#!/bin/sh\ncat\necho PAGED\nread line </dev/tty\necho CLOSED\n").unwrap();
    fs::set_permissions(&pager, fs::Permissions::from_mode(0o755)).unwrap();
    let terminal = shell_of(&fixture);
    let (pager, program) = (pager.display(), env!("CARGO_BIN_EXE_nono"));
    terminal.line(&format!("NONO_PAGER={pager} {program} try sh -c 'echo new > a'"));
    let question = "discard it? [k/s/L/x";
    sees(&terminal, question, 1);
    terminal.line("d");
    terminal.wait_for("PAGED");
    terminal.line("");
    sees(&terminal, question, 2);
    let screen = terminal.screen().replace([' ', '\n'], "");
    assert!(screen.contains("+new"), "{screen}");
    assert!(screen.find("CLOSED").unwrap() < screen.rfind("[k/s/L/x").unwrap(), "{screen}");
    terminal.line("x");
    eventually("no fork is left", || {
        fixture.nono(&["forks", "--json"]).success().json() == serde_json::json!([])
    });
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "old\n");
}

#[test]
fn forks_have_limits_and_a_cleanup_takes_them_by_name_or_by_age() {
    for fixture in users() {
        let with = |variable: &str, value: &str, words: &[&str]| {
            finished(fixture.command(words).env(variable, value).output().unwrap())
        };
        fixture
            .nono(&["fork", "one", "--", "sh", "-c", "head -c 100000 /dev/zero > made"])
            .success();
        fixture.nono(&["fork", "two"]).success();
        let many = with("NONO_MAX_FORKS", "2", &["fork", "three"]).fails(1, "max_forks");
        assert!(many.says("there are 2 forks"), "{}", many.stderr);
        with("NONO_MAX_FORKS", "2", &["try", "--discard", "true"]).fails(1, "max_forks");
        with("NONO_MAX_FORK_BYTES", "1000", &["fork", "three"]).fails(1, "max_fork_bytes");
        with("NONO_MAX_FORK_BYTES", "100000000", &["fork", "three"]).success();
        let names = || {
            let list = fixture.nono(&["forks", "--json"]).success().json();
            let names = list.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        // No cleanup of sessions takes a fork.
        fixture.nono(&["rollback", "cleanup", "--all", "--yes"]).success();
        assert_eq!(names(), ["one", "three", "two"]);
        let usage = fixture.nono(&["rollback", "usage"]).success();
        assert!(usage.stdout.contains("layers of forks"), "{}", usage.stdout);
        let clean = |words: &[&str]| fixture.nono(&[&["rollback", "cleanup"], words].concat());
        clean(&["--fork", "three"]).fails(2, "no terminal");
        let would = clean(&["--fork", "three", "--dry-run", "--json"]).success().json();
        assert_eq!(would["forks_removed"][0]["name"], "three", "{would}");
        assert_eq!(names(), ["one", "three", "two"]);
        clean(&["--fork", "three", "--fork", "none", "--yes"]).fails(1, "there is no fork none");
        clean(&["--fork", "three", "--yes"]).success();
        assert_eq!(names(), ["one", "two"]);
        let none = clean(&["--forks-older-than", "7", "--yes"]).success();
        assert!(none.says("no fork is that old"), "{}", none.stderr);
        // As if nothing had begun in it for long.
        let old = |fork: &str| {
            let document = dir_of(&fixture, fork).join("fork.json");
            let text = fs::read_to_string(&document).unwrap();
            let mut facts: serde_json::Value = serde_json::from_str(&text).unwrap();
            facts["created"] = "2020-01-01T00:00:00Z".into();
            fs::write(&document, facts.to_string()).unwrap();
        };
        old("one");
        old("two");
        let staying = Staying::start(&fixture, "two", "true");
        let report = clean(&["--forks-older-than", "7d", "--dry-run", "--json"]).success().json();
        // Commands began in both: one is no older than its last command.
        assert_eq!(report["forks_removed"].as_array().unwrap().len(), 0, "{report}");
        staying.end();
        fixture.nono(&["fork", "three"]).success();
        old("three");
        let report = clean(&["--forks-older-than", "7d", "--yes", "--json"]).success().json();
        assert_eq!(report["forks_removed"][0]["name"], "three", "{report}");
        assert_eq!(names(), ["one", "two"]);
    }
}

/// After a reboot no process and no namespace is left, and locks are free.
#[test]
fn a_fork_goes_on_after_a_reboot() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        let mut staying = Staying::start(&fixture, "one", "echo 1 > made; rm gone; mv dir moved");
        let inside_of = || {
            let list = fixture.nono(&["forks", "--json"]).success().json();
            let processes = list[0]["processes"].as_array().unwrap().clone();
            processes.iter().map(|pid| pid.as_i64().unwrap().to_string()).collect::<Vec<_>>()
        };
        let holder = fs::read_to_string(dir_of(&fixture, "one").join("holder.pid")).unwrap();
        let all = [vec![staying.0.id().to_string(), holder], inside_of()].concat();
        let killed = Command::new("kill").arg("-KILL").args(&all).status().unwrap();
        assert!(killed.success(), "{all:?}");
        staying.0.wait().unwrap();
        eventually("no process is left", || inside_of().is_empty());
        let state = "cat made; ls; cat moved/a";
        let seen = inside(&fixture, "one", state).success().stdout;
        assert_eq!(seen, "1\nedited\nkept\nmade\nmoved\na");
        fixture.nono(&["fork", "merge", "one"]).success();
        assert!(!fixture.project().join("gone").exists());
        fixture.nono(&["fork", "discard", "one"]).success();
    }
}

#[test]
fn a_mount_shows_forks_as_they_are_now() {
    for fixture in mounting_user() {
        for (fork, text) in [("one", "1"), ("two", "2")] {
            let script = format!(
                "echo {text} > edited; rm gone; mv dir moved; mkdir dir; echo {text} > dir/own; \
                 head -c 3000000 /dev/zero > long; ln -s edited link"
            );
            fixture.nono(&["fork", fork, "--", "sh", "-c", &script]).success();
        }
        let point = fixture.path("mounted");
        fs::create_dir(&point).unwrap();
        fixture.give_away(&point);
        let point = point.to_str().unwrap();
        let mounted = fixture.nono(&["mount", point]);
        if mounted.code != 0 {
            not_run(format_args!("no mount here: {}", mounted.stderr));
            continue;
        }
        let project = fs::canonicalize(fixture.project()).unwrap();
        let of = |fork: &str| {
            let id = dir_of(&fixture, fork).file_name().unwrap().to_str().unwrap().to_owned();
            format!("{point}/{id}/forks/{fork}{}", project.display())
        };
        let shell = |script: &str| {
            let script = format!("exec 2>&1; {script}");
            finished(fixture.command_of("sh", &["-c", &script]).output().unwrap())
        };
        let (one, two) = (of("one"), of("two"));
        let seen = shell(&format!("cd {one} && cat edited dir/own moved/a; ls; readlink link"));
        assert_eq!(seen.stdout, "1\n1\nadir\nedited\nkept\nlink\nlong\nmoved\nedited\n");
        let same = shell(&format!("cmp -n 3000000 {one}/long /dev/zero && echo same"));
        assert_eq!(same.stdout, "same\n");
        // An entry that both have, and that none has changed, is one inode.
        let differ = shell(&format!("diff -rq --no-dereference {one} {two}"));
        assert_eq!(differ.stdout.lines().count(), 2, "{}", differ.stdout);
        let inode = |path: &str| shell(&format!("stat -c %i {path}")).stdout;
        assert_eq!(inode(&format!("{one}/kept")), inode(&format!("{two}/kept")));
        assert!(!shell(&format!("echo x > {one}/edited")).stdout.is_empty());
        // It is as it is now.
        let staying = Staying::start(&fixture, "one", "echo later > edited; rm -r dir; mkdir new");
        eventually("the change is seen", || {
            shell(&format!("cat {one}/edited")).stdout == "later\n"
        });
        assert_eq!(shell(&format!("ls {one}")).stdout, "edited\nkept\nlink\nlong\nmoved\nnew\n");
        assert_eq!(shell(&format!("cat {two}/edited")).stdout, "2\n");
        staying.end();
        fixture.nono(&["fork", "rename", "two", "other"]).success();
        fixture.nono(&["fork", "discard", "one"]).success();
        eventually("it is gone", || !Path::new(&one).exists());
        assert_eq!(shell(&format!("cat {}/edited", of("other"))).stdout, "2\n");
        fixture.nono(&["umount", point]).success();
    }
}

/// A mount shows nothing of a layer that no snapshot of the fork would hold.
#[test]
fn a_hostile_layer_shows_nothing_of_another_place_in_a_mount() {
    for fixture in mounting_user() {
        fixture.nono(&["fork", "one"]).success();
        let upper = dir_of(&fixture, "one").join("layers/0/upper");
        fs::create_dir(upper.join("dir")).unwrap();
        let redirect = ["-n", "user.overlay.redirect", "-v", "/etc"];
        let marked = Command::new("setfattr").args(redirect).arg(upper.join("dir")).status();
        if !marked.is_ok_and(|status| status.success()) {
            return not_run("no setfattr");
        }
        symlink("/etc/passwd", upper.join("out")).unwrap();
        fs::write(upper.join("made"), "made").unwrap();
        for path in ["dir", "out", "made"] {
            fixture.give_away_link(&upper.join(path));
        }
        let point = fixture.path("mounted");
        fs::create_dir(&point).unwrap();
        fixture.give_away(&point);
        let mounted = fixture.nono(&["mount", point.to_str().unwrap()]);
        if mounted.code != 0 {
            not_run(format_args!("no mount here: {}", mounted.stderr));
            continue;
        }
        let project = fs::canonicalize(fixture.project()).unwrap();
        let id = dir_of(&fixture, "one").file_name().unwrap().to_str().unwrap().to_owned();
        let place = format!("{}/{id}/forks/one{}", point.display(), project.display());
        let script = format!("cd {place} && ls dir && cat dir/a made && readlink out");
        let seen = finished(fixture.command_of("sh", &["-c", &script]).output().unwrap());
        assert_eq!(seen.stdout, "a\nb\namade/etc/passwd\n", "{}", seen.stderr);
        fixture.nono(&["umount", point.to_str().unwrap()]).success();
    }
}

/// Nothing but nono flushes a layer. Writes that a machine may have lost are named, once.
#[test]
fn writes_that_a_machine_may_have_lost_are_named() {
    for fixture in users() {
        fixture.nono(&["fork", "one", "--", "sh", "-c", "echo early > early"]).success();
        let document = dir_of(&fixture, "one").join("unflushed.json");
        eventually("all is flushed", || !document.exists());
        let mut staying = Staying::start(&fixture, "one", "echo late > late; echo x >> edited");
        let text = fs::read_to_string(&document).unwrap();
        let holder = fs::read_to_string(dir_of(&fixture, "one").join("holder.pid")).unwrap();
        let all = [staying.0.id().to_string(), holder];
        assert!(Command::new("kill").arg("-KILL").args(&all).status().unwrap().success());
        staying.0.wait().unwrap();
        // A kill loses nothing.
        let shown = fixture.nono(&["fork", "show", "one"]).success();
        assert!(!shown.says("went down"), "{}", shown.stderr);
        assert!(document.exists());
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let other = text.replace(boot.trim(), "another");
        assert_ne!(other, text);
        fs::write(&document, other).unwrap();
        for words in [&["fork", "show", "one"][..], &["fork", "enter", "one", "--", "true"]] {
            let said = fixture.nono(words).success();
            assert!(said.says("the machine went down before"), "{}", said.stderr);
            let project = fs::canonicalize(fixture.project()).unwrap();
            for name in ["late", "edited"] {
                let path = format!("may be damaged: {}", project.join(name).display());
                assert!(said.says(&path), "{}", said.stderr);
            }
            assert!(!said.stderr.contains("early"), "{}", said.stderr);
        }
        let again = inside(&fixture, "one", "cat early late edited").success();
        assert_eq!(again.stdout, "early\nlate\nold\nx\n");
        assert!(!again.says("went down"), "{}", again.stderr);
        eventually("all is flushed", || !document.exists());
    }
}
