//! The program beside others: as many threads as allowed, low priority for work that no user
//! waits for, a progress line where a user looks, and an end at Ctrl-C that changes nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{Fixture, finished};
use crate::terminal::{Terminal, eventually};

/// Name and nice value of each thread of a process.
fn threads(pid: u32) -> Vec<(String, i64)> {
    let mut found = Vec::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return found };
    for task in tasks.flatten() {
        // One that has just ended.
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
        let (name, rest) = stat.split_once('(').unwrap().1.rsplit_once(") ").unwrap();
        // Field 19, where the state after the name is field 3.
        let nice = rest.split(' ').nth(16).unwrap().parse().unwrap();
        found.push((name.to_owned(), nice));
    }
    found
}

fn count(pid: u32, prefix: &str) -> usize {
    threads(pid).iter().filter(|(name, _)| name.starts_with(prefix)).count()
}

/// The same in a process that is stopped, where a thread that never ran still has the program's
/// name.
fn assert_workers(pid: u32, prefix: &str, wanted: usize) {
    let (named, nameless) = (count(pid, prefix), count(pid, "nono"));
    assert!((named..=named + nameless - 1).contains(&wanted), "{:?}", threads(pid));
}

fn state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn start(fixture: &Fixture, arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    let mut command = fixture.command(arguments);
    command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Stops the program at a point in the middle of its work, looks, and lets it go on.
fn stopped_at(
    fixture: &Fixture,
    arguments: &[&str],
    variables: &[(&str, &str)],
    point: &str,
    look: impl FnOnce(u32),
) {
    let stop = [&[("NONO_FAIL_POINT", point)], variables].concat();
    let child = start(fixture, arguments, &stop);
    eventually("it does not stop", || state(child.id()) == 'T');
    look(child.id());
    signal(&child, Signal::CONT);
    finished(child.wait_with_output().unwrap()).success();
}

/// Long files, and almost all of each a hole.
fn many_files(fixture: &Fixture) {
    for index in 0..400 {
        let path = fixture.write(&format!("d{}/f{index}", index % 10), format!("{index}"));
        File::options().write(true).open(path).unwrap().set_len(300 << 10).unwrap();
    }
}

fn lock_of_store(fixture: &Fixture) -> File {
    let path = fixture.store().join("objects/.lock");
    fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_command_has_as_many_workers_as_it_is_told() {
    let fixture = Fixture::in_memory();
    many_files(&fixture);
    // Each file passes a point, so that this one is well inside of the capture.
    let capturing = |wanted| move |pid| assert_workers(pid, "capture-", wanted);
    let (file, variable) = ([("NONO_THREADS", "")], [("NONO_THREADS", "5")]);
    stopped_at(&fixture, &["snapshot", "--threads", "3"], &variable, "200:stop", capturing(3));
    let run = ["run", "--rollback", "--no-sandbox", "--", "true"];
    fs::remove_dir_all(fixture.store()).unwrap();
    stopped_at(&fixture, &run, &variable, "200:stop", capturing(5));
    fs::create_dir_all(fixture.path("home/.config/nono")).unwrap();
    let config = fixture.path("home/.config/nono/config.toml");
    fs::write(&config, "[rollback]\nthreads = 4\n").unwrap();
    fs::remove_dir_all(fixture.store()).unwrap();
    stopped_at(&fixture, &["snapshot"], &file, "200:stop", capturing(4));
    // Everything is staged again, with some points for each file.
    for index in 0..10 {
        fs::remove_dir_all(fixture.project().join(format!("d{index}"))).unwrap();
    }
    let restore = ["rollback", "restore", "latest", "--threads", "6"];
    stopped_at(&fixture, &restore, &[], "700:stop", |pid| assert_workers(pid, "restore-", 6));

    let lock = lock_of_store(&fixture);
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let verify = start(&fixture, &["rollback", "verify", "latest", "--threads", "7"], &[]);
    eventually("seven workers", || count(verify.id(), "verify-") == 7);
    flock(&lock, FlockOperation::LockShared).unwrap();
    finished(verify.wait_with_output().unwrap()).success();
    let cleanup =
        start(&fixture, &["rollback", "cleanup", "--all", "--yes", "--threads", "2"], &[]);
    eventually("two workers", || count(cleanup.id(), "cleanup-") == 2);
    drop(lock);
    finished(cleanup.wait_with_output().unwrap()).success();

    let shown = fixture.nono(&["config", "show"]).success().stdout;
    assert!(shown.contains("threads = 4  # file"), "{shown}");
    fs::write(&config, "[rollback]\nthreads = 4000\n").unwrap();
    fixture.nono(&["snapshot"]).fails(2, "threads (file)");
    // Undoing needs no settings.
    fixture.nono(&["snapshot", "--threads", "2"]).success();
    let shown = fixture.nono(&["rollback", "restore", "latest"]).success();
    assert!(shown.stderr.contains("work is done with all cores"), "{}", shown.stderr);
}

#[test]
fn what_goes_on_beside_the_command_has_the_lowest_priority_and_the_command_has_not() {
    let fixture = Fixture::new();
    many_files(&fixture);
    // A checkpoint is held up by the lock of the store while the test looks at the threads.
    let script = format!(
        "cat /proc/self/stat > command.stat; until test -e checkpoint; do sleep 0.05; done; \
         {} snapshot > taken",
        env!("CARGO_BIN_EXE_nono")
    );
    let run = ["run", "--rollback", "--no-sandbox", "--", "sh", "-c", &script];
    let child = start(&fixture, &run, &[]);
    eventually("the command started", || fixture.project().join("command.stat").exists());
    let session = fixture.session();
    eventually("the baseline is durable", || session.join("snapshots/0/manifest.json").exists());
    let lock = lock_of_store(&fixture);
    eventually("the lock is free", || {
        flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    fixture.write("checkpoint", "");
    // For the thread that takes checkpoints; workers that it starts will inherit it.
    let by_nice = |pid| {
        let mut by_nice: BTreeMap<i64, usize> = BTreeMap::new();
        for (_, nice) in threads(pid) {
            *by_nice.entry(nice).or_default() += 1;
        }
        by_nice
    };
    eventually("one thread has the lowest priority", || by_nice(child.id()).get(&19) == Some(&1));
    // However the tests were started.
    let own = threads(std::process::id())[0].1;
    assert!(by_nice(child.id())[&own] >= 1, "the supervisor itself keeps its priority");
    drop(lock);
    let ended = finished(child.wait_with_output().unwrap()).success();
    let stat = fs::read_to_string(fixture.project().join("command.stat")).unwrap();
    let nice = stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().to_owned();
    assert_eq!(nice, own.to_string(), "{stat}");
    assert!(
        fs::read_to_string(fixture.project().join("taken")).unwrap().contains("/1"),
        "{}",
        ended.stderr
    );
}

#[test]
fn that_no_thread_draws_progress_is_in_the_way_of_nothing() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let (program, point) = (env!("CARGO_BIN_EXE_nono"), "NONO_FAIL_POINT=name=progress+:EAGAIN");
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("sh -c '{point} {program} snapshot; echo ended with $?; exec cat'"),
    );
    terminal.wait_for("ended with 0");
    terminal.wait_for("1 file");
}
