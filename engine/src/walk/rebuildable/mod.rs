//! Directories that a program makes again: proved by the mark that their maker left in them.
//!
//! A name alone proves nothing, because any program can give it. A mark covers what its maker
//! makes, and nothing else: a person's files in a marked directory are *foreign* to the maker, and
//! are recorded like those of any other directory. The proof says that the contents are worth no
//! alarm; it does not say that they are harmless, and nothing is removed because of it.
//!
//! A maker that lists its files is believed (`RECORD` files, locks of package managers). Of the
//! others the layout is known. A `CACHEDIR.TAG` of an unknown maker proves nothing, unless the name
//! of the directory says the same. The lists are untrusted: what cannot be read covers nothing, so
//! more is recorded.

mod build_output;
mod packages;
mod virtual_env;

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(crate) use self::packages::LOCK_BESIDE;
pub(crate) use self::packages::MAX_LOCK_BYTES;
use super::ignore_files::is_vanishing;
use crate::byte_path;
use crate::sys::{Dir, FileKind, ListedName};

/// First line of a `CACHEDIR.TAG`, from <https://bford.info/cachedir/>.
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
/// Name of the tag.
const CACHE_TAG: &str = "CACHEDIR.TAG";
/// The mark of Python's caches, which have no file for it: their contents prove them.
const BYTECODE_MARK: &str = "compiled Python";
/// A longer `CACHEDIR.TAG` is none.
const MAX_TAG_BYTES: u64 = 1 << 16;
/// The files in Python's and Numba's caches; a file that is just written has a number behind that.
const BYTECODE: [&[u8]; 4] = [b".pyc", b".pyo", b".nbi", b".nbc"];
/// Directories above a path that are looked at for a mark that covers the path.
const MAX_LEVELS: usize = 8;

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

/// The proof of a maker's mark for the directory that bears it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// The mark.
    pub(crate) mark: &'static str,
    /// The directory as a whole is its maker's, whatever is in it.
    pub(crate) is_whole: bool,
    /// Paths in the directory that are not its maker's, with all below them.
    foreign: BTreeSet<Box<[u8]>>,
}

/// The relation of a path in a marked directory to the maker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The maker makes it, and all below it.
    Covered,
    /// The maker makes it, but not all below it.
    AboveForeign,
    /// The maker does not make it.
    Foreign,
}

impl Coverage {
    /// Whether everything in the directory is its maker's.
    pub(crate) fn is_all(&self) -> bool {
        self.foreign.is_empty()
    }

    /// The relation of a path, given relative to the directory; empty for the directory itself.
    pub(crate) fn part(&self, inside: &[u8]) -> Part {
        let is_foreign = |path: &[u8]| self.foreign.contains(path);
        if is_foreign(inside) || byte_path::ancestors(inside).any(is_foreign) {
            return Part::Foreign;
        }
        let below = if inside.is_empty() { Vec::new() } else { [inside, b"/"].concat() };
        let from = (Bound::Included(below.as_slice()), Bound::Unbounded);
        let first = self.foreign.range::<[u8], _>(from).next();
        match first.is_some_and(|first| first.starts_with(&below)) {
            true => Part::AboveForeign,
            false => Part::Covered,
        }
    }
}

/// A marked directory of a tracked path.
#[derive(Debug)]
pub(crate) struct MadeAgain {
    pub(crate) coverage: Coverage,
    /// Relative to the tracked path.
    pub(crate) base: Box<[u8]>,
}

impl MadeAgain {
    /// The relation of a path, given relative to the tracked path.
    pub(crate) fn part(&self, relative: &[u8]) -> Part {
        byte_path::relative_to(relative, &self.base)
            .map_or(Part::Foreign, |inside| self.coverage.part(inside))
    }
}

/// Marks on the disk, each looked at once.
#[derive(Debug, Default)]
pub struct Marks(HashMap<(PathBuf, bool), Option<Coverage>>);

impl Marks {
    /// The mark that covers an absolute path with all below it, and the directory that bears the
    /// mark: the path itself, or one above it with `is_part`. `None` where it cannot be reached
    /// without following a symlink. `is_ignored`: git ignores the directory.
    pub fn covering(
        &mut self,
        path: &Path,
        is_ignored: bool,
        is_part: bool,
    ) -> Option<(&'static str, PathBuf)> {
        let levels = if is_part { MAX_LEVELS } else { 1 };
        for dir in path.ancestors().take(levels) {
            let key = (dir.to_owned(), is_ignored);
            let coverage = self.0.entry(key).or_insert_with(|| coverage_at(dir, is_ignored));
            let Some(coverage) = coverage else { continue };
            let inside = path.strip_prefix(dir).ok()?.as_os_str().as_bytes();
            let is_covered = coverage.part(inside) == Part::Covered;
            return is_covered.then(|| (coverage.mark, dir.to_owned()));
        }
        None
    }
}

fn coverage_at(path: &Path, is_ignored: bool) -> Option<Coverage> {
    let parent = Dir::open_no_symlinks(path.parent()?).ok()?;
    coverage_of(&parent, path.file_name()?.as_bytes(), is_ignored)
}

