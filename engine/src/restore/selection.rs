//! Which paths of a snapshot are meant: files, directories, globs, kinds of change.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::RestoreError;
use crate::byte_path;
use crate::diff::ChangeType;
use crate::shell_glob::{Hidden, Reach, ShellGlob, is_special};
use crate::snapshot::TrackedRoot;

/// A person's selection, as given.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Files, directories (with all that is in them) and globs; everything when empty (and nothing
    /// is named in `exactly`). One that is a path on the disk or in a state is no glob. A relative
    /// one is looked for in every tracked path, and a relative glob without a slash matches a name
    /// anywhere. A glob matches a hidden name (one that begins with a dot) as in a shell: only
    /// where a dot stands in the glob.
    pub paths: Vec<PathBuf>,
    /// The directory in which absolute globs were written: its own path is no pattern.
    pub base: Option<PathBuf>,
    /// Absolute paths that are meant as well, each by itself: no glob, nothing below it, and no
    /// error when nothing of that name was ever there. As many as there are changes, if need be.
    pub exactly: Vec<PathBuf>,
    /// The exceptions from these, in the form of `paths`. Their globs match hidden names, too.
    pub exclude: Vec<PathBuf>,
    /// Only what was created, modified or deleted *since* the snapshot: `Deleted` brings back what
    /// is gone. All kinds when empty; `Modified` includes changed permissions.
    pub only: Vec<ChangeType>,
}

impl Selection {
    /// Whether everything is meant.
    pub fn is_everything(&self) -> bool {
        let Self { paths, base: _, exactly, exclude, only } = self;
        paths.is_empty() && exactly.is_empty() && exclude.is_empty() && only.is_empty()
    }
}

impl Selection {
    /// Paths that contain all that may be meant below these tracked paths.
    pub fn contained_in(&self, roots: &[PathBuf]) -> Vec<PathBuf> {
        let is_plain = |path: &&PathBuf| {
            path.is_absolute() && !path.to_string_lossy().contains(['*', '?', '[', '{'])
        };
        if self.is_everything() || !self.paths.iter().all(|path| is_plain(&path)) {
            return roots.to_vec();
        }
        let named: Vec<PathBuf> = self.paths.iter().chain(&self.exactly).cloned().collect();
        if named.is_empty() { roots.to_vec() } else { named }
    }
}

/// A selection in the tracked paths of one snapshot.
pub(super) struct Selected<'a> {
    roots: Vec<&'a [u8]>,
    paths: Vec<Pattern>,
    exactly: HashSet<&'a [u8]>,
    exclude: Vec<Pattern>,
    only: &'a [ChangeType],
}

/// One path or glob.
pub(super) struct Pattern {
    /// As a person wrote it.
    pub(super) given: PathBuf,
    /// Literal absolute paths it may stand for; each means what is below it too.
    literal: Vec<Vec<u8>>,
    glob: Option<(ShellGlob, Subject)>,
}

/// The subject that a glob is matched with: it, or something above it, has to match.
enum Subject {
    /// The path below the tracked path.
    Inside,
    /// The whole path.
    Absolute,
}

