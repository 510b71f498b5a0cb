//! Before and after the first look at a tree: how long it will take, and what is left out.
//!
//! Directories that programs make again are left out unless the user wants them, and so is what git
//! ignores and is large. The engine leaves nothing out by itself; this is a habit of the command
//! line, and what it costs the user is named, with the flag that keeps it.

use std::collections::{BTreeMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::context::Context;
use super::offer::NONO;
use super::render::byte_size;
use nono_engine::counted::counted;
use nono_engine::layout;
use nono_engine::path_text::Shown;
use nono_engine::progress::Amount;
use nono_engine::session::{Catalog, RecordRequest};
use nono_engine::snapshot::{
    NotCapturedReason, SessionMetadata, SessionOrigin, SnapshotManifest, TrackedRoot, resolve_roots,
};
use nono_engine::stat_cache::has_cache;
use nono_engine::sys::Dir;
use nono_engine::walk::{
    BEYOND_GIT_LIMIT, Estimate, Filter, estimate, mark_in, names_a_limit, well_known,
};

/// The time of a first recording: measured on two processors, everything in memory. A disk that has
/// to be read is slower.
const SECONDS_PER_ENTRY: f64 = 15e-6;
const SECONDS_PER_BYTE: f64 = 2e-9;
/// Shorter recordings are not announced, in seconds.
const NOTICEABLE: f64 = 1.5;

/// Maximum number of left-out paths that are named.
const NAMED: usize = 10;
/// Maximum number of earlier sessions of the store that are looked at for what they told.
const MAX_LOOKED_AT: usize = 100;

/// Says how long the first recording of a large tree will take. A tree that was recorded before is
/// not looked at, because only its changes are read. The recording itself will report any failure
/// here.
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
                "first recording of {}: about {}, {}, {seconds:.0} s or more; later ones \
                 read only what changed",
                Shown::path(&root.path),
                counted(two_digits(found.entries), "entry", "entries"),
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

/// A number without the digits that an estimate does not have.
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

/// Directories of which a part is recorded: their maker's mark is left out by itself.
fn partly_left_out(manifest: &SnapshotManifest) -> HashSet<&Path> {
    let marks = manifest.not_captured.iter().filter(|left| {
        let NotCapturedReason::Excluded { rule } = &left.reason else { return false };
        let name = left.path.file_name();
        mark_in(rule).is_some_and(|mark| name == Some(mark.as_ref()))
    });
    marks.filter_map(|left| left.path.parent()).collect()
}

/// Why paths are left out, as far as a person hears of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Reason {
    /// A part of this directory is rebuildable.
    PartOf(PathBuf),
    /// Rebuildable directories of this name.
    Rebuildable(Vec<u8>),
    /// The rule with a limit.
    Large(Vec<u8>),
    /// Another rule, which a person wrote.
    Rule(String),
}

/// The left-out paths of a snapshot by their reasons.
fn reasons(manifest: &SnapshotManifest) -> BTreeMap<Reason, Vec<&Path>> {
    let mut found: BTreeMap<Reason, Vec<&Path>> = BTreeMap::new();
    let partly = partly_left_out(manifest);
    for left in &manifest.not_captured {
        let NotCapturedReason::Excluded { rule } = &left.reason else { continue };
        let mut above = left.path.ancestors().skip(1);
        let name = left.path.file_name().unwrap_or_default().as_bytes();
        let reason = match above.find(|above| partly.contains(above)) {
            Some(above) if mark_in(rule).is_some() => Reason::PartOf(above.to_owned()),
            _ if left.is_rebuildable() => Reason::Rebuildable(name.to_owned()),
            _ if names_a_limit(rule) || rule == BEYOND_GIT_LIMIT => {
                Reason::Large(rule.as_bytes().to_owned())
            }
            _ => Reason::Rule(rule.clone()),
        };
        found.entry(reason).or_default().push(&left.path);
    }
    found
}

/// Names the paths that a user may miss: rebuildable directories, each name in one line, and large
/// ignored paths. Paths that other rules leave out are counted. A reason that an earlier run of the
/// project told is not told again, unless details are wanted.
pub(super) fn report(
    manifest: &SnapshotManifest,
    id: &str,
    told: Option<&Catalog>,
    context: &Context,
) {
    let mut found = reasons(manifest);
    if let (Some(catalog), false, false) = (told, found.is_empty(), context.is_verbose) {
        for reason in told_before(manifest, id, catalog) {
            found.remove(&reason);
        }
    }
    let (mut named, mut counted) = (0, 0);
    for (reason, paths) in &found {
        if matches!(reason, Reason::Rule(_)) || named == NAMED {
            counted += paths.len();
        } else {
            named += 1;
            context.say(line(reason, paths));
        }
    }
    if counted > 0 {
        let paths = if counted == 1 { "path is" } else { "paths are" };
        context.say(format_args!(
            "{counted} {paths} left out by rules ({NONO} show {id}; --rollback-all \
             keeps all)"
        ));
    }
}

fn line(reason: &Reason, paths: &[&Path]) -> String {
    let (path, name) = (Shown::path(paths[0]), paths[0].file_name().unwrap_or_default());
    let name = Shown::bytes(name.as_bytes());
    let others = match paths.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let (what, name) = match reason {
        Reason::PartOf(dir) => {
            let name = Shown::bytes(dir.file_name().unwrap_or_default().as_bytes());
            return format!(
                "left out: a part of {}, made again by a program (--rollback-include {name} \
                 records all of it)",
                Shown::path(dir)
            );
        }
        Reason::Large(rule) if rule == BEYOND_GIT_LIMIT.as_bytes() => {
            let what = "more than 1 GiB: what git removes from it does not come back".to_owned();
            (what, format!(".git/{name}"))
        }
        Reason::Large(rule) => (Shown::bytes(rule).to_string(), name.to_string()),
        Reason::Rebuildable(key) => {
            let what = well_known(key).unwrap_or("made again by a program");
            (what.to_owned(), name.to_string())
        }
        Reason::Rule(rule) => (Shown::bytes(rule.as_bytes()).to_string(), name.to_string()),
    };
    format!("left out: {path}{others}, {what} (--rollback-include {name} records it)")
}

/// The reasons for which earlier runs of the same paths left something out: each of them named it.
/// A session that cannot be read told nothing.
fn told_before(manifest: &SnapshotManifest, id: &str, catalog: &Catalog) -> HashSet<Reason> {
    let roots = |manifest: &SnapshotManifest| -> Vec<PathBuf> {
        manifest.roots.iter().map(|root| root.path.clone()).collect()
    };
    let own = roots(manifest);
    let mut told = HashSet::new();
    let sessions = catalog.sessions().unwrap_or_default();
    for session in sessions.iter().rev().filter(|session| session.id() != id).take(MAX_LOOKED_AT) {
        let is_run = |metadata: &SessionMetadata| {
            metadata.origin == SessionOrigin::Run && !metadata.received
        };
        if !session.metadata().is_ok_and(|metadata| is_run(&metadata)) {
            continue;
        }
        let first = session.first_number().and_then(|number| session.manifest(number));
        if let Ok(first) = first
            && roots(&first.manifest) == own
        {
            told.extend(reasons(&first.manifest).into_keys());
        }
    }
    told
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
