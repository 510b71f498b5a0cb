//! From events to steps: a pure state machine, one for each agent session.
//!
//! A step is due after each call that may have changed something. What changed before a call began
//! and after the last step is a step of its own. It holds the user's edits, unless a command in the
//! background or a call that the agent began without waiting may have written it: then it is called
//! late. While another call is at work, there is no state before a call, so none is captured.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::event::{Call, Event, EventKind, optional_path, own_tool};
use super::outside;
use nono_engine::snapshot::{OutsideFate, OutsidePath, Step, StepKind, StepPrompt};

/// Maximum number of calls kept as being at work; the oldest ones are forgotten first.
const MAX_RUNNING: usize = 64;

/// An action of the recorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Find the session, or begin one with its baseline.
    Begin,
    /// Take a step if anything changed.
    Capture(Box<Step>),
    /// End the session.
    End,
}

/// A call that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Running {
    call: Call,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subagent: Option<String>,
    /// Whether there is no state before it.
    #[serde(default)]
    is_unseen: bool,
}

/// The known facts of an agent session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    /// The last prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prompt: Option<StepPrompt>,
    /// Calls that have begun and not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    running: Vec<Running>,
    /// The last command that was started in the background, if it may still be at work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    background: Option<String>,
    /// Title of the last call of which no end was heard, since the last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unheard: Option<String>,
    /// Where the last call worked.
    #[serde(default, with = "optional_path", skip_serializing_if = "Option::is_none")]
    cwd: Option<PathBuf>,
}

impl AgentState {
    /// Goes on with the prompts that a session has already.
    pub fn resumed(prompts: u64) -> Self {
        let prompt = (prompts > 0).then(|| StepPrompt { number: prompts, text: String::new() });
        Self { prompt, ..Self::default() }
    }

    /// The last prompt.
    pub fn prompt(&self) -> Option<&StepPrompt> {
        self.prompt.as_ref()
    }

    /// Whether a call has begun and not ended, or a command of one may be at work in the
    /// background.
    pub fn is_at_work(&self) -> bool {
        !self.running.is_empty() || self.background.is_some()
    }

    /// A call of a tool of our own server that has begun and not ended, and the subagent that makes
    /// it. `tool` is the server's own name of the tool.
    pub(super) fn own_call(&self, tool: &str, title: &str) -> Option<(&Call, Option<&str>)> {
        let is_it = |running: &&Running| {
            own_tool(&running.call.tool) == Some(tool) && running.call.title == title
        };
        let running = self.running.iter().rfind(is_it)?;
        Some((&running.call, running.subagent.as_deref()))
    }

    /// The actions that an event asks for.
    pub fn advance(&mut self, event: &Event) -> Vec<Action> {
        match &event.kind {
            EventKind::SessionStart => {
                self.forget(|_| true);
                vec![Action::Begin, self.between(event)]
            }
            EventKind::Prompt { text } => {
                // A call of an earlier turn that is not heard of has ended.
                self.forget(|_| true);
                let number = self.prompt.as_ref().map_or(1, |prompt| prompt.number + 1);
                self.prompt = Some(StepPrompt { number, text: text.clone() });
                vec![Action::Begin]
            }
            EventKind::Before(call) => {
                if !event.is_parallel {
                    self.forget(|running| running.subagent == event.subagent);
                }
                let mut actions = vec![Action::Begin];
                if self.running.is_empty() {
                    actions.push(self.between(event));
                }
                if self.running.len() == MAX_RUNNING {
                    self.running.remove(0);
                }
                let subagent = event.subagent.clone();
                self.running.push(Running { call: call.clone(), subagent, is_unseen: false });
                actions
            }
            EventKind::After(call) => {
                let is_it = |running: &Running| match (&running.call.id, &call.id) {
                    (Some(began), Some(ended)) => began == ended,
                    _ => {
                        running.subagent == event.subagent
                            && running.call.tool == call.tool
                            && running.call.title == call.title
                    }
                };
                let at = self.running.iter().position(is_it);
                let began = at.map(|at| self.running.remove(at));
                let is_unseen = began.as_ref().is_some_and(|began| began.is_unseen);
                let before = began.as_ref().map(|began| &*began.call.paths);
                let is_told = call.is_edit && !call.failed;
                let mut outside = outside::changed(before, &call.paths, is_told);
                if self.cwd != event.cwd {
                    self.cwd.clone_from(&event.cwd);
                    let entered = |path| OutsidePath { path, what: OutsideFate::Entered };
                    outside.extend(event.cwd.clone().map(entered));
                }
                let step = Step {
                    kind: StepKind::Tool,
                    tool: Some(call.tool.clone()),
                    title: call.title.clone(),
                    call_id: call.id.clone(),
                    overlapped: is_unseen || !self.running.is_empty(),
                    failed: call.failed,
                    outside,
                    ..self.step(event)
                };
                // One that was refused by the client ends without a word. What it changed, if it
                // worked after all, is in this step.
                self.running.retain(|running| running.subagent != event.subagent);
                if call.background {
                    self.background = Some(call.title.clone());
                }
                vec![Action::Begin, Action::Capture(Box::new(step))]
            }
            EventKind::SubagentEnd => {
                self.forget(|running| running.subagent == event.subagent);
                Vec::new()
            }
            EventKind::TurnEnd { background } => {
                self.forget(|running| running.subagent.is_none());
                let actions = vec![Action::Begin, self.between(event)];
                // A background command that may be over is not held against a person's edits.
                if *background != Some(true) {
                    self.background = None;
                }
                actions
            }
            EventKind::SessionEnd => {
                let actions = vec![Action::Begin, self.between(event), Action::End];
                self.running.clear();
                self.background = None;
                actions
            }
        }
    }

