//! Sentences that lead on: a hint goes where the user wanted to go, a sum counts what it says, and
//! a help speaks of its own command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::fixture::Fixture;
use crate::terminal::Terminal;

fn git(fixture: &Fixture, script: &str) {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(fixture.project()).env("HOME", fixture.path("home"));
    for (name, value) in [("AUTHOR", "a"), ("COMMITTER", "a")] {
        command.env(format!("GIT_{name}_NAME"), value).env(format!("GIT_{name}_EMAIL"), "a@b");
    }
    assert!(command.status().unwrap().success(), "{script}");
}

#[test]
fn both_sums_of_an_undo_count_the_same_paths() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.write("b", "1");
    git(&fixture, "git init -q; git add .; git commit -qm one");
    fixture
        .record("rm a; echo 2 > b; git -c user.name=a -c user.email=a@b commit -qam two")
        .success();
    let planned = fixture.nono(&["undo", "--dry-run"]).success();
    let sum = |text: &str| {
        let sum = text.rsplit(".git: ").next().unwrap();
        sum.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    };
    let did =
        planned.stdout.lines().find(|line| line.starts_with("the undo would do this: ")).unwrap();
    let would = planned.stderr.lines().find(|line| line.contains("would do this")).unwrap();
    assert_eq!(sum(did), sum(would), "{}{}", planned.stdout, planned.stderr);
    assert!(did.contains("~1 modified") && did.contains("+1 file"), "{did}");
    assert!(planned.stdout.contains("~ repository  .git: "), "{}", planned.stdout);
    assert!(!planned.stdout.contains("~ modified    .git"), "{}", planned.stdout);
}

#[test]
fn the_question_of_an_undo_begins_with_commits_and_branches() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    git(&fixture, "git init -q -b main; git add .; git commit -qm one");
    let script = "echo 2 > a; git -c user.name=a -c user.email=a@b commit -qam wip; \
                  git branch feature; git tag v0";
    fixture.record(script).success();
    let planned = fixture.nono(&["undo", "--dry-run"]).success();
    let lines: Vec<&str> = planned.stdout.lines().collect();
    let sum = lines.iter().position(|line| line.starts_with("the undo would do this: ")).unwrap();
    let file = lines.iter().position(|line| line.starts_with("~ modified    a")).unwrap();
    let told = lines[sum + 1..file].join("\n");
    for word in ["main", "1 commit", "feature", "v0"] {
        assert!(told.contains(word), "{word}: {}", planned.stdout);
    }
    // The signs are those of the report.
    let done = fixture.nono(&["undo", "--yes"]).success();
    assert!(done.stdout.contains(lines[file]), "{}{}", planned.stdout, done.stdout);
}

#[test]
fn touched_files_are_counted_in_a_stat_and_a_mode_is_named_in_a_log() {
    let fixture = Fixture::new();
    for name in ["a", "b", "c"] {
        fs::set_permissions(fixture.write(name, "1"), PermissionsExt::from_mode(0o644)).unwrap();
    }
    fixture.record("touch -d 2001-01-01 a b; echo 2 > c").success();
    let stat = fixture.nono(&["diff", "--stat"]).success();
    assert!(!stat.stdout.contains("modification time"), "{}", stat.stdout);
    assert!(stat.says("2 files touched (-v names them)"), "{}", stat.stderr);
    let named = fixture.nono(&["-v", "diff", "--stat"]).success();
    assert_eq!(named.stdout.matches("modification time changed").count(), 2, "{}", named.stdout);
    fixture.record("chmod 600 c").success();
    let log = fixture.nono(&["log", "c"]).success();
    assert!(log.stdout.contains("mode 644 → 600"), "{}", log.stdout);
    fixture.nono(&["undo", "--yes"]).success();
    let log = fixture.nono(&["log"]).success();
    let first = log.stdout.lines().next().unwrap();
    assert!(first.contains("  undone  sh -c 'chmod 600 c'"), "{}", log.stdout);
}

