//! What is left out unless somebody wants it: directories that programs make again, and `.git`.
//!
//! The engine leaves nothing out by itself; this is a habit of the command line, and every
//! directory that it costs somebody is named, with the flag that keeps it.

use std::collections::BTreeMap;
use std::path::Path;

use super::context::Context;
use crate::path_text::Shown;
use crate::snapshot::{NotCapturedReason, SnapshotManifest};

/// Names of directories, with what they hold.
const WELL_KNOWN: &[(&str, &str)] = &[
    (".git", "the repository itself"),
    (".hg", "the repository itself"),
    (".jj", "the repository itself"),
    (".svn", "the repository itself"),
    ("node_modules", "installed packages"),
    (".venv", "installed packages"),
    ("venv", "installed packages"),
    (".tox", "installed packages"),
    (".nox", "installed packages"),
    ("target", "build output"),
    ("dist", "build output"),
    ("build", "build output"),
    (".next", "build output"),
    (".nuxt", "build output"),
    (".svelte-kit", "build output"),
    (".gradle", "a cache"),
    (".cache", "a cache"),
    (".parcel-cache", "a cache"),
    (".turbo", "a cache"),
    ("__pycache__", "a cache"),
    (".pytest_cache", "a cache"),
    (".mypy_cache", "a cache"),
    (".ruff_cache", "a cache"),
];

/// Patterns of what is left out by default: directories of these names, anywhere.
pub(super) fn default_patterns() -> impl Iterator<Item = String> {
    WELL_KNOWN.iter().map(|(name, _)| format!("{name}/"))
}

/// Names what was left out by default, each kind in one line. Returns how many paths these were.
pub(super) fn report(manifest: &SnapshotManifest, context: &Context) -> usize {
    let mut found: BTreeMap<usize, Vec<&Path>> = BTreeMap::new();
    for left in &manifest.not_captured {
        let NotCapturedReason::Excluded { rule } = &left.reason else { continue };
        let is_rule = |(name, _): &(&str, &str)| *rule == format!("pattern {name}/");
        if let Some(index) = WELL_KNOWN.iter().position(is_rule) {
            found.entry(index).or_default().push(&left.path);
        }
    }
    for (index, paths) in &found {
        let (name, what) = WELL_KNOWN[*index];
        let others = match paths.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        context.say(format_args!(
            "left out: {}{others}, {what} (--rollback-include {name} records it)",
            Shown::path(paths[0])
        ));
    }
    found.values().map(Vec::len).sum()
}
