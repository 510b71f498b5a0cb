//! Pushing files to the kernel before it asks for them, and opening those that are too long for that.
//!
//! Who reads one file of a directory mostly reads the next ones. A push costs one message where a
//! READ costs two and a wait. What always holds:
//! - Only files the kernel has named are pushed; they are pinned meanwhile, so an id cannot come to
//!   mean another file between the look-up and the push.
//! - The source verifies before it hands bytes out; what does not verify is not pushed, and the READ
//!   that follows reports the error.
//! - A thread of its own pushes, because the kernel holds a page until a READ on it is answered.
//! - Files that are too long to be pushed are opened, which is to hash them, for a process that
//!   walks a tree and has read such files. Another thread does it ([`wishes`]).
//! - Nobody waits for a push. The queue is short and drops what does not fit.
//!
//! For a walker, a push begins with the answer that ends the list of a directory. Contents that come
//! before that answer are lost, so a push that the kernel refuses is tried again for a moment. Files are
//! pushed in the order in which they will probably be read ([`Order`]); a reader that shows another
//! one has the rest in that. While there is nothing to push, the thread opens [what comes
//! next](ahead).
//!
//! A reader can be as fast as the thread that pushes. So that the two share the work instead of
//! meeting at each file, the thread learns where the reader is and goes on a little
//! [ahead](LEAD) of it; what it skips the reader asks for itself.

mod ahead;
mod queue;
mod walkers;
mod wishes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustix::io::Errno;

use self::ahead::Ahead;
use self::queue::{Job, Meanwhile};
pub(crate) use self::queue::{Jobs, PushQueue};
pub(crate) use self::walkers::{Walker, Walkers};
use self::wishes::Wishes;
use crate::nodes::{Order, Push, Stretch, probable_number};
use crate::notify::Notifications;
use crate::source::{Entry, Kind, TreeSource};
use crate::tree::Tree;

/// Files between a reader and what is pushed next.
const LEAD: usize = 3;

/// The threads that push and hash, until the queue is closed. `open` opens a file that is too long to be
/// pushed, and keeps it open.
///
/// # Errors
/// A thread could not be started.
pub(crate) fn spawn<S: TreeSource>(
    tree: &Arc<Tree<S>>,
    jobs: Jobs,
    notifications: Arc<Notifications>,
    open: impl Fn(&S::Content, u64) + Send + 'static,
) -> std::io::Result<()> {
    let wishes = Arc::new(Wishes::new());
    let wished = wishes.clone();
    let tree = tree.clone();
    let push = move || {
        let (buffer, ahead) = (Vec::new(), Ahead::default());
        let mut pusher =
            Pusher { tree: &tree, notifications: &notifications, wishes: &wishes, buffer, ahead };
        while let Some(job) = jobs.next(&mut pusher) {
            pusher.push(&job);
            jobs.finish(&job);
        }
        wishes.close();
    };
    let hash = move || {
        while let Some((content, size)) = wished.next() {
            // A source that panics at one file may open the next.
            let _ = catch_unwind(AssertUnwindSafe(|| open(&content, size)));
        }
    };
    std::thread::Builder::new().name("nono-push".to_owned()).spawn(push)?;
    std::thread::Builder::new().name("nono-hash".to_owned()).spawn(hash)?;
    Ok(())
}

struct Pusher<'a, S: TreeSource> {
    tree: &'a Tree<S>,
    notifications: &'a Notifications,
    wishes: &'a Wishes<S::Content>,
    buffer: Vec<u8>,
    ahead: Ahead<S>,
}

impl<S: TreeSource> Meanwhile for Pusher<'_, S> {
    fn work(&mut self) -> bool {
        let work = AssertUnwindSafe(|| self.ahead.step(self.tree, self.wishes));
        catch_unwind(work).unwrap_or_else(|_| {
            self.ahead.end();
            false
        })
    }

    fn end(&mut self) {
        self.ahead.end();
    }
}

