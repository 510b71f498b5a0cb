//! Where forks cannot be: why, and what helps.

use std::path::Path;

use super::holder::NAME;
use crate::cli::args::StoreArgs;
use crate::cli::background;
use crate::cli::error::CliError;
use crate::sandbox::layers::{self, Lower};
use crate::sandbox::{NamespaceError, separate};
use nono_engine::layout;
use nono_engine::sys::{self, Dir};

/// The refusal of namespaces, with what helps.
pub(super) fn of_namespaces(error: NamespaceError) -> CliError {
    let hint = if sys::effective_uid() == 0 {
        "give root CAP_SYS_ADMIN here, or make the fork as an ordinary user"
    } else {
        "let users make user namespaces (sysctl user.max_user_namespaces, \
         kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
    };
    CliError::failed(format!("there can be no fork here: {error}")).with_hint(hint)
}

/// The refusal of an overlay, with what helps.
pub(super) fn of_layer(error: NamespaceError) -> CliError {
    CliError::failed(format!("there can be no fork here: {error}")).with_hint(
        "the kernel needs overlayfs (Linux 5.11 or newer, modprobe overlay), and the store a file \
         system that can hold layers, such as ext4, XFS, btrfs or tmpfs, and not NFS or another \
         overlay: --root DIR; --copy makes a copy of the state in place of a layer",
    )
}

/// Tries whether forks can be in a store, in a process of its own.
///
/// # Errors
/// Why not, with what helps.
pub(in crate::cli) fn probe(root: &Path) -> Result<(), CliError> {
    // It ends at once, and says itself why it failed.
    background::start_with(["--root".into(), root.into(), NAME.into()], None)
}

/// As [`probe`], for forks that are copies: namespaces are all that they need.
///
/// # Errors
/// As there.
pub(in crate::cli) fn probe_copy(root: &Path) -> Result<(), CliError> {
    let words = ["--root".into(), root.into(), NAME.into(), "--copy".into()];
    background::start_with(words, None)
}

/// Mounts an empty layer over an empty directory, in namespaces of this process.
pub(super) fn try_here(store: &StoreArgs) -> Result<(), CliError> {
    let root = sys::real_or_future_path(&sys::plain_absolute(
        store.catalog()?.root(),
        &sys::current_dir()?,
    ));
    let dir = match Dir::open(&root) {
        Ok(dir) => dir,
        // The nearest directory is on the same file system.
        Err(error) if error.is_gone() => {
            let above = root.ancestors().find(|path| sys::leads_to_dir(path));
            Dir::open(above.unwrap_or(Path::new("/")))?
        }
        Err(error) => return Err(error.into()),
    };
    let name = layout::new_name()?;
    dir.make_dir(name.as_bytes(), 0o700)?;
    let tried = (|| {
        let own = dir.open_dir(name.as_bytes())?;
        for part in ["lower", "upper", "work", "place"] {
            own.make_dir(part.as_bytes(), 0o700)?;
        }
        let part = |part: &str| own.path().join(part);
        separate(false).map_err(of_namespaces)?;
        layers::prepare()?;
        let lower = Lower::open(&part("lower"))?;
        layers::lay("nono-fork", &lower, &part("upper"), &part("work"), &part("place"))
            .map_err(of_layer)?;
        layers::lift(&part("place"))?;
        Ok(())
    })();
    let removed = dir.remove_dir_all(name.as_bytes());
    tried.and_then(|()| Ok(removed?))
}
