//! Pushing files to the kernel before it asks for them.
//!
//! Who reads one file of a directory mostly reads the next ones. A push costs one message where a
//! READ costs two and a wait. What always holds:
//! - Only files the kernel has named are pushed; they are pinned meanwhile, so an id cannot come to
//!   mean another file between the look-up and the push.
//! - The source verifies before it hands bytes out; what does not verify is not pushed, and the READ
//!   that follows reports the error.
//! - A thread of its own pushes, because the kernel holds a page until a READ on it is answered.
//! - Long files are pushed only for a process that walks a tree and has read such files: to open one can be to hash it.
//!   A READ that comes meanwhile is queued, and answered by this thread. They are pushed [by the piece](long_file),
//!   and go on a little ahead of a reader that comes to them.
//! - Nobody waits for a push. The queue is short and drops what does not fit.
//!
//! For a walker, a push begins with the answer that ends the list of a directory, or with each part of a long one: the first file is
//! opened while the kernel makes inodes of the entries. While there is nothing to push, what it will come to
//! is read [`ahead`]. Contents that come before that answer are lost,
//! so a push that the kernel refuses is tried again for a moment. Files are pushed in the order in which
//! they will probably be read ([`Order`](crate::nodes::Order)); a reader that shows another one has the rest in that.
//!
//! A reader can be as fast as the thread that pushes. So that the two share the work instead of
//! meeting at each file, the thread learns where the reader is and goes on a little
//! [ahead](Upcoming::next) of it; what it skips the reader asks for itself.

mod ahead;
mod in_order;
mod long_file;
mod queue;
mod upcoming;
mod walkers;

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use self::ahead::Ahead;
use self::long_file::LongFile;
use self::queue::{Job, Next};
pub(crate) use self::queue::{Jobs, Origin, PushQueue};
use self::upcoming::Upcoming;
pub(crate) use self::walkers::{Walker, Walkers};
use crate::contained::Opened;
use crate::contents::INLINE_OPEN_BYTES;
use crate::lists::List;
use crate::nodes::Push;
use crate::source::{Kind, StateId, TreeSource};
use crate::tree::Tree;
use crate::wire::Connection;

/// Bytes of long files that are pushed before somebody reads them.
const MOST_LONG_BYTES: u64 = 64 * 1024 * 1024;
/// Parts of one list may have so many times the bytes of one push: a long list is handed out for long.
const PARTS: u64 = 2;

/// The thread that pushes, until the queue is closed. `open` opens a long file, and keeps it open.
pub(crate) fn spawn<S: TreeSource>(
    tree: &Arc<Tree<S>>,
    jobs: Jobs,
    connection: Arc<Connection>,
    open: impl Fn(&S::Content, u64) -> Option<Opened> + Send + 'static,
) -> std::io::Result<()> {
    let tree = tree.clone();
    let run = move || {
        let connection = &*connection;
        let ahead = Ahead::new();
        let parts = Parts::default();
        Pusher {
            tree: &tree,
            connection,
            open: &open,
            jobs: &jobs,
            buffer: Vec::new(),
            ahead,
            parts,
        }
        .run();
    };
    std::thread::Builder::new().name("nono-push".to_owned()).spawn(run)?;
    Ok(())
}

/// Opens a long file: its contents, and their length.
type Open<S> = dyn Fn(&<S as TreeSource>::Content, u64) -> Option<Opened>;

struct Pusher<'a, S: TreeSource> {
    tree: &'a Tree<S>,
    connection: &'a Connection,
    open: &'a Open<S>,
    jobs: &'a Jobs,
    buffer: Vec<u8>,
    ahead: Ahead<S>,
    parts: Parts,
}

/// Bytes of files that may still be pushed.
#[derive(Clone, Copy, Default)]
struct Left {
    short: u64,
    long: u64,
}

/// Pushes of parts of one list.
#[derive(Default)]
struct Parts {
    directory: u64,
    /// For all of them together.
    left: Left,
}

