//! Making one new inode, complete: contents checked, attributes set.

use super::RestoreError;
use super::attributes::{self, Denied};
use crate::diff::EntryState;
use crate::object::Node;
use crate::store::{FileSource, Transfer};
use crate::sys::{Dir, Inode};

const PERMISSIONS: u16 = 0o777;
/// Until its ACL is there: the mode of a file with an ACL says more than the ACL allows.
const PRIVATE: u16 = 0o600;

/// A new inode.
pub struct Made {
    pub(crate) ino: u64,
    /// The attributes that an ordinary user may not set.
    pub(crate) denied: Vec<Denied>,
}

/// Makes a file, symlink or FIFO under a name that is free. The path is for messages.
pub fn make(
    store: &dyn FileSource,
    dir: &Dir,
    name: &[u8],
    state: &EntryState,
    path: &[u8],
    mut transfer: Transfer<'_>,
) -> Result<Made, RestoreError> {
    let inode = match &state.node {
        Node::File { size, hash, .. } => {
            let has_acl = !state.attributes.xattrs.is_empty();
            let mode = if has_acl { PRIVATE } else { state.attributes.mode & PERMISSIONS };
            let file = dir.create_file(name, mode)?;
            store
                .export(hash, *size, &file, &mut transfer)
                .map_err(|error| RestoreError::content(error, path))?;
            transfer.finish(*size);
            Inode::of_file(file, dir.path_of(name))
        }
        Node::Symlink { target } => {
            dir.make_symlink(name, target)?;
            dir.inode(name)?
        }
        Node::Fifo => {
            dir.make_fifo(name, PRIVATE)?;
            dir.inode(name)?
        }
        // No caller asks for these, and what is not there has no inode.
        Node::Directory { .. } | Node::Socket | Node::CharDevice(_) | Node::BlockDevice(_) => {
            dir.inode(name)?
        }
    };
    let denied = attributes::apply(&inode, &state.attributes, &state.node)?;
    Ok(Made { ino: inode.stat()?.ino, denied })
}
