//! New paths that were not captured: they stay, and so do the new directories above them.
//!
//! It is named, and the restore is then not complete, unless the directory bears the mark of a
//! program that makes it again. So a directory that stays only for such ones is no failure either.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::planner::Planner;
use crate::byte_path;
use crate::diff::{self, Lookup};
use crate::object::Node;
use crate::snapshot::{NotCaptured, NotCapturedReason};
use crate::store::StoreError;
use crate::walk::Marks;

const HOLDS_UNKNOWN: &str = "the directory holds something that was not captured";

impl Planner<'_> {
    /// Names what is new and was not captured.
    pub(super) fn name_unrecorded(
        &mut self,
        left_out: &[NotCaptured],
        now: &mut Lookup<'_>,
        before: &mut Lookup<'_>,
    ) -> Result<(), StoreError> {
        // Directories above something that is not rebuildable.
        let mut above_unknown: HashSet<&[u8]> = HashSet::new();
        let mut marks = Marks::default();
        let new = diff::new_among(left_out, &self.unknown, before)?;
        let mut new = new.into_iter().peekable();
        for left in left_out {
            let path = left.path.as_os_str().as_bytes();
            let is_new = new.next_if(|new| new.path == left.path).is_some();
            if is_new && diff::can_be_made_again(left, before, &mut marks)? {
                self.plan.rebuildable.push(left.path.clone());
                continue;
            }
            if !self.holders.is_empty() {
                above_unknown.extend(byte_path::ancestors(path));
            }
            let reason = match (is_new, left.reason.is_problem()) {
                (true, false) => format!("it is new and was not recorded: {}", left.reason),
                // A directory that cannot be listed has an entry, and was looked at with the
                // differences.
                (true, true) if now.find(path)?.is_none() => {
                    format!("what is there now could not be captured: {}", left.reason)
                }
                (false, true) if self.unknown.knows(path) => {
                    self.name_unlisted(left, now, before)?;
                    continue;
                }
                _ => continue,
            };
            self.skip(path, reason);
            self.kept.insert(path.to_vec());
        }
        for path in self.holders.clone() {
            if above_unknown.contains(path.as_slice()) {
                self.skip(&path, HOLDS_UNKNOWN);
            }
        }
        Ok(())
    }

    /// Names what was left out of the target and is gone or another now: no restore brings it back.
    pub(super) fn name_lost(&mut self, then: &[NotCaptured], left_out: &[NotCaptured]) {
        let mut lost = diff::lost(then, left_out);
        // Existing directories that may hold more than their record were named with the
        // differences.
        let named: HashSet<&Path> =
            self.plan.skipped.iter().map(|skipped| skipped.path.as_path()).collect();
        lost.retain(|lost| !named.contains(lost.path.as_path()));
        self.plan.lost = lost;
    }

    /// Names files that could not be read for the target and can be now, or are gone, and of which
    /// not even the inode was noted: their state then is unknown, and they were changed.
    pub(super) fn name_unreadable_then(
        &mut self,
        then: &[NotCaptured],
        left_out: &[NotCaptured],
        now: &mut Lookup<'_>,
        before: &mut Lookup<'_>,
    ) -> Result<(), StoreError> {
        for left in then {
            let path = left.path.as_os_str().as_bytes();
            let NotCapturedReason::Unreadable { error, .. } = &left.reason else { continue };
            if left.state.is_some() {
                continue;
            }
            let is_left_out_now = || left_out.iter().any(|now| now.path == left.path);
            if before.find(path)?.is_some() || is_left_out_now() {
                continue;
            }
            let what = if now.find(path)?.is_some() { "it is another now" } else { "it is gone" };
            self.skip(path, format!("{what}, and could not be recorded before: {error}"));
        }
        Ok(())
    }

    /// Names a directory that is there in both states and cannot be listed now, if no difference
    /// told of it.
    fn name_unlisted(
        &mut self,
        left: &NotCaptured,
        now: &mut Lookup<'_>,
        before: &mut Lookup<'_>,
    ) -> Result<(), StoreError> {
        let path = left.path.as_os_str().as_bytes();
        let is_directory = |state: &mut Lookup<'_>| -> Result<bool, StoreError> {
            Ok(state.find(path)?.is_some_and(|state| matches!(state.node, Node::Directory { .. })))
        };
        if is_directory(now)? && is_directory(before)? && !self.kept.contains(path) {
            self.keep_unlisted(path, Some(&left.reason));
        }
        Ok(())
    }

    /// Leaves a directory as it is whose entries are unknown.
    pub(super) fn keep_unlisted(&mut self, path: &[u8], reason: Option<&NotCapturedReason>) {
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        self.skip(path, format!("what is in it now could not be captured{reason}"));
        self.kept.insert(path.to_vec());
    }
}
