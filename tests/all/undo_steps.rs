//! `nono undo --step`: what one tool call did, taken back, and all that came later kept.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::fixture::{Fixture, finished};
use crate::held::Held;
use crate::hooks::{Agent, steps};
use crate::supervision::shell;

/// A session of three steps on one file: at its beginning, in its middle, at its end.
fn three_steps(fixture: &Fixture) -> String {
    let lines = |marks: [&str; 3]| {
        let line = |n| match n {
            1 => marks[0].to_owned(),
            5 => marks[1].to_owned(),
            9 => marks[2].to_owned(),
            n => format!("line {n}"),
        };
        (1..=9).map(line).collect::<Vec<_>>().join("\n") + "\n"
    };
    fixture.write("text", lines(["a", "b", "c"]));
    fixture.write("src/a.c", "int a;\n");
    fixture.write("src/deep/b.c", "int b;\n");
    let agent = Agent::new(fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("first");
    let edit = |text: String| {
        agent.call("Edit", json!({"file_path": "text"}), || {
            fixture.write("text", text);
        })
    };
    edit(lines(["A", "b", "c"]));
    agent.call("Bash", json!({"command": "mess"}), || {
        fixture.write("text", lines(["A", "B", "c"]));
        fixture.write("made/new", "new\n");
        fs::remove_dir_all(fixture.project().join("src")).unwrap();
    });
    agent.prompt("second");
    edit(lines(["A", "B", "C"]));
    agent.end();
    assert_eq!(steps(fixture).len(), 3);
    lines(["A", "b", "C"])
}

fn read(fixture: &Fixture, name: &str) -> Option<String> {
    fs::read_to_string(fixture.project().join(name)).ok()
}

#[test]
fn the_middle_step_goes_and_the_later_one_stays() {
    let fixture = Fixture::new();
    let expected = three_steps(&fixture);
    let before = read(&fixture, "text");
    let dry = fixture.nono(&["undo", "--step", "2", "--dry-run", "--json"]).success().json();
    assert_eq!(dry["merged"], json!([fixture.project().join("text")]));
    assert_eq!(read(&fixture, "text"), before);
    fixture.nono(&["undo", "--step", "2", "--yes"]).success();
    assert_eq!(read(&fixture, "text").unwrap(), expected);
    assert_eq!(read(&fixture, "src/a.c").unwrap(), "int a;\n");
    assert_eq!(read(&fixture, "src/deep/b.c").unwrap(), "int b;\n");
    assert!(!fixture.project().join("made").exists());
    // The undo can be undone.
    fixture.nono(&["redo"]).success();
    assert_eq!(read(&fixture, "text"), before);
    assert_eq!(read(&fixture, "src/a.c"), None);
    assert_eq!(read(&fixture, "made/new").unwrap(), "new\n");
    fixture.nono(&["rollback", "verify"]).success();
}

#[test]
fn later_edits_that_touch_the_step_are_a_conflict_and_the_file_stays() {
    let fixture = Fixture::new();
    three_steps(&fixture);
    let mine = read(&fixture, "text").unwrap().replace("B\n", "mine\n");
    fixture.write("text", &mine);
    fixture.write("made/new", "changed\n");
    fixture.write("made/other", "mine\n");
    let undone = fixture.nono(&["undo", "--step", "2", "--yes", "--json"]);
    assert_eq!(undone.code, 1);
    let report = undone.json();
    let paths: Vec<_> =
        report["step_conflicts"].as_array().unwrap().iter().map(|it| &it["path"]).collect();
    assert_eq!(
        paths,
        [&json!(fixture.project().join("made/new")), &json!(fixture.project().join("text"))]
    );
    assert_eq!(read(&fixture, "text").unwrap(), mine);
    assert_eq!(read(&fixture, "made/new").unwrap(), "changed\n");
    assert_eq!(read(&fixture, "made/other").unwrap(), "mine\n");
    // The untouched files came back all the same.
    assert_eq!(read(&fixture, "src/a.c").unwrap(), "int a;\n");
}

#[test]
fn a_prompt_is_undone_with_all_its_steps_and_a_step_is_gone_back_to() {
    let fixture = Fixture::new();
    three_steps(&fixture);
    let after = read(&fixture, "text").unwrap();
    fixture.nono(&["undo", "--prompt", "1", "--yes"]).success();
    let text = read(&fixture, "text").unwrap();
    assert!(text.starts_with("a\n") && text.contains("\nb\n") && text.ends_with("C\n"), "{text}");
    assert_eq!(read(&fixture, "src/a.c").unwrap(), "int a;\n");
    fixture.nono(&["redo"]).success();
    assert_eq!(read(&fixture, "text").unwrap(), after);
    fixture.nono(&["undo", "--to-step", "1", "--yes"]).success();
    let text = read(&fixture, "text").unwrap();
    assert!(text.starts_with("A\n") && text.contains("\nb\n") && text.ends_with("c\n"), "{text}");
    assert_eq!(read(&fixture, "src/a.c").unwrap(), "int a;\n");
}

#[test]
fn a_step_that_is_not_there_is_an_error_that_names_the_list() {
    let fixture = Fixture::new();
    three_steps(&fixture);
    fixture.nono(&["undo", "--step", "17", "--yes"]).fails(1, "nono steps");
    // Also where no question can be asked.
    fixture.nono(&["undo", "--step", "17"]).fails(1, "has no step 17");
    fixture.nono(&["undo", "--prompt", "7"]).fails(1, "no steps of prompt 7");
    fixture.nono(&["undo", "--step", "x", "--yes"]).fails(2, "no number of a step");
    fixture.nono(&["undo", "--prompt", "7", "--yes"]).fails(1, "no steps of prompt 7");
    let id = fixture.latest();
    let dry = ["undo", "--step", &format!("{id}#2"), "--dry-run"];
    fixture.nono(&dry).success();
}

#[test]
fn a_log_and_a_session_name_the_step() {
    let fixture = Fixture::new();
    three_steps(&fixture);
    let log = fixture.nono(&["log", "text", "--json"]).success().json();
    let steps = log["versions"].as_array().unwrap().iter().filter_map(|it| it.get("step"));
    let said: Vec<&Value> = steps.collect();
    assert!(said.iter().any(|step| step["tool"] == "Bash" && step["number"] == 2), "{log}");
    let shown = fixture.nono(&["log", "text"]).success();
    assert!(shown.stdout.contains("step 2 · Bash · mess"), "{}", shown.stdout);
    let shown = fixture.nono(&["rollback", "show", "latest#2"]).success();
    assert!(shown.stdout.contains("snapshot 2 · Bash · mess"), "{}", shown.stdout);
    let diff = fixture.nono(&["rollback", "diff", "latest#1", "latest#2"]).success();
    assert!(diff.stdout.contains("+B") && !diff.stdout.contains("+A"), "{}", diff.stdout);
    let cat = fixture.nono(&["rollback", "cat", "latest#0", "src/a.c"]).success();
    assert_eq!(cat.stdout, "int a;\n");
}

#[test]
fn a_mount_has_a_link_for_each_step() {
    let fixture = Fixture::new();
    three_steps(&fixture);
    let place = fixture.path("mounted");
    let mounted = fixture.nono(&["mount", place.to_str().unwrap()]);
    if mounted.code != 0 && !std::path::Path::new("/dev/fuse").exists() {
        eprintln!("TEST DID NOT RUN: no /dev/fuse");
        return;
    }
    mounted.success();
    let steps = place.join("latest/steps");
    let mut names: Vec<_> = fs::read_dir(&steps)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let target = fs::read_link(steps.join("0002-Bash-mess"));
    let text = fs::read_to_string(
        steps
            .join("0002-Bash-mess")
            .join(fixture.project().strip_prefix("/").unwrap())
            .join("text"),
    );
    fixture.nono(&["umount", place.to_str().unwrap()]).success();
    assert_eq!(names, ["0001-Edit-text", "0002-Bash-mess", "0003-Edit-text"]);
    assert_eq!(target.unwrap(), std::path::PathBuf::from("../2"));
    assert!(text.unwrap().contains("\nB\n"));
}

#[test]
fn the_last_step_again_is_the_step_before() {
    let fixture = Fixture::new();
    three_steps(&fixture);
    let state = || (read(&fixture, "text").unwrap(), read(&fixture, "src/a.c").is_some());
    let marks = || {
        let (text, has_source) = state();
        let marks = ["1", "5", "9"].map(|line: &str| {
            let at: usize = line.parse().unwrap();
            text.lines().nth(at - 1).unwrap().to_owned()
        });
        (marks.concat(), has_source)
    };
    let last = ["undo", "--step", "last", "--yes"];
    assert_eq!(marks(), ("ABC".to_owned(), false));
    fixture.nono(&last).success();
    assert_eq!(marks(), ("ABc".to_owned(), false));
    let second = fixture.nono(&last).success();
    assert_eq!(marks(), ("Abc".to_owned(), true));
    let said = "nothing of step 3 is left to undo; the one before it is meant";
    assert!(second.says(said) && second.says("undo step 2 of"), "{}", second.stderr);
    fixture.nono(&last).success();
    assert_eq!(marks(), ("abc".to_owned(), true));
    fixture.nono(&last).fails(1, "nothing of any step");
    // A redo takes them back one by one, and then the last step is the last one again.
    for expected in [("Abc", true), ("ABc", false), ("ABC", false)] {
        fixture.nono(&["redo"]).success();
        assert_eq!(marks(), (expected.0.to_owned(), expected.1));
    }
    let done = fixture.nono(&last).success();
    assert!(done.says("undo step 3 of") && !done.says("step 2"), "{}", done.stderr);
    assert_eq!(marks(), ("ABc".to_owned(), false));
}

#[test]
fn the_last_prompt_again_is_the_prompt_before() {
    let fixture = Fixture::new();
    three_steps(&fixture);
    let last = ["undo", "--prompt", "last", "--yes"];
    fixture.nono(&last).success();
    let second = fixture.nono(&last).success();
    let said = "nothing of prompt 2 is left to undo; the one before it is meant";
    assert!(second.says(said), "{}", second.stderr);
    let text = read(&fixture, "text").unwrap();
    assert!(text.starts_with("a\n") && text.contains("\nb\n") && text.ends_with("c\n"), "{text}");
    fixture.nono(&last).fails(1, "nothing of any prompt");
}

#[test]
fn the_undo_of_a_prompt_ends_with_the_clients_way_to_before_it() {
    let fixture = Fixture::new();
    three_steps(&fixture);
    let entry = |kind: &str, uuid: &str, parent: Option<&str>, content: &str| {
        let entry = json!({
            "type": kind, "uuid": uuid, "parentUuid": parent, "isSidechain": false,
            "timestamp": "2026-01-01T00:00:00Z", "message": {"content": content},
        });
        format!("{entry}\n")
    };
    let transcript = [
        entry("user", "prompt-1", None, "first"),
        entry("assistant", "answer-1", Some("prompt-1"), "done"),
        entry("user", "prompt-2", Some("answer-1"), "second"),
        entry("assistant", "answer-2", Some("prompt-2"), "done"),
    ];
    let place = fixture.path("home/.claude/projects/-of-the-project");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("session-of-claude-code.jsonl"), transcript.concat()).unwrap();
    let way = "the conversation from before that prompt: claude -p --resume \
               session-of-claude-code --resume-session-at answer-1 --fork-session PROMPT";
    let undo =
        |prompt: &str, more: &str| fixture.nono(&["undo", "--prompt", prompt, more]).success();
    assert!(!undo("2", "--dry-run").says("conversation"), "nothing is undone yet");
    let done = undo("2", "--yes");
    assert!(done.says(way), "{}", done.stderr);
    // Nothing is before the first prompt.
    assert!(!undo("1", "--yes").says("conversation"));
}

