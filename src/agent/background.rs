//! Whether a shell command leaves processes behind that go on after its call.
//!
//! A client says so for its own kind of background commands alone. What a shell puts into the
//! background by itself shows only in the text of the command, so this is a reading of the text and
//! no proof. A wrong answer changes the kind of a step, never what the step holds.

/// Programs that start others and leave.
const STARTERS: [&str; 7] =
    ["nohup", "setsid", "disown", "coproc", "tmux", "screen", "systemd-run"];
/// A longer command is not read to its end.
const MAX_BYTES: usize = 1 << 16;

/// Whether the command has a `&` of its own, outside of quotes, here-documents and redirections, or
/// begins a command with one of the starters.
pub(super) fn is_left_by(command: &str) -> bool {
    let bytes = &command.as_bytes()[..command.len().min(MAX_BYTES)];
    let mut at = 0;
    // The word at hand, and whether it is the first one of a command.
    let (mut word, mut is_first) = (Vec::new(), true);
    while at < bytes.len() {
        let (byte, next) = (bytes[at], bytes.get(at + 1).copied());
        match byte {
            b'\\' => at += 1,
            b'\'' => at = past(bytes, at, b'\''),
            b'"' => at = past(bytes, at, b'"'),
            b'#' if word.is_empty() => at = line_end(bytes, at).saturating_sub(1),
            b'<' if next == Some(b'<') && bytes.get(at + 2) != Some(&b'<') => {
                at = here_document_end(bytes, at + 2);
            }
            b'<' | b'>' if next == Some(b'&') => at += 1,
            b'&' if matches!(next, Some(b'&' | b'>')) => {
                at += 1;
                (word, is_first) = (Vec::new(), true);
            }
            b'&' => return true,
            b';' | b'|' | b'\n' | b'(' | b'{' => {
                if is_first && is_starter(&word) {
                    return true;
                }
                (word, is_first) = (Vec::new(), true);
            }
            b' ' | b'\t' => {
                if is_first && is_starter(&word) {
                    return true;
                }
                is_first &= word.is_empty() || word.contains(&b'=');
                word.clear();
            }
            other => word.push(other),
        }
        at += 1;
    }
    is_first && is_starter(&word)
}

fn is_starter(word: &[u8]) -> bool {
    STARTERS.iter().any(|starter| starter.as_bytes() == word)
}

/// Where the quote that begins at `at` ends.
fn past(bytes: &[u8], at: usize, quote: u8) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != quote {
        end += if bytes[end] == b'\\' && quote == b'"' { 2 } else { 1 };
    }
    end
}

/// Where the line ends that `at` is in; `at` is at most the length.
fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |found| at + found)
}

/// The last byte of a here-document, whose word begins at `at`. The rest of the first line counts
/// as part of the document.
fn here_document_end(bytes: &[u8], at: usize) -> usize {
    let at = at.min(bytes.len());
    let first = &bytes[at..line_end(bytes, at)];
    let is_of_word = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let word: Vec<u8> =
        first.iter().skip_while(|byte| !is_of_word(byte)).take_while(is_of_word).copied().collect();
    let mut end = at;
    for line in bytes[at..].split_inclusive(|byte| *byte == b'\n') {
        let is_last = end != at && line.trim_ascii() == word;
        end += line.len();
        if is_last {
            break;
        }
    }
    // The newline ends the command as well.
    end.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_command_with_an_ampersand_of_its_own_leaves_processes() {
        for command in [
            "make watch &",
            "(sleep 1; echo x > y) >/dev/null 2>&1 &",
            "a & b",
            "cd x && nohup ./server > log 2>&1",
            "setsid sh -c 'sleep 1'",
            "PORT=1 nohup ./server",
            "cat <<EOF > page\nAT&T & more\nEOF\n./server &",
            "tmux new -d ./server",
            "true\nserver&",
        ] {
            assert!(is_left_by(command), "{command:?}");
        }
    }

    #[test]
    fn redirections_quotes_and_documents_leave_none() {
        for command in [
            "make && make test",
            "make > log 2>&1",
            "make &> log",
            "make >& log",
            "echo 'a & b' \"c & d\" e\\&f",
            "cat <<EOF > page\nAT&T & more\nEOF\nmake",
            "cat <<-'END' > page\n  a & b\n  END\n",
            "make # and & more",
            "grep nohup README.md",
            "cat <<<'a & b'",
            "",
        ] {
            assert!(!is_left_by(command), "{command:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer(command in "[a&<>\\\\'\"# \n;EOF(é-]{0,60}") {
            let _ = is_left_by(&command);
        }
    }
}
