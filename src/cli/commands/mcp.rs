//! `nono mcp`: the past of this project as tools of a coding agent.
//!
//! Started by the agent's program, which owns stdin and stdout. Settings are read at each call, so
//! a change of `mcp_restore` counts at once, and a mistake in the file switches restores off.
//! Inside a recorded run the store is out of reach: there the supervisor answers what only reads,
//! and takes checkpoints.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::Value;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, home_dir};
use crate::cli::checkpoints;
use crate::cli::error::CliError;
use crate::cli::inside::{self, Keeper};
use crate::cli::past_tools::policy;
use crate::mcp::{Answer, ToolError, Tools, Workspace, serve};
use nono_engine::session::Catalog;
use nono_engine::sys;

/// Arguments of `nono mcp`.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct McpArgs {
    /// Let the agent look, take checkpoints and make forks, but restore, merge and discard nothing
    /// (setting: mcp_restore)
    #[arg(long)]
    no_restore: bool,
    /// Do not show the contents of files that match, beside those of the setting mcp_hidden
    /// (repeatable)
    #[arg(long, value_name = "GLOB")]
    hide: Vec<String>,
}

pub(in crate::cli) fn run(args: &McpArgs, store: &StoreArgs) -> Outcome {
    let catalog = store.catalog()?;
    let tools: Arc<dyn Tools> = match inside::keeper_of_the_past(&catalog) {
        Keeper::Supervisor(socket) => Arc::new(Supervised { socket }),
        Keeper::Unreachable(error) => Arc::new(OutOfReach(error.to_string())),
        Keeper::Store => {
            let directory = sys::current_dir()?;
            Arc::new(InStore { args: args.clone(), catalog, directory })
        }
    };
    serve(tools)
        .map_err(|error| CliError::failed(format!("the conversation broke off: {error}")))?;
    Ok(0)
}

/// The project around the directory in which the server was started, in the store.
struct InStore {
    args: McpArgs,
    catalog: Catalog,
    directory: PathBuf,
}

impl Tools for InStore {
    fn call(&self, tool: &str, arguments: Value) -> Result<Answer, ToolError> {
        let mut policy = policy().map_err(|error| ToolError::Refused(error.to_string()))?;
        policy.may_restore &= !self.args.no_restore;
        policy.hidden.extend_from_slice(&self.args.hide);
        let home = home_dir().ok();
        let catalog = self.catalog.clone();
        let workspace = Workspace::around(&self.directory, home.as_deref(), catalog, policy)?;
        workspace.call(tool, arguments)
    }
}

/// Inside a run: what the supervisor does for its command.
struct Supervised {
    socket: PathBuf,
}

impl Tools for Supervised {
    fn call(&self, tool: &str, arguments: Value) -> Result<Answer, ToolError> {
        checkpoints::ask_tool(&self.socket, tool, arguments)
            .map_err(|error| ToolError::Refused(error.to_string()))
    }
}

/// Inside a run that is not recorded, or without a way to its supervisor.
struct OutOfReach(String);

impl Tools for OutOfReach {
    fn call(&self, _tool: &str, _arguments: Value) -> Result<Answer, ToolError> {
        Err(ToolError::Refused(self.0.clone()))
    }
}
