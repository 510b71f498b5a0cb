//! Projects by the names that people know them by.

use std::path::{Path, PathBuf};

use nono_engine::path_text::Shown;
use nono_engine::session::places_of_work;

/// Maximum number of tracked paths that are named for one session.
const NAMED: usize = 3;

/// The tracked paths in one line, safe for a terminal; `~` stands for the home directory, which is
/// given without symlinks.
pub fn project_name(tracked_paths: &[PathBuf], home: Option<&Path>) -> String {
    let named = places_of_work(tracked_paths);
    let mut names: Vec<_> = named.iter().take(NAMED).map(|path| short(path, home)).collect();
    if let more @ 1.. = named.len().saturating_sub(NAMED) {
        names.push(format!("{more} more"));
    }
    match names.split_last() {
        None => "nothing".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

fn short(path: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(inside) if inside.as_os_str().is_empty() => "~".to_owned(),
        Some(inside) => format!("~/{}", Shown::path(inside)),
        None => Shown::path(path).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_directory_is_a_tilde() {
        let home = Path::new("/home/me");
        assert_eq!(short(Path::new("/home/me/dev/q1"), Some(home)), "~/dev/q1");
        assert_eq!(short(Path::new("/home/me"), Some(home)), "~");
        assert_eq!(short(Path::new("/home/meg/x"), Some(home)), "/home/meg/x");
        assert_eq!(short(Path::new("/srv/a\x1b"), None), "/srv/a\\u{1b}");
    }

    #[test]
    fn several_paths_are_one_project() {
        let name = |count: usize| {
            let paths = ["/a", "/b", "/c", "/d", "/e"].map(PathBuf::from);
            project_name(&paths[..count], None)
        };
        assert_eq!(name(1), "/a");
        assert_eq!(name(2), "/a and /b");
        assert_eq!(name(5), "/a, /b, /c and 2 more");
        let linked = ["/r/.git/refs/heads/x", "/r/.git/worktrees/w", "/w"].map(PathBuf::from);
        assert_eq!(project_name(&linked, None), "/w");
        assert_eq!(project_name(&linked[..1], None), "/r/.git/refs/heads/x");
    }
}
