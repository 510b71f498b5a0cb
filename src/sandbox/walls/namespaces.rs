//! The second wall: namespaces of mounts and of processes.
//!
//! An ordinary user makes them in a user namespace that maps the user to itself and no other user;
//! root, which may make them without one, sees all owners as they are. The order is fixed by the
//! kernel: a process namespace holds only what its maker starts *afterwards*, and its `/proc` can
//! be mounted only from inside. So one process calls [`separate`], and the program that it starts
//! calls [`furnish`]. Landlock comes after that, because it forbids every change of mounts.

use std::path::{Path, PathBuf};

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    mount_remount, move_mount, open_tree,
};
use rustix::thread::{
    CapabilitySet, ThreadNameSpaceType, UnshareFlags, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, move_into_thread_name_spaces, set_capabilities,
};

use super::mount_table::{Mounted, mount_table};
use super::terminals;
use crate::sandbox::{NamespaceError, View, outermost};
use nono_engine::sys;

const PROC: &str = "/proc";

/// Gives this process a mount namespace of its own, and with `own_processes` all that it starts
/// from now on a process namespace. It must have no other thread.
///
/// # Errors
/// The system does not let us. The process may be in a user namespace then, and must end.
pub fn separate(own_processes: bool) -> Result<(), NamespaceError> {
    let failed = |operation| move |errno: Errno| NamespaceError::of(operation, errno);
    let sets = capabilities(None).map_err(failed("ask for the rights of this process"))?;
    let mut flags = UnshareFlags::NEWNS;
    if own_processes {
        flags |= UnshareFlags::NEWPID;
    }
    if sets.effective.contains(CapabilitySet::SYS_ADMIN) {
        return unshare(flags).map_err(failed("make a mount namespace"));
    }
    let (uid, gid) = (sys::effective_uid(), sys::effective_gid());
    if uid == 0 {
        // In a user namespace, root could give no file to another user any more.
        return Err(NamespaceError::of(
            "make a mount namespace without CAP_SYS_ADMIN",
            Errno::PERM,
        ));
    }
    unshare(flags | UnshareFlags::NEWUSER).map_err(failed("make a user namespace"))?;
    for (path, text) in [
        // Only then may an ordinary user map a group.
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{uid} {uid} 1")),
        ("/proc/self/gid_map", format!("{gid} {gid} 1")),
    ] {
        sys::write_kernel_file(Path::new(path), text.as_bytes()).map_err(|error| {
            NamespaceError::at("write", Path::new(path), std::io::Error::from(error.kind()))
        })?;
    }
    pass_on_right()
}

/// Gives this process the namespaces of mounts and users of another process of this user, `other`
/// (a process descriptor). From there it gets a mount namespace of its own, so that nothing it
/// mounts is seen by others. With `own_processes` all that it starts from now on gets a process
/// namespace. It must have no other thread. The working directory stays the one of this path.
///
/// # Errors
/// The system does not let us. The process may be in another namespace then, and must end.
pub fn join(other: BorrowedFd<'_>, own_processes: bool) -> Result<(), NamespaceError> {
    let failed = |operation| move |errno: Errno| NamespaceError::of(operation, errno);
    let sets = capabilities(None).map_err(failed("ask for the rights of this process"))?;
    let working_dir = sys::current_dir()
        .map_err(|error| NamespaceError::of("ask for the working directory", error.kind()))?;
    let has_right = sets.effective.contains(CapabilitySet::SYS_ADMIN);
    let mut namespaces = ThreadNameSpaceType::MOUNT;
    if !has_right {
        namespaces |= ThreadNameSpaceType::USER;
    }
    move_into_thread_name_spaces(other, namespaces)
        .map_err(failed("enter the namespaces of a fork"))?;
    let mut flags = UnshareFlags::NEWNS;
    if own_processes {
        flags |= UnshareFlags::NEWPID;
    }
    unshare(flags).map_err(failed("make a mount namespace"))?;
    go_to(&working_dir)?;
    if has_right { Ok(()) } else { pass_on_right() }
}

/// Passes the right to mount on to the program that is started next, although it is not root's.
fn pass_on_right() -> Result<(), NamespaceError> {
    let failed = |errno: Errno| NamespaceError::of("pass on the right to mount", errno);
    let mut sets = capabilities(None).map_err(failed)?;
    sets.inheritable = CapabilitySet::SYS_ADMIN;
    set_capabilities(None, sets).map_err(failed)?;
    configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true).map_err(failed)
}

fn go_to(directory: &Path) -> Result<(), NamespaceError> {
    rustix::process::chdir(directory).map_err(|errno| NamespaceError::at("go to", directory, errno))
}

/// Gives up the right to mount where it came from a user namespace.
///
/// # Errors
/// The system does not let us. No command may be started then.
pub fn relinquish() -> Result<(), NamespaceError> {
    give_up_rights().map_err(|errno| NamespaceError::of("give up the right to mount", errno))
}

