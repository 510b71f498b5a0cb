//! The processes that a command left running, and whether they write at the moment.
//!
//! The kernel counts the bytes that each process writes. As soon as the counts of all of them stand
//! still for a moment, a snapshot is as good as it gets. A process that wants to run and gets no
//! processor is not still, it is held up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, RawPid, WaitOptions, getpid, wait};
#[cfg(target_os = "linux")]
use rustix::process::{PidfdFlags, pidfd_open};

use crate::cli::processes::{Activity, activities, command_line};

/// Period in which no process of the command may write.
const QUIET: Duration = Duration::from_millis(200);
/// Maximum wait for such a period.
pub(in crate::cli) const QUIET_TIMEOUT: Duration = Duration::from_secs(5);
/// A wait that is longer is said.
const SILENT: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(20);
/// So long a keeper that has nothing left to keep may take to end, in seconds.
#[cfg(target_os = "linux")]
const KEEPER_ENDS: i64 = 5;

/// A process that a command left running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Leftover {
    pub(in crate::cli) pid: RawPid,
    /// Its command line, by its own account.
    pub(in crate::cli) command: Vec<u8>,
    /// Whether it wrote as long as it was watched.
    pub(in crate::cli) is_writing: bool,
}

/// Waits until no descendant of this process is left, or none writes, and names those that are
/// left. The keeper is none of them: it ends after the last, and its lock of the temporary files
/// with it, which is awaited. Neither are `helpers`, processes of this program. `say` is called
/// when that takes longer than a moment.
pub(in crate::cli) fn wait_for_quiet(
    keeper: Option<Pid>,
    helpers: &[Pid],
    say: impl FnOnce(),
) -> Vec<Leftover> {
    let started = Instant::now();
    let mut say = Some(say);
    let mut last: BTreeMap<RawPid, Activity> = BTreeMap::new();
    let (mut written_at, mut held_up_at) = (started, started);
    let mut wrote_at: BTreeMap<RawPid, Instant> = BTreeMap::new();
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let mut now = activities(getpid());
        for own in keeper.iter().chain(helpers) {
            now.remove(&own.as_raw_nonzero().get());
        }
        if now.is_empty() {
            if let Some(keeper) = keeper {
                wait_for_end(keeper);
            }
            return Vec::new();
        }
        for (pid, activity) in &now {
            if last.get(pid).is_none_or(|last| last.bytes_written != activity.bytes_written) {
                written_at = Instant::now();
                wrote_at.insert(*pid, written_at);
            }
        }
        if last.keys().any(|pid| !now.contains_key(pid)) {
            written_at = Instant::now();
        }
        let is_held_up = |(pid, now): (&RawPid, &Activity)| {
            let stands = |last: &Activity| last.processor_ticks == now.processor_ticks;
            now.is_busy && last.get(pid).is_some_and(stands)
        };
        if now.iter().any(is_held_up) {
            held_up_at = Instant::now();
        }
        last = now;
        let is_quiet = written_at.max(held_up_at).elapsed() >= QUIET;
        if is_quiet || started.elapsed() >= QUIET_TIMEOUT {
            let left = |pid: &RawPid| Leftover {
                pid: *pid,
                command: command_line(*pid),
                is_writing: wrote_at.get(pid).is_some_and(|at| at.elapsed() < QUIET),
            };
            return last.keys().map(left).collect();
        }
        if started.elapsed() >= SILENT
            && let Some(say) = say.take()
        {
            say();
        }
        std::thread::sleep(STEP);
    }
}

/// Waits for the end of a keeper that has nothing left to keep. Where it cannot be awaited, a later
/// run removes what it has locked.
fn wait_for_end(keeper: Pid) {
    #[cfg(target_os = "linux")]
    if let Ok(end) = pidfd_open(keeper, PidfdFlags::empty()) {
        let limit = Timespec { tv_sec: KEEPER_ENDS, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&limit));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = keeper;
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}
