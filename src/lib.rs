//! nono: undo for AI agents, and for anything else that changes many files.
#![forbid(unsafe_code)]

pub mod diff;
pub mod gc;
pub mod object;
pub mod path_text;
pub mod progress;
pub mod snapshot;
pub mod stat_cache;
pub mod store;
pub mod sys;
pub mod verify;
pub mod walk;
