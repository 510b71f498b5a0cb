//! The version that `nono restore DIR` and `restore FILE` mean, after all that may have happened
//! since; and the marks of what was taken back.

use std::fs;

use serde_json::json;

use crate::fixture::Fixture;
use crate::hooks::Agent;
use crate::terminal::Terminal;

fn lines(changed: &[(usize, &str)]) -> String {
    let line = |number: usize| {
        let found = changed.iter().find(|(at, _)| *at == number);
        found.map_or(number.to_string(), |(_, text)| (*text).to_owned())
    };
    (1..=30).map(|number| line(number) + "\n").collect()
}

/// A project with `dir/a` and `dir/b` and two runs: the first wrote 1 into both, the second 2.
fn two_runs() -> Fixture {
    let fixture = Fixture::new();
    for name in ["dir/a", "dir/b"] {
        fixture.write(name, "0\n");
    }
    for text in ["1", "2"] {
        fixture.record(&format!("echo {text} > dir/a; echo {text} > dir/b")).success();
    }
    fixture
}

fn read(fixture: &Fixture, name: &str) -> Option<String> {
    fs::read_to_string(fixture.project().join(name)).ok()
}

/// The contents of `dir/a` and `dir/b`, without the ends of their lines.
fn both(fixture: &Fixture) -> String {
    let text = |name| read(fixture, name).unwrap_or_else(|| "-".to_owned());
    format!("{} {}", text("dir/a").trim(), text("dir/b").trim())
}

/// Something that happens: a command of nono, or an edit.
enum Deed {
    Nono(&'static [&'static str]),
    Write(&'static str, &'static str),
    Remove,
    Run(&'static str),
}

impl Deed {
    fn carry_out(&self, fixture: &Fixture) {
        match self {
            Self::Nono(words) => drop(fixture.nono(words).success()),
            Self::Write(name, text) => drop(fixture.write(name, format!("{text}\n"))),
            Self::Remove => fs::remove_dir_all(fixture.project().join("dir")).unwrap(),
            Self::Run(script) => drop(fixture.record(script).success()),
        }
    }
}

/// A name, what happened after both runs, what is there then, and what the directory becomes.
type Row<'a> = (&'a str, &'a [Deed], &'a str, Result<&'a str, &'a str>);

#[test]
fn a_directory_goes_back_and_never_forward() {
    use Deed::{Nono, Remove, Run, Write};
    const UNDO: Deed = Nono(&["undo", "--yes"]);
    const NOTHING: &str = "no version of dir from before what is there now differs";
    const LATER: &str = "was changed after the session";
    let table: &[Row<'_>] = &[
        ("run", &[], "2 2", Ok("1 1")),
        ("undo", &[UNDO], "1 1", Ok("0 0")),
        ("two undos", &[UNDO, UNDO], "0 0", Err(NOTHING)),
        ("undo in part", &[Nono(&["undo", "--yes", "dir/a"])], "1 2", Ok("1 1")),
        ("redo", &[UNDO, Nono(&["redo"])], "2 2", Ok("1 1")),
        ("redo twice", &[UNDO, UNDO, Nono(&["redo"]), Nono(&["redo"])], "2 2", Ok("1 1")),
        ("edit", &[Write("dir/a", "mine")], "mine 2", Err(LATER)),
        ("edit and undo", &[UNDO, Write("dir/a", "mine")], "mine 1", Err(LATER)),
        (
            "edit that an undo kept",
            &[Write("dir/a", "mine"), Nono(&["undo", "--yes", "--keep-newer"])],
            "mine 1",
            Err(LATER),
        ),
        ("deleted", &[Remove], "- -", Ok("2 2")),
        ("deleted after an undo", &[UNDO, Remove], "- -", Ok("1 1")),
        ("restore", &[Nono(&["restore", "dir"])], "1 1", Ok("0 0")),
        ("third run", &[UNDO, Run("echo 3 > dir/a")], "3 1", Ok("1 1")),
        (
            "a new file, and the undo of a run that changed it",
            &[Write("dir/c", "c"), Run("echo 3 > dir/c"), UNDO],
            "2 2",
            Ok("2 2"),
        ),
    ];
    for (what, deeds, there, expected) in table {
        let fixture = two_runs();
        for deed in *deeds {
            deed.carry_out(&fixture);
        }
        assert_eq!(both(&fixture), *there, "{what}");
        let before = both(&fixture);
        let planned = fixture.nono(&["restore", "dir", "--dry-run"]);
        assert_eq!(both(&fixture), before, "{what}: {}", planned.stderr);
        match expected {
            Ok(state) => {
                fixture.nono(&["restore", "dir", "--force"]).success();
                assert_eq!(both(&fixture), *state, "{what}");
                fixture.nono(&["redo", "--yes"]).success();
                assert_eq!(both(&fixture), before, "{what}");
            }
            Err(said) => {
                fixture.nono(&["restore", "dir"]).fails(1, said);
                assert_eq!(both(&fixture), before, "{what}");
            }
        }
    }
}

