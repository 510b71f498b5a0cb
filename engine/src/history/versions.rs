//! Every version of one path, in the order in which they were there. A state that came back is a
//! version of its own: a reader of the list wants to see when.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::error::{Damaged, HistoryError};
use super::now::Now;
use super::snapshots::{Place, each_snapshot};
use super::taken_back::{Restores, TakenBack};
use crate::diff::{self, Difference, EntryState, Lookup};
use crate::object::{ContentHash, Node};
use crate::snapshot::{NotCapturedSet, RestoreRecord, SessionDir, SnapshotKind, SnapshotManifest};
use crate::store::{ObjectSource, StoreError, read_root_tree};

/// The past of a path in all sessions.
#[derive(Debug)]
pub struct PathHistory {
    /// The path in the form in which snapshots have it.
    pub path: PathBuf,
    /// Its versions, newest first. None if no session ever held the path.
    pub versions: Vec<Version>,
    /// The times of it that restores took back.
    taken_back: Vec<TakenBack>,
    /// Sessions of which a part could not be looked at.
    pub damaged: Vec<Damaged>,
}

/// A state that a path had for a while. Versions are as old as their first snapshot.
#[derive(Debug, Clone)]
pub struct Version {
    /// The state; `None` says that the path was gone.
    pub state: Option<Arc<EntryState>>,
    /// The state of the snapshot before the first one that has it. Of a received version, that is
    /// a received snapshot of the same session, if there is one.
    pub before: Option<Arc<EntryState>>,
    /// Snapshots that have it, oldest first; never empty. Of a restored version, the first is the
    /// snapshot that was restored, with the time of the restore.
    pub places: Vec<Place>,
    /// Its origin.
    pub origin: Origin,
}

/// Where a version comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was there when the path was first recorded.
    First,
    /// It appeared within the session that first has it.
    Session,
    /// It appeared between two sessions, or after one: nothing recorded how.
    Outside,
    /// A restore brought it back.
    Restored,
    /// An archive brought its first snapshot: it may never have been here.
    Received,
}

impl Origin {
    /// The origin of a state that a snapshot is the first to have, or that a restore of it brought
    /// back. `had_before`: the path had a known state before.
    pub(super) fn of(place: &Place, had_before: bool) -> Self {
        match place.number {
            _ if place.restored.is_some() => Self::Restored,
            _ if place.received => Self::Received,
            // A path that a session made had no state before.
            1.. if !had_before || place.kind == SnapshotKind::Ordinary => Self::Session,
            _ if had_before => Self::Outside,
            _ => Self::First,
        }
    }
}

impl PathHistory {
    /// The version that stood before what is there now: the newest that was recorded here, differs
    /// and is not taken back; of a path that is gone, one that is taken back before none. With the
    /// newest of its snapshots: of what changed after that, the least is no part of its session.
    pub fn earlier(&self, now: &Now, source: &dyn ObjectSource) -> Option<(&Version, &Place)> {
        let stands = |place: &Place| !self.taken_back.iter().any(|it| it.has(place));
        let earlier = self.newest_different(now, source, stands);
        let is_gone = self.state_now(now).is_none() && !matches!(now, Now::Unrecorded { .. });
        earlier.or_else(|| self.taken_back(now, source).filter(|_| is_gone))
    }

    /// The newest version that was recorded here and differs from what is there now, taken back or
    /// not.
    pub fn taken_back(&self, now: &Now, source: &dyn ObjectSource) -> Option<(&Version, &Place)> {
        self.newest_different(now, source, |_| true)
    }

    /// Whether a restore left what is there now on purpose, or merged it: the state is neither the
    /// one before the restore alone nor the restored one. Nothing is kept where nothing is.
    pub fn is_kept(&self, now: &Now) -> bool {
        let Some(last) = self.taken_back.iter().max_by_key(|it| it.until) else { return false };
        match now {
            Now::Version(index) => {
                let version = self.versions.get(*index).filter(|version| version.state.is_some());
                let newest = version.and_then(|version| version.places.last());
                newest.is_some_and(|place| last.has(place))
            }
            Now::Unrecorded { .. } => last.has_merged,
            Now::Gone => false,
        }
    }

    fn state_now(&self, now: &Now) -> Seen {
        match now {
            Now::Version(index) => self.versions.get(*index)?.state.clone(),
            Now::Gone | Now::Unrecorded { .. } => None,
        }
    }

    /// The writer of an archive chose its contents, so none of those is meant.
    fn newest_different(
        &self,
        now: &Now,
        source: &dyn ObjectSource,
        is_meant: impl Fn(&Place) -> bool,
    ) -> Option<(&Version, &Place)> {
        let state = self.state_now(now);
        let is_other = |version: &&Version| {
            version.origin != Origin::Received
                && version.state.is_some()
                && !is_same(&version.state, &state, &self.path, source)
        };
        self.versions.iter().filter(is_other).find_map(|version| {
            let newest = version.places.iter().rfind(|place| is_meant(place))?;
            Some((version, newest))
        })
    }
}

