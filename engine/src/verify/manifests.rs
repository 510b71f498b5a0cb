//! The manifests of a session, checked against each other.
//!
//! Three things vouch for a snapshot's manifest: the hash of its file in the session's manifest,
//! the same hash in the manifest after it, and its Merkle root in the session's manifest. A
//! snapshot that the session does not list yet is no problem: a crash can come between publishing a
//! snapshot and naming it there.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;

use super::VerifyError;
use super::report::Problem;
use crate::layout;
use crate::object::ContentHash;
use crate::path_text::Shown;
use crate::snapshot::{
    LoadedManifest, MANIFEST_VERSION, ManifestError, RemovedSnapshot, SessionDir, SessionMetadata,
    SnapshotKind, SnapshotLabel, SnapshotManifest, StepEntry, Totals, with_prompts,
};

/// The contents of the manifests of a session.
#[derive(Default)]
pub(super) struct Manifests {
    /// The session's, if it can be read.
    pub(super) metadata: Option<SessionMetadata>,
    /// By number.
    pub(super) snapshots: Vec<DescribedSnapshot>,
    pub(super) problems: Vec<Problem>,
}

/// The contents of a snapshot's manifest, if it can be read.
pub(super) struct DescribedSnapshot {
    pub(super) number: u64,
    /// As the session lists it.
    pub(super) listed_root: Option<ContentHash>,
    pub(super) description: Option<Description>,
    /// When and why it was removed from the session; its objects may be gone.
    pub(super) removed: Option<RemovedSnapshot>,
    pub(super) ok: bool,
}

impl DescribedSnapshot {
    /// The roots of all that has to be sound. What was removed still has ignore files by which
    /// later snapshots may go.
    pub(super) fn roots(&self) -> impl Iterator<Item = ContentHash> {
        let is_held = self.removed.is_none();
        self.description.iter().flat_map(move |description| {
            let merkle_root = is_held.then_some(description.merkle_root);
            [merkle_root, description.ignore_files].into_iter().flatten()
        })
    }
}

/// The parts of a manifest that the trees and the session must agree with.
pub(super) struct Description {
    /// The hash of the manifest's file.
    pub(super) hash: ContentHash,
    pub(super) parent_hash: Option<ContentHash>,
    pub(super) kind: SnapshotKind,
    pub(super) label: Option<SnapshotLabel>,
    pub(super) step: Option<StepEntry>,
    pub(super) merkle_root: ContentHash,
    /// Root tree of the ignore files, if there is one.
    pub(super) ignore_files: Option<ContentHash>,
    /// Tracked paths, in order.
    pub(super) paths: Vec<Box<[u8]>>,
    pub(super) totals: Totals,
}

impl Description {
    fn of(LoadedManifest { manifest, hash }: &LoadedManifest) -> Self {
        let paths = manifest.roots.iter().map(|root| root.path.as_os_str().as_bytes().into());
        Self {
            hash: *hash,
            parent_hash: manifest.parent_hash,
            kind: manifest.kind,
            label: manifest.named(),
            step: StepEntry::of(manifest, None),
            merkle_root: manifest.merkle_root,
            ignore_files: manifest.ignore_files,
            paths: paths.collect(),
            totals: manifest.totals,
        }
    }
}

/// Reads and checks all manifests of a session.
pub(super) fn check(session: &SessionDir) -> Result<Manifests, VerifyError> {
    let mut found = Manifests::default();
    // First the session's manifest: a snapshot taken meanwhile is then one that it does not list,
    // and never one that it lists and that is not there.
    let metadata = session.metadata();
    let numbers = session
        .manifest_numbers()
        .map_err(|source| VerifyError::Session { session: session.path().to_owned(), source })?;
    let metadata = found.session_manifest(session, metadata, &numbers);
    let listed = metadata.merkle_roots.len().max(metadata.manifest_hashes.len()) as u64;

    let mut next = 0;
    // Hash of the manifest before, as far as it is known.
    let mut before = Before::default();
    for number in numbers {
        if number > next {
            found.missing(session, &metadata, next, number - 1);
            before = Before { actual: None, listed: listed_hash(&metadata, number - 1) };
        }
        before = found.snapshot_manifest(session, &metadata, number, &before);
        next = number.saturating_add(1);
    }
    if next < listed {
        found.missing(session, &metadata, next, listed - 1);
    }
    found.derived(session);
    Ok(found)
}

/// The known facts of the preceding manifest.
#[derive(Default)]
struct Before {
    actual: Option<ContentHash>,
    listed: Option<ContentHash>,
}

fn listed_hash(metadata: &SessionMetadata, number: u64) -> Option<ContentHash> {
    metadata.manifest_hashes.get(usize::try_from(number).ok()?).copied()
}

