//! Which paths of a tracked path are left out, as configured and as compiled.
//!
//! Decisions are made from the top down, so a pattern only has to match the *end* of a path: the
//! walk does not enter an excluded directory, unless something below may be force-included. The
//! text of a pattern with a `/` in it matches anywhere in the path.
//! Its own slashes can only be slashes of the path, so its first component is the end of one, its
//! last the beginning of one, and those between are whole. Nothing that merely has the right name
//! is looked for in a pruned directory: there a force-include pattern counts only where it names
//! the way through that directory, so `.env` opens no `node_modules`, and `node_modules/mine` opens
//! one.

mod config;
mod pattern;
#[cfg(test)]
mod tests;
mod tied;

use globset::{Glob, GlobSet, GlobSetBuilder};

pub use self::config::ExclusionConfig;
pub use self::pattern::InvalidPattern;
use self::pattern::{Pattern, invalid};
pub use self::tied::{ABSOLUTE, pattern_of_path};
use super::git_dir::GitDirectories;
use super::ignore_files::Ignores;
use super::ignored::Ignored;
use crate::byte_path;
use crate::path_text::to_path;
use crate::sys::Stat;

/// The filter's verdict on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Part of the snapshot.
    Included,
    /// Part of the snapshot whatever else says, and so is everything below.
    Forced,
    /// Left out by the configuration.
    Excluded(String),
    /// Left out by a `.gitignore`, which the supervised command can edit: a path that an earlier
    /// snapshot holds stays in, as in git.
    Ignored(String),
    /// Maybe ignored: there is a `.gitignore` that cannot be read. So it is neither recorded nor
    /// known not to be there.
    Unknown(String),
}

/// A compiled [`ExclusionConfig`].
#[derive(Debug, Clone)]
pub struct Filter {
    use_gitignore: bool,
    ignored: Ignored,
    rebuildable: bool,
    patterns: Vec<Pattern>,
    globs: GlobSet,
    glob_texts: Vec<String>,
    forced: Vec<Pattern>,
    pruned: Vec<Pattern>,
    git_directories: GitDirectories,
    own: Vec<(u64, u64)>,
}

impl Filter {
    /// Compiles a configuration.
    ///
    /// # Errors
    /// The first pattern or glob that is not valid.
    pub fn new(config: &ExclusionConfig) -> Result<Self, InvalidPattern> {
        let compile = |what, list: &[String]| {
            list.iter().map(|text| Pattern::new(what, text)).collect::<Result<Vec<_>, _>>()
        };
        let mut globs = GlobSetBuilder::new();
        for text in &config.exclude_globs {
            // `**/` is above a name, too.
            if text.trim_start_matches("**/").contains('/') {
                let reason = "a glob is about names, and this one has a /: give it as a pattern";
                return Err(invalid("exclude glob", text, reason));
            }
            globs.add(Glob::new(text).map_err(|error| invalid("exclude glob", text, error))?);
        }
        Ok(Self {
            use_gitignore: config.use_gitignore,
            ignored: config.ignored,
            rebuildable: config.rebuildable,
            patterns: compile("exclude pattern", &config.exclude_patterns)?,
            globs: globs.build().map_err(|error| invalid("exclude glob", "", error))?,
            glob_texts: config.exclude_globs.clone(),
            forced: compile("force-include pattern", &config.force_include)?,
            pruned: compile("prune pattern", &config.prune_patterns)?,
            git_directories: config.git_directories,
            own: Vec::new(),
        })
    }

    /// Leaves out these directories, too, whatever else says: device and inode of each. They are
    /// nono's own, which would record themselves.
    #[must_use]
    pub(crate) fn without(self, own: &[(u64, u64)]) -> Self {
        Self { own: own.to_owned(), ..self }
    }

    /// Whether a directory is one of nono's own.
    pub(super) fn is_own(&self, stat: &Stat) -> bool {
        self.own.contains(&(stat.dev, stat.ino))
    }

    /// Whether `.gitignore` files are read at all.
    pub fn uses_gitignore(&self) -> bool {
        self.use_gitignore && self.ignored != Ignored::All
    }

    /// The treatment of git directories.
    pub fn git_directories(&self) -> GitDirectories {
        self.git_directories
    }

    /// The ignored paths that are recorded.
    pub(super) fn ignored(&self) -> Ignored {
        self.ignored
    }

    /// Whether what is proved to be made again is left out.
    pub(crate) fn leaves_out_rebuildable(&self) -> bool {
        self.rebuildable
    }

    /// Whether something below this excluded directory may be force-included. `pruned` is the index
    /// of the component of the path that is pruned for another reason than its name.
    pub fn may_force_below(&self, relative: &[u8], pruned: Option<usize>) -> bool {
        if self.forced.is_empty() {
            return false;
        }
        let parts: Vec<&[u8]> = byte_path::components(relative).collect();
        let pruned = self.first_pruned(relative).into_iter().chain(pruned).min();
        self.forced.iter().any(|pattern| pattern.leads_below(&parts, pruned))
    }

    /// Judges one path, given relative to the tracked path, whose parents are not left out.
    pub fn judge(&self, relative: &[u8], is_dir: bool, ignores: Option<&Ignores>) -> Verdict {
        if self.is_forced_itself(relative, is_dir) {
            return Verdict::Forced;
        }
        let mut excluding = self.pruned.iter().filter(|_| is_dir).chain(&self.patterns);
        if let Some(pattern) = excluding.find(|pattern| pattern.ends(relative, is_dir)) {
            return Verdict::Excluded(format!("pattern {}", pattern.text));
        }
        let (_, name) = byte_path::split(relative);
        if !is_dir && let Some(index) = self.globs.matches(to_path(name)).first() {
            return Verdict::Excluded(format!("glob {}", self.glob_texts[*index]));
        }
        ignores.map_or(Verdict::Included, |ignores| ignores.judge(relative, is_dir))
    }

    /// Whether a force-include pattern names this very path, whose parents are not left out.
    fn is_forced_itself(&self, relative: &[u8], is_dir: bool) -> bool {
        self.forced.iter().any(|pattern| pattern.ends(relative, is_dir))
    }

    /// Whether this path or a directory above it is force-included. `pruned` as for
    /// [`may_force_below`](Self::may_force_below).
    pub fn is_forced(&self, relative: &[u8], is_dir: bool, pruned: Option<usize>) -> bool {
        if self.forced.is_empty() {
            return false;
        }
        let dirs = byte_path::ancestors(relative).map(|dir| (dir, true));
        let (also, mut pruned) = (pruned, None);
        for (depth, (path, is_dir)) in dirs.chain([(relative, is_dir)]).enumerate() {
            let is_named = |pattern: &Pattern| {
                pattern.ends(path, is_dir)
                    && pruned.is_none_or(|pruned| pattern.first_part(depth + 1) <= pruned)
            };
            if self.forced.iter().any(is_named) {
                return true;
            }
            let is_pruned = || also == Some(depth) || self.is_pruned_itself(path);
            if is_dir && pruned.is_none() && is_pruned() {
                pruned = Some(depth);
            }
        }
        false
    }

    fn is_pruned_itself(&self, relative: &[u8]) -> bool {
        self.pruned.iter().any(|pattern| pattern.ends(relative, true))
    }

    /// Index of the first component of a directory's path at which a pruned one is reached.
    fn first_pruned(&self, relative: &[u8]) -> Option<usize> {
        let dirs = byte_path::ancestors(relative).chain([relative]);
        dirs.enumerate().find(|(_, dir)| self.is_pruned_itself(dir)).map(|(depth, _)| depth)
    }
}
