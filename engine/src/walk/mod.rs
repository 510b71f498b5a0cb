//! Walking tracked paths: the included and the left-out entries, and the rule for each.
//!
//! A walk goes through directory descriptors and never follows a symlink. The tracked path itself
//! is never excluded. Nothing here reads file contents, except `.gitignore` files, git's index, and
//! marks.

mod estimate;
mod exclusion;
mod git_dir;
mod git_index;
mod ignore_files;
mod ignored;
mod judging;
mod listing;
mod rebuildable;

pub use estimate::{Estimate, estimate};
pub use exclusion::{ABSOLUTE, ExclusionConfig, Filter, InvalidPattern, Verdict, pattern_of_path};
pub(crate) use git_dir::mode_inside;
pub use git_dir::{BEYOND_GIT_LIMIT, DOT_GIT, GitDirectories, MAX_GIT_BYTES};
#[cfg(test)]
pub(crate) use git_index::StagedEntry;
#[cfg(feature = "fuzzing")]
pub(crate) use git_index::finds_what_it_tracks;
pub(crate) use git_index::{MAX_INDEX_BYTES, StagedEntries, staged, staged_entries};
#[cfg(feature = "mount")]
pub(crate) use git_index::{Places, places};
pub use git_index::{Repository, Tracks};
pub use ignore_files::{IGNORE_FILE, IgnoreFile, Ignores, MAX_IGNORE_BYTES};
pub(crate) use ignored::Databases;
pub use ignored::{
    Ignored, SMALL_FILE_BYTES, SMALL_PRECIOUS_BYTES, UnknownIgnored, is_database, names_a_limit,
};
pub use judging::OWN_STORE;
pub(crate) use judging::{Inside, keeps_below};
pub use listing::mark_in;
pub use listing::{
    FoundEntry, Known, LeftOut, Listing, Mode, Recorded, STAGING_PREFIX, WhyLeftOut, list,
};
pub(crate) use listing::{Marked, Names, Place, names, rule_of_mark};
pub(crate) use rebuildable::{LOCK_BESIDE, MAX_LOCK_BYTES, MadeAgain};
pub use rebuildable::{Marks, well_known};
