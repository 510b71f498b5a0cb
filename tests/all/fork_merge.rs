//! `nono fork merge`: what agents did in forks comes into a real git project, or is named.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::fixture::{Finished, Fixture, finished};
use crate::forks::has_forks;
use crate::git_history::settings;
use crate::observe::{assert_same, observe};
use crate::scene::contents;
use crate::terminal::Terminal;

/// A text with four values, each between lines of its own.
fn text(values: [&str; 4]) -> String {
    let section = |(at, value): (usize, &&str)| format!("{at} begins\n{value}\n{at} ends\n");
    values.iter().enumerate().map(section).collect()
}

/// A repository with one commit, as three agents find it.
fn repository(fixture: &Fixture) {
    settings(fixture);
    fixture.write("text", text(["0"; 4]));
    fixture.write("shared", "0\n");
    fixture.write("gone", "gone\n");
    by_hand(fixture, "git init -q && git add . && git commit -qm first");
    fixture.write(".env", "SECRET=1\n");
}

fn by_hand(fixture: &Fixture, script: &str) -> Finished {
    let mut shell = fixture.command_of("sh", &["-c", script]);
    finished(shell.env("GIT_OPTIONAL_LOCKS", "0").output().unwrap()).success()
}

fn fork(fixture: &Fixture, name: &str, script: &str) {
    fixture.nono(&["fork", name, "--", "sh", "-ec", script]).success();
}

fn read(fixture: &Fixture, name: &str) -> String {
    fs::read_to_string(fixture.project().join(name)).unwrap()
}

fn said(fixture: &Fixture, arguments: &[&str]) -> String {
    finished(fixture.command_of("git", arguments).output().unwrap()).success().stdout
}

fn conflicts(fixture: &Fixture, report: &Value) -> Vec<String> {
    let project = format!("{}/", fixture.project().display());
    let path = |entry: &Value| entry["path"].as_str().unwrap().replace(&project, "");
    report["merge_conflicts"].as_array().unwrap().iter().map(path).collect()
}

fn a_day_with_three_agents(fixture: &Fixture) {
    repository(fixture);
    let head = said(fixture, &["rev-parse", "HEAD"]);
    let edit = |line: usize, value: &str| format!("sed -i '{line}s/.*/{value}/' text");
    fork(fixture, "a", &format!("{}; git commit -qam of-a; echo a > new-a; rm gone", edit(2, "a")));
    fork(
        fixture,
        "b",
        &format!("{}; echo b > shared; git commit -qam of-b; cat .env > seen", edit(8, "b")),
    );
    fork(fixture, "c", &format!("{}; echo c > shared", edit(2, "c")));
    let before = observe(&fixture.project());
    assert_eq!(read(fixture, "text"), text(["0"; 4]), "nothing of the project has changed");

    let merged = fixture.nono(&["fork", "merge", "a", "--json"]).success().json();
    assert_eq!(conflicts(fixture, &merged), [""; 0], "{merged}");
    assert_eq!(merged["branches"][0]["branch"], json!("fork/a"), "{merged}");
    assert_eq!(read(fixture, "text"), text(["a", "0", "0", "0"]));
    assert_eq!(read(fixture, "new-a"), "a\n");
    assert!(!fixture.project().join("gone").exists());
    assert_eq!(said(fixture, &["log", "--format=%s", "fork/a"]), "of-a\nfirst\n");
    assert_eq!(said(fixture, &["rev-parse", "HEAD"]), head, "HEAD stays");
    let reflog = said(fixture, &["reflog", "show", "fork/a"]);
    assert!(reflog.contains("nono fork merge"), "{reflog}");
    assert_eq!(said(fixture, &["diff", "--cached", "--name-only"]), "", "the index stays");
    by_hand(fixture, "git fsck --strict");

    // The second one is merged with the result of the first, and with what the user did since.
    fixture.write("mine", "mine\n");
    let after_first = observe(&fixture.project());
    let told = fixture.nono(&["fork", "merge", "b"]).success();
    assert!(told.says("merged with changes here: text"), "{}{}", told.stdout, told.stderr);
    assert!(told.says("became branch fork/b"), "{}", told.stderr);
    assert_eq!(read(fixture, "text"), text(["a", "0", "b", "0"]));
    assert_eq!(read(fixture, "shared"), "b\n");
    assert_eq!(read(fixture, "seen"), "SECRET=1\n", "what git ignores was in the fork");
    let after_second = observe(&fixture.project());

    let planned = fixture.nono(&["fork", "merge", "c", "--dry-run", "--json"]);
    assert_eq!(planned.code, 1, "{}", planned.stderr);
    assert_eq!(conflicts(fixture, &planned.json()), ["shared", "text"]);
    assert_same(&after_second, &observe(&fixture.project()));
    fixture.nono(&["fork", "discard", "c"]).success();

    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(
        contents(&observe(&fixture.project()))[Path::new("text")],
        contents(&after_first)[Path::new("text")],
    );
    assert_eq!(read(fixture, "mine"), "mine\n", "it was there before the merge");
    assert_eq!(said(fixture, &["branch", "--list", "fork/b"]), "", "the branch went, too");
    assert_eq!(said(fixture, &["rev-parse", "HEAD"]), head);
    fixture.nono(&["redo", "--yes"]).success();
    assert_eq!(read(fixture, "text"), text(["a", "0", "b", "0"]));
    assert_eq!(said(fixture, &["log", "-1", "--format=%s", "fork/b"]), "of-b\n");
    fixture.nono(&["undo", "--yes"]).success();
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(read(fixture, "text"), text(["0"; 4]));
    let now = contents(&observe(&fixture.project()));
    for name in ["text", "shared", "gone", ".env"] {
        assert_eq!(now[Path::new(name)], contents(&before)[Path::new(name)], "{name}");
    }
    by_hand(fixture, "git fsck --strict");
    fixture.nono(&["verify", "--all"]).success();
}

