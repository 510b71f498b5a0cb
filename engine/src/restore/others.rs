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
//! But a restore of any session, done while the undone one was at work, changed files too: from the
//! state of its safety snapshot to the one that it brought back. The record of the undone session
//! has these changes like those of its own command.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use jiff::Timestamp;

use super::RestoreError;
use super::conflicts::{AllConflicts, Conflict, Conflicts, Later, last_ordinary};
use super::makers::{Link, Window, links};
use super::plan::RestorePlan;
use super::repositories::Repositories;
use crate::byte_path;
use crate::diff::{self, ChangeType, Lookup};
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
            let last = end.after;
            let mut paths = Touched::default();
            for restored in &rival.restores {
                let touched = restored.touched(changed, source, repositories);
                paths.add(touched, &rival.id)?;
            }
            if let Some(work) = &rival.work {
                let touched = rival.touched(work, changed, last, source, repositories);
                paths.add(touched, &rival.id)?;
            }
            found.add(paths, &rival.id);
        }
        Ok(found)
    }

    /// The sessions that may have changed a path.
    pub(super) fn sessions(&self, path: &[u8]) -> &[String] {
        self.paths.get(path).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, Touched { paths, git_dirs }: Touched, session: &str) {
        for path in paths {
            self.paths.entry(path).or_default().push(session.to_owned());
        }
        for git_dir in git_dirs {
            self.repositories.entry(git_dir).or_default().push(session.to_owned());
        }
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

/// The paths that both sessions may have changed at one time.
#[derive(Debug, Default)]
struct Touched {
    paths: HashSet<Vec<u8>>,
    /// Git directories, each as one thing.
    git_dirs: HashSet<Vec<u8>>,
}

impl Touched {
    /// Nothing of a session whose states are damaged is known.
    fn add(&mut self, other: Result<Self, StoreError>, session: &str) -> Result<(), StoreError> {
        match other {
            Ok(other) => {
                self.paths.extend(other.paths);
                self.git_dirs.extend(other.git_dirs);
            }
            Err(error) if error.is_damage() => {
                tracing::info!("the changes of session {session} here are not known: {error}");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Another session that changed files at the same time.
struct Rival {
    id: String,
    metadata: SessionMetadata,
    /// The changes of its command or its agent.
    work: Option<Work>,
    /// The restores of its snapshots.
    restores: Vec<Restored>,
}

/// The work of a command or an agent.
struct Work {
    /// The time of the undone session.
    span: Window,
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

/// A restore that was carried out.
#[derive(Debug)]
struct Restored {
    window: Window,
    before: ContentHash,
    after: ContentHash,
    /// The paths that it changed; empty: all that differ.
    only: Vec<PathBuf>,
}

impl Restored {
    /// The restores of a session in the time of the undone one. One whose snapshots were removed
    /// is not known any more.
    fn all(
        session: &SessionDir,
        metadata: &SessionMetadata,
        span: Window,
    ) -> Result<Vec<Self>, ManifestError> {
        let manifest = |number: u64| match metadata.removal(number) {
            None => session.manifest(number).map(Some),
            Some(_) => Ok(None),
        };
        let mut found = Vec::new();
        // One that began in this time may have ended after it.
        for record in metadata.restores.iter().filter(|record| record.at >= span.from) {
            let number = record.safety_snapshot.or(metadata.last_recorded());
            let before = number.map(manifest).transpose()?.flatten();
            // The state that an undo of steps left has a snapshot of its own.
            let after = match record.safety_snapshot.filter(|_| record.undoes_steps) {
                Some(safety) if safety + 1 < metadata.snapshot_count => manifest(safety + 1)?,
                _ => manifest(record.snapshot)?,
            };
            let (Some(before), Some(after)) = (before, after) else { continue };
            let before = before.manifest;
            let is_safety = record.safety_snapshot.is_some();
            let from = if is_safety { before.timestamp.min(record.at) } else { record.at };
            let window = Window { from, to: record.at };
            if window.overlaps(span) {
                found.push(Self {
                    window,
                    before: before.merkle_root,
                    after: after.manifest.merkle_root,
                    only: if is_safety { before.restores_only } else { Vec::new() },
                });
            }
        }
        Ok(found)
    }

    fn touched(
        &self,
        changed: &Changes,
        source: &dyn ObjectSource,
        repositories: &Repositories,
    ) -> Result<Touched, StoreError> {
        let mut touched = Touched::default();
        let only: HashSet<&[u8]> =
            self.only.iter().map(|path| path.as_os_str().as_bytes()).collect();
        for difference in diff::differences(source, &self.before, &self.after)? {
            let path = difference?.path;
            let is_meant = only.is_empty() || only.contains(path.as_slice());
            if is_meant && changed.in_window(&changed.paths, &path, self.window) {
                touched.paths.insert(path);
            }
        }
        for git_dir in repositories.worked_on_between(source, &self.before, &self.after)? {
            let is_in =
                |path: &&[u8]| *path == git_dir || byte_path::relative_to(path, &git_dir).is_some();
            let is_meant = only.is_empty() || only.iter().any(is_in);
            if is_meant && changed.in_window(&changed.repositories, &git_dir, self.window) {
                touched.git_dirs.insert(git_dir);
            }
        }
        Ok(touched)
    }
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
        let work = Work::read(other, &metadata, span, beside)?;
        let restores = Restored::all(other, &metadata, span)?;
        let did_something = work.is_some() || !restores.is_empty();
        Ok(did_something.then(|| Self { id: other.id(), metadata, work, restores }))
    }

    /// The paths that it may have changed as well.
    fn touched(
        &self,
        work: &Work,
        changed: &Changes,
        last: &ContentHash,
        source: &dyn ObjectSource,
        repositories: &Repositories,
    ) -> Result<Touched, StoreError> {
        let mut paths: HashSet<Vec<u8>> = HashSet::new();
        let mut git_dirs: HashSet<Vec<u8>> = HashSet::new();
        let all = work.links(&self.metadata);
        let links: Vec<&Link<'_>> =
            all.iter().filter(|it| it.makers.session && it.window.overlaps(work.span)).collect();
        for link in &links {
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
        for common in self.repositories_elsewhere() {
            let is_shared =
                |link: &&Link<'_>| changed.in_window(&changed.repositories, &common, link.window);
            if links.iter().any(is_shared) {
                git_dirs.insert(common);
            }
        }
        if let Some((before, window)) = work.unfinished_work(&all) {
            let roots = (read_root_tree(source, before)?, read_root_tree(source, last)?);
            let mut then = Lookup::new(source, &roots.0);
            let mut now = Lookup::new(source, &roots.1);
            for path in changed.paths.keys() {
                let is_meant = self.tracks(path)
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
        Ok(Touched { paths, git_dirs })
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

impl Work {
    fn read(
        other: &SessionDir,
        metadata: &SessionMetadata,
        span: Window,
        beside: &[String],
    ) -> Result<Option<Self>, ManifestError> {
        let is_writer = matches!(metadata.origin, SessionOrigin::Run | SessionOrigin::Agent);
        let ended = metadata.ended.unwrap_or(Timestamp::MAX);
        let is_beside = Window { from: metadata.started, to: ended }.overlaps(span);
        let is_undone = undone(&metadata.restores, metadata.last_recorded()) == Undone::Wholly;
        // A merge works in the moment in which its state lands, and on nothing else.
        let is_landed = metadata.merge.as_ref().map(|merge| merge.is_done);
        if !is_writer || !is_beside || is_undone || metadata.received || is_landed == Some(false) {
            return Ok(None);
        }
        let unfinished = if metadata.ended.is_some() || is_landed.is_some() {
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
        let chain = other.recorded_chain(metadata)?;
        Ok(Some(Self { span, chain, unfinished }))
    }

    fn links(&self, metadata: &SessionMetadata) -> Vec<Link<'_>> {
        let (Some(first), Some(last)) = (self.chain.first(), last_ordinary(&self.chain)) else {
            return Vec::new();
        };
        links(&self.chain, metadata, &first.manifest, last.number)
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
}
