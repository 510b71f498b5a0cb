//! A foreign session becomes one of ours: built under a hidden name, visible when it is complete.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::contents::{Built, Contents};
use super::documents::{ForeignSession, ForeignSnapshot, SessionFacts};
use super::{
    FOREIGN_RULE, ImportOutcome, ImportReport, ImportSessionError, NOT_KNOWN, SYMLINK_RULE,
    SYMLINKS_NOT_KNOWN, TARGETS_NOT_KNOWN,
};
use crate::layout;
use crate::manifest::{
    MANIFEST_VERSION, NotCaptured, NotCapturedReason, SnapshotKind, SnapshotManifest, TrackedRoot,
};
use crate::object::ContentHash;
use crate::path_text::{encode, to_path};
use crate::progress::{Progress, Stage, wait_for};
use crate::snapshot::{SessionDir, SessionMetadata, SessionOrigin, SnapshotError, SnapshotManager};
use crate::store::{LocalStore, Packer, StoreError};
use crate::sys::{self, Dir};
use crate::walk::ExclusionConfig;

/// The field of a session's manifest that says where it comes from.
const IMPORTED: &str = "imported";

pub(super) fn make(
    root: &Path,
    source: &Path,
    dir: &Dir,
    foreign: ForeignSession,
    pinned: bool,
    progress: &dyn Progress,
) -> Result<ImportReport, ImportSessionError> {
    let mut report = ImportReport {
        session_id: foreign.id.clone(),
        source: source.to_owned(),
        outcome: ImportOutcome::AlreadyHere,
        snapshot_count: foreign.snapshots.len() as u64,
        objects_checked: 0,
        bytes_checked: 0,
        lacks_session_document: foreign.facts.is_none(),
        problems: Vec::new(),
        symlink_count: symlinks(&foreign).len() as u64,
        not_known: not_known(&foreign),
    };
    if is_here(root, &foreign)? {
        return Ok(report);
    }
    sys::create_private_dir(root)?;
    let store = LocalStore::create(&root.join(layout::OBJECTS))?;
    // Held until the session is visible: the collector sees all of it or nothing.
    let lock = wait_for(progress, || store.try_lock_shared())?.ok_or(StoreError::Cancelled)?;
    let packer = Packer::new(&store, &lock);
    progress.begin(Stage::Copy, None);
    let mut contents = Contents::new(dir, &packer, progress);
    let mut built = Vec::with_capacity(foreign.snapshots.len());
    for (number, snapshot) in (0..).zip(&foreign.snapshots) {
        built.push(contents.build(&foreign, number, snapshot)?);
    }
    report.objects_checked = contents.objects_checked();
    report.bytes_checked = contents.bytes_checked;
    report.problems = std::mem::take(&mut contents.problems);
    drop(contents);
    packer.finish()?;
    progress.begin(Stage::Flush, None);
    store.sync()?;

    let metadata = metadata(&foreign, source, pinned);
    let parent = Dir::open(root)?;
    let hidden = layout::new_name()?;
    let made = appear(&parent, root, &hidden, &foreign, built, &metadata);
    if made.is_err() {
        // Nothing names it.
        let _ = parent.remove_dir_all(hidden.as_bytes());
    }
    made?;
    report.outcome = ImportOutcome::Imported;
    Ok(report)
}

/// All symlinks that a session names.
fn symlinks(foreign: &ForeignSession) -> BTreeSet<&Vec<u8>> {
    foreign.snapshots.iter().flat_map(|has| has.symlinks.iter().flatten()).collect()
}

/// The gaps of the versions that made the snapshots.
fn not_known(foreign: &ForeignSession) -> Vec<&'static str> {
    let lists = |lists: bool| foreign.snapshots.iter().any(|has| has.symlinks.is_some() == lists);
    let of_old = lists(false).then_some(SYMLINKS_NOT_KNOWN);
    let of_new = lists(true).then_some(TARGETS_NOT_KNOWN);
    of_old.into_iter().chain(of_new).chain(NOT_KNOWN).collect()
}