impl Version {
    /// The oldest snapshot that has it.
    pub fn first(&self) -> &Place {
        &self.places[0]
    }

    /// By how many bytes a file grew when this version appeared; `None` where neither state is a
    /// file.
    pub fn size_delta(&self) -> Option<i64> {
        let size = |state: &Option<Arc<EntryState>>| state.as_deref().and_then(EntryState::size);
        match (size(&self.before), size(&self.state)) {
            (None, None) => None,
            (old, new) => Some(new.unwrap_or(0) - old.unwrap_or(0)),
        }
    }

    /// The differences to the version before, sorted as [`crate::diff::compare`] does.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    pub fn differences(
        &self,
        source: &dyn ObjectSource,
        path: &Path,
    ) -> Result<Vec<Difference>, StoreError> {
        let (old, new) = (self.before.as_deref(), self.state.as_deref());
        diff::differences_of(source, path.as_os_str().as_bytes(), old, new).collect()
    }
}

/// The state of a path in a snapshot that could hold it.
pub(super) type Seen = Option<Arc<EntryState>>;

/// Every version of a path in these sessions, whose objects are in `source`. `forms` are those of
/// the path, as [`super::forms_of`] gives them.
pub fn history_of(
    forms: &[PathBuf],
    sessions: &[SessionDir],
    source: &dyn ObjectSource,
) -> PathHistory {
    let (seen, damaged) = sightings_of(forms, sessions, source);
    let path = seen.last().map_or_else(|| forms[0].clone(), |last| last.form.clone());
    let versions = versions_of(seen, source);
    let mut known = HashMap::new();
    let taken_back = sessions.iter().flat_map(|session| {
        let restores = Restores { session, forms, source, known: &mut known };
        // The snapshots told of the damage.
        restores.taken_back().unwrap_or_default()
    });
    let taken_back = taken_back.collect();
    PathHistory { path, versions, taken_back, damaged }
}

/// The states of a path in the snapshots of these sessions, and after restores, oldest first.
pub(super) fn sightings_of(
    forms: &[PathBuf],
    sessions: &[SessionDir],
    source: &dyn ObjectSource,
) -> (Vec<Sighting>, Vec<Damaged>) {
    let mut damaged = Vec::new();
    let mut known = HashMap::new();
    let mut seen = Vec::new();
    for (place, (state, form)) in each_snapshot(sessions, &mut damaged, |_, manifest| {
        look(forms, manifest, source, &mut known)
    }) {
        seen.push(Sighting { place, state, form });
    }
    for session in sessions {
        // The snapshots tell most of it, and their damage was told.
        let restored = restored_in(session, forms, source, &mut known).unwrap_or_default();
        seen.extend(restored);
    }
    let now = Timestamp::now();
    seen.sort_by_cached_key(|sighting| sighting.place.order(now));
    (seen, damaged)
}

/// The last state of a line of snapshots, and the version that it belongs to.
#[derive(Clone)]
struct Last {
    state: Seen,
    version: usize,
}

/// The versions that were seen, newest first. What archives brought is no part of what happened
/// here, so each received session has a line of its own.
fn versions_of(seen: Vec<Sighting>, source: &dyn ObjectSource) -> Vec<Version> {
    let mut versions: Vec<Version> = Vec::new();
    let mut here: Option<Last> = None;
    let mut received: HashMap<String, Last> = HashMap::new();
    for Sighting { place, state, form } in seen {
        let is_restored = place.restored.is_some();
        let is_received = place.received && !is_restored;
        let of_session = received.get(&place.session_id).filter(|_| is_received);
        let lasts = [of_session, here.as_ref()];
        let before = of_session.or(here.as_ref()).cloned();
        let is_last = |last: &&Last| is_same(&last.state, &state, &form, source);
        let same = lasts.into_iter().flatten().find(is_last).map(|last| last.version);
        let version = match same {
            Some(version) => {
                if !is_restored {
                    versions[version].places.push(place.clone());
                }
                version
            }
            // Before it was there for the first time, it was nothing.
            None if before.is_none() && state.is_none() => continue,
            None => {
                let origin = Origin::of(&place, before.is_some());
                let (state, places) = (state.clone(), vec![place.clone()]);
                let before = before.and_then(|last| last.state);
                versions.push(Version { state, before, places, origin });
                versions.len() - 1
            }
        };
        let last = Last { state, version };
        if is_received {
            received.insert(place.session_id, last);
        } else {
            here = Some(last);
        }
    }
    versions.reverse();
    versions
}

/// A path as a snapshot has it, or as a restore left it.
pub(super) struct Sighting {
    /// The snapshot; of a restore, the one that was restored, with the time of the restore.
    pub(super) place: Place,
    /// The state; `None` says that the path was gone.
    pub(super) state: Option<Arc<EntryState>>,
    /// The form in which the snapshot has the path.
    pub(super) form: PathBuf,
}