impl<'a> Selected<'a> {
    /// `exists`: whether an absolute path is on the disk or in one of the states.
    pub(super) fn new(
        selection: &'a Selection,
        roots: &'a [TrackedRoot],
        exists: &mut dyn FnMut(&[u8]) -> Result<bool, RestoreError>,
    ) -> Result<Self, RestoreError> {
        let base = selection.base.as_deref();
        let mut compile = |paths: &[PathBuf], hidden| {
            let compiled = paths.iter().map(|path| Pattern::new(path, roots, base, hidden, exists));
            compiled.collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            roots: roots.iter().map(|root| root.path.as_os_str().as_bytes()).collect(),
            paths: compile(&selection.paths, Hidden::ByDotAlone)?,
            exactly: selection.exactly.iter().map(|path| path.as_os_str().as_bytes()).collect(),
            exclude: compile(&selection.exclude, Hidden::LikeOthers)?,
            only: &selection.only,
        })
    }

    /// Whether a path is meant, whatever changed about it.
    pub(super) fn contains(&self, path: &[u8]) -> bool {
        let inside = self.roots.iter().find_map(|root| byte_path::relative_to(path, root));
        let Some(inside) = inside else { return false };
        let matches = |pattern: &Pattern| pattern.matches(path, inside);
        let is_named = self.names_everything()
            || self.exactly.contains(path)
            || self.paths.iter().any(matches);
        is_named && !self.exclude.iter().any(matches)
    }

    /// Whether a path is meant by its own name, or by that of a directory above it: by no glob.
    pub(super) fn names(&self, path: &[u8]) -> bool {
        let is_named = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.names(path));
        (self.exactly.contains(path) || is_named(&self.paths)) && !is_named(&self.exclude)
    }

    /// Whether a directory is meant as a whole, with everything that is in it.
    pub(super) fn is_unit(&self, path: &[u8]) -> bool {
        self.only.is_empty() && self.contains(path) && !self.exclude_below(path)
    }

    /// Whether something below a path is left out by its name.
    fn exclude_below(&self, path: &[u8]) -> bool {
        let is_below = |literal: &Vec<u8>| byte_path::is_in(literal, path);
        self.exclude.iter().any(|pattern| pattern.literal.iter().any(is_below))
    }

    /// Whether something below a path may be meant.
    pub(super) fn may_mean_below(&self, path: &[u8]) -> bool {
        let is_below = |named: &[u8]| byte_path::relative_to(named, path).is_some();
        let inside = self.roots.iter().find_map(|root| byte_path::relative_to(path, root));
        let Some(inside) = inside else { return false };
        let may_match = |pattern: &Pattern| {
            pattern.may_match_below(path, inside)
                || pattern.literal.iter().any(|literal| is_below(literal))
        };
        let is_named = self.names_everything()
            || self.exactly.iter().any(|named| is_below(named))
            || self.paths.iter().any(may_match);
        is_named && !self.exclude.iter().any(|pattern| pattern.matches(path, inside))
    }

    /// Whether a change of this type (as the restore makes it) is meant. A directory's time is no
    /// change for a person; it belongs to everything and to no single kind.
    pub(super) fn wants(&self, change: Option<ChangeType>) -> bool {
        let since = match change {
            _ if self.only.is_empty() => return true,
            None => return false,
            Some(ChangeType::Created) => ChangeType::Deleted,
            Some(ChangeType::Deleted) => ChangeType::Created,
            Some(ChangeType::Modified | ChangeType::PermissionsChanged) => ChangeType::Modified,
        };
        self.only.contains(&since)
    }

    fn names_everything(&self) -> bool {
        self.paths.is_empty() && self.exactly.is_empty()
    }

    /// As [`Selection::is_everything`].
    pub(super) fn is_all(&self) -> bool {
        self.names_everything() && self.exclude.is_empty() && self.only.is_empty()
    }

    /// Paths that were named without a glob, each with all it may stand for.
    pub(super) fn named(&self) -> impl Iterator<Item = &[Vec<u8>]> {
        self.paths.iter().filter(|pattern| pattern.glob.is_none()).map(|p| p.literal.as_slice())
    }

    /// Globs that were given as paths.
    pub(super) fn globs(&self) -> impl Iterator<Item = &Pattern> {
        self.paths.iter().filter(|pattern| pattern.glob.is_some())
    }

    /// Whether a pattern means a path of these tracked paths.
    pub(super) fn matches(&self, pattern: &Pattern, path: &[u8]) -> bool {
        let inside = self.roots.iter().find_map(|root| byte_path::relative_to(path, root));
        inside.is_some_and(|inside| pattern.matches(path, inside))
    }
}

impl Pattern {
    fn new(
        path: &Path,
        roots: &[TrackedRoot],
        base: Option<&Path>,
        hidden: Hidden,
        exists: &mut dyn FnMut(&[u8]) -> Result<bool, RestoreError>,
    ) -> Result<Self, RestoreError> {
        let plain = |path: PathBuf| {
            crate::sys::plain_absolute(&path, Path::new("/")).into_os_string().into_encoded_bytes()
        };
        let literal: Vec<Vec<u8>> = if path.is_absolute() {
            vec![plain(path.to_owned())]
        } else {
            roots.iter().map(|root| plain(root.path.join(path))).collect()
        };
        let bytes = path.as_os_str().as_bytes();
        let mut is_glob = is_special(bytes);
        for path in &literal {
            is_glob = is_glob && !exists(path)?;
        }
        let glob = if is_glob {
            let known = roots.iter().map(|root| &*root.path).chain(base);
            let fixed = known.filter(|known| path.starts_with(known));
            let fixed = fixed.map(|fixed| fixed.as_os_str().as_bytes());
            let fixed = fixed.max_by_key(|fixed| fixed.len()).unwrap_or(b"");
            let (glob, subject) = match bytes {
                [b'/', ..] => {
                    (ShellGlob::new(fixed, &bytes[fixed.len()..], hidden), Subject::Absolute)
                }
                _ if bytes.contains(&b'/') => (ShellGlob::new(b"", bytes, hidden), Subject::Inside),
                _ => (ShellGlob::anywhere(bytes, hidden), Subject::Inside),
            };
            Some((glob.map_err(|reason| RestoreError::pattern(path, &reason))?, subject))
        } else {
            None
        };
        Ok(Self { given: path.to_owned(), literal, glob })
    }

    /// Whether a glob may match something below a path.
    fn may_match_below(&self, path: &[u8], inside: &[u8]) -> bool {
        self.reach(path, inside) != Reach::Apart
    }