#[test]
fn of_three_agents_two_are_merged_one_is_discarded_and_the_second_merge_is_undone() {
    let fixture = Fixture::new();
    if has_forks(&fixture) {
        a_day_with_three_agents(&fixture);
    }
}

#[test]
fn three_agents_of_an_ordinary_user_are_merged_as_well() {
    let fixture = Fixture::ordinary_user();
    if has_forks(&fixture) {
        a_day_with_three_agents(&fixture);
    }
}

#[test]
fn a_check_that_fails_leaves_everything_and_one_that_succeeds_lets_the_merge_land() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("text", text(["0"; 4]));
    fork(&fixture, "idea", "sed -i '2s/.*/good/' text");
    fixture.write("text", text(["0", "0", "0", "mine"]));
    let before = observe(&fixture.project());
    let failing = "grep -q good text && grep -q mine text && echo written > text && exit 3";
    let refused = fixture.nono(&["fork", "merge", "idea", "--check", failing]);
    refused.fails(1, "the check of the merged state ended with exit code 3");
    assert_same(&before, &observe(&fixture.project()));
    let sessions = fixture.nono(&["list", "--json"]).success().json();
    let is_merge = |it: &Value| it["command"].to_string().contains("merge");
    assert!(!sessions.as_array().unwrap().iter().any(is_merge), "{sessions}");
    let passing = "grep -q good text && grep -q mine text && touch made-by-the-check";
    let merged = fixture.nono(&["fork", "merge", "idea", "--check", passing, "--json"]);
    let merged = merged.success().json();
    assert_eq!(merged["check"], json!(0), "{merged}");
    assert_eq!(read(&fixture, "text"), text(["good", "0", "0", "mine"]));
    assert!(!fixture.project().join("made-by-the-check").exists());
    let forks = fixture.nono(&["forks", "--json"]).success().stdout;
    assert!(!forks.contains("trial-"), "{forks}");
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(read(&fixture, "text"), text(["0", "0", "0", "mine"]));
}

#[test]
fn a_trial_that_is_kept_is_merged_if_its_command_succeeded() {
    let fixture = Fixture::ordinary_user();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("text", text(["0"; 4]));
    let script = "sed -i '2s/.*/tried/' text; echo new > new";
    let told = fixture.nono(&["try", "--keep", "--", "sh", "-c", script]).success();
    assert!(told.says("take this back: nono undo"), "{}", told.stderr);
    assert_eq!(read(&fixture, "text"), text(["tried", "0", "0", "0"]));
    assert_eq!(read(&fixture, "new"), "new\n");
    assert_eq!(fixture.nono(&["forks", "--json"]).success().stdout, "[]\n");
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(read(&fixture, "text"), text(["0"; 4]));
    assert!(!fixture.project().join("new").exists());
    let failed = fixture.nono(&["try", "--keep", "--", "sh", "-c", "echo bad > new; exit 4"]);
    assert_eq!(failed.code, 4, "{}", failed.stderr);
    assert!(failed.says("it is left as fork try-"), "{}", failed.stderr);
    assert!(!fixture.project().join("new").exists());
}

