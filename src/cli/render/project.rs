//! Projects by the names that people know them by.

use std::path::{Path, PathBuf};

use crate::path_text::Shown;

/// The tracked paths in one line, safe for a terminal; `~` stands for the home directory, which is
/// given without symlinks.
pub fn project_name(tracked_paths: &[PathBuf], home: Option<&Path>) -> String {
    let shown = |path: &PathBuf| match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", Shown::path(rest)),
        None => Shown::path(path).to_string(),
    };
    tracked_paths.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_directory_is_a_tilde() {
        let home = Some(Path::new("/home/me"));
        let name = |paths: &[&str]| {
            project_name(&paths.iter().map(PathBuf::from).collect::<Vec<_>>(), home)
        };
        assert_eq!(name(&["/home/me/dev/sprockets"]), "~/dev/sprockets");
        assert_eq!(name(&["/home/me", "/home/meek/\u{1b}"]), "~, /home/meek/\\u{1b}");
        assert_eq!(project_name(&["/home/me/x".into()], None), "/home/me/x");
    }
}