#[test]
fn a_client_without_a_way_to_before_a_prompt_has_none_printed() {
    for client in ["codex", "gemini", "opencode"] {
        let fixture = Fixture::new();
        let agent = Agent::new(&fixture, client);
        for text in ["one", "two"] {
            agent.prompt(text);
            agent.shell(&format!("echo {text} > file"));
        }
        agent.end();
        let done = fixture.nono(&["undo", "--prompt", "2", "--yes"]).success();
        assert!(!done.says("conversation"), "{client}: {}", done.stderr);
    }
}

#[test]
fn a_step_that_is_undone_already_is_named() {
    let fixture = Fixture::new();
    let expected = three_steps(&fixture);
    // Also where a later change was kept by merging.
    fixture.nono(&["undo", "--step", "2", "--yes"]).success();
    assert_eq!(read(&fixture, "text").unwrap(), expected);
    let again = fixture.nono(&["undo", "--step", "2", "--yes"]).fails(1, "nothing of step 2");
    assert!(!again.says("nono redo"), "{}", again.stderr);
    fixture.nono(&["undo", "--prompt", "2", "--yes"]).success();
    fixture.nono(&["undo", "--prompt", "2", "--yes"]).fails(1, "nothing of prompt 2");
}

#[test]
fn a_step_of_which_only_a_commit_is_left_is_passed_over() {
    let git = "git -c user.name=a -c user.email=a@example.org";
    for (flag, what) in [("--step", "step"), ("--prompt", "prompt")] {
        let fixture = Fixture::new();
        let agent = Agent::new(&fixture, "claude-code");
        agent.hook("SessionStart", &json!({"source": "startup"}));
        agent.prompt("first");
        agent.shell(&format!("git init -q; echo 1 > one; {git} commit -q --allow-empty -m 0"));
        agent.prompt("second");
        agent.shell(&format!("echo 2 > two; git add two; {git} commit -qm 2"));
        agent.end();
        let last = ["undo", flag, "last", "--yes"];
        // The file goes, the commit is named.
        fixture.nono(&last).fails(1, "undone in");
        assert_eq!((read(&fixture, "one").is_some(), read(&fixture, "two")), (true, None));
        let second = fixture.nono(&last);
        let said = format!(
            "nothing but commits and branches of {what} 2 is left to undo, use git for them; the \
             one before it is meant"
        );
        assert!(second.says(&said), "{}", second.stderr);
        assert_eq!(read(&fixture, "one"), None);
        let third = fixture.nono(&last).fails(1, &format!("nothing of any {what}"));
        assert!(third.says(&said), "{}", third.stderr);
        // A user who names it is told of the commit.
        let named = fixture.nono(&["undo", flag, "2", "--yes"]);
        assert_eq!(named.code, 1);
        assert!(named.stdout.contains("use git for them"), "{} {}", named.stdout, named.stderr);
    }
}

