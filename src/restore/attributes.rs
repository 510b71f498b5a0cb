//! Owner, extended attributes, mode and time, in the one order that works: a change of owner clears
//! setuid, an ACL changes the mode, and everything changes the time.

use std::io;

use crate::object::{Attributes, FileTime, Node};
use crate::sys::{self, Dir};

const SETUID_AND_SETGID: u16 = 0o6000;

/// Gives a name its attributes. What an ordinary user may not set is returned as sentences; all
/// else is an error.
pub(super) fn apply(
    dir: &Dir,
    name: &[u8],
    target: &Attributes,
    node: &Node,
) -> sys::Result<Vec<String>> {
    let mut denied = Vec::new();
    let now = dir.stat(name)?;
    let is_symlink = matches!(node, Node::Symlink { .. });
    let mut mode = target.mode;
    let mut mode_may_have_changed = false;
    if (now.uid, now.gid) != (target.uid, target.gid) {
        mode_may_have_changed = true;
        // The group alone can often be set where the owner cannot.
        let changed = dir.set_owner(name, target.uid, target.gid).or_else(|error| {
            if now.gid == target.gid {
                Err(error)
            } else {
                dir.set_owner(name, now.uid, target.gid)
            }
        });
        match changed {
            Ok(()) if dir.stat(name)?.uid == target.uid => {}
            Ok(()) => denied.push(owner_denied(target)),
            Err(error) if is_denied(&error) => denied.push(owner_denied(target)),
            Err(error) => return Err(error),
        }
        if !denied.is_empty() && mode & SETUID_AND_SETGID != 0 {
            // Setuid for somebody else than before would be a gift.
            mode &= !SETUID_AND_SETGID;
            denied.push("setuid and setgid were left off, because the owner is another".to_owned());
        }
    }
    mode_may_have_changed |= apply_xattrs(dir, name, target, &mut denied)?;
    if !is_symlink && (now.mode != mode || mode_may_have_changed) {
        match dir.set_mode(name, mode) {
            Ok(()) => {}
            Err(error) if is_denied(&error) => {
                denied.push(format!("the mode {mode:04o} could not be set: not the owner"));
            }
            Err(error) => return Err(error),
        }
    }
    if !matches!(node, Node::Directory { .. }) || now.mtime != target.mtime {
        match set_mtime(dir, name, target.mtime) {
            Ok(()) => {}
            Err(error) if is_denied(&error) => {
                denied.push("the time could not be set: not the owner".to_owned());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(denied)
}

/// Sets the time alone.
pub(super) fn set_mtime(dir: &Dir, name: &[u8], mtime: FileTime) -> sys::Result<()> {
    dir.set_mtime(name, mtime)
}

/// Returns whether something was set, which can change the mode (ACLs).
fn apply_xattrs(
    dir: &Dir,
    name: &[u8],
    target: &Attributes,
    denied: &mut Vec<String>,
) -> sys::Result<bool> {
    let current = dir.xattrs(name)?;
    let mut is_changed = false;
    for (attribute, _) in current.iter().filter(|(found, _)| target.xattrs.get(found).is_none()) {
        match dir.remove_xattr(name, attribute) {
            Ok(()) => is_changed = true,
            Err(error) if is_denied(&error) => denied.push(xattr_denied(attribute)),
            Err(error) => return Err(error),
        }
    }
    for (attribute, value) in target.xattrs.iter() {
        if current.iter().any(|(found, old)| **found == *attribute && **old == *value) {
            continue;
        }
        match dir.set_xattr(name, attribute, value) {
            Ok(()) => is_changed = true,
            Err(error) if is_denied(&error) => denied.push(xattr_denied(attribute)),
            Err(error) => return Err(error),
        }
    }
    Ok(is_changed)
}

fn is_denied(error: &sys::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}

fn owner_denied(target: &Attributes) -> String {
    format!("the owner {}:{} could not be set without root's rights", target.uid, target.gid)
}

fn xattr_denied(attribute: &[u8]) -> String {
    let name = crate::path_text::Shown::bytes(attribute);
    format!("the extended attribute {name} could not be restored")
}
