//! The filter of system calls, for gaps in Landlock's rules.
//!
//! - Typing into the terminal (`TIOCSTI`, and `TIOCLINUX` on a console): the shell that started
//!   nono would read and run it after the command has ended.
//! - Limits of resources of *other* processes (`prlimit64` with a new limit and a process id): the
//!   supervisor is of the same user, and a limit on its memory or its files would end the
//!   recording. Programs that set their own limits name no process, or use `setrlimit`.
//! - The kernel's keys (`add_key`, `keyctl`, `request_key`): keyrings are the machine's, whatever
//!   namespaces a process is in.
//! - IP sockets, when the network is closed: Landlock knows TCP only. The interface that makes
//!   sockets without a system call of their own (io_uring) is closed with them.
//!
//! - Nothing else, and a mark: a signal to a process that cannot be is refused in another way than
//!   the kernel refuses it. So this program knows that it was started inside, without its
//!   environment, in whatever namespaces it is.
//!
//! A refused call fails with EPERM. Programs for another architecture than this one are ended by
//! the kernel, since call numbers mean something else there.

use std::collections::BTreeMap;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

use crate::sandbox::{Network, SandboxError};

/// No process has this id: the largest that the kernel gives is 4,194,304 (`PID_MAX_LIMIT`).
const NO_PROCESS: i32 = 0x6e6f_6e6f;

/// Whether the filter holds for this process. The kernel's own answer is ESRCH.
pub(super) fn is_applied() -> bool {
    let pid = Pid::from_raw(NO_PROCESS);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM))
}

/// Applies the filter to this process and all that it starts.
pub(super) fn apply(network: &Network) -> Result<(), SandboxError> {
    let failed = |error: &dyn std::fmt::Display| SandboxError::Filter(error.to_string());
    let arch = std::env::consts::ARCH.try_into().map_err(|error| failed(&error))?;
    let filter = SeccompFilter::new(
        rules(network).map_err(|error| failed(&error))?,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        arch,
    );
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(|error| failed(&error))?;
    apply_filter(&program).map_err(|error| failed(&error))
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(network: &Network) -> Result<Rules, seccompiler::BackendError> {
    let mut rules = Rules::new();
    // The kernel looks at 32 bits of the request, whatever the others are.
    #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
    let requests = [libc::TIOCSTI as u64, libc::TIOCLINUX as u64].map(|request| when(1, request));
    rules.insert(libc::SYS_ioctl, requests.into_iter().collect::<Result<_, _>>()?);
    // All 64 bits of a pointer, the low 32 of the process id.
    let other_process = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?;
    let new_limit = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![other_process, new_limit])?]);
    for call in [libc::SYS_add_key, libc::SYS_keyctl, libc::SYS_request_key] {
        rules.insert(call, Vec::new());
    }
    rules.insert(libc::SYS_kill, vec![when(0, u64::from(NO_PROCESS.unsigned_abs()))?]);
    if *network == Network::Closed {
        let families = [libc::AF_INET, libc::AF_INET6, libc::AF_PACKET, libc::AF_VSOCK];
        let families: Result<Vec<_>, _> =
            families.map(|family| when(0, u64::from(family.unsigned_abs()))).into_iter().collect();
        rules.insert(libc::SYS_socket, families?);
        rules.insert(libc::SYS_io_uring_setup, Vec::new());
    }
    Ok(rules)
}

/// True of a call whose argument of this index has this value.
fn when(index: u8, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let equal = SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
    SeccompRule::new(vec![equal])
}
