//! Walking tracked paths: what is in, what is left out, and by which rule.
//!
//! A walk goes through directory descriptors and never follows a symlink. The tracked path itself
//! is never excluded. Nothing here reads file contents, except `.gitignore` files.

mod estimate;
mod exclusion;
mod git_dir;
mod ignore_files;
mod listing;
mod rebuildable;

pub use estimate::{Estimate, estimate};
pub use exclusion::{ExclusionConfig, Filter, InvalidPattern, Verdict};
pub(crate) use git_dir::mode_inside;
pub use git_dir::{BEYOND_GIT_LIMIT, DOT_GIT, GitDirectories, MAX_GIT_BYTES};
pub use ignore_files::{IGNORE_FILE, IgnoreFile, Ignores, MAX_IGNORE_BYTES};
pub use listing::{FoundEntry, LeftOut, Listing, Mode, STAGING_PREFIX, WhyLeftOut, list};
pub(crate) use listing::{Names, judge, names};
pub(crate) use rebuildable::PACKAGE_BESIDE;
pub use rebuildable::makers_mark;
