//! The first tries of a new user: flags of git, a path behind `status`, programs that are not
//! installed, files that are gone, numbers that are compared.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::fixture::{Fixture, finished};
use crate::forks::has_forks;
use crate::git_history::{git, settings};
use crate::terminal::Terminal;
use crate::web::Web;

#[test]
fn a_run_says_no_root_and_a_wordy_one_does() {
    let fixture = Fixture::new();
    fixture.write("a", "0\n");
    let run = fixture.nono(&["run", "sh", "-c", "echo 1 > a"]).success();
    let root = fixture.nono(&["list", "--json"]).success().json()[0]["session_root"].clone();
    let root = root.as_str().unwrap();
    assert!(!run.says(root), "{}", run.stderr);
    assert!(fixture.nono(&["show"]).success().stdout.contains(&format!("\nroot: {root}\n")));
    let run = fixture.nono(&["run", "-v", "sh", "-c", "echo 2 > a"]).success();
    let root = fixture.nono(&["list", "--json"]).success().json()[0]["session_root"].clone();
    assert!(run.says(&format!("  root: {}\n", root.as_str().unwrap())), "{}", run.stderr);
}

#[test]
fn a_file_that_is_gone_is_marked_in_find() {
    let fixture = Fixture::new();
    fixture.write("here.txt", "0\n");
    fixture.write("gone.txt", "0\n");
    fixture.record("rm gone.txt").success();
    let found = fixture.nono(&["find", "*.txt"]).success().stdout;
    let line = |name: &str| found.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(line("gone.txt").contains("(gone now)"), "{found}");
    assert!(!line("here.txt").contains("gone"), "{found}");
    let found = fixture.nono(&["find", "*.txt", "--json"]).success().json();
    let gone: Vec<bool> =
        found.as_array().unwrap().iter().map(|it| it["gone"].as_bool().unwrap()).collect();
    assert_eq!(gone, [true, false], "{found}");
}

#[test]
fn a_flag_of_git_is_answered_with_what_has_that_effect() {
    let fixture = Fixture::new();
    for (words, told) in [
        (&["log", "--oneline"][..], "`nono list` has a line for each session"),
        (&["log", "-n", "3"], "`nono list --recent N` has the newest N sessions"),
        (&["diff", "--cached"], "`git diff --cached` shows what is staged"),
        (&["status", "-s"], "`nono diff --name-only` has the changed paths alone"),
    ] {
        let refused = fixture.nono(words).fails(2, told);
        assert!(!refused.says("as a value"), "{}", refused.stderr);
    }
    // The tip of a flag that is nowhere a value misleads.
    let refused = fixture.nono(&["log", "--nonsense"]).fails(2, "unexpected argument");
    assert!(!refused.says("tip:"), "{}", refused.stderr);
    fixture.nono(&["diff", "--name-onyl"]).fails(2, "--name-only");
}

#[test]
fn the_status_of_a_path_is_about_that_path() {
    let fixture = Fixture::new();
    for name in ["src/a", "src/deep/b", "other/c", "srcs"] {
        fixture.write(name, "0\n");
    }
    fixture.record("echo 1 > other/c").success();
    for name in ["src/a", "src/deep/b", "other/c", "srcs"] {
        fixture.write(name, "mine\n");
    }
    let changed = |words: &[&str]| {
        let words = [&["status", "--json"], words].concat();
        let status = fixture.nono(&words).success().json();
        let changes = status["since"]["changes"].as_array().unwrap().clone();
        let project = fixture.project().display().to_string();
        let inside = |path: &str| path.strip_prefix(&format!("{project}/")).unwrap().to_owned();
        let paths = changes.iter().map(|it| inside(it["path"].as_str().unwrap()));
        let paths = paths.collect::<Vec<_>>().join(" ");
        assert_eq!(status["since"]["summary"]["modified"], paths.split(' ').count(), "{status}");
        paths
    };
    assert_eq!(changed(&[]), "other/c src/a src/deep/b srcs");
    assert_eq!(changed(&["src"]), "src/a src/deep/b");
    assert_eq!(changed(&["src/deep/b"]), "src/deep/b");
    let shown = fixture.nono(&["status", "src"]).success().stdout;
    assert!(shown.contains("modified    src/a") && !shown.contains("modified    other"), "{shown}");
    fixture.nono(&["status", "/"]).success();
}

