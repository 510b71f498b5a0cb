//! What a command left running: whether it writes at the moment.
//!
//! The kernel counts the bytes that each process writes. As soon as the counts of all of them stand
//! still for a moment, a snapshot is as good as it gets. A process that wants to run and gets no
//! processor is not still, it is held up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, getpid, waitpid};

use crate::sys::{self, Dir};

/// So long nobody may write.
const QUIET: Duration = Duration::from_millis(200);
/// So long is waited for that at most.
pub(in crate::cli) const PATIENCE: Duration = Duration::from_secs(5);
/// A wait that is longer is said.
const SILENT: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(20);
/// Longer files of `/proc` are not these.
const MAX_PROC_BYTES: u64 = 1 << 16;

/// What a command left running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Leftover {
    /// Nothing.
    Nothing,
    /// So many processes, which did not write when it was looked.
    Quiet(usize),
    /// So many processes, which wrote all the time.
    Writing(usize),
}

/// What a process has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Activity {
    bytes_written: u64,
    processor_ticks: u64,
    /// Whether it runs, or waits for a processor or a disk.
    is_busy: bool,
}

/// Waits until no descendant of this process is left, or none writes. `say` is called when
/// that takes longer than a moment.
pub(in crate::cli) fn wait_for_quiet(say: impl FnOnce()) -> Leftover {
    let started = Instant::now();
    let mut say = Some(say);
    let mut last: BTreeMap<i32, Activity> = BTreeMap::new();
    let (mut written_at, mut held_up_at) = (started, started);
    loop {
        while let Ok(Some(_)) = waitpid(None, WaitOptions::NOHANG) {}
        let Some(now) = Dir::open(Path::new("/proc")).ok().map(|proc| activities(&proc)) else {
            return Leftover::Nothing;
        };
        if now.is_empty() {
            return Leftover::Nothing;
        }
        let count = now.len();
        let wrote = |(pid, now): (&i32, &Activity)| {
            last.get(pid).is_none_or(|last| last.bytes_written != now.bytes_written)
        };
        if now.iter().any(wrote) || last.keys().any(|pid| !now.contains_key(pid)) {
            written_at = Instant::now();
        }
        let is_held_up = |(pid, now): (&i32, &Activity)| {
            let stands = |last: &Activity| last.processor_ticks == now.processor_ticks;
            now.is_busy && last.get(pid).is_some_and(stands)
        };
        if now.iter().any(is_held_up) {
            held_up_at = Instant::now();
        }
        last = now;
        if written_at.max(held_up_at).elapsed() >= QUIET {
            return Leftover::Quiet(count);
        }
        if started.elapsed() >= PATIENCE {
            let is_quiet = written_at.elapsed() >= QUIET;
            return if is_quiet { Leftover::Quiet(count) } else { Leftover::Writing(count) };
        }
        if started.elapsed() >= SILENT
            && let Some(say) = say.take()
        {
            say();
        }
        std::thread::sleep(STEP);
    }
}

/// What each descendant has done so far.
fn activities(proc: &Dir) -> BTreeMap<i32, Activity> {
    let mut processes: BTreeMap<i32, Process> = BTreeMap::new();
    for listed in proc.names().unwrap_or_default() {
        let pid = std::str::from_utf8(&listed.name).ok().and_then(|name| name.parse().ok());
        let Some(pid) = pid else { continue };
        if let Some(process) = Process::parse(&read(pid, "stat")) {
            processes.insert(pid, process);
        }
    }
    let own = getpid().as_raw_nonzero().get();
    let mut ours = BTreeSet::from([own]);
    loop {
        let before = ours.len();
        let children = processes.iter().filter(|(_, process)| ours.contains(&process.parent));
        let children: Vec<i32> = children.map(|(pid, _)| *pid).collect();
        ours.extend(children);
        if ours.len() == before {
            break;
        }
    }
    ours.remove(&own);
    let activity = |(pid, process): (&i32, &Process)| {
        let io = read(*pid, "io");
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok());
        let Process { processor_ticks, is_busy, .. } = *process;
        // One whose counts are secret is taken for one that does not write.
        (*pid, Activity { bytes_written: written.unwrap_or(0), processor_ticks, is_busy })
    };
    processes.iter().filter(|(pid, _)| ours.contains(pid)).map(activity).collect()
}

/// A file of a process; nothing when it has ended or is not ours.
fn read(pid: i32, name: &str) -> String {
    let path = PathBuf::from(format!("/proc/{pid}/{name}"));
    let bytes = sys::read_kernel_file(&path, MAX_PROC_BYTES).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A line of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    parent: i32,
    processor_ticks: u64,
    is_busy: bool,
}

impl Process {
    /// `None` for one that has ended. Its name, in brackets, may hold anything.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?;
        if matches!(state, "Z" | "X") {
            return None;
        }
        let parent = fields.next()?.parse().ok()?;
        // As proc(5) counts, the state is field 3, and user and system time are 14 and 15.
        let mut times = fields.skip(9).map(|field| field.parse::<u64>().ok());
        let processor_ticks = times.next()?? + times.next()??;
        Some(Self { parent, processor_ticks, is_busy: matches!(state, "R" | "D") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_behind_any_name() {
        let rest = "7 12 12 0 -1 4194304 100 0 0 0 3 2 0 0 20 0 1 0 5";
        let of = |parent, is_busy| Some(Process { parent, processor_ticks: 5, is_busy });
        assert_eq!(Process::parse(&format!("12 (sh) S {rest}")), of(7, false));
        assert_eq!(Process::parse(&format!("12 (a) S 1 (b) R {rest}")), of(7, true));
        assert_eq!(Process::parse(&format!("12 (sh) D {rest}")), of(7, true));
        assert_eq!(Process::parse(&format!("12 (sh) Z {rest}")), None);
        assert_eq!(Process::parse("12 (sh) S 7"), None);
        assert_eq!(Process::parse(""), None);
    }
}
