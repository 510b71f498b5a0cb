//! The tours in the README and in the tutorial, run as they stand there: the output is the shown
//! one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::not_run::not_run;

/// A command of the tour, and what the README shows of its output.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// The fenced blocks of a section: shell scripts, and commands with their output.
fn tour(readme: &str) -> (Vec<String>, Vec<Step>) {
    let section = readme.split("\n## ").find(|section| section.starts_with("A tour")).unwrap();
    let (mut scripts, mut steps) = (Vec::new(), Vec::new());
    for block in section.split("\n```").skip(1).step_by(2) {
        let (kind, text) = block.split_once('\n').unwrap();
        match kind {
            "sh" => scripts.push(text.to_owned()),
            "console" => {
                for line in text.lines() {
                    match (line.strip_prefix("$ "), steps.last_mut()) {
                        (Some(command), _) => {
                            steps.push(Step { command: command.to_owned(), shown: Vec::new() });
                        }
                        (None, Some(step)) => step.shown.push(line.to_owned()),
                        (None, None) => panic!("output without a command: {line}"),
                    }
                }
            }
            other => panic!("a block of the kind {other:?}"),
        }
    }
    (scripts, steps)
}

/// The text that is the same on every machine and at every time: ids are numbered. Hashes, commits
/// and the sizes of the store's own objects are left out (they depend on the home directory's name
/// and on times), and so is the number of files of a repository, which depends on the version of
/// git.
fn normalised(line: &str, ids: &mut BTreeMap<String, usize>) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut out = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = after_time(rest) {
            out.push_str("TIME");
            rest = after;
            continue;
        }
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if end == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(end);
        let digits =
            |text: &str, len| text.len() == len && text.bytes().all(|b| b.is_ascii_digit());
        let parts: Vec<&str> = word.split('-').collect();
        if let [day, time, pid] = parts[..]
            && digits(day, 8)
            && digits(time, 6)
            && digits(pid, pid.len())
        {
            let next = ids.len() + 1;
            out.push_str(&format!("ID{}", ids.entry(word.to_owned()).or_insert(next)));
            // In a column, as wide as the longest of them.
            if after.starts_with("  ") {
                out.push_str("  ");
                rest = after.trim_start_matches(' ');
                continue;
            }
        } else if word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit()) {
            out.push_str("HASH");
        } else if digits(word, 3) && after.starts_with(" B") {
            out.push_str("SIZE");
        } else if let Some((_, unit)) = after.split_once(' ')
            && digits(word, word.len())
            && after.starts_with('.')
            && unit.starts_with("KiB")
        {
            out.push_str("SIZE");
            rest = &after[after.find(' ').unwrap_or(0)..];
            continue;
        } else if digits(word, word.len())
            && [" objects", " files, ", " changes"].iter().any(|what| after.starts_with(what))
        {
            out.push('N');
        } else if word.len() == 7 && word.bytes().all(|b| b.is_ascii_hexdigit()) {
            out.push_str("COMMIT");
        } else {
            out.push_str(word);
        }
        rest = after;
    }
    out
}

/// The rest after a time such as `2026-11-21 11:54:05`, or `2026-11-21 11.54` in the name of a
/// folder, if the text begins with one.
fn after_time(text: &str) -> Option<&str> {
    let after = |form: &str| {
        let (time, after) = text.split_at_checked(form.len())?;
        let is_so = |(c, f): (char, char)| if f == '0' { c.is_ascii_digit() } else { c == f };
        time.chars().zip(form.chars()).all(is_so).then_some(after)
    };
    after("0000-00-00 00:00:00").or_else(|| after("0000-00-00 00.00"))
}

#[test]
fn the_tour_of_the_readme_gives_what_it_shows() {
    gives_what_it_shows("README.md", 9);
}

#[test]
fn the_tour_of_the_tutorial_gives_what_it_shows() {
    gives_what_it_shows("docs/tutorial.md", 16);
}

#[test]
fn the_readme_is_short() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    assert!(fs::read_to_string(readme).unwrap().lines().count() <= 120);
}

/// Runs the tour of a document, which has so many steps at least.
fn gives_what_it_shows(document: &str, min_steps: usize) {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let (scripts, steps) = tour(&fs::read_to_string(document).unwrap());
    assert!(scripts.len() == 1 && steps.len() >= min_steps, "{} steps", steps.len());
    let temp = tempfile::tempdir().unwrap();
    let home = temp.path().canonicalize().unwrap();
    let mut script = format!("exec 2>&1\n{}\n", scripts[0]);
    for (number, step) in steps.iter().enumerate() {
        script.push_str(&format!("echo '=== step {number}'\n{}\n", step.command));
    }
    // No mount stays in any case.
    script.push_str("echo '=== step end'\nnono umount ~/snapshots\n");
    let program = Path::new(env!("CARGO_BIN_EXE_nono"));
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(&home)
        .env_clear()
        .env("PATH", format!("{}:{path}", program.parent().unwrap().display()))
        .env("HOME", &home)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    if text.contains("/dev/fuse") || text.contains("fuse3") {
        not_run(format_args!("nothing can be mounted here: {text}"));
        return;
    }
    let text = text.replace(home.to_str().unwrap(), "/home/ada");
    let (mut shown_ids, mut real_ids) = (BTreeMap::new(), BTreeMap::new());
    for (number, step) in steps.iter().enumerate() {
        let start = text.find(&format!("=== step {number}\n")).unwrap_or_else(|| panic!("{text}"));
        let real = text[start..].split("=== step ").nth(1).unwrap().lines().skip(1);
        let mut real: Vec<_> = real.map(|line| normalised(line, &mut real_ids)).collect();
        let mut shown: Vec<_> =
            step.shown.iter().map(|line| normalised(line, &mut shown_ids)).collect();
        // Nothing but a blank line stands between two blocks.
        shown.truncate(shown.iter().rposition(|line| !line.is_empty()).map_or(0, |at| at + 1));
        if shown.last().is_some_and(|line| line == "…") {
            shown.pop();
            real.truncate(shown.len());
        }
        assert_eq!(shown, real, "$ {}", step.command);
    }
}
