//! `.gitignore` files, nested: the deepest one that has an opinion decides.
//!
//! Each state has its own files: those on the disk, and those that were there when the session
//! began. A path is judged by either or by both, as [`Ignores`] says. A recorded rule for a
//! directory also holds for what is in it, so that `logs/` ignores `logs/x` after a user has
//! written `logs/*` instead.

mod rules;
mod wildmatch;

use std::io;
use std::sync::Arc;

use self::rules::{Rules, Said};
use super::exclusion::Verdict;
use crate::byte_path;
use crate::path_text::Shown;
use crate::sys::{self, Dir, FileKind};

/// Name of the files that are read.
pub const IGNORE_FILE: &[u8] = b".gitignore";
/// A larger `.gitignore` is not read; more is captured then, never less.
pub const MAX_IGNORE_BYTES: u64 = 1 << 20;

/// The ignore file of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IgnoreFile {
    /// Its bytes.
    Read(Vec<u8>),
    /// There is one, and this is why its rules are not known.
    Unreadable(String),
}

impl IgnoreFile {
    /// Reads the `.gitignore` of a directory. A file that is not regular (git does not follow a
    /// symlink either) or too large does not count.
    pub fn of(dir: &Dir) -> Option<Self> {
        match dir.read(IGNORE_FILE, MAX_IGNORE_BYTES) {
            Ok(bytes) => Some(Self::Read(bytes)),
            // Most directories have none, and are not asked twice.
            Err(error) if error.is_gone() || !has_rules(dir) => None,
            Err(error) => Some(Self::Unreadable(error.to_string())),
        }
    }
}

/// The rules of one directory, and through `parent` those above it.
#[derive(Debug)]
struct IgnoreLevel {
    /// Directory of the file, relative to the tracked path; empty at the top.
    base: Box<[u8]>,
    /// Or why they are not known.
    rules: Result<Rules, String>,
    parent: Chain,
}

/// The ignore files of one state that count in a directory; `None` when there are none.
type Chain = Option<Arc<IgnoreLevel>>;

/// Adds the ignore file of a directory to those above it. One that cannot be read makes everything
/// below unknown of which no deeper file says something.
fn descend(above: &Chain, relative: &[u8], file: Option<&IgnoreFile>) -> Chain {
    let rules = match file {
        None => return above.clone(),
        Some(IgnoreFile::Unreadable(error)) => Err(error.clone()),
        Some(IgnoreFile::Read(bytes)) => {
            let rules = Rules::parse(bytes);
            if rules.is_empty() {
                return above.clone();
            }
            Ok(rules)
        }
    };
    Some(Arc::new(IgnoreLevel { base: relative.into(), rules, parent: above.clone() }))
}

fn is_same(a: &Chain, b: &Chain) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

/// The verdict of the rules above a path that name it; `None` when no rule does.
fn opinion(chain: &Chain, relative: &[u8], is_dir: bool) -> Option<Verdict> {
    let mut level = chain.as_deref();
    while let Some(current) = level {
        level = current.parent.as_deref();
        let inner = match current.base.len() {
            0 => relative,
            // The rules of a directory say nothing of the directory itself.
            len if len >= relative.len() => continue,
            len => &relative[len + 1..],
        };
        let rules = match &current.rules {
            Ok(rules) => rules,
            Err(error) => {
                return Some(Verdict::Unknown(format!("it may be ignored: {error}")));
            }
        };
        match rules.say(inner, is_dir) {
            None => {}
            Some(Said::Included) => return Some(Verdict::Included),
            Some(Said::Ignored(line)) => {
                let slash = if current.base.is_empty() { "" } else { "/" };
                let base = Shown::bytes(&current.base);
                let rule = String::from_utf8_lossy(line);
                return Some(Verdict::Ignored(format!("{base}{slash}.gitignore: {rule}")));
            }
        }
    }
    None
}

