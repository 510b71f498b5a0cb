//! Committing: the steps of the journal, forward.
//!
//! A replaced or removed file is moved into the staging directory, and checked once more there:
//! if it is not what the safety snapshot holds, it was changed in between, and the restore is
//! taken back as a whole. Nothing is deleted before everything is in place.
//!
//! A commit that was interrupted is gone through from the start: a step that was taken is known by
//! what lies in the staging directory, and is not taken again.
//!
//! Removed files are deleted when this is over, so they are checked once more at the end: a process
//! with an open descriptor may have written to them meanwhile, and after an interruption for a long
//! time.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use super::RestoreError;
use super::attributes::{self, Denied};
use super::journal::{Staged, Step, Work};
use super::plan::Skipped;
use super::staging::skipped;
use super::steps::{Changeable, Disk, is_same_inode};
use crate::diff::{Comparison, EntryState};
use crate::progress::Progress;
use crate::sys::{Dir, FileKind};

const NOT_EMPTY: &str = "the directory is not empty: what is left in it is not part of any \
                         snapshot, or could not be removed";
pub(super) const CHANGED_SINCE: &str =
    "it was changed or removed after the restore was interrupted";

/// The paths that a commit left as they are.
#[derive(Default)]
pub(super) struct Left {
    pub(super) skipped: Vec<Skipped>,
    /// Paths of which nothing was done; of other skipped ones, something.
    pub(super) undone: HashSet<PathBuf>,
}

impl Left {
    /// Drops the changes that were not made.
    pub(super) fn retain_made(&self, comparison: &mut Comparison) {
        comparison.changes.retain(|change| !self.undone.contains(&change.path));
        comparison.touched.retain(|path| !self.undone.contains(path));
    }

    pub(super) fn add_undone(&mut self, skipped: Vec<Skipped>) {
        self.undone.extend(skipped.iter().map(|skipped| skipped.path.clone()));
        self.skipped.extend(skipped);
    }
}

pub(super) struct Commit<'d, 'a, 'b> {
    disk: &'d mut Disk<'a, 'b>,
    /// Whether some of the steps may have been taken before.
    is_resumed: bool,
    left: Left,
}

impl<'d, 'a, 'b> Commit<'d, 'a, 'b> {
    pub(super) fn new(disk: &'d mut Disk<'a, 'b>, is_resumed: bool) -> Self {
        Self { disk, is_resumed, left: Left::default() }
    }

    /// Takes all steps. Returns what was left as it is.
    pub(super) fn run(
        mut self,
        work: &Work,
        progress: &dyn Progress,
    ) -> Result<Left, RestoreError> {
        for step in &work.steps {
            self.take(step)?;
            progress.advance(1, 0);
        }
        self.check_what_was_taken_away(work)?;
        Ok(self.left)
    }

    fn check_what_was_taken_away(&self, work: &Work) -> Result<(), RestoreError> {
        for step in &work.steps {
            let (Step::Remove { path, current, staged }
            | Step::Exchange { path, current, staged, .. }) = step
            else {
                continue;
            };
            if self.disk.holds_staged(*staged, current, self.is_resumed)? {
                continue;
            }
            let (dir, name) = self.disk.staging(*staged)?;
            return Err(if self.is_resumed {
                RestoreError::changed_in_staging(path, dir.path_of(&name))
            } else {
                RestoreError::changed(path)
            });
        }
        Ok(())
    }

    fn take(&mut self, step: &Step) -> Result<(), RestoreError> {
        self.disk.check_stopped()?;
        match step {
            Step::Remove { path, current, staged } => self.remove(path, current, *staged),
            Step::RemoveDirectory { path, .. } => self.remove_directory(path),
            Step::MakeDirectory { path } => self.make_directory(path),
            Step::PlaceTree { path, staged, steps } => self.place_tree(path, *staged, steps),
            Step::Place { path, staged, ino, .. } => self.place(path, *staged, *ino),
            Step::Exchange { path, current, staged, ino, .. } => {
                self.exchange(path, current, *staged, *ino)
            }
            Step::Attributes { path, current, target } => {
                self.attributes(path, current.as_deref(), target)
            }
        }
    }

    fn changed(&self, path: &[u8]) -> RestoreError {
        if self.is_resumed {
            RestoreError::changed_since(path)
        } else {
            RestoreError::changed(path)
        }
    }

    fn skip(&mut self, path: &[u8], reason: &str) {
        self.left.add_undone(skipped(path, vec![Denied::Other(reason.to_owned())]));
    }

    fn remove(
        &mut self,
        path: &[u8],
        current: &EntryState,
        staged: Staged,
    ) -> Result<(), RestoreError> {
        let (staging, name) = self.disk.staging(staged)?;
        if self.is_resumed && staging.try_stat(&name)?.is_some() {
            return Ok(());
        }
        let place = match self.disk.try_place(path)? {
            Some(place) => place,
            // Another process removed what the restore was to remove.
            None if self.is_resumed => return Ok(()),
            None => return Err(self.changed(path)),
        };
        let Some(before) = self.disk.holds(&place, current)? else {
            if self.is_resumed && place.dir.try_stat(&place.name)?.is_none() {
                return Ok(());
            }
            return Err(self.changed(path));
        };
        place.dir.rename_to_own(&place.name, &staging, &name)?;
        if is_same_inode(&staging, &name, &before)? { Ok(()) } else { Err(self.changed(path)) }
    }

