//! Looking into a remote without a pull: only what is asked for comes.
//!
//! ```text
//! a store in the cache, which lacks objects ── asks ──> Window ──> RangedArchive ──> Blocks
//!                                                       sessions   index, frames     ranges
//! ```
//!
//! A [`Window`] is the origin of a store of its own in the cache. The store has the manifests of
//! the sessions that were looked at, and the objects that were read. So each command that reads a
//! store works on a remote, too. Always true:
//!
//! - Every byte is checked against the hash by which it was asked for, before it is in the store.
//! - An archive with an index is read by ranges: its end, a part of the index, and frames. One
//!   without an index is read from its beginning, once, and that is said.
//! - The store in the cache is bounded. What was not used for long goes.

mod archive;
mod blocks;
mod cache;
mod streamed;
mod window;

pub use self::window::Window;
