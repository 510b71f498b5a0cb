//! Tracked paths: checked, opened, and compiled with their filters.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::capture::InodeId;
use crate::manifest::TrackedRoot;
use crate::object::is_tracked_path;
use crate::path_text::Shown;
use crate::sys::{self, Dir, FileKind, Stat};
use crate::walk::{ExclusionConfig, Filter, InvalidPattern, pattern_of_path};

/// Why a path cannot be tracked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrackedPathError {
    /// There is nothing, or it cannot be reached.
    #[error("cannot track {}: {source}", Shown::path(path))]
    Unreachable {
        /// The path as given.
        path: PathBuf,
        /// The answer of the system.
        source: sys::Error,
    },
    /// It is a symlink.
    #[error(
        "cannot track {}: it is a symlink; track what it points to, {}",
        Shown::path(path),
        Shown::path(target)
    )]
    Symlink {
        /// The path as given.
        path: PathBuf,
        /// Where the link points.
        target: PathBuf,
    },
    /// It is a device, a socket or a named pipe.
    #[error("cannot track {}: it is neither a directory nor a regular file", Shown::path(path))]
    Special {
        /// The path as given.
        path: PathBuf,
    },
    /// The store is inside it.
    #[error(
        "cannot track {}: it contains the store {}, which would record itself",
        Shown::path(path),
        Shown::path(store)
    )]
    ContainsStore {
        /// The path as given.
        path: PathBuf,
        /// The store.
        store: PathBuf,
    },
    /// It is inside the store.
    #[error("cannot track {}: it lies in the store {}", Shown::path(path), Shown::path(store))]
    InStore {
        /// The path as given.
        path: PathBuf,
        /// The store.
        store: PathBuf,
    },
    /// Its form is not one that can be stored.
    #[error("cannot track {}: not a plain path below the root directory", Shown::path(path))]
    NotPlain {
        /// The path as given.
        path: PathBuf,
    },
    /// Between two looks a directory above it became a symlink, so that it is another place now.
    #[error("cannot track {}: it became another place while the session began", Shown::path(path))]
    Replaced {
        /// One that only one of the two looks found.
        path: PathBuf,
    },
    /// No path was given.
    #[error("nothing to track: no path was given")]
    Nothing,
    /// Its filter has an invalid pattern.
    #[error(transparent)]
    Pattern(#[from] InvalidPattern),
}

/// Checks paths that a person wants to track, and brings them into the form that is stored: sorted,
/// symlinks in parents resolved, no path twice. A path inside another one is captured with the
/// outer one, where it is force-included. Each has the exclusions that count there
/// ([`ExclusionConfig::tied`]).
///
/// # Errors
/// The first path that cannot be tracked.
pub fn resolve_roots(
    paths: &[PathBuf],
    exclusion: &ExclusionConfig,
    store_paths: &[PathBuf],
) -> Result<Vec<TrackedRoot>, TrackedPathError> {
    let mut resolved = paths
        .iter()
        .map(|path| resolve(path, store_paths))
        .collect::<Result<Vec<_>, TrackedPathError>>()?;
    if resolved.is_empty() {
        return Err(TrackedPathError::Nothing);
    }
    resolved.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    resolved.dedup();
    Filter::new(exclusion)?;
    // Sorted, so a directory comes before what is in it.
    let (mut outer, mut inner): (Vec<PathBuf>, Vec<PathBuf>) = (Vec::new(), Vec::new());
    for path in resolved {
        let is_inner = outer.iter().any(|above| path.starts_with(above));
        if is_inner { inner.push(path) } else { outer.push(path) }
    }
    outer
        .iter()
        .map(|path| {
            let mut exclusion = exclusion.tied(path, &outer)?;
            let inside = inner.iter().filter_map(|inner| inner.strip_prefix(path).ok());
            exclusion.force_include.extend(inside.map(pattern_of_path));
            Ok(TrackedRoot { path: path.clone(), exclusion })
        })
        .collect()
}

