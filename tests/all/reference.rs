//! `docs/reference.md` and the other documents against the help of each command: whatever they
//! name is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::fixture::Fixture;

/// Options that documents have by their short forms.
const SHORT: [(&str, &str); 5] = [
    ("--message", "-m"),
    ("--output", "-o"),
    ("--patch", "-p"),
    ("--quiet", "-q"),
    ("--verbose", "-v"),
];

/// Words of each command → its options.
type Commands = BTreeMap<Vec<String>, BTreeSet<String>>;

/// Options that a text names.
fn options(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let words = text.split(|c: char| !is_part(c));
    let named = words.filter(|word| word.len() > 3 && word.starts_with("--"));
    named.map(|word| word.trim_end_matches('-').to_owned()).collect()
}

/// All commands below one, by their helps.
fn collect(fixture: &Fixture, words: &[String], commands: &mut Commands) {
    let arguments: Vec<_> = words.iter().map(String::as_str).chain(["--help"]).collect();
    let help = fixture.nono(&arguments).success().stdout;
    commands.insert(words.to_vec(), options(&help));
    for name in names(&help) {
        collect(fixture, &[words, &[name]].concat(), commands);
    }
    // Its commands are listed without this word.
    if words.is_empty() {
        collect(fixture, &["rollback".to_owned()], commands);
    }
}

/// The commands that a help lists: one list, or one for each group of commands.
fn names(help: &str) -> Vec<String> {
    let before_options = help.split("\nOptions:\n").next().unwrap();
    let lists = match help.split_once("\nCommands:\n") {
        Some((_, below)) => below.split("\n\n").next().unwrap(),
        None if help.contains("\nEvery day:\n") => before_options,
        None => "",
    };
    // Names stand two columns in, and what is said of them further.
    let rows = lists.lines().filter_map(|line| line.strip_prefix("  "));
    let rows = rows.filter(|row| !row.starts_with(' '));
    let names = rows.map(|row| row.split_whitespace().next().unwrap().to_owned());
    names.filter(|name| name != "help").collect()
}

/// The command that a line of a shell begins with, if it is one of nono.
fn command_of<'a>(line: &str, commands: &'a Commands) -> Option<(&'a Vec<String>, String)> {
    let (_, rest) = line.split_once("nono ")?;
    let (mut words, mut last) = (Vec::new(), commands.get_key_value(&Vec::new())?);
    for word in rest.split_whitespace() {
        words.push(word.to_owned());
        match commands.get_key_value(&words) {
            Some(known) => last = known,
            None => break,
        }
    }
    // Words behind `--` and in quotation marks belong to another program.
    let own = rest.split(" -- ").next().unwrap_or_default();
    Some((last.0, own.split('\'').step_by(2).collect()))
}

