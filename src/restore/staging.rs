//! Staging: every new inode is made, filled and checked beside its target before the first path
//! changes.
//!
//! A staging directory lies on the file system of what it is for, so that putting something in
//! place is a rename: inside the tracked path where that exists (its parent may be another file
//! system, or not writable), else in the tracked path's parent. What a restore takes away is moved
//! there too, and goes when everything is done.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::RestoreError;
use super::attributes;
use super::places::{Places, split};
use super::plan::{Put, RestorePlan, Skipped};
use crate::object::Node;
use crate::path_text::to_path;
use crate::progress::Progress;
use crate::snapshot::{OpenPath, TrackedRoot};
use crate::store::LocalStore;
use crate::sys::{self, Dir, FileKind, FileTime};

/// All staging directories of one restore, one for each file system that it touches.
pub(super) struct Staging {
    areas: Vec<Area>,
    next: AtomicU64,
}

struct Area {
    dev: u64,
    parent: Dir,
    name: Vec<u8>,
    dir: Rc<Dir>,
    /// The parent's mtime before the staging directory was made.
    mtime: FileTime,
}

/// A name in a staging directory.
#[derive(Debug, Clone)]
pub(super) struct Staged {
    area: usize,
    pub(super) name: Vec<u8>,
}

impl Staging {
    pub(super) fn new() -> Self {
        Self { areas: Vec::new(), next: AtomicU64::new(0) }
    }

    /// A fresh name in the staging directory for `path`, which is made when it is needed first.
    pub(super) fn place_for(
        &mut self,
        places: &mut Places<'_>,
        path: &[u8],
    ) -> Result<Staged, RestoreError> {
        let root = places.root_of(path).ok_or_else(|| RestoreError::outside(path))?;
        let dev = device_of(places, root, path)?;
        let area = match self.areas.iter().position(|area| area.dev == dev) {
            Some(area) => area,
            None => {
                self.areas.push(Area::new(root, path, dev)?);
                self.areas.len() - 1
            }
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(Staged { area, name: number.to_string().into_bytes() })
    }

    pub(super) fn dir(&self, staged: &Staged) -> Rc<Dir> {
        Rc::clone(&self.areas[staged.area].dir)
    }

    /// Flushes what was put in place.
    pub(super) fn sync(&self) -> sys::Result<()> {
        self.areas.iter().try_for_each(|area| area.parent.sync_file_system())
    }

    /// Where the staging directories are, for a message.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.areas.iter().map(|area| area.parent.path_of(&area.name)).collect()
    }

    /// Removes the staging directories with what is left in them, and gives the directories that
    /// held them their times back: those of the snapshot, or those from before.
    pub(super) fn remove(&self, plan: &RestorePlan, is_done: bool) -> sys::Result<()> {
        for area in &self.areas {
            area.parent.remove_dir_all(&area.name)?;
            let path = area.parent.path().as_os_str().as_bytes();
            let planned = plan.actions.directory_attributes.iter().find(|a| a.path == path);
            let mtime = match planned.filter(|_| is_done) {
                Some(attribute) => attribute.target.attributes.mtime,
                None => area.mtime,
            };
            area.parent.set_mtime(b".", mtime)?;
        }
        Ok(())
    }
}

impl Area {
    fn new(root: &TrackedRoot, path: &[u8], dev: u64) -> Result<Self, RestoreError> {
        let parent = area_parent(root, path, dev)?;
        let mtime = parent.stat_self()?.mtime;
        let random = hex::encode(&sys::random_bytes()?[..8]);
        let name = format!(".nono-restore-{random}").into_bytes();
        parent.make_dir(&name, 0o700)?;
        // What is staged must not inherit a default ACL; it gets its own.
        parent.remove_xattr(&name, b"system.posix_acl_default").or_else(|error| {
            if error.kind() == std::io::ErrorKind::Unsupported { Ok(()) } else { Err(error) }
        })?;
        let dir = Rc::new(parent.open_dir(&name)?);
        Ok(Self { dev, parent, name, dir, mtime })
    }
}

