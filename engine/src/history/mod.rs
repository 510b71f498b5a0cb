//! The past of one path over all sessions of a store, and the recorded paths that match a glob.
//!
//! Both answers come from trees alone. A path costs the number of snapshots times its depth; a glob
//! costs each different tree once. Neither depends on how large the projects are.
//!
//! A session that is damaged is named, and the others are asked all the same. Two states of a path
//! whose time alone differs are one version: nobody wants to have a time back.

mod error;
mod find;
mod forms;
mod now;
mod objects;
mod snapshots;
mod versions;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make what they look at")]
mod tests;

pub use error::{Damaged, HistoryError};
pub use find::{Found, PathGlob, find};
pub use forms::{forms_of, recorded_form};
pub use now::{Now, now_of};
pub use objects::Objects;
pub use snapshots::Place;
pub use versions::{Origin, PathHistory, Version, history_of};
