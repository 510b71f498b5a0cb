//! A mount from its beginning to its end.
//!
//! [`Mount::new`] returns when the directory is usable. The mount ends when a user unmounts it,
//! by whatever means, or when the process ends; [`Mount::wait`] returns then. Dropping a [`Mount`]
//! unmounts. An unmount first looks in the mount table whether the mount at the directory is still
//! the same one, so it never takes away another mount that came to the same place. The kernel uses
//! the numbers in that table again, so a session that has ended does not even look.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{BackgroundSession, Config, INodeNo, Notifier, Session, SessionACL};

use crate::company::Company;
use crate::counters::{Counters, Counts};
use crate::driver::Driver;
use crate::error::MountError;
use crate::kernel::attach::{Unmounted, attach, detach};
use crate::kernel::guard::Guard;
use crate::kernel::mount_table::{self, FS_TYPE, MountPoint, MountedAt};
use crate::kernel::notify::Notifications;
use crate::options::MountOptions;
use crate::server::filesystem::TreeFilesystem;
use crate::server::prune;
use crate::server::reads::Reads;
use crate::server::tree::Tree;
use crate::source::TreeSource;

/// A live mount. Dropping it unmounts, lazily when a process uses it.
pub struct Mount {
    session: Option<BackgroundSession>,
    unmounter: Unmounter,
    counters: Arc<Counters>,
    nodes: Arc<dyn KnownNodes>,
    notifier: Notifier,
    /// For a guard; `None` without a predictor.
    notifications: Option<Arc<Notifications>>,
    guard: Option<Guard>,
}

impl Mount {
    /// Mounts `source` at `directory` and returns when programs can use it. A dead mount of ours at
    /// the same place is replaced.
    ///
    /// # Errors
    /// The variant of [`MountError`] that says what is missing. Nothing stays mounted then.
    pub fn new<S: TreeSource>(
        source: S,
        directory: &Path,
        options: MountOptions,
    ) -> Result<Self, MountError> {
        let path = free_place(directory)?;
        let connection = attach(&path, &options)?;
        let mounted = mount_table::mounted_at(&path)?
            .filter(|mounted| mounted.fs_type == FS_TYPE)
            .ok_or_else(|| MountError::NotMounted { path: path.clone() })?;
        let unmounter = Unmounter { mounted: Arc::new(mounted), ended: Arc::default() };
        Self::serve(source, connection, options, unmounter.clone()).map_err(|error| {
            if let Err(error) = unmounter.unmount() {
                tracing::warn!(%error, "a half-made mount stays");
            }
            MountError::io("serve", &path, error)
        })
    }

    /// Starts the threads that answer the kernel.
    fn serve<S: TreeSource>(
        source: S,
        connection: OwnedFd,
        options: MountOptions,
        unmounter: Unmounter,
    ) -> io::Result<Self> {
        let (ordinary, companion) = (options.threads.max(1), options.companion);
        let tree = Arc::new(Tree::new(source, options));
        let company = Company::new(ordinary, companion, tree.counters.clone());
        let notifications = Arc::new(Notifications::new(connection.try_clone()?));
        let reads = Reads::new(tree.clone())?;
        let pruner = prune::spawn(&tree, notifications.clone())?;
        let has_predictor = tree.options.predictor;
        let driver = has_predictor.then(|| Driver::new(tree.clone()));
        let ended = unmounter.ended.clone();
        let filesystem =
            TreeFilesystem::new(tree.clone(), reads, driver.clone(), pruner, company, ended);
        let mut config = Config::default();
        let threads = ordinary + usize::from(companion);
        config.n_threads = Some(threads);
        config.clone_fd = threads > 1;
        // The kernel decides which users may come in (allow_other); fuser need not look again.
        let session = Session::from_fd(filesystem, connection, SessionACL::All, config)?;
        let notifier = session.notifier();
        if let Some(driver) = driver {
            driver.start(notifications.clone())?;
        }
        let session = Some(session.spawn()?);
        let notifications = has_predictor.then_some(notifications);
        let (counters, nodes, guard) = (tree.counters.clone(), tree, None);
        Ok(Self { session, unmounter, counters, nodes, notifier, notifications, guard })
    }

    /// Where it is mounted, without links.
    pub fn directory(&self) -> &Path {
        &self.unmounter.mounted.directory
    }

    /// The line of the mount table.
    pub fn mounted_at(&self) -> &MountedAt {
        &self.unmounter.mounted
    }

    /// Something that can unmount from another thread, for instance when a signal comes.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Takes the mount away from its directory, lazily when a process uses it. The mount serves its
    /// last users until [`wait`](Self::wait) returns or the process ends.
    ///
    /// # Errors
    /// The mount is still there, and the error says why.
    pub fn unmount(&self) -> Result<Unmounted, MountError> {
        self.unmounter.unmount()
    }

