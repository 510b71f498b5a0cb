//! An agent's questions about its own history: the tools of `nono mcp`.
//!
//! A [`Workspace`] is the past of one project, the one around a directory. A tool is a name,
//! arguments as JSON, and an [`Answer`] or a [`ToolError`]; no tool knows the protocol, which
//! stands in [`serve`]. Always true: an agent sees the sessions of its project alone, and in them
//! what lies in the project; every answer is bounded and says how to go on; what comes from the
//! past is marked as data; arguments are untrusted; a restore names its paths and keeps the state
//! before. The forks of a project are tools as well, which the program carries out.

mod changes;
mod error;
mod files;
#[cfg(feature = "mount")]
mod forks;
mod pages;
mod restoring;
mod server;
mod states;
mod steps;
mod tools;
mod workspace;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use error::ToolError;
pub use restoring::checkpoint_in;
pub use server::serve;
pub use tools::{CHECKPOINT, TOOLS, ToolInfo};
pub use workspace::{Policy, Workspace};

/// The answer of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// For a model: text in which everything from the past is framed as data.
    pub text: String,
    /// The same for a program.
    pub data: Value,
}

/// The interface that carries out calls of tools: a workspace, or a supervisor that has one.
pub trait Tools: Send + Sync {
    /// Carries out one call.
    ///
    /// # Errors
    /// [`ToolError`], which is told to the model.
    fn call(&self, tool: &str, arguments: Value) -> Result<Answer, ToolError>;
}
