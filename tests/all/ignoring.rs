//! A command hides nothing by ignoring it, and an undo that leaves something names it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::fixture::{Finished, Fixture};
use crate::observe::{assert_same, observe};

/// No ignored path is recorded: the engine's own default, as the documented API has it.
fn fixture() -> Fixture {
    Fixture::new().ignored("none")
}

/// Paths in a list of a report, relative to the project.
fn named(fixture: &Fixture, report: &Value, list: &str) -> BTreeSet<String> {
    let entries = report[list].as_array().unwrap().iter();
    let paths = entries.map(|entry| entry["path"].as_str().or(entry.as_str()).unwrap());
    let inside = |path: &str| Path::new(path).strip_prefix(fixture.project()).unwrap().to_owned();
    paths.map(|path| inside(path).to_str().unwrap().to_owned()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Asks for the same restore as a plan, in earnest, and again: every answer is this one.
#[track_caller]
fn restores_leaving(fixture: &Fixture, id: &str, left: &[&str]) {
    restores_leaving_and_losing(fixture, id, left, &[]);
}

/// The same where something that was left out of the snapshot is gone or another by now.
#[track_caller]
fn restores_leaving_and_losing(fixture: &Fixture, id: &str, left: &[&str], lost: &[&str]) {
    let code = i32::from(!left.is_empty() || !lost.is_empty());
    for arguments in [&["--dry-run"][..], &[], &["--dry-run"], &[]] {
        let asked = [&["rollback", "restore", id, "--json"], arguments].concat();
        let restored = fixture.nono(&asked);
        assert_eq!(restored.code, code, "{arguments:?}: {}{}", restored.stdout, restored.stderr);
        assert_eq!(named(fixture, &restored.json(), "skipped"), set(left), "{arguments:?}");
        assert_eq!(named(fixture, &restored.json(), "lost"), set(lost), "{arguments:?}");
    }
}

fn run_is_said_to_change(run: &Finished, what: &str) {
    assert!(run.stderr.contains(what), "{what:?} is not in: {}", run.stderr);
}

#[test]
fn what_a_command_makes_and_then_ignores_is_recorded_and_undone() {
    let fixture = fixture();
    fixture.write(".gitignore", "*.log\n");
    let before = observe(&fixture.project());
    let script = r#"echo evil >evil.sh; mkdir d; echo x >d/x; echo "*" >.gitignore"#;
    let run = fixture.record(script).success();
    run_is_said_to_change(&run, "+2 files +1 directory ~1 modified");
    let id = fixture.latest();
    restores_leaving(&fixture, &id, &[]);
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn an_ignore_file_that_was_not_there_before_hides_nothing() {
    let fixture = fixture();
    fixture.write("kept", "1");
    let before = observe(&fixture.project());
    let script = r#"mkdir d; echo x >d/x; echo "*" >d/.gitignore; echo y >y; echo "*" >.gitignore"#;
    let run = fixture.record(script).success();
    run_is_said_to_change(&run, "+4 files +1 directory");
    restores_leaving(&fixture, &fixture.latest(), &[]);
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn no_way_to_change_an_ignore_file_hides_anything() {
    for hide in [
        "printf '%s\\n' '*' >.gitignore",
        "rm .gitignore; printf '*' >.gitignore",
        "printf '*' >all; mv all .gitignore",
        "printf '*' >sub/.gitignore; printf '*' >new/.gitignore",
        "mv rules/all .gitignore",
        "mv rules new/rules; mv new/rules/all new/.gitignore",
        "rm .gitignore; ln -s rules/all .gitignore",
        "rm .gitignore; mkdir .gitignore; printf '*' >.gitignore/x",
        "rm .gitignore sub/.gitignore",
    ] {
        let fixture = fixture().by_ordinary_user();
        fixture.write(".gitignore", "*.log\n");
        fixture.write("sub/.gitignore", "*.tmp\n");
        fixture.write("rules/all", "*\n");
        let before = observe(&fixture.project());
        let script = "mkdir new; echo 1 >new/a; echo 1 >sub/b; echo 1 >c; ";
        fixture.record(&format!("{script}{hide}")).success();
        restores_leaving(&fixture, &fixture.latest(), &[]);
        assert_same(&before, &observe(&fixture.project()));
    }
}

#[test]
fn an_ignore_file_that_is_made_unreadable_hides_nothing_but_itself() {
    let fixture = fixture().by_ordinary_user();
    fixture.write(".gitignore", "*.log\n");
    fixture.write("sub/.gitignore", "*.tmp\n");
    fixture.write("b.log", "1");
    let script = "chmod 0 .gitignore sub/.gitignore; echo 1 >sub/b; echo 1 >c; echo 1 >a.log";
    fixture.record(script).success();
    restores_leaving(&fixture, &fixture.latest(), &[".gitignore", "a.log", "sub/.gitignore"]);
    for (name, is_left) in [("sub/b", false), ("c", false), ("a.log", true), ("b.log", true)] {
        assert_eq!(fixture.project().join(name).exists(), is_left, "{name}");
    }
}

#[test]
fn the_rules_of_the_baseline_count_for_the_whole_session() {
    let fixture = fixture();
    // The rules ignore the file in which they are.
    fixture.write(".gitignore", ".gitignore\n*.log\n");
    fixture.write("a/.gitignore", "*.tmp\n");
    fixture.nono(&["snapshot"]).success();
    let id = fixture.latest();
    fixture.write(".gitignore", "*\n");
    fixture.write("a/.gitignore", "*\n");
    fixture.write("a/new", "1");
    let more = fixture.nono(&["snapshot", "--session", &id, "--json"]).success().json();
    assert!(more["changes"].to_string().contains("a/new"), "{more}");
    // A path that the baseline ignored stays out, as long as it is ignored now.
    fixture.write("a/b.tmp", "1");
    fixture.write("b.log", "1");
    let more = fixture.nono(&["snapshot", "--session", &id, "--json"]).success().json();
    assert_eq!(more["changes"].as_array().unwrap().len(), 0, "{more}");
    fixture.write(".gitignore", "*.log\n");
    fixture.write("a/.gitignore", "");
    let more = fixture.nono(&["snapshot", "--session", &id, "--json"]).success().json();
    assert_eq!(named(&fixture, &more, "not_captured"), set(&["b.log"]));
    fixture.write("a/new2", "1");
    fixture.write("a/.gitignore", "*\n");
    // These ignore themselves, so they were not recorded either.
    let rules = [".gitignore", "a/.gitignore"];
    restores_leaving_and_losing(&fixture, &id, &["b.log"], &rules);
    for name in ["a/new", "a/new2", "a/b.tmp"] {
        assert!(!fixture.project().join(name).exists(), "{name}");
    }
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

#[test]
fn an_ignored_directory_stays_out_when_its_rule_is_written_in_another_way() {
    let fixture = fixture();
    fixture.write(".gitignore", "logs/\n");
    fixture.write("logs/old", "1");
    fixture
        .record("printf 'logs/*\\n!logs/keep\\n' >.gitignore; echo 1 >logs/keep; echo 1 >logs/a")
        .success();
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).json();
    let changes = show["snapshots"][1]["changes"].to_string();
    assert!(!changes.contains("logs/a"), "{changes}");
    // The baseline knows nothing of the directory, so nothing in it is taken back, and that is
    // said.
    restores_leaving_and_losing(&fixture, &fixture.latest(), &[], &["logs"]);
    assert!(fixture.project().join("logs/keep").exists());
}

#[test]
fn what_is_new_and_not_recorded_is_named_and_makes_a_restore_incomplete() {
    let fixture = fixture();
    fixture.write("src/main.c", "int main;");
    fixture.write(".gitignore", "*.log\nbuild/\n");
    let script = "mv src build; echo evil >build/evil; echo 1 >a.log; echo 1 >recorded";
    let run = fixture.record(script).success();
    for name in ["build", "a.log"] {
        let path = fixture.project().join(name);
        run_is_said_to_change(&run, path.to_str().unwrap());
    }
    let id = fixture.latest();
    let told = fixture.nono(&["rollback", "restore", &id, "--dry-run"]);
    assert_eq!(told.code, 1);
    assert!(told.says("new and was not recorded"), "{}{}", told.stdout, told.stderr);
    restores_leaving(&fixture, &id, &["a.log", "build"]);
    assert_eq!(fs::read_to_string(fixture.project().join("src/main.c")).unwrap(), "int main;");
    assert_eq!(fs::read_to_string(fixture.project().join("build/evil")).unwrap(), "evil\n");
    // For a partial restore, the paths that concern it.
    for (part, code) in [("src", 0), ("build", 1), ("build/evil", 1), ("a.log", 1)] {
        assert_eq!(fixture.nono(&["rollback", "restore", &id, part]).code, code, "{part}");
    }
}

#[test]
fn a_run_that_changed_only_what_is_not_recorded_does_not_say_that_nothing_changed() {
    let fixture = fixture();
    fixture.write("a", "1");
    fixture.write(".gitignore", "build/\n");
    let run = fixture.record("mkdir build; echo evil >build/evil").success();
    assert!(!run.stderr.contains("nothing changed"), "{}", run.stderr);
    run_is_said_to_change(&run, "nothing that is recorded changed");
    run_is_said_to_change(&run, fixture.project().join("build").to_str().unwrap());
    // The earlier file is another now.
    let run = fixture.record("echo more >build/evil").success();
    run_is_said_to_change(&run, "nothing that is recorded changed");
    run_is_said_to_change(&run, "not recorded and changed: ");
    restores_leaving_and_losing(&fixture, &fixture.latest(), &[], &["build"]);
    // And where it is not, that is no news.
    fixture.record("cat build/evil >/dev/null").success();
    restores_leaving(&fixture, &fixture.latest(), &[]);
}

#[test]
fn directories_that_bear_their_makers_mark_are_one_line_and_no_failure() {
    let fixture = fixture();
    fixture.write("a", "1");
    let script = "mkdir -p target pkg/__pycache__ node_modules/x venv web/node_modules
        echo 'Signature: 8a477f597d28d172789f06886806bc55' >target/CACHEDIR.TAG
        echo 1 >pkg/m.py; echo 1 >pkg/__pycache__/m.cpython-312.pyc
        echo home >venv/pyvenv.cfg
        echo ' node_modules/x ' >node_modules/.package-lock.json
        echo {} >web/node_modules/.package-lock.json
        echo 2 >a";
    let run = fixture.record(script).success();
    let lines: Vec<_> = run.stderr.lines().filter(|line| line.contains("made again")).collect();
    assert_eq!(lines.len(), 1, "{}", run.stderr);
    assert!(!run.stderr.contains("warning"), "{}", run.stderr);
    let made = ["node_modules", "pkg/__pycache__", "target", "venv", "web/node_modules"];
    for arguments in [&["--dry-run"][..], &[], &[]] {
        let asked = [&["rollback", "restore", "latest", "--json"], arguments].concat();
        let report = fixture.nono(&asked).success().json();
        assert_eq!(named(&fixture, &report, "rebuildable"), set(&made), "{arguments:?}");
        assert_eq!(named(&fixture, &report, "skipped"), set(&[]));
    }
    assert!(!fixture.project().join("pkg/m.py").exists());
    let told = fixture.nono(&["rollback", "restore", "latest"]).success();
    let lines: Vec<_> = told.stderr.lines().filter(|line| line.contains("made again")).collect();
    assert_eq!(lines.len(), 1, "{}", told.stderr);
}

#[test]
fn a_name_that_anybody_can_give_proves_nothing() {
    let fixture = fixture();
    fixture.write("a", "1");
    fixture.write(".gitignore", "target\ndist\nvenv\nnode_modules\n__pycache__\n");
    let script = "mkdir target dist venv node_modules __pycache__; echo x >__pycache__/evil.py
        echo Signature: >target/CACHEDIR.TAG; mkdir dist/pyvenv.cfg; ln -s /dev/zero venv/pyvenv.cfg
        echo 1 >node_modules/package.json";
    fixture.record(script).success();
    let left = ["__pycache__", "dist", "node_modules", "target", "venv"];
    restores_leaving(&fixture, &fixture.latest(), &left);
}

#[test]
fn what_is_unreadable_by_now_is_named_whenever_it_is_asked() {
    let fixture = fixture().by_ordinary_user();
    fixture.write("kept/a", "1");
    fs::create_dir(fixture.project().join("empty")).unwrap();
    fixture.give_away(&fixture.project().join("empty"));
    fixture.record("echo evil >empty/evil; mkdir new; echo x >new/x; chmod 0 empty new").success();
    restores_leaving(&fixture, &fixture.latest(), &["empty", "new"]);
    // Readable files come back completely.
    for name in ["empty", "new"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(fixture.project().join(name), mode).unwrap();
    }
    fixture.nono(&["rollback", "restore", "latest", "--force"]).success();
    assert!(!fixture.project().join("empty/evil").exists());
    assert!(!fixture.project().join("new").exists());
}

#[test]
fn the_rules_of_the_baseline_survive_a_cleanup_and_are_verified() {
    let fixture = fixture();
    fixture.write(".gitignore", ".gitignore\n*.log\n");
    fixture.write("a", "1");
    fixture.nono(&["snapshot"]).success();
    let id = fixture.latest();
    // Another session, which goes: its own objects go along.
    fixture.write("b", "1");
    fixture.nono(&["snapshot"]).success();
    let other = fixture.latest();
    assert_ne!(id, other);
    fixture.nono(&["rollback", "cleanup", &other, "--yes"]).success();
    fixture.nono(&["rollback", "verify", "--all"]).success();
    let rules = nono_engine::object::ContentHash::of(b".gitignore\n*.log\n").hex();
    let object = fixture.store().join("objects").join(&rules[..2]).join(&rules[2..]);
    assert!(object.exists(), "the rules are gone");
    fs::write(fixture.project().join(".gitignore"), "*\n").unwrap();
    fixture.write("new", "1");
    restores_leaving_and_losing(&fixture, &id, &[], &[".gitignore"]);
    assert!(!fixture.project().join("new").exists());
    fs::remove_file(&object).unwrap();
    let verified = fixture.nono(&["rollback", "verify", &id, "--json"]);
    assert_eq!(verified.code, 1, "{}", verified.stdout);
    assert!(verified.stdout.contains(".gitignore"), "{}", verified.stdout);
    // It lies where it lay, so it is mended from there.
    fs::write(fixture.project().join(".gitignore"), ".gitignore\n*.log\n").unwrap();
    fixture.nono(&["rollback", "verify", &id, "--repair"]).success();
    assert!(object.exists(), "the rules are not mended");
}

#[test]
fn a_checkpoint_inside_of_a_run_goes_by_the_baseline_too() {
    let fixture = fixture();
    fixture.write(".gitignore", "*.log\n");
    let nono = fixture.command(&[]).get_program().to_owned();
    let nono = nono.to_str().unwrap();
    let script = format!(
        "echo '*' >.gitignore; echo 1 >hidden; {nono} snapshot >/dev/null && rm hidden .gitignore"
    );
    fixture.record(&script).success();
    let id = fixture.latest();
    let checkpoint = format!("{id}/1");
    let told = fixture.nono(&["rollback", "restore", &checkpoint]).success();
    assert!(fixture.project().join("hidden").exists(), "{}", told.stdout);
    // Its rules are not those of the session.
    fixture.write("new", "1");
    fixture.nono(&["rollback", "restore", &checkpoint, "--force"]).success();
    assert!(!fixture.project().join("new").exists());
    fixture.nono(&["rollback", "restore", &id, "--force"]).success();
    assert!(!fixture.project().join("hidden").exists());
}

#[test]
fn an_interrupted_session_shows_what_was_ignored_since_and_what_would_not_be_recorded() {
    use std::io::BufRead;
    let fixture = fixture();
    fixture.write(".gitignore", "*.log\n");
    let script = "echo '*' >.gitignore; echo 1 >hidden; echo 1 >a.log; echo $$; exec sleep 600";
    let mut child = fixture
        .command(&["run", "--rollback", "--", "sh", "-c", script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let orphan = rustix::process::Pid::from_raw(line.trim().parse().unwrap()).unwrap();
    // It may have ended with its supervisor.
    let _ = rustix::process::kill_process(orphan, rustix::process::Signal::KILL);
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    assert_eq!(named(&fixture, &show["now"], "changes"), set(&[".gitignore", "hidden"]));
    assert_eq!(named(&fixture, &show["now"], "unrecorded"), set(&["a.log"]));
    let show = fixture.nono(&["rollback", "show", "latest"]).success().stdout;
    assert!(show.contains("left out (.gitignore: *.log): a.log"), "{show}");
    restores_leaving(&fixture, &fixture.latest(), &["a.log"]);
    assert!(!fixture.project().join("hidden").exists());
}

#[test]
fn a_path_that_a_session_tracks_later_goes_by_the_rules_that_it_had_then() {
    use nono_engine::snapshot::{Budget, SnapshotManager};
    use nono_engine::walk::ExclusionConfig;
    let fixture = fixture();
    let (first, second) = (fixture.project().join("first"), fixture.project().join("second"));
    fixture.write("first/.gitignore", "*.log\n");
    fixture.write("second/.gitignore", "*.tmp\n");
    let session = fixture.path("session");
    let manager = |paths: &[&Path]| {
        let paths: Vec<_> = paths.iter().map(|path| path.to_path_buf()).collect();
        let (exclusion, budget) = (ExclusionConfig::default(), Budget::default());
        SnapshotManager::new(&session, &paths, exclusion, budget).unwrap()
    };
    let baseline = manager(&[&first]).create_baseline().unwrap();
    let both = manager(&[&first, &second]);
    let later = both.create_incremental().unwrap().0;
    assert!(baseline.ignore_files.is_some() && later.ignore_files.is_some());
    assert_ne!(baseline.ignore_files, later.ignore_files);
    for name in ["first/.gitignore", "second/.gitignore"] {
        fixture.write(name, "*\n");
    }
    let files = ["first/x", "first/a.tmp", "second/x", "second/a.log", "first/a.log"];
    for name in files.iter().chain(&["second/a.tmp"]) {
        fixture.write(name, "1");
    }
    let last = both.create_incremental().unwrap().0;
    assert_eq!(last.ignore_files, None);
    let left: Vec<_> = last.not_captured.iter().map(|left| left.path.clone()).collect();
    assert_eq!(left, [first.join("a.log"), second.join("a.tmp")]);
    let report = both.restore(later.number).unwrap();
    let left: Vec<_> = report.skipped.into_iter().map(|skipped| skipped.path).collect();
    assert_eq!(left, [first.join("a.log"), second.join("a.tmp")]);
}

#[test]
fn a_mark_that_a_restore_takes_away_proves_nothing() {
    let fixture = fixture();
    fixture.write("a", "1");
    let before = observe(&fixture.project());
    let script = "echo '\"evil@1\"' >bun.lock; mkdir node_modules; echo evil >node_modules/evil";
    fixture.record(script).success();
    restores_leaving(&fixture, &fixture.latest(), &[]);
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn a_file_that_could_not_be_read_before_and_is_another_now_is_named() {
    for (change, what) in [("echo evil >s", "changed, and no"), ("true", "gone, and no")] {
        let fixture = fixture().by_ordinary_user();
        fixture.write("a", "1");
        let secret = fixture.write("s", "secret");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o0)).unwrap();
        fixture.record("echo 2 >a").success();
        // As unreadable as before, it is as before.
        fixture.nono(&["rollback", "restore", "latest"]).success();
        fixture.record(&format!("rm -f s; {change}; echo 3 >a")).success();
        for _ in 0..2 {
            let restored = fixture.nono(&["rollback", "restore", "latest"]);
            let restored = restored.fails(1, "cannot come back");
            assert!(restored.says(what), "{} {}", restored.stdout, restored.stderr);
        }
        assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
    }
}
