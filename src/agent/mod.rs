//! Coding agents: what their hooks tell, and the steps that follow from it.
//!
//! A client (Claude Code, Codex, Gemini, OpenCode) starts `nono hook` at each event of its session
//! and waits for it. So the way is short, and nothing on it can fail the client:
//!
//! ```text
//! event on stdin ─ event::parse ─ spool (one file for each event) ─ worker, under the spool's lock:
//!                                     state::AgentState::advance (pure) → actions → recorder
//! ```
//!
//! The hook never records. It leaves the event in the [`Spool`] and starts a worker, a process of
//! its own that handles all events in order. The hook waits for the worker until its deadline and
//! leaves. So a hook that is killed loses nothing, a slow capture goes on, and hooks that come at
//! once take turns.
//!
//! Always true: an event is handled at most once, and in the order in which the events came; a step
//! is called *overlapped* where another call may have been at work while it was captured.

mod background;
mod caller;
mod conversation;
mod event;
#[cfg(feature = "cli")]
pub mod install;
mod journal;
mod news;
mod outside;
mod place;
mod recorder;
mod spool;
mod state;
mod title;

pub use caller::Caller;
pub use conversation::{AskedPrompt, command_before};
pub use event::{Call, Client, Event, EventKind, parse};
pub use journal::{Journal, Mishap};
pub use news::Known;
pub use outside::{NamedPath, look_at};
pub use place::{is_of_system, project_of};
pub use recorder::{FindElsewhere, RecordStepError, Recorder, record_actions};
pub use spool::{Kept, Spool, SpoolError, SpooledEvent};
pub use state::{Action, AgentState};
