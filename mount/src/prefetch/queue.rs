//! What is to be pushed, and how far those who read are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::long_file::READER_BYTES;
use super::walkers::Walker;
use crate::nodes::{Push, Spot};

/// Jobs that may wait.
const QUEUE_LENGTH: usize = 32;
/// Jobs before which a part of a list, or the rest of a file, is not worth to be pushed: others need room, too.
const MOST_BEFORE_PART: usize = 16;
/// How long the thread looks for the next job before it sleeps. Being woken takes a virtual processor up to
/// 95 µs, and a walker is back with the next directory after about 200. Others who want the processor get it meanwhile.
const LINGER: Duration = Duration::from_micros(200);

/// What a push begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A READ.
    Read,
    /// A part of a list that is not its end. The push window of the directory does not know of it.
    PartOfList,
    /// The end of a list.
    List,
    /// A READ behind the beginning of a long file, of which the rest is to be pushed. The push window of the directory does not
    /// know of it.
    RestOfFile,
}

impl Origin {
    /// Whether all files of the directory from one on are to be pushed, so that its push window has to know how far they are.
    pub(super) fn is_of_window(self) -> bool {
        matches!(self, Self::Read | Self::List)
    }
}

/// Files to push.
pub(super) struct Job {
    pub(super) push: Push,
    pub(super) origin: Origin,
    /// How whoever began it reads.
    pub(super) walker: Walker,
    made: Instant,
    /// Position after the last file that somebody asked for since the job was made, 0 for none.
    reached: AtomicU64,
    reading: Mutex<Option<Reading>>,
}

/// How far somebody has asked for the bytes of a file.
#[derive(Clone, Copy)]
struct Reading {
    position: u64,
    to: u64,
}

impl Job {
    /// A job that is dropped, because nobody needs it any more.
    const DROPPED: u64 = u64::MAX;

    fn new(push: Push, origin: Origin, walker: Walker) -> Self {
        Self {
            push,
            origin,
            walker,
            made: Instant::now(),
            reached: AtomicU64::new(0),
            reading: Mutex::default(),
        }
    }

    /// Time since it was made, just before the answer that names its files was sent.
    pub(super) fn age(&self) -> Duration {
        self.made.elapsed()
    }

    /// Where a reader is: nobody needs the files before this position, but for the last of them, which is being read. `None`
    /// when nobody needs any.
    pub(super) fn reached(&self) -> Option<u64> {
        let reached = self.reached.load(Ordering::Relaxed);
        (reached != Self::DROPPED).then_some(reached)
    }

    /// Whether a reader has left the file at this position behind, or nobody needs the job any more.
    pub(super) fn is_past(&self, position: u64) -> bool {
        self.reached().is_none_or(|reached| reached > position + 1)
    }

    /// How far somebody has asked for the bytes of the file at this position, if it is the one that is read.
    pub(super) fn read_to(&self, position: u64) -> Option<u64> {
        let reading = *self.reading.lock();
        reading.filter(|reading| reading.position == position).map(|reading| reading.to)
    }

    fn drop_files(&self) {
        self.reached.store(Self::DROPPED, Ordering::Relaxed);
    }
}

/// Where requests leave jobs. Closed when the session ends.
pub(crate) struct PushQueue {
    sender: Mutex<Option<SyncSender<Arc<Job>>>>,
    active: Active,
}

/// What is to be done next.
pub(super) enum Next {
    Job(Arc<Job>),
    /// Not yet anything.
    Nothing,
    /// The queue is closed.
    Closed,
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

    /// Has files pushed. Nobody reads their directory in another order any more, or, once its list has ended, its parts.
    /// False when too many wait already.
    pub(crate) fn push(&self, push: Push, origin: Origin, walker: Walker) -> bool {
        let job = Arc::new(Job::new(push, origin, walker));
        let mut active = self.active.lock();
        if !origin.is_of_window() && active.len() >= MOST_BEFORE_PART {
            return false;
        }
        let (directory, order) = (job.push.directory, job.push.stretch.order);
        for other in active.iter().filter(|other| other.push.directory == directory) {
            if other.push.stretch.order != order && origin.is_of_window() {
                other.drop_files();
            }
        }
        active.push(job.clone());
        drop(active);
        let sent = match &*self.sender.lock() {
            Some(sender) => sender.try_send(job.clone()).is_ok(),
            None => false,
        };
        if !sent {
            remove(&self.active, &job);
        }
        sent
    }