#[test]
fn what_both_sides_changed_stays_without_markers_and_is_named() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("both", "0\n");
    fork(&fixture, "idea", "echo there > both; echo new > new");
    fixture.write("both", "here\n");
    let told = fixture.nono(&["fork", "merge", "idea"]);
    assert_eq!(told.code, 1, "{}", told.stderr);
    assert!(told.says("left  both: both sides changed"), "{}{}", told.stdout, told.stderr);
    assert_eq!(read(&fixture, "both"), "here\n");
    assert_eq!(read(&fixture, "new"), "new\n");
    // Chosen paths alone, and nothing that is there already.
    fork(&fixture, "other", "echo 1 > one; echo 2 > two");
    fixture.nono(&["fork", "merge", "other", "one"]).success();
    assert_eq!(read(&fixture, "one"), "1\n");
    assert!(!fixture.project().join("two").exists());
    fixture.nono(&["fork", "merge", "other", "nowhere"]).fails(1, "nowhere");
    fixture.nono(&["fork", "merge", "other", "one"]).success();
    let again = fixture.nono(&["fork", "merge", "missing"]);
    again.fails(1, "there is no fork missing");
}

#[test]
fn commits_come_alone_or_not_at_all_and_a_second_merge_moves_the_branch_on() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    repository(&fixture);
    fork(&fixture, "idea", "echo 1 > shared; git commit -qam one; git tag v1");
    fixture.nono(&["fork", "merge", "idea", "--commits-only"]).success();
    assert_eq!(read(&fixture, "shared"), "0\n");
    assert_eq!(said(&fixture, &["log", "-1", "--format=%s", "fork/idea"]), "one\n");
    fixture
        .nono(&["fork", "enter", "idea", "--", "sh", "-ec", "git commit -q --allow-empty -m two"])
        .success();
    fixture.nono(&["fork", "merge", "idea", "--no-commits"]).success();
    assert_eq!(read(&fixture, "shared"), "1\n");
    assert_eq!(said(&fixture, &["log", "-1", "--format=%s", "fork/idea"]), "one\n");
    fixture.nono(&["fork", "merge", "idea"]).success();
    assert_eq!(said(&fixture, &["log", "-1", "--format=%s", "fork/idea"]), "two\n");
    assert_eq!(said(&fixture, &["reflog", "show", "fork/idea"]).lines().count(), 2);
    // The user's own commits on that branch stay.
    by_hand(
        &fixture,
        "git stash -q; git checkout -q fork/idea; git commit -q --allow-empty -m mine",
    );
    fixture
        .nono(&["fork", "enter", "idea", "--", "sh", "-ec", "git commit -q --allow-empty -m three"])
        .success();
    let refused = fixture.nono(&["fork", "merge", "idea", "--commits-only"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.says("fork/idea is checked out"), "{}{}", refused.stdout, refused.stderr);
    by_hand(&fixture, "git checkout -q main");
    let refused = fixture.nono(&["fork", "merge", "idea", "--commits-only"]);
    assert!(refused.says("has commits that the fork does not have"), "{}", refused.stdout);
    assert_eq!(said(&fixture, &["log", "-1", "--format=%s", "fork/idea"]), "mine\n");
}

