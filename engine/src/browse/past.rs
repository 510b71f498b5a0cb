//! The states of one project in one session: the first, the last, and those after its steps.

use std::collections::{BTreeMap, HashSet};

use super::safe_name::{distinct, safe_name};
use crate::session::steps_of;
use crate::snapshot::SessionMetadata;

/// The state when the session began.
pub(super) const BEFORE: &[u8] = b"before";
/// The last state that the session left.
pub(super) const AFTER: &[u8] = b"after";

/// Maximum length of the name of a step or prompt.
const MAX_NAME_BYTES: usize = 80;

/// The states of a session, as its manifest tells.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Snapshots that are no state that the session left: restores took them, or archives brought
    /// them.
    beside: HashSet<u64>,
    /// Steps without a prompt, and snapshots with a name, by the names of their folders.
    pub(super) steps: BTreeMap<String, u64>,
    /// Prompts by the names of their folders.
    pub(super) prompts: BTreeMap<String, Prompt>,
}

/// The steps of one prompt.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) number: u64,
    pub(super) steps: BTreeMap<String, u64>,
}

impl Past {
    pub(super) fn new(metadata: &SessionMetadata) -> Self {
        let mut beside: HashSet<u64> = metadata.safety_snapshots.iter().copied().collect();
        beside.extend(metadata.received_snapshots.iter().filter(|one| metadata.was_added(**one)));
        let is_there = |number: u64| metadata.removal(number).is_none();
        let label = |number: u64| {
            let named = metadata.labels.iter().rev().find(|label| label.number == number);
            named.map(|named| named.label.as_str())
        };
        // By the number of the prompt, if there is one; then by their own.
        let mut states: BTreeMap<Option<u64>, BTreeMap<u64, String>> = BTreeMap::new();
        let mut texts: BTreeMap<u64, String> = BTreeMap::new();
        for step in steps_of(metadata).into_iter().filter(|step| is_there(step.number)) {
            let summary = step.summary();
            let words = label(step.number).unwrap_or(&summary);
            let name = numbered(step.number, words);
            let prompt = step.prompt.map(|prompt| {
                texts.entry(prompt.number).or_insert(prompt.text);
                prompt.number
            });
            states.entry(prompt).or_default().insert(step.number, name);
        }
        let listed: HashSet<u64> = states.values().flat_map(|of| of.keys().copied()).collect();
        for named in &metadata.labels {
            if is_there(named.number) && !listed.contains(&named.number) {
                let name = numbered(named.number, &named.label);
                states.entry(None).or_default().insert(named.number, name);
            }
        }
        let folders = |of: BTreeMap<u64, String>| {
            let (numbers, names): (Vec<u64>, Vec<String>) = of.into_iter().unzip();
            distinct(names).into_iter().zip(numbers).collect()
        };
        let steps = states.remove(&None).map(folders).unwrap_or_default();
        let prompts: Vec<Prompt> = states
            .into_iter()
            .filter_map(|(number, of)| Some(Prompt { number: number?, steps: folders(of) }))
            .collect();
        let name = |prompt: &Prompt| {
            let text = texts.get(&prompt.number).map_or("", String::as_str);
            let name = format!("prompt {:02} {text}", prompt.number);
            safe_name(name.as_bytes(), MAX_NAME_BYTES, "prompt")
        };
        let names = distinct(prompts.iter().map(name));
        let prompts = names.into_iter().zip(prompts).collect();
        Self { beside, steps, prompts }
    }

    pub(super) fn has_steps(&self) -> bool {
        !self.steps.is_empty() || !self.prompts.is_empty()
    }

    /// The steps of a prompt.
    pub(super) fn prompt(&self, number: u64) -> Option<&BTreeMap<String, u64>> {
        self.prompts.values().find(|prompt| prompt.number == number).map(|prompt| &prompt.steps)
    }

    /// The first and the last of some snapshots, ascending, that are states of the session.
    pub(super) fn ends(&self, numbers: &[u64]) -> Option<(u64, u64)> {
        let is_state = |number: &&u64| !self.beside.contains(number);
        let first = numbers.iter().find(is_state)?;
        let last = numbers.iter().rev().find(is_state)?;
        Some((*first, *last))
    }
}

fn numbered(number: u64, words: &str) -> String {
    // The number stands first: words at the beginning would lose their dots.
    safe_name(format!("{number:04} {words}").as_bytes(), MAX_NAME_BYTES, "step")
}