    /// Somebody asked for a file of a directory.
    pub(crate) fn reached(&self, directory: u64, spot: Spot) {
        self.note(directory, spot, |job, position| {
            job.reached.fetch_max(position + 1, Ordering::Relaxed);
        });
    }

    /// Somebody asked for bytes of a file of a directory, up to `to`. That says nothing of the others. Whether there is a job
    /// for that directory.
    pub(crate) fn reads(&self, directory: u64, spot: Spot, to: u64) -> bool {
        self.note(directory, spot, |job, position| {
            let mut reading = job.reading.lock();
            let before = reading.filter(|before| before.position == position);
            // What the kernel reads ahead comes in no order; who goes back goes farther.
            let to =
                before.map_or(to, |before| match before.to <= to.saturating_add(READER_BYTES) {
                    true => before.to.max(to),
                    false => to,
                });
            *reading = Some(Reading { position, to });
        })
    }

    /// Tells the jobs of a directory the position of a file, each in its order. Whether there are any.
    fn note(&self, directory: u64, spot: Spot, tell: impl Fn(&Job, u64)) -> bool {
        let active = self.active.lock();
        let jobs = || active.iter().filter(|job| job.push.directory == directory);
        jobs().for_each(|job| tell(job, spot.position(job.push.stretch.order)));
        jobs().next().is_some()
    }

    pub(crate) fn close(&self) {
        self.sender.lock().take();
        self.active.lock().iter().for_each(|job| job.drop_files());
    }
}

impl Jobs {
    /// What is there now.
    pub(super) fn next(&self) -> Next {
        match self.receiver.try_recv() {
            Ok(job) => Next::Job(job),
            Err(TryRecvError::Disconnected) => Next::Closed,
            Err(TryRecvError::Empty) => Next::Nothing,
        }
    }

    /// Waits for a job.
    pub(super) fn wait(&self, patience: Duration) -> Next {
        let begun = Instant::now();
        while begun.elapsed() < LINGER {
            match self.next() {
                Next::Nothing => std::thread::yield_now(),
                next => return next,
            }
        }
        match self.receiver.recv_timeout(patience) {
            Ok(job) => Next::Job(job),
            Err(RecvTimeoutError::Disconnected) => Next::Closed,
            Err(RecvTimeoutError::Timeout) => Next::Nothing,
        }
    }

    /// Whether something is to be pushed in another directory.
    pub(super) fn others_wait(&self, job: &Job) -> bool {
        let is_other = |other: &Arc<Job>| {
            other.push.directory != job.push.directory && other.reached().is_some()
        };
        self.active.lock().iter().any(is_other)
    }

    /// A job is done.
    pub(super) fn finish(&self, job: &Arc<Job>) {
        remove(&self.active, job);
    }
}