#[test]
fn restores_one_after_the_other_never_go_forward() {
    use Deed::{Nono, Write};
    const UNDO: Deed = Nono(&["undo", "--yes"]);
    const REDO: Deed = Nono(&["redo", "--yes"]);
    const FILE: &[&str] = &["restore", "dir/a", "--force"];
    const DIRECTORY: &[&str] = &["restore", "dir", "--force"];
    for words in [FILE, DIRECTORY] {
        let restore = || Nono(words);
        let table: [(&str, Vec<Deed>, &[&str]); 9] = [
            ("run", vec![], &["2", "1", "0"]),
            ("undo", vec![UNDO], &["1", "0"]),
            ("undo and redo", vec![UNDO, REDO], &["2", "1", "0"]),
            ("undo, redo, undo", vec![UNDO, REDO, UNDO], &["1", "0"]),
            ("undo and redo, twice", vec![UNDO, REDO, UNDO, REDO], &["2", "1", "0"]),
            ("restore and redo", vec![restore(), REDO], &["2", "1", "0"]),
            ("restores and a redo", vec![restore(), restore(), REDO], &["1", "0"]),
            ("edit", vec![Write("dir/a", "mine")], &["mine", "2", "1", "0"]),
            (
                "edit, restore, redo",
                vec![Write("dir/a", "mine"), restore(), REDO],
                &["mine", "2", "1", "0"],
            ),
        ];
        for (what, deeds, states) in table {
            let fixture = two_runs();
            deeds.iter().for_each(|deed| deed.carry_out(&fixture));
            let text = || read(&fixture, "dir/a").unwrap().trim().to_owned();
            assert_eq!(text(), states[0], "{what}");
            for state in &states[1..] {
                fixture.nono(words).success();
                assert_eq!(text(), *state, "{words:?}: {what}");
            }
            let refused = fixture.nono(words);
            refused.fails(1, "from before what is there now differs");
        }
    }
}

#[test]
fn a_path_that_is_gone_comes_back_without_a_question() {
    use Deed::{Nono, Run, Write};
    const UNDO: Deed = Nono(&["undo", "--yes"]);
    const REMOVED: Deed = Run("rm -r dir");
    let table: &[(&str, &[Deed], &str)] = &[
        ("removed", &[REMOVED], "2 2"),
        ("undo, and removed by hand", &[REMOVED, UNDO, Deed::Remove], "2 2"),
        ("undo, a run, and by hand", &[REMOVED, UNDO, Run("true"), Deed::Remove], "2 2"),
        (
            "undo, a run that edits, and by hand",
            &[REMOVED, UNDO, Run("echo 3 > dir/a"), Deed::Remove],
            "3 2",
        ),
        ("an edit, and by hand", &[REMOVED, UNDO, Write("dir/a", "x"), Deed::Remove], "2 2"),
    ];
    for (what, deeds, there) in table {
        for path in ["dir", "dir/a"] {
            let fixture = two_runs();
            deeds.iter().for_each(|deed| deed.carry_out(&fixture));
            assert_eq!(both(&fixture), "- -", "{what}");
            fixture.nono(&["restore", path, "--yes"]).success();
            let expected = match path {
                "dir" => (*there).to_owned(),
                _ => format!("{} -", &there[..1]),
            };
            assert_eq!(both(&fixture), expected, "{path}: {what}");
        }
    }
}

