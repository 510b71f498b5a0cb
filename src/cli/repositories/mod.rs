//! The changes of repositories, in a few lines about commits in place of hundreds about files:
//! which change belongs to which repository is decided here, the sentences are in [`words`].

mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::CliError;
use super::past::compared;
use super::render::{Palette, summary_line};
use nono_engine::diff::{
    self, Change, ChangeSummary, ChangeType, Comparison, Difference, relative_to_roots,
};
use nono_engine::git::{RepositoryChange, repositories};
use nono_engine::path_text::Shown;
use nono_engine::session::Catalog;
use nono_engine::snapshot::{SessionDir, SnapshotManifest};
use nono_engine::store::{ObjectSource, StoreError};

use words::{brief_of, staying, tell, with_refs};
pub(super) use words::{conflict_text, without_commits};

/// Maximum number of lines about repositories.
const MAX_LINES: usize = 10;

/// The repositories among some changes.
#[derive(Debug, Default)]
pub(super) struct Repositories {
    found: Vec<RepositoryChange>,
    roots: Vec<PathBuf>,
}

/// Why something is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// A command did it.
    Done,
    /// A restore put it back.
    Restored,
    /// A restore would put it back.
    Planned,
}

impl Repositories {
    /// The changes between two snapshots.
    pub(super) fn of(
        source: &dyn ObjectSource,
        old: &SnapshotManifest,
        new: &SnapshotManifest,
        changes: &[Change],
    ) -> Result<Self, StoreError> {
        let roots: Vec<PathBuf> = new.roots.iter().map(|root| root.path.clone()).collect();
        let paths = changes.iter().map(|change| change.path.as_os_str().as_bytes());
        let found = repositories(source, &old.merkle_root, &new.merkle_root, paths)?;
        Ok(Self { found, roots })
    }

