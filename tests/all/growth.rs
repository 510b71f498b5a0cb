//! The cost of a command as a store grows, counted and not timed: its calls that read, and the
//! bytes they read, as the kernel counts them for a process. `scripts/bench` has the times.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use serde_json::json;

use crate::chunks::stored_bytes;
use crate::fixture::Fixture;
use crate::hooks::{Agent, steps};

/// Sizes, each twice the one before. A proportional cost then grows by twice as much from the
/// second to the third as from the first to the second, and a quadratic cost by four times.
const SIZES: [usize; 3] = [8, 16, 32];

/// The reads of a process.
#[derive(Debug, Clone, Copy)]
struct Reads {
    calls: i64,
    bytes: i64,
}

impl Reads {
    fn of(pid: u32) -> Self {
        let counted = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        let field = |name: &str| {
            let mut lines = counted.lines();
            lines.find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
        };
        Self { calls: field("syscr:"), bytes: field("rchar:") }
    }

    /// The reads of a command that succeeds.
    fn during(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // It is over and can still be asked.
        let over = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), over).unwrap();
        let reads = Self::of(child.id());
        assert!(child.wait().unwrap().success(), "{command:?}");
        reads
    }
}

/// One session that gets more snapshots, each with another change.
struct Growing {
    fixture: Fixture,
    session: String,
    snapshots: usize,
}

impl Growing {
    fn new() -> Self {
        // On a disk: files in memory are read each time.
        let fixture = Fixture::new();
        for index in 0..200 {
            fixture.write(&format!("dir{}/file{index}", index % 10), index.to_string());
        }
        let made = fixture.nono(&["snapshot", "--json", "."]).success().json();
        let session = made["session_id"].as_str().unwrap().to_owned();
        Self { fixture, session, snapshots: 1 }
    }

    fn grow_to(&mut self, size: usize) {
        while self.snapshots < size {
            self.fixture.write("dir3/file3", format!("version {}", self.snapshots));
            self.take();
        }
    }

    fn take(&mut self) {
        self.fixture.nono(&["snapshot", "--session", &self.session]).success();
        self.snapshots += 1;
    }

    fn reads(&self, arguments: &[&str]) -> Reads {
        Reads::during(self.fixture.command(arguments))
    }
}

/// Calls and bytes at each size.
fn measured(measure: impl Fn(&mut Growing) -> Reads) -> [Reads; 3] {
    let mut growing = Growing::new();
    SIZES.map(|size| {
        growing.grow_to(size);
        measure(&mut growing)
    })
}

/// The difference from run to run: the kernel hands out a short read here and there.
const NOISE: i64 = 8;

#[track_caller]
fn assert_at_most_in_proportion(numbers: [i64; 3]) {
    let [first, second, third] = numbers;
    let (once, twice) = (second - first, third - second);
    // A quarter more for numbers and lengths that get more digits; with the square it were twice as
    // much.
    assert!(twice <= once * 5 / 2 + NOISE, "{numbers:?}");
}

#[track_caller]
fn assert_constant(numbers: [i64; 3]) {
    assert!(numbers[2] - numbers[0] <= NOISE, "{numbers:?}");
}

#[test]
fn a_list_reads_as_many_files_however_many_snapshots_there_are() {
    let reads = measured(|growing| growing.reads(&["rollback", "list"]));
    assert_constant(reads.map(|reads| reads.calls));
    // A session's manifest names all its snapshots.
    assert_at_most_in_proportion(reads.map(|reads| reads.bytes));
}

#[test]
fn a_snapshot_of_an_unchanged_tree_reads_as_many_files_however_many_came_before() {
    let reads = measured(|growing| {
        // A file that is as new as the cache is hashed again, once.
        growing.take();
        growing.snapshots += 1;
        growing.reads(&["snapshot", "--session", &growing.session])
    });
    assert_constant(reads.map(|reads| reads.calls));
    assert_at_most_in_proportion(reads.map(|reads| reads.bytes));
}

