//! The changes of repositories, in words: a few lines about commits in place of hundreds about
//! files.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::commits::{Between, between, missing};
use super::render::{Palette, summary_line};
use crate::diff::{Change, ChangeSummary, ChangeType, Comparison, relative_to_roots};
use crate::git::{Head, Move, Oid, RepositoryChange, repositories};
use crate::path_text::Shown;
use crate::restore::RepositoryConflict;
use crate::snapshot::SnapshotManifest;
use crate::store::{ObjectSource, StoreError};

/// So many lines are said about repositories.
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
        for change in changes {
            let Some(repository) = self.of_path(&change.path) else {
                collapsed.push(change);
                continue;
            };
            let path = &repository.git_dir;
            if collapsed.iter().all(|known| known.path != *path) {
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
        counts
    }

    /// One line for each repository: `.git: 14 changes`.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(git_dir, count): (&Path, u64)| {
            let name = self.shown(git_dir);
            format!("{name}: {count} {}", if count == 1 { "change" } else { "changes" })
        };
        self.counts().into_iter().map(line).collect()
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
            match (repository.is_new, repository.is_gone) {
                (true, _) => lines.push(match told {
                    Told::Done => format!("{place}a new repository"),
                    Told::Restored => format!("{place}the repository is back"),
                    Told::Planned => format!("{place}the repository would be back"),
                }),
                (_, true) => lines.push(match told {
                    Told::Done => format!("{place}the repository is gone"),
                    Told::Restored => format!("{place}the repository is removed"),
                    Told::Planned => format!("{place}the repository would be removed"),
                }),
                _ => lines.extend(
                    tell(&repository.moves, &repository.git_dir, told)
                        .into_iter()
                        .map(|line| format!("{place}{line}")),
                ),
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

/// Refs that a restore set to commits that the repository does not have, in words.
pub(super) fn without_commits(restored: &[RepositoryChange]) -> Vec<String> {
    let mut told = Vec::new();
    for repository in restored.iter().filter(|repository| !repository.is_gone) {
        let commit = |change: &Move| match change {
            Move::Moved { to, .. } | Move::Created { to, .. } => Some(to.clone()),
            Move::Switched { to: Head::Detached(to), .. } => Some(to.clone()),
            Move::Switched { .. } | Move::Deleted { .. } => None,
        };
        let commits: Vec<Oid> = repository.moves.iter().filter_map(commit).collect();
        let objects = repository.git_dir.join("objects");
        let place = Shown::path(&repository.git_dir);
        told.extend(missing(&objects, &commits).iter().map(|oid| {
            format!("{place} does not have commit {}, which was not recorded", oid.hex())
        }));
    }
    told
}

fn is_of_git(path: &Path) -> bool {
    path.iter().any(|name| name == ".git")
}

/// The line of a repository in a list of changes.
pub(super) fn repository_line(line: &str, palette: &Palette) -> String {
    let style = palette.change(ChangeType::Modified);
    format!("{style}~ {:<11}{style:#} {line}", "repository")
}

/// The message about a git directory that is in the way of a restore.
pub(super) fn conflict_text(git_dir: &Path, conflict: &RepositoryConflict) -> String {
    let moves = match conflict {
        RepositoryConflict::AtWork { lock } => {
            let lock = Shown::path(lock);
            return format!(
                "git is at work in it ({lock}): wait until it is done, or remove the lock if no git \
                 is running"
            );
        }
        RepositoryConflict::MovedOn { moves } => moves,
    };
    let counts = counts_of(moves, git_dir);
    let known: Option<usize> = counts.iter().flatten().map(|found| found.added).max();
    let of_commits = match known {
        Some(1) => Some("1 commit".to_owned()),
        Some(count @ 2..) => Some(format!("{count} commits")),
        _ => None,
    };
    let what = of_commits.or_else(|| tell(moves, git_dir, Told::Done).into_iter().next());
    match what {
        Some(what) => format!("the repository has moved on: {what}"),
        None => "the repository has moved on".to_owned(),
    }
}

/// Commits between the two ends of each move, where both are commits.
fn counts_of(moves: &[Move], git_dir: &Path) -> Vec<Option<Between>> {
    let ends = |change: &Move| match change {
        Move::Moved { name, from, to } if name.starts_with("refs/heads/") => {
            Some((from.clone(), to.clone()))
        }
        Move::Switched { from: Head::Detached(from), to: Head::Detached(to) }
        | Move::Created { since: Some(from), to, .. } => Some((from.clone(), to.clone())),
        _ => None,
    };
    // Lines that nobody reads need no number.
    let ends: Vec<Option<(Oid, Oid)>> = moves.iter().take(MAX_LINES).map(ends).collect();
    let pairs: Vec<(Oid, Oid)> = ends.iter().flatten().cloned().collect();
    let objects = git_dir.join("objects");
    let counted = if pairs.is_empty() { Vec::new() } else { between(&objects, &pairs) };
    let mut counted = counted.into_iter();
    let found = ends.into_iter().map(|end| end.and_then(|_| counted.next().flatten()));
    let mut found: Vec<Option<Between>> = found.collect();
    found.resize(moves.len(), None);
    found
}

fn tell(moves: &[Move], git_dir: &Path, told: Told) -> Vec<String> {
    let counts = counts_of(moves, git_dir);
    let mut lines = Vec::new();
    let mut remote = 0_usize;
    for (change, count) in moves.iter().zip(counts) {
        if change.is_of_remote() {
            remote += 1;
            continue;
        }
        lines.push(match told {
            Told::Done => done(change, count),
            Told::Restored => undone(change, count, "is"),
            Told::Planned => undone(change, count, "would be"),
        });
    }
    match remote {
        0 => {}
        1 => lines.push("1 remote-tracking branch moved".to_owned()),
        count => lines.push(format!("{count} remote-tracking branches moved")),
    }
    lines
}

fn commits(count: usize, is_partial: bool) -> String {
    match (count, is_partial) {
        (count, true) => format!("more than {count} commits"),
        (1, _) => "1 commit".to_owned(),
        (count, _) => format!("{count} commits"),
    }
}

fn done(change: &Move, count: Option<Between>) -> String {
    match change {
        Move::Switched { from, to } => {
            format!("switched from {} to {}", head_name(from), head_name(to))
        }
        Move::Moved { name, from, to } => {
            let (name, range) = (ref_name(name), format!("{}..{}", from.short(), to.short()));
            match count {
                Some(Between { added, gone: 0, is_partial }) if added > 0 => {
                    let commits = commits(added, is_partial);
                    format!("the command made {commits} on {name} ({range})")
                }
                Some(Between { added, gone, is_partial: false }) => {
                    let added = match added {
                        0 => String::new(),
                        count => format!("{} added, ", commits(count, false)),
                    };
                    let unit = match (added.is_empty(), gone) {
                        (true, 1) => " commit",
                        (true, _) => " commits",
                        _ => "",
                    };
                    format!("{name} moved: {range} ({added}{gone}{unit} gone)")
                }
                _ => format!("{name} moved: {range}"),
            }
        }
        Move::Created { name, to, since } => match (name.as_str(), since, count) {
            ("refs/stash", ..) => format!("changes were stashed ({})", to.short()),
            (name, Some(from), Some(Between { added, is_partial, .. })) if added > 0 => format!(
                "the command made {} on {}, a new branch ({}..{})",
                commits(added, is_partial),
                ref_name(name),
                from.short(),
                to.short()
            ),
            (name, ..) => format!("new: {} ({})", ref_name(name), to.short()),
        },
        Move::Deleted { name, from } => {
            format!("gone: {} (was {})", ref_name(name), from.short())
        }
    }
}

/// `verb`: "is" or "would be".
fn undone(change: &Move, count: Option<Between>, verb: &str) -> String {
    match change {
        Move::Switched { to, .. } => format!("HEAD {verb} at {} again", head_name(to)),
        Move::Moved { name, to, .. } => {
            let how = match count {
                Some(Between { added, gone, is_partial }) if added + gone > 0 => {
                    let undone =
                        (gone > 0).then(|| format!("{} undone", commits(gone, is_partial)));
                    let back = (added > 0).then(|| format!("{} back", commits(added, is_partial)));
                    let parts: Vec<String> = undone.into_iter().chain(back).collect();
                    format!(" ({})", parts.join(", "))
                }
                _ => String::new(),
            };
            format!("{} {verb} at {} again{how}", ref_name(name), to.short())
        }
        Move::Created { name, to, .. } => {
            format!("{} {verb} back ({})", ref_name(name), to.short())
        }
        Move::Deleted { name, from } => {
            format!("{} {verb} removed (was {})", ref_name(name), from.short())
        }
    }
}

fn head_name(head: &Head) -> String {
    match head {
        Head::Ref(name) => ref_name(name),
        Head::Detached(oid) => oid.short().to_owned(),
    }
}

/// The name of a ref as people say it, safe for a terminal.
fn ref_name(name: &str) -> String {
    let short = match name {
        "refs/stash" => "the stash".to_owned(),
        name => match (name.strip_prefix("refs/heads/"), name.strip_prefix("refs/tags/")) {
            (Some(branch), _) => branch.to_owned(),
            (_, Some(tag)) => format!("tag {tag}"),
            _ => name.to_owned(),
        },
    };
    Shown::bytes(short.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(digit: char) -> Oid {
        Oid::from_hex(digit.to_string().repeat(40).as_bytes()).unwrap()
    }

    fn main_moved() -> Move {
        Move::Moved { name: "refs/heads/main".into(), from: oid('a'), to: oid('b') }
    }

    fn count(added: usize, gone: usize) -> Option<Between> {
        Some(Between { added, gone, is_partial: false })
    }

    #[test]
    fn a_move_is_told_by_its_commits() {
        let told = |found| done(&main_moved(), found);
        assert_eq!(told(count(2, 0)), "the command made 2 commits on main (aaaaaaa..bbbbbbb)");
        assert_eq!(told(count(1, 2)), "main moved: aaaaaaa..bbbbbbb (1 commit added, 2 gone)");
        assert_eq!(told(count(0, 1)), "main moved: aaaaaaa..bbbbbbb (1 commit gone)");
        assert_eq!(told(None), "main moved: aaaaaaa..bbbbbbb");
        let many = Between { added: 10_000, gone: 0, is_partial: true };
        assert_eq!(
            told(Some(many)),
            "the command made more than 10000 commits on main (aaaaaaa..bbbbbbb)"
        );
    }

    #[test]
    fn a_restore_tells_where_branches_are_again() {
        let told = |found| undone(&main_moved(), found, "is");
        assert_eq!(told(count(0, 2)), "main is at bbbbbbb again (2 commits undone)");
        assert_eq!(told(count(1, 2)), "main is at bbbbbbb again (2 commits undone, 1 commit back)");
        assert_eq!(told(None), "main is at bbbbbbb again");
        let created = Move::Created { name: "refs/tags/v1".into(), to: oid('c'), since: None };
        assert_eq!(undone(&created, None, "would be"), "tag v1 would be back (ccccccc)");
    }

    #[test]
    fn names_are_safe_and_lines_few() {
        assert_eq!(ref_name("refs/heads/a\u{202e}b"), "a\\u{202e}b");
        let moves: Vec<Move> = (0..30)
            .map(|n| Move::Created { name: format!("refs/heads/b{n}"), to: oid('a'), since: None })
            .collect();
        let found = RepositoryChange {
            git_dir: "/p/.git".into(),
            path_count: 30,
            is_new: false,
            is_gone: false,
            moves,
        };
        let repositories = Repositories { found: vec![found], roots: vec!["/p".into()] };
        let said = repositories.said(Told::Done);
        assert_eq!(said.len(), MAX_LINES);
        assert_eq!(said[9], "and 21 more branches and tags (--json names all)");
        assert_eq!(repositories.lines(), [".git: 30 changes"]);
    }

    #[test]
    fn a_repository_is_one_row_of_a_review() {
        let repository = |git_dir: &str| RepositoryChange {
            git_dir: git_dir.into(),
            path_count: 2,
            is_new: false,
            is_gone: false,
            moves: Vec::new(),
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
        assert_eq!(summary, "+2 files, 1 touched, .git: 4 changes");
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

    #[test]
    fn a_conflict_of_a_repository_is_one_sentence() {
        let text = |moves| {
            conflict_text(Path::new("/nowhere/.git"), &RepositoryConflict::MovedOn { moves })
        };
        assert_eq!(text(vec![]), "the repository has moved on");
        let expected = "the repository has moved on: main moved: aaaaaaa..bbbbbbb";
        assert_eq!(text(vec![main_moved()]), expected);
    }
}
