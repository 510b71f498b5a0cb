//! Sessions, one after the other, against objects that are read only once.

use std::path::PathBuf;

use super::graph::{Damage, Graph, NodeId, Reading, Role};
use super::locate::{Locator, Reach};
use super::manifests::{self, DescribedSnapshot, Description};
use super::report::{Problem, SnapshotCheck, VerifyReport};
use super::sum::{Count, Sum};
use super::uses::{self, DamagedObject};
use super::{VerifyError, VerifyOptions};
use crate::layout;
use crate::path_text::{Shown, to_path};
use crate::progress::wait_for;
use crate::snapshot::{SessionDir, SessionMetadata, Totals};
use crate::store::{LocalStore, MAX_OWN, StoreLock};

/// Verifies any number of sessions that share a store, reading each object once.
///
/// Holds the store's lock shared, so that the collector removes nothing meanwhile; without the lock
/// (a store on a read-only medium), it goes on. A holder of the exclusive lock must not make a
/// verifier.
pub struct Verifier<'a> {
    store: &'a LocalStore,
    options: VerifyOptions<'a>,
    pool: rayon::ThreadPool,
    graph: Graph,
    /// Packs that were changed, and how, once that was looked for.
    changed_packs: Option<Vec<(PathBuf, String)>>,
    _lock: Option<StoreLock>,
}

impl std::fmt::Debug for Verifier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("store", &self.store.path()).finish_non_exhaustive()
    }
}

