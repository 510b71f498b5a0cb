//! HEAD, loose refs and `packed-refs` as bytes.

use serde::{Deserialize, Serialize};

/// The name of a git object: 40 or 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Hash)]
#[serde(try_from = "String")]
pub struct Oid(Box<str>);

impl TryFrom<String> for Oid {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::from_hex(text.as_bytes()).ok_or("not the name of a git object")
    }
}

impl Oid {
    /// Decodes a whole name.
    pub fn from_hex(bytes: &[u8]) -> Option<Self> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_name = matches!(bytes.len(), 40 | 64) && bytes.iter().all(is_digit);
        let text = std::str::from_utf8(bytes).ok().filter(|_| is_name)?;
        Some(Self(text.into()))
    }

    /// All digits.
    pub fn hex(&self) -> &str {
        &self.0
    }

    /// As git shortens it.
    pub fn short(&self) -> &str {
        &self.0[..7]
    }
}

/// The target of HEAD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Head {
    /// The full name of a ref, `refs/heads/main`; which may not be there yet.
    Ref(String),
    /// A commit.
    Detached(Oid),
}

/// Longest name of a ref that is believed: a path has no more.
const MAX_NAME_BYTES: usize = 4096;

/// Whether git would take this for the full name of a ref. Stricter than git where it costs
/// nothing: the name becomes a path.
pub(super) fn is_ref_name(name: &[u8]) -> bool {
    let is_part =
        |part: &[u8]| !part.is_empty() && !part.starts_with(b".") && !part.ends_with(b".lock");
    let is_bad = |byte: &u8| byte.is_ascii_control() || b" ~^:?*[\\".contains(byte);
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(b"refs/")
        && !name.iter().any(is_bad)
        && !name.windows(2).any(|pair| pair == b"..")
        && name.split(|byte| *byte == b'/').all(is_part)
        && std::str::from_utf8(name).is_ok()
}

fn ref_name(name: &[u8]) -> Option<String> {
    if is_ref_name(name) { String::from_utf8(name.to_vec()).ok() } else { None }
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii_end()
}

/// Decodes the file `HEAD`, or that of another ref.
pub(super) fn head(bytes: &[u8]) -> Option<Head> {
    match bytes.strip_prefix(b"ref:") {
        Some(name) => ref_name(name.trim_ascii()).map(Head::Ref),
        None => Oid::from_hex(trimmed(bytes)).map(Head::Detached),
    }
}

/// Decodes the file of a ref; one that leads to another ref has no commit of its own.
pub(super) fn loose(bytes: &[u8]) -> Option<Oid> {
    Oid::from_hex(trimmed(bytes))
}

/// Decodes `packed-refs`; lines that mean nothing are passed over.
pub(super) fn packed(bytes: &[u8]) -> impl Iterator<Item = (String, Oid)> {
    bytes.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b' ')?;
        let (oid, name) = (Oid::from_hex(&line[..at])?, ref_name(trimmed(&line[at + 1..]))?);
        Some((name, oid))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn oid() -> Oid {
        Oid::from_hex(A.as_bytes()).unwrap()
    }

    #[test]
    fn what_git_writes_is_understood() {
        assert_eq!(head(b"ref: refs/heads/a/b\n"), Some(Head::Ref("refs/heads/a/b".into())));
        assert_eq!(head(format!("{A}\n").as_bytes()), Some(Head::Detached(oid())));
        assert_eq!(loose(b"ref: refs/remotes/origin/main\n"), None);
        let text = format!("# pack-refs with: peeled\n{A} refs/heads/x\n^{A}\n{A} refs/tags/v1\n");
        let found: Vec<_> = packed(text.as_bytes()).collect();
        assert_eq!(found, [("refs/heads/x".into(), oid()), ("refs/tags/v1".into(), oid())]);
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_no_ref() {
        for bad in [
            "refs/../config",
            "refs/heads/../../x",
            "refs//x",
            "/etc/passwd",
            "refs/heads/.x",
            "HEAD",
            "refs/heads/x.lock",
            "refs/heads/a b",
            "refs/heads/",
            "refs/heads/a\u{1b}",
        ] {
            assert!(!is_ref_name(bad.as_bytes()), "{bad}");
            assert_eq!(head(format!("ref: {bad}\n").as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_understood_or_passed_over(bytes: Vec<u8>) {
            head(&bytes);
            loose(&bytes);
            for (name, oid) in packed(&bytes) {
                prop_assert!(is_ref_name(name.as_bytes()));
                prop_assert_eq!(oid.short().len(), 7);
            }
        }
    }
}