    /// As JSON: HEAD and refs of each git directory.
    pub(super) fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&self.found, serializer)
    }

    /// The changes of a restore.
    pub(super) fn restored(found: &[RepositoryChange], roots: &[PathBuf]) -> Self {
        Self { found: found.to_vec(), roots: roots.to_vec() }
    }

    /// The outermost git directory that a path is or lies in.
    fn of_path(&self, path: &Path) -> Option<&RepositoryChange> {
        // By path, so what is outside comes first.
        self.found.iter().find(|repository| path.starts_with(&repository.git_dir))
    }

    /// Changes outside of git directories.
    pub(super) fn outside<'a>(&self, changes: &'a [Change]) -> Vec<&'a Change> {
        changes.iter().filter(|change| self.of_path(&change.path).is_none()).collect()
    }

    /// The comparison with one change for each repository in place of what is in it.
    pub(super) fn collapsed(&self, comparison: Comparison) -> Comparison {
        let Comparison { changes, mut touched } = comparison;
        touched.retain(|path| self.of_path(path).is_none());
        let mut collapsed: Vec<Change> = Vec::new();
        let mut known = BTreeSet::new();
        for change in changes {
            let Some(repository) = self.of_path(&change.path) else {
                collapsed.push(change);
                continue;
            };
            let path = &repository.git_dir;
            if known.insert(path) {
                let change_type = match (repository.is_new, repository.is_gone) {
                    (true, _) => ChangeType::Created,
                    (_, true) => ChangeType::Deleted,
                    _ => ChangeType::Modified,
                };
                let path = path.clone();
                let size_delta = None;
                collapsed.push(Change { path, change_type, size_delta, is_directory: true });
            }
        }
        Comparison { changes: collapsed, touched }
    }

    /// Paths that changed in each outermost git directory.
    fn counts(&self) -> BTreeMap<&Path, u64> {
        let mut counts: BTreeMap<&Path, u64> = BTreeMap::new();
        for repository in &self.found {
            let outermost = self.of_path(&repository.git_dir).unwrap_or(repository);
            *counts.entry(&outermost.git_dir).or_default() += repository.path_count;
        }
        // In one of which only something is told, nothing changed.
        counts.retain(|_, count| *count > 0);
        counts
    }

    /// The repositories that a session changed.
    ///
    /// # Errors
    /// When a state of the session cannot be read.
    pub(super) fn of_session(session: &SessionDir) -> Result<Self, CliError> {
        let (old, new) = compared(session, None)?;
        Self::between(session, &old, &new)
    }

    /// The repositories that one snapshot of a session changed.
    ///
    /// # Errors
    /// When it, or the one before it, cannot be read.
    pub(super) fn of_snapshot(session: &SessionDir, number: u64) -> Result<Self, CliError> {
        let (old, new) = compared(session, Some(number))?;
        Self::between(session, &old, &new)
    }

    fn between(
        session: &SessionDir,
        old: &SnapshotManifest,
        new: &SnapshotManifest,
    ) -> Result<Self, CliError> {
        let store = Catalog::store_of(session)?;
        let differences = diff::compare(&store, &old.merkle_root, &new.merkle_root)?;
        let changes: Vec<Change> = differences.iter().filter_map(Difference::change).collect();
        Ok(Self::of(&store, old, new, &changes)?)
    }

    /// The repositories in one line, if something in one of them changed.
    pub(super) fn brief(&self) -> Option<String> {
        let lines = self.lines();
        (!lines.is_empty()).then(|| lines.join(", "))
    }

    /// One line for each repository: `.git: 1 commit`, `.git: 2 files staged`, and `.git: git's own
    /// files` where there is no work of a person.
    pub(super) fn lines(&self) -> Vec<String> {
        let told = self.counts().into_keys().map(|git_dir| {
            let line = self.line_of(git_dir);
            line.unwrap_or_else(|| format!("{}: only git's own files", self.shown(git_dir)))
        });
        told.collect()
    }

    /// As [`lines`](Self::lines), without the repositories in which git alone wrote.
    pub(super) fn lines_of_work(&self) -> Vec<String> {
        self.counts().into_keys().filter_map(|git_dir| self.line_of(git_dir)).collect()
    }

    /// The work in an outermost git directory: its own, or that of the first one in it.
    fn line_of(&self, git_dir: &Path) -> Option<String> {
        let mut inside = self.found.iter().filter(|found| found.git_dir.starts_with(git_dir));
        let brief = inside.find_map(brief_of)?;
        Some(format!("{}: {brief}", self.shown(git_dir)))
    }

    /// Counts the changes outside; changes in repositories are counted apart.
    pub(super) fn summary(
        &self,
        changes: &[Change],
        touched: &[PathBuf],
        palette: &Palette,
    ) -> String {
        let outside: Vec<Change> = self.outside(changes).into_iter().cloned().collect();
        let touched = touched.iter().filter(|path| self.of_path(path).is_none()).count();
        let counted = ChangeSummary::of(&outside).with_touched(touched);
        let lines = self.lines();
        match (outside.is_empty() && touched == 0, lines.is_empty()) {
            (true, false) => lines.join(", "),
            (_, true) => summary_line(&counted, palette),
            _ => format!("{}, {}", summary_line(&counted, palette), lines.join(", ")),
        }
    }

    fn shown(&self, path: &Path) -> String {
        let inside = relative_to_roots(path.as_os_str().as_bytes(), &self.roots);
        Shown::bytes(inside).to_string()
    }

    /// The moves of HEAD and the refs, in at most ten lines.
    pub(super) fn said(&self, told: Told) -> Vec<String> {
        let mut lines = Vec::new();
        for repository in &self.found {
            let git_dir = &repository.git_dir;
            // The branch of a linked worktree is tracked by itself, and no place of work.
            let is_linked = self.roots.contains(git_dir) && is_of_git(git_dir)
                || !self.roots.iter().any(|root| git_dir.starts_with(root));
            let work: Vec<_> = self.roots.iter().filter(|root| !is_of_git(root)).collect();
            let is_plain = is_linked || work.iter().any(|root| root.join(".git") == *git_dir);
            let place = match is_plain && work.len() <= 1 {
                true => String::new(),
                false => format!("{}: ", self.shown(&repository.git_dir)),
            };
            let in_part = match repository.is_partial {
                true => " in part: not all of it was asked for",
                false => "",
            };
            let refs = with_refs(&repository.refs);
            match (repository.is_new, repository.is_gone) {
                (true, _) => lines.push(match told {
                    Told::Done => format!("{place}a new repository{refs}"),
                    Told::Restored => format!("{place}the repository is back{in_part}{refs}"),
                    Told::Planned => format!("{place}the repository would be back{in_part}{refs}"),
                }),
                (_, true) => lines.push(match told {
                    Told::Done => format!("{place}the repository is gone{refs}"),
                    Told::Restored => format!("{place}the repository is removed{refs}"),
                    Told::Planned => format!("{place}the repository would be removed{refs}"),
                }),
                _ => {
                    let moved = tell(&repository.moves, &repository.git_dir, told);
                    let told = moved.into_iter().chain(staying(&repository.stays));
                    lines.extend(told.map(|line| format!("{place}{line}")));
                }
            }
        }
        if lines.len() > MAX_LINES {
            let more = lines.len() - (MAX_LINES - 1);
            lines.truncate(MAX_LINES - 1);
            lines.push(format!("and {more} more branches and tags (--json names all)"));
        }
        lines
    }
}

fn is_of_git(path: &Path) -> bool {
    path.iter().any(|name| name == ".git")
}

