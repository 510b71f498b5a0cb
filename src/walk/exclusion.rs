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

use globset::{Glob, GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use super::git_dir::GitDirectories;
use super::ignore_files::Ignores;
use super::ignored::Ignored;
use crate::byte_path;
use crate::path_text::to_path;
use crate::sys::Stat;

/// The exclusions of a tracked path. Stored in the manifest, so that a restore uses the very filter
/// of the capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExclusionConfig {
    /// Honour `.gitignore` files below the tracked path, in a git repository or not.
    #[serde(default = "yes")]
    pub use_gitignore: bool,
    /// The ignored paths that are recorded all the same.
    #[serde(default, skip_serializing_if = "Ignored::is_none")]
    pub ignored: Ignored,
    /// Leave out directories that are proved to be made again by a program: they bear its mark, or
    /// git ignores them, their name is a well-known one, and they are not small.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rebuildable: bool,
    /// A name that is a whole path component (`node_modules`), or, with a `/` in it, any part of
    /// the path relative to the tracked path: `src/gen` matches `src/gen`, `src/generated` and
    /// `my-src/gen.rs`. A leading `/` ties it to the top, a trailing `/` to directories of exactly
    /// that name. With `*`, `?`, `[…]` or `{…}`, which work within a component, it is about whole
    /// components.
    #[serde(default)]
    pub exclude_patterns: Vec<String>,
    /// Globs on the names of everything but directories: `*.pyc`.
    #[serde(default)]
    pub exclude_globs: Vec<String>,
    /// Patterns, as above, that beat every exclusion, for themselves and all below.
    #[serde(default)]
    pub force_include: Vec<String>,
    /// Patterns, as above, of directories that are left out and not searched for what is
    /// force-included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prune_patterns: Vec<String>,
    /// The treatment of git directories.
    #[serde(default, skip_serializing_if = "GitDirectories::is_default")]
    pub git_directories: GitDirectories,
}

fn yes() -> bool {
    true
}

impl Default for ExclusionConfig {
    fn default() -> Self {
        Self {
            use_gitignore: true,
            ignored: Ignored::None,
            rebuildable: false,
            exclude_patterns: Vec::new(),
            exclude_globs: Vec::new(),
            force_include: Vec::new(),
            prune_patterns: Vec::new(),
            git_directories: GitDirectories::default(),
        }
    }
}

impl ExclusionConfig {
    /// Leaves nothing out.
    pub fn nothing() -> Self {
        Self { use_gitignore: false, ..Self::default() }
    }
}

