//! Forks at work: their mounts, and commands in them.
//!
//! ```text
//! nono fork enter NAME ── nono __fork-hold SESSION   its own namespaces: the recorded state by FUSE,
//!     │                                              the layers of the fork over it
//!     └── nono __keep --fork …                    enters these, and from there a copy of its own
//!             └── the command, within its walls
//! ```
//!
//! The kernel forbids two overlays with one layer, so all commands in a fork share the mounts of
//! one process, the *holder*. Nothing of them is seen outside of its namespaces, and nothing stays
//! when it is killed. Every user of a fork holds its lock, shared; the holder waits until it can
//! have the lock alone, and then ends.

mod entering;
mod here;
mod holder;
mod refusal;

pub(super) use entering::{CommandArgs, Entered, RightsArgs, say_lost_writes};
pub(super) use here::{CopyArgs, Newborn, forks_of};
pub(super) use holder::{HoldArgs, NAME, join, mark_of, run};
pub(super) use refusal::{probe, probe_copy};
