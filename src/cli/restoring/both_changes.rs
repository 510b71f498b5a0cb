//! Both changes of each path in conflict: what is undone, and what came later.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::render::{DiffOptions, Palette, write_patch_counting};
use nono_engine::diff::{self, Difference};
use nono_engine::restore::Conflict;
use nono_engine::snapshot::{SnapshotKind, SnapshotManager};
use nono_engine::store::EitherSource;

/// Shows two patches of the paths in conflict: from the state that comes back to what the session
/// left, and from that to what is there now. Git directories are in none of them.
///
/// # Errors
/// When a state cannot be read.
pub(super) fn show(
    manager: &SnapshotManager,
    number: u64,
    conflicts: &[Conflict],
    roots: &[PathBuf],
    context: &Context,
) -> Result<(), CliError> {
    let session = manager.session();
    let before = session.manifest(number)?.manifest;
    let mut after = None;
    for number in session.recorded_numbers()?.into_iter().rev() {
        let manifest = session.manifest(number)?.manifest;
        if manifest.kind == SnapshotKind::Ordinary {
            after = Some(manifest);
            break;
        }
    }
    let after = after.unwrap_or_else(|| before.clone());
    let live = manager.live_state(&before)?;
    let source = EitherSource { first: manager.store(), second: &live };
    let mut options = DiffOptions::new(&source, roots);
    options.escape = context.stdout_is_terminal;
    if context.colours() {
        options.palette = Palette::coloured();
    }
    let files = conflicts.iter().filter(|conflict| conflict.repository.is_none());
    let paths: Vec<&[u8]> = files.map(|conflict| conflict.path.as_os_str().as_bytes()).collect();
    let is_meant = |found: &Difference| paths.contains(&found.path.as_slice());
    let now = live.manifest();
    context.show(|out| {
        for (title, old, new) in
            [("changed by the session:", &before, &after), ("changed later:", &after, now)]
        {
            writeln!(out, "{title}")?;
            let mut differences = diff::compare(&source, &old.merkle_root, &new.merkle_root)?;
            differences.retain(is_meant);
            write_patch_counting(out, &differences, &options)?;
        }
        Ok(())
    })
}
