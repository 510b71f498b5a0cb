//! Pushing files to the kernel before it asks for them, and opening those that are too long for that.
//!
//! Who reads one file of a directory mostly reads the next ones. A push costs one message where a
//! READ costs two and a wait. What always holds:
//! - Only files the kernel has named are pushed; they are pinned meanwhile, so an id cannot come to
//!   mean another file between the look-up and the push.
//! - The source verifies before it hands bytes out; what does not verify is not pushed, and the READ
//!   that follows reports the error.
//! - A thread of its own pushes, because the kernel holds a page until a READ on it is answered.
//! - Only for a process that walks a tree and has read such files, and up to [`MOST_OPENED_BYTES`] each time, files are opened, which is to
//!   hash them. A READ that comes meanwhile is queued, and answered by this thread.
//! - Nobody waits for a push. The queue is short and drops what does not fit.
//!
//! A reader can be as fast as the thread that pushes. So that the two share the work instead of
//! meeting at each file, the thread learns where the reader is and goes on a little
//! [ahead](LEAD) of it; what it skips the reader asks for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;

use crate::nodes::{Place, Push};
use crate::source::{Kind, TreeSource};
use crate::tree::Tree;

/// Jobs that may wait.
const QUEUE_LENGTH: usize = 32;
/// Files between a reader and what is pushed next.
const LEAD: u32 = 3;
/// Bytes of large files that are opened for one push. That is to read and hash them all.
const MOST_OPENED_BYTES: u64 = 64 * 1024 * 1024;
/// How long the thread looks for the next job before it sleeps: being woken takes as long.
const LINGER: Duration = Duration::from_micros(50);

/// Files to push or to open.
struct Job {
    push: Push,
    /// Whether long ones are opened.
    opens: bool,
    /// Position after the last file of the directory that somebody asked for.
    reached: AtomicU32,
}

/// Where requests leave jobs. Closed when the session ends.
pub(crate) struct PushQueue {
    sender: Mutex<Option<SyncSender<Arc<Job>>>>,
    active: Active,
}

/// The other end of the queue.
pub(crate) struct Jobs {
    receiver: Receiver<Arc<Job>>,
    active: Active,
}

/// Jobs that wait or run.
type Active = Arc<Mutex<Vec<Arc<Job>>>>;

impl PushQueue {
    pub(crate) fn new() -> (Self, Jobs) {
        let (sender, receiver) = sync_channel(QUEUE_LENGTH);
        let active = Active::default();
        let jobs = Jobs { receiver, active: active.clone() };
        (Self { sender: Mutex::new(Some(sender)), active }, jobs)
    }

    /// Has files pushed; with `opens`, those that are too long for that are opened.
    pub(crate) fn push(&self, push: Push, opens: bool) {
        let job = Arc::new(Job { push, opens, reached: AtomicU32::new(0) });
        self.active.lock().push(job.clone());
        let sent = match &*self.sender.lock() {
            Some(sender) => sender.try_send(job.clone()).is_ok(),
            None => false,
        };
        if !sent {
            remove(&self.active, &job);
        }
    }

