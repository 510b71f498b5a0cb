//! A session keyring of the command's own.
//!
//! The filter refuses the system calls that name keys. But the kernel also looks for keys by
//! itself, for file systems and sockets, in the keyrings that a process has. A process inherits its
//! session keyring, so that of the command is a new one, with nothing in it. Keyrings of threads
//! and processes end with the program that is replaced.

use keyutils_raw::keyctl_join_session_keyring;
use rustix::io::Errno;

use crate::sandbox::SandboxError;

/// Gives this process a new session keyring.
///
/// # Errors
/// The kernel gives none, because of a quota for example.
pub(super) fn join_own_keyring() -> Result<(), SandboxError> {
    match keyctl_join_session_keyring(None) {
        Ok(_) => Ok(()),
        Err(error) => match Errno::from_raw_os_error(error.0) {
            // A kernel without keys, or a filter around this process, which refuses the calls to
            // the command as well: that of a container engine, or of a run.
            Errno::NOSYS | Errno::PERM => Ok(()),
            errno => Err(SandboxError::Keyring(errno.into())),
        },
    }
}
