//! The rights of root that no command needs within its grants.
//!
//! Root passes by many checks: with CAP_PERFMON it reads the memory map and the environment of any
//! process, with CAP_SYS_MODULE it replaces the kernel. The remaining set is the one that container
//! engines leave to root by default, without making devices. For everybody else nothing changes.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use crate::sandbox::SandboxError;

const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::AUDIT_WRITE)
    .union(CapabilitySet::SETFCAP);

/// Gives the other rights up, for this process and all that it starts.
pub(super) fn drop_unneeded() -> Result<(), SandboxError> {
    let failed = |errno: Errno| SandboxError::Rights(errno.into());
    let mut sets = capabilities(None).map_err(failed)?;
    if sets.permitted.is_empty() && sets.inheritable.is_empty() {
        return Ok(());
    }
    for number in 0..u64::BITS {
        let right = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(right) {
            Ok(true) if !KEPT.contains(right) => {
                match remove_capability_from_bounding_set(right) {
                    // A process that may not do this is not root either, and gains nothing when it
                    // execs.
                    Ok(()) | Err(Errno::PERM) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
            Ok(_) => {}
            // The kernel knows no more of them.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(failed(errno)),
        }
    }
    sets.permitted &= KEPT;
    sets.effective &= KEPT;
    sets.inheritable &= KEPT;
    set_capabilities(None, sets).map_err(failed)
}
