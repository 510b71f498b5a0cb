//! Reading and writing the JSON documents of a session.
//!
//! The hash of a snapshot's manifest stands in the manifest after it and in the session's. Nothing
//! names the hash of the session's own manifest, so this one proves itself: its last field is the
//! SHA-256 of all bytes of the file before the line of that field. Always true: a session's
//! manifest that anything else than this program changed is told from one that it wrote, and stays
//! told apart when the program adds to it ([`SessionMetadata::altered`]).

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::manifests::ManifestError;
use super::metadata::SessionMetadata;
use crate::layout;
use crate::manifest::{MANIFEST_VERSION, MAX_MANIFEST_BYTES};
use crate::object::ContentHash;
use crate::sys::Dir;

/// Name of the last field of a session's manifest.
const CHECKSUM: &str = "checksum";
/// How a document ends.
const END: &[u8] = b"\n}\n";

/// Reads a document, with the hash of its file.
pub(super) fn read<T: DeserializeOwned>(
    dir: &Dir,
    name: &[u8],
) -> Result<(T, ContentHash), ManifestError> {
    let bytes = read_bytes(dir, name)?;
    Ok((parse(&bytes, &dir.path_of(name))?, ContentHash::of(&bytes)))
}

fn read_bytes(dir: &Dir, name: &[u8]) -> Result<Vec<u8>, ManifestError> {
    match dir.read(name, MAX_MANIFEST_BYTES) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.is_gone() => Err(ManifestError::Missing { path: dir.path_of(name) }),
        Err(error) => Err(error.into()),
    }
}

/// Reads a document of a version that this program knows; `path` is only for the message.
pub fn parse<T: DeserializeOwned>(bytes: &[u8], path: &Path) -> Result<T, ManifestError> {
    #[derive(serde::Deserialize)]
    struct Version {
        format_version: u32,
    }
    let corrupt = |error: serde_json::Error| ManifestError::Corrupt {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let Version { format_version } = serde_json::from_slice(bytes).map_err(corrupt)?;
    if format_version > MANIFEST_VERSION {
        return Err(ManifestError::Newer { path: path.to_owned(), found: format_version });
    }
    serde_json::from_slice(bytes).map_err(corrupt)
}

/// The bytes of a document.
pub(super) fn encode(dir: &Dir, document: &impl Serialize) -> Result<Vec<u8>, ManifestError> {
    let mut bytes =
        serde_json::to_vec_pretty(document).map_err(|error| ManifestError::Corrupt {
            path: dir.path_of(layout::MANIFEST.as_bytes()),
            reason: error.to_string(),
        })?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Replaces a manifest, durably.
pub(super) fn write(dir: &Dir, document: &impl Serialize) -> Result<ContentHash, ManifestError> {
    let bytes = encode(dir, document)?;
    dir.replace_file(layout::MANIFEST.as_bytes(), &bytes, 0o600, true)?;
    Ok(ContentHash::of(&bytes))
}

/// Reads the manifest of a session.
pub(super) fn read_session(dir: &Dir) -> Result<SessionMetadata, ManifestError> {
    let name = layout::MANIFEST.as_bytes();
    parse_session(&read_bytes(dir, name)?, &dir.path_of(name))
}

/// The manifest of a session from its bytes; `path` is only for the message.
pub fn parse_session(bytes: &[u8], path: &Path) -> Result<SessionMetadata, ManifestError> {
    let mut metadata: SessionMetadata = parse(bytes, path)?;
    metadata.extra.remove(CHECKSUM);
    if !proves_itself(bytes) {
        metadata.altered = Some(ContentHash::of(bytes));
    }
    Ok(metadata)
}

/// Replaces the manifest of a session, durably.
pub(super) fn write_session(dir: &Dir, metadata: &SessionMetadata) -> Result<(), ManifestError> {
    let mut metadata = metadata.clone();
    metadata.extra.remove(CHECKSUM);
    let mut bytes = encode(dir, &metadata)?;
    seal(&mut bytes);
    Ok(dir.replace_file(layout::MANIFEST.as_bytes(), &bytes, 0o600, true)?)
}

/// Adds the checksum to the text of a session's manifest.
fn seal(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len().saturating_sub(END.len()));
    bytes.extend_from_slice(b",\n");
    let line = checksum_line(bytes);
    bytes.extend_from_slice(&line);
    bytes.extend_from_slice(END);
}

/// The line of the checksum of what comes before it.
fn checksum_line(before: &[u8]) -> Vec<u8> {
    format!("  \"{CHECKSUM}\": \"{}\"", ContentHash::of(before)).into_bytes()
}

/// Whether these bytes end with the checksum of those before it.
fn proves_itself(bytes: &[u8]) -> bool {
    let end = checksum_line(&[]).len() + END.len();
    let Some((before, end)) = bytes.split_at_checked(bytes.len().saturating_sub(end)) else {
        return false;
    };
    *end == [&*checksum_line(before), END].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_document_proves_itself_and_stays_json() {
        let mut bytes = b"{\n  \"a\": 1\n}\n".to_vec();
        assert!(!proves_itself(&bytes) && !proves_itself(b""));
        seal(&mut bytes);
        assert!(proves_itself(&bytes));
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let before = ContentHash::of(b"{\n  \"a\": 1,\n");
        assert_eq!(value, serde_json::json!({"a": 1, "checksum": before}));
    }
}
