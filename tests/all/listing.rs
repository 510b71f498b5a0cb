//! The appearance of `list` and `show`.

use std::fs;

use crate::fixture::{Fixture, finished};
use crate::retention::{age, record};
use crate::terminal::Terminal;

#[test]
fn sessions_are_listed_by_project_as_documented() {
    let fixture = Fixture::new();
    let sprockets = fixture.path("home/dev/sprockets");
    let widgets = fixture.path("home/dev/widgets");
    fs::create_dir_all(&sprockets).unwrap();
    fs::create_dir_all(&widgets).unwrap();
    let run = |dir: &std::path::Path, script: &str| {
        let mut run = fixture.command(&["run", "--rollback", "--", "sh", "-c", script]);
        let done = finished(run.current_dir(dir).output().unwrap()).success();
        assert!(!done.stderr.contains("warning"), "{}", done.stderr);
        fixture.latest()
    };
    let made = run(&sprockets, "mkdir d; for i in 1 2 3; do echo $i > d/$i; done");
    let changed = run(&sprockets, "echo longer > d/1");
    let idle = run(&sprockets, "true");
    let other = run(&widgets, "echo 1 > w");
    age(&fixture, &made, 1);
    let listed = fixture.nono(&["rollback", "list"]).success();
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert_eq!(lines[0], "3 sessions", "{}", listed.stdout);
    assert_eq!(lines[1..3], ["", "  ~/dev/widgets (1 session)"]);
    assert!(lines[3].starts_with(&format!("    {other}  just now  sh -c ")), "{}", lines[3]);
    assert_eq!(lines[4..6], ["", "  ~/dev/sprockets (2 sessions)"]);
    assert!(lines[6].starts_with(&format!("    {changed}  just now  sh -c 'echo longer")));
    assert!(lines[6].ends_with("  ~1 modified"), "{}", lines[6]);
    assert!(
        lines[7].starts_with(&format!("    {made}  1d ago    sh -c 'mkdir d;")),
        "{}",
        lines[7]
    );
    assert_eq!(lines.len(), 8);
    // All in their columns.
    let column = |line: &str| line.find("sh -c").unwrap();
    assert!(lines[6..].iter().all(|line| column(line) == column(lines[3])), "{}", listed.stdout);
    assert!(listed.stderr.contains("not shown: 1 without changes (--all"), "{}", listed.stderr);
    let all = fixture.nono(&["rollback", "list", "--all"]).success();
    assert!(all.stdout.starts_with("4 sessions\n") && all.stdout.contains(&idle));
    assert!(all.stdout.contains("(3 sessions)"), "{}", all.stdout);
    assert_eq!(all.stderr, "");
    // For programs nothing is hidden.
    let json = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(json.as_array().unwrap().len(), 4);
    assert_eq!(json[0]["pinned"], false);
    let recent = fixture.nono(&["rollback", "list", "--recent", "1"]).success();
    assert!(recent.stdout.starts_with("3 sessions\n"), "{}", recent.stdout);
    assert!(recent.stdout.contains(&other) && !recent.stdout.contains(&made));
    assert!(recent.stderr.contains("2 older"), "{}", recent.stderr);
    let path = ["rollback", "list", "--path", sprockets.to_str().unwrap()];
    let of_path = fixture.nono(&path).success().stdout;
    assert!(of_path.starts_with("2 sessions\n") && !of_path.contains("widgets"));
}

#[test]
fn rows_fit_the_terminal_and_long_commands_are_cut() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let script = "echo 1 > a; echo 你好世界你好世界你好世界你好世界你好世界 > b";
    fixture.record(script).success();
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("{program} rollback list; echo ended; exec cat"),
    );
    terminal.wait_for("ended");
    let screen = terminal.screen();
    let rows: Vec<_> = screen.lines().filter(|line| line.contains("sh -c")).collect();
    assert_eq!(rows.len(), 1, "{screen}");
    assert!(
        rows[0].contains('…') && rows[0].trim_end().ends_with("+1 file ~1 modified"),
        "{screen}"
    );
    // Nothing spilled over.
    assert_eq!(screen.lines().filter(|line| line.contains("modified")).count(), 1);
}

#[test]
fn show_has_the_times_of_the_clock() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let (id, _) = record(&fixture, &[], "1");
    let mut show = fixture.command(&["rollback", "show", &id]);
    let shown = finished(show.env("TZ", "UTC").output().unwrap()).success().stdout;
    let json = fixture.nono(&["rollback", "show", &id, "--json"]).success().json();
    let of = |time: &serde_json::Value| time.as_str().unwrap()[..19].replace('T', " ");
    assert!(shown.contains(&format!("started: {} (just now)\n", of(&json["started"]))), "{shown}");
    assert!(shown.contains(&format!("ended: {} (just now)\n", of(&json["ended"]))), "{shown}");
    let taken = of(&json["snapshots"][1]["timestamp"]);
    assert!(shown.contains(&format!("snapshot 1  {taken}, ")), "{shown}");
}

#[test]
fn an_unmounted_directory_is_not_mounted() {
    let fixture = Fixture::new();
    for place in ["no-such", "a"] {
        fixture.write("a", "0");
        let told = fixture.nono(&["umount", place]).fails(1, "nothing of nono is mounted at");
        assert!(!told.stderr.contains("cannot mount"), "{}", told.stderr);
    }
}
