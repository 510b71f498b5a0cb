//! Each request becomes a call of [`Tree`], and what that says an answer.
//!
//! It keeps the kernel from asking twice:
//! - OPEN and OPENDIR are answered "not implemented" once. From then on the kernel opens without a
//!   message and keeps its pages and lists for ever.
//! - Names and attributes below immutable directories hold for ever.
//! - READDIRPLUS names all entries of a directory with their attributes, for [who wants them](crate::listers).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::buffer::with_buffer;
use crate::company::{Company, Message, Turn};
use crate::counters::Counter;
use crate::listers::{Listers, Recall};
use crate::listing::{self, Files};
use crate::reads::{Read, Reads};
use crate::source::{Kind, TreeSource};
use crate::tree::{Listed, Tree};
use crate::wire::{Connection, EntryList, Kernel, Operation, Reply, Request, Space};
use crate::xattrs;

/// READs from this size on, which come of programs that ask for much, are better copied beside the program, on another processor.
/// Those of 128 KiB, which the kernel reads ahead for all others, are not: the other processor has the next pieces to verify.
const LONG_READ_BYTES: u32 = 256 * 1024;

/// Entries of lists that are given without nodes of files, at about 200 bytes each: for more, the kernel gets nodes,
/// which it forgets when it is short of memory.
const MOST_LEAN_ENTRIES: usize = 256 * 1024;

/// What answers requests. Dropped when the session is over.
pub(crate) struct TreeFilesystem<S: TreeSource> {
    tree: Arc<Tree<S>>,
    reads: Reads<S>,
    listers: Mutex<Listers>,
    recalls: SyncSender<Recall>,
    pruner: SyncSender<()>,
    company: Arc<Company>,
    kernel: Kernel,
    /// Set when the session is over.
    ended: Arc<AtomicBool>,
}

impl<S: TreeSource> TreeFilesystem<S> {
    pub(crate) fn new(
        tree: Arc<Tree<S>>,
        reads: Reads<S>,
        recalls: SyncSender<Recall>,
        pruner: SyncSender<()>,
        company: Arc<Company>,
        kernel: Kernel,
        ended: Arc<AtomicBool>,
    ) -> Self {
        let listers = Mutex::default();
        Self { tree, reads, listers, recalls, pruner, company, kernel, ended }
    }

    /// Answers a request, now or soon.
    pub(crate) fn answer(&self, connection: &Arc<Connection>, request: Request<'_>) {
        let reply = request.is_question().then(|| Reply::new(connection, request.unique));
        // Dropped after the answer.
        let _turn = self.turn(&request);
        let id = request.node;
        match (request.operation, reply) {
            (Operation::Forget(forgets), _) => {
                for (id, count) in forgets.iter() {
                    if self.tree.nodes.lock().forget(id, count) {
                        self.tree.counters.forgotten.one();
                    }
                }
            }
            (_, None) => {}
            (Operation::Lookup { name }, Some(reply)) => self.lookup(request.pid, id, name, reply),
            (Operation::GetAttr, Some(reply)) => self.getattr(id, reply),
            (Operation::ReadLink, Some(reply)) => self.readlink(id, reply),
            (Operation::Open, Some(reply)) => {
                self.open(&self.tree.counters.open, self.kernel.zero_message_open, reply);
            }
            (Operation::Read { offset, size }, Some(reply)) => {
                self.tree.counters.read.one();
                let read = Read { id, offset, size: size as usize, reply };
                self.reads.read(request.pid, read);
            }
            (Operation::Flush, Some(reply)) => {
                self.tree.counters.flush.one();
                reply.error(Errno::NOSYS);
            }
            (Operation::OpenDir, Some(reply)) => {
                self.open(&self.tree.counters.opendir, self.kernel.zero_message_opendir, reply);
            }
            (Operation::ReadDirPlus { offset, size }, Some(reply)) => {
                self.readdirplus(request.pid, id, offset, size, reply);
            }
            (Operation::StatFs, Some(reply)) => self.statfs(reply),
            (Operation::GetXattr { name, size }, Some(reply)) => {
                self.tree.counters.getxattr.one();
                xattrs::reply(reply, size, self.tree.xattr(id, name));
            }
            (Operation::ListXattr { size }, Some(reply)) => {
                self.tree.counters.listxattr.one();
                xattrs::reply(reply, size, self.tree.xattr_names(id));
            }
            (Operation::Release, Some(reply)) => reply.done(),
            // The kernel refuses first, as the mount is read-only; this is for a mount that somebody remounted writable.
            (Operation::Change, Some(reply)) => {
                self.tree.counters.refused.one();
                reply.error(Errno::ROFS);
            }
            (Operation::Interrupt, Some(reply)) => reply.error(Errno::NOSYS),
            (Operation::Other { .. }, Some(reply)) => {
                self.tree.counters.other.one();
                reply.error(Errno::NOSYS);
            }
            (Operation::Init(_), Some(reply)) => reply.error(Errno::PROTO),
            (Operation::Malformed { opcode }, Some(reply)) => {
                tracing::error!(opcode, "a request is shorter than it should be");
                reply.error(Errno::INVAL);
            }
        }
    }

