//! The FUSE dispatcher: each request becomes a call of [`Tree`] and each answer a reply.
//!
//! It keeps the kernel from asking twice:
//! - OPEN and OPENDIR are answered "not implemented" once. From then on the kernel opens without a
//!   message and keeps its pages and lists for ever.
//! - Names and attributes below immutable directories hold for ever.
//! - READDIRPLUS names all entries of a directory with their attributes.
//!
//! POSIX ACLs are the kernel's business (`FUSE_POSIX_ACL`): it enforces what was captured and caches
//! it, also that there is none. Without it the group bits of a file with an ACL, which are its mask,
//! would be taken for the group's permissions.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};

use crate::attributes::file_type;
use crate::company;
use crate::nodes::{Acquired, Place};
use crate::prefetch::PushQueue;
use crate::prune::Pruner;
use crate::reads::{Read, Reads};
use crate::source::{Entry, Kind, TreeSource};
use crate::tree::{Listed, Tree};

/// Shows the SHA-256 of a file. It belongs to the mount, not to what was captured.
const SHA256_XATTR: &[u8] = b"user.nono.sha256";

/// Answers from this size on take longer than waking another processor.
const LONG_READ_BYTES: u32 = 128 * 1024;

/// Positions of `.` and `..`; entries follow.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// What fuser calls.
pub(crate) struct TreeFilesystem<S: TreeSource> {
    tree: Arc<Tree<S>>,
    reads: Reads<S>,
    pruner: Pruner,
    kernel: Kernel,
    /// Set when the session is over.
    ended: Arc<AtomicBool>,
}

/// What the kernel can do.
#[derive(Clone, Copy, Default)]
struct Kernel {
    zero_message_open: bool,
    zero_message_opendir: bool,
}

impl<S: TreeSource> TreeFilesystem<S> {
    pub(crate) fn new(
        tree: Arc<Tree<S>>,
        pushes: PushQueue,
        pruner: Pruner,
        ended: Arc<AtomicBool>,
    ) -> Self {
        let reads = Reads::new(tree.clone(), pushes);
        Self { tree, reads, pruner, kernel: Kernel::default(), ended }
    }

    /// Refuses a request that would change something. The kernel refuses first, as the mount is
    /// read-only; this is for a mount that somebody remounted writable.
    fn refuse(&self) -> Errno {
        self.tree.counters.refused.one();
        Errno::EROFS
    }

    fn bound_nodes(&self) {
        if self.tree.nodes.lock().len() > self.tree.options.max_nodes {
            self.pruner.wake();
        }
    }

    fn not_implemented(&self) -> Errno {
        self.tree.counters.other.one();
        Errno::ENOSYS
    }

    fn xattr(&self, id: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        if name != SHA256_XATTR {
            return self.tree.xattr(id, name);
        }
        let (content, _) = self.tree.file(id).map_err(|_| Errno::ENODATA)?;
        Ok(self.tree.source.sha256_hex(&content).into_bytes())
    }

    /// Names, each followed by NUL.
    fn xattr_names(&self, id: u64) -> Result<Vec<u8>, Errno> {
        let nodes = self.tree.nodes.lock();
        let node = nodes.get(id).ok_or(Errno::ESTALE)?;
        let mut names = Vec::new();
        for (name, _) in node.xattrs.as_deref().unwrap_or_default() {
            if **name != *SHA256_XATTR {
                names.extend_from_slice(name);
                names.push(0);
            }
        }
        if self.tree.options.list_sha256 && matches!(node.kind, Kind::File { .. }) {
            names.extend_from_slice(SHA256_XATTR);
            names.push(0);
        }
        Ok(names)
    }

