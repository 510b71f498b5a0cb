//! Committing: renames and removals, each with its inverse.
//!
//! What is replaced or removed is moved into the staging directory, and looked at once more there:
//! if it is not what the safety snapshot holds, somebody changed it in between, and the restore is
//! taken back as a whole. Nothing is deleted before everything is in place.

use std::collections::HashSet;
use std::io;

use super::RestoreError;
use super::attributes;
use super::places::{Place, Places, split};
use super::plan::{Attribute, Put, Removal, RestorePlan, Skipped};
use super::staging::{Staged, StagedPut, Staging, skipped};
use crate::diff::EntryState;
use crate::object::Node;
use crate::store::hash_file;
use crate::sys::{self, Dir, FileKind, FileTime, Stat};

/// A step that was taken, with what its inverse needs.
enum Done {
    Placed { path: Vec<u8>, staged: Staged },
    Exchanged { path: Vec<u8>, staged: Staged },
    Removed { path: Vec<u8>, staged: Staged },
    DirectoryRemoved { path: Vec<u8>, current: EntryState },
    DirectoryMade { path: Vec<u8> },
    Attributes { path: Vec<u8>, current: EntryState },
    MadeWritable { path: Vec<u8>, mode: u16 },
}

pub(super) struct Commit<'a, 'b> {
    places: &'a mut Places<'b>,
    staging: &'a mut Staging,
    /// The kernel's time before the safety snapshot: what has an older ctime is as captured.
    started: FileTime,
    done: Vec<Done>,
    writable: HashSet<Vec<u8>>,
    skipped: Vec<Skipped>,
    is_root_user: bool,
}

impl<'a, 'b> Commit<'a, 'b> {
    pub(super) fn new(
        places: &'a mut Places<'b>,
        staging: &'a mut Staging,
        started: FileTime,
    ) -> Self {
        Self {
            places,
            staging,
            started,
            done: Vec::new(),
            writable: HashSet::new(),
            skipped: Vec::new(),
            is_root_user: sys::effective_uid() == 0,
        }
    }

    /// Takes all steps, or takes back those that were taken. Returns what was left as it is.
    pub(super) fn run(
        mut self,
        plan: &RestorePlan,
        puts: &[StagedPut],
    ) -> Result<Vec<Skipped>, RestoreError> {
        match self.steps(plan, puts) {
            Ok(()) => Ok(self.skipped),
            Err(error) => match self.take_back(plan) {
                Ok(()) => Err(error),
                Err(rollback) => Err(RestoreError::HalfDone {
                    cause: Box::new(error),
                    rollback,
                    staging: self.staging.paths(),
                }),
            },
        }
    }

    fn steps(&mut self, plan: &RestorePlan, puts: &[StagedPut]) -> Result<(), RestoreError> {
        for removal in &plan.actions.removals {
            self.remove(removal)?;
        }
        for path in &plan.actions.directories {
            let place = self.writable_place(path)?;
            place.dir.make_dir(&place.name, 0o700)?;
            self.done.push(Done::DirectoryMade { path: path.clone() });
        }
        for put in puts {
            self.put(&put.put, &put.staged)?;
        }
        for attribute in &plan.actions.attributes {
            self.attributes(attribute)?;
        }
        self.places.forget();
        for attribute in &plan.actions.directory_attributes {
            self.attributes(attribute)?;
        }
        Ok(())
    }

    /// Where a path is, with its directory made writable if it is ours and is not.
    fn writable_place(&mut self, path: &[u8]) -> Result<Place, RestoreError> {
        let place = self.places.find(path)?;
        let (parent, _) = split(path);
        if self.is_root_user || !self.writable.insert(parent.to_vec()) {
            return Ok(place);
        }
        let stat = place.dir.stat_self()?;
        let is_tracked = self.places.root_of(parent).is_some();
        if is_tracked && stat.uid == sys::effective_uid() && stat.mode & 0o300 != 0o300 {
            let parent_place = self.places.find(parent)?;
            parent_place.dir.set_mode(&parent_place.name, stat.mode | 0o700)?;
            self.done.push(Done::MadeWritable { path: parent.to_vec(), mode: stat.mode });
        }
        self.places.find(path).map_err(Into::into)
    }

    fn remove(&mut self, removal: &Removal) -> Result<(), RestoreError> {
        let Removal { path, current } = removal;
        let place = self.writable_place(path)?;
        if let Node::Directory { .. } = current.node {
            match place.dir.remove_dir(&place.name) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    let reason = "the directory is not empty: what is left in it is not part of \
                                  any snapshot, or could not be removed";
                    self.skipped.extend(skipped(path, vec![reason.to_owned()]));
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
            self.places.forget();
            self.done.push(Done::DirectoryRemoved { path: path.clone(), current: current.clone() });
            return Ok(());
        }
        let before = self.check(&place, path, current)?;
        let staged = self.staging.place_for(self.places, path)?;
        let staging = self.staging.dir(&staged);
        place.dir.rename_new(&place.name, &staging, &staged.name)?;
        self.done.push(Done::Removed { path: path.clone(), staged: staged.clone() });
        same_inode(&staging, &staged.name, &before, path)
    }

