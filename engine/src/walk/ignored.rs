//! Ignored paths: git cannot restore them, so the small ones are recorded all the same.
//!
//! A file is small up to 1 MiB. What people lose most is small up to 16 MiB: databases, notebooks
//! and files of secrets, which no program makes again. A changed file is read and hashed whole at
//! each snapshot. 16 MiB take some 20 ms, a hundredth of the patience of a hook, and four of them
//! fill the 64 MiB of a small directory. Only changed chunks are stored. A directory counts as one
//! thing from the topmost ignored one down, and is small up to 5,000 entries and 64 MiB; in it, a
//! file that is not small is left out by itself. A database and the journals beside it are one
//! thing: their sum decides for all of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::byte_path;
use crate::sys::{Dir, FileKind, ListedName, Stat};

/// Most bytes of a file that is ignored and recorded.
pub const SMALL_FILE_BYTES: u64 = 1 << 20;
/// Most bytes of a precious file that is ignored and recorded.
pub const SMALL_PRECIOUS_BYTES: u64 = 16 << 20;
/// The endings of the names of databases.
const DATABASES: [&[u8]; 5] = [b".db", b".db3", b".duckdb", b".sqlite", b".sqlite3"];
/// The ending of the name of a notebook.
const NOTEBOOK: &[u8] = b".ipynb";
/// The beginning of the names of files with secrets.
const ENVIRONMENT: &[u8] = b".env";
/// Most entries below a directory that is ignored and recorded.
pub(super) const SMALL_DIRECTORY_ENTRIES: u64 = 5_000;
/// Most bytes of all files in a directory that is ignored and recorded.
pub(super) const SMALL_DIRECTORY_BYTES: u64 = 64 << 20;
/// The endings of the journals of a database; the rest of their name is the name of the database.
const JOURNALS: [&[u8]; 3] = [b"-wal", b"-shm", b"-journal"];

/// The ignored paths that are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ignored {
    /// Nothing.
    #[default]
    None,
    /// The small ones.
    Small,
    /// Everything.
    All,
}

/// A word that is none of `small`, `none` and `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is none of small, none and all")]
pub struct UnknownIgnored;

impl std::str::FromStr for Ignored {
    type Err = UnknownIgnored;

    fn from_str(text: &str) -> Result<Self, UnknownIgnored> {
        Ok(match text {
            "none" => Self::None,
            "small" => Self::Small,
            "all" => Self::All,
            _ => return Err(UnknownIgnored),
        })
    }
}

impl std::fmt::Display for Ignored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Small => "small",
            Self::All => "all",
        })
    }
}

impl Ignored {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Whether a name is one that databases have.
pub fn is_database(name: &[u8]) -> bool {
    DATABASES.iter().any(|ending| name.len() > ending.len() && name.ends_with(ending))
}

/// Most bytes of an ignored file of this name that is recorded, for a database with its journals.
pub(super) fn most_bytes(name: &[u8]) -> u64 {
    let is_notebook = name.len() > NOTEBOOK.len() && name.ends_with(NOTEBOOK);
    match is_database(name) || is_notebook || name.starts_with(ENVIRONMENT) {
        true => SMALL_PRECIOUS_BYTES,
        false => SMALL_FILE_BYTES,
    }
}

/// Databases of a directory with journals beside them, and how many bytes all files of each have.
#[derive(Debug, Clone, Default)]
pub(crate) struct Databases(BTreeMap<Box<[u8]>, u64>);

/// The database that a journal belongs to.
fn database_of(name: &[u8]) -> Option<&[u8]> {
    JOURNALS.iter().find_map(|ending| name.strip_suffix(*ending)).filter(|name| !name.is_empty())
}

impl Databases {
    /// Looks at them once, so that a database which grows meanwhile is judged as one thing.
    pub(super) fn of(dir: &Dir, names: &[ListedName]) -> Self {
        let mains = names.iter().filter_map(|listed| database_of(&listed.name));
        let mut databases = BTreeMap::new();
        for main in mains {
            if databases.contains_key(main) {
                continue;
            }
            let bytes_of = |ending: &[u8]| {
                let stat = dir.try_stat(&[main, ending].concat()).ok().flatten();
                stat.filter(|stat| stat.kind == FileKind::File).map(|stat| stat.size)
            };
            // A journal without a database is a file.
            let Some(own) = bytes_of(b"") else { continue };
            let all = JOURNALS.iter().filter_map(|ending| bytes_of(ending));
            databases.insert(main.into(), all.fold(own, u64::saturating_add));
        }
        Self(databases)
    }

