//! The contents of a store: objects with files of their own, by fan-out directory, and packed ones.

use super::{FanOut, FanOuts, LocalStore, StoreError};
use crate::object::ContentHash;
use crate::sys::{self, Dir, FileTime};

/// Names in a fan-out directory, with the hashes that they are part of.
type ObjectNames = Vec<(ContentHash, Box<[u8]>)>;

/// An object found by listing the store.
#[derive(Debug, Clone, Copy)]
pub struct FoundObject {
    /// Its name.
    pub hash: ContentHash,
    /// Bytes that it takes on the disk: of a packed one, its share of what it is compressed with.
    pub size: u64,
    /// Its length in bytes.
    pub plain_bytes: u64,
    /// When it came into the store (ctime).
    pub stored_at: FileTime,
}

impl LocalStore {
    /// Calls `visit` for every object, one fan-out directory after the other, then one pack after
    /// the other. One that is in several places is told of for each.
    ///
    /// # Errors
    /// The error of `visit`, or a directory that cannot be read.
    pub fn for_each_object<E: From<StoreError>>(
        &self,
        visit: impl FnMut(FoundObject) -> Result<(), E>,
    ) -> Result<(), E> {
        (0..=u8::MAX)
            .map(|prefix| self.objects_with_prefix(prefix, |_| true))
            .try_fold(visit, |mut visit, found| {
                found?.into_iter().try_for_each(&mut visit)?;
                Ok(visit)
            })
            .and_then(|mut visit| {
                self.all_packs()?
                    .iter()
                    .filter_map(|pack| {
                        // Its contents are unknown.
                        pack.objects().inspect_err(|error| tracing::warn!("{error}")).ok()
                    })
                    .try_for_each(|objects| objects.into_iter().try_for_each(&mut visit))
            })
    }

    /// The wanted ones among the objects with files of their own whose hashes begin with a byte:
    /// one fan-out directory. To look at an object costs more than to find it, so only those are
    /// looked at.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn objects_with_prefix(
        &self,
        prefix: u8,
        is_wanted: impl Fn(&ContentHash) -> bool,
    ) -> Result<Vec<FoundObject>, StoreError> {
        let Some((dir, names)) = self.names_with_prefix(prefix)? else { return Ok(Vec::new()) };
        let mut objects = Vec::new();
        for (hash, name) in names {
            if !is_wanted(&hash) {
                continue;
            }
            match dir.stat(&name) {
                Ok(stat) => {
                    objects.push(FoundObject {
                        hash,
                        size: stat.stored_bytes(),
                        plain_bytes: stat.size,
                        stored_at: stat.ctime,
                    });
                }
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(objects)
    }

    /// The names in a fan-out directory that are those of objects. `None`: there is no such
    /// directory.
    fn names_with_prefix(&self, prefix: u8) -> Result<Option<(Dir, ObjectNames)>, StoreError> {
        let prefix = hex::encode([prefix]);
        let dir = match self.dir().open_dir(prefix.as_bytes()) {
            Ok(dir) => dir,
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let names = dir.names()?.into_iter().filter_map(|listed| {
            // Files without the name of an object are not ours to judge.
            let rest = std::str::from_utf8(&listed.name).ok()?;
            let hash = format!("{prefix}{rest}").parse().ok()?;
            Some((hash, listed.name))
        });
        let names = names.collect();
        Ok(Some((dir, names)))
    }

    /// In which state the fan-out directories are.
    pub(crate) fn fan_outs(&self) -> FanOuts {
        let since = sys::coarse_now();
        FanOuts::new(|prefix| self.fan_out(prefix, since))
    }

    /// In which state one of them is, as looked at after `since`.
    pub(super) fn fan_out(&self, prefix: u8, since: FileTime) -> FanOut {
        match self.dir().try_stat(hex::encode([prefix]).as_bytes()) {
            Ok(stat) => FanOut::seen(since, stat.map(|stat| stat.ctime)),
            // A caller that relies on it checks each object.
            Err(error) => {
                tracing::debug!("{error}");
                FanOut::Doubtful
            }
        }
    }

    /// The objects in one of them.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn own_with_prefix(&self, prefix: u8) -> Result<Vec<ContentHash>, StoreError> {
        let names = self.names_with_prefix(prefix)?.map(|(_, names)| names);
        Ok(names.into_iter().flatten().map(|(hash, _)| hash).collect())
    }
}
