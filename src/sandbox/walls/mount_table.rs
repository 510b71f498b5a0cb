//! The mounts of this process, from `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use nono_engine::sys;

/// More mounts than this in bytes are no machine's.
const MAX_TABLE_BYTES: u64 = 1 << 26;

/// One mount.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mounted {
    /// Where it is.
    pub(super) directory: PathBuf,
    /// Its own flags, without the one for read-only: a remount that left one out would be refused.
    pub(super) flags: MountFlags,
}

/// All mounts, in the order in which the kernel lists them.
///
/// # Errors
/// When there is no such list.
pub(super) fn mount_table() -> sys::Result<Vec<Mounted>> {
    let table = sys::read_kernel_file(Path::new("/proc/self/mountinfo"), MAX_TABLE_BYTES)?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ').skip(4);
    let directory = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    let options = fields.next()?.split(|byte| *byte == b',');
    let flags = options.map(|option| match option {
        b"nosuid" => MountFlags::NOSUID,
        b"nodev" => MountFlags::NODEV,
        b"noexec" => MountFlags::NOEXEC,
        b"noatime" => MountFlags::NOATIME,
        b"nodiratime" => MountFlags::NODIRATIME,
        b"relatime" => MountFlags::RELATIME,
        b"nosymfollow" => MountFlags::NOSYMFOLLOW,
        _ => MountFlags::empty(),
    });
    Some(Mounted { directory, flags: flags.fold(MountFlags::empty(), |all, flag| all | flag) })
}

/// The kernel writes blanks, tabs, line ends, `#` and backslashes as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let escaped = match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[3..] } else { tail };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_the_place_and_the_flags_of_a_mount() {
        let line =
            b"36 35 98:0 /mnt1 /mnt/a\\040b rw,nosuid,noexec,relatime master:1 - ext3 /dev/root rw";
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::RELATIME;
        let directory = PathBuf::from("/mnt/a b");
        assert_eq!(parse(line), Some(Mounted { directory, flags }));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 98:0 /mnt1"), None);
    }
}