    /// The database that a file is, or belongs to, and the bytes of the whole.
    pub(super) fn whole<'a>(&self, name: &'a [u8]) -> Option<(&'a [u8], u64)> {
        let of = |name: &'a [u8]| Some((name, *self.0.get(name)?));
        of(name).or_else(|| of(database_of(name)?))
    }

    /// The files that a database may consist of.
    pub(super) fn files(main: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        std::iter::once(main.to_vec())
            .chain(JOURNALS.iter().map(move |ending| [main, ending].concat()))
    }
}

/// How large an ignored directory is, looked at no further than needed to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Small,
    ManyEntries,
    ManyBytes,
    /// It, or a directory in it, cannot be listed.
    Unreadable,
}

/// Looks at most at so many entries as a small directory has, on one file system.
pub(super) fn size_of(parent: &Dir, name: &[u8], own: &Stat) -> Size {
    let Ok(top) = parent.open_dir(name) else { return Size::Unreadable };
    let (mut entries, mut bytes) = (0u64, 0u64);
    let mut pending: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(relative) = pending.pop() {
        let listed = top.open_beneath(&relative).and_then(|dir| Ok((dir.names()?, dir)));
        let (names, dir) = match listed {
            Ok(listed) => listed,
            // Removed since.
            Err(error) if error.is_gone() => continue,
            Err(_) => return Size::Unreadable,
        };
        entries = entries.saturating_add(names.len() as u64);
        if entries > SMALL_DIRECTORY_ENTRIES {
            return Size::ManyEntries;
        }
        for listed in names {
            let Ok(stat) = dir.stat(&listed.name) else { continue };
            match stat.kind {
                FileKind::File => bytes = bytes.saturating_add(stat.size),
                FileKind::Directory if stat.dev == own.dev => {
                    let below = byte_path::join(&relative, &listed.name);
                    pending.push(if relative.is_empty() { listed.name.into_vec() } else { below });
                }
                _ => {}
            }
        }
        if bytes > SMALL_DIRECTORY_BYTES {
            return Size::ManyBytes;
        }
    }
    Size::Small
}

impl Size {
    /// Why a directory is not recorded, behind the rule that ignores it.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Small => "",
            Self::ManyEntries => " and more than 5000 entries",
            Self::ManyBytes => " and larger than 64 MiB",
            Self::Unreadable => " and not readable",
        }
    }
}

/// Behind the rule that ignores a file.
const LARGE_FILE: &str = " and larger than 1 MiB";
/// The same for a precious file.
const LARGE_PRECIOUS: &str = " and larger than 16 MiB";

/// Why a file is not recorded, behind the rule that ignores it. `name`: its own, or that of the
/// database which it belongs to.
pub(super) fn reason_of_file(name: &[u8]) -> &'static str {
    let main = database_of(name).unwrap_or(name);
    if most_bytes(main) == SMALL_FILE_BYTES { LARGE_FILE } else { LARGE_PRECIOUS }
}

/// Whether what leaves something out is that it is ignored and not small.
pub fn names_a_limit(rule: &str) -> bool {
    let sizes = [Size::ManyEntries, Size::ManyBytes, Size::Unreadable].map(Size::reason);
    sizes.iter().chain([&LARGE_FILE, &LARGE_PRECIOUS]).any(|size| rule.ends_with(size))
}
