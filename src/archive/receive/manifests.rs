//! Manifests that came. Their bytes wait in a file without a name: they may be many and long.

use std::collections::BTreeMap;

use crate::archive::ArchiveError;
use crate::archive::spill::Spilled;
use crate::object::ContentHash;

/// Most manifests of a session.
const MAX_COUNT: usize = 100_000;
/// Most bytes of all of them.
const MAX_BYTES: u64 = 1 << 30;

/// The manifests of a session, by number.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    file: Option<Spilled>,
    places: BTreeMap<u64, Place>,
    end: u64,
}

#[derive(Debug)]
struct Place {
    at: u64,
    len: u64,
    hash: ContentHash,
}

impl Manifests {
    /// Adds a manifest. Says the hash of the one that has the number already, and keeps that one.
    ///
    /// # Errors
    /// [`ArchiveError::TooLarge`], or the file cannot be written.
    pub(super) fn add(
        &mut self,
        number: u64,
        bytes: &[u8],
    ) -> Result<Option<ContentHash>, ArchiveError> {
        if let Some(place) = self.places.get(&number) {
            return Ok(Some(place.hash));
        }
        let (at, len) = (self.end, bytes.len() as u64);
        if self.places.len() >= MAX_COUNT || at + len > MAX_BYTES {
            let most = format!("more than {MAX_COUNT} manifests, or more than {MAX_BYTES} bytes");
            return Err(ArchiveError::TooLarge { reason: format!("{most} of them") });
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(Spilled::new()?),
        };
        file.write(bytes, at)?;
        self.end += len;
        self.places.insert(number, Place { at, len, hash: ContentHash::of(bytes) });
        Ok(None)
    }

    /// The bytes of a manifest.
    pub(super) fn get(&self, number: u64) -> Result<Option<Vec<u8>>, ArchiveError> {
        let Some((place, file)) = self.places.get(&number).zip(self.file.as_ref()) else {
            return Ok(None);
        };
        let mut bytes = vec![0; place.len as usize];
        file.read(&mut bytes, place.at)?;
        Ok(Some(bytes))
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.places.contains_key(&number)
    }

    /// The numbers in a range, ascending.
    pub(super) fn numbers(
        &self,
        range: impl std::ops::RangeBounds<u64>,
    ) -> impl Iterator<Item = u64> {
        self.places.range(range).map(|(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_manifest_of_a_number_stays_and_too_many_are_refused() {
        let mut manifests = Manifests::default();
        assert_eq!(manifests.add(3, b"three").unwrap(), None);
        assert_eq!(manifests.add(1, b"one").unwrap(), None);
        assert_eq!(manifests.add(3, b"other").unwrap(), Some(ContentHash::of(b"three")));
        assert_eq!(manifests.get(3).unwrap().unwrap(), b"three");
        assert_eq!(manifests.get(2).unwrap(), None);
        assert!(manifests.has(1) && !manifests.has(2));
        assert_eq!(manifests.numbers(2..).collect::<Vec<_>>(), [3]);
        for number in 10..10 + MAX_COUNT as u64 - 2 {
            manifests.add(number, b"x").unwrap();
        }
        let refused = manifests.add(2, b"x").unwrap_err();
        assert!(matches!(refused, ArchiveError::TooLarge { .. }), "{refused}");
    }
}
