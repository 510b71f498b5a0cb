//! `nono grep`: the same lines as ripgrep finds in copies of all states, and when they came and
//! went.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{Finished, Fixture, finished};
use crate::not_run::not_run;

/// A project with states that differ in lines, names, kinds and contents that are no text.
fn states() -> (Fixture, Vec<String>) {
    let fixture = Fixture::new();
    fixture.write("src/a.rs", "fn needle() {}\nneedles\nNeedle\n");
    fixture.write("src/deep/b.txt", "nothing\nneedle at last");
    fixture.write(".hidden", "needle\n");
    fixture.write("win.txt", "needle\r\nother\r\n");
    fixture.write("latin", b"needle \xe9\n");
    fixture.write("binary", b"needle\0needle\n");
    fixture.write("empty", "");
    fixture.write(":odd name", "  needle  needle\n");
    fixture.nono(&["snapshot"]).success();
    let mut kept = vec![copy(&fixture, 0)];
    let session = fixture.latest();
    let scripts: [&str; 5] = [
        "echo 'a needle more' >> src/a.rs; rm .hidden",
        "mv src/deep/b.txt moved.txt; printf 'x\\nNEEDLE\\n' > new",
        "sed -i s/needle/pin/ src/a.rs; chmod 600 win.txt",
        "rm -r src; printf needle > src",
        "echo none > src; cp latin latin2",
    ];
    for (number, script) in (1..).zip(scripts) {
        let done = Command::new("sh").args(["-ec", script]).current_dir(fixture.project()).status();
        assert!(done.unwrap().success());
        fixture.nono(&["snapshot", "--session", &session]).success();
        kept.push(copy(&fixture, number));
    }
    (fixture, kept)
}

/// A copy of the present state, as a folder called like its snapshot.
fn copy(fixture: &Fixture, number: u64) -> String {
    let place = fixture.path(&format!("states/{number}"));
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    let done = Command::new("cp").arg("-a").arg(fixture.project()).arg(&place).status().unwrap();
    assert!(done.success());
    number.to_string()
}

/// State, path, number and bytes of each matching line.
type Lines = BTreeSet<(String, String, u64, Vec<u8>)>;

fn data(value: &Value) -> Vec<u8> {
    use base64::Engine as _;
    match value["text"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => {
            let bytes = value["bytes"].as_str().unwrap();
            base64::engine::general_purpose::STANDARD.decode(bytes).unwrap()
        }
    }
}

/// The records of a search in JSON, with the folder or the snapshots that each line stands in.
fn lines(json: &str, states: impl Fn(&Value) -> Vec<String>, inside: &Path) -> Lines {
    let (mut found, mut stands) = (Lines::new(), Vec::new());
    for line in json.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let data_of = &record["data"];
        match record["type"].as_str().unwrap() {
            "begin" => stands = states(data_of),
            "match" => {
                let path = data(&data_of["path"]);
                let path = Path::new(std::ffi::OsStr::from_bytes(&path)).to_owned();
                let path = path.strip_prefix(inside).unwrap_or(&path).display().to_string();
                let number = data_of["line_number"].as_u64().unwrap();
                let text = data(&data_of["lines"]);
                for state in &stands {
                    let path = path.strip_prefix(&format!("{state}/")).unwrap_or(&path);
                    found.insert((state.clone(), path.to_owned(), number, text.clone()));
                }
            }
            _ => {}
        }
    }
    found
}

fn rg(fixture: &Fixture, arguments: &[&str]) -> Option<Finished> {
    let mut command = Command::new("rg");
    command.arg("-uu").args(arguments).arg(".").current_dir(fixture.path("states"));
    match command.output() {
        Ok(output) => Some(finished(output)),
        Err(error) => {
            not_run(format!("rg: {error}"));
            None
        }
    }
}

