//! What the kernel says of a thread, and where it lets it run.

use std::fs::File;
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id, thread_schedule_policy,
};

use crate::kernel::mount_table;

/// A thread of this or another process. Its files stay open, because opening costs more than reading.
pub(super) struct Thread {
    id: u32,
    /// `/proc/ID/stat`, see proc_pid_stat(5).
    stat: File,
    /// `/proc/ID/schedstat`, of the companion.
    schedstat: Option<File>,
    /// Where it runs, of the companion.
    affinity: Option<Affinity>,
}

/// What a thread spent its time with.
#[derive(Clone, Copy, Default)]
pub(super) struct Fared {
    /// On a processor, up to the last tick of the kernel.
    pub(super) ran: Duration,
    /// Ready to run, without a processor, up to when it had one last.
    pub(super) waited: Duration,
}

impl Thread {
    /// `None` when it is gone, or hidden.
    pub(super) fn named(id: u32) -> Option<Self> {
        let stat = mount_table::open_of_thread(id, "stat")?;
        Some(Self { id, stat, schedstat: None, affinity: None })
    }

    /// Its number.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// The processor on which it ran last. `None` when it is gone.
    pub(super) fn last_processor(&self) -> Option<usize> {
        number(&self.stat_field(39)?)
    }

    /// It runs, or would if it had a processor.
    pub(super) fn is_ready(&self) -> bool {
        self.stat_field(3).is_some_and(|state| state == b"R")
    }

    /// How it fared. `None` where the kernel does not count that.
    pub(super) fn fared(&self) -> Option<Fared> {
        let text = contents(self.schedstat.as_ref()?)?;
        // Nanoseconds on a processor, nanoseconds of waiting for one, turns on one:
        // Documentation/scheduler/sched-stats.rst of Linux.
        let mut fields = text.split(|byte| *byte == b' ').map(number::<u64>);
        let (ran, waited, turns) = (fields.next()??, fields.next()??, fields.next()??);
        let fared = Fared { ran: Duration::from_nanos(ran), waited: Duration::from_nanos(waited) };
        // Whoever asks has had a turn, if turns are counted.
        (turns > 0).then_some(fared)
    }

    /// Lets it run wherever the mount may.
    pub(super) fn release(&self) {
        if let Some(affinity) = self.affinity {
            affinity.leave();
        }
    }

    /// How many processors it may run on now.
    #[cfg(test)]
    pub(super) fn processors(&self) -> Option<u32> {
        sched_getaffinity(pid(self.id)).ok().map(|set| set.count())
    }

    /// A field of `stat` after the second, which is a name in parentheses.
    fn stat_field(&self, number: usize) -> Option<Vec<u8>> {
        let text = contents(&self.stat)?;
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let mut fields = text.get(name_end + 2..)?.split(|byte| *byte == b' ');
        Some(fields.nth(number - 3)?.to_vec())
    }
}

/// Where a thread, the companion, runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affinity {
    thread: Option<Pid>,
    /// An ordinary thread of the mount: nobody here changes where it may run, others may.
    ordinary: Option<Pid>,
}

impl Affinity {
    /// Keeps the thread on a processor. False when it is there already, or may not go there.
    pub(super) fn go_to(&self, processor: usize) -> bool {
        let Ok(allowed) = sched_getaffinity(self.ordinary) else { return false };
        if processor >= CpuSet::MAX_CPU || !allowed.is_set(processor) {
            return false;
        }
        let mut only = CpuSet::new();
        only.set(processor);
        let is_there = sched_getaffinity(self.thread).is_ok_and(|now| now == only);
        !is_there && sched_setaffinity(self.thread, &only).is_ok()
    }

    /// Lets the thread run wherever the ordinary one may.
    pub(super) fn leave(&self) {
        let left = sched_getaffinity(self.ordinary)
            .and_then(|allowed| sched_setaffinity(self.thread, &allowed));
        if let Err(error) = left {
            tracing::debug!(%error, "the companion stays on one processor");
        }
    }
}

/// The calling thread.
pub(super) fn current() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

