//! Paths and names as text: for JSON, where they must come back byte for byte, and for terminals,
//! where they must not move the cursor.
//!
//! Names are bytes. In JSON, a byte that is not part of valid UTF-8 becomes `\xNN`, and a literal
//! backslash that could be mistaken for such an escape becomes `\x5c`; nearly every real path is
//! therefore written as it is. [`decode`] undoes exactly that.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Encodes bytes as text that [`decode`] turns back into the same bytes.
pub fn encode(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !has_escape(bytes)
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    let mut rest = bytes;
    for chunk in bytes.utf8_chunks() {
        for (index, c) in chunk.valid().char_indices() {
            if c == '\\' && escape_at(&rest[index..]).is_some() {
                out.push_str("\\x5c");
            } else {
                out.push(c);
            }
        }
        rest = &rest[chunk.valid().len()..];
        for byte in chunk.invalid() {
            push_hex(&mut out, *byte);
        }
        rest = &rest[chunk.invalid().len()..];
    }
    Cow::Owned(out)
}

/// Turns text made by [`encode`] back into bytes. A backslash that starts no escape is itself.
pub fn decode(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut out = Vec::with_capacity(rest.len());
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(byte) = escape_at(rest) {
            out.push(byte);
            rest = &rest[4..];
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

fn has_escape(bytes: &[u8]) -> bool {
    // Nearly no path has a backslash.
    bytes.contains(&b'\\') && (0..bytes.len()).any(|at| escape_at(&bytes[at..]).is_some())
}

/// The byte that `\xNN` at the start of `bytes` stands for.
fn escape_at(bytes: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = bytes else { return None };
    let digit = |b: u8| char::from(b).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

fn push_hex(out: &mut String, byte: u8) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\x{byte:02x}");
}

/// Whether a character does something to a terminal: control characters, and the marks that reorder
/// text.
pub fn moves_text(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A path made safe for a terminal: control characters and invalid bytes are escaped.
#[derive(Clone, Copy)]
pub struct Shown<'a>(&'a [u8]);

impl<'a> Shown<'a> {
    /// Shows a path.
    pub fn path(path: &'a Path) -> Self {
        Self(path.as_os_str().as_bytes())
    }

    /// Shows a name or any other bytes.
    pub fn bytes(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if moves_text(c) {
                    write!(f, "{}", c.escape_default())?;
                } else {
                    f.write_char(c)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Bytes as a path.
pub fn to_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Serde for a [`PathBuf`] in the text form of this module.
pub mod serde_path {
    use super::*;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the path as text.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(path.as_os_str().as_bytes()))
    }

    /// Reads a path back.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Ok(PathBuf::from(std::ffi::OsString::from_vec(decode(&text))))
    }
}

/// Serde for a path that may be missing, in the text form of this module.
pub mod serde_optional_path {
    use super::*;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Item(#[serde(with = "serde_path")] PathBuf);

    /// Writes the path as text, if there is one.
    pub fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        path.clone().map(Item).serialize(serializer)
    }

    /// Reads a path back, if there is one.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Item>::deserialize(deserializer)?.map(|item| item.0))
    }
}

/// Serde for a list of paths in the text form of this module.
pub mod serde_paths {
    use super::*;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Item(#[serde(with = "serde_path")] PathBuf);

    /// Writes the paths as a list of text.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| encode(path.as_os_str().as_bytes())))
    }

    /// Reads a list of paths back.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<Item>::deserialize(deserializer)?.into_iter().map(|item| item.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_names_are_written_as_they_are() {
        for name in ["a b", "ünï", "back\\slash", "x\\y41", "tab\t"] {
            assert_eq!(encode(name.as_bytes()), name);
        }
    }

    #[test]
    fn a_name_that_looks_like_an_escape_is_not_taken_for_one() {
        assert_eq!(encode(b"a\\x41"), "a\\x5cx41");
        assert_eq!(decode("a\\x5cx41"), b"a\\x41");
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        let shown = Shown::bytes(b"a\x1b[2Jb\n\xff\xe2\x80\xaetxt").to_string();
        assert_eq!(shown, "a\\u{1b}[2Jb\\n\\xff\\u{202e}txt");
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes in proptest::collection::vec(
            prop_oneof![any::<u8>(), Just(b'\\'), Just(b'x'), Just(b'4')], 0..40)) {
            prop_assert_eq!(decode(&encode(&bytes)), bytes);
        }
    }
}
