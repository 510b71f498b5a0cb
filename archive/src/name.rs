//! Names of archives: `SESSION/NUMBER-full.tar.zst.age`, `SESSION/NUMBER-delta-PARENT.tar.zst.age`,
//! `SESSION/NUMBER-delta-PARENT-of-SESSION.tar.zst.age` where the parent is a snapshot of another
//! session, and the same without `.age` where nothing is encrypted.
//!
//! A name tells whatever a push or a cleanup has to know. Names come from remotes: each is checked.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use nono_engine::layout;

/// Longest id of a session in a name, in bytes.
const MAX_SESSION_BYTES: usize = 200;
const PLAIN: &str = ".tar.zst";
const AGE: &str = ".age";
/// Stands between the number of a parent and its session, where that is another one.
const OF: &str = "-of-";

/// A snapshot of any machine: `SESSION/NUMBER`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArchiveId {
    session: String,
    number: u64,
}

impl ArchiveId {
    /// The snapshot `number` of a session.
    ///
    /// # Errors
    /// [`NameError`] when the id of the session cannot be a name.
    pub fn new(session: &str, number: u64) -> Result<Self, NameError> {
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_name = !session.is_empty()
            && session.len() <= MAX_SESSION_BYTES
            && !session.starts_with(['.', '-'])
            && session.bytes().all(is_plain)
            && layout::may_be_session(session.as_bytes())
            && session != layout::LATEST;
        if !is_name || number > u64::from(u32::MAX) {
            return Err(NameError { name: format!("{session}/{number}") });
        }
        Ok(Self { session: session.to_owned(), number })
    }

    /// The ids of all snapshots that a session can have.
    pub(crate) fn all_of(session: &str) -> RangeInclusive<Self> {
        let id = |number| Self { session: session.to_owned(), number };
        id(0)..=id(u64::MAX)
    }

    /// The id of the session.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The number of the snapshot.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Display for ArchiveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.session, self.number)
    }
}

impl FromStr for ArchiveId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (session, number) = text.rsplit_once('/').ok_or_else(|| NameError::of(text))?;
        let number = plain_number(number).ok_or_else(|| NameError::of(text))?;
        Self::new(session, number)
    }
}

impl Serialize for ArchiveId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ArchiveId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Whether an archive stands alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArchiveKind {
    /// It holds everything.
    Full,
    /// It holds the difference to another snapshot.
    Delta {
        /// The other snapshot: an earlier one of its session, or one of another session.
        parent: ArchiveId,
    },
}

impl ArchiveKind {
    /// The snapshot to which a delta is the difference.
    pub fn parent(&self) -> Option<&ArchiveId> {
        match self {
            Self::Full => None,
            Self::Delta { parent } => Some(parent),
        }
    }
}

/// The name of an archive, with `/` between the session and the rest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArchiveName {
    /// The snapshot in it.
    pub id: ArchiveId,
    /// Full or delta.
    pub kind: ArchiveKind,
    /// Whether it is encrypted.
    pub is_encrypted: bool,
}

impl ArchiveName {
    /// The part behind the `/`: `3-delta-2.tar.zst.age`.
    pub fn file_name(&self) -> String {
        let number = self.id.number;
        let kind = match &self.kind {
            ArchiveKind::Full => "full".to_owned(),
            ArchiveKind::Delta { parent } if parent.session == self.id.session => {
                format!("delta-{}", parent.number)
            }
            ArchiveKind::Delta { parent } => {
                format!("delta-{}{OF}{}", parent.number, parent.session)
            }
        };
        let end = if self.is_encrypted { AGE } else { "" };
        format!("{number}-{kind}{PLAIN}{end}")
    }
}

impl fmt::Display for ArchiveName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.id.session, self.file_name())
    }
}

impl FromStr for ArchiveName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let parse = || {
            let (session, file) = text.rsplit_once('/')?;
            let (file, is_encrypted) = match file.strip_suffix(AGE) {
                Some(file) => (file, true),
                None => (file, false),
            };
            let (number, kind) = file.strip_suffix(PLAIN)?.split_once('-')?;
            let id = ArchiveId::new(session, plain_number(number)?).ok()?;
            let kind = match kind.strip_prefix("delta-") {
                None if kind == "full" => ArchiveKind::Full,
                None => return None,
                Some(parent) => ArchiveKind::Delta { parent: parent_of(&id, parent)? },
            };
            Some(Self { id, kind, is_encrypted })
        };
        parse().ok_or_else(|| NameError::of(text))
    }
}

/// The snapshot on which the archive of `id` depends, by the end of its name.
fn parent_of(id: &ArchiveId, text: &str) -> Option<ArchiveId> {
    match text.split_once(OF) {
        None => {
            let number = plain_number(text).filter(|number| *number < id.number)?;
            Some(ArchiveId { session: id.session.clone(), number })
        }
        Some((number, session)) if session != id.session => {
            ArchiveId::new(session, plain_number(number)?).ok()
        }
        Some(_) => None,
    }
}

/// A number in its one form.
fn plain_number(text: &str) -> Option<u64> {
    let number = u64::from(text.parse::<u32>().ok()?);
    (number.to_string() == text).then_some(number)
}

/// A text is not the name of an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not the name of an archive of a snapshot")]
pub struct NameError {
    /// The text, cut where it is long.
    pub name: String,
}

impl NameError {
    fn of(text: &str) -> Self {
        Self { name: text.chars().take(MAX_SESSION_BYTES).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ArchiveName {
        text.parse().unwrap()
    }

    #[test]
    fn names_come_back() {
        for text in [
            "20260214-143022-12345/0-full.tar.zst.age",
            "20260214-143022-12345/12-delta-3.tar.zst",
            "my.session_1/1-delta-0.tar.zst.age",
            "20260215-090000-7/0-delta-3-of-20260214-143022-12345.tar.zst.age",
            "a/0-delta-3-of-b.tar.zst.tar.zst",
            "a/0-delta-3-of-b-of-c.age.tar.zst",
        ] {
            assert_eq!(name(text).to_string(), text);
        }
        let id: ArchiveId = "s/7".parse().unwrap();
        assert_eq!((id.session(), id.number(), id.to_string()), ("s", 7, "s/7".to_owned()));
    }

    #[test]
    fn a_hostile_name_is_no_name() {
        for text in [
            "",
            "/",
            "0-full.tar.zst",
            "s/full.tar.zst",
            "s/00-full.tar.zst",
            "s/+1-full.tar.zst",
            "../0-full.tar.zst",
            "s/../0-full.tar.zst",
            "s/t/0-full.tar.zst",
            "/s/0-full.tar.zst",
            "s/1-delta-1.tar.zst",
            "s/1-delta-2.tar.zst",
            "s/1-delta-.tar.zst",
            "s/1-delta-0-of-s.tar.zst",
            "s/1-delta-0-of-.tar.zst",
            "s/1-delta-0-of-..tar.zst",
            "s/1-delta-00-of-t.tar.zst",
            "s/1-delta--of-t.tar.zst",
            "s/1-delta-0-of-t/u.tar.zst",
            "s/1-full.tar",
            "s\n/1-full.tar.zst",
            ".s/1-full.tar.zst",
            "s/1-FULL.tar.zst",
            "s/1-full.tar.zst.age.age",
            "s/99999999999-full.tar.zst",
            "objects/0-full.tar.zst",
            "é/0-full.tar.zst",
        ] {
            assert!(text.parse::<ArchiveName>().is_err(), "{text:?}");
        }
    }
}
