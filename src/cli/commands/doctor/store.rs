//! The store: space, clones, sessions and restores that were interrupted.

use std::io::Write;

use super::Finding;
use crate::cli::error::{CliError, opening_command};
use crate::cli::offer::NONO;
use crate::cli::render::byte_size;
use crate::cli::state_before;
#[cfg(feature = "container")]
use nono_container::LocalStorage;
#[cfg(feature = "container")]
use nono_container::restore::{Interrupted, RestoreError, unfinished};
use nono_engine::path_text::Shown;
use nono_engine::session::{Catalog, SessionStatus, SessionSummary};
use nono_engine::sys::{self, Dir, IoContext, TempFile};

/// Less free space than this is a problem, in bytes.
const LITTLE_SPACE: u64 = 1 << 30;
/// Number of sessions that are not worth removing.
const KEPT: usize = 5;
/// The size of the file that is cloned as a trial, in bytes: a few blocks of any file system.
const CLONED_BYTES: usize = 1 << 16;

pub(super) fn space(catalog: &Catalog) -> Option<Finding> {
    const WHAT: &str = "store";
    let root = catalog.root();
    let shown = Shown::path(root);
    let free = match Dir::open(root).and_then(|dir| dir.free_bytes()) {
        Ok(Some(free)) => free,
        Ok(None) => {
            let found = format!("{shown}; its file system does not tell the free space");
            return Some(Finding::fine(WHAT, found));
        }
        Err(error) if error.is_gone() => {
            return Some(Finding::fine(WHAT, format!("{shown} will be made by the first session")));
        }
        Err(error) => {
            return Some(Finding::wrong(WHAT, error.to_string(), "choose another with --root DIR"));
        }
    };
    let found = format!("{shown}, {} free", byte_size(free));
    Some(if free < LITTLE_SPACE {
        // Only what removes something is worth trying.
        let sessions = catalog.sessions().map_or(0, |sessions| sessions.len());
        let mend = match sessions {
            0..=KEPT => {
                "make room on this disk, or keep the store elsewhere: --root DIR".to_owned()
            }
            _ => format!("{NONO} cleanup --keep {KEPT}"),
        };
        Finding::wrong(WHAT, found, mend)
    } else {
        Finding::fine(WHAT, found)
    })
}

/// Whether the store can lie where it is: a session in it has a symlink to the objects.
pub(super) fn symlinks(catalog: &Catalog) -> Option<Finding> {
    const WHAT: &str = "store";
    let dir = catalog.root().ancestors().find_map(|place| Dir::open(place).ok())?;
    let name = format!(".nono-trial-{}", std::process::id());
    match dir.make_symlink(name.as_bytes(), b"target") {
        Ok(()) => {
            let removed = dir.remove_file(name.as_bytes());
            removed.err().map(|error| {
                Finding::wrong(WHAT, error.to_string(), "choose another with --root DIR")
            })
        }
        // A store that cannot be written is named elsewhere.
        Err(error) if !error.is_unsupported() => None,
        Err(_) => {
            let found = format!("the file system of {} has no symlinks", Shown::path(dir.path()));
            Some(Finding::wrong(WHAT, found, "keep the store elsewhere: --root DIR"))
        }
    }
}

/// Whether files are cloned into the store, found out by cloning one there.
pub(super) fn reflink(catalog: &Catalog) -> Finding {
    const WHAT: &str = "reflink";
    // Before the first session, what will be its file system.
    let Some(dir) = catalog.root().ancestors().find_map(|place| Dir::open(place).ok()) else {
        return Finding::fine(WHAT, "not tried: there is no such place yet");
    };
    let shown = Shown::path(dir.path());
    match try_clone(&dir) {
        Ok(true) => {
            Finding::fine(WHAT, format!("{shown} can clone files: recording shares blocks"))
        }
        Ok(false) => Finding::fine(WHAT, format!("{shown} cannot clone files: they are copied")),
        Err(error) if dir.path() == catalog.root() => {
            Finding::wrong(WHAT, error.to_string(), "choose another store with --root DIR")
        }
        Err(error) => Finding::fine(WHAT, format!("not tried: {error}")),
    }
}

fn try_clone(dir: &Dir) -> sys::Result<bool> {
    let (source, mut target) = (TempFile::new(dir, 0o600)?, TempFile::new(dir, 0o600)?);
    let mut file = source.file();
    file.write_all(&[1; CLONED_BYTES]).at("write in", dir.path())?;
    target.clone_from_file(source.file())
}

pub(super) fn sessions(catalog: &Catalog) -> Result<Vec<Finding>, CliError> {
    const WHAT: &str = "sessions";
    let mut findings = Vec::new();
    let sessions = catalog.sessions()?;
    for session in &sessions {
        let id = session.id();
        if session.has_interrupted_restore().is_ok_and(|is_interrupted| is_interrupted) {
            findings.push(Finding::wrong(
                "restores",
                format!("one of {id} was interrupted"),
                format!("{NONO} resume {id} (to take it back: --abort)"),
            ));
        }
        if session.is_unbegun().is_ok_and(|is_unbegun| is_unbegun) {
            findings.push(Finding::wrong(
                WHAT,
                format!("{id} was killed before its first snapshot: nothing of it can be undone"),
                format!("{NONO} cleanup {id}"),
            ));
            continue;
        }
        match SessionSummary::of(session).map(|summary| (summary.status, summary.undone)) {
            // The last state was not recorded, and is not wanted any more.
            Ok((SessionStatus::Interrupted, false)) => findings.push(Finding::wrong(
                WHAT,
                format!("{id} was interrupted: its last state is not recorded"),
                match state_before::is_there(session, 0) {
                    Ok(()) => {
                        format!("{NONO} show {id}, then {NONO} undo {id} or {NONO} cleanup {id}")
                    }
                    Err(error) => format!(
                        "{NONO} verify {id} --repair, or {NONO} cleanup {id}: \
                         {error}"
                    ),
                },
            )),
            Ok(_) => {}
            Err(error) => {
                let mend = opening_command(&error).unwrap_or_else(|| format!("{NONO} verify {id}"));
                findings.push(Finding::wrong(WHAT, error.to_string(), mend));
            }
        }
    }
    if findings.is_empty() {
        findings.push(Finding::fine(WHAT, format!("{}, none interrupted", sessions.len())));
    }
    Ok(findings)
}

/// Restores of containers that wait for their end.
#[cfg(feature = "container")]
pub(super) fn container_restores(catalog: &Catalog) -> Result<Vec<Finding>, CliError> {
    const WHAT: &str = "container restores";
    let finding = |waiting| match waiting {
        Ok(Interrupted { session_id, snapshot, name, .. }) => {
            let name = Shown::bytes(name.as_bytes());
            Finding::wrong(
                WHAT,
                format!("that of {name} from {session_id}/{snapshot} was interrupted"),
                format!("{NONO} container resume {session_id} (to take it back: --abort)"),
            )
        }
        Err(error) => {
            let error: RestoreError = error;
            Finding::wrong(WHAT, error.to_string(), "see what the message names")
        }
    };
    let storage = LocalStorage::new(catalog.root().to_owned());
    Ok(unfinished(&storage)?.into_iter().map(finding).collect())
}
