//! The state of a fork: its layers over the state below them.
//!
//! The layers are captured like any directory, by the rules of the state below: what its snapshot
//! leaves out is left out here. Then they are [merged](super::layer) into its trees. So a look
//! costs what the fork changed, and needs no mount.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::ForkError;
use super::layer::{Merging, NotTaken, unmarked};
use super::store::{Fork, Lower};
use crate::byte_path;
use crate::diff::{self, Difference};
use crate::manifest::{NotCaptured, NotCapturedReason, SnapshotManifest, Totals, TrackedRoot};
use crate::object::{ContentHash, LinkGroups, Node, RootEntry, RootTree};
use crate::path_text::to_path;
use crate::progress::Progress;
use crate::snapshot::{
    Budget, Capture, CaptureMeans, CaptureRequest, KnownState, NewCaches, RootRules, captured,
};
use crate::store::{
    LocalStore, ObjectSource, ObjectStore, OverlayStore, StoreError, read_links, read_root_tree,
};
use crate::sys::{self, Dir, FileTime};

/// The state of a fork, recorded nowhere. Contents that the store does not have are read from the
/// layer, as long as they are what they were.
#[derive(Debug)]
pub struct ForkState<'a> {
    overlay: OverlayStore<'a>,
    base: SnapshotManifest,
    manifest: SnapshotManifest,
    not_taken: Vec<NotTaken>,
    /// Files whose contents are in a layer.
    files: HashMap<ContentHash, PathBuf>,
}

/// The state of a fork by itself, for a mount: its trees in memory, and where its layer has the
/// contents that the store lacks.
#[cfg(feature = "mount")]
#[derive(Debug)]
pub(crate) struct LiveState {
    trees: crate::store::MemoryStore,
    files: HashMap<ContentHash, PathBuf>,
    merkle_root: ContentHash,
    begun: Timestamp,
}

#[cfg(feature = "mount")]
impl LiveState {
    /// The root tree.
    pub(crate) fn merkle_root(&self) -> ContentHash {
        self.merkle_root
    }

    /// When the state below was recorded.
    pub(crate) fn begun(&self) -> Timestamp {
        self.begun
    }

    /// A tree that the store may lack.
    pub(crate) fn tree(&self, hash: &ContentHash, max_bytes: u64) -> Option<Vec<u8>> {
        self.trees.read(hash, max_bytes).ok()
    }

    /// Where the layer has these contents.
    pub(crate) fn place(&self, hash: &ContentHash) -> Option<&PathBuf> {
        self.files.get(hash)
    }
}

/// A state that is in a store.
pub(super) struct Layered {
    pub(super) timestamp: Timestamp,
    pub(super) merkle_root: ContentHash,
    pub(super) totals: Totals,
    pub(super) not_captured: Vec<NotCaptured>,
    pub(super) unstable: Vec<PathBuf>,
    pub(super) not_taken: Vec<NotTaken>,
    pub(super) started: FileTime,
    /// The stat caches of the layers.
    pub(super) caches: NewCaches,
}