#[test]
fn a_file_goes_back_as_its_directory_does() {
    const NOTHING: &str = "no version of dir/a from before what is there now differs";
    let undo = || Deed::Nono(&["undo", "--yes"]);
    let table: [(&str, Vec<Deed>, Result<&str, &str>); 7] = [
        ("run", vec![], Ok("1")),
        ("undo", vec![undo()], Ok("0")),
        ("two undos", vec![undo(), undo()], Err(NOTHING)),
        ("undo of it", vec![Deed::Nono(&["undo", "--yes", "dir/a"])], Ok("0")),
        ("undo of the other", vec![Deed::Nono(&["undo", "--yes", "dir/b"])], Ok("1")),
        ("edit", vec![Deed::Write("dir/a", "mine")], Ok("2")),
        ("edit after an undo", vec![undo(), Deed::Write("dir/a", "mine")], Ok("1")),
    ];
    for (what, deeds, expected) in table {
        let fixture = two_runs();
        deeds.iter().for_each(|deed| deed.carry_out(&fixture));
        let before = both(&fixture);
        match expected {
            Ok(text) => {
                assert_eq!(fixture.nono(&["cat", "dir/a"]).success().stdout.trim(), text, "{what}");
                fixture.nono(&["restore", "dir/a"]).success();
                assert_eq!(read(&fixture, "dir/a").unwrap().trim(), text, "{what}");
                fixture.nono(&["redo", "--yes"]).success();
                assert_eq!(both(&fixture), before, "{what}");
            }
            Err(said) => {
                let refused = fixture.nono(&["restore", "dir/a"]).fails(1, said);
                // The offered command brings what was taken back.
                let offered = refused.stderr.split("nono restore ").nth(1).unwrap();
                let words: Vec<&str> = offered.split_whitespace().collect();
                let typed = [&["restore"][..], &words].concat();
                fixture.nono(&typed).success();
                assert_eq!(read(&fixture, "dir/a").unwrap(), "1\n", "{what}");
            }
        }
    }
}

#[test]
fn a_file_that_an_undo_removed_can_be_had_again() {
    let fixture = Fixture::new();
    fixture.write("old", "1\n");
    fixture.record("echo 1 > made").success();
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(read(&fixture, "made"), None);
    fixture.nono(&["restore", "made"]).success();
    assert_eq!(read(&fixture, "made").unwrap(), "1\n");
}

#[test]
fn edits_that_an_undo_merged_are_not_lost_without_force() {
    let fixture = Fixture::new();
    fixture.write("dir/a", lines(&[]));
    fixture.record("sed -i '10s/.*/session/' dir/a").success();
    fixture.write("dir/a", lines(&[(10, "session"), (20, "mine")]));
    fixture.nono(&["undo", "--yes"]).success();
    let merged = lines(&[(20, "mine")]);
    assert_eq!(read(&fixture, "dir/a").unwrap(), merged);
    for path in ["dir", "dir/a"] {
        fixture.nono(&["restore", path]).fails(1, "was changed after the session");
        assert_eq!(read(&fixture, "dir/a").unwrap(), merged);
    }
    fixture.nono(&["restore", "dir/a", "--force"]).success();
    assert_eq!(read(&fixture, "dir/a").unwrap(), lines(&[]));
    fixture.nono(&["redo", "--yes"]).success();
    assert_eq!(read(&fixture, "dir/a").unwrap(), merged);
}

