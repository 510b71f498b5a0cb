//! Damaged manifests: a copy that has the hash which others vouch for, or made again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Lost, RepairError, RepairReport, Repaired, Source};
use crate::diff::count_changes;
use crate::layout;
use crate::object::ContentHash;
use crate::snapshot::{
    CONTAINER_PATHS, LoadedManifest, ManifestError, SessionDir, SessionMetadata, SessionOrigin,
    SnapshotKind, steps_of_chain,
};
use crate::store::LocalStore;
use crate::sys::{self, Dir, FileKind};

/// Larger files are no manifests.
const MAX_BYTES: u64 = 1 << 30;

/// Repairs the manifests of a session, under its lock.
pub(super) fn repair(
    session: &SessionDir,
    other_stores: &[PathBuf],
    report: &mut RepairReport,
) -> Result<(), RepairError> {
    let numbers = session.manifest_numbers()?;
    let metadata = match session.metadata() {
        Ok(metadata) => Some(metadata),
        // A session that a program makes gets it after its first snapshot.
        Err(ManifestError::Missing { .. }) if matches!(numbers[..], [] | [0]) => return Ok(()),
        Err(ManifestError::Corrupt { .. } | ManifestError::Missing { .. }) => None,
        // Newer, or not readable now: not damaged.
        Err(_) => return Ok(()),
    };
    let listed = metadata.as_ref().map_or(&[][..], |metadata| &metadata.manifest_hashes);
    let last = numbers.last().map_or(0, |last| last + 1);
    for number in 0..last.max(listed.len() as u64) {
        repair_snapshot(session, number, listed, other_stores, report)?;
    }
    match metadata {
        None => rebuild(session, other_stores, report),
        Some(metadata) if metadata.altered.is_some() => {
            replace_altered(session, &metadata, other_stores, report)
        }
        Some(_) => Ok(()),
    }
}

/// Replaces a session's manifest that can be read, and that was edited by hand. Without a copy it
/// stays: nothing tells what it said before.
fn replace_altered(
    session: &SessionDir,
    metadata: &SessionMetadata,
    other_stores: &[PathBuf],
    report: &mut RepairReport,
) -> Result<(), RepairError> {
    let Some((path, copy)) = find_session_copy(session, &metadata.manifest_hashes, other_stores)
    else {
        report.lost.push(Lost {
            what:
                "what the manifest of the session says of the command, its times and its exit code"
                    .to_owned(),
            object: None,
            reason: "it was changed, and not by nono; it stays where it is, because no copy tells \
                     what is right"
                .to_owned(),
            is_unreadable: false,
            snapshots: BTreeSet::new(),
            paths: Vec::new(),
            has_more_paths: false,
        });
        return Ok(());
    };
    replace_session(session, &copy, Source::Store { path }, report)
}

/// Counts the changes in a session whose manifest was made again, now that its objects were looked
/// at. Under its lock.
pub(super) fn count_again(session: &SessionDir, store: &LocalStore) -> Result<(), RepairError> {
    let Ok(mut metadata) = session.metadata() else { return Ok(()) };
    if metadata.changes.is_some() || metadata.altered.is_some() {
        return Ok(());
    }
    let ordinary = |number: &u64| {
        let manifest = session.manifest(*number).ok()?.manifest;
        (manifest.kind == SnapshotKind::Ordinary).then_some(manifest)
    };
    let mut numbers: Vec<u64> = (0..metadata.manifest_hashes.len() as u64).collect();
    numbers.retain(|number| metadata.removal(*number).is_none() && !metadata.was_added(*number));
    let last = numbers.iter().rev().find_map(ordinary);
    let first = numbers.first().and_then(ordinary);
    let (Some(first), Some(last)) = (first, last) else { return Ok(()) };
    match count_changes(store, &first, &last, || true) {
        Ok(counted) => metadata.changes = counted,
        // It stays unknown, which `verify` does not blame.
        Err(error) => {
            tracing::debug!("changes not counted: {error}");
            return Ok(());
        }
    }
    Ok(session.save_metadata(&metadata)?)
}

