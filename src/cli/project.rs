//! Projects as a person names them.

use std::path::{Path, PathBuf};

use super::args::home_dir;
use crate::path_text::Shown;

/// So many tracked paths of one session are named.
const NAMED: usize = 3;

/// The project of a session: its tracked paths, with `~` for the home directory, safe for a
/// terminal.
pub(super) fn name_of(tracked: &[PathBuf]) -> String {
    let home = home_dir().ok();
    let mut names: Vec<_> =
        tracked.iter().take(NAMED).map(|path| short(path, home.as_deref())).collect();
    if let more @ 1.. = tracked.len().saturating_sub(NAMED) {
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
            name_of(&paths[..count])
        };
        assert_eq!(name(1), "/a");
        assert_eq!(name(2), "/a and /b");
        assert_eq!(name(5), "/a, /b, /c and 2 more");
    }
}
