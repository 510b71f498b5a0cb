//! The key of a remote with a passphrase.
//!
//! `scrypt` makes a passphrase slow to try, about a second for each salt, and no two archives can
//! share that work. So archives of a remote are not encrypted by the passphrase itself, but for a
//! key of the remote. The key lies there in one file, encrypted by the passphrase: a push or a pull
//! of any number of archives does the work once.
//!
//! The file is an identity file of `age`, which opens such archives without nono:
//! `age -d -i key/remote.age ARCHIVE`. The public half of the key stands nowhere, so as with a
//! passphrase, no other writer makes an archive that opens. Of two first pushers at once, the
//! second finds the name taken and takes that key.

use std::io::Read;

use super::error::RemoteError;
use super::place::Place;
use crate::encryption::RemoteKey;
use crate::{ArchiveError, Encryption, Identities};
use nono_engine::progress::Progress;

/// The name of the key at a remote.
pub(super) const KEY_NAME: &str = "key/remote.age";
/// A longer file is no key.
const MAX_KEY_BYTES: u64 = 16 << 10;

impl Encryption {
    /// The encryption of archives at a place: with a passphrase, that for the key of the place,
    /// which is made there if need be.
    ///
    /// # Errors
    /// When the place cannot be used, or its key opens with another passphrase.
    pub fn at_place(self, place: &Place, progress: &dyn Progress) -> Result<Self, RemoteError> {
        let Self::Passphrase(phrase) = &self else { return Ok(self) };
        if let Some(sealed) = sealed_key(place, progress)? {
            return opened(&sealed, &self.identities(), place).map(|key| key.encryption());
        }
        let key = RemoteKey::generate();
        let sealed = key.seal(phrase).map_err(RemoteError::Source)?;
        let stored = place.put_new(KEY_NAME, &mut |out| out.write_all(&sealed), progress)?;
        if stored.is_some() {
            return Ok(key.encryption());
        }
        let sealed = sealed_key(place, progress)?.unwrap_or_default();
        opened(&sealed, &self.identities(), place).map(|key| key.encryption())
    }
}

impl Identities {
    /// With the key of a place, where one of these opens it.
    ///
    /// # Errors
    /// When the place cannot be read.
    pub fn with_key_of(
        mut self,
        place: &Place,
        progress: &dyn Progress,
    ) -> Result<Self, RemoteError> {
        if self.has_passphrase()
            && let Some(sealed) = sealed_key(place, progress)?
            && let Ok(key) = RemoteKey::open(&sealed, &self)
        {
            self.add_key(key);
        }
        Ok(self)
    }
}

/// The key as it lies at the place, if there is one.
fn sealed_key(place: &Place, progress: &dyn Progress) -> Result<Option<Vec<u8>>, RemoteError> {
    let opened = match place.open_object(KEY_NAME, progress) {
        Err(RemoteError::Missing { .. }) => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    let read = opened.take(MAX_KEY_BYTES + 1).read_to_end(&mut bytes);
    match read {
        Ok(_) if bytes.len() as u64 <= MAX_KEY_BYTES => Ok(Some(bytes)),
        Ok(_) => Err(unusable(place, "it is too long")),
        Err(_) if progress.is_cancelled() => Err(RemoteError::Cancelled),
        Err(error) => Err(RemoteError::Archive(ArchiveError::Read(error))),
    }
}

fn opened(sealed: &[u8], identities: &Identities, place: &Place) -> Result<RemoteKey, RemoteError> {
    RemoteKey::open(sealed, identities).map_err(|error| match error {
        ArchiveError::WrongKey => unusable(place, "another passphrase opens it"),
        error => unusable(place, &error.to_string()),
    })
}

fn unusable(place: &Place, reason: &str) -> RemoteError {
    RemoteError::Key {
        key: KEY_NAME,
        place: place.address().to_string(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::encryption::work_count;
    use crate::remote::Address;
    use nono_engine::progress::NoProgress;

    fn place(dir: &std::path::Path) -> Place {
        let address = Address::parse(dir.to_str().unwrap()).unwrap();
        Place::open(&address, true).unwrap()
    }

    #[test]
    fn any_number_of_archives_costs_the_work_of_the_passphrase_once() {
        let temp = tempfile::tempdir().unwrap();
        let place = place(temp.path());
        let phrase = || Encryption::with_passphrase("correct horse\n").unwrap();
        let made = work_count(|| drop(phrase().at_place(&place, &NoProgress).unwrap()));
        assert_eq!(made, 1);
        let mut archives = Vec::new();
        let written = work_count(|| {
            let encryption = phrase().at_place(&place, &NoProgress).unwrap();
            for number in 0..5_u8 {
                let hash = nono_engine::object::ContentHash::of(&[number]);
                let mut sealing = encryption.wrap(hash, Vec::new()).unwrap();
                std::io::Write::write_all(&mut sealing, &[number; 100]).unwrap();
                archives.push(sealing.finish().unwrap());
            }
        });
        assert_eq!(written, 1);
        let read = work_count(|| {
            let mut identities = Identities::none();
            identities.add_passphrase("correct horse").unwrap();
            let identities = identities.with_key_of(&place, &NoProgress).unwrap();
            for (number, archive) in archives.iter().enumerate() {
                let text = crate::encryption::decrypted(archive, &identities).unwrap();
                assert_eq!(text, [number as u8; 100]);
            }
        });
        assert_eq!(read, 1);
    }

    #[test]
    fn another_passphrase_opens_no_key_and_replaces_none() {
        let temp = tempfile::tempdir().unwrap();
        let place = place(temp.path());
        Encryption::with_passphrase("one").unwrap().at_place(&place, &NoProgress).unwrap();
        let before = std::fs::read(temp.path().join(KEY_NAME)).unwrap();
        let other = Encryption::with_passphrase("two").unwrap();
        let error = other.at_place(&place, &NoProgress).unwrap_err().to_string();
        assert!(error.contains("another passphrase opens it"), "{error}");
        assert_eq!(std::fs::read(temp.path().join(KEY_NAME)).unwrap(), before);
        for broken in [&b""[..], b"x", &before[..before.len() / 2]] {
            std::fs::write(temp.path().join(KEY_NAME), broken).unwrap();
            let phrase = Encryption::with_passphrase("one").unwrap();
            assert!(matches!(phrase.at_place(&place, &NoProgress), Err(RemoteError::Key { .. })));
            let mut identities = Identities::none();
            identities.add_passphrase("one").unwrap();
            identities.with_key_of(&place, &NoProgress).unwrap();
        }
    }
}