fn listed_root(metadata: &SessionMetadata, number: u64) -> Option<ContentHash> {
    metadata.merkle_roots.get(usize::try_from(number).ok()?).copied()
}

impl Manifests {
    fn corrupt(&mut self, session: &SessionDir, snapshot: Option<u64>, reason: String) {
        let on_disk = match snapshot {
            Some(number) => session.manifest_path(number),
            None => session.path().join(layout::MANIFEST),
        };
        self.problems.push(Problem::CorruptManifest { on_disk, snapshot, reason });
    }

    /// The session's manifest, or an empty one in place of what cannot be read.
    fn session_manifest(
        &mut self,
        session: &SessionDir,
        metadata: Result<SessionMetadata, ManifestError>,
        numbers: &[u64],
    ) -> SessionMetadata {
        match metadata {
            Ok(metadata) => {
                let (roots, hashes) = (metadata.merkle_roots.len(), metadata.manifest_hashes.len());
                if roots != hashes || metadata.snapshot_count != roots as u64 {
                    let reason = format!(
                        "it counts {} snapshots, and lists {roots} Merkle roots and {hashes} \
                         manifests",
                        metadata.snapshot_count
                    );
                    self.corrupt(session, None, reason);
                }
                if metadata.altered.is_some() {
                    let reason = "it was changed, and not by nono: nothing proves the command, the \
                                  times and the exit code in it";
                    self.corrupt(session, None, reason.to_owned());
                }
                self.metadata = Some(metadata.clone());
                return metadata;
            }
            // A session that a program makes by taking its first snapshot gets its manifest right
            // after that: a crash in between is no damage.
            Err(ManifestError::Missing { .. }) if matches!(numbers, [] | [0]) => {}
            Err(error) => self.corrupt(session, None, reason_of(error)),
        }
        SessionMetadata::new(session.id(), Vec::new(), Vec::new())
    }

    /// The snapshots that the session lists, as far as their manifests are the listed ones.
    pub(super) fn listed(&self) -> impl Iterator<Item = (u64, &Description)> {
        self.snapshots.iter().filter_map(|snapshot| {
            let description = snapshot.description.as_ref()?;
            let listed = listed_hash(self.metadata.as_ref()?, snapshot.number);
            (listed == Some(description.hash)).then_some((snapshot.number, description))
        })
    }

    /// Compares what the session's manifest says with the manifests from which it follows.
    fn derived(&mut self, session: &SessionDir) {
        let Some(metadata) = &self.metadata else { return };
        let listed: BTreeMap<u64, &Description> = self.listed().collect();
        let labels: BTreeMap<u64, &SnapshotLabel> =
            metadata.labels.iter().map(|label| (label.number, label)).collect();
        let count = metadata.manifest_hashes.len();
        // The contents of a missing or different manifest are unknown.
        let is_wrong = |label: &SnapshotLabel| match listed.get(&label.number) {
            Some(description) => description.label.as_ref() != Some(label),
            None => label.number >= count as u64,
        };
        let is_missing = |label: &SnapshotLabel| !labels.contains_key(&label.number);
        let mut reasons = Vec::new();
        // A program that uses the library may go on with other paths in a session of its own.
        let tracks = |path: &[u8]| {
            metadata.tracked_paths.iter().any(|own| own.as_os_str().as_bytes() == path)
        };
        let mut paths = listed.values().flat_map(|it| &it.paths).filter(|_| metadata.received);
        if let Some(path) = paths.find(|path| !tracks(path)) {
            let path = Shown::bytes(path);
            reasons.push(format!("its snapshots hold {path}, which it does not track"));
        }
        if !metadata.labels.is_sorted_by(|a, b| a.number < b.number)
            || metadata.labels.iter().any(is_wrong)
            || listed.values().filter_map(|it| it.label.as_ref()).any(is_missing)
        {
            reasons.push("its labels are not those of its snapshots".to_owned());
        }
        let is_safety = |number: &u64| match listed.get(number) {
            Some(description) => description.kind == SnapshotKind::Safety,
            None => *number < count as u64 && metadata.safety_snapshots.contains(number),
        };
        let safety: Vec<u64> = (0..count as u64).filter(is_safety).collect();
        if metadata.safety_snapshots != safety {
            reasons.push("its safety snapshots are not those of its snapshots".to_owned());
        }
        // Numbers that were not counted again are not compared.
        let steps = with_prompts(&metadata.steps);
        let said = |entry: &StepEntry| match listed.get(&entry.number) {
            Some(description) => {
                description.step.as_ref() == Some(&StepEntry { changes: None, ..entry.clone() })
            }
            None => entry.number < count as u64,
        };
        let numbers: BTreeSet<u64> = steps.iter().map(|entry| entry.number).collect();
        let unlisted =
            |(number, it): (&u64, &&Description)| it.step.is_some() && !numbers.contains(number);
        if !steps.is_sorted_by(|a, b| a.number < b.number)
            || !steps.iter().all(said)
            || listed.iter().any(unlisted)
        {
            reasons.push("its steps are not those of its snapshots".to_owned());
        }
        // One has to be there: the last one, where the next one is made from it.
        let last = self.snapshots.last().map_or(0, |snapshot| snapshot.number);
        let is_newest_gone = metadata.removed.last().is_some_and(|it| it.number >= last);
        if !metadata.removed.is_sorted_by(|a, b| a.number < b.number)
            || metadata.removed.iter().any(|it| it.number >= count as u64)
            || (is_newest_gone && metadata.origin.builds_on_newest())
            || metadata.removed.len() > last as usize
        {
            reasons.push("it calls snapshots removed that cannot be".to_owned());
        }
        let written = listed.values().map(|it| it.totals.bytes_written);
        let (sum, said) = (written.fold(0, u64::saturating_add), metadata.bytes_written);
        if listed.len() == count && sum != said {
            let reason = format!("it says that {said} bytes were written, its snapshots say {sum}");
            reasons.push(reason);
        }
        for reason in reasons {
            self.corrupt(session, None, reason);
        }
    }

