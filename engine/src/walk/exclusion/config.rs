//! Exclusions as they are configured and stored.

use serde::{Deserialize, Serialize};

use crate::walk::git_dir::GitDirectories;
use crate::walk::ignored::Ignored;

/// The exclusions of a tracked path. Stored in the manifest, so that a restore uses the very filter
/// of the capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExclusionConfig {
    /// Honour `.gitignore` files below the tracked path, in a git repository or not.
    #[serde(default = "yes")]
    pub use_gitignore: bool,
    /// The ignored paths that are recorded all the same.
    #[serde(default, skip_serializing_if = "Ignored::is_none")]
    pub ignored: Ignored,
    /// Leave out directories that are proved to be made again by a program: they bear its mark, or
    /// git ignores them, their name is a well-known one, and they are not small.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rebuildable: bool,
    /// A name that is a whole path component (`node_modules`), or, with a `/` in it, any part of
    /// the path relative to the tracked path: `src/gen` matches `src/gen`, `src/generated` and
    /// `my-src/gen.rs`. A leading `/` ties it to the top, a trailing `/` to directories of exactly
    /// that name. A leading `//` makes it exactly one path: as given, from the root of the file
    /// system, and as stored, from the tracked path ([`tied`](Self::tied)). With `*`, `?`, `[…]` or
    /// `{…}`, which work within a component, it is about whole components.
    #[serde(default)]
    pub exclude_patterns: Vec<String>,
    /// Globs on the names of everything but directories: `*.pyc`.
    #[serde(default)]
    pub exclude_globs: Vec<String>,
    /// Patterns, as above, that beat every exclusion, for themselves and all below.
    #[serde(default)]
    pub force_include: Vec<String>,
    /// Patterns, as above, of directories that are left out and not searched for what is
    /// force-included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prune_patterns: Vec<String>,
    /// The treatment of git directories.
    #[serde(default, skip_serializing_if = "GitDirectories::is_default")]
    pub git_directories: GitDirectories,
}

fn yes() -> bool {
    true
}

impl Default for ExclusionConfig {
    fn default() -> Self {
        Self {
            use_gitignore: true,
            ignored: Ignored::None,
            rebuildable: false,
            exclude_patterns: Vec::new(),
            exclude_globs: Vec::new(),
            force_include: Vec::new(),
            prune_patterns: Vec::new(),
            git_directories: GitDirectories::default(),
        }
    }
}

impl ExclusionConfig {
    /// Leaves nothing out.
    pub fn nothing() -> Self {
        Self { use_gitignore: false, ..Self::default() }
    }
}