#[test]
fn objects_with_other_bytes_and_ways_out_of_the_repository_bring_no_branch() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    repository(&fixture);
    let forge = "old=$(git rev-parse HEAD~1 | sed 's,..,&/,'); \
                 new=$(git rev-parse HEAD | sed 's,..,&/,'); \
                 chmod u+w .git/objects/$new; cp .git/objects/$old .git/objects/$new";
    fork(&fixture, "forged", &format!("echo 1 > shared; git commit -qam forged; {forge}"));
    let told = fixture.nono(&["fork", "merge", "forged"]);
    assert_eq!(told.code, 1, "{}", told.stderr);
    assert!(told.says("has other bytes"), "{}{}", told.stdout, told.stderr);
    assert_eq!(read(&fixture, "shared"), "1\n", "files are another matter");
    assert_eq!(said(&fixture, &["branch", "--list", "fork/*"]), "");
    by_hand(&fixture, "git fsck --strict");
    let outside = fixture.path("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, fixture.project().join(".git/refs/heads/fork")).unwrap();
    fork(&fixture, "plain", "git commit -q --allow-empty -m plain");
    let told = fixture.nono(&["fork", "merge", "plain", "--commits-only"]);
    assert_eq!(told.code, 1, "{}", told.stderr);
    assert!(told.says("is a symlink"), "{}{}", told.stdout, told.stderr);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

/// Killed anywhere, a merge leaves the state before, or the merged one with its branch, or a
/// journal that leads to either. What a person does meanwhile is not the merge's. Each of three
/// ways looks at every third point, and at all of them where `scripts/fuzz kills` asks.
fn killed_at_each_point(way: Option<&[&str]>) {
    let own = match way {
        None => 1,
        Some([]) => 2,
        Some(_) => 3,
    };
    let shares = match std::env::var_os("NONO_EVERY_POINT") {
        Some(_) => 1..=SHARES,
        None => own..=own,
    };
    std::thread::scope(|scope| {
        for first in shares {
            scope.spawn(move || killed_at_points_from(first, way));
        }
    });
}

/// The points are shared out to so many fixtures.
const SHARES: u64 = 3;

/// The same for the points of one share.
fn killed_at_points_from(first: u64, way: Option<&[&str]>) {
    let fixture = Fixture::in_memory();
    if !has_forks(&fixture) {
        return;
    }
    settings(&fixture);
    fixture.write("text", text(["0"; 4]));
    fixture.write("gone/file", "gone\n");
    by_hand(&fixture, "git init -q && git add . && git commit -qm first");
    let script = "sed -i '2s/.*/there/' text; rm -r gone; mkdir new; echo 1 > new/file";
    fork(&fixture, "idea", &format!("{script}; git commit -qam of-idea"));
    fixture.write("text", text(["0", "0", "0", "here"]));
    fixture.write("edited", "0");
    // The files of the project, without git and without what a person does later.
    let files = |fixture: &Fixture| {
        let mut found = contents(&observe(&fixture.project()));
        let is_other = |path: &Path| {
            path.starts_with(".git") || path == Path::new("edited") || path == Path::new("later")
        };
        found.retain(|path, _| !is_other(path.as_ref()));
        found
    };
    let old = files(&fixture);
    fixture.copy_state("", "pristine");
    fixture.nono(&["fork", "merge", "idea"]).success();
    let new = files(&fixture);
    assert_ne!(old, new);
    let (mut point, mut resumed, mut landed) = (first, 0, 0);
    loop {
        fixture.copy_state("pristine", "");
        let mut command = fixture.command(&["fork", "merge", "idea"]);
        let output = command.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        let done = finished(output);
        if done.code == 0 {
            break;
        }
        assert_eq!(done.code, -1, "at point {point}: {}", done.stderr);
        fixture.write("edited", "by a person");
        fixture.write("later", "by a person");
        if let Some(way) = way {
            let ended = fixture.nono(&[&["rollback", "resume"], way].concat());
            assert!(!ended.says("error:"), "at point {point}: {}", ended.stderr);
            resumed += usize::from(!ended.says("no restore was interrupted"));
            let now = files(&fixture);
            assert!(now == old || now == new, "at point {point}: neither state: {:?}", now.keys());
            let branch = said(&fixture, &["branch", "--list", "fork/idea"]);
            if now == new && way.is_empty() {
                landed += 1;
                assert_ne!(branch, "", "at point {point}: merged without its branch");
            }
        }
        let undone = fixture.nono(&["undo", "--yes"]);
        let is_half_way = undone.says("nono resume");
        assert!(way.is_none() || !is_half_way, "at point {point}: {}", undone.stderr);
        for name in ["edited", "later"] {
            let said = &undone.stderr;
            assert_eq!(read(&fixture, name), "by a person", "at point {point}: {said}");
        }
        if !is_half_way {
            assert_eq!(
                files(&fixture),
                old,
                "at point {point}: {}{}",
                undone.stdout,
                undone.stderr
            );
        }
        fixture.nono(&["verify", "--all"]).success();
        point += SHARES;
    }
    if let Some(way) = way {
        assert!(resumed > 5, "{resumed} of {point} points need a decision");
        assert!(landed > 5 || !way.is_empty(), "{landed} of {point} points are after the landing");
    }
}

#[test]
fn a_merge_killed_at_any_point_is_finished_with_its_branch_and_undone() {
    killed_at_each_point(Some(&[]));
}

#[test]
fn a_merge_killed_at_any_point_is_taken_back() {
    killed_at_each_point(Some(&["--abort"]));
}

#[test]
fn an_undo_after_a_merge_that_was_killed_at_any_point_takes_nothing_of_a_person() {
    killed_at_each_point(None);
}

#[test]
fn an_edit_during_the_check_is_not_the_merges() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("text", text(["0"; 4]));
    fixture.write("mine", "0");
    fork(&fixture, "idea", "sed -i '2s/.*/there/' text");
    let check = "echo check begins; read answer; grep -q there text";
    let mut command = fixture.command(&["fork", "merge", "idea", "--check", check]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut merging = command.spawn().unwrap();
    let mut answers = merging.stdin.take().unwrap();
    let mut said = BufReader::new(merging.stderr.take().unwrap()).lines();
    let mut await_check = || {
        let lines = said.by_ref().map(Result::unwrap);
        lines.take_while(|line| line != "check begins").collect::<Vec<_>>()
    };
    await_check();
    fixture.write("mine", "edited during the check");
    writeln!(answers, "go on").unwrap();
    let between = await_check().join("\n");
    assert!(between.contains("the merge begins anew"), "{between}");
    writeln!(answers, "go on").unwrap();
    let rest = await_check().join("\n");
    assert!(merging.wait().unwrap().success(), "{rest}");
    assert_eq!(read(&fixture, "text"), text(["there", "0", "0", "0"]));
    fixture.write("later", "later");
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(read(&fixture, "text"), text(["0"; 4]));
    assert_eq!(read(&fixture, "mine"), "edited during the check");
    assert_eq!(read(&fixture, "later"), "later");
}

fn merged(fixture: &Fixture, name: &str) -> Vec<String> {
    let report = fixture.nono(&["fork", "merge", name, "--json"]).json();
    conflicts(fixture, &report)
}

fn go_on(fixture: &Fixture, name: &str, script: &str) {
    fixture.nono(&["fork", "enter", name, "--", "sh", "-ec", script]).success();
}

#[test]
fn a_fork_that_goes_on_is_merged_again_also_after_another_one_and_after_an_undo() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("text", text(["0"; 4]));
    fixture.write("one", "0\n");
    fork(&fixture, "a", "sed -i '2s/.*/a1/' text; echo a1 > one");
    fork(&fixture, "b", "sed -i '8s/.*/b/' text");
    assert_eq!(merged(&fixture, "a"), [""; 0]);
    assert_eq!(merged(&fixture, "b"), [""; 0]);
    assert_eq!(read(&fixture, "text"), text(["a1", "0", "b", "0"]));
    // The same lines once more: without a memory they conflict with the first merge.
    go_on(&fixture, "a", "sed -i '2s/.*/a2/' text; echo a2 > one");
    assert_eq!(merged(&fixture, "a"), [""; 0]);
    assert_eq!(read(&fixture, "text"), text(["a2", "0", "b", "0"]));
    assert_eq!(read(&fixture, "one"), "a2\n");
    let nothing = fixture.nono(&["fork", "merge", "a"]).success();
    assert!(nothing.says("no file of fork a merged"), "{}", nothing.stderr);
    // An undo takes the memory back with the files, and a redo brings it again.
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(read(&fixture, "text"), text(["a1", "0", "b", "0"]));
    assert!(fixture.nono(&["fork", "diff", "a"]).success().says("+a2"), "the fork is whole");
    assert_eq!(merged(&fixture, "a"), [""; 0]);
    assert_eq!(read(&fixture, "text"), text(["a2", "0", "b", "0"]));
    for _ in 0..3 {
        fixture.nono(&["undo", "--yes"]).success();
    }
    assert_eq!(read(&fixture, "text"), text(["0"; 4]));
    assert_eq!(merged(&fixture, "a"), [""; 0]);
    assert_eq!(read(&fixture, "text"), text(["a2", "0", "0", "0"]));
    // A part that was undone is no longer taken.
    fixture.nono(&["undo", "--yes", "one"]).success();
    assert_eq!(read(&fixture, "one"), "0\n");
    assert_eq!(merged(&fixture, "a"), [""; 0]);
    assert_eq!(read(&fixture, "one"), "a2\n");
}

