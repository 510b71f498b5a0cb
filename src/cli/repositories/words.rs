//! The moves of HEAD and refs, and conflicts of repositories, in sentences.

use std::path::Path;

use super::{MAX_LINES, Told};
use crate::cli::commits::{Between, as_committed, between, missing};
use nono_engine::counted::counted;
use nono_engine::git::{GitWork, Head, Move, Oid, RefAt, RemoteBranch, RepositoryChange};
use nono_engine::path_text::Shown;
use nono_engine::restore::RepositoryConflict;

/// Maximum number of parts of a line about the moves of a repository.
const MAX_BRIEF: usize = 4;
/// Maximum number of changed files of a git directory that are named.
const MAX_NAMES: usize = 3;

/// Refs that a restore set to commits that the repository does not have, in words.
pub(in crate::cli) fn without_commits(restored: &[RepositoryChange]) -> Vec<String> {
    let mut told = Vec::new();
    for repository in restored.iter().filter(|repository| !repository.is_gone) {
        let commit = |change: &Move| match change {
            Move::Moved { to, .. } | Move::Created { to, .. } => Some(to.clone()),
            Move::Switched { to: Head::Detached(to), .. } => Some(to.clone()),
            Move::Switched { .. } | Move::Deleted { .. } | Move::Redirected { .. } => None,
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

/// The message about a git directory that is in the way of a restore.
pub(in crate::cli) fn conflict_text(git_dir: &Path, conflict: &RepositoryConflict) -> String {
    let moves = match conflict {
        RepositoryConflict::Removed { refs } => {
            return format!("the repository was removed after the session{}", with_refs(refs));
        }
        RepositoryConflict::Made { refs } => {
            return format!("the repository was made after the session{}", with_refs(refs));
        }
        RepositoryConflict::AtWork { lock } => {
            let lock = Shown::path(lock);
            return format!(
                "git is at work in it ({lock}): wait until it is done, or remove the lock if no \
                 git is running"
            );
        }
        RepositoryConflict::Staged => {
            return "something else is staged now than after the session".to_owned();
        }
        RepositoryConflict::Reftables => {
            return "its refs are in reftables, which are not read here, and are not as the session \
                    left them: branches, tags, stashes or commits that came since would be lost"
                .to_owned();
        }
        RepositoryConflict::InProgress { operation } => {
            return format!("a {operation} is under way in it that began after the session");
        }
        RepositoryConflict::MovedOn { moves } => moves,
    };
    let what = commits_among(&counts_of(moves, git_dir))
        .or_else(|| tell(moves, git_dir, Told::Done).into_iter().next());
    match what {
        Some(what) => format!("the repository has moved on: {what}"),
        None => "the repository has moved on".to_owned(),
    }
}

/// The new commits of several moves, which may be the same ones.
fn commits_among(counts: &[Option<Between>]) -> Option<String> {
    let most = counts.iter().flatten().max_by_key(|found| found.added)?;
    (most.added > 0).then(|| commits(most.added, most.is_partial))
}

/// The moves of one repository in a few words: `1 commit, new: feature, now on feature`. `None`:
/// nothing moved.
fn brief(moves: &[Move], git_dir: &Path) -> Option<String> {
    let counts = counts_of(moves, git_dir);
    let mut parts: Vec<String> = commits_among(&counts).into_iter().collect();
    let remote = moves.iter().filter(|change| change.is_of_remote()).count();
    for (change, count) in moves.iter().zip(counts).filter(|(change, _)| !change.is_of_remote()) {
        let added = count.is_some_and(|found| found.added > 0 && found.gone == 0);
        parts.extend(match change {
            Move::Switched { to: Head::Ref(name), .. } => {
                Some(format!("now on {}", ref_name(name)))
            }
            Move::Switched { to: Head::Detached(oid), .. } => {
                Some(format!("now at {}", oid.short()))
            }
            Move::Moved { .. } if added => None,
            Move::Created { name, .. } if name == "refs/stash" => {
                Some("changes stashed".to_owned())
            }
            Move::Moved { name, .. } | Move::Redirected { name, .. } => {
                Some(format!("{} moved", ref_name(name)))
            }
            Move::Created { name, .. } => Some(format!("new: {}", ref_name(name))),
            Move::Deleted { name, .. } => Some(format!("gone: {}", ref_name(name))),
        });
    }
    if remote > 0 {
        parts.push("remote-tracking branches moved".to_owned());
    }
    if parts.len() > MAX_BRIEF {
        let more = parts.len() - (MAX_BRIEF - 1);
        parts.truncate(MAX_BRIEF - 1);
        parts.push(format!("{more} more"));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The work of one repository in a few words: its moves, staged files, operations, settings.
/// `None`: all that changed is git's own.
pub(super) fn brief_of(repository: &RepositoryChange) -> Option<String> {
    let RepositoryChange { git_dir, moves, work, refs, .. } = repository;
    if repository.is_new {
        return Some(format!("new{}", with_names(refs)));
    }
    if repository.is_gone {
        return Some(format!("gone{}", with_names(refs)));
    }
    let parts: Vec<String> =
        brief(moves, git_dir).into_iter().chain(work_of(work, git_dir)).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The work beside HEAD and the refs, each kind in a few words.
fn work_of(work: &GitWork, git_dir: &Path) -> Vec<String> {
    let mut parts = Vec::new();
    parts.extend(work.begun.iter().map(|operation| format!("{operation} under way")));
    parts.extend(work.ended.iter().map(|operation| format!("{operation} ended")));
    parts.extend(staged_parts(work, git_dir));
    if work.is_index_unclear {
        parts.push("staged files changed".to_owned());
    }
    if work.gone_objects > 0 {
        let objects = counted(work.gone_objects, "object file is", "object files are");
        parts.push(format!("{objects} gone"));
    }
    let named = work.names.iter().map(|name| match name.as_str() {
        "config" => "settings changed".to_owned(),
        "hooks" => "hooks changed".to_owned(),
        "info" => "rules of info/ changed".to_owned(),
        "reftable" => "refs changed (reftable)".to_owned(),
        name => format!("{} changed", Shown::bytes(name.as_bytes())),
    });
    parts.extend(named.take(MAX_NAMES));
    if let Some(more @ 1..) = work.names.len().checked_sub(MAX_NAMES) {
        parts.push(format!("{more} more changed"));
    }
    parts
}

/// `2 files staged, 1 file unstaged`. A file that is in the index as in the commit is unstaged.
/// Where the commit cannot be read, only the number of files is known.
fn staged_parts(work: &GitWork, git_dir: &Path) -> Vec<String> {
    let count = work.staged.len();
    if count == 0 {
        return Vec::new();
    }
    let objects = git_dir.join("objects");
    let unstaged = match &work.commit {
        Some(commit) => as_committed(&objects, commit, &work.staged),
        // Before the first commit, a file that leaves the index is unstaged.
        None => Some(work.staged.iter().filter(|file| file.object.is_none()).count()),
    };
    let Some(unstaged) = unstaged else {
        return vec![format!("{} staged otherwise", counted(count, "file", "files"))];
    };
    let part = |count: usize, word: &str| {
        (count > 0).then(|| format!("{} {word}", counted(count, "file", "files")))
    };
    let parts = [part(count - unstaged, "staged"), part(unstaged, "unstaged")];
    parts.into_iter().flatten().collect()
}

/// ` (main, tag v0, 3 more)`, or nothing where there are no refs.
fn with_names(refs: &[RefAt]) -> String {
    in_brackets(refs, |it| ref_name(&it.name))
}

/// ` (main at 1f8dee5, tag v0 at 1f8dee5, 3 more)`, or nothing where there are no refs.
pub(super) fn with_refs(refs: &[RefAt]) -> String {
    in_brackets(refs, |it| format!("{} at {}", ref_name(&it.name), it.commit.short()))
}

fn in_brackets(refs: &[RefAt], shown: impl Fn(&RefAt) -> String) -> String {
    let mut named: Vec<String> = refs.iter().take(MAX_BRIEF - 1).map(shown).collect();
    if let Some(more @ 1..) = refs.len().checked_sub(named.len()) {
        named.push(format!("{more} more"));
    }
    if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) }
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
    // Lines that are not shown need no number.
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

/// The lines about the moves of one repository.
pub(super) fn tell(moves: &[Move], git_dir: &Path, told: Told) -> Vec<String> {
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
    if remote > 0 {
        let branches = counted(remote, "remote-tracking branch", "remote-tracking branches");
        lines.push(format!("{branches} moved"));
    }
    lines
}

/// The lines about the remote-tracking branches that a restore leaves.
pub(super) fn staying(branches: &[RemoteBranch]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut others = 0_usize;
    for branch in branches {
        let name = branch.name.strip_prefix("refs/remotes/").and_then(|name| name.split_once('/'));
        match name {
            Some((remote, branch_name)) if branch.is_pushed => {
                let shown = |text: &str| Shown::bytes(text.as_bytes()).to_string();
                let (branch, remote) = (shown(branch_name), shown(remote));
                lines.push(format!("{branch} was pushed to {remote} and stays there"));
            }
            _ => others += 1,
        }
    }
    match others {
        0 => {}
        1 => lines.push("1 remote-tracking branch stays as it is".to_owned()),
        count => lines.push(format!("{count} remote-tracking branches stay as they are")),
    }
    lines
}

fn commits(count: usize, is_partial: bool) -> String {
    let counted = counted(count, "commit", "commits");
    if is_partial { format!("more than {counted}") } else { counted }
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
        Move::Redirected { name, from, to } => {
            let name = ref_name(name);
            match (from, to) {
                (None, Some(to)) => format!("new: {name}, which leads to {}", ref_name(to)),
                (_, Some(to)) => format!("{name} leads to {} now", ref_name(to)),
                (Some(from), None) => format!("gone: {name} (led to {})", ref_name(from)),
                (None, None) => name,
            }
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
        Move::Redirected { name, to: Some(to), .. } => {
            format!("{} {verb} leading to {} again", ref_name(name), ref_name(to))
        }
        Move::Redirected { name, to: None, .. } => format!("{} {verb} removed", ref_name(name)),
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
    fn a_conflict_of_a_repository_is_one_sentence() {
        let text = |moves| {
            conflict_text(Path::new("/nowhere/.git"), &RepositoryConflict::MovedOn { moves })
        };
        assert_eq!(text(vec![]), "the repository has moved on");
        let expected = "the repository has moved on: main moved: aaaaaaa..bbbbbbb";
        assert_eq!(text(vec![main_moved()]), expected);
    }

    #[test]
    fn what_was_pushed_is_named_and_what_was_fetched_is_counted() {
        let branch = |name: &str, is_pushed| RemoteBranch {
            name: format!("refs/remotes/{name}"),
            commit: Some(oid('a')),
            is_pushed,
        };
        let one = [branch("origin/feature/x", true), branch("origin/main", false)];
        assert_eq!(
            staying(&one),
            [
                "feature/x was pushed to origin and stays there",
                "1 remote-tracking branch stays as it is"
            ]
        );
        let two = [branch("origin/a", false), branch("origin/b", false)];
        assert_eq!(staying(&two), ["2 remote-tracking branches stay as they are"]);
        assert_eq!(staying(&[]), [""; 0]);
    }

    #[test]
    fn names_are_safe() {
        assert_eq!(ref_name("refs/heads/a\u{202e}b"), "a\\u{202e}b");
    }
}
