//! Failures in hooks: a short log, for `nono doctor` and `nono status`.
//!
//! A hook says nothing to its client, so whatever fails is written here: one line of JSON for each.

use std::io::Write;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::recorder::RecordStepError;
use super::spool::AGENTS;
use nono_engine::manifest::is_false;
use nono_engine::sys::{self, Dir};

/// The log is started anew when it is longer than this, in bytes.
const MAX_BYTES: u64 = 1 << 16;
const NAME: &str = "log";

/// Something that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mishap {
    /// When.
    pub at: Timestamp,
    /// The client.
    pub client: String,
    /// The failed operation.
    pub what: String,
    /// Whether nothing went wrong: the agent works where nothing is ever recorded.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_design: bool,
}

/// The log of a store.
#[derive(Debug, Clone)]
pub struct Journal {
    path: PathBuf,
}

impl Journal {
    /// The log of the store with this root directory.
    pub fn of(root: &Path) -> Self {
        Self { path: root.join(AGENTS).join(NAME) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes what failed, if that is possible: on a full disk it is not.
    pub fn note(&self, client: &str, what: &dyn std::fmt::Display) {
        self.add(client, what, false);
    }

    /// Notes why an event of an agent was not recorded.
    pub fn note_unrecorded(&self, client: &str, why: &RecordStepError) {
        self.add(client, why, why.is_by_design());
    }

    /// Notes what is not recorded by design.
    pub fn note_by_design(&self, client: &str, what: &dyn std::fmt::Display) {
        self.add(client, what, true);
    }

    fn add(&self, client: &str, what: &dyn std::fmt::Display, by_design: bool) {
        let (at, client, what) = (Timestamp::now(), client.to_owned(), what.to_string());
        let mishap = Mishap { at, client, what, by_design };
        let Ok(mut line) = serde_json::to_vec(&mishap) else { return };
        line.push(b'\n');
        let Ok(mut file) = sys::open_log(&self.path, MAX_BYTES) else { return };
        let _ = file.write_all(&line);
    }

    /// The failures, oldest first. A log that is missing or cannot be read has none.
    pub fn read(&self) -> Vec<Mishap> {
        let Some(dir) = self.path.parent().and_then(|path| Dir::open(path).ok()) else {
            return Vec::new();
        };
        let bytes = dir.read(NAME.as_bytes(), 2 * MAX_BYTES).unwrap_or_default();
        bytes.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice(l).ok()).collect()
    }

    /// The failures of the last `hours` hours.
    pub fn recent(&self, hours: i64) -> Vec<Mishap> {
        let since = Timestamp::now() - jiff::SignedDuration::from_hours(hours);
        self.read().into_iter().filter(|mishap| mishap.at >= since).collect()
    }
}