    /// Somebody asked for the file at `place`.
    pub(crate) fn reached(&self, place: Place) {
        for job in &*self.active.lock() {
            if job.push.directory == place.parent {
                job.reached.fetch_max(place.index.saturating_add(1), Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn close(&self) {
        self.sender.lock().take();
        for job in &*self.active.lock() {
            job.reached.store(u32::MAX, Ordering::Relaxed);
        }
    }
}

impl Jobs {
    fn next(&self) -> Option<Arc<Job>> {
        let begun = Instant::now();
        while begun.elapsed() < LINGER {
            match self.receiver.try_recv() {
                Ok(job) => return Some(job),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => std::hint::spin_loop(),
            }
        }
        self.receiver.recv().ok()
    }
}

fn remove(active: &Active, job: &Arc<Job>) {
    active.lock().retain(|other| !Arc::ptr_eq(other, job));
}

/// Processes that read their way through directories: `grep -r`, `tar`, `cp -a`.
#[derive(Default)]
pub(crate) struct Walkers {
    seen: [Seen; Self::REMEMBERED],
    next: usize,
}

#[derive(Default)]
struct Seen {
    process: u32,
    directories: u32,
    /// Not all who walk read everything: `grep --include`.
    reads_long_files: bool,
}

impl Walkers {
    const REMEMBERED: usize = 16;
    /// Directories (or large parts of one) that make a reader a walker.
    const DIRECTORIES: u32 = 3;

    pub(crate) fn is_walker(&self, process: u32) -> bool {
        self.find(process).is_some_and(|seen| seen.directories >= Self::DIRECTORIES)
    }

    pub(crate) fn reads_long_files(&self, process: u32) -> bool {
        self.is_walker(process) && self.find(process).is_some_and(|seen| seen.reads_long_files)
    }

    fn find(&self, process: u32) -> Option<&Seen> {
        self.seen.iter().find(|seen| seen.process == process)
    }

    /// This process has begun to read a file that is too long to be pushed.
    pub(crate) fn note_long_file(&mut self, process: u32) {
        if let Some(seen) = self.seen.iter_mut().find(|seen| seen.process == process) {
            seen.reads_long_files = true;
        }
    }

    /// A read of this process started a push.
    pub(crate) fn note(&mut self, process: u32) {
        // Readers in another process namespace are all called 0.
        if process == 0 {
            return;
        }
        if let Some(seen) = self.seen.iter_mut().find(|seen| seen.process == process) {
            seen.directories = seen.directories.saturating_add(1);
        } else {
            self.seen[self.next] = Seen { process, directories: 1, reads_long_files: false };
            self.next = (self.next + 1) % Self::REMEMBERED;
        }
    }
}

/// The thread that pushes, until the queue is closed. `open` opens a file that is too large to be pushed,
/// and keeps it open.
pub(crate) fn spawn<S: TreeSource>(
    tree: &Arc<Tree<S>>,
    jobs: Jobs,
    notifier: &Notifier,
    open: impl Fn(u64, &S::Content, u64) + Send + 'static,
) -> std::io::Result<()> {
    let (tree, notifier) = (tree.clone(), notifier.clone());
    let run = move || {
        let buffer = Vec::new();
        let mut pusher = Pusher { tree: &tree, notifier: &notifier, open: &open, buffer };
        while let Some(job) = jobs.next() {
            pusher.push(&job);
            remove(&jobs.active, &job);
        }
    };
    std::thread::Builder::new().name("nono-push".to_owned()).spawn(run)?;
    Ok(())
}

struct Pusher<'a, S: TreeSource> {
    tree: &'a Tree<S>,
    notifier: &'a Notifier,
    open: &'a dyn Fn(u64, &S::Content, u64),
    buffer: Vec<u8>,
}

impl<S: TreeSource> Pusher<'_, S> {
    fn push(&mut self, job: &Job) {
        let Push { directory, ref indices, again } = job.push;
        let Some(list) = self.tree.siblings(directory) else { return };
        let mut push_bytes = self.tree.options.push_batch_bytes;
        let mut open_bytes = MOST_OPENED_BYTES;
        let mut index = indices.start;
        while index < indices.end {
            match job.reached.load(Ordering::Relaxed) {
                // Nobody asked for a file here since the job was made.
                0 => {}
                reached => index = index.max(reached.saturating_add(LEAD)),
            }
            let Some(entry) = list.entries.get(index as usize) else { return };
            index += 1;
            let Kind::File { size, ref content } = entry.node.kind else { continue };
            let is_pushed = size <= self.tree.options.push_file_bytes;
            let left = match size {
                0 => continue,
                _ if is_pushed => &mut push_bytes,
                ..=MOST_OPENED_BYTES if job.opens => &mut open_bytes,
                _ => continue,
            };
            *left = match left.checked_sub(size) {
                Some(left) => left,
                None => break,
            };
            let Some(state) = entry.node.state else { continue };
            let Some(id) = self.tree.nodes.lock().pin(state, again) else { continue };
            let loaded = is_pushed && self.push_file(id, content, size).is_some();
            if !is_pushed {
                (self.open)(id, content, size);
            }
            self.tree.nodes.lock().unpin(id, loaded);
        }
        self.tree.nodes.lock().pushed_until(directory, index);
    }

    fn push_file(&mut self, id: u64, content: &S::Content, size: u64) -> Option<()> {
        self.tree.counters.opened.one();
        // The reader that comes for this file will report the error, once.
        let file = self.tree.source.open(content, size).ok()?;
        let size_in_memory = usize::try_from(size).ok()?;
        if let Some(bytes) = file.in_memory() {
            return self.store(id, bytes.get(..size_in_memory)?);
        }
        if self.buffer.len() < size_in_memory {
            self.buffer.resize(size_in_memory, 0);
        }
        let bytes = &mut self.buffer[..size_in_memory];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], filled as u64).ok()? {
                0 => return None,
                count => filled += count,
            }
        }
        self.store(id, &self.buffer[..size_in_memory])
    }

    fn store(&self, id: u64, bytes: &[u8]) -> Option<()> {
        self.notifier.store(INodeNo(id), 0, bytes).ok()?;
        self.tree.counters.pushed_files.one();
        self.tree.counters.pushed_bytes.add(bytes.len() as u64);
        Some(())
    }
}
