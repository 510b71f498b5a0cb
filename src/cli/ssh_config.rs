//! Settings of `ssh` that a user namespace would make it refuse.
//!
//! In the user namespace of an ordinary user, files of root show as nobody's. OpenSSH takes that
//! for an attack in the files that `/etc/ssh/ssh_config` includes ("Bad owner or permissions"), and
//! systemd puts one there on many systems, so that no `git push` would work. So the command sees
//! copies that are the user's own, which OpenSSH accepts.

use std::path::{Path, PathBuf};

use super::error::CliError;
use crate::sandbox::Room;
use nono_engine::path_text::to_path;
use nono_engine::sys::{self, Dir};

/// The files that are included.
const INCLUDED: &str = "/etc/ssh/ssh_config.d";
/// Settings of this length are no settings.
const MAX_BYTES: u64 = 1 << 20;

/// Copies the files into a new directory in `scratch`. `None` where there are none, or for root,
/// who needs no user namespace.
///
/// # Errors
/// When the copies cannot be written.
pub(super) fn copied(scratch: &Path) -> Result<Option<Room>, CliError> {
    let Ok(at) = sys::real_path(Path::new(INCLUDED)) else { return Ok(None) };
    let names = Dir::open(&at).and_then(|dir| dir.names()).unwrap_or_default();
    if sys::effective_uid() == 0 || names.is_empty() {
        return Ok(None);
    }
    let from: PathBuf = scratch.join("ssh_config.d");
    sys::create_private_dir(&from)?;
    for name in names {
        let name = to_path(&name.name);
        // ssh does not read a file that this user cannot read.
        if let Ok(bytes) = sys::read_kernel_file(&at.join(name), MAX_BYTES) {
            sys::create_private_file(&from.join(name), &bytes)?;
        }
    }
    Ok(Some(Room { at, from, is_writable: false }))
}