    /// Says that the call which began last was at work before the state before it was captured.
    pub fn began_unseen(&mut self) {
        if let Some(last) = self.running.last_mut() {
            last.is_unseen = true;
        }
    }

    /// Takes calls for ended of which no end was heard: they were refused, or interrupted. What
    /// they changed cannot be told from what came after them.
    fn forget(&mut self, is_meant: impl Fn(&Running) -> bool) {
        let meant = self.running.iter().rfind(|running| is_meant(running));
        let title = meant.map(|running| running.call.title.clone());
        self.unheard = title.or(self.unheard.take());
        self.running.retain(|running| !is_meant(running));
    }

    /// Changes since the last step that are no call's.
    fn between(&mut self, event: &Event) -> Action {
        let unheard = self.unheard.take();
        let is_late = self.background.is_some() || unheard.is_some() || !self.running.is_empty();
        Action::Capture(Box::new(Step {
            kind: if is_late { StepKind::Late } else { StepKind::UserEdits },
            title: self.background.clone().or(unheard).unwrap_or_default(),
            overlapped: !self.running.is_empty(),
            ..self.step(event)
        }))
    }

    fn step(&self, event: &Event) -> Step {
        Step {
            agent: event.client.clone(),
            agent_session: event.session_id.clone(),
            prompt: self.prompt.clone(),
            subagent: event.subagent.clone(),
            ..Step::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Client;
    use super::*;

    fn event(kind: EventKind) -> Event {
        Event {
            client: Client::ClaudeCode.name().to_owned(),
            session_id: "s".to_owned(),
            cwd: None,
            subagent: None,
            is_parallel: false,
            kind,
        }
    }

    fn call(title: &str) -> Call {
        Call {
            id: Some(title.to_owned()),
            tool: "Bash".into(),
            title: title.into(),
            ..Call::default()
        }
    }

    fn of(subagent: &str, kind: EventKind) -> Event {
        Event { subagent: Some(subagent.to_owned()), ..event(kind) }
    }

    /// The steps that events ask for: kind, title, whether they overlap.
    fn steps(events: &[Event]) -> Vec<(StepKind, String, bool)> {
        let mut state = AgentState::default();
        let actions = events.iter().flat_map(|event| state.advance(event));
        let step = |action| match action {
            Action::Capture(step) => Some((step.kind, step.title, step.overlapped)),
            _ => None,
        };
        actions.filter_map(step).collect()
    }

    use EventKind::{After, Before};
    use StepKind::{Late, Tool, UserEdits};

    #[test]
    fn a_call_is_a_step_and_so_is_what_came_before_it() {
        let events = [event(Before(call("a"))), event(After(call("a")))];
        assert_eq!(
            steps(&events),
            [(UserEdits, String::new(), false), (Tool, "a".to_owned(), false)]
        );
    }

    #[test]
    fn calls_of_subagents_overlap_and_have_no_state_before_them() {
        let events = [
            of("x", Before(call("a"))),
            of("y", Before(call("b"))),
            of("y", After(call("b"))),
            of("x", After(call("a"))),
            of("x", Before(call("c"))),
        ];
        assert_eq!(
            steps(&events),
            [
                (UserEdits, String::new(), false),
                (Tool, "b".to_owned(), true),
                (Tool, "a".to_owned(), false),
                (UserEdits, String::new(), false)
            ]
        );
    }

    #[test]
    fn what_a_background_command_writes_is_late_and_names_it() {
        let writer = Call { background: true, ..call("make watch") };
        let events = [
            event(Before(writer.clone())),
            event(After(writer)),
            event(Before(call("b"))),
            event(After(call("b"))),
            event(EventKind::TurnEnd { background: Some(false) }),
            event(Before(call("c"))),
        ];
        let kinds: Vec<_> =
            steps(&events).into_iter().map(|(kind, title, _)| (kind, title)).collect();
        let late = || (Late, "make watch".to_owned());
        assert_eq!(
            kinds,
            [
                (UserEdits, String::new()),
                (Tool, "make watch".to_owned()),
                late(),
                (Tool, "b".to_owned()),
                late(),
                (UserEdits, String::new())
            ]
        );
    }

    #[test]
    fn a_call_that_was_refused_overlaps_with_nothing() {
        let events = [event(Before(call("a"))), event(Before(call("b"))), event(After(call("b")))];
        assert!(steps(&events).iter().all(|(_, _, overlapped)| !overlapped));
    }

    #[test]
    fn the_changes_of_a_call_without_an_end_are_in_doubt() {
        let end = || event(EventKind::TurnEnd { background: Some(false) });
        let prompt = || event(EventKind::Prompt { text: "more".to_owned() });
        for next in [
            vec![event(Before(call("b")))],
            vec![end()],
            vec![event(EventKind::SessionStart)],
            vec![prompt(), event(Before(call("b")))],
        ] {
            let events = [vec![event(Before(call("a")))], next.clone()].concat();
            assert_eq!(steps(&events)[1], (Late, "a".to_owned(), false), "{next:?}");
            // Once they are in a step, nothing is in doubt.
            let events = [events, vec![event(After(call("b"))), end()]].concat();
            assert_eq!(steps(&events).last().unwrap().0, UserEdits, "{next:?}");
        }
    }

    #[test]
    fn prompts_are_counted_on_when_a_session_is_resumed() {
        let mut state = AgentState::resumed(3);
        state.advance(&event(EventKind::Prompt { text: "more".to_owned() }));
        let actions = state.advance(&event(After(call("a"))));
        let Some(Action::Capture(step)) = actions.last() else { panic!("{actions:?}") };
        assert_eq!(step.prompt, Some(StepPrompt { number: 4, text: "more".to_owned() }));
    }
}
