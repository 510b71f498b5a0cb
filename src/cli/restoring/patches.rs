//! The patches that a question shows: of the plan, or of both changes of each path in conflict.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Restoring;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::render::{DiffOptions, Palette, write_patch_counting};
use nono_engine::diff::{self, Difference};
use nono_engine::restore::{Conflict, RestoreReport};
use nono_engine::snapshot::{SnapshotKind, SnapshotManifest};
use nono_engine::store::EitherSource;

/// A state of the project.
#[derive(Debug, Clone, Copy)]
enum State {
    /// The snapshot that comes back.
    Target,
    /// The last snapshot that the session took.
    Left,
    /// The files as they are.
    Now,
}

/// A patch of some paths, with its title.
struct Patch<'a> {
    title: &'a str,
    from: State,
    to: State,
    paths: HashSet<&'a [u8]>,
}

impl Restoring<'_> {
    /// Shows what an undo would do to the files. Git directories are not among them.
    ///
    /// # Errors
    /// When a state cannot be read.
    pub(super) fn show_plan(
        &self,
        plan: &RestoreReport,
        context: &Context,
    ) -> Result<(), CliError> {
        let merged: HashSet<&[u8]> = plan.merged.iter().map(|path| bytes(path)).collect();
        let of_git = |path: &Path| plan.repositories.iter().any(|it| path.starts_with(&it.git_dir));
        let changed = plan.changes.iter().map(|change| &*change.path).filter(|path| !of_git(path));
        let whole = changed.map(bytes).filter(|path| !merged.contains(path)).collect();
        let patch = |title, from, paths| Patch { title, from, to: State::Target, paths };
        self.show_patches(
            &[
                patch("the undo does this:", State::Now, whole),
                // The state after a merge is in none of the three.
                patch("it takes this out, and later changes stay:", State::Left, merged),
            ],
            context,
        )
    }

    /// Shows the changes of the session and the later ones of the paths in conflict. Git
    /// directories are not among them.
    ///
    /// # Errors
    /// When a state cannot be read.
    pub(super) fn show_both_changes(
        &self,
        conflicts: &[Conflict],
        context: &Context,
    ) -> Result<(), CliError> {
        let files = conflicts.iter().filter(|conflict| conflict.repository.is_none());
        let paths: HashSet<&[u8]> = files.map(|conflict| bytes(&conflict.path)).collect();
        let patch = |title, from, to| Patch { title, from, to, paths: paths.clone() };
        self.show_patches(
            &[
                patch("changed by the session:", State::Target, State::Left),
                patch("changed later:", State::Left, State::Now),
            ],
            context,
        )
    }

    /// The last snapshot that the session took.
    pub(super) fn state_left(&self) -> Result<Option<SnapshotManifest>, CliError> {
        let session = self.session();
        for number in session.recorded_numbers()?.into_iter().rev() {
            let manifest = session.manifest(number)?.manifest;
            if manifest.kind == SnapshotKind::Ordinary {
                return Ok(Some(manifest));
            }
        }
        Ok(None)
    }

    fn show_patches(&self, patches: &[Patch<'_>], context: &Context) -> Result<(), CliError> {
        let session = self.session();
        let target = session.manifest(self.job.snapshot())?.manifest;
        let left = self.state_left()?.unwrap_or_else(|| target.clone());
        let live = self.job.manager().live_state(&target)?;
        let root = |state| match state {
            State::Target => &target.merkle_root,
            State::Left => &left.merkle_root,
            State::Now => &live.manifest().merkle_root,
        };
        let source = EitherSource { first: self.job.manager().store(), second: &live };
        let mut options = DiffOptions::new(&source, &self.roots);
        options.escape = context.stdout_is_terminal;
        if context.colours() {
            options.palette = Palette::coloured();
        }
        context.show(|out| {
            for Patch { title, from, to, paths } in patches.iter().filter(|it| !it.paths.is_empty())
            {
                writeln!(out, "{title}")?;
                let mut differences = diff::compare(&source, root(*from), root(*to))?;
                differences.retain(|found: &Difference| paths.contains(found.path.as_slice()));
                write_patch_counting(out, &differences, &options)?;
            }
            Ok(())
        })
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
