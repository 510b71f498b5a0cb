//! The state of one server: the store, the secrets, what is remembered of sessions, and the pages
//! that are open.
//!
//! A summary of a session is remembered together with the stamp of its manifest, so a list of a
//! thousand sessions reads those that are new or changed. Whether a session runs is a lock and no
//! byte: a session that may run is read each time.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use lru::LruCache;
use parking_lot::Mutex as Lock;
use tokio::sync::watch;

use super::changed::Changed;
use super::guard::Guard;
use super::server::Failure;
use super::working::Works;
use crate::cli::error::CliError;
use nono_engine::events::{EventError, EventStream};
use nono_engine::session::{Catalog, SessionStatus, SessionSummary};
use nono_engine::snapshot::SessionDir;
use nono_engine::sys::{self, Dir, FileTime};

/// Comparisons that are remembered, for pages that are loaded piece by piece.
const MAX_COMPARISONS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
/// Longest time between the making of a page and its wait for news.
const MAX_LOADING: SignedDuration = SignedDuration::from_secs(10);
/// How long a wait for news takes before it is looked whether a page is still open.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The state.
pub(super) struct App {
    pub(super) catalog: Catalog,
    pub(super) guard: Guard,
    pub(super) home: Option<PathBuf>,
    /// Worker threads.
    pub(super) threads: usize,
    /// Without a page for so long, the server ends.
    pub(super) idle_time: Duration,
    /// When something was asked last.
    pub(super) used: Mutex<Instant>,
    /// Pages that are open.
    pub(super) listeners: Arc<AtomicUsize>,
    /// Whether a thread waits for facts of the store.
    is_followed: Lock<bool>,
    known: Lock<HashMap<String, (Stamp, SessionSummary)>>,
    /// Manifests of sessions that were read.
    read_count: AtomicU64,
    pub(super) compared: Lock<LruCache<(String, u64, u64), Arc<Changed>>>,
    news: watch::Sender<Arc<[String]>>,
    /// Forms that are carried out.
    pub(super) works: Works,
}

/// The state of a manifest, which another one does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    mtime: FileTime,
}

/// Sessions, newest first, and those that cannot be read.
pub(super) struct Listing {
    pub(super) sessions: Vec<SessionSummary>,
    pub(super) unreadable: Vec<(String, String)>,
}

/// A page that is open and hears what is new.
pub(super) struct Open {
    listeners: Arc<AtomicUsize>,
    pub(super) news: watch::Receiver<Arc<[String]>>,
}

impl Open {
    /// The same page, which has heard the news so far.
    pub(super) fn with(mut self, news: watch::Receiver<Arc<[String]>>) -> Self {
        self.news = news;
        self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

impl App {
    pub(super) fn new(
        catalog: Catalog,
        guard: Guard,
        home: Option<PathBuf>,
        threads: usize,
        idle_time: Duration,
    ) -> Self {
        Self {
            catalog,
            guard,
            home,
            threads,
            idle_time,
            used: Mutex::new(Instant::now()),
            listeners: Arc::default(),
            is_followed: Lock::default(),
            known: Lock::default(),
            read_count: AtomicU64::new(0),
            compared: Lock::new(LruCache::new(MAX_COMPARISONS)),
            news: watch::Sender::new(Arc::from([])),
            works: Works::new(),
        }
    }

    /// Notes that the server is used.
    pub(super) fn touch(&self) {
        if let Ok(mut used) = self.used.lock() {
            *used = Instant::now();
        }
    }

    /// A page begins to listen. With the first one, the store is looked at from time to time.
    pub(super) fn open(self: &Arc<Self>) -> Open {
        let news = self.news.subscribe();
        self.listeners.fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut *self.is_followed.lock(), true) {
            let app = Arc::clone(self);
            tokio::task::spawn_blocking(move || {
                if let Err(error) = follow_store(&app) {
                    *app.is_followed.lock() = false;
                    tracing::warn!("pages hear no news of the store: {error}");
                }
            });
        }
        Open { listeners: Arc::clone(&self.listeners), news }
    }

    /// How many manifests of sessions were read so far.
    pub(super) fn read_count(&self) -> u64 {
        self.read_count.load(Ordering::Relaxed)
    }

    /// The session of an id as a page has it: the whole id, and nothing else.
    pub(super) fn session(&self, id: &str) -> Result<SessionDir, Failure> {
        let unknown = || Failure::not_found(format!("there is no session {id:?} any more"));
        // An id is no path and no name: those would mean another session tomorrow.
        let is_id =
            !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_id {
            return Err(unknown());
        }
        let session = self.catalog.find(id).map_err(|_| unknown())?;
        if session.id() == id { Ok(session) } else { Err(unknown()) }
    }

    /// All sessions, newest first.
    pub(super) fn listing(&self) -> Result<Listing, CliError> {
        let mut listing = Listing { sessions: Vec::new(), unreadable: Vec::new() };
        let mut known = self.known.lock();
        let mut still = HashMap::with_capacity(known.len());
        for session in self.catalog.sessions()? {
            let id = session.id();
            let stamp = stamp_of(&session);
            let remembered = known.remove(&id).filter(|(of, summary)| {
                Some(*of) == stamp
                    && matches!(summary.status, SessionStatus::Completed | SessionStatus::Open)
            });
            let summary = match remembered {
                Some((_, summary)) => summary,
                None => {
                    self.read_count.fetch_add(1, Ordering::Relaxed);
                    match SessionSummary::of(&session) {
                        Ok(mut summary) => {
                            summary.count_own_changes(&session);
                            summary
                        }
                        Err(_) if session.is_gone() => continue,
                        Err(error) => {
                            listing.unreadable.push((id, error.to_string()));
                            continue;
                        }
                    }
                }
            };
            if summary.has_begun {
                listing.sessions.push(summary.clone());
            }
            if let Some(stamp) = stamp {
                still.insert(id, (stamp, summary));
            }
        }
        *known = still;
        let now = Timestamp::now();
        listing.sessions.sort_by_cached_key(|summary| Reverse(summary.recency(now)));
        Ok(listing)
    }
}

/// Waits for facts of the store as long as a page is open, and tells the pages.
fn follow_store(app: &App) -> Result<(), EventError> {
    let mut stream = EventStream::following(app.catalog.root(), None)?;
    let begin = Timestamp::now();
    loop {
        {
            let mut is_followed = app.is_followed.lock();
            if app.listeners.load(Ordering::Relaxed) == 0 {
                *is_followed = false;
                return Ok(());
            }
        }
        let events = stream.batch()?;
        // An older fact is on the pages already.
        let is_new = |at: Timestamp| begin.duration_since(at) < MAX_LOADING;
        let events = events.into_iter().map(|event| event.record);
        let mut news: Vec<String> =
            events.filter(|record| is_new(record.at)).filter_map(|record| record.session).collect();
        news.sort();
        news.dedup();
        if !news.is_empty() {
            app.touch();
            app.news.send_replace(news.into());
        }
        stream.wait(Some(LOOK_INTERVAL), None)?;
    }
}

fn stamp_of(session: &SessionDir) -> Option<Stamp> {
    let stat = session.dir().and_then(|dir: Dir| dir.stat(b"manifest.json"));
    let stat: sys::Stat = stat.ok()?;
    Some(Stamp { inode: stat.ino, size: stat.size, mtime: stat.mtime })
}
