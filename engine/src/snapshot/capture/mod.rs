//! From tracked paths to a root tree: a parallel walk that reads each new file once.
//!
//! Every directory is a node that waits for its files and subdirectories; the last one to finish
//! writes the directory's tree and hands its hash to the parent. So trees are made from the leaves
//! up without recursion, and a directory 10,000 levels down costs no stack. Directories are opened
//! from the tracked path's descriptor by their relative path, beneath it and through no symlink, so
//! the number of open files does not grow with the depth either.

mod database;
mod directory;
mod file;
mod left_out;
mod tally;

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use jiff::Timestamp;
use parking_lot::Mutex;

use self::tally::Tally;

use super::budget::{Budget, OverBudget, survey};
use super::ignore_rules::{self, FoundFiles, RootRules};
use super::known::{KnownDir, KnownState};
use super::roots::OpenRoot;
use crate::byte_path;
use crate::manifest::{
    LeftOutState, LeftOutTally, NotCaptured, NotCapturedReason, Totals, TrackedRoot,
};
use crate::object::{Attributes, ContentHash, LinkGroups, Node, RootEntry, RootTree, Xattrs};
use crate::path_text::{Shown, to_path};
use crate::progress::{Amount, Progress, Stage};
use crate::stat_cache::{StatCache, StatCacheWriter, StoreState};
use crate::store::{Account, LocalStore, ObjectStore, StoreError, read_root_tree};
use crate::sys::{self, Dir, EarlyFlush, FileTime, Moment, Stat};
use crate::walk::InvalidPattern;

/// The subject of a capture, and its means.
pub struct CaptureRequest<'a> {
    pub(crate) store: &'a dyn ObjectStore,
    /// The store to flush while it is written; none for a plan.
    pub(crate) flushed: Option<&'a LocalStore>,
    pub(crate) roots: &'a [TrackedRoot],
    /// Directories of nono's own, which are left out.
    pub(crate) own: &'a [InodeId],
    pub(crate) budget: Budget,
    /// Whether a budget overrun is an error (a baseline) or leaves out what does not fit.
    pub(crate) is_baseline: bool,
    /// Which ignore files count in each of the roots.
    pub(crate) rules: Vec<RootRules>,
    /// Snapshots whose paths stay in even if they are git-ignored by now.
    pub(crate) known: Vec<KnownState<'a>>,
    pub(crate) cache: Option<CacheLocation<'a>>,
    pub(crate) progress: &'a dyn Progress,
    /// About how much there is to capture, where an earlier snapshot tells.
    pub(crate) expected: Option<Amount>,
    /// A path that changed at this moment or later is kept in no stat cache; `None`: the start of
    /// the capture.
    pub(crate) racy_from: Option<FileTime>,
    /// Worker threads; 0 for one per core.
    pub(crate) threads: usize,
}

/// Where the stat caches are and what of the store they may vouch for.
pub struct CacheLocation<'a> {
    pub(crate) index: &'a Dir,
    pub(crate) store: StoreState<'a>,
    /// A new cache is written, and this is an account of what is added meanwhile; none for a plan.
    pub(crate) account: Option<Account>,
}

/// The result of a capture. Everything is in the store, but not yet durable.
#[derive(Debug)]
pub struct Capture {
    /// The kernel's coarse time before the walk began: a file with an older ctime is as captured.
    pub started: FileTime,
    /// The same moment as a person reads it.
    pub timestamp: Timestamp,
    /// The hash of the root tree.
    pub merkle_root: ContentHash,
    /// Root tree of the ignore files that were recorded.
    pub ignore_files: Option<ContentHash>,
    /// Numbers and bytes of everything captured.
    pub totals: Totals,
    /// Left-out paths, with the reasons.
    pub not_captured: Vec<NotCaptured>,
    /// Files that kept changing while they were read.
    pub unstable: Vec<PathBuf>,
    /// Stat caches, to be saved once the objects are durable.
    pub caches: NewCaches,
}

/// Caches to be committed once the objects are durable.
#[derive(Debug, Default)]
pub struct NewCaches {
    pub(crate) writers: Vec<StatCacheWriter>,
    /// The objects that were added since they were begun.
    pub(crate) account: Option<Account>,
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The tracked paths hold more than the budget allows.
    #[error("{0}")]
    OverBudget(Box<OverBudget>),
    /// A tracked path was there when the session began and is not when its first snapshot does. To
    /// restore such a state would delete what comes back.
    #[error("cannot track {}: it is gone, or a directory above it was replaced", Shown::path(path))]
    Gone {
        /// The tracked path.
        path: PathBuf,
    },
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(StoreError),
    /// A filter in a manifest is not valid.
    #[error(transparent)]
    Pattern(#[from] InvalidPattern),
    /// The caller asked to stop.
    #[error("stopped before the snapshot was complete; nothing was recorded")]
    Cancelled,
    /// The worker threads could not be started.
    #[error("cannot start worker threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

impl From<StoreError> for CaptureError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cancelled => Self::Cancelled,
            error => Self::Store(error),
        }
    }
}

