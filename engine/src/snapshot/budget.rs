//! How much one snapshot may hold, and what is said or left out when a tree holds more.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::ignore_rules::{InheritedRules, RootRules};
use super::known::KnownDir;
use super::roots::OpenRoot;
use crate::byte_path;
use crate::counted::counted;
use crate::path_text::{Shown, to_path};
use crate::store::ObjectStore;
use crate::sys::{Dir, FileKind, Stat};
use crate::walk::{self, Inside, Known, MadeAgain, Mode, Place, Recorded, Repository};

/// Limits of one snapshot; 0 means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Most entries (files, directories, links) of all tracked paths together.
    pub max_entries: u64,
    /// Most bytes of file contents; holes do not count.
    pub max_bytes: u64,
}

impl Default for Budget {
    /// 300,000 entries and 2 GiB: beyond it, the tracked path is probably a home directory.
    fn default() -> Self {
        Self { max_entries: 300_000, max_bytes: 2 << 30 }
    }
}

impl Budget {
    /// No limits.
    pub const UNLIMITED: Self = Self { max_entries: 0, max_bytes: 0 };

    /// Whether a snapshot of this size is too large.
    pub fn is_exceeded(&self, entries: u64, bytes: u64) -> bool {
        (self.max_entries != 0 && entries > self.max_entries)
            || (self.max_bytes != 0 && bytes > self.max_bytes)
    }
}

/// A baseline that would be larger than the budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverBudget {
    /// The limits.
    pub budget: Budget,
    /// Entries found before the search ended.
    pub entries: u64,
    /// Bytes found before the search ended.
    pub bytes: u64,
    /// Whether the search ended before it had seen everything.
    pub is_partial: bool,
    /// The directories that hold most, largest first.
    pub largest: Vec<LargeDirectory>,
}

/// A directory that takes much of the budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeDirectory {
    /// Its absolute path.
    pub path: PathBuf,
    /// Entries in and below it.
    pub entries: u64,
    /// Bytes in and below it.
    pub bytes: u64,
}

impl std::error::Error for OverBudget {}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_least = if self.is_partial { "at least " } else { "" };
        let Budget { max_entries, max_bytes } = self.budget;
        write!(
            f,
            "too much to capture: {at_least}{} and {}",
            counted(self.entries, "entry", "entries"),
            counted(self.bytes, "byte", "bytes")
        )?;
        if max_entries != 0 && self.entries > max_entries {
            write!(f, "; the limit is {} (max_entries)", counted(max_entries, "entry", "entries"))?;
        }
        if max_bytes != 0 && self.bytes > max_bytes {
            write!(f, "; the limit is {} (max_bytes)", counted(max_bytes, "byte", "bytes"))?;
        }
        if !self.largest.is_empty() {
            f.write_str("; the largest directories are ")?;
        }
        for (index, large) in self.largest.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let LargeDirectory { path, entries, bytes } = large;
            let entries = counted(*entries, "entry", "entries");
            let bytes = counted(*bytes, "byte", "bytes");
            write!(f, "{comma}{} ({entries}, {bytes})", Shown::path(path))?;
        }
        Ok(())
    }
}

/// The sizes of a tree, found by looking and not reading.
pub(super) struct Survey {
    pub(super) over: OverBudget,
    /// The entries that do not fit when the known ones come first, as (root, relative path).
    pub(super) denied: HashSet<(usize, Box<[u8]>)>,
}

struct Item {
    root: usize,
    path: Box<[u8]>,
    bytes: u64,
    is_dir: bool,
    is_known: bool,
}

/// How many directories an error names.
const NAMED_DIRECTORIES: usize = 5;
/// A search for the largest directories ends after so many entries for each one that is allowed.
const SEARCH_FACTOR: u64 = 4;

