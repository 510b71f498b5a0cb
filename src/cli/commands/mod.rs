//! One file for each subcommand: its arguments and its function.

pub(super) mod cleanup;
pub(super) mod diff;
pub(super) mod list;
pub(super) mod restore;
pub(super) mod run;
pub(super) mod show;
pub(super) mod snapshot;
pub(super) mod verify;
