//! The unrecorded changes of a command: named when the command ends, because no restore undoes
//! them.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::context::Context;
use crate::cli::offer::NONO;
use nono_engine::diff::{self, Lookup, Lost};
use nono_engine::path_text::Shown;
use nono_engine::session::UnrecordedStep;
use nono_engine::snapshot::{NotCaptured, NotCapturedReason, OutsidePath, SnapshotManifest, Step};
use nono_engine::store::{ObjectSource, StoreError, read_root_tree};
use nono_engine::walk::Marks;

/// Maximum number of paths that are named one by one.
const NAMED: usize = 10;

/// New paths of a state since an earlier one, without a record.
#[derive(Debug, Default)]
pub(super) struct Unrecorded {
    left: Vec<NotCaptured>,
    rebuildable: Vec<PathBuf>,
    lost: Vec<Lost>,
    /// Paths that neither of the two states could read, and that did not change as far as is known.
    unread: Vec<PathBuf>,
}

impl Unrecorded {
    /// New paths in `now`. Directories with their maker's mark at this moment are rebuildable.
    pub(super) fn since(
        store: &dyn ObjectSource,
        before: &SnapshotManifest,
        now: &SnapshotManifest,
    ) -> Result<Self, StoreError> {
        let mut found = Self::default();
        let root = read_root_tree(store, &before.merkle_root)?;
        let mut state_before = Lookup::new(store, &root);
        let mut marks = Marks::default();
        for left in diff::unrecorded(store, before, &now.not_captured)? {
            if diff::can_be_made_again(left, &mut state_before, &mut marks)? {
                found.rebuildable.push(left.path.clone());
            } else {
                found.left.push(left.clone());
            }
        }
        found.lost = diff::lost(&before.not_captured, &now.not_captured);
        let is_unread =
            |left: &&NotCaptured| matches!(left.reason, NotCapturedReason::Unreadable { .. });
        let unread = before.not_captured.iter().filter(is_unread).map(|left| &left.path);
        let is_lost = |path: &Path| found.lost.iter().any(|lost| lost.path == path);
        found.unread = unread.filter(|path| !is_lost(path)).cloned().collect();
        Ok(found)
    }

    /// Whether everything new was recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty() && self.rebuildable.is_empty() && self.lost.is_empty()
    }

    /// The paths that a restore leaves and those that it cannot bring back; it is not complete for
    /// that.
    pub(super) fn into_left(self) -> (Vec<NotCaptured>, Vec<Lost>) {
        (self.left, self.lost)
    }

    pub(super) fn names(&self, path: &Path) -> bool {
        self.left.iter().any(|left| left.path == path)
    }

    /// Says what it is.
    pub(super) fn report(&self, id: &str, context: &Context) {
        let named = context.at_most(NAMED);
        for left in self.left.iter().take(named) {
            let path = Shown::path(&left.path);
            let reason = &left.reason;
            context.warn(format_args!(
                "new and not captured: {path} ({reason}); a restore leaves it as it is"
            ));
        }
        if self.left.len() > named {
            let more = self.left.len() - named;
            context.warn(format_args!(
                "new and not captured: {more} more ({NONO} restore {id} --dry-run names \
                 all)"
            ));
        }
        say_rebuildable(&self.rebuildable, context);
        report_lost(&self.lost, context);
        say_unread(&self.unread, context);
    }
}

/// Says in one line which directories stay although they are new.
pub(super) fn say_rebuildable(paths: &[PathBuf], context: &Context) {
    if paths.is_empty() {
        return;
    }
    let named: Vec<_> = paths.iter().take(NAMED).map(|p| Shown::path(p).to_string()).collect();
    let others = match paths.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = named.join(", ");
    context.say(format_args!("new and not recorded, but can be made again: {named}{others}"));
}

/// Says in one line what could not be read, so that the user does not take it for recorded.
fn say_unread(paths: &[PathBuf], context: &Context) {
    let Some(first) = paths.first() else { return };
    let first = Shown::path(first);
    let others = match paths.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    context.say(format_args!(
        "could not be read, so a change there cannot be undone: {first}{others}"
    ));
}

/// Names the left-out paths that are not as they were; rebuildable ones in one line.
pub(super) fn report_lost(lost: &[Lost], context: &Context) {
    let (again, for_good): (Vec<&Lost>, Vec<&Lost>) =
        lost.iter().partition(|lost| lost.is_rebuildable);
    for lost in for_good.iter().take(NAMED) {
        context.warn(format_args!("{}", told(lost)));
    }
    if let Some(more) = for_good.len().checked_sub(NAMED).filter(|more| *more > 0) {
        context.warn(format_args!("not recorded and gone or changed: {more} more"));
    }
    if !again.is_empty() {
        let named: Vec<_> =
            again.iter().take(NAMED).map(|lost| Shown::path(&lost.path).to_string()).collect();
        let others = match again.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = named.join(", ");
        context.say(format_args!(
            "not recorded and gone or changed, but can be made again: {named}{others}"
        ));
    }
}

/// The paths that a step of a session that tracks this names, one line for each.
pub(super) fn lines_of_step(step: &UnrecordedStep, tracked_paths: &[PathBuf]) -> Vec<String> {
    let UnrecordedStep { outside, gone, unnamed, .. } = step;
    let of_outside = |it: &OutsidePath| {
        let (path, what) = (Shown::path(&it.path), it.what);
        format!("outside of the project, not recorded: {path} ({what})")
    };
    let of_gone = |path: &PathBuf| {
        let path = diff::relative_to_roots(path.as_os_str().as_bytes(), tracked_paths);
        format!("not recorded and gone: {}", Shown::bytes(path))
    };
    let more = (*unnamed > 0).then(|| format!("{unnamed} more paths that are not recorded"));
    outside.iter().map(of_outside).chain(gone.iter().map(of_gone)).chain(more).collect()
}

/// The same of a step that is about to be taken, with whole paths.
pub(super) fn unrecorded_of(step: &Step) -> Vec<String> {
    let Step { outside, gone, unnamed, .. } = step.clone().bounded();
    lines_of_step(&UnrecordedStep { step: 0, outside, gone, unnamed }, &[])
}

/// `not recorded and gone: /p/big.iso`, or `changed, and no snapshot holds what it was: /p/shut/`.
pub(super) fn told(lost: &Lost) -> String {
    let slash = if lost.is_directory { "/" } else { "" };
    let (what, path) = (lost.what, Shown::path(&lost.path));
    match lost.reason {
        NotCapturedReason::Unreadable { .. } => {
            format!("{what}, and no snapshot holds what it was: {path}{slash}")
        }
        _ => format!("not recorded and {what}: {path}{slash}"),
    }
}