impl<'a> Verifier<'a> {
    /// A verifier that has read nothing yet. Waits while a collector is at work.
    ///
    /// # Errors
    /// When threads cannot be started, or the wait was cancelled.
    pub fn new(store: &'a LocalStore, options: VerifyOptions<'a>) -> Result<Self, VerifyError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads)
            .thread_name(|index| format!("verify-{index}"))
            .build()?;
        let lock = match wait_for(options.progress, || store.try_lock_for_reading()) {
            Ok(Some(lock)) => lock.lock(),
            Ok(None) => return Err(VerifyError::Cancelled),
            Err(error) => {
                tracing::warn!("verifying without lock: {error}");
                None
            }
        };
        if let Err(error) = store.look_for_own(MAX_OWN) {
            tracing::debug!("each object is looked for: {error}");
        }
        let packs = store.all_packs().unwrap_or_default();
        let graph = Graph::for_about(packs.iter().map(|pack| pack.len()).sum());
        Ok(Self { store, options, pool, graph, changed_packs: None, _lock: lock })
    }

    /// Different objects that were read so far, for all sessions together.
    pub fn objects_checked(&self) -> u64 {
        self.graph.bytes_read().count() as u64
    }

    /// Bytes of those objects.
    pub fn bytes_checked(&self) -> u64 {
        self.graph.bytes_read().fold(0, u64::saturating_add)
    }

    /// Verifies one session. The report counts all objects of the session, those that were read for
    /// an earlier one included.
    ///
    /// # Errors
    /// As [`VerifyError`] says. Damage is a finding and not an error.
    pub fn session(&mut self, session: &SessionDir) -> Result<VerifyReport, VerifyError> {
        let mut manifests = manifests::check(session)?;
        let reading =
            Reading { store: self.store, pool: &self.pool, progress: self.options.progress };
        let changed_packs = &mut self.changed_packs;
        let look_for_changed_packs = || {
            changed_packs.get_or_insert_with(|| {
                self.store.changed_packs().unwrap_or_else(|error| {
                    // Objects that it keeps from being read are found missing.
                    tracing::warn!("{error}");
                    Vec::new()
                })
            });
        };
        let all_roots: Vec<_> =
            manifests.snapshots.iter().flat_map(DescribedSnapshot::roots).collect();
        let add_roots = || self.graph.add_roots(&all_roots, &reading);
        let (added, ()) = self.pool.join(add_roots, look_for_changed_packs);
        if let Err(error) = added {
            // Half-read, it would pass for checked.
            self.graph = Graph::default();
            return Err(error);
        }

        let mut problems = std::mem::take(&mut manifests.problems);
        let mut reach = Reach::new(&self.graph);
        let mut locator = Locator::new(self.store, &self.graph);
        for snapshot in &mut manifests.snapshots {
            let mut found = Vec::new();
            let roots: Vec<_> = snapshot.roots().collect();
            for root in roots.into_iter().filter_map(|hash| self.graph.id(hash, Role::Root)) {
                for id in reach.descend(root) {
                    found.push(self.object_problem(snapshot.number, id, &reach, &mut locator));
                }
                snapshot.ok &= self.graph.is_sound(root);
            }
            found.sort_by(|a, b| a.0.cmp(&b.0));
            problems.extend(found.into_iter().map(|(_, problem)| problem));
            let Some(description) = &snapshot.description else { continue };
            if snapshot.removed.is_some() {
                continue;
            }
            let Some(root) = self.graph.id(description.merkle_root, Role::Root) else { continue };
            if let Some(reason) = self.disagreement(root, description) {
                let on_disk = session.manifest_path(snapshot.number);
                let number = Some(snapshot.number);
                problems.push(Problem::CorruptManifest { on_disk, snapshot: number, reason });
                snapshot.ok = false;
            }
        }
        let packs = self.changed_packs.iter().flatten().cloned();
        problems.extend(packs.map(|(on_disk, reason)| Problem::CorruptPack { on_disk, reason }));
        let miscounted = manifests.miscounted(session, &self.graph, &reading);
        // Half-counted, it would pass for right.
        reading.check_cancelled()?;
        if let Some(reason) = miscounted {
            let on_disk = session.path().join(layout::MANIFEST);
            problems.push(Problem::CorruptManifest { on_disk, snapshot: None, reason });
        }
        let expected = self.options.expected_root;
        let proved = expected.and_then(|root| manifests.proved(root, &self.graph));
        if let (Some(expected), None) = (expected, &proved) {
            problems.push(Problem::MerkleMismatch { snapshot: None, expected, found: None });
        }
        let snapshots = manifests.snapshots.iter().map(|snapshot| SnapshotCheck {
            number: snapshot.number,
            merkle_root: snapshot
                .description
                .as_ref()
                .map(|description| description.merkle_root)
                .or(snapshot.listed_root),
            removed: snapshot.removed.clone(),
            ok: snapshot.ok,
        });
        Ok(VerifyReport {
            session_id: session.id(),
            session_root: manifests.metadata.as_ref().map(SessionMetadata::session_root),
            proved,
            ok: problems.is_empty(),
            snapshots: snapshots.collect(),
            objects_checked: reach.objects,
            bytes_checked: reach.bytes,
            problems,
        })
    }

    /// The damaged objects of a session that was verified, each with everything that needs it.
    ///
    /// # Errors
    /// As [`VerifyError`] says.
    pub fn damaged_objects(&self, session: &SessionDir) -> Result<Vec<DamagedObject>, VerifyError> {
        let snapshots = manifests::check(session)?.snapshots;
        let roots = snapshots
            .iter()
            .flat_map(|snapshot| snapshot.roots().map(|root| (snapshot.number, root)));
        Ok(uses::damaged(self.store, &self.graph, &roots.collect::<Vec<_>>()))
    }

    /// The defect of a damaged node, with the path to sort it by.
    fn object_problem(
        &self,
        snapshot: u64,
        id: NodeId,
        reach: &Reach<'_>,
        locator: &mut Locator<'_>,
    ) -> (Option<Vec<u8>>, Problem) {
        let node = self.graph.node(id);
        let bytes = locator.path(reach, id);
        let path = bytes.as_deref().map(|bytes| to_path(bytes).to_owned());
        let object = node.hash;
        let on_disk = self.store.object_path(&object);
        // The object is what its name says, so it is the list that is wrong.
        let wrong_list = |path, reason| {
            let object = reach.parent(id).map_or(object, |parent| self.graph.node(parent).hash);
            let on_disk = self.store.object_path(&object);
            Problem::CorruptTree { object, on_disk, snapshot, path, reason }
        };
        let problem = match (self.graph.damage(id), node.role) {
            (Some(Damage::WrongSize { actual }), Role::File { size }) => wrong_list(
                path,
                format!(
                    "it says that a file has {size} bytes, but its object {object} has {actual}"
                ),
            ),
            (Some(Damage::Mistaken(reason)), _) => {
                wrong_list(path, format!("its object {object} {reason}"))
            }
            (
                Some(Damage::Corrupt(reason) | Damage::Unreadable(reason)),
                Role::File { .. } | Role::Midstates { .. },
            ) => {
                let reason = reason.clone();
                let used_as = node.role.into();
                Problem::CorruptObject { object, used_as, on_disk, snapshot, path, reason }
            }
            (Some(Damage::Corrupt(reason) | Damage::Unreadable(reason)), _) => {
                let reason = reason.clone();
                Problem::CorruptTree { object, on_disk, snapshot, path, reason }
            }
            _ => {
                let used_as = node.role.into();
                Problem::MissingObject { object, used_as, on_disk, snapshot, path }
            }
        };
        (bytes, problem)
    }

    /// How the trees of a snapshot contradict its manifest.
    fn disagreement(&self, root: NodeId, description: &Description) -> Option<String> {
        // Both are sorted the same way.
        let unknown = self
            .graph
            .root_paths(root)
            .iter()
            .find(|path| description.paths.binary_search(path).is_err());
        if let Some(path) = unknown {
            let shown = Shown::bytes(path);
            return Some(format!("its root tree holds {shown}, which it does not list as tracked"));
        }
        let Totals { file_count, entry_count, total_bytes, .. } = description.totals;
        let said = Count { files: file_count, entries: entry_count, bytes: total_bytes };
        match self.graph.sum(root) {
            Sum::Unknown => None,
            Sum::Known(held) if held == said => None,
            Sum::Known(held) => Some(format!(
                "it counts {} files, {} entries and {} bytes, but its trees hold {}, {} and {}",
                said.files, said.entries, said.bytes, held.files, held.entries, held.bytes
            )),
            Sum::TooLarge => Some("its trees claim to hold more than 2^64 bytes".to_owned()),
        }
    }
}
