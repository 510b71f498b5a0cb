//! The store as a tree of folders, for a mount.
//!
//! ```text
//! latest -> newest session          <session>/latest -> newest snapshot
//! <session>/<number>/home/me/project/…
//! <session>/forks/NAME/home/me/project/…     its fork, as that is now
//! by-project/project/<session>/before/…      the same, in folders for people
//! ```
//!
//! [`StoreTree`] answers the questions of [`nono_mount`] from the objects of one or more stores.
//! Always true:
//! - Only the root, the session directories, forks and the folders for people change. Everything below a
//!   snapshot's number follows from hashes alone: its keys name objects and not snapshots, so they
//!   are the same for equal subtrees of any snapshot, and stay valid when the snapshot they were
//!   first seen in is removed.
//! - Equal [`StateId`](nono_mount::StateId)s are equal paths (or members of one hard-link group)
//!   with equal entries in one store, subdirectories and the hard links in them included.
//! - No byte is handed out before the object it is in was checked against its hash.
//! - Nothing is ever written, no lock is taken that a writer could wait for, and no lock of our own
//!   is held while a file is read.
//! - Work is lazy: of a snapshot without a reader, at most the first kilobytes of the
//!   manifest are read. Decoded directories are not cached here; the mount keeps their lists.

mod by_project;
mod contents;
mod error;
mod forks;
mod git_index;
mod head;
mod key;
mod links;
mod lister;
mod past;
mod pieces;
mod place;
mod projects;
mod remembered;
mod safe_name;
mod sessions;
mod steps;
mod stores;
mod tree;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests plant what they look at")]
mod tests;

pub(crate) use crate::layout::LATEST;
use by_project::BY_PROJECT;
pub use error::BrowseError;
pub use key::{ContentKey, DirectoryKey};
pub use place::check_place;
pub use tree::{Scope, StoreTree};
