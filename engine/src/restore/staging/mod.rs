//! Staging: every new inode is made, filled and checked beside its target before the first path
//! changes.
//!
//! A staging directory lies on the file system (and the mount of it) of its targets, so that
//! putting something in place is a rename: inside the tracked path where that exists (its parent
//! may be another file system, or not writable), else in the tracked path's parent. Files that a
//! restore removes are moved there too, and go when everything is done. The places of the staging
//! directories are decided and written to the journal before the first is made, so that none is
//! ever left behind.

mod layout;

use std::cell::RefCell;
use std::rc::Rc;

use rayon::prelude::*;

use super::RestoreError;
use super::areas::Areas;
use super::attributes::{self, Denied};
use super::journal::{Step, Work};
use super::make::make;
use super::plan::{Actions, Attribute, Put, Removal, RestorePlan, Skipped};
use crate::object::Node;
use crate::path_text::to_path;
use crate::progress::{Amount, Progress, Stage};
use crate::store::{LocalStore, Transfer};
use crate::sys::{self, Dir, EarlyFlush, FileTime};

pub(super) use layout::Layout;
use layout::{Berth, Job, PutPlace};

/// Files of at most so many bytes are never cloned.
pub const SURELY_COPIED_BYTES: u64 = 256 * 1024;

/// Makes and checks every new inode of a plan, and returns the steps that put them in place. On an
/// error nothing but the staging directories has changed.
pub(super) fn stage(
    store: &LocalStore,
    plan: RestorePlan,
    layout: &Layout,
    areas: &Areas,
    started: FileTime,
    progress: &dyn Progress,
    threads: usize,
) -> Result<Work, RestoreError> {
    let made = make_inodes(store, &plan, layout, areas, progress, threads);
    let (inodes, mut skipped) = made.map_err(|error| {
        // The store is only read.
        error.of_project(&areas.parents(), || plan.removed_contents())
    })?;
    skipped.extend(plan.skipped);
    Ok(Work { started, steps: steps(plan.actions, layout, inodes), skipped })
}

/// Makes the inodes. Returns their numbers, by the puts of the plan, and what they lack.
fn make_inodes(
    store: &LocalStore,
    plan: &RestorePlan,
    layout: &Layout,
    areas: &Areas,
    progress: &dyn Progress,
    threads: usize,
) -> Result<(Vec<u64>, Vec<Skipped>), RestoreError> {
    let dirs: Vec<Rc<Dir>> = areas.dirs()?;
    check_free_space(plan, layout, &dirs)?;
    let entries = plan.actions.puts.len() as u64;
    progress.begin(Stage::Stage, Some(Amount { entries, bytes: plan.bytes_to_write }));
    // `Rc` stays on this thread; the workers get plain references.
    let dirs = dirs.iter().map(|dir| &**dir).collect();
    let staging = Staging { store, plan, layout, dirs };
    staging.make_directories()?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("restore-{index}"))
        .build()?;
    let jobs = layout.jobs(plan);
    let made = EarlyFlush::during(&staging.dirs, |flush| {
        thread_local! {
            static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let make =
            |job| BUFFER.with_borrow_mut(|buffer| staging.files(job, progress, flush, buffer));
        // Jobs are taken one by one: none waits for a worker that is at a long file.
        let jobs = jobs.par_iter().with_max_len(1);
        pool.install(|| jobs.map(make).collect::<Result<Vec<_>, _>>())
    })??;
    let mut inodes = vec![0; plan.actions.puts.len()];
    let mut skipped = Vec::new();
    for (job, made) in jobs.into_iter().zip(made) {
        for (put, ino) in job.files.into_iter().zip(made.inodes) {
            inodes[put] = ino;
        }
        skipped.extend(made.skipped);
    }
    staging.links(&mut inodes, progress)?;
    skipped.extend(staging.attributes_of_directories()?);
    Ok((inodes, skipped))
}

struct Staging<'a> {
    store: &'a LocalStore,
    plan: &'a RestorePlan,
    layout: &'a Layout,
    dirs: Vec<&'a Dir>,
}

