//! An undo of a session in files that were changed later: lines that do not touch are merged.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;

use serde_json::Value;

use crate::fixture::{Fixture, finished};
use crate::observe::{assert_same, observe};
use crate::terminal::Terminal;

/// Numbered lines with some of them replaced.
fn lines(replaced: &[(usize, &str)]) -> String {
    let line = |number: usize| match replaced.iter().find(|(at, _)| *at == number) {
        Some((_, text)) => format!("{text}\n"),
        None => format!("line {number}\n"),
    };
    (1..=30).map(line).collect()
}

fn read(fixture: &Fixture, name: &str) -> Vec<u8> {
    fs::read(fixture.project().join(name)).unwrap()
}

fn by_hand(fixture: &Fixture, script: &str) {
    let mut shell = std::process::Command::new("sh");
    finished(shell.args(["-c", script]).current_dir(fixture.project()).output().unwrap()).success();
}

fn names(fixture: &Fixture, report: &Value, list: &str) -> Vec<String> {
    let project = format!("{}/", fixture.project().display());
    let path = |entry: &Value| entry["path"].as_str().or(entry.as_str()).unwrap().to_owned();
    let paths = report[list].as_array().unwrap().iter().map(path);
    paths.map(|path| path.strip_prefix(&project).unwrap().to_owned()).collect()
}

/// A session that changed line 10 of `file`, and a later edit of line 20.
fn edited() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("file", lines(&[]));
    fixture.record("sed -i '10s/.*/session/' file; echo new > made").success();
    fixture.write("file", lines(&[(10, "session"), (20, "mine")]));
    fixture
}

#[test]
fn lines_that_were_changed_later_stay_and_a_redo_gives_the_state_before_back() {
    let fixture = edited();
    let before = observe(&fixture.project());
    let planned = fixture.nono(&["undo", "--dry-run", "--json"]).success().json();
    assert_eq!(names(&fixture, &planned, "merged"), ["file"], "{planned}");
    assert_eq!(names(&fixture, &planned, "conflicts"), [""; 0], "{planned}");
    let dry_run = fixture.nono(&["undo", "--dry-run"]).success();
    assert!(dry_run.says("merged, so that later changes stay: file"), "{}", dry_run.stderr);
    assert_same(&before, &observe(&fixture.project()));
    let done = fixture.nono(&["undo", "--yes"]).success();
    assert!(done.says("merged, so that later changes stay: file"), "{}", done.stderr);
    assert_eq!(read(&fixture, "file"), lines(&[(20, "mine")]).as_bytes());
    assert!(!fixture.project().join("made").exists());
    fixture.nono(&["redo", "--yes"]).success();
    assert_same(&before, &observe(&fixture.project()));
    // The later change is one again.
    let again = fixture.nono(&["undo", "--yes", "--json"]).success().json();
    assert_eq!(names(&fixture, &again, "merged"), ["file"], "{again}");
    assert_eq!(read(&fixture, "file"), lines(&[(20, "mine")]).as_bytes());
    let safety = format!("latest/{}", again["safety_snapshot"]);
    fixture.nono(&["rollback", "restore", &safety]).success();
    assert_same(&before, &observe(&fixture.project()));
    fixture.nono(&["verify", "--all"]).success();
}

#[test]
fn a_change_after_a_merged_undo_is_a_conflict_of_the_redo() {
    let fixture = edited();
    fixture.nono(&["undo", "--yes"]).success();
    fixture.write("file", lines(&[(20, "mine"), (25, "later")]));
    fixture.nono(&["redo", "--yes"]).fails(1, "file was changed after the session");
    assert_eq!(read(&fixture, "file"), lines(&[(20, "mine"), (25, "later")]).as_bytes());
}

#[test]
fn force_is_about_whole_files() {
    let fixture = edited();
    let forced = fixture.nono(&["undo", "--yes", "--force", "--json"]).success().json();
    assert_eq!(names(&fixture, &forced, "merged"), [""; 0], "{forced}");
    assert_eq!(read(&fixture, "file"), lines(&[]).as_bytes());
}

