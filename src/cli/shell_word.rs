//! Words of a command that a person reads, and may type.

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

/// A command as a person types it, of words as manifests have them. What no terminal can be shown
/// stays without quotes.
pub(super) fn command_line(words: &[String]) -> String {
    let word = |word: &String| shell_word(Path::new(word)).unwrap_or_else(|| word.clone());
    words.iter().map(word).collect::<Vec<_>>().join(" ")
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
        let words = ["sh", "-c", "ls; id", "\n"].map(str::to_owned);
        assert_eq!(command_line(&words), "sh -c 'ls; id' \n");
    }
}
