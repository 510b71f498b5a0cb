//! The commands in the README, in the tutorial and on the pages of questions, run as they stand
//! there: the output is the shown one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::not_run::not_run;

/// A command, and what the document shows of its output. A script shows nothing.
pub(crate) struct Step {
    /// The number of its block, from 0 on.
    block: usize,
    command: String,
    shown: Vec<String>,
}

/// The kinds of all fenced blocks of a document, and their texts.
pub(crate) fn blocks(document: &str) -> impl Iterator<Item = (&str, &str)> {
    document.split("\n```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap())
}

/// The blocks of a document, in order: scripts, and commands with their output. A script for a
/// clone of this repository is no part of the tour.
pub(crate) fn steps<'a>(blocks: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (block, (kind, text)) in blocks.enumerate() {
        match kind {
            // A file of another service.
            "yaml" => {}
            "sh" if text.contains("scripts/") => {}
            "sh" => steps.push(Step { block, command: text.to_owned(), shown: Vec::new() }),
            "console" => {
                for line in text.lines() {
                    match (line.strip_prefix("$ "), steps.last_mut()) {
                        (Some(command), _) => {
                            let command = command.to_owned();
                            steps.push(Step { block, command, shown: Vec::new() });
                        }
                        (None, Some(step)) => step.shown.push(line.to_owned()),
                        (None, None) => panic!("output without a command: {line}"),
                    }
                }
            }
            other => panic!("a block of the kind {other:?}"),
        }
    }
    steps
}

/// The text that is the same on every machine and at every time: ids are numbered. Hashes, commits
/// and the sizes of the store's own objects are left out (they depend on the home directory's name
/// and on times), and so is the number of files of a repository, which depends on the version of
/// git.
fn normalised(line: &str, ids: &mut BTreeMap<String, usize>) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let line = without_owners(line).unwrap_or_else(|| line.to_owned());
    let mut out = String::new();
    let mut rest = line.as_str();
    while let Some(first) = rest.chars().next() {
        if let Some(after) = after_time(rest) {
            out.push_str("TIME");
            rest = after;
            continue;
        }
        if let Some(after) = after_age(rest) {
            out.push_str("AGE");
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
        } else if word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit()) {
            out.push_str("HASH");
        } else if digits(word, 3) && after.starts_with(" B") {
            out.push_str("SIZE");
        } else if let Some((fraction, unit)) = after.split_once(' ')
            && digits(word, word.len())
            && (fraction.is_empty() || fraction.starts_with('.'))
            && let Some(unit) = ["KiB", "MiB", "×"].iter().find(|known| unit.starts_with(**known))
        {
            out.push_str("SIZE");
            rest = &after[fraction.len() + " ".len() + unit.len()..];
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
    with_narrow_columns(&out)
}

/// The line with two spaces where there are more: a column is as wide as an id, with the number of
/// a process in it. The spaces before the first word stay.
fn with_narrow_columns(line: &str) -> String {
    let text = line.trim_start_matches(' ');
    let mut narrow = line[..line.len() - text.len()].to_owned();
    let mut count = 0;
    for c in text.chars() {
        count = if c == ' ' { count + 1 } else { 0 };
        if count <= 2 {
            narrow.push(c);
        }
    }
    narrow
}

/// The rest after `just now` or `2h ago`, if the text begins with one.
fn after_age(text: &str) -> Option<&str> {
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let age = if number.len() < text.len() { number.get(1..)?.strip_prefix(" ago") } else { None };
    age.or_else(|| text.strip_prefix("just now"))
}

/// The rest after a time such as `2026-11-21 11:54:05`, or `2026-11-21 11.54` in the name of a
/// folder, or a day or a time of a day alone, if the text begins with one.
fn after_time(text: &str) -> Option<&str> {
    let after = |form: &str| {
        let (time, after) = text.split_at_checked(form.len())?;
        let is_so = |(c, f): (char, char)| if f == '0' { c.is_ascii_digit() } else { c == f };
        time.chars().zip(form.chars()).all(is_so).then_some(after)
    };
    let forms = ["0000-00-00 00:00:00", "0000-00-00 00.00", "0000-00-00", "00:00"];
    forms.into_iter().find_map(after)
}

/// A line of `ls -l` without owners, sizes and times.
fn without_owners(line: &str) -> Option<String> {
    let (mode, mut name) = line.split_once(' ')?;
    // Links, owner, group, size, and the three words of the time.
    for _ in 0..7 {
        name = name.trim_start().split_once(' ')?.1;
    }
    let is_mode = mode.len() == 10 && ["dr", "lr"].iter().any(|start| mode.starts_with(start));
    is_mode.then(|| format!("{mode} {name}"))
}

/// A document of this repository.
pub(crate) fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The pages of questions.
fn questions() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/questions");
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| format!("docs/questions/{}", name.to_str().unwrap())).collect()
}

#[test]
fn the_commands_of_the_readme_give_what_it_shows() {
    gives_what_it_shows("README.md", 11);
}

#[test]
fn the_commands_of_the_tutorial_give_what_it_shows() {
    gives_what_it_shows("docs/tutorial.md", 25);
}

