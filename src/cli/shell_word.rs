//! Words of a command that a person reads, and may type.

use std::path::Path;

use nono_engine::path_text::moves_text;

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

/// A command as a person types it, in one line, of words as manifests have them. Line breaks, and
/// what no terminal can be shown, are as `$'…'` has them.
pub(super) fn command_line(words: &[String]) -> String {
    let word = |word: &String| shell_word(Path::new(word)).unwrap_or_else(|| escaped(word));
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn escaped(word: &str) -> String {
    let mut escaped = String::from("$'");
    for c in word.chars() {
        match c {
            '\n' => escaped.push_str(r"\n"),
            '\t' => escaped.push_str(r"\t"),
            '\r' => escaped.push_str(r"\r"),
            '\\' | '\'' => escaped.extend(['\\', c]),
            c if moves_text(c) => escaped.push_str(&format!(r"\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped.push('\'');
    escaped
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
        let words = ["sh", "-c", "ls; id"].map(str::to_owned);
        assert_eq!(command_line(&words), "sh -c 'ls; id'");
        let words = ["sh", "-c", "echo 'a\\b'\nid\u{1b}[2J\u{202e}"].map(str::to_owned);
        let line = r"sh -c $'echo \'a\\b\'\nid\u001b[2J\u202e'";
        assert_eq!(command_line(&words), line);
    }
}
