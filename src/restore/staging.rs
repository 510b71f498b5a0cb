//! Staging: every new inode is made, filled and checked beside its target before the first path
//! changes.
//!
//! A staging directory lies on the file system (and the mount of it) of what it is for, so that putting
//! something in place is a rename: inside the tracked path where that exists (its parent may be another file
//! system, or not writable), else in the tracked path's parent. What a restore takes away is moved
//! there too, and goes when everything is done. Where the staging directories will be is decided
//! and written to the journal before the first is made, so that none is ever left behind.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use rayon::prelude::*;

use super::RestoreError;
use super::areas::Areas;
use super::attributes;
use super::journal::{AREA_PREFIX, AreaRecord, Staged, Step, Work};
use super::places::Places;
use super::plan::{Put, RestorePlan, Skipped};
use crate::byte_path;
use crate::object::Node;
use crate::path_text::to_path;
use crate::progress::Progress;
use crate::snapshot::{OpenPath, TrackedRoot};
use crate::store::{LocalStore, Transfer};
use crate::sys::{self, Dir, FileKind, FileTime, MountId};

/// Where everything of a plan is staged. Making one changes nothing.
pub(super) struct Layout {
    pub(super) areas: Vec<AreaRecord>,
    mounts: Vec<MountId>,
    /// For the removals of the plan, in order; directories have none.
    removals: Vec<Option<Staged>>,
    /// For the puts of the plan, in order.
    puts: Vec<Staged>,
    next: u64,
}

impl Layout {
    pub(super) fn new(plan: &RestorePlan, places: &mut Places<'_>) -> Result<Self, RestoreError> {
        let mut layout = Self {
            areas: Vec::new(),
            mounts: Vec::new(),
            removals: Vec::new(),
            puts: Vec::new(),
            next: 0,
        };
        for put in &plan.actions.puts {
            let staged = layout.place_for(plan, places, &put.path)?;
            layout.puts.push(staged);
        }
        for removal in &plan.actions.removals {
            let is_dir = matches!(removal.current.node, Node::Directory { .. });
            let staged =
                if is_dir { None } else { Some(layout.place_for(plan, places, &removal.path)?) };
            layout.removals.push(staged);
        }
        Ok(layout)
    }

    /// A fresh name in the staging directory for `path`.
    fn place_for(
        &mut self,
        plan: &RestorePlan,
        places: &mut Places<'_>,
        path: &[u8],
    ) -> Result<Staged, RestoreError> {
        let root = places.root_of(path).ok_or_else(|| RestoreError::outside(path))?;
        let mount = mount_of(places, root, path)?;
        let area = match self.mounts.iter().position(|known| *known == mount) {
            Some(area) => area,
            None => {
                self.areas.push(area_for(plan, root, path, mount)?);
                self.mounts.push(mount);
                self.areas.len() - 1
            }
        };
        let number = self.next;
        self.next += 1;
        Ok(Staged { area, number })
    }
}

fn area_for(
    plan: &RestorePlan,
    root: &TrackedRoot,
    path: &[u8],
    mount: MountId,
) -> Result<AreaRecord, RestoreError> {
    let parent = area_parent(plan, root, path, mount)?;
    let random = hex::encode(&sys::random_bytes()?[..8]);
    Ok(AreaRecord {
        parent: parent.path().as_os_str().as_bytes().to_vec(),
        name: [AREA_PREFIX, random.as_bytes()].concat(),
        mtime: parent.stat_self()?.mtime,
    })
}

/// The highest directory on the path's mount that is inside the tracked path; the tracked
/// path's parent when that is all there is.
fn area_parent(
    plan: &RestorePlan,
    root: &TrackedRoot,
    path: &[u8],
    mount: MountId,
) -> Result<Dir, RestoreError> {
    let base = root.path.as_os_str().as_bytes();
    let place = OpenPath::new(&root.path)?;
    // A tracked path that itself goes or is replaced cannot hold the staging directory.
    let is_replaced =
        path == base || plan.actions.removals.iter().any(|removal| removal.path == base);
    let top = match place.parent.try_stat(place.name())? {
        Some(stat) if stat.kind == FileKind::Directory => place.parent.open_dir(place.name())?,
        _ => return Ok(place.parent),
    };
    if is_replaced && place.parent.mount()? == mount {
        return Ok(place.parent);
    }
    if top.mount()? == mount {
        return Ok(top);
    }
    let inside = path.get(base.len() + 1..).unwrap_or_default();
    for above in byte_path::ancestors(inside) {
        let dir = top.open_beneath(above)?;
        if dir.mount()? == mount {
            return Ok(dir);
        }
    }
    Err(RestoreError::outside(path))
}