fn repair_snapshot(
    session: &SessionDir,
    number: u64,
    listed: &[ContentHash],
    other_stores: &[PathBuf],
    report: &mut RepairReport,
) -> Result<(), RepairError> {
    let vouched: Vec<ContentHash> = usize::try_from(number)
        .ok()
        .and_then(|at| listed.get(at).copied())
        .into_iter()
        .chain(session.manifest(number + 1).ok().and_then(|next| next.manifest.parent_hash))
        .collect();
    let is_readable = match session.manifest(number) {
        Ok(loaded) if vouched.iter().all(|hash| *hash == loaded.hash) => return Ok(()),
        Ok(_) => true,
        Err(ManifestError::Corrupt { .. } | ManifestError::Missing { .. }) => false,
        Err(_) => return Ok(()),
    };
    let path = session.manifest_path(number);
    let name = number.to_string();
    // Where those who vouch disagree, no copy can be told to be the right one.
    let copy = match vouched.as_slice() {
        [first, rest @ ..] if rest.iter().all(|hash| hash == first) => {
            find_copy(session, number, first, other_stores)
        }
        _ => None,
    };
    let Some((from, bytes)) = copy else {
        if !is_readable {
            report.quarantined.extend(set_aside(session, number, Way::Move)?);
        }
        let reason = if is_readable {
            "its hash is not the one that was noted; it stays where it is, because nothing can \
             tell what is right"
        } else {
            "no copy has the hash that was noted"
        };
        report.lost.push(lost_manifest(number, reason));
        return Ok(());
    };
    report.quarantined.extend(set_aside(session, number, Way::Link)?);
    let snapshots = session.dir()?.open_dir(layout::SNAPSHOTS.as_bytes())?;
    match snapshots.make_dir(name.as_bytes(), 0o700) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    let dir = snapshots.open_dir(name.as_bytes())?;
    dir.replace_file(layout::MANIFEST.as_bytes(), &bytes, 0o600, true)?;
    snapshots.sync()?;
    let from = Source::Store { path: from };
    report.repaired.push(Repaired { object: None, on_disk: path, from });
    Ok(())
}

fn lost_manifest(number: u64, reason: &str) -> Lost {
    Lost {
        what: format!("the manifest of snapshot {number}"),
        object: None,
        reason: reason.to_owned(),
        is_unreadable: false,
        snapshots: [number].into(),
        paths: Vec::new(),
        has_more_paths: false,
    }
}

/// The same session in another store.
fn other_sessions(session: &SessionDir, other_stores: &[PathBuf]) -> Vec<PathBuf> {
    let name = session.path().file_name().unwrap_or_default();
    let inside = other_stores.iter().map(|place| place.join(name));
    let itself = other_stores.iter().filter(|place| place.file_name() == Some(name)).cloned();
    inside.chain(itself).filter(|path| path != session.path()).collect()
}

fn find_copy(
    session: &SessionDir,
    number: u64,
    hash: &ContentHash,
    other_stores: &[PathBuf],
) -> Option<(PathBuf, Vec<u8>)> {
    other_sessions(session, other_stores).into_iter().find_map(|other| {
        let path = other.join(layout::snapshot_manifest(number));
        let bytes = read(path.parent()?).ok()?;
        (ContentHash::of(&bytes) == *hash).then_some((path, bytes))
    })
}

fn read(dir: &Path) -> sys::Result<Vec<u8>> {
    Dir::open(dir)?.read(layout::MANIFEST.as_bytes(), MAX_BYTES)
}

/// Puts the manifest of a snapshot into the session's quarantine, if there is one.
fn set_aside(
    session: &SessionDir,
    number: u64,
    way: Way,
) -> Result<Option<PathBuf>, ManifestError> {
    let snapshots = session.dir()?.open_dir(layout::SNAPSHOTS.as_bytes())?;
    let dir = match snapshots.open_dir(number.to_string().as_bytes()) {
        Ok(dir) => dir,
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    put_aside(session, &dir, &format!("snapshot-{number}"), way)
}

/// Moves the manifest of a snapshot into the session's quarantine, if there is one: a better one
/// takes its place. Under the session's lock.
///
/// # Errors
/// When it cannot be moved.
pub fn set_manifest_aside(session: &SessionDir, number: u64) -> Result<(), ManifestError> {
    set_aside(session, number, Way::Move).map(drop)
}

/// Whether what is put into quarantine stays under its name as well, until it is replaced at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Move,
    Link,
}

fn put_aside(
    session: &SessionDir,
    dir: &Dir,
    called: &str,
    way: Way,
) -> Result<Option<PathBuf>, ManifestError> {
    let name = layout::MANIFEST.as_bytes();
    let Some(stat) = dir.try_stat(name)? else { return Ok(None) };
    let own = session.dir()?;
    match own.make_dir(layout::QUARANTINE.as_bytes(), 0o700) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    let quarantine = own.open_dir(layout::QUARANTINE.as_bytes())?;
    let random = hex::encode(&sys::random_bytes()?[..8]);
    let aside = format!("{called}-{random}.json").into_bytes();
    if way == Way::Link && stat.kind != FileKind::Directory {
        dir.link(name, &quarantine, &aside)?;
    } else {
        dir.rename_new(name, &quarantine, &aside)?;
    }
    quarantine.sync()?;
    dir.sync()?;
    Ok(Some(quarantine.path_of(&aside)))
}