#[test]
fn the_commands_of_each_question_give_what_its_page_shows() {
    let pages = questions();
    assert!(pages.len() >= 5, "{pages:?}");
    for page in pages {
        gives_what_it_shows(&page, 2);
    }
}

#[test]
fn the_commands_for_a_job_in_a_plain_shell_give_what_the_page_shows() {
    gives_what_it_shows("docs/ci.md", 4);
}

#[test]
fn the_readme_is_short_and_begins_with_the_rescue() {
    let readme = document("README.md");
    assert!(readme.lines().count() <= 120, "{} lines", readme.lines().count());
    let sections: Vec<_> = readme.lines().filter(|line| line.starts_with("## ")).collect();
    assert_eq!(sections[0], "## The rescue");
    let pictures = readme.lines().filter(|line| line.starts_with("![")).count();
    assert_eq!(pictures, 3);
    // The promise is one sentence.
    let promise = readme.split("\n\n").nth(1).unwrap();
    assert_eq!(promise.matches('.').count(), 1, "{promise}");
}

#[test]
fn every_page_is_in_the_index_and_every_link_leads_to_a_file() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = || {
        let docs = fs::read_dir(top.join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
        let docs = docs.map(|name| format!("docs/{}", name.to_str().unwrap()));
        let is_page = |name: &String| name.ends_with(".md") && name != "docs/SUMMARY.md";
        docs.filter(is_page).chain(questions())
    };
    let mut named = BTreeSet::new();
    for page in pages().chain(["README.md".to_owned()]) {
        let text = document(&page);
        let dir = top.join(&page).parent().unwrap().to_owned();
        let links = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
        // The book alone holds `api/`; see the tests of the book.
        let elsewhere = |link: &&str| link.contains("://") || link.starts_with("api/");
        for link in links.filter(|link| !elsewhere(link) && !link.starts_with('#')) {
            let path = dir.join(link.split('#').next().unwrap());
            assert!(path.exists(), "{page} links to {link}");
            if page == "docs/README.md" {
                named.insert(path.canonicalize().unwrap());
            }
        }
    }
    let missing: Vec<_> = pages()
        .filter(|page| page != "docs/README.md" && !named.contains(&top.join(page)))
        .collect();
    assert!(missing.is_empty(), "docs/README.md does not list {missing:?}");
}

/// The root of another system whose programs are tested: `scripts/release-check` installs the
/// package there.
fn other_root() -> Option<PathBuf> {
    std::env::var_os("NONO_TEST_ROOT").map(PathBuf::from)
}

/// A home directory of its own, and a shell script that runs there with the program on its path.
fn run(home: &Path, script: &str) -> String {
    let mut shell = Command::new("bash");
    if let Some(root) = other_root() {
        let inside = Path::new("/").join(home.strip_prefix(&root).unwrap());
        shell = Command::new("chroot");
        shell.arg(&root).args(["env", "-C"]).arg(&inside).args(["bash", "-c", script]);
        shell.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", inside);
    } else {
        let program = Path::new(env!("CARGO_BIN_EXE_nono"));
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", program.parent().unwrap().display());
        shell.args(["-c", script]).current_dir(home).env_clear();
        shell.env("PATH", path).env("HOME", home);
    }
    let output = shell.env("LC_ALL", "C").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn home() -> (tempfile::TempDir, PathBuf) {
    let place = other_root().map_or_else(std::env::temp_dir, |root| root.join("home"));
    let temp = tempfile::tempdir_in(place).unwrap();
    let home = temp.path().canonicalize().unwrap();
    (temp, home)
}

/// Runs the commands of a document, which has so many at least.
fn gives_what_it_shows(name: &str, min_steps: usize) {
    let text = document(name);
    let steps = steps(blocks(&text));
    assert!(steps.len() >= min_steps, "{name}: {} steps", steps.len());
    give_what_they_show(name, "", &steps);
}

/// Runs commands after a script, whose function `before_N` is called before their block N.
pub(crate) fn give_what_they_show(name: &str, set_up: &str, steps: &[Step]) {
    assert!(!steps.is_empty(), "{name}");
    let (_temp, home) = home();
    let mut script = format!("exec 2>&1\n{set_up}\n");
    for (number, step) in steps.iter().enumerate() {
        let before = format!("before_{}", step.block);
        if set_up.contains(&before) && (number == 0 || steps[number - 1].block != step.block) {
            script.push_str(&format!("echo '=== step set-up'\n{before}\n"));
        }
        script.push_str(&format!("echo '=== step {number}'\n{}\n", step.command));
    }
    // No mount stays in any case.
    script.push_str("echo '=== step end'\nnono umount ~/snapshots\n");
    let text = run(&home, &script);
    if text.contains("/dev/fuse") || text.contains("fuse3") {
        not_run(format_args!("nothing can be mounted here: {text}"));
        return;
    }
    let seen = home.strip_prefix(other_root().unwrap_or_default()).unwrap();
    let seen = Path::new("/").join(seen);
    let text = text.replace(seen.to_str().unwrap(), "/home/ada");
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
        assert_eq!(shown, real, "{name}: $ {}", step.command);
    }
}
