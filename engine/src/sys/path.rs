//! Whole paths: only where a person named them, before anything is captured.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;

use super::dir::Dir;
use super::error::{Error, IoContext, Result};
use super::fail_point::{self, Operation};
use super::file::TempFile;
use super::stat::{FileKind, Stat};

/// The current directory.
///
/// # Errors
/// When it was removed or cannot be reached.
pub fn current_dir() -> Result<PathBuf> {
    std::env::current_dir().at("find", Path::new("the current directory"))
}

/// The current directory or, if that was removed, the path that it had.
///
/// # Errors
/// When it cannot be reached.
pub fn current_or_former_dir() -> Result<PathBuf> {
    current_dir().or_else(|error| {
        // The kernel's mark of a directory without a name.
        const REMOVED: &[u8] = b" (deleted)";
        let link = std::fs::read_link("/proc/self/cwd").ok();
        let former =
            link.as_ref().and_then(|link| link.as_os_str().as_bytes().strip_suffix(REMOVED));
        match former {
            Some(former) if error.is_gone() => Ok(PathBuf::from(OsStr::from_bytes(former))),
            _ => Err(error),
        }
    })
}

/// The variable that names the directory of temporary files.
const TMPDIR: &str = "TMPDIR";

/// The directory of temporary files: that of the variable TMPDIR, unless it is empty, else `/tmp`.
pub fn temporary_dir() -> PathBuf {
    let named = std::env::var_os(TMPDIR).filter(|named| !named.is_empty());
    named.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
}

/// Opens the directory of temporary files, by its path without symlinks.
///
/// # Errors
/// When it is no directory, or may not be read. The error names the variable, if that is set.
pub fn open_temporary_dir() -> Result<Dir> {
    let path = temporary_dir();
    let opened = real_path(&path).and_then(|real| Dir::open(&real));
    opened.map_err(|error| {
        let is_named = std::env::var_os(TMPDIR).is_some_and(|named| !named.is_empty());
        let operation =
            if is_named { "use TMPDIR, which is" } else { "use the directory of temporary files" };
        Error { operation, path, source: error.source }
    })
}

/// The path with all symlinks resolved. It must exist.
///
/// # Errors
/// When a component is missing or cannot be reached.
pub fn real_path(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).at("resolve", path)
}

/// The path with symlinks resolved as far as it exists.
pub fn real_or_future_path(path: &Path) -> PathBuf {
    match (real_path(path), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(_), Some(parent), Some(name)) => real_or_future_path(parent).join(name),
        _ => path.to_owned(),
    }
}

/// The kind of what is at a path whose last name is not followed; `None` where nothing is.
pub fn kind_of(path: &Path) -> Result<Option<FileKind>> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Some(FileKind::Directory));
    };
    match Dir::open(above) {
        Ok(dir) => Ok(dir.try_stat(name.as_encoded_bytes())?.map(|stat| stat.kind)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The attributes of what is at a path whose last name is not followed; `None` where nothing is.
pub fn stat_of(path: &Path) -> Result<Option<Stat>> {
    match rustix::fs::lstat(path) {
        Ok(raw) => Ok(Some(Stat::from_raw(&raw))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error).at("look at", path),
    }
}

/// The places of the symlinks that the absolute path leads through, as far as it exists: a writer
/// of one of these directories decides the meaning of the path.
pub fn links_on_the_way(path: &Path) -> Vec<PathBuf> {
    /// As the kernel does.
    const MAX_LINKS: usize = 40;
    let mut links = Vec::new();
    let mut real = PathBuf::from("/");
    let own = |component: Component<'_>| component.as_os_str().to_owned();
    let mut rest: Vec<OsString> = path.components().rev().map(own).collect();
    while let Some(name) = rest.pop() {
        match name.as_encoded_bytes() {
            b"/" => real = PathBuf::from("/"),
            b"." => {}
            b".." => drop(real.pop()),
            _ => {
                real.push(name);
                let Ok(target) = std::fs::read_link(&real) else { continue };
                if links.len() == MAX_LINKS {
                    break;
                }
                links.push(real.clone());
                real.pop();
                rest.extend(target.components().rev().map(own));
            }
        }
    }
    links
}

/// Whether a path leads to a directory, also one that may not be opened.
pub fn leads_to_dir(path: &Path) -> bool {
    rustix::fs::stat(path)
        .is_ok_and(|stat| Stat::from_raw(&stat).kind == super::FileKind::Directory)
}

/// Device and inode of what a path leads to: the same for every path to it, through mounts as well.
/// `None` when it cannot be looked at.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    let stat = Stat::from_raw(&rustix::fs::stat(path).ok()?);
    Some((stat.dev, stat.ino))
}

/// Where the file system of an absolute path is mounted. A path that is not there yet counts as the
/// directory above it. With a bind mount inside its own file system, the place of either.
pub fn mount_point(path: &Path) -> PathBuf {
    let device = |path: &Path| Some(Stat::from_raw(&rustix::fs::stat(path).ok()?).dev);
    let there = path.ancestors().find_map(|above| Some((above, device(above)?)));
    let Some((there, own)) = there else { return path.to_owned() };
    // Directories above a symlink may be of another file system.
    let there = real_path(there).unwrap_or_else(|_| there.to_owned());
    let same = there.ancestors().take_while(|above| device(above) == Some(own));
    same.last().unwrap_or(&there).to_owned()
}

/// Whether a path leads to a file that this user may execute, as far as its mode tells.
pub fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
        && std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

/// The file that a shell would run for the name of a program: the name itself if it has a `/`, else
/// the first executable file of that name in `search`, which has the form of `PATH`.
pub fn find_program(name: &OsStr, search: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    std::env::split_paths(search).map(|dir| dir.join(name)).find(|path| is_executable(path))
}

/// Why there is nothing to run for the name of a program without a `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoProgram {
    /// A file of that name is there, and this user may not execute it.
    NotExecutable(PathBuf),
    /// No file of that name is there.
    Missing {
        /// The first directory that this user may not search.
        closed: Option<PathBuf>,
    },
}