#[test]
fn a_diff_after_a_snapshot_is_with_now_and_names_go_up() {
    let fixture = Fixture::new();
    fixture.write("src/core/m1", "1");
    fixture.write("src/web/m2", "1");
    fixture.nono(&["snapshot"]).success();
    fixture.write("src/core/m1", "2");
    fixture.write("src/web/m2", "2");
    let mut command = fixture.command(&["diff", "--name-only"]);
    command.current_dir(fixture.project().join("src/core"));
    let names = crate::fixture::finished(command.output().unwrap()).success();
    assert_eq!(names.stdout, "m1\n../web/m2\n");
    // So it is where the snapshot is named, and after a restore of it.
    let id = fixture.latest();
    for named in [id.clone(), format!("{id}/0")] {
        let names = fixture.nono(&["diff", &named, "--name-only"]).success();
        assert_eq!(names.stdout, "src/core/m1\nsrc/web/m2\n");
    }
    // With a second snapshot, it is between the two.
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    fixture.write("src/core/m1", "1");
    let names = fixture.nono(&["diff", "--name-only"]).success();
    assert_eq!(names.stdout, "src/core/m1\nsrc/web/m2\n");
}

#[test]
fn a_path_at_the_wrong_place_is_answered_with_the_right_one() {
    let fixture = Fixture::new().ignored("none");
    fixture.write(".gitignore", "*.db\n");
    fixture.write("a", "1");
    fixture.write("big.db", vec![b'x'; 3 << 20]);
    fixture.record("echo 2 > a").success();
    let planned = fixture.nono(&["rollback", "restore", "a", "--dry-run"]).success();
    assert!(planned.stdout.contains("~ modified    a"), "{}", planned.stdout);
    fixture.nono(&["rollback", "restore", "latest", "big.db"]).fails(1, "left");
    let project = fixture.project();
    let other = fixture.path("other");
    fs::create_dir(&other).unwrap();
    let elsewhere = |words: &[&str]| {
        let mut command = fixture.command(words);
        command.current_dir(&other);
        crate::fixture::finished(command.output().unwrap())
    };
    let path = project.join("a").display().to_string();
    let way = format!("cd {} && nono undo a", project.display());
    let told = elsewhere(&["undo", "--yes", &path]).fails(1, "no session has recorded");
    assert!(told.says(&way), "{}", told.stderr);
    // The same where something else is recorded.
    fs::write(other.join("x"), "1").unwrap();
    let run = ["run", "--rollback", "--no-rollback-prompt", "--", "sh", "-c", "echo 2 > x"];
    elsewhere(&run).success();
    let told = elsewhere(&["undo", "--yes", &path]).fails(1, "has recorded nothing at");
    assert!(told.says(&way), "{}", told.stderr);
}

