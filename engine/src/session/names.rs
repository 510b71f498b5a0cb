//! Names that people gave: the rules for a name, and the session or snapshot that has it.
//!
//! A name is looked for only where no session has the text as its id, as the beginning of its id or
//! as a word like `latest`. So no name ever hides an id. Names are compared byte for byte, and an
//! ambiguous name is an error that lists its sessions. The maker of a name may be hostile: nothing
//! here trusts its length or its characters, and messages show it escaped.

use super::catalog::{Catalog, CatalogError, SnapshotId};
use crate::snapshot::{SessionDir, SessionMetadata, SnapshotLabel};

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

/// The owner of a name: a session, or one of its snapshots.
type Named = (SessionDir, Option<u64>);

/// The meaning of `id`, if it is `LABEL` or `LABEL/N`. A name may have a `/` in it: the longest one
/// counts.
/// With `N` a session is meant, whichever of its snapshots has the name.
///
/// # Errors
/// [`CatalogError::AmbiguousLabel`], or a directory that cannot be read.
pub(super) fn find(
    catalog: &Catalog,
    id: &SnapshotId,
) -> Result<Option<(SessionDir, Option<String>)>, CatalogError> {
    // How it was written is not known any more.
    let texts = match &id.snapshot {
        Some(snapshot) => ['/', '#'].map(|mark| format!("{}{mark}{snapshot}", id.session)).to_vec(),
        None => vec![id.session.clone()],
    };
    let all: Vec<_> = catalog
        .sessions()?
        .into_iter()
        // An unreadable manifest has no name.
        .filter_map(|session| Some((session.metadata().ok()?, session)))
        .collect();
    let named = |wanted: &str| -> Vec<Named> {
        let of = |(metadata, session): &(_, SessionDir)| {
            let metadata: &SessionMetadata = metadata;
            let SessionMetadata { label, labels, .. } = metadata;
            let own = (label.as_deref() == Some(wanted)).then_some(None);
            let is_wanted =
                |it: &&SnapshotLabel| it.label == wanted && metadata.removal(it.number).is_none();
            let snapshots = labels.iter().filter(is_wanted).map(|it| Some(it.number));
            let numbers = own.into_iter().chain(snapshots);
            numbers.map(|number| (session.clone(), number)).collect::<Vec<_>>()
        };
        all.iter().flat_map(of).collect()
    };
    for text in &texts {
        if let Some((session, number)) = only(text, named(text))? {
            return Ok(Some((session, number.map(|number| number.to_string()))));
        }
    }
    let Some((label, number)) = texts[0].rsplit_once('/') else { return Ok(None) };
    let mut sessions = named(label);
    sessions.dedup_by(|(a, _), (b, _)| a.path() == b.path());
    let found = only(label, sessions)?;
    Ok(found.map(|(session, _)| (session, Some(number.to_owned()))))
}

/// The only one of these, which have the name.
fn only(label: &str, mut named: Vec<Named>) -> Result<Option<Named>, CatalogError> {
    if named.len() < 2 {
        return Ok(named.pop());
    }
    let id = |(session, number): &Named| match number {
        Some(number) => format!("{}/{number}", session.id()),
        None => session.id(),
    };
    let candidates = named.iter().map(id).collect();
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
