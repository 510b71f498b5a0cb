//! Mending what can be mended of a damaged session.
//!
//! [`repair_session`] verifies a session, moves what is damaged out of the way, looks for a copy of
//! it that has the right hash, and says what is lost for good. Always true:
//!
//! - Nothing is believed. A copy counts if its bytes have the hash that names the object, and they
//!   are hashed while they are copied; where they come from is not trusted.
//! - Nothing is deleted. A damaged object goes to
//!   [quarantine](crate::store::LocalStore::quarantine), a manifest to `<session>/quarantine/`.
//! - An intact object is never moved, even if it makes no sense: an object whose bytes have its
//!   hash is the recorded one, and there cannot be a better copy. The same holds for an object that
//!   cannot be read now, for want of a right or a descriptor. An object on a bad sector is moved
//!   only when there is a good copy. But a pack with an unreadable index is moved, after its
//!   readable objects were copied. The next repair that finds something damaged searches it again:
//!   the disk may give more then.
//! - It can be killed at any point: finished steps stay, and another run does the rest.
//!
//! Copies are looked for in what was put aside before, where objects of other stores have the same
//! name, then at the paths at which a snapshot says that the file was, and at last by capturing the
//! tracked paths once more into nothing: that finds files that were moved or copied, and makes the
//! list of a directory again if its directory is still in the same state.
//!
//! Manifests are named by hashes, too. One that nothing can read and that no copy replaces goes to
//! quarantine; one that can be read and contradicts the others stays, because nothing tells which
//! of them is right. A session's own manifest that nothing can read is made again from an unbroken
//! chain of snapshots, without what only it knew. One that was edited is replaced by a copy, or
//! stays.

mod container;
mod copies;
mod manifests;
mod objects;
mod recapture;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use crate::object::ContentHash;
use crate::path_text::{serde_path, serde_paths};
use crate::snapshot::{CaptureError, ManifestError, SessionDir};
use crate::store::{ImportError, LocalStore, StoreError};
use crate::sys;
use crate::verify::{Verifier, VerifyError, VerifyOptions, VerifyReport};

pub use manifests::set_manifest_aside;
use objects::Objects;

/// Where to look for good copies, and how to verify.
#[derive(Debug, Clone, Copy, Default)]
pub struct RepairOptions<'a> {
    /// How the session is verified before and after.
    pub verify: VerifyOptions<'a>,
    /// Directories that may hold good copies: root directories of stores, sessions, or directories
    /// of objects. One that is none of these holds nothing.
    pub other_stores: &'a [PathBuf],
}

/// The repaired and the lost parts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// The objects that are whole again.
    pub repaired: Vec<Repaired>,
    /// Where damaged files were moved.
    #[serde(with = "serde_paths")]
    pub quarantined: Vec<PathBuf>,
    /// The objects that are not, because there is no good copy.
    pub lost: Vec<Lost>,
}

/// Something that was damaged and is whole again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// The object; none for a manifest.
    pub object: Option<ContentHash>,
    /// Where it is.
    #[serde(with = "serde_path")]
    pub on_disk: PathBuf,
    /// Where the good copy was.
    pub from: Source,
}

/// Where a good copy was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum Source {
    /// A file that still has the contents.
    File {
        /// The file.
        #[serde(with = "serde_path")]
        path: PathBuf,
    },
    /// An object or manifest of another store, or another place of the same one.
    Store {
        /// The object or manifest.
        #[serde(with = "serde_path")]
        path: PathBuf,
    },
    /// The tracked paths, which were captured once more.
    Recaptured,
    /// The snapshots of the session, from which its manifest was made again. Command and exit code
    /// are lost.
    Snapshots,
}

/// Something that cannot be had back, or not now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// The description, in words.
    pub what: String,
    /// The object; none for a manifest.
    pub object: Option<ContentHash>,
    /// Why it is lost.
    pub reason: String,
    /// Whether it is there and merely cannot be read, as when a right is wanting; or may be in a
    /// pack that the disk does not give.
    pub is_unreadable: bool,
    /// Numbers of the snapshots that need it.
    pub snapshots: BTreeSet<u64>,
    /// The paths that it stands for in them.
    #[serde(with = "serde_paths")]
    pub paths: Vec<PathBuf>,
    /// Whether there are more paths than these.
    pub has_more_paths: bool,
}

/// Why nothing, or not everything, was repaired. Finished repairs stay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The session cannot be verified.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A manifest cannot be read or written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(StoreError),
    /// The tracked paths cannot be looked at.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A file system call failed.
    #[error(transparent)]
    Io(#[from] sys::Error),
}

impl From<StoreError> for RepairError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cancelled => VerifyError::Cancelled.into(),
            error => Self::Store(error),
        }
    }
}

impl From<ImportError> for RepairError {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Store(error) => error.into(),
            ImportError::Source(source) => {
                sys::Error { operation: "read", path: PathBuf::from("a copy"), source }.into()
            }
        }
    }
}

/// Repairs one session, whose objects are in `store`, and verifies it again. Holds the session's
/// lock, and the store's exclusively while something is replaced.
///
/// # Errors
/// [`RepairError`]. A loss is not an error: see the reports.
pub fn repair_session(
    session: &SessionDir,
    store: &LocalStore,
    options: &RepairOptions<'_>,
) -> Result<(RepairReport, VerifyReport), RepairError> {
    let _session_lock = session.lock()?;
    let mut report = RepairReport::default();
    manifests::repair(session, options.other_stores, &mut report)?;
    let (mut not_given, mut is_verified_again) = (Vec::new(), false);
    loop {
        let (verified, damaged) = {
            let mut verifier = Verifier::new(store, options.verify)?;
            let verified = verifier.session(session)?;
            (verified, verifier.damaged_objects(session)?)
        };
        let mut objects = Objects::new(store, session, &damaged)?;
        objects.repair(options, &mut not_given)?;
        // An object that is damaged again right away does not get better by another repair.
        let is_new = |new: &Repaired| report.repaired.iter().all(|old| old.object != new.object);
        let mut has_progress = objects.has_new_packs || objects.repaired.iter().any(is_new);
        if !has_progress && objects.is_intact_after_all {
            // Once: an error of the disk may have passed.
            has_progress = !std::mem::replace(&mut is_verified_again, true);
        }
        report.repaired.append(&mut objects.repaired);
        report.quarantined.append(&mut objects.quarantined);
        // A tree that is whole again may show what is damaged below it.
        if !has_progress {
            report.lost.extend(objects.lost(&not_given));
            manifests::count_again(session, store)?;
            container::describe_again(session, store)?;
            return Ok((report, verified));
        }
    }
}