#[test]
fn a_help_speaks_of_its_own_command() {
    let fixture = Fixture::new();
    let help = |words: &[&str]| {
        let text = fixture.nono(&[words, &["--help"]].concat()).success().stdout;
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(help(&["remote", "add"]).contains("a letter, then letters, digits, dots, - and _"));
    assert!(!help(&["agent", "uninstall"]).contains("--mcp"));
    assert!(help(&["agent", "install"]).contains("--mcp"));
    for words in [["undo"], ["redo"]] {
        assert!(!help(&words).contains("restore --to"), "{words:?}");
        assert!(!help(&words).contains("after the session"), "{words:?}");
    }
    for words in [
        &["push"][..],
        &["pull"],
        &["remote", "add"],
        &["remote", "verify"],
        &["archive", "show"],
        &["archive", "verify"],
        &["archive", "import"],
    ] {
        let text = help(words);
        let (json, heading) = (text.find("--json"), text.find("cryption:"));
        assert!(json.is_some() && json < heading, "{words:?}: {text}");
    }
}

#[test]
fn a_wrong_setting_is_told_in_plain_words_and_changes_nothing() {
    let fixture = Fixture::new();
    for value in ["two", "-1"] {
        let told = fixture.nono(&["config", "set", "max_sessions", value]);
        let told = told.fails(2, "a whole number, 0 or more; nothing was changed");
        assert!(!told.says("config.toml:") && !told.says("u64"), "{}", told.stderr);
    }
    let mut edit = fixture.command(&["config", "edit"]);
    edit.env("EDITOR", "false");
    crate::fixture::finished(edit.output().unwrap()).fails(1, "was not changed");
    let config = fixture.path("home/.config/nono");
    let left = fs::read_dir(&config).into_iter().flatten().count();
    assert_eq!(left, 0, "{}", config.display());
}

#[test]
fn of_many_ids_that_begin_alike_the_newest_are_named() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    for _ in 0..7 {
        fixture.nono(&["snapshot"]).success();
    }
    let told = fixture.nono(&["rollback", "show", "2"]).fails(1, "could be any of");
    assert!(told.says(&fixture.latest()) && told.says("and 2 more"), "{}", told.stderr);
}

#[test]
fn many_paths_are_summed_up_unless_somebody_asks_for_all() {
    let fixture = Fixture::new();
    for number in 0..40 {
        fixture.write(&format!("many/f{number}"), "1");
    }
    fixture.record("rm -rf many; echo 1 > made").success();
    for number in 0..30 {
        fixture.write(&format!("own/f{number}"), "1");
    }
    let done = fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(done.stdout.lines().count(), 2, "{}", done.stdout);
    assert!(done.stdout.contains("many/  +40 files"), "{}", done.stdout);
    assert!(done.says("so it stays: own (with 30 paths in it)"), "{}", done.stderr);
    fixture.nono(&["redo", "--yes"]).success();
    let all = fixture.nono(&["-v", "undo", "--yes"]).success();
    assert_eq!(all.stdout.matches("+ created     many/f").count(), 40, "{}", all.stdout);
    assert!(all.stderr.contains("so it stays:\nnono:   own\n"), "{}", all.stderr);
}

#[test]
fn a_limit_that_lets_nothing_go_yet_says_why() {
    let fixture = Fixture::new();
    for number in 0..4 {
        fixture.record(&format!("echo {number} > a")).success();
    }
    let told = fixture.nono(&["rollback", "cleanup", "--max-sessions", "1", "--dry-run"]).success();
    assert!(
        told.says("3 sessions over a limit stay: they are younger than a day"),
        "{}",
        told.stderr
    );
}

#[test]
fn a_refused_undo_lists_nothing_as_done() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.write("b", "1");
    fixture.record("echo 2 > a; echo 2 > b").success();
    fixture.write("a", "mine");
    let refused = fixture.nono(&["undo", "--yes"]).fails(1, "nothing was changed");
    assert_eq!(refused.stdout, "");
    assert!(!refused.says("restoring"), "{}", refused.stderr);
    assert!(refused.says("nono redo brings them back"), "{}", refused.stderr);
}

#[test]
fn a_path_in_neither_state_of_a_diff_is_an_error() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    let diff = |words: &[&str]| fixture.nono(&[&["diff"], words].concat());
    let (first, last) = ("latest/0", "latest/1");
    diff(&[first, last, "nope"]).fails(1, "nope, neither in snapshot");
    diff(&[first, "now", "--", "nope"]).fails(1, "/0 nor now");
    diff(&[first, last, "a", "nope", "--json"]).fails(1, "there is nothing at");
    diff(&["/etc"]).fails(1, "the session has recorded nothing at /etc: it records");
    // A path in one of them may be unchanged, and one above has all of it.
    assert!(diff(&[first, last, "a"]).success().stdout.contains("+2"));
    assert!(diff(&[first, first, "a"]).success().stdout.is_empty());
    let above = fixture.project();
    let above = above.parent().unwrap().to_str().unwrap();
    assert!(diff(&[first, last, above]).success().stdout.contains("+2"));
    fixture.write("b", "1");
    assert!(diff(&[first, "now", "b"]).success().stdout.contains("+1"));
}