impl Fork {
    /// The present state of the fork. Writes nothing.
    ///
    /// # Errors
    /// A layer or the state below cannot be read, or it was stopped.
    pub fn state<'a>(
        &self,
        store: &'a LocalStore,
        progress: &dyn Progress,
        threads: usize,
    ) -> Result<ForkState<'a>, ForkError> {
        let _used = self.enter()?;
        let base = self.base()?;
        let overlay = OverlayStore::new(store);
        let (baseline, store) = (&base, &overlay);
        let means = CaptureMeans { baseline, store, cache: None, progress, threads };
        let layered = self.layered(means)?;
        let Layered { timestamp, merkle_root, totals, not_captured, unstable, not_taken, .. } =
            layered;
        let mut files = HashMap::new();
        for changed in diff::differences(&overlay, &base.merkle_root, &merkle_root)? {
            let Difference { path, new, .. } = changed?;
            if let Some(Node::File { hash, .. }) = new.as_ref().map(|state| &state.node)
                && let Some(place) = self.place_in_layer(&path)
            {
                files.insert(*hash, place);
            }
        }
        let manifest = SnapshotManifest {
            timestamp,
            merkle_root,
            totals,
            not_captured,
            unstable,
            ..base.clone()
        };
        Ok(ForkState { overlay, base, manifest, not_taken, files })
    }

    /// Differs when a layer was changed.
    #[cfg(feature = "mount")]
    pub(crate) fn fingerprint(&self) -> Result<ContentHash, ForkError> {
        let mut hasher = crate::object::Hasher::new();
        for number in 0..self.document().layers.len() {
            let mut pending = vec![Dir::open(&self.upper_path(number))?];
            while let Some(dir) = pending.pop() {
                let mut add = |name: &[u8], stat: &sys::Stat| {
                    hasher.update(name);
                    let times = [stat.ctime, stat.mtime];
                    hasher.update(&stat.ino.to_le_bytes());
                    hasher.update(&stat.size.to_le_bytes());
                    for time in times {
                        hasher.update(&time.seconds.to_le_bytes());
                        hasher.update(&time.nanoseconds.to_le_bytes());
                    }
                };
                add(b"/", &dir.stat_self()?);
                for listed in dir.names()? {
                    let Some(stat) = dir.try_stat(&listed.name)? else { continue };
                    add(&listed.name, &stat);
                    if stat.kind == sys::FileKind::Directory {
                        // Removed meanwhile, or closed to its own user: a capture says so.
                        pending.extend(dir.open_dir(&listed.name).ok());
                    }
                }
            }
        }
        Ok(hasher.finish())
    }

    /// Where the layer has a path that the fork shows.
    fn place_in_layer(&self, path: &[u8]) -> Option<PathBuf> {
        let layers = self.document().layers.iter().enumerate();
        let mut recorded = layers.filter(|(_, layer)| layer.lower != Lower::Live);
        recorded.find_map(|(number, layer)| {
            let inside = byte_path::relative_to(path, layer.path.as_os_str().as_bytes())?;
            Some(self.upper_path(number).join(to_path(inside)))
        })
    }

    pub(super) fn layered(&self, means: CaptureMeans<'_>) -> Result<Layered, ForkError> {
        let CaptureMeans { baseline: base, store, cache, progress, threads } = means;
        let below = read_root_tree(store, &base.merkle_root)?;
        let sources = self.sources(base)?;
        // The state below, as if it lay in the layers: its paths stay in whatever is ignored.
        let entry = |source: &Source<'_>| {
            let found = below.get(source.tracked.as_os_str().as_bytes())?;
            Some(RootEntry { path: source.upper_bytes().into(), ..found.clone() })
        };
        let mut entries: Vec<RootEntry> = sources.iter().filter_map(entry).collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let moved = RootTree { entries, links: None };
        let moved_root = store.write(&moved.encode())?.hash;
        let left_out_below: Vec<NotCaptured> = base
            .not_captured
            .iter()
            .filter_map(|left| {
                let path = self.place_in_layer(left.path.as_os_str().as_bytes())?;
                Some(NotCaptured { path, ..left.clone() })
            })
            .collect();
        let known = KnownState { merkle_root: moved_root, not_captured: &left_out_below };
        let roots: Vec<TrackedRoot> = sources.iter().map(Source::root).collect();
        let captured = captured(CaptureRequest {
            store,
            flushed: None,
            roots: &roots,
            own: &[],
            budget: Budget::UNLIMITED,
            is_baseline: true,
            rules: rules(base, &sources, store)?,
            known: vec![known],
            cache,
            progress,
            expected: None,
            racy_from: None,
            threads,
        })?;
        let layers = read_root_tree(store, &captured.merkle_root)?;
        if self.is_copy() {
            return self.copied(captured, &layers, &sources, store);
        }
        let shown = |path: &Path| self.shown_path(&sources, path.as_os_str().as_bytes());
        let places: HashSet<Vec<u8>> =
            self.live_paths().map(|path| path.as_os_str().as_bytes().to_vec()).collect();
        // Whiteouts are devices, which a capture names.
        let is_left_out = |left: &&NotCaptured| left.reason != NotCapturedReason::Special;
        let newly: Vec<NotCaptured> = captured
            .not_captured
            .iter()
            .filter(is_left_out)
            .filter_map(|left| Some(NotCaptured { path: shown(&left.path)?, ..left.clone() }))
            .filter(|left| !places.contains(left.path.as_os_str().as_bytes()))
            .collect();
        let left_out: HashSet<Vec<u8>> =
            newly.iter().map(|left| left.path.as_os_str().as_bytes().to_vec()).collect();
        let mut merging = Merging::new(store, &places, &left_out, base.totals);
        let mut entries = Vec::new();
        for entry in &below.entries {
            let source =
                sources.iter().find(|it| it.tracked.as_os_str().as_bytes() == &*entry.path);
            let layer = source.and_then(|source| layers.get(source.upper_bytes()));
            let (Some(layer), Node::Directory { tree: below }) = (layer, &entry.node) else {
                entries.push(entry.clone());
                continue;
            };
            let Node::Directory { tree: changes } = &layer.node else {
                entries.push(entry.clone());
                continue;
            };
            let tree = merging.merge(&entry.path, below, &layer.attributes, changes)?;
            let tree = merging.without_left_out(&entry.path, tree)?;
            let attributes = unmarked(&layer.attributes);
            let node = Node::Directory { tree };
            entries.push(RootEntry { path: entry.path.clone(), attributes, node });
        }
        let groups = self.link_groups(&below, &layers, &sources, &merging, store)?;
        let links = match groups.is_empty() {
            true => None,
            false => Some(store.write(&groups.encode())?.hash),
        };
        let merkle_root = store.write(&RootTree { entries, links }.encode())?.hash;
        let stays = |left: &&NotCaptured| {
            let path = left.path.as_os_str().as_bytes();
            merging.is_unchanged(path) && !left_out.contains(path)
        };
        let mut not_captured: Vec<NotCaptured> =
            base.not_captured.iter().filter(stays).cloned().chain(newly).collect();
        not_captured.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
        let mut totals = merging.totals;
        totals.files_read = captured.totals.files_read;
        totals.objects_written = captured.totals.objects_written;
        totals.bytes_written = captured.totals.bytes_written;
        Ok(Layered {
            timestamp: captured.timestamp,
            merkle_root,
            totals,
            not_captured,
            unstable: captured.unstable.iter().filter_map(|path| shown(path)).collect(),
            not_taken: merging.not_taken,
            started: captured.started,
            caches: captured.caches,
        })
    }

    /// The state of a fork whose layers are copies: what is in them.
    fn copied(
        &self,
        captured: Capture,
        layers: &RootTree,
        sources: &[Source<'_>],
        store: &dyn ObjectStore,
    ) -> Result<Layered, ForkError> {
        let shown = |path: &[u8]| self.shown_path(sources, path);
        let mut entries = Vec::new();
        for entry in &layers.entries {
            if let Some(path) = shown(&entry.path) {
                let path = path.as_os_str().as_bytes().into();
                entries.push(RootEntry { path, ..entry.clone() });
            }
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let groups = read_links(store, layers.links.as_ref())?;
        let group = |group: &[Box<[u8]>]| {
            let paths = group.iter().filter_map(|path| shown(path));
            paths.map(|path| Box::from(path.as_os_str().as_bytes())).collect::<Vec<_>>()
        };
        let groups = LinkGroups::new(groups.groups().iter().map(|it| group(it)).collect());
        let links = match groups.is_empty() {
            true => None,
            false => Some(store.write(&groups.encode())?.hash),
        };
        let merkle_root = store.write(&RootTree { entries, links }.encode())?.hash;
        let left = |left: &NotCaptured| {
            let path = shown(left.path.as_os_str().as_bytes())?;
            Some(NotCaptured { path, ..left.clone() })
        };
        let mut not_captured: Vec<_> = captured.not_captured.iter().filter_map(left).collect();
        not_captured.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
        let unstable = captured.unstable.iter();
        let unstable = unstable.filter_map(|path| shown(path.as_os_str().as_bytes()));
        Ok(Layered {
            timestamp: captured.timestamp,
            merkle_root,
            totals: captured.totals,
            not_captured,
            unstable: unstable.collect(),
            not_taken: Vec::new(),
            started: captured.started,
            caches: captured.caches,
        })
    }

    /// The hard links of the state: those below that nothing changed, and those of the layers.
    fn link_groups(
        &self,
        below: &RootTree,
        layers: &RootTree,
        sources: &[Source<'_>],
        merging: &Merging<'_>,
        store: &dyn ObjectStore,
    ) -> Result<LinkGroups, StoreError> {
        let mut groups = Vec::new();
        for group in read_links(store, below.links.as_ref())?.groups() {
            let still = group.iter().filter(|path| merging.is_unchanged(path)).cloned();
            groups.push(still.collect::<Vec<_>>());
        }
        for group in read_links(store, layers.links.as_ref())?.groups() {
            let shown = group.iter().filter_map(|path| self.shown_path(sources, path));
            let taken = shown.map(|path| Box::<[u8]>::from(path.as_os_str().as_bytes()));
            // Whiteouts are names of one inode.
            let taken = taken.filter(|path| merging.is_taken(path));
            groups.push(taken.collect());
        }
        Ok(LinkGroups::new(groups))
    }

    /// The path that the fork shows for one in a layer.
    fn shown_path(&self, sources: &[Source<'_>], path: &[u8]) -> Option<PathBuf> {
        sources.iter().find_map(|source| {
            let inside = byte_path::relative_to(path, source.upper_bytes())?;
            let tracked = source.tracked.as_os_str().as_bytes();
            let shown = match inside {
                b"" => tracked.to_vec(),
                inside => byte_path::join(tracked, inside),
            };
            Some(to_path(&shown).to_owned())
        })
    }

    fn sources<'m>(&self, base: &'m SnapshotManifest) -> Result<Vec<Source<'m>>, ForkError> {
        let mut sources = Vec::new();
        for (number, layer) in self.document().layers.iter().enumerate() {
            let tracked = base.roots.iter().find(|root| root.path == layer.path);
            if let (Lower::Recorded | Lower::Copied, Some(tracked)) = (layer.lower, tracked) {
                let upper = sys::real_path(&self.upper_path(number))?;
                sources.push(Source { tracked: &tracked.path, root: tracked, upper });
            }
        }
        // A capture takes paths in order.
        sources.sort_by(|a, b| a.upper_bytes().cmp(b.upper_bytes()));
        Ok(sources)
    }
}

/// A layer that is captured.
struct Source<'m> {
    tracked: &'m PathBuf,
    root: &'m TrackedRoot,
    upper: PathBuf,
}

