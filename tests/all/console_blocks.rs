//! The commands in each console block of the other pages, run as they stand there: the output is
//! the shown one. `pages/NAME.sh` makes what a page takes for granted.

use std::fs;
use std::path::Path;

use crate::readme::{blocks, document, give_what_they_show, steps};

/// Pages of `docs/` whose commands need something that was there before.
fn pages_with_a_set_up() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/pages");
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.to_str().unwrap().trim_end_matches(".sh").to_owned());
    names.filter(|name| name != "functions").collect()
}

#[test]
fn the_commands_of_pages_with_a_set_up_give_what_they_show() {
    let functions = document("tests/all/pages/functions.sh");
    for page in pages_with_a_set_up() {
        let set_up = functions.clone() + &document(&format!("tests/all/pages/{page}.sh"));
        let page = format!("docs/{page}.md");
        let text = document(&page);
        // Other blocks there are parts of files and of scripts.
        let blocks = blocks(&text).filter(|(kind, _)| *kind == "console");
        give_what_they_show(&page, &set_up, &steps(blocks));
    }
}

#[test]
fn each_page_with_commands_and_outputs_is_run() {
    let mut run = pages_with_a_set_up();
    run.extend(["tutorial", "ci"].map(str::to_owned));
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    for name in names.map(|name| name.into_string().unwrap()) {
        let Some(page) = name.strip_suffix(".md") else { continue };
        let is_run = run.iter().any(|name| name == page);
        let text = document(&format!("docs/{name}"));
        let has_commands = blocks(&text).any(|(kind, _)| kind == "console");
        assert!(is_run || !has_commands, "no test runs the commands of {name}");
    }
}
