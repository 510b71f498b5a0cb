//! One file for each subcommand: its arguments and its function.

use crate::cli::render::columns;
use nono_engine::path_text::Shown;
use nono_engine::session::{LabelError, check_label};

pub(super) mod agent;
#[cfg(feature = "archive")]
pub(super) mod archive;
#[cfg(feature = "mount")]
pub(super) mod bisect;
pub(super) mod blame;
pub(super) mod cat;
pub(super) mod cleanup;
pub(super) mod completions;
pub(super) mod config;
#[cfg(feature = "container")]
pub(super) mod container;
pub(super) mod diff;
pub(super) mod diff_sides;
pub(super) mod difftool;
pub(super) mod doctor;
pub(super) mod events;
pub(super) mod find;
#[cfg(feature = "mount")]
pub(super) mod fork;
pub(super) mod grep;
pub(super) mod help;
pub(super) mod hook;
pub(super) mod import;
pub(super) mod list;
pub(super) mod log;
pub(super) mod man;
#[cfg(feature = "mcp")]
pub(super) mod mcp;
#[cfg(feature = "mount")]
pub(super) mod mount;
pub(super) mod pin;
pub(super) mod profile;
#[cfg(feature = "archive")]
pub(super) mod pull;
#[cfg(feature = "archive")]
mod pull_archive;
#[cfg(feature = "archive")]
pub(super) mod push;
pub(super) mod redo;
#[cfg(feature = "archive")]
pub(super) mod remote;
pub(super) mod restore;
pub(super) mod resume;
pub(super) mod review;
pub(super) mod run;
pub(super) mod sandbox_exec;
pub(super) mod show;
pub(super) mod snapshot;
pub(super) mod status;
pub(super) mod steps;
pub(super) mod timeline;
#[cfg(feature = "ui")]
pub(super) mod ui;
#[cfg(feature = "mount")]
pub(super) mod umount;
pub(super) mod undo;
pub(super) mod undo_steps;
pub(super) mod usage;
pub(super) mod verify;
pub(super) mod watch;

/// The name that an argument gives.
pub(super) fn label(text: &str) -> Result<String, LabelError> {
    check_label(text).map(str::to_owned)
}

/// So much of a name is shown, in cells of a terminal.
const SHOWN_LABEL: usize = 60;

/// A name behind what it is the name of, safe for a terminal. It may be any text.
pub(super) fn quoted(label: &str) -> String {
    format!(" “{}”", columns::cut(&Shown::bytes(label.as_bytes()).to_string(), SHOWN_LABEL))
}