#[test]
fn an_undo_of_an_older_merge_counts_as_not_merged_although_a_later_one_stands() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("text", text(["0"; 4]));
    fork(&fixture, "a", "sed -i '2s/.*/a1/' text; echo 1 > first; echo 1 > part");
    assert_eq!(merged(&fixture, "a"), [""; 0]);
    let older = fixture.latest();
    go_on(&fixture, "a", "echo 2 > second");
    assert_eq!(merged(&fixture, "a"), [""; 0]);
    fixture.nono(&["undo", &older, "part", "--yes"]).success();
    assert_eq!(merged(&fixture, "a"), [""; 0]);
    assert_eq!(read(&fixture, "part"), "1\n");
    fixture.nono(&["undo", &older, "--yes"]).success();
    assert!(!fixture.project().join("first").exists());
    assert_eq!(merged(&fixture, "a"), [""; 0]);
    assert_eq!(read(&fixture, "text"), text(["a1", "0", "0", "0"]));
    assert_eq!((read(&fixture, "first"), read(&fixture, "second")), ("1\n".into(), "2\n".into()));
}

#[test]
fn a_killed_merge_whose_journal_is_given_up_keeps_the_state_before_it() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("mine", "0");
    fork(&fixture, "a", "echo theirs > mine; mkdir new; echo 1 > new/file");
    fixture.write("mine", "my work");
    let (mut point, mut given_up) = (1, 0);
    fixture.copy_state("", "pristine");
    loop {
        fixture.copy_state("pristine", "");
        let mut command = fixture.command(&["fork", "merge", "a", "--theirs"]);
        let done = finished(command.env("NONO_FAIL_POINT", point.to_string()).output().unwrap());
        if done.code == 0 {
            break;
        }
        point += 7;
        let id = fixture.latest();
        let gone = fixture.nono(&["resume", &id, "--discard"]);
        if !gone.says("the journal was set aside") {
            continue;
        }
        given_up += 1;
        let _ = fixture.nono(&["resume"]);
        assert_eq!(fixture.nono(&["cat", &format!("{id}/0"), "mine"]).success().stdout, "my work");
        fixture.nono(&["undo", &id, "--yes", "--force"]).success();
        assert_eq!(read(&fixture, "mine"), "my work", "before point {point}");
        assert!(!fixture.project().join("new").exists(), "before point {point}");
        // Nothing of it counts as merged.
        fixture.nono(&["fork", "merge", "a", "--theirs"]).success();
        assert_eq!(read(&fixture, "mine"), "theirs\n");
    }
    assert!(given_up > 3, "{given_up} of {point} points leave a journal");
}

