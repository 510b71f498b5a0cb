//! Owner, extended attributes, mode and time, in the one order that works: a change of owner clears
//! setuid, an ACL changes the mode, and a time is right only when nothing comes after it.

use std::fmt;
use std::io;

use crate::object::{Attributes, Node, Xattrs};
use crate::sys::{self, Inode, Stat};

const SETUID_AND_SETGID: u16 = 0o6000;

/// An attribute that an ordinary user may not set. It is shown as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// The owner, or the group.
    Owner { uid: u32, gid: u32 },
    /// Another one, in a sentence.
    Other(String),
}

impl Denied {
    fn owner_of(target: &Attributes) -> Self {
        Self::Owner { uid: target.uid, gid: target.gid }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner { uid, gid } => {
                write!(f, "the owner {uid}:{gid} could not be set without root's rights")
            }
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

/// Gives an inode its attributes. Attributes that an ordinary user may not set are returned; any
/// other failure is an error.
pub fn apply(inode: &Inode, target: &Attributes, node: &Node) -> sys::Result<Vec<Denied>> {
    let mut denied = Vec::new();
    let now = inode.stat()?;
    let is_symlink = matches!(node, Node::Symlink { .. });
    let mut mode = target.mode;
    let mut mode_may_have_changed = false;
    if (now.uid, now.gid) != (target.uid, target.gid) {
        mode_may_have_changed = true;
        // The group alone can often be set where the owner cannot.
        let changed = inode.set_owner(target.uid, target.gid).or_else(|error| {
            let is_group_alone = now.gid != target.gid && is_denied(&error);
            if is_group_alone { inode.set_owner(now.uid, target.gid) } else { Err(error) }
        });
        match changed {
            Ok(()) if inode.stat()?.uid == target.uid => {}
            Ok(()) => denied.push(Denied::owner_of(target)),
            Err(error) if is_denied(&error) => denied.push(Denied::owner_of(target)),
            Err(error) => return Err(error),
        }
        if !denied.is_empty() && mode & SETUID_AND_SETGID != 0 {
            // Setuid for another owner than before would be a gift.
            mode &= !SETUID_AND_SETGID;
            let reason = "setuid and setgid were left off, because the owner is another";
            denied.push(Denied::Other(reason.to_owned()));
        }
    }
    mode_may_have_changed |= apply_xattrs(inode, target, &mut denied)?;
    if !is_symlink && (now.mode != mode || mode_may_have_changed) {
        match inode.set_mode(mode) {
            Ok(()) if inode.stat()?.mode == mode => {}
            Ok(()) => {
                let reason = format!("the mode {mode:04o} is not kept here, or not for this group");
                denied.push(Denied::Other(reason));
            }
            Err(error) if is_denied(&error) => {
                let reason = format!("the mode {mode:04o} could not be set: not the owner");
                denied.push(Denied::Other(reason));
            }
            Err(error) => return Err(error),
        }
    }
    // None of the above moves it. One that need not be set is not, because it could hide an edit
    // that came in between.
    if now.mtime != target.mtime {
        match inode.set_mtime(target.mtime) {
            Ok(true) => {}
            Ok(false) => {
                let reason = "the time is not kept by the file system";
                denied.push(Denied::Other(reason.to_owned()));
            }
            Err(error) if is_denied(&error) => {
                denied.push(time_denied(inode));
            }
            Err(error) => return Err(error),
        }
    }
    if denied.is_empty() {
        return Ok(denied);
    }
    // Maybe not for want of rights.
    Ok(match inode.frozen() {
        Some(cause) => {
            vec![Denied::Other(format!("its attributes could not be set: it is {cause}"))]
        }
        None => denied,
    })
}

/// The attributes that an inode has.
pub(super) fn read(inode: &Inode) -> sys::Result<Attributes> {
    let Stat { mode, uid, gid, mtime, .. } = inode.stat()?;
    Ok(Attributes { mode, uid, gid, mtime, xattrs: Xattrs::new(inode.xattrs()?) })
}

/// Why a time could not be set.
pub(super) fn time_denied(inode: &Inode) -> Denied {
    let cause = inode.frozen().map_or("not the owner".to_owned(), |cause| format!("it is {cause}"));
    Denied::Other(format!("the time could not be set: {cause}"))
}

/// Returns whether something was set, which can change the mode (ACLs).
fn apply_xattrs(inode: &Inode, target: &Attributes, denied: &mut Vec<Denied>) -> sys::Result<bool> {
    let current = inode.xattrs()?;
    let mut is_changed = false;
    for (attribute, _) in current.iter().filter(|(found, _)| target.xattrs.get(found).is_none()) {
        match inode.remove_xattr(attribute) {
            Ok(()) => is_changed = true,
            Err(error) if is_denied(&error) => denied.push(xattr_denied(attribute, b"")),
            Err(error) => return Err(error),
        }
    }
    for (attribute, value) in target.xattrs.iter() {
        if current.iter().any(|(found, old)| **found == *attribute && **old == *value) {
            continue;
        }
        match inode.set_xattr(attribute, value) {
            Ok(()) => is_changed = true,
            Err(error) if is_denied(&error) => denied.push(xattr_denied(attribute, value)),
            Err(error) => return Err(error),
        }
    }
    Ok(is_changed)
}

fn is_denied(error: &sys::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}

fn xattr_denied(attribute: &[u8], value: &[u8]) -> Denied {
    let name = crate::path_text::Shown::bytes(attribute);
    if attribute == sys::INODE_FLAGS {
        let flags = crate::path_text::Shown::bytes(value);
        return Denied::Other(format!("the flags =\"{flags}\" (chattr) could not be restored"));
    }
    Denied::Other(format!("the extended attribute {name} could not be restored"))
}
