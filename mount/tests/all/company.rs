//! Who answers: the companion or an ordinary thread. Which of them does, and when, is the
//! scheduler's business; that all is answered is not.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nono_mount::MountOptions;

use crate::fixture::{Mounted, mount, mount_with};
use crate::memory::{Memory, dir, file};

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
        eprintln!("DID NOT RUN: there is no companion on a single processor, or without schedstat");
        return;
    }
    // On a busy machine it is called in vain at first; the test ends when it was called for once.
    let mut asked = 0;
    while mounted.mount().counts().accompanied == 0 {
        ask(&mounted, asked..asked + 100);
        asked += 100;
    }
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
        let asked = asking.join();
        ended.store(true, Ordering::Relaxed);
        asked.unwrap();
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
