//! Extended attributes: those that were captured, and the one that the mount adds.

use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{Errno, ReplyXattr};

use crate::server::list_cache::List;
use crate::server::tree::Tree;
use crate::source::{Node, TreeSource};

/// Shows the SHA-256 of a file. It belongs to the mount, so no list has it: `cp -a`, `rsync -X` and
/// `tar --xattrs` copy what was captured and nothing else.
const SHA256: &[u8] = b"user.nono.sha256";
const SELINUX: &[u8] = b"security.selinux";

/// Whether some entry that was listed has an SELinux label.
///
/// `ls -l` asks for the label of every file, and the kernel caches no answer. As long as nothing
/// labelled was seen, the answer is "not supported", which `ls` believes for the whole mount; "no
/// such attribute" would be one message for each file, each time.
#[derive(Default)]
pub(crate) struct Labels(AtomicBool);

impl Labels {
    /// A list was made that programs will see.
    pub(crate) fn note<S: TreeSource>(&self, list: &List<S>) {
        if list.entries.iter().any(|entry| captured(&entry.node, SELINUX).is_some()) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn were_seen(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<S: TreeSource> Tree<S> {
    /// The value of an xattr.
    pub(crate) fn xattr(&self, id: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        if name == SHA256 {
            let (content, _) = self.file(id).map_err(|_| Errno::ENODATA)?;
            return Ok(self.source.sha256_hex(&content).into_bytes());
        }
        let nodes = self.nodes.lock();
        match captured(nodes.get(id).ok_or(Errno::ESTALE)?, name) {
            Some(value) => Ok(value.to_vec()),
            None if name == SELINUX && !self.labels.were_seen() => Err(Errno::EOPNOTSUPP),
            None => Err(Errno::ENODATA),
        }
    }

    /// Names, each followed by NUL.
    pub(crate) fn xattr_names(&self, id: u64) -> Result<Vec<u8>, Errno> {
        let nodes = self.nodes.lock();
        let node = nodes.get(id).ok_or(Errno::ESTALE)?;
        let mut names = Vec::new();
        for (name, _) in node.xattrs.as_deref().unwrap_or_default() {
            if **name != *SHA256 {
                names.extend_from_slice(name);
                names.push(0);
            }
        }
        Ok(names)
    }
}

fn captured<'a, S: TreeSource>(node: &'a Node<S>, name: &[u8]) -> Option<&'a [u8]> {
    let xattrs = node.xattrs.as_deref().unwrap_or_default();
    xattrs.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
}

/// Replies with a value, its size, or ERANGE.
pub(crate) fn reply(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Err(errno) => reply.error(errno),
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}
