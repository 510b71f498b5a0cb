//! What a command made and nono did not record: named when the command ends, because no restore removes it.

use std::path::{Path, PathBuf};

use super::context::Context;
use crate::diff::{self, Lookup};
use crate::path_text::Shown;
use crate::snapshot::{NotCaptured, NotCapturedReason, SnapshotManifest};
use crate::store::{ObjectSource, StoreError, read_root_tree};

/// So many paths are named one by one.
const NAMED: usize = 10;

/// What is new in a state since an earlier one, and was not recorded.
#[derive(Debug, Default)]
pub(super) struct Unrecorded {
    left: Vec<NotCaptured>,
    rebuildable: Vec<PathBuf>,
}

impl Unrecorded {
    /// What is new in `now`. Directories that bear their maker's mark at this moment can be made again.
    pub(super) fn since(
        store: &dyn ObjectSource,
        before: &SnapshotManifest,
        now: &SnapshotManifest,
    ) -> Result<Self, StoreError> {
        let mut found = Self::default();
        let root = read_root_tree(store, &before.merkle_root)?;
        let mut state_before = Lookup::new(store, &root);
        for left in diff::unrecorded(store, before, &now.not_captured)? {
            let is_excluded = matches!(left.reason, NotCapturedReason::Excluded { .. });
            if is_excluded && diff::is_rebuildable(&left.path, &mut state_before)? {
                found.rebuildable.push(left.path.clone());
            } else {
                found.left.push(left.clone());
            }
        }
        Ok(found)
    }

    /// Whether everything new was recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty() && self.rebuildable.is_empty()
    }

    /// What a restore leaves, and is not complete for that.
    pub(super) fn into_left(self) -> Vec<NotCaptured> {
        self.left
    }

    /// What a restore leaves, and is not complete for that.
    pub(super) fn left(&self) -> &[NotCaptured] {
        &self.left
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
                "new and not captured: {more} more (nono rollback restore {id} --dry-run names all)"
            ));
        }
        say_rebuildable(&self.rebuildable, context);
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
