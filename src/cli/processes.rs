//! Processes, as `/proc` shows them: their descent, and their work.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, RawPid};

use nono_engine::sys::{self, Dir};

/// Longer files of `/proc` are cut.
const MAX_PROC_BYTES: u64 = 1 << 16;
/// More mounts than this in bytes are no machine's.
#[cfg(feature = "mount")]
const MAX_TABLE_BYTES: u64 = 1 << 26;

/// The work of a process so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Activity {
    pub(super) bytes_written: u64,
    pub(super) processor_ticks: u64,
    /// Whether it runs, or waits for a processor or a disk.
    pub(super) is_busy: bool,
}

/// The work of each descendant of a process so far. Empty where there is no `/proc`.
pub(super) fn activities(ancestor: Pid) -> BTreeMap<RawPid, Activity> {
    let processes = processes();
    let activity = |pid: RawPid| {
        let Process { processor_ticks, is_busy, .. } = *processes.get(&pid)?;
        let io = read(pid, "io");
        let io = String::from_utf8_lossy(&io);
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok());
        // One whose counts are secret is taken for one that does not write.
        let bytes_written = written.unwrap_or(0);
        Some((pid, Activity { bytes_written, processor_ticks, is_busy }))
    };
    below(ancestor, &processes).into_iter().filter_map(activity).collect()
}

/// The descendants of a process.
pub(super) fn descendants(ancestor: Pid) -> Vec<Pid> {
    below(ancestor, &processes()).into_iter().filter_map(Pid::from_raw).collect()
}

/// The command of a process, as it says itself: its arguments, or its name if it has none.
pub(super) fn command_line(pid: RawPid) -> Vec<u8> {
    let mut line = read(pid, "cmdline");
    while line.last() == Some(&0) {
        line.pop();
    }
    if line.is_empty() {
        line = read(pid, "comm");
        line.pop();
    }
    line.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    line
}

/// Whether a process is about to be gone: the kernel has begun to end it, or it is no more. It does
/// nothing from then on, and its command line is empty.
#[cfg(feature = "mount")]
pub(super) fn is_ending(pid: RawPid) -> bool {
    Process::parse(&String::from_utf8_lossy(&read(pid, "stat"))).is_none_or(|it| it.is_ending)
}

/// The words of a process's command line.
#[cfg(feature = "mount")]
pub(super) fn words(pid: RawPid) -> Vec<Vec<u8>> {
    read(pid, "cmdline").split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

/// Processes of other mount namespaces in which something of this name is mounted: the first column
/// of the table of mounts.
#[cfg(feature = "mount")]
pub(super) fn that_see(mounted: &str) -> Vec<RawPid> {
    let namespace =
        |pid: RawPid| rustix::fs::readlink(format!("/proc/{pid}/ns/mnt"), Vec::new()).ok();
    let own = rustix::fs::readlink("/proc/self/ns/mnt", Vec::new()).ok();
    // Many processes share one, and a table is long.
    let mut known: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
    let mut found = Vec::new();
    for pid in processes().into_keys() {
        let Some(theirs) = namespace(pid).filter(|it| Some(it) != own.as_ref()) else { continue };
        let sees = *known.entry(theirs.into_bytes()).or_insert_with(|| {
            let table = sys::read_kernel_file(
                &PathBuf::from(format!("/proc/{pid}/mountinfo")),
                MAX_TABLE_BYTES,
            );
            let table = table.unwrap_or_default();
            table.windows(mounted.len()).any(|part| part == mounted.as_bytes())
        });
        if sees {
            found.push(pid);
        }
    }
    found
}

fn processes() -> BTreeMap<RawPid, Process> {
    let names = Dir::open(Path::new("/proc")).and_then(|proc| proc.names()).unwrap_or_default();
    let process = |name: &[u8]| {
        let pid = std::str::from_utf8(name).ok()?.parse().ok()?;
        Some((pid, Process::parse(&String::from_utf8_lossy(&read(pid, "stat")))?))
    };
    names.iter().filter_map(|listed| process(&listed.name)).collect()
}

fn below(ancestor: Pid, processes: &BTreeMap<RawPid, Process>) -> BTreeSet<RawPid> {
    let ancestor = ancestor.as_raw_nonzero().get();
    let mut found = BTreeSet::from([ancestor]);
    loop {
        let before = found.len();
        let children = processes.iter().filter(|(_, process)| found.contains(&process.parent));
        let children: Vec<RawPid> = children.map(|(pid, _)| *pid).collect();
        found.extend(children);
        if found.len() == before {
            break;
        }
    }
    found.remove(&ancestor);
    found
}

/// A file of a process; nothing when it has ended or is not ours.
fn read(pid: RawPid, name: &str) -> Vec<u8> {
    let path = PathBuf::from(format!("/proc/{pid}/{name}"));
    sys::read_kernel_file(&path, MAX_PROC_BYTES).unwrap_or_default()
}

/// A line of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    parent: RawPid,
    processor_ticks: u64,
    is_busy: bool,
    /// Whether the kernel has begun to end it.
    is_ending: bool,
}

/// The flag of a process that ends: PF_EXITING of `include/linux/sched.h`.
const ENDING: u32 = 0x4;

impl Process {
    /// `None` for one that has ended. Its name, in brackets, may hold anything.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?;
        if matches!(state, "Z" | "X") {
            return None;
        }
        let parent = fields.next()?.parse().ok()?;
        // As proc(5) counts, the state is field 3, the flags are 9, and user and system time 14 and
        // 15.
        let flags: u32 = fields.nth(4)?.parse().ok()?;
        let mut times = fields.skip(4).map(|field| field.parse::<u64>().ok());
        let processor_ticks = times.next()?? + times.next()??;
        let is_busy = matches!(state, "R" | "D");
        Some(Self { parent, processor_ticks, is_busy, is_ending: flags & ENDING != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_behind_any_name() {
        let rest = "7 12 12 0 -1 4194304 100 0 0 0 3 2 0 0 20 0 1 0 5";
        let of = |parent, is_busy| {
            Some(Process { parent, processor_ticks: 5, is_busy, is_ending: false })
        };
        assert_eq!(Process::parse(&format!("12 (sh) S {rest}")), of(7, false));
        assert_eq!(Process::parse(&format!("12 (a) S 1 (b) R {rest}")), of(7, true));
        assert_eq!(Process::parse(&format!("12 (sh) D {rest}")), of(7, true));
        // As a process is seen whose memory is gone: its command line is empty.
        let ending = "7 12 12 0 -1 4194308 100 0 0 0 3 2 0 0 20 0 1 0 5";
        assert!(Process::parse(&format!("12 (nono) R {ending}")).unwrap().is_ending);
        assert_eq!(Process::parse(&format!("12 (sh) Z {rest}")), None);
        assert_eq!(Process::parse("12 (sh) S 7"), None);
        assert_eq!(Process::parse(""), None);
    }
}