#[test]
fn flags_decide_about_later_changes_that_touch_a_step() {
    let fixture = Fixture::new();
    three_steps(&fixture);
    let all = read(&fixture, "text").unwrap();
    let mine = all.replace("B\n", "mine\n");
    fixture.write("text", &mine);
    let step = |flags: &[&str]| fixture.nono(&[&["undo", "--step", "2", "--yes"], flags].concat());
    fixture.nono(&["undo", "--step", "2", "--dry-run"]).fails(1, "--force");
    // The rest goes; to leave the path was asked for.
    step(&["--keep-newer"]).success();
    assert_eq!(read(&fixture, "text").unwrap(), mine);
    assert_eq!(read(&fixture, "src/a.c").unwrap(), "int a;\n");
    let left = step(&[]).fails(1, "nothing undone in");
    assert!(!left.says("no changes"), "{}", left.stderr);
    let forced = step(&["--force"]).success();
    assert!(forced.says("take this back: nono redo"), "{}", forced.stderr);
    assert_eq!(read(&fixture, "text").unwrap(), all.replace("B\n", "b\n").replace("C\n", "c\n"));
    fixture.nono(&["redo"]).success();
    assert_eq!(read(&fixture, "text").unwrap(), mine);
}

#[test]
fn the_undo_of_a_step_from_elsewhere_offers_a_command_that_works_there() {
    let fixture = Fixture::new();
    three_steps(&fixture);
    let elsewhere = fixture.path("home");
    let nono = |arguments: &[&str]| {
        let mut command = fixture.command(arguments);
        finished(command.current_dir(&elsewhere).stdin(Stdio::null()).output().unwrap())
    };
    let step = format!("{}#2", fixture.latest());
    let done = nono(&["undo", "--step", &step, "--yes"]).success();
    let line = done.stderr.lines().find(|line| line.contains("nono restore")).unwrap();
    let (_, offered) = line.split_once("nono ").unwrap();
    let words: Vec<_> = offered.split(' ').collect();
    nono(&words).success();
    assert_eq!(read(&fixture, "made/new").unwrap(), "new\n");
}

