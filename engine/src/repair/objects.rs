//! Damaged objects: confirmed under the lock, replaced, or given up.

use std::collections::{HashMap, HashSet};

use super::copies::{LivePaths, OtherStores, PutAside, offer_midstates};
use super::{Lost, RepairError, RepairOptions, Repaired, Source, recapture};
use crate::object::ContentHash;
use crate::path_text::Shown;
use crate::progress::Uncounted;
use crate::snapshot::SessionDir;
use crate::store::{BadDisk, LocalStore, MAX_TREE_BYTES, Offered, StoreError, StoreLock, Transfer};
use crate::verify::{DamagedObject, UsedAs};
use std::path::PathBuf;

/// The finding of a second look at a damaged object.
enum Confirmed {
    /// Nothing has its name.
    Missing,
    /// The file with its name is not the object.
    Damaged,
    /// Its bytes are what its name says. They are in this file.
    Intact(PathBuf),
    /// The disk does not give its bytes.
    OnBadDisk(String),
    /// It cannot be told.
    Unreadable(String),
}

/// A copy that the store took, and where it put aside what had the name before.
pub(super) struct Found {
    from: Source,
    aside: Vec<PathBuf>,
}

pub(super) struct Objects<'a> {
    store: &'a LocalStore,
    session: &'a SessionDir,
    damaged: &'a [DamagedObject],
    /// The objects that a good copy would mend, with the length of contents.
    wanted: HashMap<ContentHash, UsedAs>,
    /// Why a copy would not mend the others.
    hopeless: HashMap<ContentHash, String>,
    /// The unreadable ones of these.
    unreadable: HashSet<ContentHash>,
    /// The objects that the disk does not give, and why. A copy would mend one; without a copy it
    /// stays where it is, because the disk may yet give it.
    on_bad_disk: HashMap<ContentHash, String>,
    lock: Option<StoreLock>,
    /// Whether packs were replaced by what was whole in them, or what was whole in others was
    /// found.
    pub(super) has_new_packs: bool,
    /// Whether something that was damaged, or not given, is intact now, and no repair mended it.
    pub(super) is_intact_after_all: bool,
    pub(super) repaired: Vec<Repaired>,
    pub(super) quarantined: Vec<PathBuf>,
}

impl<'a> Objects<'a> {
    pub(super) fn new(
        store: &'a LocalStore,
        session: &'a SessionDir,
        damaged: &'a [DamagedObject],
    ) -> Result<Self, RepairError> {
        let mut objects = Self {
            store,
            session,
            damaged,
            wanted: HashMap::new(),
            hopeless: HashMap::new(),
            unreadable: HashSet::new(),
            on_bad_disk: HashMap::new(),
            lock: None,
            has_new_packs: false,
            is_intact_after_all: false,
            repaired: Vec::new(),
            quarantined: Vec::new(),
        };
        if !damaged.is_empty() || store.has_damaged_packs()? {
            objects.lock = Some(store.lock_exclusive()?);
            // No stat cache may vouch any more for what turned out to be missing or damaged.
            store.renew_generation()?;
        }
        Ok(objects)
    }

