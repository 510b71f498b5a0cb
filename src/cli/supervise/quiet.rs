//! What a command left running: whether it writes at the moment.
//!
//! The kernel counts the bytes that each process writes. As soon as the counts of all of them stand
//! still for a moment, a snapshot is as good as it gets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, getpid, waitpid};

use crate::sys::{self, Dir};

/// So long nobody may write.
const QUIET: Duration = Duration::from_millis(200);
/// So long is waited for that at most.
const PATIENCE: Duration = Duration::from_secs(5);
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

/// Waits until no descendant of this process is left, or none writes.
pub(super) fn wait() -> Leftover {
    let started = Instant::now();
    let mut last = BTreeMap::new();
    let mut quiet_since = started;
    loop {
        while let Ok(Some(_)) = waitpid(None, WaitOptions::NOHANG) {}
        let Some(now) = Dir::open(Path::new("/proc")).ok().map(|proc| written(&proc)) else {
            return Leftover::Nothing;
        };
        if now.is_empty() {
            return Leftover::Nothing;
        }
        let count = now.len();
        if now != last {
            last = now;
            quiet_since = Instant::now();
        } else if quiet_since.elapsed() >= QUIET {
            return Leftover::Quiet(count);
        }
        if started.elapsed() >= PATIENCE {
            return Leftover::Writing(count);
        }
        std::thread::sleep(STEP);
    }
}

/// The bytes that each descendant has written so far.
fn written(proc: &Dir) -> BTreeMap<i32, u64> {
    let mut parents: BTreeMap<i32, i32> = BTreeMap::new();
    for listed in proc.names().unwrap_or_default() {
        let pid = std::str::from_utf8(&listed.name).ok().and_then(|name| name.parse().ok());
        let Some(pid) = pid else { continue };
        let stat = read(pid, "stat");
        if let Some(parent) = parent_of(&stat) {
            parents.insert(pid, parent);
        }
    }
    let mut ours = BTreeSet::from([getpid().as_raw_nonzero().get()]);
    loop {
        let before = ours.len();
        let children = parents.iter().filter(|(_, parent)| ours.contains(parent));
        let children: Vec<i32> = children.map(|(pid, _)| *pid).collect();
        ours.extend(children);
        if ours.len() == before {
            break;
        }
    }
    ours.remove(&getpid().as_raw_nonzero().get());
    let count = |pid: i32| {
        let io = read(pid, "io");
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok());
        // One whose counts are secret is taken for quiet.
        (pid, written.unwrap_or(0))
    };
    ours.into_iter().map(count).collect()
}

/// A file of a process; nothing when it has ended or is not ours.
fn read(pid: i32, name: &str) -> String {
    let path = PathBuf::from(format!("/proc/{pid}/{name}"));
    let bytes = sys::read_kernel_file(&path, MAX_PROC_BYTES).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The parent in a line of `/proc/PID/stat`, unless the process has ended. Its name, in brackets, may
/// hold anything.
fn parent_of(stat: &str) -> Option<i32> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then(|| fields.next()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_of("12 (sh) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of("12 (a) R 1 (b) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of("12 (sh) Z 7 12 12 0"), None);
        assert_eq!(parent_of(""), None);
    }
}
