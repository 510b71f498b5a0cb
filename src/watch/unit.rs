//! The systemd unit that begins a watcher with the session of its user.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nono_engine::object::ContentHash;

/// Digits of a hash in the name of a unit.
const NAME_DIGITS: usize = 8;

/// The name of the unit for a tracked path: its last name, for people, and a hash of all of it.
pub fn unit_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().take(40).map(plain).collect();
    let hash = ContentHash::of(path.as_os_str().as_bytes()).to_string();
    format!("nono-watch-{name}-{}.service", &hash[..NAME_DIGITS])
}

/// The unit. `None`: a path is no text, or has a line break, which a unit cannot say.
pub fn unit_text(program: &Path, root: &Path, paths: &[&Path]) -> Option<String> {
    let mut command = Vec::new();
    let fixed: [&OsStr; 3] = ["--root".as_ref(), root.as_os_str(), "watch".as_ref()];
    let words = [program.as_os_str()].into_iter().chain(fixed);
    for word in words.chain(paths.iter().map(|path| path.as_os_str())) {
        command.push(quoted(word.to_str()?)?);
    }
    let command = command.join(" ");
    Some(format!(
        "[Unit]\n\
         Description=nono: records what changes in a project\n\
         \n\
         [Service]\n\
         ExecStart={command}\n\
         Restart=on-failure\n\
         RestartSec=10\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n"
    ))
}

/// A word of a command as systemd reads it: `%` and `$` are doubled, because they mean something.
fn quoted(word: &str) -> Option<String> {
    let mut text = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '%' | '$' => text.extend([c, c]),
            c if c.is_control() => return None,
            c => text.push(c),
        }
    }
    text.push('"');
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_signs_of_systemd_is_one_word() {
        let path = Path::new(r#"/home/me/50% "of" $HOME\x"#);
        let text = unit_text(Path::new("/usr/bin/nono"), Path::new("/r"), &[path]).unwrap();
        let line = text.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
        let wanted = r#""/usr/bin/nono" "--root" "/r" "watch" "/home/me/50%% \"of\" $$HOME\\x""#;
        assert_eq!(line, format!("ExecStart={wanted}"));
        assert_eq!(unit_text(Path::new("/n"), Path::new("/r"), &[Path::new("/a\nb")]), None);
    }

    #[test]
    fn projects_of_one_name_have_different_units() {
        let (a, b) = (unit_name(Path::new("/a/shop")), unit_name(Path::new("/b/shop")));
        assert!(a != b && a.starts_with("nono-watch-shop-") && a.ends_with(".service"), "{a} {b}");
    }
}
