//! Virtual environments of Python: their layout, and what the installed packages list.
//!
//! Each package lists its files in a `RECORD` (PEP 376 and 627), also those outside of
//! `site-packages`. Of `site-packages` the entries right in it are compared with the lists. A file
//! that a person put into the directory of a package counts as the package's.

use std::collections::{BTreeSet, HashSet};

use super::{CACHE_TAG, is_directory, names_below};
use crate::byte_path;
use crate::sys::{Dir, FileKind, ListedName};

/// The mark of a virtual environment.
pub(super) const MARK: &str = "pyvenv.cfg";
/// A longer list of a package's files is not read.
const MAX_RECORD_BYTES: u64 = 16 << 20;
/// Most bytes of the lists of one environment.
const MAX_RECORDS_BYTES: u64 = 64 << 20;
/// A longer `.gitignore` is a person's.
const MAX_IGNORE_BYTES: u64 = 1 << 10;
/// The way from `site-packages` to the top of the environment.
const TO_TOP: &[u8] = b"../../../";

/// Files right in an environment.
const FILES: [&[u8]; 4] = [MARK.as_bytes(), CACHE_TAG.as_bytes(), b".lock", b"pip-selfcheck.json"];
/// Programs that no package lists, with the number of a version behind the name or without.
const VERSIONED: [&[u8]; 6] =
    [b"python", b"pypy", b"pip", b"wheel", b"easy_install", "\u{1d70b}thon".as_bytes()];
/// Scripts that no package lists.
const SCRIPTS: [&[u8]; 6] = [
    b"activate",
    b"Activate.ps1",
    b"activate_this.py",
    b"deactivate",
    b"pydoc.bat",
    b"__pycache__",
];
/// The ends of `activate` and `deactivate` for the shells.
const SHELLS: [&[u8]; 6] = [b".bat", b".csh", b".fish", b".nu", b".ps1", b".xsh"];
/// Entries of `site-packages` that no package lists.
const UNLISTED: [&[u8]; 3] = [b"__pycache__", b"_virtualenv.py", b"_virtualenv.pth"];

/// The files that installed packages list.
#[derive(Default)]
struct Installed {
    /// Names right in `site-packages`.
    inside: HashSet<Box<[u8]>>,
    /// Paths from the top of the environment, cut after two names.
    outside: HashSet<Box<[u8]>>,
    bytes: u64,
}

/// Paths in an environment that its maker and the installed packages do not make.
pub(super) fn foreign(top: &Dir, names: &[ListedName]) -> BTreeSet<Box<[u8]>> {
    let mut foreign = BTreeSet::new();
    let mut installed = Installed::default();
    let mut sites = Vec::new();
    // Entries beside the packages, until all lists are read.
    let mut beside = Vec::new();
    for listed in names.iter().filter(|listed| is_lib(top, listed)) {
        let Some((lib, names)) = names_below(top, &listed.name) else {
            foreign.insert(listed.name.clone());
            continue;
        };
        for inner in names {
            let path = byte_path::join(&listed.name, &inner.name);
            if !is_versioned(&inner.name) || !is_directory(&lib, &inner) {
                beside.push(path);
                continue;
            }
            let Some((python, names)) = names_below(top, &path) else {
                foreign.insert(path.into());
                continue;
            };
            for inner in names {
                let path = byte_path::join(&path, &inner.name);
                match &*inner.name {
                    b"site-packages" if is_directory(&python, &inner) => sites.push(path),
                    b"__pycache__" => {}
                    _ => drop(foreign.insert(path.into())),
                }
            }
        }
    }
    for site in sites {
        let Some((dir, names)) = names_below(top, &site) else {
            foreign.insert(site.into());
            continue;
        };
        installed.inside.clear();
        installed.read(&dir, &names);
        let unlisted = names.iter().filter(|listed| !installed.has_inside(&listed.name));
        foreign.extend(unlisted.map(|listed| byte_path::join(&site, &listed.name).into()));
    }
    let is_outside = |path: &[u8]| installed.outside.contains(path);
    foreign.extend(beside.into_iter().filter(|path| !is_outside(path)).map(Into::into));
    for listed in names.iter().filter(|listed| !is_lib(top, listed)) {
        let name = &*listed.name;
        if !is_directory(top, listed) {
            let is_link = listed.kind == Some(FileKind::Symlink) && name == b"lib64";
            let is_covered = is_link
                || FILES.contains(&name)
                || is_outside(name)
                || name == b".gitignore" && ignores_all(top);
            if !is_covered {
                foreign.insert(name.into());
            }
            continue;
        }
        let is_made: fn(&[u8]) -> bool = match name {
            b"bin" => |name| is_script(name) || is_versioned(name),
            b"include" => |name| name == b"site" || is_versioned(name),
            _ if installed.has_below(name) => |_| false,
            _ => {
                foreign.insert(name.into());
                continue;
            }
        };
        match names_below(top, name) {
            Some((_, names)) => foreign.extend(names.into_iter().filter_map(|listed| {
                let path = byte_path::join(name, &listed.name);
                (!is_made(&listed.name) && !is_outside(&path)).then(|| path.into())
            })),
            None => drop(foreign.insert(name.into())),
        }
    }
    foreign
}

fn is_lib(top: &Dir, listed: &ListedName) -> bool {
    matches!(&*listed.name, b"lib" | b"lib64") && is_directory(top, listed)
}

