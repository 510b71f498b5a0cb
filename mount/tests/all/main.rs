//! Mounts trees in memory for real and looks at them with the programs people use.
//!
//! Speed is asserted as numbers of requests, which are the same on every machine, never as times.
#![allow(clippy::disallowed_methods, clippy::print_stderr, missing_docs)]

mod company;
mod contents;
mod fixture;
mod guard;
mod kernel_cache;
mod lifetimes;
mod lists;
mod living;
mod memory;
#[path = "../../../tests/shared/not_run.rs"]
mod not_run;
mod pushing;
mod stat;
