//! Which directories changed, in order. A pure value.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Maximum number of directories that are noted. With more, only a whole walk answers an older
/// question.
const MAX_NOTED: usize = 1 << 16;

/// The last changes of a directory, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Noted {
    /// The last one of its entries.
    shallow: u64,
    /// The last one that may concern everything below it; 0 for none.
    deep: u64,
}

/// A directory that changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChangedDirectory {
    /// Relative to the tracked path; empty for that itself.
    #[serde(with = "text")]
    pub path: Box<[u8]>,
    /// Whether anything below it may have changed as well.
    pub is_deep: bool,
}

/// Bytes of a path as text.
mod text {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::path_text::{decode, encode};

    pub(super) fn serialize<S: Serializer>(path: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&encode(path))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Box<[u8]>, D::Error> {
        Ok(decode(&String::deserialize(from)?).into())
    }
}

/// The changes of one generation.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    /// Number of the last change.
    last: u64,
    /// Questions about the time before this number have no answer.
    floor: u64,
    noted: HashMap<Box<[u8]>, Noted>,
}

impl ChangeLog {
    /// Notes a change in a directory, or of all that is below it.
    pub(super) fn note(&mut self, path: &[u8], is_deep: bool) {
        self.last += 1;
        let number = self.last;
        if let Some(noted) = self.noted.get_mut(path) {
            noted.shallow = number;
            if is_deep {
                noted.deep = number;
            }
            return;
        }
        if self.noted.len() == MAX_NOTED {
            self.noted.clear();
            self.floor = number;
        }
        let deep = if is_deep { number } else { 0 };
        self.noted.insert(path.into(), Noted { shallow: number, deep });
    }

    /// Number of the last change.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The directories that changed after this number, sorted; `None` if that is not known.
    pub(super) fn since(&self, number: u64) -> Option<Vec<ChangedDirectory>> {
        if number < self.floor || number > self.last {
            return None;
        }
        let changed = self.noted.iter().filter(|(_, noted)| noted.shallow > number);
        let mut changed: Vec<_> = changed
            .map(|(path, noted)| ChangedDirectory {
                path: path.clone(),
                is_deep: noted.deep > number,
            })
            .collect();
        changed.sort();
        Some(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(log: &ChangeLog, number: u64) -> Option<Vec<(String, bool)>> {
        let text = |it: &ChangedDirectory| String::from_utf8(it.path.to_vec()).unwrap();
        log.since(number).map(|all| all.iter().map(|it| (text(it), it.is_deep)).collect())
    }

    #[test]
    fn a_question_gets_what_changed_after_its_moment_and_nothing_else() {
        let mut log = ChangeLog::default();
        log.note(b"a", false);
        log.note(b"b", true);
        let then = log.last();
        assert_eq!(since(&log, then), Some(vec![]));
        log.note(b"b", false);
        assert_eq!(since(&log, then), Some(vec![("b".into(), false)]));
        assert_eq!(since(&log, 0), Some(vec![("a".into(), false), ("b".into(), true)]));
        assert_eq!(since(&log, log.last() + 1), None);
    }

    #[test]
    fn more_directories_than_are_noted_leave_older_questions_without_an_answer() {
        let mut log = ChangeLog::default();
        log.note(b"first", false);
        let then = log.last();
        for number in 0..MAX_NOTED {
            log.note(number.to_string().as_bytes(), false);
        }
        assert_eq!(log.since(then), None);
        let then = log.last();
        log.note(b"x", false);
        assert_eq!(since(&log, then), Some(vec![("x".into(), false)]));
    }
}