impl<S: TreeSource> Pusher<'_, S> {
    fn run(&mut self) {
        let jobs = self.jobs;
        loop {
            let mut next = jobs.next();
            if let Next::Nothing = next {
                if self.ahead.step(self.tree) {
                    continue;
                }
                let kept = self.tree.options.read_ahead_kept;
                next = jobs.wait(if self.ahead.is_empty() { Duration::MAX } else { kept });
            }
            match next {
                Next::Job(job) => {
                    self.push(&job);
                    jobs.finish(&job);
                }
                Next::Nothing => self.ahead.clear(),
                Next::Closed => break,
            }
        }
    }

    fn push(&mut self, job: &Job) {
        let Push { directory, stretch, .. } = job.push;
        let list = self.tree.siblings(directory);
        let is_listed = matches!(job.origin, Origin::PartOfList | Origin::List);
        if let Some(list) = list.as_ref().filter(|_| is_listed) {
            self.ahead.came_to(self.tree, directory, list, job.walker.order);
        }
        if job.origin == Origin::PartOfList {
            if let Some(list) = list.filter(|_| self.ahead.is_sure()) {
                self.push_part(job, &list);
            }
            return;
        }
        let short = self.tree.options.push_batch_bytes;
        let long = if job.walker.reads_long_files { MOST_LONG_BYTES } else { 0 };
        let end = match &list {
            Some(list) => self.push_files(job, list, &mut Left { short, long }),
            None => Some(stretch.start),
        };
        if job.origin.is_of_window() {
            self.tree.nodes.lock().push_ended(&job.push, end);
        }
    }

    fn push_part(&mut self, job: &Job, list: &Arc<List<S>>) {
        let Push { directory, stretch, .. } = job.push;
        if self.parts.directory != directory || stretch.start == 0 {
            let short = PARTS * self.tree.options.push_batch_bytes;
            self.parts = Parts { directory, left: Left { short, long: 0 } };
        }
        let mut left = self.parts.left;
        self.push_files(job, list, &mut left);
        self.parts.left = left;
    }

    /// Returns the position before which the push ended; `None` when it went as far as it could.
    fn push_files(&mut self, job: &Job, list: &Arc<List<S>>, left: &mut Left) -> Option<u64> {
        let Push { stretch, again, .. } = job.push;
        let mut upcoming = Upcoming::new(list.clone(), stretch);
        let most_short = self.tree.options.push_file_bytes.min(INLINE_OPEN_BYTES);
        let mut is_begun = false;
        // The first long file for which nothing was left. Who reads it begins another push.
        let mut left_out = None;
        loop {
            let Some(reached) = job.reached() else { return Some(upcoming.position()) };
            let Some(next) = upcoming.next(reached) else { break };
            let node = &list.entries[next.index].node;
            let (Kind::File { size, content }, Some(state)) = (&node.kind, node.state) else {
                continue;
            };
            let (size, position) = (*size, next.position);
            let long = LongFile { job, position, size };
            let reader = long.reader();
            let is_long = size > INLINE_OPEN_BYTES && job.walker.reads_long_files;
            if size == 0 || !is_long && (next.is_near || size > most_short) {
                continue;
            }
            if is_long && size > left.long && reader.is_none() {
                // A longer one is never pushed before somebody reads it.
                left_out = left_out.or((size <= MOST_LONG_BYTES).then_some(position));
                continue;
            }
            // What is still read, the kernel does not have yet.
            let again = again || is_long && reader.is_some_and(|wanted| !wanted.is_empty());
            let Some(id) = self.tree.nodes.lock().pin(state, again) else { continue };
            let pushed = if is_long {
                let (pushed, bytes) = self.push_long(&long, id, content);
                left.long = left.long.saturating_sub(bytes);
                pushed
            } else if let Some(rest) = left.short.checked_sub(size) {
                left.short = rest;
                self.push_short(job, id, state, content, size)
            } else {
                self.tree.nodes.lock().unpin(id, false);
                return left_out.or(Some(position));
            };
            if pushed == Pushed::Yes {
                self.tree.counters.pushed_files.one();
            }
            let is_loaded = matches!(pushed, Pushed::Yes | Pushed::Beginning);
            self.tree.nodes.lock().unpin(id, is_loaded);
            match pushed {
                Pushed::Yes | Pushed::Beginning | Pushed::Rest => is_begun = true,
                // The answer with the names is late, so all of this is for later.
                Pushed::Unnamed if !is_begun => return Some(stretch.start),
                Pushed::Unnamed | Pushed::No => {}
            }
        }
        left_out.or(upcoming.cut_at())
    }

    /// Also returns how many bytes the kernel got.
    fn push_long(&self, long: &LongFile<'_>, id: u64, content: &S::Content) -> (Pushed, u64) {
        let Some(file) = (self.open)(content, long.size) else { return (Pushed::No, 0) };
        let others_wait = || self.jobs.others_wait(long.job);
        long.push(&file, others_wait, |offset, bytes| self.store(long.job, id, offset, bytes))
    }

    fn push_short(
        &mut self,
        job: &Job,
        id: u64,
        state: StateId,
        content: &S::Content,
        size: u64,
    ) -> Pushed {
        if let Some(bytes) = self.ahead.contents(state) {
            return self.store(job, id, 0, bytes);
        }
        self.tree.counters.opened.one();
        // The reader that comes for this file will report the error, once.
        match self.tree.source.read_whole(content, size, &mut self.buffer) {
            Ok(()) => self.store(job, id, 0, &self.buffer),
            Err(_) => Pushed::No,
        }
    }

    fn store(&self, job: &Job, id: u64, offset: u64, bytes: &[u8]) -> Pushed {
        loop {
            match self.connection.store(id, offset, bytes) {
                Ok(()) => break,
                Err(Errno::NOENT)
                    if job.age() < self.tree.options.push_patience && job.reached().is_some() =>
                {
                    std::thread::yield_now();
                }
                Err(Errno::NOENT) => return Pushed::Unnamed,
                Err(_) => return Pushed::No,
            }
        }
        self.tree.counters.pushed_bytes.add(bytes.len() as u64);
        Pushed::Yes
    }
}

/// What became of the contents of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pushed {
    Yes,
    /// The beginning of a long file. Somebody reads it, or the rest cannot be had or is not wanted.
    Beginning,
    /// Some of a long file, behind what its reader asks for.
    Rest,
    /// They cannot be had, the kernel does not want them, or somebody reads them.
    No,
    /// The kernel did not get the name of the file in time, or has forgotten it.
    Unnamed,
}