#[test]
fn a_program_that_is_not_installed_is_not_offered() {
    let fixture = Fixture::new();
    let bin = fixture.path("bin");
    fs::create_dir(&bin).unwrap();
    let told = |path: &str| {
        let mut command = fixture.command(&["difftool"]);
        finished(command.env("PATH", path).output().unwrap())
    };
    let path = bin.display().to_string();
    let none = told(&path).fails(2, "git's settings name no program");
    assert!(none.says("install one, for --tool NAME:") && !none.says("--tool meld"));
    for name in ["kdiff3", "vim"] {
        fs::write(bin.join(name), "#!/bin/sh\n").unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let some = told(&path).fails(2, "name one: nono difftool --tool kdiff3, or vimdiff\n");
    assert!(!some.says("meld"), "{}", some.stderr);
}

#[test]
fn a_cleanup_that_spares_young_sessions_names_the_way_on() {
    let fixture = Fixture::new();
    fixture.write("a", "0\n");
    for text in ["1", "2", "3"] {
        fixture.record(&format!("echo {text} > a")).success();
    }
    let spared = fixture.nono(&["cleanup", "--keep-last", "1"]).success();
    assert!(spared.says("younger than a day"), "{}", spared.stderr);
    let count = || fixture.nono(&["list", "--json"]).success().json().as_array().unwrap().len();
    assert_eq!(count(), 3);
    let offered = spared.stderr.split("nono cleanup ").nth(1).unwrap().lines().next().unwrap();
    let words: Vec<&str> = ["cleanup"].into_iter().chain(offered.split(' ')).collect();
    fixture.nono(&[&words[..], &["--yes"]].concat()).success();
    assert_eq!(count(), 1);
}

#[test]
fn a_merged_fork_does_not_collide_with_the_project() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    for name in ["a", "b"] {
        fixture.write(name, "0\n");
    }
    let script = "echo 1 > a; echo 1 > b; echo 1 > new";
    fixture.nono(&["fork", "idea", "--", "sh", "-c", script]).success();
    let collides = || fixture.nono(&["forks"]).success().stdout.contains("also changed in");
    assert!(!collides());
    fixture.nono(&["fork", "merge", "idea"]).success();
    assert!(!collides(), "{}", fixture.nono(&["forks"]).stdout);
    fixture.write("a", "mine\n");
    let listed = fixture.nono(&["forks"]).success().stdout;
    assert!(listed.contains("also changed in the project: a\n"), "{listed}");
    assert!(!listed.contains("project: b"), "{listed}");
}

/// The text of a page without its tags.
fn text_of(html: &str) -> String {
    let (mut text, mut is_tag) = (String::new(), false);
    for c in html.chars() {
        match c {
            '<' => is_tag = true,
            '>' => (is_tag, text) = (false, text + " "),
            c if !is_tag => text.push(c),
            _ => {}
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_summary_the_review_and_the_page_count_alike() {
    let fixture = Fixture::new();
    settings(&fixture);
    let git = |words: &[&str]| git(&fixture, &fixture.project(), words).success();
    git(&["init", "-q", "-b", "main"]);
    for name in ["changed", "mode", "gone", "old/one", "old/two"] {
        fixture.write(name, "0\n");
    }
    git(&["add", "."]);
    git(&["commit", "-qm", "one"]);
    let run = fixture.record(
        "echo 1 > changed; chmod 600 mode; rm -r gone old; mkdir -p new/deep; echo 1 > new/a; echo \
         1 > new/deep/b; echo 1 > c; git commit -qam two",
    );
    let counted = ["+3 files", "+2 directories", "~1 modified", "-3 deleted", "-1 directory"];
    let counted = [&counted[..], &["±1 permission"]].concat();
    let summary = run.stderr.lines().find(|line| line.contains("+3 files")).unwrap();
    assert!(summary.contains(&counted.join(" ")), "{summary}");
    assert!(summary.contains(".git: 1 commit"), "{summary}");
    let listed = fixture.nono(&["list"]).success().stdout;
    assert!(listed.contains(&counted.join(" ")), "{listed}");
    // The review.
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let command = format!("{program} review latest; exec cat");
    let home = fixture.path("home");
    let terminal = Terminal::start(&fixture.path("tmux"), &fixture.project(), &home, &command);
    terminal.wait_for("Enter keep everything");
    let screen = terminal.screen();
    for number in &counted {
        assert!(screen.contains(number), "{number}: {screen}");
    }
    assert!(screen.contains(".git changed"), "{screen}");
    terminal.keys(&["q"]);
    // The page: the list of sessions, and the session.
    let web = Web::start(&fixture);
    for page in ["/".to_owned(), format!("/session?id={}", fixture.latest())] {
        let text = text_of(&web.get(&page).ok().text());
        assert!(text.contains(&counted.join(" ")), "{page}: {text}");
        assert!(text.contains(".git changed"), "{page}: {text}");
    }
}