/// As [`opinion`]; without a rule that names the path, what the nearest directory above it is.
fn opinion_from_above(chain: &Chain, relative: &[u8], is_dir: bool) -> Option<Verdict> {
    opinion(chain, relative, is_dir).or_else(|| {
        let mut above = byte_path::ancestors(relative).rev();
        above.find_map(|dir| opinion(chain, dir, true))
    })
}

/// The ignore files that count in a directory. The command that is recorded can write such files,
/// so those of the session's baseline have the last word.
#[derive(Debug, Clone)]
pub struct Ignores(Says);

#[derive(Debug, Clone)]
enum Says {
    OnDisk(Chain),
    Both { on_disk: Chain, recorded: Chain },
    Recorded { recorded: Chain, is_below_ignored: bool },
}

impl Ignores {
    /// The files on the disk count: for a first snapshot.
    pub const ON_DISK: Self = Self(Says::OnDisk(None));
    /// A path is ignored if the recorded files ignore it and those on the disk do: for a snapshot
    /// that follows.
    pub const BOTH: Self = Self(Says::Both { on_disk: None, recorded: None });
    /// The recorded files alone count, so that the answer is the same before and after ignore files
    /// are restored.
    pub const RECORDED: Self = Self(Says::Recorded { recorded: None, is_below_ignored: false });

    /// Whether the ignore files on the disk count.
    pub fn reads_disk(&self) -> bool {
        !matches!(self.0, Says::Recorded { .. })
    }

    /// The rules in a directory (relative to the tracked path) with these ignore files.
    #[must_use]
    pub fn enter(
        &self,
        relative: &[u8],
        on_disk: Option<&IgnoreFile>,
        recorded: Option<&IgnoreFile>,
    ) -> Self {
        Self(match &self.0 {
            Says::OnDisk(above) => Says::OnDisk(descend(above, relative, on_disk)),
            Says::Both { on_disk: now, recorded: then } => {
                // Compiled once where nothing was edited.
                let is_unchanged = is_same(now, then) && on_disk == recorded;
                let now = descend(now, relative, on_disk);
                let then =
                    if is_unchanged { now.clone() } else { descend(then, relative, recorded) };
                Says::Both { on_disk: now, recorded: then }
            }
            Says::Recorded { recorded: then, is_below_ignored } => Says::Recorded {
                recorded: descend(then, relative, recorded),
                is_below_ignored: *is_below_ignored,
            },
        })
    }

    /// The rules that a directory below inherits. `is_ignored`: it is part of the snapshot although
    /// a rule names it.
    #[must_use]
    pub fn inherited(&self, is_ignored: bool) -> Self {
        let mut inherited = self.clone();
        if let Says::Recorded { is_below_ignored, .. } = &mut inherited.0 {
            *is_below_ignored |= is_ignored;
        }
        inherited
    }

    /// The verdict of the rules on a path (relative to the tracked path).
    pub(super) fn judge(&self, relative: &[u8], is_dir: bool) -> Verdict {
        let verdict = match &self.0 {
            Says::OnDisk(chain) => opinion(chain, relative, is_dir),
            Says::Both { on_disk, recorded } => match opinion(on_disk, relative, is_dir) {
                None | Some(Verdict::Included) => None,
                // The recorded rules say at least the same.
                ignored if is_same(on_disk, recorded) => ignored,
                ignored => opinion_from_above(recorded, relative, is_dir)
                    .and_then(|then| if then == Verdict::Included { None } else { ignored }),
            },
            Says::Recorded { recorded, is_below_ignored: true } => {
                opinion_from_above(recorded, relative, is_dir)
            }
            Says::Recorded { recorded, is_below_ignored: false } => {
                opinion(recorded, relative, is_dir)
            }
        };
        verdict.unwrap_or(Verdict::Included)
    }
}

/// Whether there is an ignore file that counts, read or not.
fn has_rules(dir: &Dir) -> bool {
    let counts = |stat: &sys::Stat| stat.kind == FileKind::File && stat.size <= MAX_IGNORE_BYTES;
    dir.try_stat(IGNORE_FILE).map_or(true, |stat| stat.is_some_and(|stat| counts(&stat)))
}

