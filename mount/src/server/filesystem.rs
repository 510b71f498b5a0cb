//! The handlers of `fuser`: each request becomes a call of [`Tree`] and each result an answer.
//!
//! It keeps the kernel from asking twice:
//! - OPEN and OPENDIR are answered "not implemented" once. From then on the kernel opens without a
//!   message and keeps its pages and lists for ever.
//! - Names and attributes below immutable directories hold for ever.
//! - READDIRPLUS names all entries of a directory with their attributes.
//!
//! POSIX ACLs are the kernel's business (`FUSE_POSIX_ACL`): it enforces what was captured and
//! caches it, also that there is none. Without it the group bits of a file with an ACL, which are
//! its mask, would be taken for the group's permissions.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};

use crate::company::{Company, Turn};
use crate::counters::Counter;
use crate::driver::Driver;
use crate::server::attributes::directory_alone;
use crate::server::readdir;
use crate::server::reads::{Read, Reads};
use crate::server::tree::{FOREVER, Tree};
use crate::server::xattrs;
use crate::source::{Kind, TreeSource};

/// READs from this size on, which come of programs that ask for much, are better copied beside the
/// program, on another processor. READs of 128 KiB, which the kernel reads ahead for all others,
/// are not: the other processor has the next pieces to verify.
const LONG_READ_BYTES: u32 = 256 * 1024;
/// The most that the kernel may send in one WRITE, of which a read-only mount gets none. It also
/// bounds a READ.
pub(crate) const MAX_WRITE_BYTES: u32 = 1024 * 1024;

/// The handlers that fuser calls.
pub(crate) struct TreeFilesystem<S: TreeSource> {
    tree: Arc<Tree<S>>,
    reads: Arc<Reads<S>>,
    /// `None`: the predictor is switched off.
    driver: Option<Arc<Driver<S>>>,
    pruner: SyncSender<()>,
    company: Arc<Company>,
    /// Whether the kernel can open files, and directories, without a message.
    without_message: [bool; 2],
    /// Set when the session is over.
    ended: Arc<AtomicBool>,
}

impl<S: TreeSource> TreeFilesystem<S> {
    pub(crate) fn new(
        tree: Arc<Tree<S>>,
        reads: Arc<Reads<S>>,
        driver: Option<Arc<Driver<S>>>,
        pruner: SyncSender<()>,
        company: Arc<Company>,
        ended: Arc<AtomicBool>,
    ) -> Self {
        Self { tree, reads, driver, pruner, company, without_message: [false; 2], ended }
    }

    /// Counts a message that asks for little. `Request::pid` is the id of a thread.
    fn begin(&self, request: &Request, counter: &Counter) -> Turn<'_> {
        counter.one();
        self.company.turn(request.pid())
    }

    /// Refuses a request that would change something. The kernel refuses first, as the mount is
    /// read-only; this is for a mount that was remounted writable.
    fn refuse(&self) -> Errno {
        self.tree.counters.refused.one();
        Errno::EROFS
    }

    fn bound_nodes(&self) {
        if self.tree.nodes.lock().len() > self.tree.options.max_nodes {
            // Full: the pruner is awake already. Closed: the kernel cannot be asked.
            let _ = self.pruner.try_send(());
        }
    }

    fn not_implemented(&self) -> Errno {
        self.tree.counters.other.one();
        Errno::ENOSYS
    }
}

/// "Not implemented" makes the kernel open without a message, where it knows how.
fn open(without_message: bool, reply: ReplyOpen) {
    if without_message {
        reply.error(Errno::ENOSYS);
    } else {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }
}

