//! Other sessions that worked on the same paths at the same time.
//!
//! Each of two sessions that overlap records what both of them changed. A path that each may have
//! changed, at a time at which the other was at work, is a conflict of an undo, and names the other
//! session. A path that one of them changed while the other did nothing is the work of that one.
//!
//! The times are those of the states: a command works from its first state to its end, an agent
//! from the state before a call to the state after it. A command or a call that is at work has no
//! last state yet, and a command that was killed never gets one. Then every path that is not as it
//! was at the beginning may be its work. A killed command that was not at work when the undone
//! session began is no rival: it had died before, and would stand in the way of every later undo.
//! For the same reason a call without an end counts only if it began after the undone session.
//!
//! A session that is undone left nothing behind, and one that an archive brought did nothing here.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;

use jiff::Timestamp;

use super::RestoreError;
use super::conflicts::{AllConflicts, Conflict, Conflicts, Later, last_ordinary};
use super::makers::{Link, Window, links};
use super::plan::RestorePlan;
use super::repositories::Repositories;
use crate::byte_path;
use crate::diff::{ChangeType, Lookup};
use crate::git::LinkedWorktree;
use crate::object::ContentHash;
use crate::path_text::to_path;
use crate::snapshot::{
    LoadedManifest, ManifestError, SessionDir, SessionMetadata, SessionOrigin, SnapshotError,
    Undone, undone,
};
use crate::store::{ObjectSource, StoreError, read_root_tree};
use crate::sys::FileTime;

/// The paths that another session may have changed while the undone one was at work, each with the
/// ids of these sessions, ascending.
#[derive(Debug, Default)]
pub(super) struct Contested {
    paths: HashMap<Vec<u8>, Vec<String>>,
    /// Git directories, each as one thing.
    repositories: BTreeMap<Vec<u8>, Vec<String>>,
}

