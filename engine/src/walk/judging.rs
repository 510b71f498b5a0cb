//! The verdict on each entry of a listed directory: in the snapshot, left out, or passed over.

use super::exclusion::{Filter, Verdict};
use super::git_dir::{BEYOND_GIT_LIMIT, DOT_GIT, OBJECT_DIRS};
use super::git_index::{Repository, Tracks};
use super::ignore_files::{Ignores, is_vanishing};
use super::ignored::{Databases, Ignored, Size, most_bytes, reason_of_file, size_of};
use super::listing::{
    FoundEntry, Known, LeftOut, Mode, Recorded, STAGING_PREFIX, WhyLeftOut, rule_of_mark,
};
use super::rebuildable::{MadeAgain, Part, coverage_of, well_known};
use crate::sys::{Dir, FileKind, ListedName, Stat};

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

/// Whether there may be something below a directory that is recorded though the directory is not:
/// it is force-included, or git tracks it.
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
    /// The mark that covers a part of it.
    pub(crate) made: Option<&'a MadeAgain>,
}

/// The verdict on an entry.
enum Fate {
    In {
        mode: Mode,
        is_ignored: bool,
    },
    /// In the snapshot, and a part of it is its maker's.
    InPart {
        mode: Mode,
        is_ignored: bool,
    },
    Out(WhyLeftOut),
    /// Left out, and how what is in it is judged, if it is a directory with something that is not.
    OutBut(WhyLeftOut, Mode),
    PassedOver,
}

/// The rule for what is left out of an ignored directory that is recorded.
const RULE_ABOVE: &str = "a rule for a directory above";

/// Why something is left out that its maker makes again.
fn made_by(mark: &'static str) -> WhyLeftOut {
    WhyLeftOut::Rebuildable { rule: rule_of_mark(mark), mark: Some(mark) }
}

/// Why the store is left out that a snapshot goes to.
pub const OWN_STORE: &str = "nono's own: the store, which would record itself";

const IN: Fate = Fate::In { mode: Mode::Filtered, is_ignored: false };