#[allow(deprecated, reason = "the other call is unsafe for the sake of CLONE_FILES, not used here")]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(flags)
}

/// Furnishes the mount namespace, goes to the working directory, and gives up the right to mount
/// where it came from a user namespace. With `own_processes` this is the first process of a process
/// namespace.
///
/// # Errors
/// The system does not let us. The process must end then.
pub fn furnish(view: &View, own_processes: bool) -> Result<(), NamespaceError> {
    separate_mounts()?;
    if own_processes {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("proc", PROC, "proc", flags, None)
            .map_err(|errno| NamespaceError::at("mount", Path::new(PROC), errno))?;
    }
    let copies = |paths: Vec<&Path>| -> Result<Vec<(PathBuf, OwnedFd)>, NamespaceError> {
        paths.into_iter().map(|path| Ok((path.to_owned(), copy_of(path)?))).collect()
    };
    // Before anything is read-only, and before a room hides them.
    let writable = copies(outermost(&view.writable))?;
    let rooms = view.rooms.iter().map(|room| copy_of(&room.from)).collect::<Result<Vec<_>, _>>()?;
    let visible = copies(view.visible.iter().map(PathBuf::as_path).collect())?;
    let terminal = if view.own_terminals { terminals::first()? } else { None };
    for (room, copy) in view.rooms.iter().zip(&rooms) {
        attach(copy, &room.at)?;
    }
    for (path, copy) in &visible {
        attach(copy, path)?;
    }
    make_read_only(view)?;
    for (path, copy) in &writable {
        attach(copy, path)?;
    }
    if view.own_terminals {
        terminals::replace(terminal.as_ref())?;
    }
    // By its path, or it would be the one below the new mounts.
    go_to(&view.working_dir)?;
    relinquish()
}

/// Later mounts and unmounts outside appear inside; nothing goes the other way.
pub(super) fn separate_mounts() -> Result<(), NamespaceError> {
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", slave).map_err(|errno| NamespaceError::of("separate the mounts", errno))
}

/// All mounts, with those of what is visible in rooms, but without writable rooms. `/proc` is one
/// of them: modes and owners of its files are the machine's, whatever namespace it shows.
fn make_read_only(view: &View) -> Result<(), NamespaceError> {
    let table = || {
        mount_table()
            .map_err(|error| NamespaceError::of("read the mounts", std::io::Error::other(error)))
    };
    let is_meant = |mounted: &&Mounted| {
        let path = &mounted.directory;
        let in_room = view.rooms.iter().any(|room| room.is_writable && path.starts_with(&room.at));
        let is_visible = view.visible.iter().any(|visible| path.starts_with(visible));
        !in_room || is_visible
    };
    for mounted in table()?.iter().filter(is_meant) {
        let path = &mounted.directory;
        let kept = mounted.flags | MountFlags::BIND | MountFlags::RDONLY;
        match mount_remount(path, kept, c"") {
            // Out of this user's reach, or below another mount: seen again below if it is neither.
            Ok(()) | Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::INVAL) => {}
            Err(errno) => return Err(NamespaceError::at("make read-only", path, errno)),
        }
    }
    for mounted in table()?.iter().filter(is_meant) {
        let path = &mounted.directory;
        let is_writable = rustix::fs::statvfs(path)
            .is_ok_and(|found| !found.f_flag.contains(StatVfsMountFlags::RDONLY));
        if is_writable {
            return Err(NamespaceError::at("make read-only", path, Errno::BUSY));
        }
    }
    Ok(())
}

/// A copy of the mounts at a path and below, which is nowhere yet.
pub(super) fn copy_of(path: &Path) -> Result<OwnedFd, NamespaceError> {
    let place = open_place(path)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(&place, c"", flags).map_err(|errno| NamespaceError::at("copy the mount", path, errno))
}

pub(super) fn attach(copy: &OwnedFd, path: &Path) -> Result<(), NamespaceError> {
    let place = open_place(path)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(copy, c"", &place, c"", flags)
        .map_err(|errno| NamespaceError::at("mount", path, errno))
}

/// The path was judged without symlinks; one that stands there now is new.
pub(super) fn open_place(path: &Path) -> Result<OwnedFd, NamespaceError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .map_err(|errno| NamespaceError::at("open", path, errno))
}

/// Root keeps its rights until [`enforce`](super::enforce) takes them.
fn give_up_rights() -> rustix::io::Result<()> {
    if sys::effective_uid() == 0 {
        return Ok(());
    }
    clear_ambient_capability_set()?;
    let mut sets = capabilities(None)?;
    sets.effective = CapabilitySet::empty();
    sets.permitted = CapabilitySet::empty();
    sets.inheritable = CapabilitySet::empty();
    set_capabilities(None, sets)
}
