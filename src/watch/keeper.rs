//! The thread that waits: for events, questions, signals and the end of a capture.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::history::WatchHistory;
use super::quiet::Quiet;
use nono_engine::diff::ChangeSummary;
use nono_engine::path_text::Shown;
use nono_engine::progress::Progress;
use nono_engine::session::{AtWork, RecordError, RecordRequest, at_work};
use nono_engine::snapshot::{SnapshotError, SnapshotManager, SnapshotManifest, Taken};
use nono_engine::sys;
use nono_engine::watch::{
    NameWatch, Question, Reply, Seen, TreeWatch, WatchError, WatchFacts, WatchLock, WatchPlace,
    read_question,
};

/// Maximum time of each step of a conversation with a client.
const PATIENCE: Duration = Duration::from_millis(500);
/// Longest question in bytes.
const MAX_QUESTION_BYTES: u64 = 1 << 12;
/// After this time a look shows whether the others are still at work: a killed command gives no
/// sign of its end.
const RECHECK: Duration = Duration::from_secs(30);
/// After a failure a step is tried again.
const RETRY: Duration = Duration::from_secs(30);
/// Most programs that a step names.
const MAX_PROGRAMS: usize = 8;
/// Where events may be missing, whole walks take at most one part in so many of the time.
const WALK_SHARE: u32 = 50;

/// Why a watcher cannot begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatcherError {
    /// Another process watches this path.
    #[error("{path} is watched already")]
    WatchedAlready {
        /// The path, as it is shown.
        path: String,
    },
    /// The tree cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// Nothing can be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The session cannot be ended.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A call of the system failed.
    #[error("cannot watch: {0}")]
    Io(#[from] std::io::Error),
}

impl From<sys::Error> for WatcherError {
    fn from(error: sys::Error) -> Self {
        Self::Watch(error.into())
    }
}

/// The subject of a watcher.
#[derive(Debug, Clone)]
pub struct WatchRequest {
    /// The paths and the store. The tracked paths are real.
    pub record: RecordRequest,
    /// The highest number of watches for each tracked path.
    pub max_watches: usize,
}

/// Something that a person may want to know.
#[derive(Debug)]
pub enum Happening {
    /// A step was taken.
    Recorded {
        /// Its session.
        session_id: String,
        /// Its number.
        number: u64,
        /// The changes.
        changes: ChangeSummary,
    },
    /// Events were lost, and everything is looked at.
    Lost(String),
    /// A step waits for this.
    Waits(AtWork),
    /// A step could not be taken.
    Failed(String),
}

enum Message {
    /// The watcher shall end.
    Stop,
    /// A capture has ended.
    Done(Result<Box<Done>, String>, Duration),
}

struct Done {
    session_id: String,
    manager: SnapshotManager,
    manifest: SnapshotManifest,
    /// The changes; none where nothing changed.
    changes: Option<ChangeSummary>,
}

/// Ends a watcher from another thread.
#[derive(Debug, Clone)]
pub struct Stopper {
    sender: mpsc::Sender<Message>,
    wake: Arc<UnixStream>,
    cancelled: Arc<Cancelled>,
}

impl Stopper {
    /// The watcher takes a last step and ends. Asked once more, it gives up the step.
    pub fn stop(&self) {
        if self.cancelled.asked.swap(true, Relaxed) {
            self.cancelled.given_up.store(true, Relaxed);
        }
        self.send(Message::Stop);
    }

    fn send(&self, message: Message) {
        // Without a receiver the watcher has ended.
        let _ = self.sender.send(message);
        let _ = (&*self.wake).write(&[1]);
    }
}

#[derive(Debug, Default)]
struct Cancelled {
    asked: AtomicBool,
    given_up: AtomicBool,
}

impl Progress for Cancelled {
    fn advance(&self, _entries: u64, _bytes: u64) {}

    fn is_cancelled(&self) -> bool {
        self.given_up.load(Relaxed)
    }
}

/// A tracked path with its watches, its lock and its socket.
struct Watched {
    tree: TreeWatch,
    listener: UnixListener,
    key: String,
    _lock: WatchLock,
}

/// A step waits for another one that is at work.
struct Waiting {
    what: AtWork,
    /// Tells of what happens in the store.
    store: NameWatch,
    until: Instant,
}

