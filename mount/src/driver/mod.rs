//! Carries out what the [predictor](crate::predictor) asks for: files are handed to the kernel
//! (`FUSE_NOTIFY_STORE`) before it asks for them.
//!
//! A push costs one message where a READ costs two and a wait. What always holds:
//! - Only files that the kernel has named are pushed. They are pinned meanwhile, so an id cannot
//!   come to mean another file between the look-up and the push.
//! - The source verifies before it hands bytes out. A file that does not verify is not pushed, and
//!   the READ that follows reports the error.
//! - A thread of its own pushes, because the kernel holds a page until a READ on it is answered.
//! - No program waits for a push. The queue is short, and a push that does not fit is dropped.
//!
//! For a walker, a push begins with the answer that ends the list of a directory. Contents that
//! come before that answer are lost, so a push that the kernel refuses is tried again for a moment.
//! A reader can be as fast as the thread that pushes, so the thread keeps a little [ahead](LEAD) of
//! the reader; the files between are read by asking.

mod queue;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use self::queue::{Job, Queue};
use crate::kernel::notify::Notifications;
use crate::predictor::{Event, Order, Push, Spot, Stretch};
use crate::server::list_cache::List;
use crate::server::nodes::{Place, first_number};
use crate::server::tree::Tree;
use crate::source::{Kind, TreeSource};

/// Files between a reader and what is pushed next.
const LEAD: usize = 3;
/// The longest file that is pushed: a larger one is verified by the piece when it is read.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The observed requests, and the queue of the thread that pushes.
pub(crate) struct Driver<S: TreeSource> {
    tree: Arc<Tree<S>>,
    queue: Arc<Queue>,
}

impl<S: TreeSource> Driver<S> {
    pub(crate) fn new(tree: Arc<Tree<S>>) -> Arc<Self> {
        Arc::new(Self { tree, queue: Arc::default() })
    }

    /// Starts the thread that pushes. It ends with [`close`](Self::close).
    ///
    /// # Errors
    /// The thread could not be started.
    pub(crate) fn start(&self, notifications: Arc<Notifications>) -> io::Result<()> {
        let (tree, queue) = (self.tree.clone(), self.queue.clone());
        let run = move || {
            let mut pusher =
                Pusher { tree: &tree, queue: &queue, notifications, buffer: Vec::new() };
            while let Some(job) = queue.next() {
                let before = pusher.push(job);
                queue.finish(Event::PushEnded { push: job.push, before });
            }
        };
        std::thread::Builder::new().name("nono-push".to_owned()).spawn(run)?;
        Ok(())
    }

    /// A thread gets the end of the list of an immutable directory.
    pub(crate) fn listed(&self, thread: u32, directory: u64, list: &List<S>) {
        let entries = list.entries.len();
        if entries > 0 {
            self.queue.note(Event::Listed { thread, directory, entries });
        }
    }

    /// A thread asks for the beginning of a file.
    pub(crate) fn read(&self, thread: u32, id: u64) {
        let (place, number, had) = {
            let mut nodes = self.tree.nodes.lock();
            let had = nodes.note_loaded(id);
            let (Some(place), Some(number)) = (nodes.place(id), nodes.number(id)) else { return };
            (place, number, had)
        };
        let Place { parent: directory, index } = place;
        self.queue.note(Event::Read { thread, directory, spot: Spot { index, number }, had });
    }

    /// The kernel has forgotten a node.
    pub(crate) fn forgotten(&self, id: u64) {
        self.queue.note(Event::Forgotten { directory: id });
    }

    /// No more pushes.
    pub(crate) fn close(&self) {
        self.queue.close();
    }
}

struct Pusher<'a, S: TreeSource> {
    tree: &'a Tree<S>,
    queue: &'a Queue,
    notifications: Arc<Notifications>,
    buffer: Vec<u8>,
}

/// The fate of the contents of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pushed {
    Yes,
    /// The source does not have them, or the kernel does not want them.
    No,
    /// The kernel did not get the name of the file in time, or has forgotten it.
    Unnamed,
}

