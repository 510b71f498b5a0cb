//! One directory, filtered: the step that every walk is made of.

use super::exclusion::{Filter, Verdict};
use super::git_dir::{BEYOND_GIT_LIMIT, DOT_GIT, OBJECT_DIRS, mode_inside};
use super::git_index::{Repository, Tracks};
use super::ignore_files::{IGNORE_FILE, IgnoreFile, Ignores, is_vanishing};
use super::ignored::{Databases, Ignored, LARGE_FILE, SMALL_FILE_BYTES, Size, size_of};
use super::rebuildable::{PACKAGE_BESIDE, mark_among, mark_of, well_known};
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
    /// The directory is ignored, and recorded because it is small or known: its large files are not in.
    Ignored,
    /// The directory is ignored or made again: only what is force-included, what git tracks and what an
    /// earlier snapshot holds is in.
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
    /// Its attributes when it was listed, if it could be looked at and a change of it is worth a word.
    pub stat: Option<Stat>,
    /// Why.
    pub why: WhyLeftOut,
}

/// Why an entry is not part of the snapshot.
#[derive(Debug)]
pub enum WhyLeftOut {
    /// The named rule excludes it.
    Excluded(String),
    /// It is a directory that a program makes again. `mark` is what proves it; without one, git's rules do.
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

fn is_staging(name: &[u8]) -> bool {
    name.strip_prefix(STAGING_PREFIX)
        .is_some_and(|rest| rest.len() == 16 && rest.iter().all(u8::is_ascii_hexdigit))
}

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

/// The verdicts on some names of a directory.
#[derive(Debug)]
pub(crate) struct Judged {
    /// The entries in the snapshot, sorted by name.
    pub(crate) entries: Vec<FoundEntry>,
    /// The left-out entries, sorted by name.
    pub(crate) left_out: Vec<LeftOut>,
    /// The entries that are left out because the directory is, sorted by name.
    pub(crate) passed_over: Vec<(Box<[u8]>, Stat)>,
}

/// Lists `dir`, which lies at `relative` below the tracked path, and judges every entry. `above` are the
/// ignore files on the disk above it, `repository` is that of the directory above it. Nothing is known of
/// earlier snapshots.
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
    let listed = names(dir, mode, filter, true)?;
    let mode = mode_inside(dir, relative, &listed, mode, filter);
    let repository = listed.repository(dir, relative, repository);
    let mark = listed.mark(dir, relative, mode, filter, |_| Known::No, || has_package(dir));
    let mode = if mark.is_some() { Mode::made_again(relative) } else { mode };
    let Names { names, ignore_file, databases } = listed;
    let ignores = &above.enter(relative, ignore_file.as_ref(), None);
    let (databases, of) = (&databases, &repository);
    let inside = Inside { dir, relative, mode, filter, ignores, repository: of, databases };
    let Judged { entries, left_out, .. } = inside.judge(names, |_| Known::No);
    Ok(Listing { entries, left_out, ignores: ignores.clone(), repository })
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

    /// The mark that proves that the directory is made again, if that matters: its contents are then
    /// judged as [`Mode::OnlyKept`]. `known` tells what earlier snapshots hold of the directory,
    /// `has_package` whether the file counts that may lie beside it.
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

/// Whether there may be something below a directory that is recorded though the directory is not: it is
/// force-included, or git tracks it.
pub(crate) fn keeps_below(
    filter: &Filter,
    repository: &Repository,
    path: &[u8],
    mode: Mode,
) -> bool {
    let pruned = if let Mode::OnlyKept { pruned } = mode { pruned } else { None };
    filter.may_force_below(path, pruned) || repository.tracks(path) != Tracks::Nothing
}

/// A directory whose entries are judged, and what counts in it.
pub(crate) struct Inside<'a> {
    pub(crate) dir: &'a Dir,
    /// Below the tracked path.
    pub(crate) relative: &'a [u8],
    pub(crate) mode: Mode,
    pub(crate) filter: &'a Filter,
    pub(crate) ignores: &'a Ignores,
    pub(crate) repository: &'a Repository,
    pub(crate) databases: &'a Databases,
}

/// The verdict on an entry.
enum Fate {
    In {
        mode: Mode,
        is_ignored: bool,
    },
    Out(WhyLeftOut),
    /// Left out, and how what is in it is judged, if it is a directory with something that is not.
    OutBut(WhyLeftOut, Mode),
    PassedOver,
}

const IN: Fate = Fate::In { mode: Mode::Filtered, is_ignored: false };