#[test]
fn a_search_finds_the_lines_that_ripgrep_finds_in_copies_of_all_states() {
    let (fixture, kept) = states();
    assert_eq!(kept.len(), 6);
    let project = fixture.project().canonicalize().unwrap();
    for words in [
        vec!["needle"],
        vec!["-i", "needle"],
        vec!["-w", "needle"],
        vec!["-i", "-w", "needle|pin"],
        vec!["^needle$"],
        vec!["-F", "() {}"],
        vec!["e{2}"],
        vec!["nowhere at all"],
    ] {
        let Some(other) = rg(&fixture, &[&["--json"], &words[..]].concat()) else { return };
        let of_rg = lines(
            &other.stdout,
            |begin| {
                let path = String::from_utf8(data(&begin["path"])).unwrap();
                vec![path.strip_prefix("./").unwrap().split('/').next().unwrap().to_owned()]
            },
            Path::new("./"),
        );
        let own = fixture.nono(&[&["grep", "--json"], &words[..]].concat());
        assert_eq!(own.code, other.code, "{words:?}: {}{}", own.stdout, own.stderr);
        let of_nono = lines(
            &own.stdout,
            |begin| {
                let snapshots = begin["nono"]["snapshots"].as_array().unwrap().iter();
                let number =
                    |id: &Value| id.as_str().unwrap().split('/').nth(1).unwrap().to_owned();
                snapshots.map(number).collect()
            },
            &project,
        );
        // ripgrep prints the lines before the NUL that it meets; of binary files no line is shown.
        let of_rg: Lines = of_rg.into_iter().filter(|(_, path, ..)| path != "binary").collect();
        assert_eq!(of_nono, of_rg, "{words:?}");
        assert!(words[0] == "nowhere at all" || !of_rg.is_empty(), "{words:?}");
    }
}

#[test]
fn paths_and_counts_are_those_of_grep_in_copies_of_all_states() {
    let (fixture, kept) = states();
    let session = fixture.latest();
    for words in [vec!["needle"], vec!["-i", "needle"], vec!["-w", "needle"], vec!["pin"]] {
        let (mut paths, mut counts) = (BTreeSet::new(), BTreeSet::new());
        for state in &kept {
            let grep = |flags: &[&str]| {
                let mut command = Command::new("grep");
                command.arg("-r").args(flags).args(&words).arg(".");
                command.env("LC_ALL", "C").current_dir(fixture.path("states").join(state));
                finished(command.output().unwrap()).stdout
            };
            paths.extend(
                grep(&["-l"]).lines().map(|path| path.strip_prefix("./").unwrap().to_owned()),
            );
            for line in grep(&["-c", "-I"]).lines().filter(|line| !line.ends_with(":0")) {
                counts.insert(format!("{session}/{state}:{}", line.strip_prefix("./").unwrap()));
            }
        }
        let own = fixture.nono(&[&["grep", "-l"], &words[..]].concat()).success();
        let listed: Vec<&str> = own.stdout.lines().collect();
        let distinct: BTreeSet<String> = listed.iter().map(ToString::to_string).collect();
        assert_eq!(distinct.len(), listed.len(), "each path once: {}", own.stdout);
        assert_eq!(distinct, paths, "{words:?}");
        // A version is counted once, by its newest snapshot: all that is printed is true.
        let own = fixture.nono(&[&["grep", "-c"], &words[..]].concat()).success();
        let own: Vec<&str> = own.stdout.lines().filter(|line| !line.contains(":binary:")).collect();
        assert!(own.len() > 2 || words[0] == "pin", "{own:?}");
        for line in own {
            assert!(counts.contains(line), "{words:?}: {line} in {counts:?}");
        }
    }
}

#[test]
fn a_search_says_which_step_brought_a_text_and_which_took_it() {
    let fixture = Fixture::new();
    fixture.write("a", "one\n");
    fixture.record("echo 'my needle' >> a").success();
    let first = fixture.latest();
    fixture.record("sed -i /needle/d a").success();
    let second = fixture.latest();
    let found = fixture.nono(&["grep", "needle"]).success().stdout;
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines[0], "a", "{found}");
    assert!(lines[1].starts_with(&format!("  appeared  {first}/1  ")), "{found}");
    assert!(lines[1].ends_with("sh -c 'echo '\\''my needle'\\'' >> a'"), "{found}");
    assert!(lines[2].starts_with(&format!("  gone      {second}/1  ")), "{found}");
    assert!(lines[2].ends_with("sh -c 'sed -i /needle/d a'"), "{found}");
    assert_eq!(lines[3], format!("  in {second}/0"), "{found}");
    assert_eq!(lines[4], "2:my needle", "{found}");
    assert_eq!(lines.len(), 5, "{found}");
    let json = fixture.nono(&["grep", "--json", "needle"]).success().stdout;
    let begin: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    let nono = &begin["data"]["nono"];
    assert_eq!(nono["appeared"]["snapshot"], format!("{first}/1"));
    assert_eq!(nono["gone"]["command"][2], "sed -i /needle/d a");
    let summary: Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!(summary["data"]["stats"]["searches"], 2);
    assert_eq!(summary["data"]["stats"]["matches"], 1);
}