impl Contested {
    /// Looks at the other sessions of the store. `links` are those of the undone session. A session
    /// that cannot be read is passed over: lists name it, and it must be in the way of no undo.
    ///
    /// # Errors
    /// When the store cannot be listed or read.
    pub(super) fn find(
        source: &dyn ObjectSource,
        session: &SessionDir,
        metadata: &SessionMetadata,
        links: &[Link<'_>],
        repositories: &Repositories,
    ) -> Result<Self, RestoreError> {
        let mut found = Self::default();
        let own: Vec<Link<'_>> = links.iter().filter(|link| link.makers.session).copied().collect();
        let (Some(first), Some(end)) = (own.first(), own.last()) else { return Ok(found) };
        let span = Window { from: first.window.from, to: end.window.to };
        let mut changed = None;
        for other in session.siblings().map_err(SnapshotError::from)? {
            let rival = match Rival::read(&other, span, &metadata.beside) {
                Ok(Some(rival)) => rival,
                Ok(None) => continue,
                Err(error) => {
                    let id = other.id();
                    tracing::info!("whether session {id} worked here too is not known: {error}");
                    continue;
                }
            };
            let changed = match &changed {
                Some(changed) => changed,
                None => changed.insert(Changes::by(source, &own, repositories)?),
            };
            match found.add(&rival, changed, end.after, source, repositories) {
                Err(error) if error.is_damage() => {
                    let id = &rival.id;
                    tracing::info!("the changes of session {id} here are not known: {error}");
                }
                added => added?,
            }
        }
        Ok(found)
    }

    /// The sessions that may have changed a path.
    pub(super) fn sessions(&self, path: &[u8]) -> &[String] {
        self.paths.get(path).map_or(&[], Vec::as_slice)
    }

    fn add(
        &mut self,
        rival: &Rival,
        changed: &Changes,
        last: &ContentHash,
        source: &dyn ObjectSource,
        repositories: &Repositories,
    ) -> Result<(), StoreError> {
        let mut paths: HashSet<Vec<u8>> = HashSet::new();
        let mut git_dirs: HashSet<Vec<u8>> = HashSet::new();
        let all = rival.links();
        let work: Vec<&Link<'_>> =
            all.iter().filter(|it| it.makers.session && it.window.overlaps(rival.span)).collect();
        for link in &work {
            link.each_change(source, |path, _| {
                if changed.in_window(&changed.paths, &path, link.window) {
                    paths.insert(path);
                }
            })?;
            for git_dir in link.worked_on(source, repositories)? {
                if changed.in_window(&changed.repositories, &git_dir, link.window) {
                    git_dirs.insert(git_dir);
                }
            }
        }
        // The refs of a repository that a linked work tree belongs to are not recorded with it.
        for common in rival.repositories_elsewhere() {
            let is_shared =
                |link: &&Link<'_>| changed.in_window(&changed.repositories, &common, link.window);
            if work.iter().any(is_shared) {
                git_dirs.insert(common);
            }
        }
        if let Some((before, window)) = rival.unfinished_work(&all) {
            let roots = (read_root_tree(source, before)?, read_root_tree(source, last)?);
            let mut then = Lookup::new(source, &roots.0);
            let mut now = Lookup::new(source, &roots.1);
            for path in changed.paths.keys() {
                let is_meant = rival.tracks(path)
                    && changed.in_window(&changed.paths, path, window)
                    && !paths.contains(path);
                if is_meant && then.find(path)? != now.find(path)? {
                    paths.insert(path.clone());
                }
            }
            for git_dir in repositories.worked_on_between(source, before, last)? {
                if changed.in_window(&changed.repositories, &git_dir, window) {
                    git_dirs.insert(git_dir);
                }
            }
        }
        for path in paths {
            self.paths.entry(path).or_default().push(rival.id.clone());
        }
        for git_dir in git_dirs {
            self.repositories.entry(git_dir).or_default().push(rival.id.clone());
        }
        Ok(())
    }

    /// Makes conflicts of what the plan would take back, and names the sessions in those that are
    /// known. `left` are paths that stay already.
    pub(super) fn settle(
        self,
        plan: &RestorePlan,
        repositories: &Repositories,
        conflicts: &mut AllConflicts,
        left: &HashSet<Vec<u8>>,
    ) {
        let Self { paths: contested, repositories: git_dirs } = self;
        if !contested.is_empty() {
            let mut settled = Conflicts::default();
            let mut known = conflicts.paths.iter().peekable();
            for (path, told) in plan.changes.iter() {
                let later = known.next_if(|(known, _)| *known == path).map(|(_, later)| *later);
                let change = told.change_type().filter(|_| {
                    !left.contains(&path)
                        && repositories.of_path(&path).is_none()
                        && contested.contains_key(&path)
                });
                let new =
                    change.map(|change| Later { change_type: inverse(change), user_edit: None });
                if let Some(later) = later.or(new) {
                    settled.push(&path, later);
                }
            }
            drop(known);
            conflicts.paths = settled;
        }
        let changed =
            if git_dirs.is_empty() { HashSet::new() } else { repositories.changed_by(plan) };
        for (git_dir, sessions) in git_dirs {
            if left.contains(&git_dir) || !changed.contains(&git_dir) {
                continue;
            }
            let path = to_path(&git_dir);
            match conflicts.repositories.iter_mut().find(|known| known.path == path) {
                Some(known) => known.beside = sessions,
                None => conflicts.repositories.push(Conflict {
                    path: path.to_owned(),
                    change_type: ChangeType::Modified,
                    sessions: Vec::new(),
                    repository: None,
                    user_edit: None,
                    beside: sessions,
                }),
            }
        }
        conflicts.beside = contested;
    }
}

/// The change that an undo takes back, from the change that the undo makes.
fn inverse(change: ChangeType) -> ChangeType {
    match change {
        ChangeType::Created => ChangeType::Deleted,
        ChangeType::Deleted => ChangeType::Created,
        other => other,
    }
}

/// When the undone session may have changed each path.
#[derive(Debug, Default)]
struct Changes {
    paths: HashMap<Vec<u8>, Vec<Window>>,
    repositories: HashMap<Vec<u8>, Vec<Window>>,
}

impl Changes {
    /// Where a state in between is damaged, the times cannot be told apart.
    fn by(
        source: &dyn ObjectSource,
        own: &[Link<'_>],
        repositories: &Repositories,
    ) -> Result<Self, StoreError> {
        match Self::among(source, own, repositories) {
            Err(error) if error.is_damage() => {
                let all = Link::merged(own);
                Self::among(source, all.as_slice(), repositories)
            }
            found => found,
        }
    }

    fn among(
        source: &dyn ObjectSource,
        own: &[Link<'_>],
        repositories: &Repositories,
    ) -> Result<Self, StoreError> {
        let mut found = Self::default();
        for link in own {
            link.each_change(source, |path, _| {
                found.paths.entry(path).or_default().push(link.window);
            })?;
            for git_dir in link.worked_on(source, repositories)? {
                found.repositories.entry(git_dir).or_default().push(link.window);
            }
        }
        Ok(found)
    }

    fn in_window(
        &self,
        among: &HashMap<Vec<u8>, Vec<Window>>,
        path: &[u8],
        window: Window,
    ) -> bool {
        among.get(path).is_some_and(|own| own.iter().any(|own| own.overlaps(window)))
    }
}

/// Another session that worked at the same time.
struct Rival {
    id: String,
    /// The time of the undone session.
    span: Window,
    metadata: SessionMetadata,
    chain: Vec<LoadedManifest>,
    unfinished: Option<Unfinished>,
}

/// Work of which no last state is known.
#[derive(Debug, Clone, Copy)]
enum Unfinished {
    /// A command that is at work now, or was killed while the undone session was at work.
    Command,
    /// A call of an agent that began at this time.
    Call(Timestamp),
}

impl Rival {
    /// `None`: it did nothing in the time of the undone session, which is `span`. `beside` are the
    /// runs that were at work when that began.
    fn read(
        other: &SessionDir,
        span: Window,
        beside: &[String],
    ) -> Result<Option<Self>, ManifestError> {
        let metadata = other.metadata()?;
        let is_writer = matches!(metadata.origin, SessionOrigin::Run | SessionOrigin::Agent);
        let ended = metadata.ended.unwrap_or(Timestamp::MAX);
        let is_beside = Window { from: metadata.started, to: ended }.overlaps(span);
        let is_undone = undone(&metadata.restores, metadata.last_recorded()) == Undone::Wholly;
        if !is_writer || !is_beside || is_undone || metadata.received {
            return Ok(None);
        }
        let unfinished = if metadata.ended.is_some() {
            None
        } else if metadata.origin == SessionOrigin::Run {
            let is_it = metadata.started >= span.from
                || beside.contains(&other.id())
                || other.is_running()?;
            is_it.then_some(Unfinished::Command)
        } else {
            let began = other.call_began()?.and_then(FileTime::timestamp);
            began.filter(|began| *began >= span.from).map(Unfinished::Call)
        };
        // Most agents' sessions never get an end, and did nothing for long.
        let last_written = other.last_written()?.map(|time| time.seconds);
        if unfinished.is_none() && last_written.is_some_and(|last| last < span.from.as_second()) {
            return Ok(None);
        }
        let chain = other.recorded_chain(&metadata)?;
        Ok(Some(Self { id: other.id(), span, metadata, chain, unfinished }))
    }

    fn links(&self) -> Vec<Link<'_>> {
        let (Some(first), Some(last)) = (self.chain.first(), last_ordinary(&self.chain)) else {
            return Vec::new();
        };
        links(&self.chain, &self.metadata, &first.manifest, last.number)
    }

    /// The last state that is known before work without an end, and the time since.
    fn unfinished_work<'a>(&'a self, work: &[Link<'a>]) -> Option<(&'a ContentHash, Window)> {
        let first = || self.chain.first().map(|first| &first.manifest);
        let (before, began) = match self.unfinished? {
            Unfinished::Command => (work.last(), None),
            // The state before it may be captured while it is at work.
            Unfinished::Call(began) => {
                (work.iter().rfind(|link| link.window.to <= began), Some(began))
            }
        };
        let (root, since) = match before {
            Some(link) => (link.after, link.window.to),
            None => first().map(|first| (&first.merkle_root, first.timestamp))?,
        };
        Some((root, Window { from: began.unwrap_or(since), to: Timestamp::MAX }))
    }

    /// Git directories of repositories to which its tracked paths belong as linked work trees.
    fn repositories_elsewhere(&self) -> Vec<Vec<u8>> {
        let linked = self.metadata.tracked_paths.iter().filter_map(|top| LinkedWorktree::at(top));
        linked.map(|linked| linked.common.as_os_str().as_bytes().to_vec()).collect()
    }

    fn tracks(&self, path: &[u8]) -> bool {
        self.metadata.tracked_paths.iter().any(|tracked| {
            let tracked = tracked.as_os_str().as_bytes();
            path == tracked || byte_path::relative_to(path, tracked).is_some()
        })
    }
}
