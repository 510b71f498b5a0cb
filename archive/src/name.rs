//! Names of archives: `SESSION/NUMBER-full.tar.zst.age`, `SESSION/NUMBER-delta-PARENT.tar.zst.age`,
//! and the same without `.age` where nothing is encrypted.
//!
//! A name tells whatever a push or a cleanup has to know. Names come from remotes: each is checked,
//! and a chain of names is followed with a limit.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::rules::MAX_CHAIN_DEPTH;
use nono_engine::layout;

/// Longest id of a session in a name, in bytes.
const MAX_SESSION_BYTES: usize = 200;
const PLAIN: &str = ".tar.zst";
const AGE: &str = ".age";

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArchiveKind {
    /// It holds everything.
    Full,
    /// It holds the difference to an earlier snapshot of its session.
    Delta {
        /// The number of that snapshot; always a lower one.
        parent: u64,
    },
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
        let kind = match self.kind {
            ArchiveKind::Full => "full".to_owned(),
            ArchiveKind::Delta { parent } => format!("delta-{parent}"),
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
            let number = plain_number(number)?;
            let kind = match kind.strip_prefix("delta-") {
                None if kind == "full" => ArchiveKind::Full,
                None => return None,
                Some(parent) => {
                    ArchiveKind::Delta { parent: plain_number(parent).filter(|it| *it < number)? }
                }
            };
            Some(Self { id: ArchiveId::new(session, number).ok()?, kind, is_encrypted })
        };
        parse().ok_or_else(|| NameError::of(text))
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

/// Why a snapshot cannot be had from the archives that there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// There is no archive of it.
    #[error("there is no archive of {id}")]
    Missing {
        /// The snapshot.
        id: ArchiveId,
    },
    /// An archive on which it depends is not there.
    #[error("{wanted} cannot be had: it needs the archive of {missing}, which is not there")]
    MissingParent {
        /// The snapshot that was asked for.
        wanted: ArchiveId,
        /// The snapshot whose archive is missing.
        missing: ArchiveId,
    },
    /// The chain is deeper than any that nono makes.
    #[error("{wanted} cannot be had: its chain has more than {MAX_CHAIN_DEPTH} deltas")]
    TooDeep {
        /// The snapshot that was asked for.
        wanted: ArchiveId,
    },
}

/// The archives from which the snapshot `wanted` is made, the newest (its own) first. Of several
/// archives of one snapshot a full one is taken, else the delta with the latest parent.
///
/// # Errors
/// [`ChainError`].
pub fn chain_of<'a>(
    names: impl IntoIterator<Item = &'a ArchiveName>,
    wanted: &ArchiveId,
) -> Result<Vec<&'a ArchiveName>, ChainError> {
    let mut best: BTreeMap<u64, &ArchiveName> = BTreeMap::new();
    for name in names.into_iter().filter(|name| name.id.session == wanted.session) {
        let rank = |name: &ArchiveName| match name.kind {
            ArchiveKind::Full => u64::MAX,
            ArchiveKind::Delta { parent } => parent,
        };
        let known = best.entry(name.id.number).or_insert(name);
        if rank(name) > rank(known) {
            *known = name;
        }
    }
    let first = best.get(&wanted.number).copied();
    let mut chain = vec![first.ok_or_else(|| ChainError::Missing { id: wanted.clone() })?];
    while let ArchiveKind::Delta { parent } = chain[chain.len() - 1].kind {
        if chain.len() > MAX_CHAIN_DEPTH as usize {
            return Err(ChainError::TooDeep { wanted: wanted.clone() });
        }
        let Some(next) = best.get(&parent) else {
            let missing = ArchiveId { session: wanted.session.clone(), number: parent };
            return Err(ChainError::MissingParent { wanted: wanted.clone(), missing });
        };
        chain.push(next);
    }
    Ok(chain)
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

    #[test]
    fn a_chain_ends_at_a_full_archive_or_says_what_is_missing() {
        let names = [
            "s/0-full.tar.zst",
            "s/1-delta-0.tar.zst",
            "s/2-delta-1.tar.zst",
            "s/4-delta-3.tar.zst",
            "t/3-full.tar.zst",
        ]
        .map(name);
        let wanted: ArchiveId = "s/2".parse().unwrap();
        let numbers =
            |chain: Vec<&ArchiveName>| chain.iter().map(|n| n.id.number()).collect::<Vec<_>>();
        assert_eq!(numbers(chain_of(&names, &wanted).unwrap()), [2, 1, 0]);
        let wanted: ArchiveId = "s/4".parse().unwrap();
        let missing = "s/3".parse().unwrap();
        assert_eq!(chain_of(&names, &wanted), Err(ChainError::MissingParent { wanted, missing }));
        let id: ArchiveId = "s/9".parse().unwrap();
        assert_eq!(chain_of(&names, &id), Err(ChainError::Missing { id }));
    }

    #[test]
    fn a_chain_of_more_than_ten_deltas_is_refused() {
        let all: Vec<_> = (1..=11)
            .map(|n| name(&format!("s/{n}-delta-{}.tar.zst", n - 1)))
            .chain([name("s/0-full.tar.zst")])
            .collect();
        assert_eq!(chain_of(&all, &"s/10".parse().unwrap()).unwrap().len(), 11);
        let wanted: ArchiveId = "s/11".parse().unwrap();
        assert_eq!(chain_of(&all, &wanted), Err(ChainError::TooDeep { wanted }));
    }
}
