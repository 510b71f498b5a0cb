//! Packages in `node_modules`: those that the lock of a package manager lists.
//!
//! npm, pnpm and Yarn note in `node_modules` what they installed. For a workspace they do so in the
//! `node_modules` of a directory above, with paths from there. Bun notes it beside `node_modules`.
//! The locks are searched for strings and not parsed: a string that looks like an entry covers a
//! package of that name, whoever wrote it.

use std::collections::{BTreeSet, HashSet};

use super::{is_directory, kind_of, names_below};
use crate::byte_path;
use crate::path_text::to_path;
use crate::sys::{Dir, FileKind, ListedName};

/// The lock that lies beside `node_modules`, and not in it.
pub(crate) const LOCK_BESIDE: &str = "bun.lock";
/// A larger lock is not read, and lists nothing.
pub(crate) const MAX_LOCK_BYTES: u64 = 64 << 20;
/// Directories above a `node_modules` that are searched for the lock of a workspace.
const MAX_LEVELS: usize = 6;
const NODE_MODULES: &[u8] = b"node_modules/";

/// How a lock names packages.
#[derive(Clone, Copy)]
enum Form {
    /// By the path of each: `node_modules/a`.
    Paths,
    /// By name and version: `a@^1.0`.
    Versions,
}

/// The locks in `node_modules`.
const LOCKS: [(&str, Form); 4] = [
    (".package-lock.json", Form::Paths),
    (PNPM, Form::Paths),
    (".yarn-state.yml", Form::Paths),
    (".yarn-integrity", Form::Versions),
];
const PNPM: &str = ".modules.yaml";

/// Entries of `node_modules` that are no packages. No package has a name that begins with a dot.
const TOOLS: [&[u8]; 17] = [
    b".bin",
    b".bun",
    b".cache",
    b".deno",
    b".modules.yaml",
    b".package-lock.json",
    b".pnpm",
    b".pnpm-workspace-state.json",
    b".pnpm-workspace-state-v1.json",
    b".prisma",
    b".store",
    b".tmp",
    b".vite",
    b".vite-temp",
    b".vitest",
    b".yarn-integrity",
    b".yarn-state.yml",
];

/// The packages that a lock lists.
pub(super) struct Listed {
    /// The name of the lock.
    pub(super) mark: &'static str,
    names: HashSet<Box<[u8]>>,
}

/// The packages of a `node_modules`, if there is a lock.
pub(super) fn listed(
    dir: &Dir,
    has_file: &dyn Fn(&[u8]) -> bool,
    lock_beside: impl FnOnce() -> Option<Vec<u8>>,
) -> Option<Listed> {
    let found = LOCKS.into_iter().find(|(lock, _)| has_file(lock.as_bytes()));
    if let Some((mark, form)) = found {
        let bytes = dir.read(mark.as_bytes(), MAX_LOCK_BYTES).unwrap_or_default();
        return Some(Listed { mark, names: names(&bytes, form, NODE_MODULES) });
    }
    if let Some(bytes) = lock_beside() {
        return Some(Listed { mark: LOCK_BESIDE, names: names(&bytes, Form::Versions, b"") });
    }
    of_workspace(dir)
}

/// The packages of a `node_modules` without a lock, by that of a workspace above it.
fn of_workspace(dir: &Dir) -> Option<Listed> {
    let package = dir.path().parent()?;
    for top in package.ancestors().skip(1).take(MAX_LEVELS) {
        let modules = top.join(to_path(NODE_MODULES));
        let Ok(modules) = Dir::open_no_symlinks(&modules) else { continue };
        for (mark, form) in LOCKS {
            let Ok(bytes) = modules.read(mark.as_bytes(), MAX_LOCK_BYTES) else { continue };
            let inside = package.strip_prefix(top).ok()?.as_os_str().as_encoded_bytes();
            let prefix = [inside, b"/", NODE_MODULES].concat();
            return Some(Listed { mark, names: names(&bytes, form, &prefix) });
        }
    }
    None
}

/// The names of the packages in a lock.
fn names(bytes: &[u8], form: Form, prefix: &[u8]) -> HashSet<Box<[u8]>> {
    let mut names = HashSet::new();
    let is_end = |byte: &u8| match form {
        Form::Paths => b"\"' \n\r".contains(byte),
        Form::Versions => matches!(byte, b'"' | b'\n'),
    };
    for word in bytes.split(is_end) {
        let name = match form {
            Form::Paths => word.strip_prefix(prefix).and_then(package_of_path),
            Form::Versions => package_of_version(word),
        };
        if let Some(name) = name.filter(|name| !names.contains(*name)) {
            names.insert(name.into());
        }
    }
    names
}