    /// Starts a [guard](crate::stand_guard), which ends with the mount. `command` gets the
    /// connection as its standard input, a pipe as its standard output, which tells it when to end,
    /// and what to watch as one more argument.
    ///
    /// Without a guard, a process that is killed while it pushes a file to a program that reads it
    /// may never end, nor the program. A mount without a [predictor](MountOptions::predictor)
    /// pushes nothing, so it starts no guard.
    ///
    /// # Errors
    /// The guard cannot be started. Of the kind `Unsupported`: the kernel is older than Linux 6.9.
    pub fn start_guard(&mut self, command: Command) -> Result<(), MountError> {
        let Some(notifications) = &self.notifications else { return Ok(()) };
        let directory = &self.unmounter.mounted.directory;
        let connection = notifications.as_fd().try_clone_to_owned();
        let connection = connection.map_err(|e| MountError::io("guard", directory, e))?;
        self.guard = Some(Guard::start(command, directory, connection)?);
        Ok(())
    }

    /// Waits until the mount has ended: it was unmounted and its last user is gone.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn wait(mut self) -> Result<(), MountError> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let ended = session.join().map_err(|e| MountError::io("serve", self.directory(), e));
        tracing::debug!(counts = ?self.counts(), "the mount has ended");
        ended
    }

    /// Makes the kernel ask again about every changing directory it knows, instead of within
    /// [`MountOptions::changing_ttl`].
    pub fn refresh(&self) {
        for id in self.nodes.changing_directories() {
            // A directory the kernel forgot meanwhile needs no refresh.
            if let Err(error) = self.notifier.inval_inode(INodeNo(id), 0, 0) {
                tracing::debug!(id, %error, "the kernel did not refresh a directory");
            }
        }
    }

    /// Requests so far.
    pub fn counts(&self) -> Counts {
        self.counters.counts()
    }

    /// Nodes the kernel knows now, the root included.
    pub fn live_nodes(&self) -> usize {
        self.nodes.live_nodes()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmounter.unmount() {
            tracing::warn!(%error, "the mount stays");
        }
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount").field("mounted", &self.unmounter.mounted).finish_non_exhaustive()
    }
}

/// Unmounts one [`Mount`], and only that one.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mounted: Arc<MountedAt>,
    ended: Arc<AtomicBool>,
}

impl Unmounter {
    /// As [`Mount::unmount`]. A mount that is gone already is no error.
    ///
    /// # Errors
    /// The mount is still there, and the error says why.
    pub fn unmount(&self) -> Result<Unmounted, MountError> {
        if self.ended.load(Ordering::Acquire) {
            return Ok(Unmounted::Clean);
        }
        let there = mount_table::mounted_at(&self.mounted.directory)?;
        match there {
            Some(there) if there == *self.mounted => detach(&self.mounted.directory),
            _ => Ok(Unmounted::Clean),
        }
    }
}

/// The mount point without links, after a dead mount of ours was taken away from it.
fn free_place(directory: &Path) -> Result<PathBuf, MountError> {
    let dead = match mount_table::check_mount_point(directory)? {
        MountPoint::Free(path) => return Ok(path),
        MountPoint::Dead(dead) => dead,
    };
    detach(&dead.directory)?;
    match mount_table::check_mount_point(directory)? {
        MountPoint::Free(path) => Ok(path),
        MountPoint::Dead(MountedAt { directory: path, fs_type, .. }) => {
            Err(MountError::DeadMount { path, fs_type })
        }
    }
}

/// Unmounts the mount of ours at `directory`, live or dead, lazily when it is in use.
///
/// # Errors
/// [`MountError::NotMounted`] when nothing of ours is there; otherwise why it stays.
pub fn unmount(directory: &Path) -> Result<Unmounted, MountError> {
    let path: PathBuf = mount_table::resolve(directory)?;
    match mount_table::mounted_at(&path)? {
        Some(mounted) if mounted.fs_type == FS_TYPE => detach(&path),
        _ => Err(MountError::NotMounted { path: directory.to_owned() }),
    }
}

/// The part of its tree that a mount needs, whatever the source.
trait KnownNodes: Send + Sync {
    fn live_nodes(&self) -> usize;
    fn changing_directories(&self) -> Vec<u64>;
}

impl<S: TreeSource> KnownNodes for Tree<S> {
    fn live_nodes(&self) -> usize {
        self.nodes.lock().len()
    }

    fn changing_directories(&self) -> Vec<u64> {
        self.nodes.lock().directories(|key| self.is_changing(key))
    }
}
