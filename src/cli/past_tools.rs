//! The tools of an agent: their rights by the settings, and their calls from within a recorded run.

use serde_json::Value;

use super::args::CaptureArgs;
use super::error::CliError;
use super::surroundings::{home_dir, surroundings};
use crate::agent::AgentState;
use crate::config::{FlagSettings, Settings};
use crate::mcp::{
    Answer, CHECKPOINT, Policy, ToolError, ToolInfo, Tools, Workspace, checkpoint_in,
};
use nono_engine::session::{Catalog, Recording};
use nono_engine::snapshot::AgentSession;
use nono_engine::sys;

/// The rights of agents by the settings.
pub(super) fn policy() -> Result<Policy, CliError> {
    let settings = Settings::load(&surroundings()?, &FlagSettings::default())?;
    Ok(Policy {
        may_restore: settings.mcp_restore.value,
        hidden: settings.mcp_hidden(),
        budget: settings.budget(),
        compression: settings.compression.value,
        threads: settings.threads(),
        exclusion: CaptureArgs::default().exclusion(&settings, None)?,
    })
}

/// The supervisor's side: a call of the recorded command. It sees its own session, and what it is
/// shown it could read when the run began; a restore could write where the walls do not let it.
/// `agents` are those that are at work in the run, the one that was heard of last first.
pub(super) fn for_command(
    recording: &Recording,
    tool: &str,
    arguments: Value,
    agents: &[(AgentSession, AgentState)],
) -> Result<Answer, ToolError> {
    if ToolInfo::named(tool).is_some_and(|tool| !tool.is_served_inside) {
        return Err(ToolError::Refused(format!(
            "`{tool}` is not available inside `nono run`; the user can do that outside, when the \
             run has ended"
        )));
    }
    if tool == CHECKPOINT {
        return checkpoint_in(recording.manager(), arguments, agents);
    }
    let policy = policy().map_err(|error| ToolError::Refused(error.to_string()))?;
    let session = recording.manager().session();
    let store = session.path().parent().unwrap_or(session.path()).to_owned();
    let (directory, home) = (sys::current_dir()?, home_dir().ok());
    Workspace::around(&directory, home.as_deref(), Catalog::new(store, []), policy)?
        .with_session_only(session.id())
        .call(tool, arguments)
}
