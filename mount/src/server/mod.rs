//! The plain server: every request of the kernel becomes an answer. No part of it guesses.
//!
//! `filesystem` takes requests from `fuser`, `tree` finds what they ask for, `nodes` counts what
//! the kernel knows, `reads` hands out bytes.

pub(crate) mod attributes;
mod buffer;
pub(crate) mod contained;
mod contents;
pub(crate) mod filesystem;
pub(crate) mod list_cache;
pub(crate) mod nodes;
pub(crate) mod prune;
mod readdir;
pub(crate) mod reads;
pub(crate) mod tree;
mod xattrs;
