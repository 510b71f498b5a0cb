//! Damaged manifests: a copy that has the hash which others vouch for, or made again.

use std::path::{Path, PathBuf};

use super::{Lost, RepairError, RepairReport, Repaired, Source};
use crate::layout;
use crate::object::ContentHash;
use crate::snapshot::{LoadedManifest, ManifestError, SessionDir, SessionMetadata, SnapshotKind};
use crate::sys::{self, Dir, FileKind};

/// Larger files are no manifests.
const MAX_BYTES: u64 = 1 << 30;

/// Repairs the manifests of a session, under its lock.
pub(super) fn repair(
    session: &SessionDir,
    other_stores: &[PathBuf],
    report: &mut RepairReport,
) -> Result<(), RepairError> {
    let numbers = session.snapshot_numbers()?;
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
    if metadata.is_none() {
        rebuild(session, other_stores, report)?;
    }
    Ok(())
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
            "its hash is not the one that was noted; it stays where it is, because nobody can \
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
fn set_aside(session: &SessionDir, number: u64, way: Way) -> Result<Option<PathBuf>, RepairError> {
    let snapshots = session.dir()?.open_dir(layout::SNAPSHOTS.as_bytes())?;
    let dir = match snapshots.open_dir(number.to_string().as_bytes()) {
        Ok(dir) => dir,
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    put_aside(session, &dir, &format!("snapshot-{number}"), way)
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
) -> Result<Option<PathBuf>, RepairError> {
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
    let on_disk = session.path().join(layout::MANIFEST);
    let mut chain: Vec<LoadedManifest> = Vec::new();
    let unlisted = SessionMetadata::new(session.id(), Vec::new(), Vec::new());
    for (expected, number) in (0..).zip(session.snapshot_numbers()?) {
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
    let copy = other_sessions(session, other_stores).into_iter().find_map(|other| {
        let metadata = SessionDir::open(&other).ok()?.metadata().ok()?;
        let hashes = chain.iter().map(|loaded| loaded.hash);
        (metadata.session_id == session.id() && hashes.eq(metadata.manifest_hashes.iter().copied()))
            .then_some((other.join(layout::MANIFEST), metadata))
    });
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
            metadata.manifest_hashes = chain.iter().map(|loaded| loaded.hash).collect();
            metadata.labels = chain.iter().filter_map(|l| l.manifest.named()).collect();
            metadata.snapshot_count = chain.len() as u64;
            metadata.bytes_written =
                chain.iter().map(|loaded| loaded.manifest.totals.bytes_written).sum();
            (Source::Snapshots, metadata)
        }
    };
    report.quarantined.extend(put_aside(session, &session.dir()?, "session", Way::Link)?);
    session.save_metadata(&metadata)?;
    report.repaired.push(Repaired { object: None, on_disk, from });
    Ok(())
}
