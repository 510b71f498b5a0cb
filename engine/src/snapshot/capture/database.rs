//! A database with the file beside it that belongs to it: SQLite's `-wal` or `-journal`.
//!
//! Each of the two is read by itself, and only together they are a state: a checkpoint that moves
//! pages from one into the other between the two reads would leave a mixture that no program can
//! read. So both are read again until nothing came between. Always true of a pair that is not called
//! unstable:
//!
//! - The database had the same state before the first read and after the second one.
//! - A write-ahead log had the same header: no frame of it was overwritten, frames were only added.
//!   A torn frame at its end has no valid checksum, so SQLite leaves it out.
//! - A rollback journal had the same state: SQLite rolls the database back with it, or needs not.
//!
//! Nothing is locked, and no program that uses the database waits. In a directory of more than a
//! thousand names the two may be met apart; then each is a file like any other.

use super::Capturer;
use super::directory::{Captured, PendingDir};
use super::file::ReadError;
use crate::byte_path;
use crate::path_text::to_path;
use crate::stat_cache::{CachedDirectory, CachedFile, StatKey};
use crate::sys::{self, Dir, FileKind, IoContext, Stat, read_full_at};
use crate::walk::FoundEntry;

/// How the names of these files end.
const WAL: &[u8] = b"-wal";
const JOURNAL: &[u8] = b"-journal";
/// Bytes of the header of a write-ahead log, with the salts that a restart changes.
const WAL_HEADER_BYTES: usize = 32;
/// A pair that changes meanwhile is read again so many times before it is called unstable.
const ATTEMPTS: usize = 8;

/// A database, and the file beside it.
pub(super) struct Pair {
    pub(super) database: FoundEntry,
    pub(super) beside: FoundEntry,
}

/// Takes the pairs out of the entries of a directory.
pub(super) fn take_pairs(entries: &mut Vec<FoundEntry>) -> Vec<Pair> {
    let is_file = |entry: &FoundEntry| entry.stat.kind == FileKind::File;
    let mut pairs = Vec::new();
    let mut at = 0;
    while at < entries.len() {
        let name = &entries[at].name;
        // An empty file beside a database holds nothing of it.
        let of = name
            .strip_suffix(WAL)
            .or_else(|| name.strip_suffix(JOURNAL))
            .filter(|_| is_file(&entries[at]) && entries[at].stat.size > 0);
        let database =
            of.and_then(|of| entries.iter().position(|it| *it.name == *of && is_file(it)));
        let Some(database) = database else {
            at += 1;
            continue;
        };
        let beside = entries.remove(at);
        let database = entries.remove(if database > at { database - 1 } else { database });
        pairs.push(Pair { database, beside });
        at = at.saturating_sub(1);
    }
    pairs
}

impl Capturer<'_> {
    /// Reads a pair into the store.
    pub(super) fn database(
        &self,
        node: &PendingDir,
        dir: &Dir,
        cached: Option<&CachedDirectory>,
        Pair { database, beside }: Pair,
        captured: &mut Captured,
    ) {
        let is_wal = beside.name.ends_with(WAL);
        let known = cached.and_then(|cached| cached.file(&database.name));
        let known = known.filter(|known| {
            known.key == StatKey::of(&database.stat) && self.are_stored(node, known)
        });
        let path = |found: &FoundEntry| byte_path::join(&node.relative, &found.name);
        let mut attempt = 1;
        loop {
            if self.is_stopped() {
                return;
            }
            let before = Seen::of(dir, &database, &beside, is_wal);
            let is_known = |known: &&CachedFile| {
                before.as_ref().is_ok_and(|seen| known.key == StatKey::of(&seen.database))
            };
            let known = known.filter(is_known);
            let read = match known {
                Some(_) => None,
                None => Some(self.try_read_file(dir, &database)),
            };
            let mut read_beside = self.try_read_file(dir, &beside);
            let after = Seen::of(dir, &database, &beside, is_wal);
            let is_still = match (&before, &after) {
                (Ok(before), Ok(after)) => before.is_still(after),
                // The database is gone, or cannot be read, which is told as of any file.
                _ => true,
            };
            let failed = matches!(read, Some(Err(ReadError::Store(_))));
            if !is_still && !failed && attempt < ATTEMPTS {
                attempt += 1;
                continue;
            }
            if !is_still {
                let absolute = self.absolute(node.root, &path(&database));
                self.unstable.lock().push(to_path(&absolute).to_owned());
            }
            if is_still
                && is_wal
                && let Ok(log) = &mut read_beside
            {
                log.is_growing = true;
            }
            let entry = match (known, read) {
                (Some(known), _) => {
                    let entry = self.unchanged_file(node, &path(&database), &database, known);
                    Some((entry, Some(known.clone())))
                }
                (None, Some(read)) => {
                    self.read_as(read, dir, &database, node.root, &path(&database))
                }
                (None, None) => None,
            };
            let beside = self.read_as(read_beside, dir, &beside, node.root, &path(&beside));
            for (entry, file) in [entry, beside].into_iter().flatten() {
                captured.cached_files.extend(file.map(|file| (entry.name.clone(), file)));
                captured.entries.push(entry);
            }
            return;
        }
    }
}

