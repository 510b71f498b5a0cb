//! The promises of a release: one version everywhere, no invented address, and a store that an
//! older nono leaves alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::fixture::Fixture;

/// A file of this repository.
fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Manifests of the packages, the program's first.
const MANIFESTS: [&str; 6] = [
    "Cargo.toml",
    "archive/Cargo.toml",
    "container/Cargo.toml",
    "engine/Cargo.toml",
    "mount/Cargo.toml",
    "python/Cargo.toml",
];

/// Lines of the changes of a version that a person reads on one page.
const MAX_PAGE_LINES: usize = 60;

#[test]
fn every_package_and_the_changes_have_one_version() {
    let version = env!("CARGO_PKG_VERSION");
    let top = read("Cargo.toml");
    assert!(top.contains(&format!("[workspace.package]\nversion = \"{version}\"\n")));
    for manifest in MANIFESTS {
        let text = read(manifest);
        let package = text.split("[package]\n").nth(1).unwrap().split("\n\n").next().unwrap();
        assert!(package.contains("version.workspace = true"), "{manifest}: {package}");
    }
    // A dependency inside the workspace is published with the version that it was built with.
    let inner: Vec<_> = top.lines().filter(|line| line.contains("path = \"")).collect();
    let with_version: Vec<_> = inner.iter().filter(|line| line.starts_with("nono-")).collect();
    assert_eq!(with_version.iter().filter(|line| line.contains(version)).count(), 4, "{inner:?}");
    assert!(read("python/pyproject.toml").contains("dynamic = [\"version\"]"));
    let fixture = Fixture::new();
    assert_eq!(fixture.nono(&["--version"]).success().stdout, format!("nono {version}\n"));
    let changes = read("CHANGELOG.md");
    let newest = changes.split("\n## ").nth(1).unwrap();
    assert_eq!(newest.lines().next(), Some(version));
    assert!(newest.lines().count() <= MAX_PAGE_LINES, "{} lines", newest.lines().count());
}

#[test]
fn no_package_claims_an_address_that_is_not_there() {
    for manifest in MANIFESTS.into_iter().chain(["python/pyproject.toml"]) {
        let text = read(manifest);
        for claim in ["repository", "homepage", "documentation", "://"] {
            let claims = |line: &&str| !line.starts_with('#') && line.contains(claim);
            assert_eq!(text.lines().find(claims), None, "{manifest}");
        }
    }
}

/// Every file below a directory with its bytes.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_file() {
                let bytes = fs::read(&path).unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}

#[test]
fn a_store_of_a_newer_nono_is_refused_by_each_command_and_stays_as_it_is() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    fixture.record("echo 2 > a").success();
    fs::write(fixture.store().join("objects/.format"), "2\n").unwrap();
    let before = tree(&fixture.store());
    assert!(before.len() > 5, "{before:?}");
    let commands: [&[&str]; 8] = [
        &["run", "--no-sandbox", "true"],
        &["snapshot"],
        &["diff"],
        &["undo", "--yes"],
        &["restore", "latest/0", "--yes"],
        &["verify", "--all"],
        &["cleanup", "--all", "--yes"],
        &["usage"],
    ];
    for command in commands {
        let refused = fixture.nono(command);
        assert_eq!(refused.code, 1, "{command:?}: {}{}", refused.stdout, refused.stderr);
        let said = refused.stdout + &refused.stderr;
        let sentence = "has format 2, and this nono knows format 1: use a newer nono";
        assert!(said.contains(sentence), "{command:?}: {said}");
        assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "2\n", "{command:?}");
        let after = tree(&fixture.store());
        let changed: Vec<_> =
            after.iter().filter(|(path, bytes)| before.get(*path) != Some(bytes)).collect();
        assert!(changed.is_empty() && after.len() >= before.len(), "{command:?}: {changed:?}");
    }
}