/// The highest directory on the path's file system that is inside the tracked path; the tracked
/// path's parent when that is all there is.
fn area_parent(root: &TrackedRoot, path: &[u8], dev: u64) -> Result<Dir, RestoreError> {
    let place = OpenPath::new(&root.path)?;
    let is_dir = |stat: &sys::Stat| stat.kind == FileKind::Directory;
    let top = match place.parent.try_stat(place.name())?.filter(is_dir) {
        // A tracked path that is itself replaced cannot hold the staging directory.
        Some(_) if path != root.path.as_os_str().as_bytes() => {
            place.parent.open_dir(place.name())?
        }
        _ => return Ok(place.parent),
    };
    if top.stat_self()?.dev == dev {
        return Ok(top);
    }
    let inside = &path[root.path.as_os_str().len() + 1..];
    let ends = inside.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    for end in ends {
        let dir = top.open_beneath(&inside[..end])?;
        if dir.stat_self()?.dev == dev {
            return Ok(dir);
        }
    }
    Err(RestoreError::outside(path))
}

/// The file system that `path` is or will be on: that of the nearest directory above it.
fn device_of(
    places: &mut Places<'_>,
    root: &TrackedRoot,
    path: &[u8],
) -> Result<u64, RestoreError> {
    let base = root.path.as_os_str().as_bytes();
    let mut path = path;
    loop {
        match places.find(path) {
            Ok(place) => return Ok(place.dir.stat_self()?.dev),
            // The directory is one that the restore makes, maybe where a symlink is now.
            Err(error) if path != base && (error.is_gone() || error.is_symlink_in_path()) => {
                path = split(path).0;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A put with the inode that is ready for it.
pub(super) struct StagedPut {
    pub(super) put: Put,
    pub(super) staged: Staged,
}

/// Makes and checks every new inode of a plan. On an error nothing but the staging directories has
/// changed.
pub(super) fn stage(
    store: &LocalStore,
    plan: &RestorePlan,
    places: &mut Places<'_>,
    staging: &mut Staging,
    progress: &dyn Progress,
    threads: usize,
) -> Result<(Vec<StagedPut>, Vec<Skipped>), RestoreError> {
    let mut puts = Vec::with_capacity(plan.actions.puts.len());
    for put in &plan.actions.puts {
        puts.push(StagedPut { put: put.clone(), staged: staging.place_for(places, &put.path)? });
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    // `Rc` stays on this thread; the workers get plain references.
    let dirs: HashMap<usize, &Dir> =
        staging.areas.iter().enumerate().map(|(index, area)| (index, &*area.dir)).collect();
    let denied = pool.install(|| {
        puts.par_iter()
            .filter(|put| put.put.link_to.is_none())
            .map_init(Vec::new, |scratch, put| {
                if progress.is_cancelled() {
                    return Err(RestoreError::Cancelled);
                }
                let dir = dirs[&put.staged.area];
                make(store, dir, put, scratch).map(|denied| skipped(&put.put.path, denied))
            })
            .collect::<Result<Vec<_>, _>>()
    })?;
    for put in &puts {
        if let Some(first) = put.put.link_to {
            let first = &puts[first].staged;
            // Two names of one inode are on one file system, as they were when they were captured.
            let (from, to) = (staging.dir(first), staging.dir(&put.staged));
            from.link(&first.name, &to, &put.staged.name)?;
        }
        if let Node::File { size, .. } = put.put.target.node {
            progress.advance(1, size);
        }
    }
    Ok((puts, denied.into_iter().flatten().collect()))
}

pub(super) fn skipped(path: &[u8], denied: Vec<String>) -> Vec<Skipped> {
    denied
        .into_iter()
        .map(|reason| Skipped { path: PathBuf::from(to_path(path)), reason })
        .collect()
}

fn make(
    store: &LocalStore,
    dir: &Dir,
    put: &StagedPut,
    scratch: &mut Vec<u8>,
) -> Result<Vec<String>, RestoreError> {
    let (name, target) = (&put.staged.name, &put.put.target);
    match &target.node {
        Node::File { size, hash } => {
            let file = dir.create_file(name, 0o600)?;
            store.export(hash, *size, &file, scratch).map_err(|source| RestoreError::Content {
                path: to_path(&put.put.path).to_owned(),
                source,
            })?;
        }
        Node::Symlink { target } => dir.make_symlink(name, target)?,
        Node::Fifo => dir.make_fifo(name, 0o600)?,
        // The plan has none of these.
        Node::Directory { .. } | Node::Socket | Node::CharDevice(_) | Node::BlockDevice(_) => {}
    }
    Ok(attributes::apply(dir, name, &target.attributes, &target.node)?)
}