/// The coverage of the mark of a directory in `parent`. `is_ignored`: git ignores it.
pub(super) fn coverage_of(parent: &Dir, name: &[u8], is_ignored: bool) -> Option<Coverage> {
    if parent.stat(name).ok()?.kind != FileKind::Directory {
        return None;
    }
    let dir = parent.open_dir(name).ok()?;
    let marked = Marked {
        dir: &dir,
        name,
        is_ignored,
        has_file: &|name| is_file(&dir, name),
        is_bytecode: &|| dir.names().is_ok_and(|names| holds_bytecode_alone(&dir, &names)),
    };
    let maker = marked.maker(|| parent.read(LOCK_BESIDE.as_bytes(), MAX_LOCK_BYTES).ok())?;
    Some(maker.coverage(&dir, &dir.names().ok()?))
}

/// The coverage of the mark of an open directory with known names. It costs nothing where there
/// is none. `lock_beside`: the file called [`LOCK_BESIDE`] that lies beside it, if it counts.
pub(super) fn coverage_among(
    dir: &Dir,
    name: &[u8],
    names: &[ListedName],
    is_ignored: bool,
    lock_beside: impl FnOnce() -> Option<Vec<u8>>,
) -> Option<Coverage> {
    let is_listed = |name: &[u8]| names.binary_search_by(|listed| (*listed.name).cmp(name)).is_ok();
    let marked = Marked {
        dir,
        name,
        is_ignored,
        has_file: &|name| is_listed(name) && is_file(dir, name),
        is_bytecode: &|| holds_bytecode_alone(dir, names),
    };
    Some(marked.maker(lock_beside)?.coverage(dir, names))
}

/// A directory that may be marked.
struct Marked<'a> {
    dir: &'a Dir,
    name: &'a [u8],
    is_ignored: bool,
    has_file: &'a dyn Fn(&[u8]) -> bool,
    is_bytecode: &'a dyn Fn() -> bool,
}

/// A program that makes a directory again.
enum Maker {
    VirtualEnv,
    Packages(packages::Listed),
    Cargo,
    Cache,
    Python,
}

impl Marked<'_> {
    fn maker(&self, lock_beside: impl FnOnce() -> Option<Vec<u8>>) -> Option<Maker> {
        if (self.has_file)(virtual_env::MARK.as_bytes()) {
            return Some(Maker::VirtualEnv);
        }
        match self.name {
            b"node_modules" => {
                let listed = packages::listed(self.dir, self.has_file, lock_beside);
                if let Some(listed) = listed {
                    return Some(Maker::Packages(listed));
                }
            }
            b"__pycache__" if (self.is_bytecode)() => return Some(Maker::Python),
            _ => {}
        }
        if !(self.has_file)(CACHE_TAG.as_bytes()) {
            return None;
        }
        let tag = self.dir.read(CACHE_TAG.as_bytes(), MAX_TAG_BYTES).ok()?;
        if !tag.starts_with(CACHE_SIGNATURE) {
            return None;
        }
        if build_output::is_of_cargo(self.name, &tag, self.has_file) {
            return Some(Maker::Cargo);
        }
        says_cache(self.name, self.is_ignored).then_some(Maker::Cache)
    }
}

impl Maker {
    fn coverage(self, dir: &Dir, names: &[ListedName]) -> Coverage {
        let (mark, is_whole, foreign) = match self {
            Self::VirtualEnv => (virtual_env::MARK, false, virtual_env::foreign(dir, names)),
            Self::Packages(listed) => (listed.mark, false, listed.foreign(dir, names)),
            Self::Cargo => (CACHE_TAG, false, build_output::foreign(dir, names)),
            Self::Cache => (CACHE_TAG, true, BTreeSet::new()),
            Self::Python => (BYTECODE_MARK, true, BTreeSet::new()),
        };
        Coverage { mark, is_whole, foreign }
    }
}

/// Whether the name of a directory says what its tag says. A name that begins with a dot belongs to
/// a program; without a dot, git has to ignore the directory.
fn says_cache(name: &[u8], is_ignored: bool) -> bool {
    let is_hidden = name.starts_with(b".");
    let says = name.to_ascii_lowercase().windows(5).any(|word| word == b"cache");
    says && (is_hidden || is_ignored) || is_hidden && well_known(name).is_some()
}

fn is_file(dir: &Dir, name: &[u8]) -> bool {
    dir.try_stat(name).ok().flatten().is_some_and(|stat| stat.kind == FileKind::File)
}

/// The kind of a listed name, if it is still there.
fn kind_of(dir: &Dir, listed: &ListedName) -> Option<FileKind> {
    listed.kind.or_else(|| Some(dir.stat(&listed.name).ok()?.kind))
}

fn is_directory(dir: &Dir, listed: &ListedName) -> bool {
    kind_of(dir, listed) == Some(FileKind::Directory)
}

/// The names in a directory below `dir`; `None` if it cannot be listed.
fn names_below(dir: &Dir, relative: &[u8]) -> Option<(Dir, Vec<ListedName>)> {
    let below = dir.open_beneath(relative).ok()?;
    let names = below.names().ok()?;
    Some((below, names))
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

#[cfg(test)]
mod tests;