/// The result of a job.
pub(super) struct Made {
    /// The inodes of its files, in order.
    inodes: Vec<u64>,
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
                Some(((known, at), dir)) if known == area && at == parent => dir,
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
    ) -> Result<Made, RestoreError> {
        let dir = self.open(job.area, &job.parent)?;
        let mut all = Made { inodes: Vec::with_capacity(job.files.len()), skipped: Vec::new() };
        for index in &job.files {
            if progress.is_cancelled() {
                return Err(RestoreError::Cancelled);
            }
            let put = &self.plan.actions.puts[*index];
            let name = self.layout.put_name(*index, &put.path);
            let transfer = Transfer::new(buffer, progress);
            let made = make(self.store, &dir, &name, &put.target, &put.path, transfer)?;
            flush.wrote(put.bytes());
            all.inodes.push(made.ino);
            all.skipped.extend(skipped(&put.path, made.denied));
        }
        Ok(all)
    }

    /// Further names of what was made.
    fn links(&self, inodes: &mut [u64], progress: &dyn Progress) -> Result<(), RestoreError> {
        let puts = &self.plan.actions.puts;
        for (index, put) in puts.iter().enumerate() {
            let Some(first) = put.link_to else { continue };
            // Two names of one inode are on one mount, as they nearly always were when they were
            // captured.
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

    /// Gives what is in the new trees its modes and times. The top of a tree gets its own when it
    /// is in place: an ordinary user cannot move a directory that may not be written.
    fn attributes_of_directories(&self) -> Result<Vec<Skipped>, RestoreError> {
        let mut all = Vec::new();
        // Deepest first.
        for Attribute { path, target, .. } in &self.plan.actions.directory_attributes {
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
}

/// All steps, in the one order that works. The plan becomes them: there may be millions.
fn steps(actions: Actions, layout: &Layout, inodes: Vec<u64>) -> Vec<Step> {
    let removals = actions.removals.into_iter().zip(&layout.removals).map(|(removal, staged)| {
        let Removal { path, current } = removal;
        match *staged {
            Some(staged) => Step::Remove { path, current, staged },
            None => Step::RemoveDirectory { path, current },
        }
    });
    let mut steps: Vec<Step> = removals.collect();
    let mut trees: Vec<Vec<Step>> = layout.trees.iter().map(|_| Vec::new()).collect();
    for path in actions.directories {
        if let Some(tree) = layout.tree_of(&path) {
            trees[tree].push(Step::MakeDirectory { path });
        }
    }
    let mut flat = Vec::new();
    for ((put, place), ino) in actions.puts.into_iter().zip(&layout.puts).zip(inodes) {
        let Put { path, current, target, is_relinked, .. } = put;
        let PutPlace { tree, staged } = *place;
        let step = match current {
            Some(current) => Step::Exchange { path, current, target, staged, ino, is_relinked },
            None => Step::Place { path, target, staged, ino },
        };
        match tree {
            Some(tree) => trees[tree].push(step),
            None => flat.push(step),
        }
    }
    let mut attributes: Vec<Step> = actions.attributes.into_iter().map(set).collect();
    for attribute in actions.directory_attributes {
        match layout.tree_of(&attribute.path) {
            Some(tree) => trees[tree].push(set(attribute)),
            None => attributes.push(set(attribute)),
        }
    }
    steps.extend(layout.trees.iter().zip(trees).map(|(tree, steps)| {
        let (path, staged) = (tree.path.clone(), tree.staged);
        Step::PlaceTree { path, staged, steps }
    }));
    steps.extend(flat);
    steps.extend(attributes);
    steps
}

fn set(attribute: Attribute) -> Step {
    let Attribute { path, current, target } = attribute;
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
    for (put, place) in plan.actions.puts.iter().zip(&layout.puts) {
        if let (Node::File { size, .. }, None) = (&put.target.node, put.link_to) {
            // Large files may be clones.
            needed[place.staged.area] += if *size <= SURELY_COPIED_BYTES { *size } else { 0 };
        }
    }
    for (dir, needed) in dirs.iter().zip(needed) {
        let Some(free) = dir.free_bytes()? else { continue };
        if needed > free {
            return Err(RestoreError::NoSpace { path: dir.path().to_owned(), needed, free });
        }
    }
    Ok(())
}

pub(super) fn skipped(path: &[u8], denied: Vec<Denied>) -> Vec<Skipped> {
    denied
        .into_iter()
        .map(|denied| Skipped { path: to_path(path).to_owned(), reason: denied.to_string() })
        .collect()
}
