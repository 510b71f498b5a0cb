//! The facts that a store holds and that were not seen before.
//!
//! A session is read when its manifest, the list of its snapshots, the notes of its pushes or its
//! quarantine are others than at the last look, or when its command was at work then. So a look
//! costs a few `stat` calls for each session, and what changed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::EventError;
use super::fact::{Damage, Fact, Record, Restored};
use crate::layout;
use crate::snapshot::{
    ManifestError, RestoreCommand, RestoreRecord, SessionDir, SessionMetadata, SessionOrigin,
    StepEntry,
};
use crate::sys::{self, Dir, DirWatch, FileKind, FileTime, Stat};

/// The names in a session whose change may be a fact.
const OF_SESSION: &[&[u8]] = &[
    layout::MANIFEST.as_bytes(),
    layout::SNAPSHOTS.as_bytes(),
    layout::PUSHES.as_bytes(),
    layout::QUARANTINE.as_bytes(),
    layout::RUNNING.as_bytes(),
];
/// The entries in the directory of objects.
const OF_OBJECTS: &[&[u8]] = &[layout::QUARANTINE.as_bytes()];
/// Every name counts.
const ALL: &[&[u8]] = &[];

/// The facts that are noted, by session.
#[derive(Debug, Default)]
pub(super) struct Seen {
    sessions: HashMap<String, SeenSession>,
    /// The damage of what sessions share.
    damage: BTreeSet<(Damage, PathBuf)>,
}

#[derive(Debug, Default)]
struct SeenSession {
    has_begun: bool,
    ended: Option<Timestamp>,
    is_interrupted: bool,
    snapshots: BTreeSet<u64>,
    removed: BTreeSet<u64>,
    restores: BTreeSet<u64>,
    conflicts: BTreeSet<u64>,
    merged: bool,
    pushes: BTreeSet<(Timestamp, u64)>,
    damage: BTreeSet<(Damage, PathBuf)>,
}

impl Seen {
    /// Takes a noted fact in.
    pub(super) fn note(&mut self, Record { at, session, fact }: &Record) {
        let Some(id) = session else {
            if let Fact::Damage { what, path } = fact {
                self.damage.insert((*what, path.clone()));
            }
            return;
        };
        if matches!(fact, Fact::SessionRemoved {}) {
            // One that an archive brings again is a new one.
            self.sessions.remove(id);
            return;
        }
        let seen = self.sessions.entry(id.clone()).or_default();
        match fact {
            Fact::SessionBegan { .. } => seen.has_begun = true,
            Fact::SessionEnded { .. } => seen.ended = Some(*at),
            Fact::SessionInterrupted {} => seen.is_interrupted = true,
            Fact::Snapshot { number, .. } | Fact::Step { number, .. } => {
                seen.snapshots.insert(*number);
            }
            Fact::SnapshotRemoved { number, .. } => {
                seen.removed.insert(*number);
            }
            Fact::Restore(it) | Fact::Undo(it) | Fact::Redo(it) => {
                seen.restores.insert(it.restore);
            }
            Fact::Conflict { restore, .. } => {
                seen.conflicts.insert(*restore);
            }
            Fact::Merge { .. } => seen.merged = true,
            Fact::Push { number, .. } => {
                seen.pushes.insert((*at, *number));
            }
            Fact::Damage { what, path } => {
                seen.damage.insert((*what, path.clone()));
            }
            Fact::SessionRemoved {} => {}
        }
    }
}

/// The states of files at the last look.
#[derive(Debug, Default)]
pub(super) struct Look {
    sessions: HashMap<String, Looked>,
}

#[derive(Debug, PartialEq, Eq)]
struct Looked {
    files: [Option<(u64, u64, FileTime)>; 4],
    /// Whether a file was as young as the look: one that takes its inode in the same tick of the
    /// clock may look the same.
    is_racy: bool,
    is_at_work: bool,
}

