//! The grants of a command, and the walls around it.
//!
//! A [`Policy`] names the grants; [`enforce()`] shuts this process in, for good and with all its
//! descendants, and the caller then replaces it with the command. Landlock does the work: the
//! kernel checks every open, rename, link and truncation against the granted directories by where a
//! file really is, so symlinks and renamed parents change nothing. A small seccomp filter closes
//! gaps in Landlock, and root gives up the capabilities that pass by every wall. These three are
//! the first wall.
//! The second is a [`View`]: namespaces of mounts and processes, for what Landlock has no rule for
//! (attributes), where the system lets us make them. [`separate`] and [`furnish`] come before
//! [`enforce()`], in processes of their own. Always true:
//!
//! - The command reads the system (programs, libraries, `/etc`, `/proc`, `/sys`) and what is
//!   granted; it writes what is granted for writing, its own temporary directory, and harmless
//!   devices. It makes no device nodes, and types nothing into its terminal on behalf of whoever
//!   reads there next. It uses no key of the kernel's keyrings.
//! - It traces and signals no process outside, and reaches no abstract socket outside.
//! - The machine's `/tmp` is not granted: many programs keep sockets and locks of others there.
//!
//! No kernel of today lets an ordinary program stop two things: connecting to a Unix socket that
//! has a path (kernels with Landlock ABI 9 can, and it is used there), and reading files in `/proc`
//! and `/sys` that any process may read.

// The filter of system calls is compiled for these processors only.
#[cfg_attr(
    not(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
    )),
    path = "nowhere.rs"
)]
mod walls;

mod view;

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use nono_engine::path_text::serde_paths;
use nono_engine::sys;

pub use view::{NamespaceError, Room, TERMINALS, View, outermost};
pub use walls::{
    enforce, furnish, is_inside, is_readable_by_all, join, layers, relinquish, separate,
};

/// The grants of a command besides the system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Files and directories that may be read, and executed, with all below. Absolute, no component
    /// is a symlink.
    #[serde(with = "serde_paths")]
    pub read: Vec<PathBuf>,
    /// Files and directories that may be read and written, with all below. As above.
    #[serde(with = "serde_paths")]
    pub write: Vec<PathBuf>,
    /// Sockets, and directories of sockets, that may be connected to where the kernel asks. As
    /// above.
    #[serde(with = "serde_paths")]
    pub connect: Vec<PathBuf>,
    /// Withheld places, even in a place that every command may read: the record, the configuration
    /// and the home directory. As above; some of them may not exist.
    #[serde(with = "serde_paths")]
    pub withheld: Vec<PathBuf>,
    /// The reachable part of the network.
    pub network: Network,
}

/// The part of the network that a command may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Everything.
    #[default]
    Open,
    /// No IP socket can be made, of whatever protocol.
    Closed,
    /// TCP connections to these ports of any machine; no listening. UDP stays possible, since names
    /// are looked up with it.
    ConnectTo(Vec<u16>),
}

/// Whether a command can be shut in here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// nono cannot shut a command in on this operating system or processor.
    NotBuilt,
    /// No Landlock: not built in, or not switched on.
    None,
    /// The kernel could not be asked: there was no thread for it.
    NotAsked(io::ErrorKind),
    /// Landlock of this ABI, which cannot keep files outside from being truncated (before 3).
    TooOld(i32),
    /// Landlock of this ABI.
    Full(i32),
}

impl Support {
    /// Asks the kernel, if this build can shut a command in.
    pub fn of_kernel() -> Self {
        match walls::landlock_abi() {
            Ok(None) => walls::NO_LANDLOCK,
            Ok(Some(abi @ ..3)) => Self::TooOld(abi),
            Ok(Some(abi)) => Self::Full(abi),
            Err(error) => Self::NotAsked(error.kind()),
        }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuilt => {
                f.write_str("nono has walls only on Linux on x86-64, AArch64 and RISC-V")
            }
            Self::None => {
                f.write_str("it has no Landlock, or Landlock is not switched on (lsm=landlock)")
            }
            Self::NotAsked(cause) => {
                write!(f, "it could not be asked what it can do, for want of a thread: {cause}")
            }
            Self::TooOld(abi) => {
                write!(f, "its Landlock has ABI {abi}, and 3 is needed (Linux 6.2)")
            }
            Self::Full(abi) => write!(f, "Landlock ABI {abi}"),
        }
    }
}

/// Why a command could not be shut in. It must not be started then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// There is no Landlock, or an old one.
    #[error("this system cannot keep a command within its grants: {0}")]
    Unsupported(Support),
    /// A granted path cannot be opened.
    #[error(transparent)]
    Grant(#[from] sys::Error),
    /// The kernel refused a rule.
    #[error("cannot set up the sandbox: {0}")]
    Landlock(String),
    /// The kernel refused the filter of system calls.
    #[error("cannot set up the filter of system calls: {0}")]
    Filter(String),
    /// The kernel gave no keyring.
    #[error("cannot make a session keyring for the command: {0}")]
    Keyring(std::io::Error),
    /// Rights could not be given up.
    #[error("cannot give up the rights of root: {0}")]
    Rights(std::io::Error),
}
