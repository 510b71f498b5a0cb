//! The past of one path over all sessions of a store, the recorded paths that match a glob, and
//! recorded contents that have a text.
//!
//! These answers come from trees alone. A path costs the number of snapshots times its depth; a
//! glob costs each different tree once. Neither depends on how large the projects are. A text costs
//! each different object once ([`search_text`]), the lines of a file each version of it
//! ([`blame()`]).
//!
//! A session that is damaged is named, and the others are asked all the same. Two states of a path
//! whose time alone differs are one version: a user does not ask for a time.

mod at;
mod blame;
mod error;
mod find;
mod forms;
mod matching;
mod now;
mod objects;
mod snapshots;
mod taken_back;
mod text;
mod versions;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make what they look at")]
mod tests;

pub use at::{StateAt, state_at};
pub use blame::{
    Blame, BlameAt, BlamedLine, MAX_BLAME_BYTES, Writer, blame, found_again, similarity,
};
pub use error::{Damaged, HistoryError};
pub use find::{Found, PathGlob, find};
pub use forms::{forms_of, recorded_form};
pub use now::{Now, now_of, text_now};
pub use objects::Objects;
pub use snapshots::Place;
pub use text::{
    Depth, Event, InObject, Line, Standing, TextOptions, TextPattern, TextRequest, TextSearch,
    TextVersion, search_text,
};
pub use versions::{Origin, PathHistory, Version, history_of};
