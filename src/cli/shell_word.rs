//! Paths as words of a command that is offered to a person.

use std::path::Path;

use crate::path_text::moves_text;

/// The path as one word for a shell. `None` for one that no terminal can be shown as it is.
pub(super) fn shell_word(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    if text.chars().any(|c| c.is_control() || moves_text(c)) {
        return None;
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-+,:=@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Some(text.to_owned());
    }
    Some(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_shell_reads_the_path_back_or_there_is_no_word() {
        let word = |bytes: &[u8]| shell_word(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(word(b"/a/b-c.txt").as_deref(), Some("/a/b-c.txt"));
        assert_eq!(word(b"/a b").as_deref(), Some("'/a b'"));
        assert_eq!(word(b"/it's $HOME").as_deref(), Some(r"'/it'\''s $HOME'"));
        for hidden in [&b"/a\nb"[..], b"/a\x1b[2J", b"/\xff", "/a\u{202e}b".as_bytes()] {
            assert_eq!(word(hidden), None);
        }
    }
}
