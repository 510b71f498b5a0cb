//! Renames among changes: a file that went and a file that came with the same contents, or with
//! most of them.
//!
//! Equal contents are found by their length first, so only few paths are looked up. Similar
//! contents are compared where few files went and came, for a fraction of a second.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::states::States;
use nono_engine::diff::{Change, ChangeType};
use nono_engine::object::{ContentHash, Node};
use nono_engine::store::StoreError;

/// Paths that are looked up for equal contents.
const MAX_LOOKUPS: usize = 2_000;
/// Files on each side that are compared for similar contents.
const MAX_COMPARED: usize = 50;
/// Longer files are not compared.
const MAX_BYTES: u64 = 256 << 10;
/// Limit of the time for similar contents.
const TIMEOUT: Duration = Duration::from_millis(50);
/// The part of both files that is the same, in percent: git's measure.
const LEAST_SIMILAR_PERCENT: usize = 50;

/// The created file → the deleted one, by index.
pub(crate) type Renames = BTreeMap<usize, usize>;

/// Finds the renames. A file that cannot be read is none.
pub(crate) fn renames(changes: &[Change], states: &States<'_>) -> Renames {
    let mut renames = Renames::new();
    let mut gone: Vec<usize> = files(changes, ChangeType::Deleted);
    let mut made: Vec<usize> = files(changes, ChangeType::Created);
    if gone.is_empty() || made.is_empty() {
        return renames;
    }
    let size = |index: &usize| changes[*index].size_delta.map(i64::unsigned_abs);
    let mut by_size: HashMap<Option<u64>, Vec<usize>> = HashMap::new();
    for index in &gone {
        by_size.entry(size(index)).or_default().push(*index);
    }
    let candidates: Vec<usize> =
        made.iter().filter(|it| by_size.contains_key(&size(it))).copied().collect();
    if candidates.len() <= MAX_LOOKUPS {
        let wanted: std::collections::HashSet<_> = candidates.iter().map(size).collect();
        let mut old = states.old_states();
        let mut by_hash: HashMap<ContentHash, Vec<usize>> = HashMap::new();
        let possible = gone.iter().rev().filter(|it| wanted.contains(&size(it)));
        for index in possible.take(MAX_LOOKUPS) {
            if let Some(hash) = content(old.find(path(&changes[*index]))) {
                by_hash.entry(hash).or_default().push(*index);
            }
        }
        let mut new = states.new_states();
        for index in candidates {
            let Some(hash) = content(new.find(path(&changes[index]))) else { continue };
            let Some(same) = by_hash.get_mut(&hash) else { continue };
            let name = changes[index].path.file_name();
            // Among several, the one of the same name.
            let at = same.iter().rposition(|it| changes[*it].path.file_name() == name);
            if let Some(at) = at.or(same.len().checked_sub(1)) {
                renames.insert(index, same.remove(at));
            }
        }
    }
    let taken: std::collections::HashSet<usize> = renames.values().copied().collect();
    gone.retain(|index| !taken.contains(index));
    made.retain(|index| !renames.contains_key(index));
    if gone.len().max(made.len()) <= MAX_COMPARED {
        similar(changes, states, &gone, &made, &mut renames);
    }
    renames
}

fn files(changes: &[Change], change_type: ChangeType) -> Vec<usize> {
    let is_meant = |change: &Change| {
        // An empty file is equal to any other.
        change.change_type == change_type && !change.is_directory && change.size_delta != Some(0)
    };
    let all = changes.iter().enumerate();
    all.filter(|(_, change)| is_meant(change)).map(|(index, _)| index).collect()
}

fn path(change: &Change) -> &[u8] {
    change.path.as_os_str().as_encoded_bytes()
}

fn content(
    found: Result<Option<nono_engine::diff::EntryState>, StoreError>,
) -> Option<ContentHash> {
    match found.ok()??.node {
        Node::File { hash, .. } => Some(hash),
        _ => None,
    }
}

/// Pairs files with the most similar contents first.
fn similar(
    changes: &[Change],
    states: &States<'_>,
    gone: &[usize],
    made: &[usize],
    renames: &mut Renames,
) {
    let deadline = Instant::now() + TIMEOUT;
    let is_short = |index: &&usize| {
        changes[**index].size_delta.is_some_and(|size| size.unsigned_abs() <= MAX_BYTES)
    };
    let mut old = states.old_states();
    let mut new = states.new_states();
    let read = |hash: Option<ContentHash>| states.source().read(&hash?, MAX_BYTES).ok();
    let mut lines = |indices: &[usize], is_old: bool| -> Vec<(usize, Lines)> {
        let short = indices.iter().filter(is_short);
        let read = short.filter_map(|index| {
            if Instant::now() > deadline {
                return None;
            }
            let path = path(&changes[*index]);
            let hash = content(if is_old { old.find(path) } else { new.find(path) });
            Some((*index, Lines::of(&read(hash)?)))
        });
        read.collect()
    };
    let (gone, made) = (lines(gone, true), lines(made, false));
    let mut pairs = Vec::new();
    for (created, now) in &made {
        for (deleted, then) in &gone {
            if Instant::now() > deadline {
                break;
            }
            let percent = then.similarity(now);
            if percent >= LEAST_SIMILAR_PERCENT {
                pairs.push((std::cmp::Reverse(percent), *created, *deleted));
            }
        }
    }
    pairs.sort_unstable();
    let mut taken = std::collections::HashSet::new();
    for (_, created, deleted) in pairs {
        if !renames.contains_key(&created) && taken.insert(deleted) {
            renames.insert(created, deleted);
        }
    }
}

/// The lines of a file, as how many bytes each different one takes.
struct Lines {
    bytes: HashMap<u64, usize>,
    total: usize,
}

impl Lines {
    fn of(text: &[u8]) -> Self {
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        // The same numbers in both files.
        let hasher = BuildHasherDefault::<DefaultHasher>::new();
        let mut bytes: HashMap<u64, usize> = HashMap::new();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            *bytes.entry(hasher.hash_one(line)).or_default() += line.len();
        }
        Self { bytes, total: text.len() }
    }

    /// How much of the longer file is in both, in percent.
    fn similarity(&self, other: &Self) -> usize {
        let same = |(line, bytes): (&u64, &usize)| {
            other.bytes.get(line).map_or(0, |others| (*bytes).min(*others))
        };
        let common: usize = self.bytes.iter().map(same).sum();
        common * 100 / self.total.max(other.total).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similarity_is_the_part_that_both_have() {
        let lines = |text: &str| Lines::of(text.as_bytes());
        assert_eq!(lines("a\nb\nc\nd\n").similarity(&lines("a\nb\nc\nx\n")), 75);
        assert_eq!(lines("a\n").similarity(&lines("b\n")), 0);
        assert_eq!(lines("a\na\na\n").similarity(&lines("a\n")), 33);
    }
}
