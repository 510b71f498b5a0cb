//! From tracked paths to a root tree: a parallel walk that reads each new file once.
//!
//! Every directory is a node that waits for its files and subdirectories; the last one to finish
//! writes the directory's tree and hands its hash to the parent. So trees are made from the leaves
//! up without recursion, and a directory 10,000 levels down costs no stack. Directories are opened
//! from the tracked path's descriptor by their relative path, beneath it and through no symlink, so
//! the number of open files does not grow with the depth either.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use jiff::Timestamp;
use parking_lot::Mutex;
use rayon::Scope;

use super::budget::{Budget, OverBudget, survey};
use super::known::KnownDir;
use super::manifest::{NotCaptured, NotCapturedReason, Totals};
use super::roots::{OpenRoot, TrackedRoot};
use crate::byte_path;
use crate::object::{
    Attributes, ContentHash, LinkGroups, Node, RootEntry, RootTree, Tree, TreeEntry, Xattrs,
};
use crate::path_text::to_path;
use crate::progress::Progress;
use crate::stat_cache::{CachedDirectory, CachedFile, StatCache, StatCacheWriter, StatKey};
use crate::store::{ImportError, ObjectStore, StoreError, read_root_tree};
use crate::sys::{self, Dir, FileKind, FileTime, Stat};
use crate::walk::{self, FoundEntry, IgnoreLevel, InvalidPattern, Mode, WhyLeftOut};

/// Files are hashed in batches of at most so many files and bytes: large enough that handing one to
/// another thread is cheap, small enough that one directory keeps all threads busy.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: u64 = 4 << 20;
/// A file that changed while it was read is read again so many times before it is called unstable.
const READ_ATTEMPTS: usize = 3;

/// What to capture, and with what.
pub(crate) struct CaptureRequest<'a> {
    pub(crate) store: &'a dyn ObjectStore,
    pub(crate) roots: &'a [TrackedRoot],
    pub(crate) budget: Budget,
    /// Whether a budget overrun is an error (a baseline) or leaves out what does not fit.
    pub(crate) is_baseline: bool,
    /// Merkle roots of snapshots whose paths stay in even if they are git-ignored by now.
    pub(crate) known: Vec<ContentHash>,
    pub(crate) cache: Option<CacheLocation<'a>>,
    pub(crate) progress: &'a dyn Progress,
    /// Worker threads; 0 for one per core.
    pub(crate) threads: usize,
}

/// Where the stat caches are and which generation of the store they may vouch for.
pub(crate) struct CacheLocation<'a> {
    pub(crate) index: &'a Dir,
    pub(crate) generation: [u8; 16],
    /// Whether a new cache is written; not for a plan.
    pub(crate) is_written: bool,
}