/// A watcher that is at work as soon as it [serves](Self::serve).
pub struct Watcher {
    request: WatchRequest,
    watched: Vec<Watched>,
    history: Arc<Mutex<WatchHistory>>,
    facts: WatchFacts,
    quiet: Quiet,
    waiting: Option<Waiting>,
    is_capturing: bool,
    /// Whether the step that is being taken is about a change that was seen.
    records_change: bool,
    /// No step before this moment, after a failure.
    not_before: Option<Instant>,
    /// Where events may be missing: when the next whole walk is due.
    next_walk: Option<Instant>,
    /// Programs that wrote since the last step.
    programs: BTreeSet<String>,
    /// Clients that wait for the end.
    ending: Vec<UnixStream>,
    stopper: Stopper,
    woken: UnixStream,
    messages: mpsc::Receiver<Message>,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Watcher {
    /// Takes the locks, sets the watches, and records the present state.
    ///
    /// # Errors
    /// A path that is watched already, or cannot be recorded or watched.
    pub fn begin(request: WatchRequest) -> Result<Self, WatcherError> {
        let WatchRequest { record, max_watches } = &request;
        let mut locked = Vec::new();
        for path in &record.tracked_paths {
            let place = WatchPlace::of(&record.root, path);
            let shown = || Shown::path(path).to_string();
            let lock =
                place.lock()?.ok_or_else(|| WatcherError::WatchedAlready { path: shown() })?;
            // Before the first state is recorded: a change meanwhile is an event.
            let own = std::slice::from_ref(&record.root);
            let tree = TreeWatch::begin(path, own, *max_watches)?;
            locked.push((place, lock, tree));
        }
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let (sender, messages) = mpsc::channel();
        let cancelled = Arc::new(Cancelled::default());
        let stopper = Stopper { sender, wake: Arc::new(wake), cancelled };
        let progress: Arc<dyn Progress + Send> = stopper.cancelled.clone();
        let (history, last) = WatchHistory::begin(record.clone(), progress)?;
        // Nothing asks before: the thread that answers has just recorded the first state.
        let mut watched = Vec::new();
        for (place, lock, tree) in locked {
            let (listener, key) = place.listen(&lock)?;
            listener.set_nonblocking(true)?;
            watched.push(Watched { tree, listener, key, _lock: lock });
        }
        let facts = WatchFacts {
            paths: record.tracked_paths.clone(),
            pid: std::process::id(),
            session_id: history.session_id(),
            started: Timestamp::now(),
            last_snapshot: last.number,
            last_taken: Some(last.timestamp),
            ..WatchFacts::default()
        };
        let mut watcher = Self {
            history: Arc::new(Mutex::new(history)),
            watched,
            facts,
            quiet: Quiet::default(),
            waiting: None,
            is_capturing: false,
            records_change: false,
            not_before: None,
            next_walk: None,
            programs: BTreeSet::new(),
            ending: Vec::new(),
            stopper,
            woken,
            messages,
            request,
        };
        watcher.follow(&last);
        // Something may have changed while nothing was watched. If not, the first look lets every later
        // one know since when the watcher answers.
        watcher.quiet.suspect(Instant::now());
        Ok(watcher)
    }

    /// How it is.
    pub fn facts(&self) -> WatchFacts {
        let count = |watched: &Watched| watched.tree.directories() as u64;
        WatchFacts {
            directories: self.watched.iter().map(count).sum(),
            names_programs: self.watched.iter().all(|it| it.tree.writers().is_some()),
            gap: self.gap(),
            is_pending: self.quiet.has_seen() || self.records_change,
            waits_for: self.waiting.as_ref().map(|waiting| waiting.what.to_string()),
            ..self.facts.clone()
        }
    }

    /// Ends it from elsewhere.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    fn gap(&self) -> Option<String> {
        self.watched.iter().find_map(|watched| watched.tree.gap()).map(ToString::to_string)
    }