impl Look {
    /// The facts beyond `seen`, those of one look in the order of their times. With `watch`, each
    /// directory is watched before it is read.
    pub(super) fn new_facts(
        &mut self,
        root: &Path,
        seen: &Seen,
        mut watch: Option<&mut DirWatch>,
    ) -> Result<Vec<Record>, EventError> {
        watched(root, ALL, watch.as_deref_mut())?;
        let objects = root.join(layout::OBJECTS);
        watched(&objects, OF_OBJECTS, watch.as_deref_mut())?;
        let quarantine = objects.join(layout::QUARANTINE);
        watched(&quarantine, ALL, watch.as_deref_mut())?;
        let mut found = Vec::new();
        for (path, at) in quarantined(&quarantine)? {
            let damage = (Damage::Quarantined, path);
            if !seen.damage.contains(&damage) {
                let fact = Fact::Damage { what: damage.0, path: damage.1 };
                found.push((at, Record { at, session: None, fact }));
            }
        }
        let nothing = SeenSession::default();
        let mut present = HashSet::new();
        if let Some(watch) = watch.as_deref_mut() {
            watch_sessions(root, watch)?;
        }
        for session in SessionDir::all_below(root)? {
            let id = session.id();
            watched_if_allowed(&session.path().join(layout::SNAPSHOTS), ALL, &mut watch)?;
            let of_it = seen.sessions.get(&id).unwrap_or(&nothing);
            let facts = self.of_session(&session, of_it);
            match facts {
                // Removed meanwhile.
                _ if session.is_gone() => continue,
                Ok(facts) => {
                    // The first snapshot of a session may have been begun before its manifest.
                    let first = facts.iter().map(|(at, _)| *at).min();
                    let placed = facts.into_iter().map(|(at, fact)| {
                        let is_begin = matches!(fact, Fact::SessionBegan { .. });
                        let place = first.filter(|_| is_begin).unwrap_or(at);
                        (place, Record { at, session: Some(id.clone()), fact })
                    });
                    found.extend(placed);
                }
                // One of another user hides no other session.
                Err(ManifestError::Io(error)) if error.is_denied() => {}
                Err(error) => return Err(error.into()),
            }
            present.insert(id);
        }
        for id in seen.sessions.keys().filter(|id| !present.contains(*id)) {
            let (at, session) = (Timestamp::now(), Some(id.clone()));
            found.push((at, Record { at, session, fact: Fact::SessionRemoved {} }));
        }
        self.sessions.retain(|id, _| present.contains(id));
        found.sort_by_key(|(place, _)| *place);
        Ok(found.into_iter().map(|(_, record)| record).collect())
    }

    fn of_session(
        &mut self,
        session: &SessionDir,
        seen: &SeenSession,
    ) -> Result<Vec<(Timestamp, Fact)>, ManifestError> {
        let dir = session.dir()?;
        let stamp = |name: &str| -> sys::Result<_> {
            let stat = dir.try_stat(name.as_bytes())?;
            Ok(stat.map(|Stat { ino, size, ctime, .. }| (ino, size, ctime)))
        };
        let now = sys::coarse_now();
        let files = [
            stamp(layout::MANIFEST)?,
            stamp(layout::SNAPSHOTS)?,
            stamp(layout::PUSHES)?,
            stamp(layout::QUARANTINE)?,
        ];
        let looked = self.sessions.get(&session.id());
        let is_racy = files.iter().flatten().any(|(.., ctime)| *ctime >= now);
        let is_same =
            |looked: &Looked| looked.files == files && !looked.is_racy && !looked.is_at_work;
        if seen.has_begun && looked.is_some_and(is_same) {
            return Ok(Vec::new());
        }
        let mut facts = Vec::new();
        let mut is_at_work = false;
        match session.metadata() {
            Ok(metadata) => {
                is_at_work = metadata.ended.is_none() && metadata.origin == SessionOrigin::Run;
                add_facts(session, &metadata, seen, &mut facts)?;
            }
            Err(ManifestError::Io(error)) => return Err(error.into()),
            // One that was killed before its first snapshot is no damage, and the manifest of one
            // that is being made comes behind its first snapshot.
            Err(ManifestError::Missing { .. })
                if !session.may_hold_snapshot()
                    || session.is_being_made()?
                    || dir.try_stat(layout::MANIFEST.as_bytes())?.is_some() => {}
            Err(_) => add_damage(
                Damage::Manifest,
                dir.path_of(layout::MANIFEST.as_bytes()),
                seen,
                &mut facts,
            ),
        }
        let lost = layout::lost_manifest();
        if dir.try_stat(lost.as_bytes())?.is_some() {
            add_damage(Damage::Baseline, dir.path_of(lost.as_bytes()), seen, &mut facts);
        }
        let put_aside = quarantined(&session.path().join(layout::QUARANTINE))?;
        let is_new = |path: &PathBuf| !seen.damage.contains(&(Damage::Quarantined, path.clone()));
        let new = put_aside.into_iter().filter(|(path, _)| is_new(path));
        facts.extend(new.map(|(path, at)| (at, Fact::Damage { what: Damage::Quarantined, path })));
        for note in session.push_notes()? {
            if !seen.pushes.contains(&(note.at, note.snapshot)) {
                let (number, remote, archive) = (note.snapshot, note.remote, note.archive);
                facts.push((note.at, Fact::Push { number, remote, archive }));
            }
        }
        self.sessions.insert(session.id(), Looked { files, is_racy, is_at_work });
        Ok(facts)
    }
}

