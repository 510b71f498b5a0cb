//! Pushing files to the kernel before it asks for them, and opening those that are too long for that.
//!
//! Who reads one file of a directory mostly reads the next ones. A push costs one message where a
//! READ costs two and a wait. What always holds:
//! - Only files the kernel has named are pushed; they are pinned meanwhile, so an id cannot come to
//!   mean another file between the look-up and the push.
//! - The source verifies before it hands bytes out; what does not verify is not pushed, and the READ
//!   that follows reports the error.
//! - A thread of its own pushes, because the kernel holds a page until a READ on it is answered.
//! - Only for a process that walks a tree and has read such files, and up to [`MOST_OPENED_BYTES`]
//!   each time, files are opened, which can be to hash them, or is begun with. A READ that comes meanwhile is queued, and
//!   answered by this thread.
//! - Nobody waits for a push. The queue is short and drops what does not fit.
//!
//! For a walker, a push begins with the answer that ends the list of a directory: the first file is
//! opened while the kernel makes inodes of the entries. Contents that come before that answer are lost,
//! so a push that the kernel refuses is tried again for a moment. Files are pushed in the order in which
//! they will probably be read ([`Order`]); a reader that shows another one has the rest in that.
//!
//! A reader can be as fast as the thread that pushes. So that the two share the work instead of
//! meeting at each file, the thread learns where the reader is and goes on a little
//! [ahead](LEAD) of it; what it skips the reader asks for itself.

mod queue;
mod walkers;

use std::sync::Arc;

use rustix::io::Errno;

use self::queue::Job;
pub(crate) use self::queue::{Jobs, PushQueue};
pub(crate) use self::walkers::Walkers;
use crate::nodes::{Order, Push, Stretch, probable_number};
use crate::source::{Entry, Kind, TreeSource};
use crate::tree::Tree;
use crate::wire::Connection;

/// Files between a reader and what is pushed next.
const LEAD: usize = 3;
/// Bytes of large files that are opened for one push. That can be to read and hash them all.
const MOST_OPENED_BYTES: u64 = 64 * 1024 * 1024;

/// The thread that pushes, until the queue is closed. `open` opens a file that is too large to be pushed,
/// and keeps it open.
pub(crate) fn spawn<S: TreeSource>(
    tree: &Arc<Tree<S>>,
    jobs: Jobs,
    connection: Arc<Connection>,
    open: impl Fn(u64, &S::Content, u64) + Send + 'static,
) -> std::io::Result<()> {
    let tree = tree.clone();
    let run = move || {
        let buffer = Vec::new();
        let connection = &*connection;
        let mut pusher = Pusher { tree: &tree, connection, open: &open, buffer };
        while let Some(job) = jobs.next() {
            pusher.push(&job);
            jobs.finish(&job);
        }
    };
    std::thread::Builder::new().name("nono-push".to_owned()).spawn(run)?;
    Ok(())
}

struct Pusher<'a, S: TreeSource> {
    tree: &'a Tree<S>,
    connection: &'a Connection,
    open: &'a dyn Fn(u64, &S::Content, u64),
    buffer: Vec<u8>,
}