    fn remove_directory(&mut self, path: &[u8]) -> Result<(), RestoreError> {
        let Some(place) = self.disk.try_place(path)? else { return Ok(()) };
        match place.dir.try_stat(&place.name)? {
            Some(stat) if stat.kind == FileKind::Directory => {}
            // The replacement is a later step's.
            _ => return Ok(()),
        }
        match place.dir.remove_dir(&place.name) {
            Ok(()) => self.disk.places.forget(),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                self.skip(path, NOT_EMPTY);
            }
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                self.skip(path, "something is mounted there");
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn make_directory(&mut self, path: &[u8]) -> Result<(), RestoreError> {
        let place = self.disk.writable_place(path)?;
        match place.dir.make_dir(&place.name, 0o700) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_dir = place.dir.stat(&place.name)?.kind == FileKind::Directory;
                if is_dir && self.is_resumed { Ok(()) } else { Err(self.changed(path)) }
            }
            made => Ok(made?),
        }
    }

    fn place_tree(
        &mut self,
        path: &[u8],
        staged: Staged,
        steps: &[Step],
    ) -> Result<(), RestoreError> {
        let (staging, name) = self.disk.staging(staged)?;
        if self.is_resumed && staging.try_stat(&name)?.is_none() {
            // It is in place, or was taken apart by taking it back.
            return steps.iter().try_for_each(|step| self.take(step));
        }
        self.put_in_place(path, &staging, &name)?;
        // All in it has its attributes already.
        let own = steps.iter().filter(|step| step.path() == path);
        own.filter(|step| matches!(step, Step::Attributes { .. }))
            .try_for_each(|step| self.take(step))
    }

    fn put_in_place(
        &mut self,
        path: &[u8],
        staging: &Dir,
        name: &[u8],
    ) -> Result<(), RestoreError> {
        let place = self.disk.writable_place(path)?;
        match staging.rename_new(name, &place.dir, &place.name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(self.changed(path)),
            placed => Ok(placed?),
        }
    }

    fn place(&mut self, path: &[u8], staged: Staged, ino: u64) -> Result<(), RestoreError> {
        let (staging, name) = self.disk.staging(staged)?;
        if self.is_resumed && staging.try_stat(&name)?.is_none() {
            let place = self.disk.try_place(path)?;
            let found = place.map(|place| place.dir.try_stat(&place.name)).transpose()?.flatten();
            if found.is_none_or(|stat| stat.ino != ino) {
                self.skip(path, CHANGED_SINCE);
            }
            return Ok(());
        }
        self.put_in_place(path, &staging, &name)
    }

    fn exchange(
        &mut self,
        path: &[u8],
        current: &EntryState,
        staged: Staged,
        ino: u64,
    ) -> Result<(), RestoreError> {
        let (staging, name) = self.disk.staging(staged)?;
        if self.is_resumed
            && let Some(place) = self.disk.try_place(path)?
            && !staging.settle_exchange(&name, &place.dir, &place.name, ino)?
        {
            return Err(self.changed(path));
        }
        if self.is_resumed && staging.try_stat(&name)?.is_none_or(|stat| stat.ino != ino) {
            let place = self.disk.try_place(path)?;
            let found = place.map(|place| place.dir.try_stat(&place.name)).transpose()?.flatten();
            if found.is_none_or(|stat| stat.ino != ino) {
                self.skip(path, CHANGED_SINCE);
            }
            return Ok(());
        }
        let place = self.disk.writable_place(path)?;
        let Some(before) = self.disk.holds(&place, current)? else {
            if self.is_resumed && place.dir.try_stat(&place.name)?.is_none() {
                // Another process moved it out of the way.
                return Ok(staging.rename_new(&name, &place.dir, &place.name)?);
            }
            return Err(self.changed(path));
        };
        staging.exchange(&name, &place.dir, &place.name)?;
        if is_same_inode(&staging, &name, &before)? { Ok(()) } else { Err(self.changed(path)) }
    }

    fn attributes(
        &mut self,
        path: &[u8],
        current: Option<&EntryState>,
        target: &EntryState,
    ) -> Result<(), RestoreError> {
        // One that is made has no state before; one that is resumed may have been changed already,
        // and so may one that has another name.
        let states: Vec<&EntryState> = match current {
            Some(current) if self.is_resumed || self.disk.is_linked(path) => vec![current, target],
            Some(current) => vec![current],
            None => vec![target],
        };
        let inode = match self.disk.changeable(path, &states)? {
            Changeable::Yes(inode) => inode,
            Changeable::No if self.is_resumed => {
                self.skip(path, CHANGED_SINCE);
                return Ok(());
            }
            Changeable::No => return Err(self.changed(path)),
        };
        let denied = attributes::apply(&inode, &target.attributes, &target.node)?;
        if denied.is_empty() {
            return Ok(());
        }
        match current {
            // Nothing of it was set.
            Some(current) if attributes::read(&inode)? == current.attributes => {
                self.left.add_undone(skipped(path, denied));
            }
            _ => self.left.skipped.extend(skipped(path, denied)),
        }
        Ok(())
    }
}