/// Watches a directory, if it is there. To watch it again costs one call.
fn watched(
    dir: &Path,
    names: &'static [&'static [u8]],
    watch: Option<&mut DirWatch>,
) -> sys::Result<()> {
    match watch.map_or(Ok(()), |watch| watch.add(dir, names)) {
        Err(error) if error.is_gone() => Ok(()),
        added => added,
    }
}

/// The same, of a directory that may be another user's.
fn watched_if_allowed(
    dir: &Path,
    names: &'static [&'static [u8]],
    watch: &mut Option<&mut DirWatch>,
) -> sys::Result<()> {
    match watched(dir, names, watch.as_deref_mut()) {
        Err(error) if error.is_denied() => Ok(()),
        added => added,
    }
}

/// Watches each directory that is a session, or may become one: a look may come between its making
/// and its first content.
fn watch_sessions(root: &Path, watch: &mut DirWatch) -> sys::Result<()> {
    let store = Dir::open(root)?;
    let mut watch = Some(watch);
    for listed in store.names()? {
        let is_directory = || -> sys::Result<bool> {
            let stat = store.try_stat(&listed.name)?;
            Ok(stat.is_some_and(|stat| stat.kind == FileKind::Directory))
        };
        if layout::may_be_session(&listed.name) && is_directory()? {
            watched_if_allowed(&store.path_of(&listed.name), OF_SESSION, &mut watch)?;
        }
    }
    Ok(())
}

fn add_damage(what: Damage, path: PathBuf, seen: &SeenSession, facts: &mut Vec<(Timestamp, Fact)>) {
    if !seen.damage.contains(&(what, path.clone())) {
        facts.push((Timestamp::now(), Fact::Damage { what, path }));
    }
}

/// The files of a quarantine, each with the time at which it came there.
fn quarantined(quarantine: &Path) -> sys::Result<Vec<(PathBuf, Timestamp)>> {
    let dir = match Dir::open(quarantine) {
        Err(error) if error.is_gone() => return Ok(Vec::new()),
        dir => dir?,
    };
    let mut files = Vec::new();
    for listed in dir.names()? {
        let Some(stat) = dir.try_stat(&listed.name)? else { continue };
        let at = stat.ctime.timestamp().unwrap_or(Timestamp::UNIX_EPOCH);
        files.push((dir.path_of(&listed.name), at));
    }
    Ok(files)
}

