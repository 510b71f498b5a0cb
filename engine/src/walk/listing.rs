//! One directory, filtered: the step that every walk is made of. [`judging`](super::judging) has
//! the second half of the step.

use std::sync::Arc;

use super::exclusion::Filter;
use super::git_dir::{DOT_GIT, mode_inside};
use super::git_index::Repository;
use super::ignore_files::{IGNORE_FILE, IgnoreFile, Ignores};
use super::ignored::{Databases, Ignored};
use super::judging::{Inside, Judged};
use super::rebuildable::{LOCK_BESIDE, MAX_LOCK_BYTES, MadeAgain, coverage_among};
use crate::byte_path;
use crate::sys::{self, Dir, ListedName, Stat};

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

/// The record that earlier snapshots of a tracked path have of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recorded {
    /// None, or of a part that was kept for a reason of its own.
    No,
    /// It is a directory, and they left out a part of it for a maker's mark.
    InPart,
    /// It was recorded like any other. A mark that appears later changes nothing of that.
    Plainly,
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
    /// It is a directory in a marked one. What its maker makes in it is left out.
    pub is_marked: bool,
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
    /// A program makes it again: a directory, or a file in a marked directory. `mark` is what
    /// proves it; without one, git's rules do.
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
    /// The mark that covers a part of it.
    pub(super) made: Option<Arc<MadeAgain>>,
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
    let (listing, _) = list_some(dir, relative, mode, filter, above, repository, None, usize::MAX)?;
    Ok(listing)
}

/// As [`list`], but at most so many names are looked at, evenly spread. Also returns how many there
/// are for each of them. `above_made`: the mark of a directory above that covers a part of it.
#[expect(clippy::too_many_arguments, reason = "those of `list`, and two")]
pub(super) fn list_some(
    dir: &Dir,
    relative: &[u8],
    mode: Mode,
    filter: &Filter,
    above: &Ignores,
    repository: &Repository,
    above_made: Option<&Arc<MadeAgain>>,
    most: usize,
) -> sys::Result<(Listing, f64)> {
    let listed = names(dir, mode, filter, true)?;
    let mode = mode_inside(dir, relative, &listed, mode, filter);
    let repository = listed.repository(dir, relative, repository);
    let place = Place { dir, relative, mode, filter };
    let marked = listed.marked(&place, above_made, || Recorded::No, || lock_beside(dir));
    let (mode, made) = marked.inside(relative, mode);
    let Names { names, ignore_file, databases } = listed;
    let ignores = &above.enter(relative, ignore_file.as_ref(), None);
    let (names, times) = evenly(names, most);
    let (databases, of) = (&databases, &repository);
    let made_inside = made.as_deref();
    let inside = Inside {
        dir,
        relative,
        mode,
        filter,
        ignores,
        repository: of,
        databases,
        made: made_inside,
    };
    let Judged { entries, left_out, .. } = inside.judge(names, |_| Known::No, |_| Recorded::No);
    Ok((Listing { entries, left_out, ignores: ignores.clone(), repository, made }, times))
}

/// At most `most` names, evenly spread, and how many there are for each of them.
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

/// The file called [`LOCK_BESIDE`] that lies beside a directory.
fn lock_beside(dir: &Dir) -> Option<Vec<u8>> {
    let parent = Dir::open_no_symlinks(dir.path().parent()?).ok()?;
    parent.read(LOCK_BESIDE.as_bytes(), MAX_LOCK_BYTES).ok()
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

    /// The effect of the directory's mark. `above_made`: the mark of a directory above that covers
    /// a part of it. `recorded` tells the record of the directory in earlier snapshots,
    /// `lock_beside` gives the lock that may lie beside it.
    pub(crate) fn marked(
        &self,
        place: &Place<'_>,
        above_made: Option<&Arc<MadeAgain>>,
        recorded: impl FnOnce() -> Recorded,
        lock_beside: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Marked {
        let Place { dir, relative, mode, filter } = *place;
        // The tracked path itself is never left out.
        if !matches!(mode, Mode::Filtered | Mode::Ignored)
            || !filter.leaves_out_rebuildable()
            || relative.is_empty()
        {
            return Marked::Nothing;
        }
        if let Some(made) = above_made {
            return Marked::InPart(Arc::clone(made));
        }
        let (_, name) = byte_path::split(relative);
        let is_ignored = mode == Mode::Ignored;
        let coverage = coverage_among(dir, name, &self.names, is_ignored, lock_beside);
        let Some(coverage) = coverage else { return Marked::Nothing };
        match (recorded(), coverage.is_whole) {
            // The mark came later, with lists that may name what was recorded.
            (Recorded::Plainly, _) => Marked::Nothing,
            (Recorded::No, _) if coverage.is_all() => Marked::Whole(coverage.mark),
            (_, true) => Marked::Nothing,
            (_, false) => Marked::InPart(Arc::new(MadeAgain { coverage, base: relative.into() })),
        }
    }
}

/// An open directory, and how its entries are judged.
pub(crate) struct Place<'a> {
    pub(crate) dir: &'a Dir,
    /// Below the tracked path.
    pub(crate) relative: &'a [u8],
    pub(crate) mode: Mode,
    pub(crate) filter: &'a Filter,
}

/// The effect of a maker's mark on a directory.
#[derive(Debug)]
pub(crate) enum Marked {
    /// None.
    Nothing,
    /// The directory is left out, but for what is kept of it.
    Whole(&'static str),
    /// The entries of its maker are left out, and the others are recorded.
    InPart(Arc<MadeAgain>),
}

impl Marked {
    /// How the entries are judged, and the mark that covers a part of them.
    pub(crate) fn inside(self, relative: &[u8], mode: Mode) -> (Mode, Option<Arc<MadeAgain>>) {
        match self {
            Self::Nothing => (mode, None),
            Self::Whole(_) => (Mode::made_again(relative), None),
            Self::InPart(made) => (mode, Some(made)),
        }
    }
}

const MARK_RULE: [&str; 2] = ["its maker's mark (", ")"];

/// The name of the rule for a directory with a mark.
pub(crate) fn rule_of_mark(mark: &str) -> String {
    let [before, behind] = MARK_RULE;
    format!("{before}{mark}{behind}")
}

/// The mark in the name of a rule, if the rule is about one.
pub fn mark_in(rule: &str) -> Option<&str> {
    rule.strip_prefix(MARK_RULE[0])?.strip_suffix(MARK_RULE[1])
}