#[test]
fn a_search_is_about_this_directory_unless_all_is_meant() {
    let fixture = Fixture::new();
    fixture.write("here/a", "needle\n");
    fixture.write("there/b", "needle\n");
    fixture.nono(&["snapshot"]).success();
    let other = fixture.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("c"), "needle\n").unwrap();
    let elsewhere = other.to_str().unwrap();
    fixture.nono(&["snapshot", elsewhere]).success();
    let listed = |words: &[&str], directory: &Path| {
        let mut command = fixture.command(&[&["grep", "-l", "needle"], words].concat());
        command.current_dir(directory);
        let done = finished(command.output().unwrap());
        (done.code, done.stdout.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let project = fixture.project();
    assert_eq!(listed(&[], &project.join("here")), (0, vec!["a".to_owned()]));
    assert_eq!(listed(&["../there"], &project.join("here")).1.len(), 1);
    assert_eq!(listed(&[], &project).1.len(), 2);
    assert_eq!(listed(&["--all"], &project).1.len(), 3);
    assert_eq!(listed(&["nothing here"], &project).0, 1);
    fs::remove_dir_all(project.join("here")).unwrap();
    assert_eq!(listed(&["here"], &project), (0, vec!["here/a".to_owned()]));
}

#[test]
fn what_stood_before_a_time_is_left_out() {
    let fixture = Fixture::new();
    fixture.write("a", "needle\n");
    fixture.nono(&["snapshot"]).success();
    fixture.nono(&["grep", "needle", "--since", "1h ago"]).success();
    fixture.nono(&["grep", "needle", "--since", "today"]).success();
    fixture.nono(&["grep", "needle", "--since", "now"]).fails(1, "no recorded text matches");
    fixture.nono(&["grep", "needle", "--since", "tomorrow"]).fails(2, "is no time");
}

#[test]
fn exit_codes_are_those_of_grep() {
    let fixture = Fixture::new();
    fixture.write("a", "needle\n");
    fixture.write("b", "needle two\n");
    fixture.nono(&["snapshot"]).success();
    fixture.nono(&["grep", "needle"]).success();
    fixture.nono(&["grep", "nothing"]).fails(1, "no recorded text matches in 1 session");
    fixture.nono(&["grep", "("]).fails(2, "is no pattern");
    fixture.nono(&["grep"]).fails(2, "PATTERN");
    fixture.nono(&["grep", "x", "--session", "nowhere"]).fails(2, "nowhere");
    // Found, and not all could be searched.
    let manifest = fixture.session().join("snapshots/0/manifest.json");
    let project = fixture.path("second");
    fs::create_dir(&project).unwrap();
    let words = ["snapshot", project.to_str().unwrap()];
    fixture.nono(&words).success();
    fs::write(&manifest, "{").unwrap();
    let done = fixture.nono(&["grep", "--all", "needle"]);
    assert_eq!(done.code, 2, "{}{}", done.stdout, done.stderr);
}

#[test]
fn a_terminal_is_shown_no_control_characters_of_names_and_lines() {
    let fixture = Fixture::new();
    fixture.write("a\u{1b}[2Jb", "needle\t\u{1b}]0;title\u{7}\n");
    fixture.nono(&["snapshot"]).success();
    let mut script = Command::new("script");
    let program = env!("CARGO_BIN_EXE_nono");
    script.args(["-qec", &format!("{program} --no-pager grep needle"), "/dev/null"]);
    script.current_dir(fixture.project()).env("HOME", fixture.path("home"));
    let screen = finished(script.output().unwrap()).success().stdout;
    assert!(screen.contains("needle"), "{screen:?}");
    assert!(!screen.contains("\u{1b}[2J") && !screen.contains("\u{1b}]0"), "{screen:?}");
    // A program gets the bytes.
    let piped = fixture.nono(&["grep", "needle"]).success().stdout;
    assert!(piped.contains("needle\t\u{1b}]0;title\u{7}"), "{piped:?}");
}