/// Whether a name is that of a script which makes an environment the current one, or the like.
fn is_script(name: &[u8]) -> bool {
    let is_for_a_shell = SHELLS.iter().any(|end| {
        name.strip_suffix(*end).is_some_and(|name| name == b"activate" || name == b"deactivate")
    });
    is_for_a_shell || SCRIPTS.contains(&name)
}

/// Whether a name is that of a Python or its tools: `python`, `python3.13t`, `pip-3.13`.
fn is_versioned(name: &[u8]) -> bool {
    let is_version =
        |rest: &[u8]| rest.iter().all(|byte| byte.is_ascii_digit() || b".-t".contains(byte));
    VERSIONED.iter().any(|stem| name.strip_prefix(*stem).is_some_and(is_version))
}

/// Whether a `.gitignore` is the one that tools write into an environment.
fn ignores_all(top: &Dir) -> bool {
    let Ok(bytes) = top.read(b".gitignore", MAX_IGNORE_BYTES) else { return false };
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let mut rules = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    rules.next() == Some(b"*") && rules.next().is_none()
}

impl Installed {
    fn read(&mut self, site: &Dir, names: &[ListedName]) {
        for listed in names {
            let name = &*listed.name;
            let list: &[u8] = if name.ends_with(b".dist-info") {
                b"RECORD"
            } else if name.ends_with(b".egg-info") {
                b"top_level.txt"
            } else {
                continue;
            };
            let limit = MAX_RECORD_BYTES.min(MAX_RECORDS_BYTES - self.bytes);
            let bytes = site.open_dir(name).and_then(|dir| dir.read(list, limit));
            let Ok(bytes) = bytes else { continue };
            self.bytes += bytes.len() as u64;
            for line in bytes.split(|byte| *byte == b'\n') {
                if list == b"RECORD" {
                    self.add(path_of(line.trim_ascii_end()));
                } else {
                    let module = line.trim_ascii();
                    insert(&mut self.inside, module);
                    insert(&mut self.inside, &[module, b".py"].concat());
                }
            }
        }
    }

    fn add(&mut self, path: &[u8]) {
        let (names, path) = match path.strip_prefix(TO_TOP) {
            Some(outside) => (2, outside),
            None => (1, path),
        };
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let end = ends.chain([path.len()]).nth(names - 1).unwrap_or(path.len());
        let set = if names == 2 { &mut self.outside } else { &mut self.inside };
        insert(set, &path[..end]);
    }

    /// Whether an entry of `site-packages` is a package's.
    fn has_inside(&self, name: &[u8]) -> bool {
        self.inside.contains(name)
            || UNLISTED.contains(&name)
            || [&b".dist-info"[..], b".egg-info", b".egg"].iter().any(|end| name.ends_with(end))
    }

    fn has_below(&self, name: &[u8]) -> bool {
        let is_below = |path: &[u8]| path.strip_prefix(name).is_some_and(|it| it.starts_with(b"/"));
        self.outside.iter().any(|path| is_below(path))
    }
}

fn insert(set: &mut HashSet<Box<[u8]>>, name: &[u8]) {
    if !name.is_empty() && !set.contains(name) {
        set.insert(name.into());
    }
}

/// The path in a line of a `RECORD`, which is comma-separated with quotes where they are needed.
fn path_of(line: &[u8]) -> &[u8] {
    let (rest, end) = match line.strip_prefix(b"\"") {
        Some(quoted) => (quoted, b'"'),
        None => (line, b','),
    };
    rest.split(|byte| *byte == end).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_a_package_names_entries_inside_and_outside() {
        let mut installed = Installed::default();
        for line in ["six.py,sha256=x,1", "a/b.py,,", "\"odd,name/x\",,", "../../../bin/run,,"] {
            installed.add(path_of(line.as_bytes()));
        }
        for line in ["../../../share/man/man1/x.1,,", "../escape,,", "", "/etc/passwd,,"] {
            installed.add(path_of(line.as_bytes()));
        }
        for name in ["six.py", "a", "odd,name", "x-1.dist-info", "__pycache__"] {
            assert!(installed.has_inside(name.as_bytes()), "{name}");
        }
        for name in ["b.py", "escape", "etc", "bin", "odd"] {
            assert!(!installed.has_inside(name.as_bytes()), "{name}");
        }
        assert!(installed.outside.contains(&b"bin/run"[..]));
        assert!(installed.outside.contains(&b"share/man"[..]));
        assert!(installed.has_below(b"share") && !installed.has_below(b"shar"));
    }

    #[test]
    fn programs_of_an_environment_are_told_from_those_of_a_person() {
        for name in ["activate", "activate.fish", "deactivate.csh", "activate_this.py"] {
            assert!(is_script(name.as_bytes()), "{name}");
        }
        for name in ["activate.sh", "reactivate.fish", ".fish"] {
            assert!(!is_script(name.as_bytes()), "{name}");
        }
        for name in ["python", "python3", "python3.13t", "pip3.11", "pip-3.11", "pypy3.10"] {
            assert!(is_versioned(name.as_bytes()), "{name}");
        }
        for name in ["pipeline", "python-mine", "pythonic.py", "run"] {
            assert!(!is_versioned(name.as_bytes()), "{name}");
        }
    }
}