/// Says why [`find_program`] finds nothing. `None`: it finds a program, or the name is a path.
///
/// The C library says "permission denied" for a missing program as soon as one directory of `PATH`
/// may not be searched. Such a directory is no reason: the file may be nowhere.
pub fn why_no_program(name: &OsStr, search: &OsStr) -> Option<NoProgram> {
    if find_program(name, search).is_some() {
        return None;
    }
    let mut closed = None;
    for dir in std::env::split_paths(search) {
        let path = dir.join(name);
        match rustix::fs::stat(&path) {
            Ok(stat) if Stat::from_raw(&stat).kind == super::FileKind::File => {
                return Some(NoProgram::NotExecutable(path));
            }
            Err(Errno::ACCESS) => closed = closed.or(Some(dir)),
            _ => {}
        }
    }
    Some(NoProgram::Missing { closed })
}

/// Makes a path absolute and resolves the symlinks of its *parent*, but not of its last component:
/// what it names itself may be a symlink, and is then seen as one.
///
/// # Errors
/// When the parent is missing or cannot be reached.
pub fn canonical_parent(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).at("make absolute", path)?;
    match (absolute.parent(), absolute.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) => Ok(real_path(parent)?.join(name)),
        // `..` at the end, or the root: only the file system can say what that is.
        _ => real_path(&absolute),
    }
}

/// The absolute path in its plain form, without a look at the disk: `.` and doubled slashes go,
/// `..` takes its parent away.
pub fn plain_absolute(path: &Path, current_dir: &Path) -> PathBuf {
    let mut out: Vec<OsString> = Vec::new();
    for component in current_dir.join(path).components() {
        match component {
            Component::Normal(name) => out.push(name.to_owned()),
            Component::ParentDir => drop(out.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let mut plain = PathBuf::from("/");
    plain.extend(out);
    plain
}

/// Makes a directory and its missing parents, readable by its owner only. One that exists stays as
/// it is.
///
/// # Errors
/// When a component cannot be made or is not a directory.
pub fn create_private_dir(path: &Path) -> Result<()> {
    create_dir(path, Mode::RWXU)
}

/// Makes a directory and its missing parents for all users to read, as far as the umask lets them.
/// One that exists stays as it is.
///
/// # Errors
/// When a component cannot be made or is not a directory.
pub fn create_public_dir(path: &Path) -> Result<()> {
    create_dir(path, Mode::RWXU | Mode::RWXG | Mode::RWXO)
}

fn create_dir(path: &Path, mode: Mode) -> Result<()> {
    match (make_dir(path, mode), path.parent()) {
        (Err(Errno::NOENT), Some(parent)) if parent != Path::new("") => {
            create_dir(parent, mode)?;
            // Once more, and no oftener: some file systems answer ENOENT for ever (/proc).
            make_dir(path, mode).at("make the directory", path)
        }
        (made, _) => made.at("make the directory", path),
    }
}

/// Makes a file for this user alone with these bytes, unless something has the name already. It
/// appears complete. Missing parents are made as by [`create_private_dir`].
///
/// # Errors
/// When the directory cannot be written.
pub fn create_private_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL).at("make the file", path);
    };
    create_private_dir(parent)?;
    let dir = Dir::open(parent)?;
    if dir.try_stat(name.as_bytes())?.is_some() {
        return Ok(());
    }
    let file = TempFile::new(&dir, 0o600)?;
    std::io::Write::write_all(&mut file.file(), bytes).at("write", path)?;
    file.persist(&dir, name.as_bytes())?;
    Ok(())
}

fn make_dir(path: &Path, mode: Mode) -> rustix::io::Result<()> {
    match fail_point::around(Operation::MakeDirAt(path), || rustix::fs::mkdir(path, mode)) {
        Err(Errno::EXIST) => {
            let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode);
            if kind.is_dir() { Ok(()) } else { Err(Errno::NOTDIR) }
        }
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_link_that_a_path_leads_through_is_found_where_it_lies() {
        let temp = tempfile::tempdir().unwrap();
        let base = real_path(temp.path()).unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        symlink("a/b", base.join("one")).unwrap();
        symlink("../one/../b", base.join("a/two")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        let links = |path: &str| links_on_the_way(&base.join(path));
        assert_eq!(links("a/b/c"), Vec::<PathBuf>::new());
        assert_eq!(links("one/missing/x"), [base.join("one")]);
        assert_eq!(links("a/two/x"), [base.join("a/two"), base.join("one")]);
        assert_eq!(links("loop/x").len(), 40);
    }
}
