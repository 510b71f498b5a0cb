//! Names in patches, quoted as git does it, which `patch` reads too.

use std::io::Write;

/// The whole name, `prefix` included, as it stands in a `---` or `+++` line: quoted like a C string
/// when it has a byte that is not printable ASCII, a quote or a backslash.
pub(super) fn quoted(prefix: &str, name: &[u8]) -> Vec<u8> {
    if name.iter().copied().any(needs_escape) {
        in_quotes(prefix, name)
    } else {
        [prefix.as_bytes(), name].concat()
    }
}

/// As [`quoted`], but a space is a reason for quotes too: in a `diff --git` line, where `patch`
/// ends a name at a space. git reads both.
pub(super) fn quoted_word(prefix: &str, name: &[u8]) -> Vec<u8> {
    if name.contains(&b' ') { in_quotes(prefix, name) } else { quoted(prefix, name) }
}

/// A name in a list of names, as `git diff --name-only` prints it.
pub fn quoted_name(name: &[u8]) -> Vec<u8> {
    quoted("", name)
}

fn needs_escape(byte: u8) -> bool {
    matches!(byte, 0..0x20 | b'"' | b'\\' | 0x7f..)
}

fn in_quotes(prefix: &str, name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(prefix.len() + name.len() + 8);
    out.push(b'"');
    out.extend_from_slice(prefix.as_bytes());
    for &byte in name {
        let letter = match byte {
            0x07 => b'a',
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0b => b'v',
            0x0c => b'f',
            b'\r' => b'r',
            b'"' | b'\\' => byte,
            byte if needs_escape(byte) => {
                // Writing to a Vec cannot fail.
                let _ = write!(out, "\\{byte:03o}");
                continue;
            }
            byte => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
    out.push(b'"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_not_quoted() {
        assert_eq!(quoted("a/", b"src/a b+~$'.rs"), b"a/src/a b+~$'.rs");
        assert_eq!(quoted_word("b/", b"a b"), b"\"b/a b\"");
    }

    #[test]
    fn special_bytes_are_quoted_as_git_does_it() {
        assert_eq!(quoted("a/", "é".as_bytes()), br#""a/\303\251""#);
        assert_eq!(quoted("a/", b"\t\n\"\\\r\x01\x7f\xff"), br#""a/\t\n\"\\\r\001\177\377""#);
    }
}