/// Requests that all get the error of one method, whatever they ask for.
macro_rules! answer_with {
    ($error:ident: $($request:ident($($argument:ty),*) -> $reply:ty;)*) => {
        $(fn $request(&self, _: &Request, $(_: $argument,)* reply: $reply) {
            reply.error(self.$error());
        })*
    };
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
        let can = |flag| config.capabilities().contains(flag);
        self.without_message =
            [InitFlags::FUSE_NO_OPEN_SUPPORT, InitFlags::FUSE_NO_OPENDIR_SUPPORT].map(can);
        // The kernel's own limits apply where these are larger.
        let _ = config.set_max_background(64);
        let _ = config.set_max_write(MAX_WRITE_BYTES);
        Ok(())
    }

    fn destroy(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(driver) = &self.driver {
            driver.close();
        }
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.begin(request, &self.tree.counters.lookup);
        self.bound_nodes();
        match self.tree.lookup(parent.0, name.as_bytes()) {
            Ok(Some(found)) => reply.entry_with_ttls(
                &found.attr_ttl,
                &found.entry_ttl,
                &found.attr,
                Generation(found.acquired.generation),
            ),
            // The number 0 stands for "no such file", which the kernel keeps.
            Ok(None) => {
                let nothing = directory_alone(0);
                reply.entry_with_ttls(&FOREVER, &FOREVER, &nothing, Generation(0));
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _: &Request, id: INodeNo, count: u64) {
        if self.tree.nodes.lock().forget(id.0, count) {
            self.tree.counters.forgotten.one();
            if let Some(driver) = &self.driver {
                driver.forgotten(id.0);
            }
        }
    }

    fn getattr(&self, request: &Request, id: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _turn = self.begin(request, &self.tree.counters.getattr);
        match self.tree.getattr(id.0) {
            Ok((attr, ttl)) => reply.attr(&ttl, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, request: &Request, id: INodeNo, reply: ReplyData) {
        let _turn = self.begin(request, &self.tree.counters.readlink);
        let nodes = self.tree.nodes.lock();
        match nodes.get(id.0).map(|node| &node.kind) {
            Some(Kind::Symlink { target }) => reply.data(target),
            Some(_) => reply.error(Errno::EINVAL),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.tree.counters.open.one();
        open(self.without_message[0], reply);
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
        let is_long = size >= LONG_READ_BYTES;
        let _turn = self.company.turn(if is_long { 0 } else { request.pid() });
        self.tree.counters.read.one();
        if offset == 0
            && let Some(driver) = &self.driver
        {
            driver.read(request.pid(), id.0);
        }
        self.reads.answer(Read { id: id.0, offset, size: size as usize, reply });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.tree.counters.flush.one();
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.tree.counters.opendir.one();
        open(self.without_message[1], reply);
    }

    fn readdirplus(
        &self,
        request: &Request,
        id: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _turn = self.begin(request, &self.tree.counters.readdirplus);
        self.bound_nodes();
        let listed = match self.tree.open_list(id.0, offset) {
            Ok(listed) => listed,
            Err(errno) => return reply.error(errno),
        };
        match readdir::fill(&self.tree, id.0, offset, &listed, &mut reply) {
            Ok(is_end) => {
                if is_end
                    && listed.cookies.is_none()
                    && let Some(driver) = &self.driver
                {
                    // Before the answer: the first file is opened while the kernel makes inodes.
                    driver.listed(request.pid(), id.0, &listed.list);
                }
                reply.ok();
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        let _turn = self.begin(request, &self.tree.counters.statfs);
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
        let _turn = self.begin(request, &self.tree.counters.getxattr);
        xattrs::reply(reply, size, self.tree.xattr(id.0, name.as_bytes()));
    }

    fn listxattr(&self, request: &Request, id: INodeNo, size: u32, reply: ReplyXattr) {
        let _turn = self.begin(request, &self.tree.counters.listxattr);
        xattrs::reply(reply, size, self.tree.xattr_names(id.0));
    }

    answer_with! {
        not_implemented:
        fsync(INodeNo, FileHandle, bool) -> ReplyEmpty;
        fsyncdir(INodeNo, FileHandle, bool) -> ReplyEmpty;
        access(INodeNo, AccessFlags) -> ReplyEmpty;
        lseek(INodeNo, FileHandle, i64, i32) -> ReplyLseek;
        bmap(INodeNo, u32, u64) -> ReplyBmap;
        ioctl(INodeNo, FileHandle, IoctlFlags, u32, &[u8], u32) -> ReplyIoctl;
    }

    answer_with! {
        refuse:
        setattr(
            INodeNo, Option<u32>, Option<u32>, Option<u32>, Option<u64>, Option<TimeOrNow>,
            Option<TimeOrNow>, Option<SystemTime>, Option<FileHandle>, Option<SystemTime>,
            Option<SystemTime>, Option<SystemTime>, Option<BsdFileFlags>
        ) -> ReplyAttr;
        mknod(INodeNo, &OsStr, u32, u32, u32) -> ReplyEntry;
        mkdir(INodeNo, &OsStr, u32, u32) -> ReplyEntry;
        unlink(INodeNo, &OsStr) -> ReplyEmpty;
        rmdir(INodeNo, &OsStr) -> ReplyEmpty;
        symlink(INodeNo, &OsStr, &Path) -> ReplyEntry;
        rename(INodeNo, &OsStr, INodeNo, &OsStr, RenameFlags) -> ReplyEmpty;
        link(INodeNo, INodeNo, &OsStr) -> ReplyEntry;
        write(
            INodeNo, FileHandle, u64, &[u8], WriteFlags, OpenFlags, Option<LockOwner>
        ) -> ReplyWrite;
        create(INodeNo, &OsStr, u32, u32, i32) -> ReplyCreate;
        setxattr(INodeNo, &OsStr, &[u8], i32, u32) -> ReplyEmpty;
        removexattr(INodeNo, &OsStr) -> ReplyEmpty;
        fallocate(INodeNo, FileHandle, u64, u64, i32) -> ReplyEmpty;
        copy_file_range(
            INodeNo, FileHandle, u64, INodeNo, FileHandle, u64, u64, CopyFileRangeFlags
        ) -> ReplyWrite;
    }
}
