//! A policy, turned into rules of the kernel.

mod call_filter;
mod keys;
pub mod layers;
mod mount_table;
mod namespaces;
mod rights;
mod system;
mod terminals;

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort,
    PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::{Network, Policy, SandboxError, Support};
pub use namespaces::{furnish, join, relinquish, separate};
use nono_engine::path_text::to_path;
use nono_engine::sys::{self, FileKind, IoContext};

/// The oldest Landlock that keeps the promise: before it, files outside can be truncated.
const OLDEST: ABI = ABI::V3;
/// The first that knows TCP.
const OLDEST_WITH_NETWORK: ABI = ABI::V4;
/// The newest whose rules are used where the kernel has them.
const NEWEST: ABI = ABI::V9;

/// The support when no Landlock was found.
pub(super) const NO_LANDLOCK: Support = Support::None;

/// The kernel's Landlock ABI. It is told only to those who shut themselves in, so a thread does
/// that and ends.
///
/// # Errors
/// There is no thread.
pub(super) fn landlock_abi() -> io::Result<Option<i32>> {
    let ask = || -> Result<Option<i32>, RulesetError> {
        let rules = Ruleset::default().handle_access(AccessFs::from_all(ABI::V1))?.create()?;
        Ok(match rules.restrict_self()?.landlock {
            LandlockStatus::Available { effective_abi, kernel_abi } => {
                Some(kernel_abi.unwrap_or(effective_abi as i32))
            }
            _ => None,
        })
    };
    let answer = sys::spawn("landlock", ask)?.join();
    Ok(answer.ok().and_then(|answer| answer.ok().flatten()))
}

/// Shuts this process in. It cannot be undone, and everything that is started later is inside too.
/// Only the calling thread is shut in, so it must be the only one.
///
/// # Errors
/// As [`SandboxError`] says; the process must not go on to run the command then.
pub fn enforce(policy: &Policy) -> Result<(), SandboxError> {
    let support = Support::of_kernel();
    if !matches!(support, Support::Full(_)) {
        return Err(SandboxError::Unsupported(support));
    }
    restrict(policy)?;
    // The filter refuses the call that this needs.
    keys::join_own_keyring()?;
    call_filter::apply(&policy.network)?;
    rights::drop_unneeded()
}

/// Whether this process is within the walls of [`enforce`], its own or those of whoever started it,
/// whatever became of its environment.
#[must_use]
pub fn is_inside() -> bool {
    call_filter::is_applied()
}

/// Whether every command may read a path, for all that is withheld in it.
#[must_use]
pub fn is_readable_by_all(path: &Path) -> bool {
    system::READABLE.iter().any(|place| path.starts_with(place))
}

fn restrict(policy: &Policy) -> Result<(), SandboxError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(OLDEST))?;
    if policy.network != Network::Open {
        rules = rules.handle_access(AccessNet::from_all(OLDEST_WITH_NETWORK))?;
    }
    let mut rules = rules
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        // The kernel would only log what this program is denied, not what the command is.
        .log_new_exec(true)?;
    let read = AccessFs::from_read(NEWEST);
    // Connecting to sockets that have a path.
    let connect = AccessFs::from_all(NEWEST) ^ AccessFs::from_all(ABI::V8);
    for path in system::READABLE {
        for path in around(Path::new(path), &policy.withheld) {
            // Sockets of the name service lie among them.
            rules = grant_if_there(rules, &path, read | connect)?;
        }
    }
    for path in &policy.connect {
        rules = grant_if_there(rules, path, read | connect)?;
    }
    for path in system::LISTED {
        for path in around(Path::new(path), &policy.withheld) {
            rules = grant_if_there(rules, &path, AccessFs::ReadDir.into())?;
        }
    }
    for path in system::DEVICES {
        rules = grant_if_there(rules, Path::new(path), write_access())?;
    }
    for terminal in terminals::streams() {
        // By its descriptor: where `/dev/pts` is the command's own, no path leads there.
        let access = write_access() & AccessFs::from_file(NEWEST);
        rules = rules.add_rule(PathBeneath::new(terminal, access))?;
    }
    for (paths, access) in [(&policy.read, read), (&policy.write, write_access())] {
        for path in paths {
            // The path was judged with its symlinks resolved; one that stands there now is new.
            rules = grant(rules, &open_place(path, ResolveFlags::NO_SYMLINKS)?, path, access)?;
        }
    }
    if let Network::ConnectTo(ports) = &policy.network {
        for port in ports {
            rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
    }
    rules.restrict_self()?;
    Ok(())
}

impl From<RulesetError> for SandboxError {
    fn from(error: RulesetError) -> Self {
        Self::Landlock(error.to_string())
    }
}

/// Everything except making device nodes, which would be the machine's disks.
fn write_access() -> BitFlags<AccessFs> {
    AccessFs::from_all(NEWEST) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

/// The cover of a built-in grant: the place, or, where something in it is withheld, all else in it.
/// Landlock takes nothing out of a directory again, so what lies beside it is granted one by one.
fn around(place: &Path, withheld: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(real) = sys::real_path(place) else { return Vec::new() };
    if !withheld.iter().any(|path| path.starts_with(&real)) {
        return vec![place.to_owned()];
    }
    let mut granted = Vec::new();
    let mut rest = vec![real];
    while let Some(dir) = rest.pop() {
        let names = sys::Dir::open(&dir).and_then(|dir| dir.names()).unwrap_or_default();
        for name in names {
            let path = dir.join(to_path(&name.name));
            if withheld.contains(&path) {
                continue;
            }
            if withheld.iter().any(|withheld| withheld.starts_with(&path)) {
                rest.push(path);
            } else {
                granted.push(path);
            }
        }
    }
    granted
}

fn grant_if_there(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, SandboxError> {
    match open_place(path, ResolveFlags::empty()) {
        Ok(place) => grant(rules, &place, path, access),
        // Nothing there, or not for us: then there is nothing to grant.
        Err(_) => Ok(rules),
    }
}

/// Opens whatever is at a path without reading it, only to name it to the kernel.
fn open_place(path: &Path, resolve: ResolveFlags) -> sys::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve).at("open", path)
}

fn grant(
    rules: RulesetCreated,
    place: &OwnedFd,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, SandboxError> {
    let is_dir = sys::stat_open_file(place, path)?.kind == FileKind::Directory;
    let access = if is_dir { access } else { access & AccessFs::from_file(NEWEST) };
    if access.is_empty() {
        // Only directories are listed.
        return Ok(rules);
    }
    Ok(rules.add_rule(PathBeneath::new(place, access))?)
}
