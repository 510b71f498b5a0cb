//! The step that changed a path last, for the change at the cursor.
//!
//! Looked up when the cursor rests, and kept: a look reads the path in each snapshot of the
//! session.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use nono_engine::history::{Origin, history_of};
use nono_engine::path_text::Shown;
use nono_engine::session::steps;
use nono_engine::snapshot::{SessionDir, SnapshotManifest, StepEntry};
use nono_engine::store::ObjectSource;

/// So many characters of a step are shown.
const SHOWN_CHARS: usize = 60;

/// The steps between two states of a session.
pub(in crate::cli) struct LastSteps<'a> {
    session: &'a SessionDir,
    store: &'a dyn ObjectSource,
    entries: Vec<StepEntry>,
    known: HashMap<PathBuf, Option<String>>,
}

impl<'a> LastSteps<'a> {
    /// Those after `old` and up to `new`. A session that cannot be read has none.
    pub(in crate::cli) fn between(
        session: &'a SessionDir,
        store: &'a dyn ObjectSource,
        old: &SnapshotManifest,
        new: &SnapshotManifest,
    ) -> Self {
        let mut entries = steps(session).unwrap_or_default();
        entries.retain(|step| step.number > old.number && step.number <= new.number);
        Self { session, store, entries, known: HashMap::new() }
    }

    /// `step 17 · Bash · rm -rf src`, harmless for a terminal; `None` where no step changed the
    /// path.
    pub(super) fn of(&mut self, path: &Path) -> Option<String> {
        let newest = self.entries.last()?.number;
        if let Some(known) = self.known.get(path) {
            return known.clone();
        }
        let sessions = std::slice::from_ref(self.session);
        let history = history_of(&[path.to_owned()], sessions, self.store);
        let made = history
            .versions
            .iter()
            .filter(|version| version.origin == Origin::Session)
            .map(|version| version.first().number)
            .filter(|number| *number <= newest)
            .max();
        let step = made.and_then(|made| self.entries.iter().find(|step| step.number == made));
        let words = step.map(words);
        self.known.insert(path.to_owned(), words.clone());
        words
    }
}

fn words(step: &StepEntry) -> String {
    let summary: String = step.summary().chars().take(SHOWN_CHARS).collect();
    format!("step {} · {}", step.number, Shown::bytes(summary.as_bytes()))
}