/// The line of a repository in a list of changes.
pub(super) fn repository_line(line: &str, palette: &Palette) -> String {
    let style = palette.change(ChangeType::Modified);
    format!("{style}~ {:<11}{style:#} {line}", "repository")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nono_engine::git::{GitWork, Move, Oid, RefAt, StagedFile};

    fn oid(digit: char) -> Oid {
        Oid::from_hex(digit.to_string().repeat(40).as_bytes()).unwrap()
    }

    #[test]
    fn lines_are_few() {
        let moves: Vec<Move> = (0..30)
            .map(|n| Move::Created { name: format!("refs/heads/b{n}"), to: oid('a'), since: None })
            .collect();
        let found = RepositoryChange {
            git_dir: "/p/.git".into(),
            path_count: 30,
            is_new: false,
            is_partial: false,
            is_gone: false,
            moves,
            work: GitWork::default(),
            refs: Vec::new(),
            stays: Vec::new(),
        };
        let repositories = Repositories { found: vec![found], roots: vec!["/p".into()] };
        let said = repositories.said(Told::Done);
        assert_eq!(said.len(), MAX_LINES);
        assert_eq!(said[9], "and 21 more branches and tags (--json names all)");
        let line = ".git: new: b0, new: b1, new: b2, 27 more";
        assert_eq!(repositories.lines(), [line]);
        assert_eq!(repositories.brief().as_deref(), Some(line));
    }

    #[test]
    fn the_work_in_a_git_directory_is_told_in_words_and_never_as_a_number_of_paths() {
        let staged = |path: &str, is_there: bool| StagedFile {
            path: path.into(),
            object: is_there.then(|| oid('a')),
        };
        let lines = |work: GitWork| {
            let found = RepositoryChange {
                git_dir: "/nowhere/.git".into(),
                path_count: 17,
                is_new: false,
                is_partial: false,
                is_gone: false,
                moves: Vec::new(),
                work,
                refs: Vec::new(),
                stays: Vec::new(),
            };
            let one = Repositories { found: vec![found.clone()], roots: vec!["/nowhere".into()] };
            let refs = vec![RefAt { name: "refs/heads/main".into(), commit: oid('b') }];
            let gone = RepositoryChange { is_gone: true, refs, ..found };
            let gone = Repositories { found: vec![gone], roots: vec!["/nowhere".into()] };
            (one.lines(), one.lines_of_work(), gone.lines())
        };
        let (own, work, gone) = lines(GitWork::default());
        assert_eq!((own, work), (vec![".git: only git's own files".to_owned()], vec![]));
        assert_eq!(gone, [".git: gone (main)"]);
        // No commit yet.
        let files = vec![staged("a", true), staged("b", true), staged("c", false)];
        let (told, ..) = lines(GitWork { staged: files.clone(), ..GitWork::default() });
        assert_eq!(told, [".git: 2 files staged, 1 file unstaged"]);
        // A commit that cannot be read.
        let (told, ..) =
            lines(GitWork { staged: files, commit: Some(oid('c')), ..GitWork::default() });
        assert_eq!(told, [".git: 3 files staged otherwise"]);
        let (told, ..) = lines(GitWork {
            begun: vec!["merge".into()],
            gone_objects: 1,
            names: ["config", "hooks", "info", "x", "y"].map(str::to_owned).to_vec(),
            ..GitWork::default()
        });
        assert_eq!(
            told,
            [".git: merge under way, 1 object file is gone, settings changed, hooks changed, \
              rules of info/ changed, 2 more changed"]
        );
    }

    #[test]
    fn a_repository_is_one_row_of_a_review() {
        let repository = |git_dir: &str| RepositoryChange {
            git_dir: git_dir.into(),
            path_count: 2,
            is_new: false,
            is_partial: false,
            is_gone: false,
            moves: Vec::new(),
            work: GitWork::default(),
            refs: Vec::new(),
            stays: Vec::new(),
        };
        let found = vec![repository("/p/.git"), repository("/p/.git/modules/sub")];
        let repositories = Repositories { found, roots: vec!["/p".into()] };
        let change = |path: &str, change_type| Change {
            path: path.into(),
            change_type,
            size_delta: Some(1),
            is_directory: false,
        };
        let changes = [
            change("/p/.git/HEAD", ChangeType::Created),
            change("/p/.git/modules/sub/HEAD", ChangeType::Deleted),
            change("/p/.gitignore", ChangeType::Created),
            change("/p/a", ChangeType::Created),
        ];
        let touched = vec!["/p/.git/index".into(), "/p/b".into()];
        let comparison = Comparison { changes: changes.to_vec(), touched };
        let summary = repositories.summary(&changes, &comparison.touched, &Palette::plain());
        assert_eq!(summary, "+2 files, 1 touched, .git: only git's own files");
        let rows = repositories.collapsed(comparison);
        assert_eq!(rows.touched, [PathBuf::from("/p/b")]);
        let rows: Vec<_> =
            rows.changes.iter().map(|row| (row.path.to_str().unwrap(), row.change_type)).collect();
        assert_eq!(
            rows,
            [
                ("/p/.git", ChangeType::Modified),
                ("/p/.gitignore", ChangeType::Created),
                ("/p/a", ChangeType::Created),
            ]
        );
    }
}