/// Makes the session's own manifest again.
fn rebuild(
    session: &SessionDir,
    other_stores: &[PathBuf],
    report: &mut RepairReport,
) -> Result<(), RepairError> {
    let mut chain: Vec<LoadedManifest> = Vec::new();
    let unlisted = SessionMetadata::new(session.id(), Vec::new(), Vec::new());
    for (expected, number) in (0..).zip(session.manifest_numbers()?) {
        let loaded = session.manifest(number);
        let fits = loaded.and_then(|loaded| {
            session.check_link(chain.last(), &loaded, &unlisted).map(|()| loaded)
        });
        match fits {
            Ok(loaded) if number == expected => chain.push(loaded),
            _ => {
                report.lost.push(Lost {
                    what: "the manifest of the session".to_owned(),
                    reason: "its snapshots are not a whole chain from which it could be made again"
                        .to_owned(),
                    ..lost_manifest(number, "")
                });
                return Ok(());
            }
        }
    }
    let (Some(first), Some(last)) = (chain.first(), chain.last()) else { return Ok(()) };
    let hashes: Vec<_> = chain.iter().map(|loaded| loaded.hash).collect();
    let copy = find_session_copy(session, &hashes, other_stores);
    let (from, metadata) = match copy {
        Some((path, metadata)) => (Source::Store { path }, metadata),
        None => {
            let asked =
                chain.iter().rev().find(|loaded| loaded.manifest.kind == SnapshotKind::Ordinary);
            let roots = &asked.unwrap_or(first).manifest.roots;
            let paths = roots.iter().map(|root| root.path.clone()).collect();
            let mut metadata = SessionMetadata::new(session.id(), Vec::new(), paths);
            metadata.started = first.manifest.timestamp;
            // Whether it had ended is not known; then later changes of files are not its own.
            metadata.ended = Some(last.manifest.timestamp);
            metadata.merkle_roots = chain.iter().map(|l| l.manifest.merkle_root).collect();
            metadata.manifest_hashes = hashes;
            // Counted when the objects were looked at.
            metadata.changes = None;
            let manifests = chain.iter().map(|loaded| &loaded.manifest);
            (metadata.agent, metadata.steps) = steps_of_chain(manifests);
            chain.iter().for_each(|loaded| metadata.describe(&loaded.manifest));
            // Whether it was pinned is not known, and a pin can be taken away.
            metadata.pinned = true;
            // Nor whether an archive brought a snapshot, and privileges can be asked for.
            metadata.received_snapshots = (0..chain.len() as u64).collect();
            metadata.snapshot_count = chain.len() as u64;
            if metadata.tracked_paths == CONTAINER_PATHS.map(PathBuf::from) {
                metadata.origin = SessionOrigin::Container;
                metadata.ended = None;
            }
            let newest_stays = usize::from(metadata.origin.builds_on_newest());
            let earlier = chain.len().saturating_sub(newest_stays) as u64;
            metadata.removed = (0..earlier).filter_map(|it| session.removed_note(it)).collect();
            let written = chain.iter().map(|loaded| loaded.manifest.totals.bytes_written);
            metadata.bytes_written = written.fold(0, u64::saturating_add);
            (Source::Snapshots, metadata)
        }
    };
    replace_session(session, &metadata, from, report)
}

/// The session's manifest in another store, with the same snapshots, as nono wrote it.
fn find_session_copy(
    session: &SessionDir,
    hashes: &[ContentHash],
    other_stores: &[PathBuf],
) -> Option<(PathBuf, SessionMetadata)> {
    other_sessions(session, other_stores).into_iter().find_map(|other| {
        let metadata = SessionDir::open(&other).ok()?.metadata().ok()?;
        let is_same = metadata.session_id == session.id()
            && metadata.manifest_hashes == hashes
            && metadata.altered.is_none();
        is_same.then_some((other.join(layout::MANIFEST), metadata))
    })
}

/// Replaces the session's manifest, and keeps the old one aside.
fn replace_session(
    session: &SessionDir,
    metadata: &SessionMetadata,
    from: Source,
    report: &mut RepairReport,
) -> Result<(), RepairError> {
    report.quarantined.extend(put_aside(session, &session.dir()?, "session", Way::Link)?);
    session.save_metadata(metadata)?;
    let on_disk = session.path().join(layout::MANIFEST);
    report.repaired.push(Repaired { object: None, on_disk, from });
    Ok(())
}