#[test]
fn the_undo_of_a_step_beside_a_run_is_refused_or_forced_and_never_asks_a_program() {
    let fixture = &Fixture::new();
    three_steps(fixture);
    let step = format!("{}#2", fixture.latest());
    let held = Held::on_pipe(fixture);
    let script = format!("read line < {}; true", fixture.path("held").display());
    let mut run =
        fixture.command(&["run", "--rollback", "--no-sandbox", "--", "sh", "-c", &script]);
    let mut run = run.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let waiting = held.wait();
    let refused = fixture.nono(&["undo", "--step", &step, "--yes"]).fails(1, "is running in");
    assert!(refused.says("--force restores while it works"), "{}", refused.stderr);
    // A program is not asked, on a terminal either.
    let terminal = shell(fixture);
    let nono = env!("CARGO_BIN_EXE_nono");
    terminal.line(&format!("{nono} undo --step {step} --yes --json; echo \"ended with $?\""));
    terminal.wait_for("ended with 1");
    assert!(!terminal.screen().contains("Restore all the same?"), "{}", terminal.screen());
    fixture.nono(&["undo", "--step", &step, "--yes", "--force"]).success();
    assert!(!fixture.project().join("made").exists());
    drop(waiting);
    assert!(run.wait().unwrap().success());
}

