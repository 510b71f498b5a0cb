//! The watcher of a project: a process that records what changes, without being asked.
//!
//! ```text
//! events of the kernel ─ TreeWatch (engine) ─ Quiet: is it time? ─ history, in a thread: a step
//!                              │
//! questions at the socket ─────┴─ replies: how it is, what changed since, the end
//! ```
//!
//! - One thread ([`Watcher`]) waits for events, questions and signals, with no time limit while
//!   nothing is due. A second one exists only while a step is captured, so events go on being read.
//! - A step is due after a quiet moment (`quiet::Quiet`). It is taken only if something
//!   changed ([`WatchHistory`]).
//! - A command, a call of an agent and a restore record their own changes. So a step waits as long
//!   as one of them is at work on these paths. A change that they left is a step of the kind
//!   [`Elsewhere`](nono_engine::snapshot::StepKind::Elsewhere), and every other step is
//!   [`Watched`](nono_engine::snapshot::StepKind::Watched): of the user, or of another program.
//! - Events may be missing ([`Gap`](nono_engine::watch::Gap),
//!   [`Loss`](nono_engine::watch::Loss)). A step walks the whole tree, so no change is missed: after
//!   a loss it comes at once, with a gap again and again.

mod history;
mod keeper;
mod quiet;
mod unit;

pub use history::WatchHistory;
pub use keeper::{Happening, Stopper, WatchRequest, Watcher, WatcherError};
pub use unit::{unit_name, unit_text};
