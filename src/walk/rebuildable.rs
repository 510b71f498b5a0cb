//! Directories that a program makes again: proved by the mark that their maker left in them.
//!
//! A name alone proves nothing, because anybody can give it. The proof says that the contents are worth
//! no alarm; it does not say that they are harmless, and nothing is removed because of it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::ignore_files::is_vanishing;
use crate::sys::{Dir, FileKind};

/// First line of a `CACHEDIR.TAG`, from <https://bford.info/cachedir/>.
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
/// The mark of `node_modules` that lies beside it, and not in it.
pub(crate) const PACKAGE_BESIDE: &str = "package.json";
/// A longer `CACHEDIR.TAG` is none.
const MAX_TAG_BYTES: u64 = 1 << 16;
/// What Python's and Numba's caches hold; a file that is just written has a number behind that.
const BYTECODE: [&[u8]; 4] = [b".pyc", b".pyo", b".nbi", b".nbc"];

/// The mark that proves that the directory at an absolute path can be made again. `None` when there is
/// none, when it is no directory, and when it cannot be reached without following a symlink.
pub fn makers_mark(path: &Path) -> Option<&'static str> {
    let parent = path.parent()?;
    mark_of(&Dir::open_no_symlinks(parent).ok()?, path.file_name()?.as_bytes())
}

fn mark_of(parent: &Dir, name: &[u8]) -> Option<&'static str> {
    if parent.stat(name).ok()?.kind != FileKind::Directory {
        return None;
    }
    let dir = parent.open_dir(name).ok()?;
    let has_file = |dir: &Dir, name: &[u8]| {
        dir.try_stat(name).ok().flatten().is_some_and(|stat| stat.kind == FileKind::File)
    };
    if has_file(&dir, b"CACHEDIR.TAG")
        && dir
            .read(b"CACHEDIR.TAG", MAX_TAG_BYTES)
            .is_ok_and(|tag| tag.starts_with(CACHE_SIGNATURE))
    {
        return Some("CACHEDIR.TAG");
    }
    if has_file(&dir, b"pyvenv.cfg") {
        return Some("pyvenv.cfg");
    }
    match name {
        b"node_modules" if has_file(&dir, b".package-lock.json") => Some(".package-lock.json"),
        b"node_modules" if has_file(parent, b"package.json") => Some(PACKAGE_BESIDE),
        b"__pycache__" if holds_bytecode_alone(&dir) => Some("compiled Python"),
        _ => None,
    }
}

/// Whether everything in a directory is called as a compiler of Python calls its output.
fn holds_bytecode_alone(dir: &Dir) -> bool {
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
    dir.names().is_ok_and(|names| {
        names.iter().all(|listed| is_bytecode(&listed.name) && is_file(&listed.name))
    })
}
