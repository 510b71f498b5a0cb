//! Where everything new is made before it has its path.
//!
//! A directory that is new is made with all that will be in it, under one name in a staging
//! directory, so that one rename puts all of it in place. Everything else has a name of its own
//! there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;

use crate::byte_path;
use crate::object::Node;
use crate::restore::RestoreError;
use crate::restore::journal::{AREA_PREFIX, AreaRecord, Staged};
use crate::restore::places::Places;
use crate::restore::plan::{Put, RestorePlan};
use crate::snapshot::{OpenPath, TrackedRoot};
use crate::sys::{self, Dir, FileKind, MountId};

/// Number of files of one directory that one worker makes, one after the other.
const JOB_FILES: usize = 128;
/// Or so many bytes, and the one more file that makes them.
const JOB_BYTES: u64 = 8 << 20;

/// Where everything of a plan is staged. Making one changes nothing.
pub(in crate::restore) struct Layout {
    pub(in crate::restore) areas: Vec<AreaRecord>,
    mounts: Vec<MountId>,
    /// For the removals of the plan, in order; directories have none.
    pub(super) removals: Vec<Option<Staged>>,
    /// For the puts of the plan, in order.
    pub(super) puts: Vec<PutPlace>,
    pub(super) trees: Vec<NewTree>,
    /// The tree that each new directory is in, by path.
    tree_of: HashMap<Vec<u8>, usize>,
    next: u64,
}

/// Where a put is made.
#[derive(Clone, Copy)]
pub(super) struct PutPlace {
    /// The new tree that it is made in.
    pub(super) tree: Option<usize>,
    /// Its own name in the staging directory. A file of a new tree moves there only in a rollback.
    pub(super) staged: Staged,
}

/// A new directory in one that is not new.
pub(super) struct NewTree {
    pub(super) path: Vec<u8>,
    pub(super) staged: Staged,
}

/// Where something is made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Berth {
    pub(super) area: usize,
    /// Relative to the staging directory.
    pub(super) parent: Vec<u8>,
    pub(super) name: Vec<u8>,
}

/// Files that are made in one directory.
pub(super) struct Job {
    pub(super) area: usize,
    pub(super) parent: Vec<u8>,
    /// Indexes in the puts of the plan.
    pub(super) files: Vec<usize>,
    /// Bytes of the contents of all of them.
    pub(super) bytes: u64,
}

impl Layout {
    pub(in crate::restore) fn new(
        plan: &RestorePlan,
        places: &mut Places<'_>,
    ) -> Result<Self, RestoreError> {
        let mut layout = Self {
            areas: Vec::new(),
            mounts: Vec::new(),
            removals: Vec::new(),
            puts: Vec::new(),
            trees: Vec::new(),
            tree_of: HashMap::new(),
            next: 0,
        };
        // Parents come first.
        for path in &plan.actions.directories {
            let tree = match layout.tree_of.get(byte_path::split(path).0) {
                Some(tree) => *tree,
                None => {
                    let staged = layout.place_for(plan, places, path)?;
                    layout.trees.push(NewTree { path: path.clone(), staged });
                    layout.trees.len() - 1
                }
            };
            layout.tree_of.insert(path.clone(), tree);
        }
        for puts in plan.actions.puts.chunk_by(Put::is_beside) {
            let tree = puts.first().and_then(|put| layout.tree_over(&put.path));
            for put in puts {
                let staged = match tree {
                    Some(tree) => layout.fresh(layout.trees[tree].staged.area),
                    None => layout.place_for(plan, places, &put.path)?,
                };
                layout.puts.push(PutPlace { tree, staged });
            }
        }
        for removal in &plan.actions.removals {
            let is_dir = matches!(removal.current.node, Node::Directory { .. });
            let staged =
                if is_dir { None } else { Some(layout.place_for(plan, places, &removal.path)?) };
            layout.removals.push(staged);
        }
        Ok(layout)
    }

    /// The tree that holds what is at a path: not the path itself, but the directory it is in is
    /// new.
    pub(super) fn tree_over(&self, path: &[u8]) -> Option<usize> {
        self.tree_of.get(byte_path::split(path).0).copied()
    }