/// The facts that the manifest of a session, and those of its snapshots, tell.
fn add_facts(
    session: &SessionDir,
    metadata: &SessionMetadata,
    seen: &SeenSession,
    facts: &mut Vec<(Timestamp, Fact)>,
) -> Result<(), ManifestError> {
    if !seen.has_begun {
        let fact = Fact::SessionBegan {
            origin: metadata.origin,
            command: metadata.command.clone(),
            tracked_paths: metadata.tracked_paths.clone(),
            agent: metadata.agent.clone(),
            received: metadata.received,
        };
        facts.push((metadata.started, fact));
    }
    if metadata.altered.is_some() {
        let path = session.path().join(layout::MANIFEST);
        add_damage(Damage::Altered, path, seen, facts);
    }
    let steps: HashMap<u64, &StepEntry> =
        metadata.steps.iter().map(|step| (step.number, step)).collect();
    let removed: BTreeSet<u64> = metadata.removed.iter().map(|removed| removed.number).collect();
    let numbers = session.manifest_numbers()?;
    add_missing(session, metadata, &numbers, seen, facts)?;
    for number in numbers {
        // One that the session's manifest does not name yet comes with the next look.
        let is_named = number < metadata.snapshot_count;
        if !is_named || seen.snapshots.contains(&number) || removed.contains(&number) {
            continue;
        }
        match steps.get(&number) {
            Some(step) => facts.push((step.timestamp, step_fact(step))),
            None => match session.manifest(number) {
                Ok(loaded) => {
                    let manifest = loaded.manifest;
                    let fact = Fact::Snapshot {
                        number,
                        kind: manifest.kind,
                        label: manifest.label,
                        merkle_root: manifest.merkle_root,
                    };
                    facts.push((manifest.timestamp, fact));
                }
                Err(ManifestError::Io(error)) => return Err(error.into()),
                Err(_) => add_damage(Damage::Manifest, session.manifest_path(number), seen, facts),
            },
        }
    }
    for removed in metadata.removed.iter().filter(|it| !seen.removed.contains(&it.number)) {
        let fact = Fact::SnapshotRemoved { number: removed.number, reason: removed.reason };
        facts.push((removed.removed_at, fact));
    }
    add_restores(&metadata.restores, seen, facts);
    let Some(ended) = metadata.ended else {
        let is_run = metadata.origin == SessionOrigin::Run;
        if is_run && !seen.is_interrupted && !session.is_running()? {
            // Its end may have been recorded since its manifest was read.
            let now = session.metadata()?;
            if now.ended.is_none() {
                facts.push((Timestamp::now(), Fact::SessionInterrupted {}));
            }
        }
        return Ok(());
    };
    if seen.ended != Some(ended) {
        let (exit_code, changes) = (metadata.exit_code, metadata.changes);
        facts.push((ended, Fact::SessionEnded { exit_code, changes }));
    }
    if let Some(fork) = metadata.merged_fork()
        && !seen.merged
    {
        facts.push((ended, Fact::Merge { fork: fork.to_owned(), changes: metadata.changes }));
    }
    Ok(())
}

/// The damage of snapshots that the session's manifest lists and that are not there. A removed one
/// leaves its manifest behind.
fn add_missing(
    session: &SessionDir,
    metadata: &SessionMetadata,
    numbers: &[u64],
    seen: &SeenSession,
    facts: &mut Vec<(Timestamp, Fact)>,
) -> Result<(), ManifestError> {
    let listed = metadata.snapshot_count.min(metadata.manifest_hashes.len() as u64);
    for number in 0..listed {
        let is_announced = || -> sys::Result<bool> {
            let pending = layout::pending_manifest();
            Ok(number == 0 && session.dir()?.try_stat(pending.as_bytes())?.is_some())
        };
        let is_gone = numbers.binary_search(&number).is_err();
        if is_gone && metadata.removal(number).is_none() && !is_announced()? {
            add_damage(Damage::Manifest, session.manifest_path(number), seen, facts);
        }
    }
    Ok(())
}

fn step_fact(step: &StepEntry) -> Fact {
    Fact::Step {
        number: step.number,
        kind: step.kind,
        agent: step.agent.clone(),
        prompt: step.prompt.as_ref().map(|prompt| prompt.number),
        tool: step.tool.clone(),
        title: step.title.clone(),
        failed: step.failed,
        changes: step.changes,
    }
}

fn add_restores(
    restores: &[RestoreRecord],
    seen: &SeenSession,
    facts: &mut Vec<(Timestamp, Fact)>,
) {
    for (at, record) in restores.iter().enumerate() {
        let restore = at as u64;
        if !seen.restores.contains(&restore) {
            facts.push((record.at, restore_fact(record, restore)));
        }
        if record.left_some && !seen.conflicts.contains(&restore) {
            facts.push((record.at, Fact::Conflict { restore, snapshot: record.snapshot }));
        }
    }
}

/// The kind of a restore, by its command.
fn restore_fact(record: &RestoreRecord, restore: u64) -> Fact {
    let restored = Restored {
        restore,
        snapshot: record.snapshot,
        safety_snapshot: record.safety_snapshot,
        partial: record.is_partial && !record.undoes_steps,
        steps: record.undoes_steps,
    };
    match record.command {
        RestoreCommand::Undo => Fact::Undo(restored),
        RestoreCommand::Redo => Fact::Redo(restored),
        RestoreCommand::Restore => Fact::Restore(restored),
    }
}