fn resolve(path: &Path, store_paths: &[PathBuf]) -> Result<PathBuf, TrackedPathError> {
    let unreachable = |source| TrackedPathError::Unreachable { path: path.to_owned(), source };
    let resolved = sys::canonical_parent(path).map_err(unreachable)?;
    if !is_tracked_path(resolved.as_os_str().as_bytes()) {
        return Err(TrackedPathError::NotPlain { path: path.to_owned() });
    }
    let open = OpenPath::new(&resolved).map_err(unreachable)?;
    match open.parent.stat(open.name()).map_err(unreachable)?.kind {
        FileKind::Directory | FileKind::File => {}
        FileKind::Symlink => {
            let target = sys::real_path(&resolved).unwrap_or_default();
            return Err(TrackedPathError::Symlink { path: path.to_owned(), target });
        }
        _ => return Err(TrackedPathError::Special { path: path.to_owned() }),
    }
    for store in store_paths {
        let (path, store) = (path.to_owned(), store.clone());
        if resolved.starts_with(&store) {
            return Err(TrackedPathError::InStore { path, store });
        }
        if store.starts_with(&resolved) {
            return Err(TrackedPathError::ContainsStore { path, store });
        }
    }
    Ok(resolved)
}

/// A tracked path as a name in its parent directory, nothing above it a symlink.
#[derive(Debug)]
pub(crate) struct OpenPath {
    pub(crate) parent: Dir,
    name: Vec<u8>,
}

impl OpenPath {
    pub(crate) fn new(path: &Path) -> sys::Result<Self> {
        let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
        let parent = Dir::open_no_symlinks(path.parent().unwrap_or(Path::new("/")))?;
        Ok(Self { parent, name })
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }
}

fn is_symlink(path: &Path) -> bool {
    OpenPath::new(path)
        .and_then(|open| open.parent.stat(open.name()))
        .is_ok_and(|stat| stat.kind == FileKind::Symlink)
}

/// The kernel's error for a symlink further up.
fn symlink_in_path(path: &Path) -> sys::Error {
    let source = rustix::io::Errno::LOOP.into();
    sys::Error { operation: "open", path: path.to_owned(), source }
}

/// A tracked path as it is found when a capture begins.
pub(super) struct OpenRoot {
    pub(super) path: PathBuf,
    pub(super) filter: Filter,
    /// The parent, unless it is gone.
    pub(super) place: Option<OpenPath>,
    /// Attributes, unless nothing is there.
    pub(super) stat: Option<Stat>,
    /// The directory itself, if it is one that can be opened.
    pub(super) dir: Option<Dir>,
    /// Why what is there cannot be captured.
    pub(super) problem: Option<sys::Error>,
}

impl OpenRoot {
    /// Opens a tracked path. A path that is gone, a symlink by now, or not readable is a finding
    /// and not an error. `own`: directories of nono's own, which are left out.
    pub(super) fn new(root: &TrackedRoot, own: &[InodeId]) -> Result<Self, InvalidPattern> {
        let mut open = Self {
            path: root.path.clone(),
            filter: Filter::new(&root.exclusion)?.without(own),
            place: None,
            stat: None,
            dir: None,
            problem: None,
        };
        if let Err(error) = open.look()
            && !error.is_gone()
        {
            open.problem = Some(error);
        }
        Ok(open)
    }

    /// Whether nothing is there, or a directory above it is a symlink by now, so that it is another
    /// place.
    pub(super) fn is_gone(&self) -> bool {
        self.stat.is_none() && self.problem.as_ref().is_none_or(sys::Error::is_symlink_in_path)
    }

    fn look(&mut self) -> sys::Result<()> {
        let place = OpenPath::new(&self.path).map_err(|error| {
            let parent = self.path.parent().unwrap_or(Path::new("/"));
            // The tracked path may lie behind it, so it cannot be called gone.
            if error.is_gone() && is_symlink(parent) { symlink_in_path(parent) } else { error }
        })?;
        let place = self.place.insert(place);
        let stat = place.parent.stat(place.name())?;
        self.stat = Some(stat);
        if stat.kind == FileKind::Directory {
            self.dir = Some(place.parent.open_dir(place.name())?);
        }
        Ok(())
    }
}