/// A pair at one moment.
struct Seen {
    database: Stat,
    /// The state of the file beside it; none when it is gone.
    beside: Option<Stat>,
    /// The header of a write-ahead log; none of a journal.
    header: Option<Vec<u8>>,
}

impl Seen {
    /// Looks at both when the clock of files has gone on since the last change of the database, so
    /// that a change after this look has a later time.
    fn of(
        dir: &Dir,
        database: &FoundEntry,
        beside: &FoundEntry,
        is_wal: bool,
    ) -> sys::Result<Self> {
        // A tick of the clock at most. A time in the future never passes.
        let (changed, now) = (dir.stat(&database.name)?.ctime, sys::coarse_now());
        while changed >= now && sys::coarse_now() == now {
            std::thread::yield_now();
        }
        let database = dir.stat(&database.name)?;
        let header = match dir.open_file(&beside.name, false) {
            Ok(file) if is_wal => {
                let mut header = vec![0; WAL_HEADER_BYTES];
                let read = read_full_at(&file, &mut header, 0);
                header.truncate(read.at("read", &dir.path_of(&beside.name))?);
                Some(header)
            }
            Ok(_) => None,
            Err(error) if error.is_gone() => None,
            Err(error) => return Err(error),
        };
        Ok(Self { database, beside: dir.try_stat(&beside.name)?, header })
    }

    /// Whether nothing moved between the two files up to a later look.
    fn is_still(&self, later: &Self) -> bool {
        let is_same_file = match (&self.beside, &later.beside) {
            (None, None) => true,
            (Some(one), Some(other)) => match self.header {
                // A log grows.
                Some(_) => one.ino == other.ino,
                None => one.same_state(other),
            },
            _ => false,
        };
        is_same_file && self.header == later.header && self.database.same_state(&later.database)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::Mode;

    fn pairs(names: &[(&str, u64)]) -> (Vec<String>, Vec<String>) {
        let temp = tempfile::tempdir().unwrap();
        let stat = crate::sys::stat_of(temp.path()).unwrap().unwrap();
        let mut entries: Vec<_> = names
            .iter()
            .map(|(name, size)| FoundEntry {
                name: name.as_bytes().into(),
                stat: Stat { kind: FileKind::File, size: *size, ..stat },
                mode: Mode::Filtered,
                is_ignored: false,
                is_marked: false,
            })
            .collect();
        let found = take_pairs(&mut entries);
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        (
            found.iter().map(|pair| text(&pair.database.name)).collect(),
            entries.iter().map(|entry| text(&entry.name)).collect(),
        )
    }

    #[test]
    fn a_file_beside_a_database_belongs_to_it_and_others_stay() {
        let (found, left) = pairs(&[
            ("a-wal", 5),
            ("a", 9),
            ("b", 1),
            ("b-journal", 2),
            ("c-wal", 3),
            ("d", 4),
            ("d-wal", 0),
            ("-wal", 3),
        ]);
        assert_eq!(found, ["a", "b"]);
        assert_eq!(left, ["c-wal", "d", "d-wal", "-wal"]);
    }
}