/// The mount that `path` is or will be on: that of the nearest directory above it.
fn mount_of(
    places: &mut Places<'_>,
    root: &TrackedRoot,
    path: &[u8],
) -> Result<MountId, RestoreError> {
    let base = root.path.as_os_str().as_bytes();
    let mut path = path;
    loop {
        match places.find(path) {
            Ok(place) => return Ok(place.dir.mount()?),
            // The directory is one that the restore makes, maybe where a symlink is now.
            Err(error) if path != base && (error.is_gone() || error.is_symlink_in_path()) => {
                path = byte_path::split(path).0;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

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
    // `Rc` stays on this thread; the workers get plain references.
    let plain: Vec<&Dir> = dirs.iter().map(|dir| &**dir).collect();
    let puts: Vec<(&Put, Staged)> =
        plan.actions.puts.iter().zip(layout.puts.iter().copied()).collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let denied = pool.install(|| {
        puts.par_iter()
            .filter(|(put, _)| put.link_to.is_none())
            .map_init(Vec::new, |buffer, (put, staged)| {
                if progress.is_cancelled() {
                    return Err(RestoreError::Cancelled);
                }
                let transfer = Transfer::new(buffer, progress);
                let denied = make(store, plain[staged.area], &staged.name(), put, transfer)?;
                Ok(skipped(&put.path, denied))
            })
            .collect::<Result<Vec<_>, _>>()
    })?;
    let mut inodes = Vec::with_capacity(puts.len());
    for (put, staged) in &puts {
        if let Some(first) = put.link_to {
            let first = layout.puts[first];
            // Two names of one inode are on one mount, as they nearly always were when they were captured.
            dirs[first.area].link(&first.name(), &dirs[staged.area], &staged.name())?;
            if let Node::File { size, .. } = put.target.node {
                progress.advance(1, size);
            }
        }
        inodes.push(dirs[staged.area].stat(&staged.name())?.ino);
    }
    Ok(Work {
        started,
        steps: steps(plan, layout, &inodes),
        skipped: denied.into_iter().flatten().collect(),
    })
}

/// All steps, in the one order that works.
fn steps(plan: &RestorePlan, layout: &Layout, inodes: &[u64]) -> Vec<Step> {
    let actions = &plan.actions;
    let removals = actions.removals.iter().zip(&layout.removals).map(|(removal, staged)| {
        let (path, current) = (removal.path.clone(), removal.current.clone());
        match *staged {
            Some(staged) => Step::Remove { path, current, staged },
            None => Step::RemoveDirectory { path, current },
        }
    });
    let directories =
        actions.directories.iter().map(|path| Step::MakeDirectory { path: path.clone() });
    let puts = actions.puts.iter().zip(&layout.puts).zip(inodes).map(|((put, staged), ino)| {
        let (path, target, staged, ino) = (put.path.clone(), put.target.clone(), *staged, *ino);
        match put.current.clone() {
            Some(current) => Step::Exchange { path, current, target, staged, ino },
            None => Step::Place { path, target, staged, ino },
        }
    });
    let attributes = actions.attributes.iter().chain(&actions.directory_attributes);
    let attributes = attributes.map(|attribute| Step::Attributes {
        path: attribute.path.clone(),
        current: attribute.current.clone(),
        target: attribute.target.clone(),
    });
    removals.chain(directories).chain(puts).chain(attributes).collect()
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

/// Files of at most so many bytes are never cloned.
const SURELY_COPIED_BYTES: u64 = 256 * 1024;

pub(super) fn skipped(path: &[u8], denied: Vec<String>) -> Vec<Skipped> {
    denied
        .into_iter()
        .map(|reason| Skipped { path: PathBuf::from(to_path(path)), reason })
        .collect()
}

fn make(
    store: &LocalStore,
    dir: &Dir,
    name: &[u8],
    put: &Put,
    mut transfer: Transfer<'_>,
) -> Result<Vec<String>, RestoreError> {
    let target = &put.target;
    match &target.node {
        Node::File { size, hash } => {
            let file = dir.create_file(name, 0o600)?;
            store
                .export(hash, *size, &file, &mut transfer)
                .map_err(|error| RestoreError::content(error, &put.path))?;
            transfer.finish(*size);
        }
        Node::Symlink { target } => dir.make_symlink(name, target)?,
        Node::Fifo => dir.make_fifo(name, 0o600)?,
        // The plan has none of these.
        Node::Directory { .. } | Node::Socket | Node::CharDevice(_) | Node::BlockDevice(_) => {}
    }
    Ok(attributes::apply(&dir.inode(name)?, &target.attributes, &target.node)?)
}
