//! Staging: every new inode is made, filled and checked beside its target before the first path
//! changes.
//!
//! A staging directory lies on the file system (and the mount of it) of what it is for, so that putting
//! something in place is a rename: inside the tracked path where that exists (its parent may be another
//! file system, or not writable), else in the tracked path's parent. What a restore takes away is moved
//! there too, and goes when everything is done. Where the staging directories will be is decided
//! and written to the journal before the first is made, so that none is ever left behind.

mod layout;

use std::path::PathBuf;
use std::rc::Rc;

use rayon::prelude::*;

use super::RestoreError;
use super::areas::Areas;
use super::attributes;
use super::journal::{Step, Work};
use super::make::make;
use super::plan::{Attribute, RestorePlan, Skipped};
use crate::object::Node;
use crate::path_text::to_path;
use crate::progress::{Amount, Progress, Stage};
use crate::store::{LocalStore, Transfer};
use crate::sys::{self, Dir, EarlyFlush, FileTime};

pub(super) use layout::Layout;
use layout::{Berth, Job};

/// Files of at most so many bytes are never cloned.
const SURELY_COPIED_BYTES: u64 = 256 * 1024;

/// Makes and checks every new inode of a plan, and returns the steps that put them in place. On an
/// error nothing but the staging directories has changed.
pub(super) fn stage(
    store: &LocalStore,
    plan: &RestorePlan,
    layout: &Layout,
    areas: &Areas,
    started: FileTime,
    progress: &dyn Progress,
    threads: usize,
) -> Result<Work, RestoreError> {
    let dirs: Vec<Rc<Dir>> = areas.dirs()?;
    check_free_space(plan, layout, &dirs)?;
    let entries = plan.actions.puts.len() as u64;
    progress.begin(Stage::Stage, Some(Amount { entries, bytes: plan.bytes_to_write }));
    // `Rc` stays on this thread; the workers get plain references.
    let staging = Staging { store, plan, layout, dirs: dirs.iter().map(|dir| &**dir).collect() };
    staging.make_directories()?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("restore-{index}"))
        .build()?;
    let jobs = layout.jobs(plan);
    let made = EarlyFlush::during(&staging.dirs, |flush| {
        let make = |buffer: &mut Vec<u8>, job: &Job| staging.files(job, progress, flush, buffer);
        pool.install(|| jobs.par_iter().map_init(Vec::new, make).collect::<Result<Vec<_>, _>>())
    })??;
    let mut inodes = vec![0; plan.actions.puts.len()];
    let mut skipped = Vec::new();
    for made in made.into_iter().flatten() {
        inodes[made.put] = made.ino;
        skipped.extend(made.skipped);
    }
    staging.links(&mut inodes, progress)?;
    skipped.extend(staging.attributes_of_directories()?);
    Ok(Work { started, steps: staging.steps(&inodes), skipped })
}

struct Staging<'a> {
    store: &'a LocalStore,
    plan: &'a RestorePlan,
    layout: &'a Layout,
    dirs: Vec<&'a Dir>,
}

/// One put that was made.
struct Made {
    put: usize,
    ino: u64,
    skipped: Vec<Skipped>,
}

