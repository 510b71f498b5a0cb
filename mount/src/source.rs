//! The source of a mount: a tree of directories that the caller owns.
//!
//! A source answers three questions: what is in this directory, what are the bytes of this file,
//! and may this directory still change. Everything below an [immutable](Stability::Immutable)
//! directory never changes, which lets the kernel keep what it was told for ever.

use std::fmt;
use std::hash::Hash;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use derive_where::derive_where;

/// Identity of one *state* of one path: two entries with equal ids are one file to every program.
///
/// A source gives equal ids only to the same path (relative to the snapshot; or to members of the
/// same hard-link group) with the same kind, attributes, xattrs and contents. So programs that skip
/// what has the same device and inode number (GNU `diff -r`) skip exactly what is equal, and the
/// kernel's page cache is shared. At least 120 bits of a cryptographic hash, so that collisions
/// cannot be made; the mount still never maps two different ids to one inode number.
///
/// Inode numbers have the order of ids. Programs read a long directory in the order of inode
/// numbers, so the first byte is the source's, to have near each other what is near each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StateId(pub [u8; 16]);

/// Major and minor number of a device node. Shown, never opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// May what a directory lists still change?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stability {
    /// Neither the list nor anything below it ever changes; the kernel may keep it for ever.
    Immutable,
    /// Entries come and go (a new snapshot, a removed session): asked again after a short time.
    /// Such a directory has no [`StateId`], and its key stays equal while it is the same directory.
    Changing,
}

/// Number of names of an inode inside its snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HardLinks(pub u32);

/// The kind of an entry, with what only that kind has.
#[derive_where(Clone, PartialEq)]
pub enum Kind<S: TreeSource + ?Sized> {
    /// A directory, and how to ask the source for its list.
    Directory(S::Directory),
    /// A regular file of `size` bytes, and how to ask the source for them.
    File {
        /// Length in bytes.
        size: u64,
        /// Key of the bytes.
        content: S::Content,
    },
    /// A symbolic link; the target is bytes and is never resolved by the mount.
    Symlink {
        /// Where the link points, as stored.
        target: Box<[u8]>,
    },
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice(Device),
    /// A block device.
    BlockDevice(Device),
}

/// Extended attributes: pairs of name and value, sorted by name, shared between equal entries.
pub type Xattrs = Arc<[(Box<[u8]>, Box<[u8]>)]>;

/// Attributes of one entry, kind included.
#[derive_where(Clone)]
pub struct Node<S: TreeSource + ?Sized> {
    /// Kind, and what only that kind has.
    pub kind: Kind<S>,
    /// Permission bits, setuid, setgid and sticky included (12 bits).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time: seconds since the epoch (negative before it).
    pub mtime_s: i64,
    /// Nanoseconds of the modification time, below 10^9.
    pub mtime_ns: u32,
    /// Names of this inode inside the snapshot; 1 for nearly everything, directories included.
    pub links: HardLinks,
    /// Extended attributes as captured, sorted by name. `None` costs nothing.
    pub xattrs: Option<Xattrs>,
    /// Which state this is. `None`: the entry equals no other one (session directories, the root
    /// of a snapshot), and gets an inode number of its own.
    pub state: Option<StateId>,
}

impl<S: TreeSource + ?Sized> Node<S> {
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }
}

/// A name in a directory and what it names.
pub struct Entry<S: TreeSource + ?Sized> {
    /// One path component: not empty, no `/`, no NUL, not `.` or `..`, at most 255 bytes.
    pub name: Box<[u8]>,
    /// The named node.
    pub node: Node<S>,
}

/// Bytes of one regular file that were checked before they were handed out.
pub trait Content: Send + Sync {
    /// Reads at most `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// Any error of the storage below; the mount answers EIO.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Whether these bytes can be read at once, without work such as hashing before. The mount
    /// reads other bytes in a thread for which no other request waits.
    fn is_ready(&self, _offset: u64, _len: usize) -> bool {
        true
    }

    /// Lends these bytes to `borrower`, which is called once, if they are in memory; saves a copy.
    /// False when they are not, and have to be [read](Self::read_at). No lock is held meanwhile
    /// that another call needs: the borrower may wait until another read is answered.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at), but `Interrupted` is no reason to call it again.
    fn lend(&self, _range: Range<u64>, _borrower: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        Ok(false)
    }
}

