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
use crate::buffer::with_buffer;
use crate::contained::Opened;
use crate::contents::INLINE_OPEN_BYTES;
use crate::nodes::{Order, Push, Stretch, probable_number};
use crate::source::{Entry, Kind, TreeSource};
use crate::tree::Tree;
use crate::wire::Connection;

/// Files between a reader and what is pushed next.
const LEAD: usize = 3;
/// Bytes of long files in one push. They are all read and hashed.
const MOST_LONG_BYTES: u64 = 64 * 1024 * 1024;
/// Those of a long file that are pushed at a time.
const PIECE_BYTES: u64 = 1024 * 1024;

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
        let mut next = 0;
        while let Some((position, _)) = entries.get(next) {
            let Some(reached) = job.reached() else { return Some(*position) };
            next = next.max(ahead_of(&entries, reached));
            let Some((position, entry)) = entries.get(next) else { break };
            next += 1;
            let Kind::File { size, ref content } = entry.node.kind else { continue };
            let is_short = size <= most_short;
            let is_long = size > INLINE_OPEN_BYTES && job.long_files;
            if size == 0 || !is_short && !is_long {
                continue;
            }
            let left = if is_short { &mut short_bytes } else { &mut long_bytes };
            match left.checked_sub(size) {
                None if is_short => return Some(*position),
                None => continue,
                Some(rest) => *left = rest,
            }
            let Some(state) = entry.node.state else { continue };
            let Some(id) = self.tree.nodes.lock().pin(state, again) else { continue };
            let pushed = match is_short {
                true => self.push_short(job, id, content, size),
                false => self.push_long(job, *position, id, content, size),
            };
            if pushed == Pushed::Yes {
                self.tree.counters.pushed_files.one();
            }
            let is_loaded = matches!(pushed, Pushed::Yes | Pushed::InPart);
            self.tree.nodes.lock().unpin(id, is_loaded);
            match pushed {
                Pushed::Yes | Pushed::InPart => is_begun = true,
                // The answer with the names is late, so all of this is for later.
                Pushed::Unnamed if !is_begun => return Some(stretch.start),
                Pushed::Unnamed | Pushed::No => {}
            }
        }
        let is_cut = entries.len() == stretch.length as usize;
        entries.last().filter(|_| is_cut).map(|(last, _)| last + 1)
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
        &self,
        job: &Job,
        position: u64,
        id: u64,
        content: &S::Content,
        size: u64,
    ) -> Pushed {
        let Some(file) = (self.open)(id, content, size) else { return Pushed::No };
        let mut offset = 0;
        while offset < size {
            let ended = if offset == 0 { Pushed::No } else { Pushed::InPart };
            if job.is_read_at(position) {
                return ended;
            }
            let len = PIECE_BYTES.min(size - offset);
            let pushed = with_buffer(|buffer| {
                buffer.resize(len as usize, 0);
                match file.read_exactly(buffer, offset) {
                    Ok(()) => self.store(job, id, offset, buffer),
                    Err(_) => Pushed::No,
                }
            });
            match pushed {
                Pushed::Yes => offset += len,
                Pushed::Unnamed if offset == 0 => return Pushed::Unnamed,
                _ => return ended,
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
    /// The beginning of a long file. Somebody reads it, or the rest cannot be had or is not wanted.
    InPart,
    /// They cannot be had, the kernel does not want them, or somebody reads them.
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