impl Staging<'_> {
    fn open(&self, area: usize, parent: &[u8]) -> sys::Result<Dir> {
        self.dirs[area].open_beneath(parent)
    }

    /// Makes the directories of all new trees, for now for their owner alone.
    fn make_directories(&self) -> Result<(), RestoreError> {
        let directories = &self.plan.actions.directories;
        let mut last: Option<((usize, Vec<u8>), Dir)> = None;
        for Berth { area, parent, name } in
            directories.iter().filter_map(|path| self.layout.directory(path))
        {
            let dir = match last.take() {
                Some((place, dir)) if place == (area, parent.clone()) => dir,
                _ => self.open(area, &parent)?,
            };
            dir.make_dir(&name, 0o700)?;
            last = Some(((area, parent), dir));
        }
        Ok(())
    }

    fn files(
        &self,
        job: &Job,
        progress: &dyn Progress,
        flush: &EarlyFlush,
        buffer: &mut Vec<u8>,
    ) -> Result<Vec<Made>, RestoreError> {
        let dir = self.open(job.area, &job.parent)?;
        let mut all = Vec::with_capacity(job.files.len());
        for (index, name) in &job.files {
            if progress.is_cancelled() {
                return Err(RestoreError::Cancelled);
            }
            let put = &self.plan.actions.puts[*index];
            let transfer = Transfer::new(buffer, progress);
            let made = make(self.store, &dir, name, &put.target, &put.path, transfer)?;
            flush.wrote(put.bytes());
            let skipped = skipped(&put.path, made.denied);
            all.push(Made { put: *index, ino: made.ino, skipped });
        }
        Ok(all)
    }

    /// Further names of what was made.
    fn links(&self, inodes: &mut [u64], progress: &dyn Progress) -> Result<(), RestoreError> {
        let puts = &self.plan.actions.puts;
        for (index, put) in puts.iter().enumerate() {
            let Some(first) = put.link_to else { continue };
            // Two names of one inode are on one mount, as they nearly always were when they were captured.
            let from = self.layout.put(first, &puts[first].path);
            let to = self.layout.put(index, &put.path);
            let target = self.open(to.area, &to.parent)?;
            self.open(from.area, &from.parent)?.link(&from.name, &target, &to.name)?;
            inodes[index] = inodes[first];
            if let Node::File { size, .. } = put.target.node {
                progress.advance(1, size);
            }
        }
        Ok(())
    }

    /// Gives what is in the new trees its modes and times. The top of a tree gets its own when it is in
    /// place: an ordinary user cannot move a directory that may not be written.
    fn attributes_of_directories(&self) -> Result<Vec<Skipped>, RestoreError> {
        let mut all = Vec::new();
        for Attribute { path, target, .. } in self.new_directories() {
            if self.layout.tree_over(path).is_none() {
                continue;
            }
            let Some(Berth { area, parent, name }) = self.layout.directory(path) else { continue };
            let dir = self.open(area, &parent)?;
            let inode = dir.inode(&name)?;
            let denied = attributes::apply(&inode, &target.attributes, &target.node)?;
            all.extend(skipped(path, denied));
        }
        Ok(all)
    }

    /// Deepest first.
    fn new_directories(&self) -> impl Iterator<Item = &Attribute> {
        let attributes = self.plan.actions.directory_attributes.iter();
        attributes.filter(|attribute| self.layout.tree_of(&attribute.path).is_some())
    }

    /// All steps, in the one order that works.
    fn steps(&self, inodes: &[u64]) -> Vec<Step> {
        let (actions, layout) = (&self.plan.actions, self.layout);
        let removals = actions.removals.iter().zip(&layout.removals).map(|(removal, staged)| {
            let (path, current) = (removal.path.clone(), removal.current.clone());
            match *staged {
                Some(staged) => Step::Remove { path, current, staged },
                None => Step::RemoveDirectory { path, current },
            }
        });
        let mut trees: Vec<Vec<Step>> = layout.trees.iter().map(|_| Vec::new()).collect();
        for path in &actions.directories {
            if let Some(tree) = layout.tree_of(path) {
                trees[tree].push(Step::MakeDirectory { path: path.clone() });
            }
        }
        let mut flat = Vec::new();
        for ((put, staged), ino) in actions.puts.iter().zip(&layout.puts).zip(inodes) {
            let (path, target, staged, ino) = (put.path.clone(), put.target.clone(), *staged, *ino);
            let step = match put.current.clone() {
                Some(current) => Step::Exchange { path, current, target, staged, ino },
                None => Step::Place { path, target, staged, ino },
            };
            match layout.tree_over(&put.path) {
                Some(tree) => trees[tree].push(step),
                None => flat.push(step),
            }
        }
        for attribute in self.new_directories() {
            if let Some(tree) = layout.tree_of(&attribute.path) {
                trees[tree].push(set(attribute));
            }
        }
        let trees = layout.trees.iter().zip(trees).map(|(tree, steps)| {
            let (path, staged) = (tree.path.clone(), tree.staged);
            Step::PlaceTree { path, staged, steps }
        });
        let directories = actions.directory_attributes.iter();
        let directories = directories.filter(|found| layout.tree_of(&found.path).is_none());
        let attributes = actions.attributes.iter().chain(directories).map(set);
        removals.chain(trees).chain(flat).chain(attributes).collect()
    }
}

fn set(attribute: &Attribute) -> Step {
    let Attribute { path, current, target } = attribute.clone();
    Step::Attributes { path, current, target }
}

/// Refuses early what cannot fit. Files that share blocks with the store or have holes need less
/// than they are long, so only what is hopeless even then is refused; the rest is found out.
fn check_free_space(
    plan: &RestorePlan,
    layout: &Layout,
    dirs: &[Rc<Dir>],
) -> Result<(), RestoreError> {
    let mut needed = vec![0u64; dirs.len()];
    for (put, staged) in plan.actions.puts.iter().zip(&layout.puts) {
        if let (Node::File { size, .. }, None) = (&put.target.node, put.link_to) {
            // Large files may be clones.
            needed[staged.area] += if *size <= SURELY_COPIED_BYTES { *size } else { 0 };
        }
    }
    for (dir, needed) in dirs.iter().zip(needed) {
        let free = dir.free_bytes()?;
        if needed > free {
            return Err(RestoreError::NoSpace { path: dir.path().to_owned(), needed, free });
        }
    }
    Ok(())
}

pub(super) fn skipped(path: &[u8], denied: Vec<String>) -> Vec<Skipped> {
    denied
        .into_iter()
        .map(|reason| Skipped { path: PathBuf::from(to_path(path)), reason })
        .collect()
}