/// A pattern or glob that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("invalid {what} {pattern:?}: {reason}")]
pub struct InvalidPattern {
    /// Which list it is from.
    pub what: &'static str,
    /// The pattern as given.
    pub pattern: String,
    /// The defect.
    pub reason: String,
}

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
    pub(super) fn leaves_out_rebuildable(&self) -> bool {
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

fn invalid(what: &'static str, pattern: &str, reason: impl ToString) -> InvalidPattern {
    InvalidPattern { what, pattern: pattern.to_owned(), reason: reason.to_string() }
}

#[derive(Debug, Clone)]
struct Pattern {
    text: String,
    components: Vec<Component>,
    anchored: bool,
    only_dirs: bool,
}

#[derive(Debug, Clone)]
enum Component {
    /// A whole component.
    Literal(Vec<u8>),
    /// The end of one.
    End(Vec<u8>),
    /// The beginning of one.
    Beginning(Vec<u8>),
    Glob(GlobMatcher),
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

impl Pattern {
    fn new(what: &'static str, text: &str) -> Result<Self, InvalidPattern> {
        let inner = text.strip_prefix("./").unwrap_or(text);
        let anchored = inner.starts_with('/') || text.starts_with("./");
        let only_dirs = inner.ends_with('/');
        let inner = inner.trim_matches('/');
        if inner.is_empty() || inner.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(invalid(what, text, "it names no path"));
        }
        let is_text = inner.contains('/') && !has_wildcard(inner);
        let last = inner.split('/').count() - 1;
        let component = |(index, part): (usize, &str)| {
            if has_wildcard(part) {
                let glob = GlobBuilder::new(part).literal_separator(true).build();
                return glob
                    .map(|glob| Component::Glob(glob.compile_matcher()))
                    .map_err(|error| invalid(what, text, error));
            }
            let name = crate::path_text::decode(part);
            Ok(if is_text && index == 0 && !anchored {
                Component::End(name)
            } else if is_text && index == last && !only_dirs {
                Component::Beginning(name)
            } else {
                Component::Literal(name)
            })
        };
        let components = inner.split('/').enumerate().map(component).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), components, anchored, only_dirs })
    }

    /// Whether the last components of `relative` are this pattern.
    fn ends(&self, relative: &[u8], is_dir: bool) -> bool {
        if self.only_dirs && !is_dir {
            return false;
        }
        let mut parts = byte_path::components(relative).rev();
        let matched = self
            .components
            .iter()
            .rev()
            .all(|component| parts.next().is_some_and(|part| component.matches(part)));
        matched && (!self.anchored || parts.next().is_none())
    }

    /// Index of the component at which this pattern begins when it ends a path of so many.
    fn first_part(&self, part_count: usize) -> usize {
        part_count.saturating_sub(self.components.len())
    }

    /// Whether something strictly below a directory can match. With `pruned`, the match has to
    /// cover the component of that index.
    fn leads_below(&self, dir: &[&[u8]], pruned: Option<usize>) -> bool {
        let begins_at = |start: usize| {
            let covered = &dir[start..];
            covered.len() < self.components.len()
                && covered.iter().zip(&self.components).all(|(part, own)| own.matches(part))
        };
        match (self.anchored, pruned) {
            (true, _) => begins_at(0),
            (false, Some(pruned)) => (0..=pruned).any(begins_at),
            (false, None) => true,
        }
    }
}