impl<S: TreeSource> Pusher<'_, S> {
    fn push(&mut self, job: &Job) {
        let end = self.push_files(job);
        self.tree.nodes.lock().push_ended(&job.push, end);
    }

    /// Returns the position before which the push ended; `None` when it went as far as it could.
    fn push_files(&mut self, job: &Job) -> Option<u64> {
        let Push { directory, stretch, again } = job.push;
        let Some(list) = self.tree.siblings(directory) else { return Some(stretch.start) };
        let entries = entries_of(&list.entries, stretch);
        let mut push_bytes = self.tree.options.push_batch_bytes;
        let mut open_bytes = MOST_OPENED_BYTES;
        let mut is_begun = false;
        let mut next = 0;
        while let Some((position, _)) = entries.get(next) {
            let Some(reached) = job.reached() else { return Some(*position) };
            next = next.max(ahead_of(&entries, reached));
            let Some((position, entry)) = entries.get(next) else { break };
            next += 1;
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
                None => return Some(*position),
            };
            let Some(state) = entry.node.state else { continue };
            let Some(id) = self.tree.nodes.lock().pin(state, again) else { continue };
            let pushed = if is_pushed {
                self.push_file(job, id, content, size)
            } else {
                (self.open)(id, content, size);
                Pushed::No
            };
            self.tree.nodes.lock().unpin(id, pushed == Pushed::Yes);
            match pushed {
                Pushed::Yes => is_begun = true,
                // The answer with the names is late, so all of this is for later.
                Pushed::Unnamed if !is_begun => return Some(stretch.start),
                Pushed::Unnamed | Pushed::No => {}
            }
        }
        let is_cut = entries.len() == stretch.length as usize;
        entries.last().filter(|_| is_cut).map(|(last, _)| last + 1)
    }

    fn push_file(&mut self, job: &Job, id: u64, content: &S::Content, size: u64) -> Pushed {
        self.tree.counters.opened.one();
        // The reader that comes for this file will report the error, once.
        let Ok(file) = self.tree.source.open(content, size) else { return Pushed::No };
        let Ok(size_in_memory) = usize::try_from(size) else { return Pushed::No };
        if let Some(bytes) = file.in_memory() {
            return bytes
                .get(..size_in_memory)
                .map_or(Pushed::No, |bytes| self.store(job, id, bytes));
        }
        if self.buffer.len() < size_in_memory {
            self.buffer.resize(size_in_memory, 0);
        }
        let bytes = &mut self.buffer[..size_in_memory];
        if file.read_exactly(bytes, 0).is_err() {
            return Pushed::No;
        }
        self.store(job, id, &self.buffer[..size_in_memory])
    }

    fn store(&self, job: &Job, id: u64, bytes: &[u8]) -> Pushed {
        loop {
            match self.connection.store(id, bytes) {
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
        self.tree.counters.pushed_files.one();
        self.tree.counters.pushed_bytes.add(bytes.len() as u64);
        Pushed::Yes
    }
}

/// What became of the contents of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pushed {
    Yes,
    /// They cannot be had, or the kernel does not want them.
    No,
    /// The kernel did not get the name of the file in time, or has forgotten it.
    Unnamed,
}

/// Index of the first entry that is worth a push when somebody has asked for all before the position `reached`
/// (0: for none).
fn ahead_of<T>(entries: &[(u64, T)], reached: u64) -> usize {
    match reached {
        0 => 0,
        _ => entries.partition_point(|(position, _)| *position < reached) + LEAD,
    }
}

/// The entries of a stretch of a list, with their positions.
fn entries_of<S: TreeSource>(entries: &[Entry<S>], stretch: Stretch) -> Vec<(u64, &Entry<S>)> {
    let Stretch { order, start, length } = stretch;
    let length = length as usize;
    match order {
        Order::Listed => {
            let positions = (0..).zip(entries).skip(usize::try_from(start).unwrap_or(usize::MAX));
            positions.take(length).collect()
        }
        Order::Numbered => {
            let number = |entry: &Entry<S>| entry.node.state.map(probable_number);
            let numbered = entries.iter().filter_map(|entry| Some((number(entry)?, entry)));
            let mut numbered: Vec<_> = numbered.filter(|(number, _)| *number >= start).collect();
            if numbered.len() > length {
                numbered.select_nth_unstable_by_key(length, |(number, _)| *number);
                numbered.truncate(length);
            }
            numbered.sort_unstable_by_key(|(number, _)| *number);
            numbered
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_a_little_ahead_of_the_reader() {
        let entries = [3, 10, 20, 30, 40, 50].map(|position| (position, ()));
        assert_eq!(ahead_of(&entries, 0), 0);
        assert_eq!(ahead_of(&entries, 1), LEAD);
        assert_eq!(ahead_of(&entries, 11), 2 + LEAD);
        assert_eq!(ahead_of(&entries, 51), 6 + LEAD);
    }
}