impl Inside<'_> {
    /// The second half of `listing::list`, for some of the names: their verdicts. `known` tells the
    /// part of an entry of this directory that earlier snapshots hold, `recorded` the record that
    /// they have of it.
    pub(crate) fn judge(
        &self,
        names: Vec<ListedName>,
        known: impl Fn(&[u8]) -> Known,
        recorded: impl Fn(&[u8]) -> Recorded,
    ) -> Judged {
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
            let fate = self.fate(&path, &name, &stat, &known, &recorded);
            let is_marked = matches!(fate, Fate::InPart { .. });
            let (why, mode) = match fate {
                Fate::In { mode, is_ignored } | Fate::InPart { mode, is_ignored } => {
                    judged.entries.push(FoundEntry { name, stat, mode, is_ignored, is_marked });
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
                let (is_ignored, is_marked) = (false, false);
                judged.entries.push(FoundEntry { name, stat, mode, is_ignored, is_marked });
            }
            judged.left_out.push(LeftOut { name, stat: Some(stat), why });
        }
        judged
    }

    fn fate(
        &self,
        path: &[u8],
        name: &[u8],
        stat: &Stat,
        known: &impl Fn(&[u8]) -> Known,
        recorded: &impl Fn(&[u8]) -> Recorded,
    ) -> Fate {
        let is_dir = stat.kind == FileKind::Directory;
        if is_dir && is_staging(name) && !self.mode.is_partial() {
            // Said, and not silently passed over: any program can make a directory of this name.
            let rule = "nono's own: what a restore is working on, or left behind".to_owned();
            return Fate::Out(WhyLeftOut::Excluded(rule));
        }
        if is_dir && self.filter.is_own(stat) {
            return Fate::Out(WhyLeftOut::Excluded(OWN_STORE.to_owned()));
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
        let verdict = self.filter.judge(path, is_dir, ignores);
        if let Some(made) = self.made
            && !matches!(verdict, Verdict::Forced | Verdict::Excluded(_))
        {
            let is_ignored = self.mode == Mode::Ignored || verdict != Verdict::Included;
            let mode = if is_ignored { Mode::Ignored } else { Mode::Filtered };
            match made.part(path) {
                Part::AboveForeign if is_dir => return Fate::InPart { mode, is_ignored },
                Part::AboveForeign | Part::Covered => {
                    let of = (made.coverage.mark, is_dir);
                    let ordinary =
                        [Fate::In { mode, is_ignored }, Fate::InPart { mode, is_ignored }];
                    return self.fate_of_covered(
                        path,
                        of,
                        known(name),
                        || recorded(name),
                        ordinary,
                    );
                }
                Part::Foreign => {}
            }
        }
        match verdict {
            Verdict::Forced => Fate::In { mode: Mode::Forced, is_ignored: false },
            Verdict::Excluded(rule) => {
                let why = WhyLeftOut::Excluded(rule);
                match is_dir && self.filter.may_force_below(path, None) {
                    true => Fate::OutBut(why, Mode::OnlyForced),
                    false => Fate::Out(why),
                }
            }
            // Its size was not looked at, because a part of it is left out.
            Verdict::Included if self.mode == Mode::Ignored && self.made.is_some() => {
                let why = |size: &str| WhyLeftOut::Excluded(format!("{RULE_ABOVE}{size}"));
                self.fate_of_ignored(path, name, stat, known, recorded, &why)
            }
            Verdict::Included if self.mode == Mode::Ignored => {
                self.fate_in_ignored(path, name, stat, known)
            }
            Verdict::Included => IN,
            // git's rules say nothing of where git keeps the repository.
            Verdict::Ignored(_) | Verdict::Unknown(_) if name == DOT_GIT => IN,
            Verdict::Ignored(rule) => {
                let why = |size: &str| WhyLeftOut::Excluded(format!("{rule}{size}"));
                self.fate_of_ignored(path, name, stat, known, recorded, &why)
            }
            Verdict::Unknown(reason) => {
                let why = |_: &str| WhyLeftOut::Unreadable(reason.clone());
                self.fate_of_ignored(path, name, stat, known, recorded, &why)
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
        recorded: &impl Fn(&[u8]) -> Recorded,
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
            let is_large_file = is_small_wanted && stat.kind == FileKind::File;
            let size = if is_large_file { reason_of_file(name) } else { "" };
            return if is_in { IN } else { Fate::Out(why(size)) };
        }
        let mut size = "";
        let marks = self.filter.leaves_out_rebuildable();
        let coverage = marks.then(|| coverage_of(self.dir, name, true)).flatten();
        let coverage = coverage.filter(|it| !it.is_whole || recorded(name) != Recorded::Plainly);
        let why = if let Some(coverage) = coverage {
            if !coverage.is_all() || recorded(name) == Recorded::Plainly {
                // The list of the directory shows which part is its maker's.
                return Fate::In { mode: Mode::Ignored, is_ignored: true };
            }
            made_by(coverage.mark)
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
        let size = if stat.kind == FileKind::File { reason_of_file(name) } else { "" };
        Fate::Out(WhyLeftOut::Excluded(format!("{RULE_ABOVE}{size}")))
    }

    /// The verdict on what a maker makes in a marked directory. `ordinary` is that on the rest of
    /// the directory, for a plain entry and for a directory in which the mark counts on.
    fn fate_of_covered(
        &self,
        path: &[u8],
        (mark, is_dir): (&'static str, bool),
        known: Known,
        recorded: impl FnOnce() -> Recorded,
        [plain, in_part]: [Fate; 2],
    ) -> Fate {
        if !is_dir {
            let is_in = known == Known::Whole || self.repository.tracks(path) == Tracks::Itself;
            return if is_in { plain } else { Fate::Out(made_by(mark)) };
        }
        match recorded() {
            Recorded::Plainly => return plain,
            Recorded::InPart => return in_part,
            Recorded::No => {}
        }
        let mode = Mode::made_again(path);
        if known == Known::Partly || self.keeps_below(path, mode) {
            return Fate::OutBut(made_by(mark), mode);
        }
        Fate::Out(made_by(mark))
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

    /// Whether something else than a directory is small. A database and its journals are judged as
    /// one: they are in if one of them is in for another reason.
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
            return stat.size <= most_bytes(name);
        };
        if bytes <= most_bytes(main) {
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

fn is_staging(name: &[u8]) -> bool {
    name.strip_prefix(STAGING_PREFIX)
        .is_some_and(|rest| rest.len() == 16 && rest.iter().all(u8::is_ascii_hexdigit))
}
