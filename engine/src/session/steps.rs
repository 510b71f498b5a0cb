//! The steps of a session: what each tool call of an agent did, prompt by prompt.
//!
//! One session records one agent session ([`AgentSession`](crate::snapshot::AgentSession) in its
//! manifest) or a run, in which agents may have made steps as well. Reading the list costs one
//! file.

use std::path::PathBuf;

use serde::Serialize;

use crate::path_text::serde_paths;
use crate::snapshot::{
    ManifestError, OutsidePath, SessionDir, SessionMetadata, StepEntry, StepPrompt,
};

/// The steps of one prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSteps {
    /// The prompt; `None`: steps before the first one.
    pub prompt: Option<StepPrompt>,
    /// Its steps, in order; never empty.
    pub steps: Vec<StepEntry>,
}

/// The steps of a session in order, each with the text of its prompt.
///
/// # Errors
/// When the session's manifest cannot be used.
pub fn steps(session: &SessionDir) -> Result<Vec<StepEntry>, ManifestError> {
    Ok(steps_of(&session.metadata()?))
}

/// The steps of a session whose manifest is at hand.
pub fn steps_of(metadata: &SessionMetadata) -> Vec<StepEntry> {
    crate::snapshot::with_prompts(&metadata.steps)
}

/// Steps in groups of one prompt, in order. Steps that come back to an earlier prompt are a group
/// of their own.
pub fn by_prompt(steps: Vec<StepEntry>) -> Vec<PromptSteps> {
    let mut groups: Vec<PromptSteps> = Vec::new();
    for step in steps {
        let number = |prompt: &Option<StepPrompt>| prompt.as_ref().map(|prompt| prompt.number);
        match groups.last_mut() {
            Some(group) if number(&group.prompt) == number(&step.prompt) => group.steps.push(step),
            _ => groups.push(PromptSteps { prompt: step.prompt.clone(), steps: vec![step] }),
        }
    }
    groups
}

/// A path that a step names and no snapshot holds, so that no undo brings it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnrecordedStep {
    /// Number of the step.
    pub step: u64,
    /// Paths outside of the recorded directories.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<OutsidePath>,
    /// Left-out paths that are gone.
    #[serde(skip_serializing_if = "Vec::is_empty", with = "serde_paths")]
    pub gone: Vec<PathBuf>,
    /// The number of further such paths.
    #[serde(skip_serializing_if = "crate::manifest::is_zero")]
    pub unnamed: u64,
}

impl UnrecordedStep {
    /// The unrecorded part of a step; `None` where it names nothing.
    pub fn of(step: &StepEntry) -> Option<Self> {
        let StepEntry { number, outside, gone, unnamed, .. } = step;
        let names = !outside.is_empty() || !gone.is_empty() || *unnamed > 0;
        names.then(|| Self {
            step: *number,
            outside: outside.clone(),
            gone: gone.clone(),
            unnamed: *unnamed,
        })
    }
}

/// The last step of each prompt, by number.
pub fn last_of_each_prompt(steps: &[StepEntry]) -> Vec<u64> {
    let number = |step: &StepEntry| step.prompt.as_ref().map(|prompt| prompt.number);
    let is_last = |(at, step): &(usize, &StepEntry)| {
        steps[at + 1..].iter().all(|later| number(later) != number(step))
    };
    steps.iter().enumerate().filter(is_last).map(|(_, step)| step.number).collect()
}