/// Whether the session was imported before.
fn is_here(root: &Path, foreign: &ForeignSession) -> Result<bool, ImportSessionError> {
    let place = root.join(&foreign.id);
    let taken = |reason: &str| {
        Err(ImportSessionError::Taken { id: foreign.id.clone(), reason: reason.to_owned() })
    };
    let Ok(session) = SessionDir::open(&place) else { return Ok(false) };
    let metadata = match session.metadata() {
        Ok(metadata) => metadata,
        Err(error) => return taken(&error.to_string()),
    };
    let Some(imported) = metadata.extra.get(IMPORTED) else { return taken("it was recorded here") };
    let here: Vec<&str> = imported["merkle_roots"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(serde_json::Value::as_str)
        .collect();
    let there: Vec<String> = foreign.snapshots.iter().map(|has| has.merkle_root.hex()).collect();
    match here == there {
        true => Ok(true),
        false if here.len() < there.len() && here[..] == there[..here.len()] => {
            taken("it has more snapshots by now; remove it here with `nono cleanup ID`")
        }
        false => taken("its snapshots differ"),
    }
}

fn metadata(foreign: &ForeignSession, source: &Path, pinned: bool) -> SessionMetadata {
    let tracked = foreign.tracked_paths.iter().map(|path| to_path(path).to_owned()).collect();
    let mut metadata = SessionMetadata::new(foreign.id.clone(), Vec::new(), tracked);
    metadata.origin = SessionOrigin::Run;
    metadata.pinned = pinned;
    match &foreign.facts {
        Some(SessionFacts { started, ended, command, exit_code, network_events, .. }) => {
            let plain = command.iter().map(|arg| encode(arg.as_bytes()).into_owned());
            metadata.command = plain.collect();
            metadata.started = *started;
            metadata.ended = *ended;
            metadata.exit_code = *exit_code;
            metadata.network_events = network_events.clone();
        }
        // Without an end, the session counts as interrupted.
        None => metadata.started = foreign.snapshots[0].timestamp,
    }
    let roots: Vec<String> = foreign.snapshots.iter().map(|has| has.merkle_root.hex()).collect();
    let imported = json!({
        "from": encode(std::os::unix::ffi::OsStrExt::as_bytes(source.as_os_str())),
        "merkle_roots": roots,
        "lacks_session_document": foreign.facts.is_none(),
        "not_known": not_known(foreign),
    });
    metadata.extra.insert(IMPORTED.to_owned(), imported);
    metadata
}

/// Writes the documents of the session, and gives it its name. Its objects are durable.
fn appear(
    parent: &Dir,
    root: &Path,
    hidden: &str,
    foreign: &ForeignSession,
    built: Vec<Built>,
    metadata: &SessionMetadata,
) -> Result<(), ImportSessionError> {
    let place = root.join(hidden);
    let session = SessionDir::create(&place).map_err(SnapshotError::from)?;
    let own = parent.open_dir(hidden.as_bytes())?;
    own.make_symlink(layout::OBJECTS.as_bytes(), layout::SHARED_OBJECTS)?;
    let mut before: Option<ContentHash> = None;
    for (number, (snapshot, built)) in (0..).zip(foreign.snapshots.iter().zip(built)) {
        let manifest = manifest(foreign, number, snapshot, built, before);
        before = Some(session.publish(&manifest).map_err(SnapshotError::from)?);
    }
    // Lists the snapshots, and counts their changes.
    SnapshotManager::open(&place)?.save_session_metadata(metadata)?;
    parent.rename_new(hidden.as_bytes(), parent, foreign.id.as_bytes())?;
    parent.sync()?;
    Ok(())
}

fn manifest(
    foreign: &ForeignSession,
    number: u64,
    snapshot: &ForeignSnapshot,
    built: Built,
    parent_hash: Option<ContentHash>,
) -> SnapshotManifest {
    let tracked = || foreign.tracked_paths.iter().map(|path| to_path(path).to_owned());
    let exclusion = ExclusionConfig { rebuildable: true, ..ExclusionConfig::default() };
    let rule = || NotCapturedReason::Excluded { rule: FOREIGN_RULE.to_owned() };
    let whole = tracked().map(|path| NotCaptured { path, reason: rule(), state: None });
    let symlinks = snapshot.symlinks.iter().flatten().filter(|path| is_tracked(foreign, path));
    let symlinks = symlinks.map(|path| NotCaptured {
        path: to_path(path).to_owned(),
        reason: NotCapturedReason::Excluded { rule: SYMLINK_RULE.to_owned() },
        state: None,
    });
    let mut not_captured: Vec<NotCaptured> = whole.chain(built.left_out).chain(symlinks).collect();
    not_captured.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
    not_captured.dedup_by(|a, b| a.path == b.path);
    SnapshotManifest {
        format_version: MANIFEST_VERSION,
        number,
        timestamp: snapshot.timestamp,
        parent: number.checked_sub(1),
        parent_hash,
        merkle_root: built.merkle_root,
        ignore_files: None,
        kind: SnapshotKind::Ordinary,
        label: None,
        step: None,
        restores: None,
        restores_only: Vec::new(),
        roots: tracked().map(|path| TrackedRoot { path, exclusion: exclusion.clone() }).collect(),
        totals: built.totals,
        not_captured,
        known_absent: absent(foreign, snapshot),
        unstable: Vec::new(),
    }
}

/// Paths of other snapshots of the session that this one does not have: the other program calls
/// them created or deleted. A list without symlinks tells nothing of symlinks.
fn absent(foreign: &ForeignSession, snapshot: &ForeignSnapshot) -> Vec<PathBuf> {
    let mut others: BTreeSet<&Vec<u8>> =
        foreign.snapshots.iter().flat_map(|other| other.files.keys()).collect();
    if snapshot.symlinks.is_some() {
        others.extend(symlinks(foreign));
    }
    let is_here = |path: &Vec<u8>| {
        let is_symlink = snapshot.symlinks.as_ref().is_some_and(|has| has.contains(path));
        is_symlink || snapshot.files.contains_key(path)
    };
    let missing = others.into_iter().filter(|path| !is_here(path));
    missing.filter(|path| is_tracked(foreign, path)).map(|path| to_path(path).to_owned()).collect()
}

fn is_tracked(foreign: &ForeignSession, path: &[u8]) -> bool {
    foreign.tracked_paths.iter().any(|root| crate::byte_path::is_in(path, root))
}