    /// Fills a READDIRPLUS reply: names entries until it is full. Returns how many.
    fn fill_plus(
        &self,
        id: u64,
        offset: u64,
        listed: &Listed<S>,
        reply: &mut ReplyDirectoryPlus,
    ) -> usize {
        let changing = listed.cookies.is_some();
        // The kernel neither counts nor uses what is said of `.` and `..`, but it shows the numbers.
        for (position, name, number) in
            [(DOT, ".", listed.number), (DOT_DOT, "..", listed.parent_number)]
        {
            let full = offset < position && {
                let attr = dot_attr(number);
                reply.add(INodeNo(number), position, name, &Duration::ZERO, &attr, Generation(0))
            };
            if full {
                return 0;
            }
        }
        let mut count = 0;
        let mut nodes = None;
        for (index, position) in listed.positions_after(offset) {
            let entry = &listed.list.entries[index];
            let place = Place { parent: id, index: index as u32 };
            let nodes = nodes.get_or_insert_with(|| self.tree.nodes.lock());
            let Some(acquired) = nodes.acquire(place, &entry.name, &entry.node) else { break };
            if self.add_plus(reply, nodes, acquired, entry, position, changing) {
                nodes.forget(acquired.id, 1);
                break;
            }
            count += 1;
        }
        count
    }

    fn add_plus(
        &self,
        reply: &mut ReplyDirectoryPlus,
        nodes: &mut crate::nodes::Nodes<S>,
        acquired: Acquired,
        entry: &Entry<S>,
        position: u64,
        changing: bool,
    ) -> bool {
        let version = nodes.changing_list(acquired.id).map_or(0, |list| list.version());
        let found = self.tree.describe(acquired, &entry.node, changing, version);
        // One time for both: the name of a later place of a directory is asked for again, and then
        // holds for ever.
        let ttl = found.entry_ttl.min(found.attr_ttl);
        reply.add(
            INodeNo(acquired.id),
            position,
            OsStr::from_bytes(&entry.name),
            &ttl,
            &found.attr,
            Generation(acquired.generation),
        )
    }
}

impl<S: TreeSource> Listed<S> {
    /// Entries after `offset`, in the order of their positions: (index in the list, position).
    fn positions_after(&self, offset: u64) -> Box<dyn Iterator<Item = (usize, u64)> + '_> {
        match &self.cookies {
            None => {
                let start = usize::try_from(offset.saturating_sub(DOT_DOT)).unwrap_or(usize::MAX);
                let indices = start..self.list.entries.len();
                Box::new(indices.map(|index| (index, index as u64 + DOT_DOT + 1)))
            }
            Some(cookies) => {
                let positions = cookies.iter().map(|cookie| cookie + DOT_DOT).enumerate();
                let mut after: Vec<_> =
                    positions.filter(|(_, position)| *position > offset).collect();
                after.sort_unstable_by_key(|(_, position)| *position);
                Box::new(after.into_iter())
            }
        }
    }
}

