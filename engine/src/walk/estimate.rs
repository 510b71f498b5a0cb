//! About how much a directory holds, for a small and bounded price.
//!
//! The first directories are counted exactly, level by level. The rest is estimated by random
//! descents: the entries of a directory itself, and, for all its subdirectories, as many times the
//! count below one of them. The mean of many such descents is right on average, whatever the shape
//! of the tree; filters and `.gitignore` files count as in a capture. Of a long directory only some
//! names are looked at, because a recording waits.

use std::collections::VecDeque;
use std::sync::Arc;

use super::exclusion::Filter;
use super::git_index::Repository;
use super::ignore_files::Ignores;
use super::listing::{Mode, list_some};
use super::rebuildable::MadeAgain;
use crate::byte_path;
use crate::sys::{Dir, FileKind};

/// Directories that are counted exactly.
const COUNTED: usize = 256;
/// Ways that are gone down from the others.
const WAYS: usize = 128;
/// Longest way, in directories.
const LONGEST_WAY: usize = 64;
/// Names of a directory that are looked at.
const NAMES: usize = 512;

/// About how much a capture would hold.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// Files, directories and links.
    pub entries: f64,
    /// Bytes of file contents that are in no hole.
    pub bytes: f64,
    /// Whether everything was counted.
    pub is_exact: bool,
}

struct Place {
    /// It stands for so many.
    times: f64,
    relative: Vec<u8>,
    mode: Mode,
    ignores: Ignores,
    repository: Repository,
    made: Option<Arc<MadeAgain>>,
}

/// Estimates what a capture of `dir` with this filter would hold. Lists at most some thousand
/// directories, usually some hundred, and looks at 512 names of each at most. An unreadable
/// directory counts as nothing.
pub fn estimate(dir: &Dir, filter: &Filter) -> Estimate {
    let mut total = Estimate { is_exact: true, ..Estimate::default() };
    let top = Place {
        times: 1.0,
        relative: Vec::new(),
        mode: Mode::Filtered,
        ignores: Ignores::ON_DISK,
        repository: Repository::above(dir.path()),
        made: None,
    };
    let mut pending = VecDeque::from([top]);
    for _ in 0..COUNTED {
        let Some(place) = pending.pop_front() else { return total };
        let (own, below) = look(dir, &place, filter);
        total.is_exact &= own.is_exact;
        total.add(own, place.times);
        pending.extend(below);
    }
    if pending.is_empty() {
        return total;
    }
    total.is_exact = false;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let ways = WAYS.min(pending.len());
    // Evenly spread over what is pending, so that no large branch is missed.
    let weight = pending.len() as f64 / ways as f64;
    for way in 0..ways {
        go_down(dir, &pending[way * pending.len() / ways], filter, weight, &mut random, &mut total);
    }
    total
}

fn go_down(
    dir: &Dir,
    start: &Place,
    filter: &Filter,
    mut weight: f64,
    random: &mut Random,
    total: &mut Estimate,
) {
    let (mut times, (mut own, mut below)) = (start.times, look(dir, start, filter));
    for _ in 0..LONGEST_WAY {
        total.add(own, weight * times);
        if below.is_empty() {
            return;
        }
        weight *= below.len() as f64;
        let next = below.swap_remove(random.below(below.len()));
        (times, (own, below)) = (next.times, look(dir, &next, filter));
    }
}

