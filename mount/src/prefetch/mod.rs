//! Pushing files to the kernel before it asks for them.
//!
//! Who reads one file of a directory mostly reads the next ones. A push costs one message where a
//! READ costs two and a wait. What always holds:
//! - Only files the kernel has named are pushed; they are pinned meanwhile, so an id cannot come to
//!   mean another file between the look-up and the push.
//! - The source verifies before it hands bytes out; what does not verify is not pushed, and the READ
//!   that follows reports the error.
//! - A thread of its own pushes, because the kernel holds a page until a READ on it is answered.
//! - Long files are pushed only for a process that walks a tree and has read such files, and up to [`MOST_LONG_BYTES`]
//!   each time: to open one can be to hash it. A READ that comes meanwhile is queued, and answered by this thread. They
//!   are pushed by the piece, until a reader comes to them.
//! - Nobody waits for a push. The queue is short and drops what does not fit.
//!
//! For a walker, a push begins with the answer that ends the list of a directory: the first file is
//! opened while the kernel makes inodes of the entries. Contents that come before that answer are lost,
//! so a push that the kernel refuses is tried again for a moment. Files are pushed in the order in which
//! they will probably be read ([`Order`]); a reader that shows another one has the rest in that.
//!
//! The list of the directory to which a walker comes next is read before it asks for it.
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
use crate::contained::Opened;
use crate::contents::INLINE_OPEN_BYTES;
use crate::nodes::{Order, Push, Stretch, probable_number};
use crate::source::{Entry, Kind, TreeSource};
use crate::tree::Tree;
use crate::wire::Connection;

/// Files between a reader and what is pushed next.
const LEAD: usize = 3;
/// From so many bytes on a file is long.
const LONG_BYTES: u64 = INLINE_OPEN_BYTES + 1;
/// Bytes of long files in one push. They are all read and hashed.
const MOST_LONG_BYTES: u64 = 64 * 1024 * 1024;
/// Those of a long file that are pushed at a time.
const PIECE_BYTES: u64 = 1024 * 1024;
/// Directories above one in which the next one is looked for.
const MOST_LEVELS: usize = 3;

/// The thread that pushes, until the queue is closed. `open` opens a long file, and keeps it open.
pub(crate) fn spawn<S: TreeSource>(
    tree: &Arc<Tree<S>>,
    jobs: Jobs,
    connection: Arc<Connection>,
    open: impl Fn(u64, &S::Content, u64) -> Option<Opened> + Send + 'static,
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

/// Opens a long file: its id, for the log, its contents and their length.
type Open<S> = dyn Fn(u64, &<S as TreeSource>::Content, u64) -> Option<Opened>;

struct Pusher<'a, S: TreeSource> {
    tree: &'a Tree<S>,
    connection: &'a Connection,
    open: &'a Open<S>,
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
        let mut short_bytes = self.tree.options.push_batch_bytes;
        let mut long_bytes = MOST_LONG_BYTES;
        let most_short = self.tree.options.push_file_bytes.min(INLINE_OPEN_BYTES);
        let mut is_begun = false;
        // What begins with the first file does so because somebody walks.
        let mut is_list_due = stretch.start == 0;
        let mut next = 0;
        while let Some((position, _)) = entries.get(next) {
            let Some(reached) = job.reached() else { return Some(*position) };
            next = next.max(ahead_of(&entries, reached));
            let Some((position, entry)) = entries.get(next) else { break };
            next += 1;
            if is_list_due && entry.node.is_directory() {
                self.tree.list_ahead(&entry.node);
                is_list_due = false;
            }
            let Kind::File { size, ref content } = entry.node.kind else { continue };
            let is_short = size <= most_short;
            let left = match size {
                0 => continue,
                _ if is_short => &mut short_bytes,
                LONG_BYTES..=MOST_LONG_BYTES if job.long_files => &mut long_bytes,
                _ => continue,
            };
            *left = match left.checked_sub(size) {
                Some(left) => left,
                None => return Some(*position),
            };
            let Some(state) = entry.node.state else { continue };
            let Some(id) = self.tree.nodes.lock().pin(state, again) else { continue };
            let pushed = match is_short {
                true => self.push_short(job, id, content, size),
                false => self.push_long(job, *position, id, content, size),
            };
            if pushed == Pushed::Yes {
                self.tree.counters.pushed_files.one();
            }
            self.tree.nodes.lock().unpin(id, pushed == Pushed::Yes);
            match pushed {
                Pushed::Yes => is_begun = true,
                // The answer with the names is late, so all of this is for later.
                Pushed::Unnamed if !is_begun => return Some(stretch.start),
                Pushed::Unnamed | Pushed::No => {}
            }
        }
        if is_list_due && job.reached().is_some() {
            self.list_next(directory);
        }
        let is_cut = entries.len() == stretch.length as usize;
        entries.last().filter(|_| is_cut).map(|(last, _)| last + 1)
    }

    /// The directory after this one, or after one above it.
    fn list_next(&self, directory: u64) {
        let up = self.tree.nodes.lock().above(directory).take(MOST_LEVELS).collect::<Vec<_>>();
        let levels = std::iter::once(directory).chain(up);
        if let Some(next) = levels.into_iter().find_map(|level| self.tree.directory_after(level)) {
            self.tree.list_ahead(&next);
        }
    }

    fn push_short(&mut self, job: &Job, id: u64, content: &S::Content, size: u64) -> Pushed {
        self.tree.counters.opened.one();
        // The reader that comes for this file will report the error, once.
        match self.tree.source.read_whole(content, size, &mut self.buffer) {
            Ok(()) => self.store(job, id, 0, &self.buffer),
            Err(_) => Pushed::No,
        }
    }

    /// Pushes a long file until a reader comes to it, who has the rest verified ahead.
    fn push_long(
        &mut self,
        job: &Job,
        position: u64,
        id: u64,
        content: &S::Content,
        size: u64,
    ) -> Pushed {
        let Some(file) = (self.open)(id, content, size) else { return Pushed::No };
        let mut offset = 0;
        while offset < size {
            if job.reached().is_none_or(|reached| reached > position) {
                return Pushed::No;
            }
            let len = PIECE_BYTES.min(size - offset);
            self.buffer.resize(len as usize, 0);
            if file.read_exactly(&mut self.buffer, offset).is_err() {
                return Pushed::No;
            }
            match self.store(job, id, offset, &self.buffer) {
                Pushed::Yes => offset += len,
                other => return other,
            }
        }
        Pushed::Yes
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
