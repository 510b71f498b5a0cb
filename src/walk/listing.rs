//! One directory, filtered: the step that every walk is made of.

use super::exclusion::{Filter, Verdict};
use super::git_dir::{BEYOND_GIT_LIMIT, DOT_GIT, GitDirectories, OBJECT_DIRS, mode_inside};
use super::ignore_files::{IGNORE_FILE, IgnoreFile, Ignores, is_vanishing};
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
    /// All are in: it is a git directory, or in one.
    Git,
    /// It is a git directory with too many bytes of objects: all else is in.
    GitBeyondLimit,
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
    /// Why.
    pub why: WhyLeftOut,
}

/// Why an entry is not part of the snapshot.
#[derive(Debug)]
pub enum WhyLeftOut {
    /// The named rule excludes it.
    Excluded(String),
    /// It could not be looked at, or a `.gitignore` that may name it could not be read.
    Unreadable(String),
}

/// What a directory holds.
#[derive(Debug)]
pub struct Listing {
    /// What is part of the snapshot, sorted by name.
    pub entries: Vec<FoundEntry>,
    /// What is not, sorted by name.
    pub left_out: Vec<LeftOut>,
    /// Rules for the directories below.
    pub ignores: Ignores,
}

/// What the names of directories begin with in which a restore makes things ready; 16 hexadecimal
/// digits follow.
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
}

/// What some names of a directory are.
#[derive(Debug)]
pub(crate) struct Judged {
    /// What is part of the snapshot, sorted by name.
    pub(crate) entries: Vec<FoundEntry>,
    /// What is not, sorted by name.
    pub(crate) left_out: Vec<LeftOut>,
}

/// Lists `dir`, which lies at `relative` below the tracked path, and judges every entry. `above` are the
/// ignore files on the disk above it. `is_known` says whether an earlier snapshot holds an entry of this
/// directory.
///
/// # Errors
/// When the directory cannot be listed.
pub fn list(
    dir: &Dir,
    relative: &[u8],
    mode: Mode,
    filter: &Filter,
    above: &Ignores,
    is_known: impl Fn(&[u8]) -> bool,
) -> sys::Result<Listing> {
    let wants_rules = mode == Mode::Filtered && filter.uses_gitignore();
    let names = names(dir, wants_rules)?;
    let mode = mode_inside(dir, relative, &names, mode, filter);
    let Names { names, ignore_file } = names;
    let ignores = above.enter(relative, ignore_file.as_ref(), None);
    let Judged { entries, left_out } =
        judge(dir, relative, mode, filter, &ignores, names, is_known);
    Ok(Listing { entries, left_out, ignores })
}

/// The first half of [`list`]: what there is. `wants_rules`: the ignore file is read, too.
pub(crate) fn names(dir: &Dir, wants_rules: bool) -> sys::Result<Names> {
    let mut names = dir.names()?;
    names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    // A name that is replaced by a rename meanwhile can be listed twice (tmpfs).
    names.dedup_by(|a, b| a.name == b.name);
    let has_ignore_file =
        || names.binary_search_by(|listed| (*listed.name).cmp(IGNORE_FILE)).is_ok();
    let ignore_file = if wants_rules && has_ignore_file() { IgnoreFile::of(dir) } else { None };
    Ok(Names { names, ignore_file })
}

/// The second half, for some of the names: what of it is part of the snapshot.
pub(crate) fn judge(
    dir: &Dir,
    relative: &[u8],
    mode: Mode,
    filter: &Filter,
    ignores: &Ignores,
    names: Vec<ListedName>,
    is_known: impl Fn(&[u8]) -> bool,
) -> Judged {
    let found = |name, stat, mode| FoundEntry { name, stat, mode, is_ignored: false };
    let mut listing = Judged { entries: Vec::with_capacity(names.len()), left_out: Vec::new() };
    let mut path = relative.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    let base_len = path.len();
    for listed in names {
        let name = listed.name;
        path.truncate(base_len);
        path.extend_from_slice(&name);
        // Below an excluded directory nearly nothing is wanted: do not even look at the rest.
        if mode == Mode::OnlyForced
            && listed.kind.is_some_and(|kind| kind != FileKind::Directory)
            && !filter.is_forced(&path, false)
        {
            continue;
        }
        let stat = match dir.stat(&name) {
            Ok(stat) => stat,
            // Removed since it was listed: it is simply not there.
            Err(error) if is_vanishing(&error) => continue,
            Err(error) => {
                let why = WhyLeftOut::Unreadable(error.to_string());
                listing.left_out.push(LeftOut { name, why });
                continue;
            }
        };
        let is_dir = stat.kind == FileKind::Directory;
        if is_dir && is_staging(&name) {
            // Said, and not silently passed over: anybody can make a directory of this name.
            let rule = "nono's own: what a restore is working on, or left behind".to_owned();
            listing.left_out.push(LeftOut { name, why: WhyLeftOut::Excluded(rule) });
            continue;
        }
        let mut is_ignored = false;
        let verdict = match mode {
            Mode::Forced => Verdict::Forced,
            Mode::GitBeyondLimit
                if is_dir
                    && OBJECT_DIRS.contains(&&*name)
                    && !filter.is_forced(&path, true)
                    && !is_known(&name) =>
            {
                Verdict::Excluded(BEYOND_GIT_LIMIT.to_owned())
            }
            Mode::Git | Mode::GitBeyondLimit => {
                listing.entries.push(found(name, stat, Mode::Git));
                continue;
            }
            Mode::Filtered => match filter.judge(&path, is_dir, Some(ignores)) {
                // git never asks whether its own is ignored.
                Verdict::Ignored(_) | Verdict::Unknown(_)
                    if *name == *DOT_GIT
                        && filter.git_directories() != GitDirectories::AsAnyOther =>
                {
                    Verdict::Included
                }
                Verdict::Ignored(_) | Verdict::Unknown(_) if is_known(&name) => {
                    is_ignored = true;
                    Verdict::Included
                }
                verdict => verdict,
            },
            Mode::OnlyForced if filter.is_forced(&path, is_dir) => Verdict::Forced,
            Mode::OnlyForced if is_dir && filter.may_force_below(&path) => {
                listing.entries.push(found(name, stat, Mode::OnlyForced));
                continue;
            }
            Mode::OnlyForced => continue,
        };
        let why = match verdict {
            Verdict::Included => {
                listing.entries.push(FoundEntry { name, stat, mode: Mode::Filtered, is_ignored });
                continue;
            }
            Verdict::Forced => {
                listing.entries.push(found(name, stat, Mode::Forced));
                continue;
            }
            Verdict::Excluded(rule) | Verdict::Ignored(rule) => WhyLeftOut::Excluded(rule),
            Verdict::Unknown(reason) => WhyLeftOut::Unreadable(reason),
        };
        if is_dir && filter.may_force_below(&path) {
            let name = name.clone();
            listing.entries.push(found(name, stat, Mode::OnlyForced));
        }
        listing.left_out.push(LeftOut { name, why });
    }
    listing
}