    fn put(&mut self, put: &Put, staged: &Staged) -> Result<(), RestoreError> {
        let path = &put.path;
        let place = self.writable_place(path)?;
        let staging = self.staging.dir(staged);
        let Some(current) = &put.current else {
            return match staging.rename_new(&staged.name, &place.dir, &place.name) {
                Ok(()) => {
                    self.done.push(Done::Placed { path: path.clone(), staged: staged.clone() });
                    Ok(())
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    Err(RestoreError::changed(path))
                }
                Err(error) => Err(error.into()),
            };
        };
        let before = self.check(&place, path, current)?;
        staging.exchange(&staged.name, &place.dir, &place.name)?;
        self.done.push(Done::Exchanged { path: path.clone(), staged: staged.clone() });
        same_inode(&staging, &staged.name, &before, path)
    }

    fn attributes(&mut self, attribute: &Attribute) -> Result<(), RestoreError> {
        let Attribute { path, current, target } = attribute;
        let place = self.places.find(path)?;
        let is_dir = matches!(target.node, Node::Directory { .. });
        let stat = place.dir.stat(&place.name)?;
        if is_dir != (stat.kind == FileKind::Directory) {
            return Err(RestoreError::changed(path));
        }
        if let Some(current) = current {
            self.done.push(Done::Attributes { path: path.clone(), current: current.clone() });
        }
        let denied = attributes::apply(&place.dir, &place.name, &target.attributes, &target.node)?;
        self.skipped.extend(skipped(path, denied));
        Ok(())
    }

    /// Whether what is at a place is what the safety snapshot holds; returns its attributes.
    fn check(
        &self,
        place: &Place,
        path: &[u8],
        current: &EntryState,
    ) -> Result<Stat, RestoreError> {
        let stat = place.dir.stat(&place.name).map_err(|error| {
            if error.is_gone() { RestoreError::changed(path) } else { error.into() }
        })?;
        let is_same = match &current.node {
            Node::File { size, hash } => {
                stat.kind == FileKind::File
                    && stat.size == *size
                    && stat.mtime == current.attributes.mtime
                    // Changed since, or so lately that its times cannot tell.
                    && (stat.ctime < self.started
                        || hash_file(&place.dir, &place.name)? == Some(*hash))
            }
            Node::Symlink { target } => {
                stat.kind == FileKind::Symlink && *place.dir.read_link(&place.name)? == **target
            }
            Node::Fifo => stat.kind == FileKind::Fifo,
            Node::Socket => stat.kind == FileKind::Socket,
            Node::Directory { .. } | Node::CharDevice(_) | Node::BlockDevice(_) => false,
        };
        if is_same { Ok(stat) } else { Err(RestoreError::changed(path)) }
    }

    /// Undoes all steps, the last one first. Goes on after a failure, to bring back what it can.
    fn take_back(&mut self, plan: &RestorePlan) -> Result<(), Vec<String>> {
        let mut failures = Vec::new();
        let mut remade = Vec::new();
        self.places.forget();
        while let Some(done) = self.done.pop() {
            if let Done::DirectoryRemoved { path, current } = &done {
                remade.push((path.clone(), current.clone()));
            }
            if let Err(error) = self.undo(done) {
                failures.push(error.to_string());
            }
            self.places.forget();
        }
        // Modes that forbid writing, and times, last: the contents are back now.
        let planned = plan.actions.directory_attributes.iter();
        let known = planned.filter_map(|a| Some((a.path.clone(), a.current.clone()?)));
        for (path, current) in remade.into_iter().rev().chain(known) {
            let restored = self.places.find(&path).and_then(|place| {
                attributes::apply(&place.dir, &place.name, &current.attributes, &current.node)
            });
            if let Err(error) = restored {
                failures.push(error.to_string());
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    fn undo(&mut self, done: Done) -> sys::Result<()> {
        let path = match &done {
            Done::Placed { path, .. }
            | Done::Exchanged { path, .. }
            | Done::Removed { path, .. }
            | Done::DirectoryRemoved { path, .. }
            | Done::DirectoryMade { path }
            | Done::Attributes { path, .. }
            | Done::MadeWritable { path, .. } => path,
        };
        let Place { dir, name } = self.places.find(path)?;
        match &done {
            Done::Placed { staged, .. } => {
                dir.rename_new(&name, &self.staging.dir(staged), &staged.name)
            }
            Done::Exchanged { staged, .. } => {
                self.staging.dir(staged).exchange(&staged.name, &dir, &name)
            }
            Done::Removed { staged, .. } => {
                self.staging.dir(staged).rename_new(&staged.name, &dir, &name)
            }
            Done::DirectoryRemoved { current, .. } => {
                // Its contents come back next, so it has to be writable for now.
                dir.make_dir(&name, current.attributes.mode | 0o700)
            }
            Done::DirectoryMade { .. } => dir.remove_dir(&name),
            Done::Attributes { current, .. } => {
                attributes::apply(&dir, &name, &current.attributes, &current.node).map(drop)
            }
            Done::MadeWritable { mode, .. } => dir.set_mode(&name, *mode),
        }
    }
}

/// What was moved is what was looked at just before.
fn same_inode(dir: &Dir, name: &[u8], before: &Stat, path: &[u8]) -> Result<(), RestoreError> {
    let now = dir.stat(name)?;
    let key = |stat: &Stat| (stat.dev, stat.ino, stat.kind, stat.size, stat.mtime);
    if key(&now) == key(before) { Ok(()) } else { Err(RestoreError::changed(path)) }
}