impl Component {
    fn matches(&self, part: &[u8]) -> bool {
        match self {
            Self::Literal(name) => name == part,
            Self::End(end) => part.ends_with(end),
            Self::Beginning(beginning) => part.starts_with(beginning),
            Self::Glob(glob) => glob.is_match(to_path(part)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn excluded(pattern: &str, path: &str, is_dir: bool) -> bool {
        let config = ExclusionConfig {
            exclude_patterns: vec![pattern.to_owned()],
            ..ExclusionConfig::default()
        };
        let filter = Filter::new(&config).unwrap();
        matches!(filter.judge(path.as_bytes(), is_dir, None), Verdict::Excluded(_))
    }

    #[test]
    fn a_name_matches_a_whole_component_anywhere() {
        assert!(excluded("target", "target", true));
        assert!(excluded("target", "a/b/target", false));
        assert!(!excluded("target", "targets", true));
        assert!(!excluded("arge", "target", true));
    }

    #[test]
    fn a_pattern_with_a_slash_matches_a_part_of_the_path() {
        assert!(excluded("src/gen", "src/gen", true));
        assert!(excluded("src/gen", "a/src/gen", true));
        assert!(excluded("src/gen", "src/generated", true));
        assert!(excluded("src/gen", "src/gen.rs", false));
        assert!(excluded("src/gen", "my-src/gen", true));
        assert!(excluded("a/b/c", "xa/b/cx", false));
        assert!(!excluded("a/b/c", "a/bx/c", false));
        assert!(!excluded("a/b/c", "a/xb/c", false));
        assert!(!excluded("src/gen", "src/x/gen", true));
        assert!(!excluded("src/gen", "src/regen", true));
        assert!(!excluded("src/gen", "gen", true));
    }

    #[test]
    fn slashes_at_the_ends_of_a_part_of_the_path_say_where_it_begins_and_ends() {
        assert!(excluded("/src/gen", "src/generated", true));
        assert!(!excluded("/src/gen", "a/src/gen", true));
        assert!(!excluded("/src/gen", "my-src/gen", true));
        assert!(excluded("./src/gen", "src/generated", true));
        assert!(excluded("src/gen/", "my-src/gen", true));
        assert!(!excluded("src/gen/", "src/generated", true));
        assert!(!excluded("src/gen/", "src/gen", false));
        assert!(excluded("/src/gen/", "src/gen", true));
        assert!(!excluded("/src/gen/", "src/generated", true));
    }

    #[test]
    fn a_pattern_with_a_wildcard_is_about_whole_components() {
        assert!(excluded("src/*.rs", "a/src/x.rs", false));
        assert!(!excluded("src/*.rs", "my-src/x.rs", false));
        assert!(!excluded("src/*/gen", "src/a/generated", true));
    }

    #[test]
    fn a_part_of_a_path_that_is_force_included_opens_what_leads_to_it() {
        let config = ExclusionConfig {
            prune_patterns: vec!["node_modules/".into()],
            exclude_patterns: vec!["build".into()],
            force_include: vec!["modules/mine/s".into(), "/build/keep".into()],
            ..ExclusionConfig::default()
        };
        let filter = Filter::new(&config).unwrap();
        for (dir, may) in [
            ("node_modules", true),
            ("node_modules/mine", true),
            ("node_modules/mine2", false),
            ("node_modules/x/mine", false),
            ("build", true),
            ("build/other", true),
        ] {
            assert_eq!(filter.may_force_below(dir.as_bytes(), None), may, "{dir}");
        }
        for (path, is_forced) in [
            ("node_modules/mine/src", true),
            ("node_modules/mine/src/deeper", true),
            ("node_modules/mine/lib", false),
            ("node_modules/x/node_modules/mine/src", false),
            ("build/keeper", true),
            ("x/build/keep", false),
        ] {
            assert_eq!(filter.is_forced(path.as_bytes(), false, None), is_forced, "{path}");
        }
    }

    /// Whether a path or one above it is left out, as a walk finds out from the top down.
    fn is_left_out(filter: &Filter, path: &str) -> bool {
        let dirs = byte_path::ancestors(path.as_bytes()).map(|dir| (dir, true));
        let mut all = dirs.chain([(path.as_bytes(), false)]).filter(|(path, _)| !path.is_empty());
        all.any(|(path, is_dir)| matches!(filter.judge(path, is_dir, None), Verdict::Excluded(_)))
    }

    proptest! {
        #[test]
        fn a_pattern_with_a_slash_is_a_substring_of_what_it_excludes(
            pattern in "[ab]{1,2}(/[ab]{1,2}){1,2}",
            path in "[ab]{1,3}(/[ab]{1,3}){0,4}",
        ) {
            let filter = |pattern: String| {
                let exclude_patterns = vec![pattern];
                Filter::new(&ExclusionConfig { exclude_patterns, ..Default::default() }).unwrap()
            };
            let from_top = filter(format!("/{pattern}"));
            let directory = filter(format!("{pattern}/"));
            prop_assert_eq!(is_left_out(&from_top, &path), path.starts_with(&pattern));
            prop_assert_eq!(is_left_out(&directory, &path), path.contains(&format!("{pattern}/")));
            prop_assert_eq!(is_left_out(&filter(pattern.clone()), &path), path.contains(&pattern));
        }
    }

    #[test]
    fn a_leading_slash_ties_to_the_top_and_a_trailing_one_to_directories() {
        assert!(excluded("/build", "build", true));
        assert!(!excluded("/build", "a/build", true));
        assert!(excluded("build/", "a/build", true));
        assert!(!excluded("build/", "a/build", false));
    }

    #[test]
    fn wildcards_stay_within_a_component() {
        assert!(excluded("*.log", "a/x.log", false));
        assert!(excluded("logs/*.log", "logs/x.log", false));
        assert!(!excluded("logs/*.log", "logs/a/x.log", false));
    }

    #[test]
    fn globs_match_names_of_files_but_not_of_directories() {
        let config =
            ExclusionConfig { exclude_globs: vec!["*.d".into()], ..ExclusionConfig::default() };
        let filter = Filter::new(&config).unwrap();
        assert_eq!(filter.judge(b"a/x.d", false, None), Verdict::Excluded("glob *.d".into()));
        assert_eq!(filter.judge(b"conf.d", true, None), Verdict::Included);
    }

    #[test]
    fn force_include_beats_patterns_and_globs() {
        let config = ExclusionConfig {
            exclude_patterns: vec![".env".into()],
            exclude_globs: vec![".env*".into()],
            force_include: vec![".env".into(), ".env.*".into()],
            ..ExclusionConfig::default()
        };
        let filter = Filter::new(&config).unwrap();
        assert_eq!(filter.judge(b"a/.env", false, None), Verdict::Forced);
        assert_eq!(filter.judge(b"a/.env.local", false, None), Verdict::Forced);
        assert!(matches!(filter.judge(b".envrc", false, None), Verdict::Excluded(_)));
        assert!(filter.is_forced(b"a/.env/below", false, None));
        assert!(!filter.is_forced(b"a/other", false, None));
    }

    #[test]
    fn a_pruned_directory_is_opened_only_by_a_pattern_that_goes_through_it() {
        let config = ExclusionConfig {
            prune_patterns: vec!["node_modules/".into()],
            exclude_patterns: vec!["old".into()],
            force_include: vec![".env".into(), "node_modules/mine/src".into(), "/a/b/c".into()],
            ..ExclusionConfig::default()
        };
        let filter = Filter::new(&config).unwrap();
        let pruned = Verdict::Excluded("pattern node_modules/".into());
        assert_eq!(filter.judge(b"x/node_modules", true, None), pruned);
        assert_eq!(filter.judge(b"x/node_modules", false, None), Verdict::Included);
        // Directories that may hold an included path.
        for (dir, may) in [
            ("node_modules", true),
            ("node_modules/mine", true),
            ("x/node_modules/mine", true),
            ("node_modules/other", false),
            ("node_modules/x/node_modules/mine", false),
            ("old", true),
            ("old/deeper", true),
        ] {
            assert_eq!(filter.may_force_below(dir.as_bytes(), None), may, "{dir}");
        }
        for (path, is_forced) in [
            (".env", true),
            ("old/x/.env", true),
            ("node_modules/.env", false),
            ("node_modules/x/.env", false),
            ("node_modules/mine/src", true),
            ("x/node_modules/mine/src/.env", true),
            ("node_modules/mine/other", false),
            ("node_modules/x/node_modules/mine/src", false),
            ("a/b/c", true),
            (".env/node_modules/x", true),
        ] {
            assert_eq!(filter.is_forced(path.as_bytes(), false, None), is_forced, "{path}");
        }
    }

    #[test]
    fn a_directory_that_is_pruned_for_what_it_holds_is_opened_in_the_same_way() {
        let config = ExclusionConfig {
            force_include: vec![".env".into(), "a/out/mine".into()],
            ..ExclusionConfig::default()
        };
        let filter = Filter::new(&config).unwrap();
        assert!(filter.may_force_below(b"a/out", None) && filter.may_force_below(b"b/out", None));
        assert!(filter.may_force_below(b"a/out", Some(1)));
        assert!(!filter.may_force_below(b"b/out", Some(1)));
        assert!(filter.is_forced(b"a/out/mine/x", false, Some(1)));
        assert!(!filter.is_forced(b"a/out/.env", false, Some(1)));
        assert!(filter.is_forced(b"a/out/.env", false, None));
    }

    #[test]
    fn a_pattern_that_is_tied_to_the_top_opens_only_its_own_way() {
        let config = ExclusionConfig {
            exclude_patterns: vec!["build".into()],
            force_include: vec!["/build/keep".into()],
            ..ExclusionConfig::default()
        };
        let filter = Filter::new(&config).unwrap();
        assert!(filter.may_force_below(b"build", None));
        assert!(!filter.may_force_below(b"x/build", None));
        assert!(!filter.may_force_below(b"build/other", None));
    }

    #[test]
    fn patterns_that_name_nothing_or_leave_are_refused() {
        for text in ["", "/", "a//b", "../a", "a/../b", "[", "."] {
            let config = ExclusionConfig {
                exclude_patterns: vec![text.into()],
                ..ExclusionConfig::default()
            };
            assert!(Filter::new(&config).is_err(), "{text:?} was accepted");
        }
    }
}
