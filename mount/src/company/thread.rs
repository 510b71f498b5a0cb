//! The class of a thread, and the processor on which it runs.

use std::fs::File;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id, thread_schedule_policy,
};

use crate::kernel::mount_table;

/// Where the companion may run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affinity {
    thread: Option<Pid>,
    /// An ordinary thread of the mount. This program never changes where it may run, others may.
    ordinary: Option<Pid>,
}

impl Affinity {
    /// Keeps the companion on a processor, unless it may not go there.
    fn go_to(&self, processor: usize) {
        let Ok(allowed) = sched_getaffinity(self.ordinary) else { return };
        if processor < CpuSet::MAX_CPU && allowed.is_set(processor) {
            let mut only = CpuSet::new();
            only.set(processor);
            // Where that is refused, messages cross processors.
            let _ = sched_setaffinity(self.thread, &only);
        }
    }

    /// Lets the companion run wherever the ordinary thread may.
    pub(super) fn leave(&self) {
        let left = sched_getaffinity(self.ordinary)
            .and_then(|allowed| sched_setaffinity(self.thread, &allowed));
        if let Err(error) = left {
            tracing::debug!(%error, "the companion stays on one processor");
        }
    }

    /// How many processors the companion may run on now.
    #[cfg(test)]
    pub(super) fn processors(&self) -> u32 {
        sched_getaffinity(self.thread).map_or(0, |set| set.count())
    }
}

/// The companion on the way to the program that asks.
pub(super) struct Follow {
    affinity: Affinity,
    program: Option<Program>,
    messages: u32,
}

/// The thread that asks, and its `/proc/ID/stat`. The file stays open, because opening it costs
/// more than reading it.
struct Program(u32, File);

impl Follow {
    /// Messages between two looks at where the program is.
    const LOOK: u32 = 16;

    pub(super) fn new(affinity: Affinity) -> Self {
        Self { affinity, program: None, messages: 0 }
    }

    /// Notes a message of `asker`, and goes after it when it is time to look.
    pub(super) fn note(&mut self, asker: u32) {
        if self.program.as_ref().is_none_or(|program| program.0 != asker) {
            let stat = mount_table::open_of_thread(asker, "stat");
            (self.program, self.messages) = (stat.map(|stat| Program(asker, stat)), 0);
        }
        if self.messages.is_multiple_of(Self::LOOK)
            && let Some(processor) = self.program.as_ref().and_then(Program::last_processor)
        {
            self.affinity.go_to(processor);
        }
        self.messages = self.messages.wrapping_add(1);
    }

    /// Lets the companion run anywhere.
    pub(super) fn leave(&mut self) {
        self.program = None;
        self.affinity.leave();
    }
}

impl Program {
    /// The processor on which it ran last, see proc_pid_stat(5). `None` when it is gone.
    fn last_processor(&self) -> Option<usize> {
        let mut text = [0; 1024];
        let length = rustix::io::pread(&self.1, &mut text, 0).ok()?;
        let text = &text[..length];
        // Fields are counted from the third on, after a name in parentheses.
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let mut fields = text.get(name_end + 2..)?.split(|byte| *byte == b' ');
        std::str::from_utf8(fields.nth(39 - 3)?).ok()?.parse().ok()
    }
}

/// The calling thread.
pub(super) fn current() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

fn pid(thread: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(thread).ok()?)
}

/// Makes the calling thread one of the idle class, which may run where an ordinary one may. `None`
/// where that does nothing, on a single processor, or is refused.
pub(super) fn make_companion(ordinary: u32) -> Option<Affinity> {
    if sched_getaffinity(None).ok()?.count() < 2 {
        return None;
    }
    // The class is also that of what a thread reads from the disk, unless it has a priority there
    // of its own; a program waits for this one.
    let class = ioprio::Class::BestEffort(ioprio::BePriorityLevel::fallback());
    let itself = ioprio::Target::Process(ioprio::Pid::from_raw(0));
    ioprio::set_priority(itself, ioprio::Priority::new(class)).ok()?;
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // It also sets the niceness, which means nothing in this class and may be refused.
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    let affinity = Affinity { thread: pid(current()), ordinary: pid(ordinary) };
    (thread_schedule_policy() == Ok(idle)).then_some(affinity)
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
    fn the_processor_of_a_thread_is_found() {
        let stat = |thread| mount_table::open_of_thread(thread, "stat");
        let thread = Program(current(), stat(current()).unwrap());
        let allowed = sched_getaffinity(None).unwrap();
        assert!(allowed.is_set(thread.last_processor().unwrap()));
        assert!(stat(u32::MAX).is_none());
    }

    #[test]
    fn a_companion_goes_where_it_may_and_nowhere_else() {
        // In a thread of its own, which stays of its class.
        let ordinary = current();
        let played = std::thread::spawn(move || {
            let Some(affinity) = make_companion(ordinary) else { return false };
            let itself = ioprio::Target::Process(ioprio::Pid::from_raw(0));
            let class = ioprio::get_priority(itself).unwrap().class();
            assert!(matches!(class, Some(ioprio::Class::BestEffort(_))), "{class:?}");
            let allowed = sched_getaffinity(None).unwrap();
            affinity.go_to(CpuSet::MAX_CPU);
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
            for processor in (0..CpuSet::MAX_CPU).filter(|one| allowed.is_set(*one)) {
                affinity.go_to(processor);
                assert_eq!(affinity.processors(), 1);
                assert_eq!(rustix::thread::sched_getcpu(), processor);
            }
            affinity.leave();
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
            // It does not go where the mount may not run.
            let here = (0..CpuSet::MAX_CPU).find(|one| allowed.is_set(*one)).unwrap();
            let mut only = CpuSet::new();
            only.set(here);
            sched_setaffinity(pid(ordinary), &only).unwrap();
            let other = (here + 1..CpuSet::MAX_CPU).find(|one| allowed.is_set(*one)).unwrap();
            affinity.go_to(other);
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
            affinity.leave();
            assert_eq!(affinity.processors(), 1);
            sched_setaffinity(pid(ordinary), &allowed).unwrap();
            true
        });
        if !played.join().unwrap() {
            crate::not_run::not_run("no companion: one processor, or no SCHED_IDLE");
        }
    }
}
