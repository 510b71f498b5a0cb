//! From absolute paths of a snapshot to (directory descriptor, name), never through a symlink.

use std::rc::Rc;

use crate::byte_path;
use crate::path_text::to_path;
use crate::snapshot::{OpenPath, TrackedRoot};
use crate::sys::{self, Dir, IoContext};
use std::os::unix::ffi::OsStrExt;

/// Resolves paths inside the tracked paths, and nowhere else.
pub(super) struct Places<'a> {
    roots: &'a [TrackedRoot],
    /// The directory that was asked for last: steps come sorted, so it is mostly the next one too.
    last: Option<(Vec<u8>, Rc<Dir>)>,
}

/// Where a path is.
pub(super) struct Place {
    pub(super) dir: Rc<Dir>,
    pub(super) name: Vec<u8>,
}

impl<'a> Places<'a> {
    pub(super) fn new(roots: &'a [TrackedRoot]) -> Self {
        Self { roots, last: None }
    }

    /// The directory that holds `path`, and its name in there.
    ///
    /// # Errors
    /// When the directory is gone, a symlink stands in the way (ELOOP), or the path is in no
    /// tracked path (EXDEV).
    pub(super) fn find(&mut self, path: &[u8]) -> sys::Result<Place> {
        let (parent, name) = byte_path::split(path);
        if let Some((known, dir)) = &self.last
            && known == parent
        {
            return Ok(Place { dir: Rc::clone(dir), name: name.to_vec() });
        }
        let dir = Rc::new(self.open_parent(path)?);
        self.last = Some((parent.to_vec(), Rc::clone(&dir)));
        Ok(Place { dir, name: name.to_vec() })
    }

    fn open_parent(&self, path: &[u8]) -> sys::Result<Dir> {
        for root in self.roots {
            let base = root.path.as_os_str().as_bytes();
            if path == base {
                return Ok(OpenPath::new(&root.path)?.parent);
            }
            if let Some(inside) = path.strip_prefix(base).and_then(|rest| rest.strip_prefix(b"/")) {
                let place = OpenPath::new(&root.path)?;
                let top = place.parent.open_dir(place.name())?;
                let (parent, _) = byte_path::split(inside);
                return top.open_beneath(parent);
            }
        }
        Self::outside(path)
    }

    /// The error for a path that is in no tracked path.
    pub(super) fn outside<T>(path: &[u8]) -> sys::Result<T> {
        Err(rustix::io::Errno::XDEV).at("restore", to_path(path))
    }

    /// Forgets the open directory, because it may have been replaced.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// The tracked path that `path` is in.
    pub(super) fn root_of(&self, path: &[u8]) -> Option<&'a TrackedRoot> {
        self.roots.iter().find(|root| {
            let base = root.path.as_os_str().as_bytes();
            byte_path::is_in(path, base)
        })
    }
}
