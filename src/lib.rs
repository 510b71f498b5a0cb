//! nono: undo for AI agents, and for anything else that changes many files.
//!
//! A command works in your directories; the state before and after is recorded, content-addressed
//! and tamper-evident. This library is the engine of the `nono` program: [`snapshot`] captures,
//! [`restore`] brings back, [`diff`] compares, [`verify`] proves, [`gc`] reclaims, and [`session`]
//! keeps the recordings of a store together. `ARCHITECTURE.md` has the map.
//!
//! ```no_run
//! use nono::snapshot::{Budget, SnapshotManager};
//! use nono::walk::ExclusionConfig;
//!
//! let paths = ["/home/me/project".into()];
//! let session = std::path::Path::new("/home/me/.snapshots/today");
//! let manager =
//!     SnapshotManager::new(session, &paths, ExclusionConfig::default(), Budget::default())?;
//! manager.create_baseline()?;
//! // ... an agent works ...
//! let (_, changes) = manager.create_incremental()?;
//! if !changes.is_empty() {
//!     manager.restore_to(0)?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod agent;
#[cfg(feature = "archive")]
pub mod archive;
#[cfg(feature = "mount")]
pub mod browse;
mod byte_path;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod config;
#[cfg(feature = "container")]
pub mod container;
pub mod diff;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gc;
pub mod git;
pub mod history;
pub mod import;
mod layout;
mod manifest;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod object;
pub mod path_text;
pub mod progress;
#[cfg(feature = "archive")]
pub mod remote;
pub mod repair;
pub mod restore;
#[cfg(feature = "cli")]
pub mod sandbox;
pub mod session;
pub mod snapshot;
pub mod stat_cache;
pub mod store;
pub mod sys;
pub mod verify;
pub mod walk;
