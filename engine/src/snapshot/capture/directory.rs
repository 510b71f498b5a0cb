//! One directory: its list, its tree when all below it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use parking_lot::Mutex;
use rayon::Scope;

use super::database::take_pairs;
use super::{CaptureError, Capturer, attributes};
use crate::byte_path;
use crate::manifest::{LeftOutTally, NotCapturedReason};
use crate::object::{ContentHash, Midstates, Node, Tree, TreeEntry, Xattrs};
use crate::snapshot::ignore_rules::{InheritedRules, RootRules, RulesInside, store_file};
use crate::snapshot::known::KnownDir;
use crate::stat_cache::{CachedDirectory, CachedFile, StatKey};
use crate::sys::{self, Dir, FileKind, ListedName, Stat};
use crate::walk::{
    self, Databases, FoundEntry, IgnoreFile, Known, MadeAgain, Mode, Recorded, Repository,
};

/// Files are hashed in batches of at most so many files and bytes: large enough that handing one to
/// another thread is cheap, small enough that one directory keeps all threads busy.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: u64 = 4 << 20;

/// Names of a directory that one thread looks at: so many that handing them to another is cheap.
const PART_NAMES: usize = 1024;

/// From so many entries on, two threads put the lists of a directory in order.
const LONG_LIST: usize = 4096;

/// Files of one directory that one thread will read.
#[derive(Default)]
struct Batch {
    files: Vec<FoundEntry>,
    bytes: u64,
}

impl Batch {
    /// Adds a file, and gives the batch away when it is full.
    fn push(&mut self, found: FoundEntry) -> Option<Vec<FoundEntry>> {
        self.bytes += found.stat.size;
        self.files.push(found);
        let is_full = self.files.len() >= BATCH_FILES || self.bytes >= BATCH_BYTES;
        is_full.then(|| std::mem::take(self).files)
    }
}

/// A directory whose tree is not complete yet.
pub(super) struct PendingDir {
    pub(super) root: usize,
    /// Relative to the tracked path; empty for the tracked path itself.
    pub(super) relative: Box<[u8]>,
    pub(super) parent: Option<Arc<PendingDir>>,
    pub(super) stat: Stat,
    pub(super) mode: Mode,
    rules: InheritedRules,
    /// The repository of the directory above it.
    repository: Repository,
    pub(super) known: Vec<Arc<KnownDir>>,
    /// It bears its maker's mark: nothing of it is part of the snapshot but what is kept.
    pub(super) is_rebuildable: AtomicBool,
    /// The mark of a directory above that covers a part of this one.
    pub(super) made: Option<Arc<MadeAgain>>,
    /// A mark covers a part of it.
    pub(super) is_in_part: AtomicBool,
    /// The counter of the unrecorded entries, if it lies in a left-out directory.
    pub(super) passed_over: Option<Arc<LeftOutTally>>,
    /// Its own listing, plus its batches of files, plus its subdirectories that are not finished.
    unfinished: AtomicUsize,
    pub(super) state: Mutex<PendingState>,
}

/// Directories that are open at once before each thread does by itself what there is to do in its
/// own: far below the least limit of open files in use (1,024).
const MAX_SHARED: usize = 256;

/// A directory that was listed, for all who look at a part of it or read some of its files. It
/// stays open, so it is the one that was listed, wherever it may have been moved meanwhile and
/// whatever has its name now.
struct OpenDir<'s> {
    dir: Dir,
    mode: Mode,
    rules: RulesInside,
    repository: Repository,
    databases: Databases,
    made: Option<Arc<MadeAgain>>,
    cached: Option<CachedDirectory>,
    /// How many there are.
    count: &'s AtomicUsize,
}

impl Drop for OpenDir<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Relaxed);
    }
}

#[derive(Default)]
pub(super) struct PendingState {
    pub(super) captured: Captured,
    xattrs: Xattrs,
    /// The tree in the cache.
    cached_tree: Option<ContentHash>,
    /// It could not be opened because it is no longer there.
    is_gone: bool,
}

