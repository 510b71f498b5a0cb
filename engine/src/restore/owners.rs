//! Owners that an ordinary user cannot set.
//!
//! A restore gives a file to its user where only root could give it to its owner, and names it. A
//! later restore has to know such a state as the one that the first has left.

use crate::diff::EntryState;
use crate::sys;

const SETUID_AND_SETGID: u16 = 0o6000;

/// The user of a restore, as far as owners go.
pub(super) struct User {
    uid: u32,
    groups: Vec<u32>,
}

impl User {
    /// The one of this process. `None`: it is root, who sets every owner.
    pub(super) fn ordinary() -> Option<Self> {
        let uid = sys::effective_uid();
        (uid != 0).then(|| Self { uid, groups: sys::groups() })
    }

    /// The state after a restore of `target` by this user, if `now`'s owner stays there.
    pub(super) fn leaves(&self, target: &EntryState, now: &EntryState) -> Option<EntryState> {
        let (then, is) = (&target.attributes, &now.attributes);
        // Only its user can have made it, and gives it no further.
        if is.uid != self.uid || (is.uid, is.gid) == (then.uid, then.gid) {
            return None;
        }
        // A group is set if the user is in it.
        if is.gid != then.gid && self.groups.contains(&then.gid) {
            return None;
        }
        let mut left = target.clone();
        (left.attributes.uid, left.attributes.gid) = (is.uid, is.gid);
        // As `attributes::apply` does: setuid for another owner would be a gift.
        left.attributes.mode &= !SETUID_AND_SETGID;
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Attributes, ContentHash, FileTime, Node, Xattrs};

    fn state(uid: u32, gid: u32, mode: u16) -> EntryState {
        let mtime = FileTime { seconds: 1, nanoseconds: 0 };
        let attributes = Attributes { mode, uid, gid, mtime, xattrs: Xattrs::default() };
        EntryState { attributes, node: Node::file(1, ContentHash::of(b"x")) }
    }

    #[test]
    fn only_an_owner_that_the_user_could_not_set_is_what_a_restore_leaves() {
        let user = User { uid: 10, groups: vec![10, 20] };
        let leaves = |target: (u32, u32), now: (u32, u32)| {
            user.leaves(&state(target.0, target.1, 0o644), &state(now.0, now.1, 0o644))
        };
        assert_eq!(leaves((0, 0), (10, 10)), Some(state(10, 10, 0o644)));
        assert_eq!(leaves((10, 99), (10, 10)), Some(state(10, 10, 0o644)));
        assert_eq!(leaves((0, 20), (10, 20)), Some(state(10, 20, 0o644)));
        // The user could have set the group.
        assert_eq!(leaves((0, 20), (10, 10)), None);
        assert_eq!(leaves((10, 10), (10, 20)), None);
        // Only root gives a file away.
        assert_eq!(leaves((0, 0), (11, 10)), None);
        assert_eq!(leaves((10, 10), (0, 0)), None);
        assert_eq!(leaves((10, 10), (10, 10)), None);
        let left = user.leaves(&state(0, 0, 0o4755), &state(10, 10, 0o755));
        assert_eq!(left, Some(state(10, 10, 0o755)));
    }
}