/// The entries of one such directory itself, and its subdirectories.
fn look(dir: &Dir, place: &Place, filter: &Filter) -> (Estimate, Vec<Place>) {
    let Place { relative, mode, ignores, repository, made, .. } = place;
    let mut own = Estimate { is_exact: true, ..Estimate::default() };
    let made = made.as_ref();
    let Ok(dir) = dir.open_beneath(relative) else { return (own, Vec::new()) };
    let listed = list_some(&dir, relative, *mode, filter, ignores, repository, made, NAMES);
    let Ok((listing, times)) = listed else { return (own, Vec::new()) };
    own.is_exact = times <= 1.0;
    let mut below = Vec::new();
    for found in listing.entries {
        match found.stat.kind {
            FileKind::Directory => {
                let relative = byte_path::join(relative, &found.name);
                below.push(Place {
                    times: place.times * times,
                    relative,
                    mode: found.mode,
                    ignores: listing.ignores.clone(),
                    repository: listing.repository.clone(),
                    made: listing.made.clone().filter(|_| found.is_marked),
                });
            }
            FileKind::File => {
                let data = found.stat.size.saturating_sub(dir.hole_bytes(&found.name, &found.stat));
                own.bytes += data as f64 * times;
            }
            _ => {}
        }
        if !found.mode.is_partial() {
            own.entries += times;
        }
    }
    (own, below)
}

impl Estimate {
    fn add(&mut self, other: Self, weight: f64) {
        self.entries += other.entries * weight;
        self.bytes += other.bytes * weight;
    }
}

/// xorshift64: the same tree gives the same estimate.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use std::fs;

    use super::*;
    use crate::walk::ExclusionConfig;

    fn filter() -> Filter {
        Filter::new(&ExclusionConfig {
            prune_patterns: vec!["node_modules/".into()],
            ..ExclusionConfig::default()
        })
        .unwrap()
    }

    #[test]
    fn a_small_tree_is_counted_with_its_filters() {
        let temp = tempfile::tempdir().unwrap();
        for name in ["src/deep", "node_modules/x", "ignored"] {
            fs::create_dir_all(temp.path().join(name)).unwrap();
            fs::write(temp.path().join(name).join("file"), "12345").unwrap();
        }
        fs::write(temp.path().join(".gitignore"), "ignored").unwrap();
        let found = estimate(&Dir::open(temp.path()).unwrap(), &filter());
        // src, src/deep, its file, .gitignore.
        assert_eq!(found, Estimate { entries: 4.0, bytes: 12.0, is_exact: true });
    }

    #[test]
    fn a_large_tree_is_estimated_within_half_of_the_truth() {
        let temp = tempfile::tempdir().unwrap();
        let mut entries = 0;
        // 12 × 12 × 1..12 directories with 3 files each: an uneven tree.
        for first in 0..12 {
            for second in 0..12 {
                for third in 0..=(first + second) / 2 {
                    let dir = temp.path().join(format!("{first}/{second}/{third}"));
                    fs::create_dir_all(&dir).unwrap();
                    for file in 0..3 {
                        fs::write(dir.join(file.to_string()), "x").unwrap();
                    }
                    entries += 4;
                }
            }
        }
        let truth = f64::from(entries + 12 + 144);
        let found = estimate(&Dir::open(temp.path()).unwrap(), &filter());
        assert!(!found.is_exact);
        assert!((truth * 0.5..truth * 1.5).contains(&found.entries), "{found:?}, not {truth}");
    }

    #[test]
    fn of_a_long_directory_some_names_stand_for_all() {
        let temp = tempfile::tempdir().unwrap();
        let count = 3 * NAMES + 7;
        for number in 0..count {
            // One in ten is a directory with two files.
            let path = temp.path().join(format!("{number:05}"));
            if number % 10 == 0 {
                fs::create_dir(&path).unwrap();
                fs::write(path.join("a"), "123").unwrap();
                fs::write(path.join("b"), "123").unwrap();
            } else {
                fs::write(&path, "12345").unwrap();
            }
        }
        let (truth, bytes) = (count as f64 * 1.2, count as f64 * (4.5 + 0.6));
        let found = estimate(&Dir::open(temp.path()).unwrap(), &filter());
        assert!(!found.is_exact);
        assert!((truth * 0.8..truth * 1.2).contains(&found.entries), "{found:?}, not {truth}");
        assert!((bytes * 0.8..bytes * 1.2).contains(&found.bytes), "{found:?}, not {bytes}");
    }
}
