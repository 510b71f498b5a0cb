//! Setuid, setgid and file capabilities in snapshots that archives brought.
//!
//! The writer of an archive chooses modes, owners and attributes. A restore as root would give a
//! foreign file the rights of any user. So it leaves these off unless the user asks for them, and
//! names each file. What a restore here kept as a safety snapshot was captured here, and is
//! trusted.

use std::sync::Arc;

use super::RestoreError;
use super::plan::{RestorePlan, Skipped};
use crate::diff::EntryState;
use crate::object::{Node, Xattrs};
use crate::path_text::to_path;
use crate::snapshot::SnapshotManager;

const SETUID_AND_SETGID: u16 = 0o6000;
const CAPABILITY: &[u8] = b"security.capability";

pub(super) const LEFT_OFF: &str = "setuid, setgid and capabilities were left off, because an \
     archive brought the snapshot (--with-privileges keeps them)";

impl SnapshotManager {
    /// Whether another user may have chosen the privileges of a snapshot.
    pub(super) fn is_foreign(&self, number: u64) -> Result<bool, RestoreError> {
        let metadata = self.session().metadata()?;
        let mut kept = metadata.restores.iter().filter_map(|record| record.safety_snapshot);
        let came_later = metadata.received_snapshots.contains(&number);
        Ok(came_later || metadata.received && !kept.any(|kept| kept == number))
    }
}

/// The state of a file without its privileges; `None` if it has none.
pub(super) fn without_privileges(state: &EntryState) -> Option<EntryState> {
    let attributes = &state.attributes;
    let has_capability = attributes.xattrs.iter().any(|(name, _)| name == CAPABILITY);
    let is_file = matches!(state.node, Node::File { .. });
    if !is_file || (attributes.mode & SETUID_AND_SETGID == 0 && !has_capability) {
        return None;
    }
    let mut state = state.clone();
    state.attributes.mode &= !SETUID_AND_SETGID;
    let others = state.attributes.xattrs.iter().filter(|(name, _)| *name != CAPABILITY);
    state.attributes.xattrs = Xattrs::new(others.map(|(n, v)| (n.into(), v.into())).collect());
    Some(state)
}

impl RestorePlan {
    /// Leaves privileges off that a file does not have now with the same contents.
    pub(super) fn leave_off_privileges(&mut self) {
        let actions = &mut self.actions;
        let puts = actions.puts.iter_mut().map(|put| (&put.path, &mut put.target));
        for (path, target) in puts {
            if let Some(less) = without_privileges(target) {
                *target = Arc::new(less);
                self.skipped.push(left_off(path));
            }
        }
        for attribute in &mut actions.attributes {
            let Some(less) = without_privileges(&attribute.target) else { continue };
            let has_them = attribute.current.as_deref().is_some_and(|current| {
                let (now, then) = (&current.attributes, &attribute.target.attributes);
                let capability = |xattrs: &Xattrs| {
                    xattrs
                        .iter()
                        .find(|(name, _)| *name == CAPABILITY)
                        .map(|(_, value)| value.to_vec())
                };
                current.node == attribute.target.node
                    && (now.uid, now.gid) == (then.uid, then.gid)
                    && now.mode & SETUID_AND_SETGID == then.mode & SETUID_AND_SETGID
                    && capability(&now.xattrs) == capability(&then.xattrs)
            });
            if !has_them {
                attribute.target = Arc::new(less);
                self.skipped.push(left_off(&attribute.path));
            }
        }
    }
}

fn left_off(path: &[u8]) -> Skipped {
    Skipped { path: to_path(path).to_owned(), reason: LEFT_OFF.to_owned() }
}