    /// Watches until it is stopped. `tell` hears of what happens.
    ///
    /// # Errors
    /// When the trees cannot be watched any more.
    pub fn serve(mut self, tell: &dyn Fn(Happening)) -> Result<(), WatcherError> {
        let (mut is_ending, mut has_last_step) = (false, false);
        loop {
            if is_ending && !self.is_capturing {
                // With a gap something may have changed without an event.
                let may_be_left = self.quiet.is_pending() || self.gap().is_some();
                let is_left = may_be_left && self.not_before.is_none();
                if has_last_step || !is_left || self.is_others_turn().is_some() {
                    break;
                }
                has_last_step = true;
                self.start_capture()?;
            } else if !is_ending {
                self.take_step_if_due(tell)?;
            }
            self.wait()?;
            self.look(tell)?;
            self.answer_all(tell)?;
            while let Ok(message) = self.messages.try_recv() {
                match message {
                    Message::Stop => is_ending = true,
                    Message::Done(done, took) => self.finish_capture(done, took, tell),
                }
            }
            is_ending |= !self.ending.is_empty();
        }
        let ended = self.history.lock().end();
        // Clients see the end when the locks are free.
        let ending = std::mem::take(&mut self.ending);
        drop(self);
        drop(ending);
        Ok(ended?)
    }

    /// Waits for anything, and without a limit if nothing is due.
    fn wait(&self) -> Result<(), WatcherError> {
        let mut descriptors = vec![PollFd::new(&self.woken, PollFlags::IN)];
        for Watched { tree, listener, .. } in &self.watched {
            descriptors.push(PollFd::from_borrowed_fd(tree.events(), PollFlags::IN));
            descriptors.push(PollFd::from_borrowed_fd(tree.mounts(), PollFlags::PRI));
            let writers = tree.writers().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            descriptors.extend(writers);
            descriptors.push(PollFd::new(listener, PollFlags::IN));
        }
        if let Some(waiting) = &self.waiting {
            descriptors.push(PollFd::from_borrowed_fd(waiting.store.events(), PollFlags::IN));
        }
        let timeout = self.next_deadline().map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.is_capturing {
            return None;
        }
        if let Some(waiting) = &self.waiting {
            return Some(waiting.until);
        }
        let due = [self.quiet.due(), self.next_walk].into_iter().flatten().min()?;
        Some(self.not_before.map_or(due, |not_before| due.max(not_before)))
    }

    /// Reads the events.
    fn look(&mut self, tell: &dyn Fn(Happening)) -> Result<(), WatcherError> {
        // A sign of an end; the read bytes mean nothing.
        let mut signs = [0; 64];
        let _ = (&self.woken).read(&mut signs);
        let mut losses = Vec::new();
        for Watched { tree, .. } in &mut self.watched {
            let Seen { changed, loss } = tree.look()?;
            if changed {
                self.quiet.note(Instant::now());
            }
            losses.extend(loss);
            let room = MAX_PROGRAMS - self.programs.len();
            self.programs.extend(tree.programs().into_iter().take(room));
        }
        for loss in losses {
            self.facts.losses += 1;
            self.facts.last_loss = Some(loss.to_string());
            tell(Happening::Lost(loss.to_string()));
        }
        let has_gap = self.gap().is_some();
        if !has_gap {
            self.next_walk = None;
        } else if self.next_walk.is_none() {
            self.next_walk = Some(Instant::now() + RECHECK);
        }
        let now = Instant::now();
        let is_over = |waiting: &Waiting| now >= waiting.until || waiting.store.has_events();
        if self.waiting.as_ref().is_some_and(is_over) {
            self.waiting = None;
        }
        Ok(())
    }

    fn take_step_if_due(&mut self, tell: &dyn Fn(Happening)) -> Result<(), WatcherError> {
        let is_due = self.next_deadline().is_some_and(|deadline| deadline <= Instant::now());
        if self.is_capturing || self.waiting.is_some() || !is_due {
            return Ok(());
        }
        if let Some(what) = self.is_others_turn() {
            let root = &self.request.record.root;
            let session = match &what {
                AtWork::Run(id) | AtWork::Call(id) => Some(root.join(id)),
                AtWork::Restore => None,
            };
            let places = [Some(root.clone()), session];
            let store = NameWatch::of(places.iter().flatten().map(PathBuf::as_path))?;
            // It may have ended before the watch stood.
            if let Some(what) = self.is_others_turn() {
                if self.facts.waits_for.is_none() {
                    tell(Happening::Waits(what.clone()));
                }
                self.facts.waits_for = Some(what.to_string());
                self.waiting = Some(Waiting { what, store, until: Instant::now() + RECHECK });
                return Ok(());
            }
        }
        self.facts.waits_for = None;
        self.start_capture()
    }

