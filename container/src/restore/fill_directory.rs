//! Filling a volume through its directory: everything that the store records of files comes back.

use std::collections::HashSet;

use super::RestoreError;
use super::contents::{Contents, is_special};
use nono_engine::byte_path;
use nono_engine::diff::EntryState;
use nono_engine::object::Node;
use nono_engine::progress::Progress;
use nono_engine::restore::{apply_attributes, make};
use nono_engine::store::Transfer;
use nono_engine::sys::{Device, Dir, FileKind};

/// Fills an empty directory. Returns the entries that are not made: sockets and devices where this
/// user may not. Durable on success.
pub(super) fn fill(
    contents: &Contents<'_>,
    top: &Dir,
    progress: &dyn Progress,
) -> Result<Vec<String>, RestoreError> {
    let mut directories: Vec<(Vec<u8>, EntryState)> = Vec::new();
    let mut not_made = Vec::new();
    let mut missing: HashSet<Vec<u8>> = HashSet::new();
    let mut buffer = Vec::new();
    // The last parent: entries of one directory follow each other but for its subdirectories.
    let mut open: Option<(Vec<u8>, Dir)> = None;
    contents.walk(progress, |entry| {
        if entry.path.is_empty() {
            directories.push((entry.path, entry.state));
            return Ok(());
        }
        let (parent, name) = byte_path::split(&entry.path);
        if open.as_ref().is_none_or(|(path, _)| path != parent) {
            open = Some((parent.to_vec(), top.open_beneath(parent)?));
        }
        let Some((_, dir)) = &open else { return Ok(()) };
        match (&entry.state.node, &entry.link_to) {
            (Node::Directory { .. }, _) => {
                dir.make_dir(name, 0o700)?;
                directories.push((entry.path, entry.state));
            }
            (_, Some(first)) if missing.contains(first) => {
                not_made.push(shown(contents, &entry.path));
            }
            (node, None) if is_special(node) => {
                if !make_special(dir, name, &entry.state)? {
                    not_made.push(shown(contents, &entry.path));
                    missing.insert(entry.path);
                }
            }
            (_, Some(first)) => {
                let (first_parent, first_name) = byte_path::split(first);
                top.open_beneath(first_parent)?.link(first_name, dir, name)?;
            }
            _ => {
                let transfer = Transfer::new(&mut buffer, progress);
                let path = &entry.path;
                make(contents.store, dir, name, &entry.state, path, transfer)?;
            }
        }
        Ok(())
    })?;
    // The deepest first: a new entry changes the time of its directory.
    for (path, state) in directories.iter().rev() {
        let dir = top.open_beneath(path)?;
        apply_attributes(&dir.inode(b".")?, &state.attributes, &state.node)?;
    }
    top.sync_file_system()?;
    Ok(not_made)
}

/// Makes a socket or a device; `false` where this user may not.
fn make_special(dir: &Dir, name: &[u8], state: &EntryState) -> Result<bool, RestoreError> {
    let nothing = Device { major: 0, minor: 0 };
    let (kind, device) = match &state.node {
        Node::CharDevice(device) => (FileKind::CharDevice, *device),
        Node::BlockDevice(device) => (FileKind::BlockDevice, *device),
        _ => (FileKind::Socket, nothing),
    };
    match dir.make_node(name, kind, device) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(false),
        made => made?,
    }
    apply_attributes(&dir.inode(name)?, &state.attributes, &state.node)?;
    Ok(true)
}

/// Removes everything in a directory, through no symlink.
pub(super) fn clear(top: &Dir) -> Result<(), RestoreError> {
    for listed in top.names()? {
        match top.try_stat(&listed.name)? {
            Some(stat) if stat.kind == FileKind::Directory => top.remove_dir_all(&listed.name)?,
            Some(_) => top.remove_file(&listed.name)?,
            None => {}
        }
    }
    Ok(())
}

pub(super) fn shown(contents: &Contents<'_>, path: &[u8]) -> String {
    format!("{}: {}", contents.tree, String::from_utf8_lossy(path))
}
