//! Before and after the first look at a tree: how long it will take, and what is left out.
//!
//! Directories that programs make again are left out unless somebody wants them. The
//! engine leaves nothing out by itself; this is a habit of the command line, and every directory that
//! it costs somebody is named, with the flag that keeps it.

use std::collections::BTreeMap;
use std::path::Path;

use super::context::Context;
use super::render::byte_size;
use crate::layout;
use crate::path_text::Shown;
use crate::progress::Amount;
use crate::session::RecordRequest;
use crate::snapshot::{NotCapturedReason, SnapshotManifest, TrackedRoot, resolve_roots};
use crate::stat_cache::has_cache;
use crate::sys::Dir;
use crate::walk::{BEYOND_GIT_LIMIT, Estimate, Filter, estimate};

/// What a first recording takes: measured on two processors, everything in memory. A disk that has to
/// be read is slower.
const SECONDS_PER_ENTRY: f64 = 15e-6;
const SECONDS_PER_BYTE: f64 = 2e-9;
/// What takes less is not announced, in seconds.
const NOTICEABLE: f64 = 1.5;

/// Names of directories, with what they hold.
const WELL_KNOWN: &[(&str, &str)] = &[
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

/// Says how long the first recording of a large tree will take. A tree that was recorded before is
/// not looked at: only what changed is read. Whatever fails here, the recording itself will say.
/// Returns about how much there is to record, if all of it was looked at.
pub(super) fn announce(request: &RecordRequest, context: &Context) -> Option<Amount> {
    let index = Dir::open(&request.root.join(layout::INDEX));
    let is_known = |path: &Path| index.as_ref().is_ok_and(|index| has_cache(index, path));
    let roots = resolve_roots(&request.tracked_paths, &request.exclusion, &[]);
    let mut total = Some(Amount::default());
    for root in roots.unwrap_or_default() {
        let found = if is_known(&root.path) { None } else { estimate_of(&root) };
        total = total.zip(found).map(|(total, found)| plus(total, found));
        let Some(found) = found else { continue };
        let seconds = found.entries * SECONDS_PER_ENTRY + found.bytes * SECONDS_PER_BYTE;
        if seconds >= NOTICEABLE {
            context.say(format_args!(
                "first recording of {}: about {} entries, {}, {seconds:.0} s or more; later ones \
                 read only what changed",
                Shown::path(&root.path),
                two_digits(found.entries),
                byte_size(found.bytes as u64),
            ));
        }
    }
    total
}

/// About how much there is to record, for a progress line that appears.
pub(super) fn guess(request: &RecordRequest) -> Option<Amount> {
    let roots = resolve_roots(&request.tracked_paths, &request.exclusion, &[]).ok()?;
    roots.iter().try_fold(Amount::default(), |total, root| Some(plus(total, estimate_of(root)?)))
}

fn estimate_of(root: &TrackedRoot) -> Option<Estimate> {
    let (dir, filter) = (Dir::open(&root.path).ok()?, Filter::new(&root.exclusion).ok()?);
    Some(estimate(&dir, &filter))
}

fn plus(total: Amount, found: Estimate) -> Amount {
    let entries = total.entries.saturating_add(found.entries as u64);
    Amount { entries, bytes: total.bytes.saturating_add(found.bytes as u64) }
}

/// A number without the digits that nobody knows.
fn two_digits(number: f64) -> u64 {
    let unit = 10f64.powf(number.max(1.0).log10().floor() - 1.0).max(1.0);
    ((number / unit).round() * unit) as u64
}

/// Warns when rules leave out everything: such a session undoes nothing.
pub(super) fn warn_if_empty(manifest: &SnapshotManifest, context: &Context) {
    if manifest.totals.file_count == 0 && !manifest.not_captured.is_empty() {
        context.warn(
            "NOTHING IS RECORDED: every file is left out, so nothing can be undone \
             (--rollback-all leaves nothing out)",
        );
    }
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
    let of_git = report_git(manifest, context);
    found.values().map(Vec::len).sum::<usize>() + of_git
}

/// Names the repositories whose objects are too many.
fn report_git(manifest: &SnapshotManifest, context: &Context) -> usize {
    let is_beyond = |reason: &NotCapturedReason| matches!(reason, NotCapturedReason::Excluded { rule } if rule == BEYOND_GIT_LIMIT);
    let left = manifest.not_captured.iter().filter(|left| is_beyond(&left.reason));
    let mut count = 0;
    for left in left {
        count += 1;
        context.say(format_args!(
            "left out: {}, more than 1 GiB: what git removes from it does not come back \
             (--rollback-include .git/objects records it)",
            Shown::path(&left.path)
        ));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_digits_of_an_estimate_are_said() {
        let said = [0.0, 7.4, 99.6, 123.0, 98_765.0, 1_250_000.0].map(two_digits);
        assert_eq!(said, [0, 7, 100, 120, 99_000, 1_300_000]);
    }
}
