//! Names that people gave: the rules for a name, and the session or snapshot that has it.
//!
//! A name is looked for only where no session has the text as its id, as the beginning of its id or
//! as a word like `latest`. So no name ever hides an id. Names are compared byte for byte. A name
//! that several projects use means the one of the current directory. Otherwise an ambiguous name is
//! an error that lists its sessions. The maker of a name may be hostile: nothing here trusts its
//! length or its characters, and messages show it escaped. A received session is never the one
//! here.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::catalog::{Catalog, CatalogError, SnapshotId};
use crate::snapshot::{Recency, SessionDir, SessionMetadata, SnapshotLabel};

/// Longest name that is given to a session or a snapshot, in bytes.
pub const MAX_LABEL_BYTES: usize = 200;

/// Why a text is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// There is nothing in it.
    #[error("a name has at least one character")]
    Empty,
    /// It is too long.
    #[error("a name has at most {MAX_LABEL_BYTES} bytes")]
    TooLong,
    /// It holds a line break or another control character.
    #[error("a name is one line without control characters")]
    Control,
}

/// The name that a text means, without spaces around it.
///
/// # Errors
/// As [`LabelError`] says.
pub fn check_label(text: &str) -> Result<&str, LabelError> {
    match text.trim() {
        "" => Err(LabelError::Empty),
        label if label.len() > MAX_LABEL_BYTES => Err(LabelError::TooLong),
        label if label.chars().any(char::is_control) => Err(LabelError::Control),
        label => Ok(label),
    }
}

/// A session or snapshot that has an ambiguous name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameOwner {
    /// `ID`, or `ID/N` of a snapshot.
    pub id: String,
    /// The begin of the session.
    pub started: Timestamp,
    /// The tracked paths of the session.
    pub tracked_paths: Vec<PathBuf>,
}

/// The owner of a name: a session, or one of its snapshots.
struct Named<'a> {
    session: &'a SessionDir,
    metadata: &'a SessionMetadata,
    number: Option<u64>,
}

/// The meaning of `id`, if it is `LABEL` or `LABEL/N`. A name may have a `/` in it: the longest one
/// counts. With `N` a session is meant, whichever of its snapshots has the name. `directory`: the
/// current one, if its sessions come first.
///
/// # Errors
/// [`CatalogError::AmbiguousLabel`], or a directory that cannot be read.
pub(super) fn find(
    catalog: &Catalog,
    id: &SnapshotId,
    directory: Option<&Path>,
) -> Result<Option<(SessionDir, Option<String>)>, CatalogError> {
    let text = id.to_string();
    let all: Vec<(SessionMetadata, SessionDir)> = catalog
        .sessions()?
        .into_iter()
        // An unreadable manifest has no name.
        .filter_map(|session| Some((session.metadata().ok()?, session)))
        .collect();
    let named = |wanted: &str| -> Vec<Named<'_>> {
        all.iter().flat_map(|(metadata, session)| owners(metadata, session, wanted)).collect()
    };
    if let Some(Named { session, number, .. }) = only(&text, named(&text), directory)? {
        return Ok(Some((session.clone(), number.map(|number| number.to_string()))));
    }
    let mark = if id.is_step { '#' } else { '/' };
    let Some((label, number)) = text.rsplit_once(mark) else { return Ok(None) };
    let mut sessions = named(label);
    sessions.dedup_by(|a, b| a.session.path() == b.session.path());
    let found = only(label, sessions, directory)?;
    Ok(found.map(|found| (found.session.clone(), Some(number.to_owned()))))
}

/// The session, if it has the name, and each of its snapshots that has it.
fn owners<'a>(
    metadata: &'a SessionMetadata,
    session: &'a SessionDir,
    wanted: &str,
) -> Vec<Named<'a>> {
    let SessionMetadata { label, labels, .. } = metadata;
    let own = (label.as_deref() == Some(wanted)).then_some(None);
    let is_wanted =
        |it: &&SnapshotLabel| it.label == wanted && metadata.removal(it.number).is_none();
    let snapshots = labels.iter().filter(is_wanted).map(|it| Some(it.number));
    own.into_iter().chain(snapshots).map(|number| Named { session, metadata, number }).collect()
}

impl Named<'_> {
    /// Whether it was recorded in a project that holds the directory.
    fn is_here(&self, directory: Option<&Path>) -> bool {
        let SessionMetadata { tracked_paths, origin, received, .. } = self.metadata;
        let holds = |tracked: &PathBuf| directory.is_some_and(|here| here.starts_with(tracked));
        !received && !origin.is_apart() && tracked_paths.iter().any(holds)
    }

    fn owner(&self) -> NameOwner {
        let id = self.session.id();
        NameOwner {
            id: self.number.map_or(id.clone(), |number| format!("{id}/{number}")),
            started: self.metadata.started,
            tracked_paths: self.metadata.tracked_paths.clone(),
        }
    }
}

/// The one that a name means, of these that have it: the only one, or the only one here.
fn only<'a>(
    label: &str,
    mut named: Vec<Named<'a>>,
    directory: Option<&Path>,
) -> Result<Option<Named<'a>>, CatalogError> {
    if named.len() < 2 {
        return Ok(named.pop());
    }
    let now = Timestamp::now();
    named.sort_by_cached_key(|it| {
        let recency = Recency::new(it.metadata.started, it.session.id().as_str(), now);
        (!it.is_here(directory), Reverse((recency, it.number)))
    });
    if named.iter().filter(|it| it.is_here(directory)).count() == 1 {
        return Ok(Some(named.swap_remove(0)));
    }
    let candidates = named.iter().map(Named::owner).collect();
    Err(CatalogError::AmbiguousLabel { label: label.to_owned(), candidates })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_short_line() {
        assert_eq!(check_label("  before é "), Ok("before é"));
        assert_eq!(check_label(&"x".repeat(200)).map(str::len), Ok(200));
        assert_eq!(check_label(&"é".repeat(101)), Err(LabelError::TooLong));
        assert_eq!(check_label(" \n "), Err(LabelError::Empty));
        assert_eq!(check_label("a\nb"), Err(LabelError::Control));
        assert_eq!(check_label("a\u{1b}[2J"), Err(LabelError::Control));
    }
}