#[test]
fn keep_newer_merges_what_merges_and_leaves_the_touching_rest() {
    let fixture = Fixture::new();
    fixture.write("file", lines(&[]));
    fixture.write("touched", "0\n");
    fixture.record("sed -i '10s/.*/session/' file; echo 1 > touched; echo new > made").success();
    fixture.write("file", lines(&[(10, "session"), (20, "mine")]));
    fixture.write("touched", "mine\n");
    let before = observe(&fixture.project());
    let kept = fixture.nono(&["undo", "--yes", "--keep-newer", "--json"]).success().json();
    assert_eq!(names(&fixture, &kept, "conflicts"), ["touched"], "{kept}");
    assert_eq!(names(&fixture, &kept, "merged"), ["file"], "{kept}");
    assert_eq!(read(&fixture, "file"), lines(&[(20, "mine")]).as_bytes());
    assert_eq!(read(&fixture, "touched"), b"mine\n");
    assert!(!fixture.project().join("made").exists());
    fixture.nono(&["redo", "--yes"]).success();
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn selected_paths_merge_as_well_and_the_redo_takes_that_back() {
    let fixture = edited();
    let before = observe(&fixture.project());
    let done = fixture.nono(&["undo", "file", "--yes", "--json"]).success().json();
    assert_eq!(names(&fixture, &done, "merged"), ["file"], "{done}");
    assert_eq!(read(&fixture, "file"), lines(&[(20, "mine")]).as_bytes());
    assert!(fixture.project().join("made").exists());
    fixture.nono(&["redo", "--yes"]).success();
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn a_conflict_elsewhere_leaves_mergeable_files_as_they_are() {
    let fixture = Fixture::new();
    fixture.write("file", lines(&[]));
    fixture.write("touched", "0\n");
    fixture.record("sed -i '10s/.*/session/' file; echo 1 > touched").success();
    fixture.write("file", lines(&[(10, "session"), (20, "mine")]));
    fixture.write("touched", "mine\n");
    let before = observe(&fixture.project());
    let refused = fixture.nono(&["undo", "--yes", "--json"]);
    assert_eq!(refused.code, 1);
    let refused = refused.json();
    assert_eq!(names(&fixture, &refused, "conflicts"), ["touched"], "{refused}");
    assert_eq!(names(&fixture, &refused, "merged"), [""; 0], "nothing was: {refused}");
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn of_several_sessions_the_earlier_one_goes_alone() {
    let fixture = Fixture::new();
    fixture.write("file", lines(&[]));
    fixture.record("sed -i '10s/.*/first/' file").success();
    let first = fixture.latest();
    fixture.record("sed -i '20s/.*/second/' file").success();
    let second = fixture.latest();
    fixture.write("file", lines(&[(10, "first"), (20, "second"), (28, "mine")]));
    fixture.nono(&["undo", &first, "--yes"]).success();
    assert_eq!(read(&fixture, "file"), lines(&[(20, "second"), (28, "mine")]).as_bytes());
    fixture.nono(&["undo", &second, "--yes"]).success();
    assert_eq!(read(&fixture, "file"), lines(&[(28, "mine")]).as_bytes());
    // Nothing of it is left, so what is there is no change of the session.
    let nothing = fixture.nono(&["undo", &first, "--yes"]);
    nothing.fails(1, "is left to undo");
    assert_eq!(read(&fixture, "file"), lines(&[(28, "mine")]).as_bytes());
}

/// The outcome of an undo for a file.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// It has these bytes and this mode afterwards.
    Merged(Vec<u8>, u32),
    /// Nothing is done.
    Conflict,
}

#[test]
fn each_kind_of_change_is_merged_or_a_conflict_and_nothing_in_between() {
    use Outcome::{Conflict, Merged};
    let crlf = |replaced: &[(usize, &str)]| lines(replaced).replace('\n', "\r\n").into_bytes();
    let no_newline = |replaced: &[(usize, &str)]| lines(replaced).trim_end().as_bytes().to_vec();
    let text = |replaced: &[(usize, &str)]| lines(replaced).into_bytes();
    let binary = [&lines(&[]).into_bytes()[..], b"\0"].concat();
    // More than is merged.
    let long = b"long line of a text\n".repeat(500_000);
    let [sed_10, sed_20] =
        ["sed -i '10s/line [0-9]*/session/' f", "sed -i '20s/line [0-9]*/mine/' f"];
    let mine = [(20, "mine")];
    let both_of_session = format!("{sed_10}; chmod 755 f");
    let second_name = format!("{sed_20}; ln f other");
    let cases: Vec<(&str, Vec<u8>, &str, &str, Outcome)> = vec![
        ("lines", text(&[]), sed_10, sed_20, Merged(text(&mine), 0o644)),
        ("CRLF", crlf(&[]), sed_10, sed_20, Merged(crlf(&mine), 0o644)),
        ("no final newline", no_newline(&[]), sed_10, sed_20, Merged(no_newline(&mine), 0o644)),
        (
            "the last line has no newline and is the user's",
            no_newline(&[]),
            sed_10,
            "printf ' more' >> f",
            Merged([&no_newline(&[])[..], b" more"].concat(), 0o644),
        ),
        ("the same line", text(&[]), sed_10, "sed -i '10s/.*/mine/' f", Conflict),
        ("the next line", text(&[]), sed_10, "sed -i '11s/.*/mine/' f", Conflict),
        ("bytes", binary.clone(), sed_10, sed_20, Conflict),
        ("a long file", long, "sed -i '10s/long/x/' f", "sed -i '20s/long/y/' f", Conflict),
        ("a mode of the user", text(&[]), sed_10, "chmod 755 f", Merged(text(&[]), 0o755)),
        ("a mode of bytes", binary.clone(), sed_10, "chmod 755 f", Merged(binary, 0o755)),
        ("a mode of the session", text(&[]), "chmod 755 f", sed_20, Merged(text(&mine), 0o644)),
        ("two modes", text(&[]), "chmod 755 f", "chmod 600 f", Conflict),
        (
            "a mode and lines of each",
            text(&[]),
            &both_of_session,
            sed_20,
            Merged(text(&mine), 0o644),
        ),
        ("gone since", text(&[]), sed_10, "rm f", Conflict),
        ("removed, and made again", text(&[]), "rm f", "echo mine > f", Conflict),
        ("a symlink since", text(&[]), sed_10, "ln -sf elsewhere f", Conflict),
        ("a directory since", text(&[]), sed_10, "rm f; mkdir f; echo > f/x", Conflict),
        ("a second name", text(&[]), sed_10, &second_name, Conflict),
        ("emptied", text(&[]), sed_10, ": > f", Conflict),
    ];
    for (name, old, session, later, outcome) in cases {
        let fixture = Fixture::new();
        let path = fixture.write("f", &old);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fixture.record(session).success();
        by_hand(&fixture, later);
        let before = observe(&fixture.project());
        let done = fixture.nono(&["undo", "--yes", "--json"]);
        let report = done.json();
        match outcome {
            Conflict => {
                assert_eq!(done.code, 1, "{name}: {report}");
                assert_ne!(names(&fixture, &report, "conflicts"), [""; 0], "{name}: {report}");
                assert_same(&before, &observe(&fixture.project()));
                continue;
            }
            Merged(bytes, mode) => {
                assert_eq!(done.code, 0, "{name}: {report}");
                assert_eq!(names(&fixture, &report, "merged"), ["f"], "{name}: {report}");
                assert_eq!(read(&fixture, "f"), bytes, "{name}");
                let is = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
                assert_eq!(is, mode, "{name}");
            }
        }
        fixture.nono(&["redo", "--yes"]).success();
        assert_same(&before, &observe(&fixture.project()));
    }
}

#[test]
fn a_symlink_that_both_changed_is_a_conflict() {
    let fixture = Fixture::new();
    let link = fixture.project().join("link");
    symlink("one", &link).unwrap();
    fixture.record("ln -sfn two link").success();
    by_hand(&fixture, "ln -sfn three link");
    fixture.nono(&["undo", "--yes"]).fails(1, "link was changed after the session");
    assert_eq!(fs::read_link(&link).unwrap().to_str(), Some("three"));
}

#[test]
fn a_merged_undo_killed_at_any_point_is_finished_or_taken_back_and_redone() {
    let fixture = Fixture::in_memory();
    fixture.write("file", lines(&[]));
    fixture.record("sed -i '10s/.*/session/' file; echo new > made").success();
    let before = lines(&[(10, "session"), (20, "mine")]);
    let merged = lines(&[(20, "mine")]);
    fixture.write("file", &before);
    fixture.copy_state("", "keep");
    let (mut finished, mut taken_back) = (0, 0);
    for point in 1.. {
        fixture.copy_state("keep", "");
        let mut undo = fixture.command(&["undo", "--yes"]);
        let output = undo.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        if output.status.signal().is_none() {
            assert!(output.status.success(), "{output:?}");
            break;
        }
        // There is nothing to decide before the first path and after the last one.
        let resume = ["rollback", "resume", "--abort"];
        fixture.nono(if point % 2 == 0 { &resume[..2] } else { &resume });
        let file = String::from_utf8(read(&fixture, "file")).unwrap();
        let has_made = fixture.project().join("made").exists();
        if file == before {
            assert!(has_made, "at point {point}");
            taken_back += 1;
            continue;
        }
        assert_eq!((file.as_str(), has_made), (&*merged, false), "at point {point}");
        finished += 1;
        fixture.nono(&["redo", "--yes"]).success();
        assert_eq!(read(&fixture, "file"), before.as_bytes(), "at point {point}");
        assert!(fixture.project().join("made").exists(), "at point {point}");
    }
    assert!(finished > 5 && taken_back > 20, "{finished} finished, {taken_back} taken back");
}

/// A terminal that asks about one path in conflict, beside one that can be merged.
fn asked() -> (Fixture, Terminal) {
    let fixture = Fixture::new();
    fixture.write("file", lines(&[]));
    fixture.write("touched", "old\n");
    fixture.record("sed -i '10s/.*/session/' file; echo of the session > touched").success();
    fixture.write("file", lines(&[(10, "session"), (20, "mine")]));
    fixture.write("touched", "of me\n");
    let terminal = undo_on_terminal(&fixture);
    terminal.wait_for("[d/m/k/o/N/?]");
    (fixture, terminal)
}

fn undo_on_terminal(fixture: &Fixture) -> Terminal {
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("{program} undo; echo ended with $?; exec cat"),
    )
}

#[test]
fn d_shows_the_plan_and_what_a_merge_takes_out_and_asks_again() {
    let fixture = edited();
    let terminal = undo_on_terminal(&fixture);
    terminal.wait_for_question(1);
    terminal.keys(&["d", "Enter"]);
    terminal.wait_for_question(2);
    let screen = terminal.screen();
    let at = |text: &str| screen.find(text).unwrap_or_else(|| panic!("{text}:\n{screen}"));
    let order = [
        "the undo does this:",
        "deleted file mode",
        "-new",
        "it takes this out, and later changes stay:",
        "-session",
        "+line 10",
    ];
    assert!(order.map(at).is_sorted(), "{screen}");
    assert!(!screen.contains("-mine"), "{screen}");
    terminal.keys(&["y", "Enter"]);
    terminal.wait_for("ended with 0");
    assert_eq!(read(&fixture, "file"), lines(&[(20, "mine")]).as_bytes());
    assert!(!fixture.project().join("made").exists());
}

#[test]
fn an_answer_is_about_what_cannot_be_merged() {
    for (key, touched) in [("k", "of me\n"), ("o", "old\n")] {
        let (fixture, terminal) = asked();
        let screen = terminal.screen();
        assert!(screen.contains("merged, so that later changes stay: file"), "{screen}");
        assert!(screen.contains("touched was changed after the session"), "{screen}");
        assert!(!screen.contains("file was changed after the session"), "{screen}");
        terminal.keys(&[key, "Enter"]);
        terminal.wait_for("ended with 0");
        assert_eq!(read(&fixture, "file"), lines(&[(20, "mine")]).as_bytes(), "{key}");
        assert_eq!(read(&fixture, "touched"), touched.as_bytes(), "{key}");
        fixture.nono(&["redo", "--yes"]).success();
        let before = lines(&[(10, "session"), (20, "mine")]);
        assert_eq!(read(&fixture, "file"), before.as_bytes(), "{key}");
        assert_eq!(read(&fixture, "touched"), b"of me\n", "{key}");
    }
}

#[test]
fn m_asks_about_each_hunk_that_both_touched_and_the_redo_is_no_conflict() {
    let fixture = Fixture::new();
    let other = |text: &str| format!("{text}\n");
    fixture.write("file", lines(&[(5, "before"), (10, "before too")]));
    fixture.write("other", other("old"));
    fixture
        .record(
            "sed -i '5s/.*/session/; 10s/.*/session too/; 20s/.*/session last/' file; echo \
                    of the session > other; echo bytes > made",
        )
        .success();
    let mine = lines(&[(5, "mine"), (10, "mine too"), (20, "session last"), (29, "mine last")]);
    fixture.write("file", &mine);
    fixture.write("other", other("of me"));
    // Changed, and of no lines.
    fixture.write("made", "a\0b");
    let before = observe(&fixture.project());
    let terminal = undo_on_terminal(&fixture);
    terminal.wait_for("[d/m/k/o/N/?]");
    // To go back changes nothing, and asks again.
    terminal.keys(&["m", "Enter"]);
    terminal.wait_for("file, hunk 1 of 2, line 5");
    terminal.wait_for("[k/o/b/N/?]");
    terminal.keys(&["k", "Enter"]);
    terminal.wait_for("file, hunk 2 of 2, line 10");
    terminal.keys(&["n", "Enter"]);
    let asked = |times: usize| {
        terminal
            .wait_until("the question", |screen| screen.matches("[d/m/k/o/N/?]").count() == times);
    };
    asked(2);
    assert_same(&before, &observe(&fixture.project()));
    terminal.keys(&["m", "Enter"]);
    let answers = [("line 5", "b", 3), ("line 10", "o", 4), ("other, hunk 1 of 1", "k", 5)];
    for (what, key, times) in answers {
        terminal.wait_until(what, |screen| screen.matches("[k/o/b/N/?]").count() == times);
        assert!(terminal.screen().contains(what), "{}", terminal.screen());
        terminal.keys(&[key, "Enter"]);
    }
    terminal.wait_for("ended with 0");
    let expected = lines(&[(5, "mine\nbefore"), (10, "before too"), (29, "mine last")]);
    assert_eq!(String::from_utf8(read(&fixture, "file")).unwrap(), expected);
    assert_eq!(read(&fixture, "other"), b"of me\n");
    assert_eq!(read(&fixture, "made"), b"a\0b");
    // No snapshot holds the chosen state, and a redo knows it all the same.
    fixture.nono(&["redo", "--yes"]).success();
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn a_file_that_changes_after_the_choice_stays() {
    let fixture = Fixture::new();
    fixture.write("file", lines(&[]));
    fixture.record("sed -i '5s/.*/session/' file").success();
    fixture.write("file", lines(&[(5, "mine")]));
    let terminal = undo_on_terminal(&fixture);
    terminal.wait_for("[d/m/k/o/N/?]");
    terminal.keys(&["m", "Enter"]);
    terminal.wait_for("[k/o/b/N/?]");
    let meanwhile = lines(&[(5, "mine"), (6, "meanwhile")]);
    fixture.write("file", &meanwhile);
    terminal.keys(&["o", "Enter"]);
    terminal.wait_for("ended with ");
    assert_eq!(read(&fixture, "file"), meanwhile.as_bytes());
}

#[test]
fn d_shows_both_changes_and_asks_again() {
    let (fixture, terminal) = asked();
    terminal.keys(&["d", "Enter"]);
    terminal.wait_for("changed later:");
    terminal.wait_for("+of me");
    let screen = terminal.screen();
    let at = |text: &str| screen.find(text).unwrap_or_else(|| panic!("{text}:\n{screen}"));
    let order = ["changed by the session:", "-old", "+of the session", "changed later:", "+of me"];
    assert!(order.map(at).is_sorted(), "{screen}");
    assert!(!screen.contains("+mine"), "a merged file is no conflict:\n{screen}");
    terminal.wait_until("the question", |screen| screen.matches("[d/m/k/o/N/?]").count() == 2);
    terminal.keys(&["k", "Enter"]);
    terminal.wait_for("ended with 0");
    assert_eq!(read(&fixture, "touched"), b"of me\n");
}

#[test]
fn an_undo_of_snapshots_merges_what_is_newer_than_the_last_of_them() {
    let fixture = Fixture::new();
    fixture.write("file", lines(&[]));
    fixture.nono(&["snapshot"]).success();
    fixture.write("file", lines(&[(10, "recorded")]));
    fixture.nono(&["snapshot", "--session", &fixture.latest()]).success();
    fixture.write("file", lines(&[(10, "recorded"), (20, "mine")]));
    let done = fixture.nono(&["undo", "--yes", "--json"]).success().json();
    assert_eq!(names(&fixture, &done, "merged"), ["file"], "{done}");
    assert_eq!(read(&fixture, "file"), lines(&[(20, "mine")]).as_bytes());
    fixture.nono(&["redo", "--yes"]).success();
    assert_eq!(read(&fixture, "file"), lines(&[(10, "recorded"), (20, "mine")]).as_bytes());
}