/// `a` of `a/node_modules/b`, and `@scope/a` of `@scope/a`.
fn package_of_path(path: &[u8]) -> Option<&[u8]> {
    let mut ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let end = if path.starts_with(b"@") { ends.nth(1) } else { ends.next() };
    let name = &path[..end.unwrap_or(path.len())];
    (!name.is_empty()).then_some(name)
}

/// `a` of `a@^1.0`, and `@scope/a` of `@scope/a@1.0`.
fn package_of_version(word: &[u8]) -> Option<&[u8]> {
    let at = word.iter().skip(1).position(|byte| *byte == b'@')? + 1;
    let name = &word[..at];
    let slashes = name.iter().filter(|byte| **byte == b'/').count();
    (slashes == usize::from(name.starts_with(b"@"))).then_some(name)
}

impl Listed {
    /// Paths in `node_modules` that are neither packages of the lock nor files of tools.
    pub(super) fn foreign(&self, dir: &Dir, names: &[ListedName]) -> BTreeSet<Box<[u8]>> {
        let mut foreign = BTreeSet::new();
        for listed in names {
            let name = &*listed.name;
            if name.starts_with(b"@") && is_directory(dir, listed) {
                let Some((scope, names)) = names_below(dir, name) else {
                    foreign.insert(name.into());
                    continue;
                };
                let packages =
                    names.iter().map(|inner| (byte_path::join(name, &inner.name), inner));
                let unlisted = packages.filter(|(path, inner)| !self.has(&scope, path, inner));
                foreign.extend(unlisted.map(|(path, _)| path.into()));
            } else if !TOOLS.contains(&name) && !self.has(dir, name, listed) {
                foreign.insert(name.into());
            }
        }
        foreign
    }

    /// Whether an entry is a package of the lock, by its path in `node_modules`. pnpm links
    /// packages: what a link leads to lies elsewhere.
    fn has(&self, dir: &Dir, path: &[u8], listed: &ListedName) -> bool {
        let is_link = || kind_of(dir, listed) == Some(FileKind::Symlink);
        self.names.contains(path) || self.mark == PNPM && is_link()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, form: Form, prefix: &str) -> Vec<String> {
        let found = names(text.as_bytes(), form, prefix.as_bytes());
        let mut found: Vec<_> =
            found.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        found.sort();
        found
    }

    #[test]
    fn locks_name_packages_by_paths() {
        let npm = r#"{"packages": {
            "node_modules/a": {"version": "1.0.0", "resolved": "https://r/a"},
            "node_modules/@s/b": {}, "node_modules/a/node_modules/c": {}, "packages/w": {},
            "packages/w/node_modules/d": {}, "node_modules/": {}}}"#;
        assert_eq!(all(npm, Form::Paths, "node_modules/"), ["@s/b", "a"]);
        assert_eq!(all(npm, Form::Paths, "packages/w/node_modules/"), ["d"]);
        let yarn =
            "\"a@npm:1.0.0\":\n  locations:\n    - \"node_modules/a\"\n    - node_modules/e\n";
        assert_eq!(all(yarn, Form::Paths, "node_modules/"), ["a", "e"]);
        assert_eq!(all("", Form::Paths, "node_modules/"), [""; 0]);
    }

    #[test]
    fn locks_name_packages_by_versions() {
        let yarn = r#"{"lockfileEntries": {"a@^1.0.0": "https://r.org/a/-/a-1.tgz#1",
            "@s/b@>= 1 < 2": "https://r.org/@s/b/-/b@2", "c@npm:@s/d@1": "x"}, "files": []}"#;
        assert_eq!(all(yarn, Form::Versions, ""), ["@s/b", "a", "c"]);
        let bun = r#""packages": { "a": ["a@1.0.0", "", {}, "sha512-x=="], }"#;
        assert_eq!(all(bun, Form::Versions, ""), ["a"]);
        assert_eq!(all("\"@\" \"@@\" \"a\" \"@s/x\"", Form::Versions, ""), [""; 0]);
    }
}
