//! The needs of mounts, and their leftovers.

use std::ffi::OsStr;
use std::path::Path;

use nono_mount::MountedAt;

use super::Finding;
use crate::cli::forking;
use nono_engine::path_text::Shown;
use nono_engine::session::Catalog;
use nono_engine::sys;

pub(super) fn fuse() -> Finding {
    const WHAT: &str = "FUSE";
    let device = Path::new("/dev/fuse");
    match sys::try_open_device(device) {
        Ok(()) => Finding::fine(WHAT, "/dev/fuse can be opened"),
        Err(error) if error.is_gone() => {
            Finding::wrong(WHAT, error.to_string(), "sudo modprobe fuse")
        }
        Err(error) => Finding::wrong(WHAT, error.to_string(), "sudo chmod 666 /dev/fuse"),
    }
}

pub(super) fn fusermount() -> Finding {
    const WHAT: &str = "fusermount3";
    let search = std::env::var_os("PATH").unwrap_or_default();
    match sys::find_program(OsStr::new(WHAT), &search) {
        Some(path) => Finding::fine(WHAT, Shown::path(&path).to_string()),
        None => Finding::wrong(WHAT, "not installed", "sudo apt-get install fuse3"),
    }
}

/// Whether commands can work in forks in this store. A machine without forks is no fault.
pub(super) fn forks(catalog: &Catalog) -> Finding {
    const WHAT: &str = "forks";
    match forking::probe(catalog.root()) {
        Ok(()) => Finding::fine(WHAT, "layers over recorded states can be mounted"),
        Err(error) => {
            if forking::probe_copy(catalog.root()).is_ok() {
                let found = format!("as copies alone (--copy): {error}");
                let mend = error.hint().unwrap_or("see what the message names").to_owned();
                return Finding { mend: Some(mend), ..Finding::fine(WHAT, found) };
            }
            let mend = error.hint().unwrap_or("see what the message names").to_owned();
            Finding { mend: Some(mend), ..Finding::fine(WHAT, format!("none: {error}")) }
        }
    }
}

/// Mounts whose process is gone: every access to them fails.
pub(super) fn mounts() -> Finding {
    const WHAT: &str = "mounts";
    let mounts = match nono_mount::mounts() {
        Ok(mounts) => mounts,
        Err(error) => return Finding::wrong(WHAT, error.to_string(), "mount /proc"),
    };
    // An error is an answer, too.
    let is_alive = |mount: &MountedAt| mount.is_alive().unwrap_or(true);
    let (alive, dead): (Vec<_>, Vec<_>) = mounts.into_iter().partition(is_alive);
    if dead.is_empty() {
        return Finding::fine(WHAT, format!("{}, none dead", alive.len()));
    }
    let list = |before: &str, between: &str| {
        let shown = dead.iter().map(|mount| format!("{before}{}", Shown::path(&mount.directory)));
        shown.collect::<Vec<_>>().join(between)
    };
    Finding::wrong(
        WHAT,
        format!("their process is gone: {}", list("", ", ")),
        list("nono umount ", "; "),
    )
}