#[test]
fn the_work_that_a_merge_leaves_in_a_fork_is_named() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    repository(&fixture);
    fixture.write("target/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    fixture.write("target/.rustc_info.json", "{}");
    let script = "echo 1 > shared; git stash -q; git tag v1; echo 2 > new; git add new; \
                  git config user.signingkey x; echo y > target/y";
    fork(&fixture, "idea", script);
    let told = fixture.nono(&["fork", "merge", "idea"]);
    for line in
        ["the stash of .git", "tag v1 of .git", "the staged files of .git", "the settings of .git"]
    {
        assert!(told.says(&format!("stays in the fork: {line}")), "{line}: {}", told.stderr);
    }
    assert!(told.says("stays in the fork: changes in target"), "{}", told.stderr);
    assert_eq!(read(&fixture, "new"), "2\n");
    let report = fixture.nono(&["fork", "merge", "idea", "--json"]).json();
    assert_eq!(report["stays"].as_array().unwrap().len(), 5, "{report}");
    // A commit alone is no such work.
    fork(&fixture, "plain", "echo plain > plain");
    let told = fixture.nono(&["fork", "merge", "plain"]).success();
    assert!(!told.says("stays in the fork"), "{}", told.stderr);
}

#[test]
fn a_side_is_taken_by_a_flag_and_a_difference_is_limited_to_paths() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("text", text(["0"; 4]));
    fixture.write("dir/other", "0\n");
    let edit = "sed -i -e '2s/.*/there/' -e '5s/.*/there/' text; echo there > dir/other";
    fork(&fixture, "idea", edit);
    let limited = fixture.nono(&["fork", "diff", "idea", "dir"]).success();
    assert!(limited.says("+there") && !limited.says("a/text"), "{}", limited.stdout);
    let named = fixture.nono(&["fork", "diff", "idea", "--name-only", "--", "text"]).success();
    assert_eq!(named.stdout, "text\n");
    fixture.nono(&["fork", "diff", "idea", "nowhere"]).fails(1, "nowhere is in neither state");
    fixture.write("text", text(["here", "0", "0", "here"]));
    let left = fixture.nono(&["fork", "merge", "idea", "text"]);
    assert_eq!(left.code, 1, "{}", left.stderr);
    assert!(left.says("take it: --theirs"), "{}", left.stderr);
    fixture.nono(&["fork", "merge", "idea", "--theirs"]).success();
    assert_eq!(read(&fixture, "text"), text(["there", "there", "0", "here"]));
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(read(&fixture, "text"), text(["here", "0", "0", "here"]));
    fixture.nono(&["fork", "merge", "idea", "--ours"]).success();
    assert_eq!(read(&fixture, "text"), text(["here", "there", "0", "here"]));
    assert_eq!(merged(&fixture, "idea"), [""; 0], "a decision is not asked for again");
    fixture.nono(&["fork", "merge", "idea", "--ours", "--theirs"]).fails(2, "--theirs");
}