    /// The tree that a directory is in, or is the top of.
    pub(super) fn tree_of(&self, directory: &[u8]) -> Option<usize> {
        self.tree_of.get(directory).copied()
    }

    /// Where a new directory is made.
    pub(super) fn directory(&self, path: &[u8]) -> Option<Berth> {
        let tree = &self.trees[self.tree_of(path)?];
        Some(tree.berth(path))
    }

    /// Where a put of the plan is made.
    pub(super) fn put(&self, index: usize, path: &[u8]) -> Berth {
        let PutPlace { tree, staged } = self.puts[index];
        tree.map_or_else(|| staged.berth(), |tree| self.trees[tree].berth(path))
    }

    /// Its name there.
    pub(super) fn put_name(&self, index: usize, path: &[u8]) -> Vec<u8> {
        let PutPlace { tree, staged } = self.puts[index];
        tree.map_or_else(|| staged.name(), |_| byte_path::split(path).1.to_vec())
    }

    /// All puts that are no further names of others, by the directory in which they are made. Jobs
    /// with a long file come first, the longest of all at the beginning: a worker that begins it
    /// last is the only one at work in the end.
    pub(super) fn jobs(&self, plan: &RestorePlan) -> Vec<Job> {
        let mut by_parent = BTreeMap::<(usize, Vec<u8>), Vec<usize>>::new();
        let mut next = 0;
        for puts in plan.actions.puts.chunk_by(Put::is_beside) {
            let first = next;
            next += puts.len();
            let made = (first..next).filter(|index| plan.actions.puts[*index].link_to.is_none());
            let Berth { area, parent, .. } = self.put(first, &puts[0].path);
            by_parent.entry((area, parent)).or_default().extend(made);
        }
        let mut jobs = Vec::with_capacity(by_parent.len());
        for ((area, parent), files) in by_parent {
            let mut files = files.into_iter().peekable();
            while files.peek().is_some() {
                let mut job = Job { area, parent: parent.clone(), files: Vec::new(), bytes: 0 };
                while job.files.len() < JOB_FILES
                    && job.bytes < JOB_BYTES
                    && let Some(file) = files.next()
                {
                    job.files.push(file);
                    job.bytes = job.bytes.saturating_add(plan.actions.puts[file].bytes());
                }
                jobs.push(job);
            }
        }
        // The others stay in the order in which their contents lie in the store.
        jobs.sort_by_key(|job| Reverse(job.bytes.checked_sub(JOB_BYTES)));
        jobs
    }

    fn fresh(&mut self, area: usize) -> Staged {
        let number = self.next;
        self.next += 1;
        Staged { area, number }
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
        Ok(self.fresh(area))
    }
}

impl NewTree {
    fn berth(&self, path: &[u8]) -> Berth {
        let Some(inside) = byte_path::relative_to(path, &self.path).filter(|i| !i.is_empty())
        else {
            return self.staged.berth();
        };
        let whole = byte_path::join(&self.staged.name(), inside);
        let (parent, name) = byte_path::split(&whole);
        Berth { area: self.staged.area, parent: parent.to_vec(), name: name.to_vec() }
    }
}

impl Staged {
    fn berth(self) -> Berth {
        Berth { area: self.area, parent: Vec::new(), name: self.name() }
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

/// The highest directory on the path's mount that is inside the tracked path, stays and can be
/// written; without one, the highest that is there. The tracked path's parent when that is all.
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
    let inside = path.get(base.len() + 1..).unwrap_or_default();
    let mut highest = None;
    for above in std::iter::once(&b""[..]).chain(byte_path::ancestors(inside)) {
        let dir = match top.open_beneath(above) {
            // A directory that the restore makes is not there yet.
            Err(error) if highest.is_some() && error.is_gone() => break,
            dir => dir?,
        };
        if dir.mount()? != mount {
            continue;
        }
        let whole = byte_path::join(base, above);
        let goes = plan.actions.removals.iter().any(|removal| removal.path == whole);
        let is_own = dir.stat_self()?.uid == sys::effective_uid();
        if !goes && (is_own || dir.refused_to_change()?.is_none()) {
            return Ok(dir);
        }
        highest.get_or_insert(dir);
    }
    highest.ok_or_else(|| RestoreError::outside(path))
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
