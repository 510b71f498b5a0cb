//! One directory, filtered: the step that every walk is made of. [`judging`](super::judging) has
//! the second half of the step.

use super::exclusion::Filter;
use super::git_dir::{DOT_GIT, mode_inside};
use super::git_index::Repository;
use super::ignore_files::{IGNORE_FILE, IgnoreFile, Ignores};
use super::ignored::{Databases, Ignored};
use super::judging::{Inside, Judged};
use super::rebuildable::{PACKAGE_BESIDE, mark_among};
use crate::byte_path;
use crate::sys::{self, Dir, FileKind, ListedName, Stat};

/// How the entries of a directory are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By the filter.
    Filtered,
    /// All are in: the directory or one above it is force-included.
    Forced,
    /// The directory is excluded: only what is force-included is in.
    OnlyForced,
    /// The directory is ignored, and recorded because it is small or known: its large files are not
    /// in.
    Ignored,
    /// The directory is ignored or made again: only what is force-included, what git tracks and
    /// what an earlier snapshot holds is in.
    OnlyKept {
        /// In a rebuildable directory, the index of the directory's component in the path. No
        /// force-included name is searched for below.
        pruned: Option<usize>,
    },
    /// All are in: it is a git directory, or in one.
    Git,
    /// It is a git directory with too many bytes of objects: all else is in.
    GitBeyondLimit,
}

impl Mode {
    /// For a rebuildable directory.
    pub(crate) fn made_again(relative: &[u8]) -> Self {
        Self::OnlyKept { pruned: byte_path::components(relative).count().checked_sub(1) }
    }

    /// Whether the directory is part of the snapshot only for some of what is in it.
    pub(crate) fn is_partial(self) -> bool {
        matches!(self, Self::OnlyForced | Self::OnlyKept { .. })
    }
}

/// The part of an entry that earlier snapshots hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// Nothing.
    No,
    /// It is a directory, of which they left out a part.
    Partly,
    /// It.
    Whole,
}

/// An entry that is part of the snapshot.
#[derive(Debug)]
pub struct FoundEntry {
    /// One path component.
    pub name: Box<[u8]>,
    /// Its attributes when it was listed.
    pub stat: Stat,
    /// How the entries below are judged, if it is a directory.
    pub mode: Mode,
    /// An ignore rule names it; it is in because an earlier snapshot holds it.
    pub is_ignored: bool,
}

/// An entry that is not.
#[derive(Debug)]
pub struct LeftOut {
    /// One path component.
    pub name: Box<[u8]>,
    /// Its attributes when it was listed, if it could be looked at and a change of it is worth a
    /// word.
    pub stat: Option<Stat>,
    /// Why.
    pub why: WhyLeftOut,
}

/// Why an entry is not part of the snapshot.
#[derive(Debug)]
pub enum WhyLeftOut {
    /// The named rule excludes it.
    Excluded(String),
    /// It is a directory that a program makes again. `mark` is what proves it; without one, git's
    /// rules do.
    Rebuildable {
        /// The rule that leaves it out.
        rule: String,
        /// Its maker's mark.
        mark: Option<&'static str>,
    },
    /// It could not be looked at, or a `.gitignore` that may name it could not be read.
    Unreadable(String),
}

/// The contents of a directory.
#[derive(Debug)]
pub struct Listing {
    /// The entries in the snapshot, sorted by name.
    pub entries: Vec<FoundEntry>,
    /// The left-out entries, sorted by name.
    pub left_out: Vec<LeftOut>,
    /// Rules for the directories below.
    pub ignores: Ignores,
    /// The repository in which it lies.
    pub repository: Repository,
}

/// The beginning of the names of a restore's staging directories; 16 hexadecimal digits follow.
pub const STAGING_PREFIX: &[u8] = b".nono-restore-";

/// The names in a directory, none of them judged yet.
#[derive(Debug)]
pub(crate) struct Names {
    /// Sorted.
    pub(crate) names: Vec<ListedName>,
    /// The ignore file among them, if it was asked for.
    pub(crate) ignore_file: Option<IgnoreFile>,
    /// Its databases, if that matters.
    pub(crate) databases: Databases,
}

/// Lists `dir`, which lies at `relative` below the tracked path, and judges every entry. `above`
/// are the ignore files on the disk above it, `repository` is that of the directory above it.
/// Nothing is known of earlier snapshots.
///
/// # Errors
/// When the directory cannot be listed.
pub fn list(
    dir: &Dir,
    relative: &[u8],
    mode: Mode,
    filter: &Filter,
    above: &Ignores,
    repository: &Repository,
) -> sys::Result<Listing> {
    let (listing, _) = list_some(dir, relative, mode, filter, above, repository, usize::MAX)?;
    Ok(listing)
}