impl From<sys::Error> for CaptureError {
    fn from(error: sys::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Captures all roots.
pub fn capture(request: &CaptureRequest<'_>) -> Result<Capture, CaptureError> {
    match request.flushed {
        Some(store) => store.flush_during(|flush| capture_in_budget(request, Some(flush)))?,
        None => capture_in_budget(request, None),
    }
}

fn capture_in_budget(
    request: &CaptureRequest<'_>,
    flush: Option<&EarlyFlush>,
) -> Result<Capture, CaptureError> {
    match capture_once(request, flush, None)? {
        Outcome::Complete(capture) => Ok(*capture),
        Outcome::OverBudget => {
            let (roots, known) = open_roots(request)?;
            let bounded = request.is_baseline;
            let survey =
                survey(&roots, &known, &request.rules, request.store, request.budget, bounded);
            if request.is_baseline {
                return Err(CaptureError::OverBudget(Box::new(survey.over)));
            }
            match capture_once(request, flush, Some(survey.denied))? {
                Outcome::Complete(capture) => Ok(*capture),
                // Not even the tracked path itself fits.
                Outcome::OverBudget => Err(CaptureError::OverBudget(Box::new(survey.over))),
            }
        }
    }
}

enum Outcome {
    Complete(Box<Capture>),
    OverBudget,
}

type OpenRoots = (Vec<OpenRoot>, Vec<Vec<Arc<KnownDir>>>);

/// Opens all roots, each with what earlier snapshots hold of it.
fn open_roots(request: &CaptureRequest<'_>) -> Result<OpenRoots, CaptureError> {
    let open = |root| OpenRoot::new(root, request.own);
    let roots = request.roots.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let earlier = request
        .known
        .iter()
        .filter_map(|known| {
            // Damage is `verify`'s to report; a snapshot must still be possible.
            let root = read_root_tree(request.store, &known.merkle_root);
            Some((known, root.inspect_err(|e| tracing::warn!("{e}")).ok()?))
        })
        .collect::<Vec<_>>();
    let known = roots
        .iter()
        .map(|root| {
            let path = root.path.as_os_str().as_bytes();
            earlier
                .iter()
                .filter_map(|(known, tree)| match tree.get(path)?.node {
                    Node::Directory { tree } => {
                        Some(KnownDir::of_tree(tree, known.left_out_of(&root.path)))
                    }
                    _ => None,
                })
                .collect()
        })
        .collect();
    Ok((roots, known))
}

fn capture_once(
    request: &CaptureRequest<'_>,
    flush: Option<&EarlyFlush>,
    denied: Option<HashSet<(usize, Box<[u8]>)>>,
) -> Result<Outcome, CaptureError> {
    // Before the first look at any file: the stat cache's racy rule depends on it.
    request.progress.begin(Stage::Capture, request.expected);
    let start = request.racy_from.unwrap_or_else(sys::coarse_now);
    let begun = Moment::now();
    let timestamp = Timestamp::now();
    let (roots, known) = open_roots(request)?;
    if request.is_baseline
        && let Some(gone) = roots.iter().find(|root| root.is_gone())
    {
        return Err(CaptureError::Gone { path: gone.path.clone() });
    }
    let root_count = roots.len();
    let mut caches = Vec::new();
    let mut writers = Vec::new();
    for root in &roots {
        if let Some(location) = &request.cache {
            let CacheLocation { index, store, account } = location;
            caches.push(StatCache::load(index, &root.path, store));
            if account.is_some() {
                let writer = StatCacheWriter::new(index, &root.path, store, start)?;
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
        begun,
        telling: Mutex::new(HashMap::new()),
        timestamp,
        is_root_user: sys::effective_uid() == 0,
        stopped: AtomicBool::new(false),
        open_dirs: AtomicUsize::new(0),
        over_budget: AtomicBool::new(false),
        error: Mutex::new(None),
        tally: Tally::new(request.budget),
        flush,
        not_captured: Mutex::new(Vec::new()),
        unstable: Mutex::new(Vec::new()),
        ignore_files: Mutex::new(Vec::new()),
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
    /// The entries that the budget leaves out, as (root, relative path), once that was found out.
    denied: Option<HashSet<(usize, Box<[u8]>)>>,
    start: FileTime,
    begun: Moment,
    /// Devices that were looked at, and whether their files tell of writes by their times.
    telling: Mutex<HashMap<u64, bool>>,
    timestamp: Timestamp,
    is_root_user: bool,
    stopped: AtomicBool,
    /// Directories that are open, for one thread or several.
    open_dirs: AtomicUsize,
    over_budget: AtomicBool,
    error: Mutex<Option<CaptureError>>,
    tally: Tally,
    flush: Option<&'a EarlyFlush>,
    not_captured: Mutex<Vec<LeftOutYet>>,
    unstable: Mutex<Vec<PathBuf>>,
    /// The ignore files that the session will go by.
    ignore_files: Mutex<FoundFiles>,
    /// Paths of files with more than one name.
    links: Mutex<HashMap<LinkedState, Vec<Box<[u8]>>>>,
    finished_roots: Mutex<Vec<Option<(Attributes, Node)>>>,
}

/// Something that is left out, while it may still be looked at.
struct LeftOutYet {
    path: PathBuf,
    reason: NotCapturedReason,
    state: StateYet,
}

/// How something is that is left out.
enum StateYet {
    Noted(Option<LeftOutState>),
    /// A directory whose entries are counted.
    Counted(Arc<LeftOutTally>),
}

/// An inode, and a hash of the state that is recorded of it.
type LinkedState = (InodeId, u64);

/// Device and inode number.
pub(crate) type InodeId = (u64, u64);

impl Capturer<'_> {
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

    /// Counts an object that the store did not have.
    fn object_written(&self, bytes: u64) {
        self.tally.object_written(bytes);
        if let Some(flush) = self.flush {
            flush.wrote(bytes);
        }
    }

    /// The absolute path of something in a root.
    fn absolute(&self, root: usize, relative: &[u8]) -> Vec<u8> {
        let base = self.roots[root].path.as_os_str().as_bytes();
        if relative.is_empty() { base.to_vec() } else { byte_path::join(base, relative) }
    }

    fn leave_out(&self, root: usize, relative: &[u8], reason: NotCapturedReason) {
        self.leave_out_as(root, relative, reason, StateYet::Noted(None));
    }

    fn leave_out_as(
        &self,
        root: usize,
        relative: &[u8],
        reason: NotCapturedReason,
        state: StateYet,
    ) {
        let path = to_path(&self.absolute(root, relative)).to_owned();
        self.not_captured.lock().push(LeftOutYet { path, reason, state });
    }

    /// Leaves out what could not be read, and notes what its inode says, if that is known.
    fn unreadable(&self, root: usize, relative: &[u8], stat: Option<&Stat>, error: &sys::Error) {
        let is_denied = error.kind() == ErrorKind::PermissionDenied;
        let error = error.to_string();
        let reason = NotCapturedReason::Unreadable { error, is_denied };
        self.leave_out_unreadable(root, relative, reason, stat);
    }

    fn leave_out_unreadable(
        &self,
        root: usize,
        relative: &[u8],
        reason: NotCapturedReason,
        stat: Option<&Stat>,
    ) {
        let state = StateYet::Noted(stat.map(LeftOutState::of_unreadable));
        self.leave_out_as(root, relative, reason, state);
    }

    /// Counts an entry against the budget. `false`: it does not fit. The first walk then ends; the
    /// second one, which knows what to deny, leaves out what has grown since.
    fn count_entry(&self, dir: &Dir, name: &[u8], stat: &Stat) -> bool {
        if self.tally.add(stat, dir.hole_bytes(name, stat)) {
            return true;
        }
        match &self.denied {
            None => {
                self.over_budget.store(true, Relaxed);
                self.stopped.store(true, Relaxed);
            }
            Some(_) => self.tally.remove(stat),
        }
        false
    }

    fn is_denied(&self, root: usize, path: &[u8]) -> bool {
        self.denied.as_ref().is_some_and(|denied| denied.contains(&(root, path.into())))
    }

    fn finish(self) -> Result<Outcome, CaptureError> {
        if let Some(error) = self.error.into_inner() {
            return Err(error);
        }
        if self.over_budget.load(Relaxed) {
            return Ok(Outcome::OverBudget);
        }
        // The last objects; the flush of the whole snapshot follows at once.
        let write = |bytes: &[u8]| -> Result<ContentHash, StoreError> {
            let stored = self.request.store.write(bytes)?;
            if stored.is_new {
                self.tally.object_written(bytes.len() as u64);
            }
            Ok(stored.hash)
        };
        let paths: Vec<_> =
            self.roots.iter().map(|root| root.path.as_os_str().as_bytes()).collect();
        let ignore_files = ignore_rules::root_tree(&paths, self.ignore_files.into_inner(), write)?;
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
        let known_by_now = |left: LeftOutYet| NotCaptured {
            path: left.path,
            reason: left.reason,
            state: match left.state {
                StateYet::Noted(state) => state,
                StateYet::Counted(tally) => Some(tally.state()),
            },
        };
        let mut not_captured: Vec<_> =
            self.not_captured.into_inner().into_iter().map(known_by_now).collect();
        not_captured.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
        let mut unstable = self.unstable.into_inner();
        unstable.sort();
        let mut writers: Vec<_> = self.writers.into_iter().map(Mutex::into_inner).collect();
        if self.begun.is_clock_put_back() {
            // A file that changes now may get a time that it has in these caches.
            tracing::info!("the clock was put back: the next snapshot reads all files");
            writers.clear();
        }
        Ok(Outcome::Complete(Box::new(Capture {
            started: self.start,
            timestamp: self.timestamp,
            merkle_root,
            ignore_files,
            totals: self.tally.totals(),
            not_captured,
            unstable,
            caches: NewCaches { writers, account: None },
        })))
    }
}

fn attributes(stat: &Stat, xattrs: Xattrs) -> Attributes {
    Attributes { mode: stat.mode, uid: stat.uid, gid: stat.gid, mtime: stat.mtime, xattrs }
}
