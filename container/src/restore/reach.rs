//! The directory of a volume on this machine, where nono may write it.

use crate::volumes::{NOT_SEEN, is_directory, sees};
use crate::{Docker, Patience};
use nono_engine::sys::{self, Dir, FileTime};

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
    if !is_directory(docker, &found) {
        return Err(format!("its driver is {} with options of its own", found.driver));
    }
    Dir::open_no_symlinks(found.mountpoint.as_ref()).map_err(|error| error.to_string())
}

/// Opens the directory of a volume that a container has at `destination`, where the engine seems to
/// see the same directory. Changes nothing.
///
/// # Errors
/// Why it is out of reach, in words.
pub(super) fn seen_directory(
    docker: &Docker,
    volume: &str,
    container: &str,
    destination: &str,
) -> Result<Dir, String> {
    let dir = directory(docker, volume)?;
    match sees(docker, container, destination, &dir) {
        Ok(true) => Ok(dir),
        Ok(false) => Err(NOT_SEEN.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The same with a proof: a socket may lead to another machine, whose directory has the same name
/// and comes from the same snapshot. So the directory has a random time for a moment, which the
/// engine has to see. That needs no room on a full disk.
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
    let words = |error: sys::Error| error.to_string();
    let before = dir.stat_self().map_err(words)?.mtime;
    let inode = dir.inode(b".").map_err(words)?;
    let [a, b, c, d, e, f, g, h, ..] = sys::random_bytes().map_err(words)?;
    let mark = FileTime {
        // A time that every file system can keep.
        seconds: i64::from(u32::from_le_bytes([a, b, c, d]) >> 1),
        nanoseconds: u32::from_le_bytes([e, f, g, h]) % 1_000_000_000,
    };
    inode.set_mtime(mark).map_err(words)?;
    let seen = sees(docker, container, destination, &dir);
    inode.set_mtime(before).map_err(words)?;
    match seen {
        Ok(true) => Ok(dir),
        Ok(false) => {
            Err("the engine has another directory of that name, on another machine".into())
        }
        Err(error) => Err(error.to_string()),
    }
}
