//! What is to be pushed, and how far those who read are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::walkers::Walker;
use crate::nodes::{Push, Spot};

/// Jobs that may wait.
const QUEUE_LENGTH: usize = 32;
/// How long the thread looks for the next job before it sleeps. Being woken takes a virtual processor up to
/// 95 µs, and a walker is back with the next directory after about 200.
const LINGER: Duration = Duration::from_micros(200);
/// After this long without a job nobody is coming.
const AWHILE: Duration = Duration::from_secs(1);
/// Until the kernel knows the first nodes that an answer names: some 10 µs, more when somebody else has the
/// processor of the program that asked.
const ON_THE_WAY: Duration = Duration::from_micros(200);

/// What the thread does while there is no job.
pub(super) trait Meanwhile {
    /// Does a little. False when there is no more to do until the next job.
    fn work(&mut self) -> bool;

    /// There was no job for [a while](AWHILE).
    fn end(&mut self);
}

/// Files to push.
pub(super) struct Job {
    pub(super) push: Push,
    /// For whom, if it is one who walks. It may be opened for then what is too long to be pushed.
    pub(super) walker: Option<Walker>,
    made: Instant,
    /// Position after the last file that somebody asked for since the job was made, 0 for none.
    reached: AtomicU64,
}

impl Job {
    /// A job that is dropped, because nobody needs it any more.
    const DROPPED: u64 = u64::MAX;

    fn new(push: Push, walker: Option<Walker>) -> Self {
        Self { push, walker, made: Instant::now(), reached: AtomicU64::new(0) }
    }

    /// Whether an answer with names may still be on its way to the kernel.
    pub(super) fn is_early(&self) -> bool {
        self.made.elapsed() < ON_THE_WAY
    }

    /// Where a reader is: no file before this position is worth a push. `None` when none is at all.
    pub(super) fn reached(&self) -> Option<u64> {
        let reached = self.reached.load(Ordering::Relaxed);
        (reached != Self::DROPPED).then_some(reached)
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

    /// Has files pushed, for a walker or somebody else. Nobody reads their directory in another order any more.
    /// False when too many pushes wait already.
    pub(crate) fn push(&self, push: Push, walker: Option<Walker>) -> bool {
        let job = Arc::new(Job::new(push, walker));
        let mut active = self.active.lock();
        let (directory, order) = (job.push.directory, job.push.stretch.order);
        for other in active.iter().filter(|other| other.push.directory == directory) {
            if other.push.stretch.order != order {
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
        for job in &*self.active.lock() {
            if job.push.directory == directory {
                let position = spot.position(job.push.stretch.order);
                job.reached.fetch_max(position + 1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn close(&self) {
        self.sender.lock().take();
        self.active.lock().iter().for_each(|job| job.drop_files());
    }
}

impl Jobs {
    /// Waits for a job. `None` when the queue is closed.
    pub(super) fn next(&self, meanwhile: &mut impl Meanwhile) -> Option<Arc<Job>> {
        let mut has_work = true;
        let mut idle_since = Instant::now();
        while idle_since.elapsed() < LINGER {
            match self.receiver.try_recv() {
                Ok(job) => return Some(job),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) if has_work => {
                    has_work = meanwhile.work();
                    idle_since = Instant::now();
                }
                Err(TryRecvError::Empty) => std::hint::spin_loop(),
            }
        }
        match self.receiver.recv_timeout(AWHILE) {
            Ok(job) => Some(job),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                meanwhile.end();
                self.receiver.recv().ok()
            }
        }
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

    struct Steps {
        left: u32,
        calls: u32,
        ended: SyncSender<()>,
    }

    impl Meanwhile for Steps {
        fn work(&mut self) -> bool {
            self.calls += 1;
            self.left = self.left.saturating_sub(1);
            self.left > 0
        }

        fn end(&mut self) {
            self.ended.send(()).unwrap();
        }
    }

    #[test]
    fn there_is_work_until_it_says_that_there_is_none() {
        let (queue, jobs) = PushQueue::new();
        let (ended, end) = sync_channel(1);
        let mut steps = Steps { left: 5, calls: 0, ended };
        let waiting = std::thread::spawn(move || {
            let has_come = jobs.next(&mut steps).is_some();
            let is_closed = jobs.next(&mut steps).is_none();
            (has_come, is_closed, steps.calls)
        });
        end.recv().unwrap();
        let stretch = Stretch { order: Order::Listed, start: 0, length: 1 };
        assert!(queue.push(Push { directory: 1, stretch, again: false }, None));
        queue.close();
        let (has_come, is_closed, calls) = waiting.join().unwrap();
        assert!(has_come && is_closed);
        // Five, and one more after the job if the queue was not closed by then.
        assert!((5..=6).contains(&calls), "{calls}");
    }
}