/// Entries of a directory that are captured, and what the next cache will know of its files.
#[derive(Default)]
pub(super) struct Captured {
    pub(super) entries: Vec<TreeEntry>,
    pub(super) cached_files: Vec<(Box<[u8]>, CachedFile)>,
}

impl Captured {
    pub(super) fn append(&mut self, mut other: Self) {
        self.entries.append(&mut other.entries);
        self.cached_files.append(&mut other.cached_files);
    }
}

impl PendingDir {
    fn new(
        root: usize,
        relative: Vec<u8>,
        stat: Stat,
        mode: Mode,
        rules: InheritedRules,
        repository: Repository,
    ) -> Self {
        Self {
            root,
            relative: relative.into(),
            parent: None,
            stat,
            mode,
            rules,
            repository,
            known: Vec::new(),
            is_rebuildable: AtomicBool::new(false),
            made: None,
            is_in_part: AtomicBool::new(false),
            passed_over: None,
            unfinished: AtomicUsize::new(1),
            state: Mutex::default(),
        }
    }

    fn name(&self) -> &[u8] {
        byte_path::split(&self.relative).1
    }
}

impl Capturer<'_> {
    pub(super) fn root<'s>(&'s self, scope: &Scope<'s>, index: usize, known: Vec<Arc<KnownDir>>) {
        let root = &self.roots[index];
        if let Some(error) = &root.problem {
            self.unreadable(index, b"", root.stat.as_ref(), error);
        }
        let (Some(place), Some(stat)) = (&root.place, root.stat) else { return };
        let is_counted = || self.count_entry(&place.parent, place.name(), &stat);
        if self.is_denied(index, b"") || !is_counted() {
            return self.leave_out(index, b"", NotCapturedReason::OverBudget);
        }
        if stat.kind == FileKind::Directory {
            let rules = InheritedRules::of_root(self.request.rules[index]);
            let above = Repository::above(&root.path);
            let mut dir = PendingDir::new(index, Vec::new(), stat, Mode::Filtered, rules, above);
            dir.known = known;
            self.directory(scope, &Arc::new(dir));
            return;
        }
        let name = place.name().into();
        let (mode, is_ignored, is_marked) = (Mode::Filtered, false, false);
        let found = FoundEntry { name, stat, mode, is_ignored, is_marked };
        let captured = match stat.kind {
            FileKind::File => self.read_file(&place.parent, &found, index, b"").map(|(e, _)| e),
            _ => self.other_entry(&place.parent, &found, index, b""),
        };
        if let Some(entry) = captured {
            self.finished_roots.lock()[index] = Some((entry.attributes, entry.node));
        }
    }

    fn directory<'s>(&'s self, scope: &Scope<'s>, node: &Arc<PendingDir>) {
        if self.is_stopped() {
            return;
        }
        match self.list(scope, node) {
            Ok(()) => {}
            Err(error) if error.is_gone() || error.is_symlink_in_path() => {
                node.state.lock().is_gone = true;
            }
            Err(error) => {
                self.unreadable(node.root, &node.relative, Some(&node.stat), &error);
                // Its list is unknown, but what it is itself can be told without opening it.
                if let Ok(xattrs) = self.xattrs_from_outside(node) {
                    node.state.lock().xattrs = xattrs;
                }
            }
        }
        self.finish_part(node);
    }

    /// Extended attributes of a directory that cannot be opened, by its name in its parent.
    fn xattrs_from_outside(&self, node: &PendingDir) -> sys::Result<Xattrs> {
        let root = &self.roots[node.root];
        let pairs = match (&node.parent, &root.dir, &root.place) {
            (Some(parent), Some(top), _) => {
                top.open_beneath(&parent.relative)?.xattrs(node.name())?
            }
            (None, _, Some(place)) => place.parent.xattrs(place.name())?,
            _ => Vec::new(),
        };
        Ok(Xattrs::new(pairs))
    }

    fn list<'s>(&'s self, scope: &Scope<'s>, node: &Arc<PendingDir>) -> sys::Result<()> {
        let root = &self.roots[node.root];
        let dir = match &root.dir {
            Some(top) => top.open_beneath(&node.relative)?,
            // The tracked path itself; its problem is already recorded.
            None => {
                node.state.lock().xattrs = self.xattrs_from_outside(node)?;
                return Ok(());
            }
        };
        if node.parent.as_ref().is_some_and(|parent| parent.stat.dev != node.stat.dev)
            && sys::is_virtual_file_system(dir.file_system_type()?)
        {
            self.leave_out(node.root, &node.relative, NotCapturedReason::OtherFileSystem);
            return Ok(());
        }
        let mut listed = walk::names(&dir, node.mode, &root.filter, node.rules.reads_disk())?;
        let repository = listed.repository(&dir, &node.relative, &node.repository);
        let (mode, made) = self.mode_inside(node, &dir, &mut listed, &repository);
        let walk::Names { mut names, ignore_file, databases } = listed;
        if let Some(file) = &ignore_file {
            self.record_rules(node, file);
        }
        let rules = node.rules.enter(self.request.store, &node.relative, ignore_file.as_ref());
        let cached = self.caches[node.root].directory(&node.relative);
        {
            let mut state = node.state.lock();
            state.cached_tree = cached.as_ref().map(|cached| cached.tree);
            state.xattrs = Xattrs::new(dir.xattrs_self()?);
        }
        self.open_dirs.fetch_add(1, Relaxed);
        let count = &self.open_dirs;
        let open =
            Arc::new(OpenDir { dir, mode, rules, repository, databases, made, cached, count });
        while names.len() > PART_NAMES {
            let part = names.split_off(names.len() - PART_NAMES);
            if !self.may_share() {
                self.entries(scope, node, &open, part);
                continue;
            }
            node.unfinished.fetch_add(1, SeqCst);
            let (node, open) = (Arc::clone(node), Arc::clone(&open));
            scope.spawn(move |scope| {
                if !self.is_stopped() {
                    self.entries(scope, &node, &open, part);
                    self.finish_part(&node);
                }
            });
        }
        self.entries(scope, node, &open, names);
        Ok(())
    }

    /// Keeps an ignore file for the snapshots that follow, if this is the first capture of the
    /// tracked path.
    fn record_rules(&self, node: &PendingDir, file: &IgnoreFile) {
        if self.request.rules[node.root] != RootRules::OnDisk {
            return;
        }
        match store_file(self.request.store, file, |bytes| self.object_written(bytes)) {
            Ok(stored) => {
                self.ignore_files.lock().push((node.root, node.relative.clone(), stored));
            }
            Err(error) => self.fail(error.into()),
        }
    }

    /// Whether the open directory may wait for other threads: each that waits takes a descriptor,
    /// and they wait for one another as deep as a tree is.
    fn may_share(&self) -> bool {
        self.open_dirs.load(Relaxed) < MAX_SHARED
    }

    /// Captures what some names of a directory are.
    fn entries<'s>(
        &'s self,
        scope: &Scope<'s>,
        node: &Arc<PendingDir>,
        open: &Arc<OpenDir<'s>>,
        names: Vec<ListedName>,
    ) {
        let OpenDir { dir, mode, rules, repository, databases, made, cached, .. } = &**open;
        let (store, filter) = (self.request.store, &self.roots[node.root].filter);
        let known = |name: &[u8]| {
            let path = || byte_path::join(&node.relative, name);
            node.known.iter().map(|dir| dir.holds(store, name, &path())).max().unwrap_or(Known::No)
        };
        let inside = walk::Inside {
            dir,
            relative: &node.relative,
            mode: *mode,
            filter,
            ignores: &rules.ignores,
            repository,
            databases,
            made: made.as_deref(),
        };
        let recorded = |name: &[u8]| {
            let path = byte_path::join(&node.relative, name);
            let known = node.known.iter().map(|dir| dir.recorded(store, name, &path));
            known.max().unwrap_or(Recorded::No).max(self.recorded_before(node.root, &path))
        };
        let mut judged = inside.judge(names, known, recorded);
        let mut counted = self.leave_out_all(scope, node, judged.left_out, &judged.entries);
        self.count_passed_over(scope, node, judged.passed_over);
        let mut captured = Captured::default();
        let mut batch = Batch::default();
        for pair in take_pairs(&mut judged.entries) {
            let fits = |found: &FoundEntry| {
                let path = byte_path::join(&node.relative, &found.name);
                !self.is_denied(node.root, &path) && self.count_entry(dir, &found.name, &found.stat)
            };
            if fits(&pair.database) {
                if fits(&pair.beside) {
                    self.database(node, dir, cached.as_ref(), pair, &mut captured);
                    continue;
                }
                self.tally.remove(&pair.database.stat);
            }
            // Lines that do not fit are told as of any file.
            judged.entries.extend([pair.database, pair.beside]);
        }
        for found in judged.entries {
            let path = byte_path::join(&node.relative, &found.name);
            // A directory that is there for some of what is in it counts when it turns out to be.
            let is_counted = !(found.mode.is_partial() && found.stat.kind == FileKind::Directory);
            let fits = || {
                !self.is_denied(node.root, &path) && self.count_entry(dir, &found.name, &found.stat)
            };
            if is_counted && !fits() {
                let (reason, stat) = (NotCapturedReason::OverBudget, Some(&found.stat));
                if let Some(tally) = self.leave_out_entry(node.root, &path, reason, stat, false) {
                    self.count_below(scope, node.root, path, tally);
                }
                continue;
            }
            match found.stat.kind {
                FileKind::Directory => {
                    let tally = counted
                        .remove(&found.name)
                        .or_else(|| node.passed_over.clone().filter(|_| found.mode.is_partial()));
                    self.spawn_child(scope, node, open, path, &found, tally);
                }
                FileKind::File => {
                    let known = cached.as_ref().and_then(|cached| cached.file(&found.name));
                    let is_known = |known: &&CachedFile| {
                        let key = StatKey::of(&found.stat);
                        known.key == key && self.are_stored(node, known)
                    };
                    match known.filter(is_known) {
                        Some(known) => {
                            let entry = self.unchanged_file(node, &path, &found, known);
                            captured.entries.push(entry);
                            captured.cached_files.push((found.name, known.clone()));
                        }
                        None => {
                            if let Some(full) = batch.push(found) {
                                self.batch(scope, node, open, full);
                            }
                        }
                    }
                }
                _ => captured.entries.extend(self.other_entry(dir, &found, node.root, &path)),
            }
        }
        self.files(node, dir, batch.files, captured);
    }

    /// Some files of a directory, on any thread.
    fn batch<'s>(
        &'s self,
        scope: &Scope<'s>,
        node: &Arc<PendingDir>,
        open: &Arc<OpenDir<'s>>,
        batch: Vec<FoundEntry>,
    ) {
        if !self.may_share() {
            return self.files(node, &open.dir, batch, Captured::default());
        }
        node.unfinished.fetch_add(1, SeqCst);
        let (node, open) = (Arc::clone(node), Arc::clone(open));
        scope.spawn(move |_| {
            self.files(&node, &open.dir, batch, Captured::default());
            self.finish_part(&node);
        });
    }

    /// Whether the cache that knows a file of a directory can tell that its objects are in the
    /// store.
    pub(super) fn are_stored(&self, node: &PendingDir, known: &CachedFile) -> bool {
        let (size, midstates) = (known.key.size(), known.midstates.name());
        self.is_stored(node, &known.hash, size)
            && midstates.is_none_or(|midstates| {
                self.is_stored(node, &midstates, Midstates::encoded_bytes(size))
            })
    }

    fn is_stored(&self, node: &PendingDir, hash: &ContentHash, size: u64) -> bool {
        self.request.cache.as_ref().is_some_and(|location| {
            let holds = &location.store.holds;
            self.caches[node.root].vouches_for(&node.relative, hash, size, holds)
        })
    }

    fn spawn_child<'s>(
        &'s self,
        scope: &Scope<'s>,
        node: &Arc<PendingDir>,
        open: &OpenDir<'s>,
        path: Vec<u8>,
        found: &FoundEntry,
        passed_over: Option<Arc<LeftOutTally>>,
    ) {
        node.unfinished.fetch_add(1, SeqCst);
        let (rules, repository) = (open.rules.inherited(found), open.repository.clone());
        let (stat, mode) = (found.stat, found.mode);
        let mut child = PendingDir::new(node.root, path, stat, mode, rules, repository);
        child.passed_over = passed_over;
        child.made = open.made.clone().filter(|_| found.is_marked);
        child.parent = Some(Arc::clone(node));
        child.known = node.known.iter().map(|dir| KnownDir::child(dir, &found.name)).collect();
        let child = Arc::new(child);
        scope.spawn(move |scope| self.directory(scope, &child));
    }

    /// One part of a directory is finished; the last one completes it, and maybe its parents.
    pub(super) fn finish_part(&self, node: &Arc<PendingDir>) {
        let mut node = Arc::clone(node);
        while node.unfinished.fetch_sub(1, SeqCst) == 1 && !self.stopped.load(Relaxed) {
            if let Err(error) = self.complete(&node) {
                self.fail(error);
                return;
            }
            match &node.parent {
                Some(parent) => node = Arc::clone(parent),
                None => return,
            }
        }
    }

    fn complete(&self, node: &PendingDir) -> Result<(), CaptureError> {
        let state = std::mem::take(&mut *node.state.lock());
        let Captured { entries, mut cached_files } = state.captured;
        let is_rebuildable = node.is_rebuildable.load(Relaxed);
        let is_partial = is_rebuildable || node.mode.is_partial();
        // One that an earlier snapshot holds is said to be there still.
        let store = self.request.store;
        let is_known =
            || node.known.iter().any(|dir| dir.itself(store, &node.relative) != Known::No);
        let is_needed = !is_partial || !entries.is_empty() || is_known();
        let was_counted = !node.mode.is_partial();
        if state.is_gone || !is_needed {
            if was_counted {
                self.tally.remove_directory();
            }
            return Ok(());
        }
        if !was_counted {
            self.tally.add_directory();
        }
        let is_long = entries.len() >= LONG_LIST;
        let encode = || {
            let bytes = Tree::new(entries).encode();
            (ContentHash::of(&bytes), bytes)
        };
        // They consist of sorted runs, which a stable sort makes use of.
        let mut sort = || cached_files.sort_by(|a, b| a.0.cmp(&b.0));
        // By the end of a capture a long list may be all that is left to do.
        let ((tree, bytes), ()) =
            if is_long { rayon::join(encode, sort) } else { (encode(), sort()) };
        if state.cached_tree != Some(tree) || !self.is_stored(node, &tree, bytes.len() as u64) {
            let stored = self.request.store.write(&bytes)?;
            if stored.is_new {
                self.object_written(bytes.len() as u64);
            }
        }
        if let Some(writer) = self.writers.get(node.root) {
            let is_plain = !is_partial
                && !node.is_in_part.load(Relaxed)
                && node.mode != Mode::Forced
                && self.roots[node.root].filter.leaves_out_rebuildable();
            let directory = CachedDirectory { tree, is_plain, files: cached_files };
            writer.lock().add(&node.relative, &directory)?;
        }
        let attributes = attributes(&node.stat, state.xattrs);
        match &node.parent {
            Some(parent) => {
                let node = TreeEntry {
                    name: node.name().into(),
                    attributes,
                    node: Node::Directory { tree },
                };
                parent.state.lock().captured.entries.push(node);
            }
            None => {
                let entry = Some((attributes, Node::Directory { tree }));
                self.finished_roots.lock()[node.root] = entry;
            }
        }
        Ok(())
    }
}
