//! Trees of archives that are only verified: they lie in a file without a name.

use std::collections::HashMap;
use std::path::PathBuf;

use super::spill::Spilled;
use super::{ArchiveError, Short};
use nono_engine::object::ContentHash;
use nono_engine::store::{ObjectSource, StoreError};

/// Objects by hash. Memory depends on their number alone.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    file: Option<Spilled>,
    /// Place and length of each.
    places: HashMap<Short, (u64, u32)>,
    end: u64,
    /// Objects that the present archive added, so that they can be taken back.
    added: Vec<Short>,
    begin: u64,
}

impl Shelf {
    /// Adds an object whose bytes have its hash.
    pub(super) fn put(&mut self, hash: &ContentHash, bytes: &[u8]) -> Result<(), ArchiveError> {
        let short = Short::of(hash);
        let Ok(len) = u32::try_from(bytes.len()) else {
            return Err(ArchiveError::TooLarge { reason: format!("object {hash}") });
        };
        if self.places.contains_key(&short) {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(Spilled::new()?),
        };
        file.write(bytes, self.end)?;
        self.places.insert(short, (self.end, len));
        self.added.push(short);
        self.end += u64::from(len);
        Ok(())
    }

    /// Keeps what was added since the last call of this or of [`take_back`](Self::take_back).
    pub(super) fn keep(&mut self) {
        self.added.clear();
        self.begin = self.end;
    }

    /// Forgets what was added.
    pub(super) fn take_back(&mut self) {
        for short in self.added.drain(..) {
            self.places.remove(&short);
        }
        self.end = self.begin;
    }
}

impl ObjectSource for Shelf {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let place = self.places.get(&Short::of(hash));
        let found = place.zip(self.file.as_ref());
        let Some(((at, len), file)) = found.filter(|((_, len), _)| u64::from(*len) <= max_bytes)
        else {
            return Err(StoreError::Missing { hash: *hash, path: PathBuf::from("the archive") });
        };
        let mut bytes = vec![0; *len as usize];
        file.read(&mut bytes, *at)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_archive_added_is_taken_back_and_what_was_kept_stays() {
        let (first, second) = (ContentHash::of(b"first"), ContentHash::of(b"second"));
        let mut shelf = Shelf::default();
        shelf.put(&first, b"first").unwrap();
        shelf.keep();
        shelf.put(&second, b"second").unwrap();
        assert_eq!(shelf.read(&second, 6).unwrap(), b"second");
        assert!(shelf.read(&second, 5).is_err());
        shelf.take_back();
        assert!(shelf.read(&second, 6).is_err());
        shelf.put(&second, b"second").unwrap();
        shelf.put(&first, b"first").unwrap();
        shelf.take_back();
        assert_eq!(shelf.read(&first, 5).unwrap(), b"first");
    }
}
