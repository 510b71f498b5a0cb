//! Which directory an agent session records.

use std::path::{Path, PathBuf};

use nono_engine::sys::{self, Dir};

/// The directory that is recorded for an agent that works in `cwd`: the top of its git work tree,
/// else `cwd` itself. Never `/`, the home directory, one above it, or a directory that the system
/// makes: `None` where nothing else is left.
pub fn project_of(cwd: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let cwd = sys::real_path(cwd).ok()?;
    if is_of_system(&cwd) {
        return None;
    }
    let home = home.and_then(|home| sys::real_path(home).ok());
    let is_too_much = |path: &Path| {
        path.parent().is_none() || home.as_ref().is_some_and(|home| home.starts_with(path))
    };
    let is_work_tree = |path: &&Path| {
        Dir::open(path).and_then(|dir| dir.try_stat(b".git")).is_ok_and(|found| found.is_some())
    };
    let top = cwd.ancestors().take_while(|path| !is_too_much(path)).find(is_work_tree);
    let chosen = top.unwrap_or(&cwd);
    (!is_too_much(chosen)).then(|| chosen.to_owned())
}

/// Whether the system makes what is in a directory. The memory that programs share is theirs.
pub fn is_of_system(path: &Path) -> bool {
    let shared = Path::new("/dev/shm");
    let is_shared = path.starts_with(shared) && path != shared;
    let mut of_system = ["/dev", "/proc", "/sys"].into_iter();
    !is_shared && of_system.any(|directory| path.starts_with(directory))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests plant what they look at")]
mod tests {
    use super::*;

    #[test]
    fn the_top_of_the_work_tree_is_recorded_and_never_a_home_directory() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap().join("home");
        let deep = home.join("shop/src/cart");
        std::fs::create_dir_all(&deep).unwrap();
        let project = |cwd: &Path| project_of(cwd, Some(&home));
        assert_eq!(project(&deep), Some(deep.clone()));
        // Files that are kept in the home directory make no project of it.
        std::fs::create_dir(home.join(".git")).unwrap();
        assert_eq!(project(&deep), Some(deep.clone()));
        std::fs::create_dir(home.join("shop/.git")).unwrap();
        assert_eq!(project(&deep), Some(home.join("shop")));
        for too_much in [&*home, Path::new("/"), home.parent().unwrap()] {
            assert_eq!(project(too_much), None, "{too_much:?}");
        }
        let link = home.join("link");
        std::os::unix::fs::symlink("/proc/self", &link).unwrap();
        for of_system in ["/proc", "/proc/self", "/proc/sys/kernel", "/sys", "/dev", "/dev/shm"] {
            assert_eq!(project(Path::new(of_system)), None, "{of_system}");
        }
        assert_eq!(project(&link), None);
        assert!(is_of_system(Path::new("/sys/x")) && is_of_system(Path::new("/dev/pts")));
        assert!(!is_of_system(Path::new("/system")) && !is_of_system(Path::new("/dev/shm/x")));
    }
}