/// As [`list`], but at most so many names are looked at, evenly spread. Also returns how many there
/// are for each of them.
pub(super) fn list_some(
    dir: &Dir,
    relative: &[u8],
    mode: Mode,
    filter: &Filter,
    above: &Ignores,
    repository: &Repository,
    most: usize,
) -> sys::Result<(Listing, f64)> {
    let listed = names(dir, mode, filter, true)?;
    let mode = mode_inside(dir, relative, &listed, mode, filter);
    let repository = listed.repository(dir, relative, repository);
    let mark = listed.mark(dir, relative, mode, filter, |_| Known::No, || has_package(dir));
    let mode = if mark.is_some() { Mode::made_again(relative) } else { mode };
    let Names { names, ignore_file, databases } = listed;
    let ignores = &above.enter(relative, ignore_file.as_ref(), None);
    let (names, times) = evenly(names, most);
    let (databases, of) = (&databases, &repository);
    let inside = Inside { dir, relative, mode, filter, ignores, repository: of, databases };
    let Judged { entries, left_out, .. } = inside.judge(names, |_| Known::No);
    Ok((Listing { entries, left_out, ignores: ignores.clone(), repository }, times))
}

/// So many names at most, evenly spread, and how many there are for each of them.
fn evenly(names: Vec<ListedName>, most: usize) -> (Vec<ListedName>, f64) {
    let count = names.len();
    if count <= most {
        return (names, 1.0);
    }
    let is_chosen = |number: &usize| (number * most) % count < most;
    let numbered = names.into_iter().enumerate();
    let chosen: Vec<_> =
        numbered.filter_map(|(number, name)| is_chosen(&number).then_some(name)).collect();
    let times = count as f64 / chosen.len() as f64;
    (chosen, times)
}

/// Whether a file called [`PACKAGE_BESIDE`] lies beside a directory.
fn has_package(dir: &Dir) -> bool {
    let parent = dir.path().parent().and_then(|parent| Dir::open_no_symlinks(parent).ok());
    parent.is_some_and(|parent| {
        let stat = parent.try_stat(PACKAGE_BESIDE.as_bytes()).ok().flatten();
        stat.is_some_and(|stat| stat.kind == FileKind::File)
    })
}

/// The first half of [`list`]: the names. `reads_rules`: the ignore files on the disk count.
pub(crate) fn names(
    dir: &Dir,
    mode: Mode,
    filter: &Filter,
    reads_rules: bool,
) -> sys::Result<Names> {
    let mut names = dir.names()?;
    names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    // A name that is replaced by a rename meanwhile can be listed twice (tmpfs).
    names.dedup_by(|a, b| a.name == b.name);
    let wants_rules = mode == Mode::Filtered && filter.uses_gitignore() && reads_rules;
    let ignore_file =
        if wants_rules && has_name(&names, IGNORE_FILE) { IgnoreFile::of(dir) } else { None };
    let may_be_small = matches!(mode, Mode::Filtered | Mode::Ignored)
        && filter.uses_gitignore()
        && filter.ignored() == Ignored::Small;
    let databases = if may_be_small { Databases::of(dir, &names) } else { Databases::default() };
    Ok(Names { names, ignore_file, databases })
}

fn has_name(names: &[ListedName], name: &[u8]) -> bool {
    names.binary_search_by(|listed| (*listed.name).cmp(name)).is_ok()
}

impl Names {
    /// The repository in which the directory lies: its own, or that of the directory above it.
    pub(crate) fn repository(&self, dir: &Dir, relative: &[u8], above: &Repository) -> Repository {
        if has_name(&self.names, DOT_GIT) { Repository::at(dir, relative) } else { above.clone() }
    }

    /// The mark that proves that the directory is made again, if that matters: its contents are
    /// then judged as [`Mode::OnlyKept`]. `known` tells what earlier snapshots hold of the
    /// directory, `has_package` whether the file counts that may lie beside it.
    pub(crate) fn mark(
        &self,
        dir: &Dir,
        relative: &[u8],
        mode: Mode,
        filter: &Filter,
        known: impl FnOnce(&[u8]) -> Known,
        has_package: impl FnOnce() -> bool,
    ) -> Option<&'static str> {
        // The tracked path itself is never left out.
        if !matches!(mode, Mode::Filtered | Mode::Ignored)
            || !filter.leaves_out_rebuildable()
            || relative.is_empty()
        {
            return None;
        }
        let (_, name) = byte_path::split(relative);
        let mark = mark_among(dir, name, &self.names, has_package)?;
        (known(relative) != Known::Whole).then_some(mark)
    }
}

/// The name of the rule for a directory with a mark.
pub(crate) fn rule_of_mark(mark: &str) -> String {
    format!("its maker's mark ({mark})")
}