    /// Who asks, and for how much; of what a program waits for.
    fn turn(&self, request: &Request<'_>) -> Option<Turn<'_>> {
        let message = match request.operation {
            Operation::Read { size, .. } if size >= LONG_READ_BYTES => Message::Long,
            Operation::Read { .. }
            | Operation::Lookup { .. }
            | Operation::GetAttr
            | Operation::ReadLink
            | Operation::ReadDirPlus { .. }
            | Operation::StatFs
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. } => Message::Short,
            _ => return None,
        };
        Some(self.company.turn(request.pid, message))
    }

    fn bound_nodes(&self) {
        if self.tree.nodes.lock().len() > self.tree.options.max_nodes {
            // Full: it is awake already. Closed: the kernel cannot be asked.
            let _ = self.pruner.try_send(());
        }
    }

    fn lookup(&self, process: u32, parent: u64, name: &[u8], reply: Reply) {
        self.tree.counters.lookup.one();
        self.bound_nodes();
        match self.tree.lookup(parent, name) {
            Ok(entry) => {
                if entry.is_something() && !entry.attr.is_directory() {
                    self.note_look(process, parent);
                }
                reply.entry(&entry);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, id: u64, reply: Reply) {
        self.tree.counters.getattr.one();
        match self.tree.getattr(id) {
            Ok((attr, ttl)) => reply.attributes(attr, ttl),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, id: u64, reply: Reply) {
        self.tree.counters.readlink.one();
        let nodes = self.tree.nodes.lock();
        match nodes.get(id).map(|node| &node.kind) {
            Some(Kind::Symlink { target }) => reply.bytes(target),
            Some(_) => reply.error(Errno::INVAL),
            None => reply.error(Errno::STALE),
        }
    }

    fn open(&self, counter: &Counter, without_message: bool, reply: Reply) {
        counter.one();
        if without_message {
            reply.error(Errno::NOSYS);
        } else {
            reply.opened();
        }
    }

    fn readdirplus(&self, process: u32, id: u64, offset: u64, size: u32, reply: Reply) {
        self.tree.counters.readdirplus.one();
        self.bound_nodes();
        let listed = match self.tree.open_list(id, offset) {
            Ok(listed) => listed,
            Err(errno) => return reply.error(errno),
        };
        let files = self.wanted_of_files(process, id, offset, &listed);
        let is_empty = with_buffer(|buffer| {
            let mut entries = EntryList::new(buffer, size);
            let filled =
                listing::fill_entries(&self.tree, id, offset, &listed, files, &mut entries);
            let filled = match filled {
                Ok(filled) => filled,
                Err(errno) => {
                    reply.error(errno);
                    return false;
                }
            };
            if listed.cookies.is_none() && files == Files::Nodes {
                // Before the answer: the first file is opened while the kernel makes inodes of these.
                let start = listed.first_after(offset);
                self.reads.listed(process, id, &listed.list, start..start + filled);
            }
            reply.bytes(entries.bytes());
            entries.bytes().is_empty()
        });
        if is_empty && files == Files::Names {
            self.listers.lock().ended(id, listed.files());
        }
    }

    /// A process asked for a file, perhaps because the list had nothing but its name.
    fn note_look(&self, process: u32, directory: u64) {
        let lister = self.tree.nodes.lock().lister(directory);
        if lister != 0
            && let Some(recall) = self.listers.lock().looked(process, lister)
        {
            // What does not fit costs some messages.
            let _ = self.recalls.try_send(recall);
        }
    }

    /// What a process needs to know of files in a list.
    fn wanted_of_files(&self, process: u32, id: u64, offset: u64, listed: &Listed<S>) -> Files {
        if listed.cookies.is_some() || !self.tree.options.lean_lists {
            return Files::Nodes;
        }
        let names_are_enough = if offset == 0 {
            let files = listed.files();
            let mut nodes = self.tree.nodes.lock();
            let entries = nodes.lean_entries() + listed.list.entries.len();
            let begins =
                |above| self.listers.lock().begins(process, id, files, above, Instant::now());
            let is_enough = entries <= MOST_LEAN_ENTRIES && begins(nodes.above(id)) && files > 0;
            nodes.note_list(id, is_enough.then(|| (listed.list.clone(), process)));
            is_enough
        } else {
            process != 0 && self.tree.nodes.lock().lister(id) == process
        };
        if names_are_enough { Files::Names } else { Files::Nodes }
    }

    fn statfs(&self, reply: Reply) {
        const BLOCK_BYTES: u32 = 4096;
        self.tree.counters.statfs.one();
        let space = self.tree.source.space();
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
        reply.space(&Space {
            blocks: blocks(space.bytes),
            free_blocks: blocks(space.free_bytes),
            available_blocks: blocks(space.available_bytes),
            inodes: space.inodes,
            free_inodes: space.free_inodes,
            block_bytes: BLOCK_BYTES,
            name_bytes: 255,
            fragment_bytes: BLOCK_BYTES,
            ..Space::default()
        });
    }
}

impl<S: TreeSource> Drop for TreeFilesystem<S> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.reads.close();
    }
}