/// A session of two steps that changed one line, `a` to `b` to `c`.
fn two_steps_on_a_line(fixture: &Fixture) {
    fixture.write("line", "a\n");
    let agent = Agent::new(fixture, "claude-code");
    for text in ["b", "c"] {
        agent.shell(&format!("echo {text} > line"));
    }
    agent.end();
}

#[test]
fn a_step_that_was_taken_back_has_nothing_left_whatever_was_taken_back_before_it() {
    let fixture = &Fixture::new();
    two_steps_on_a_line(fixture);
    let line = || read(fixture, "line").unwrap();
    let undo = |words: &[&str]| fixture.nono(&[&["undo", "--yes", "--step"], words].concat());
    for left in ["b\n", "a\n"] {
        undo(&["last"]).success();
        assert_eq!(line(), left);
    }
    for words in [&["last"][..], &["last", "--force"], &["2", "--force"], &["1"]] {
        undo(words).fails(1, "is left to undo");
        assert_eq!(line(), "a\n", "{words:?}");
    }
    // An undo that is taken back leaves its step again.
    fixture.nono(&["redo"]).success();
    assert_eq!(line(), "b\n");
    undo(&["2", "--force"]).fails(1, "is left to undo");
    undo(&["last"]).success();
    assert_eq!(line(), "a\n");
    fixture.nono(&["verify"]).success();
}

#[test]
fn the_undo_of_a_session_and_a_way_back_to_a_step_leave_no_later_step() {
    for (back, left) in [(&[][..], "a\n"), (&["--to-step", "1"], "b\n")] {
        let fixture = &Fixture::new();
        two_steps_on_a_line(fixture);
        let line = || read(fixture, "line").unwrap();
        let undo = |words: &[&str]| fixture.nono(&[&["undo", "--yes"], words].concat());
        undo(back).success();
        assert_eq!(line(), left);
        undo(&["--step", "2", "--force"]).fails(1, "is left to undo");
        assert_eq!(line(), left);
    }
}
