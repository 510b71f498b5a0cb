//! The answering thread: the companion or an ordinary one. Which of them answers, and when, is the
//! scheduler's business; that all is answered is not.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nono_mount::MountOptions;

use crate::fixture::{Mounted, eventually, mount, mount_with};
use crate::memory::{Memory, dir, file};
use crate::not_run::not_run;

/// Asks for names that are not there: each is a message.
fn ask(mounted: &Mounted, names: std::ops::Range<usize>) {
    for number in names {
        let error = fs::symlink_metadata(mounted.path(format!("0/missing-{number}"))).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
}

#[test]
fn a_program_that_asks_for_one_name_after_the_other_gets_the_companion() {
    let Some(mounted) = mount(&Memory::with([("0", dir([("a", file("a"))]))])) else { return };
    let processors = thread::available_parallelism().unwrap().get();
    if processors < 2 || fs::read("/proc/self/schedstat").is_err() {
        return not_run("no companion on a single processor, or without schedstat");
    }
    let mut idle = Command::new("chrt");
    if !idle.args(["--idle", "0", "true"]).status().is_ok_and(|status| status.success()) {
        return not_run("the kernel gives no thread the class SCHED_IDLE");
    }
    // On a busy machine it is called in vain at first; the test ends when it was called for once.
    let mut asked = 0;
    eventually("the companion answers", || {
        ask(&mounted, asked..asked + 100);
        asked += 100;
        mounted.mount().counts().accompanied > 0
    });
}

#[test]
fn a_mount_without_a_companion_answers_too() {
    let options = MountOptions { companion: false, ..MountOptions::default() };
    let memory = Memory::with([("0", dir([("a", file("a"))]))]);
    let Some(mounted) = mount_with(&memory, options) else { return };
    ask(&mounted, 0..200);
    assert_eq!(mounted.mount().counts().accompanied, 0);
}

#[test]
fn busy_processors_do_not_keep_a_program_waiting() {
    let Some(mounted) = mount(&Memory::with([("0", dir([("a", file("a"))]))])) else { return };
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 * thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // With a companion that got only what the busy threads leave this would not end.
        let asking = scope.spawn(|| ask(&mounted, 0..20_000));
        let patience = Instant::now() + Duration::from_secs(120);
        while !asking.is_finished() && Instant::now() < patience {
            thread::sleep(Duration::from_millis(1));
        }
        let is_answered = asking.is_finished();
        ended.store(true, Ordering::Relaxed);
        assert!(is_answered, "the program waits for the busy threads");
        asking.join().unwrap();
    });
}

#[test]
fn programs_that_ask_at_the_same_time_are_all_answered() {
    let Some(mounted) = mount(&Memory::with([("0", dir([("a", file("a"))]))])) else { return };
    thread::scope(|scope| {
        for asker in 0..8 {
            let mounted = &mounted;
            scope.spawn(move || ask(mounted, asker * 10_000..asker * 10_000 + 1_000));
        }
    });
    assert!(mounted.mount().counts().lookup >= 8_000);
}