fn pid(thread: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(thread).ok()?)
}

/// Makes the calling thread one of the idle class, which may run where an ordinary one may. `None` where
/// that does nothing: a single processor, or a kernel that does not say how threads fare.
pub(super) fn make_companion(ordinary: u32) -> Option<(Thread, Affinity)> {
    let affinity = Affinity { thread: pid(current()), ordinary: pid(ordinary) };
    let thread = Thread { affinity: Some(affinity), ..candidate()? };
    // The class is also that of what a thread reads from the disk, unless it has a priority there of its
    // own; somebody waits for this one.
    let class = ioprio::Class::BestEffort(ioprio::BePriorityLevel::fallback());
    let itself = ioprio::Target::Process(ioprio::Pid::from_raw(0));
    ioprio::set_priority(itself, ioprio::Priority::new(class)).ok()?;
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // It also sets the niceness, which means nothing in this class and may be refused.
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    (thread_schedule_policy() == Ok(idle)).then_some((thread, affinity))
}

fn contents(file: &File) -> Option<Vec<u8>> {
    let mut text = [0; 1024];
    let length = rustix::io::pread(file, &mut text, 0).ok()?;
    Some(text[..length].to_vec())
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.trim_end().parse().ok()
}

/// The calling thread, if it could be a companion.
fn candidate() -> Option<Thread> {
    let id = current();
    let thread =
        Thread { schedstat: mount_table::open_of_thread(id, "schedstat"), ..Thread::named(id)? };
    let processors = sched_getaffinity(None).ok()?.count();
    (processors > 1 && thread.fared().is_some()).then_some(thread)
}

/// Whether there can be a companion here.
#[cfg(test)]
pub(super) fn is_possible() -> bool {
    let companion = std::thread::Builder::new().spawn(|| make_companion(current()).is_some());
    companion.is_ok_and(|companion| companion.join().unwrap_or(false))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test without a thread fails")]
mod tests {
    use super::*;

    #[test]
    fn the_state_and_the_processor_of_a_thread_are_found() {
        let thread = Thread::named(current()).unwrap();
        let allowed = sched_getaffinity(None).unwrap();
        assert!(allowed.is_set(thread.last_processor().unwrap()));
        assert!(thread.is_ready(), "it runs");
        assert!(Thread::named(u32::MAX).is_none());
    }

    #[test]
    fn a_companion_goes_where_it_may_and_nowhere_else() {
        // In a thread of its own, which stays of its class.
        let ordinary = current();
        let played = std::thread::spawn(move || {
            let Some((thread, affinity)) = make_companion(ordinary) else { return false };
            let itself = ioprio::Target::Process(ioprio::Pid::from_raw(0));
            let class = ioprio::get_priority(itself).unwrap().class();
            assert!(matches!(class, Some(ioprio::Class::BestEffort(_))), "{class:?}");
            assert!(!affinity.go_to(CpuSet::MAX_CPU));
            let allowed = sched_getaffinity(None).unwrap();
            for processor in (0..CpuSet::MAX_CPU).filter(|one| allowed.is_set(*one)) {
                affinity.go_to(processor);
                assert_eq!(thread.processors(), Some(1));
                assert_eq!(rustix::thread::sched_getcpu(), processor);
                assert!(!affinity.go_to(processor), "it is there");
            }
            thread.release();
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
            // Where somebody keeps the mount away from, it does not go.
            let here = (0..CpuSet::MAX_CPU).find(|one| allowed.is_set(*one)).unwrap();
            let mut only = CpuSet::new();
            only.set(here);
            sched_setaffinity(pid(ordinary), &only).unwrap();
            let other = (here + 1..CpuSet::MAX_CPU).find(|one| allowed.is_set(*one)).unwrap();
            assert!(!affinity.go_to(other));
            affinity.leave();
            assert_eq!(thread.processors(), Some(1));
            sched_setaffinity(pid(ordinary), &allowed).unwrap();
            true
        });
        if !played.join().unwrap() {
            crate::not_run::not_run("no companion: one processor, no schedstat, no SCHED_IDLE");
        }
    }
}
