//! The engine of nono: undo for AI agents, and for anything else that changes many files.
//!
//! A command works in your directories; the state before and after is recorded, content-addressed
//! and tamper-evident. [`snapshot`] captures, [`restore`] brings back, [`diff`] compares,
//! [`verify`] proves, [`gc`] reclaims, [`session`] keeps the recordings of a store together, and a
//! [`job`] is a way back that a person asked for: planned, asked about, carried out.
//! Nothing here prints, asks, exits or uses a network. `ARCHITECTURE.md` has the map.
//!
//! ```no_run
//! use nono_engine::snapshot::{Budget, SnapshotManager};
//! use nono_engine::walk::ExclusionConfig;
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

#[cfg(feature = "mount")]
pub mod browse;
#[doc(hidden)]
pub mod byte_path;
#[doc(hidden)]
pub mod counted;
pub mod diff;
pub mod events;
pub mod fork;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gc;
pub mod git;
pub mod history;
pub mod import;
pub mod job;
#[doc(hidden)]
pub mod layout;
#[doc(hidden)]
pub mod manifest;
pub mod object;
pub mod path_text;
#[doc(hidden)]
pub mod pax;
pub mod progress;
pub mod repair;
pub mod restore;
pub mod session;
mod shell_glob;
pub mod snapshot;
pub mod stat_cache;
pub mod store;
pub mod sys;
pub mod verify;
pub mod walk;
pub mod watch;