    /// Looks for copies from the cheapest place to the dearest. Adds packs that the disk did not
    /// give to `not_given`.
    pub(super) fn repair(
        &mut self,
        options: &RepairOptions<'_>,
        not_given: &mut Vec<PathBuf>,
    ) -> Result<(), RepairError> {
        let Some(lock) = self.lock.take() else { return Ok(()) };
        let (mut buffer, progress) = (Vec::new(), Uncounted(options.verify.progress));
        let put_aside = PutAside::of(self.store)?;
        let mut salvaged = self.store.salvage_packs(BadDisk::TakeTheRest, &progress, &lock)?;
        if !self.damaged.is_empty() {
            self.store.take_from_quarantine(&mut salvaged, &progress, &lock)?;
        }
        self.has_new_packs = !salvaged.set_aside.is_empty() || !salvaged.objects.is_empty();
        self.quarantined.append(&mut salvaged.set_aside);
        self.is_intact_after_all = salvaged.are_read_again;
        not_given.append(&mut salvaged.not_given);
        for damaged in self.damaged {
            match self.confirm(damaged, &mut Transfer::new(&mut buffer, &progress))? {
                Confirmed::Missing => drop(self.wanted.insert(damaged.hash, damaged.used_as)),
                Confirmed::Damaged => {
                    self.quarantined.extend(self.store.quarantine(&damaged.hash, &lock)?);
                    self.wanted.insert(damaged.hash, damaged.used_as);
                    // Behind a file of its own there may be an intact one in a pack.
                    let behind = self.store.open_object(&damaged.hash).and_then(|object| {
                        if !damaged.used_as.may_have(object.size()) {
                            return Err(object.corrupt());
                        }
                        object.verify(&mut Transfer::new(&mut buffer, &progress))?;
                        Ok(object.path().to_owned())
                    });
                    if let Ok(path) = behind {
                        self.is_repaired(damaged.hash, Source::Store { path });
                    }
                }
                Confirmed::Intact(path) if salvaged.objects.contains(&damaged.hash) => {
                    self.wanted.insert(damaged.hash, damaged.used_as);
                    self.is_repaired(damaged.hash, Source::Store { path });
                }
                Confirmed::Intact(_) => {
                    self.is_intact_after_all = true;
                    let reason = match damaged.is_unreadable {
                        true => format!("{}; read by itself, it is intact", damaged.reason),
                        false => format!("its bytes are the recorded ones, but {}", damaged.reason),
                    };
                    self.hopeless.insert(damaged.hash, reason);
                    if damaged.is_unreadable {
                        self.unreadable.insert(damaged.hash);
                    }
                }
                Confirmed::OnBadDisk(reason) => {
                    self.wanted.insert(damaged.hash, damaged.used_as);
                    self.on_bad_disk.insert(damaged.hash, reason);
                    let behind = self.store.open_behind(&damaged.hash).and_then(|object| {
                        if !damaged.used_as.may_have(object.size()) {
                            return Err(object.corrupt());
                        }
                        object.verify(&mut Transfer::new(&mut buffer, &progress))?;
                        Ok(object.path().to_owned())
                    });
                    if let Ok(path) = behind {
                        self.quarantined.extend(self.store.quarantine(&damaged.hash, &lock)?);
                        self.is_repaired(damaged.hash, Source::Store { path });
                    }
                }
                Confirmed::Unreadable(reason) => {
                    self.hopeless.insert(damaged.hash, reason);
                    self.unreadable.insert(damaged.hash);
                }
            }
        }
        let others = OtherStores::open(self.store, options.other_stores);
        let live = LivePaths::new(self.session);
        for damaged in self.damaged {
            if !self.wanted.contains_key(&damaged.hash) {
                continue;
            }
            let mut transfer = Transfer::new(&mut buffer, &progress);
            if let Some(path) = live.fill(self.store, damaged, &mut transfer, &lock)? {
                self.is_repaired(damaged.hash, Source::File { path });
                continue;
            }
            let copy = match put_aside.offer(self.store, damaged, &mut transfer, &lock)? {
                None => others.offer(self.store, damaged, &mut transfer, &lock)?,
                found => found,
            };
            let copy = match copy {
                None => live.offer(self.store, damaged, &mut transfer, &lock)?,
                found => found,
            };
            let copy = match copy {
                None => offer_midstates(self.store, self.session, damaged, &mut transfer, &lock)?,
                found => found,
            };
            if let Some(found) = copy {
                self.is_replaced(damaged.hash, found);
            }
        }
        if !self.wanted.is_empty() {
            let found = recapture::offer_all(
                self.store,
                self.session,
                self.damaged,
                &self.wanted,
                options.verify,
                &lock,
            )?;
            for (hash, found) in found {
                self.is_replaced(hash, found);
            }
        }
        self.store.purge_packs(&lock)?;
        // Every object that is reported as whole again is on the disk.
        self.store.sync()?;
        Ok(())
    }

    fn is_replaced(&mut self, hash: ContentHash, Found { from, aside }: Found) {
        self.quarantined.extend(aside);
        self.is_repaired(hash, from);
    }

    fn is_repaired(&mut self, hash: ContentHash, from: Source) {
        if self.wanted.remove(&hash).is_some() {
            let on_disk = self.store.object_path(&hash);
            self.repaired.push(Repaired { object: Some(hash), on_disk, from });
        }
    }