#[test]
fn a_file_that_a_snapshot_does_not_have_is_said_to_be_where_it_is() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.nono(&["snapshot"]).success();
    let cat = |snapshot: &str, path: &str| fixture.nono(&["cat", snapshot, path]);
    fixture.write("n1", "new");
    cat("latest/0", "n1").fails(1, "n1 in snapshot 0: it is there now, and in no snapshot");
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    cat("latest/0", "n1").fails(1, "it is there now, and first in snapshot 1");
    fs::remove_file(fixture.project().join("n1")).unwrap();
    cat("latest/0", "n1").fails(1, "it is first in snapshot 1, and not there now");
    cat("latest/0", "n2").fails(1, "n2, neither in snapshot 0 nor now");
}

#[test]
fn a_list_says_that_there_is_no_store() {
    let fixture = Fixture::new();
    let none = fixture.path("nope");
    let none = none.to_str().unwrap();
    let list = fixture.nono(&["--root", none, "list"]).success();
    assert!(list.says(&format!("there is no store at {none}")), "{}", list.stderr);
    fixture.nono(&["snapshot"]).success();
    let store = fixture.store();
    let list = fixture.nono(&["--root", store.to_str().unwrap(), "list"]).success();
    assert!(!list.says("there is no store"), "{}", list.stderr);
}

/// Each line of the sources of the program and its packages, with its place; no tests.
fn source_lines() -> Vec<(String, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pending: Vec<_> =
        ["src", "engine/src", "archive/src", "container/src", "mount/src", "python/src"]
            .map(|dir| top.join(dir))
            .to_vec();
    let mut found = Vec::new();
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let name = path.to_str().unwrap();
        if !name.ends_with(".rs") || name.contains("tests") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let lines = code.lines().enumerate();
        found.extend(lines.map(|(at, line)| (format!("{name}:{}", at + 1), line.to_owned())));
    }
    assert!(found.len() > 50_000, "{}", found.len());
    found
}

#[test]
fn each_offered_command_is_the_short_one() {
    // The words behind `rollback` that work without it.
    let short = [
        "list", "show", "review", "diff", "find", "restore", "cat", "resume", "verify", "cleanup",
        "pin", "unpin", "usage",
    ];
    let long: Vec<_> = source_lines()
        .into_iter()
        // The help tells of the older word once.
        .filter(|(place, _)| !place.contains("cli/groups.rs"))
        .filter(|(_, line)| short.iter().any(|word| line.contains(&format!("rollback {word}"))))
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn a_number_and_its_noun_are_made_in_one_place() {
    let nouns = [
        "files",
        "changes",
        "directories",
        "sessions",
        "snapshots",
        "objects",
        "steps",
        "paths",
        "entries",
        "commits",
        "archives",
        "containers",
        "volumes",
        "forks",
        "versions",
        "days",
        "prompts",
        "processes",
        "branches",
    ];
    let lines = source_lines();
    let mut wrong = Vec::new();
    for (at, (place, line)) in lines.iter().enumerate() {
        let is_count = |noun: &&&str| {
            line.match_indices(&format!("}} {noun}")).any(|(end, _)| {
                let behind = line[end + 2 + noun.len()..].chars().next();
                behind.is_none_or(|c| !c.is_alphanumeric())
            })
        };
        // A number of one has an arm of its own just above.
        let above = &lines[at.saturating_sub(4)..=at];
        let has_arm = above.iter().any(|(_, line)| {
            ["1 =>", "== 1", "0 | 1", "debug!", "info!"].iter().any(|part| line.contains(part))
        });
        // A command that is offered, and an engine's word about a forged document, are no counts.
        let is_other = line.contains("NONO}")
            || ["archive/src", "engine/src/verify", "engine/src/import"]
                .iter()
                .any(|dir| place.contains(dir));
        if line.contains('"') && !is_other && nouns.iter().any(|noun| is_count(&noun)) && !has_arm {
            wrong.push(format!("{place}: {}", line.trim()));
        }
    }
    assert!(wrong.is_empty(), "`counted` makes these: {wrong:#?}");
}

#[test]
fn a_command_that_is_none_is_answered_with_one_that_fits_or_with_none() {
    let fixture = Fixture::new();
    let told = fixture.nono(&["rm", "x"]).fails(2, "`nono cleanup` is probably meant");
    assert!(!told.says("remote"), "{}", told.stderr);
    fixture.nono(&["statsu"]).fails(2, "'status'");
    assert!(!fixture.nono(&["nonsense"]).fails(2, "nonsense").says("tip:"));
}

#[test]
fn a_path_that_means_nothing_is_told_before_any_question_is() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    let told = fixture.nono(&["undo", "nosuch.txt"]).fails(1, "there is nothing at");
    assert!(told.says("nosuch.txt") && !told.says("terminal"), "{}", told.stderr);
    fixture.nono(&["undo", "a"]).fails(2, "this is no terminal");
    fixture.nono(&["undo"]).fails(2, "this is no terminal");
}

