//! The order of the engine's modules: an import that runs back up fails here.
#![allow(missing_docs, clippy::disallowed_methods)]

use std::fs;
use std::path::Path;

/// Each module imports only from those before it; `ARCHITECTURE.md` draws the same order.
const ORDER: [&str; 30] = [
    "counted",
    "path_text",
    "byte_path",
    "shell_glob",
    "pax",
    "progress",
    "sys",
    "object",
    "layout",
    "store",
    "walk",
    "stat_cache",
    "manifest",
    "watch",
    "diff",
    "snapshot",
    "git",
    "verify",
    "repair",
    "restore",
    "history",
    "import",
    "gc",
    "session",
    "job",
    "events",
    "fork",
    "browse",
    "fuzzing",
    "lib",
];

fn rank(module: &str) -> Option<usize> {
    ORDER.iter().position(|name| *name == module)
}

/// Each source file below a directory, with its text.
fn sources(dir: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((path.to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The modules that a line of code names by their paths from the top.
fn imported(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap();
    code.split("crate::").skip(1).flat_map(|rest| {
        let list = rest.strip_prefix('{').map(|list| list.split('}').next().unwrap());
        list.unwrap_or(rest).split(',').take(if list.is_some() { usize::MAX } else { 1 }).map(
            |name| {
                let name = name.trim();
                let end = name.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
                &name[..end.unwrap_or(name.len())]
            },
        )
    })
}

#[test]
fn no_import_runs_back_up() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    let (mut wrong, mut imports) = (Vec::new(), 0);
    for (path, text) in &found {
        let relative = path.strip_prefix(root.to_str().unwrap()).unwrap().trim_start_matches('/');
        if relative.contains("tests") {
            continue;
        }
        let module = relative.split(['/', '.']).next().unwrap();
        let own = rank(module).unwrap_or_else(|| panic!("{module} has no place in the order"));
        // Tests of a module may look at anything.
        let code = text.split("#[cfg(test)]\nmod").next().unwrap();
        let code = code.split("#[cfg(test)]\n#[allow").next().unwrap();
        for (number, line) in code.lines().enumerate() {
            for name in imported(line) {
                imports += 1;
                if rank(name).is_some_and(|other| other > own) {
                    wrong.push(format!("{relative}:{}: {}", number + 1, line.trim()));
                }
            }
        }
    }
    assert!(imports > 500, "only {imports} imports were seen");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn imports_are_read_as_written() {
    let names = |line| imported(line).collect::<Vec<_>>();
    assert_eq!(names("use crate::store::{read_tree, LocalStore};"), ["store"]);
    assert_eq!(names("use crate::{byte_path, layout};"), ["byte_path", "layout"]);
    assert_eq!(
        names("    let dir = crate::sys::Dir::open(&crate::layout::of(a))?;"),
        ["sys", "layout"]
    );
    assert_eq!(names("// crate::session is above"), Vec::<&str>::new());
}