/// The states that the restores of a session brought back, as far as they were about the path.
fn restored_in(
    session: &SessionDir,
    forms: &[PathBuf],
    source: &dyn ObjectSource,
    known: &mut HashMap<(ContentHash, PathBuf), Seen>,
) -> Result<Vec<Sighting>, HistoryError> {
    let mut restored = Vec::new();
    each_restore(session, |_, place, manifest, only| {
        if let Some((state, form)) = look(forms, manifest, source, known)?
            && (only.is_empty() || only.contains(&form))
        {
            restored.push(Sighting { place, state, form });
        }
        Ok(())
    })?;
    Ok(restored)
}

/// Looks at the restores of a session that brought back a state which a snapshot holds. Each gives
/// its record; the place of that snapshot, with the restore's time; the snapshot's manifest; and
/// the restored paths, where they were chosen.
pub(super) fn each_restore(
    session: &SessionDir,
    mut see: impl FnMut(
        &RestoreRecord,
        Place,
        &SnapshotManifest,
        &[PathBuf],
    ) -> Result<(), HistoryError>,
) -> Result<(), HistoryError> {
    let metadata = session.metadata()?;
    for record in &metadata.restores {
        if record.undoes_steps {
            // A snapshot holds the state after it.
            continue;
        }
        let Ok(target) = session.manifest(record.snapshot) else { continue };
        let only = match record.safety_snapshot {
            Some(safety) => session.manifest(safety)?.manifest.restores_only,
            None if record.is_partial => continue,
            None => Vec::new(),
        };
        let mut place = Place::of(session, Some(&metadata), &target.manifest);
        place.timestamp = record.at;
        place.restored = Some(record.command);
        see(record, place, &target.manifest, &only)?;
    }
    Ok(())
}

/// The state of the path in a snapshot, and the form in which it has it. `None`: unknown.
pub(super) fn look(
    forms: &[PathBuf],
    manifest: &SnapshotManifest,
    source: &dyn ObjectSource,
    known: &mut HashMap<(ContentHash, PathBuf), Seen>,
) -> Result<Option<(Seen, PathBuf)>, HistoryError> {
    let is_inside = |form: &&PathBuf| manifest.roots.iter().any(|r| form.starts_with(&r.path));
    let inside: Vec<&PathBuf> = forms.iter().filter(is_inside).collect();
    let Some(first) = inside.first().copied() else { return Ok(None) };
    let mut root = None;
    for form in inside {
        let key = (manifest.merkle_root, form.clone());
        let state = match known.get(&key) {
            Some(state) => state.clone(),
            None => {
                let root = match &root {
                    Some(root) => root,
                    None => root.insert(read_root_tree(source, &manifest.merkle_root)?),
                };
                let found = Lookup::new(source, root).find(form.as_os_str().as_bytes())?;
                let state = found.map(Arc::new);
                known.insert(key, state.clone());
                state
            }
        };
        if state.is_some() {
            return Ok(Some((state, form.clone())));
        }
    }
    let is_known = NotCapturedSet::new(manifest).knows(first.as_os_str().as_bytes());
    Ok(is_known.then(|| (None, first.clone())))
}

/// Whether two states are one version. Trees that cannot be read are other ones.
pub(super) fn is_same(old: &Seen, new: &Seen, path: &Path, source: &dyn ObjectSource) -> bool {
    let (old, new) = match (old, new) {
        (None, None) => return true,
        (Some(old), Some(new)) => (old, new),
        _ => return false,
    };
    let (a, b) = (&old.attributes, &new.attributes);
    if (a.mode, a.uid, a.gid, &a.xattrs) != (b.mode, b.uid, b.gid, &b.xattrs) {
        return false;
    }
    match (&old.node, &new.node) {
        (Node::File { size, hash, .. }, Node::File { size: new_size, hash: new_hash, .. }) => {
            (size, hash) == (new_size, new_hash)
        }
        (Node::Directory { tree }, Node::Directory { tree: new_tree }) => {
            tree == new_tree || holds_the_same(old, new, path, source)
        }
        (old, new) => old == new,
    }
}

/// Whether nothing but times is different within a directory.
fn holds_the_same(
    old: &EntryState,
    new: &EntryState,
    path: &Path,
    source: &dyn ObjectSource,
) -> bool {
    let path = path.as_os_str().as_bytes();
    diff::differences_of(source, path, Some(old), Some(new))
        .all(|difference| difference.is_ok_and(|difference| is_same_in_it(&difference)))
}

/// Whether two states of something in a directory differ by their times alone.
fn is_same_in_it(difference: &Difference) -> bool {
    let (Some(old), Some(new)) = (&difference.old, &difference.new) else { return false };
    let (a, b) = (&old.attributes, &new.attributes);
    let same_node = match (&old.node, &new.node) {
        // The entries in it have differences of their own.
        (Node::Directory { .. }, Node::Directory { .. }) => true,
        (Node::File { hash, .. }, Node::File { hash: new_hash, .. }) => hash == new_hash,
        (old, new) => old == new,
    };
    same_node && (a.mode, a.uid, a.gid, &a.xattrs) == (b.mode, b.uid, b.gid, &b.xattrs)
}