#[test]
fn a_snapshot_of_an_unchanged_tree_reads_as_much_however_many_files_are_in_its_directories() {
    let mut growing = Growing::new();
    let calls = [100, 200, 400].map(|more| {
        for index in 0..more {
            growing.fixture.write(&format!("dir{}/{more}-{index}", index % 10), "new");
        }
        growing.take();
        growing.take();
        growing.snapshots += 1;
        growing.reads(&["snapshot", "--session", &growing.session]).calls
    });
    assert_constant(calls);
}

#[test]
fn comparing_two_snapshots_reads_as_much_however_many_there_are() {
    let reads = measured(|growing| {
        let [old, new] = [0, 1].map(|number| format!("{}/{number}", growing.session));
        growing.reads(&["rollback", "diff", &old, &new])
    });
    assert_constant(reads.map(|reads| reads.calls));
}

#[test]
fn what_looks_at_every_snapshot_reads_in_proportion_to_their_number() {
    let commands: [fn(&mut Growing) -> Reads; 4] = [
        |growing| growing.reads(&["rollback", "show", &growing.session]),
        |growing| growing.reads(&["rollback", "verify", "--all"]),
        |growing| growing.reads(&["rollback", "restore", "--dry-run", &growing.session]),
        |growing| {
            let copy = growing.fixture.path(&format!("copy{}", growing.snapshots));
            let mut copying = Command::new("cp");
            copying.arg("-a").arg(growing.fixture.store()).arg(&copy);
            assert!(copying.status().unwrap().success());
            let copy = copy.to_str().unwrap();
            growing.reads(&["rollback", "cleanup", "--root", copy, "--all", "--yes"])
        },
    ];
    for command in commands {
        let reads = measured(command);
        assert_at_most_in_proportion(reads.map(|reads| reads.calls));
        assert_at_most_in_proportion(reads.map(|reads| reads.bytes));
    }
}

#[test]
fn a_mount_is_ready_after_as_many_reads_however_many_snapshots_there_are() {
    let tried = Fixture::new();
    tried.nono(&["snapshot", "."]).success();
    fs::create_dir(tried.path("mnt")).unwrap();
    let Some(mount) = crate::mount::mount(&tried.store(), &tried.path("mnt")) else { return };
    drop(mount);
    let reads = measured(|growing| {
        let point = growing.fixture.path("mnt");
        let arguments = ["mount", "--foreground", "--json", point.to_str().unwrap()];
        let mut command = growing.fixture.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // It says so when it is ready.
        let mut said = Vec::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_until(b'}', &mut said).unwrap();
        assert!(!said.is_empty());
        let reads = Reads::of(child.id());
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
        reads
    });
    let [first, _, third] = reads.map(|reads| reads.calls);
    // It reads the table of mounts three times, and a few reads more each time while other tests
    // mount. One read for each snapshot would be more than that.
    const MORE_MOUNTS: i64 = 2 * NOISE;
    const { assert!(MORE_MOUNTS < (SIZES[2] - SIZES[0]) as i64) };
    assert!(third - first <= MORE_MOUNTS, "{first} {third}");
}

#[test]
fn a_store_grows_by_what_the_steps_of_an_agent_changed_however_many_came_before() {
    let fixture = Fixture::in_memory();
    for index in 0..2000 {
        fixture.write(&format!("dir{}/file{index}", index % 40), index.to_string());
    }
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("many small edits");
    let mut taken = 0;
    let bytes = [20, 40, 80].map(|count| {
        while taken < count {
            taken += 1;
            agent.shell(&format!("echo {taken} >> dir3/file3"));
        }
        assert_eq!(steps(&fixture).len(), count);
        stored_bytes(&fixture.store()) as i64
    });
    // A step adds a manifest, the changed file and the directories above it, and not the names of
    // all 2,000 files.
    let a_step = (bytes[2] - bytes[1]) / 40;
    assert!(a_step <= 8 << 10, "{a_step} bytes a step: {bytes:?}");
    assert_at_most_in_proportion(bytes);
}
