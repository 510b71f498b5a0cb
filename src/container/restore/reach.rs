//! The directory of a volume on this machine, where nono may write it.

use crate::container::{Docker, Patience};
use crate::sys::{self, Dir};

/// The option with the owner of a volume.
pub(super) const OWNER_OPTION: &str = "o";
/// The options of a volume of Podman that has an owner, and is a directory all the same.
const OWNED: [&str; 3] = [OWNER_OPTION, "UID", "GID"];

/// Opens the directory of a volume.
///
/// # Errors
/// Why it is out of reach, in words.
pub(super) fn directory(docker: &Docker, volume: &str) -> Result<Dir, String> {
    if !docker.endpoint().url.starts_with("unix://") {
        return Err("the engine is on another machine".to_owned());
    }
    if sys::effective_uid() != 0 {
        return Err("only root can give files their owners".to_owned());
    }
    let request = docker.client().inspect_volume(volume);
    let operation = format_args!("look at volume {volume}");
    let found = docker.call(operation, Patience::Quick, request).map_err(|e| e.to_string())?;
    let is_plain = |option: &String| docker.is_podman() && OWNED.contains(&option.as_str());
    if found.driver != "local" || !found.options.keys().all(is_plain) {
        return Err(format!("its driver is {} with options of its own", found.driver));
    }
    Dir::open_no_symlinks(found.mountpoint.as_ref()).map_err(|error| error.to_string())
}

/// Opens the directory of a volume that a container has at `destination`, and makes sure that the
/// engine sees the same directory: a socket may lead to another machine.
///
/// # Errors
/// Why it is out of reach, in words.
pub(super) fn proved_directory(
    docker: &Docker,
    volume: &str,
    container: &str,
    destination: &str,
) -> Result<Dir, String> {
    let dir = directory(docker, volume)?;
    let random = sys::random_bytes().map_err(|error| error.to_string())?;
    let probe = format!(".nono-probe-{}", hex::encode(random));
    let before = dir.stat_self().map_err(|error| error.to_string())?;
    drop(dir.create_file(probe.as_bytes(), 0o600).map_err(|error| error.to_string())?);
    let path = format!("{}/{probe}", destination.trim_end_matches('/'));
    let request = docker.client().get_container_archive_info(
        container,
        Some(bollard::query_parameters::ContainerArchiveInfoOptions { path }),
    );
    let seen = docker.call("look at a file of the volume", Patience::Quick, request);
    dir.remove_file(probe.as_bytes()).map_err(|error| error.to_string())?;
    let inode = dir.inode(b".").map_err(|error| error.to_string())?;
    inode.set_mtime(before.mtime).map_err(|error| error.to_string())?;
    match seen {
        Ok(_) => Ok(dir),
        Err(error) if error.is_not_found() => {
            Err("the engine has another directory of that name, on another machine".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}
