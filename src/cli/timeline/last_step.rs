//! The step that changed a path last, for the change at the cursor.
//!
//! Looked up when the cursor rests, and kept: a look reads the path in each snapshot of the
//! session.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::cli::looking::States;
use crate::cli::render::shown;
use nono_engine::history::{Origin, history_of};
use nono_engine::session::steps;
use nono_engine::snapshot::StepEntry;

/// So many characters of a step are shown.
const SHOWN_CHARS: usize = 60;

/// The steps between two states of a session.
pub(super) struct LastSteps {
    entries: Vec<StepEntry>,
    known: HashMap<PathBuf, Option<String>>,
}

impl LastSteps {
    /// The steps after the older and up to the newer state. A session that cannot be read has none.
    pub(super) fn between(states: &States<'_>) -> Self {
        let [old, new] = states.numbers();
        let mut entries = steps(states.session()).unwrap_or_default();
        entries.retain(|step| step.number > old && step.number <= new);
        Self { entries, known: HashMap::new() }
    }

    /// `step 17 · Bash · rm -rf src`, harmless for a terminal; `None` where no step changed the
    /// path.
    pub(super) fn of(&mut self, path: &Path, states: &States<'_>) -> Option<String> {
        let newest = self.entries.last()?.number;
        if let Some(known) = self.known.get(path) {
            return known.clone();
        }
        let sessions = std::slice::from_ref(states.session());
        let history = history_of(&[path.to_owned()], sessions, states.source());
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
    format!("step {} · {}", step.number, shown(summary.as_bytes()))
}
