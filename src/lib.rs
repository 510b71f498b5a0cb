//! The program `nono`: undo for AI agents, and for anything else that changes many files.
//!
//! [`cli::main`] is the program. The engine, which programs embed, is the package `nono-engine`;
//! archives and remotes are `nono-archive`, histories of containers `nono-container`.
//! `ARCHITECTURE.md` has the map.

pub mod agent;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod config;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(feature = "cli")]
pub mod sandbox;
#[cfg(feature = "cli")]
pub mod watch;
