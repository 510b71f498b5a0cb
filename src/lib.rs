//! nono: undo for AI agents, and for anything else that changes many files.
#![forbid(unsafe_code)]

#[cfg(feature = "mount")]
pub mod browse;
pub mod diff;
pub mod object;
pub mod path_text;
pub mod progress;
pub mod restore;
pub mod session;
pub mod snapshot;
pub mod stat_cache;
pub mod store;
pub mod sys;
pub mod walk;