    fn confirm(
        &self,
        damaged: &DamagedObject,
        transfer: &mut Transfer<'_>,
    ) -> Result<Confirmed, StoreError> {
        let object = match self.store.open_object(&damaged.hash) {
            // The length in a list only decides whether it is worth the time to hash holes, or a
            // chunk that comes again and again.
            Ok(object)
                if !damaged.used_as.may_have(object.size())
                    && (object.is_sparse() || object.is_chunked())
                    && object.size() > MAX_TREE_BYTES =>
            {
                return Ok(Confirmed::Damaged);
            }
            object => object,
        };
        let verified = object.and_then(|object| {
            object.verify(transfer)?;
            Ok(object.path().to_owned())
        });
        Ok(match verified {
            Ok(path) => Confirmed::Intact(path),
            Err(StoreError::Cancelled) => return Err(StoreError::Cancelled),
            Err(StoreError::Missing { .. }) => Confirmed::Missing,
            Err(error) if error.is_damage() => Confirmed::Damaged,
            Err(error) if error.is_bad_disk() => Confirmed::OnBadDisk(error.to_string()),
            Err(error) => Confirmed::Unreadable(error.to_string()),
        })
    }

    /// The objects that are still damaged. A missing one may be in one of the packs that were not
    /// given.
    pub(super) fn lost(&self, not_given: &[PathBuf]) -> impl Iterator<Item = Lost> {
        const NO_COPY: &str = "no good copy of it was found";
        let not_given = not_given.first().map(|pack| {
            let pack = Shown::path(pack);
            format!("{NO_COPY}, and the disk does not give all of {pack}, in which it may be")
        });
        self.damaged.iter().filter_map(move |damaged| {
            let (reason, is_unreadable) = match self.hopeless.get(&damaged.hash) {
                Some(reason) => (reason.clone(), self.unreadable.contains(&damaged.hash)),
                None if !self.wanted.contains_key(&damaged.hash) => return None,
                None => match (self.on_bad_disk.get(&damaged.hash), &not_given) {
                    (Some(reason), _) => (format!("{reason}; {NO_COPY}"), true),
                    (None, Some(reason)) => (reason.clone(), true),
                    (None, None) => (NO_COPY.to_owned(), false),
                },
            };
            Some(Lost {
                what: damaged.used_as.to_string(),
                object: Some(damaged.hash),
                reason,
                is_unreadable,
                snapshots: damaged.snapshots.clone(),
                paths: damaged.paths.iter().cloned().collect(),
                has_more_paths: damaged.has_more_paths,
            })
        })
    }
}

/// The outcome for an offered copy, if the store took it.
pub(super) fn taken(offered: Offered, from: Source) -> Option<Found> {
    match offered {
        Offered::Taken(aside) => Some(Found { from, aside }),
        Offered::Refused => None,
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::snapshot::{Budget, SnapshotManager};
    use crate::walk::ExclusionConfig;

    #[test]
    fn what_a_disk_gives_only_now_and_then_is_not_called_lost() {
        let temp = tempfile::tempdir().unwrap();
        let work = temp.path().join("work");
        std::fs::create_dir(&work).unwrap();
        std::fs::write(work.join("file"), "contents").unwrap();
        let session = temp.path().join("session");
        let (none, budget) = (ExclusionConfig::default(), Budget::default());
        let manager = SnapshotManager::new(&session, &[work], none, budget).unwrap();
        manager.create_baseline().unwrap();
        let store = LocalStore::open(&session.join("objects")).unwrap();
        let session = SessionDir::open(&session).unwrap();
        let lost = |is_unreadable| {
            // The verification before could not read it, or takes it for something else.
            let damaged = [DamagedObject {
                hash: ContentHash::of(b"contents"),
                used_as: UsedAs::Contents { size: 8 },
                reason: "cannot read it".to_owned(),
                is_unreadable,
                snapshots: BTreeSet::from([0]),
                paths: BTreeSet::new(),
                has_more_paths: false,
            }];
            let mut objects = Objects::new(&store, &session, &damaged).unwrap();
            objects.repair(&RepairOptions::default(), &mut Vec::new()).unwrap();
            assert!(objects.is_intact_after_all && objects.quarantined.is_empty());
            objects.lost(&[]).collect::<Vec<_>>()
        };
        let [now_and_then] = &*lost(true) else { panic!("it is told of") };
        assert!(now_and_then.is_unreadable);
        assert_eq!(now_and_then.reason, "cannot read it; read by itself, it is intact");
        let [mistaken] = &*lost(false) else { panic!("it is told of") };
        assert!(!mistaken.is_unreadable);
    }
}