    /// The one that changes these paths and records that. A store that cannot be read is no obstacle
    /// here; the capture says what is wrong with it.
    fn is_others_turn(&self) -> Option<AtWork> {
        let RecordRequest { root, tracked_paths, .. } = &self.request.record;
        at_work(root, tracked_paths).ok().flatten()
    }

    fn start_capture(&mut self) -> Result<(), WatcherError> {
        self.records_change = self.quiet.has_seen();
        self.quiet.clear();
        self.not_before = None;
        let (history, stopper) = (Arc::clone(&self.history), self.stopper.clone());
        self.is_capturing = true;
        let programs = std::mem::take(&mut self.programs);
        sys::spawn("watch", move || {
            sys::lower_priority();
            let began = Instant::now();
            let mut history = history.lock();
            let done = history.record(&programs).map_err(|error| error.to_string()).map(|taken| {
                let (session_id, manager) = (history.session_id(), history.manager().clone());
                let (manifest, changes) = match taken {
                    Taken::Snapshot(manifest, comparison) => {
                        let touched = comparison.touched.len();
                        let summary = ChangeSummary::of(&comparison.changes);
                        (*manifest, Some(summary.with_touched(touched)))
                    }
                    Taken::Unchanged(manifest) => (*manifest, None),
                };
                Box::new(Done { session_id, manager, manifest, changes })
            });
            drop(history);
            stopper.send(Message::Done(done, began.elapsed()));
        })?;
        Ok(())
    }

    fn finish_capture(
        &mut self,
        done: Result<Box<Done>, String>,
        took: Duration,
        tell: &dyn Fn(Happening),
    ) {
        self.is_capturing = false;
        let recorded_change = std::mem::take(&mut self.records_change);
        if self.next_walk.is_some() {
            self.next_walk = Some(Instant::now() + RECHECK.max(took * WALK_SHARE));
        }
        match done {
            Ok(done) => {
                let Done { session_id, manager, manifest, changes } = *done;
                self.facts.failure = None;
                self.facts.session_id.clone_from(&session_id);
                self.facts.last_snapshot = manifest.number;
                self.facts.last_taken = Some(manifest.timestamp);
                for Watched { tree, .. } in &mut self.watched {
                    tree.follow(&manifest, manager.store());
                }
                if let Some(changes) = changes {
                    self.facts.snapshots += 1;
                    let number = manifest.number;
                    tell(Happening::Recorded { session_id, number, changes });
                }
            }
            Err(error) => {
                // The change is still in no step.
                match recorded_change {
                    true => self.quiet.note(Instant::now()),
                    false => self.quiet.suspect(Instant::now()),
                }
                self.not_before = Some(Instant::now() + RETRY);
                self.facts.failure = Some(error.clone());
                tell(Happening::Failed(error));
            }
        }
    }

    fn follow(&mut self, last: &SnapshotManifest) {
        let history = self.history.lock();
        for Watched { tree, .. } in &mut self.watched {
            tree.follow(last, history.manager().store());
        }
    }

    fn answer_all(&mut self, tell: &dyn Fn(Happening)) -> Result<(), WatcherError> {
        for at in 0..self.watched.len() {
            while let Ok((stream, _)) = self.watched[at].listener.accept() {
                // A client that asks for nothing, or reads no answer, is its own loss.
                if let Ok(question) = hear(&stream, &self.watched[at].key) {
                    // Whatever happened before the question is in the answer.
                    self.look(tell)?;
                    let reply = match question {
                        Some(Question::Status) => Reply::Status(Box::new(self.facts())),
                        Some(Question::Stop) => Reply::Ending,
                        Some(Question::Changed { since }) => {
                            self.watched[at].tree.reply(since.as_ref())
                        }
                        None => Reply::Refused { reason: "not a question".to_owned() },
                    };
                    let is_end = reply == Reply::Ending;
                    let sent = send(&stream, &reply);
                    if is_end && sent.is_ok() {
                        self.ending.push(stream);
                    }
                }
            }
        }
        Ok(())
    }
}

fn hear(stream: &UnixStream, key: &str) -> std::io::Result<Option<Question>> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    BufReader::new(stream.take(MAX_QUESTION_BYTES)).read_until(b'\n', &mut line)?;
    Ok(read_question(&line, key))
}

fn send(mut stream: &UnixStream, reply: &Reply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}