impl Source<'_> {
    fn upper_bytes(&self) -> &[u8] {
        self.upper.as_os_str().as_bytes()
    }

    fn root(&self) -> TrackedRoot {
        TrackedRoot { path: self.upper.clone(), exclusion: self.root.exclusion.clone() }
    }
}

/// The ignore files of the state below, which are also those of the layers.
fn rules(
    base: &SnapshotManifest,
    sources: &[Source<'_>],
    store: &dyn ObjectStore,
) -> Result<Vec<RootRules>, StoreError> {
    let recorded = base.ignore_files.map(|hash| read_root_tree(store, &hash)).transpose()?;
    let tree_of = |source: &Source<'_>| {
        let entry = recorded.as_ref()?.get(source.tracked.as_os_str().as_bytes())?;
        match &entry.node {
            Node::Directory { tree } => Some(*tree),
            _ => None,
        }
    };
    Ok(sources.iter().map(|source| RootRules::Recorded(tree_of(source))).collect())
}

impl ForkState<'_> {
    /// The manifest that a snapshot of this state would have.
    pub fn manifest(&self) -> &SnapshotManifest {
        &self.manifest
    }

    /// The state below the layers.
    pub fn base(&self) -> &SnapshotManifest {
        &self.base
    }

    /// The state by itself.
    #[cfg(feature = "mount")]
    pub(crate) fn into_live(self) -> LiveState {
        LiveState {
            trees: self.overlay.into_layer(),
            files: self.files,
            merkle_root: self.manifest.merkle_root,
            begun: self.base.timestamp,
        }
    }

    /// Entries of the layers that are no part of the state.
    pub fn not_taken(&self) -> &[NotTaken] {
        &self.not_taken
    }

    /// The changes of the fork.
    ///
    /// # Errors
    /// A tree is missing or damaged.
    pub fn comparison(&self) -> Result<diff::Comparison, StoreError> {
        let differences = diff::compare(self, &self.base.merkle_root, &self.manifest.merkle_root)?;
        let (old, new) = (&self.base, &self.manifest);
        let unknown =
            (crate::manifest::NotCapturedSet::new(old), crate::manifest::NotCapturedSet::new(new));
        Ok(diff::Comparison::of(&differences, &unknown.0, &unknown.1))
    }
}

impl ObjectSource for ForkState<'_> {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        match (self.overlay.read(hash, max_bytes), self.files.get(hash)) {
            (Err(StoreError::Missing { .. }), Some(path)) => {
                let parent = Dir::open_no_symlinks(path.parent().unwrap_or(Path::new("/")))?;
                let name = path.file_name().unwrap_or(OsStr::new(""));
                let bytes = parent.read(name.as_bytes(), max_bytes)?;
                let is_same = ContentHash::of(&bytes) == *hash;
                let changed = || StoreError::Missing { hash: *hash, path: path.clone() };
                is_same.then_some(bytes).ok_or_else(changed)
            }
            (read, _) => read,
        }
    }
}
