//! Threads that play the answering threads, without a mount. No tick ends unless a test wants one,
//! so that what happens is what the threads do to each other.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::*;
use crate::not_run::not_run;

const NEVER: Duration = Duration::from_secs(3600);
/// As a message of another namespace.
const LONG_MESSAGE: u32 = 0;
/// Longer than a thread takes that gets on at all.
const LONG: Duration = Duration::from_secs(60);

/// A thread that answers a message each time it is told to, and says when it could read the next.
struct Answerer {
    messages: Option<Sender<u32>>,
    ready: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Answerer {
    fn of(company: &Arc<Company>) -> Self {
        let (messages, to_answer) = channel();
        let (said, ready) = channel();
        let company = company.clone();
        let thread = std::thread::spawn(move || {
            for asker in to_answer {
                drop(company.turn(asker));
                // The test may have seen enough.
                let _ = said.send(());
            }
        });
        Self { messages: Some(messages), ready, thread }
    }

    /// Has it answer; it may wait afterwards.
    fn begin(&self, asker: u32) {
        self.messages.as_ref().unwrap().send(asker).unwrap();
    }

    /// Waits until it can read the next message.
    fn is_ready(&self) {
        self.ready.recv_timeout(LONG).unwrap();
    }

    fn answer(&self, asker: u32) {
        self.begin(asker);
        self.is_ready();
    }

    fn end(mut self) {
        self.messages.take();
        self.thread.join().unwrap();
    }
}

/// Whether there can be a companion here; notes that the test does not run where not.
fn is_possible() -> bool {
    let possible = thread::is_possible();
    if !possible {
        not_run("no companion: one processor, or no class SCHED_IDLE");
    }
    possible
}

fn company(tick: Duration) -> Arc<Company> {
    let company = Company::new(1, true, Arc::default());
    Arc::new(Company { tick, ..Arc::into_inner(company).unwrap() })
}

/// A thread that only sleeps, as a program that waits for an answer does; ends with the test.
struct Asker {
    id: u32,
    _lives: Sender<()>,
}

impl Asker {
    fn new() -> Self {
        let (lives, until) = channel::<()>();
        let (say, said) = channel();
        std::thread::spawn(move || {
            say.send(thread::current()).unwrap();
            let _ = until.recv();
        });
        Self { id: said.recv().unwrap(), _lives: lives }
    }
}

/// An ordinary thread that stands aside for a companion that is called.
fn called(company: &Arc<Company>, asker: u32) -> (Answerer, Answerer) {
    let ordinary = Answerer::of(company);
    ordinary.answer(asker);
    let companion = Answerer::of(company);
    companion.begin(asker);
    for _ in 2..WORTH {
        ordinary.answer(asker);
    }
    ordinary.begin(asker);
    companion.is_ready();
    assert_eq!(company.asker.load(Ordering::Acquire), asker);
    (ordinary, companion)
}

#[test]
fn a_program_that_asks_on_and_on_gets_the_companion() {
    if !is_possible() {
        return;
    }
    let (company, asker) = (company(NEVER), Asker::new());
    let (ordinary, companion) = called(&company, asker.id);
    for _ in 0..100 {
        companion.answer(asker.id);
    }
    assert_eq!(company.counters.accompanied.get(), 101);
    assert!(company.is_called());
    // Without a companion the others answer.
    companion.end();
    ordinary.is_ready();
    for _ in 0..2 * WORTH {
        ordinary.answer(asker.id);
    }
    assert!(!company.is_called());
    ordinary.end();
}

#[test]
fn another_program_or_a_long_answer_ends_it() {
    if !is_possible() {
        return;
    }
    let asker = Asker::new();
    for other in [1, LONG_MESSAGE] {
        let company = company(NEVER);
        let (ordinary, companion) = called(&company, asker.id);
        companion.begin(other);
        ordinary.is_ready();
        assert!(!company.is_called());
        // The companion waits for a call that does not come.
        ordinary.end();
        companion.is_ready();
        companion.end();
    }
}

#[test]
fn programs_in_turn_and_long_answers_do_not_begin_it() {
    let company = company(NEVER);
    let ordinary = Answerer::of(&company);
    for round in 0..4 * WORTH {
        ordinary.answer(LONG_MESSAGE);
        ordinary.answer(1 + round % 2);
        assert!(!company.is_called());
    }
    ordinary.end();
}

#[test]
fn ordinary_threads_answer_again_when_nobody_asks() {
    let (company, asker) = (company(Duration::from_millis(1)), Asker::new());
    let ordinary = Answerer::of(&company);
    // There never is a second thread here, so each call ends at the first tick.
    for _ in 0..3 * WORTH {
        ordinary.answer(asker.id);
    }
    assert!(!company.is_called());
    assert_eq!(company.counters.accompanied.get(), 0);
    ordinary.end();
}

#[test]
fn a_companion_that_waits_without_end_is_not_left_alone() {
    if !is_possible() {
        return;
    }
    let (company, asker) = (company(NEVER), Asker::new());
    let ordinary = Answerer::of(&company);
    ordinary.answer(asker.id);
    let companion = Answerer::of(&company);
    companion.begin(asker.id);
    ordinary.end();
    companion.is_ready();
    companion.end();
}

#[test]
fn the_companion_stays_on_a_processor_while_it_is_called() {
    if !is_possible() {
        return;
    }
    let (company, asker) = (company(NEVER), Asker::new());
    let (ordinary, companion) = called(&company, asker.id);
    let processors = || match &company.state.lock().companion {
        Companion::Seated(affinity) => affinity.processors(),
        _ => panic!("there is a companion"),
    };
    assert_eq!(processors(), 1);
    companion.begin(LONG_MESSAGE);
    ordinary.is_ready();
    assert!(processors() > 1);
    ordinary.end();
    companion.end();
}

#[test]
fn a_row_ends_when_another_program_asks() {
    let [a, b] = [1, 2].map(|thread| Some(NonZeroU32::new(thread).unwrap()));
    let mut streak = Streak::default();
    (1..WORTH).for_each(|_| assert_eq!(streak.note(a), None));
    assert_eq!(streak.note(a), a);
    assert_eq!(streak.note(b), None);
    (1..WORTH).for_each(|_| assert_eq!(streak.note(a), None));
    assert_eq!(streak.note(None), None);
    assert_eq!(streak.note(a), None);
}

/// The companion answers one message for each tick, as where others want its processor.
#[test]
fn a_companion_that_does_not_get_on_is_not_called_for_a_while() {
    if !is_possible() {
        return;
    }
    let (company, asker) = (company(Duration::from_millis(1)), Asker::new());
    let (ordinary, companion) = (Answerer::of(&company), Answerer::of(&company));
    ordinary.answer(asker.id);
    companion.begin(asker.id);
    for _ in 1..WORTH {
        ordinary.answer(asker.id);
    }
    // It was called, and no message came to it.
    assert!(company.state.lock().again.is_some());
    assert!(!company.is_called());
    // It may have missed the call, which was short. Without an ordinary thread it answers alone.
    ordinary.end();
    companion.is_ready();
    companion.end();
}
