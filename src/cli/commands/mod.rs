//! One file for each subcommand: its arguments and its function.

pub(super) mod cat;
pub(super) mod cleanup;
pub(super) mod completions;
pub(super) mod config;
pub(super) mod diff;
pub(super) mod diff_sides;
pub(super) mod doctor;
pub(super) mod find;
pub(super) mod list;
pub(super) mod log;
#[cfg(feature = "mount")]
pub(super) mod mount;
#[cfg(feature = "mount")]
pub(super) mod mount_guard;
pub(super) mod profile;
pub(super) mod restore;
pub(super) mod resume;
pub(super) mod review;
pub(super) mod run;
pub(super) mod sandbox_exec;
pub(super) mod show;
pub(super) mod snapshot;
#[cfg(feature = "mount")]
pub(super) mod umount;
pub(super) mod verify;