#[test]
fn an_unchanged_file_is_printed_and_a_long_command_is_shown_as_a_whole() {
    let fixture = Fixture::new();
    fixture.write("a", "one\n");
    fixture.write("b", "1");
    let long = format!("echo 2 > b; : {}", "x".repeat(200));
    fixture.record(&long).success();
    assert_eq!(fixture.nono(&["cat", "a"]).success().stdout, "one\n");
    assert_eq!(fixture.nono(&["cat", "b"]).success().stdout, "1");
    fixture.nono(&["restore", "--yes", "a"]).fails(1, "differs from now");
    let shown = fixture.nono(&["show"]).success().stdout;
    assert!(shown.contains(&"x".repeat(200)), "{shown}");
    assert!(!fixture.nono(&["list"]).success().stdout.contains(&"x".repeat(100)));
}

/// A terminal that is asked by `nono cleanup` whether this session may go.
fn asked_about(fixture: &Fixture, session: &str) -> Terminal {
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let command = format!("{program} cleanup {session}; exec cat");
    let [socket, home] = ["tmux", "home"].map(|name| fixture.path(name));
    let terminal = Terminal::start(&socket, &fixture.project(), &home, &command);
    terminal.wait_for("remove 1 session? It cannot be undone");
    terminal
}

#[test]
fn cleanup_lists_what_goes_before_it_asks() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    let session = fixture.latest();
    let terminal = asked_about(&fixture, "latest");
    // Where a line ends depends on the length of the project's path.
    let screen = terminal.screen().replace(['\n', ' '], "");
    assert!(screen.contains(&format!("wouldremove{session}")), "{screen}");
    assert!(screen.contains("echo2>a"), "{screen}");
    terminal.line("n");
    terminal.wait_for("nothing was removed");
    assert!(fixture.session().exists());
}

#[test]
fn cleanup_lists_what_goes_where_another_session_hides_what_that_frees() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.nono(&["snapshot"]).success();
    let damaged = fixture.session();
    fixture.record("echo 2 > a").success();
    let session = fixture.latest();
    fs::write(damaged.join("manifest.json"), "").unwrap();
    let terminal = asked_about(&fixture, &session);
    let screen = terminal.screen().replace(['\n', ' '], "");
    assert!(screen.contains("whatthisfreesisnotknown"), "{screen}");
    assert!(screen.contains(&format!("wouldremove{session}")), "{screen}");
    terminal.line("n");
    terminal.wait_for("nothing was removed");
}
