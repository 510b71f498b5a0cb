//! Manifests that came. Their bytes wait in a file without a name: they may be many and long.

use std::collections::BTreeMap;

use crate::ArchiveError;
use crate::spill::Spilled;
use nono_engine::object::ContentHash;

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
    link: Link,
}

/// The hashes and the origin of a manifest, which tie it to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    /// SHA-256 of its bytes.
    pub(super) hash: ContentHash,
    /// SHA-256 of the manifest before it, as it says.
    pub(super) parent_hash: Option<ContentHash>,
    /// The number of the snapshot in whose archive it came.
    pub(super) from: u64,
}

impl Manifests {
    /// Adds a manifest. One that has the number already stays.
    ///
    /// # Errors
    /// [`ArchiveError::TooLarge`], or the file cannot be written.
    pub(super) fn add(
        &mut self,
        number: u64,
        bytes: &[u8],
        link: Link,
    ) -> Result<(), ArchiveError> {
        if self.has(number) {
            return Ok(());
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
        self.places.insert(number, Place { at, len, link });
        Ok(())
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

    /// The link of a manifest, if it came.
    pub(super) fn link(&self, number: u64) -> Option<Link> {
        self.places.get(&number).map(|place| place.link)
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
        let link = |bytes: &[u8]| Link { hash: ContentHash::of(bytes), parent_hash: None, from: 3 };
        let add = |manifests: &mut Manifests, number: u64, bytes: &[u8]| {
            manifests.add(number, bytes, link(bytes))
        };
        add(&mut manifests, 3, b"three").unwrap();
        add(&mut manifests, 1, b"one").unwrap();
        add(&mut manifests, 3, b"other").unwrap();
        assert_eq!(manifests.link(3), Some(link(b"three")));
        assert_eq!(manifests.get(3).unwrap().unwrap(), b"three");
        assert_eq!(manifests.get(2).unwrap(), None);
        assert!(manifests.has(1) && !manifests.has(2));
        assert_eq!(manifests.numbers(2..).collect::<Vec<_>>(), [3]);
        for number in 10..10 + MAX_COUNT as u64 - 2 {
            add(&mut manifests, number, b"x").unwrap();
        }
        let refused = add(&mut manifests, 2, b"x").unwrap_err();
        assert!(matches!(refused, ArchiveError::TooLarge { .. }), "{refused}");
    }
}
