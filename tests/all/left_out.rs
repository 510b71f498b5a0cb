//! Left-out paths, the reasons, and that none of them is lost in silence; with real git.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{Finished, Fixture};
use crate::observe::{assert_same, observe};

const MEBIBYTE: usize = 1 << 20;
/// The size of a file that is too large to be recorded when git ignores it.
const LARGE: usize = MEBIBYTE + 1;
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n";

fn git(fixture: &Fixture, arguments: &[&str]) {
    let done = Command::new("git")
        .current_dir(fixture.project())
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A repository with one commit, which ignores this.
fn repository(ignored: &str) -> Fixture {
    let fixture = Fixture::new();
    git(&fixture, &["init", "-q"]);
    fixture.write(".gitignore", ignored);
    fixture.write("src/main.c", "int main;");
    git(&fixture, &["add", "-A"]);
    git(&fixture, &["commit", "-qm", "1"]);
    fixture
}

fn read(fixture: &Fixture, name: &str) -> String {
    fs::read_to_string(fixture.project().join(name)).unwrap()
}

/// Relative paths in a list of a report.
fn named(fixture: &Fixture, report: &Value, list: &str) -> Vec<String> {
    let entries = report[list].as_array().unwrap_or_else(|| panic!("no {list} in {report}")).iter();
    let inside = |path: &str| {
        let path = Path::new(path).strip_prefix(fixture.project()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    entries.map(|entry| inside(entry["path"].as_str().or(entry.as_str()).unwrap())).collect()
}

/// The paths that a snapshot of the moment leaves out.
fn left_out(fixture: &Fixture, flags: &[&str]) -> Vec<String> {
    let taken = fixture.nono(&[&["snapshot", "--json"], flags].concat()).success().json();
    named(fixture, &taken, "not_captured")
}

/// Asks for the restore of the last session as a plan, in earnest, and again: every answer is this
/// one.
#[track_caller]
fn restores_losing(fixture: &Fixture, lost: &[(&str, &str)]) {
    for arguments in [&["--dry-run"][..], &[], &["--dry-run"], &[]] {
        let asked = [&["rollback", "restore", "latest", "--json"], arguments].concat();
        let restored = fixture.nono(&asked);
        let report = restored.json();
        let entries = report["lost"].as_array().unwrap().iter();
        let for_good = entries.filter(|lost| lost["is_rebuildable"] == false);
        let found: Vec<_> = for_good
            .map(|lost| {
                let path = Path::new(lost["path"].as_str().unwrap());
                let path = path.strip_prefix(fixture.project()).unwrap().to_str().unwrap();
                (path.to_owned(), lost["what"].as_str().unwrap().to_owned())
            })
            .collect();
        let found: Vec<_> = found.iter().map(|(path, what)| (&**path, &**what)).collect();
        assert_eq!(found, lost, "{arguments:?}: {report}");
        assert_eq!(report["skipped"].as_array().unwrap().len(), 0, "{report}");
        assert_eq!(restored.code, i32::from(!lost.is_empty()), "{arguments:?}: {report}");
    }
}

#[track_caller]
fn says(done: &Finished, text: &str) {
    assert!(done.says(text), "{text:?} is not in: {}{}", done.stdout, done.stderr);
}

fn lines_with<'a>(done: &'a Finished, text: &str) -> Vec<&'a str> {
    done.stderr.lines().filter(|line| line.contains(text)).collect()
}

#[test]
fn a_name_leaves_nothing_out() {
    let fixture = repository("");
    let names = ["build", "dist", "target", "venv", ".cache", ".venv", "vendor/node_modules"];
    for name in names {
        fixture.write(&format!("{name}/main.c"), "1");
    }
    // One half is tracked, the other is not.
    git(&fixture, &["add", "build", "dist", "target"]);
    assert_eq!(left_out(&fixture, &[]), [""; 0]);
    let before = observe(&fixture.project());
    fixture.record("rm -r build dist; echo 2 >target/main.c; echo 2 >venv/main.c").success();
    restores_losing(&fixture, &[]);
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn a_directory_with_its_makers_mark_is_one_line_and_no_failure() {
    let fixture = repository("/target\n");
    fixture.write("target/CACHEDIR.TAG", TAG);
    fixture.write("target/debug/a.o", "1");
    fixture.write("old/pyvenv.cfg", "home\n");
    fixture.write("old/bin/python", "1");
    assert_eq!(left_out(&fixture, &[]), ["old", "target"]);
    let run = fixture
        .record("rm -r old; echo 2 >target/debug/b.o; touch target; echo 2 >src/main.c")
        .success();
    assert_eq!(lines_with(&run, "left out: ").len(), 2, "{}", run.stderr);
    let again = lines_with(&run, "can be made again");
    assert_eq!(again.len(), 1, "{}", run.stderr);
    assert!(again[0].contains("/old") && again[0].contains("/target"), "{}", run.stderr);
    assert!(!run.stderr.contains("warning"), "{}", run.stderr);
    restores_losing(&fixture, &[]);
    let restored = fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(lines_with(&restored, "can be made again").len(), 1, "{}", restored.stderr);
    assert_eq!(read(&fixture, "src/main.c"), "int main;");
    assert!(fixture.project().join("target/debug/b.o").exists());
}

#[test]
fn a_well_known_name_counts_where_git_ignores_a_large_directory() {
    let fixture = repository("build/\ndata/\nsmall/dist/\n");
    for directory in ["build", "data", "small/dist"] {
        fixture.write(&format!("{directory}/kept"), "1");
    }
    for directory in ["build", "data"] {
        for number in 0..70 {
            fixture.write(&format!("{directory}/{number}"), vec![1; MEBIBYTE]);
        }
    }
    assert_eq!(left_out(&fixture, &[]), ["build", "data"]);
    // The same without git's rule, so that the name is all there is.
    assert_eq!(left_out(&fixture, &["--ignored", "all"]), [""; 0]);
    let run = fixture.record("rm build/1 data/1 small/dist/kept").success();
    says(&run, "build, build output (--rollback-include build records it)");
    says(&run, ".gitignore: data/ and larger than 64 MiB (--rollback-include data records it)");
    assert_eq!(lines_with(&run, "can be made again").len(), 1, "{}", run.stderr);
    says(&run, &format!("not recorded and changed: {}/data/\n", fixture.project().display()));
    restores_losing(&fixture, &[("data", "changed")]);
    assert_eq!(read(&fixture, "small/dist/kept"), "1");
}

#[test]
fn what_git_tracks_is_recorded_whatever_a_rule_says() {
    let fixture = repository("*.log\n");
    fixture.write("node_modules/mine/index.js", "1");
    let lock = r#"{"packages": {"node_modules/mine": {}, "node_modules/other": {}}}"#;
    fixture.write("node_modules/.package-lock.json", lock);
    fixture.write("out/deep/kept.c", "1");
    fixture.write("kept.log", vec![b'1'; LARGE]);
    git(&fixture, &["add", "-f", "node_modules/mine", "out", "kept.log"]);
    git(&fixture, &["commit", "-qm", "2"]);
    fixture.write(".gitignore", "*.log\nout/\n");
    fixture.write("node_modules/other/index.js", "1");
    fixture.write("other.log", vec![b'1'; LARGE]);
    fixture.write("out/large", vec![1; 65 * MEBIBYTE]);
    for ignored in ["small", "none"] {
        let flags = ["--ignored", ignored];
        assert_eq!(left_out(&fixture, &flags), ["node_modules", "other.log", "out"], "{ignored}");
        let run = ["run", "--rollback", "--ignored", ignored, "--", "sh", "-c"];
        // Neither a deleted index nor a deleted directory hides anything.
        let script = "rm -r .git/index node_modules/mine out/deep; echo 2 >kept.log";
        fixture.nono(&[&run[..], &[script]].concat()).success();
        restores_losing(&fixture, &[]);
        for name in ["node_modules/mine/index.js", "out/deep/kept.c"] {
            assert_eq!(read(&fixture, name), "1", "{ignored}");
        }
        assert_eq!(read(&fixture, "kept.log").len(), LARGE);
        git(&fixture, &["status"]);
    }
    // The second snapshot of a session does not take all of a directory for a part of it.
    let id = fixture.latest();
    let more = fixture.nono(&["snapshot", "--session", &id, "--json"]).success().json();
    assert_eq!(named(&fixture, &more, "not_captured"), ["node_modules", "other.log", "out"]);
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

#[test]
fn a_pattern_excludes_by_name_also_what_git_tracks() {
    let fixture = repository("");
    fixture.write("data/x", "1");
    git(&fixture, &["add", "-A"]);
    assert_eq!(left_out(&fixture, &["--rollback-exclude", "data"]), ["data"]);
}

#[test]
fn small_ignored_files_come_back() {
    let fixture = repository("*.sqlite\nlocal.yml\n.env\n/cache/\n");
    fixture.write("dev.sqlite", vec![b'1'; MEBIBYTE]);
    fixture.write("local.yml", "1");
    fixture.write(".env", "1");
    fixture.write("cache/a/b", "1");
    symlink("b", fixture.project().join("cache/a/link")).unwrap();
    assert_eq!(left_out(&fixture, &[]), [""; 0]);
    let before = observe(&fixture.project());
    let run = fixture.record("rm -r dev.sqlite local.yml .env cache").success();
    assert!(!run.stderr.contains("not recorded"), "{}", run.stderr);
    restores_losing(&fixture, &[]);
    assert_same(&before, &observe(&fixture.project()));
    // A new directory of that kind goes.
    fixture.record("mkdir cache/new; echo 1 >cache/new/x; echo 1 >b.sqlite").success();
    restores_losing(&fixture, &[]);
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn large_ignored_things_are_named_when_they_are_gone_or_changed() {
    let fixture = repository("*.iso\ndata/\nlogs/\n");
    fixture.write("big.iso", vec![1; LARGE]);
    fixture.write("kept.iso", vec![1; LARGE]);
    fixture.write("same.iso", vec![1; LARGE]);
    // One directory with too many entries, and one in which a file is too large.
    for number in 0..5001 {
        fixture.write(&format!("data/{number}"), "");
    }
    fixture.write("logs/small", "1");
    fixture.write("logs/large", vec![1; LARGE]);
    let out = ["big.iso", "data", "kept.iso", "logs/large", "same.iso"];
    assert_eq!(left_out(&fixture, &[]), out);
    let script = "rm big.iso data/17 logs/small; printf 2 | dd of=kept.iso conv=notrunc 2>/dev/null
        mv logs/large logs/other; mv same.iso x.iso; mv x.iso same.iso; cat same.iso >/dev/null";
    let run = fixture.record(script).success();
    let project = fixture.project();
    for told in ["gone: P/big.iso\n", "changed: P/data/\n", "changed: P/kept.iso\n"] {
        says(&run, &format!("not recorded and {told}").replace('P', project.to_str().unwrap()));
    }
    says(&run, "data/ and more than 5000 entries");
    // A file that was moved away and back has another time of change; it is unknown what became of
    // it.
    let lost = [
        ("big.iso", "gone"),
        ("data", "changed"),
        ("kept.iso", "changed"),
        ("logs/large", "gone"),
        ("same.iso", "changed"),
    ];
    let restored = fixture.nono(&["rollback", "restore", "latest", "--dry-run"]);
    let restored = restored.fails(1, "cannot come back");
    says(&restored, &format!("not recorded and gone: {}/big.iso\n", project.display()));
    // A new unrecorded path stays, and is named.
    fs::remove_file(project.join("logs/other")).unwrap();
    restores_losing(&fixture, &lost);
    assert_eq!(read(&fixture, "logs/small"), "1");
    // For a partial restore, the paths that concern it.
    for (part, code) in [("src", 0), ("big.iso", 1), ("data/18", 1), ("logs", 1)] {
        assert_eq!(fixture.nono(&["rollback", "restore", "latest", part]).code, code, "{part}");
    }
    // The user brings it back as it was: a restore cannot know.
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    let noted = &show["snapshots"][0]["not_captured"][0]["state"];
    assert_eq!(noted["kind"], "file", "{show}");
    assert_eq!(noted["size"], LARGE, "{show}");
}

#[test]
fn many_lost_things_are_counted() {
    let fixture = repository("*.iso\n");
    for number in 10..25 {
        fixture.write(&format!("{number}.iso"), vec![1; LARGE]);
    }
    let run = fixture.record("rm *.iso").success();
    assert_eq!(lines_with(&run, "not recorded and gone: ").len(), 10, "{}", run.stderr);
    says(&run, "not recorded and gone or changed: 5 more");
}

#[test]
fn a_database_and_its_journals_are_one_thing() {
    let fixture = repository("*.db*\n*.sqlite-*\n");
    let half = 8 * MEBIBYTE + 1;
    for name in ["small.db", "small.db-wal", "small.db-shm"] {
        fixture.write(name, "1");
    }
    // Each file is small, and the database is not.
    for name in ["large.db", "large.db-wal"] {
        fixture.write(name, vec![1; half]);
    }
    fixture.write("large.db-shm", "1");
    // Not ignored itself, so its journals are in with it.
    fixture.write("in.sqlite", "1");
    fixture.write("in.sqlite-wal", vec![1; 2 * half]);
    // A file that is merely called so.
    fixture.write("lone.db-wal", vec![1; MEBIBYTE]);
    assert_eq!(left_out(&fixture, &[]), ["large.db", "large.db-shm", "large.db-wal"]);
    fixture.record("rm -f *.db* *.sqlite*").success();
    let gone = ["large.db", "large.db-shm", "large.db-wal"].map(|name| (name, "gone"));
    restores_losing(&fixture, &gone);
    for name in ["small.db", "small.db-wal", "small.db-shm", "in.sqlite-wal", "lone.db-wal"] {
        assert!(fixture.project().join(name).exists(), "{name}");
    }
}

#[test]
fn a_setting_a_variable_and_a_flag_say_what_is_recorded() {
    let fixture = repository("*.log\n");
    fixture.write("small.log", "1");
    fixture.write("large.log", vec![1; LARGE]);
    let all = ["large.log", "small.log"];
    for (word, out) in [("small", &["large.log"][..]), ("none", &all), ("all", &[])] {
        assert_eq!(left_out(&fixture, &["--ignored", word]), out, "{word}");
    }
    assert_eq!(left_out(&fixture, &["--rollback-all"]), [""; 0]);
    fixture.nono(&["snapshot", "--ignored", "much"]).fails(2, "small");
    let set = |fixture: &Fixture| {
        let shown = fixture.nono(&["config", "show", "--json"]).success().json();
        let of = |entry: &&Value| entry["key"] == "ignored";
        let entry = shown["settings"].as_array().unwrap().iter().find(of).unwrap().clone();
        (entry["value"].as_str().unwrap().to_owned(), entry["origin"].as_str().unwrap().to_owned())
    };
    assert_eq!(set(&fixture), ("small".to_owned(), "default".to_owned()));
    let shown = fixture.nono(&["config", "show", "--json"]).json();
    let file = Path::new(shown["file"].as_str().unwrap()).to_owned();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "[rollback]\nignored = \"none\"\n").unwrap();
    assert_eq!(set(&fixture), ("none".to_owned(), "file".to_owned()));
    assert_eq!(left_out(&fixture, &[]), all);
    let fixture = fixture.ignored("all");
    assert_eq!(set(&fixture), ("all".to_owned(), "environment".to_owned()));
    assert_eq!(left_out(&fixture, &[]), [""; 0]);
    fs::write(&file, "[rollback]\nignored = \"much\"\n").unwrap();
    fixture.nono(&["config", "show"]).fails(2, "unknown variant `much`");
}

#[test]
fn a_hostile_index_neither_harms_nor_hides() {
    for index in [&b""[..], b"DIRC", b"garbage of some length", &[0xff; 4096]] {
        let fixture = repository("*.log\n/out/\n");
        fixture.write("out/x", vec![1; 65 * MEBIBYTE]);
        fixture.write("a.log", vec![1; LARGE]);
        fs::write(fixture.project().join(".git/index"), index).unwrap();
        assert_eq!(left_out(&fixture, &[]), ["a.log", "out"]);
    }
    let fixture = repository("*.log\n");
    fixture.write("a.log", vec![1; LARGE]);
    let index = fixture.project().join(".git/index");
    fs::remove_file(&index).unwrap();
    symlink("/dev/zero", &index).unwrap();
    assert_eq!(left_out(&fixture, &[]), ["a.log"]);
}

#[test]
fn an_ignored_directory_that_is_recorded_stays_recorded_and_one_that_is_not_stays_out() {
    let fixture = repository("/cache/\n/data/\n");
    fixture.write("cache/a", "1");
    fixture.write("data/a", vec![1; 65 * MEBIBYTE]);
    fixture.nono(&["snapshot"]).success();
    let id = fixture.latest();
    let before = observe(&fixture.project().join("cache"));
    for number in 0..5001 {
        fixture.write(&format!("cache/new/{number}"), "");
    }
    fs::write(fixture.project().join("data/a"), "1").unwrap();
    let more = fixture.nono(&["snapshot", "--session", &id, "--json"]).success().json();
    assert_eq!(named(&fixture, &more, "not_captured"), [""; 0]);
    let target = format!("{id}/0");
    for arguments in [&["--dry-run"][..], &[], &[]] {
        let asked = [&["rollback", "restore", &target, "--json"], arguments].concat();
        let restored = fixture.nono(&asked);
        assert_eq!(named(&fixture, &restored.json(), "lost"), ["data"], "{}", restored.stdout);
        assert_eq!(restored.code, 1);
    }
    assert_same(&before, &observe(&fixture.project().join("cache")));
    assert_eq!(read(&fixture, "data/a"), "1", "what was not recorded is not touched");
}

#[test]
fn what_is_over_the_budget_is_noted_too() {
    let fixture = repository("");
    fixture.write("kept", "1");
    let nono = fixture.command(&[]).get_program().to_owned();
    fixture.nono(&["snapshot", "--max-bytes", "0"]).success();
    let id = fixture.latest();
    fixture.write("new/large", vec![1; 3 * MEBIBYTE]);
    let limit = ["snapshot", "--session", &id, "--max-bytes", "1048576", "--json"];
    let more = fixture.nono(&limit).fails(1, "not captured").json();
    assert!(named(&fixture, &more, "not_captured").contains(&"new/large".to_owned()), "{more}");
    fs::remove_file(fixture.project().join("new/large")).unwrap();
    let restored = fixture.nono(&["rollback", "restore", &format!("{id}/1"), "--json"]);
    assert_eq!(
        named(&fixture, &restored.json(), "lost"),
        ["new/large"],
        "{restored:?}",
        restored = restored.stdout
    );
    assert_eq!(restored.code, 1, "{}", nono.display());
}