impl<S: TreeSource> Pusher<'_, S> {
    /// Returns the position before which the push ended; `None` when it went as far as it could.
    fn push(&mut self, job: Job) -> Option<u64> {
        let Push { directory, stretch, again } = job.push;
        let Some(list) = self.tree.siblings(directory) else { return Some(stretch.start) };
        let entries = in_order(&list, stretch);
        let mut left = self.tree.options.push_batch_bytes;
        let mut is_begun = false;
        let mut next = 0;
        while let Some((position, _)) = entries.get(next) {
            let Some(reached) = self.queue.reached() else { return Some(*position) };
            next = next.max(ahead_of(&entries, reached));
            let Some((position, index)) = entries.get(next) else { break };
            next += 1;
            let node = &list.entries[*index].node;
            let (Kind::File { size, content }, Some(state)) = (&node.kind, node.state) else {
                continue;
            };
            if *size == 0 || *size > MAX_FILE_BYTES {
                continue;
            }
            left = match left.checked_sub(*size) {
                Some(left) => left,
                None => return Some(*position),
            };
            let Some(id) = self.tree.nodes.lock().pin(state, again) else { continue };
            let pushed = self.push_file(&job, id, content, *size);
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
        if self.tree.source.read_whole(content, size, &mut self.buffer).is_err() {
            return Pushed::No;
        }
        loop {
            match self.notifications.store(id, &self.buffer) {
                Ok(()) => break,
                Err(Errno::NOENT) if self.may_wait(job) => std::thread::yield_now(),
                Err(Errno::NOENT) => return Pushed::Unnamed,
                Err(_) => return Pushed::No,
            }
        }
        self.tree.counters.pushed_files.one();
        self.tree.counters.pushed_bytes.add(size);
        Pushed::Yes
    }

    /// Whether the kernel may still be taking in the answer with the name of a file.
    fn may_wait(&self, job: &Job) -> bool {
        let patience: Duration = self.tree.options.push_patience;
        job.made.elapsed() < patience && self.queue.reached().is_some()
    }
}

/// Index of the first entry that is worth a push when a reader has asked for everything before the
/// position `reached` (0: for nothing).
fn ahead_of<T>(entries: &[(u64, T)], reached: u64) -> usize {
    match reached {
        0 => 0,
        _ => entries.partition_point(|(position, _)| *position < reached) + LEAD,
    }
}

/// The entries of a stretch: their positions in its order, and their indices in the list.
fn in_order<S: TreeSource>(list: &List<S>, stretch: Stretch) -> Vec<(u64, usize)> {
    let Stretch { order, start, length } = stretch;
    let length = length as usize;
    match order {
        Order::Listed => {
            let start = usize::try_from(start).unwrap_or(usize::MAX);
            let indices = start..list.entries.len();
            indices.take(length).map(|index| (index as u64, index)).collect()
        }
        Order::Numbered => {
            let entries = list.entries.iter().enumerate();
            let numbers =
                entries.filter_map(|(index, entry)| Some((first_number(entry.node.state?), index)));
            let mut numbered: Vec<_> = numbers.filter(|(number, _)| *number >= start).collect();
            numbered.sort_unstable();
            numbered.truncate(length);
            numbered
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::server::nodes::tests::{Nothing, node};
    use crate::source::{Entry, StateId};

    /// Entries in the states with these numbers.
    fn list(states: &[u8]) -> List<Nothing> {
        let entry = |(name, state): (usize, &u8)| Entry {
            name: format!("{name:03}").into_bytes().into(),
            node: node(Kind::File { size: 1, content: 1 }, Some(StateId([*state; 16]))),
        };
        List::new(states.iter().enumerate().map(entry).collect())
    }

    #[test]
    fn what_is_pushed_is_a_little_ahead_of_the_reader() {
        let entries = [3, 10, 20, 30, 40, 50].map(|position| (position, ()));
        assert_eq!(ahead_of(&entries, 0), 0);
        assert_eq!(ahead_of(&entries, 1), LEAD);
        assert_eq!(ahead_of(&entries, 11), 2 + LEAD);
        assert_eq!(ahead_of(&entries, 51), 6 + LEAD);
    }

    #[test]
    fn a_stretch_as_listed_is_a_part_of_the_list() {
        let stretch = |start, length| Stretch { order: Order::Listed, start, length };
        let list = list(&[5, 1, 3, 2]);
        assert_eq!(in_order(&list, stretch(1, 2)), [(1, 1), (2, 2)]);
        assert_eq!(in_order(&list, stretch(2, 99)), [(2, 2), (3, 3)]);
        assert!(in_order(&list, stretch(u64::MAX, 1)).is_empty());
    }

    #[test]
    fn a_stretch_by_number_is_sorted_by_number() {
        let number = |state| first_number(StateId([state; 16]));
        let stretch = |start, length| Stretch { order: Order::Numbered, start, length };
        let list = list(&[5, 1, 3, 2]);
        let all = [(number(1), 1), (number(2), 3), (number(3), 2), (number(5), 0)];
        assert_eq!(in_order(&list, stretch(0, 99)), all);
        assert_eq!(in_order(&list, stretch(number(2), 2)), all[1..3]);
    }
}