impl<S: TreeSource> Pusher<'_, S> {
    fn push(&mut self, job: &Job) {
        if job.walker.is_some() {
            self.wishes.begin();
        }
        // Where the source panics, readers get the error.
        let end = catch_unwind(AssertUnwindSafe(|| self.push_files(job))).unwrap_or(None);
        self.tree.nodes.lock().push_ended(&job.push, end);
        if let Some(walker) = job.walker {
            self.ahead.begin(self.tree, job.push.directory, walker);
        }
    }

    /// Returns the position before which the push ended; `None` when it went as far as it could.
    fn push_files(&mut self, job: &Job) -> Option<u64> {
        let Push { directory, stretch, again } = job.push;
        let Some(list) = self.tree.siblings(directory) else { return Some(stretch.start) };
        let entries = in_order(&list.entries, stretch, |_| true);
        let reads_long_files = job.walker.is_some_and(|walker| walker.reads_long_files);
        let mut left = self.tree.options.push_batch_bytes;
        let mut is_begun = false;
        let mut next = 0;
        while let Some((position, _)) = entries.get(next) {
            let Some(reached) = job.reached() else { return Some(*position) };
            next = next.max(ahead_of(&entries, reached));
            let Some((position, index)) = entries.get(next) else { break };
            let node = &list.entries[*index].node;
            next += 1;
            let (Kind::File { size: size @ 1.., content }, Some(state)) = (&node.kind, node.state)
            else {
                continue;
            };
            if *size > self.tree.options.push_file_bytes {
                if reads_long_files && !self.tree.nodes.lock().is_loaded(state) {
                    self.wishes.add(content.clone(), *size);
                }
                continue;
            }
            left = match left.checked_sub(*size) {
                Some(left) => left,
                None => return Some(*position),
            };
            let Some(id) = self.tree.nodes.lock().pin(state, again) else { continue };
            let pushed = self.push_file(job, id, content, *size);
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
        let file = self.ahead.take(content).or_else(|| {
            self.tree.counters.opened.one();
            // The reader that comes for this file will report the error, once.
            self.tree.source.open(content, size).ok()
        });
        let (Some(file), Ok(size)) = (file, usize::try_from(size)) else { return Pushed::No };
        if let Some(bytes) = file.in_memory() {
            return bytes.get(..size).map_or(Pushed::No, |bytes| self.store(job, id, bytes));
        }
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        }
        let bytes = &mut self.buffer[..size];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], filled as u64) {
                Ok(0) | Err(_) => return Pushed::No,
                Ok(count) => filled += count,
            }
        }
        self.store(job, id, &self.buffer[..size])
    }

    fn store(&self, job: &Job, id: u64, bytes: &[u8]) -> Pushed {
        loop {
            match self.notifications.store(id, bytes) {
                Ok(()) => break,
                Err(Errno::NOENT) if job.is_early() => std::thread::yield_now(),
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

/// Those entries of a stretch of a list that are wanted, in its order: their positions, and their indices in the
/// list. As many as it is long.
fn in_order<S: TreeSource>(
    entries: &[Entry<S>],
    stretch: Stretch,
    is_wanted: impl Fn(&Entry<S>) -> bool,
) -> Vec<(u64, usize)> {
    let Stretch { order, start, length } = stretch;
    let length = length as usize;
    let wanted = entries.iter().enumerate().filter(|(_, entry)| is_wanted(entry));
    match order {
        Order::Listed => {
            let positions = wanted.map(|(index, _)| (index as u64, index));
            positions.skip_while(|(position, _)| *position < start).take(length).collect()
        }
        Order::Numbered => {
            let number = |entry: &Entry<S>| entry.node.state.map(probable_number);
            let numbered = wanted.filter_map(|(index, entry)| Some((number(entry)?, index)));
            let mut numbered: Vec<_> = numbered.filter(|(number, _)| *number >= start).collect();
            if numbered.len() > length {
                numbered.select_nth_unstable(length);
                numbered.truncate(length);
            }
            numbered.sort_unstable();
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