/// Whether an error means that a directory's list ended early because it is being removed.
pub(super) fn is_vanishing(error: &crate::sys::Error) -> bool {
    error.is_gone() || error.kind() == io::ErrorKind::StaleNetworkFileHandle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(rules: &str) -> IgnoreFile {
        IgnoreFile::Read(rules.as_bytes().to_vec())
    }

    fn is_in(ignores: &Ignores, path: &str) -> bool {
        ignores.judge(path.as_bytes(), false) == Verdict::Included
    }

    #[test]
    fn a_path_is_ignored_only_where_both_states_say_so() {
        let top = Ignores::BOTH.enter(b"", Some(&file("*")), Some(&file("*.log\n!keep.log")));
        assert!(is_in(&top, "x") && is_in(&top, "keep.log") && !is_in(&top, "x.log"));
        let inside = top.enter(b"a", None, Some(&file("x")));
        assert!(!is_in(&inside, "a/x") && !is_in(&inside, "a/y.log") && is_in(&inside, "a/y"));
        // Rules that are gone from the disk ignore nothing.
        let top = Ignores::BOTH.enter(b"", None, Some(&file("*")));
        assert!(is_in(&top, "x"));
        // And those that were not there at the beginning do not, either.
        let top = Ignores::BOTH.enter(b"", Some(&file("*")), None);
        assert!(is_in(&top, "x"));
    }

    #[test]
    fn a_recorded_rule_for_a_directory_holds_for_what_is_in_it() {
        let top = Ignores::BOTH.enter(b"", Some(&file("logs/*\n")), Some(&file("logs/\n!/a/logs")));
        let inside = top.enter(b"logs", None, None);
        assert!(!is_in(&inside, "logs/x") && is_in(&inside, "x") && is_in(&inside, "a/logs/x"));
        // A rule says nothing of the directory in which it stands.
        let dir = Ignores::RECORDED.enter(b"logs", None, Some(&file("*"))).inherited(true);
        assert!(!is_in(&dir, "logs/x") && is_in(&dir, "logs"));
    }

    #[test]
    fn recorded_rules_alone_take_a_directory_that_is_known_for_what_it_is() {
        let top = Ignores::RECORDED.enter(b"", Some(&file("*")), Some(&file("logs/")));
        assert!(is_in(&top, "x"));
        for (is_ignored, is_inside) in [(false, true), (true, false)] {
            let inside = top.inherited(is_ignored).enter(b"logs", Some(&file("*")), None);
            assert_eq!(is_in(&inside, "logs/x"), is_inside);
        }
    }

    #[test]
    fn rules_that_cannot_be_read_make_unknown_only_what_the_baseline_may_ignore() {
        let unreadable = IgnoreFile::Unreadable("denied".to_owned());
        let unknown = Verdict::Unknown("it may be ignored: denied".to_owned());
        let judge = |ignores: &Ignores, path: &str| ignores.judge(path.as_bytes(), false);
        let first = Ignores::ON_DISK.enter(b"", Some(&unreadable), None);
        assert_eq!(judge(&first, "x"), unknown);
        let later = Ignores::BOTH.enter(b"", Some(&unreadable), Some(&file("*.log")));
        assert_eq!(judge(&later, "x"), Verdict::Included);
        assert_eq!(judge(&later, "x.log"), unknown);
        let never = Ignores::BOTH.enter(b"", Some(&unreadable), Some(&unreadable));
        assert_eq!(judge(&never, "x"), unknown);
        let by_now = Ignores::BOTH.enter(b"", Some(&file("*.log")), Some(&unreadable));
        assert_eq!(judge(&by_now, "x"), Verdict::Included);
        assert!(matches!(judge(&by_now, "x.log"), Verdict::Ignored(_)));
    }
}