    /// Snapshots that have no manifest, though the session lists them or later ones have.
    fn missing(&mut self, session: &SessionDir, metadata: &SessionMetadata, from: u64, to: u64) {
        let reason = if from == to {
            "it is missing".to_owned()
        } else {
            format!("it is missing, and so are those of all snapshots up to {to}")
        };
        self.corrupt(session, Some(from), reason);
        for number in from..=to {
            // Numbers without a root may be a great many.
            let Some(root) = listed_root(metadata, number) else { break };
            self.snapshots.push(DescribedSnapshot {
                number,
                listed_root: Some(root),
                description: None,
                removed: metadata.removal(number).cloned(),
                ok: false,
            });
        }
    }

    fn snapshot_manifest(
        &mut self,
        session: &SessionDir,
        metadata: &SessionMetadata,
        number: u64,
        before: &Before,
    ) -> Before {
        let problems_before = self.problems.len();
        let listed = listed_hash(metadata, number);
        let listed_root = listed_root(metadata, number);
        let loaded = session.manifest(number);
        let mut actual = None;
        let description = match loaded {
            Ok(loaded) => {
                actual = Some(loaded.hash);
                self.links(session, &loaded.manifest, before);
                if listed.is_some_and(|listed| listed != loaded.hash) {
                    let reason = "its hash is not the one that the session lists".to_owned();
                    self.corrupt(session, Some(number), reason);
                }
                let found = loaded.manifest.merkle_root;
                if let Some(expected) = listed_root.filter(|listed| *listed != found) {
                    let snapshot = Some(number);
                    let found = Some(found);
                    self.problems.push(Problem::MerkleMismatch { snapshot, expected, found });
                }
                Some(Description::of(&loaded))
            }
            Err(error) => {
                self.corrupt(session, Some(number), reason_of(error));
                None
            }
        };
        let ok = self.problems.len() == problems_before;
        let removed = metadata.removal(number).cloned();
        self.snapshots.push(DescribedSnapshot { number, listed_root, description, removed, ok });
        Before { actual, listed }
    }

    /// Whether a manifest follows the one before it.
    fn links(&mut self, session: &SessionDir, manifest: &SnapshotManifest, before: &Before) {
        let number = manifest.number;
        let reason = if manifest.parent != number.checked_sub(1) {
            "the parent it names is not the snapshot before it"
        } else if let Some(named) = manifest.parent_hash {
            // Where the manifest before was changed, it agrees with what the session lists of that
            // one, and the blame is not put on this one.
            let known = [before.actual, before.listed];
            if known.contains(&Some(named)) || known == [None, None] {
                return;
            }
            "the hash of the manifest before it is not the one it names"
        } else {
            return;
        };
        self.corrupt(session, Some(number), reason.to_owned());
    }
}

/// The defect of a manifest, without its path.
fn reason_of(error: ManifestError) -> String {
    match error {
        ManifestError::Missing { .. } => "it is missing".to_owned(),
        ManifestError::Corrupt { reason, .. } => reason,
        ManifestError::Newer { found, .. } => format!(
            "it has the newer format version {found}; this nono knows up to {MANIFEST_VERSION}: \
             use a newer nono"
        ),
        other => other.to_string(),
    }
}