/// The code in a document: spans, and lines of blocks.
fn code(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_block = false;
    // A span may go on in the next line.
    let mut prose = String::new();
    for line in document.lines() {
        if line.starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            // A line may name several commands.
            let line = line.split(" # ").next().unwrap();
            found.extend(line.split("; ").map(str::to_owned));
        } else {
            prose.push_str(line);
            prose.push(if line.is_empty() { '\n' } else { ' ' });
        }
    }
    for paragraph in prose.lines() {
        found.extend(paragraph.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    found
}

/// The pages in `docs`, and in its directories.
fn pages() -> Vec<PathBuf> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let listed = |dir: &Path| {
        let listed = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        listed.collect::<Vec<_>>()
    };
    let (dirs, files): (Vec<_>, Vec<_>) = listed(&docs).into_iter().partition(|path| path.is_dir());
    let below = dirs.iter().flat_map(|dir| listed(dir));
    let all = files.into_iter().chain(below);
    all.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

#[test]
fn documents_name_commands_and_options_that_are_there() {
    let fixture = Fixture::new();
    let mut commands = Commands::new();
    collect(&fixture, &[], &mut commands);
    assert!(commands.len() > 50, "{}", commands.len());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = vec![root.join("README.md")];
    documents.extend(pages());
    let mut wrong = Vec::new();
    let mut checked = 0;
    for path in &documents {
        let name = path.file_name().unwrap().to_str().unwrap();
        for text in code(&fs::read_to_string(path).unwrap()) {
            let Some((words, own)) = command_of(&text, &commands) else { continue };
            // A span may name several commands: `nono a | b`.
            let known: BTreeSet<_> = match text.contains(" | ") || text.contains(" \\| ") {
                true => commands.values().flatten().collect(),
                false => commands[words].iter().collect(),
            };
            for option in options(&own) {
                checked += 1;
                if !known.contains(&option) {
                    wrong.push(format!(
                        "{name}: `{text}`: {option} is none of `nono {}`",
                        words.join(" ")
                    ));
                }
            }
        }
    }
    assert!(checked > 100, "{checked}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_reference_names_each_option_of_a_command_for_archives_beside_the_command() {
    let fixture = Fixture::new();
    let mut commands = Commands::new();
    collect(&fixture, &[], &mut commands);
    let everywhere = &commands[&vec!["remote".to_owned()]];
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference.md");
    let text = fs::read_to_string(path).unwrap();
    let mut checked = 0;
    let mut missing = Vec::new();
    for (words, own) in &commands {
        let family = words.first().map(String::as_str).unwrap_or_default();
        let is_group = words.len() == 1 && ["remote", "archive"].contains(&family);
        if is_group || !["push", "pull", "remote", "archive", "import"].contains(&family) {
            continue;
        }
        let names = |row: &&str| {
            let mut parts = row.split(|c: char| !c.is_ascii_alphanumeric());
            row.starts_with(&format!("| `nono {family}"))
                && parts.any(|part| part == words.last().unwrap())
        };
        let rows: Vec<_> = text.lines().filter(names).collect();
        assert!(!rows.is_empty(), "no row for {words:?}");
        let (rows, json) = (rows.join("\n"), "--json".to_owned());
        for option in own.difference(everywhere).filter(|option| **option != json) {
            checked += 1;
            let short = SHORT.iter().find(|(long, _)| long == option).map(|(_, short)| *short);
            let is_short = short.is_some_and(|short| rows.contains(&format!(" {short} ")));
            if !options(&rows).contains(option) && !is_short {
                missing.push(format!("nono {}: {option}", words.join(" ")));
            }
        }
    }
    assert!(checked > 25, "{checked}");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_reference_knows_every_command_and_every_option() {
    let fixture = Fixture::new();
    let mut commands = Commands::new();
    collect(&fixture, &[], &mut commands);
    let text: String = pages().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let documented = options(&text);
    let every: BTreeSet<_> = commands.values().flatten().cloned().collect();
    // In a document, the short form of an option may stand for it.
    let has_short = |option: &&String| {
        let short = SHORT.iter().find(|(long, _)| long == option).map(|(_, short)| short);
        short.is_some_and(|short| {
            [format!("`{short}"), format!(" {short} ")].iter().any(|form| text.contains(form))
        })
    };
    let missing: Vec<_> =
        every.difference(&documented).filter(|option| !has_short(option)).collect();
    assert!(missing.is_empty(), "no document names {missing:?}");
    let code: Vec<_> = code(&text);
    let named = |words: &Vec<String>| {
        let last = words.last().unwrap();
        // A command of `rollback` is the command without that word.
        let first = if words[0] == "rollback" { last } else { &words[0] };
        code.iter().any(|code| {
            let mut parts = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let begins = code.contains(&format!("nono {first}"));
            begins && parts.any(|part| part == last)
        })
    };
    let missing: Vec<_> =
        commands.keys().filter(|words| !words.is_empty() && !named(words)).collect();
    assert!(missing.is_empty(), "no document names {missing:?}");
}
