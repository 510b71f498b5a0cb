//! Directories that a program makes again: proved by the mark that their maker left in them.
//!
//! A name alone proves nothing, because anybody can give it. The proof says that the contents are
//! worth no alarm; it does not say that they are harmless, and nothing is removed because of it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::ignore_files::is_vanishing;
use crate::sys::{Dir, FileKind, ListedName};

/// First line of a `CACHEDIR.TAG`, from <https://bford.info/cachedir/>.
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
/// The mark of `node_modules` that lies beside it, and not in it.
pub(crate) const PACKAGE_BESIDE: &str = "package.json";
/// The mark of Python's caches, which have no file for it: their contents prove them.
const BYTECODE_MARK: &str = "compiled Python";
/// A longer `CACHEDIR.TAG` is none.
const MAX_TAG_BYTES: u64 = 1 << 16;
/// The files in Python's and Numba's caches; a file that is just written has a number behind that.
const BYTECODE: [&[u8]; 4] = [b".pyc", b".pyo", b".nbi", b".nbc"];

/// Directories that hold what is made again, by their names, with what that is. A name counts only
/// where git ignores the directory and it is not small.
const WELL_KNOWN: &[(&str, &str)] = &[
    ("node_modules", "installed packages"),
    ("bower_components", "installed packages"),
    (".venv", "installed packages"),
    ("venv", "installed packages"),
    (".tox", "installed packages"),
    (".nox", "installed packages"),
    ("target", "build output"),
    ("dist", "build output"),
    ("build", "build output"),
    (".next", "build output"),
    (".nuxt", "build output"),
    (".svelte-kit", "build output"),
    (".gradle", "a cache"),
    (".cache", "a cache"),
    (".parcel-cache", "a cache"),
    (".turbo", "a cache"),
    ("__pycache__", "a cache"),
    (".pytest_cache", "a cache"),
    (".mypy_cache", "a cache"),
    (".ruff_cache", "a cache"),
];

/// The usual contents of directories of this name, if it is a well-known one.
pub fn well_known(name: &[u8]) -> Option<&'static str> {
    WELL_KNOWN.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, what)| *what)
}

/// The mark that proves that the directory at an absolute path can be made again. `None` when there
/// is none, when it is no directory, and when it cannot be reached without following a symlink.
pub fn makers_mark(path: &Path) -> Option<&'static str> {
    let parent = path.parent()?;
    mark_of(&Dir::open_no_symlinks(parent).ok()?, path.file_name()?.as_bytes())
}

/// The mark of a directory that lies in `parent`.
pub(super) fn mark_of(parent: &Dir, name: &[u8]) -> Option<&'static str> {
    if parent.stat(name).ok()?.kind != FileKind::Directory {
        return None;
    }
    let dir = parent.open_dir(name).ok()?;
    let has_file = |name: &[u8]| is_file(&dir, name);
    let has_beside = || is_file(parent, PACKAGE_BESIDE.as_bytes());
    let bytecode = || dir.names().is_ok_and(|names| holds_bytecode_alone(&dir, &names));
    mark(&dir, name, has_file, has_beside, bytecode)
}

/// The mark of an open directory whose names are known, which costs nothing where there is none.
/// `has_beside` says whether a file called [`PACKAGE_BESIDE`] counts that lies beside it.
pub(super) fn mark_among(
    dir: &Dir,
    name: &[u8],
    names: &[ListedName],
    has_beside: impl FnOnce() -> bool,
) -> Option<&'static str> {
    let is_listed = |name: &[u8]| names.binary_search_by(|listed| (*listed.name).cmp(name)).is_ok();
    let has_file = |name: &[u8]| is_listed(name) && is_file(dir, name);
    mark(dir, name, has_file, has_beside, || holds_bytecode_alone(dir, names))
}

fn mark(
    dir: &Dir,
    name: &[u8],
    has_file: impl Fn(&[u8]) -> bool,
    has_beside: impl FnOnce() -> bool,
    is_bytecode: impl FnOnce() -> bool,
) -> Option<&'static str> {
    if has_file(b"CACHEDIR.TAG")
        && dir
            .read(b"CACHEDIR.TAG", MAX_TAG_BYTES)
            .is_ok_and(|tag| tag.starts_with(CACHE_SIGNATURE))
    {
        return Some("CACHEDIR.TAG");
    }
    if has_file(b"pyvenv.cfg") {
        return Some("pyvenv.cfg");
    }
    match name {
        b"node_modules" if has_file(b".package-lock.json") => Some(".package-lock.json"),
        b"node_modules" if has_beside() => Some(PACKAGE_BESIDE),
        b"__pycache__" if is_bytecode() => Some(BYTECODE_MARK),
        _ => None,
    }
}

fn is_file(dir: &Dir, name: &[u8]) -> bool {
    dir.try_stat(name).ok().flatten().is_some_and(|stat| stat.kind == FileKind::File)
}

/// Whether everything in a directory is called as a compiler of Python calls its output.
fn holds_bytecode_alone(dir: &Dir, names: &[ListedName]) -> bool {
    let is_bytecode = |name: &[u8]| {
        let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let stem = &name[..name.len() - digits];
        let stem = if digits > 0 { stem.strip_suffix(b".").unwrap_or(stem) } else { stem };
        BYTECODE.iter().any(|ending| stem.ends_with(ending))
    };
    let is_file = |name: &[u8]| match dir.stat(name) {
        Ok(stat) => stat.kind == FileKind::File,
        Err(error) => is_vanishing(&error),
    };
    names.iter().all(|listed| is_bytecode(&listed.name) && is_file(&listed.name))
}
