//! The progress of work that a form began, for the page with the form.
//!
//! The page listens under a name of its own before the form goes out with that name; either may
//! reach the server first. A page without a script sends no name, and nothing is told.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use nono_engine::progress::{Amount, Progress, Stage};

/// Works that are remembered: more pages do not work at the same time.
const MAX_WORKS: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// A longer name is none of a page of this server.
const MAX_NAME_BYTES: usize = 64;
/// Time between two reports of a stage.
const INTERVAL: Duration = Duration::from_millis(100);

/// The state of a work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct State {
    /// In words; empty before the begin.
    stage: &'static str,
    /// Files, directories and links of this stage that are done.
    done: u64,
    /// The number of them, where it is known.
    expected: Option<u64>,
}

/// The works by their names.
pub(super) struct Works(Mutex<LruCache<String, watch::Sender<State>>>);

impl Works {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(MAX_WORKS)))
    }

    /// The states of a work from now on.
    pub(super) fn listen(&self, name: &str) -> watch::Receiver<State> {
        self.named(name).subscribe()
    }

    /// The progress of a work that begins.
    pub(super) fn begin(&self, name: &str) -> Arc<dyn Progress + Send> {
        Arc::new(Counted {
            told: self.named(name),
            stage: Mutex::new(State::default()),
            before: AtomicU64::new(0),
            done: AtomicU64::new(0),
            last: Mutex::new(Instant::now()),
        })
    }

    fn named(&self, name: &str) -> watch::Sender<State> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return watch::Sender::default();
        }
        let mut known = self.0.lock();
        known.get_or_insert(name.to_owned(), watch::Sender::default).clone()
    }
}

/// Counts what is done, and tells it from time to time.
struct Counted {
    told: watch::Sender<State>,
    stage: Mutex<State>,
    /// Done before the stage.
    before: AtomicU64,
    done: AtomicU64,
    last: Mutex<Instant>,
}

impl Counted {
    fn tell(&self) {
        let done = self.done.load(Relaxed).saturating_sub(self.before.load(Relaxed));
        self.told.send_replace(State { done, ..*self.stage.lock() });
    }
}

impl Progress for Counted {
    fn advance(&self, entries: u64, _bytes: u64) {
        self.done.fetch_add(entries, Relaxed);
        // Another thread that tells it just now is enough.
        if let Some(mut last) = self.last.try_lock()
            && last.elapsed() >= INTERVAL
        {
            *last = Instant::now();
            self.tell();
        }
    }

    fn begin(&self, stage: Stage, expected: Option<Amount>) {
        let expected = expected.map(|amount| amount.entries);
        self.before.store(self.done.load(Relaxed), Relaxed);
        *self.stage.lock() = State { stage: words(stage), done: 0, expected };
        self.tell();
    }
}

/// A stage of an undo as a person reads it.
fn words(stage: Stage) -> &'static str {
    match stage {
        Stage::Capture => "recording what is there now",
        Stage::Flush => "writing to the disk",
        Stage::Compare => "comparing with the record",
        Stage::Stage => "preparing files",
        Stage::Commit => "putting files in place",
        Stage::Wait => "waiting for another command",
        _ => "working",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_hears_of_the_work_of_its_name_alone_and_a_name_is_bounded() {
        let works = Works::new();
        let (mine, other) = (works.listen("mine"), works.listen("other"));
        let progress = works.begin("mine");
        progress.begin(Stage::Commit, Some(Amount { entries: 7, bytes: 0 }));
        let state = State { stage: "putting files in place", done: 0, expected: Some(7) };
        assert_eq!(*mine.borrow(), state);
        assert_eq!(*other.borrow(), State::default());
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for name in ["", &long] {
            let listener = works.listen(name);
            works.begin(name).begin(Stage::Flush, None);
            assert_eq!(*listener.borrow(), State::default(), "{name}");
        }
        (0..1_000).for_each(|number| drop(works.listen(&number.to_string())));
        assert_eq!(works.0.lock().len(), MAX_WORKS.get());
    }

    #[test]
    fn a_stage_counts_what_is_done_in_it() {
        let works = Works::new();
        let mine = works.listen("mine");
        let progress = works.begin("mine");
        progress.begin(Stage::Stage, None);
        progress.advance(5, 0);
        progress.begin(Stage::Commit, Some(Amount { entries: 9, bytes: 0 }));
        progress.advance(2, 0);
        progress.begin(Stage::Flush, None);
        assert_eq!(mine.borrow().done, 0);
        assert_eq!(mine.borrow().stage, "writing to the disk");
    }
}
