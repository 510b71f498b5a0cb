//! The documentation as a book: what it lists, its links, and its pages in the terminal.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{Fixture, finished};

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(top().join(name)).unwrap()
}

/// Files of all pages below `docs`, without the list of them.
fn pages() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for dir in ["docs", "docs/questions"] {
        for entry in fs::read_dir(top().join(dir)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") && name != "SUMMARY.md" {
                found.insert(format!("{dir}/{name}"));
            }
        }
    }
    found
}

/// Targets of the links of a text, without those in code and those to elsewhere.
fn links(text: &str) -> Vec<String> {
    let prose: Vec<_> = text.split("\n```").step_by(2).collect();
    let prose = prose.join("\n");
    let rest = prose.split("](").skip(1);
    let targets = rest.map(|rest| rest.split(')').next().unwrap().to_owned());
    targets.filter(|target| !target.contains("://")).collect()
}

/// The word by which a link names a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn the_book_and_the_list_for_agents_have_every_page_once() {
    let in_summary = links(&read("docs/SUMMARY.md"));
    let listed: BTreeSet<_> = in_summary.iter().map(|file| format!("docs/{file}")).collect();
    assert_eq!(listed.len(), in_summary.len(), "a page stands twice in {in_summary:?}");
    assert_eq!(listed, pages());
    let for_agents: BTreeSet<_> = links(&read("llms.txt")).into_iter().collect();
    let mut expected = pages();
    expected.insert("README.md".to_owned());
    assert_eq!(for_agents, expected);
}

#[test]
fn every_link_of_the_book_leads_to_a_page_or_a_picture_of_it_and_to_a_heading() {
    let docs = top().join("docs");
    let mut checked = 0;
    for page in pages() {
        let dir = top().join(&page).parent().unwrap().to_owned();
        for link in links(&read(&page)) {
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            // Documentation of the libraries, which `scripts/book` makes and checks.
            if let Some(library) = file.strip_prefix("api/nono_") {
                let library = library.strip_suffix("/index.html").unwrap();
                assert!(top().join(library).join("src/lib.rs").is_file(), "{page}: {link}");
                continue;
            }
            let path = if file.is_empty() { top().join(&page) } else { dir.join(file) };
            let target: PathBuf = path.canonicalize().unwrap_or_else(|_| panic!("{page}: {link}"));
            assert!(target.starts_with(&docs), "{page} leads out of the book: {link}");
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let headings = text.lines().filter(|line| line.starts_with('#'));
                let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#')));
                assert!(anchors.any(|known| known == heading), "{page}: {link}");
            }
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}

#[test]
fn each_page_is_printed_by_help_in_lines_that_fit_but_for_code() {
    let fixture = Fixture::new();
    let listed = fixture.nono(&["help"]).success().stdout;
    for page in pages() {
        let name = page.rsplit('/').next().unwrap().trim_end_matches(".md");
        assert!(listed.contains(&format!("\n  {name} ")), "{name}: {listed}");
        let shown = fixture.nono(&["help", &page]).success().stdout;
        let title = read(&page).lines().next().unwrap().trim_start_matches("# ").to_owned();
        assert_eq!(shown.lines().next(), Some(title.as_str()), "{page}");
        for line in shown.lines().filter(|line| !line.starts_with("    ")) {
            let is_one_word = !line.trim().contains(' ');
            assert!(line.chars().count() <= 80 || is_one_word, "{page}: {line}");
            assert!(!line.contains("```") && !line.contains("]("), "{page}: {line}");
        }
        // No word of the prose is lost; where a link leads is no prose.
        let text =
            links(&read(&page)).iter().fold(read(&page), |text, link| text.replace(link, ""));
        for word in ["nono", "store"] {
            let count = |text: &str| text.matches(word).count();
            assert!(count(&shown) * 10 >= count(&text) * 9, "{page}: {word}");
        }
    }
}

/// The commands of nono in the blocks of a page, without what a shell does with their output.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| match block.split_once('\n') {
        Some(("console", text)) => {
            text.lines().filter_map(|line| line.strip_prefix("$ ")).collect()
        }
        Some(("sh", text)) => text.lines().collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let ends = ["  # ", " # ", " | ", " > ", "; ", " && ", " || "];
    let commands = lines.filter(|line| line.starts_with("nono ")).map(|line| {
        let end = ends.iter().filter_map(|end| line.find(end)).min().unwrap_or(line.len());
        line[..end].trim_end().to_owned()
    });
    commands.collect()
}

/// Whether a command ends in the middle of a quotation, or of a command within it.
fn is_cut(command: &str) -> bool {
    let is_open = |quote: &char| command.matches(*quote).count() % 2 == 1;
    let inner = command.matches("$(").count();
    ['\'', '"'].iter().any(is_open) || inner > command.matches(')').count()
}

#[test]
fn each_command_in_a_block_of_any_page_is_one_that_the_program_understands() {
    let fixture = Fixture::new();
    let program = Path::new(env!("CARGO_BIN_EXE_nono"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let (mut checked, mut wrong) = (0, Vec::new());
    for page in pages() {
        for command in commands(&read(&page)) {
            // The words before `--help` are read, and nothing is done.
            let asked = match command.split_once(" -- ") {
                Some((own, others)) => format!("{own} --help -- {others}"),
                // The rest of the line is another command, which would get the option.
                None if ["nono run ", "nono try "].iter().any(|word| command.starts_with(word)) => {
                    continue;
                }
                None if is_cut(&command) => continue,
                None => format!("{command} --help"),
            };
            let mut shell = Command::new("bash");
            shell.args(["-c", &asked]).current_dir(fixture.project()).env_clear();
            shell.env("PATH", &path).env("HOME", fixture.path("home"));
            let done = finished(shell.output().unwrap());
            if done.code != 0 || !done.stdout.contains("Usage: nono") {
                wrong.push(format!("{page}: {command}: {}{}", done.stdout, done.stderr));
            }
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 70, "{checked}");
}

#[test]
fn help_of_a_command_is_the_help_that_the_command_prints() {
    let fixture = Fixture::new();
    for words in [&["run"][..], &["agent", "install"], &["rollback", "diff"]] {
        let own = fixture.nono(&[words, &["--help"]].concat()).success().stdout;
        assert_eq!(fixture.nono(&[&["help"], words].concat()).success().stdout, own, "{words:?}");
    }
    // A command and a page of one name: the command, and how to read the page.
    let help = fixture.nono(&["help", "mount"]).success().stdout;
    let own = fixture.nono(&["mount", "--help"]).success().stdout;
    assert_eq!(help, format!("{own}\n`nono help mount.md` prints the page about it.\n"));
    let refused = fixture.nono(&["help", "no-such\u{1b}[2J"]);
    assert_eq!(refused.code, 2);
    assert!(refused.says("there is no command and no page") && !refused.stderr.contains('\u{1b}'));
}
