//! git's settings of this user: without them git does not start.
//!
//! `~/.gitconfig` and `~/.config/git` may include other files, and git ends at an existing file
//! that it cannot read. So those are granted too, if they plainly are settings of git. A file that
//! may be anything else is named, with the flag that grants it. Always true:
//!
//! - A symlink is not followed: it may lead to anything.
//! - A file is granted only if its own name says that it is git's. Otherwise a writer of an
//!   included file could have the next command read a secret file.
//! - Only files that lie beside `~/.gitconfig` or in `~/.config/git` include further ones: others
//!   may lie in a project that a command writes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nono_engine::sys::{self, Dir, FileKind};

/// Settings of this length are no settings.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of files that are looked at.
const MAX_FILES: usize = 32;

/// Files and directories with settings of git.
#[derive(Debug, Default)]
pub(super) struct GitSettings {
    /// The files that a command may read.
    pub(super) readable: Vec<PathBuf>,
    /// The included files that may be anything.
    pub(super) doubtful: Vec<PathBuf>,
}

/// Finds the settings below a home directory, which is given without symlinks.
pub(super) fn find(home: &Path) -> GitSettings {
    let directory = home.join(".config/git");
    let mut found = GitSettings::default();
    let places = [home.join(".gitconfig"), directory.clone()];
    found.readable.extend(places.into_iter().filter(|place| is_itself(place)));
    let mut open = vec![home.join(".gitconfig"), directory.join("config")];
    let mut seen: Vec<PathBuf> = Vec::new();
    while let Some(file) = open.pop() {
        if seen.contains(&file) || seen.len() == MAX_FILES {
            continue;
        }
        seen.push(file.clone());
        let is_trusted = file.starts_with(&directory) || file.parent() == Some(home);
        for included in included_by(&file) {
            let is_known = found.readable.iter().any(|place| included.starts_with(place))
                || found.doubtful.contains(&included);
            match judge(&included, home) {
                // git passes over what is not there.
                Judged::Elsewhere => continue,
                _ if is_known => {}
                Judged::Settings if is_trusted => found.readable.push(included.clone()),
                _ => {
                    found.doubtful.push(included);
                    continue;
                }
            }
            if is_trusted {
                open.push(included);
            }
        }
    }
    found
}

enum Judged {
    /// Not there, or where the grants for the system decide.
    Elsewhere,
    Settings,
    Doubtful,
}

fn judge(included: &Path, home: &Path) -> Judged {
    let name = included.file_name().unwrap_or_default();
    match sys::real_path(included) {
        Err(error) if error.is_gone() => return Judged::Elsewhere,
        _ if !included.starts_with(home) => return Judged::Elsewhere,
        Ok(real) if real == included => {}
        _ => return Judged::Doubtful,
    }
    let stat = included.parent().and_then(|dir| Dir::open(dir).ok()?.stat(name.as_bytes()).ok());
    let is_file = stat.is_some_and(|stat| stat.kind == FileKind::File);
    if is_file && is_named_for_git(included) { Judged::Settings } else { Judged::Doubtful }
}

/// `.gitconfig`, `.gitconfig-work`, `work.gitconfig`, `git/config`, `git/config.local`.
fn is_named_for_git(path: &Path) -> bool {
    let lower = |name: Option<&OsStr>| name.unwrap_or_default().to_ascii_lowercase();
    let (name, directory) =
        (lower(path.file_name()), lower(path.parent().and_then(Path::file_name)));
    let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
    let is_secret = ["credential", "secret", "token", "key"].iter().any(|word| name.contains(word));
    let is_settings =
        name.contains("gitconfig") || (directory == "git" && name.starts_with("config"));
    is_settings && !is_secret
}

/// Whether a place is there and no symlink leads to it or lies on the way.
fn is_itself(place: &Path) -> bool {
    sys::real_path(place).is_ok_and(|real| real == *place)
}

/// The includes of a file, under whatever condition, as git itself reads it.
fn included_by(file: &Path) -> Vec<PathBuf> {
    let (Some(parent), Some(name)) = (file.parent(), file.file_name()) else { return Vec::new() };
    if !is_itself(file) {
        return Vec::new();
    }
    let text = Dir::open(parent).and_then(|dir| dir.read(name.as_bytes(), MAX_BYTES));
    let text = text.unwrap_or_default().to_ascii_lowercase();
    // Mostly there is nothing to ask git for.
    if !text.windows(7).any(|window| window == b"include") {
        return Vec::new();
    }
    let asked = Command::new("git")
        .args(["config", "--no-includes", "--null", "--type=path", "--file"])
        .arg(file)
        .args(["--get-regexp", r"^include(if\..*)?\.path$"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let Ok(asked) = asked else { return Vec::new() };
    let values = asked.stdout.split(|byte| *byte == 0);
    let values = values.filter_map(|pair| {
        let end = pair.iter().position(|byte| *byte == b'\n')?;
        Some(OsStr::from_bytes(&pair[end + 1..]))
    });
    values.map(|value| sys::plain_absolute(Path::new(value), parent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_known_by_their_names_and_secrets_are_none() {
        for name in [
            "/h/.gitconfig-work",
            "/h/work/.gitconfig",
            "/h/dotfiles/me.gitconfig",
            "/h/dotfiles/git/config.local",
        ] {
            assert!(is_named_for_git(Path::new(name)), "{name}");
        }
        for name in [
            "/h/.aws/credentials",
            "/h/.ssh/config",
            "/h/.git-credentials",
            "/h/git/credentials",
            "/h/.gitconfig-token",
            "/h/.netrc",
            "/",
        ] {
            assert!(!is_named_for_git(Path::new(name)), "{name}");
        }
    }
}