#[test]
fn lines_that_a_person_chose_in_a_merge_are_not_lost_without_force() {
    let fixture = Fixture::new();
    fixture.write("dir/a", lines(&[]));
    fixture.write("dir/b", "0\n");
    fixture.record("sed -i '10s/.*/session/' dir/a; echo 1 > dir/b").success();
    fixture.write("dir/a", lines(&[(10, "mine")]));
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let command = format!("{program} undo; echo ended with $?; exec cat");
    let home = fixture.path("home");
    let terminal = Terminal::start(&fixture.path("tmux"), &fixture.project(), &home, &command);
    terminal.wait_for("[d/m/k/o/N/?]");
    terminal.keys(&["m", "Enter"]);
    terminal.wait_for("[k/o/b/N/?]");
    terminal.keys(&["k", "Enter"]);
    terminal.wait_for("ended with 0");
    let chosen = lines(&[(10, "mine")]);
    for path in ["dir", "dir/a"] {
        fixture.nono(&["restore", path]).fails(1, "was changed after the session");
        assert_eq!(read(&fixture, "dir/a").unwrap(), chosen);
    }
}

#[test]
fn a_step_that_was_taken_back_does_not_come_with_a_restore() {
    let fixture = Fixture::new();
    fixture.write("a", "0\n");
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("work");
    agent.shell("echo 1 > a");
    agent.shell("echo 2 > a");
    fixture.nono(&["undo", "--step", "last", "--yes"]).success();
    assert_eq!(read(&fixture, "a").unwrap(), "1\n");
    let listed = fixture.nono(&["list"]).success();
    assert!(listed.says("partly undone"), "{}", listed.stdout);
    fixture.nono(&["restore", "a"]).success();
    assert_eq!(read(&fixture, "a").unwrap(), "0\n");
}

#[test]
fn a_session_that_was_undone_in_part_is_marked_until_all_of_it_is() {
    let fixture = Fixture::new();
    for name in ["a", "b"] {
        fixture.write(name, "0\n");
    }
    fixture.record("echo 1 > a; echo 1 > b").success();
    let word = || {
        let words: Vec<bool> = ["list", "log", "status"]
            .map(|command| {
                let said = fixture.nono(&[command]).success().stdout;
                assert!(said.contains("undone") || !said.contains("partly"), "{said}");
                said.contains("partly undone")
            })
            .into();
        assert!(words.iter().all(|word| *word == words[0]), "{words:?}");
        let session = &fixture.nono(&["status", "--json"]).success().json()["session"];
        assert_eq!(session["partly_undone"], words[0]);
        (words[0], session["undone"] == true)
    };
    assert_eq!(word(), (false, false));
    fixture.nono(&["undo", "--yes", "a"]).success();
    assert_eq!(word(), (true, false));
    fixture.nono(&["undo", "--yes", "b"]).success();
    assert_eq!(word(), (false, true));
    fixture.nono(&["redo"]).success();
    assert_eq!(word(), (true, false));
    fixture.nono(&["redo"]).success();
    assert_eq!(word(), (false, false));
    fixture.nono(&["restore", "latest", "a", "--force"]).success();
    assert_eq!(word(), (true, false));
    fixture.nono(&["restore", "latest/1", "a", "--force"]).success();
    assert_eq!(word(), (false, false));
}

#[test]
fn the_log_and_a_search_name_the_command_of_the_person() {
    let said = |words: &[&[&str]], expected: &str| {
        let fixture = Fixture::new();
        fixture.write("a", "zero\n");
        fixture.record("echo one > a").success();
        fixture.record("echo two > a").success();
        words.iter().for_each(|words| drop(fixture.nono(words).success()));
        let log = fixture.nono(&["log", "a"]).success().stdout;
        let newest = log.lines().nth(1).unwrap();
        assert!(newest.ends_with(&format!("{expected}  now")), "{words:?}: {log}");
        let text = read(&fixture, "a").unwrap();
        let found = fixture.nono(&["grep", text.trim()]).success().stdout;
        assert!(found.contains(expected), "{words:?}: {found}");
    };
    said(&[&["undo", "--yes"]], "nono undo");
    said(&[&["undo", "--yes", "a"]], "nono undo");
    said(&[&["undo", "--yes"], &["redo"]], "nono redo");
    said(&[&["restore", "a"]], "nono restore");
    said(&[&["restore", "latest/0"]], "nono restore");
    said(&[&["restore", "a"], &["restore", "latest/2", "--force"]], "nono restore");
    said(&[&["restore", "a"], &["redo"]], "nono redo");
}