/// Walks all roots in order, on one thread: only done when the budget is exceeded. With `bounded`
/// the search ends early, because it is only for an error message.
pub(super) fn survey(
    roots: &[OpenRoot],
    known: &[Vec<Arc<KnownDir>>],
    rules: &[RootRules],
    store: &dyn ObjectStore,
    budget: Budget,
    bounded: bool,
) -> Survey {
    let mut items = Vec::new();
    let most = if bounded && budget.max_entries != 0 {
        budget.max_entries.saturating_mul(SEARCH_FACTOR)
    } else {
        u64::MAX
    };
    let mut is_partial = false;
    for (root, open) in roots.iter().enumerate() {
        is_partial |= !survey_root(root, open, &known[root], rules[root], store, most, &mut items);
    }
    let entries = items.len() as u64;
    let bytes = items.iter().map(|item| item.bytes).sum();
    let largest = largest_directories(roots, &items);
    let denied = deny(items, budget);
    Survey { over: OverBudget { budget, entries, bytes, is_partial, largest }, denied }
}

/// Returns whether everything was seen.
fn survey_root(
    root: usize,
    open: &OpenRoot,
    known: &[Arc<KnownDir>],
    rules: RootRules,
    store: &dyn ObjectStore,
    most: u64,
    items: &mut Vec<Item>,
) -> bool {
    type Pending =
        (Vec<u8>, Mode, InheritedRules, Repository, Option<Arc<MadeAgain>>, Vec<Arc<KnownDir>>);
    let Some(stat) = &open.stat else { return true };
    let data_bytes = |dir: &Dir, name: &[u8], stat: &Stat| match stat.kind {
        FileKind::File => stat.size.saturating_sub(dir.hole_bytes(name, stat)),
        _ => 0,
    };
    let place = open.place.as_ref();
    let bytes = place.map_or(0, |place| data_bytes(&place.parent, place.name(), stat));
    items.push(Item { root, path: Box::default(), bytes, is_dir: true, is_known: true });
    let Some(top) = &open.dir else { return true };
    let (rules, above) = (InheritedRules::of_root(rules), Repository::above(&open.path));
    let mut pending: Vec<Pending> =
        vec![(Vec::new(), Mode::Filtered, rules, above, None, known.to_vec())];
    while let Some((relative, mode, rules, above, made, known)) = pending.pop() {
        if items.len() as u64 > most {
            return false;
        }
        let is_known = |name: &[u8]| known.iter().any(|dir| dir.has(store, name));
        let holds = |name: &[u8]| {
            let path = byte_path::join(&relative, name);
            known.iter().map(|dir| dir.holds(store, name, &path)).max().unwrap_or(Known::No)
        };
        // The capture itself reports an unreadable directory.
        let Ok(dir) = top.open_beneath(&relative) else { continue };
        let filter = &open.filter;
        let Ok(listed) = walk::names(&dir, mode, filter, rules.reads_disk()) else { continue };
        let mode = walk::mode_inside(&dir, &relative, &listed, mode, filter);
        let repository = listed.repository(&dir, &relative, &above);
        let itself = || {
            let known = known.iter().map(|dir| dir.recorded_itself(store, &relative));
            known.max().unwrap_or(Recorded::No)
        };
        let lock_beside = || {
            let above = top.open_beneath(byte_path::split(&relative).0).ok()?;
            above.read(walk::LOCK_BESIDE.as_bytes(), walk::MAX_LOCK_BYTES).ok()
        };
        let place = Place { dir: &dir, relative: &relative, mode, filter };
        let marked = listed.marked(&place, made.as_ref(), itself, lock_beside);
        let (mode, made) = marked.inside(&relative, mode);
        let rules = rules.enter(store, &relative, listed.ignore_file.as_ref());
        let inside = Inside {
            dir: &dir,
            relative: &relative,
            mode,
            filter,
            ignores: &rules.ignores,
            repository: &repository,
            databases: &listed.databases,
            made: made.as_deref(),
        };
        let recorded = |name: &[u8]| {
            let path = byte_path::join(&relative, name);
            let known = known.iter().map(|dir| dir.recorded(store, name, &path));
            known.max().unwrap_or(Recorded::No)
        };
        let judged = inside.judge(listed.names, holds, recorded);
        for entry in judged.entries {
            let path = byte_path::join(&relative, &entry.name);
            let is_dir = entry.stat.kind == FileKind::Directory;
            let bytes = data_bytes(&dir, &entry.name, &entry.stat);
            if !(entry.mode.is_partial() && is_dir) {
                let is_known = is_known(&entry.name);
                items.push(Item { root, path: path.as_slice().into(), bytes, is_dir, is_known });
            }
            if is_dir {
                let known = known.iter().map(|dir| KnownDir::child(dir, &entry.name)).collect();
                let inherited = rules.inherited(&entry);
                let made = made.clone().filter(|_| entry.is_marked);
                pending.push((path, entry.mode, inherited, repository.clone(), made, known));
            }
        }
    }
    true
}