impl Inside<'_> {
    /// The second half of [`list`], for some of the names: their verdicts. `known` tells the part
    /// of an entry of this directory that earlier snapshots hold.
    pub(crate) fn judge(&self, names: Vec<ListedName>, known: impl Fn(&[u8]) -> Known) -> Judged {
        let mut judged = Judged {
            entries: Vec::with_capacity(names.len()),
            left_out: Vec::new(),
            passed_over: Vec::new(),
        };
        let mut path = self.relative.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        let base_len = path.len();
        for ListedName { name, .. } in names {
            path.truncate(base_len);
            path.extend_from_slice(&name);
            let stat = match self.dir.stat(&name) {
                Ok(stat) => stat,
                // Removed since it was listed: it is simply not there.
                Err(error) if is_vanishing(&error) => continue,
                Err(_) if self.mode.is_partial() => continue,
                Err(error) => {
                    let why = WhyLeftOut::Unreadable(error.to_string());
                    judged.left_out.push(LeftOut { name, stat: None, why });
                    continue;
                }
            };
            let (why, mode) = match self.fate(&path, &name, &stat, &known) {
                Fate::In { mode, is_ignored } => {
                    judged.entries.push(FoundEntry { name, stat, mode, is_ignored });
                    continue;
                }
                Fate::PassedOver => {
                    judged.passed_over.push((name, stat));
                    continue;
                }
                Fate::Out(why) => (why, None),
                Fate::OutBut(why, mode) => (why, Some(mode)),
            };
            if let Some(mode) = mode {
                let name = name.clone();
                judged.entries.push(FoundEntry { name, stat, mode, is_ignored: false });
            }
            judged.left_out.push(LeftOut { name, stat: Some(stat), why });
        }
        judged
    }

    fn fate(&self, path: &[u8], name: &[u8], stat: &Stat, known: &impl Fn(&[u8]) -> Known) -> Fate {
        let is_dir = stat.kind == FileKind::Directory;
        if is_dir && is_staging(name) && !self.mode.is_partial() {
            // Said, and not silently passed over: anybody can make a directory of this name.
            let rule = "nono's own: what a restore is working on, or left behind".to_owned();
            return Fate::Out(WhyLeftOut::Excluded(rule));
        }
        let ignores = match self.mode {
            Mode::Forced => return Fate::In { mode: Mode::Forced, is_ignored: false },
            Mode::GitBeyondLimit
                if is_dir
                    && OBJECT_DIRS.contains(&name)
                    && !self.filter.is_forced(path, true, None)
                    && known(name) == Known::No =>
            {
                return Fate::Out(WhyLeftOut::Excluded(BEYOND_GIT_LIMIT.to_owned()));
            }
            Mode::Git | Mode::GitBeyondLimit => {
                return Fate::In { mode: Mode::Git, is_ignored: false };
            }
            Mode::OnlyForced => return self.fate_in_partial(path, name, is_dir, None, known),
            Mode::OnlyKept { pruned } => {
                return self.fate_in_partial(path, name, is_dir, pruned, known);
            }
            Mode::Filtered => Some(self.ignores),
            Mode::Ignored => None,
        };
        match self.filter.judge(path, is_dir, ignores) {
            Verdict::Forced => Fate::In { mode: Mode::Forced, is_ignored: false },
            Verdict::Excluded(rule) => {
                let why = WhyLeftOut::Excluded(rule);
                match is_dir && self.filter.may_force_below(path, None) {
                    true => Fate::OutBut(why, Mode::OnlyForced),
                    false => Fate::Out(why),
                }
            }
            Verdict::Included if self.mode == Mode::Ignored => {
                self.fate_in_ignored(path, name, stat, known)
            }
            Verdict::Included => IN,
            // git's rules say nothing of where git keeps the repository.
            Verdict::Ignored(_) | Verdict::Unknown(_) if name == DOT_GIT => IN,
            Verdict::Ignored(rule) => {
                let why = |size: &str| WhyLeftOut::Excluded(format!("{rule}{size}"));
                self.fate_of_ignored(path, name, stat, known, &why)
            }
            Verdict::Unknown(reason) => {
                let why = |_: &str| WhyLeftOut::Unreadable(reason.clone());
                self.fate_of_ignored(path, name, stat, known, &why)
            }
        }
    }

    /// The verdict on an ignored entry. `why` names the rule, and the size that is too large.
    fn fate_of_ignored(
        &self,
        path: &[u8],
        name: &[u8],
        stat: &Stat,
        known: &impl Fn(&[u8]) -> Known,
        why: &dyn Fn(&str) -> WhyLeftOut,
    ) -> Fate {
        let is_small_wanted = self.filter.ignored() == Ignored::Small;
        let known_itself = known(name);
        if known_itself == Known::Whole {
            let mode = if is_small_wanted { Mode::Ignored } else { Mode::Filtered };
            return Fate::In { mode, is_ignored: true };
        }
        if stat.kind != FileKind::Directory {
            let is_in = self.repository.tracks(path) == Tracks::Itself
                || is_small_wanted && self.is_small_or_with_its_database(path, name, stat, known);
            let size = if is_small_wanted && stat.kind == FileKind::File { LARGE_FILE } else { "" };
            return if is_in { IN } else { Fate::Out(why(size)) };
        }
        let mut size = "";
        let mark = self.filter.leaves_out_rebuildable().then(|| mark_of(self.dir, name)).flatten();
        let why = if let Some(mark) = mark {
            WhyLeftOut::Rebuildable { rule: rule_of_mark(mark), mark: Some(mark) }
        } else {
            let named = well_known(name).filter(|_| self.filter.leaves_out_rebuildable());
            let found = (is_small_wanted || named.is_some())
                .then(|| size_of(self.dir, name, stat))
                .filter(|found| is_small_wanted || *found != Size::Small);
            if found == Some(Size::Small) {
                return Fate::In { mode: Mode::Ignored, is_ignored: true };
            }
            if let Some(found) = found {
                size = found.reason();
            }
            match (why(size), named, found) {
                (
                    WhyLeftOut::Excluded(rule),
                    Some(_),
                    Some(Size::ManyEntries | Size::ManyBytes),
                ) => WhyLeftOut::Rebuildable { rule, mark: None },
                (why, _, _) => why,
            }
        };
        let mode = match why {
            WhyLeftOut::Rebuildable { .. } => Mode::made_again(path),
            _ => Mode::OnlyKept { pruned: None },
        };
        if known_itself == Known::Partly || self.keeps_below(path, mode) {
            return Fate::OutBut(why, mode);
        }
        Fate::Out(why)
    }

    /// In an ignored directory that is recorded.
    fn fate_in_ignored(
        &self,
        path: &[u8],
        name: &[u8],
        stat: &Stat,
        known: &impl Fn(&[u8]) -> Known,
    ) -> Fate {
        let is_in = stat.kind == FileKind::Directory
            || self.is_small_or_with_its_database(path, name, stat, known)
            || known(name) == Known::Whole
            || self.repository.tracks(path) == Tracks::Itself;
        if is_in {
            return Fate::In { mode: Mode::Ignored, is_ignored: true };
        }
        let size = if stat.kind == FileKind::File { LARGE_FILE } else { "" };
        Fate::Out(WhyLeftOut::Excluded(format!("a rule for a directory above{size}")))
    }

    /// In a directory that is left out.
    fn fate_in_partial(
        &self,
        path: &[u8],
        name: &[u8],
        is_dir: bool,
        pruned: Option<usize>,
        known: &impl Fn(&[u8]) -> Known,
    ) -> Fate {
        if self.filter.is_forced(path, is_dir, pruned) {
            return Fate::In { mode: Mode::Forced, is_ignored: false };
        }
        let is_kept = match (self.mode, is_dir) {
            (Mode::OnlyForced, true) => self.filter.may_force_below(path, None),
            (Mode::OnlyForced, false) => false,
            (mode, true) => known(name) != Known::No || self.keeps_below(path, mode),
            (_, false) => {
                known(name) != Known::No || self.repository.tracks(path) == Tracks::Itself
            }
        };
        let mode = self.mode;
        if is_kept { Fate::In { mode, is_ignored: false } } else { Fate::PassedOver }
    }

    fn keeps_below(&self, path: &[u8], mode: Mode) -> bool {
        keeps_below(self.filter, self.repository, path, mode)
    }

    /// Whether something else than a directory is small. A database and its journals are judged as one:
    /// they are in if one of them is in for another reason.
    fn is_small_or_with_its_database(
        &self,
        path: &[u8],
        name: &[u8],
        stat: &Stat,
        known: &impl Fn(&[u8]) -> Known,
    ) -> bool {
        match stat.kind {
            FileKind::File => {}
            FileKind::Symlink | FileKind::Fifo => return true,
            // They cannot be made again.
            _ => return false,
        }
        let Some((main, bytes)) = self.databases.whole(name) else {
            return stat.size <= SMALL_FILE_BYTES;
        };
        if bytes <= SMALL_FILE_BYTES {
            return true;
        }
        let above = &path[..path.len() - name.len()];
        Databases::files(main).any(|file| {
            let path = [above, &file].concat();
            let is_ignored = self.mode == Mode::Ignored
                || matches!(
                    self.filter.judge(&path, false, Some(self.ignores)),
                    Verdict::Ignored(_) | Verdict::Unknown(_)
                );
            let is_there = || self.dir.try_stat(&file).is_ok_and(|stat| stat.is_some());
            known(&file) == Known::Whole
                || self.repository.tracks(&path) == Tracks::Itself
                || file == main && !is_ignored && is_there()
        })
    }
}
