//! Which agent session calls a tool of our own server, and for which prompt.
//!
//! The protocol of a tool call names neither. The client's hooks do: they announce each call before
//! it is made. So the caller is the agent session in which a call of this tool with these words has
//! begun and not ended. Where no hook has announced the call, it is the session that was heard of
//! last.

use super::state::AgentState;
use nono_engine::snapshot::{AgentSession, MAX_STEP_TITLE_BYTES, Step, StepKind, StepPrompt};

/// The caller of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The agent session.
    pub agent: AgentSession,
    /// The prompt that the call belongs to; none before the first.
    pub prompt: Option<StepPrompt>,
    /// The client's id of the call.
    pub call_id: Option<String>,
    /// The client's id of the subagent that makes the call.
    pub subagent: Option<String>,
}

impl Caller {
    /// The caller among agent sessions, of which the one that was heard of last is the first.
    /// `tool` is the server's own name of the tool, `title` what the call is about.
    pub fn among(agents: &[(AgentSession, AgentState)], tool: &str, title: &str) -> Option<Self> {
        let title: String = title.chars().take(MAX_STEP_TITLE_BYTES + 1).collect();
        let announced = agents.iter().find_map(|(agent, state)| {
            let (call, subagent) = state.own_call(tool, &title)?;
            let (call_id, subagent) = (call.id.clone(), subagent.map(str::to_owned));
            let prompt = state.prompt().cloned();
            Some(Self { agent: agent.clone(), prompt, call_id, subagent })
        });
        let last = agents.first();
        announced.or_else(|| {
            let (agent, state) = last?;
            let (agent, prompt) = (agent.clone(), state.prompt().cloned());
            Some(Self { agent, prompt, call_id: None, subagent: None })
        })
    }

    /// A checkpoint that it takes under a name.
    pub fn checkpoint(self, label: &str) -> Step {
        let Self { agent, prompt, call_id, subagent } = self;
        Step {
            kind: StepKind::Checkpoint,
            agent: agent.client,
            agent_session: agent.session_id,
            prompt,
            title: label.to_owned(),
            call_id,
            subagent,
            ..Step::default()
        }
        .bounded()
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Call, Event, EventKind};
    use super::*;

    fn agent(id: &str) -> AgentSession {
        AgentSession { client: "codex".to_owned(), session_id: id.to_owned() }
    }

    fn state(prompts: &[&str], calls: &[(&str, &str)]) -> AgentState {
        let mut state = AgentState::default();
        let event = |kind| Event {
            client: "codex".to_owned(),
            session_id: "s".to_owned(),
            cwd: None,
            subagent: Some("x".to_owned()),
            is_parallel: true,
            kind,
        };
        for prompt in prompts {
            state.advance(&event(EventKind::Prompt { text: (*prompt).to_owned() }));
        }
        for (tool, title) in calls {
            let (tool, title) = ((*tool).to_owned(), (*title).to_owned());
            let id = Some(format!("call {title}"));
            let call = Call { id, tool, title, ..Call::default() };
            state.advance(&event(EventKind::Before(call)));
        }
        state
    }

    #[test]
    fn the_session_that_announced_the_call_makes_it_whoever_was_heard_of_last() {
        let agents = [
            (agent("a"), state(&["one"], &[("Bash", "x")])),
            (agent("b"), state(&["one", "two"], &[("mcp__nono__checkpoint", "x")])),
            (agent("c"), state(&["one"], &[("mcp__nono__checkpoint", "y")])),
        ];
        let caller = Caller::among(&agents, "checkpoint", "x").unwrap();
        assert_eq!((caller.agent, caller.prompt.unwrap().number), (agent("b"), 2));
        assert_eq!(caller.call_id.as_deref(), Some("call x"));
        assert_eq!(caller.subagent.as_deref(), Some("x"));
        let caller = Caller::among(&agents, "checkpoint", "unannounced").unwrap();
        assert_eq!((caller.agent, caller.call_id), (agent("a"), None));
        assert_eq!(Caller::among(&[], "checkpoint", "x"), None);
    }
}