/// A merge with one conflict in a text, at its question.
fn asked() -> Option<(Fixture, Terminal)> {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return None;
    }
    fixture.write("text", text(["0"; 4]));
    fork(&fixture, "idea", "sed -i '2s/.*/there/' text; echo 1 > new");
    fixture.write("text", text(["here", "0", "0", "0"]));
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("{program} fork merge idea; echo ended with $?; exec cat"),
    );
    terminal.wait_until("[d/m/k/o/L/n/?]", |screen| {
        screen.replace([' ', '\n'], "").contains("[d/m/k/o/L/n/?]")
    });
    Some((fixture, terminal))
}

#[test]
fn the_question_about_a_conflict_takes_a_side_or_none_by_its_keys() {
    for (keys, value, code) in [
        (&["o"][..], "there", 0),
        (&["k"], "here", 0),
        (&["m", "b"], "here\nthere", 0),
        (&["l"], "here", 1),
    ] {
        let Some((fixture, terminal)) = asked() else { return };
        for (at, key) in keys.iter().enumerate() {
            if at > 0 {
                terminal.wait_for("[k/o/b/N/?]");
            }
            terminal.keys(&[key, "Enter"]);
        }
        terminal.wait_for(&format!("ended with {code}"));
        assert_eq!(read(&fixture, "text"), text([value, "0", "0", "0"]), "{keys:?}");
        assert_eq!(read(&fixture, "new"), "1\n");
    }
    let Some((fixture, terminal)) = asked() else { return };
    terminal.keys(&["n", "Enter"]);
    terminal.wait_for("ended with 1");
    assert!(!fixture.project().join("new").exists());
}

#[test]
fn a_directory_that_cannot_be_read_in_the_fork_is_named() {
    let fixture = Fixture::ordinary_user();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("dir/file", "0\n");
    fixture.write("other", "0\n");
    fork(&fixture, "idea", "echo 1 > dir/file; echo 1 > other; chmod 000 dir");
    let told = fixture.nono(&["fork", "merge", "idea"]);
    assert_eq!(told.code, 1, "{}{}", told.stdout, told.stderr);
    assert!(told.says("left  dir"), "{}{}", told.stdout, told.stderr);
    assert_eq!(read(&fixture, "dir/file"), "0\n");
    assert_eq!(read(&fixture, "other"), "1\n");
}

#[test]
fn a_directory_that_both_sides_renamed_stays_under_its_name_here_and_is_named() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    for name in ["x", "y"] {
        fixture.write(&format!("dir/{name}"), name);
    }
    fork(&fixture, "idea", "mv dir there");
    fs::rename(fixture.project().join("dir"), fixture.project().join("here")).unwrap();
    let told = fixture.nono(&["fork", "merge", "idea"]);
    assert_eq!(told.code, 1, "{}", told.stderr);
    assert!(
        told.says("left  there: dir was renamed on both sides, here to here"),
        "{}{}",
        told.stdout,
        told.stderr
    );
    assert!(!fixture.project().join("there").exists());
    fixture.nono(&["fork", "merge", "idea", "--theirs"]).success();
    assert!(!fixture.project().join("here").exists());
    assert_eq!(read(&fixture, "there/x"), "x");
}
