//! A fast read-only FUSE mount of any immutable tree of directories.
//!
//! The crate knows FUSE and one trait, [`TreeSource`]; where the directories and bytes come from is
//! the source's business. The dependency is inverted on purpose: FUSE code cannot reach into a
//! store, and the mount is tested on trees in memory.

#![forbid(unsafe_code)]

mod source;

pub use source::{Content, Device, Entry, HardLinks, Kind, Node, Stability, StateId, TreeSource};
