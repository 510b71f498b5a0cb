//! Mounts: the past as read-only folders, served by this process.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nono_engine::browse::{Scope, StoreTree, check_place};
use nono_engine::path_text::Shown;
use nono_engine::sys::Dir;
use nono_mount::{MountError, MountOptions, Unmounter};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::args::PathArg;
use crate::call::quick;
use crate::error::Failure;

/// A live mount; leaving its ``with`` block unmounts it.
///
/// It is served by this process and ends with it. It is an ``os.PathLike``: ``Path(mount)`` is the
/// directory.
#[pyclass(frozen, module = "nono_py")]
pub(crate) struct Mount {
    live: Mutex<Option<nono_mount::Mount>>,
    directory: PathBuf,
    /// A child that was forked has a copy of this object, and must not unmount what it does not
    /// serve.
    process: u32,
}

/// Mounts that were not ended yet, for the end of the program.
static LIVE: Mutex<Vec<(u32, Unmounter)>> = Mutex::new(Vec::new());

impl Mount {
    /// Mounts the part of a store that `scope` names.
    pub(crate) fn new(
        py: Python<'_>,
        root: &Path,
        scope: &Scope,
        directory: &Path,
    ) -> PyResult<Self> {
        quick(py, "mount", directory, || {
            let roots = [root.to_owned()];
            check_place(directory, &roots)?;
            let tree = StoreTree::new(&roots, scope)?;
            // As `nono mount` writes it, so that `nono mount --status` can read it.
            let session = match scope {
                Scope::Session(id) => format!("#session={id}"),
                _ => String::new(),
            };
            let fs_name = format!("nono:{}{session}", Shown::path(root));
            let options = MountOptions { fs_name, ..MountOptions::default() };
            make_directory(directory)?;
            let mount = nono_mount::Mount::new(tree, directory, options)?;
            let process = std::process::id();
            LIVE.lock().push((process, mount.unmounter()));
            let directory = mount.directory().to_owned();
            Ok(Self { live: Mutex::new(Some(mount)), directory, process })
        })
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        quick(py, "unmount", &self.directory, || {
            let mut live = self.live.lock();
            if let Some(mount) = &*live {
                mount.unmount()?;
            }
            *live = None;
            Ok(())
        })
    }
}

#[pymethods]
impl Mount {
    /// The directory it is mounted at.
    #[getter]
    fn directory(&self) -> PathBuf {
        self.directory.clone()
    }

    /// Takes the mount away, lazily when a process uses it. Nothing is done the second time.
    fn unmount(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py)
    }

    fn __fspath__(&self) -> &std::ffi::OsStr {
        self.directory.as_os_str()
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(
        signature = (_exc_type, _exc_value, _traceback, /),
        text_signature = "($self, exc_type, exc_value, traceback, /)"
    )]
    fn __exit__(
        &self,
        py: Python<'_>,
        _exc_type: &Bound<'_, PyAny>,
        _exc_value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.end(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.directory.as_os_str().into_pyobject(py)?.repr()?;
        let ended = if self.live.lock().is_some() { "" } else { ", ended" };
        Ok(format!("Mount({path}{ended})"))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let Some(mount) = self.live.get_mut().take() else { return };
        if self.process == std::process::id() {
            drop(mount);
        } else {
            std::mem::forget(mount);
        }
    }
}

/// Makes the directory if only its last component is missing, as `nono mount` does.
fn make_directory(directory: &Path) -> Result<(), Failure> {
    let missing =
        matches!(nono_mount::check_mount_point(directory), Err(MountError::NotFound { .. }));
    if missing && let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        Dir::open(parent)?.make_dir(name.as_bytes(), 0o755)?;
    }
    Ok(())
}

/// Shows every session of a store as read-only folders: ``<session>/<number>/<absolute path>``.
///
/// ``root`` is the store's root directory; by default ``$NONO_ROOT``, or ``~/.nono/rollbacks``.
#[pyfunction]
#[pyo3(signature = (directory, root = None))]
pub(crate) fn mount(py: Python<'_>, directory: PathArg, root: Option<PathArg>) -> PyResult<Mount> {
    Mount::new(py, &store_root(py, root)?, &Scope::Everything, &directory.0)
}

/// The store that is meant.
pub(crate) fn store_root(py: Python<'_>, root: Option<PathArg>) -> PyResult<PathBuf> {
    if let Some(root) = root {
        return Ok(root.0);
    }
    let named = std::env::var_os("NONO_ROOT").filter(|root| !root.is_empty());
    let default = || "~/.nono/rollbacks".into_pyobject(py)?.extract::<PathArg>();
    named.map_or_else(|| Ok(default()?.0), |root| Ok(root.into()))
}

/// Ends what is mounted; called when the program ends, because a mount without its process is a
/// directory that cannot be read.
#[pyfunction]
#[pyo3(name = "_unmount_all")]
pub(crate) fn unmount_all(py: Python<'_>) {
    py.detach(|| {
        for (process, unmounter) in LIVE.lock().drain(..) {
            if process == std::process::id() {
                // No user is left to be told; a later mount at the same place replaces a dead one.
                let _ = unmounter.unmount();
            }
        }
    });
}
