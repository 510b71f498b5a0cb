//! What the kernel says of a thread, and where it lets it run.

use std::fs::File;
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id, thread_schedule_policy,
};

use crate::sys;

/// A thread of this or another process. Its files stay open, because opening costs more than reading.
pub(super) struct Thread {
    id: u32,
    /// `/proc/ID/stat`, see proc_pid_stat(5).
    stat: File,
    /// `/proc/ID/schedstat`, of the companion.
    schedstat: Option<File>,
    /// Where it may run, of the companion.
    allowed: Option<CpuSet>,
}

impl Thread {
    /// `None` when it is gone, or hidden.
    pub(super) fn named(id: u32) -> Option<Self> {
        let stat = sys::open_of_thread(id, "stat")?;
        Some(Self { id, stat, schedstat: None, allowed: None })
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

    /// How long it was ready to run and did not, up to when it ran last. `None` where the kernel does
    /// not say.
    pub(super) fn waited(&self) -> Option<Duration> {
        let text = contents(self.schedstat.as_ref()?)?;
        // Nanoseconds on a processor, nanoseconds of waiting for one, turns on one:
        // Documentation/scheduler/sched-stats.rst of Linux.
        number(text.split(|byte| *byte == b' ').nth(1)?).map(Duration::from_nanos)
    }

    /// Lets it run where it was allowed to.
    pub(super) fn release(&self) {
        let Some(allowed) = &self.allowed else { return };
        let id = i32::try_from(self.id).ok().and_then(Pid::from_raw);
        if let Err(error) = sched_setaffinity(id, allowed) {
            tracing::debug!(%error, "the companion stays on one processor");
        }
    }

    /// How many processors it may run on now.
    #[cfg(test)]
    pub(super) fn processors(&self) -> Option<u32> {
        let id = Pid::from_raw(i32::try_from(self.id).ok()?);
        sched_getaffinity(id).ok().map(|set| set.count())
    }

    /// A field of `stat` after the second, which is a name in parentheses.
    fn stat_field(&self, number: usize) -> Option<Vec<u8>> {
        let text = contents(&self.stat)?;
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let mut fields = text.get(name_end + 2..)?.split(|byte| *byte == b' ');
        Some(fields.nth(number - 3)?.to_vec())
    }
}

/// Where the calling thread, the companion, runs.
pub(super) struct Affinity {
    allowed: CpuSet,
}

impl Affinity {
    /// Keeps the calling thread on a processor, if it may run there. False when it is there already.
    pub(super) fn go_to(&self, processor: usize) -> bool {
        if processor >= CpuSet::MAX_CPU || !self.allowed.is_set(processor) {
            return false;
        }
        let mut only = CpuSet::new();
        only.set(processor);
        let is_there = sched_getaffinity(None).is_ok_and(|now| now == only);
        !is_there && sched_setaffinity(None, &only).is_ok()
    }
}

/// Makes the calling thread one of the idle class. `None` where that does nothing: a single
/// processor, or a kernel that does not say how threads fare.
pub(super) fn make_companion() -> Option<(Thread, Affinity)> {
    let allowed = sched_getaffinity(None).ok()?;
    let id = gettid().as_raw_nonzero().get().unsigned_abs();
    let schedstat = sys::open_of_thread(id, "schedstat");
    let thread = Thread { schedstat, allowed: Some(allowed), ..Thread::named(id)? };
    if allowed.count() < 2 || thread.waited().is_none() {
        return None;
    }
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // It also sets the niceness, which means nothing in this class and may be refused.
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    (thread_schedule_policy() == Ok(idle)).then_some((thread, Affinity { allowed }))
}

fn contents(file: &File) -> Option<Vec<u8>> {
    let mut text = [0; 1024];
    let length = rustix::io::pread(file, &mut text, 0).ok()?;
    Some(text[..length].to_vec())
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_and_the_processor_of_a_thread_are_found() {
        let id = gettid().as_raw_nonzero().get().unsigned_abs();
        let thread = Thread::named(id).unwrap();
        let allowed = sched_getaffinity(None).unwrap();
        assert!(allowed.is_set(thread.last_processor().unwrap()));
        assert!(thread.is_ready(), "it runs");
        assert!(Thread::named(u32::MAX).is_none());
    }

    #[test]
    fn a_companion_goes_where_it_may_and_nowhere_else() {
        let Some((thread, affinity)) = make_companion() else {
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1, "the kernel has no schedstat");
            return;
        };
        assert!(thread.waited().is_some());
        assert!(!affinity.go_to(CpuSet::MAX_CPU));
        for processor in (0..CpuSet::MAX_CPU).filter(|one| affinity.allowed.is_set(*one)) {
            affinity.go_to(processor);
            assert_eq!(thread.processors(), Some(1));
            assert_eq!(rustix::thread::sched_getcpu(), processor);
            assert!(!affinity.go_to(processor), "it is there");
        }
        thread.release();
        assert_eq!(sched_getaffinity(None).unwrap(), affinity.allowed);
    }
}