/// The entries that have to stay out: known paths come first, then the others in the order of their
/// names.
fn deny(mut items: Vec<Item>, budget: Budget) -> HashSet<(usize, Box<[u8]>)> {
    items.sort_by(|a, b| (!a.is_known, a.root, &a.path).cmp(&(!b.is_known, b.root, &b.path)));
    let (mut entries, mut bytes) = (0, 0);
    let mut denied: HashSet<(usize, Box<[u8]>)> = HashSet::new();
    for item in items {
        // A directory that is out takes what is below it along; nothing below is listed then.
        let (above, _) = byte_path::split(&item.path);
        if !item.path.is_empty() && denied.contains(&(item.root, Box::from(above))) {
            if item.is_dir {
                denied.insert((item.root, item.path));
            }
            continue;
        }
        if budget.is_exceeded(entries + 1, bytes + item.bytes) {
            denied.insert((item.root, item.path));
        } else {
            entries += 1;
            bytes += item.bytes;
        }
    }
    denied
}

/// A directory: its root and its relative path.
type Key<'a> = (usize, &'a [u8]);

/// The directories that are worth excluding: not the tracked path itself, and none inside another.
fn largest_directories(roots: &[OpenRoot], items: &[Item]) -> Vec<LargeDirectory> {
    let mut sizes: HashMap<Key<'_>, (u64, u64)> = HashMap::new();
    for item in items {
        let own = (item.is_dir && !item.path.is_empty()).then_some(&*item.path);
        for dir in byte_path::ancestors(&item.path).chain(own) {
            let size = sizes.entry((item.root, dir)).or_default();
            size.0 += 1;
            size.1 += item.bytes;
        }
    }
    let (all_entries, all_bytes) =
        (items.len() as u64, items.iter().map(|item| item.bytes).sum::<u64>());
    // The share of the whole, by whichever measure is larger, in millionths.
    let share = |&(entries, bytes): &(u64, u64)| {
        let of = |part: u64, whole: u64| u128::from(part) * 1_000_000 / u128::from(whole.max(1));
        of(entries, all_entries).max(of(bytes, all_bytes))
    };
    let mut sorted: Vec<_> = sizes.iter().collect();
    sorted.sort_by(|a, b| share(b.1).cmp(&share(a.1)).then(a.0.cmp(b.0)));
    let mut chosen: Vec<(Key<'_>, (u64, u64))> = Vec::new();
    for (key, size) in sorted {
        let nested = chosen.iter().any(|(other, _)| {
            other.0 == key.0
                && (byte_path::is_in(key.1, other.1) || byte_path::is_in(other.1, key.1))
        });
        if !nested && chosen.len() < NAMED_DIRECTORIES {
            chosen.push((*key, *size));
        }
    }
    let path = |(root, relative): (usize, &[u8])| {
        to_path(roots[root].path.as_os_str().as_bytes()).join(to_path(relative))
    };
    chosen
        .into_iter()
        .map(|(key, (entries, bytes))| LargeDirectory { path: path(key), entries, bytes })
        .collect()
}