/// Attributes for `.` and `..`: only the number and the kind are looked at.
fn dot_attr(number: u64) -> fuser::FileAttr {
    fuser::FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: fuser::FileType::Directory,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// Replies with a value, its size, or ERANGE.
fn reply_xattr(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Err(errno) => reply.error(errno),
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}

impl<S: TreeSource> Filesystem for TreeFilesystem<S> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_POSIX_ACL;
        for flag in wanted {
            if config.add_capabilities(flag).is_err() {
                tracing::debug!(?flag, "the kernel does not know this capability");
            }
        }
        self.kernel = Kernel {
            zero_message_open: config.capabilities().contains(InitFlags::FUSE_NO_OPEN_SUPPORT),
            zero_message_opendir: config
                .capabilities()
                .contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT),
        };
        // The kernel's own limits apply where these are larger.
        let _ = config.set_max_background(64);
        let _ = config.set_max_write(1024 * 1024);
        Ok(())
    }

    fn destroy(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.reads.close();
        self.pruner.close();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        company::keep(request.pid());
        self.tree.counters.lookup.one();
        self.bound_nodes();
        match self.tree.lookup(parent.0, name.as_bytes()) {
            Ok(found) => reply.entry_with_ttls(
                &found.attr_ttl,
                &found.entry_ttl,
                &found.attr,
                Generation(found.acquired.generation),
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _: &Request, id: INodeNo, count: u64) {
        if self.tree.nodes.lock().forget(id.0, count) {
            self.tree.counters.forgotten.one();
        }
    }

    fn getattr(&self, request: &Request, id: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        company::keep(request.pid());
        self.tree.counters.getattr.one();
        match self.tree.getattr(id.0) {
            Ok((attr, ttl)) => reply.attr(&ttl, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, request: &Request, id: INodeNo, reply: ReplyData) {
        company::keep(request.pid());
        self.tree.counters.readlink.one();
        let nodes = self.tree.nodes.lock();
        match nodes.get(id.0).map(|node| &node.kind) {
            Some(Kind::Symlink { target }) => reply.data(target),
            Some(_) => reply.error(Errno::EINVAL),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.tree.counters.open.one();
        if self.kernel.zero_message_open {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        }
    }

    fn read(
        &self,
        request: &Request,
        id: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // A long answer is better copied on another processor, beside the reader.
        if size < LONG_READ_BYTES {
            company::keep(request.pid());
        }
        self.tree.counters.read.one();
        self.reads.read(request.pid(), Read { id: id.0, offset, size: size as usize, reply });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.tree.counters.flush.one();
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(self.not_implemented());
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(self.not_implemented());
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.tree.counters.opendir.one();
        if self.kernel.zero_message_opendir {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        }
    }

    fn readdir(
        &self,
        _: &Request,
        id: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.tree.counters.readdir.one();
        let listed = match self.tree.open_list(id.0, offset) {
            Ok(listed) => listed,
            Err(errno) => return reply.error(errno),
        };
        for (position, name, number) in
            [(DOT, ".", listed.number), (DOT_DOT, "..", listed.parent_number)]
        {
            let directory = fuser::FileType::Directory;
            if offset < position && reply.add(INodeNo(number), position, directory, name) {
                return reply.ok();
            }
        }
        for (index, position) in listed.positions_after(offset) {
            let Entry { name, node } = &listed.list.entries[index];
            let number = self.tree.nodes.lock().peek_number(id.0, name, node);
            let name = OsStr::from_bytes(name);
            if reply.add(INodeNo(number), position, file_type(&node.kind), name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        request: &Request,
        id: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        company::keep(request.pid());
        self.tree.counters.readdirplus.one();
        self.bound_nodes();
        match self.tree.open_list(id.0, offset) {
            Ok(listed) => {
                let count = self.fill_plus(id.0, offset, &listed, &mut reply);
                if count == 0 && offset > DOT_DOT && listed.cookies.is_none() {
                    self.reads.listed(request.pid(), id.0);
                }
                reply.ok();
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.tree.counters.statfs.one();
        const BLOCK_BYTES: u32 = 4096;
        let space = self.tree.source.space();
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
        reply.statfs(
            blocks(space.bytes),
            blocks(space.free_bytes),
            blocks(space.available_bytes),
            space.inodes,
            space.free_inodes,
            BLOCK_BYTES,
            255,
            BLOCK_BYTES,
        );
    }

    fn getxattr(&self, request: &Request, id: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        company::keep(request.pid());
        self.tree.counters.getxattr.one();
        reply_xattr(reply, size, self.xattr(id.0, name.as_bytes()));
    }

    fn listxattr(&self, request: &Request, id: INodeNo, size: u32, reply: ReplyXattr) {
        company::keep(request.pid());
        self.tree.counters.listxattr.one();
        reply_xattr(reply, size, self.xattr_names(id.0));
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(self.not_implemented());
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(self.not_implemented());
    }

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        reply.error(self.not_implemented());
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(self.not_implemented());
    }

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(self.refuse());
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(self.refuse());
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(self.refuse());
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refuse());
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refuse());
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(self.refuse());
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(self.refuse());
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(self.refuse());
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(self.refuse());
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(self.refuse());
    }

    fn setxattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(self.refuse());
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refuse());
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(self.refuse());
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(self.refuse());
    }
}