fn remove(active: &Active, job: &Arc<Job>) {
    active.lock().retain(|other| !Arc::ptr_eq(other, job));
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::nodes::{Order, Stretch};

    fn push(directory: u64, order: Order) -> Push {
        Push { directory, stretch: Stretch { order, start: 0, length: 9 }, again: false }
    }

    fn next(jobs: &Jobs) -> Arc<Job> {
        match jobs.next() {
            Next::Job(job) => job,
            _ => panic!("there is one"),
        }
    }

    /// At this place in the list, with ten times its number.
    fn spot(index: u32) -> Spot {
        Spot { index, number: 10 * u64::from(index) }
    }

    #[test]
    fn jobs_of_a_directory_learn_where_its_readers_are_each_in_its_order() {
        let (queue, jobs) = PushQueue::new();
        for (directory, order) in [(1, Order::Listed), (2, Order::Numbered)] {
            assert!(queue.push(push(directory, order), Origin::List, Walker::default()));
        }
        let [listed, numbered] = [next(&jobs), next(&jobs)];
        assert_eq!((listed.reached(), numbered.reached()), (Some(0), Some(0)));
        queue.reached(1, spot(5));
        queue.reached(1, spot(3));
        queue.reached(2, spot(4));
        assert_eq!((listed.reached(), numbered.reached()), (Some(6), Some(41)));
        assert!(listed.is_past(4) && !listed.is_past(5));
        // Who goes on in a file has asked for no other.
        assert!(queue.reads(1, spot(8), 4096) && queue.reads(2, spot(8), 5000));
        assert!(!queue.reads(3, spot(8), 4096));
        assert_eq!((listed.read_to(8), listed.read_to(5)), (Some(4096), None));
        assert_eq!((numbered.read_to(80), numbered.read_to(8)), (Some(5000), None));
        // What was asked for before may come later, and a reader may go back.
        queue.reads(1, spot(8), 4096 + READER_BYTES);
        queue.reads(1, spot(8), 4096);
        assert_eq!(listed.read_to(8), Some(4096 + READER_BYTES));
        queue.reads(1, spot(8), 4095);
        assert_eq!(listed.read_to(8), Some(4095));
        assert_eq!(listed.reached(), Some(6));
        assert!(jobs.others_wait(&listed));
        assert!(numbered.is_past(39) && !numbered.is_past(40));
        jobs.finish(&listed);
        queue.reached(1, spot(7));
        assert_eq!(listed.reached(), Some(6), "it is done");
        assert!(!jobs.others_wait(&numbered));
    }

    #[test]
    fn who_reads_in_another_order_needs_no_push_in_the_one_before() {
        let (queue, jobs) = PushQueue::new();
        let begin = |directory, order, origin| {
            assert!(queue.push(push(directory, order), origin, Walker::default()));
            next(&jobs)
        };
        let before = begin(1, Order::Listed, Origin::List);
        let elsewhere = begin(2, Order::Listed, Origin::List);
        let part = begin(1, Order::Numbered, Origin::PartOfList);
        assert!(before.reached().is_some(), "a part comes before it is known how it is read");
        let rest = begin(1, Order::Numbered, Origin::RestOfFile);
        assert!(before.reached().is_some(), "and one file says nothing of all");
        jobs.finish(&rest);
        let now = begin(1, Order::Numbered, Origin::Read);
        assert_eq!(before.reached(), None);
        assert!([&elsewhere, &part, &now].iter().all(|job| job.reached().is_some()));
        // The end of a list, pushed in another order than its parts.
        begin(1, Order::Listed, Origin::List);
        assert!(part.reached().is_none() && now.reached().is_none());
    }

    #[test]
    fn what_does_not_fit_is_not_pushed_and_parts_of_lists_leave_room() {
        let (queue, jobs) = PushQueue::new();
        let fits = |origin| queue.push(push(1, Order::Listed), origin, Walker::default());
        let parts = (0..QUEUE_LENGTH).filter(|_| fits(Origin::PartOfList)).count();
        assert_eq!(parts, MOST_BEFORE_PART);
        let others = (0..QUEUE_LENGTH).filter(|_| fits(Origin::Read)).count();
        assert_eq!(parts + others, QUEUE_LENGTH);
        // One that was refused is not waited for.
        assert_eq!(queue.active.lock().len(), QUEUE_LENGTH);
        let first = next(&jobs);
        assert!(!fits(Origin::PartOfList) && fits(Origin::List));
        jobs.finish(&first);
        assert_eq!(queue.active.lock().len(), QUEUE_LENGTH);
    }

    #[test]
    fn a_closed_queue_drops_what_is_in_it_and_takes_nothing() {
        let (queue, jobs) = PushQueue::new();
        assert!(queue.push(push(1, Order::Listed), Origin::Read, Walker::default()));
        queue.close();
        assert_eq!(next(&jobs).reached(), None);
        assert!(matches!(jobs.next(), Next::Closed));
        assert!(matches!(jobs.wait(Duration::MAX), Next::Closed));
        assert!(!queue.push(push(1, Order::Listed), Origin::Read, Walker::default()));
    }
}