/// Room on the file system below, for `statfs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes that no file uses.
    pub free_bytes: u64,
    /// Bytes that an ordinary user can still use.
    pub available_bytes: u64,
    /// Number of inodes, used and free.
    pub inodes: u64,
    /// Inodes that no file uses.
    pub free_inodes: u64,
}

/// A read-only tree of directories.
///
/// Implementations are called from several threads at once and must not lock for long. Lists, and
/// files of up to 1 MiB, may be asked for by a thread of the idle class
/// ([`MountOptions::companion`](crate::MountOptions::companion)), so an implementation starts no
/// thread for these. All errors become EIO on the mount, except [`io::ErrorKind::NotFound`] when a
/// [changing](Stability::Changing) directory above no longer has what the path goes through: that
/// becomes ENOENT. An object that is missing while the directories above are there is damage.
pub trait TreeSource: Send + Sync + 'static {
    /// Key of a directory; cheap to clone, equal only when it lists the same.
    type Directory: Clone + Eq + Send + Sync + fmt::Debug + 'static;
    /// Key of a file's bytes; cheap to clone, equal only for the same bytes.
    type Content: Clone + Eq + Hash + Send + Sync + fmt::Debug + 'static;

    /// The directory that is mounted. Asked again and again when it is `Changing`.
    ///
    /// Its owner should be the user who mounts: the kernel never caches the ACL of this one inode,
    /// so each path that another user walks through it costs a message.
    fn root(&self) -> Node<Self>;

    /// Whether the list of `directory` may change.
    fn stability(&self, directory: &Self::Directory) -> Stability;

    /// Lists `directory`, sorted by name, without duplicates. Reads no file contents.
    ///
    /// # Errors
    /// `NotFound` when the directory is gone (its session was removed); anything else when its list
    /// is damaged or cannot be read.
    fn list(&self, directory: &Self::Directory) -> io::Result<Vec<Entry<Self>>>;

    /// Finds one name. The default lists the directory; a source with many entries and a cheaper
    /// way (a changing root) does better.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn find(&self, directory: &Self::Directory, name: &[u8]) -> io::Result<Option<Node<Self>>> {
        Ok(self.list(directory)?.into_iter().find(|entry| &*entry.name == name).map(|e| e.node))
    }

    /// Opens the bytes of a file. A file larger than 1 MiB should be backed by a descriptor, not by
    /// memory: the mount keeps several open. Every byte is verified against its hash before this
    /// returns, or at the latest before [`Content::read_at`] or [`Content::lend`] hands it out.
    ///
    /// # Errors
    /// `InvalidData` when the bytes are not the ones that were stored; `NotFound` when they are
    /// gone.
    fn open(&self, content: &Self::Content, size: u64) -> io::Result<Arc<dyn Content>>;

    /// Replaces the bytes of a buffer by all bytes of a file of up to 1 MiB. As
    /// [`open`](Self::open), for memory that is used again.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`Content::read_at`].
    fn read_whole(
        &self,
        content: &Self::Content,
        size: u64,
        buffer: &mut Vec<u8>,
    ) -> io::Result<()> {
        buffer.clear();
        let file = self.open(content, size)?;
        if file.lend(0..size, &mut |bytes| buffer.extend_from_slice(bytes))? {
            return Ok(());
        }
        buffer.resize(usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?, 0);
        read_exactly(&*file, buffer, 0)
    }

    /// Lower-case hex SHA-256 of a file's bytes, shown as the xattr `user.nono.sha256`.
    fn sha256_hex(&self, content: &Self::Content) -> String;

    /// The room `df` shows: that of the file system the bytes are kept on. The default knows
    /// nothing.
    fn space(&self) -> Space {
        Space::default()
    }
}

/// Fills a buffer.
///
/// # Errors
/// The errors of the source, or contents that end before the buffer is full.
pub(crate) fn read_exactly(file: &dyn Content, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        let end = offset + filled as u64;
        match file.read_at(&mut buffer[filled..], end) {
            Ok(0) => return Err(ends_early(end)),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Contents end at this byte, and not where their file does.
pub(crate) fn ends_early(end: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("the contents end at byte {end}, before their size"),
    )
}
