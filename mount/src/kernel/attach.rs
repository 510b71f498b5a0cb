//! Attaching a FUSE connection to a directory, and detaching it.
//!
//! A privileged process calls the kernel itself. Everybody else goes through `fusermount3`, which
//! is setuid root and hands back the descriptor of the connection over a socket.

use std::ffi::CString;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use rustix::process::{getgid, getuid};

use crate::error::MountError;
use crate::kernel::mount_table;
use crate::options::MountOptions;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// A mount that is in use for longer is unmounted lazily.
const GRACE_PERIOD: Duration = Duration::from_millis(100);

/// How a mount ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmounted {
    /// No process was using it.
    Clean,
    /// A process uses it: it is gone from the directory and ends when the last user leaves, or
    /// when the process that serves it ends.
    Busy,
}

/// Mounts at `directory` and returns the connection.
pub(crate) fn attach(directory: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(
        |errno| match errno {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoFuseDevice,
            Errno::ACCESS | Errno::PERM => MountError::FuseDevicePermission,
            errno => MountError::io("open", DEVICE, errno),
        },
    )?;
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        mount_table::mode(directory)?,
        getuid().as_raw(),
        getgid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    // A name with a NUL would be cut by the kernel; nothing else is special here.
    let fs_name = options.fs_name.replace('\0', "?");
    let data = CString::new(data).map_err(|e| MountError::io("mount at", directory, e))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY | MountFlags::NOATIME;
    match rustix::mount::mount(
        fs_name.as_str(),
        directory,
        mount_table::FS_TYPE,
        flags,
        data.as_c_str(),
    ) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => {
            drop(device);
            attach_with_helper(directory, options, &fs_name)
        }
        Err(errno) => Err(MountError::Refused {
            operation: "mount at",
            path: directory.to_owned(),
            message: std::io::Error::from(errno).to_string(),
        }),
    }
}

fn attach_with_helper(
    directory: &Path,
    options: &MountOptions,
    fs_name: &str,
) -> Result<OwnedFd, MountError> {
    let helper = mount_table::find_program(HELPER).ok_or(MountError::NoFusermount)?;
    let failed = |error: std::io::Error| MountError::io("mount at", directory, error);
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| failed(errno.into()))?;
    let subtype = mount_table::FS_TYPE.trim_start_matches("fuse.");
    let mut list = format!(
        "ro,nosuid,nodev,noatime,default_permissions,subtype={subtype},fsname={}",
        fs_name.replace('\\', "\\\\").replace(',', "\\,"),
    );
    if options.allow_other {
        list.push_str(",allow_other");
    }
    let mut command = Command::new(helper);
    command.arg("-o").arg(list).arg("--").arg(directory);
    // The socket is the helper's standard input, so no other child can inherit it by accident.
    command.env("_FUSE_COMMFD", "0").stdin(Stdio::from(theirs));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(failed)?;
    drop(command);
    let received = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(failed)?;
    if let Some(connection) = received {
        return Ok(connection);
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let path = directory.to_owned();
    Err(if message.contains("user_allow_other") {
        MountError::AllowOtherRefused { path }
    } else if message.contains("ermission denied") || message.contains("not permitted") {
        MountError::Permission { operation: "mount at", path, message }
    } else {
        MountError::Refused { operation: "mount at", path, message }
    })
}

/// The descriptor the helper sends, or nothing when it gave up.
fn receive_descriptor(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0_u8];
    rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })
    .ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Unmounts what is at `directory`, lazily when it stays in use for longer than a look takes.
pub(crate) fn detach(directory: &Path) -> Result<Unmounted, MountError> {
    let unmount = |flags| match rustix::mount::unmount(directory, UnmountFlags::NOFOLLOW | flags) {
        Ok(()) => Ok(true),
        Err(Errno::BUSY) => Ok(false),
        Err(errno) => Err(errno),
    };
    match is_let_go(|| unmount(UnmountFlags::empty())) {
        Ok(true) => return Ok(Unmounted::Clean),
        Ok(false) => {
            if unmount(UnmountFlags::DETACH) == Ok(true) {
                return Ok(Unmounted::Busy);
            }
        }
        Err(Errno::PERM) => {}
        Err(errno) => return Err(MountError::io("unmount", directory, errno)),
    }
    let helper = mount_table::find_program(HELPER).ok_or(MountError::NoFusermount)?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&helper);
        command.args(arguments).arg("--").arg(directory).stdin(Stdio::null());
        command.output().map_err(|e| MountError::io("unmount", directory, e))
    };
    if is_let_go(|| Ok::<_, MountError>(run(&["-u"])?.status.success()))? {
        return Ok(Unmounted::Clean);
    }
    let output = run(&["-u", "-z"])?;
    if output.status.success() {
        return Ok(Unmounted::Busy);
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(MountError::Permission { operation: "unmount", path: directory.to_owned(), message })
}

/// Tries several times within [`GRACE_PERIOD`]. A program that asks a mount for its size (`df`,
/// the status of another store) uses it for an instant, and no event says when that is over.
fn is_let_go<E>(mut unmount: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
    let begin = Instant::now();
    loop {
        if unmount()? {
            return Ok(true);
        }
        if begin.elapsed() > GRACE_PERIOD {
            return Ok(false);
        }
        std::thread::sleep(GRACE_PERIOD / 10);
    }
}