    fn names(&self, path: &[u8]) -> bool {
        self.literal.iter().any(|literal| byte_path::is_in(path, literal))
    }

    /// `inside` is the path below its tracked path, empty for that itself.
    fn matches(&self, path: &[u8], inside: &[u8]) -> bool {
        self.names(path) || self.reach(path, inside) == Reach::Match
    }

    fn reach(&self, path: &[u8], inside: &[u8]) -> Reach {
        match &self.glob {
            None => Reach::Apart,
            Some((glob, Subject::Inside)) => glob.reach(inside),
            Some((glob, Subject::Absolute)) => glob.reach(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_means_nothing_below_a_directory_that_its_beginning_does_not_name() {
        let root =
            TrackedRoot { path: "/p".into(), exclusion: crate::walk::ExclusionConfig::nothing() };
        let roots = [root];
        for (glob, path, may) in [
            ("s/*", "/p/build", false),
            ("s/*", "/p/s", true),
            ("s/*", "/p/s/deep", true),
            ("*/x", "/p/build", true),
            ("*.sh", "/p/build", true),
            ("a/b/*.sh", "/p/a", true),
            ("a/b/*.sh", "/p/a/c", false),
            ("./s/*", "/p/build", false),
            ("/p/s/*", "/p/build", false),
            ("/p/s/*", "/p/s", true),
        ] {
            let selection = Selection { paths: vec![glob.into()], ..Selection::default() };
            let selected = Selected::new(&selection, &roots, &mut |_| Ok(false)).unwrap();
            assert_eq!(selected.may_mean_below(path.as_bytes()), may, "{glob} {path}");
        }
    }

    #[test]
    fn exact_paths_are_no_globs_and_mean_nothing_below() {
        let roots = [TrackedRoot { path: "/p".into(), exclusion: Default::default() }];
        let mut selection =
            Selection { exactly: vec!["/p/d".into(), "/p/a*".into()], ..Selection::default() };
        let selected = Selected::new(&selection, &roots, &mut |_| Ok(false)).unwrap();
        assert!(selected.contains(b"/p/d") && selected.contains(b"/p/a*"));
        assert!(!selected.contains(b"/p/d/x") && !selected.contains(b"/p/ab"));
        assert!(!selected.is_all());
        selection.paths = vec!["b".into()];
        let selected = Selected::new(&selection, &roots, &mut |_| Ok(false)).unwrap();
        assert!(selected.contains(b"/p/d") && selected.contains(b"/p/b/x"));
    }

    fn contains(paths: &[&str], exclude: &[&str], path: &str) -> bool {
        let roots = [TrackedRoot { path: "/home/me".into(), exclusion: Default::default() }];
        let selection = Selection {
            paths: paths.iter().map(PathBuf::from).collect(),
            exclude: exclude.iter().map(PathBuf::from).collect(),
            ..Selection::default()
        };
        Selected::new(&selection, &roots, &mut |_| Ok(false)).unwrap().contains(path.as_bytes())
    }

    #[test]
    fn files_directories_and_globs_are_selected() {
        assert!(contains(&[], &[], "/home/me/a"));
        assert!(!contains(&[], &[], "/home/other"));
        assert!(!contains(&[], &[], "/home/meow/a"));
        assert!(contains(&["src"], &[], "/home/me/src/a/b"));
        assert!(contains(&["./src/"], &[], "/home/me/src"));
        assert!(contains(&["/home/me/src"], &[], "/home/me/src/a"));
        assert!(!contains(&["src"], &[], "/home/me/srcs"));
        assert!(contains(&["*.rs"], &[], "/home/me/src/a.rs"));
        assert!(!contains(&["m*"], &[], "/home/me/a"), "names above the tracked path do not count");
        assert!(contains(&["src/*.rs"], &[], "/home/me/src/a.rs"));
        assert!(!contains(&["src/*.rs"], &[], "/home/me/src/deep/a.rs"));
        assert!(contains(&["src/**/*.rs"], &[], "/home/me/src/deep/a.rs"));
        assert!(contains(&["src/d*"], &[], "/home/me/src/deep/a.rs"));
        assert!(contains(&["a[1]"], &[], "/home/me/a[1]"), "a literal name is meant as well");
        assert!(!contains(&["*"], &[], "/home/me/.env"));
        assert!(contains(&["*"], &[], "/home/me/src/.env"), "a directory is all that is in it");
        assert!(!contains(&["/home/me/**/x"], &[], "/home/me/.git/x"));
        assert!(!contains(&[".*"], &["*"], "/home/me/.env"), "an exception has hidden names");
        assert!(!contains(&["src"], &["*.rs"], "/home/me/src/a.rs"));
        assert!(!contains(&["../other"], &[], "/home/other/a"));
    }
}
