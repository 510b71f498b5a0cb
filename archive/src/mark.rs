//! The mark of an archive: which snapshot is in it, told without a key.
//!
//! Two stores may go on with one session, so one number may mean two snapshots. The header of an
//! archive for recipients has one recipient more, which no program can be: its line names the hash
//! of the snapshot's manifest. The header is authenticated, and every program passes over the
//! recipients that it does not know. A header with a passphrase has no room for the line, so such
//! an archive takes its passphrase to be told from another one. A manifest names the one before it,
//! so equal hashes mean equal histories.

use std::collections::HashSet;
use std::io::Read;

use age_core::format::{FileKey, Stanza};

use super::read::manifest_hash;
use super::{ArchiveError, Identities};
use nono_engine::object::ContentHash;

/// Begins the line in the header.
const TAG: &str = "nono.snapshot";
/// Longest beginning of an archive in which the line is looked for.
const HEAD_BYTES: u64 = 64 << 10;

/// Marks an archive with the hash of a manifest.
pub(super) struct Mark(pub(super) ContentHash);

impl age::Recipient for Mark {
    fn wrap_file_key(
        &self,
        _: &FileKey,
    ) -> Result<(Vec<Stanza>, HashSet<String>), age::EncryptError> {
        // Nothing of the key is in it.
        let mark = Stanza { tag: TAG.to_owned(), args: vec![self.0.hex()], body: Vec::new() };
        Ok((vec![mark], HashSet::new()))
    }
}

/// The hash of the manifest of the snapshot in an archive. Reads its beginning alone.
///
/// # Errors
/// [`ArchiveError::Encrypted`] or [`ArchiveError::WrongKey`] where only a key that is not among
/// the identities could tell; else as the archive is damaged or cannot be read.
pub fn snapshot_in(
    mut source: impl Read,
    identities: &Identities,
) -> Result<ContentHash, ArchiveError> {
    let mut head = Vec::new();
    source.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(ArchiveError::Read)?;
    match marked(&head) {
        Some(hash) => Ok(hash),
        None => manifest_hash(head.chain(source), identities),
    }
}

/// The mark in the header of an encrypted archive.
fn marked(head: &[u8]) -> Option<ContentHash> {
    let mut lines = head.split(|byte| *byte == b'\n');
    lines.next().filter(|first| *first == super::read::AGE_MAGIC)?;
    let header = lines.take_while(|line| !line.starts_with(b"---"));
    let line = format!("-> {TAG} ");
    let mut marks = header.filter_map(|at| at.strip_prefix(line.as_bytes()));
    str::from_utf8(marks.next()?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_from_a_header_and_from_nothing_else() {
        let hash = ContentHash::of(b"x");
        let header =
            |line: &str| format!("age-encryption.org/v1\n-> X25519 a\nb\n{line}\n\n--- m\n");
        let mark = format!("-> {TAG} {hash}");
        assert_eq!(marked(header(&mark).as_bytes()), Some(hash));
        assert_eq!(marked(header("-> grease x").as_bytes()), None);
        assert_eq!(marked(header(&mark[..40]).as_bytes()), None);
        assert_eq!(marked(format!("{}{mark}\n", header("")).as_bytes()), None);
        assert_eq!(marked(mark.as_bytes()), None);
        assert_eq!(marked(b""), None);
    }
}