/// What was captured. Everything is in the store, but not yet durable.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The kernel's coarse time before the walk began: what has an older ctime is as captured.
    pub(crate) started: FileTime,
    /// The same moment as a person reads it.
    pub(crate) timestamp: Timestamp,
    pub(crate) merkle_root: ContentHash,
    pub(crate) totals: Totals,
    pub(crate) not_captured: Vec<NotCaptured>,
    pub(crate) unstable: Vec<PathBuf>,
    /// To be committed once the objects are durable.
    pub(crate) caches: Vec<StatCacheWriter>,
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The tracked paths hold more than the budget allows.
    #[error("{0}")]
    OverBudget(Box<OverBudget>),
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A filter in a manifest is not valid.
    #[error(transparent)]
    Pattern(#[from] InvalidPattern),
    /// Somebody asked to stop.
    #[error("stopped before the snapshot was complete; nothing was recorded")]
    Cancelled,
    /// The worker threads could not be started.
    #[error("cannot start worker threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

impl From<sys::Error> for CaptureError {
    fn from(error: sys::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Captures all roots.
pub(crate) fn capture(request: &CaptureRequest<'_>) -> Result<Capture, CaptureError> {
    match capture_once(request, None)? {
        Outcome::Complete(capture) => Ok(capture),
        Outcome::OverBudget => {
            let (roots, known) = open_roots(request)?;
            let bounded = request.is_baseline;
            let survey = survey(&roots, &known, request.store, request.budget, bounded);
            if request.is_baseline {
                return Err(CaptureError::OverBudget(Box::new(survey.over)));
            }
            match capture_once(request, Some(survey.denied))? {
                Outcome::Complete(capture) => Ok(capture),
                // Not even the tracked path itself fits.
                Outcome::OverBudget => Err(CaptureError::OverBudget(Box::new(survey.over))),
            }
        }
    }
}

enum Outcome {
    Complete(Capture),
    OverBudget,
}

type OpenRoots = (Vec<OpenRoot>, Vec<Vec<Arc<KnownDir>>>);

/// Opens all roots, each with what earlier snapshots hold of it.
fn open_roots(request: &CaptureRequest<'_>) -> Result<OpenRoots, CaptureError> {
    let roots = request.roots.iter().map(OpenRoot::new).collect::<Result<Vec<_>, _>>()?;
    let earlier = request
        .known
        .iter()
        .filter_map(|root| {
            // Damage is `verify`'s to report; a snapshot must still be possible.
            read_root_tree(request.store, root).inspect_err(|e| tracing::warn!("{e}")).ok()
        })
        .collect::<Vec<_>>();
    let known = roots
        .iter()
        .map(|root| {
            let path = root.path.as_os_str().as_bytes();
            earlier
                .iter()
                .filter_map(|tree| match tree.get(path)?.node {
                    Node::Directory { tree } => Some(KnownDir::of_tree(tree)),
                    _ => None,
                })
                .collect()
        })
        .collect();
    Ok((roots, known))
}

fn capture_once(
    request: &CaptureRequest<'_>,
    denied: Option<HashSet<(usize, Box<[u8]>)>>,
) -> Result<Outcome, CaptureError> {
    // Before the first look at any file: the stat cache's racy rule depends on it.
    let (start, timestamp) = (sys::coarse_now(), Timestamp::now());
    let (roots, known) = open_roots(request)?;
    let root_count = roots.len();
    let mut caches = Vec::new();
    let mut writers = Vec::new();
    for root in &roots {
        if let Some(location) = &request.cache {
            caches.push(StatCache::load(location.index, &root.path, &location.generation));
            let CacheLocation { index, generation, is_written } = location;
            if *is_written {
                let writer = StatCacheWriter::new(index, &root.path, generation, start)?;
                writers.push(Mutex::new(writer));
            }
        } else {
            caches.push(StatCache::default());
        }
    }
    let capturer = Capturer {
        request,
        roots,
        caches,
        writers,
        denied,
        start,
        timestamp,
        is_root_user: sys::effective_uid() == 0,
        stopped: AtomicBool::new(false),
        over_budget: AtomicBool::new(false),
        error: Mutex::new(None),
        counters: Counters::default(),
        not_captured: Mutex::new(Vec::new()),
        unstable: Mutex::new(Vec::new()),
        links: Mutex::new(HashMap::new()),
        finished_roots: Mutex::new((0..root_count).map(|_| None).collect()),
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(request.threads)
        .thread_name(|index| format!("capture-{index}"))
        .build()?;
    pool.scope(|scope| {
        for (index, known) in known.into_iter().enumerate() {
            let capturer = &capturer;
            scope.spawn(move |scope| capturer.root(scope, index, known));
        }
    });
    capturer.finish()
}

struct Capturer<'a> {
    request: &'a CaptureRequest<'a>,
    roots: Vec<OpenRoot>,
    caches: Vec<StatCache>,
    writers: Vec<Mutex<StatCacheWriter>>,
    /// What the budget leaves out, as (root, relative path), once that was found out.
    denied: Option<HashSet<(usize, Box<[u8]>)>>,
    start: FileTime,
    timestamp: Timestamp,
    is_root_user: bool,
    stopped: AtomicBool,
    over_budget: AtomicBool,
    error: Mutex<Option<CaptureError>>,
    counters: Counters,
    not_captured: Mutex<Vec<NotCaptured>>,
    unstable: Mutex<Vec<PathBuf>>,
    /// Paths by inode, of files with more than one name.
    links: Mutex<HashMap<InodeId, Vec<Box<[u8]>>>>,
    finished_roots: Mutex<Vec<Option<(Attributes, Node)>>>,
}

/// Device and inode number.
type InodeId = (u64, u64);

#[derive(Default)]
struct Counters {
    files: AtomicU64,
    entries: AtomicU64,
    bytes: AtomicU64,
    files_read: AtomicU64,
    objects_written: AtomicU64,
    bytes_written: AtomicU64,
}

/// A directory whose tree is not complete yet.
struct PendingDir {
    root: usize,
    /// Relative to the tracked path; empty for the tracked path itself.
    relative: Box<[u8]>,
    parent: Option<Arc<PendingDir>>,
    stat: Stat,
    mode: Mode,
    ignores: Option<Arc<IgnoreLevel>>,
    known: Vec<Arc<KnownDir>>,
    /// Its own listing, plus its batches of files, plus its subdirectories that are not finished.
    unfinished: AtomicUsize,
    state: Mutex<PendingState>,
}

#[derive(Default)]
struct PendingState {
    entries: Vec<TreeEntry>,
    cached_files: Vec<(Box<[u8]>, CachedFile)>,
    xattrs: Xattrs,
    /// What the cache says the tree was.
    cached_tree: Option<ContentHash>,
    /// It could not be opened because it is no longer there.
    is_gone: bool,
}

impl PendingDir {
    fn new(root: usize, relative: Vec<u8>, stat: Stat, mode: Mode) -> Self {
        Self {
            root,
            relative: relative.into(),
            parent: None,
            stat,
            mode,
            ignores: None,
            known: Vec::new(),
            unfinished: AtomicUsize::new(1),
            state: Mutex::default(),
        }
    }

    fn name(&self) -> &[u8] {
        byte_path::split(&self.relative).1
    }
}

impl<'a> Capturer<'a> {
    fn root<'s>(&'s self, scope: &Scope<'s>, index: usize, known: Vec<Arc<KnownDir>>) {
        let root = &self.roots[index];
        if let Some(error) = &root.problem {
            self.unreadable(index, b"", error);
        }
        let (Some(place), Some(stat)) = (&root.place, root.stat) else { return };
        if self.is_denied(index, b"") || !self.count_entry(&stat) {
            return self.leave_out(index, b"", NotCapturedReason::OverBudget);
        }
        if stat.kind == FileKind::Directory {
            let mut dir = PendingDir::new(index, Vec::new(), stat, Mode::Filtered);
            dir.known = known;
            self.directory(scope, &Arc::new(dir));
            return;
        }
        let found = FoundEntry { name: place.name().into(), stat, mode: Mode::Filtered };
        let captured = match stat.kind {
            FileKind::File => self.read_file(&place.parent, &found, index, b"").map(|(e, _)| e),
            _ => self.other_entry(&place.parent, &found, index, b""),
        };
        if let Some(entry) = captured {
            self.finished_roots.lock()[index] = Some((entry.attributes, entry.node));
        }
    }

    fn is_stopped(&self) -> bool {
        if self.request.progress.is_cancelled() {
            self.fail(CaptureError::Cancelled);
        }
        self.stopped.load(Relaxed)
    }

    fn fail(&self, error: CaptureError) {
        self.error.lock().get_or_insert(error);
        self.stopped.store(true, Relaxed);
    }

    /// The absolute path of something in a root.
    fn absolute(&self, root: usize, relative: &[u8]) -> Vec<u8> {
        let base = self.roots[root].path.as_os_str().as_bytes();
        if relative.is_empty() { base.to_vec() } else { byte_path::join(base, relative) }
    }

    fn leave_out(&self, root: usize, relative: &[u8], reason: NotCapturedReason) {
        let path = to_path(&self.absolute(root, relative)).to_owned();
        self.not_captured.lock().push(NotCaptured { path, reason });
    }

    fn unreadable(&self, root: usize, relative: &[u8], error: &sys::Error) {
        let error = error.to_string();
        self.leave_out(root, relative, NotCapturedReason::Unreadable { error });
    }

    /// Counts an entry against the budget. `false`: it does not fit. The first walk then ends; the
    /// second one, which knows what to deny, leaves out what has grown since.
    fn count_entry(&self, stat: &Stat) -> bool {
        let entries = self.counters.entries.fetch_add(1, Relaxed) + 1;
        let mut bytes = self.counters.bytes.load(Relaxed);
        if stat.kind == FileKind::File {
            self.counters.files.fetch_add(1, Relaxed);
            bytes = self.counters.bytes.fetch_add(stat.size, Relaxed) + stat.size;
        }
        if !self.request.budget.is_exceeded(entries, bytes) {
            return true;
        }
        match &self.denied {
            None => {
                self.over_budget.store(true, Relaxed);
                self.stopped.store(true, Relaxed);
            }
            Some(_) => self.uncount_entry(stat),
        }
        false
    }

    fn uncount_entry(&self, stat: &Stat) {
        self.counters.entries.fetch_sub(1, Relaxed);
        if stat.kind == FileKind::File {
            self.counters.files.fetch_sub(1, Relaxed);
            self.counters.bytes.fetch_sub(stat.size, Relaxed);
        }
    }

    fn is_denied(&self, root: usize, path: &[u8]) -> bool {
        self.denied.as_ref().is_some_and(|denied| denied.contains(&(root, path.into())))
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
                self.unreadable(node.root, &node.relative, &error);
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
            && is_virtual_file_system(dir.file_system_type()?)
        {
            self.leave_out(node.root, &node.relative, NotCapturedReason::OtherFileSystem);
            return Ok(());
        }
        let store = self.request.store;
        let is_known = |name: &[u8]| node.known.iter().any(|known| known.has(store, name));
        let listing = walk::list(
            &dir,
            &node.relative,
            node.mode,
            &root.filter,
            node.ignores.clone(),
            is_known,
        )?;
        for left in listing.left_out {
            let path = byte_path::join(&node.relative, &left.name);
            match left.why {
                WhyLeftOut::Excluded(rule) => {
                    self.leave_out(node.root, &path, NotCapturedReason::Excluded { rule });
                }
                WhyLeftOut::Unreadable(error) => self.unreadable(node.root, &path, &error),
            }
        }
        let cached = self.caches[node.root].directory(&node.relative);
        {
            let mut state = node.state.lock();
            state.cached_tree = cached.as_ref().map(|cached| cached.tree);
            state.xattrs = Xattrs::new(dir.xattrs_self()?);
        }
        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        for found in listing.entries {
            let path = byte_path::join(&node.relative, &found.name);
            if found.mode != Mode::OnlyForced
                && (self.is_denied(node.root, &path) || !self.count_entry(&found.stat))
            {
                self.leave_out(node.root, &path, NotCapturedReason::OverBudget);
                continue;
            }
            match found.stat.kind {
                FileKind::Directory => {
                    node.unfinished.fetch_add(1, SeqCst);
                    let mut child = PendingDir::new(node.root, path, found.stat, found.mode);
                    child.parent = Some(Arc::clone(node));
                    child.ignores = listing.ignores.clone();
                    child.known =
                        node.known.iter().map(|dir| KnownDir::child(dir, &found.name)).collect();
                    let child = Arc::new(child);
                    scope.spawn(move |scope| self.directory(scope, &child));
                }
                FileKind::File => {
                    let known = cached.as_ref().and_then(|cached| cached.file(&found.name));
                    if let Some(known) = known.filter(|known| known.key == StatKey::of(&found.stat))
                    {
                        self.unchanged_file(node, &path, found, known.clone());
                        continue;
                    }
                    batch_bytes += found.stat.size;
                    batch.push(found);
                    if batch.len() >= BATCH_FILES || batch_bytes >= BATCH_BYTES {
                        node.unfinished.fetch_add(1, SeqCst);
                        let node = Arc::clone(node);
                        let batch = std::mem::take(&mut batch);
                        batch_bytes = 0;
                        scope.spawn(move |_| self.batch(&node, batch));
                    }
                }
                _ => {
                    if let Some(entry) = self.other_entry(&dir, &found, node.root, &path) {
                        node.state.lock().entries.push(entry);
                    }
                }
            }
        }
        self.files(node, &dir, batch);
        Ok(())
    }

    /// A file that the cache knows: nothing is read.
    fn unchanged_file(&self, node: &PendingDir, path: &[u8], found: FoundEntry, known: CachedFile) {
        self.note_link(node.root, path, &found.stat);
        self.request.progress.advance(1, found.stat.size);
        let entry = TreeEntry {
            name: found.name.clone(),
            attributes: attributes(&found.stat, known.xattrs.clone()),
            node: Node::File { size: found.stat.size, hash: known.hash },
        };
        let mut state = node.state.lock();
        state.entries.push(entry);
        state.cached_files.push((found.name, known));
    }

    /// Some files of a directory, on any thread.
    fn batch(&self, node: &Arc<PendingDir>, batch: Vec<FoundEntry>) {
        let dir = match &self.roots[node.root].dir {
            Some(top) => top.open_beneath(&node.relative),
            None => return,
        };
        match dir {
            Ok(dir) => self.files(node, &dir, batch),
            // The whole directory went away meanwhile, and its files with it.
            Err(error) => {
                let is_gone = error.is_gone() || error.is_symlink_in_path();
                for found in batch {
                    self.uncount_entry(&found.stat);
                    if !is_gone {
                        let path = byte_path::join(&node.relative, &found.name);
                        self.unreadable(node.root, &path, &error);
                    }
                }
            }
        }
        self.finish_part(node);
    }

    fn files(&self, node: &PendingDir, dir: &Dir, batch: Vec<FoundEntry>) {
        let mut entries = Vec::with_capacity(batch.len());
        let mut cached = Vec::with_capacity(batch.len());
        for found in batch {
            if self.is_stopped() {
                return;
            }
            let path = byte_path::join(&node.relative, &found.name);
            if let Some((entry, file)) = self.read_file(dir, &found, node.root, &path) {
                cached.extend(file.map(|file| (entry.name.clone(), file)));
                entries.push(entry);
            }
        }
        let mut state = node.state.lock();
        state.entries.append(&mut entries);
        state.cached_files.append(&mut cached);
    }

    /// Reads a file into the store. `None`: it is not part of the snapshot, and that is recorded.
    fn read_file(
        &self,
        dir: &Dir,
        found: &FoundEntry,
        root: usize,
        path: &[u8],
    ) -> Option<(TreeEntry, Option<CachedFile>)> {
        let counted = found.stat.size;
        let read = match self.try_read_file(dir, found) {
            Ok(read) => read,
            Err(ReadError::Changed) => {
                self.uncount_entry(&found.stat);
                // It became something else while the directory was read: record what it is now.
                let stat = match dir.stat(&found.name) {
                    Ok(stat) => stat,
                    Err(error) => {
                        if !error.is_gone() {
                            self.unreadable(root, path, &error);
                        }
                        return None;
                    }
                };
                if matches!(stat.kind, FileKind::Directory | FileKind::File) {
                    let error = "it changed its kind while it was captured".to_owned();
                    self.leave_out(root, path, NotCapturedReason::Unreadable { error });
                    return None;
                }
                if !self.count_entry(&stat) {
                    self.leave_out(root, path, NotCapturedReason::OverBudget);
                    return None;
                }
                let found = FoundEntry { name: found.name.clone(), stat, mode: found.mode };
                return self.other_entry(dir, &found, root, path).map(|entry| (entry, None));
            }
            Err(ReadError::File(error)) => {
                self.uncount_entry(&found.stat);
                if !error.is_gone() {
                    self.unreadable(root, path, &error);
                }
                return None;
            }
            Err(ReadError::Store(error)) => {
                self.fail(error.into());
                return None;
            }
        };
        let ReadFile { stat, hash, size, xattrs, is_new, is_stable } = read;
        self.note_link(root, path, &stat);
        self.counters.files_read.fetch_add(1, Relaxed);
        self.counters.bytes.fetch_add(size.wrapping_sub(counted), Relaxed);
        if is_new {
            self.counters.objects_written.fetch_add(1, Relaxed);
            self.counters.bytes_written.fetch_add(size, Relaxed);
        }
        self.request.progress.advance(1, size);
        let cached = if is_stable {
            Some(CachedFile { key: StatKey::of(&stat), hash, xattrs: xattrs.clone() })
        } else {
            let path = to_path(&self.absolute(root, path)).to_owned();
            self.unstable.lock().push(path);
            None
        };
        let entry = TreeEntry {
            name: found.name.clone(),
            attributes: attributes(&stat, xattrs),
            node: Node::File { size, hash },
        };
        Some((entry, cached))
    }

    fn try_read_file(&self, dir: &Dir, found: &FoundEntry) -> Result<ReadFile, ReadError> {
        thread_local! {
            static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let owns = self.is_root_user || found.stat.uid == sys::effective_uid();
        let file = match dir.open_file(&found.name, owns) {
            Err(error) if error.is_symlink_in_path() => return Err(ReadError::Changed),
            other => other?,
        };
        let mut before = dir.stat_file(&file, &found.name)?;
        if before.kind != FileKind::File {
            return Err(ReadError::Changed);
        }
        let mut attempt = 1;
        loop {
            let imported = SCRATCH.with_borrow_mut(|scratch| {
                self.request.store.import(&file, before.size, before.is_sparse(), scratch)
            });
            let imported = imported.map_err(|error| match error {
                ImportError::Source(source) => {
                    let path = dir.path_of(&found.name);
                    ReadError::File(sys::Error { operation: "read", path, source })
                }
                ImportError::Store(error) => ReadError::Store(error),
            })?;
            let xattrs = Xattrs::new(dir.xattrs_file(&file, &found.name)?);
            let after = dir.stat_file(&file, &found.name)?;
            let is_stable = after.same_state(&before) && imported.size == before.size;
            if is_stable || attempt == READ_ATTEMPTS {
                let (hash, size, is_new) = (imported.hash, imported.size, imported.is_new);
                return Ok(ReadFile { stat: after, hash, size, xattrs, is_new, is_stable });
            }
            attempt += 1;
            before = after;
        }
    }

    /// A symlink, a named pipe, a socket or a device.
    fn other_entry(
        &self,
        dir: &Dir,
        found: &FoundEntry,
        root: usize,
        path: &[u8],
    ) -> Option<TreeEntry> {
        let stat = &found.stat;
        let read = || -> sys::Result<(Node, Xattrs)> {
            let node = match stat.kind {
                FileKind::Symlink => {
                    Node::Symlink { target: dir.read_link(&found.name)?.into_boxed_slice() }
                }
                FileKind::Fifo => Node::Fifo,
                FileKind::Socket => Node::Socket,
                FileKind::BlockDevice => Node::BlockDevice(stat.device),
                _ => Node::CharDevice(stat.device),
            };
            Ok((node, Xattrs::new(dir.xattrs(&found.name)?)))
        };
        match read() {
            Ok((node, xattrs)) => {
                if matches!(node, Node::Socket | Node::CharDevice(_) | Node::BlockDevice(_)) {
                    self.leave_out(root, path, NotCapturedReason::Special);
                }
                self.note_link(root, path, stat);
                self.request.progress.advance(1, 0);
                Some(TreeEntry {
                    name: found.name.clone(),
                    attributes: attributes(stat, xattrs),
                    node,
                })
            }
            Err(error) => {
                self.counters.entries.fetch_sub(1, Relaxed);
                if !error.is_gone() {
                    self.unreadable(root, path, &error);
                }
                None
            }
        }
    }

    fn note_link(&self, root: usize, path: &[u8], stat: &Stat) {
        if stat.nlink > 1 {
            let path = self.absolute(root, path).into_boxed_slice();
            self.links.lock().entry((stat.dev, stat.ino)).or_default().push(path);
        }
    }

    /// One part of a directory is finished; the last one completes it, and maybe its parents.
    fn finish_part(&self, node: &Arc<PendingDir>) {
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
        let mut state = std::mem::take(&mut *node.state.lock());
        let is_needed = node.mode != Mode::OnlyForced || !state.entries.is_empty();
        if state.is_gone || !is_needed {
            if node.mode != Mode::OnlyForced {
                self.counters.entries.fetch_sub(1, Relaxed);
            }
            return Ok(());
        }
        if node.mode == Mode::OnlyForced {
            self.counters.entries.fetch_add(1, Relaxed);
        }
        let bytes = Tree::new(state.entries).encode();
        let tree = ContentHash::of(&bytes);
        // The cache is of this generation of the store: nothing was removed since it was written.
        if state.cached_tree != Some(tree) {
            let stored = self.request.store.write(&bytes)?;
            if stored.is_new {
                self.counters.objects_written.fetch_add(1, Relaxed);
                self.counters.bytes_written.fetch_add(bytes.len() as u64, Relaxed);
            }
        }
        if let Some(writer) = self.writers.get(node.root) {
            state.cached_files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            let directory = CachedDirectory { tree, files: state.cached_files };
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
                parent.state.lock().entries.push(node);
            }
            None => {
                let entry = Some((attributes, Node::Directory { tree }));
                self.finished_roots.lock()[node.root] = entry;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Outcome, CaptureError> {
        if let Some(error) = self.error.into_inner() {
            return Err(error);
        }
        if self.over_budget.into_inner() {
            return Ok(Outcome::OverBudget);
        }
        let mut counters = self.counters;
        let mut write = |bytes: &[u8]| -> Result<ContentHash, StoreError> {
            let stored = self.request.store.write(bytes)?;
            if stored.is_new {
                *counters.objects_written.get_mut() += 1;
                *counters.bytes_written.get_mut() += bytes.len() as u64;
            }
            Ok(stored.hash)
        };
        let links = LinkGroups::new(self.links.into_inner().into_values().collect());
        let links = if links.is_empty() { None } else { Some(write(&links.encode())?) };
        let entries = self
            .finished_roots
            .into_inner()
            .into_iter()
            .zip(&self.roots)
            .filter_map(|(finished, root)| {
                let (attributes, node) = finished?;
                let path = root.path.as_os_str().as_bytes().into();
                Some(RootEntry { path, attributes, node })
            })
            .collect();
        let merkle_root = write(&RootTree { entries, links }.encode())?;
        let mut not_captured = self.not_captured.into_inner();
        not_captured.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
        let mut unstable = self.unstable.into_inner();
        unstable.sort();
        Ok(Outcome::Complete(Capture {
            started: self.start,
            timestamp: self.timestamp,
            merkle_root,
            totals: Totals {
                file_count: counters.files.into_inner(),
                entry_count: counters.entries.into_inner(),
                total_bytes: counters.bytes.into_inner(),
                files_read: counters.files_read.into_inner(),
                objects_written: counters.objects_written.into_inner(),
                bytes_written: counters.bytes_written.into_inner(),
            },
            not_captured,
            unstable,
            caches: self.writers.into_iter().map(Mutex::into_inner).collect(),
        }))
    }
}

struct ReadFile {
    stat: Stat,
    hash: ContentHash,
    size: u64,
    xattrs: Xattrs,
    is_new: bool,
    is_stable: bool,
}

enum ReadError {
    /// It is no longer a regular file.
    Changed,
    File(sys::Error),
    Store(StoreError),
}

impl From<sys::Error> for ReadError {
    fn from(error: sys::Error) -> Self {
        Self::File(error)
    }
}

fn attributes(stat: &Stat, xattrs: Xattrs) -> Attributes {
    Attributes { mode: stat.mode, uid: stat.uid, gid: stat.gid, mtime: stat.mtime, xattrs }
}

/// File systems that show something else than stored files, nono's own mounts among them. Numbers
/// are from `statfs(2)`.
fn is_virtual_file_system(magic: u64) -> bool {
    const FUSE: u64 = 0x6573_5546;
    const PROC: u64 = 0x9fa0;
    const SYSFS: u64 = 0x6265_6572;
    const DEVPTS: u64 = 0x1cd1;
    const CGROUP: u64 = 0x0027_e0eb;
    const CGROUP2: u64 = 0x6367_7270;
    const DEBUGFS: u64 = 0x6462_6720;
    const TRACEFS: u64 = 0x7472_6163;
    const SECURITYFS: u64 = 0x7363_6673;
    const AUTOFS: u64 = 0x0187;
    [FUSE, PROC, SYSFS, DEVPTS, CGROUP, CGROUP2, DEBUGFS, TRACEFS, SECURITYFS, AUTOFS]
        .contains(&magic)
}
